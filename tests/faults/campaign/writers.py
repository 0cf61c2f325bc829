"""Several processes that write to one place at once, with readers: everybody sees the whole result of one of them."""

import os
import random
import re
import shlex
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from campaign import processes
from campaign.kills import patched
from campaign.outcomes import Outcome
from campaign.targets import States, Target, contents, prepare, restore, value_of

N_WRITERS, N_READERS = 4, 2
SECONDS_A_RUN = 1.0
_COMMIT = re.compile(r"-\d{6}(?=\.)")  # in the names of files of an index: one command may come after another


def writers(targets: list[Target], home: Path, n_runs: int, seed: int, keep: Path | None) -> Iterator[Outcome]:
    """Let four processes write each output again and again, two of them with other content, while two read it."""
    for target in targets:
        try:
            states = prepare(target, home.with_name("targets"))
        except RuntimeError as error:
            yield Outcome(target.name, "broken", str(error), is_failure=True)
            continue
        restore(states, states.old_copy if target.old else states.new_copy)
        stop_s = time.monotonic() + SECONDS_A_RUN * n_runs
        jobs = [partial(_write, target, states, number, seed, stop_s) for number in range(N_WRITERS)]
        if target.read is not None:
            jobs += [partial(_read, target, states, stop_s)] * N_READERS
        for job, finished in zip(jobs, _at_once(jobs), strict=True):
            kind = "writer" if job.func is _write else "reader"
            if finished is None:
                yield Outcome(target.name, f"{kind} died", "a process ended without a report", is_failure=True)
                continue
            n_done, problems = finished
            for problem in sorted(set(problems)):
                failure = Outcome(
                    target.name, f"{kind} failed", f"{problems.count(problem)} of {n_done}: {problem}", is_failure=True
                )
                if keep:
                    failure.keep_folder(keep, states.folder)
                yield failure
            for _ in range(n_done - len(problems)):
                yield Outcome(target.name, kind)
        known = {_COMMIT.sub("", name) for name in (*states.new, *states.old)}
        left = [name for name in contents(states.folder) if _COMMIT.sub("", name) not in known]
        if left:
            yield Outcome(target.name, "left", f"afterwards there are {', '.join(sorted(left))}", is_failure=True)


def _at_once(jobs: list) -> list:
    """Call functions in forks at the same time; what they returned, None for one that died."""
    import pickle

    pipes = []
    for job in jobs:
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                os.setpgid(0, 0)
                os.close(read)
                with os.fdopen(write, "wb") as file:
                    pickle.dump(job(), file)
            finally:
                os._exit(0)
        os.close(write)
        pipes.append((process, read))
    results = []
    for process, read in pipes:
        with os.fdopen(read, "rb") as file:
            content = file.read()
        os.waitpid(process, 0)
        results.append(pickle.loads(content) if content else None)
    return results


def _write(target: Target, states: States, number: int, seed: int, stop_s: float) -> tuple[int, list[str]]:
    """Write until the time is up, with short waits between operations, so that the others come between."""
    chosen = random.Random(f"{seed} {target.name} {number}")
    line = target.old if number % 2 and target.old else target.new
    n_done, problems = 0, []

    def wait(*_: object) -> None:
        time.sleep(chosen.choice((0, 0, 0.01, 0.05)))

    while time.monotonic() < stop_s:
        finished = processes.run(shlex.split(line), states.folder, prepare=partial(patched, wait))
        n_done += 1
        is_refused = target.may_refuse and finished.code == 2 and "Traceback" not in finished.err
        if finished.code != 0 and not is_refused:
            problems.append(f"isosent {line} ended with {finished.code}: {finished.err.strip()[-400:]}")
    return n_done, problems


def _read(target: Target, states: States, stop_s: float) -> tuple[int, list[str]]:
    n_done, problems = 0, []
    while time.monotonic() < stop_s:
        value = value_of(target, states.folder)
        n_done += 1
        was_replaced = "was replaced while it was read" in str(value[1])  # a clear answer, to be asked again
        if value not in (states.old_value, states.new_value) and not was_replaced:
            problems.append(_told(value, states))
    return n_done, problems


def _told(value: tuple[str, Any], states: States) -> str:
    """What is wrong with what was read."""
    kind, parts = value
    if kind == "value" and isinstance(parts, tuple) and states.old_value:
        whole = zip(parts, states.old_value[1], states.new_value[1], strict=True)
        if all(part in (old, new) for part, old, new in whole):
            return "read a part of one result and a part of the other"
    return f"{kind}: {str(parts)[:300]}"
