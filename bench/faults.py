"""Kill, starve, damage and deceive isosent, and check what docs/reliability.md promises.

kills: SIGKILL at random times and at every rename. disks: full ones. flips: single bits in every file that isosent
writes. calls: every call that opens, reads, writes, flushes, maps or renames a file fails once; needs a C compiler.
fuzz: hostile input for every reader. writers: several at once, with readers. all: one after the other.
Not in all are guided, which is like fuzz, but for N seconds a file, and spoils further what makes isosent run new lines
(needs atheris); and model: N operations at random on indexes, against a dictionary.
Prints a JSON line for each failure and a summary for each campaign; exit code 1 if anything failed. Needs Linux and all
extras; with --quick none.
Usage: python bench/faults.py NAME [--runs N] [--seed S] [--keep DIR] [--only TARGET ...] [--quick]
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import nullcontext
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads do not survive a fork
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the others reserve more addresses than a limit on memory allows
os.environ["TOKENIZERS_PARALLELISM"] = "false"

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "faults"))
from campaign import processes

RUNS = {"kills": 3, "disks": 5, "flips": 40, "calls": 10_000, "fuzz": 30, "writers": 4, "guided": 60, "model": 5000}
QUICK_RUNS = {"kills": 1, "disks": 1, "flips": 3, "calls": 2, "fuzz": 2, "writers": 0.4}
COMPILED = [
    f"isosent.{name}" for name in ("words.ngrams", "words.vocabulary", "numeric.gem_kernels", "numeric.word_averages")
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*RUNS, "all"])
    parser.add_argument(
        "--runs",
        "--operations",
        type=int,
        metavar="N",
        help="faults of a kind for each target; of model, operations in all",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the files of every failure here")
    parser.add_argument("--only", action="append", metavar="TARGET", help="targets whose name holds this, or another")
    parser.add_argument("--quick", action="store_true", help="few faults, and targets that need no torch")
    arguments = parser.parse_args()
    names = [name for name in RUNS if name not in ("guided", "model")] if arguments.name == "all" else [arguments.name]
    if "calls" in names:
        importlib.import_module("campaign.calls").preload()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        with instrumented() if names == ["guided"] else nullcontext():
            targets = {name: chosen_targets(name, arguments) for name in names}
            modules = {module for listed in targets.values() for target in listed for module in target.modules}
            importlib.import_module("campaign.inputs").write_inputs(Path(home) / "inputs")
            processes.warm_up(Path(home) / "inputs", sorted(modules))
        n_failures = sum(run_campaign(name, targets[name], Path(home).resolve() / name, arguments) for name in names)
    sys.exit(bool(n_failures))


def instrumented():
    """While isosent is imported, have it say which lines run; but not what numba compiles."""
    atheris = importlib.import_module("atheris")
    return atheris.instrument_imports(include=["isosent"], exclude=COMPILED)


def chosen_targets(name, arguments):
    """Targets of a campaign: readers for fuzz and guided, indexes for model, both for calls, writers for the others."""
    sources = {"fuzz": ["readers"], "guided": ["readers"], "model": ["model"]}.get(name, ["targets"])
    if name == "calls" and not arguments.quick:
        sources = ["targets", "readers"]
    modules = [importlib.import_module(f"campaign.{source}") for source in sources]
    targets = [target for module in modules for target in getattr(module, "READERS", None) or module.TARGETS]
    chosen = [
        target
        for target in targets
        if any(part in target.name for part in arguments.only or [""]) and (target.is_quick or not arguments.quick)
    ]
    return [target for target in chosen if not target.modules] if name == "guided" else chosen  # those are slow


def run_campaign(name, targets, home, arguments):
    """Print failures and a summary; returns the number of failures."""
    n_runs = arguments.runs or (QUICK_RUNS if arguments.quick else RUNS)[name]
    start_s, counts, n_failures = time.monotonic(), defaultdict(Counter), 0
    campaign = getattr(importlib.import_module(f"campaign.{name}"), name)
    for outcome in campaign(targets, home, n_runs, arguments.seed, arguments.keep):
        counts[outcome.target][outcome.outcome] += 1
        if outcome.is_failure:
            n_failures += 1
            line = {"campaign": name, "target": outcome.target, "outcome": outcome.outcome, "detail": outcome.detail}
            print(json.dumps(line | ({"kept": outcome.reproducer} if outcome.reproducer else {})), flush=True)
    n_faults = sum(map(Counter.total, counts.values()))
    facts = {"seed": arguments.seed, "runs": n_runs, "faults": n_faults, "failures": n_failures}
    facts |= {
        "outcomes": sum(counts.values(), Counter()),
        "elapsed_s": round(time.monotonic() - start_s),
        "targets": counts,
    }
    print(json.dumps({"campaign": name, **facts}), flush=True)
    return n_failures


if __name__ == "__main__":
    main()
