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
                "weight and bias must have shapes (dim, n_components) and (n_components,); got "
                f"{self.weight.shape} and {self.bias.shape}.",
                where="LinearMap",
            )
        if not (np.isfinite(self.weight).all() and np.isfinite(self.bias).all()):
            raise InputError("weight or bias holds NaN or infinity.", where="LinearMap")
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

    def apply(self, rows: ArrayLike) -> NDArray[np.floating]:
        """Map rows block by block, without a copy of them.

        Parameters
        ----------
        rows : array_like of shape (n_rows, dim), any real dtype
            Vectors; zero rows are allowed. A memory map is read block by block.

        Returns
        -------
        ndarray of shape (n_rows, n_components)
            float64 for float64 rows, float32 for everything else.

        Raises
        ------
        InputError
            If the rows are not 2-D, have another width, hold NaN or infinity (the message names the row), or map to
            values beyond the dtype of the result.
        """
        where = "LinearMap"
        array = _check.matrix(where, "rows", rows)
        _check.same_dim(where, "rows", array.shape[1], self.dim)
        dtype = np.float64 if array.dtype == np.float64 else np.float32
        out = np.empty((len(array), self.n_components), dtype)
        if self._diagonal is None:
            _ = self._rounding, self._columns  # computed once, before the threads start

        def map_block(start: int) -> None:
            rows, mapped = (whole[start : start + _BLOCK_ROWS] for whole in (array, out))
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                self._map(rows, mapped)
            if not np.isfinite(mapped).all():
                first = int(np.isfinite(mapped).all(axis=1).argmin()) // _CACHED_ROWS * _CACHED_ROWS
                _check.finite_rows(where, "rows", rows[first : first + _CACHED_ROWS], start + first)
                message = f"rows map to values beyond {out.dtype}, from row {start + first} on."
                raise InputError(message, where=where)

        over_blocks(map_block, len(array), _BLOCK_ROWS)
        return out

    def _map(self, rows: NDArray[Any], out: NDArray[np.floating]) -> None:
        """Write the mapped rows of a block."""
        if self._diagonal is not None:
            out[:] = rows.astype(np.float64, copy=False) * self._diagonal + self.bias
        elif out.dtype == np.float64:
            for start in range(0, len(rows), _CACHED_ROWS):  # of which the last bits depend on this number
                part = slice(start, start + _CACHED_ROWS)
                self._multiply(rows[part], out[part])
                out[part] += self.bias
        else:
            self._map_to_single(rows, out)

    def _multiply(self, rows: NDArray[np.float64], out: NDArray[np.floating]) -> None:
        """Write the products of rows and weight in float64."""
        if self._low_rank is not None:
            left, right = self._low_rank
            np.add(rows, (rows @ left) @ right, out=out)
        else:
            np.matmul(rows, self.weight, out=out)

    def _map_to_single(self, rows: NDArray[Any], out: NDArray[np.floating]) -> None:
        """Write the mapped rows of a block, rounded to float32, with the same bits in any batch."""
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
        #
        # BLAS multiplies a few rows at a time, so that the passes over their products find them in the cache, and each
        # pass adds a number per column: b_j - e, and b_j + e. The rounding of these two is within what e has to spare.
        # The memory of the products is used again: allocating it each time can take as long as they do.
        size = min(_CACHED_ROWS, len(rows))
        memory = np.empty((size, self.dim)), np.empty((size, self.n_components)), np.empty_like(out[:size])
        by_length, by_bias = self._rounding
        lengths, open_places, totals = np.empty(len(rows)), [], []
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            lower = out[part]
            wide, products, upper = (array[: len(lower)] for array in memory)
            wide[:] = rows[part]
            self._multiply(wide, products)
            lengths[part] = np.sqrt(np.einsum("ij,ij->i", wide, wide))
            error = lengths[part].max() * by_length + by_bias
            np.add(products, self.bias - error, out=lower, casting="same_kind")
            np.add(products, self.bias + error, out=upper, casting="same_kind")
            places = np.flatnonzero(lower != upper)
            open_places.append(places + start * self.n_components)
            totals.append(products.ravel()[places])
            lower += 0.0  # the sign of zero depends on the error, too; this makes it positive
        i, j = np.divmod(np.concatenate(open_places), self.n_components)
        if i.size and np.isfinite(lengths).all():
            total = np.concatenate(totals) + self.bias[j]
            error = lengths[i] * by_length[j] + by_bias[j]  # of this row, not of the longest
            least, most = ((total + sign * error).astype(out.dtype) for sign in (-1, 1))
            out[i, j], is_open = least + 0.0, least != most
            self._add_in_order(rows, i[is_open], j[is_open], out)

    def _add_in_order(
        self, rows: NDArray[Any], i: NDArray[np.intp], j: NDArray[np.intp], out: NDArray[np.floating]
    ) -> None:
        """Write single numbers of the mapped rows, added term by term."""
        step = max(1, _CACHED_NUMBERS // (self.dim + 1))
        for start in range(0, len(i), step):
            row, column = i[start : start + step], j[start : start + step]
            terms = np.empty((len(row), self.dim + 1))
            terms[:, 0] = self.bias[column]
            np.multiply(rows[row], self._columns[column], out=terms[:, 1:], dtype=np.float64)
            out[row, column] = np.add.accumulate(terms, axis=1, out=terms)[:, -1].astype(out.dtype) + 0.0

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
        _check.same_dim("LinearMap", "input of the second map", after.dim, self.n_components)
        return LinearMap(self.weight @ after.weight, self.bias @ after.weight + after.bias)


def _lengths(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Length of each column."""
    largest = np.abs(matrix).max(axis=0, initial=0)
    scale = np.where(largest > 0, largest, 1)  # squares of very large or small numbers leave float64
    return scale * np.linalg.norm(matrix / scale, axis=0)
