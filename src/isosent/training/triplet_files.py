"""Reading triplets and pairs for ranking, from named columns or derived from pairs with a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from isosent.errors import FileFormatError, InputError
from isosent.training.examples import SourceFile
from isosent.training.nli_files import CONTRADICTION, ENTAILMENT, LabelledPairs
from isosent.training.pair_tables import EMPTY_TEXT, SENTENCES, Group, Table, text_in, value_in

TRIPLET = ("anchor", "positive", "negative")
SAME_TEXT = "with the same text twice"
OTHER_CLASS = "of another class"
NO_COUNTERPART = "without a counterpart of the same premise"
NAMED_TRIPLETS = (Group(TRIPLET, (TRIPLET,)),)
NAMED_PAIRS = (Group(TRIPLET[:2], (TRIPLET[:2],)),)

_ID = "id"
_LISTED_IDS = 20


@dataclass(frozen=True, slots=True)
class Triplets:
    """Triplets, or pairs without a negative.

    Parameters
    ----------
    columns : mapping of str to list of str
        ``anchor``, ``positive`` and, of triplets, ``negative``.
    dropped : mapping of str to int
        Rows that were dropped, by reason.
    source : SourceFile
        Where they come from.
    """

    columns: Mapping[str, list[str]]
    dropped: Mapping[str, int]
    source: SourceFile


def read_triplets(table: Table, columns: Mapping[str, str]) -> Triplets:
    """Read the triplets, or pairs, of named columns.

    Parameters
    ----------
    table : Table
        The table.
    columns : mapping of str to str
        Its columns for ``anchor``, ``positive`` and, of triplets, ``negative``.

    Returns
    -------
    Triplets
        The rows that have all texts. A triplet with the same text twice tells nothing, and is dropped; a pair of the
        same text is kept: dropout makes two vectors of it (SimCSE, Gao et al. 2021).

    Raises
    ------
    FileFormatError
        If a row is malformed, or a column ``id`` holds the same value twice.
    """
    id_column = next((name for name in table.names if name.lower() == _ID and name not in columns.values()), None)
    ids: Counter[str] = Counter()
    rows, dropped = [], Counter[str]()
    n_rows = 0
    for row in table.rows:
        n_rows += 1
        texts = tuple(text_in(row, column) for column in columns.values())
        if id_column is not None:
            ids[str(value_in(row, id_column))] += 1
        if not all(text.strip() for text in texts):
            dropped[EMPTY_TEXT] += 1
        else:
            rows.append(texts)
    if twice := [name for name, n in ids.items() if n > 1]:
        raise FileFormatError(
            f"{table.path}: {id_column} must differ from row to row; {len(twice)} occur more than once: "
            f"{', '.join(twice[:_LISTED_IDS])}{', ...' if len(twice) > _LISTED_IDS else ''}. Remove the repeated rows, "
            "or the column."
        )
    return _triplets(rows, tuple(columns), dropped, table.source(n_rows, columns))


def derive_triplets(pairs: LabelledPairs) -> Triplets:
    """Make triplets of pairs with a class.

    Parameters
    ----------
    pairs : LabelledPairs
        Entailments and contradictions.

    Returns
    -------
    Triplets
        The premise, a hypothesis that it entails, and one that contradicts it.

    Raises
    ------
    InputError
        If one of the two classes is not there.

    Notes
    -----
    Of each premise, the first entailment goes with the first contradiction, the second with the second, and so on, in
    the order of the file; the rest are left over and counted. Reimers & Gurevych and Gao et al. 2021 (SimCSE) draw one
    of each at random. Pairs of the same premise are found wherever they stand in the file.
    """
    if absent := [name for name in (ENTAILMENT, CONTRADICTION) if name not in pairs.labels]:
        raise InputError(
            f"{pairs.source.path} must have pairs of {ENTAILMENT} and {CONTRADICTION} to make triplets of; it has none "
            f"of {absent[0]}."
        )
    hypotheses: dict[str, dict[str, list[str]]] = {}
    dropped = Counter(pairs.dropped)
    for premise, hypothesis, label in zip(pairs.first, pairs.second, pairs.labels, strict=True):
        if label in (ENTAILMENT, CONTRADICTION):
            hypotheses.setdefault(premise, {ENTAILMENT: [], CONTRADICTION: []})[label].append(hypothesis)
        else:
            dropped[OTHER_CLASS] += 1
    rows = []
    for premise, of_class in hypotheses.items():
        entailed, contradicting = of_class[ENTAILMENT], of_class[CONTRADICTION]
        rows += [(premise, *both) for both in zip(entailed, contradicting, strict=False)]
        dropped[NO_COUNTERPART] += abs(len(entailed) - len(contradicting))
    return _triplets(rows, TRIPLET, dropped, _renamed(pairs.source, TRIPLET))


def derive_pairs(pairs: LabelledPairs) -> Triplets:
    """Make pairs of the same meaning of pairs with a class.

    Parameters
    ----------
    pairs : LabelledPairs
        Entailments among them.

    Returns
    -------
    Triplets
        Premises and hypotheses that they entail.

    Raises
    ------
    InputError
        If there is no entailment.
    """
    if ENTAILMENT not in pairs.labels:
        raise InputError(f"{pairs.source.path} must have pairs of {ENTAILMENT} to rank; it has none.")
    labelled = zip(pairs.first, pairs.second, pairs.labels, strict=True)
    rows = [(premise, hypothesis) for premise, hypothesis, label in labelled if label == ENTAILMENT]
    dropped = Counter(pairs.dropped) + Counter({OTHER_CLASS: len(pairs.labels) - len(rows)})
    return _triplets(rows, TRIPLET[:2], dropped, _renamed(pairs.source, TRIPLET[:2]))


def _triplets(
    rows: Sequence[tuple[str, ...]], names: tuple[str, ...], dropped: Counter[str], source: SourceFile
) -> Triplets:
    """Leave out triplets with the same text twice, and turn rows into columns."""
    kept = [row for row in rows if len(set(row)) == len(names)] if names == TRIPLET else rows
    dropped[SAME_TEXT] += len(rows) - len(kept)
    columns = {name: [row[place] for row in kept] for place, name in enumerate(names)}
    return Triplets(columns, +dropped, source)


def _renamed(source: SourceFile, names: tuple[str, ...]) -> SourceFile:
    """Say which texts of which pairs they are."""
    premise, hypothesis = (source.columns[role] for role in SENTENCES)
    of = (premise, f"{hypothesis} ({ENTAILMENT})", f"{hypothesis} ({CONTRADICTION})")
    return replace(source, columns=dict(zip(names, of, strict=False)))
