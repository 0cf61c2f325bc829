"""Labels of texts, such as their language, and the moments of vectors and labels side by side.

`labels_of` decides whether labels are values or numbers, and refuses what cannot be erased. `Attribute` is a name with
the labels of all texts. `LabeledMoments` add up in any order, also when a part has values that another lacks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import JointMoments, Moments
from isosent.numeric.similarity import nonzero_rows

MOST_VALUES = 100
FEWEST_TEXTS = 30  # of a value
_MOST_SHOWN = 5
_ERASURE = "isosent.transforms.erasure"  # imported when it is used, because it imports scikit-learn

Double = NDArray[np.float64]
Labels = Sequence[Any] | NDArray[Any]


def labels_of(labels: Labels | Iterable[Any], n_texts: int | None = None, *, name: str = "labels") -> NDArray[Any]:
    """Labels as text, None where missing, or as float64, NaN where missing; refuses what cannot be erased.

    Labels are numbers if all of them can be read as such and there are more of them than a few values.
    """
    where = f"erase: {name}"
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if n_texts is not None and len(values) != n_texts:
        raise InputError(f"{len(values):,} labels for {n_texts:,} texts. Give one label per text.", where=where)
    texts = [None if is_missing(value) else str(value).strip() for value in values]
    counts = Counter(value for value in texts if value is not None)
    if len(counts) < 2:
        what = f"every label is {next(iter(counts))!r:.80}" if counts else "every label is missing"
        raise InputError(f"{what}. Two values are needed to erase what tells them apart.", where=where)
    if len(counts) > FEWEST_TEXTS and (numbers := numbers_of(where, texts)) is not None:
        if int((~np.isnan(numbers)).sum()) < FEWEST_TEXTS:
            raise InputError(
                f"only {len(counts)} texts have a number. At least {FEWEST_TEXTS} are needed.", where=where
            )
        return numbers
    check_few(where, len(counts))
    if few := sorted(value for value, count in counts.items() if count < FEWEST_TEXTS):
        shown = ", ".join(f"{value[:40]} ({counts[value]})" for value in few[:_MOST_SHOWN])
        more = f" and {len(few) - _MOST_SHOWN} more" if len(few) > _MOST_SHOWN else ""
        raise InputError(
            f"too few texts of {shown}{more}; at least {FEWEST_TEXTS} of each value are needed. Join them "
            "with another value, or leave their labels empty.",
            where=where,
        )
    return np.array(texts, dtype=object)


def numbers_of(where: str, texts: Sequence[str | None]) -> Double | None:
    try:
        numbers = np.array([math.nan if text is None else float(text) for text in texts])
    except ValueError:
        return None
    if np.isinf(numbers).any():
        raise InputError(
            f"row {int(np.isinf(numbers).argmax())} is infinite. Leave it empty, or correct it.", where=where
        )
    return numbers


def is_missing(value: Any) -> bool:
    """Whether a label is missing: None, NaN, NA or blank."""
    return bool(_check.is_blank(value) or value != value or (isinstance(value, str) and not value.strip()))


def has_label(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the labels of `labels_of` are not missing, (n_texts,)."""
    return ~np.isnan(labels) if labels.dtype.kind == "f" else np.array([label is not None for label in labels], bool)


class Attribute(NamedTuple):
    """What is to be erased: its name, a label of each text, and the values of all of them; None for numbers."""

    name: str
    labels: NDArray[Any]
    values: tuple[str, ...] | None

    @classmethod
    def of(cls, erase: Labels | Mapping[str, Labels], n_texts: int | None = None) -> Attribute:
        """Labels, or their name with them, as users give them; refuses what cannot be erased."""
        if isinstance(erase, Mapping):
            if len(erase) != 1:
                raise InputError(f"erase: name one attribute, not {len(erase)}.")
            [(name, labels)] = erase.items()
        else:
            name, labels = str(getattr(erase, "name", None) or "labels"), erase
        checked = labels_of(labels, n_texts, name=name)
        values = None if checked.dtype.kind == "f" else tuple(sorted(set(checked[has_label(checked)].tolist())))
        return cls(name, checked, values)

    @classmethod
    def of_part(cls, name: str, labels: Iterable[Any], values: tuple[str, ...] | None) -> Attribute:
        """Labels of a part, when `of` has accepted those of all."""
        texts = [None if is_missing(value) else str(value).strip() for value in labels]
        numbers = numbers_of(name, texts) if values is None else None
        return cls(name, np.array(texts, dtype=object) if numbers is None else numbers, values)

    def rows(self, rows: Any) -> Attribute:
        """The same attribute of some of the texts."""
        return self._replace(labels=self.labels[rows])

    @property
    def groups(self) -> NDArray[np.intp]:
        """Number of the value of each text, or the third that its number is in; -1 for a missing label."""
        return groups_of(self.labels)

    def erasure(self) -> Any:
        """Make the unfitted `Erasure` for these labels."""
        return _erasure(self.values)

    def moments(self, rows: NDArray[np.floating]) -> LabeledMoments:
        """Moments of the vectors of the texts and their labels; zero rows and those without a label are left out."""
        has_vector = nonzero_rows(rows)
        return LabeledMoments.from_rows(rows[has_vector], self.labels[has_vector], self.values)

    def from_moments(self, moments: Moments, n_missing: int) -> LabeledMoments:
        """The same from moments of vectors and labels side by side, as `moments(rows).joint.moments`."""
        joint = JointMoments(moments, moments.dim - len(self.values or ("number",)))
        return LabeledMoments(joint, self.values, n_missing=n_missing)

    def effect(self, vectors: NDArray[np.floating], texts: Sequence[str] | None = None) -> Any:
        """What erasing changes, on held-out rows of vectors of these texts: an `Effect`."""
        return import_module(_ERASURE).measure(vectors, self.labels, texts)


class LabeledMoments:
    """Moments of vectors and their labels side by side: a column for each value, or one of numbers (values None)."""

    def __init__(self, joint: JointMoments, values: tuple[str, ...] | None, *, n_missing: int = 0) -> None:
        self.joint, self.values = joint, values
        self.n_missing = n_missing  # rows left out because their label was missing
        self.dim, self.weight = joint.x_dim, joint.weight

    @classmethod
    def from_rows(
        cls,
        rows: NDArray[Any],
        labels: NDArray[Any],
        values: tuple[str, ...] | None = None,
        *,
        weights: Double | None = None,
    ) -> LabeledMoments:
        """Moments of rows and labels, as from `labels_of`; `values` may name more than occur here."""
        is_used = has_label(labels)
        rows, labels = rows[is_used], labels[is_used]
        if labels.dtype.kind == "f":
            outputs, names = labels[:, None], None
        else:
            names = values or tuple(sorted(set(labels.tolist())))
            outputs = (labels[:, None] == np.array(names, dtype=object)).astype(np.float64)
        joint = JointMoments.from_rows(rows, outputs, None if weights is None else weights[is_used])
        return cls(joint, names, n_missing=int((~is_used).sum()))

    def __add__(self, other: LabeledMoments) -> LabeledMoments:
        """Return the moments of the rows of both."""
        n_missing = self.n_missing + other.n_missing
        if self.values is None or other.values is None:
            if self.values != other.values:
                raise InputError("some labels are numbers, others are not. Make them all of one kind.", where="Erasure")
            return LabeledMoments(self.joint + other.joint, None, n_missing=n_missing)
        values = tuple(sorted({*self.values, *other.values}))
        check_few("Erasure", len(values))
        return LabeledMoments(self._with(values) + other._with(values), values, n_missing=n_missing)

    def _with(self, values: tuple[str, ...]) -> JointMoments:
        """The moments with a column for each of more values; those without a row are zero."""
        place = {value: self.dim + number for number, value in enumerate(self.values or ())}
        columns = [*range(self.dim), *(place.get(value, -1) for value in values)]
        return self.joint if values == self.values else JointMoments(self.joint.columns(columns), self.dim)

    @property
    def center(self) -> Double:
        """The mean of vectors in which each value counts the same, however many texts it has, (dim,)."""
        mean, shares = self.joint.x.mean, self.joint.y.mean
        if self.values is None:
            return mean
        occurs = shares > 0
        center: Double = mean + (self.joint.cross[:, occurs] / shares[occurs]).mean(axis=1)
        return center

    def erasure(self) -> Any:
        """Make the unfitted `Erasure` for these labels."""
        return _erasure(self.values)

    def facts(self, name: str) -> dict[str, Any]:
        """What is erased, for the record of a fit."""
        values = "numbers" if self.values is None else ", ".join(self.values)
        return {"attribute": name, "values": values, "n_missing": self.n_missing}

    def mapped(self, linear_map: LinearMap) -> LabeledMoments:
        """Moments of the mapped vectors, next to the same labels."""
        return LabeledMoments(self.joint.mapped(linear_map), self.values, n_missing=self.n_missing)


def groups_of(labels: NDArray[Any]) -> NDArray[np.intp]:
    """Number of the value of each label, or the third that a number is in; -1 for a missing one."""
    groups, some = np.full(len(labels), -1, np.intp), has_label(labels)
    if labels.dtype.kind == "f":
        groups[some] = np.searchsorted(np.quantile(labels[some], [1 / 3, 2 / 3]), labels[some])
    else:
        groups[some] = np.unique(labels[some].astype(str), return_inverse=True)[1]
    return groups


def check_few(where: str, n_values: int) -> None:
    if n_values > MOST_VALUES:
        raise InputError(
            f"{n_values:,} different values; at most {MOST_VALUES} can be erased. Use labels of fewer "
            "values, or numbers (numeric=True).",
            where=where,
        )


def _erasure(values: tuple[str, ...] | None) -> Any:
    """An unfitted `Erasure`."""
    return import_module(_ERASURE).Erasure(numeric=values is None)
