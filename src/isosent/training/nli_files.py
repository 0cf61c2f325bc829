"""Reading pairs with a class: SNLI, MultiNLI, ANLI, SciTail, KorNLI, KLUE-NLI, SICK, and tables of one's own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isosent.errors import FileFormatError, InputError
from isosent.files.texts import ending_of
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

CONTRADICTION, ENTAILMENT, NEUTRAL = "contradiction", "entailment", "neutral"
LABEL_SETS = ((CONTRADICTION, ENTAILMENT, NEUTRAL), (ENTAILMENT, "not_entailment"))
"""Classes that are known by their names; of ANLI, by their initials, too."""

NO_LABEL = "without a label"
LABELLED = (
    Group(SENTENCES, (("premise", "hypothesis"), *SENTENCE_COLUMNS, ("context", "hypothesis"))),
    Group(("label",), (("label",), ("gold_label",), ("entailment_judgment",))),
)

_LABEL_SETS_LISTED = " or ".join(", ".join(names) for names in LABEL_SETS)
_INITIALS = {name[0]: name for name in LABEL_SETS[0]}
_UNLABELLED = ("", "-", "-1", "nan")
_LISTED_VALUES = 50


@dataclass(frozen=True, slots=True)
class LabelledPairs:
    """Pairs of a premise and a hypothesis with a class.

    Parameters
    ----------
    first, second : list of str
        Premises and hypotheses.
    labels : list of str
        Name of the class of each pair.
    dropped : mapping of str to int
        Rows that were dropped, by reason.
    source : SourceFile
        Where they come from.
    """

    first: list[str]
    second: list[str]
    labels: list[str]
    dropped: Mapping[str, int]
    source: SourceFile


def read_labelled_pairs(
    table: Table, columns: Mapping[str, str], class_names: Sequence[str] | None = None
) -> LabelledPairs:
    """Read the pairs of a table that have a class and two texts.

    Parameters
    ----------
    table : Table
        The table.
    columns : mapping of str to str
        Its columns for ``sentence1``, ``sentence2`` and ``label``.
    class_names : sequence of str, optional
        The classes, for labels other than `LABEL_SETS`; those of numbers, which count from 0, in their order.

    Returns
    -------
    LabelledPairs
        The pairs. A label ``-``, ``-1``, empty or null is none.

    Raises
    ------
    FileFormatError
        If a row is malformed, or a label is none of the classes: all such labels are listed.
    InputError
        If labels are numbers and nothing tells what they mean.

    Notes
    -----
    Classes are lower case, however they are written. What numbers mean is known where the columns of a parquet file
    hold the names of their classes, as those of the package ``datasets`` do. Otherwise it must be said: 0, 1, 2 are
    entailment, neutral, contradiction in the files of SNLI and MultiNLI on the Hugging Face hub, and contradiction,
    entailment, neutral in scripts of sentence-transformers.
    """
    first_column, second_column, label_column = (columns[role] for role in (*SENTENCES, "label"))
    classes = class_names or _stored_class_names(table.path, label_column)
    classes = None if classes is None else [name.lower() for name in classes]
    known: dict[str, str | None] = {}  # by what is written
    unknown: Counter[str] = Counter()
    places: dict[str, str] = {}
    first, second, labels, dropped, n_rows = [], [], [], Counter[str](), 0
    for row in table.rows:
        n_rows += 1
        written = _written(value_in(row, label_column))
        if written not in known:
            places[written] = row.where
            known[written] = _class_of(written, classes)
        label = known[written]
        if label is None:
            unknown[written] += 1
        elif not label:
            dropped[NO_LABEL] += 1
        elif not ((one := text_in(row, first_column)).strip() and (other := text_in(row, second_column)).strip()):
            dropped[EMPTY_TEXT] += 1
        else:
            first.append(one)
            second.append(other)
            labels.append(label)
    if unknown:
        raise _unknown_labels(table.path, label_column, unknown, places, classes)
    if classes is None and not _are_one_set(set(labels)):
        raise FileFormatError(
            f"{table.path}: {label_column} must be {_LABEL_SETS_LISTED}; got {', '.join(sorted(set(labels)))}."
        )
    return LabelledPairs(first, second, labels, dropped, table.source(n_rows, columns))


def check_classes(places: Mapping[str, Collection[str]], class_names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Bring the classes of several files together.

    Parameters
    ----------
    places : mapping of str to collection of str
        Classes by file.
    class_names : sequence of str, optional
        Those that there may be. Where left out, one of `LABEL_SETS`, or those of one of the files.

    Returns
    -------
    tuple of str
        The classes, sorted by name.

    Raises
    ------
    InputError
        If there is only one, or they are of different sets.
    """
    names = set().union(*places.values())
    listed = "; ".join(f"{file}: {', '.join(sorted(classes))}" for file, classes in places.items())
    if class_names is None and not _are_one_set(names) and names not in map(set, places.values()):
        raise InputError(
            f"train: the files must have the same classes; got {listed}. Train on one kind after the other, or bring "
            "their labels into line."
        )
    if len(names) < 2:
        raise InputError(f"train: classification must have examples of two classes at least; got one, {listed}.")
    return tuple(sorted(names))


def _are_one_set(names: Collection[str]) -> bool:
    return any(set(names) <= set(known) for known in LABEL_SETS)


def _written(value: Any) -> str:
    """A label as it would be written in a table of text."""
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else str(value)


def _class_of(written: str, classes: Sequence[str] | None) -> str | None:
    """Name of the class; empty for no label, None for an unknown one."""
    word = written.lower()
    if word in _UNLABELLED:
        return ""
    if classes is not None:
        return ({name: name for name in classes} | {str(place): name for place, name in enumerate(classes)}).get(word)
    word = _INITIALS.get(word, word)
    return word if any(word in names for names in LABEL_SETS) else None


def _stored_class_names(path: Path, column: str) -> list[str] | None:
    """Names that the package ``datasets`` stores in a parquet file with a column of classes."""
    if ending_of(path) != ".parquet":
        return None
    import pyarrow.parquet as pq

    stored = (pq.read_schema(path).metadata or {}).get(b"huggingface", b"{}")
    try:
        feature = json.loads(stored)["info"]["features"][column]
        return [str(name) for name in feature["names"]] if feature["_type"] == "ClassLabel" else None
    except (ValueError, LookupError, TypeError):
        return None


def _unknown_labels(
    path: Path, column: str, unknown: Counter[str], places: Mapping[str, str], classes: Sequence[str] | None
) -> InputError:
    listed = [
        f"{written!r} ({n} rows, the first: {places[written].removeprefix(f'{path}: ')})"
        for written, n in unknown.most_common(_LISTED_VALUES)
    ]
    more = f", and {len(unknown) - _LISTED_VALUES} more" if len(unknown) > _LISTED_VALUES else ""
    got = f"got {', '.join(listed)}{more}"
    if classes is None and all(map(str.isdecimal, unknown)):
        return InputError(
            f"{path}: {column} holds numbers, whose meaning must be said; {got}. Name the classes in the order of the "
            "numbers: entailment, neutral, contradiction on the Hugging Face hub; contradiction, entailment, neutral "
            "in scripts of sentence-transformers: class_names=..., on the command line --classes."
        )
    allowed = _LABEL_SETS_LISTED if classes is None else ", ".join(classes)
    return FileFormatError(
        f"{path}: {column} must be {allowed}, or - for none; {got}. Name other classes: class_names=..., on the "
        "command line --classes. Scores are for the objective regression."
    )
