"""Similarity of pairs of texts in a file of one's own: correlation of the cosine with human scores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np

from isosent.errors import EvaluationWarning
from isosent.evaluation.pair_files import PairTask, read_scored_pairs
from isosent.evaluation.protocol import TARGET, FittedTask
from isosent.evaluation.result import EvaluationResult, Items, Measured
from isosent.evaluation.running import Job, Run, run_jobs
from isosent.evaluation.sts import METRICS, pair_scores
from isosent.model import SentenceEncoder
from isosent.transforms.base import Transform

KIND = "pairs"


def evaluate_pairs(
    model: SentenceEncoder,
    file: str | os.PathLike[str],
    *,
    columns: str | Sequence[str] | None = None,
    transform: Transform | Literal["auto"] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    run: Run | None = None,
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
    return [Job(task.name, KIND, task, partial(_measure, task), protocol, task.files)]


def _measure(task: PairTask, done: FittedTask, seed: int) -> Measured:
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
