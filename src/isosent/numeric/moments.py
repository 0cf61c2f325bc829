"""Weight, mean and scatter of rows, from which every linear transform is fitted; shrinkage of a covariance.

`Moments` add up, map (`mapped`) and know what rounding can have added to each variance. `Moments.from_rows` computes
them: `_sums` decides whether products in float32 suffice, `_accumulate` adds up the products of blocks, of which each
is shifted by its own mean and multiplied in one thread (`_block_sums`), and `_total` corrects for the shifts. Products
in float32 are kept only if `_resolved_in_single_precision` finds that no small eigenvalue was lost; the first rows
usually decide that. `SHRINKAGES` are estimators of how much a covariance is pulled towards a multiple of the identity.

`JointMoments` are those of two vectors of one item side by side, and the place of the cut: maps from one to the other
and their errors follow from its blocks. `JointFolds` keeps one per fold; "all but one" is a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.errors import InputError, wrong_value
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.threads import map_blocks, one_thread_products

_BLOCK_BYTES = 4 << 20
_BLOCK_ROWS = 8192
_CHEAP_PRODUCTS = 2e10
_SINGLE_PRECISION_FLOOR = 1e-6
_POWER_STEPS = 8
_TRIAL_ROWS_A_DIM = 4
_PENALTIES = (0.01, 0.1, 1.0)

Double = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Moments:
    r"""Weight, mean and scatter of a set of rows. The sum of two is that of the union of the rows.

    Parameters
    ----------
    weight : float
        Sum of the row weights, :math:`w = \sum_i w_i`; without weights, the number of rows.
    mean : ndarray of shape (dim,), float64
        :math:`\mu = \frac{1}{w} \sum_i w_i x_i`.
    scatter : ndarray of shape (dim, dim), float64
        Scatter about the mean, :math:`S = \sum_i w_i (x_i - \mu)(x_i - \mu)^\top`.
    rounding : ndarray of shape (dim,), float64, optional
        What rounding the rows to their dtype can have added to the scatter of each dimension,
        :math:`\sum_i w_i \varepsilon^2 x_i^2`; zeros by default.

    Raises
    ------
    InputError
        If the shapes do not agree.

    Notes
    -----
    The exact form of the running mean and covariance of Su et al. 2021, equations 10 and 11. The sum of two is the
    pairwise update of Chan, Golub & LeVeque 1983: :math:`\mu = \mu_a + \delta w_b / w` and
    :math:`S = S_a + S_b + \delta \delta^\top w_a w_b / w` with :math:`\delta = \mu_b - \mu_a`. The division by the
    weight is left to `covariance`, so that merging loses nothing.

    References
    ----------
    Su, Cao, Liu & Ou 2021, *Whitening Sentence Representations for Better Semantics and Faster Retrieval*,
    arXiv 2103.15316. Chan, Golub & LeVeque 1983, *Algorithms for Computing the Sample Variance*, equation 2.1.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1.0, 2.0], [3.0, 2.0], [5.0, 5.0]])
    >>> whole = Moments.from_rows(rows)
    >>> parts = Moments.from_rows(rows[:1]) + Moments.from_rows(rows[1:])
    >>> whole.weight, whole.mean, bool(np.allclose(whole.scatter, parts.scatter))
    (3.0, array([3., 3.]), True)
    """

    weight: float
    mean: Double
    scatter: Double
    rounding: Double | None = None

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.scatter.shape != (self.mean.size, self.mean.size):
            raise InputError(
                f"mean and scatter must have shapes (dim,) and (dim, dim); got {self.mean.shape} and "
                f"{self.scatter.shape}.",
                where="Moments",
            )

    def __repr__(self) -> str:
        return f"<Moments of weight {self.weight:g}, {self.dim} dimensions>"

    @classmethod
    def empty(cls, dim: int) -> Moments:
        """Moments of no rows, the neutral element of the sum.

        Parameters
        ----------
        dim : int
            Dimensions of the rows.

        Returns
        -------
        Moments
            Of weight 0.
        """
        return cls(0.0, np.zeros(dim), np.zeros((dim, dim)), np.zeros(dim))

    @classmethod
    def from_rows(
        cls,
        rows: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        eps: float | None = None,
        n_rows_total: int | None = None,
    ) -> Moments:
        r"""Moments of rows, in one pass over blocks of them.

        Parameters
        ----------
        rows : array_like of shape (n_rows, dim), any real dtype
            One vector per row; zero rows are allowed. A memory map is read block by block.
        weights : array_like of shape (n_rows,), optional
            Weight of each row, >= 0; 1 by default.
        eps : float, optional
            Relative rounding of the values; by default, that of the dtype.
        n_rows_total : int, optional
            If these rows are one block of a larger set: the number of rows of the set, or a lower bound. The blocks of
            a large set are then multiplied as fast as the whole set would be.

        Returns
        -------
        Moments
            In float64 for any dtype of the rows.

        Raises
        ------
        InputError
            If a row holds NaN or infinity (the message names the row), the shape is not 2-D, a weight is negative, or
            the weighted squares of the rows leave float64.

        Notes
        -----
        From each block its mean is subtracted, before the symmetric product ``block.T @ block``. The products are added
        in float64, in the order of the blocks, and the scatter between the blocks follows from their means. So a large
        common mean costs no digits; with the textbook formula :math:`\sum x x^\top - n \mu \mu^\top` it can cost all.

        Accuracy: let :math:`\varepsilon` be 2.2e-16, :math:`m_i` the largest absolute value of dimension i,
        :math:`s_i = \sqrt{S_{ii}}`, and :math:`r_i = \varepsilon m_i \sqrt{w}`, what rounding the mean can move. The
        mean of dimension i differs from the exact one by at most :math:`4 \varepsilon m_i`, and entry (i, j) of the
        scatter by at most :math:`10^{-13} s_i s_j + 10^{-9} (r_i s_j + s_i r_j + r_i r_j)`. Each addition of moments
        adds at most :math:`2 \varepsilon m_i` and :math:`2 (r_i s_j + s_i r_j + r_i r_j)`. Integers beyond 2^53 are
        first rounded to float64, and weighted squares must stay above 1e-290.

        float16 and float32 rows are multiplied in float64 if that is cheap (up to 2e10 products in the whole set, a
        fraction of a second), and otherwise in float32, about twice as fast. If an eigenvalue of the result is then
        below 1e-6 of the largest (rank-deficient rows, or fewer rows than dimensions), the products are repeated in
        float64. Otherwise the mean differs from the float64 result by at most :math:`10^{-6} m_i`, an entry by at most
        :math:`3 \cdot 10^{-6} s_i s_j` (typically 1e-7; more for values on a coarse grid, whose rounding errors do not
        average out), and the variance along any axis by about 1e-3 of itself.
        """
        where = "Moments"
        array = _check.matrix(where, "rows", rows)
        row_weights = None if weights is None else _check.row_weights(where, weights, len(array))
        if not len(array):
            return cls.empty(array.shape[1])
        weight, mean, scatter = _sums(array, row_weights, n_rows_total)
        if not weight:
            return cls.empty(array.shape[1])
        if eps is None:
            eps = float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0
        with np.errstate(over="ignore"):
            rounding = eps**2 * (weight * mean**2 + scatter.diagonal())
        if not np.isfinite(rounding).all():
            raise _beyond_float64(array, row_weights)
        return cls(weight, mean, scatter, rounding)

    @property
    def dim(self) -> int:
        """Dimensions of the rows."""
        return self.mean.size

    @property
    def covariance(self) -> Double:
        """Covariance of shape (dim, dim): the scatter divided by the weight (1/N); zeros without rows."""
        return self.scatter / self.weight if self.weight else self.scatter

    @property
    def second_moment(self) -> Double:
        r"""Uncentred second moment of shape (dim, dim), the mean of :math:`x x^\top`."""
        return self.covariance + np.outer(self.mean, self.mean)

    @property
    def rounding_variance(self) -> Double:
        """Variance of each dimension, shape (dim,), that rounding the rows to their dtype can leave."""
        if self.rounding is None or not self.weight:
            return np.zeros(self.dim)
        return self.rounding / self.weight

    def packed(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a small copy: the upper triangle of the scatter, as float32 in units of its largest."""
        largest = float(np.abs(self.scatter).max()) or 1.0
        triangle = (self.scatter[np.triu_indices(self.dim)] / largest).astype(np.float32)
        rounding = self.weight * self.rounding_variance
        # of the eigenvalues, by rounding every entry: at most the norm of what is lost
        rounding = rounding + np.finfo(np.float32).eps / 2 * np.linalg.norm(self.scatter)
        return {
            "weight": np.array([self.weight, largest]),
            "mean": self.mean,
            "triangle": triangle,
            "rounding": rounding,
        }

    @classmethod
    def unpacked(cls, arrays: Mapping[str, NDArray[Any]]) -> Moments:
        """Make moments of the result of `packed`; an `InputError` says what is wrong."""
        names = ("weight", "mean", "triangle", "rounding")
        if missing := [name for name in names if name not in arrays]:
            raise InputError(f"{missing[0]} is missing.")
        weight, mean, triangle, rounding = (arrays[name] for name in names)
        dim = mean.size
        if weight.shape != (2,) or triangle.shape != (dim * (dim + 1) // 2,) or rounding.shape != (dim,):
            raise InputError("the shapes of its arrays differ.")
        if not all(np.isfinite(array).all() for array in (weight, mean, triangle, rounding)):
            raise InputError("a number is not finite.")
        scatter = np.zeros((dim, dim))
        scatter[np.triu_indices(dim)] = triangle.astype(np.float64) * weight[1]
        scatter += np.triu(scatter, 1).T
        return cls(float(weight[0]), mean.astype(np.float64), scatter, rounding.astype(np.float64))

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the union of both sets of rows; their scatter must stay within float64."""
        if not isinstance(other, Moments):
            return NotImplemented
        _check.same_dim("Moments", "other", other.dim, self.dim)
        weight = self.weight + other.weight
        if weight == 0:
            return self
        with np.errstate(over="ignore", invalid="ignore"):
            gap = other.mean - self.mean
            mean = self.mean + gap * (other.weight / weight)
            scatter = self.scatter + other.scatter + np.outer(gap, gap * (self.weight * (other.weight / weight)))
        if not (np.isfinite(weight) and np.isfinite(scatter.diagonal()).all()):
            raise InputError(
                f"weight and scatter of the sum must stay within float64; the weights are {self.weight:g} and "
                f"{other.weight:g}, and the means differ by up to {np.abs(gap).max():g}.",
                where="Moments",
            )
        rounding = self.weight * self.rounding_variance + other.weight * other.rounding_variance
        return Moments(weight, mean, scatter, rounding)

    def __radd__(self, other: object) -> Moments:
        """Let the built-in `sum` start from 0."""
        return self if other == 0 else NotImplemented

    def about_zero(self) -> Moments:
        """Moments of rows with mean zero, whose covariance is the uncentred second moment of these rows.

        Returns
        -------
        Moments
            Of the same weight.
        """
        return Moments(self.weight, np.zeros(self.dim), self.weight * self.second_moment, self.rounding)

    def mapped(self, linear_map: LinearMap) -> Moments:
        r"""Moments of the mapped rows, without mapping them.

        Parameters
        ----------
        linear_map : LinearMap
            A map :math:`y = x W + b` that takes `dim` dimensions.

        Returns
        -------
        Moments
            Mean :math:`\mu W + b` and scatter :math:`W^\top S W`.

        Raises
        ------
        InputError
            If the map takes another number of dimensions.
        """
        _check.same_dim("Moments", "map", linear_map.dim, self.dim)
        weight = linear_map.weight
        scatter = weight.T @ self.scatter @ weight
        with np.errstate(over="ignore", invalid="ignore"):
            product_rounding = self.dim * np.finfo(np.float64).eps * np.linalg.norm(self.scatter)
            rounding = (self.weight * self.rounding_variance + product_rounding) @ weight**2
        return Moments(self.weight, linear_map.apply(self.mean[None])[0], (scatter + scatter.T) / 2, rounding)


class JointMoments:
    r"""Moments of two vectors of one item side by side, x of `x_dim` dimensions and y: of the rows [x y]."""

    def __init__(self, moments: Moments, x_dim: int) -> None:
        if not 0 < x_dim < moments.dim:
            raise wrong_value("JointMoments", "x_dim", f"be in 1 ... {moments.dim - 1}", x_dim)
        self.moments, self.x_dim = moments, x_dim

    def __repr__(self) -> str:
        return f"<JointMoments of weight {self.weight:g}, {self.x_dim} and {self.moments.dim - self.x_dim} dimensions>"

    @classmethod
    def from_rows(
        cls, x: NDArray[Any], y: NDArray[Any], weights: ArrayLike | None = None, *, n_rows_total: int | None = None
    ) -> JointMoments:
        """Moments of rows x, (n_rows, dim), and y, (n_rows, n_outputs)."""
        _check.same_count("JointMoments", "y", len(y), len(x))
        eps = float(np.finfo(x.dtype).eps) if x.dtype.kind == "f" else None
        rows = np.hstack([x, y])
        return cls(Moments.from_rows(rows, weights, eps=eps, n_rows_total=n_rows_total), x.shape[1])

    @property
    def weight(self) -> float:
        """Sum of the row weights."""
        return self.moments.weight

    @property
    def x(self) -> Moments:
        """Moments of x alone."""
        return self.columns(range(self.x_dim))

    @property
    def y(self) -> Moments:
        """Moments of y alone."""
        return self.columns(range(self.x_dim, self.moments.dim))

    @property
    def cross(self) -> Double:
        """Covariance of x with y, shape (dim, n_outputs)."""
        return self.moments.covariance[: self.x_dim, self.x_dim :]

    def columns(self, places: Sequence[int]) -> Moments:
        """Moments of some columns of [x y], in this order; -1 is a column of zeros."""
        index = np.asarray(places, dtype=np.intp)
        is_column = index >= 0
        scatter = self.moments.scatter[np.ix_(index, index)] * np.outer(is_column, is_column)
        rounding = None if self.moments.rounding is None else self.moments.rounding[index] * is_column
        return Moments(self.weight, self.moments.mean[index] * is_column, scatter, rounding)

    def __add__(self, other: JointMoments) -> JointMoments:
        """Return the moments of the items of both."""
        if not isinstance(other, JointMoments):
            return NotImplemented
        _check.same_dim("JointMoments", "x of other", other.x_dim, self.x_dim)
        return JointMoments(self.moments + other.moments, self.x_dim)

    def __radd__(self, other: object) -> JointMoments:
        """Let the built-in `sum` start from 0."""
        return self if other == 0 else NotImplemented

    def mapped(self, x_map: LinearMap | None = None, y_map: LinearMap | None = None) -> JointMoments:
        """Moments of the mapped vectors, without mapping them; None leaves a side alone."""
        n_outputs = self.moments.dim - self.x_dim
        maps = [
            LinearMap(np.eye(dim), np.zeros(dim)) if side is None else side
            for side, dim in ((x_map, self.x_dim), (y_map, n_outputs))
        ]
        x_dim = maps[0].n_components
        weight = np.zeros((self.moments.dim, x_dim + maps[1].n_components))
        weight[: self.x_dim, :x_dim], weight[self.x_dim :, x_dim:] = maps[0].weight, maps[1].weight
        return JointMoments(self.moments.mapped(LinearMap(weight, np.concatenate([m.bias for m in maps]))), x_dim)

    def swapped(self) -> JointMoments:
        """Moments of y and x side by side."""
        n_columns = self.moments.dim
        return JointMoments(self.columns([*range(self.x_dim, n_columns), *range(self.x_dim)]), n_columns - self.x_dim)

    def ridge(self, penalty: float, *, towards: Double | None = None) -> LinearMap:
        r"""The map :math:`(S_{xx} + l I)^{-1} (S_{xy} + l T)` from x to y, with l relative to the mean variance of x.

        T is `towards`, (dim, n_outputs), zeros by default: the map that a large penalty leads to.
        """
        x, y = self.x, self.y
        if not np.trace(x.covariance) > 0:
            raise InputError("all vectors are equal, so no map can be fitted to them. Use vectors that differ.")
        amount = penalty * float(np.trace(x.covariance)) / self.x_dim
        right = self.cross if towards is None else self.cross + amount * towards
        weight: Double = np.linalg.solve(x.covariance + amount * np.eye(self.x_dim), right).astype(np.float64)
        return LinearMap(weight, y.mean - x.mean @ weight)

    def about_zero(self) -> JointMoments:
        """Those whose covariance is the uncentred second moment: maps fitted on them have no bias, for any lengths."""
        return JointMoments(self.moments.about_zero(), self.x_dim)

    def procrustes(self) -> LinearMap:
        """The map between orthonormal axes of x and y, U V', that is nearest; a rotation if both have equal widths."""
        left, _, right = np.linalg.svd(self.cross, full_matrices=False)
        weight: Double = left @ right
        return LinearMap(weight, self.y.mean - self.x.mean @ weight)

    def canonical(self, penalty: float) -> LinearMap:
        r"""Shrunk canonical correlation as one map of x, :math:`(S_{xx} + l I)^{-1} S_{xy} (S_{yy} + m I)^{-1}`.

        The product of a mapped x with y, about their means, is that of both sides in the space of the correlations,
        each weighted by their roots: y stays unchanged. Both penalties are relative to the mean variance, and the
        mapped x have the mean square of 1.
        """
        y = self.y
        weight = self.ridge(penalty).weight
        amount = penalty * float(np.trace(y.covariance)) / y.dim
        weight = np.asarray(np.linalg.solve(y.covariance + amount * np.eye(y.dim), weight.T).T, np.float64)
        size = float(np.vdot(weight, self.x.covariance @ weight))
        weight = weight / np.sqrt(size) if size > 0 else weight
        return LinearMap(weight, y.mean - self.x.mean @ weight)

    def residual(self, linear_map: LinearMap) -> float:
        """Mean squared length of y less the mapped x."""
        x, y, weight = self.x, self.y, linear_map.weight
        gap = y.mean - x.mean @ weight - linear_map.bias
        spread = np.trace(y.covariance) - 2 * np.vdot(weight, self.cross) + np.vdot(weight, x.covariance @ weight)
        return float(max(spread, 0.0) + gap @ gap)


class JointFolds:
    """Joint moments of each of several folds, which add up fold by fold."""

    def __init__(self, folds: Iterable[JointMoments]) -> None:
        self.folds = tuple(folds)

    @classmethod
    def from_rows(cls, x: NDArray[Any], y: NDArray[Any], fold: NDArray[np.intp], *, n_folds: int) -> JointFolds:
        """Moments of the rows of each fold; `fold`, (n_rows,), is the number of each row's."""
        return cls([JointMoments.from_rows(x[fold == each], y[fold == each]) for each in range(n_folds)])

    @property
    def total(self) -> JointMoments:
        """Of all folds."""
        return sum(self.folds[1:], self.folds[0])

    def without(self, fold: int) -> JointMoments:
        """Of all folds but one."""
        first, *rest = (each for number, each in enumerate(self.folds) if number != fold)
        return sum(rest, first)

    def __add__(self, other: JointFolds) -> JointFolds:
        """Return the moments of the items of both, fold by fold."""
        return JointFolds([a + b for a, b in zip(self.folds, other.folds, strict=True)])

    def r2(self, penalty: float, *, towards: Double | None = None) -> float:
        """Share of the variance of y that ridge explains on folds it was not fitted on; NaN if y is constant."""
        error = sum(
            fold.weight * fold.residual(self.without(number).ridge(penalty, towards=towards))
            for number, fold in enumerate(self.folds)
            if fold.weight
        )
        total = float(np.trace(self.total.y.scatter))
        return 1 - error / total if total > 0 else float("nan")

    def best_r2(self) -> float:
        """The largest `r2` of a few penalties: how much of y is a linear function of x."""
        return max(map(self.r2, _PENALTIES))


def _oas(moments: Moments) -> float:
    # Chen, Wiesel, Eldar & Hero 2010, "Shrinkage Algorithms for MMSE Covariance Estimation", equation 23, without the
    # terms in 2 / dim, as in scikit-learn. Assumes Gaussian rows.
    covariance, dim, n_rows = moments.covariance, moments.dim, moments.weight
    mean_square, level = float(np.mean(covariance**2)), float(np.trace(covariance)) / dim
    denominator = (n_rows + 1) * (mean_square - level**2 / dim)
    return 1.0 if denominator <= 0 else min(1.0, (mean_square + level**2) / denominator)


SHRINKAGES = {"oas": _oas}


def _sums(rows: NDArray[Any], weights: Double | None, n_rows_total: int | None) -> tuple[float, Double, Double]:
    """Weight, mean and scatter of at least one row, multiplied in float32 where that is exact enough."""
    n_rows, dim = rows.shape
    single = np.result_type(rows.dtype, np.float32) == np.float32
    if single and n_rows > dim and max(n_rows, n_rows_total or 0) * float(dim) ** 2 > _CHEAP_PRODUCTS:
        sums = _accumulate(rows, weights, np.float32)
        if sums is not None:
            return sums
    sums = _accumulate(rows, weights, np.float64)
    if sums is None or not np.isfinite(sums[2]).all():
        raise _beyond_float64(rows, weights)
    return sums


def _beyond_float64(rows: NDArray[Any], weights: Double | None) -> InputError:
    weighted = "" if weights is None else f" and weights of up to {weights.max():g}"
    return InputError(
        f"the squares of the rows, whose values are about {np.abs(rows).max()}{weighted}, are not "
        "within float64. Multiply all by one number.",
        where="Moments",
    )


def _accumulate(
    rows: NDArray[Any], weights: Double | None, dtype: type[np.floating]
) -> tuple[float, Double, Double] | None:
    """Products in `dtype`, sums in float64; None if float32 does not resolve the spectrum."""
    n_rows, dim = rows.shape
    # Blocks stay in the cache, and each is multiplied in one thread; for a few of them, starting threads costs more.
    size = max(1, dim // 2, min(_BLOCK_ROWS, _BLOCK_BYTES // (dim * np.dtype(dtype).itemsize)))
    size = n_rows if n_rows <= 4 * size else size
    n_trial = -(-_TRIAL_ROWS_A_DIM * dim // size) * size
    scatter, blocks = np.zeros((dim, dim)), []
    block_sums = partial(_block_sums, rows, weights, dtype, size)
    sums_of_blocks = map(block_sums, [0]) if size == n_rows else map_blocks(block_sums, n_rows, size)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for n_seen, (block_weight, shift, residual, product) in zip(count(size, size), sums_of_blocks, strict=False):
            if block_weight:
                scatter += product
                blocks.append((block_weight, shift, residual / block_weight))
            is_trial = dtype == np.float32 and n_seen == n_trial < n_rows // 4
            if is_trial and not _resolved_in_single_precision(scatter):
                return None  # the first rows already decide most cases
        if not blocks:
            return 0.0, np.zeros(dim), scatter
        sums = _total(scatter, *map(np.array, zip(*blocks, strict=True)))
        return sums if dtype == np.float64 or _resolved_in_single_precision(sums[2]) else None


def _block_sums(
    rows: NDArray[Any], weights: Double | None, dtype: type[np.floating], size: int, start: int
) -> tuple[float, Double, Double, NDArray[np.floating]]:
    """Weight of a block, its shift, and the weighted sum and the products of its rows less the shift."""
    part = rows[start : start + size]
    shares = np.ones(len(part)) if weights is None else weights[start : start + size]
    block_weight, shares = float(shares.sum()), shares.astype(dtype)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):  # of this thread
        block = part.astype(dtype)
        shift = shares @ block / dtype(block_weight or 1.0)
        block -= shift
        residual = shares @ block
        if not np.isfinite(residual).all():
            _check.finite_rows("Moments", "rows", part, start)
        if weights is not None:
            block *= np.sqrt(shares)[:, None]
        return block_weight, shift.astype(np.float64), residual.astype(np.float64), block.T @ block


def _total(scatter: Double, block_weights: Double, shifts: Double, residuals: Double) -> tuple[float, Double, Double]:
    """Scatter within the blocks, corrected for their shifts, plus the scatter of their means."""
    weight = float(block_weights.sum())
    # The mean of a block is its shift plus its residual. Added, they would lose the digits below those of a large mean.
    means = (shifts - shifts[0]) + residuals
    mean = (block_weights / weight) @ means
    root = np.sqrt(block_weights)[:, None]
    within, between = root * residuals, root * (means - mean)
    scatter -= within.T @ within
    scatter += between.T @ between
    return weight, shifts[0] + mean, scatter


@one_thread_products()  # threads that wait for each other take ten times as long on a busy machine
def _resolved_in_single_precision(scatter: Double) -> bool:
    """Whether every eigenvalue is large enough, relative to the largest, to have survived products in float32."""
    scale = _largest_eigenvalue(scatter)
    if not (np.isfinite(scale) and scale > np.finfo(np.float32).tiny / _SINGLE_PRECISION_FLOOR):
        return False
    lowered = scatter / scale
    lowered.flat[:: len(scatter) + 1] -= _SINGLE_PRECISION_FLOOR
    try:
        np.linalg.cholesky(lowered)  # cheaper than the eigenvalues
    except np.linalg.LinAlgError:
        return False
    return True


def _largest_eigenvalue(scatter: Double) -> float:
    """A close lower bound of the largest eigenvalue, by power iteration from the column of the largest variance."""
    vector, value = scatter[:, scatter.diagonal().argmax()], 0.0
    for _ in range(_POWER_STEPS):
        length = np.linalg.norm(vector)
        if not (np.isfinite(length) and length > 0):
            return float(length)
        vector = vector / length
        product = scatter @ vector
        value, vector = float(vector @ product), product
    return value
