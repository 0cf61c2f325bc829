"""Recognizing textual entailment by the cosine alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.result import Items, Measured
from isosent.evaluation.task import Encode, Task
from isosent.io import bounds
from isosent.io.lines import folders_below, read_lines, split_fields
from isosent.numeric.similarity import pairwise_cosine

ENTAILMENT, NOT_ENTAILMENT = "entailment", "not_entailment"
_TRAIN, _DEV, _TEST = "train.tsv", "dev.tsv", "test.tsv"
_HEADER = ("index", "sentence1", "sentence2", "label")
_TEXTS = slice(1, 3)


@dataclass(frozen=True, slots=True, eq=False)
class EntailmentPairs:
    """Pairs of a premise and a hypothesis, and whether the one entails the other."""

    first: tuple[str, ...]  # premises and hypotheses
    second: tuple[str, ...]  # premises and hypotheses
    entailed: NDArray[np.bool_]  # whether the premise entails the hypothesis

    @property
    def texts(self) -> tuple[str, ...]:
        """All sentences, as often as they occur."""
        return self.first + self.second


@dataclass(frozen=True, slots=True, eq=False)
class RTETask:
    """The RTE task."""

    train: EntailmentPairs  # the labelled pairs: 2,490 to find a threshold on, 277 to be evaluated
    dev: EntailmentPairs  # the labelled pairs: 2,490 to find a threshold on, 277 to be evaluated
    # Sentences of the test part, whose labels are not public; none where its file is not there
    unlabelled: tuple[str, ...]
    files: tuple[Path, ...] = ()  # what it was read from

    @property
    def texts(self) -> tuple[str, ...]:
        """All sentences of the labelled pairs, as often as they occur."""
        return self.train.texts + self.dev.texts

    @property
    def scored_items(self) -> list[tuple[str, str]]:
        """The pairs of dev."""
        return list(zip(self.dev.first, self.dev.second, strict=True))

    @property
    def target_texts(self) -> tuple[str, ...]:
        """All sentences of train, dev and test: what a transform is fitted on under the protocol "target"."""
        return self.texts + self.unlabelled


def read_rte(folder: str | os.PathLike[str]) -> RTETask:
    """Find and read the RTE files."""
    # Files are split at tabs and line feeds without quoting: stray quotation marks occur.
    root = _check.input_folder(folder).resolve()
    found = [path for path, files in folders_below(root) if {_TRAIN, _DEV} <= set(files) and _is_rte(path / _DEV)]
    if not found:
        raise TaskNotFoundError(
            f"{root} must hold the RTE files of GLUE; none were found. They are {_TRAIN} and {_DEV}, with the columns "
            f"{', '.join(_HEADER)} and the labels {ENTAILMENT} and {NOT_ENTAILMENT}."
        )
    if len(found) > 1:
        raise InputError(f"RTE must lie in one folder; got {', '.join(map(str, found))}. Name one of them.")
    (home,) = found
    unlabelled = _sentences(home / _TEST) if (home / _TEST).exists() else ()
    files = tuple(home / name for name in (_TRAIN, _DEV, _TEST) if (home / name).exists())
    return RTETask(_read_pairs(home / _TRAIN), _read_pairs(home / _DEV), unlabelled, files)


def _is_rte(path: Path) -> bool:
    """Whether the first lines are those of RTE; other tasks of GLUE have files of the same names."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        header, first = (file.readline(bounds.LONGEST_LINE).rstrip("\r\n").split("\t") for _ in range(2))
    return header == list(_HEADER) and first[-1] in (ENTAILMENT, NOT_ENTAILMENT)


def _read_pairs(path: Path) -> EntailmentPairs:
    rows = _rows(path, _HEADER)
    entailed = []
    for number, row in enumerate(rows, start=2):
        if row[-1] not in (ENTAILMENT, NOT_ENTAILMENT):
            raise FileFormatError(
                f"{path}: line {number} must end with {ENTAILMENT} or {NOT_ENTAILMENT}; got {row[-1]!r}."
            )
        entailed.append(row[-1] == ENTAILMENT)
    if len(set(entailed)) < 2:
        raise FileFormatError(f"{path} must hold pairs of both labels; got {len(rows)} pairs of {len(set(entailed))}.")
    return EntailmentPairs(tuple(row[1] for row in rows), tuple(row[2] for row in rows), np.array(entailed))


def _sentences(path: Path) -> tuple[str, ...]:
    return tuple(text for row in _rows(path, _HEADER[:3]) for text in row[_TEXTS])


def _rows(path: Path, header: Sequence[str]) -> list[list[str]]:
    """Fields of each line behind the header."""
    lines = read_lines(path)
    columns = lines[0].split("\t")
    if columns[: len(header)] != list(header):
        raise FileFormatError(f"{path}: line 1 must name the columns {', '.join(header)}; got {lines[0]!r}.")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        fields = split_fields(path, number, line, len(columns))
        if len(fields) > len(columns):
            raise FileFormatError(f"{path}: line {number} must have {len(columns)} fields; got {len(fields)}.")
        rows.append(fields)
    return rows


KIND = "rte"
FIXED_THRESHOLD = 0.5


@dataclass(frozen=True, slots=True)
class ThresholdResult:
    """Accuracy of calling a pair an entailment where its cosine lies above a threshold."""

    threshold: float  # the threshold
    train_accuracy: float  # share of the pairs told rightly, in [0, 1]
    dev_accuracy: float  # share of the pairs told rightly, in [0, 1]
    dev_entailed: int  # pairs of dev that are called an entailment


def best_threshold(cosines: NDArray[np.float64], entailed: NDArray[np.bool_]) -> float:
    """Find the threshold that tells most pairs rightly."""
    values = np.unique(cosines)
    thresholds = np.concatenate([[values[0] - 1], (values[:-1] + values[1:]) / 2, [values[-1]]])
    positive = np.sort(cosines[entailed])
    negative = np.sort(cosines[~entailed])
    right = len(positive) - np.searchsorted(positive, thresholds, side="right")
    right = right + np.searchsorted(negative, thresholds, side="right")
    return float(thresholds[np.argmax(right)])


def rte_tasks(folder: str | os.PathLike[str]) -> list[Task]:
    """Read RTE."""
    rte = read_rte(folder)
    return [
        Task(
            name="RTE",
            kind=KIND,
            texts={"text": rte.texts},
            target_texts=rte.target_texts,
            items=rte.scored_items,
            score=partial(_measure, rte),
            protocol={"similarity": "cosine", "threshold": FIXED_THRESHOLD},
            files=rte.files,
        )
    ]


def _measure(task: RTETask, encode: Encode, seed: int) -> Measured:
    train, dev = (_cosines(pairs, encode) for pairs in (task.train, task.dev))

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


def _cosines(pairs: EntailmentPairs, encode: Encode) -> NDArray[np.float64]:
    return pairwise_cosine(encode(pairs.first), encode(pairs.second))
