"""From moments and settings to a whitening map."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError, RankWarning
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.shrinkage import SHRINKAGES
from isosent.numeric.spectral_rule import spectral_strength
from isosent.numeric.spectrum import Spectrum, inverse_deviations, spectrum
from isosent.numeric.width import width_of_share, width_within_spread
from isosent.transforms.moment_transform import Solution, check_size

METHODS = ("pca", "zca", "pca_cor", "zca_cor", "cholesky")
AUTO = "auto"
AUTO_LOSS = 0.05


@dataclass(frozen=True, slots=True)
class WhiteningSettings:
    """The settings of a whitening, checked.

    Parameters
    ----------
    n_components : int, float, "auto" or None
        Axes kept; a float is a share of the variance.
    method : str
        One of `METHODS`.
    strength : float or "auto"
        Exponent of the variances.
    shrinkage : float, str or None
        Pull towards a multiple of the identity.
    center : bool
        Whether the mean is subtracted.
    eps : float
        Added to the variances before they are evened out.
    """

    n_components: int | float | str | None = None
    method: str = "pca"
    strength: float | str = 1.0
    shrinkage: float | str | None = None
    center: bool = True
    eps: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class WhiteningSolution(Solution):
    """A whitening map and the figures it was made of.

    Parameters
    ----------
    spectrum : Spectrum
        Eigenpairs of the matrix that was decomposed.
    n_axes : int
        Axes kept.
    strength : float
        Strength in force.
    shrinkage : float
        Shrinkage in force.
    """

    spectrum: Spectrum = field(kw_only=True)
    n_axes: int = field(kw_only=True)
    strength: float = field(kw_only=True)
    shrinkage: float = field(kw_only=True)


def solve_whitening(name: str, moments: Moments, settings: WhiteningSettings) -> WhiteningSolution:
    r"""Solve for the map of a whitening.

    Parameters
    ----------
    name : str
        Who asks, for messages.
    moments : Moments
        Of at least one row.
    settings : WhiteningSettings
        What is wanted.

    Returns
    -------
    WhiteningSolution
        The map and the figures behind it.

    Raises
    ------
    InputError
        If the rows do not vary, or are too large or too small, see `check_size`.

    Warns
    -----
    RankWarning
        If the rows vary along fewer axes than asked for.

    Notes
    -----
    Every method is one map :math:`S\, U_k (\Lambda_k + \varepsilon)^{-\gamma/2} Q` with :math:`U \Lambda U^\top` the
    eigenpairs of the covariance, or of the correlation for the ``_cor`` methods, S the inverse standard deviations
    there and the identity elsewhere, and Q a matrix of orthonormal rows: the identity for PCA, :math:`U_k^\top` for
    ZCA, and for Cholesky the one that makes the map lower triangular.
    """
    check_size(name, moments)
    strength = spectral_strength(moments) if isinstance(settings.strength, str) else float(settings.strength)
    if not settings.center:
        moments = moments.about_zero()
    shrinkage, covariance = _shrinkage(moments, settings.shrinkage), moments.covariance
    if shrinkage:
        level = np.trace(covariance) / moments.dim
        covariance = (1 - shrinkage) * covariance + shrinkage * level * np.eye(moments.dim)
    scale, noise = np.ones(moments.dim), moments.rounding_variance
    if settings.method.endswith("_cor"):
        scale = inverse_deviations(covariance.diagonal(), noise)
        covariance, noise = covariance * np.outer(scale, scale), noise * scale**2
    found = spectrum(covariance, noise=noise)
    if found.rank == 0:
        raise InputError(
            f"{name}: the rows must vary; got rank 0, as with n_samples = 1 or rows that are all equal. "
            "Fit on more texts."
        )
    n_axes = _n_axes(name, moments, found, settings.n_components, strength)
    axes, roots = found.vectors[:, :n_axes], (found.values[:n_axes] + settings.eps) ** (strength / 2)
    weight = _turned(settings.method, scale[:, None] * axes / roots, axes)
    return WhiteningSolution(
        LinearMap(weight, -moments.mean @ weight),
        moments.mean,
        spectrum=found,
        n_axes=n_axes,
        strength=strength,
        shrinkage=shrinkage,
    )


def _shrinkage(moments: Moments, wanted: float | str | None) -> float:
    return SHRINKAGES[wanted](moments) if isinstance(wanted, str) else float(wanted or 0.0)


def _turned(method: str, weight: NDArray[np.float64], axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The map of PCA times the matrix of orthonormal rows that tells the methods apart."""
    if method.startswith("zca"):
        return weight @ axes.T
    if method == "cholesky":
        _, upper = np.linalg.qr(weight.T)
        lower: NDArray[np.float64] = (upper * np.where(upper.diagonal() < 0, -1.0, 1.0)[:, None]).T
        return lower
    return weight


def _n_axes(name: str, moments: Moments, found: Spectrum, wanted: int | float | str | None, strength: float) -> int:
    """Axes kept: those asked for, as far as the rank reaches."""
    values = found.values[: found.rank]
    if isinstance(wanted, str):
        return width_within_spread(values ** (1 - strength), AUTO_LOSS)
    if isinstance(wanted, (float, np.floating)):
        return width_of_share(values, float(wanted))
    asked = moments.dim if wanted is None else int(wanted)
    if found.rank < asked:
        rows = moments.weight
        warnings.warn(
            f"{name}: components kept: {found.rank} instead of {asked}, because the {rows:g} rows vary along "
            f"{found.rank} of their {moments.dim} axes and the rest is rounding noise."
            f"{' Fit on more texts for more.' if rows <= asked else ''}",
            RankWarning,
            stacklevel=2,
        )
    return min(asked, found.rank)
