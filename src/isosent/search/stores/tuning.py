"""The recall of a search in a database: measured after a push, and kept with the table.

A database that has an index of vectors, or codes, misses some of the nearest rows. `retuned` says when it is measured
again, and `least_effort` tries the efforts of a database until one finds enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from isosent.search.engine import K_MEASURED
from isosent.search.result import STALE_SHARE

MIN_RECALL: Final = 0.99

Sample: TypeAlias = tuple[NDArray[np.float32], NDArray[np.float32]]  # queries; exact cosines of their tenth rows
Draw: TypeAlias = Callable[[], Sample | None]
Say: TypeAlias = Callable[[str], None]


class Tuning(Struct, frozen=True):
    """What was measured after a push."""

    recall: float  # of the ten nearest rows, on average
    effort: int  # how widely is searched, in a unit of the database
    n_queries: int
    n_rows: int
    n_changed: int = 0  # rows written or deleted since

    def sentence(self, effort: str) -> str:
        """What was measured, for people."""
        since = f"; {self.n_changed} rows have changed since" if self.n_changed else ""
        return (
            f"recall@{K_MEASURED}: {self.recall:.4f} against exact search of its vectors, {self.n_queries} queries, "
            f"{effort}{since}"
        )


def retuned(
    before: Tuning | None, n_changed: int, draw: Draw | None, measured: Callable[[Sample], Tuning], *, is_new: bool
) -> tuple[Tuning | None, Sample | None]:
    """Measure again if the index is new, or many rows have changed; also return the queries if it was measured."""
    n_changed += 0 if before is None else before.n_changed
    is_stale = is_new or before is None or n_changed > STALE_SHARE * before.n_rows
    sample = draw() if draw is not None and is_stale else None
    if sample is not None:
        return measured(sample), sample
    return (None if before is None else structs.replace(before, n_changed=n_changed)), None


def least_effort(efforts: Sequence[int], recall: Callable[[int], float], n_queries: int, n_rows: int) -> Tuning:
    """The least effort that reaches the recall, or that with the highest."""
    best = (-1.0, 0)
    for effort in efforts:
        reached = recall(effort)
        if reached > best[0]:
            best = reached, effort
        if reached >= MIN_RECALL:
            break
    return Tuning(*best, n_queries, n_rows)


def share_found(tables: Sequence[Any], least_scores: NDArray[np.float32], tolerance: float) -> float:
    """Share of the ten nearest rows in the hits of queries; sums differ in the last digits, by the tolerance."""
    found = sum(
        int((table.column("score").to_numpy() >= least - tolerance).sum())
        for table, least in zip(tables, least_scores, strict=True)
    )
    return found / (K_MEASURED * len(tables))
