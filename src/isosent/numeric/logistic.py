"""Logistic regressions with a quadratic penalty: many over the same rows, fitted at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError

_LARGEST_SLOPE = 1e-4
_MAX_STEPS = 10_000

Double = NDArray[np.float64]


class LogisticFits(NamedTuple):
    """Coefficients of logistic regressions; two classes have one output, that of the second class."""

    weight: Double  # (dim, n_outputs, n_fits)
    bias: Double  # (n_outputs, n_fits)

    def select(self, fit: int) -> LogisticFits:
        """Return a single fit."""
        return LogisticFits(self.weight[:, :, fit : fit + 1], self.bias[:, fit : fit + 1])

    def probabilities(self, rows: NDArray[np.floating]) -> Double:
        """Probability of each class, shape (n_rows, n_classes, n_fits)."""
        probabilities = _probabilities(np.tensordot(rows, self.weight, 1) + self.bias)
        if probabilities.shape[1] > 1:
            return probabilities
        return np.concatenate([1 - probabilities, probabilities], axis=1)


def logistic_path(
    rows: NDArray[np.floating],
    targets: NDArray[np.floating],
    weights: NDArray[np.floating],
    Cs: Sequence[float],
) -> list[LogisticFits]:
    """Fit one regression per column of `weights`, (n_rows, n_fits), for each penalty.

    Targets are probabilities of the classes, shape (n_rows, n_classes).
    """
    # Each fit minimises sum_i w_i H(t_i, p(x_i)) + |W|^2 / 2C, with H the cross entropy of the target and the softmax
    # (for two classes, the logistic function) of x W + b; the intercept has no penalty. That is scikit-learn's
    # LogisticRegression(C=C), where a soft target is one row per class with its probability as sample_weight.
    mass = targets.T.astype(np.float64) @ weights
    if not (mass > 0).all():
        missing, fit = np.argwhere(~(mass > 0))[0]
        raise InputError(f"fit {fit} has no rows of class {missing}.", where="logistic_path")
    outputs = slice(1, None) if len(mass) == 2 else slice(None)
    design = np.column_stack([rows, np.ones(len(rows))]).astype(np.float64, copy=False)
    weight = np.zeros((design.shape[1], *mass[outputs].shape))
    weight[-1] = _centered(np.log(mass / mass[0])[outputs], axis=0)
    path = []
    for C in Cs:
        penalty = np.append(np.full(rows.shape[1], 1 / C), 0.0)
        weight = _minimum(design, targets[:, outputs], weights, penalty, weight)  # each fit starts from the last one
        path.append(LogisticFits(weight[:-1], weight[-1]))
    return path


def _minimum(
    design: Double, targets: NDArray[np.floating], weights: NDArray[np.floating], penalty: Double, start: Double
) -> Double:
    """Coefficients of the least penalised cross entropy, shape (dim + 1, n_outputs, n_fits)."""
    # L-BFGS minimises all fits together: a step is two matrix products. It works in coordinates in which the curvature
    # is close to the identity, so that about ten steps are enough instead of hundreds. It stops when no slope in these
    # coordinates exceeds 1e-4, which means the same for long and short rows. Adding the same vector to the coefficients
    # of all classes changes no probability, so that part of a step is removed.
    from scipy.optimize import minimize

    bases = _bases(design, weights, penalty, start)
    size = len(bases), len(design.T), weights.shape[1]

    def moved(flat: Double) -> Double:
        return start + _centered(np.moveaxis(bases @ flat.reshape(size), 0, 1), axis=1)

    def loss_and_slope(flat: Double) -> tuple[float, Double]:
        weight = moved(flat)
        outputs = np.tensordot(design, weight, 1)
        total = _log_total(outputs)
        loss = np.vdot(weights, total[:, 0] - np.einsum("ijk,ij->ik", outputs, targets))
        excess = (np.exp(outputs - total) - targets[:, :, None]) * weights[:, None]
        penalized = penalty[:, None, None] * weight
        slope = _centered(np.tensordot(design.T, excess, 1) + penalized, axis=1)
        along = bases.transpose(0, 2, 1) @ np.moveaxis(slope, 1, 0)
        return float(loss + np.vdot(penalized, weight) / 2), along.ravel()

    result = minimize(
        loss_and_slope,
        np.zeros(start.size),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": _LARGEST_SLOPE, "ftol": 0, "maxiter": _MAX_STEPS, "maxfun": 2 * _MAX_STEPS},
    )
    return moved(result.x)


def _bases(design: Double, weights: NDArray[np.floating], penalty: Double, weight: Double) -> Double:
    """For each output, coordinates in which its block of the Hessian, averaged over the fits, is the identity."""
    probabilities = _probabilities(np.tensordot(design, weight, 1))
    curvatures = np.einsum("ijk,ik->ji", probabilities * (1 - probabilities), weights) / weights.shape[1]
    bases = []
    for curvature in curvatures:  # (n_rows,), of one output
        root = np.sqrt(curvature)[:, None] * design
        bases.append(np.linalg.inv(np.linalg.cholesky(root.T @ root + np.diag(penalty))).T)
    return np.stack(bases)


def _probabilities(outputs: Double) -> Double:
    return np.exp(outputs - _log_total(outputs))


def _log_total(outputs: Double) -> Double:
    """Logarithm of the sum of exponentials over the outputs; a single output is compared with 0."""
    is_single = outputs.shape[1] == 1
    return np.logaddexp.reduce(outputs, axis=1, keepdims=True, initial=0.0 if is_single else -np.inf)


def _centered(values: Double, *, axis: int) -> Double:
    """Subtract the mean over the outputs, unless there is only one."""
    return values if values.shape[axis] == 1 else values - values.mean(axis=axis, keepdims=True)
