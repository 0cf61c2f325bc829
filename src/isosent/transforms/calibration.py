"""What a cosine means: its percentile among random pairs, or the label that people gave such pairs.

A `Calibration` is a monotone function through a few knots. `from_random_pairs` takes their distribution function, so
that a cosine becomes its percentile; `from_null` takes that of given cosines of unrelated pairs; `from_labels` fits the
labels of pairs, which must not fall as the cosine rises. `to_json` and `from_json` are what a model folder holds.
`_cosines` checks the numbers that all three begin with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.errors import InputError, wrong_value
from isosent.numeric.similarity import random_cosines

FEWEST_PAIRS = 30
RANDOM_PAIRS = "random pairs"
LABELS = "labels"
_STEPS = 200
_TAIL_STEPS_PER_DECADE = 4
_ROUNDING = 1e-5
_TIE_WIDTH = 1e-6
_COSINE_OF: Mapping[str, Callable[[float], float]] = {  # of vectors of length 1
    "cosine": lambda value: value,
    "cosine_distance": lambda value: 1 - value,
    "l2": lambda value: 1 - value**2 / 2,
    "squared_l2": lambda value: 1 - value / 2,
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Calibration:
    """A monotone map from cosines to [0, 1], linear between knots and constant beyond the outer ones.

    Made by `from_random_pairs` or `from_labels`.

    Parameters
    ----------
    kind : {"random pairs", "labels"}
        What the values mean.
    cosines : ndarray of shape (n_knots,), float64
        Knots, in [-1, 1], increasing.
    values : ndarray of shape (n_knots,), float64
        Value at each knot, in [0, 1], never decreasing.
    n_pairs : int
        Number of pairs it was made from.
    label_range : tuple of (float, float), optional
        The labels that 0 and 1 stand for; None for random pairs.

    Raises
    ------
    InputError
        If the knots break one of these rules.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).normal(size=(500, 64))
    >>> calibration = Calibration.from_random_pairs(vectors)
    >>> calibration(np.array([0.0, 0.3, 1.0])).round(2)
    array([0.5 , 0.99, 1.  ])
    """

    kind: str
    cosines: NDArray[np.float64]
    values: NDArray[np.float64]
    n_pairs: int
    label_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        cosines, values = self.cosines, self.values
        if self.kind not in (RANDOM_PAIRS, LABELS):
            raise wrong_value("Calibration", "kind", f"be {RANDOM_PAIRS!r} or {LABELS!r}", repr(self.kind))
        if cosines.ndim != 1 or len(cosines) < 2 or values.shape != cosines.shape:
            raise InputError(
                "cosines and values must have the same shape, (n_knots,), with two knots or more; got "
                f"{cosines.shape} and {values.shape}.",
                where="Calibration",
            )
        if not ((np.diff(cosines) > 0).all() and (np.diff(values) >= 0).all()):
            raise InputError("cosines must rise, and values must not fall, from knot to knot.", where="Calibration")
        if cosines[0] < -1 or cosines[-1] > 1 or values[0] < 0 or values[-1] > 1:
            raise InputError("cosines must lie in [-1, 1] and values in [0, 1].", where="Calibration")

    def __repr__(self) -> str:
        return f"<Calibration from {self.n_pairs} {self.kind}, {len(self.cosines)} knots>"

    @classmethod
    def from_random_pairs(cls, vectors: ArrayLike, *, n_pairs: int = 100_000, seed: int = 0) -> Calibration:
        """Compare a cosine with those of random, unrelated pairs. No labels are needed.

        Parameters
        ----------
        vectors : array_like of shape (n_rows, dim), any real dtype
            Vectors of texts like those to compare later, in the same space. Zero rows, which stand for "no vector", are
            left out.
        n_pairs : int, default 100,000
            Number of pairs of different rows, drawn with replacement; at least 30.
        seed : int, default 0
            Seed of the draw.

        Returns
        -------
        Calibration
            From a cosine to the share of random pairs below it: 0.99 means that one random pair in a hundred has a
            higher cosine.

        Raises
        ------
        InputError
            If a row holds NaN or infinity, fewer than 30 pairs exist, all of them have the same cosine, or `n_pairs` or
            `seed` is not a whole number in its range.

        Notes
        -----
        The knots are quantiles in steps of 0.5%, and closer in the upper tail, up to the ten highest pairs. The value
        of a knot is the share of pairs below it plus half the share of pairs equal to it: ties get their middle rank.
        A cosine that more than 0.5% of the pairs have gets a second and a third knot 1e-6 to either side, so that the
        value jumps there. -1 has the value 0, and 1 the value 1. All this holds for pairs of *these* texts: texts about
        one subject give other percentiles than texts about everything.
        """
        where = "calibrate"
        _check.whole_number(where, "n_pairs", n_pairs, FEWEST_PAIRS)
        _check.whole_number(where, "seed", seed, 0)
        rows = _check.matrix(where, "vectors", vectors)
        _check.finite_rows(where, "vectors", rows)
        rows = rows[rows.any(axis=1)]
        n_distinct = len(rows) * (len(rows) - 1) // 2
        if n_distinct < FEWEST_PAIRS:
            raise InputError(
                f"{len(rows)} vectors that are not zero make {n_distinct} pairs, and at least {FEWEST_PAIRS} "
                "are needed. Add texts.",
                where=where,
            )
        return cls.from_null(random_cosines(rows, n_pairs=n_pairs, seed=seed))

    @classmethod
    def from_null(cls, cosines: ArrayLike) -> Calibration:
        """As `from_random_pairs`, with unrelated pairs that you have drawn.

        Parameters
        ----------
        cosines : array_like of shape (n_pairs,)
            Cosines of at least 30 unrelated pairs.

        Returns
        -------
        Calibration
            From a cosine to the share of these pairs below it.

        Raises
        ------
        InputError
            If there are fewer than 30 cosines, one is NaN or outside [-1, 1], or all are equal.
        """
        null = np.sort(_cosines("calibrate", cosines))
        n = len(null)
        tail = 10.0 ** -np.arange(2, max(2.0, np.log10(n / 10)), 1 / _TAIL_STEPS_PER_DECADE)
        levels = np.concatenate([np.linspace(0, 1, _STEPS + 1), 1 - tail])
        knots = np.unique(np.quantile(null, levels, method="inverted_cdf"))
        if len(knots) < 2:
            raise InputError(
                f"the cosines of all {n} random pairs are {knots[0]:.6g}. Use texts that differ.", where="Calibration"
            )
        tied = knots[_ranks(null, knots) @ [-1, 1] > max(1, n / _STEPS)]
        knots = np.unique(np.concatenate([knots, tied - _TIE_WIDTH, tied + _TIE_WIDTH]))
        values = _ranks(null, knots).sum(axis=1) / (2 * n)
        inner = (knots > -1) & (knots < 1)
        return cls(
            RANDOM_PAIRS,
            np.concatenate([[-1.0], knots[inner], [1.0]]),
            np.concatenate([[0.0], values[inner], [1.0]]),
            n,
        )

    @classmethod
    def from_labels(cls, cosines: ArrayLike, labels: ArrayLike) -> Calibration:
        """Fit the mean label of pairs with a given cosine, by isotonic regression.

        Parameters
        ----------
        cosines : array_like of shape (n_pairs,), float
            Cosine of each pair, in [-1, 1]; at least 30 pairs.
        labels : array_like of shape (n_pairs,), real
            How similar people found each pair, higher for more similar: 0 and 1, or grades such as 0 to 5.

        Returns
        -------
        Calibration
            From a cosine to the expected label, scaled so that the lowest label is 0 and the highest is 1. For labels 0
            and 1 this is the share of pairs labeled 1.

        Raises
        ------
        InputError
            If there are too few pairs, a label is NaN, all labels are the same, or labels do not rise with the cosine.

        Notes
        -----
        Least squares under the constraint that the value never falls (pool adjacent violators, scikit-learn's
        IsotonicRegression), linear between the pools, and constant below the lowest and above the highest cosine.
        """
        where = "calibrate"
        x, y = _cosines(where, cosines), _numbers(where, "labels", labels)
        bad = np.flatnonzero(~np.isfinite(y))
        if bad.size:
            raise InputError(
                f"label {bad[0]} is {y.flat[bad[0]]}, not finite ({bad.size} such pairs). Drop them.", where=where
            )
        if y.shape != x.shape:
            raise InputError(f"expected labels of the shape {x.shape}, one per pair, found {y.shape}.", where=where)
        low, high = float(y.min()), float(y.max())
        if low == high:
            raise InputError(f"the labels of all {len(y)} pairs are {low:g}. Label other pairs too.", where=where)
        if x.min() == x.max():
            raise InputError(f"the cosines of all {len(x)} pairs are {x[0]:.6g}. Use texts that differ.", where=where)
        if math.isinf(high - low):
            raise InputError(f"the labels, from {low:g} to {high:g}, have too large a range. Scale them.", where=where)
        from sklearn.isotonic import IsotonicRegression

        fitted = IsotonicRegression(y_min=0, y_max=1).fit(x, (y - low) / (high - low))
        knots, first = np.unique(np.asarray(fitted.X_thresholds_, dtype=np.float64), return_index=True)
        values = np.clip(np.asarray(fitted.y_thresholds_, dtype=np.float64)[first], 0, 1)
        if len(knots) < 2 or values[0] == values[-1]:
            raise InputError(
                "the labels do not rise with the cosine, so a cosine says nothing about them. Check that a "
                "higher label means more similar.",
                where=where,
            )
        return cls(LABELS, knots, values, len(x), (low, high))

    def __call__(self, cosines: ArrayLike) -> NDArray[np.float64]:
        """Map cosines to [0, 1].

        Parameters
        ----------
        cosines : array_like, float
            Cosines of any shape, in [-1, 1] up to rounding.

        Returns
        -------
        ndarray of the same shape, float64
            A higher cosine never gets a lower value.

        Raises
        ------
        InputError
            If one of them is NaN.
        """
        array = _numbers("Calibration", "cosines", cosines)
        if np.isnan(array).any():
            raise InputError("a cosine is NaN.", where="Calibration")
        return np.asarray(np.interp(array, self.cosines, self.values))

    def relevance_score_fn(
        self, score: Literal["cosine", "cosine_distance", "l2", "squared_l2"] = "cosine"
    ) -> Callable[[float], float]:
        """Return a function from a score of a vector store to [0, 1], such as LangChain takes as `relevance_score_fn`.

        Parameters
        ----------
        score : {"cosine", "cosine_distance", "l2", "squared_l2"}, default "cosine"
            What the store returns: a cosine or inner product, 1 minus it, or a Euclidean distance. The vectors in the
            store must have length 1, unless it computes cosines itself. FAISS in LangChain returns "squared_l2".

        Returns
        -------
        callable
            From one score to what this calibration says of its cosine: a percentile, or the expected label from 0 to 1.
            It can be pickled. A nearer text never gets a lower value.

        Raises
        ------
        InputError
            If `score` is none of these; the function, if a score is NaN.

        Examples
        --------
        >>> import numpy as np
        >>> vectors = np.random.default_rng(0).normal(size=(500, 64))
        >>> relevance = Calibration.from_random_pairs(vectors).relevance_score_fn("squared_l2")
        >>> round(relevance(1.4), 2)
        0.99
        """
        _check.one_of("relevance_score_fn", "score", score, tuple(_COSINE_OF))
        return partial(self._relevance, score)

    def _relevance(self, score: str, value: float) -> float:
        return float(self(_COSINE_OF[score](float(value))))

    def to_json(self) -> dict[str, Any]:
        """Return the calibration as JSON values, without loss.

        Returns
        -------
        dict
            What `from_json` takes.
        """
        return {
            "kind": self.kind,
            "n_pairs": self.n_pairs,
            "label_range": None if self.label_range is None else list(self.label_range),
            "cosines": self.cosines.tolist(),
            "values": self.values.tolist(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Calibration:
        """Make a calibration from the result of `to_json`.

        Parameters
        ----------
        document : mapping
            JSON values.

        Returns
        -------
        Calibration
            The same as before.

        Raises
        ------
        InputError
            If a value is missing or wrong; the message names it.
        """
        try:
            labels = document["label_range"]
            return cls(
                str(document["kind"]),
                np.array(document["cosines"], dtype=np.float64),
                np.array(document["values"], dtype=np.float64),
                int(document["n_pairs"]),
                None if labels is None else (float(labels[0]), float(labels[1])),
            )
        except InputError:
            raise
        except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
            raise InputError(f"the document is not a result of to_json: {error!r}.", where="Calibration") from None


def _cosines(where: str, cosines: ArrayLike) -> NDArray[np.float64]:
    """Check cosines of at least 30 pairs, and return them as float64, (n_pairs,), within [-1, 1]."""
    array = _numbers(where, "cosines", cosines)
    if array.ndim != 1 or len(array) < FEWEST_PAIRS:
        raise InputError(
            f"{len(array)} pairs are too few; at least {FEWEST_PAIRS} are needed."
            if array.ndim == 1
            else f"expected cosines of the shape (n_pairs,), found {array.shape}.",
            where=where,
        )
    if not (np.abs(array) <= 1 + _ROUNDING).all():
        raise wrong_value(where, "cosines", "lie in [-1, 1]", array[~(np.abs(array) <= 1 + _ROUNDING)][0])
    return np.clip(array, -1, 1)


def _numbers(where: str, name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return real numbers as float64, also from objects or strings, which a column of a table may hold."""
    try:
        if np.asarray(values).dtype.kind in "OSU":
            values = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must be numbers; got: {error}.", where=where) from None
    return _check.real_numbers(where, name, values).astype(np.float64, copy=False)


def _ranks(null: NDArray[np.float64], knots: NDArray[np.float64]) -> NDArray[np.intp]:
    """Number of cosines below each knot, and number of those not above it, (n_knots, 2)."""
    return np.stack([np.searchsorted(null, knots, side) for side in ("left", "right")], axis=1)
