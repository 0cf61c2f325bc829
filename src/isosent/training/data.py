"""Training data: examples read from tables of pairs or triplets.

`read_examples` reads files one by one and merges them into `Examples`. A file gives a `_Part`: its columns, its dropped
rows by reason, and where they come from. Which reader it needs is decided by its columns (`_read_part`): pairs with a
class (`_read_labeled`, where names of classes are recognized), pairs with a score (`_read_scored`), or triplets and
pairs (`_read_triplets`). Triplets can also be made from pairs with a class (`_derive_triplets`). Classes and scores are
checked over all files at the end. `read_dev_set` reads pairs with a score, unchanged.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from isosent import _check, _extras
from isosent.errors import FileFormatError, InputError, InputTypeError, option, wrong_value
from isosent.io.formats import format_by_name
from isosent.io.pairs import (
    DEV,
    EMPTY_TEXT,
    PAIR,
    SCORED_GROUPS,
    TRAIN,
    ScoredPairs,
    known_range,
    read_pairs,
    take_part,
)
from isosent.io.tables import (
    TEXT_COLUMNS,
    ColumnSet,
    Table,
    columns_missing,
    find_columns,
    has_columns,
    open_table,
    parse_columns,
    table_name,
)
from isosent.io.typed_tables import table_schema

TRIPLET: Final = ("anchor", "positive", "negative")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "classification": (*PAIR, "label"),
    "regression": (*PAIR, "score"),
    "triplet": TRIPLET,
    "ranking": TRIPLET,
}
"""Columns by objective, in the order in which its loss takes them; ``ranking`` does not need the last."""

Range = tuple[float, float]
Columns = str | Sequence[str] | Mapping[str, str]

CONTRADICTION, ENTAILMENT, NEUTRAL = "contradiction", "entailment", "neutral"
NO_LABEL = "without a label"
SAME_TEXT = "with the same text twice"
OTHER_CLASS = "of another class"
NO_COUNTERPART = "without a counterpart of the same premise"

_CLASS_SETS = ((CONTRADICTION, ENTAILMENT, NEUTRAL), (ENTAILMENT, "not_entailment"))  # detected by their names
_INITIALS = {name[0]: name for name in _CLASS_SETS[0]}  # in ANLI
_NO_CLASS = ("", "-", "-1", "nan")
_LABELED_GROUPS = (
    ColumnSet(PAIR, (("premise", "hypothesis"), *TEXT_COLUMNS, ("context", "hypothesis"))),
    ColumnSet(("label",), (("label",), ("gold_label",), ("entailment_judgment",), ("entailment_label",))),
)
_GROUPS = {"classification": _LABELED_GROUPS, "regression": SCORED_GROUPS}
_TRIPLET_GROUPS = (ColumnSet(TRIPLET, (TRIPLET,)),)
_PAIR_GROUPS = (ColumnSet(TRIPLET[:2], (TRIPLET[:2],)),)
_MOST_VALUES_LISTED, _MOST_IDS_LISTED = 50, 20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that examples were read from."""

    path: Path
    n_rows: int  # rows of it, with those that were dropped, without those of another part
    columns: Mapping[str, str]  # its columns by those of the examples, such as ``sentence1`` from ``premise``
    encoding: str = "UTF-8"  # UTF-8 or cp949
    score_range: Range | None = None  # least and greatest score of its scale, which became 0 and 1
    part: str = ""  # train, dev or test, if a column says which rows of it these are


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples to train on.

    Parameters
    ----------
    columns : mapping of str to list
        Texts, labels and scores, one value per example, in the order of `COLUMNS`. ``label`` is an index into
        `label_names`; ``score`` lies in [0, 1].
    objective : {"classification", "regression", "triplet", "ranking"}
        What the examples are for.
    label_names : tuple of str, default ()
        The classes, sorted by name, so that their order does not depend on that of the data.
    sources : tuple of SourceFile, default ()
        The files that were read.
    dropped : mapping of str to int, default {}
        Number of rows that were dropped, by reason, such as ``without a label``.

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
                f"columns of {self.objective} must be {', '.join(expected)}, in this order; got {', '.join(names)}.",
                where="Examples",
            )
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise wrong_value("Examples", "columns", "have one length", lengths)
        labels, scores = self.columns.get("label") or (), self.columns.get("score") or ()
        if labels and not 0 <= min(labels) <= max(labels) < len(self.label_names):
            raise wrong_value(
                "Examples",
                "label",
                f"lie in 0 ... {len(self.label_names) - 1}, an index into label_names",
                f"{min(labels)} ... {max(labels)}",
            )
        if scores and not all(0 <= score <= 1 for score in scores):  # refuses NaN too
            raise wrong_value("Examples", "score", "lie in [0, 1]", f"{min(scores)} ... {max(scores)}")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that were read."""
        return tuple(source.path for source in self.sources)

    @property
    def source_columns(self) -> dict[str, str]:
        """Column of the files for each column of the examples; several names with commas, where the files differ."""
        return {
            name: ", ".join(dict.fromkeys(source.columns[name] for source in self.sources if name in source.columns))
            for name in self.columns
        }

    @property
    def text_columns(self) -> dict[str, list[str]]:
        """The columns of texts."""
        return {name: column for name, column in self.columns.items() if name not in ("label", "score")}

    @property
    def label_counts(self) -> dict[str, int]:
        """Examples of each class; empty without labels."""
        counts = Counter(self.columns.get("label", ()))
        return {name: counts[index] for index, name in enumerate(self.label_names)}

    @property
    def score_summary(self) -> dict[str, float]:
        """``min``, ``mean`` and ``max`` of the scores; empty without scores."""
        scores = np.array(self.columns.get("score", ()), dtype=np.float64)
        if not scores.size:
            return {}
        return {"min": float(scores.min()), "mean": float(scores.mean()), "max": float(scores.max())}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the objective, the classes and all values in order, whatever files they come from."""
        content = [self.objective, list(self.label_names), [[name, *column] for name, column in self.columns.items()]]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def texts(self) -> list[str]:
        """List the distinct texts.

        Returns
        -------
        list of str
            Each text once, in the order of the examples.
        """
        return list(dict.fromkeys(text for row in zip(*self.text_columns.values(), strict=True) for text in row))

    def sample(self, n: int = 3) -> list[dict[str, Any]]:
        """Show the first examples.

        Parameters
        ----------
        n : int, default 3
            How many.

        Returns
        -------
        list of dict
            Values by column, with the name of the label in place of its index.
        """
        rows = [{name: column[row] for name, column in self.columns.items()} for row in range(min(n, len(self)))]
        return [row | {"label": self.label_names[row["label"]]} if "label" in row else row for row in rows]

    def describe(self) -> dict[str, Any]:
        """Describe the examples for a record.

        Returns
        -------
        dict
            Counts, columns, labels, scores, dropped rows, files and fingerprint, as JSON values.
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
        """Convert to the format of the trainer of sentence-transformers.

        Returns
        -------
        datasets.Dataset
            One row per example, with the same columns.

        Raises
        ------
        MissingExtraError
            If the package datasets is not installed.
        """
        return _extras.require("datasets").Dataset.from_dict(dict(self.columns))


def read_examples(
    objective: str,
    files: Sequence[str | os.PathLike[str]],
    *,
    columns: Columns | None = None,
    score_range: tuple[float, float] | None = None,
    class_names: Sequence[str] | None = None,
) -> Examples:
    """Read training data.

    Parameters
    ----------
    objective : {"classification", "regression", "triplet", "ranking"}
        What the data are for.
    files : sequence of path-like
        ``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.txt`` or ``.parquet``, read one after the other. For
        classification, pairs with a class: SNLI, MultiNLI, ANLI, KorNLI, KLUE-NLI and SICK in their own formats, or
        columns ``premise``, ``hypothesis`` and ``label``. For regression, pairs with a score: the STS benchmark,
        KorSTS and SICK, or columns ``sentence1``, ``sentence2`` and ``score``. For triplet and ranking, columns
        ``anchor``, ``positive`` and ``negative`` (ranking works without the last one); or pairs with a class, which
        are turned into triplets or pairs.
    columns : str, sequence of str, or mapping of str to str, optional
        Columns with other names, the same in all files: ``"question,answer"`` in the order of `COLUMNS`, or
        ``"anchor=question"``, or ``{"anchor": "question"}``.
    score_range : tuple of (float, float), optional
        Ends of the scale of the scores, which become 0 and 1. Known for the STS benchmark (0 and 5), files with its
        columns, and SICK (1 and 5).
    class_names : sequence of str, optional
        The classes, if they are not contradiction, entailment and neutral, or entailment and not_entailment. If the
        labels are numbers, they count from 0 in this order.

    Returns
    -------
    examples : Examples
        The examples. Rows without a label or score, or with an empty text, are dropped and counted. Where a column
        ``split`` (or ``set``, ``partition``, ``SemEval_set``) names the part of each row, only those of train are read.

    Raises
    ------
    InputError
        If a file occurs twice, columns are missing or ambiguous, the files do not go together, labels are unknown (all
        are listed), scores are out of range, there is only one class or score, an ``id`` occurs twice in triplets, or
        nothing is left.

    Notes
    -----
    Triplets from pairs with a class: for each premise, its first entailment and its first contradiction, then the
    second of both, and so on in the order of the file. The rest is dropped and counted. For ranking, files without
    contradictions give the pairs of entailment.
    """
    return _read_files(objective, files, columns=columns, score_range=score_range, class_names=class_names, part=TRAIN)


def _read_files(
    objective: str,
    files: Sequence[str | os.PathLike[str]],
    *,
    part: str,
    columns: Columns | None = None,
    score_range: tuple[float, float] | None = None,
    class_names: Sequence[str] | None = None,
) -> Examples:
    """Read examples as `read_examples`, from the rows of one part."""
    _check.one_of("train", "objective", objective, list(COLUMNS))
    named = _parse_columns(objective, columns)
    score_range, classes = _check_range(score_range), _check_class_names(class_names)
    parts = []
    for path in _check_files(files):
        with open_table(path, short_rows=True) as table:  # MultiNLI leaves fields out at the end of a line
            take_part(table, part, named.values())
            parts.append(_read_part(table, objective, named, score_range, classes))
    if len({tuple(part.columns) for part in parts}) > 1:
        listed = "; ".join(f"{part.source.path}: {', '.join(part.columns)}" for part in parts)
        raise InputError(f"train: the files give different columns: {listed}. Leave some out.")
    merged = {name: [value for part in parts for value in part.columns[name]] for name in parts[0].columns}
    dropped = sum((Counter(part.dropped) for part in parts), Counter[str]())
    if not any(merged.values()):
        reasons = ", ".join(f"{n} {reason}" for reason, n in dropped.items()) or "the files have no rows"
        raise InputError(f"train: no example is left: {reasons}.")
    label_names: tuple[str, ...] = ()
    if "label" in merged:
        label_names = _merge_classes({str(part.source.path): set(part.columns["label"]) for part in parts}, classes)
        index = {name: i for i, name in enumerate(label_names)}
        merged["label"] = [index[name] for name in merged["label"]]
    if "score" in merged and min(merged["score"]) == max(merged["score"]):
        raise InputError(f"train: all {len(merged['score'])} scores are the same. Nothing can be learned from them.")
    return Examples(merged, objective, label_names, tuple(part.source for part in parts), dropped)


def read_dev_set(
    path: str | os.PathLike[str],
    *,
    columns: Columns | None = None,
    data_columns: Columns | None = None,
    objective: str = "regression",
    part: str = DEV,
) -> ScoredPairs:
    """Read pairs with a human score, to score a training on; for ranking also pairs that match.

    Parameters
    ----------
    path : path-like
        A file as `read_examples` reads it for regression; its scores may have any range.
    columns : str, sequence of str, or mapping of str to str, optional
        Columns with other names, as for `read_examples`: ``"a,b,similarity"``. For ranking, three names are those of
        scored pairs; columns of pairs that match are two names, or ``"anchor=a,positive=b,negative=c"``.
    data_columns : str, sequence of str, or mapping of str to str, optional
        Columns of the training data, which are taken if the file has all of them and `columns` is not given.
    objective : {"regression", "ranking"}, default "regression"
        With "ranking", a file without scores is read as `read_examples` reads it for ranking. Each pair has the score
        1, and each anchor with its negative, or without one with the positive of the next pair, has the score 0.
    part : {"dev", "test"}, default "dev"
        Which rows are read if a column ``split`` names the part of each.

    Returns
    -------
    ScoredPairs
        The pairs that have a score. Their name is that of the file, without its ending; with a column ``split``
        followed by the part.

    Raises
    ------
    InputError
        If columns are missing, a row is malformed, or there are fewer than two different scores.
    """
    named = _parse_columns(objective, columns, may_be_scored=True)
    with open_table(path, short_rows=True) as table:
        if not named:
            inherited = _parse_columns(objective, data_columns)
            named = inherited if set(inherited.values()) <= set(table.columns) else {}
        matches = {*TRIPLET, "label"} & named.keys()
        chosen = None if matches else find_columns(table, SCORED_GROUPS, named)
        if chosen is None and objective == "ranking" and "score" not in named:
            examples = _read_files(objective, [path], columns=named, part=part)
            return _as_scored(_set_name(path, examples.sources[0].part), examples)
        if chosen is None:
            raise _columns_error(table, "a set of scored pairs", SCORED_GROUPS, named)
        take_part(table, part, chosen.values())
        pairs = read_pairs(
            table,
            chosen,
            name=table_name(path),
            score_range=known_range(table, chosen["score"]),
            drop_empty_texts=True,
        )
    return replace(pairs, name=_set_name(path, pairs.part)).require_variance(path)


def _set_name(path: str | os.PathLike[str], part: str) -> str:
    return f"{table_name(path)}-{part}" if part else table_name(path)


def _as_scored(name: str, examples: Examples) -> ScoredPairs:
    """Pairs that match, scored 1, and as many that do not, scored 0."""
    anchors, positives = examples.columns["anchor"], examples.columns["positive"]
    negatives = examples.columns.get("negative") or [*positives[1:], *positives[:1]]
    matching = set(zip(anchors, positives, strict=True))
    others = [pair for pair in zip(anchors, negatives, strict=True) if pair not in matching]
    first, second = zip(*zip(anchors, positives, strict=True), *others, strict=True)
    scores = np.repeat([1.0, 0.0], [len(anchors), len(others)])
    return ScoredPairs(name, first, second, scores, (0, 1), examples.dropped).require_variance(name)


def _parse_columns(objective: str, columns: Columns | None, *, may_be_scored: bool = False) -> dict[str, str]:
    """Names of columns by their roles, which for triplets and ranking may be those of pairs with a class."""
    allowed = [COLUMNS[objective]]
    if may_be_scored and objective != "regression":
        allowed.insert(0, COLUMNS["regression"])
    if objective == "ranking":
        allowed.append(TRIPLET[:2])
    if objective in ("triplet", "ranking"):
        allowed.append(COLUMNS["classification"])
    problem: InputError | None = None
    for roles in allowed:
        try:
            return parse_columns(columns or None, roles)
        except InputError as error:
            problem = problem or error
    listed = "; or ".join(",".join(roles) for roles in allowed)
    raise InputError(f"train: {problem} The columns for {objective} are {listed}.") from None


def _check_files(files: Sequence[str | os.PathLike[str]]) -> list[Path]:
    if isinstance(files, (str, os.PathLike)):
        raise wrong_value(
            "train",
            "files",
            "be a sequence of paths",
            f"one {type(files).__name__}",
            "Pass [path].",
            error=InputTypeError,
        )
    paths = [_check.input_file(path) for path in files]
    if not paths:
        raise InputError("train: no file is named.")
    counts = Counter(path.resolve() for path in paths)
    if twice := [str(path) for path in paths if counts[path.resolve()] > 1]:
        raise InputError(f"train: {' and '.join(twice)} are the same file. Name it once.")
    return paths


def _check_range(score_range: tuple[float, float] | None) -> Range | None:
    if score_range is None:
        return None
    try:
        least, greatest = map(float, score_range)
    except (TypeError, ValueError):
        least = greatest = math.nan
    if not (math.isfinite(least) and math.isfinite(greatest) and least < greatest):
        raise wrong_value("train", "score_range", "be two numbers, the lower first", repr(score_range))
    return least, greatest


def _check_class_names(class_names: Sequence[str] | None) -> list[str] | None:
    if class_names is None:
        return None
    names = [] if isinstance(class_names, str) else [name.lower() for name in class_names]
    if len(names) < 2 or len(set(names)) < len(names):
        raise wrong_value("train", "class_names", "be two different names or more", repr(class_names))
    return names


class _Part(NamedTuple):
    """What one file gives."""

    columns: Mapping[str, list[Any]]
    dropped: Mapping[str, int]  # rows, by reason
    source: SourceFile


def _read_part(
    table: Table, objective: str, named: Mapping[str, str], score_range: Range | None, classes: Sequence[str] | None
) -> _Part:
    if objective in _GROUPS:
        columns = find_columns(table, _GROUPS[objective], named)
        if columns is None:
            raise _columns_error(table, objective, _GROUPS[objective], named)
        if objective == "classification":
            return _read_labeled(table, columns, classes)
        return _read_scored(table, columns, score_range)
    # Triplets or pairs: from their own columns, else from pairs with a class.
    by_name = (_TRIPLET_GROUPS,) if objective == "triplet" else (_TRIPLET_GROUPS, _PAIR_GROUPS)
    wants_classes = any(role in named for role in COLUMNS["classification"])
    if not wants_classes:
        for groups in by_name:
            if columns := find_columns(table, groups, named):
                return _read_triplets(table, columns)
        if named:
            raise _columns_error(table, objective, by_name[-1], named)
    columns = find_columns(table, _LABELED_GROUPS, named)
    if columns is None:
        what = f"{objective}, unless its pairs have a class (premise, hypothesis and label),"
        raise _columns_error(table, what, _LABELED_GROUPS if wants_classes else by_name[-1], named)
    return _derive_triplets(_read_labeled(table, columns, classes), may_be_pairs=objective == "ranking")


def _columns_error(table: Table, what: str, groups: Sequence[ColumnSet], named: Mapping[str, str]) -> InputError:
    """The error of `columns_missing`, with the objective that the table could be used for."""
    fitting = [name for name, others in _GROUPS.items() if others is not groups and has_columns(table, others)]
    hint = f" It has the columns of {' and '.join(fitting)}." if fitting and not named else ""
    return InputError(f"{columns_missing(table, what, groups, named)}{hint}")


def _read_scored(table: Table, columns: Mapping[str, str], score_range: Range | None) -> _Part:
    """Pairs with a score, which is scaled to [0, 1]."""
    score_range = score_range or known_range(table, columns["score"])
    pairs = read_pairs(table, columns, name="", score_range=score_range, drop_empty_texts=True)
    scores = pairs.scores.tolist()
    if scores and score_range is None:
        raise InputError(
            f"{table.name}: the range of the scores is unknown; they lie between {min(scores):g} and {max(scores):g}. "
            f"Give the ends of the scale with {option('score_range', 'LOW,HIGH')}. With 0,1 the scores do "
            "not change."
        )
    least, greatest = score_range or (0.0, 1.0)
    scaled = [(score - least) / (greatest - least) for score in scores]
    n_rows = len(scores) + sum(pairs.dropped.values())
    source = SourceFile(Path(table.name), n_rows, columns, table.encoding, score_range, table.part)
    return _Part(
        {"sentence1": list(pairs.first), "sentence2": list(pairs.second), "score": scaled}, pairs.dropped, source
    )


def _read_labeled(table: Table, columns: Mapping[str, str], classes: Sequence[str] | None) -> _Part:
    """Pairs with the name of a class, in lower case."""
    # What numbers mean is known if a parquet file stores the names of its classes, as the package datasets does.
    # Otherwise the user must say it: 0, 1, 2 are entailment, neutral, contradiction in the files of SNLI and MultiNLI
    # on the Hugging Face hub, but contradiction, entailment, neutral in scripts of sentence-transformers.
    first_column, second_column, label_column = (columns[role] for role in (*PAIR, "label"))
    classes = classes or _stored_class_names(table.name, label_column)
    class_by_value: dict[str, str | None] = {}
    unknown: Counter[str] = Counter()
    places: dict[str, str] = {}  # of the first row with a value
    first, second, labels, dropped, n_rows = [], [], [], Counter[str](), 0
    for number, (value, *texts) in table.rows(label_column, first_column, second_column):
        n_rows += 1
        written = "" if value is None else value.strip() if isinstance(value, str) else str(value)
        if written not in class_by_value:
            places[written] = table.place(number)
            class_by_value[written] = _class_of(written, classes)
        label = class_by_value[written]
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
            f"{table.name}: {label_column} holds {', '.join(sorted(set(labels)))}. Expected {_CLASS_SETS_LISTED}."
        )
    source = SourceFile(Path(table.name), n_rows, columns, table.encoding, part=table.part)
    return _Part({"sentence1": first, "sentence2": second, "label": labels}, dropped, source)


def _stored_class_names(path: str, column: str) -> list[str] | None:
    """Names that the package datasets stores in a file with a column of classes."""
    if not format_by_name(path).is_typed:
        return None
    stored = (table_schema(Path(path))[0].metadata or {}).get(b"huggingface", b"{}")
    try:
        feature = json.loads(stored)["info"]["features"][column]
        return [str(name).lower() for name in feature["names"]] if feature["_type"] == "ClassLabel" else None
    except (ValueError, LookupError, TypeError):
        return None


def _class_of(written: str, classes: Sequence[str] | None) -> str | None:
    """Name of the class; empty without a label, None if it is unknown."""
    word = written.lower()
    if word in _NO_CLASS:
        return ""
    if classes is not None:
        return ({name: name for name in classes} | {str(i): name for i, name in enumerate(classes)}).get(word)
    word = _INITIALS.get(word, word)
    return word if any(word in names for names in _CLASS_SETS) else None


_CLASS_SETS_LISTED = " or ".join(", ".join(names) for names in _CLASS_SETS)


def _unknown_labels(
    path: str, column: str, unknown: Counter[str], places: Mapping[str, str], classes: Sequence[str] | None
) -> InputError:
    listed = ", ".join(
        f"{written!r} ({n} rows, the first: {places[written].removeprefix(f'{path}, ')})"
        for written, n in unknown.most_common(_MOST_VALUES_LISTED)
    )
    if len(unknown) > _MOST_VALUES_LISTED:
        listed += f", and {len(unknown) - _MOST_VALUES_LISTED} more"
    if classes is None and all(map(str.isdecimal, unknown)):
        return InputError(
            f"{path}: {column} has numbers without names: {listed}. Name the classes in the order of the numbers: "
            "entailment, neutral, contradiction on the Hugging Face hub; contradiction, entailment, neutral in scripts "
            f"of sentence-transformers, with {option('class_names')}."
        )
    allowed = _CLASS_SETS_LISTED if classes is None else ", ".join(classes)
    return FileFormatError(
        f"{path}: {column} holds {listed}. Expected {allowed}, or - for none. Name other classes with "
        f"{option('class_names')}. For scores, use the objective regression."
    )


def _are_one_set(names: Collection[str]) -> bool:
    return any(set(names) <= set(classes) for classes in _CLASS_SETS)


def _merge_classes(by_file: Mapping[str, Collection[str]], classes: Sequence[str] | None) -> tuple[str, ...]:
    """The classes of all files, sorted."""
    names = set().union(*by_file.values())
    listed = "; ".join(f"{file}: {', '.join(sorted(some))}" for file, some in by_file.items())
    if classes is None and not _are_one_set(names) and names not in map(set, by_file.values()):
        raise InputError(
            f"train: the files have different classes: {listed}. Train on one kind after the other, or make "
            "their labels the same."
        )
    if len(names) < 2:
        raise InputError(f"train: classification needs examples of at least two classes, and there is one: {listed}.")
    return tuple(sorted(names))


def _read_triplets(table: Table, columns: Mapping[str, str]) -> _Part:
    """Triplets, or pairs, from their own columns."""
    id_column = next((name for name in table.columns if name.lower() == "id" and name not in columns.values()), None)
    ids: Counter[str] = Counter()
    rows, dropped, n_rows = [], Counter[str](), 0
    names = tuple(columns.values())
    for number, values in table.rows(*names, *([] if id_column is None else [id_column])):
        n_rows += 1
        texts = tuple(table.text(number, name, value or "") for name, value in zip(names, values, strict=False))
        if id_column is not None:
            ids[str(values[-1])] += 1
        if all(text.strip() for text in texts):
            rows.append(texts)
        else:
            dropped[EMPTY_TEXT] += 1
    if twice := [name for name, n in ids.items() if n > 1]:
        raise FileFormatError(
            f"{table.name}: {len(twice)} values of {id_column} occur more than once: "
            f"{', '.join(twice[:_MOST_IDS_LISTED])}{', ...' if len(twice) > _MOST_IDS_LISTED else ''}. Remove the "
            "repeated rows, or the column."
        )
    return _as_part(rows, dropped, SourceFile(Path(table.name), n_rows, columns, table.encoding, part=table.part))


def _derive_triplets(pairs: _Part, *, may_be_pairs: bool) -> _Part:
    """Triplets from pairs with a class; or pairs of entailment, if there is no contradiction."""
    # Reimers & Gurevych 2019 and Gao et al. 2021 (SimCSE) draw one entailment and one contradiction of a premise at
    # random. Here all are used, in order. Pairs of the same premise may be anywhere in the file.
    labels = pairs.columns["label"]
    has_negatives = CONTRADICTION in labels or not may_be_pairs
    for name in (ENTAILMENT, CONTRADICTION) if has_negatives else (ENTAILMENT,):
        if name not in labels:
            raise InputError(f"{pairs.source.path} has no pairs of {name}, which are needed.")
    hypotheses: dict[str, dict[str, list[str]]] = {}  # by premise and class
    rows: list[tuple[str, ...]] = []
    dropped = Counter(pairs.dropped)
    for premise, hypothesis, label in zip(*pairs.columns.values(), strict=True):
        if label == ENTAILMENT and not has_negatives:
            rows.append((premise, hypothesis))
        elif label in (ENTAILMENT, CONTRADICTION):
            hypotheses.setdefault(premise, {ENTAILMENT: [], CONTRADICTION: []})[label].append(hypothesis)
        else:
            dropped[OTHER_CLASS] += 1
    for premise, by_class in hypotheses.items():
        entailed, contradicting = by_class[ENTAILMENT], by_class[CONTRADICTION]
        rows += [(premise, *both) for both in zip(entailed, contradicting, strict=False)]
        dropped[NO_COUNTERPART] += abs(len(entailed) - len(contradicting))
    premise, hypothesis = (pairs.source.columns[role] for role in PAIR)
    origins = (premise, f"{hypothesis} ({ENTAILMENT})", f"{hypothesis} ({CONTRADICTION})")
    columns = dict(zip(TRIPLET if has_negatives else TRIPLET[:2], origins, strict=False))
    source = replace(pairs.source, columns=columns)
    return _as_part(rows, dropped, source)


def _as_part(rows: Sequence[tuple[str, ...]], dropped: Counter[str], source: SourceFile) -> _Part:
    """Rows as columns, without triplets that have the same text twice."""
    names = tuple(source.columns)
    kept = [row for row in rows if len(set(row)) == len(names)] if names == TRIPLET else rows
    dropped[SAME_TEXT] += len(rows) - len(kept)
    return _Part({name: [row[i] for row in kept] for i, name in enumerate(names)}, +dropped, source)
