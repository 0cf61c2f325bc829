"""What two results must have in common to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import numpy as np

from isosent.errors import InputError, InputTypeError
from isosent.evaluation.result import EvaluationResult, TaskResult
from isosent.files.plain import without_nan

Pair = tuple[EvaluationResult, EvaluationResult]
Names = tuple[str, str]
_FIELDS = ("kind", "metric", "n_items")
_FILES_SHOWN = 3


def shared_tasks(results: Pair, names: Names, wanted: Sequence[str] | None) -> list[str]:
    """Find the tasks that two results share.

    Parameters
    ----------
    results : pair of EvaluationResult
        The results.
    names : pair of str
        What messages call them.
    wanted : sequence of str or None
        Which tasks; None for all that both have.

    Returns
    -------
    list of str
        At least one task, in the order of the first result.

    Raises
    ------
    InputError
        If a wanted task is not in both, or there is none.
    """
    if isinstance(wanted, str):
        raise InputTypeError(f"compare_results: tasks must be a sequence of names; got one string. Pass [{wanted!r}].")
    for task in wanted or ():
        for name, of in zip(names, results, strict=True):
            if task not in of.tasks:
                nearest = get_close_matches(task, of.tasks, n=1, cutoff=0)
                raise InputError(
                    f"tasks must be in both results; {name} has no {task!r}. Its nearest is {nearest[0]}; it has: "
                    f"{', '.join(of.tasks)}."
                )
    first, second = (of.tasks for of in results)
    shared = [task for task in first if task in (second if wanted is None else wanted)]
    if not shared:
        holdings = "; ".join(f"{name} has {', '.join(of.tasks)}" for name, of in zip(names, results, strict=True))
        raise InputError(f"{names[0]} and {names[1]} must have a task in common; {holdings}.")
    return shared


def check_comparable(results: Pair, names: Names, tasks: Iterable[str]) -> None:
    """Refuse results that were not measured alike on some tasks, saying what differs.

    Parameters
    ----------
    results : pair of EvaluationResult
        The results.
    names : pair of str
        What messages call them.
    tasks : iterable of str
        Tasks that both have.

    Raises
    ------
    InputError
        If protocol, data or items of a task differ, or a result was written without items.
    """
    apart = []
    for task in tasks:
        first, second = (of.tasks[task] for of in results)
        for name, of in zip(names, (first, second), strict=True):
            if not len(of.items.values):
                raise InputError(
                    f"{name} must hold what was measured item by item; it holds only scores of {task}. Evaluate again: "
                    "isosent evaluate ... --json OUT writes both."
                )
        if unlike := [*_unlike_fields(first, second), *_unlike_data(first, second)]:
            apart.append(f"{task}: {', '.join(unlike)}")
    if apart:
        raise InputError(
            f"{names[0]} and {names[1]} must be of the same data by the same protocol; {'; '.join(apart)}. "
            "Evaluate again alike, or name the other tasks: tasks=, on the command line --tasks."
        )


def _unlike_fields(first: TaskResult, second: TaskResult) -> list[str]:
    one, other = (_fields_of(task) for task in (first, second))
    return [
        f"{name} is {one.get(name, 'absent')} and {other.get(name, 'absent')}"
        for name in dict.fromkeys([*one, *other])
        if name not in one or name not in other or one[name] != other[name]
    ]


def _fields_of(task: TaskResult) -> dict[str, object]:
    fields = {name: getattr(task, name) for name in _FIELDS}
    plain: dict[str, object] = without_nan({**fields, **{f"protocol {name}": of for name, of in task.protocol.items()}})
    return plain


def _unlike_data(first: TaskResult, second: TaskResult) -> list[str]:
    """Files by their content, whatever folder they were read from."""
    unshared = set(first.data.values()) ^ set(second.data.values())
    if files := sorted({name for task in (first, second) for name, own in task.data.items() if own in unshared}):
        more = f" and {len(files) - _FILES_SHOWN} more" if len(files) > _FILES_SHOWN else ""
        return [f"files differ ({', '.join(files[:_FILES_SHOWN])}{more})"]
    one, other = first.items.gold, second.items.gold
    alike = other is None if one is None else other is not None and np.array_equal(one, other)
    return [] if alike else ["human scores differ"]
