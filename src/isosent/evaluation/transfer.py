"""Transfer tasks: what a logistic regression learns from frozen vectors, by the protocol of SentEval."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

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
from isosent.evaluation.result import Items, Measured
from isosent.evaluation.task import Encode, Task
from isosent.evaluation.transfer_files import DEV, TEST, TRAIN, WHOLE, TransferTask, read_transfer
from isosent.numeric.similarity import pearson, spearman

KIND = "transfer"
STRENGTHS = tuple(2.0**t for t in range(-2, 4))
STRENGTHS_ON_TRAIN = tuple(2.0**t for t in range(-1, 6))
F1_OF = {"MRPC": "1"}


def transfer_tasks(folder: str | os.PathLike[str], names: Sequence[str] | None = None) -> list[Task]:
    """Read transfer tasks."""
    sets = read_transfer(folder, tasks=names)
    for each in sets:
        if DEV not in each.parts:
            _check_folds(each)
    return [
        Task(
            name=each.name,
            kind=KIND,
            texts={"text": each.texts},
            target_texts=each.texts,
            items=each.scored_items,
            score=partial(_measure, each),
            protocol=_protocol(each),
            files=each.files,
        )
        for each in sets
    ]


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


def _measure(task: TransferTask, encode: Encode, seed: int) -> Measured:
    rows = {part: _features([encode(side) for side in items.sides]) for part, items in task.parts.items()}
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
