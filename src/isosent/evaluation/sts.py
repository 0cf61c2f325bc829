"""Semantic textual similarity: correlation of the cosine with human scores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import Progress
from isosent.errors import EvaluationWarning, InputTypeError
from isosent.evaluation.protocol import TARGET, Lookup, describe_protocol, fit_tasks
from isosent.evaluation.sts_files import PairSet, STSTask, read_sts
from isosent.files.plain import without_nan
from isosent.model import SentenceEncoder
from isosent.numeric.metrics import pearson, spearman
from isosent.numeric.similarity import pairwise_cosine
from isosent.transforms.base import LinearTransform, known_rows

METRICS: Mapping[str, Callable[[NDArray[np.float64], NDArray[np.float64]], float]] = {
    "spearman": spearman,
    "pearson": pearson,
}
_ROUNDING = 1e-12
AGGREGATIONS = ("all", "mean", "wmean")


@dataclass(frozen=True, slots=True)
class SubsetResult:
    """Scores of one subset.

    Parameters
    ----------
    n_pairs : int
        Pairs scored.
    spearman, pearson : float
        In [-1, 1]; NaN where undefined.
    """

    n_pairs: int
    spearman: float
    pearson: float


@dataclass(frozen=True, slots=True)
class STSTaskResult:
    """Scores of one task.

    Parameters
    ----------
    n_pairs : int
        Pairs of all subsets.
    n_zero_rows : int
        Sentences among them without a vector; their cosine counts as 0.
    dim : int
        Dimensions of the vectors that were compared.
    spearman, pearson : mapping of str to float
        ``all``: one correlation over all pairs; ``mean``: mean over the subsets; ``wmean``: the same weighted by pairs.
    subsets : mapping of str to SubsetResult
        Every subset.
    choice : mapping, optional
        What "auto" weighed and chose for the task, where it did.
    n_tokens, n_unknown : int
        Tokens of the sentences, and those among them that the encoder does not know; 0 where none can be unknown.
    """

    n_pairs: int
    n_zero_rows: int
    dim: int
    spearman: Mapping[str, float]
    pearson: Mapping[str, float]
    subsets: Mapping[str, SubsetResult]
    choice: Mapping[str, Any] | None = None
    n_tokens: int = 0
    n_unknown: int = 0


@dataclass(frozen=True, slots=True)
class STSResult:
    """Scores of a model over STS tasks.

    Parameters
    ----------
    model : mapping
        Reference, options, dimensions and fingerprint of the model.
    protocol : mapping
        What was done: metric, transform, what it was fitted on, the pairs of SICK-R, missing subsets.
    tasks : mapping of str to STSTaskResult
        Each task.
    average : mapping of str to mapping of str to float
        Metric, aggregation, unweighted mean over the tasks.
    """

    model: Mapping[str, Any]
    protocol: Mapping[str, Any]
    tasks: Mapping[str, STSTaskResult]
    average: Mapping[str, Mapping[str, float]]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values that JSON can hold.

        Returns
        -------
        dict
            The same nesting; an undefined score is None.
        """
        plain: dict[str, Any] = without_nan(asdict(self))
        return plain


def evaluate_sts(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    tasks: Sequence[str] | None = None,
    transform: LinearTransform | Literal["auto"] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    sickr: str = "full",
    progress: Callable[[int], Progress] | None = None,
) -> STSResult:
    """Score a model on the STS sets below a folder.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    folder : path-like
        Where the original files lie, see `read_sts`.
    tasks : sequence of str, optional
        Among STS12 ... STS16, STSB, SICKR; all that are found where left out.
    transform : LinearTransform or "auto", optional
        Fitted behind the model before scoring, such as ``Whitening(n_components=128)``.
    fit : path-like or "target", default "target"
        What the transform, and an encoder that needs a corpus, is fitted on: all sentences of the task under
        evaluation, without its scores, or the texts of a file.
    sickr : {"full", "test"}, default "full"
        All 9,927 pairs of SICK-R, or the 4,927 of the test part.
    progress : callable, optional
        Called once with the number of texts to encode; returns what is called with the number of texts finished.

    Returns
    -------
    STSResult
        Spearman and Pearson of every subset and of the three aggregations.

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
    if not isinstance(model, SentenceEncoder):
        raise InputTypeError(f"evaluate_sts: model must be what isosent.load returns; got {type(model).__name__}.")
    found = read_sts(folder, tasks=tasks, sickr=sickr)
    results, described = {}, model
    for task, done in zip(found, fit_tasks(model, found, transform=transform, fit=fit, progress=progress), strict=True):
        n_tokens, n_unknown = done.fitted.encoder.coverage(task.texts)
        scores = score_task(task, done.fitted, done.vectors)
        results[task.name] = replace(scores, choice=done.choice, n_tokens=n_tokens, n_unknown=n_unknown)
        described = model if fit == TARGET else done.fitted
    return STSResult(
        model=described.record.facts(),
        protocol=describe_protocol(
            transform,
            fit if transform is not None or model.encoder.needs_corpus else None,
            {
                "sickr": sickr,
                "missing_subsets": {task.name: list(task.missing_subsets) for task in found if task.missing_subsets},
            },
        ),
        tasks=results,
        average={
            metric: {how: float(np.mean([getattr(r, metric)[how] for r in results.values()])) for how in AGGREGATIONS}
            for metric in METRICS
        },
    )


def score_task(task: STSTask, model: SentenceEncoder, encoded: Lookup) -> STSTaskResult:
    """Score a model on one task.

    Parameters
    ----------
    task : STSTask
        The task.
    model : SentenceEncoder
        The model.
    encoded : callable
        What `encode_tasks` gave for it.

    Returns
    -------
    STSTaskResult
        Its scores.

    Warns
    -----
    EvaluationWarning
        If a correlation is undefined because every cosine is the same.
    """
    cosines, n_zero_rows = [], 0
    for subset in task.subsets:
        first, second = (model.transform(encoded(texts)) for texts in (subset.first, subset.second))
        cosines.append(pair_scores(first, second))
        n_zero_rows += int((~known_rows(first)).sum() + (~known_rows(second)).sum())
    if flat := [subset.name for subset, scores in zip(task.subsets, cosines, strict=True) if np.ptp(scores) == 0]:
        warnings.warn(
            f"{task.name}: every cosine of {', '.join(flat)} is the same; its correlation is undefined.",
            EvaluationWarning,
            stacklevel=3,
        )
    aggregates = {metric: aggregate(correlate, task.subsets, cosines) for metric, correlate in METRICS.items()}
    subsets = {
        subset.name: SubsetResult(len(scores), spearman(scores, subset.scores), pearson(scores, subset.scores))
        for subset, scores in zip(task.subsets, cosines, strict=True)
    }
    n_pairs = sum(map(len, cosines))
    return STSTaskResult(n_pairs, n_zero_rows, model.dim, aggregates["spearman"], aggregates["pearson"], subsets)


def pair_scores(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.float64]:
    """Cosine of each pair, made all the same where only rounding tells them apart: it must not make a ranking.

    Parameters
    ----------
    first, second : ndarray of shape (n_pairs, dim), float
        Vectors of the sentences of each pair.

    Returns
    -------
    ndarray of shape (n_pairs,), float64
        Cosines, 0 where a sentence has no vector.
    """
    cosines = pairwise_cosine(first, second)
    return cosines if np.ptp(cosines) > _ROUNDING else np.full_like(cosines, cosines[0])


def aggregate(
    correlate: Callable[[NDArray[np.float64], NDArray[np.float64]], float],
    subsets: Sequence[PairSet],
    cosines: Sequence[NDArray[np.float64]],
) -> dict[str, float]:
    """Correlate the cosines of a task with its human scores, in each of `AGGREGATIONS`.

    Parameters
    ----------
    correlate : callable
        One of `METRICS`.
    subsets : sequence of PairSet
        The subsets of the task.
    cosines : sequence of ndarray of shape (n_pairs,), float64
        What `pair_scores` gave for each.

    Returns
    -------
    dict of str to float
        The score by aggregation; NaN where undefined.
    """
    each = [correlate(scores, subset.scores) for subset, scores in zip(subsets, cosines, strict=True)]
    sizes = [len(scores) for scores in cosines]
    return {
        "all": correlate(np.concatenate(cosines), np.concatenate([subset.scores for subset in subsets])),
        "mean": float(np.mean(each)),
        "wmean": float(np.average(each, weights=sizes)),
    }
