"""Similarity of pairs of texts in a file of one's own: correlation of the cosine with human scores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.errors import EvaluationWarning
from isosent.evaluation.result import Items, Measured
from isosent.evaluation.sts_files import PairTask, STSTask, read_scored_pairs, read_sts
from isosent.evaluation.task import Encode, Task
from isosent.io.pairs import ScoredPairs
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import pairwise_cosine, pearson, spearman
from isosent.transforms.base import known_rows

Lookup = Callable[[Sequence[str]], NDArray[np.float32]]

KIND = "sts"
METRICS: Mapping[str, Callable[[NDArray[np.float64], NDArray[np.float64]], float]] = {
    "spearman": spearman,
    "pearson": pearson,
}
_ROUNDING = 1e-12
AGGREGATIONS = ("all", "mean", "wmean")


@dataclass(frozen=True, slots=True)
class SubsetResult:
    """Scores of one subset."""

    n_pairs: int  # pairs scored
    spearman: float  # in [-1, 1]; NaN where undefined
    pearson: float  # in [-1, 1]; NaN where undefined


@dataclass(frozen=True, slots=True)
class STSScores:
    """Scores of one task, in every aggregation."""

    n_pairs: int  # pairs of all subsets
    n_zero_rows: int  # sentences among them without a vector; their cosine counts as 0
    # ``all``: one correlation over all pairs; ``mean``: mean over the subsets; ``wmean``: the same weighted by pairs
    spearman: Mapping[str, float]
    # ``all``: one correlation over all pairs; ``mean``: mean over the subsets; ``wmean``: the same weighted by pairs
    pearson: Mapping[str, float]
    subsets: Mapping[str, SubsetResult]  # every subset


def sts_tasks(folder: str | os.PathLike[str], names: Sequence[str] | None = None, *, sickr: str = "full") -> list[Task]:
    """Read STS sets."""
    return [sts_task(each, sickr=sickr) for each in read_sts(folder, tasks=names, sickr=sickr)]


def sts_task(sts_set: STSTask, *, sickr: str = "full") -> Task:
    """Make a task of an STS set."""
    protocol: dict[str, Any] = {"similarity": "cosine", "aggregation": "all"}
    if sts_set.name == "SICKR":
        protocol["sickr"] = sickr
    if sts_set.missing_subsets:
        protocol["missing_subsets"] = list(sts_set.missing_subsets)
    return Task(
        name=sts_set.name,
        kind=KIND,
        texts={"text": sts_set.texts},
        target_texts=sts_set.target_texts,
        items=sts_set.scored_items,
        score=partial(_measure, sts_set),
        protocol=protocol,
        files=sts_set.files,
    )


def _measure(task: STSTask, encode: Encode, seed: int) -> Measured:
    cosines, scores = _cosines(task, encode)
    flat = {
        metric if how == "all" else f"{metric}_{how}": getattr(scores, metric)[how]
        for metric in METRICS
        for how in AGGREGATIONS
    }
    gold = np.concatenate([subset.scores for subset in task.subsets])
    subsets = {name: asdict(subset) for name, subset in scores.subsets.items()}
    return Measured("spearman", flat, Items(np.concatenate(cosines), gold), {"subsets": subsets})


def score_task(task: STSTask, model: SentenceEncoder, encoded: Lookup) -> STSScores:
    """Score a model on one task."""
    return _cosines(task, lambda texts: model.transform(encoded(texts)))[1]


def _cosines(task: STSTask, encode: Lookup) -> tuple[list[NDArray[np.float64]], STSScores]:
    cosines, n_zero_rows = [], 0
    for subset in task.subsets:
        first, second = (encode(texts) for texts in (subset.first, subset.second))
        cosines.append(pair_scores(first, second))
        n_zero_rows += int((~known_rows(first)).sum() + (~known_rows(second)).sum())
    if flat := [subset.name for subset, scores in zip(task.subsets, cosines, strict=True) if np.ptp(scores) == 0]:
        warnings.warn(
            f"{task.name}: every cosine of {', '.join(flat)} is the same; its correlation is undefined.",
            EvaluationWarning,
            stacklevel=4,
        )
    aggregates = {metric: aggregate(correlate, task.subsets, cosines) for metric, correlate in METRICS.items()}
    subsets = {
        subset.name: SubsetResult(len(scores), spearman(scores, subset.scores), pearson(scores, subset.scores))
        for subset, scores in zip(task.subsets, cosines, strict=True)
    }
    n_pairs = sum(map(len, cosines))
    scores = STSScores(n_pairs, n_zero_rows, aggregates["spearman"], aggregates["pearson"], subsets)
    return cosines, scores


def pair_scores(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.float64]:
    """Cosine of each pair, made all the same where only rounding tells them apart: it must not make a ranking."""
    cosines = pairwise_cosine(first, second)
    return cosines if np.ptp(cosines) > _ROUNDING else np.full_like(cosines, cosines[0])


def aggregate(
    correlate: Callable[[NDArray[np.float64], NDArray[np.float64]], float],
    subsets: Sequence[ScoredPairs],
    cosines: Sequence[NDArray[np.float64]],
) -> dict[str, float]:
    """Correlate the cosines of a task with its human scores, in each of `AGGREGATIONS`."""
    each = [correlate(scores, subset.scores) for subset, scores in zip(subsets, cosines, strict=True)]
    sizes = [len(scores) for scores in cosines]
    return {
        "all": correlate(np.concatenate(cosines), np.concatenate([subset.scores for subset in subsets])),
        "mean": float(np.mean(each)),
        "wmean": float(np.average(each, weights=sizes)),
    }


KIND_PAIRS = "pairs"


def pairs_task(file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None) -> Task:
    """Read a table of pairs with a human score."""
    pairs = read_scored_pairs(file, columns=columns)
    return Task(
        name=pairs.name,
        kind=KIND_PAIRS,
        texts={"text": pairs.texts},
        target_texts=pairs.texts,
        items=pairs.scored_items,
        score=partial(_measure_pairs, pairs),
        protocol={"similarity": "cosine", "columns": ",".join(pairs.columns)},
        files=pairs.files,
    )


def _measure_pairs(task: PairTask, encode: Encode, seed: int) -> Measured:
    cosines = pair_scores(encode(task.first), encode(task.second))
    if np.ptp(cosines) == 0:
        warnings.warn(
            f"{task.name}: every cosine is the same; its correlation is undefined.", EvaluationWarning, stacklevel=4
        )
    return Measured(
        "spearman",
        {metric: correlate(cosines, task.scores) for metric, correlate in METRICS.items()},
        Items(cosines, task.scores),
        {
            "columns": list(task.columns),
            "score_range": [float(task.scores.min()), float(task.scores.max())],
            "n_unscored": task.n_unscored,
        },
    )
