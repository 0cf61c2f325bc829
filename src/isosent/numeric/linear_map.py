"""The affine map that every linear transform becomes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.numeric.threads import one_thread_products, over_blocks

_BLOCK_ROWS = 4096  # of one thread
_CACHED_ROWS = 256  # large enough for a fast product, small enough to be still in the cache when it is rounded
_CACHED_NUMBERS = 1 << 16
_UNDERFLOW = 1e-300  # larger than what a product loses by underflow, far below the smallest float32


@dataclass(frozen=True, eq=False, repr=False)
class LinearMap:
    r"""The map :math:`y = x W + b` on row vectors.

    Parameters
    ----------
    weight : ndarray of shape (dim, n_components), float64
        :math:`W`.
    bias : ndarray of shape (n_components,), float64
        :math:`b`; :math:`-\mu W` for a transform that centres.

    Raises
    ------
    InputError
        If the shapes do not agree or a value is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> halve = LinearMap(np.array([[0.5], [0.5]]), np.array([-1.0]))
    >>> halve.apply(np.array([[1.0, 3.0]]))
    array([[1.]])
    """

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name in ("weight", "bias"):
            object.__setattr__(self, name, _check.real_numbers("LinearMap", name, getattr(self, name)))
        if self.weight.ndim != 2 or self.bias.shape != self.weight.shape[1:]:
            raise InputError(
                "LinearMap: weight and bias must have shapes (dim, n_components) and (n_components,); "
                f"got {self.weight.shape} and {self.bias.shape}."
            )
        if not (np.isfinite(self.weight).all() and np.isfinite(self.bias).all()):
            raise InputError("LinearMap: weight and bias must be finite; got NaN or infinity.")
        # One memory layout, so that a map of float64 rows rounds the same before and after it was saved and loaded.
        for name in ("weight", "bias"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), np.float64))

    def __reduce__(self) -> tuple[Any, ...]:
        return LinearMap, (self.weight, self.bias)

    def __repr__(self) -> str:
        return f"<LinearMap from {self.dim} to {self.n_components} dimensions>"

    @property
    def dim(self) -> int:
        """Dimensions of the input."""
        return int(self.weight.shape[0])

    @property
    def n_components(self) -> int:
        """Dimensions of the output."""
        return int(self.weight.shape[1])

    @cached_property
    def _diagonal(self) -> NDArray[np.float64] | None:
        """Factor of each dimension, if the map only scales and shifts."""
        diagonal = self.weight.diagonal()
        is_diagonal = self.dim == self.n_components and np.count_nonzero(self.weight) == np.count_nonzero(diagonal)
        return diagonal.copy() if is_diagonal else None

    @cached_property
    def _low_rank(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Factors (dim, rank) and (rank, dim) of ``weight - identity``, if its rank is low enough to save time."""
        # The range of a low-rank matrix follows from its products with a few random vectors.
        max_rank = self.dim // 16
        if self.dim != self.n_components or not max_rank:
            return None
        change = self.weight - np.eye(self.dim)
        with one_thread_products():
            sample = change @ np.random.default_rng(0).standard_normal((self.dim, max_rank + 1))
            basis, values, _ = np.linalg.svd(sample, full_matrices=False)
            basis = np.ascontiguousarray(basis[:, values > values[0] * 1e-10])
            right = basis.T @ change
        if basis.shape[1] > max_rank or np.abs(basis @ right - change).max() > 1e-12 * np.abs(change).max():
            return None
        return basis, right

    @cached_property
    def _rounding(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bounds c, d of (n_components,): two ways to compute a row differ by at most ``length of row * c + d``."""
        # see `_map_to_single`
        n_terms, by_length, missing = self.dim + 1, 2 * _lengths(self.weight), np.zeros(self.n_components)
        if self._low_rank is not None:
            left, right = self._low_rank
            n_terms += 2 * len(right) + 2
            by_length = _lengths(self.weight) + _lengths(left) @ np.abs(right) + 1
            missing = _lengths(self.weight - np.eye(self.dim) - left @ right)
        unit = 1.01 * (n_terms + 2) * 2.0**-53  # 1% for the rounding of lengths and bounds
        return unit * by_length + 1.01 * missing, 2 * unit * np.abs(self.bias) + _UNDERFLOW

    @cached_property
    def _columns(self) -> NDArray[np.float64]:
        """Columns of the weight, one after the other in memory."""
        return np.ascontiguousarray(self.weight.T)

    def apply(self, rows: ArrayLike, *, out: NDArray[np.floating] | None = None) -> NDArray[np.floating]:
        """Map rows block by block, without a copy of them.

        Parameters
        ----------
        rows : array_like of shape (n_rows, dim), any real dtype
            Vectors; zero rows are allowed. A memory map is read block by block.
        out : ndarray of shape (n_rows, n_components), optional
            Array to write the result to, such as a memory map; of the dtype that is returned.

        Returns
        -------
        ndarray of shape (n_rows, n_components)
            float64 for float64 rows, float32 for everything else.

        Raises
        ------
        InputError
            If the rows are not 2-D, have another width, or hold NaN or infinity (the message names the row), or `out`
            has another shape or dtype. Blocks before a refused row have been written to `out`.
        """
        where = "LinearMap.apply"
        array = _check.matrix(where, "rows", rows)
        _check.same_dim(where, "rows", array.shape[1], self.dim)
        dtype = np.dtype(np.float64 if array.dtype == np.float64 else np.float32)
        shape = len(array), self.n_components
        if out is None:
            out = np.empty(shape, dtype)
        elif out.shape != shape or out.dtype != dtype:
            raise InputError(
                f"{where}: out must have shape {shape} and dtype {dtype}; got {out.shape} and {out.dtype}."
            )
        if self._diagonal is None:
            _ = self._rounding, self._columns  # computed once, before the threads start

        def map_block(block_start: int) -> None:
            block_stop = min(block_start + _BLOCK_ROWS, len(array))
            for start in range(block_start, block_stop, _CACHED_ROWS):
                rows, mapped = (whole[start : min(start + _CACHED_ROWS, block_stop)] for whole in (array, out))
                with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                    is_finite = self._map(rows, mapped)
                if not is_finite:
                    _check.finite_rows(where, "rows", rows, start)
                    message = f"rows must map to values within {dtype}; some do not, from row {start} on."
                    raise InputError(f"{where}: {message}")

        over_blocks(map_block, len(array), _BLOCK_ROWS)
        return out

    def _map(self, rows: NDArray[Any], out: NDArray[np.floating]) -> bool:
        """Write the mapped rows; return whether all are finite."""
        rows = rows.astype(np.float64, copy=False)
        if self._diagonal is not None:
            out[:] = rows * self._diagonal + self.bias
        elif out.dtype == np.float64:
            self._multiply(rows, out)
        else:
            self._map_to_single(rows, out)
        return bool(np.isfinite(out).all())

    def _multiply(self, rows: NDArray[np.float64], out: NDArray[np.floating]) -> None:
        """Write the mapped rows in float64; `out` may be the rows themselves."""
        if self._low_rank is not None:
            left, right = self._low_rank
            np.add(rows, (rows @ left) @ right, out=out)
        else:
            np.matmul(rows, self.weight, out=out)
        out += self.bias

    def _map_to_single(self, rows: NDArray[np.float64], out: NDArray[np.floating]) -> None:
        """Write the mapped rows, rounded to float32, with the same bits in any batch."""
        # The order in which BLAS adds up a product depends on its kernel, the number of rows and the place of a row.
        # So the result is defined by one order, p = (b_j + x_i1 w_1j) + x_i2 w_2j + ..., each step rounded to float64,
        # and then to float32. BLAS finds it for all but a few numbers, as follows.
        #
        # Let u = 2^-53 and g(n) = n u / (1 - n u). A sum of dim + 1 terms, added in any order, with fused steps or
        # without, differs from the exact one by at most g(dim + 1) (|x_i| . |w_j| + |b_j|) (Higham 2002, Accuracy and
        # Stability of Numerical Algorithms, section 3.1), plus the smallest numbers that underflow. By Cauchy-Schwarz,
        # |x_i| . |w_j| is at most the product of both lengths. So the sum q of BLAS and p differ by at most twice that,
        # e: q - e <= p <= q + e. Rounding never changes the order of two numbers. So if q - e and q + e round to the
        # same float32, p rounds to it, too. Else p itself is computed: about one number in 10,000.
        #
        # The factors of a low rank L R give x + (x L) R, which differs from the exact sum by at most g(dim + rank + 2)
        # times (sum_r |L_r| |R_rj| + 1) |x_i| + |b_j|, and |x_i| times the length of column j of W - I - L R.
        products = np.empty(out.shape)
        self._multiply(rows, products)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        by_length, by_bias = self._rounding
        error = lengths.max(initial=0) * by_length + by_bias
        np.subtract(products, error, out=out, casting="same_kind")
        upper = np.add(products, error, out=np.empty_like(out), casting="same_kind")
        open_places = np.flatnonzero(out != upper)
        if open_places.size and np.isfinite(lengths).all():
            i, j = np.divmod(open_places, self.n_components)
            product, error = products[i, j], lengths[i] * by_length[j] + by_bias[j]  # of this row, not of the longest
            out[i, j] = product - error
            is_open = out[i, j] != (product + error).astype(out.dtype)
            self._add_in_order(rows, i[is_open], j[is_open], out)
        out += 0.0  # the sign of zero depends on the error, too; this makes it positive

    def _add_in_order(
        self, rows: NDArray[np.float64], i: NDArray[np.intp], j: NDArray[np.intp], out: NDArray[np.floating]
    ) -> None:
        """Write single numbers of the mapped rows, added term by term."""
        step = max(1, _CACHED_NUMBERS // (self.dim + 1))
        for start in range(0, len(i), step):
            row, column = i[start : start + step], j[start : start + step]
            terms = np.empty((len(row), self.dim + 1))
            terms[:, 0] = self.bias[column]
            np.multiply(rows[row], self._columns[column], out=terms[:, 1:])
            out[row, column] = np.add.accumulate(terms, axis=1, out=terms)[:, -1]

    def then(self, after: LinearMap) -> LinearMap:
        """Combine this map and another one that follows it.

        Parameters
        ----------
        after : LinearMap
            Map to apply to the result of this one.

        Returns
        -------
        LinearMap
            ``self.then(after).apply(x)`` is ``after.apply(self.apply(x))``.

        Raises
        ------
        InputError
            If the widths do not agree.
        """
        _check.same_dim("LinearMap.then", "input of the second map", after.dim, self.n_components)
        return LinearMap(self.weight @ after.weight, self.bias @ after.weight + after.bias)


def _lengths(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Length of each column."""
    largest = np.abs(matrix).max(axis=0, initial=0)
    scale = np.where(largest > 0, largest, 1)  # squares of very large or small numbers leave float64
    lengths: NDArray[np.float64] = scale * np.linalg.norm(matrix / scale, axis=0)
    return lengths
