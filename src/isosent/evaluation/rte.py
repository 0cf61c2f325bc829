"""Recognizing textual entailment (GLUE) by the cosine alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.result import Items, Measurement
from isosent.evaluation.sizes import DEV, TRAIN
from isosent.evaluation.task import Task, TaskEncoder
from isosent.io import bounds
from isosent.io.bounds import folders_below, read_lines, split_fields
from isosent.io.system import open_to_read
from isosent.numeric.similarity import pairwise_cosine

ENTAILMENT, NOT_ENTAILMENT = "entailment", "not_entailment"
# A pair is called an entailment if its cosine is above 0.5 (Huang et al. 2021, appendix). That says as much about where
# the cosines of a model lie as about what they separate; the threshold that is best on train does not.
FIXED_THRESHOLD = 0.5
_TRAIN, _DEV, _TEST = "train.tsv", "dev.tsv", "test.tsv"
_HEADER = ("index", "sentence1", "sentence2", "label")


# Premises, hypotheses, and whether each premise entails its hypothesis
EntailmentPairs = tuple[list[str], list[str], NDArray[np.bool_]]


def rte_tasks(folder: str | os.PathLike[str]) -> list[Task]:
    """Find and read RTE."""
    root = _check.input_folder(folder).resolve()
    homes = [path for path, files in folders_below(root) if {_TRAIN, _DEV} <= set(files) and _is_rte(path / _DEV)]
    if not homes:
        raise TaskNotFoundError(
            f"{root} holds no RTE files of GLUE. They are {_TRAIN} and {_DEV}, with the columns "
            f"{', '.join(_HEADER)} and the labels {ENTAILMENT} and {NOT_ENTAILMENT}."
        )
    if len(homes) > 1:
        raise InputError(f"RTE is in several folders: {', '.join(map(str, homes))}. Name one of them.")
    files = [path for name in (_TRAIN, _DEV, _TEST) if (path := homes[0] / name).exists()]
    train, dev = _read_pairs(files[0]), _read_pairs(files[1])
    # The labels of test are not public; its sentences are among those to fit on
    unlabeled = [text for path in files[2:] for row in _rows(path, _HEADER[:3]) for text in row[1:3]]
    texts = [*train[0], *train[1], *dev[0], *dev[1]]
    return [
        Task(
            name="RTE",
            kind="rte",
            texts={"text": texts},
            target_texts=[*texts, *unlabeled],
            items=list(zip(dev[0], dev[1], strict=True)),
            score=partial(_measure, train, dev),
            protocol={"similarity": "cosine", "threshold": FIXED_THRESHOLD},
            files=files,
            sizes={TRAIN: len(train[2]), DEV: len(dev[2])},
        )
    ]


def _measure(train: EntailmentPairs, dev: EntailmentPairs, encode: TaskEncoder, seed: int) -> Measurement:
    train_cosines, dev_cosines = (pairwise_cosine(encode(first), encode(second)) for first, second, _ in (train, dev))
    train_entailed, dev_entailed = train[2], dev[2]

    def at(threshold: float) -> dict[str, Any]:
        return {
            "threshold": threshold,
            "train_accuracy": float(np.mean((train_cosines > threshold) == train_entailed)),
            "dev_accuracy": float(np.mean((dev_cosines > threshold) == dev_entailed)),
            "dev_entailed": int((dev_cosines > threshold).sum()),
        }

    fixed, tuned = at(FIXED_THRESHOLD), at(best_threshold(train_cosines, train_entailed))
    share = float(dev_entailed.mean())
    return Measurement(
        "accuracy",
        {
            "accuracy": fixed["dev_accuracy"],
            "accuracy_tuned": tuned["dev_accuracy"],
            "accuracy_majority": max(share, 1 - share),
        },
        Items(((dev_cosines > FIXED_THRESHOLD) == dev_entailed).astype(np.float64)),
        {
            "fixed": fixed,
            "tuned": tuned,
            "majority": ENTAILMENT if share >= 0.5 else NOT_ENTAILMENT,
            "n_train": len(train_cosines),
        },
    )


def best_threshold(cosines: NDArray[np.float64], entailed: NDArray[np.bool_]) -> float:
    """Find the threshold that classifies most pairs correctly."""
    values = np.unique(cosines)
    thresholds = np.concatenate([[values[0] - 1], (values[:-1] + values[1:]) / 2, [values[-1]]])
    positive, negative = np.sort(cosines[entailed]), np.sort(cosines[~entailed])
    n_true_positives = len(positive) - np.searchsorted(positive, thresholds, side="right")
    n_true_negatives = np.searchsorted(negative, thresholds, side="right")
    return float(thresholds[np.argmax(n_true_positives + n_true_negatives)])


def _is_rte(path: Path) -> bool:
    """Whether the first lines are those of RTE; other tasks of GLUE have files of the same names."""
    with TextIOWrapper(open_to_read(path), "utf-8-sig", "replace", "\n") as file:
        header, first = (file.readline(bounds.LONGEST_LINE).rstrip("\r\n").split("\t") for _ in range(2))
    return header == list(_HEADER) and first[-1] in (ENTAILMENT, NOT_ENTAILMENT)


def _read_pairs(path: Path) -> EntailmentPairs:
    rows = _rows(path, _HEADER)
    for number, row in enumerate(rows, start=2):
        if row[-1] not in (ENTAILMENT, NOT_ENTAILMENT):
            raise FileFormatError(
                f"{path}, line {number}: expected {ENTAILMENT} or {NOT_ENTAILMENT} at its end, found {row[-1]!r}."
            )
    entailed = np.array([row[-1] == ENTAILMENT for row in rows], dtype=bool)
    if len(set(entailed.tolist())) < 2:
        raise FileFormatError(f"{path}: its {len(rows)} pairs have one label. Both labels are needed.")
    return [row[1] for row in rows], [row[2] for row in rows], entailed


def _rows(path: Path, header: Sequence[str]) -> list[list[str]]:
    """Fields of each line after the header, split at tabs without quoting: stray quotation marks occur."""
    lines = read_lines(path)
    columns = lines[0].split("\t")
    if columns[: len(header)] != list(header):
        raise FileFormatError(f"{path}, line 1: expected the columns {', '.join(header)}, found {lines[0]!r:.80}.")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        fields = split_fields(path, number, line, len(columns))
        if len(fields) > len(columns):
            raise FileFormatError(f"{path}, line {number}: expected {len(columns)} columns, found {len(fields)}.")
        rows.append(fields)
    return rows
