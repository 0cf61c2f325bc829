"""What a training has seen of the sets that its model is scored on."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isosent import _check, _extras
from isosent.errors import EvaluationWarning, FileFormatError, InputError, InputTypeError
from isosent.evaluation.overlap import count_overlap, plain_form
from isosent.evaluation.run import read_tasks
from isosent.io.pairs import EMPTY_TEXT, PAIR, SCORED_GROUPS, ScoredPairs, known_range, read_pairs
from isosent.io.tables import (
    TEXT_COLUMNS,
    Group,
    Table,
    columns_missing,
    ending_of,
    find_columns,
    has_columns,
    open_table,
)
from isosent.training.development import DevSet

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "classification": ("sentence1", "sentence2", "label"),
    "regression": ("sentence1", "sentence2", "score"),
    "triplet": ("anchor", "positive", "negative"),
    "ranking": ("anchor", "positive", "negative"),
}
"""Columns by objective, in the order in which its loss takes them; ``ranking`` may do without the last."""

_NUMBERS = ("label", "score")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that examples were read from."""

    path: Path  # the file
    n_rows: int  # rows in it, those that were dropped included
    # By column of the examples, what it was read from, such as ``sentence1`` from ``premise``
    columns: Mapping[str, str]
    encoding: str = "UTF-8"  # how its text was read: ``UTF-8`` or ``cp949``
    score_range: tuple[float, float] | None = None  # least and greatest score of its scale, which became 0 and 1


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples to train on.

    Parameters
    ----------
    columns : mapping of str to list
        Texts, labels and scores, a value an example, in the order of `COLUMNS`. ``label`` counts into `label_names`;
        ``score`` lies in [0, 1].
    objective : str
        One of `COLUMNS`.
    label_names : tuple of str, default ()
        The classes, sorted by name, so that their order does not hang on that of the data.
    sources : tuple of SourceFile, default ()
        The files that it was read from.
    dropped : mapping of str to int, default {}
        Rows that were dropped, by reason, such as ``without a label``.

    Raises
    ------
    InputError
        If columns are missing, in another order or of different lengths, a label has no name, or a score lies outside
        [0, 1].

    Examples
    --------
    >>> pairs = {"sentence1": ["A man eats.", "A man eats."], "sentence2": ["He eats.", "He sleeps."], "label": [1, 0]}
    >>> examples = Examples(pairs, "classification", ("contradiction", "entailment"))
    >>> len(examples), examples.label_counts, examples.texts()
    (2, {'contradiction': 1, 'entailment': 1}, ['A man eats.', 'He eats.', 'He sleeps.'])
    """

    columns: Mapping[str, list[Any]]
    objective: str
    label_names: tuple[str, ...] = ()
    sources: tuple[SourceFile, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check.one_of("Examples", "objective", self.objective, list(COLUMNS))
        expected, names = COLUMNS[self.objective], tuple(self.columns)
        if names != expected and not (self.objective == "ranking" and names == expected[:2]):
            raise InputError(
                f"Examples: columns of {self.objective} must be {', '.join(expected)}, in this order; "
                f"got {', '.join(names)}."
            )
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"Examples: columns must have one length; got {lengths}.")
        labels, scores = self.columns.get("label") or (), self.columns.get("score") or ()
        if labels and not 0 <= min(labels) <= max(labels) < len(self.label_names):
            raise InputError(
                f"Examples: label must lie in 0 ... {len(self.label_names) - 1}, a place in label_names; "
                f"got {min(labels)} ... {max(labels)}."
            )
        if scores and not all(0 <= score <= 1 for score in scores):  # NaN is no such number either
            raise InputError(f"Examples: score must lie in [0, 1]; got {min(scores)} ... {max(scores)}.")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the examples were read from."""
        return tuple(source.path for source in self.sources)

    @property
    def source_columns(self) -> dict[str, str]:
        """What each column was read from; several names, with commas between, where the files differ."""
        return {
            name: ", ".join(dict.fromkeys(source.columns[name] for source in self.sources if name in source.columns))
            for name in self.columns
        }

    @property
    def text_columns(self) -> dict[str, list[str]]:
        """The columns that hold texts."""
        return {name: column for name, column in self.columns.items() if name not in _NUMBERS}

    @property
    def label_counts(self) -> dict[str, int]:
        """Examples of each class; empty where there are no labels."""
        counts = Counter(self.columns.get("label", ()))
        return {name: counts[place] for place, name in enumerate(self.label_names)}

    @property
    def score_summary(self) -> dict[str, float]:
        """``min``, ``mean`` and ``max`` of the scores, in [0, 1]; empty where there are none."""
        scores = np.array(self.columns.get("score", ()), dtype=np.float64)
        if not scores.size:
            return {}
        return {"min": float(scores.min()), "mean": float(scores.mean()), "max": float(scores.max())}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the objective, the names of the classes and every value in its order, whatever the files."""
        content = [self.objective, list(self.label_names), [[name, *column] for name, column in self.columns.items()]]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def texts(self) -> list[str]:
        """Return the distinct texts in the order in which they are met, example by example.

        Returns
        -------
        list of str
            The texts.
        """
        return list(dict.fromkeys(text for row in zip(*self.text_columns.values(), strict=True) for text in row))

    def sample(self, n: int = 3) -> list[dict[str, Any]]:
        """Return the first examples for people to read.

        Parameters
        ----------
        n : int, default 3
            How many, at most.

        Returns
        -------
        list of dict
            Values by column; the label by its name.
        """
        rows = [{name: column[place] for name, column in self.columns.items()} for place in range(min(n, len(self)))]
        return [row | {"label": self.label_names[row["label"]]} if "label" in row else row for row in rows]

    def describe(self) -> dict[str, Any]:
        """Say what there is, in plain values.

        Returns
        -------
        dict
            ``objective``, ``n_examples``, ``n_texts`` (distinct), ``columns`` and what they were read from,
            ``label_counts``, ``scores``, ``dropped``, ``files`` and ``fingerprint``.
        """
        return {
            "objective": self.objective,
            "n_examples": len(self),
            "n_texts": len(self.texts()),
            "columns": self.source_columns,
            "label_counts": self.label_counts,
            "scores": self.score_summary,
            "dropped": dict(self.dropped),
            "files": [
                {
                    "path": str(source.path),
                    "n_rows": source.n_rows,
                    "encoding": source.encoding,
                    "score_range": source.score_range,
                }
                for source in self.sources
            ],
            "fingerprint": self.fingerprint,
        }

    def to_dataset(self) -> Any:
        """Convert to what the trainer of sentence-transformers takes.

        Returns
        -------
        datasets.Dataset
            The columns in their order.

        Raises
        ------
        MissingExtraError
            If ``datasets`` is not installed.
        """
        return _extras.require("datasets").Dataset.from_dict(dict(self.columns))


CONTRADICTION, ENTAILMENT, NEUTRAL = "contradiction", "entailment", "neutral"
LABEL_SETS = ((CONTRADICTION, ENTAILMENT, NEUTRAL), (ENTAILMENT, "not_entailment"))
"""Classes that are known by their names; of ANLI, by their initials, too."""

NO_LABEL = "without a label"
LABELLED = (
    Group(PAIR, (("premise", "hypothesis"), *TEXT_COLUMNS, ("context", "hypothesis"))),
    Group(("label",), (("label",), ("gold_label",), ("entailment_judgment",))),
)

_LABEL_SETS_LISTED = " or ".join(", ".join(names) for names in LABEL_SETS)
_INITIALS = {name[0]: name for name in LABEL_SETS[0]}
_UNLABELLED = ("", "-", "-1", "nan")
_LISTED_VALUES = 50


@dataclass(frozen=True, slots=True)
class LabelledPairs:
    """Pairs of a premise and a hypothesis with a class."""

    first: list[str]  # premises and hypotheses
    second: list[str]  # premises and hypotheses
    labels: list[str]  # name of the class of each pair
    dropped: Mapping[str, int]  # rows that were dropped, by reason
    source: SourceFile  # where they come from


def read_labelled_pairs(
    table: Table, columns: Mapping[str, str], class_names: Sequence[str] | None = None
) -> LabelledPairs:
    """Read the pairs of a table that have a class and two texts."""
    # Classes are lower case, however they are written. What numbers mean is known where the columns of a parquet file
    # hold the names of their classes, as those of the package ``datasets`` do. Otherwise it must be said: 0, 1, 2 are
    # entailment, neutral, contradiction in the files of SNLI and MultiNLI on the Hugging Face hub, and contradiction,
    # entailment, neutral in scripts of sentence-transformers.
    first_column, second_column, label_column = (columns[role] for role in (*PAIR, "label"))
    classes = class_names or _stored_class_names(table.name, label_column)
    classes = None if classes is None else [name.lower() for name in classes]
    known: dict[str, str | None] = {}  # by what is written
    unknown: Counter[str] = Counter()
    places: dict[str, str] = {}
    first, second, labels, dropped, n_rows = [], [], [], Counter[str](), 0
    for number, (value, *texts) in table.rows(label_column, first_column, second_column):
        n_rows += 1
        written = _written(value)
        if written not in known:
            places[written] = table.place(number)
            known[written] = _class_of(written, classes)
        label = known[written]
        if label is None:
            unknown[written] += 1
        elif not label:
            dropped[NO_LABEL] += 1
        elif not (
            (one := table.text(number, first_column, texts[0] or "")).strip()
            and (other := table.text(number, second_column, texts[1] or "")).strip()
        ):
            dropped[EMPTY_TEXT] += 1
        else:
            first.append(one)
            second.append(other)
            labels.append(label)
    if unknown:
        raise _unknown_labels(table.name, label_column, unknown, places, classes)
    if classes is None and not _are_one_set(set(labels)):
        raise FileFormatError(
            f"{table.name}: {label_column} must be {_LABEL_SETS_LISTED}; got {', '.join(sorted(set(labels)))}."
        )
    return LabelledPairs(first, second, labels, dropped, SourceFile(Path(table.name), n_rows, columns, table.encoding))


def check_classes(places: Mapping[str, Collection[str]], class_names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Bring the classes of several files together."""
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


def _stored_class_names(path: str, column: str) -> list[str] | None:
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
    path: str, column: str, unknown: Counter[str], places: Mapping[str, str], classes: Sequence[str] | None
) -> InputError:
    listed = [
        f"{written!r} ({n} rows, the first: {places[written].removeprefix(f'{path}, ')})"
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


Range = tuple[float, float]

SCORED = SCORED_GROUPS


def read_score_table(
    table: Table, columns: Mapping[str, str], score_range: Range | None = None
) -> tuple[ScoredPairs, SourceFile]:
    """Read the pairs of a table that have a score and two texts."""
    score_range = score_range or known_range(table, columns["score"])
    pairs = read_pairs(table, columns, name=Path(table.name).stem, score_range=score_range, drop_empty_texts=True)
    n_rows = len(pairs.scores) + sum(pairs.dropped.values())
    return pairs, SourceFile(Path(table.name), n_rows, columns, table.encoding, score_range)


def scaled_scores(pairs: ScoredPairs, path: Path) -> list[float]:
    """Bring the scores into [0, 1], by their range."""
    if not len(pairs.scores):
        return []
    if pairs.score_range is None:
        raise InputError(
            f"{path}: the range of the scores must be said; those that are there lie in "
            f"{pairs.scores.min():g} ... {pairs.scores.max():g}. Name its ends: score_range=(LEAST, GREATEST), on the "
            "command line --score-range; 0 and 1 leave the scores as they are."
        )
    least, greatest = pairs.score_range
    return [(score - least) / (greatest - least) for score in pairs.scores.tolist()]


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
    """Triplets, or pairs without a negative."""

    columns: Mapping[str, list[str]]  # ``anchor``, ``positive`` and, of triplets, ``negative``
    dropped: Mapping[str, int]  # rows that were dropped, by reason
    source: SourceFile  # where they come from


def read_triplets(table: Table, columns: Mapping[str, str]) -> Triplets:
    """Read the triplets, or pairs, of named columns."""
    id_column = next((name for name in table.columns if name.lower() == _ID and name not in columns.values()), None)
    ids: Counter[str] = Counter()
    rows, dropped = [], Counter[str]()
    n_rows = 0
    names = tuple(columns.values())
    wanted = names if id_column is None else (*names, id_column)
    for number, values in table.rows(*wanted):
        n_rows += 1
        texts = tuple(table.text(number, name, value or "") for name, value in zip(names, values, strict=False))
        if id_column is not None:
            ids[str(values[-1])] += 1
        if not all(text.strip() for text in texts):
            dropped[EMPTY_TEXT] += 1
        else:
            rows.append(texts)
    if twice := [name for name, n in ids.items() if n > 1]:
        raise FileFormatError(
            f"{table.name}: {id_column} must differ from row to row; {len(twice)} occur more than once: "
            f"{', '.join(twice[:_LISTED_IDS])}{', ...' if len(twice) > _LISTED_IDS else ''}. Remove the repeated rows, "
            "or the column."
        )
    return _triplets(rows, tuple(columns), dropped, SourceFile(Path(table.name), n_rows, columns, table.encoding))


def derive_triplets(pairs: LabelledPairs) -> Triplets:
    """Make triplets of pairs with a class."""
    # Of each premise, the first entailment goes with the first contradiction, the second with the second, and so on,
    # in the order of the file; the rest are left over and counted. Reimers & Gurevych and Gao et al. 2021 (SimCSE)
    # draw one of each at random. Pairs of the same premise are found wherever they stand in the file.
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
    """Make pairs of the same meaning of pairs with a class."""
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
    premise, hypothesis = (source.columns[role] for role in PAIR)
    of = (premise, f"{hypothesis} ({ENTAILMENT})", f"{hypothesis} ({CONTRADICTION})")
    return replace(source, columns=dict(zip(names, of, strict=False)))


_NLI_ROLES = ("sentence1", "sentence2", "label")
_ROLES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "classification": (_NLI_ROLES,),
    "regression": (COLUMNS["regression"],),
    "triplet": (COLUMNS["triplet"], _NLI_ROLES),
    "ranking": (COLUMNS["ranking"], _NLI_ROLES),
}
_FITTING = {"classification": LABELLED, "regression": SCORED}


class _Options(NamedTuple):
    """What was asked for."""

    objective: str
    columns: Mapping[str, str]
    score_range: Range | None
    class_names: tuple[str, ...] | None


class _Part(NamedTuple):
    """What one file gives."""

    columns: Mapping[str, list[Any]]
    dropped: Mapping[str, int]
    source: SourceFile


def read_examples(
    objective: str,
    files: Sequence[str | os.PathLike[str]],
    *,
    columns: Mapping[str, str] | None = None,
    score_range: tuple[float, float] | None = None,
    class_names: Sequence[str] | None = None,
) -> Examples:
    """Read training data.

    Parameters
    ----------
    objective : {"classification", "regression", "triplet", "ranking"}
        What it is for.
    files : sequence of path-like
        ``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.txt`` or ``.parquet``, one after the other. For classification,
        pairs with a class: SNLI, MultiNLI, ANLI, KorNLI, KLUE-NLI, SICK in their own formats, or with columns
        ``premise``, ``hypothesis`` and ``label``. For regression, pairs with a score: the STS benchmark, KorSTS, SICK,
        or columns ``sentence1``, ``sentence2`` and ``score``. For triplet and ranking, columns ``anchor``, ``positive``
        and ``negative``, the last of which ranking can do without; or pairs with a class, of which these are made.
    columns : mapping of str to str, optional
        Columns of other names by what they are, such as ``{"anchor": "question"}``; the same in all files.
    score_range : tuple of (float, float), optional
        Ends of the scale of the scores, which become 0 and 1. Known of the STS benchmark (0 and 5), what has its
        columns, and SICK (1 and 5).
    class_names : sequence of str, optional
        The classes, if they are others than contradiction, entailment, neutral, or entailment, not_entailment; those of
        numbers, which count from 0, in their order.

    Returns
    -------
    examples : Examples
        The examples; rows without a label or score, or with an empty text, are dropped and counted.

    Raises
    ------
    InputError
        If a file is given twice, columns are missing or several could be meant, files do not go together, labels are
        unknown (all are listed), scores lie outside their range, only one class or score occurs, an ``id`` occurs twice
        in triplets, or nothing is left.

    Notes
    -----
    See `open_table` for separators and encodings, `read_labelled_pairs` for labels, `derive_triplets` for triplets of
    pairs with a class. For ranking, pairs with a class give triplets if there are contradictions, and pairs of
    entailment if there are none.
    """
    _check.one_of("train", "objective", objective, list(COLUMNS))
    options = _Options(
        objective,
        _checked_columns(objective, columns or {}),
        _checked_range(score_range),
        _checked_classes(class_names),
    )
    parts = []
    for path in _checked_files(files):
        with open_table(path, short_rows=True) as table:  # MultiNLI leaves fields out at the end of a line
            parts.append(_read_part(table, options))
    merged = _merged(parts)
    dropped = sum((Counter(part.dropped) for part in parts), Counter[str]())
    if not any(merged.values()):
        reasons = ", ".join(f"{n} {reason}" for reason, n in dropped.items()) or "the files have no rows"
        raise InputError(f"train: at least one example must be left; got none: {reasons}.")
    label_names: tuple[str, ...] = ()
    if "label" in merged:
        places = {str(part.source.path): set(part.columns["label"]) for part in parts}
        label_names = check_classes(places, options.class_names)
        index = {name: place for place, name in enumerate(label_names)}
        merged["label"] = [index[name] for name in merged["label"]]
    if "score" in merged and min(merged["score"]) == max(merged["score"]):
        raise InputError(f"train: the scores must vary; all {len(merged['score'])} are the same.")
    return Examples(merged, objective, label_names, tuple(part.source for part in parts), dropped)


def read_dev_set(path: str | os.PathLike[str], *, columns: Mapping[str, str] | None = None) -> DevSet:
    """Read pairs with a human score, to score a training on.

    Parameters
    ----------
    path : path-like
        A file as `read_examples` reads it for regression; its scores may have any range.
    columns : mapping of str to str, optional
        Columns of other names by what they are: ``sentence1``, ``sentence2``, ``score``.

    Returns
    -------
    DevSet
        The pairs that have a score, under the name of the file.

    Raises
    ------
    InputError
        If the columns are not there, a row is malformed, or there are fewer than two different scores.
    """
    given = _checked_columns("regression", columns or {})
    with open_table(path, short_rows=True) as table:
        pairs, _ = read_score_table(table, _columns(table, "a set of scored pairs", SCORED, given))
    pairs.require_variance(path)
    return DevSet(pairs.name, pairs.first, pairs.second, pairs.scores)


def _read_part(table: Table, options: _Options) -> _Part:
    if options.objective == "classification":
        columns = _columns(table, options.objective, LABELLED, options.columns)
        pairs = read_labelled_pairs(table, columns, options.class_names)
        texts = {"sentence1": pairs.first, "sentence2": pairs.second}
        return _Part({**texts, "label": pairs.labels}, pairs.dropped, pairs.source)
    if options.objective == "regression":
        columns = _columns(table, options.objective, SCORED, options.columns)
        scored, source = read_score_table(table, columns, options.score_range)
        texts = {"sentence1": list(scored.first), "sentence2": list(scored.second)}
        return _Part({**texts, "score": scaled_scores(scored, source.path)}, scored.dropped, source)
    triplets = _read_triplets(table, options)
    return _Part(triplets.columns, triplets.dropped, triplets.source)


def _read_triplets(table: Table, options: _Options) -> Triplets:
    """Triplets or pairs: from their own columns, else from pairs with a class."""
    named = (NAMED_TRIPLETS,) if options.objective == "triplet" else (NAMED_TRIPLETS, NAMED_PAIRS)
    is_nli = any(role in options.columns for role in _NLI_ROLES)
    for groups in () if is_nli else named:
        if columns := find_columns(table, groups, options.columns):
            return read_triplets(table, columns)
    if not is_nli and options.columns:
        raise _missing(table, options.objective, named[-1], options.columns)
    columns = find_columns(table, LABELLED, options.columns)
    if columns is None:
        what = f"{options.objective}, unless its pairs have a class (premise, hypothesis and label),"
        raise _missing(table, what, LABELLED if is_nli else named[-1], options.columns)
    pairs = read_labelled_pairs(table, columns, options.class_names)
    if options.objective == "triplet" or CONTRADICTION in pairs.labels:
        return derive_triplets(pairs)
    return derive_pairs(pairs)


def _columns(table: Table, what: str, groups: Sequence[Group], given: Mapping[str, str]) -> dict[str, str]:
    columns = find_columns(table, groups, given)
    if columns is None:
        raise _missing(table, what, groups, given)
    return columns


def _missing(table: Table, what: str, groups: Sequence[Group], given: Mapping[str, str]) -> InputError:
    """What `columns_missing` says, with the objective that the table would do for."""
    fitting = [name for name, others in _FITTING.items() if others is not groups and has_columns(table, others)]
    hint = f" It has the columns of {' and '.join(fitting)}." if fitting and not given else ""
    return InputError(f"{columns_missing(table, what, groups, given)}{hint}")


def _merged(parts: Sequence[_Part]) -> dict[str, list[Any]]:
    names = [tuple(part.columns) for part in parts]
    if len(set(names)) > 1:
        listed = "; ".join(f"{part.source.path}: {', '.join(part.columns)}" for part in parts)
        raise InputError(f"train: all files must give the same columns; got {listed}. Leave some out.")
    return {name: [value for part in parts for value in part.columns[name]] for name in names[0]}


def _checked_files(files: Sequence[str | os.PathLike[str]]) -> list[Path]:
    if isinstance(files, (str, os.PathLike)):
        raise InputTypeError(f"train: files must be a sequence of paths; got one {type(files).__name__}. Pass [path].")
    paths = [_check.input_file(path) for path in files]
    if not paths:
        raise InputError("train: files must name one file at least; got none.")
    resolved = Counter(path.resolve() for path in paths)
    if twice := [str(path) for path in paths if resolved[path.resolve()] > 1]:
        raise InputError(f"train: files must be different ones; got {' and '.join(twice)}, the same. Name it once.")
    return paths


def _checked_columns(objective: str, columns: Mapping[str, str]) -> Mapping[str, str]:
    allowed = _ROLES[objective]
    if columns and not any(set(columns) <= set(roles) for roles in allowed):
        raise InputError(
            f"train: columns of {objective} must be {'; or '.join(', '.join(roles) for roles in allowed)}; "
            f"got {', '.join(columns)}."
        )
    if twice := [name for name, n in Counter(columns.values()).items() if n > 1]:
        raise InputError(f"train: columns must name different columns; got {twice[0]} twice.")
    return columns


def _checked_range(score_range: tuple[float, float] | None) -> Range | None:
    if score_range is None:
        return None
    try:
        least, greatest = map(float, score_range)
    except (TypeError, ValueError):
        least = greatest = math.nan
    if not (math.isfinite(least) and math.isfinite(greatest) and least < greatest):
        raise InputError(f"train: score_range must be two numbers, the lower first; got {score_range!r}.")
    return least, greatest


def _checked_classes(class_names: Sequence[str] | None) -> tuple[str, ...] | None:
    if class_names is None:
        return None
    if (
        isinstance(class_names, str)
        or len(class_names) < 2
        or len({name.lower() for name in class_names}) < len(class_names)
    ):
        raise InputError(f"train: class_names must be two different names at least; got {class_names!r}.")
    return tuple(class_names)


MOST = 0.5


def count_seen_texts(
    examples: Examples, sets: Iterable[DevSet] = (), *, folder: str | os.PathLike[str] | None = None
) -> dict[str, dict[str, int]]:
    """Count the texts of evaluation sets that are training texts, too."""
    tasks: dict[str, Sequence[tuple[str, ...]]] = {}
    if folder is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvaluationWarning)  # of kinds and subsets that are not there
            tasks = {task.name: task.items for task in read_tasks(folder)}
    for pairs in sets:
        tasks[pairs.name] = list(zip(pairs.first, pairs.second, strict=True))
    return count_overlap(examples.texts(), tasks)


def warn_if_seen(examples: Examples, pairs: DevSet) -> int:
    """Count the pairs of a set that are pairs of one training example, and warn if most of them are."""
    items = [frozenset(map(plain_form, pair)) for pair in zip(pairs.first, pairs.second, strict=True)]
    wanted = {form for item in items for form in item}
    form_of = {text: form for text in examples.texts() if (form := plain_form(text)) in wanted}
    anchors, *others = examples.text_columns.values()
    seen = {
        frozenset((form_of[anchor], form_of[other]))
        for column in others
        for anchor, other in zip(anchors, column, strict=True)
        if anchor in form_of and other in form_of
    }
    n_seen = sum(item in seen for item in items)
    if n_seen > MOST * len(items):
        warnings.warn(
            f"{pairs.name}: {n_seen} of its {len(items)} pairs are pairs of the training data; its scores do not "
            "tell how well the model does on new pairs. Score on another set.",
            EvaluationWarning,
            stacklevel=2,
        )
    return n_seen
