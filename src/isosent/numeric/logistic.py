"""Logistic regressions with a quadratic penalty: many over the same rows, fitted at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from isosent.errors import InputError

_LARGEST_SLOPE = 1e-4
_MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class LogisticFits:
    """Logistic regressions over the same columns."""

    weight: NDArray[np.float64]  # coefficients. Two classes have one output, that of the second one; more have one each
    bias: NDArray[np.float64]  # intercepts

    def one(self, fit: int) -> LogisticFits:
        """Return one of the fits alone."""
        return LogisticFits(self.weight[:, :, fit : fit + 1], self.bias[:, fit : fit + 1])

    def probabilities(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Probability of each class."""
        told = _probabilities(np.tensordot(rows, self.weight, 1) + self.bias)
        return told if told.shape[1] > 1 else np.concatenate([1 - told, told], axis=1)


def logistic_path(
    rows: NDArray[np.floating],
    targets: NDArray[np.floating],
    weights: NDArray[np.floating],
    Cs: Sequence[float],
) -> list[LogisticFits]:
    """Fit logistic regressions on the same rows, one for each weighting of them, along a path of penalties."""
    # Each fit minimises :math:`\sum_i w_i H(t_i, p(x_i)) + \lVert W \rVert^2 / 2C`, with the cross entropy :math:`H`
    # of the target and the softmax, for two classes the logistic function, of :math:`x W + b`; the intercept bears no
    # penalty. So does scikit-learn's ``LogisticRegression(C=C)``, where a soft target is a row for each class with
    # its probability as ``sample_weight``.
    # All fits are minimised together by L-BFGS: a step is two products of matrices. It walks in coordinates in which
    # the curvature is near the identity: a Cholesky factor of each output's block of the Hessian, at the start and
    # averaged over the fits, is divided out. So ten steps do where plain coordinates need hundreds. The walk ends
    # where no slope in these coordinates exceeds 1e-4, which means the same for long and short rows. To add the same
    # to the coefficients of all classes changes no probability; that part of a step is not taken. Float64.
    mass = targets.T.astype(np.float64) @ weights
    if not (mass > 0).all():
        lacking, fit = np.argwhere(~(mass > 0))[0]
        raise InputError(
            f"logistic_path: every fit must have rows of every class; fit {fit} has none of class {lacking}."
        )
    outputs = slice(1, None) if len(mass) == 2 else slice(None)
    design = np.column_stack([rows, np.ones(len(rows))]).astype(np.float64, copy=False)
    weight = np.zeros((design.shape[1], *mass[outputs].shape))
    weight[-1] = _without_mean(np.log(mass / mass[0])[outputs], axis=0)
    path = []
    for C in Cs:
        penalty = np.append(np.full(rows.shape[1], 1 / C), 0.0)
        weight = _minimum(design, targets[:, outputs], weights, penalty, weight)
        path.append(LogisticFits(weight[:-1], weight[-1]))
    return path


def _minimum(
    design: NDArray[np.float64],
    targets: NDArray[np.floating],
    weights: NDArray[np.floating],
    penalty: NDArray[np.float64],
    start: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Coefficients, shape (dim + 1, n_outputs, n_fits), of the least penalised cross entropy, sought from a start."""
    bases = _bases(design, weights, penalty, start)
    size = len(bases), len(design.T), weights.shape[1]

    def moved(flat: NDArray[np.float64]) -> NDArray[np.float64]:
        return start + _without_mean(np.moveaxis(bases @ flat.reshape(size), 0, 1), axis=1)

    def loss_and_slope(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weight = moved(flat)
        outputs = np.tensordot(design, weight, 1)
        total = _log_total(outputs)
        loss = np.vdot(weights, total[:, 0] - np.einsum("ijk,ij->ik", outputs, targets))
        excess = (np.exp(outputs - total) - targets[:, :, None]) * weights[:, None]
        penalised = penalty[:, None, None] * weight
        slope = _without_mean(np.tensordot(design.T, excess, 1) + penalised, axis=1)
        along = bases.transpose(0, 2, 1) @ np.moveaxis(slope, 1, 0)
        return float(loss + np.vdot(penalised, weight) / 2), along.ravel()

    found = scipy.optimize.minimize(
        loss_and_slope,
        np.zeros(start.size),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": _LARGEST_SLOPE, "ftol": 0, "maxiter": _MOST_STEPS, "maxfun": 2 * _MOST_STEPS},
    )
    return moved(found.x)


def _bases(
    design: NDArray[np.float64],
    weights: NDArray[np.floating],
    penalty: NDArray[np.float64],
    weight: NDArray[np.float64],
) -> NDArray[np.float64]:
    """For each output, coordinates in which its block of the Hessian, averaged over the fits, is the identity."""
    likely = _probabilities(np.tensordot(design, weight, 1))
    curvature = np.einsum("ijk,ik->ji", likely * (1 - likely), weights) / weights.shape[1]
    bases = []
    for of_rows in curvature:
        rooted = np.sqrt(of_rows)[:, None] * design
        bases.append(np.linalg.inv(np.linalg.cholesky(rooted.T @ rooted + np.diag(penalty))).T)
    return np.stack(bases)


def _probabilities(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(outputs - _log_total(outputs))


def _log_total(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the sum of exponentials over the outputs; one alone stands against another that is 0."""
    alone = outputs.shape[1] == 1
    return np.logaddexp.reduce(outputs, axis=1, keepdims=True, initial=0.0 if alone else -np.inf)


def _without_mean(values: NDArray[np.float64], *, axis: int) -> NDArray[np.float64]:
    """Values about their mean over the outputs; one output alone has none."""
    return values if values.shape[axis] == 1 else values - values.mean(axis=axis, keepdims=True)
