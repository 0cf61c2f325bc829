"""Reading the transfer tasks of SentEval from their original files, wherever these lie below a folder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import EvaluationWarning, FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.task import task_names
from isosent.io import bounds
from isosent.io.lines import folders_below, read_lines, split_fields

WHOLE, TRAIN, DEV, TEST = "whole", "train", "dev", "test"


@dataclass(frozen=True, slots=True, eq=False)
class LabelledTexts:
    """Texts, or pairs of texts, and what has to be told of each."""

    sides: tuple[tuple[str, ...], ...]  # the texts; of pairs the first ones, then the second ones
    labels: NDArray[np.float64]  # place of the label among the classes of the task, from 0, or the human score

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts, as often as they occur."""
        return tuple(text for side in self.sides for text in side)


@dataclass(frozen=True, slots=True, eq=False)
class TransferTask:
    """A task that is learnt on frozen vectors."""

    name: str  # one of `TRANSFER_TASKS`
    parts: Mapping[str, LabelledTexts]  # ``whole`` alone; ``train`` and ``test``; or ``train``, ``dev`` and ``test``
    classes: tuple[str, ...]  # the labels; where there are human scores, the whole numbers of their scale
    is_scored: bool  # whether the labels are human scores
    files: tuple[Path, ...] = ()  # what it was read from

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts of all parts, as often as they occur."""
        return tuple(text for part in self.parts.values() for text in part.texts)

    @property
    def target_texts(self) -> tuple[str, ...]:
        """All texts: what a transform is fitted on under the protocol "target", without the labels."""
        return self.texts

    @property
    def scored_items(self) -> list[tuple[str, ...]]:
        """The texts or pairs of the test part, or of the whole."""
        *_, scored = self.parts.values()
        return list(zip(*scored.sides, strict=True))


def read_transfer(folder: str | os.PathLike[str], *, tasks: Sequence[str] | None = None) -> tuple[TransferTask, ...]:
    """Find and read transfer tasks in their original format."""
    # Files are split at line feeds, and at tabs without quoting; white space at the ends of a text is dropped. A
    # blank line in a file that holds one class is an empty text: CR has four, and with them the 3,775 texts that
    # SentEval counts. Files of one text a line are read as Latin-1 where they are not UTF-8, as a question of TREC
    # requires.
    root = _check.input_folder(folder).resolve()
    wanted = None if tasks is None else task_names(tasks, TRANSFER_TASKS)
    places, in_part = _find(root)
    if absent := [task for task in wanted or () if task not in places]:
        expected = "; ".join(in_part.get(task, _expected(task)) for task in absent)
        raise TaskNotFoundError(
            f"{root} must hold {expected}, all files of a task in one folder; it holds {_listed(places)}."
        )
    if not places:
        raise TaskNotFoundError(
            f"{root} must hold all files of a transfer task in one folder; none was found. Known: "
            f"{'; '.join(in_part.get(task, _expected(task)) for task in TRANSFER_TASKS)}."
        )
    if wanted is None and in_part:
        warnings.warn(f"tasks left out: {root} lacks {'; '.join(in_part.values())}.", EvaluationWarning, stacklevel=4)
    taken = [task for task in places if wanted is None or task in wanted]
    for task in taken:
        if len(places[task]) > 1:
            raise InputError(f"{task} must lie in one folder; got {_listed(places[task])}. Name one of them.")
    return tuple(_read(task, places[task][0]) for task in taken)


@dataclass(frozen=True, slots=True)
class _Format:
    """Files of a task and how they are read."""

    files: Mapping[str, tuple[str, ...]]  # names by part; a part has one file, or one for each class
    classes: tuple[str, ...]  # as of `TransferTask`
    # From a file to the texts and the label of each item
    rows: Callable[[Path], Iterator[tuple[int, Sequence[str], str]]]
    is_scored: bool = False  # whether the labels are human scores
    # Tells by its first line whether a file is of this task: others have files of the same name
    begins: Callable[[str], bool] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for names in self.files.values() for name in names)

    def owns(self, path: Path) -> bool:
        if self.begins is None:
            return True
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            return self.begins(file.readline(bounds.LONGEST_LINE))


def _expected(task: str) -> str:
    return f"{task} ({_listed(_FORMATS[task].names)})"


def _listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things)) or "none"


def _find(root: Path) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """Folders with all files of a task; and for tasks without one, what is lacking beside the files that are there."""
    places: dict[str, list[Path]] = {}
    in_part: dict[str, str] = {}
    for path, files in folders_below(root):
        for task, form in _FORMATS.items():
            present = [name for name in form.names if name in files and form.owns(path / name)]
            if len(present) == len(form.names):
                places.setdefault(task, []).append(path)
            elif present:
                lacking = [name for name in form.names if name not in present]
                in_part[task] = f"{task} ({_listed(lacking)}, expected in {path})"
    return (
        {task: places[task] for task in TRANSFER_TASKS if task in places},
        {task: in_part[task] for task in TRANSFER_TASKS if task in in_part and task not in places},
    )


def _read(task: str, home: Path) -> TransferTask:
    form = _FORMATS[task]
    parts = {part: _read_part(form, [home / name for name in names]) for part, names in form.files.items()}
    return TransferTask(task, parts, form.classes, form.is_scored, tuple(home / name for name in form.names))


def _read_part(form: _Format, paths: Sequence[Path]) -> LabelledTexts:
    texts: list[Sequence[str]] = []
    labels: list[float] = []
    for place, path in enumerate(paths):
        for number, of_item, label in form.rows(path):
            texts.append([text.strip() for text in of_item])
            labels.append(place if len(paths) > 1 else _label(form, path, number, label))
    if len(set(labels)) < 2:
        raise FileFormatError(
            f"{_listed(paths)} must hold items of two labels at least; got {len(labels)} items of {len(set(labels))}."
        )
    return LabelledTexts(tuple(zip(*texts, strict=True)), np.array(labels, dtype=np.float64))


def _label(form: _Format, path: Path, number: int, written: str) -> float:
    if not form.is_scored:
        if written not in form.classes:
            raise FileFormatError(
                f"{path}: line {number} must be labelled {' or '.join(form.classes)}; got {written!r}."
            )
        return form.classes.index(written)
    lowest, *_, highest = form.classes
    try:
        score = float(written)
    except ValueError:
        score = float("nan")
    if not int(lowest) <= score <= int(highest):
        raise FileFormatError(f"{path}: line {number} must hold a score in {lowest} ... {highest}; got {written!r}.")
    return score


def _unlabelled(path: Path) -> Iterator[tuple[int, Sequence[str], str]]:
    for number, line in enumerate(_lines(path), start=1):
        yield number, [line], ""


def _label_first(path: Path) -> Iterator[tuple[int, Sequence[str], str]]:
    """``label text`` or, as TREC has it, ``label:finer text``."""
    for number, line in enumerate(_lines(path), start=1):
        label, _, text = line.partition(" ")
        yield number, [text], label.partition(":")[0]


def _lines(path: Path) -> list[str]:
    try:
        return read_lines(path)
    except FileFormatError:
        return read_lines(path, "latin-1")


def _table(
    path: Path, texts: tuple[int, int] | tuple[int], label: int, header: Sequence[str] = ()
) -> Iterator[tuple[int, Sequence[str], str]]:
    """Columns of a tab separated file; one with a header has the columns that are named, in that order."""
    lines = read_lines(path)
    if header and (first := lines.pop(0).split("\t"))[: len(header)] != list(header):
        raise FileFormatError(f"{path}: line 1 must name the columns {_listed(header)}; got {_listed(first)}.")
    for number, line in enumerate(lines, start=2 if header else 1):
        fields = split_fields(path, number, line, max(*texts, label) + 1)
        yield number, [fields[column] for column in texts], fields[label].strip()


def _parts(names: str, *parts: str) -> dict[str, tuple[str, ...]]:
    return {part: (names.format(part),) for part in parts}


_SICK_FILES = {TRAIN: ("SICK_train.txt",), DEV: ("SICK_trial.txt",), TEST: ("SICK_test_annotated.txt",)}
_SICK_HEADER = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
_MRPC_HEADER = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
_SENTIMENT = ("negative", "positive")
_QUESTIONS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_ENTAILMENT = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
_FORMATS = {
    "MR": _Format({WHOLE: ("rt-polarity.neg", "rt-polarity.pos")}, _SENTIMENT, _unlabelled),
    "CR": _Format({WHOLE: ("custrev.neg", "custrev.pos")}, _SENTIMENT, _unlabelled),
    "SUBJ": _Format({WHOLE: ("subj.objective", "subj.subjective")}, ("objective", "subjective"), _unlabelled),
    "MPQA": _Format({WHOLE: ("mpqa.neg", "mpqa.pos")}, _SENTIMENT, _unlabelled),
    "SST2": _Format(
        _parts("sentiment-{}", TRAIN, DEV, TEST),
        tuple("01"),
        partial(_table, texts=(0,), label=1),
        begins=lambda line: "\t" in line,
    ),
    "SST5": _Format(
        _parts("sentiment-{}", TRAIN, DEV, TEST), tuple("01234"), _label_first, begins=lambda line: "\t" not in line
    ),
    "TREC": _Format({TRAIN: ("train_5500.label",), TEST: ("TREC_10.label",)}, _QUESTIONS, _label_first),
    "MRPC": _Format(
        _parts("msr_paraphrase_{}.txt", TRAIN, TEST),
        tuple("01"),
        partial(_table, texts=(3, 4), label=0, header=_MRPC_HEADER),
    ),
    "SICK-R": _Format(
        _SICK_FILES, tuple("12345"), partial(_table, texts=(1, 2), label=3, header=_SICK_HEADER), is_scored=True
    ),
    "SICK-E": _Format(_SICK_FILES, _ENTAILMENT, partial(_table, texts=(1, 2), label=4, header=_SICK_HEADER)),
    "STSB-supervised": _Format(
        _parts("sts-{}.csv", TRAIN, DEV, TEST), tuple("012345"), partial(_table, texts=(5, 6), label=4), is_scored=True
    ),
}
TRANSFER_TASKS = tuple(_FORMATS)
