"""Single flipped bits in every file that isosent wrote: noticed on reading, or without any effect."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from campaign import processes
from campaign.outcomes import Outcome
from campaign.targets import Read, Target, checkpoint, contents, interrupted, interrupted_training, prepare, restore

LIMIT_S = 30
MEMORY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of one file."""

    name: str
    byte: int
    bit: int


def flips(targets: list[Target], home: Path, n_runs: int, seed: int, keep: Path | None) -> Iterator[Outcome]:
    """Flip `n_runs` bits of each file that a target wrote, one at a time, and read."""
    for target in targets:
        if target.read is None:
            continue
        try:
            states = prepare(target, home.with_name("targets"))
            restore(states, states.new_copy)
        except RuntimeError as error:
            yield Outcome(target.name, "broken", str(error), is_failure=True)
            continue
        written = [name for name in states.new if states.new[name] != states.old.get(name) and name != "kept"]
        yield from _flipped(target.name, target.read, states.folder, written, n_runs, seed, keep)
        if target.name == "moments checkpoint":
            yield from _flipped(
                "moments checkpoint", partial(checkpoint, "kept"), states.folder, ["kept"], n_runs, seed, keep
            )
        if target.name == "trained folder":
            restore(states, states.old_copy)
            interrupted_training(states.folder)
            kept = [name for name in contents(states.folder) if name.startswith("out.training/")]
            reader = partial(interrupted, "out")
            yield from _flipped("interrupted training", reader, states.folder, kept, n_runs, seed, keep)


def _flipped(
    name: str, read: Read, folder: Path, files: list[str], n_runs: int, seed: int, keep: Path | None
) -> Iterator[Outcome]:
    chosen = random.Random(f"{seed} {name}")
    cases = [
        Flip(file, chosen.randrange(size), chosen.randrange(8))
        for file in sorted(files)
        if (size := (folder / file).stat().st_size) and not file.endswith((".html", ".svg", ".csv", ".md"))
        for _ in range(n_runs)
    ]
    originals = {file: (folder / file).read_bytes() for file in files}
    before = processes.forked(partial(_value, read, folder)).value
    look = partial(_look, read, folder, before)
    for case, found in zip(
        cases, processes.each_case(look, cases, limit_s=LIMIT_S, memory_bytes=MEMORY_BYTES), strict=True
    ):
        outcome, detail = found if isinstance(found, tuple) else (found.partition(":")[0], found)
        where = f"{case.name}, byte {case.byte} of {(folder / case.name).stat().st_size}, bit {case.bit}"
        if outcome in ("noticed", "harmless"):
            yield Outcome(_kind(name, case.name), outcome, where)
            continue
        failure = Outcome(_kind(name, case.name), outcome, f"{where}: {detail}", is_failure=True)
        if keep:
            failure.keep_folder(keep, folder)
            for file, content in originals.items():  # the process that reads may have come to another file already
                (Path(failure.reproducer) / file).write_bytes(content)
            _flip(Path(failure.reproducer) / case.name, case)
        yield failure


def _kind(target: str, name: str) -> str:
    """Target and file, without hashes and numbers."""
    path = Path(name)
    parts = [part.split("-")[0] if "-" in part else part for part in path.parts]
    return f"{target}: {'/'.join([*parts[:-1], parts[-1]])}{path.suffix if '-' in path.name else ''}"


def _flip(path: Path, case: Flip) -> None:
    with path.open("rb+") as file:
        file.seek(case.byte)
        value = file.read(1)[0]
        file.seek(case.byte)
        file.write(bytes([value ^ (1 << case.bit)]))


_TICKS = iter(range(1, 1 << 60))


def _look(read: Read, folder: Path, before: Any, case: Flip) -> tuple[str, str]:
    """Flip, read, flip back."""
    path = folder / case.name
    state = path.stat()
    _flip(path, case)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + next(_TICKS)))  # what was verified is remembered by time
    try:
        outcome, value = _value(read, folder)
    finally:
        _flip(path, case)
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    if outcome == "refused":
        names = {path.name, *(part.name for part in path.relative_to(folder).parents if part.name)}
        is_named = any(name in value for name in names)
        return ("noticed" if is_named else "unnamed", value[:400])
    if outcome == "crash":
        return ("crash", value[-600:])
    return ("harmless", "") if value == before[1] else ("unnoticed", "another result, without a word")


def _value(read: Read, folder: Path) -> tuple[str, Any]:
    """What a reader gives, the sentence with which it refuses, or how it fails."""
    import traceback
    import warnings

    from isosent.errors import IsosentError, IsosentWarning

    os.chdir(folder)
    os.environ["ISOSENT_CACHE"] = str(folder / "cache")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=IsosentWarning)
        try:
            return ("value", read())
        except IsosentError as error:
            return ("refused", str(error))
        except Exception as error:
            return ("crash", f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
