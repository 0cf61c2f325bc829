"""Training data as a loss takes it: columns of texts, labels and scores, and where they came from."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from isosent import _check
from isosent._extras import require
from isosent.errors import InputError

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
        return require("datasets").Dataset.from_dict(dict(self.columns))
