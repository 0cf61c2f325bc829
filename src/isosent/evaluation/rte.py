"""Recognizing textual entailment by the cosine alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import Progress
from isosent.evaluation.protocol import TARGET, FittedTask, describe_protocol, fit_tasks
from isosent.evaluation.rte_files import ENTAILMENT, NOT_ENTAILMENT, EntailmentPairs, read_rte
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import pairwise_cosine
from isosent.transforms.base import LinearTransform, known_rows

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


@dataclass(frozen=True, slots=True)
class RTEResult:
    """Accuracy of a model on RTE.

    Parameters
    ----------
    model : mapping
        Reference, options, dimensions and fingerprint of the model.
    protocol : mapping
        Similarity, transform, what it was fitted on.
    dim : int
        Dimensions of the vectors that were compared.
    n_train, n_dev : int
        Pairs.
    fixed : ThresholdResult
        At `FIXED_THRESHOLD`.
    tuned : ThresholdResult
        At the threshold that is best on train.
    majority : str
        The label that more pairs of dev have.
    majority_accuracy : float
        Accuracy on dev of always saying so.
    interval : float
        Half the width of the 95 % interval of the accuracy at `FIXED_THRESHOLD`, by the normal approximation.
    n_zero_rows : int
        Sentences of train and dev without a vector; their cosine counts as 0.
    n_cut : int
        Sentences of train and dev that were cut at the encoder's maximum.
    n_tokens, n_unknown : int
        Tokens of the sentences, and those among them that the encoder does not know; 0 where none can be unknown.
    choice : mapping or None
        What "auto" weighed and chose, where it did.
    """

    model: Mapping[str, Any]
    protocol: Mapping[str, Any]
    dim: int
    n_train: int
    n_dev: int
    fixed: ThresholdResult
    tuned: ThresholdResult
    majority: str
    majority_accuracy: float
    interval: float
    n_zero_rows: int
    n_cut: int
    n_tokens: int
    n_unknown: int
    choice: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values that JSON can hold."""
        return asdict(self)


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
    transform: LinearTransform | Literal["auto"] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    progress: Callable[[int], Progress] | None = None,
) -> RTEResult:
    """Tell entailment by the cosine of premise and hypothesis, on the RTE task of GLUE.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    folder : path-like
        Where the original files lie, see `read_rte`.
    transform : LinearTransform or "auto", optional
        Fitted behind the model before scoring.
    fit : path-like or "target", default "target"
        What the transform, and an encoder that needs a corpus, is fitted on: all sentences of train, dev and test,
        without labels, or the texts of a file.
    progress : callable, optional
        As for `evaluate_sts`.

    Returns
    -------
    RTEResult
        Accuracy on dev, at 0.5 and at the threshold that is best on train.

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
    task = read_rte(folder)
    (done,) = fit_tasks(model, [task], transform=transform, fit=fit, progress=progress)
    train, dev = (_cosines(pairs, done) for pairs in (task.train, task.dev))

    def accuracies(threshold: float) -> ThresholdResult:
        of_train, of_dev = (
            float(np.mean((cosines > threshold) == pairs.entailed))
            for cosines, pairs in ((train, task.train), (dev, task.dev))
        )
        return ThresholdResult(threshold, of_train, of_dev, int((dev > threshold).sum()))

    share = float(task.dev.entailed.mean())
    fixed = accuracies(FIXED_THRESHOLD)
    described = model if fit == TARGET else done.fitted
    learns = transform is not None or model.encoder.needs_corpus
    zeros = ~known_rows(done.fitted.transform(done.vectors(task.texts)))
    n_tokens, n_unknown = done.fitted.encoder.coverage(task.texts)
    return RTEResult(
        model=described.record.facts(),
        protocol=describe_protocol(transform, fit if learns else None, {}),
        dim=done.fitted.dim,
        n_train=len(train),
        n_dev=len(dev),
        fixed=fixed,
        tuned=accuracies(best_threshold(train, task.train.entailed)),
        majority=ENTAILMENT if share >= 0.5 else NOT_ENTAILMENT,
        majority_accuracy=max(share, 1 - share),
        interval=1.96 * sqrt(fixed.dev_accuracy * (1 - fixed.dev_accuracy) / len(dev)),
        n_zero_rows=int(zeros.sum()),
        n_cut=int(done.fitted.encoder.tokenize(task.texts).n_cut),
        n_tokens=n_tokens,
        n_unknown=n_unknown,
        choice=done.choice,
    )


def _cosines(pairs: EntailmentPairs, done: FittedTask) -> NDArray[np.float64]:
    first, second = (done.fitted.transform(done.vectors(texts)) for texts in (pairs.first, pairs.second))
    return pairwise_cosine(first, second)
