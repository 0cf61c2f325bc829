"""Transfer tasks: what a logistic regression learns from frozen vectors, by the protocol of SentEval."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from isosent.errors import EvaluationWarning, FileFormatError
from isosent.evaluation.probes import (
    LEAST_OF_A_CLASS,
    N_FOLDS,
    fold_means,
    probe_by_dev,
    probe_by_folds,
    probe_each_fold,
)
from isosent.evaluation.result import EvaluationResult, Items, Measured
from isosent.evaluation.run import TARGET, EvaluationSettings, FittedTask, Job, run_jobs
from isosent.evaluation.transfer_files import DEV, TEST, TRAIN, WHOLE, TransferTask, read_transfer
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import pearson, spearman
from isosent.transforms.base import Transform

KIND = "transfer"
STRENGTHS = tuple(2.0**t for t in range(-2, 4))
STRENGTHS_ON_TRAIN = tuple(2.0**t for t in range(-1, 6))
F1_OF = {"MRPC": "1"}


def evaluate_transfer(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    tasks: Sequence[str] | None = None,
    transform: Transform | Literal["auto"] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    run: EvaluationSettings | None = None,
) -> EvaluationResult:
    r"""Score a model on the transfer tasks below a folder.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    folder : path-like
        Where the original files lie, see `read_transfer`.
    tasks : sequence of str, optional
        Among MR, CR, SUBJ, MPQA, SST2, SST5, TREC, MRPC, SICK-R, SICK-E, STSB-supervised; all that are found where left
        out.
    transform : Transform or "auto", optional
        Fitted behind the model before scoring, such as ``Whitening(n_components=128)``.
    fit : path-like or "target", default "target"
        What the transform, and an encoder that needs a corpus, is fitted on: all texts of the task under evaluation,
        without its labels, or the texts of a file.
    run : Run, optional
        Seed, bootstrap, progress.

    Returns
    -------
    EvaluationResult
        ``accuracy``, with ``f1`` of the paraphrases on MRPC; on SICK-R and STSB-supervised ``pearson``, ``spearman``
        and ``mse``. Under ``details``: the penalties that were chosen (``C``), the score they were chosen by (``dev``),
        the accuracy in each of the outer ``folds`` and its standard deviation, the accuracy of always naming the most
        frequent label (``majority``), the items and labels of each part.

    Raises
    ------
    InputError
        If a task is unknown or lies in several folders.
    TaskNotFoundError
        If a task is not found, or there is none at all.
    FileFormatError
        If a file is malformed, or a class is too small to be split into folds.

    Warns
    -----
    EvaluationWarning
        If tasks are left out because files are missing, or a correlation is undefined because all predictions are the
        same.

    Notes
    -----
    Vectors are neither trained nor standardised. The features of a pair are :math:`|u - v|` and, by dimension,
    :math:`u v`. The penalty is chosen by accuracy, or Pearson correlation, within what is learnt from: by ten folds
    within each nine of ten outer folds (MR, CR, SUBJ, MPQA), by ten folds of train (TREC, MRPC), or on dev. Over outer
    folds, ``accuracy`` is the share of all texts that are told rightly, each by what was learnt without it.

    Two things are not as in SentEval. :math:`C` is chosen among SentEval's values for scikit-learn,
    :math:`2^{-2} \dots 2^3`, or :math:`2^{-1} \dots 2^5` by folds of train; but here these are divided by the total
    variance of the features that are learnt from. On features of variance 1 that is SentEval's choice; on others it
    makes the score independent of the unit that vectors are measured in. And SentEval predicts scores by least squares
    on the distribution, over 1 to 5 for STS-B too, with early stopping in place of a penalty; here by maximum
    likelihood with a penalty, over 0 to 5 for STS-B.

    References
    ----------
    Conneau and Kiela 2018, *SentEval: An Evaluation Toolkit for Universal Sentence Representations*, arXiv 1803.05449.
    """
    jobs = transfer_jobs(folder, tasks=tasks)
    return run_jobs("evaluate_transfer", model, jobs, folder, transform=transform, fit=fit, run=run)


def transfer_jobs(folder: str | os.PathLike[str], *, tasks: Sequence[str] | None = None) -> list[Job]:
    """Read transfer tasks and say how they are scored; parameters as for `evaluate_transfer`."""
    found = read_transfer(folder, tasks=tasks)
    for task in found:
        if DEV not in task.parts:
            _check_folds(task)
    return [Job(task.name, KIND, task, partial(_measure, task), _protocol(task), task.files) for task in found]


def _check_folds(task: TransferTask) -> None:
    for label, count in _class_counts(task, _learnt_from(task)).items():
        if 0 < count < LEAST_OF_A_CLASS:
            raise FileFormatError(
                f"{task.name}: every class must have at least {LEAST_OF_A_CLASS} items to be split into folds; "
                f"{task.files[0].parent} holds {count} of {label}."
            )


def _protocol(task: TransferTask) -> dict[str, Any]:
    learnt_from = _learnt_from(task)
    by_folds = f"{N_FOLDS}-fold cross-validation"
    within = {WHOLE: f"{by_folds} within each nine of {N_FOLDS} folds", TRAIN: f"{by_folds} on train"}
    return {
        "classifier": "logistic regression",
        "features": "u" if len(task.parts[learnt_from].sides) == 1 else "|u - v|, u * v",
        "standardised": False,
        "C_times_variance": list(_strengths(task)),
        "chosen_by": DEV if DEV in task.parts else within[learnt_from],
        **({"distribution_over": list(task.classes)} if task.is_scored else {}),
    }


def _learnt_from(task: TransferTask) -> str:
    return WHOLE if WHOLE in task.parts else TRAIN


def _strengths(task: TransferTask) -> tuple[float, ...]:
    return STRENGTHS if WHOLE in task.parts or DEV in task.parts else STRENGTHS_ON_TRAIN


def _measure(task: TransferTask, done: FittedTask, seed: int) -> Measured:
    rows = {part: _features([done.encode(side) for side in items.sides]) for part, items in task.parts.items()}
    labels = {part: items.labels for part, items in task.parts.items()}
    strengths = _strengths(task)
    details: dict[str, Any] = {f"n_{part}": len(of_part) for part, of_part in labels.items()}
    if WHOLE in rows:
        predicted, fold, probes = probe_each_fold(rows[WHOLE], labels[WHOLE], strengths=strengths, seed=seed)
        of_folds = fold_means(predicted == labels[WHOLE], fold)
        details |= {"folds": of_folds.tolist(), "folds_std": float(of_folds.std(ddof=1))}
    else:
        if DEV in rows:
            probe = probe_by_dev(
                rows[TRAIN], labels[TRAIN], rows[DEV], labels[DEV], strengths=strengths, is_scored=task.is_scored
            )
        else:
            probe = probe_by_folds(rows[TRAIN], labels[TRAIN], strengths=strengths, seed=seed)
        predicted, probes = probe.predict(rows[TEST]), [probe]
    details |= {
        "C": [probe.C for probe in probes],
        "C_times_variance": [probe.strength for probe in probes],
        "dev": float(np.mean([probe.dev for probe in probes])),
    }
    return (_of_scores if task.is_scored else _of_labels)(task, predicted, details)


def _features(sides: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """The vector of a text; of a pair both what tells its vectors apart and what they share."""
    if len(sides) == 1:
        return sides[0]
    u, v = sides
    return np.hstack([np.abs(u - v), u * v])


def _of_labels(task: TransferTask, predicted: NDArray[np.float64], details: Mapping[str, Any]) -> Measured:
    told = WHOLE if WHOLE in task.parts else TEST
    gold = task.parts[told].labels
    right = (predicted == gold).astype(np.float64)
    scores = {"accuracy": float(right.mean())}
    if task.name in F1_OF:
        one = task.classes.index(F1_OF[task.name])
        scores["f1"] = _f1(predicted == one, gold == one)
    counts = {part: _class_counts(task, part) for part in task.parts}
    known = counts[_learnt_from(task)]
    majority = max(known, key=known.__getitem__)
    baseline = {"label": majority, "accuracy": counts[told][majority] / len(gold)}
    return Measured("accuracy", scores, Items(right), {**details, "majority": baseline, "class_counts": counts})


def _f1(predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> float:
    """Harmonic mean of precision and recall."""
    return float(2 * (predicted & gold).sum() / (predicted.sum() + gold.sum()))


def _class_counts(task: TransferTask, part: str) -> dict[str, int]:
    counts = np.bincount(task.parts[part].labels.astype(np.int64), minlength=len(task.classes))
    return {label: int(count) for label, count in zip(task.classes, counts, strict=True)}


def _of_scores(task: TransferTask, predicted: NDArray[np.float64], details: Mapping[str, Any]) -> Measured:
    gold = task.parts[TEST].labels
    if np.ptp(predicted) == 0:
        warnings.warn(
            f"{task.name}: every predicted score is the same; its correlation is undefined.",
            EvaluationWarning,
            stacklevel=4,
        )
    scores = {
        "pearson": pearson(predicted, gold),
        "spearman": spearman(predicted, gold),
        "mse": float(np.mean((predicted - gold) ** 2)),
    }
    return Measured("pearson", scores, Items(predicted, gold), details)
