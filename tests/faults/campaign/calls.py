"""Each call on a file fails once: EIO, ENOSPC, EMFILE or EINTR at every open, read, write, flush, rename and map.

The calls are those of the C library, of native code too: `failing_calls.c` takes their place in this process, and in
every fork of it.
"""

import ctypes
import errno
import os
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from campaign import processes
from campaign.kills import differences
from campaign.outcomes import Outcome
from campaign.readers import Reader
from campaign.seeds import write_seeds
from campaign.targets import States, Target, contents, prepare, restore, value_of

# as in the C file
KINDS = ("open to read", "open to write", "read", "write", "fsync", "rename", "mmap", "mkdir", "list")
READS = ("open to read", "read", "mmap", "list")
SHORT = -1  # in place of an error: half of the bytes, which is none

# kind -> error, and whether all later calls that it suits fail as well
FAULTS: dict[str, tuple[tuple[int, bool], ...]] = {
    "open to read": ((errno.EIO, False), (errno.EMFILE, True), (errno.EINTR, False)),
    "open to write": ((errno.EIO, False), (errno.ENOSPC, True), (errno.EMFILE, False), (errno.EINTR, False)),
    "read": ((errno.EIO, False), (errno.EIO, True), (errno.EINTR, False), (SHORT, False)),
    "write": ((errno.EIO, False), (errno.ENOSPC, True), (errno.EINTR, False), (SHORT, False)),
    "fsync": ((errno.EIO, False), (errno.ENOSPC, True)),
    "rename": ((errno.EIO, False), (errno.ENOSPC, True)),
    "mmap": ((errno.ENOMEM, False),),
    "mkdir": ((errno.EIO, False), (errno.ENOSPC, True)),
    "list": ((errno.EIO, False), (errno.EMFILE, True)),
}
_LASTING = {
    errno.EIO: READS,
    errno.EMFILE: ("open to read", "open to write", "list"),
    errno.ENOSPC: ("open to write", "write", "fsync", "rename", "mkdir"),
}
_BLAME = re.compile(
    r"damaged|truncated|corrupt|edited|is missing|no such|not a (readable|model|valid)|must (be|hold)|not JSON|format"
)


class Fault(NamedTuple):
    """The call that fails, and how."""

    number: int
    kind: str
    path: str
    error: int
    is_lasting: bool

    def __str__(self) -> str:
        name = "SHORT" if self.error == SHORT else errno.errorcode[self.error]
        return f"{name}{' from' * self.is_lasting} at call {self.number}, {self.kind} {self.path.removeprefix('/')}"


def calls(targets: list[Target | Reader], home: Path, n_runs: int, seed: int, keep: Path | None) -> Iterator[Outcome]:
    """Let `n_runs` calls of each command fail, every one where there are fewer; then whole machines that are poor."""
    if shim() is None:
        yield Outcome("failing calls", "skipped, they need a C compiler and LD_PRELOAD")
        return
    if any(isinstance(target, Reader) for target in targets):
        heavy = any(target.modules for target in targets if isinstance(target, Reader))
        write_seeds(home / "readers" / "inputs", is_heavy=heavy)
    for each in targets:
        target = each if isinstance(each, Target) else _target_of(each)
        try:
            states = prepare(target, home.with_name("targets") if target is each else home / "readers")
        except RuntimeError as error:
            yield Outcome(target.name, "broken", str(error), is_failure=True)
            continue
        faults = _chosen(list(_faults(target, states)), n_runs, f"{seed} {target.name}")
        for fault in faults:
            yield _failed(target, states, fault, keep)
        for label, prepare_fork in _machines(states.folder, n_runs):
            yield _on_machine(target, states, label, prepare_fork, keep)


def _target_of(reader: Reader) -> Target:
    """A command that reads, as one that writes; what it writes is called ``o`` with any ending."""
    return Target(f"reading {reader.name}", reader.command, "o", modules=reader.modules)


# -- the library that fails ------------------------------------------------------------------------------------------


def preload() -> None:
    """Start this Python again with the library, where it can be compiled; for the second time, tidy up."""
    library = os.environ.pop("LD_PRELOAD", "")
    if Path(library).name == "failing_calls.so":
        shutil.rmtree(Path(library).parent)  # it is mapped
        return
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return
    folder = Path(tempfile.mkdtemp())
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", folder / "failing_calls.so"]
    command += [Path(__file__).with_name("failing_calls.c"), "-ldl"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        shutil.rmtree(folder)
        return
    os.environ["LD_PRELOAD"] = str(folder / "failing_calls.so")
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


@cache
def shim() -> Any:
    """The library, or None where it is not loaded."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "faults_arm"):
        return None
    library.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    library.faults_clock.argtypes = [ctypes.c_long]
    library.faults_count.restype = ctypes.c_long
    library.faults_kind.argtypes = library.faults_path.argtypes = [ctypes.c_long]
    library.faults_path.restype = ctypes.c_char_p
    return library


# -- one call that fails ---------------------------------------------------------------------------------------------


def _faults(target: Target, states: States) -> Iterator[Fault]:
    """Every call of an undisturbed run, with the errors that suit it."""
    for number, (kind, path) in enumerate(counted(target.new, states)):
        for error, is_lasting in FAULTS[kind]:
            yield Fault(number, kind, path, error, is_lasting)


def counted(line: str, states: States) -> list[tuple[str, str]]:
    """The calls of an undisturbed run: kind, and path below the folder."""
    restore(states, states.old_copy)
    shim().faults_arm(os.fsencode(states.folder), -1, 0, 0, 0)
    try:
        finished = processes.run(shlex.split(line), states.folder)
    finally:
        shim().faults_disarm()
    if finished.code != 0:
        raise RuntimeError(f"undisturbed, isosent {line} ended with {finished.code}: {finished.err}")
    numbers = range(shim().faults_count())
    return [(KINDS[shim().faults_kind(number)], os.fsdecode(shim().faults_path(number))) for number in numbers]


def _chosen(faults: list[Fault], n_calls: int, seed: str) -> list[Fault]:
    """All faults of so many calls, spread over kinds and files."""
    places: dict[tuple[str, str], list[int]] = {}
    for fault in faults:
        numbers = places.setdefault((fault.kind, re.sub(r"\d|isosent-[^.]*", "", fault.path)), [])
        numbers += [fault.number] * (fault.number not in numbers)
    chosen, draw = set[int](), random.Random(seed)
    rounds = [draw.sample(numbers, len(numbers)) for numbers in places.values()]
    draw.shuffle(rounds)
    while len(chosen) < n_calls and any(rounds):
        chosen |= {numbers.pop() for numbers in rounds[: n_calls - len(chosen)] if numbers}
        rounds = [numbers for numbers in rounds if numbers]
    return [fault for fault in faults if fault.number in chosen]


def _failed(target: Target, states: States, fault: Fault, keep: Path | None) -> Outcome:
    restore(states, states.old_copy)
    kinds = sum(1 << KINDS.index(kind) for kind in _LASTING.get(fault.error, ())) if fault.is_lasting else 0
    shim().faults_arm(os.fsencode(states.folder), fault.number, fault.error, kinds, int(fault.is_lasting))
    try:
        finished = processes.run(shlex.split(target.new), states.folder)
    finally:
        shim().faults_disarm()
    outcome, problems = _judged(target, states, finished)
    if outcome == "refused":
        problems += _poor_message(finished.err, fault, target)
        if fault.error in (errno.EINTR, SHORT):
            problems.append(f"it is no error, to be tried again; got {finished.err.strip()[-300:]}")
    if not problems:
        return Outcome(target.name, outcome)
    failure = Outcome(target.name, "failure", f"{fault}: {'; '.join(problems)}", is_failure=True)
    if keep:
        failure.keep_folder(keep, states.folder)
    return failure


def _judged(target: Target, states: States, finished: processes.Finished) -> tuple[str, list[str]]:
    """Exit code 2, one sentence, everything as it was, or as it is to be; or success, everything as it is to be."""
    if finished.code == 0:
        problems = differences(target, states, value_of(target, states.folder))
        if all(problem.endswith(" is left") for problem in problems):
            problems = problems and _run_again(target, states)
        return "succeeded", problems
    problems = []
    errors = [line for line in finished.err.splitlines() if line.startswith("error: ")]
    if finished.code != 2 or len(errors) != 1 or "Traceback" in finished.err:
        problems.append(f"exit code {finished.code}, {finished.err.strip()[-900:]}")
    found, is_left = contents(states.folder), False
    for name in found.keys() | states.old.keys():
        is_whole = found.get(name) in (states.old.get(name), states.new.get(name))  # of several files, some are new
        if is_whole or re.fullmatch(f"{target.unfinished}|{target.varies}", name):
            continue
        if name in states.old:
            problems.append(f"{name} is {'changed' if name in found else 'gone'}")
        is_left = True
    if found != states.old and target.read is not None:
        value = value_of(target, states.folder)
        is_allowed = value in (states.old_value, states.new_value)
        is_absent = states.old_value is None and value[0] == "refused"
        if not (is_allowed or is_absent):
            problems.append(f"{target.output} reads as {str(value)[:300]}")
    return "refused", problems + (_run_again(target, states) if is_left else [])


def _run_again(target: Target, states: States) -> list[str]:
    """The next run must remove what was left."""
    again = processes.run(target.arguments(states.folder), states.folder)
    if again.code != 0:
        return [f"run again, it ended with {again.code}: {again.err.strip()[-400:]}"]
    return [f"run again: {problem}" for problem in differences(target, states, value_of(target, states.folder))]


def _poor_message(message: str, fault: Fault, target: Target) -> list[str]:
    """What is wrong with the sentence: it must name the file and the error, and never call a healthy file damaged."""
    line = next((line for line in message.splitlines() if line.startswith("error: ")), "")
    parts = [re.sub(r"^\.(.+)\.isosent-[^/]*", r"\1", part) for part in Path(fault.path).parts]
    names = [part for part in parts if part != "/" and not part.startswith(".")] or ["/run"]
    problems: list[str] = []
    if "not enough memory" in line:
        return problems
    if os.strerror(abs(fault.error)).lower() not in line.lower():
        problems.append(f"it does not say {os.strerror(abs(fault.error))!r}: {line[:400]}")
    is_later = fault.is_lasting and not line.startswith("error: standard output")  # the one after it may be named
    if not (is_later or any(name in line for name in (*names, target.output))):
        problems.append(f"it names no file: {line[:400]}")
    if match := _BLAME.search(line):
        problems.append(f"it blames the file ({match[0]}): {line[:400]}")
    return problems


# -- poor machines ---------------------------------------------------------------------------------------------------


def _machines(folder: Path, n_runs: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """What holds for a whole run: few files at once, no writing, no locks, a clock that jumps."""
    yield "no writing", partial(shim().faults_read_only, os.fsencode(folder))
    for error in (errno.ENOLCK, errno.EOPNOTSUPP)[: 1 + (n_runs > 9)]:
        yield f"locks fail with {errno.errorcode[error]}", partial(shim().faults_locks, error)
    for jump_s in (3600, 400 * 24 * 3600)[-1 - (n_runs > 9) :]:
        yield f"a clock that jumps by {jump_s} s", partial(shim().faults_clock, jump_s)
    for n_files in range(0, 12, 1 if n_runs > 9 else 5):
        yield f"{n_files} open files", partial(_limit_open_files, n_files)


def _limit_open_files(n_more: int) -> None:
    """Let this process open so many more files at once."""
    is_open = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    is_open = {number for number in is_open if Path(f"/proc/self/fd/{number}").exists()}  # not that of the folder
    limit = n_free = 0
    while n_free < n_more or limit in is_open:
        n_free += limit not in is_open
        limit += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def _on_machine(
    target: Target, states: States, label: str, prepare_fork: Callable[[], None], keep: Path | None
) -> Outcome:
    restore(states, states.old_copy)
    try:
        finished = processes.run(shlex.split(target.new), states.folder, prepare=prepare_fork)
    finally:
        shim().faults_disarm()
    outcome, problems = _judged(target, states, finished)
    if outcome == "refused" and not label.endswith("open files"):
        if label != "no writing":
            problems.append(finished.err.strip()[-400:])
        elif not re.search("read-only|written to", finished.err, re.IGNORECASE):
            problems.append(f"it does not say that the file system is read-only: {finished.err.strip()[-400:]}")
    if outcome == "refused" and (match := _BLAME.search(finished.err)):
        problems.append(f"it blames the file ({match[0]}): {finished.err.strip()[-400:]}")
    if not problems:
        return Outcome(target.name, f"{label}: {outcome}")
    failure = Outcome(target.name, "failure", f"{label}: {'; '.join(problems)}", is_failure=True)
    if keep:
        failure.keep_folder(keep, states.folder)
    return failure
