"""Recognizing textual entailment by the cosine alone."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isosent.evaluation.protocol import TARGET, FittedTask
from isosent.evaluation.result import EvaluationResult, Items, Measured
from isosent.evaluation.rte_files import ENTAILMENT, NOT_ENTAILMENT, EntailmentPairs, RTETask, read_rte
from isosent.evaluation.running import Job, Run, run_jobs
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import pairwise_cosine
from isosent.transforms.base import Transform

KIND = "rte"
FIXED_THRESHOLD = 0.5


@dataclass(frozen=True, slots=True)
class ThresholdResult:
    """Accuracy of calling a pair an entailment where its cosine lies above a threshold.

    Parameters
    ----------
    threshold : float
        The threshold.
    train_accuracy, dev_accuracy : float
        Share of the pairs told rightly, in [0, 1].
    dev_entailed : int
        Pairs of dev that are called an entailment.
    """

    threshold: float
    train_accuracy: float
    dev_accuracy: float
    dev_entailed: int


def best_threshold(cosines: NDArray[np.float64], entailed: NDArray[np.bool_]) -> float:
    """Find the threshold that tells most pairs rightly.

    Parameters
    ----------
    cosines : ndarray of shape (n_pairs,), float64
        Cosine of each pair, at least one.
    entailed : ndarray of shape (n_pairs,), bool
        Whether it is an entailment.

    Returns
    -------
    float
        Half-way between two neighbouring cosines, or beyond the outermost; of several equally good ones the lowest.

    Examples
    --------
    >>> best_threshold(np.array([0.2, 0.4, 0.9]), np.array([False, True, True])).__round__(3)
    0.3
    """
    values = np.unique(cosines)
    thresholds = np.concatenate([[values[0] - 1], (values[:-1] + values[1:]) / 2, [values[-1]]])
    positive = np.sort(cosines[entailed])
    negative = np.sort(cosines[~entailed])
    right = len(positive) - np.searchsorted(positive, thresholds, side="right")
    right = right + np.searchsorted(negative, thresholds, side="right")
    return float(thresholds[np.argmax(right)])


def evaluate_rte(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    transform: Transform | Literal["auto"] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    run: Run | None = None,
) -> EvaluationResult:
    """Tell entailment by the cosine of premise and hypothesis, on the RTE task of GLUE.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    folder : path-like
        Where the original files lie, see `read_rte`.
    transform : Transform or "auto", optional
        Fitted behind the model before scoring, such as ``Whitening(n_components=128)``.
    fit : path-like or "target", default "target"
        What the transform, and an encoder that needs a corpus, is fitted on: all sentences of train, dev and test,
        without labels, or the texts of a file.
    run : Run, optional
        Seed, bootstrap, progress.

    Returns
    -------
    EvaluationResult
        ``accuracy`` on dev at 0.5, ``accuracy_tuned`` at the threshold that is best on train, ``accuracy_majority`` of
        always naming the more frequent label; the thresholds under ``details``.

    Raises
    ------
    InputError
        If the files are not there or malformed.

    Notes
    -----
    A pair is an entailment where its cosine lies strictly above the threshold. The threshold 0.5 is that of Huang et
    al. 2021; it says as much about where a model's cosines lie as about what they tell apart, which the threshold found
    on train does not.

    References
    ----------
    Huang et al. 2021, *WhiteningBERT: An Easy Unsupervised Sentence Embedding Approach*, arXiv 2104.01767, appendix.
    """
    return run_jobs("evaluate_rte", model, rte_jobs(folder), folder, transform=transform, fit=fit, run=run)


def rte_jobs(folder: str | os.PathLike[str]) -> list[Job]:
    """Read RTE and say how it is scored; parameters as for `evaluate_rte`."""
    task = read_rte(folder)
    protocol = {"similarity": "cosine", "threshold": FIXED_THRESHOLD}
    return [Job("RTE", KIND, task, partial(_measure, task), protocol, task.files)]


def _measure(task: RTETask, done: FittedTask, seed: int) -> Measured:
    train, dev = (_cosines(pairs, done) for pairs in (task.train, task.dev))

    def accuracies(threshold: float) -> ThresholdResult:
        of_train, of_dev = (
            float(np.mean((cosines > threshold) == pairs.entailed))
            for cosines, pairs in ((train, task.train), (dev, task.dev))
        )
        return ThresholdResult(threshold, of_train, of_dev, int((dev > threshold).sum()))

    share = float(task.dev.entailed.mean())
    fixed, tuned = accuracies(FIXED_THRESHOLD), accuracies(best_threshold(train, task.train.entailed))
    return Measured(
        "accuracy",
        {
            "accuracy": fixed.dev_accuracy,
            "accuracy_tuned": tuned.dev_accuracy,
            "accuracy_majority": max(share, 1 - share),
        },
        Items(((dev > FIXED_THRESHOLD) == task.dev.entailed).astype(np.float64)),
        {
            "fixed": asdict(fixed),
            "tuned": asdict(tuned),
            "majority": ENTAILMENT if share >= 0.5 else NOT_ENTAILMENT,
            "n_train": len(train),
        },
    )


def _cosines(pairs: EntailmentPairs, done: FittedTask) -> NDArray[np.float64]:
    return pairwise_cosine(done.encode(pairs.first), done.encode(pairs.second))
