"""What a score is worth: the share of random pairs with a lower one, corrected for hubs, and when nothing matches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.numeric.similarity import nonzero_rows, random_cosines
from isosent.transforms.calibration import RANDOM_PAIRS, Calibration

FEWEST_ROWS = 30
MOST_ROWS = 20_000
_N_PAIRS = 200_000
# The line of the tail goes through the scores that these shares of random pairs exceed. Smaller shares are nearer to
# where it ends, but one pair in a thousand of a real index is related, not random (docs/no_match.md).
_TAIL = (0.2, 0.02)
_NO_HIT = -1.0
_LEAST_SQUARE = 1e-9
_ROUNDING = 1e-5

Double = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Chance:
    r"""What a cosine is worth in one index: how rarely two of its texts have a higher one by chance.

    Made by `fit`. It holds for vectors of the space it was fitted in.

    Parameters
    ----------
    mean : ndarray of shape (dim,), float32
        Mean of the unit vectors of the index.
    calibration : Calibration
        Of the corrected scores of random pairs of the index.
    n_rows : int
        Rows of the index when it was fitted.

    Raises
    ------
    InputError
        If the mean has another shape or is not finite, or the calibration is not one of random pairs.

    Notes
    -----
    The corrected score is the cosine after the mean of the index has been subtracted from both vectors,

    .. math:: c = \frac{(u - m) \cdot (x - m)}{\|u - m\| \|x - m\|}
              = \frac{s - u \cdot m - x \cdot m + m \cdot m}{\|u - m\| \|x - m\|}

    for unit vectors u and x with the cosine s. A hub, a text close to everything, lies near m and loses what it shares
    with every text (Suzuki et al. 2013).

    The cosine c of random directions makes :math:`y = \operatorname{sign}(c) \sqrt{-\ln(1 - c^2)}` nearly normal,
    because its density is proportional to :math:`(1 - c^2)^{(d - 3) / 2}` in d dimensions. The threshold of a search
    continues the normal distribution whose y is exceeded by 20% and by 2% of the pairs where those of the index are,
    up to the score that the best of `n_rows` comparisons exceeds with probability `false_alarms`.

    References
    ----------
    Suzuki, Hara, Shimbo, Saerens & Fukumizu 2013, *Centering Similarity Measures to Reduce Hubs*, EMNLP.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)
    >>> rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    >>> chance = Chance.fit(rows, n_rows=500)
    >>> hits, scores = rows[None, :2], rows[:1] @ rows[:2].T
    >>> chance.share(rows[:1], hits, scores).round(2)
    array([[1.  , 0.11]])
    >>> chance.is_match(rows[:1], hits, scores, false_alarms=0.01)
    array([[ True, False]])
    """

    mean: NDArray[np.float32]
    calibration: Calibration
    n_rows: int

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or not self.mean.size or not np.isfinite(self.mean).all():
            raise InputError(f"Chance: mean must be finite, of shape (dim,); got shape {self.mean.shape}.")
        if self.calibration.kind != RANDOM_PAIRS:
            raise InputError(f"Chance: the calibration must be one of random pairs; got {self.calibration.kind!r}.")
        _check.whole_number("Chance", "n_rows", self.n_rows, 1)

    def __repr__(self) -> str:
        return f"<Chance from {self.calibration.n_pairs} random pairs of an index of {self.n_rows} rows>"

    @classmethod
    def fit(cls, unit_vectors: ArrayLike, *, n_rows: int, seed: int = 0) -> Chance | None:
        """Learn what scores random pairs of an index have. No labels are needed.

        Parameters
        ----------
        unit_vectors : array_like of shape (n_sample, dim), any real dtype
            Unit vectors of the index, or of a random sample of it. Zero rows, which stand for "no vector", and
            repetitions of a row are left out. Of more than 20,000 rows, 20,000 are drawn.
        n_rows : int
            Rows of the whole index.
        seed : int, default 0
            Seed of the sample and of the random pairs.

        Returns
        -------
        Chance or None
            None if there is nothing to learn: fewer than 30 different rows, or the same score for all pairs.

        Raises
        ------
        InputError
            If a row holds NaN or infinity.
        """
        where = "Chance.fit"
        _check.whole_number(where, "seed", seed, 0)
        rows = _check.matrix(where, "unit_vectors", unit_vectors)
        if len(rows) > MOST_ROWS:
            rows = rows[np.sort(np.random.default_rng(seed).choice(len(rows), MOST_ROWS, replace=False))]
        rows = rows.astype(np.float32, copy=False)
        _check.finite_rows(where, "unit_vectors", rows)
        rows = _distinct(rows[nonzero_rows(rows)])
        if len(rows) < FEWEST_ROWS:
            return None
        mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        # The mean contains both rows of a pair, but not a query: that lowers their cosines by 1 / (n - 1)
        cosines = random_cosines(rows - mean, n_pairs=_N_PAIRS, seed=seed) + 1 / (len(rows) - 1)
        if np.ptp(cosines) <= _ROUNDING:
            return None
        calibration = Calibration.from_null(np.clip(cosines, -1, 1))
        return cls(mean, calibration, n_rows)

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        return len(self.mean)

    def corrected(self, queries: ArrayLike, hits: ArrayLike, scores: ArrayLike) -> Double:
        """Correct cosines for hubs: subtract the mean of the index from both vectors.

        Parameters
        ----------
        queries : array_like of shape (n_queries, dim), float
            Unit vectors of the queries.
        hits : array_like of shape (n_queries, k, dim), float
            Unit vectors of the hits of each query.
        scores : array_like of shape (n_queries, k), float
            Their cosines.

        Returns
        -------
        ndarray of shape (n_queries, k), float64
            Corrected scores in [-1, 1]; -1 if the query or the hit is a zero row, or the score is not finite.

        Raises
        ------
        InputError
            If the shapes do not agree.
        """
        u, x, s = self._checked(queries, hits, scores)
        of_queries, of_hits = (u @ self.mean)[:, None].astype(np.float64), (x @ self.mean).astype(np.float64)
        square = float(self.mean.astype(np.float64) @ self.mean.astype(np.float64))
        lengths = (1 - 2 * of_queries + square) * (1 - 2 * of_hits + square)
        with np.errstate(invalid="ignore"):
            centred = (s - of_queries - of_hits + square) / np.sqrt(np.maximum(lengths, _LEAST_SQUARE))
        is_hit = np.isfinite(s) & u.any(axis=1, keepdims=True) & x.any(axis=2)
        return np.where(is_hit, np.clip(centred, -1, 1), _NO_HIT)

    def share(self, queries: ArrayLike, hits: ArrayLike, scores: ArrayLike) -> Double:
        """Share of random pairs of the index with a lower corrected score.

        Parameters
        ----------
        queries, hits, scores : array_like
            As for `corrected`.

        Returns
        -------
        ndarray of shape (n_queries, k), float64
            In [0, 1]: 0.999 means that one random pair in a thousand has a higher score.

        Raises
        ------
        InputError
            If the shapes do not agree.
        """
        return self.calibration(self.corrected(queries, hits, scores))

    def is_match(
        self,
        queries: ArrayLike,
        hits: ArrayLike,
        scores: ArrayLike,
        *,
        false_alarms: float,
        n_rows: int | None = None,
    ) -> NDArray[np.bool_]:
        """Tell which hits beat chance. A query has no match if none does.

        Parameters
        ----------
        queries, hits, scores : array_like
            As for `corrected`.
        false_alarms : float
            Share of unrelated queries, in (0, 1), that may get a match.
        n_rows : int, optional
            Number of rows that each query was compared with; by default those of the index when it was fitted.

        Returns
        -------
        ndarray of shape (n_queries, k), bool
            Whether the corrected score is above `threshold`.

        Raises
        ------
        InputError
            If the shapes do not agree, or a number is out of its range.
        """
        threshold = self.threshold(false_alarms, n_rows=n_rows)
        matches: NDArray[np.bool_] = self.corrected(queries, hits, scores) > threshold
        return matches

    def threshold(self, false_alarms: float, *, n_rows: int | None = None) -> float:
        """Corrected score that the best of `n_rows` unrelated pairs exceeds with probability `false_alarms`.

        Parameters
        ----------
        false_alarms : float
            Probability in (0, 1).
        n_rows : int, optional
            Number of pairs; by default, the rows of the index when it was fitted.

        Returns
        -------
        float
            In [-1, 1].

        Raises
        ------
        InputError
            If a number is out of its range.
        """
        where = "Chance.threshold"
        if not 0 < _check.fraction(where, "false_alarms", false_alarms) < 1:
            raise InputError(f"{where}: false_alarms must lie between 0 and 1; got {false_alarms!r}.")
        n_pairs = self.n_rows if n_rows is None else n_rows
        _check.whole_number(where, "n_rows", n_pairs, 0)
        # the best of n independent pairs stays below t with probability (1 - p)^n = 1 - false_alarms
        p = -math.expm1(math.log1p(-false_alarms) / max(n_pairs, 1))
        if p >= _TAIL[-1]:
            return self._quantile(1 - p)
        (z, y), (z_end, y_end) = ((_normal_quantile(share), _stretched(self._quantile(1 - share))) for share in _TAIL)
        y += (y_end - y) * (_normal_quantile(p) - z) / (z_end - z)
        return math.copysign(math.sqrt(-math.expm1(-y * y)), y)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name: mean, cosines, values, counts."""
        calibration = self.calibration
        return {
            "mean": self.mean,
            "cosines": calibration.cosines,
            "values": calibration.values,
            "counts": np.array([calibration.n_pairs, self.n_rows], dtype=np.int64),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]]) -> Chance:
        """Make it from the result of `tensors`; an `InputError` names what is missing or wrong."""
        names = ("mean", "cosines", "values", "counts")
        if missing := [name for name in names if name not in tensors]:
            raise InputError(f"Chance: {missing[0]} is missing; there must be {', '.join(names)}.")
        mean, cosines, values, counts = (np.asarray(tensors[name]) for name in names)
        if counts.shape != (2,) or counts.dtype.kind not in "iu":
            raise InputError(f"Chance: counts must be two whole numbers; got {counts.dtype} of shape {counts.shape}.")
        calibration = Calibration(
            RANDOM_PAIRS, cosines.astype(np.float64), values.astype(np.float64), int(counts[0]), None
        )
        return cls(mean.astype(np.float32), calibration, int(counts[1]))

    def _quantile(self, share: float) -> float:
        """Corrected score that this share of random pairs stays below."""
        return float(np.interp(share, self.calibration.values, self.calibration.cosines))

    def _checked(
        self, queries: ArrayLike, hits: ArrayLike, scores: ArrayLike
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], Double]:
        """Queries (n_queries, dim), hits (n_queries, k, dim) and scores (n_queries, k)."""
        u = _check.matrix("Chance", "queries", queries).astype(np.float32, copy=False)
        x = _check.real_numbers("Chance", "hits", hits).astype(np.float32, copy=False)
        s = _check.real_numbers("Chance", "scores", scores).astype(np.float64, copy=False)
        _check.same_dim("Chance", "queries", u.shape[1], self.dim)
        if s.ndim != 2 or len(s) != len(u):
            raise InputError(f"Chance: scores must have shape ({len(u)}, k); got {s.shape}.")
        if x.shape != (*s.shape, self.dim):
            raise InputError(f"Chance: hits must have shape {(*s.shape, self.dim)}; got {x.shape}.")
        return u, x, s


def _distinct(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The first of equal rows: a text that occurs a hundred times would make its copies look like chance."""
    first = {row.tobytes(): number for number, row in reversed(list(enumerate(rows)))}
    return rows[np.sort(np.fromiter(first.values(), np.intp, len(first)))]


def _stretched(cosine: float) -> float:
    """Nearly normal for random directions: sqrt(-ln(1 - c^2)) with the sign of c."""
    return math.copysign(math.sqrt(-math.log(max(1 - cosine * cosine, _LEAST_SQUARE))), cosine)


def _normal_quantile(share: float) -> float:
    """Value that this share of a normal distribution exceeds."""
    return -NormalDist().inv_cdf(share)
