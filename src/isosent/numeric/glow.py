"""The fitted normalizing flow of BERT-flow: forward, inverse, log-determinant, in numpy alone."""

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

Rows = NDArray[np.floating]
Layer = tuple[NDArray[np.floating], NDArray[np.floating]]


def kept_dim(dim: int) -> int:
    """Dimensions of the first half: those that a coupling leaves alone, and that a level hands on."""
    return dim - dim // 2


@dataclass(frozen=True, slots=True, eq=False)
class GlowStep:
    """One step of the flow: activation normalisation, mixing of the dimensions, additive coupling."""

    shift: NDArray[np.floating]  # activation normalisation: ``(x + shift) * exp(log_scale)``
    log_scale: NDArray[np.floating]  # activation normalisation: ``(x + shift) * exp(log_scale)``
    # An order of the dimensions, or the matrix that a row is multiplied with from the right: Glow's 1x1 convolution
    mixing: NDArray[Any]
    # Layers with rectified linear units between; from the first half of the dimensions to what is added to the rest
    network: tuple[Layer, ...]

    @property
    def dim(self) -> int:
        """Dimensions of the rows."""
        return len(self.shift)

    @property
    def log_determinant(self) -> float:
        """Logarithm of the Jacobian's determinant, which is the same for every row: coupling adds nothing to it."""
        of_mixing = np.linalg.slogdet(self.mixing.astype(np.float64)).logabsdet if self.mixing.ndim == 2 else 0.0
        return float(self.log_scale.sum(dtype=np.float64) + of_mixing)

    def forward(self, rows: Rows) -> Rows:
        """Take rows through the step; parameters as for `Glow.forward`, not checked."""
        normed = (rows + self.shift) * np.exp(self.log_scale)
        mixed: Rows = normed @ self.mixing if self.mixing.ndim == 2 else normed[:, self.mixing]
        kept = kept_dim(self.dim)
        mixed[:, kept:] += self._coupling(mixed[:, :kept])
        return mixed

    def inverse(self, rows: Rows) -> Rows:
        """Take rows back through the step; parameters as for `Glow.inverse`, not checked."""
        mixed, kept = rows.copy(), kept_dim(self.dim)
        mixed[:, kept:] -= self._coupling(mixed[:, :kept])
        if self.mixing.ndim == 2:
            normed = np.linalg.solve(self.mixing.T, mixed.T).T
        else:
            normed = np.empty_like(mixed)
            normed[:, self.mixing] = mixed
        unscaled: Rows = normed * np.exp(-self.log_scale) - self.shift
        return unscaled

    def astype(self, dtype: type[np.floating]) -> GlowStep:
        """Return the step with its numbers in another type."""
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
        moved: Rows = rows @ weight + bias
        return moved


def check_step(step: GlowStep, dim: int) -> None:
    """Refuse a step that does not fit between its neighbours."""
    widths = [kept_dim(dim), *(weight.shape[-1] for weight, _ in step.network)]
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
        raise InputError(f"Glow: the shapes of a step must agree, at {dim} dimensions; those of one do not.")
    if step.mixing.ndim == 1 and not np.array_equal(np.sort(step.mixing), np.arange(dim)):
        raise InputError(f"Glow: mixing must hold each of 0 ... {dim - 1} once; one does not.")
    if not all(np.isfinite(array).all() for array in (step.shift, step.log_scale, step.mixing, *sum(step.network, ()))):
        raise InputError("Glow: all numbers must be finite; got NaN or infinity.")


_BLOCK_ROWS = 4096

_Levels = tuple[tuple[GlowStep, ...], ...]


@dataclass(frozen=True, eq=False, repr=False)
class Glow:
    """A flow from vectors to a standard Gaussian: invertible, with an exact likelihood."""

    # The flow of Li et al. 2020: Glow (Kingma & Dhariwal 2018) with additive coupling, on a vector instead of an
    # image. Rows in float64 are computed with in float64, all others in float32.

    # Steps of each level. Behind each level but the last, the second half of the dimensions leaves for the result
    levels: _Levels

    def __post_init__(self) -> None:
        if not self.levels or not all(self.levels):
            raise InputError("Glow: levels must hold at least one step each; got none.")
        dim = self.dim
        for level in self.levels:
            for step in level:
                check_step(step, dim)
            dim = kept_dim(dim)

    def __reduce__(self) -> tuple[Any, ...]:
        return Glow, (self.levels,)

    def __repr__(self) -> str:
        return f"<Glow of {self.dim} dimensions, {len(self.levels)} levels>"

    @property
    def dim(self) -> int:
        """Dimensions of the vectors that go in, and of those that come out."""
        return self.levels[0][0].dim

    @cached_property
    def log_determinant(self) -> float:
        """Logarithm of the absolute value of the Jacobian's determinant, the same for every row, in nats."""
        return sum(step.log_determinant for level in self.levels for step in level)

    def forward(self, rows: ArrayLike) -> Rows:
        """Take vectors to the Gaussian."""
        return self._by_blocks("Glow.forward", rows, _forward)

    def inverse(self, latents: ArrayLike) -> Rows:
        """Take vectors back: the inverse of `forward`."""
        return self._by_blocks("Glow.inverse", latents, _inverse)

    def log_likelihood(self, rows: ArrayLike) -> NDArray[np.float64]:
        """Logarithm of the density of each row."""
        # :math:`\log p(x) = \log N(f(x); 0, I) + \log |\det \partial f / \partial x|`, Li et al. 2020, equation 4.
        latents = self.forward(rows).astype(np.float64, copy=False)
        norms = np.einsum("ij,ij->i", latents, latents)
        densities: NDArray[np.float64] = self.log_determinant - 0.5 * (norms + self.dim * np.log(2 * np.pi))
        return densities

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all numbers as named arrays, which `from_arrays` takes."""
        found: dict[str, NDArray[Any]] = {}
        for i, level in enumerate(self.levels):
            for j, step in enumerate(level):
                own = {"shift": step.shift, "log_scale": step.log_scale, "mixing": step.mixing}
                for k, (weight, bias) in enumerate(step.network):
                    own |= {f"weight.{k}": weight, f"bias.{k}": bias}
                found |= {f"{i}.{j}.{name}": array for name, array in own.items()}
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Glow:
        """Make a flow of what `arrays` returned."""
        try:
            places = sorted({(int(i), int(j)) for i, j, *_ in (name.split(".") for name in arrays)})
            return cls(
                tuple(
                    tuple(_step_of(arrays, f"{i}.{j}.") for i, j in of_level)
                    for _, of_level in groupby(places, key=lambda place: place[0])
                )
            )
        except (KeyError, ValueError) as error:
            raise InputError(f"Glow: the arrays must be those of a flow; they are not: {error}.") from None

    @cached_property
    def _in_single(self) -> _Levels:
        return _cast(self.levels, np.float32)

    @cached_property
    def _in_double(self) -> _Levels:
        return _cast(self.levels, np.float64)

    def _by_blocks(self, where: str, rows: ArrayLike, take: Callable[[_Levels, Rows], Rows]) -> Rows:
        array = _check.matrix(where, "rows", rows)
        _check.same_dim(where, "rows", array.shape[1], self.dim)
        levels, dtype = (self._in_double, "float64") if array.dtype == np.float64 else (self._in_single, "float32")
        result = np.empty(array.shape, dtype)

        def take_block(start: int) -> None:
            block = array[start : start + _BLOCK_ROWS]
            with np.errstate(over="ignore", invalid="ignore"):
                taken = take(levels, block.astype(dtype, copy=False))
            if not np.isfinite(taken).all():
                _check.finite_rows(where, "rows", block, start)
                raise InputError(f"{where}: rows must map to values within {dtype}; those behind row {start} do not.")
            result[start : start + _BLOCK_ROWS] = taken

        over_blocks(take_block, len(array), _BLOCK_ROWS)
        return result


def bits_per_dimension(log_likelihood: float, dim: int) -> float:
    """Negative log-likelihood in bits per dimension, the loss of the fit: lower is likelier."""
    return float(-log_likelihood / (dim * np.log(2)))


def _forward(levels: _Levels, rows: Rows) -> Rows:
    leaving = []
    for number, level in enumerate(levels, start=1):
        for step in level:
            rows = step.forward(rows)
        if number < len(levels):
            kept = kept_dim(rows.shape[1])
            leaving.append(rows[:, kept:])
            rows = rows[:, :kept]
    return np.hstack([*leaving, rows])


def _inverse(levels: _Levels, latents: Rows) -> Rows:
    widths = [level[0].dim // 2 for level in levels[:-1]]
    *left, rows = np.hsplit(latents, np.cumsum(widths)) if widths else [latents]
    for number in range(len(levels) - 1, -1, -1):
        if number < len(left):
            rows = np.hstack([rows, left[number]])
        for step in reversed(levels[number]):
            rows = step.inverse(rows)
    return rows


def _cast(levels: _Levels, dtype: type[np.floating]) -> _Levels:
    return tuple(tuple(step.astype(dtype) for step in level) for level in levels)


def _step_of(arrays: Mapping[str, NDArray[Any]], place: str) -> GlowStep:
    n_layers = sum(name.startswith(f"{place}weight.") for name in arrays)
    network = tuple((arrays[f"{place}weight.{k}"], arrays[f"{place}bias.{k}"]) for k in range(n_layers))
    return GlowStep(arrays[f"{place}shift"], arrays[f"{place}log_scale"], arrays[f"{place}mixing"], network)
