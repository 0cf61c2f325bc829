"""Reading training data for an objective, from one file or several, and the sets that a training is scored on."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isosent import _check
from isosent.errors import FileFormatError, InputError, InputTypeError
from isosent.training.development import DevSet
from isosent.training.examples import COLUMNS, Examples, SourceFile
from isosent.training.nli_files import CONTRADICTION, LABELLED, check_classes, read_labelled_pairs
from isosent.training.pair_files import SCORED, Range, read_score_table
from isosent.training.pair_tables import Group, Table, columns_missing, find_columns, has_columns, open_table
from isosent.training.triplet_files import (
    NAMED_PAIRS,
    NAMED_TRIPLETS,
    Triplets,
    derive_pairs,
    derive_triplets,
    read_triplets,
)

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
    parts = [_read_part(open_table(path), options) for path in _checked_files(files)]
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
    table = open_table(Path(path))
    given = _checked_columns("regression", columns or {})
    pairs = read_score_table(table, _columns(table, "a set of scored pairs", SCORED, given))
    if len(set(pairs.scores)) < 2:
        raise FileFormatError(
            f"{path}: the scores must vary, or no correlation is defined; got {len(pairs.scores)} scored pairs"
            f"{f', all scored {pairs.scores[0]:g}' if pairs.scores else ''}."
        )
    return DevSet(Path(path).stem, pairs.first, pairs.second, np.array(pairs.scores, dtype=np.float64))


def _read_part(table: Table, options: _Options) -> _Part:
    if options.objective == "classification":
        columns = _columns(table, options.objective, LABELLED, options.columns)
        pairs = read_labelled_pairs(table, columns, options.class_names)
        texts = {"sentence1": pairs.first, "sentence2": pairs.second}
        return _Part({**texts, "label": pairs.labels}, pairs.dropped, pairs.source)
    if options.objective == "regression":
        columns = _columns(table, options.objective, SCORED, options.columns)
        scored = read_score_table(table, columns, options.score_range)
        texts = {"sentence1": scored.first, "sentence2": scored.second}
        return _Part({**texts, "score": scored.scaled()}, scored.dropped, scored.source)
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
