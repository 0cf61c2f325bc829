"""A fitted normalizing flow (BERT-flow): forward, inverse and likelihood, with numpy alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.numeric.threads import over_blocks

_BLOCK_ROWS = 4096

Rows = NDArray[np.floating]
Layer = tuple[NDArray[np.floating], NDArray[np.floating]]  # weight and bias


def first_half(dim: int) -> int:
    """Number of dimensions that a coupling leaves unchanged, and that the next level continues with."""
    return dim - dim // 2


@dataclass(frozen=True, slots=True, eq=False)
class GlowStep:
    """One step of the flow: activation normalisation, mixing of the dimensions, additive coupling."""

    shift: NDArray[np.floating]  # (dim,); activation normalisation is (x + shift) * exp(log_scale)
    log_scale: NDArray[np.floating]  # (dim,)
    mixing: NDArray[Any]  # (dim,), an order of the dimensions; or (dim, dim), W of x W (Glow's 1x1 convolution)
    network: tuple[Layer, ...]  # from the first half of the dimensions to what is added to the second; with ReLU

    @property
    def dim(self) -> int:
        """Dimensions of the rows."""
        return len(self.shift)

    @property
    def log_determinant(self) -> float:
        """Logarithm of the Jacobian's determinant, the same for every row; the coupling adds nothing to it."""
        mixing = np.linalg.slogdet(self.mixing.astype(np.float64)).logabsdet if self.mixing.ndim == 2 else 0.0
        return float(self.log_scale.sum(dtype=np.float64) + mixing)

    def forward(self, rows: Rows) -> Rows:
        """Apply the step to unchecked rows."""
        normed = (rows + self.shift) * np.exp(self.log_scale)
        mixed: Rows = normed @ self.mixing if self.mixing.ndim == 2 else normed[:, self.mixing]
        half = first_half(self.dim)
        mixed[:, half:] += self._coupling(mixed[:, :half])
        return mixed

    def inverse(self, rows: Rows) -> Rows:
        """Undo the step."""
        mixed, half = rows.copy(), first_half(self.dim)
        mixed[:, half:] -= self._coupling(mixed[:, :half])
        if self.mixing.ndim == 2:
            normed = np.linalg.solve(self.mixing.T, mixed.T).T
        else:
            normed = np.empty_like(mixed)
            normed[:, self.mixing] = mixed
        return normed * np.exp(-self.log_scale) - self.shift

    def astype(self, dtype: type[np.floating]) -> GlowStep:
        """Return the step in another dtype."""
        return GlowStep(
            self.shift.astype(dtype),
            self.log_scale.astype(dtype),
            self.mixing.astype(dtype) if self.mixing.ndim == 2 else self.mixing,
            tuple((weight.astype(dtype), bias.astype(dtype)) for weight, bias in self.network),
        )

    def _coupling(self, rows: Rows) -> Rows:
        for weight, bias in self.network[:-1]:
            rows = np.maximum(rows @ weight + bias, 0)
        weight, bias = self.network[-1]
        return rows @ weight + bias


_Levels = tuple[tuple[GlowStep, ...], ...]


@dataclass(frozen=True, eq=False, repr=False)
class Glow:
    """A flow from vectors to a standard Gaussian: invertible, with an exact likelihood."""

    # The flow of Li et al. 2020: Glow (Kingma & Dhariwal 2018) with additive coupling, on vectors instead of images.
    # After each level but the last, the second half of the dimensions goes to the result. float64 rows are computed in
    # float64, all others in float32.

    levels: _Levels  # steps of each level

    def __post_init__(self) -> None:
        if not self.levels or not all(self.levels):
            raise InputError("a level has no step.", where="Glow")
        dim = self.dim
        for level in self.levels:
            for step in level:
                _check_step(step, dim)
            dim = first_half(dim)

    def __reduce__(self) -> tuple[Any, ...]:
        return Glow, (self.levels,)

    def __repr__(self) -> str:
        return f"<Glow of {self.dim} dimensions, {len(self.levels)} levels>"

    @property
    def dim(self) -> int:
        """Dimensions of the vectors and of the latents."""
        return self.levels[0][0].dim

    @cached_property
    def log_determinant(self) -> float:
        """Logarithm of the absolute Jacobian determinant in nats, the same for every row."""
        return sum(step.log_determinant for level in self.levels for step in level)

    def forward(self, rows: ArrayLike) -> Rows:
        """Map vectors to latents, both (n_rows, dim)."""
        return self._by_blocks("Glow", rows, _forward)

    def inverse(self, latents: ArrayLike) -> Rows:
        """Map latents back to vectors."""
        return self._by_blocks("Glow", latents, _inverse)

    def log_likelihood(self, rows: ArrayLike) -> NDArray[np.float64]:
        """Logarithm of the density of each row in nats, (n_rows,)."""
        # log p(x) = log N(f(x); 0, I) + log |det df/dx|, Li et al. 2020, equation 4
        latents = self.forward(rows).astype(np.float64, copy=False)
        norms = np.einsum("ij,ij->i", latents, latents)
        return self.log_determinant - 0.5 * (norms + self.dim * np.log(2 * np.pi))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all numbers as named arrays for `from_arrays`; the names are those of model folders."""
        arrays: dict[str, NDArray[Any]] = {}
        for i, level in enumerate(self.levels):
            for j, step in enumerate(level):
                step_arrays = {"shift": step.shift, "log_scale": step.log_scale, "mixing": step.mixing}
                for k, (weight, bias) in enumerate(step.network):
                    step_arrays |= {f"weight.{k}": weight, f"bias.{k}": bias}
                arrays |= {f"{i}.{j}.{name}": array for name, array in step_arrays.items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Glow:
        """Make a flow from the result of `arrays`."""

        def step(i: int, j: int) -> GlowStep:
            prefix = f"{i}.{j}."
            n_layers = sum(name.startswith(f"{prefix}weight.") for name in arrays)
            network = tuple((arrays[f"{prefix}weight.{k}"], arrays[f"{prefix}bias.{k}"]) for k in range(n_layers))
            return GlowStep(arrays[f"{prefix}shift"], arrays[f"{prefix}log_scale"], arrays[f"{prefix}mixing"], network)

        try:
            positions = sorted({(int(i), int(j)) for i, j, *_ in (name.split(".") for name in arrays)})
            by_level = groupby(positions, key=lambda position: position[0])
            return cls(tuple(tuple(step(i, j) for i, j in level) for _, level in by_level))
        except (KeyError, ValueError) as error:
            raise InputError(f"the arrays are not those of a flow: {error}.", where="Glow") from None

    @cached_property
    def _in_single(self) -> _Levels:
        return tuple(tuple(step.astype(np.float32) for step in level) for level in self.levels)

    @cached_property
    def _in_double(self) -> _Levels:
        return tuple(tuple(step.astype(np.float64) for step in level) for level in self.levels)

    def _by_blocks(self, where: str, rows: ArrayLike, apply: Callable[[_Levels, Rows], Rows]) -> Rows:
        array = _check.matrix(where, "rows", rows)
        _check.same_dim(where, "rows", array.shape[1], self.dim)
        is_double = array.dtype == np.float64
        levels, dtype = (self._in_double, np.float64) if is_double else (self._in_single, np.float32)
        result = np.empty(array.shape, dtype)

        def apply_to_block(start: int) -> None:
            block = array[start : start + _BLOCK_ROWS]
            with np.errstate(over="ignore", invalid="ignore"):
                mapped = apply(levels, block.astype(dtype, copy=False))
            if not np.isfinite(mapped).all():
                _check.finite_rows(where, "rows", block, start)
                raise InputError(f"rows map to values beyond {result.dtype}, from row {start} on.", where=where)
            result[start : start + _BLOCK_ROWS] = mapped

        over_blocks(apply_to_block, len(array), _BLOCK_ROWS)
        return result


def _forward(levels: _Levels, rows: Rows) -> Rows:
    latents = []  # what each level but the last hands to the result
    for number, level in enumerate(levels, start=1):
        for step in level:
            rows = step.forward(rows)
        if number < len(levels):
            half = first_half(rows.shape[1])
            latents.append(rows[:, half:])
            rows = rows[:, :half]
    return np.hstack([*latents, rows])


def _inverse(levels: _Levels, latents: Rows) -> Rows:
    widths = [level[0].dim // 2 for level in levels[:-1]]
    *parts, rows = np.hsplit(latents, np.cumsum(widths)) if widths else [latents]
    for number in range(len(levels) - 1, -1, -1):
        if number < len(parts):
            rows = np.hstack([rows, parts[number]])
        for step in reversed(levels[number]):
            rows = step.inverse(rows)
    return rows


def _check_step(step: GlowStep, dim: int) -> None:
    """Refuse a step that does not fit between its neighbors, at `dim` dimensions."""
    widths = [first_half(dim), *(weight.shape[-1] for weight, _ in step.network)]
    fits = (
        dim > 1
        and step.shift.shape == step.log_scale.shape == (dim,)
        and step.mixing.shape in ((dim,), (dim, dim))
        and widths[-1] == dim // 2
        and all(
            weight.shape == (width, after) and bias.shape == (after,)
            for (weight, bias), width, after in zip(step.network, widths, widths[1:], strict=False)
        )
    )
    if not fits:
        raise InputError(f"the shapes of a step do not agree, at {dim} dimensions.", where="Glow")
    if step.mixing.ndim == 1 and not np.array_equal(np.sort(step.mixing), np.arange(dim)):
        raise InputError(f"mixing does not hold each of 0 to {dim - 1} once.", where="Glow")
    if not all(np.isfinite(array).all() for array in (step.shift, step.log_scale, step.mixing, *sum(step.network, ()))):
        raise InputError("some numbers are NaN or infinity.", where="Glow")
