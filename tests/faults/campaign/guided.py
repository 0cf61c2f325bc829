"""Hostile input that atheris finds: content that makes isosent run new lines is kept, and spoilt further."""

import importlib
import random
import shlex
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from campaign import processes
from campaign.fuzz import LIMIT_S, MEMORY_BYTES, clean, found, look, original
from campaign.mutations import mutated, resealed
from campaign.outcomes import Outcome
from campaign.readers import Reader
from campaign.seeds import write_seeds
from campaign.targets import succeed

_LONGEST_BYTES = 1 << 16


def guided(readers: Sequence[Reader], home: Path, n_runs: int, seed: int, keep: Path | None) -> Iterator[Outcome]:
    """Spoil each file of each reader for `n_runs` seconds."""
    folder = home / "seeds"
    write_seeds(folder, is_heavy=any(reader.modules for reader in readers))
    for reader in readers:
        names = [found(folder, name) for name in reader.files]
        succeed(shlex.split(reader.command), folder)
        clean(folder)
        for name in names:
            with tempfile.TemporaryDirectory() as kept:
                log = Path(kept) / "log"
                log.touch()
                search = partial(_search, folder, reader, name, n_runs, seed, Path(kept))
                ended = processes.forked(search, limit_s=n_runs + 120)
                failures = [path.read_text() for path in sorted(Path(kept).glob("failure-*.txt"))]
                for outcome in log.read_text().split():
                    yield Outcome(reader.name, outcome)
                if "\nDone " not in ended.err:  # a fork may crash when it ends, in threads that it does not have
                    failures.append(f"the process ended with {ended.code}: {ended.err[-1500:]}")
                for detail in failures:
                    failure = Outcome(reader.name, "failed", f"{name}: {detail}", is_failure=True)
                    if keep:
                        failure.keep_folder(keep, Path(kept))
                    yield failure


def _search(folder: Path, reader: Reader, name: str, n_seconds: int, seed: int, kept: Path) -> None:
    """Spoil a file until the time is up: atheris then ends the process."""
    atheris = importlib.import_module("atheris")
    seen: set[str] = set()
    (kept / "corpus").mkdir()
    (kept / "corpus" / "original").write_bytes(original(folder, name))
    log = (kept / "log").open("a", buffering=1)

    def mutate(content: bytes, longest: int, number: int) -> bytes:
        chosen = random.Random(number)
        if chosen.random() < 0.5:
            with suppress(Exception):  # what knows JSON or headers cannot change what is none any more
                return mutated(name, content, chosen)[:longest]
        changed: bytes = atheris.Mutate(content, longest)
        return resealed(changed)[:longest]

    def judge(content: bytes) -> None:
        try:
            outcome, detail = look(folder, reader, name, content)
        except Exception:
            outcome, detail = "exception", traceback.format_exc()
        if outcome in ("refused", "read"):
            log.write(f"{outcome}\n")
            return
        log.write("failed\n")
        where = f"{outcome} {detail[-200:]}"
        if where not in seen:
            seen.add(where)
            (kept / f"failure-{len(seen)}.bin").write_bytes(content)
            (kept / f"failure-{len(seen)}.txt").write_text(f"{outcome}: {detail}")

    processes.limit_memory(MEMORY_BYTES)
    options = (
        f"-max_total_time={n_seconds}",
        f"-timeout={LIMIT_S}",
        f"-seed={seed + 1}",
        f"-max_len={_LONGEST_BYTES}",
        "-rss_limit_mb=0",
        "-close_fd_mask=3",  # what it says itself goes to another descriptor
        f"-artifact_prefix={kept}/",
    )
    atheris.Setup(["guided", *options, str(kept / "corpus")], judge, custom_mutator=mutate)
    atheris.Fuzz()
