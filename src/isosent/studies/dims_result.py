"""What a study of dimensions found: scores, memory and search time at each width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isosent.evaluation.sts import AGGREGATIONS
from isosent.files.plain import nan_where_none, without_nan
from isosent.studies.search_time import SearchTime

_FLOAT32_BYTES = 4
_MILLION = 10**6


def size_of_a_million(k: int) -> int:
    """Bytes of a million float32 vectors of k dimensions."""
    return _MILLION * _FLOAT32_BYTES * k


@dataclass(frozen=True, slots=True)
class DimsCell:
    """Scores of one task at one width.

    Parameters
    ----------
    task : str
        The task.
    k : int
        Dimensions asked for.
    n_components : int
        Dimensions compared: k, or fewer where the vectors of the task vary along fewer axes.
    n_pairs, n_zero_rows : int
        Pairs, and sentences among them without a vector; their cosine counts as 0.
    spearman : mapping of str to float
        Of each of `AGGREGATIONS`, in [-1, 1]; NaN where undefined.
    """

    task: str
    k: int
    n_components: int
    n_pairs: int
    n_zero_rows: int
    spearman: Mapping[str, float]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DimsCell:
        """Make it of its fields as plain values, an undefined score being None."""
        return cls(**{**document, "spearman": nan_where_none(document["spearman"])})


@dataclass(frozen=True, slots=True)
class PublishedWidth:
    """Published scores of the same model under the same transform.

    Parameters
    ----------
    label : str
        Model and source.
    k : int
        Dimensions.
    transformed : bool
        Whether the transform stood behind it.
    aggregation : str
        One of `AGGREGATIONS`.
    scores : mapping of str to float
        Task and Spearman x100.
    """

    label: str
    k: int
    transformed: bool
    aggregation: str
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DimsStudy:
    """Scores, memory and search time of a model at several widths.

    Parameters
    ----------
    name : str
        What the model is called.
    model : mapping
        Reference, options, dimensions and fingerprint of the model.
    protocol : mapping
        Transform, what it was fitted on, the pairs of SICK-R.
    untransformed : tuple of DimsCell
        Each task without the transform.
    cells : tuple of DimsCell
        Each task at each width, task by task.
    search : tuple of SearchTime
        Exact search at each width; none where it was not asked for.
    published : tuple of PublishedWidth
        Published scores, where there are some.
    """

    name: str
    model: Mapping[str, Any]
    protocol: Mapping[str, Any]
    untransformed: tuple[DimsCell, ...]
    cells: tuple[DimsCell, ...]
    search: tuple[SearchTime, ...]
    published: tuple[PublishedWidth, ...]

    @property
    def widths(self) -> list[int]:
        """The widths, ascending."""
        return sorted({cell.k for cell in self.cells})

    @property
    def tasks(self) -> list[str]:
        """The tasks, in their order."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    def curve(self, task: str | None = None, how: str = AGGREGATIONS[0]) -> dict[int, float]:
        """Spearman at each width.

        Parameters
        ----------
        task : str, optional
            The task; the unweighted mean over all where left out.
        how : str, default "all"
            One of `AGGREGATIONS`.

        Returns
        -------
        dict of int to float
            Width and score, ascending.
        """
        scores = {
            k: [cell.spearman[how] for cell in self.cells if cell.k == k and task in (None, cell.task)]
            for k in self.widths
        }
        return {k: float(np.mean(of_k)) for k, of_k in scores.items()}

    def whole(self, task: str | None = None, how: str = AGGREGATIONS[0]) -> float:
        """Return Spearman without the transform; parameters as for `curve`."""
        return float(np.mean([cell.spearman[how] for cell in self.untransformed if task in (None, cell.task)]))

    def best(self, task: str | None = None, how: str = AGGREGATIONS[0]) -> int | None:
        """Return the width of the highest score, the smallest of several; None where all are undefined."""
        curve = {k: score for k, score in self.curve(task, how).items() if not np.isnan(score)}
        return max(curve, key=curve.__getitem__) if curve else None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; an undefined score is None."""
        best = {task: {how: self.best(task, how) for how in AGGREGATIONS} for task in self.tasks}
        memory = {str(k): size_of_a_million(k) for k in self.widths}
        plain: dict[str, Any] = without_nan(asdict(self) | {"best": best, "bytes_per_million": memory})
        return plain

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DimsStudy:
        """Make it of what `to_json` returned."""
        return cls(
            document["name"],
            document["model"],
            document["protocol"],
            tuple(map(DimsCell.from_json, document["untransformed"])),
            tuple(map(DimsCell.from_json, document["cells"])),
            tuple(SearchTime(**time) for time in document["search"]),
            tuple(PublishedWidth(**row) for row in document["published"]),
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return it as the lines of a table; what is not known is None."""
        times = {time.k: time for time in self.search}
        return [
            self._row(cell, transform, times.get(cell.k))
            for transform, cells in (("none", self.untransformed), (self.protocol["transform"], self.cells))
            for cell in cells
        ]

    def _row(self, cell: DimsCell, transform: str, time: SearchTime | None) -> dict[str, Any]:
        transformed = transform != "none"
        published = {
            found.aggregation: found
            for found in reversed(self.published)
            if found.k == cell.k and found.transformed == transformed and cell.task in found.scores
        }
        row: dict[str, Any] = {"model": self.name, "task": cell.task, "transform": transform}
        row |= {name: getattr(cell, name) for name in ("k", "n_components", "n_pairs", "n_zero_rows")}
        row |= {f"spearman_{how}": score for how, score in cell.spearman.items()}
        row |= {
            f"published_{how}": published[how].scores[cell.task] / 100 if how in published else None
            for how in AGGREGATIONS
        }
        row |= {
            "published_in": "; ".join(published[how].label for how in AGGREGATIONS if how in published) or None,
            "bytes_per_million": size_of_a_million(cell.k),
            "search_s_per_query": None if time is None else time.elapsed_s,
            "search_n_docs": None if time is None else time.n_docs,
        }
        plain: dict[str, Any] = without_nan(row)
        return plain
