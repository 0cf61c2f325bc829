"""Reading the seven STS sets from their original files, wherever these lie below a folder."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import EvaluationWarning, FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.task import task_names
from isosent.io.lines import folders_below, read_lines, split_fields
from isosent.io.pairs import PAIR, SCORED_GROUPS, ScoredPairs, read_pairs, read_sick, read_stsb
from isosent.io.tables import (
    TEXT_COLUMNS,
    Group,
    Table,
    columns_missing,
    find_columns,
    open_table,
    parse_columns,
)

_PARAPHRASES = (Group(PAIR, (*TEXT_COLUMNS, ("anchor", "positive"))),)
_SCORED = (*_PARAPHRASES, SCORED_GROUPS[1])


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
    with _open(file, columns, _SCORED) as (path, table, chosen):
        pairs = read_pairs(table, chosen, name=path.stem).require_variance(path)
    n_unscored = sum(pairs.dropped.values())
    return PairTask(path.stem, pairs.first, pairs.second, pairs.scores, tuple(chosen.values()), n_unscored, (path,))


def read_paraphrases(file: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None) -> PairTask:
    """Read pairs of texts that mean the same."""
    with _open(file, columns, _PARAPHRASES) as (path, table, chosen):
        names = list(chosen.values())
        pairs = [
            (table.text(number, names[0], one), table.text(number, names[1], other))
            for number, (one, other) in table.rows(*names)
        ]
    if not pairs:
        raise FileFormatError(f"{path} must hold at least one pair; got none.")
    first, second = zip(*pairs, strict=True)
    return PairTask(path.stem, first, second, np.zeros(0), tuple(names), 0, (path,))


@contextmanager
def _open(
    file: str | os.PathLike[str], columns: str | Sequence[str] | None, groups: Sequence[Group]
) -> Iterator[tuple[Path, Table, dict[str, str]]]:
    """Open a table, and choose its columns by name, by number, or by their usual names."""
    roles = [role for group in groups for role in group.roles]
    named = parse_columns(columns, roles)
    by_number = bool(named) and all(map(str.isdecimal, named.values()))
    with open_table(file, header=False if by_number else None) as table:
        if not named and table.columns == ("1", "2", "3"):
            named = dict(zip(roles, table.columns, strict=False))
        for name in named.values():
            table.require(name)
        chosen = find_columns(table, groups, named)
        if chosen is None:
            raise columns_missing(table, "pairs", groups, named)
        yield Path(file), table, chosen


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


@dataclass(frozen=True, slots=True, eq=False)
class STSTask:
    """One STS set."""

    name: str  # one of `TASKS`
    subsets: tuple[ScoredPairs, ...]  # the scored pairs that are evaluated
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


def _read_subset(name: str, inputs: Path, scores: Path) -> ScoredPairs:
    sentence_lines, score_lines = read_lines(inputs), read_lines(scores)
    if len(sentence_lines) != len(score_lines):
        raise FileFormatError(
            f"{inputs} and {scores.name} must have the same number of lines; got {len(sentence_lines)} and "
            f"{len(score_lines)}."
        )
    first, second, values = [], [], []
    for number, (line, score) in enumerate(zip(sentence_lines, score_lines, strict=True), start=1):
        if score.strip():  # a pair without a score was never scored
            one, other = split_fields(inputs, number, line, 2)[:2]
            first.append(one)
            second.append(other)
            values.append(_score(scores, number, score))
    return ScoredPairs(name, tuple(first), tuple(second), np.array(values, dtype=np.float64)).require_variance(inputs)


def _read_stsb(folder: Path) -> STSTask:
    paths = [folder / name for name in _STSB_FILES if (folder / name).exists()]
    parts = {path.name: read_stsb(path).require_variance(path) for path in paths}
    return STSTask("STSB", (parts["sts-test.csv"],), _sentences(parts.values()), tuple(paths))


def _read_sick(folder: Path, evaluated: str) -> STSTask:
    parts = {name: read_sick(folder / name) for name in _SICK_FILES if (folder / name).exists()}
    if evaluated == "test":
        chosen = [parts[_SICK_FILES[-1]]]
    else:
        for name in _SICK_FILES:
            _check.input_file(folder / name)
        chosen = list(parts.values())
    pairs = ScoredPairs(
        "sick",
        tuple(text for part in chosen for text in part.first),
        tuple(text for part in chosen for text in part.second),
        np.concatenate([part.scores for part in chosen]),
    )
    texts = tuple(
        text for part in parts.values() for pair in zip(part.first, part.second, strict=True) for text in pair
    )
    return STSTask("SICKR", (pairs.require_variance(folder),), texts, tuple(folder / name for name in parts))


def _sentences(subsets: Iterable[ScoredPairs]) -> tuple[str, ...]:
    return tuple(text for subset in subsets for texts in (subset.first, subset.second) for text in texts)


def _score(path: Path, number: int, written: str) -> float:
    try:
        score = float(written)
    except ValueError:
        score = float("nan")
    if not np.isfinite(score):
        raise FileFormatError(f"{path}, line {number} must hold a score; got {written!r}.")
    return score
