"""How far a covariance is pulled towards a multiple of the identity."""

import numpy as np

from isosent.errors import InputError
from isosent.numeric.moments import Moments


def oas_shrinkage(moments: Moments) -> float:
    r"""Oracle approximating shrinkage of a covariance.

    Parameters
    ----------
    moments : Moments
        Of at least one row.

    Returns
    -------
    float
        In [0, 1].

    Notes
    -----
    Chen, Wiesel, Eldar & Hero 2010, *Shrinkage Algorithms for MMSE Covariance Estimation*, equation 23, with the terms
    in 2/dim left out as scikit-learn does: exact for Gaussian rows, few against the dimensions.
    """
    covariance, dim, n_rows = moments.covariance, moments.dim, moments.weight
    mean_square, level = float(np.mean(covariance**2)), float(np.trace(covariance)) / dim
    denominator = (n_rows + 1) * (mean_square - level**2 / dim)
    return 1.0 if denominator <= 0 else min(1.0, (mean_square + level**2) / denominator)


def ledoit_wolf_shrinkage(moments: Moments) -> float:
    r"""Ledoit-Wolf shrinkage of a covariance.

    Parameters
    ----------
    moments : Moments
        Of at least one row, with radial moments.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    InputError
        If the moments were taken without their radial part.

    Notes
    -----
    :math:`\min(\beta^2, \delta^2) / \delta^2` with
    :math:`\delta^2 = \lVert \Sigma \rVert_F^2 - \mathrm{tr}(\Sigma)^2 / d` and
    :math:`\beta^2 = \frac{1}{n} (\frac{1}{n} \sum_i \lVert y_i \rVert^4 - \lVert \Sigma \rVert_F^2)`; Ledoit & Wolf
    2004, *A Well-Conditioned Estimator for Large-Dimensional Covariance Matrices*, lemmas 3.2 to 3.4.
    """
    if moments.radial is None:
        raise InputError(
            "ledoit_wolf: moments must hold radial moments; they were taken without. "
            "Take them with Moments.from_rows(rows, radial=True), or use shrinkage='oas'."
        )
    covariance, n_rows = moments.covariance, moments.weight
    squared = float(np.sum(covariance**2))
    distance = squared - float(np.trace(covariance)) ** 2 / moments.dim
    spread = (moments.radial.fourth / n_rows - squared) / n_rows
    return 0.0 if min(distance, spread) <= 0 else min(spread, distance) / distance


SHRINKAGES = {"ledoit_wolf": ledoit_wolf_shrinkage, "oas": oas_shrinkage}
