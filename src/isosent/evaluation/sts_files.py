"""Reading the seven STS sets from their original files, wherever these lie below a folder."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import EvaluationWarning, FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.task import task_names
from isosent.io.tables import Row, folders_below, read_lines, read_table, split_fields, text_of

TEXT_COLUMNS = (
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_1", "text_2"),
    ("text_a", "text_b"),
    ("question1", "question2"),
    ("s1", "s2"),
    ("anchor", "positive"),
)
SCORE_COLUMNS = (
    ("score",),
    ("similarity",),
    ("similarity_score",),
    ("relatedness_score",),
    ("label",),
    ("labels.label",),
)
_USUAL = {"the two texts": TEXT_COLUMNS, "the score": SCORE_COLUMNS}
_FORMS = {3: "FIRST,SECOND,SCORE", 2: "FIRST,SECOND"}


@dataclass(frozen=True, slots=True, eq=False)
class PairTask:
    """Pairs of texts of a file."""

    name: str  # name of the file without its ending
    first: tuple[str, ...]  # texts of each pair
    second: tuple[str, ...]  # texts of each pair
    scores: NDArray[np.float64]  # human similarity of each pair; empty where it was not asked for
    columns: tuple[str, ...]  # columns that these were read from
    n_unscored: int  # pairs without a score, which were dropped
    files: tuple[Path, ...]  # the file

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts, as often as they occur."""
        return self.first + self.second

    @property
    def target_texts(self) -> tuple[str, ...]:
        """The same: what a transform is fitted on under the protocol "target"."""
        return self.texts

    @property
    def scored_items(self) -> list[tuple[str, str]]:
        """The pairs."""
        return list(zip(self.first, self.second, strict=True))


def read_scored_pairs(file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None) -> PairTask:
    """Read pairs with a human score."""
    path, chosen, rows = _open(file, columns, 3)
    pairs, n_unscored = [], 0
    for row in rows:
        score = _score(row, chosen[2])
        if score is None:
            n_unscored += 1
        else:
            pairs.append((*_texts(row, chosen), score))
    scores = np.array([score for _, _, score in pairs], dtype=np.float64)
    if len(pairs) < 2 or scores.min() == scores.max():
        raise FileFormatError(
            f"{path}: the scores in {chosen[2]} must vary, or no correlation is defined; got {len(pairs)} scored pairs"
            f"{f', all scored {scores[0]:g}' if len(pairs) else ''}."
        )
    return _task(path, chosen, pairs, scores, n_unscored)


def read_paraphrases(file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None) -> PairTask:
    """Read pairs of texts that mean the same."""
    path, chosen, rows = _open(file, columns, 2)
    pairs = [_texts(row, chosen) for row in rows]
    if not pairs:
        raise FileFormatError(f"{path} must hold at least one pair; got none.")
    return _task(path, chosen, pairs, np.zeros(0), 0)


def _open(
    file: str | os.PathLike[str], columns: str | Sequence[str] | None, n_columns: int
) -> tuple[Path, list[str], Iterator[Row]]:
    """The file, the names of the columns to be read, and its rows."""
    path = _check.input_file(file)
    if columns is None:
        names, rows = read_table(path)
        return path, _usual(path, names, n_columns), rows
    chosen = [name.strip() for name in columns.split(",")] if isinstance(columns, str) else list(columns)
    if len(chosen) != n_columns or len(set(chosen)) < n_columns:
        raise InputError(f"columns must name {n_columns} different columns, {_FORMS[n_columns]}; got {columns!r}.")
    names, rows = read_table(path, has_header=False if all(map(str.isdecimal, chosen)) else None)
    for name in chosen:
        if name not in names:
            raise InputError(f"{path} has no column {name}; it has: {_check.brief(', '.join(names), 600)}.")
    return path, chosen, rows


def _usual(path: Path, names: Sequence[str], n_columns: int) -> list[str]:
    if list(names) == ["1", "2", "3"]:
        return ["1", "2", "3"][:n_columns]
    lower = {name.lower(): name for name in names}
    chosen: list[str] = []
    for what, usual in list(_USUAL.items())[: n_columns - 1]:
        found = [[lower[name] for name in group] for group in usual if all(name in lower for name in group)]
        if len(found) != 1:
            told = f"several usual names: {'; '.join(map(' and '.join, found))}" if found else "no usual name"
            raise InputError(
                f"{path} has the columns {', '.join(names)}, with {told} for {what}. Name them: "
                f"columns={_FORMS[n_columns]}, on the command line --columns; without a header, by number, such as 1,2."
            )
        chosen += found[0]
    return chosen


def _texts(row: Row, columns: Sequence[str]) -> tuple[str, str]:
    return text_of(row.where, row.fields, columns[0]), text_of(row.where, row.fields, columns[1])


def _score(row: Row, column: str) -> float | None:
    """The score; None where there is none."""
    written = row.fields.get(column)
    if written is None or written == "" or (isinstance(written, float) and np.isnan(written)):
        return None
    try:
        score = float("nan") if isinstance(written, bool) else float(written)
    except (ValueError, TypeError, OverflowError):
        score = float("nan")
    if not np.isfinite(score):
        raise FileFormatError(f"{row.where}: {column} must be a number; got {written!r}.")
    return score


def _task(
    path: Path, columns: Sequence[str], pairs: Sequence[tuple[Any, ...]], scores: NDArray[np.float64], n_unscored: int
) -> PairTask:
    first, second = (tuple(pair[side] for pair in pairs) for side in (0, 1))
    return PairTask(path.stem, first, second, scores, tuple(columns), n_unscored, (path,))


YEAR_SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "OnWN", "headlines"),
    "STS14": ("OnWN", "deft-forum", "deft-news", "headlines", "images", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
TASKS = (*YEAR_SUBSETS, "STSB", "SICKR")
SICKR_PARTS = ("full", "test")

_PREFIXES = ("STS", "STS2016")
_INPUT_NAME = re.compile(r"STS(?:2016)?\.input\.(.+)\.txt")
_STSB_FILES = ("sts-train.csv", "sts-dev.csv", "sts-test.csv")
_SICK_FILES = ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt")
_SICK_COLUMNS = ("sentence_A", "sentence_B", "relatedness_score")


@dataclass(frozen=True, slots=True, eq=False)
class PairSet:
    """Sentence pairs with a human score."""

    name: str  # name of the subset
    first: tuple[str, ...]  # sentences of each pair
    second: tuple[str, ...]  # sentences of each pair
    scores: NDArray[np.float64]  # human similarity, 0 or 1 to 5


@dataclass(frozen=True, slots=True, eq=False)
class STSTask:
    """One STS set."""

    name: str  # one of `TASKS`
    subsets: tuple[PairSet, ...]  # the scored pairs that are evaluated
    # All sentences of scored pairs, those of parts that are not evaluated included (train and dev of STS-B, for one):
    # what a transform is fitted on under the protocol "target", without the scores
    target_texts: tuple[str, ...]
    files: tuple[Path, ...] = ()  # what it was read from
    missing_subsets: tuple[str, ...] = ()  # subsets of the year that were not found

    @property
    def texts(self) -> tuple[str, ...]:
        """All sentences of the scored pairs, as often as they occur."""
        return _sentences(self.subsets)

    @property
    def scored_items(self) -> list[tuple[str, str]]:
        """The scored pairs."""
        return [pair for subset in self.subsets for pair in zip(subset.first, subset.second, strict=True)]


def read_sts(
    folder: str | os.PathLike[str], *, tasks: Sequence[str] | None = None, sickr: str = "full"
) -> tuple[STSTask, ...]:
    """Find and read STS sets in their original format."""
    # Files are split at tabs and line feeds without quoting; a pair whose score line is empty was never scored and is
    # dropped.
    root = _check.input_folder(folder).resolve()
    if sickr not in SICKR_PARTS:
        raise InputError(f"sickr must be one of {', '.join(SICKR_PARTS)}; got {sickr!r}.")
    wanted = None if tasks is None else task_names(tasks, TASKS)
    found = _find(root, TASKS if wanted is None else wanted)
    if not found:
        raise TaskNotFoundError(
            f"{root} must hold STS files; no task was found. Known names: STS.input.NAME.txt with STS.gs.NAME.txt, in "
            "a folder that holds a subset of one year only or is named by its year, such as STS12 (train parts are not "
            f"evaluated); {', '.join(_STSB_FILES + _SICK_FILES)}."
        )
    if absent := [task for task in wanted or () if task not in found]:
        raise TaskNotFoundError(f"{root} must hold {', '.join(absent)}; it holds {', '.join(found)}.")
    readers: dict[str, Callable[[Path], STSTask]] = {"STSB": _read_stsb, "SICKR": lambda path: _read_sick(path, sickr)}
    return tuple(
        readers.get(task, lambda path, task=task: _read_year(task, path))(found[task])
        for task in TASKS
        if task in (found if wanted is None else wanted)
    )


def _find(root: Path, wanted: Sequence[str]) -> dict[str, Path]:
    """Folder of each task, in the order of `TASKS`; only the wanted ones must be found once."""
    places: dict[str, list[Path]] = {}
    for path, files in folders_below(root):
        for task in _tasks_of(path, files):
            places.setdefault(task, []).append(path)
    for task, paths in places.items():
        if len(paths) > 1 and task in wanted:
            raise InputError(f"{task} must lie in one folder; got {', '.join(map(str, paths))}. Name one of them.")
    return {task: places[task][0] for task in TASKS if task in places}


def _tasks_of(path: Path, files: Iterable[str]) -> list[str]:
    files = set(files)
    tasks = []
    subsets = {match[1] for name in files if (match := _INPUT_NAME.fullmatch(name))}
    if subsets and (year := _year_of(path, subsets)):
        tasks.append(year)
    if "sts-test.csv" in files:
        tasks.append("STSB")
    if "SICK_test_annotated.txt" in files:
        tasks.append("SICKR")
    return tasks


def _year_of(path: Path, subsets: set[str]) -> str | None:
    """The year whose own subsets these are; where all occur in several years, the one in the folder's name."""
    years = [year for year, names in YEAR_SUBSETS.items() if subsets & _own_subsets(year, names)]
    if len(years) > 1:
        raise InputError(f"{path} must hold the files of one year; got {' and '.join(years)}. Give each a folder.")
    if years:
        return years[0]
    named = re.search(r"(?:20|STS)(1[2-6])", path.name)
    if named and not re.search("train|trial", path.name) and subsets & set(YEAR_SUBSETS[f"STS{named[1]}"]):
        return f"STS{named[1]}"
    return None


def _own_subsets(year: str, names: Sequence[str]) -> set[str]:
    """Subsets that tell a year: those of no other one, nor of the training part of 2012."""
    others = {name for other, theirs in YEAR_SUBSETS.items() if other != year for name in theirs}
    return set(names) - others - {"MSRpar", "MSRvid", "SMTeuroparl"}


def _read_year(task: str, folder: Path) -> STSTask:
    subsets, missing, files = [], [], []
    for name in YEAR_SUBSETS[task]:
        found = [prefix for prefix in _PREFIXES if (folder / f"{prefix}.input.{name}.txt").exists()]
        if found:
            inputs, scores = (folder / f"{found[0]}.{kind}.{name}.txt" for kind in ("input", "gs"))
            subsets.append(_read_subset(name, inputs, _check.input_file(scores)))
            files += [inputs, scores]
        else:
            missing.append(name)
    if missing:
        warnings.warn(
            f"{task}: {folder} lacks {', '.join(missing)}; its aggregates are not comparable with published ones.",
            EvaluationWarning,
            stacklevel=4,
        )
    return STSTask(task, tuple(subsets), _sentences(subsets), tuple(files), tuple(missing))


def _read_subset(name: str, inputs: Path, scores: Path) -> PairSet:
    sentence_lines, score_lines = read_lines(inputs), read_lines(scores)
    if len(sentence_lines) != len(score_lines):
        raise FileFormatError(
            f"{inputs} and {scores.name} must have the same number of lines; got {len(sentence_lines)} and "
            f"{len(score_lines)}."
        )
    pairs = []
    for number, (line, score) in enumerate(zip(sentence_lines, score_lines, strict=True), start=1):
        if score.strip():
            fields = split_fields(inputs, number, line, 2)
            pairs.append((fields[0], fields[1], _score_sts_files(scores, number, score)))
    return _pair_set(inputs, name, pairs)


def _read_stsb(folder: Path) -> STSTask:
    parts = {}
    for name in _STSB_FILES:
        path = folder / name
        if path.exists():
            rows = [split_fields(path, number, line, 7) for number, line in enumerate(read_lines(path), start=1)]
            pairs = [
                (row[5], row[6], _score_sts_files(path, number, row[4])) for number, row in enumerate(rows, start=1)
            ]
            parts[name] = _pair_set(path, "stsb", pairs)
    files = tuple(folder / name for name in parts)
    return STSTask("STSB", (parts["sts-test.csv"],), _sentences(parts.values()), files)


def _read_sick(folder: Path, evaluated: str) -> STSTask:
    parts = {name: _read_sick_part(folder / name) for name in _SICK_FILES if (folder / name).exists()}
    if evaluated == "test":
        pairs = parts[_SICK_FILES[-1]]
    else:
        for name in _SICK_FILES:
            _check.input_file(folder / name)
        pairs = [pair for part in parts.values() for pair in part]
    texts = tuple(text for part in parts.values() for first, second, _ in part for text in (first, second))
    return STSTask("SICKR", (_pair_set(folder, "sick", pairs),), texts, tuple(folder / name for name in parts))


def _read_sick_part(path: Path) -> list[tuple[str, str, float]]:
    lines = read_lines(path)
    header = lines[0].split("\t") if lines else []
    if absent := [name for name in _SICK_COLUMNS if name not in header]:
        raise FileFormatError(
            f"{path}: line 1 must name the columns {', '.join(_SICK_COLUMNS)}; {absent[0]} is missing."
        )
    columns = [header.index(name) for name in _SICK_COLUMNS]
    pairs = []
    for number, line in enumerate(lines[1:], start=2):
        fields = split_fields(path, number, line, max(columns) + 1)
        first, second, score = (fields[column] for column in columns)
        pairs.append((first, second, _score_sts_files(path, number, score)))
    return pairs


def _pair_set(path: Path, name: str, pairs: Sequence[tuple[str, str, float]]) -> PairSet:
    scores = np.array([score for _, _, score in pairs], dtype=np.float64)
    if len(pairs) < 2 or scores.min() == scores.max():
        raise FileFormatError(
            f"{path}: the scores of {name} must vary, or no correlation is defined; got {len(pairs)} pairs"
            f"{f', all scored {scores[0]:g}' if len(pairs) else ''}."
        )
    return PairSet(name, tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs), scores)


def _sentences(subsets: Iterable[PairSet]) -> tuple[str, ...]:
    return tuple(text for subset in subsets for texts in (subset.first, subset.second) for text in texts)


def _score_sts_files(path: Path, number: int, written: str) -> float:
    try:
        score = float(written)
    except ValueError:
        score = float("nan")
    if not np.isfinite(score):
        raise FileFormatError(f"{path}: line {number} must hold a score; got {written!r}.")
    return score
