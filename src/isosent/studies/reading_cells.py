"""One measured number of the studies of layers and poolings, and the published ones beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isosent.evaluation.protocol import TARGET
from isosent.evaluation.published import published_rows
from isosent.evaluation.sts_files import STSTask
from isosent.files.plain import nan_where_none, without_nan
from isosent.studies.readings import AUTO, NONE, Score


@dataclass(frozen=True, slots=True)
class PublishedScore:
    """A published number for what was measured.

    Parameters
    ----------
    spearman : float
        In [-1, 1].
    source : str
        Where it stands.
    """

    spearman: float
    source: str


@dataclass(frozen=True, slots=True)
class ReadingCell:
    """One reading of a model on one task, under one transform.

    Parameters
    ----------
    model : str
        What the model is called.
    pooling : str
        How each layer is pooled.
    layers : tuple of int
        The layers whose mean is taken; 0 is the embedding layer.
    transform : str
        "none", "whitening" or "auto", fitted on the sentences of the task (target).
    chosen : str or None
        What "auto" chose.
    task : str
        The task.
    spearman : mapping of str to float
        By aggregation, in [-1, 1]; NaN where undefined.
    published : mapping of str to PublishedScore
        By aggregation, where there is one for the same model, layers, pooling, transform and protocol.
    """

    model: str
    pooling: str
    layers: tuple[int, ...]
    transform: str
    chosen: str | None
    task: str
    spearman: Mapping[str, float]
    published: Mapping[str, PublishedScore]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; an undefined score is None."""
        published = {how: {"spearman": there.spearman, "source": there.source} for how, there in self.published.items()}
        plain: dict[str, Any] = without_nan(
            {
                "model": self.model,
                "pooling": self.pooling,
                "layers": list(self.layers),
                "transform": self.transform,
                "chosen": self.chosen,
                "task": self.task,
                "spearman": dict(self.spearman),
                "published": published,
            }
        )
        return plain

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ReadingCell:
        """Make it of what `to_json` returned."""
        read = {
            "layers": tuple(document["layers"]),
            "spearman": nan_where_none(document["spearman"]),
            "published": {how: PublishedScore(**there) for how, there in document["published"].items()},
        }
        return cls(**{**document, **read})

    def lines(self) -> Iterable[dict[str, Any]]:
        """Yield it as lines of a table, one an aggregation; an undefined score is None."""
        for how, score in self.spearman.items():
            there = self.published.get(how)
            yield {
                "model": self.model,
                "pooling": self.pooling,
                "layers": layers_label(self.layers),
                "n_layers": len(self.layers),
                "transform": self.transform,
                "chosen": self.chosen,
                "task": self.task,
                "aggregation": how,
                "spearman": None if math.isnan(score) else score,
                "published": None if there is None else there.spearman,
                "source": None if there is None else there.source,
            }


@dataclass(frozen=True, slots=True)
class Measured:
    """What all cells of a study have in common, to make them from scores.

    Parameters
    ----------
    name : str
        What the model is called.
    reference : str
        The reference that published numbers are looked up by.
    sickr : str
        Pairs of SICK-R that are evaluated.
    """

    name: str
    reference: str
    sickr: str

    def cells(
        self, pooling: str, layers: tuple[int, ...], task: STSTask, scores: Mapping[str, Score]
    ) -> list[ReadingCell]:
        """Make the cells of one reading on one task, one a transform."""
        return [
            ReadingCell(
                self.name,
                pooling,
                layers,
                transform,
                score.chosen,
                task.name,
                score.spearman,
                self._published(pooling, layers, transform, task),
            )
            for transform, score in scores.items()
        ]

    def _published(
        self, pooling: str, layers: tuple[int, ...], transform: str, task: STSTask
    ) -> dict[str, PublishedScore]:
        if transform == AUTO:
            return {}
        options = {"layers": ",".join(map(str, layers)), "pooling": pooling}
        protocol: dict[str, Any] = {
            "transform": None if transform == NONE else transform,
            "fit": TARGET,
            "parameters": {},
            "missing_subsets": task.missing_subsets,
        }
        rows = published_rows({"reference": self.reference, "options": options, "fits": []}, protocol)
        return {
            row.aggregation: PublishedScore(scores[task.name] / 100, row.label)
            for row in rows
            if task.name in (scores := row.scores_of([task.name], self.sickr))
        }


def layers_label(layers: Sequence[int]) -> str:
    """Write layers as the papers do.

    Parameters
    ----------
    layers : sequence of int
        Layers, rising; 0 is the embedding layer.

    Returns
    -------
    str
        What ``layers=`` of a model reference reads back.

    Examples
    --------
    >>> layers_label((1, 12)), layers_label((4, 5, 6, 7))
    ('L1+L12', 'L4..L7')
    """
    if len(layers) > 3 and layers[-1] - layers[0] == len(layers) - 1:
        return f"L{layers[0]}..L{layers[-1]}"
    return "+".join(f"L{layer}" for layer in layers)


def averages(cells: Iterable[ReadingCell], aggregation: str) -> dict[tuple[str, tuple[int, ...], str], float]:
    """Average a study over its tasks.

    Parameters
    ----------
    cells : iterable of ReadingCell
        Cells of one model.
    aggregation : str
        Which of the aggregations.

    Returns
    -------
    dict
        By pooling, layers and transform: the unweighted mean over the tasks; NaN where one of them is undefined.
    """
    scores: dict[tuple[str, tuple[int, ...], str], list[float]] = {}
    for cell in cells:
        scores.setdefault((cell.pooling, cell.layers, cell.transform), []).append(cell.spearman[aggregation])
    return {key: float(np.mean(each)) for key, each in scores.items()}


def published_average(cells: Sequence[ReadingCell], aggregation: str) -> float:
    """Average the published numbers over the tasks of a study.

    Parameters
    ----------
    cells : sequence of ReadingCell
        One reading under one transform, on every task.
    aggregation : str
        Which of the aggregations.

    Returns
    -------
    float
        Their mean; NaN where one of the tasks has none.
    """
    found = [cell.published[aggregation].spearman for cell in cells if aggregation in cell.published]
    return float(np.mean(found)) if found and len(found) == len(cells) else float("nan")
