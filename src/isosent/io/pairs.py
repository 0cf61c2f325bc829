"""Two texts and a human score: the one record of such pairs, its readers for any table, STS-B and SICK; matches.

`open_pairs` opens a table and chooses its columns, and `read_pairs` reads `ScoredPairs` of it; `read_matches` reads
pairs without scores. `take_part` is the rule for tables that hold several parts of a set: if a column names the part of
each row, training and fitting read the rows of train, choices those of dev, and scores those of test. `read_stsb` and
`read_sick` read the files of these sets, `open_sick` also the one file that holds all parts of SICK.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent._check import is_blank
from isosent.errors import FileFormatError, InputError, IsosentWarning, option
from isosent.io.number_lists import SAMPLED_ROWS
from isosent.io.tables import (
    SCORE_COLUMNS,
    STSB_COLUMNS,
    TEXT_COLUMNS,
    ColumnSet,
    Table,
    columns_missing,
    find_columns,
    open_table,
    parse_columns,
)
from isosent.io.texts import refuse_vectors

PAIR = ("sentence1", "sentence2")
SCORED_GROUPS = (ColumnSet(PAIR, TEXT_COLUMNS), ColumnSet(("score",), SCORE_COLUMNS))
PARAPHRASES = (ColumnSet(PAIR, (*TEXT_COLUMNS, ("anchor", "positive"))),)
MATCHES = (ColumnSet(PAIR, (*PARAPHRASES[0].usual, ("query", "document"), ("question", "answer"))),)
KIND_COLUMNS = ("source", "kind", "genre", "domain")
GROUP_COLUMNS = ("lang", "language", "group")  # after the name of a column of texts, as query_lang and document_lang
SICK_COLUMNS = dict(zip((*PAIR, "score"), ("sentence_A", "sentence_B", "relatedness_score"), strict=True))
STSB_RANGE, SICK_RANGE = (0.0, 5.0), (1.0, 5.0)
SICK_FILES = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
SICK_FILE = "SICK.txt"  # the same set in one file, whose column SemEval_set names the part of each pair
TRAIN, DEV, TEST = "train", "dev", "test"
SPLIT_COLUMNS = ("split", "semeval_set", "set", "partition", "subset", "fold")
_SURELY_SPLIT = SPLIT_COLUMNS[:4]  # worth a word if they hold something else
_PART_NAME = re.compile(r"([a-z]+)(?:[-_ ]?\d+|[-_ ](?:mis)?matched)?")  # of MultiNLI: validation_matched
_PARTS = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("dev", "development", "val", "valid", "validation", "trial", "eval"), DEV),
    **dict.fromkeys(("test", "testing"), TEST),
}
NO_SCORE, EMPTY_TEXT = "without a score", "with an empty text"


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPairs:
    """Pairs of texts with a human score."""

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    scores: NDArray[np.float64]  # of shape (n_pairs,), on the scale of the data set
    score_range: tuple[float, float] | None = None  # least and greatest score of that scale, where it is known
    dropped: Mapping[str, int] = field(default_factory=dict)  # rows of the file that are not among the pairs, by reason
    columns: tuple[str, ...] = ()  # columns that the pairs were read from
    part: str = ""  # train, dev or test, if a column says which rows of the file these are

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts, as often as they occur."""
        return self.first + self.second

    def require_scores(self, where: str | os.PathLike[str]) -> ScoredPairs:
        """Refuse pairs of a file of which some have no score."""
        if n_unscored := self.dropped.get(NO_SCORE, 0):
            raise FileFormatError(f"{where}: {n_unscored} pairs have no score. Fill it in, or remove their rows.")
        return self

    def require_variance(self, where: str | os.PathLike[str]) -> ScoredPairs:
        """Refuse scores that have no correlation with anything: fewer than two, or all the same.

        Parameters
        ----------
        where : str or path-like
            What the message names, such as the file of the pairs.

        Returns
        -------
        ScoredPairs
            The pairs themselves.

        Raises
        ------
        FileFormatError
            If no correlation with the scores is defined.
        """
        if len(self.scores) < 2 or self.scores.min() == self.scores.max():
            all_same = f" all {self.scores[0]:g}" if len(self.scores) else " missing"
            raise FileFormatError(
                f"{where}: the scores of the {len(self.scores)} pairs of {self.name} are{all_same}, so that no "
                "correlation is defined."
            )
        return self


def read_pairs(
    table: Table,
    columns: Mapping[str, str],
    *,
    name: str,
    score_range: tuple[float, float] | None = None,
    drop_empty_texts: bool = False,
) -> ScoredPairs:
    """Read the pairs of a table, from its columns for ``sentence1``, ``sentence2`` and ``score``.

    Rows without a score are dropped, and those with an empty text on request; both are counted. Scores outside
    `score_range` are refused; `known_range` tells that of STS-B and SICK.
    """
    first_column, second_column, score_column = (columns[role] for role in (*PAIR, "score"))
    least, greatest = score_range or (-math.inf, math.inf)
    table.require(score_column)
    first, second, scores, dropped = [], [], [], Counter[str]()
    for number, (one, other, value) in table.rows(first_column, second_column, optional=[score_column]):
        score = table.number(number, score_column, value)
        if math.isnan(score):
            dropped[NO_SCORE] += 1
            continue
        if not least <= score <= greatest:
            raise FileFormatError(
                f"{table.place(number)}: {score_column} is {score:g}, outside the range of the scores, {least:g} to "
                f"{greatest:g}."
            )
        if drop_empty_texts and not ((one or "").strip() and (other or "").strip()):
            dropped[EMPTY_TEXT] += 1
            continue
        first.append(table.text(number, first_column, one))
        second.append(table.text(number, second_column, other))
        scores.append(score)
    for column, texts in ((first_column, first), (second_column, second)):
        refuse_vectors(table.name, column, texts[:SAMPLED_ROWS])
    return ScoredPairs(
        name,
        tuple(first),
        tuple(second),
        np.array(scores, dtype=np.float64),
        score_range,
        dropped,
        (first_column, second_column, score_column),
        table.part,
    )


def take_part(table: Table, part: str, named: Collection[str] = ()) -> None:
    """Keep the rows of one part of a set, if a column says of which part each row is; say which rows these are.

    Parameters
    ----------
    table : Table
        A table whose rows have not been read.
    part : {"train", "dev", "test"}
        What the rows are for: to learn or fit from, to choose by, or to score.
    named : collection of str, default ()
        Columns that are read as something else.

    Raises
    ------
    FileFormatError
        While rows are read: if the table has several parts and this is none of them, or rows of none.

    Warns
    -----
    IsosentWarning
        While rows are read: of the rows that are left out, or if the column names anything but parts.
    """
    lower = {name.lower(): name for name in table.columns if name not in named}
    for column in [lower[name] for name in SPLIT_COLUMNS if name in lower][:1]:
        table.restrict(column, partial(_rows_of_part, table, column, part))


def _rows_of_part(table: Table, column: str, part: str, values: Sequence[Any]) -> list[bool] | None:
    name, parts = table.name, [_part_of(value) for value in values]
    counts = Counter(parts)
    blank = sum(is_blank(value) or f"{value}".strip() == "" for value in values)
    if 0 < blank == counts[None] and len(counts) > 2:
        raise FileFormatError(
            f"{name}: its column {column} is empty in {blank:,} rows. Fill in train, dev or test, or leave the column "
            "out."
        )
    if counts[None]:
        if len(counts) > 1 or column.lower() in _SURELY_SPLIT:  # else it is a column of something else
            other = next(value for value, known in zip(values, parts, strict=True) if known is None)
            _say(f"{name}: all rows are taken, as {column} holds {other!r:.80}, which is none of train, dev and test.")
        return None
    if len(counts) < 2:
        (only,) = counts or (part,)
        if only != part:
            _say(f"{name}: all rows are taken for {part}, though {column} says {only} in each of them.")
        return None
    listed = ", ".join(f"{n_rows:,} {each}" for each, n_rows in counts.items())
    if part not in counts:
        raise FileFormatError(
            f"{name}: its column {column} names no rows of {part}; it has {listed}. Write the rows to take into a "
            f"separate file, or leave the column {column} out."
        )
    _say(f"{name}: the {counts[part]:,} rows of {part} are taken, by the column {column}; it has {listed}.")
    table.part = part
    return [each == part for each in parts]


def _part_of(value: Any) -> str | None:
    match = _PART_NAME.fullmatch(f"{value}".strip().lower())
    return _PARTS.get(match[1]) if match else None


def _say(message: str) -> None:
    warnings.warn(message, IsosentWarning, stacklevel=4)


@contextmanager
def open_pairs(
    file: str | os.PathLike[str],
    columns: str | Sequence[str] | None,
    groups: Sequence[ColumnSet],
    *,
    part: str,
    parameter: str = "columns",
) -> Iterator[tuple[Table, dict[str, str]]]:
    """Open a table, and choose its columns by name, by number, or by their usual names; its rows as `take_part`."""
    roles = [role for group in groups for role in group.roles]
    named = parse_columns(columns, roles)
    by_number = bool(named) and all(map(str.isdecimal, named.values()))
    with open_table(file, header=False if by_number else None) as table:
        has_header = table.columns not in (("1", "2"), ("1", "2", "3"))
        if not named and not has_header and len(table.columns) >= len(roles):
            named = dict(zip(roles, table.columns, strict=False))
        for name in named.values():
            table.require(name)
        chosen = find_columns(table, groups, named)
        if chosen is None:
            raise columns_missing(table, "pairs", groups, named, parameter=parameter)
        take_part(table, part, chosen.values())
        yield table, chosen


class Matches(NamedTuple):
    """Pairs of texts of which each second one is to be found by the first, and of what kind and groups they are."""

    first: list[str]
    second: list[str]
    kinds: list[Any] | None = None
    groups: dict[str, tuple[list[Any], list[Any]]] | None = None  # of the texts of both sides, by the column's name


def read_matches(file: str | os.PathLike[str], *, columns: str | None = None, part: str = TRAIN) -> Matches:
    """Read pairs of texts, those of one part where a column names parts; an empty one is refused.

    A column of `KIND_COLUMNS` says of what kind they are, and two of `GROUP_COLUMNS` of which group each text is.
    """
    texts: tuple[list[str], list[str]] = ([], [])
    others: list[tuple[Any, ...]] = []
    with open_pairs(file, columns, MATCHES, part=part, parameter="column") as (table, chosen):
        names = tuple(chosen.values())
        kinds = [name for name in table.columns if name.lower() in KIND_COLUMNS and name not in names][:1]
        group, group_columns = _group_columns(table, names)
        scored = [name for name in table.columns if (name.lower(),) in SCORE_COLUMNS and name not in names]
        if scored and columns is None:
            raise InputError(
                f"{table.name} has the column {scored[0]}, but every row counts as a match. Keep only the rows that "
                f"match, and name their columns: {option('column', ','.join(names))}."
            )
        for number, values in table.rows(*names, optional=[*group_columns, *kinds]):
            for name, value, side in zip(names, values, texts, strict=False):
                side.append(table.text(number, name, value or ""))
                if not side[-1].strip():
                    raise FileFormatError(f"{table.place(number)}: {name} is empty. Remove the row, or fill it in.")
            others.append(values[2:])
    if not others:
        raise FileFormatError(f"{file} holds no pairs. Give at least 30 of them, a pair per row.")
    for name, side in zip(names, texts, strict=True):
        refuse_vectors(str(file), name, side[:SAMPLED_ROWS])
    columns_beside = [list(values) for values in zip(*others, strict=True)]
    groups = {group: (columns_beside[0], columns_beside[1])} if group_columns else None
    different = {f"{each}".strip() for side in columns_beside[: len(group_columns)] for each in side if each == each}
    if group_columns and len(different - {"", "None"}) < 2:
        message = f"{table.name}: the columns {', '.join(group_columns)} are ignored, as they name fewer than two."
        warnings.warn(message, IsosentWarning, stacklevel=2)
        groups = None
    return Matches(*texts, columns_beside[-1] if kinds else None, groups)


def _group_columns(table: Table, names: Sequence[str]) -> tuple[str, list[str]]:
    """The columns that name the group of each text, and how both names end; none if there are none."""
    lower = {name.lower(): name for name in table.columns}
    for ending in GROUP_COLUMNS:
        wanted = [f"{name}_{ending}" for name in names]
        there = [lower[name.lower()] for name in wanted if name.lower() in lower]
        if len(there) == len(names):
            return ending, there
        if there:
            missing = next(name for name in wanted if name.lower() not in lower)
            message = f"{table.name}: the column {there[0]} is ignored, because there is no column {missing}."
            warnings.warn(message, IsosentWarning, stacklevel=2)
    return "", []


def known_range(table: Table, score_column: str) -> tuple[float, float] | None:
    """The range of the scores of STS-B, its translations among them, and of SICK, detected by the columns."""
    if score_column == SICK_COLUMNS["score"]:
        return SICK_RANGE
    origins = {"genre", "filename", "dataset"} & set(table.columns)  # two of them, whoever distributes it
    return STSB_RANGE if score_column == "score" and len(origins) > 1 and "year" in table.columns else None


def read_stsb(path: Path) -> ScoredPairs:
    """Read a file of the STS benchmark: tabs without quoting, and no header."""
    with open_table(path, short_rows=True) as table:
        if table.columns != STSB_COLUMNS:
            expected = ", ".join(STSB_COLUMNS)
            raise FileFormatError(f"{table.place(1)}: expected the {len(STSB_COLUMNS)} fields {expected}.")
        return read_pairs(table, {role: role for role in SICK_COLUMNS}, name="stsb").require_scores(path)


def sick_paths(folder: Path) -> dict[str, Path]:
    """Files of SICK in a folder by part: those of SemEval, else the one file, once for each part."""
    paths = {part: folder / name for part, name in SICK_FILES.items() if (folder / name).exists()}
    return paths if TEST in paths else dict.fromkeys(SICK_FILES, folder / SICK_FILE)


@contextmanager
def open_sick(path: Path, part: str) -> Iterator[Table]:
    """Open a file of SICK: tabs without quoting, with a header; of the one file the rows of a part."""
    with open_table(path, header=True, short_rows=True) as table:
        if path.name == SICK_FILE:
            table.restrict("SemEval_set", partial(_sick_rows, table.name, part))
        yield table


def _sick_rows(name: str, part: str, values: Sequence[Any]) -> list[bool]:
    parts = [_part_of(value) for value in values]
    if None in parts:
        raise FileFormatError(f"{name}: SemEval_set is {values[parts.index(None)]!r:.80}, not TRAIN, TRIAL or TEST.")
    if part not in parts:
        raise FileFormatError(f"{name}: SemEval_set names no pairs of {part}. Is the file complete?")
    return [each == part for each in parts]


def read_sick(path: Path, part: str) -> ScoredPairs:
    """Read the scored pairs of a part of SICK."""
    with open_sick(path, part) as table:
        try:
            return read_pairs(table, SICK_COLUMNS, name="sick").require_scores(path)
        except FileFormatError:
            raise
        except InputError as error:
            raise FileFormatError(str(error)) from None
