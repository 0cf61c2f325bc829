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

_BLOCK_ROWS = 4096  # large enough for a fast product, small enough to be still in the cache when the bias is added


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
        # One memory layout, so that a map rounds the same before and after it was saved and loaded.
        object.__setattr__(self, "weight", np.ascontiguousarray(self.weight))

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
    def _single(self) -> LinearMap | None:
        """The map in float32; None if a number overflows float32, or a column underflows and would lose digits."""
        limits, largest = np.finfo(np.float32), np.abs(self.weight).max(axis=0)
        fits = (largest == 0) | ((largest > limits.tiny / limits.eps) & (largest < limits.max))
        if not (fits.all() and (np.abs(self.bias) < limits.max).all()):
            return None
        single = LinearMap(self.weight.astype(np.float32), self.bias.astype(np.float32))
        factors = None if self._low_rank is None else tuple(factor.astype(np.float32) for factor in self._low_rank)
        single.__dict__["_low_rank"] = factors  # set here, because rounding hides the low rank
        return single

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
        linear_map = self if dtype == np.float64 else self._single or self
        if out is None:
            out = np.empty(shape, dtype)
        elif out.shape != shape or out.dtype != dtype:
            raise InputError(
                f"{where}: out must have shape {shape} and dtype {dtype}; got {out.shape} and {out.dtype}."
            )
        _ = linear_map._diagonal is None and linear_map._low_rank  # computed once, before the threads start

        def map_block(start: int) -> None:
            block, mapped = array[start : start + _BLOCK_ROWS], out[start : start + _BLOCK_ROWS]
            with np.errstate(over="ignore", invalid="ignore"):
                is_finite = linear_map._map(block, mapped)
            if not is_finite:
                _check.finite_rows(where, "rows", block, start)
                raise InputError(f"{where}: rows must map to values within {dtype}; some do not, from row {start} on.")

        over_blocks(map_block, len(array), _BLOCK_ROWS)
        return out

    def _map(self, rows: NDArray[Any], out: NDArray[np.floating]) -> bool:
        """Write the mapped rows, computed in the dtype of this map; return whether all are finite."""
        if out.dtype != self.weight.dtype:  # float32 rows, and a map that float32 cannot hold
            mapped = np.empty(out.shape, self.weight.dtype)
            is_finite = self._map(rows, mapped)
            out[:] = mapped
            return is_finite and bool(np.isfinite(out).all())
        rows = rows.astype(out.dtype, copy=False)
        if self._diagonal is not None:
            np.multiply(rows, self._diagonal, out=out)
            is_finite = bool(np.isfinite(out.sum(dtype=np.float64)))
        else:
            if self._low_rank is not None:
                left, right = self._low_rank
                np.add(rows, (rows @ left) @ right, out=out)  # `out` may be the rows themselves
            else:
                np.matmul(rows, self.weight, out=out)
            is_finite = bool(np.isfinite(out[:, 0]).all())  # NaN or infinity spreads to the whole row
        out += self.bias
        return is_finite

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
