"""Reading pairs with a score: the STS benchmark, KorSTS, SICK, and tables of one's own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from isosent.errors import FileFormatError, InputError
from isosent.evaluation.pair_files import SCORE_COLUMNS
from isosent.evaluation.table_rows import Row
from isosent.training.examples import SourceFile
from isosent.training.pair_tables import (
    EMPTY_TEXT,
    SENTENCE_COLUMNS,
    SENTENCES,
    Group,
    Table,
    text_in,
    value_in,
)

Range = tuple[float, float]

STS_RANGE: Range = (0.0, 5.0)
SICK_RANGE: Range = (1.0, 5.0)
NO_SCORE = "without a score"
SCORED = (Group(SENTENCES, SENTENCE_COLUMNS), Group(("score",), SCORE_COLUMNS))

_STS_ORIGIN = ("genre", "filename", "year")  # in every edition of the STS benchmark, translations among them
_SICK_SCORE = "relatedness_score"


@dataclass(frozen=True, slots=True)
class ScoredPairs:
    """Pairs of sentences with a human score.

    Parameters
    ----------
    first, second : list of str
        Sentences of each pair.
    scores : list of float
        Their scores, as they are written.
    dropped : mapping of str to int
        Rows that were dropped, by reason.
    source : SourceFile
        Where they come from, with the range of the scores if it is known.
    """

    first: list[str]
    second: list[str]
    scores: list[float]
    dropped: Mapping[str, int]
    source: SourceFile

    def scaled(self) -> list[float]:
        """Bring the scores into [0, 1], by the range that they have.

        Returns
        -------
        list of float
            ``(score - least) / (greatest - least)``.

        Raises
        ------
        InputError
            If the range is not known.
        """
        if not self.scores:
            return []
        if self.source.score_range is None:
            raise InputError(
                f"{self.source.path}: the range of the scores must be said; those that are there lie in "
                f"{min(self.scores):g} ... {max(self.scores):g}. Name its ends: score_range=(LEAST, GREATEST), on the "
                "command line --score-range; 0 and 1 leave the scores as they are."
            )
        least, greatest = self.source.score_range
        return [(score - least) / (greatest - least) for score in self.scores]


def read_score_table(table: Table, columns: Mapping[str, str], score_range: Range | None = None) -> ScoredPairs:
    """Read the pairs of a table that have a score and two texts.

    Parameters
    ----------
    table : Table
        The table.
    columns : mapping of str to str
        Its columns for ``sentence1``, ``sentence2`` and ``score``.
    score_range : tuple of (float, float), optional
        Ends of the scale. Known where left out: 0 and 5 for the STS benchmark and what has its columns, 1 and 5 for
        SICK.

    Returns
    -------
    ScoredPairs
        The pairs.

    Raises
    ------
    FileFormatError
        If a row is malformed, or a score lies outside the range.
    """
    first_column, second_column, score_column = (columns[role] for role in (*SENTENCES, "score"))
    score_range = score_range or _known_range(table, score_column)
    least, greatest = score_range or (-math.inf, math.inf)
    first, second, scores, dropped, n_rows = [], [], [], Counter[str](), 0
    for row in table.rows:
        n_rows += 1
        one, other, score = text_in(row, first_column), text_in(row, second_column), _score(row, score_column)
        if math.isnan(score):
            dropped[NO_SCORE] += 1
        elif not least <= score <= greatest:
            raise FileFormatError(
                f"{row.where}: {score_column} must lie in {least:g} ... {greatest:g}, the range of the scores; "
                f"got {score:g}."
            )
        elif not (one.strip() and other.strip()):
            dropped[EMPTY_TEXT] += 1
        else:
            first.append(one)
            second.append(other)
            scores.append(score)
    return ScoredPairs(first, second, scores, dropped, table.source(n_rows, columns, score_range=score_range))


def _known_range(table: Table, score_column: str) -> Range | None:
    if score_column == _SICK_SCORE:
        return SICK_RANGE
    return STS_RANGE if score_column == "score" and set(_STS_ORIGIN) <= set(table.names) else None


def _score(row: Row, column: str) -> float:
    """The score; NaN where there is none."""
    written = value_in(row, column)
    if written is None or written == "" or (isinstance(written, float) and math.isnan(written)):
        return math.nan
    try:
        score = math.inf if isinstance(written, bool) else float(written)
    except (ValueError, TypeError, OverflowError):
        score = math.inf
    if not math.isfinite(score):
        raise FileFormatError(f"{row.where}: {column} must be a number; got {written!r}.")
    return score
