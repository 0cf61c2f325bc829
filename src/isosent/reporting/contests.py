"""Whether the best model of a column is better than the second beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isosent.encoders.base import Progress
from isosent.evaluation.compare import compare_results
from isosent.numeric.resampling import LEVEL
from isosent.numeric.significance import holm
from isosent.reporting.rows import Row


@dataclass(frozen=True, slots=True, eq=False)
class Contest:
    """The two best of a column.

    Parameters
    ----------
    tasks : tuple of str
        The task, or those of an average.
    first, second : Row
        The best and the second best.
    """

    tasks: tuple[str, ...]
    first: Row
    second: Row

    @property
    def is_average(self) -> bool:
        """Whether averages are set against each other."""
        return len(self.tasks) > 1

    @property
    def has_items(self) -> bool:
        """Whether both were written with what was measured item by item."""
        return all(len(row.tasks[task].items.values) for row in (self.first, self.second) for task in self.tasks)


def are_won(contests: Sequence[Contest], advance: Progress | None) -> list[bool]:
    """Test contests.

    Parameters
    ----------
    contests : sequence of Contest
        Each with items.
    advance : callable or None
        Called with the number of contests tested since the last call.

    Returns
    -------
    list of bool
        Whether the first is better than the second by a p-value below 0.05: for a task after Holm's correction over all
        tasks, for an average as it is.
    """
    p_values: dict[Contest, float] = {}
    of_tasks: dict[tuple[Row, Row, str], float] = {}
    for contest in sorted(contests, key=lambda contest: -len(contest.tasks)):  # an average tests its tasks on the way
        pair = contest.first, contest.second
        if contest.is_average or (*pair, contest.tasks[0]) not in of_tasks:
            names = contest.second.label, contest.first.label
            found = compare_results(contest.second.result, contest.first.result, names=names, tasks=contest.tasks)
            of_tasks |= {(*pair, task): of.p_value for task, of in found.tasks.items()}
        if contest.is_average:
            (average,) = found.averages.values()
            p_values[contest] = average.p_value
        else:
            p_values[contest] = of_tasks[*pair, contest.tasks[0]]
        if advance is not None:
            advance(1)
    single = [contest for contest in contests if not contest.is_average]
    p_values |= zip(single, holm([p_values[contest] for contest in single]), strict=True)
    return [p_values[contest] < 1 - LEVEL for contest in contests]
