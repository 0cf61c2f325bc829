"""Full disks: a limit on the size of files, and a small file system."""

import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from campaign import processes
from campaign.kills import differences
from campaign.outcomes import Outcome
from campaign.targets import States, Target, contents, prepare, restore, value_of

SHARES = (0, 0.1, 0.5, 0.9, 0.99)


def disks(targets: list[Target], home: Path, n_runs: int, seed: int, keep: Path | None) -> Iterator[Outcome]:
    """Limit the files of each command to shares of the largest that it writes; then its disk, where mounting works."""
    del seed
    for target in targets:
        try:
            states = prepare(target, home.with_name("targets"))
        except RuntimeError as error:
            yield Outcome(target.name, "broken", str(error), is_failure=True)
            continue
        sizes = [
            (states.new_copy / name).stat().st_size for name in states.new if states.new[name] != states.old.get(name)
        ]
        for share in SHARES[: max(2, n_runs)]:
            limit = int(share * max(sizes))
            restore(states, states.old_copy)
            finished = processes.run(shlex.split(target.new), states.folder, prepare=partial(_limit_files, limit))
            yield _judged(target, states, finished, f"files of at most {limit} bytes", keep)
        for n_bytes in (0, sum(sizes) // 2)[: max(1, n_runs)]:
            yield from _on_small_disk(target, states, n_bytes, keep)


def _limit_files(n_bytes: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def _on_small_disk(target: Target, states: States, n_bytes: int, keep: Path | None) -> Iterator[Outcome]:
    """Run on a tmpfs that all inputs fill up to `n_bytes`."""
    shutil.rmtree(states.folder, ignore_errors=True)
    states.folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "isosent-faults", states.folder]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        states.folder.rmdir()
        yield Outcome("small file systems", "skipped, mounting needs root")
        return
    try:
        shutil.copytree(states.old_copy, states.folder, dirs_exist_ok=True)
        disk = os.statvfs(states.folder)
        with (states.folder / "filler").open("wb") as file:
            file.write(b"\0" * max(0, disk.f_bavail * disk.f_bsize - n_bytes - disk.f_bsize + 1))
        finished = processes.run(shlex.split(target.new), states.folder)
        (states.folder / "filler").unlink()
        yield _judged(target, states, finished, f"a disk with {n_bytes} bytes left", keep)
    finally:
        subprocess.run(["umount", "-l", states.folder], capture_output=True, check=False)


def _judged(target: Target, states: States, finished: processes.Finished, label: str, keep: Path | None) -> Outcome:
    """Exit code 2, one line, and everything as it was; or success with everything as it should be."""
    problems = []
    if finished.code == 0:
        problems += differences(target, states, value_of(target, states.folder))
    else:
        errors = [line for line in finished.err.splitlines() if line.startswith("error: ")]
        if finished.code != 2 or len(errors) != 1 or "Traceback" in finished.err:
            problems.append(f"exit code {finished.code}, {finished.err.strip()[-500:]}")
        found = contents(states.folder)
        for name in found.keys() | states.old.keys():
            is_whole = found.get(name) in (states.old.get(name), states.new.get(name))  # of several files, some are new
            if not (is_whole or re.fullmatch(f"{target.unfinished}|{target.varies}", name)):
                what = "gone" if name not in found else "changed" if name in states.old else "left"
                problems.append(f"{name} is {what}")
    if not problems:
        return Outcome(target.name, "refused" if finished.code else "had room")
    failure = Outcome(target.name, "failure", f"{label}: {'; '.join(problems)}", is_failure=True)
    if keep:
        failure.keep_folder(keep, states.folder)
    return failure
