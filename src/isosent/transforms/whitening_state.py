"""What a whitening has seen, and the map that follows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError, RankWarning
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.spectrum import Spectrum, spectrum


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What rows tell.

    Parameters
    ----------
    moments : Moments
        Their moments.
    eps : float
        Relative rounding of the coarsest dtype among them.
    """

    moments: Moments
    eps: float

    def __add__(self, other: Seen) -> Seen:
        return Seen(self.moments + other.moments, max(self.eps, other.eps))


@dataclass(frozen=True, eq=False)
class WhiteningState:
    """What was seen, the settings in force then, and what follows from both, computed when it is asked for.

    Parameters
    ----------
    seen : Seen
        What the rows told.
    n_components_wanted : int or None
        Components asked for; None for all.
    strength : float
        Exponent of the variances, in [0, 1].
    """

    seen: Seen
    n_components_wanted: int | None
    strength: float

    @cached_property
    def spectrum(self) -> Spectrum:
        """Eigenpairs of the covariance, and the rank; refused where the rows do not vary."""
        moments, eps = self.seen.moments, self.seen.eps
        found = spectrum(moments.covariance, noise=moments.rounding_variance(eps))
        if found.rank == 0:
            raise InputError(
                "Whitening: the rows must vary; got rank 0, as with n_samples = 1 or rows that are all equal. "
                "Fit on more texts."
            )
        return found

    @cached_property
    def n_components(self) -> int:
        """Components kept: those asked for, as far as the rank reaches."""
        wanted = self.n_components_wanted or self.seen.moments.dim
        kept = min(wanted, self.spectrum.rank)
        if kept < wanted:
            rows = self.seen.moments.weight
            warnings.warn(
                f"Whitening: components kept: {kept} instead of {wanted}, because the {rows:g} rows vary along "
                f"{kept} of their {self.seen.moments.dim} axes and the rest is rounding noise."
                f"{' Fit on more texts for more.' if rows <= wanted else ''}",
                RankWarning,
                stacklevel=2,
            )
        return kept

    @cached_property
    def linear_map(self) -> LinearMap:
        r"""Weight :math:`U_k \Lambda_k^{-\gamma/2}` and bias :math:`-\mu W`."""
        weight = self._axes * self._kept_values ** (-self.strength / 2)
        return LinearMap(weight, -self.seen.moments.mean @ weight)

    @cached_property
    def inverse_map(self) -> LinearMap:
        r"""Weight :math:`\Lambda_k^{\gamma/2} U_k^\top` and bias :math:`\mu`."""
        return LinearMap((self._axes * self._kept_values ** (self.strength / 2)).T, self.seen.moments.mean)

    @property
    def _axes(self) -> NDArray[np.float64]:
        return self.spectrum.vectors[:, : self.n_components]

    @property
    def _kept_values(self) -> NDArray[np.float64]:
        return self.spectrum.values[: self.n_components]
