"""Similarity of pairs of texts in a file of one's own: correlation of the cosine with human scores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isosent.errors import EvaluationWarning
from isosent.evaluation.result import EvaluationResult, Items, Measured
from isosent.evaluation.run import TARGET, EvaluationSettings, FittedTask, Job, run_jobs
from isosent.evaluation.sts_files import PairSet, PairTask, STSTask, read_scored_pairs, read_sts
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import pairwise_cosine, pearson, spearman
from isosent.transforms.base import Transform, known_rows

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
    dim: int  # dimensions of the vectors that were compared
    # ``all``: one correlation over all pairs; ``mean``: mean over the subsets; ``wmean``: the same weighted by pairs
    spearman: Mapping[str, float]
    # ``all``: one correlation over all pairs; ``mean``: mean over the subsets; ``wmean``: the same weighted by pairs
    pearson: Mapping[str, float]
    subsets: Mapping[str, SubsetResult]  # every subset


def evaluate_sts(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    tasks: Sequence[str] | None = None,
    sickr: str = "full",
    transform: Transform | Literal["auto"] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    run: EvaluationSettings | None = None,
) -> EvaluationResult:
    """Score a model on the STS sets below a folder.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    folder : path-like
        Where the original files lie, see `read_sts`.
    tasks : sequence of str, optional
        Among STS12 ... STS16, STSB, SICKR; all that are found where left out.
    sickr : {"full", "test"}, default "full"
        All 9,927 pairs of SICK-R, or the 4,927 of the test part.
    transform : Transform or "auto", optional
        Fitted behind the model before scoring, such as ``Whitening(n_components=128)``.
    fit : path-like or "target", default "target"
        What the transform, and an encoder that needs a corpus, is fitted on: all sentences of the task under
        evaluation, without its scores, or the texts of a file.
    run : Run, optional
        Seed, bootstrap, progress.

    Returns
    -------
    EvaluationResult
        Spearman and Pearson over all pairs of a task; their mean over subsets as ``spearman_mean`` and weighted by
        pairs as ``spearman_wmean``, likewise for Pearson; every subset under ``details["subsets"]``.

    Raises
    ------
    InputError
        If no file is known, a task is missing, or a file is malformed.

    Warns
    -----
    EvaluationWarning
        If a correlation is undefined because every cosine is the same.

    Notes
    -----
    Cosines and correlations are float64. "target" takes in the sentences of train, dev and test (Su et al. 2021), each
    as often as it occurs.
    """
    return run_jobs(
        "evaluate_sts", model, sts_jobs(folder, tasks=tasks, sickr=sickr), folder, transform=transform, fit=fit, run=run
    )


def sts_jobs(folder: str | os.PathLike[str], *, tasks: Sequence[str] | None = None, sickr: str = "full") -> list[Job]:
    """Read STS sets and say how they are scored; parameters as for `evaluate_sts`."""
    return [
        Job(
            task.name,
            KIND,
            task,
            partial(_measure, task),
            {
                "similarity": "cosine",
                "aggregation": "all",
                **({"sickr": sickr} if task.name == "SICKR" else {}),
                **({"missing_subsets": list(task.missing_subsets)} if task.missing_subsets else {}),
            },
            task.files,
        )
        for task in read_sts(folder, tasks=tasks, sickr=sickr)
    ]


def _measure(task: STSTask, done: FittedTask, seed: int) -> Measured:
    cosines, scores = _cosines(task, done.fitted, done.vectors)
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
    return _cosines(task, model, encoded)[1]


def _cosines(task: STSTask, model: SentenceEncoder, encoded: Lookup) -> tuple[list[NDArray[np.float64]], STSScores]:
    cosines, n_zero_rows = [], 0
    for subset in task.subsets:
        first, second = (model.transform(encoded(texts)) for texts in (subset.first, subset.second))
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
    scores = STSScores(n_pairs, n_zero_rows, model.dim, aggregates["spearman"], aggregates["pearson"], subsets)
    return cosines, scores


def pair_scores(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.float64]:
    """Cosine of each pair, made all the same where only rounding tells them apart: it must not make a ranking."""
    cosines = pairwise_cosine(first, second)
    return cosines if np.ptp(cosines) > _ROUNDING else np.full_like(cosines, cosines[0])


def aggregate(
    correlate: Callable[[NDArray[np.float64], NDArray[np.float64]], float],
    subsets: Sequence[PairSet],
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


def evaluate_pairs(
    model: SentenceEncoder,
    file: str | os.PathLike[str],
    *,
    columns: str | Sequence[str] | None = None,
    transform: Transform | Literal["auto"] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    run: EvaluationSettings | None = None,
) -> EvaluationResult:
    """Score a model on a table of pairs with human scores, as STS is scored.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    file : path-like
        The table, such as KorSTS, KLUE-STS or an STS benchmark in another language, see `read_scored_pairs`.
    columns : str or sequence of str, optional
        Columns of the two texts and of the score, such as ``"sentence1,sentence2,labels.label"``; by usual names where
        left out.
    transform : Transform or "auto", optional
        Fitted behind the model before scoring, such as ``Whitening(n_components=128)``.
    fit : path-like or "target", default "target"
        What the transform, and an encoder that needs a corpus, is fitted on: all texts of scored pairs, without the
        scores, or the texts of another file.
    run : Run, optional
        Seed, bootstrap, progress.

    Returns
    -------
    EvaluationResult
        ``spearman`` and ``pearson`` under the name of the file; columns, range of the scores and pairs without a score
        under ``details``.

    Raises
    ------
    InputError
        If the file is not there or malformed, its columns cannot be told, or all scores are the same.

    Warns
    -----
    EvaluationWarning
        If the correlation is undefined because every cosine is the same.
    """
    return run_jobs(
        "evaluate_pairs", model, pairs_jobs(file, columns=columns), file, transform=transform, fit=fit, run=run
    )


def pairs_jobs(file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None) -> list[Job]:
    """Read a table of pairs and say how they are scored; parameters as for `evaluate_pairs`."""
    task = read_scored_pairs(file, columns=columns)
    protocol = {"similarity": "cosine", "columns": ",".join(task.columns)}
    return [Job(task.name, KIND_PAIRS, task, partial(_measure_pairs, task), protocol, task.files)]


def _measure_pairs(task: PairTask, done: FittedTask, seed: int) -> Measured:
    cosines = pair_scores(done.encode(task.first), done.encode(task.second))
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
