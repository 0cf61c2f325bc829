"""Processor time of a fresh process until it has its first vector, beside Model2Vec, and of short commands.

Both open the same folder, that of Model2Vec, with wordllama's matrix; isosent's own model and commands are shown next
to them. In turns; the first turn only fills the caches. Prints JSON lines.
Usage: python bench/start.py [--repeats N] [--least RATIO]
With --least: the first vector alone; ends with 1 if isosent is not that many times as fast as Model2Vec.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from model2vec import StaticModel

import isosent
from whitening_fit import conditions

OURS, THEIRS = "isosent, the folder of model2vec", "model2vec"


def ways(folder):
    """Code, or arguments of a command, by name."""
    encoder, texts = isosent.load("wordllama").encoder, isosent.demo_texts()
    StaticModel(vectors=encoder.vectors, tokenizer=encoder.tokenizer.tokenizer, config={}).save_pretrained(folder)
    for name, lines in (("two.txt", texts[:2]), ("texts.txt", texts)):
        (folder / name).write_text("\n".join(lines), "utf-8")
    two, all_texts = str(folder / "two.txt"), str(folder / "texts.txt")
    ask = '.encode(["A man is riding a horse."])'
    return {
        "python": "pass",
        "python and numpy": "import numpy",
        THEIRS: f'from model2vec import StaticModel; StaticModel.from_pretrained("{folder}"){ask}',
        OURS: f'import isosent; isosent.load("static:{folder}"){ask}',
        "isosent, wordllama": f'import isosent; isosent.load("wordllama"){ask}',
        "isosent --help": ["--help"],
        "isosent encode, two texts": ["encode", two, "-o", str(folder / "two.npy")],
        f"isosent fit, {len(texts)} texts": ["fit", all_texts, "-o", str(folder / "model")],
        f"isosent cluster, {len(texts)} texts": ["cluster", all_texts],
        f"isosent inspect, {len(texts)} texts": ["inspect", all_texts],
    }


def seconds(way):
    """User and system time of a process."""
    command = "from isosent.cli.main import main; main()" if isinstance(way, list) else way
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = [sys.executable, "-c", command, *(way if isinstance(way, list) else [])]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--least", type=float, default=0.0, metavar="RATIO")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process compiles all modules again
    print(json.dumps(conditions()))
    with tempfile.TemporaryDirectory() as folder:
        by_name = ways(Path(folder))
        if arguments.least:
            by_name = {name: by_name[name] for name in (THEIRS, OURS)}
        found = {name: [] for name in by_name}
        for turn in range(arguments.repeats + 1):
            for name, way in by_name.items():
                taken = seconds(way)
                if turn:
                    found[name].append(taken)
    for name, each in found.items():
        print(json.dumps({"way": name, "processor_s": float(np.median(each)), "least": min(each)}))
    ratio = float(np.median(np.divide(found[THEIRS], found[OURS])))
    print(json.dumps({"times_as_fast_as_model2vec": ratio}))
    if ratio < arguments.least:
        raise SystemExit(f"the first vector: {ratio:.2f} times as fast as with Model2Vec, not {arguments.least:g}")


if __name__ == "__main__":
    main()
