"""Reading pairs of texts from a table of one's own, by the names of its columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError
from isosent.evaluation.json_rows import text_of
from isosent.evaluation.table_rows import Row, read_table
from isosent.evaluation.task import Task

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
class PairTask(Task):
    """Pairs of texts of a file.

    Parameters
    ----------
    name : str
        Name of the file without its ending.
    first, second : tuple of str
        Texts of each pair.
    scores : ndarray of shape (n_pairs,), float64
        Human similarity of each pair; empty where it was not asked for.
    columns : tuple of str
        Columns that these were read from.
    n_unscored : int
        Pairs without a score, which were dropped.
    files : tuple of Path
        The file.
    """

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    scores: NDArray[np.float64]
    columns: tuple[str, ...]
    n_unscored: int
    files: tuple[Path, ...]

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
    """Read pairs with a human score.

    Parameters
    ----------
    file : path-like
        ``.csv`` (commas, standard quoting), ``.tsv`` or ``.txt`` (tabs, no quoting: quotation marks are text),
        ``.jsonl`` (an object a line), ``.json`` (a list of objects) or ``.parquet``. UTF-8.
    columns : str or sequence of str, optional
        Columns of the two texts and of the score, such as ``"sentence1,sentence2,score"``. Nested ones are joined by a
        dot, as in ``labels.label``. Those of a file without a header are counted from 1: ``"1,2,3"``. By usual names
        where left out; of three columns without a header the third is the score.

    Returns
    -------
    PairTask
        The pairs that have a score.

    Raises
    ------
    InputError
        If the columns are not there, or cannot be told; the message lists those that are.
    FileFormatError
        If a row is malformed, or all scores are the same.
    """
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
    """Read pairs of texts that mean the same.

    Parameters
    ----------
    file : path-like
        As for `read_scored_pairs`.
    columns : str or sequence of str, optional
        Columns of the two texts, such as ``"question1,question2"``; by usual names where left out.

    Returns
    -------
    PairTask
        The pairs, without scores.

    Raises
    ------
    InputError
        If the columns are not there, or cannot be told; the message lists those that are.
    FileFormatError
        If a row is malformed, or there is none.
    """
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
