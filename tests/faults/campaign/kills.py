"""SIGKILL at random times, and before and after every operation that moves or removes a file."""

import os
import random
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from campaign import processes
from campaign.outcomes import Outcome
from campaign.targets import States, Target, contents, prepare, restore, succeed, value_of

_OPERATIONS = {
    "os": ("rename", "replace", "link", "unlink", "remove", "rmdir", "mkdir", "fsync"),
    "shutil": ("rmtree", "copyfile"),
    "isosent.io.atomic": ("exchange",),
}


def kills(targets: list[Target], home: Path, n_runs: int, seed: int, keep: Path | None) -> Iterator[Outcome]:
    """Kill each command `n_runs` times at random times, and at up to as many of its operations, before and after."""
    for target in targets:
        chosen = random.Random(f"{seed} {target.name}")
        try:
            states = prepare(target, home.with_name("targets"))
        except RuntimeError as error:
            yield Outcome(target.name, "broken", str(error), is_failure=True)
            continue
        yield from _spoiled_baseline(target, states)
        names = _operations(target, states)
        moments = [(number, is_after) for number in range(len(names)) for is_after in (False, True)]
        for number, is_after in sorted(chosen.sample(moments, min(len(moments), 2 * n_runs))):
            stop = partial(patched, partial(_die_at, number, is_after))
            label = f"{'after' if is_after else 'before'} operation {number} ({names[number]})"
            yield _killed(target, states, label, keep, prepare=stop)
        for _ in range(n_runs):
            after_s = chosen.uniform(0, states.elapsed_s)
            yield _killed(target, states, f"after {after_s:.3f} s", keep, kill_after_s=after_s)


def _spoiled_baseline(target: Target, states: States) -> Iterator[Outcome]:
    """The same command again, undisturbed, must give the same."""
    restore(states, states.old_copy)
    succeed(shlex.split(target.new), states.folder)
    problems = differences(target, states, value_of(target, states.folder))
    if problems:
        yield Outcome(target.name, "not repeatable", "; ".join(problems), is_failure=True)


def _killed(target: Target, states: States, label: str, keep: Path | None, **how: Any) -> Outcome:
    """Kill the command, look at what is there, and run it again."""
    restore(states, states.old_copy)
    finished = processes.run(shlex.split(target.new), states.folder, **how)
    state, problems = _after_kill(target, states)
    left = states.folder.with_name("left")
    shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(states.folder, left)
    again = processes.run(target.arguments(states.folder), states.folder)
    if again.code != 0:
        problems.append(f"run again, it ended with {again.code}: {again.err.strip()[-400:]}")
    else:
        problems += [
            f"run again: {problem}" for problem in differences(target, states, value_of(target, states.folder))
        ]
    outcome = state if finished.code == -signal.SIGKILL else f"not killed, {state}"
    if not problems:
        return Outcome(target.name, outcome)
    failure = Outcome(target.name, "failure", f"killed {label}: {'; '.join(problems)}", is_failure=True)
    if keep:
        failure.keep_folder(keep, left)
    return failure


def _after_kill(target: Target, states: States) -> tuple[str, list[str]]:
    """Whether the old or the new result is there, and what is wrong."""
    problems = []
    for name, content in contents(states.folder).items():
        is_temporary = any(part.startswith(".") for part in Path(name).parts)
        is_known = content in (states.old.get(name), states.new.get(name))
        if not (is_known or is_temporary or re.fullmatch(f"{target.unfinished}|{target.varies}", name)):
            problems.append(f"{name} is neither the old nor the new one")
    problems += [f"{name} is gone" for name in states.old if name in states.new and not (states.folder / name).exists()]
    if target.read is None:
        return "read by nothing", problems
    value = value_of(target, states.folder)
    if value == states.new_value:
        return "new", problems
    if states.old_value is not None:
        if value != states.old_value:
            problems.append(f"{target.output} reads as neither the old nor the new one: {str(value)[:300]}")
        return "old", problems
    is_allowed = value[0] == "refused" and (not (states.folder / target.output).exists() or target.unfinished != "(?!)")
    if not is_allowed:
        problems.append(f"{target.output} reads as {str(value)[:300]}")
    return "none", problems


def differences(target: Target, states: States, value: Any) -> list[str]:
    """How the folder differs from that of an undisturbed run."""
    found = contents(states.folder)
    unequal = [name for name in found.keys() ^ states.new.keys() if not re.fullmatch(target.varies, name)]
    problems = [f"{name} is {'left' if name in found else 'missing'}" for name in unequal]
    problems += [
        f"{name} differs from that of an undisturbed run"
        for name in found
        if states.new.get(name, found[name]) != found[name] and not re.fullmatch(target.varies, name)
    ]
    if value != states.new_value:
        problems.append(f"it reads as {str(value)[:300]}")
    return problems


# -- in the process that is killed -----------------------------------------------------------------------------------


def _operations(target: Target, states: States) -> list[str]:
    """Names of the operations of an undisturbed run, in order."""
    read, write = os.pipe()
    restore(states, states.old_copy)

    def note(_: int, name: str, is_after: bool) -> None:
        if not is_after:
            os.write(write, name.encode() + b"\n")

    processes.run(shlex.split(target.new), states.folder, prepare=partial(patched, note))
    os.close(write)
    with os.fdopen(read) as lines:
        return lines.read().split()


def _die_at(stop: int, is_stop_after: bool, number: int, _: str, is_after: bool) -> None:
    if (number, is_after) == (stop, is_stop_after):
        os.kill(os.getpid(), signal.SIGKILL)


def patched(call: Callable[[int, str, bool], None]) -> None:
    """Call `call` before and after every operation on files below the working directory."""
    import importlib

    here, count, depth = Path.cwd(), [0], [0]

    def around(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if depth[0] or not _is_below(here, args[0]):
                return original(*args, **kwargs)
            number = count[0]
            count[0] += 1
            call(number, name, False)
            depth[0] += name != "rmtree"  # what it removes counts, too: a kill may leave half of a folder
            try:
                result = original(*args, **kwargs)
            finally:
                depth[0] -= name != "rmtree"
            call(number, name, True)
            return result

        return wrapped

    for module_name, names in _OPERATIONS.items():
        module = importlib.import_module(module_name)
        for name in names:
            setattr(module, name, around(name, getattr(module, name)))


def _is_below(here: Path, argument: Any) -> bool:
    if isinstance(argument, int):
        with suppress(OSError):
            argument = Path(f"/proc/self/fd/{argument}").readlink()
    return isinstance(argument, str | bytes | os.PathLike) and (here / os.fsdecode(argument)).is_relative_to(here)
