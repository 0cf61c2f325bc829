"""Hostile input for every reader: a success, or one sentence and exit code 2, in bounded time and memory."""

import contextlib
import os
import random
import re
import resource
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from campaign import processes
from campaign.crafted import described_again
from campaign.mutations import mutated
from campaign.outcomes import Outcome
from campaign.readers import Reader
from campaign.seeds import write_seeds
from campaign.targets import succeed

LIMIT_S = 20
MEMORY_BYTES = 1 << 30  # of addresses, which libraries reserve more of than they use
USED_BYTES = 256 << 20
_UNPRINTABLE = re.compile("[\x00-\x1f]")
_PYTHON = ("Error(", "object has no attribute", "not subscriptable", "object at 0x")  # says nothing to a user
LONGEST_MESSAGE = 2000  # characters on standard error; a hostile value must not fill the screen


@dataclass(frozen=True, slots=True)
class Case:
    """One spoilt file."""

    reader: Reader
    name: str
    seed: str


def fuzz(readers: Sequence[Reader], home: Path, n_runs: int, seed: int, keep: Path | None) -> Iterator[Outcome]:
    """Spoil the files of each reader, `n_runs` times in all, and read them."""
    folder = home / "seeds"
    write_seeds(folder, is_heavy=any(reader.modules for reader in readers))
    for reader in readers:
        files = [found(folder, name) for name in reader.files]
        try:
            succeed(shlex.split(reader.command), folder)
        except RuntimeError as error:
            yield Outcome(reader.name, "broken", str(error), is_failure=True)
            continue
        clean(folder)
        cases = [
            Case(reader, files[i % len(files)], f"{seed} {reader.name} {i}")
            for i in range(max(2, int(n_runs * reader.share)))
        ]
        results = processes.each_case(partial(_look, folder), cases, limit_s=LIMIT_S, memory_bytes=MEMORY_BYTES)
        for case, result in zip(cases, results, strict=True):
            outcome, detail = result if isinstance(result, tuple) else (result.partition(":")[0], result)
            if outcome in ("refused", "read"):
                yield Outcome(reader.name, outcome)
                continue
            failure = Outcome(reader.name, outcome, f"{case.name}, seed {case.seed!r}: {detail}", is_failure=True)
            if keep:
                _keep(failure, keep, folder, case)
            yield failure
            if not isinstance(result, tuple):  # the process may have ended before it put the file back
                _restore(folder)


def found(folder: Path, name: str) -> str:
    """The name of a file, whose hash may be left out."""
    if (folder / name).is_file():
        return name
    (path,) = folder.glob(f"{name}-*")
    return str(path.relative_to(folder))


def _keep(failure: Outcome, keep: Path, folder: Path, case: Case) -> None:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / Path(case.name).name
        path.write_bytes(_spoilt(folder, case))
        (Path(home) / "command.txt").write_text(
            f"put {path.name} in place of {case.name}, and its checksum into what describes it\n"
            f"isosent {case.reader.command}\n"
        )
        failure.keep_folder(keep, Path(home))


def _spoilt(folder: Path, case: Case) -> bytes:
    return mutated(case.name, original(folder, case.name), random.Random(case.seed))


def original(folder: Path, name: str) -> bytes:
    return (folder.with_name("originals") / name).read_bytes()


def _restore(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("originals"), folder)


def clean(folder: Path) -> None:
    """Remove what a command wrote."""
    for path in (folder / "cache", *folder.glob("o.*"), folder / "o", folder / "o.training", *folder.glob(".*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    originals = folder.with_name("originals")
    for name in ("shards", "fetched", "kept", "out", "out.training", "trained"):
        if (originals / name).is_dir() or (folder / name).is_dir():
            shutil.rmtree(folder / name, ignore_errors=True)
        if (originals / name).is_dir():
            shutil.copytree(originals / name, folder / name)
        elif (originals / name).is_file():
            shutil.copy2(originals / name, folder / name)


_TICKS = iter(range(1, 1 << 60))


def _look(folder: Path, case: Case) -> tuple[str, str]:
    is_crafted = random.Random(f"{case.seed} crafted").random() < 0.8
    return look(folder, case.reader, case.name, _spoilt(folder, case), is_crafted=is_crafted)


def look(folder: Path, reader: Reader, name: str, content: bytes, *, is_crafted: bool = False) -> tuple[str, str]:
    """Put other content into a file, run the command, and judge its exit code and what it says.

    Where it is crafted, the checksums of the file in others are made to fit.
    """
    os.chdir(folder)
    os.environ["ISOSENT_CACHE"] = str(folder / "cache")
    path = folder / name
    described = described_again(folder, name, original(folder, name), content) if is_crafted else []
    path.write_bytes(content)
    os.utime(path, ns=(0, 1_700_000_000_000_000_000 + next(_TICKS)))
    before_bytes = _most_used_bytes()
    try:
        code, err = _captured(shlex.split(reader.command))
    finally:
        clean(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        for changed in (name, *described):
            shutil.copy2(folder.with_name("originals") / changed, folder / changed)
    if (used_bytes := _most_used_bytes() - before_bytes) > USED_BYTES:
        return "memory", f"{used_bytes >> 20} MiB more than before"
    return _judged(code, err)


def _most_used_bytes() -> int:
    """The most memory that this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _captured(arguments: list[str]) -> tuple[int, str]:
    """Run the command line in this process with its output in a file; native code writes there, too."""
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        with (
            os.fdopen(1, "w", closefd=False) as out,
            os.fdopen(2, "w", closefd=False) as err,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("always", RuntimeWarning)
            code = processes.command(arguments)
        file.seek(0)
        return code, file.read().decode("utf-8", "replace")


def _judged(code: int, printed: str) -> tuple[str, str]:
    lines = printed.splitlines()
    if code not in (0, 2) or "Traceback" in printed:
        return f"exit code {code}", printed[-700:]
    stray = [line for line in lines if "RuntimeWarning" in line or "ResourceWarning" in line]
    if stray:
        return "stray warning", stray[0][:300]
    if code == 0:
        return "read", ""
    said = printed[printed.find("rror: ") :].rstrip("\n")
    first, *advice = said.split("\n")
    is_clear = printed.count("rror: ") == 1 and len(said) <= LONGEST_MESSAGE and not _UNPRINTABLE.search(first)
    is_clear = is_clear and len(advice) <= 1 and all(re.match("[A-Z].{9}", line) for line in advice)
    if not is_clear or any(sign in said for sign in _PYTHON):
        return "unclear message", f"{len(said)} characters: {said[:400]!r}"
    return "refused", said
