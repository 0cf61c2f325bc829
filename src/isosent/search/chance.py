"""What a score is worth: the share of random pairs with a lower one, corrected for hubs, and when nothing matches.

`Chance.fit` draws pairs of rows that have nothing to do with each other, corrects their cosines for rows that are near
to everything (`corrected`), and keeps a calibration of these scores, and how near the most isolated rows have another.
`share` places a score among those of random pairs; `threshold` is what the best of n unrelated rows exceeds at a rate,
and `is_match` compares with it. An index stores the arrays (`tensors`, `from_tensors`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.errors import InputError, wrong_value
from isosent.numeric.neighbors import nearest_cosines
from isosent.numeric.similarity import nonzero_rows, random_cosines, unit_rows
from isosent.transforms.calibration import RANDOM_PAIRS, Calibration

FEWEST_ROWS = 30
MOST_ROWS = 20_000
# These three constants are tuned in bench/no_match.py (docs/research/no_match.md).
_ISOLATED = 0.05  # share of the texts whose nearest neighbour is counted as chance
_MOST_EXPONENT = 11.0  # two unrelated texts may share words, so the tail is heavier than that of random directions
_EXPONENT_A_DIMENSION = 0.4
_N_PAIRS = 200_000
_N_NEIGHBORS = 2_000
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
    isolated : float
        Corrected score of the nearest neighbor of the most isolated texts: the 5% quantile.
    exponent : float
        How fast higher scores become rare, > 0.
    n_rows : int
        Rows of the index when it was fitted.
    n_sample : int
        Rows that the neighbors were searched in.

    Raises
    ------
    InputError
        If a value has another shape or is out of its range, or the calibration is not one of random pairs.

    Notes
    -----
    The corrected score is the cosine after the mean of the index has been subtracted from both vectors,

    :math:`c = \frac{(u - m) \cdot (x - m)}{\|u - m\| \|x - m\|}`

    or :math:`c = \frac{s - u \cdot m - x \cdot m + m \cdot m}{\|u - m\| \|x - m\|}`

    for unit vectors u and x with the cosine s. A hub, a text close to everything, lies near m and loses what it shares
    with every text (Suzuki et al. 2013).

    A query that is unrelated to the index still has a best hit, about as close as the nearest neighbor of its most
    isolated texts, which are related to no other. `isolated` is that score, q. The probability that the best of n
    unrelated texts has a corrected score above t is modeled as that of a nearest neighbor in a space of 2k dimensions
    (a Weibull distribution of the distance, because :math:`2 (1 - t)` is its square),

    :math:`P = 1 - \exp\left(\ln(0.05) \frac{n}{n_0} \left(\frac{1 - t}{1 - q}\right)^k\right)`

    where :math:`n_0` is the number of rows among which q was measured. The exponent k is 11, tuned on real texts, or
    0.4 (d - 1) if the d effective dimensions of the vectors, the inverse of the mean squared cosine of random pairs,
    are few. `threshold` solves this for t.

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
    >>> chance.is_match(rows[:1], hits, scores, false_positives=0.01)
    array([[ True, False]])
    """

    mean: NDArray[np.float32]
    calibration: Calibration
    isolated: float
    exponent: float
    n_rows: int
    n_sample: int

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or not self.mean.size or not np.isfinite(self.mean).all():
            raise wrong_value("Chance", "mean", "be finite, of shape (dim,)", f"shape {self.mean.shape}")
        if self.calibration.kind != RANDOM_PAIRS:
            raise InputError(
                f"the calibration is one of {self.calibration.kind!r}, not of random pairs.", where="Chance"
            )
        if not -1 <= self.isolated <= 1:
            raise wrong_value("Chance", "isolated", "lie in [-1, 1]", self.isolated)
        _check.above_zero("Chance", "exponent", self.exponent)
        _check.whole_number("Chance", "n_rows", self.n_rows, 1)
        _check.whole_number("Chance", "n_sample", self.n_sample, 1)

    def __repr__(self) -> str:
        return f"<Chance from {self.calibration.n_pairs} random pairs of an index of {self.n_rows} rows>"

    @classmethod
    def fit(cls, unit_vectors: ArrayLike, *, n_rows: int, seed: int = 0) -> Chance | None:
        """Learn what scores chance gives in an index. No labels are needed.

        Parameters
        ----------
        unit_vectors : array_like of shape (n_sample, dim), any real dtype
            Unit vectors of the index, or of a random sample of it. Zero rows, which stand for "no vector", and
            repetitions of a row are left out. Of more than 20,000 rows, 20,000 are drawn.
        n_rows : int
            Rows of the whole index.
        seed : int, default 0
            Seed of the samples.

        Returns
        -------
        Chance or None
            None if there is nothing to learn: fewer than 30 different rows, or the same score for all pairs.

        Raises
        ------
        InputError
            If a row holds NaN or infinity.
        """
        where = "Chance"
        _check.whole_number(where, "seed", seed, 0)
        rows = _check.matrix(where, "unit_vectors", unit_vectors)
        rng = np.random.default_rng(seed)
        if len(rows) > MOST_ROWS:
            rows = rows[np.sort(rng.choice(len(rows), MOST_ROWS, replace=False))]
        rows = rows.astype(np.float32, copy=False)
        _check.finite_rows(where, "unit_vectors", rows)
        rows = _distinct(rows[nonzero_rows(rows)])
        if len(rows) < FEWEST_ROWS:
            return None
        mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        centered = unit_rows(rows - mean)
        # The mean contains both rows of a pair, but not a query: that lowers their cosines by 1 / (n - 1)
        raised = 1 / (len(rows) - 1)
        pairs = np.clip(random_cosines(centered, n_pairs=_N_PAIRS, seed=seed) + raised, -1, 1)
        if np.ptp(pairs) <= _ROUNDING:
            return None
        asking = np.sort(rng.choice(len(rows), min(len(rows), _N_NEIGHBORS), replace=False))
        isolated = float(np.quantile(nearest_cosines(centered, asking), _ISOLATED)) + raised
        effective_dim = 1 / float(np.mean(pairs**2))
        exponent = min(_MOST_EXPONENT, _EXPONENT_A_DIMENSION * max(effective_dim - 1, 1))
        return cls(mean, Calibration.from_null(pairs), min(isolated, 1.0), exponent, n_rows, len(rows) - 1)

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
            centered = (s - of_queries - of_hits + square) / np.sqrt(np.maximum(lengths, _LEAST_SQUARE))
        is_hit = np.isfinite(s) & u.any(axis=1, keepdims=True) & x.any(axis=2)
        return np.where(is_hit, np.clip(centered, -1, 1), _NO_HIT)

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
        false_positives: float,
        n_rows: int | None = None,
    ) -> NDArray[np.bool_]:
        """Tell which hits beat chance. A query has no match if none does.

        Parameters
        ----------
        queries, hits, scores : array_like
            As for `corrected`.
        false_positives : float
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
        threshold = self.threshold(false_positives, n_rows=n_rows)
        return np.asarray(self.corrected(queries, hits, scores) > threshold)

    def threshold(self, false_positives: float, *, n_rows: int | None = None) -> float:
        """Corrected score that the best of `n_rows` unrelated pairs exceeds with probability `false_positives`.

        Parameters
        ----------
        false_positives : float
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
        where = "Chance"
        if not 0 < _check.fraction(where, "false_positives", false_positives) < 1:
            raise wrong_value(where, "false_positives", "be between 0 and 1", repr(false_positives))
        n_pairs = self.n_rows if n_rows is None else n_rows
        _check.whole_number(where, "n_rows", n_pairs, 0)
        # ln of the chance that a pair among n_sample rows is below, which the isolated texts are with 5%
        ratio = math.log1p(-false_positives) / math.log(_ISOLATED) * self.n_sample / max(n_pairs, 1)
        return max(-1.0, 1 - (1 - self.isolated) * math.pow(ratio, 1 / self.exponent))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name: mean, cosines, values, tail, counts."""
        calibration = self.calibration
        return {
            "mean": self.mean,
            "cosines": calibration.cosines,
            "values": calibration.values,
            "tail": np.array([self.isolated, self.exponent]),
            "counts": np.array([calibration.n_pairs, self.n_rows, self.n_sample], dtype=np.int64),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]]) -> Chance:
        """Make it from the result of `tensors`; an `InputError` names what is missing or wrong."""
        lengths = {"mean": None, "cosines": None, "values": None, "tail": 2, "counts": 3}
        arrays = {}
        for name, length in lengths.items():
            if name not in tensors:
                raise InputError(f"{name} is missing. Expected {', '.join(lengths)}.", where="Chance")
            arrays[name] = array = np.asarray(tensors[name])
            if array.ndim != 1 or array.dtype.kind not in "fiu" or length not in (None, len(array)):
                raise InputError(
                    f"{name} is of shape {array.shape}. Expected {length or 'any number of'} numbers.", where="Chance"
                )
        n_pairs, n_rows, n_sample = map(int, arrays["counts"])
        knots, values = (arrays[name].astype(np.float64) for name in ("cosines", "values"))
        calibration = Calibration(RANDOM_PAIRS, knots, values, n_pairs)
        isolated, exponent = map(float, arrays["tail"])
        return cls(arrays["mean"].astype(np.float32), calibration, isolated, exponent, n_rows, n_sample)

    def _checked(
        self, queries: ArrayLike, hits: ArrayLike, scores: ArrayLike
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], Double]:
        """Queries (n_queries, dim), hits (n_queries, k, dim) and scores (n_queries, k)."""
        u = _check.matrix("Chance", "queries", queries).astype(np.float32, copy=False)
        x = _check.real_numbers("Chance", "hits", hits).astype(np.float32, copy=False)
        s = _check.real_numbers("Chance", "scores", scores).astype(np.float64, copy=False)
        _check.same_dim("Chance", "queries", u.shape[1], self.dim)
        if s.ndim != 2 or len(s) != len(u):
            raise wrong_value("Chance", "scores", f"have shape ({len(u)}, k)", s.shape)
        if x.shape != (*s.shape, self.dim):
            raise wrong_value("Chance", "hits", f"have shape {(*s.shape, self.dim)}", x.shape)
        return u, x, s


def _distinct(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The first of equal rows: a text that occurs a hundred times would make its copies look like chance."""
    first = {row.tobytes(): number for number, row in reversed(list(enumerate(rows)))}
    return rows[np.sort(np.fromiter(first.values(), np.intp, len(first)))]
