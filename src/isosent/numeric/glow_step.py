"""One step of the flow of BERT-flow, fitted: forward, inverse, log-determinant, in numpy alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError

Rows = NDArray[np.floating]
Layer = tuple[NDArray[np.floating], NDArray[np.floating]]


def kept_dim(dim: int) -> int:
    """Dimensions of the first half: those that a coupling leaves alone, and that a level hands on.

    Parameters
    ----------
    dim : int
        All dimensions.

    Returns
    -------
    int
        Half of them, rounded up.
    """
    return dim - dim // 2


@dataclass(frozen=True, slots=True, eq=False)
class GlowStep:
    """One step of the flow: activation normalisation, mixing of the dimensions, additive coupling.

    Parameters
    ----------
    shift, log_scale : ndarray of shape (dim,)
        Activation normalisation: ``(x + shift) * exp(log_scale)``.
    mixing : ndarray of shape (dim,), integer, or (dim, dim), float
        An order of the dimensions, or the matrix that a row is multiplied with from the right: Glow's 1x1 convolution.
    network : tuple of (weight, bias)
        Layers with rectified linear units between; from the first half of the dimensions to what is added to the rest.
    """

    shift: NDArray[np.floating]
    log_scale: NDArray[np.floating]
    mixing: NDArray[Any]
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
    """Refuse a step that does not fit between its neighbours.

    Parameters
    ----------
    step : GlowStep
        The step.
    dim : int
        Dimensions of its rows.

    Raises
    ------
    InputError
        If a shape is another one, an order leaves a dimension out, or a number is not finite.
    """
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
