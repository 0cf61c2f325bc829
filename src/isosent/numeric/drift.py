"""Whether mean and covariance differ between two sets of vectors, along which axes, and what that does to whitening."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, InputTypeError, wrong_value
from isosent.numeric.moments import Moments
from isosent.numeric.spectrum import spectrum
from isosent.numeric.statistics import holm

LEVEL = 0.05
FEWEST_ROWS = 20
Refit = Literal["yes", "no", "too few rows"]
Double = NDArray[np.float64]

# Half of the axes of each of eleven corpora have an excess kurtosis of at most 0.7 to 1.9 (bench/drift.py).
_ASSUMED_KURTOSIS = 3.0
# Halves of one set stay below, most different sets are above. With four rows a dimension, a whitening of strength 0.5
# is 0.3 points of Spearman below one fitted on all rows (docs/research/drift.md).
MOST_SPREAD = 1.15
_REFIT_ROWS_A_DIM = 4
_CHANGED = "The vectors have changed beyond chance."


@dataclass(frozen=True, slots=True)
class AxisDrift:
    """An axis along which the vectors have changed."""

    axis: int  # principal axis of both sets together, from 1, by variance
    dimension: int  # of the vectors, from 0, with the largest entry in the axis
    entry: float  # that entry of the unit vector; 1 if the axis is the dimension
    shift: float  # of the mean, in standard deviations of the old vectors
    variance_ratio: float  # new over old
    mean_p_value: float  # corrected for the number of axes
    variance_p_value: float  # the same; NaN if the kurtosis is unknown


class UnusualRow(NamedTuple):
    """A new vector that lies far from the old ones."""

    row: int  # of the new vectors, from 0
    distance: float  # length after a whitening of the old vectors (OAS shrinkage), over the root of the dimensions


@dataclass(frozen=True, slots=True)
class Drift:
    """What has changed from old to new vectors. All p-values are corrected for the number of axes."""

    is_changed: bool  # mean or covariance, at a level of 5% corrected for the two tests
    n_old: int
    n_new: int
    dim: int
    n_axes: int  # of both sets together, that vary
    knows_kurtosis: bool
    mean_p_value: float
    covariance_p_value: float
    mean_shift: (
        float  # cosine of two random new vectors, as the whitening of the old ones leaves it; 0 if nothing moved
    )
    spread: float  # root mean square of that cosine; NaN if the old vectors are too few for a whitening
    spread_expected: float  # the same if nothing had changed
    refit: Refit
    advice: str
    axes: tuple[AxisDrift, ...]  # with a p-value below 0.05, smallest first
    unusual: tuple[UnusualRow, ...] = ()  # the new vectors that are farthest from the old ones, farthest first


def drift(old: Moments, new: Moments, *, kurtosis: Double | None = None) -> Drift:
    r"""Test whether mean and covariance have changed, and say whether a whitening should be fitted again.

    Parameters
    ----------
    old, new : Moments
        Of the vectors that a whitening was or would be fitted on, and of later ones; weights count rows. At least 20
        rows each.
    kurtosis : ndarray of shape (n_axes,), optional
        Excess kurtosis along `shared_axes`, from `excess_kurtosis`. It needs the rows. Without it, see Notes.

    Returns
    -------
    Drift
        The p-values, the changed axes, two effect sizes in units of a cosine, and the recommendation.

    Raises
    ------
    InputError
        If the dimensions differ, a set has fewer than 20 rows, or all vectors are equal.

    Notes
    -----
    The axes are the principal axes of both sets together. Along axes that depend on the rows only through their total
    scatter, a test keeps the level that it has for a single Gaussian variable, in any dimension (Läuter, Glimm & Kropf
    1998). With axes of the old rows alone it would not: their variances are the largest and smallest of a sample, so
    new rows of the same kind seem to differ.

    Mean: Welch's t per axis (Welch 1947), which allows different variances. Covariance: the logarithm of the ratio of
    the variances per axis, with standard error :math:`\sqrt{(2 + \kappa_k) (1 / (n_o - 1) + 1 / (n_n - 1))}`, where
    :math:`\kappa_k` is the pooled excess kurtosis (Layard 1973). Both are corrected for the number of axes (Holm
    1979); the p-value of the mean or the covariance is the smallest one.

    Moments do not hold the kurtosis of an axis. Without `kurtosis`, an excess of at most 3 is assumed for most axes.
    The p-value of the covariance is then twice the median of those of the axes (Rüger 1978), which a few axes with
    heavier tails hardly move. So a change along a few axes remains unseen, and no axis is named for its variance.

    Rows count as independent. Repeated or related rows, such as the sentences of a document, make false positives more
    frequent. A rotation in a plane that leaves the variances along the shared axes equal is not seen by the tests; the
    spread shows it.

    The spread is the root mean square cosine of two random new vectors after the whitening of the old ones,
    :math:`|M|_F / \mathrm{tr} M`, where M is the second moment of the whitened new vectors about the old mean. What
    chance adds to the squared norm, :math:`(\mathrm{tr} M)^2 / n_n`, is subtracted (Bai & Saranadasa 1996). If nothing
    has changed, the spread is :math:`1 / \sqrt{r (1 - r / n_o)}` for r axes, by the second moment of an inverse Wishart
    matrix for many rows and dimensions.

    References
    ----------
    Läuter, Glimm & Kropf 1998, *Multivariate Tests Based on Left-Spherically Distributed Linear Scores*, Annals of
    Statistics 26. Layard 1973, *Robust Large-Sample Tests for Homogeneity of Variances*, JASA 68. Rüger 1978, *Das
    maximale Signifikanzniveau des Tests "Lehne H0 ab, wenn k unter n gegebenen Tests zur Ablehnung führen"*, Metrika
    25. Bai & Saranadasa 1996, *Effect of High Dimension*, Statistica Sinica 6.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> old, new = random.normal(size=(2, 500, 8))
    >>> new[:, 3] += 1
    >>> result = drift(Moments.from_rows(old), Moments.from_rows(new))
    >>> result.is_changed, result.axes[0].dimension
    (True, 3)
    """
    _check_sets(old, new)
    axes = shared_axes(old, new)
    n_axes = axes.shape[1]
    if not n_axes:
        raise InputError("drift: all vectors are equal.")
    if kurtosis is not None and np.shape(kurtosis) != (n_axes,):
        raise wrong_value("drift", "kurtosis", f"have shape ({n_axes},), one per axis", np.shape(kurtosis))
    variances, gap = _variances(old, new, axes), (new.mean - old.mean) @ axes
    mean_p_values = np.array(holm(_welch(gap, variances, old.weight, new.weight).tolist()))
    log_ratio = np.log(variances[1] / variances[0])
    p_values = _variance_p_values(log_ratio, old.weight, new.weight, kurtosis)
    if kurtosis is None:
        covariance_p_value = min(1.0, n_axes / math.ceil(n_axes / 2) * float(np.sort(p_values)[(n_axes - 1) // 2]))
        variance_p_values = np.full(n_axes, np.nan)
    else:
        variance_p_values = np.array(holm(p_values.tolist()))
        covariance_p_value = float(variance_p_values.min())
    mean_p_value = float(mean_p_values.min())
    mean_shift, spread, spread_expected = _effect(old, new)
    is_changed = min(holm([mean_p_value, covariance_p_value])) < LEVEL
    refit, advice = _recommend(new, is_changed, spread, spread_expected)
    shift = gap / np.sqrt(variances[0])
    order = np.lexsort((-np.abs(shift) - np.abs(log_ratio), np.fmin(mean_p_values, variance_p_values)))
    dimensions, lengths = np.abs(axes).argmax(axis=0), np.linalg.norm(axes, axis=0)
    changed = tuple(
        AxisDrift(
            axis=int(k) + 1,
            dimension=int(dimensions[k]),
            entry=float(axes[dimensions[k], k] / lengths[k]),
            shift=float(shift[k]),
            variance_ratio=float(variances[1, k] / variances[0, k]),
            mean_p_value=float(mean_p_values[k]),
            variance_p_value=float(variance_p_values[k]),
        )
        for k in order
        if np.fmin(mean_p_values[k], variance_p_values[k]) < LEVEL
    )
    return Drift(
        is_changed=is_changed,
        n_old=round(old.weight),
        n_new=round(new.weight),
        dim=old.dim,
        n_axes=n_axes,
        knows_kurtosis=kurtosis is not None,
        mean_p_value=mean_p_value,
        covariance_p_value=covariance_p_value,
        mean_shift=mean_shift,
        spread=spread,
        spread_expected=spread_expected,
        refit=refit,
        advice=advice,
        axes=changed,
    )


def shared_axes(old: Moments, new: Moments) -> Double:
    """Principal axes of both sets together by variance, as columns, (dim, n_axes), along which the variance is 1."""
    return _whitening(old + new)


def fourth_powers(rows: NDArray[np.floating], center: Double, axes: Double) -> Double:
    """Sum over rows of the fourth power of the distance from a center along each axis, shape (n_axes,)."""
    squares = ((rows - center) @ axes) ** 2
    return np.einsum("ij,ij->j", squares, squares)


def excess_kurtosis(fourth: Double, sets: list[Moments], axes: Double) -> Double:
    """Pooled excess kurtosis along each axis, from `fourth_powers` of sets about their own means, added up."""
    scatter = np.sum([np.einsum("ik,ik->k", axes, each.scatter @ axes) for each in sets], axis=0)
    weight = sum(each.weight for each in sets)
    return weight * fourth / np.maximum(scatter, np.finfo(np.float64).eps) ** 2 - 3


def _check_sets(old: Moments, new: Moments) -> None:
    for name, each in (("old", old), ("new", new)):
        if not isinstance(each, Moments):
            advice = "Make them of vectors: Moments.from_rows(vectors)."
            raise wrong_value("drift", name, "be Moments", f"one {type(each).__name__}", advice, error=InputTypeError)
    _check.same_dim("drift", "new", new.dim, old.dim)
    for name, each in (("old", old), ("new", new)):
        if each.weight < FEWEST_ROWS:
            raise InputError(f"drift: {each.weight:.0f} {name} vectors are too few. At least {FEWEST_ROWS} are needed.")


def _whitening(moments: Moments) -> Double:
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    return eigen.vectors[:, : eigen.rank] / np.sqrt(eigen.values[: eigen.rank])


def _variances(old: Moments, new: Moments, axes: Double) -> Double:
    """Unbiased variances of both sets along the axes, (2, n_axes); one that is 0 is made positive."""
    both = [np.einsum("ik,ik->k", axes, each.scatter @ axes) / (each.weight - 1) for each in (old, new)]
    return np.maximum(both, np.finfo(np.float64).eps)


def _welch(gap: Double, variances: Double, n_old: float, n_new: float) -> Double:
    from scipy.special import stdtr

    errors = variances / np.array([[n_old], [n_new]])
    freedom = errors.sum(axis=0) ** 2 / (errors[0] ** 2 / (n_old - 1) + errors[1] ** 2 / (n_new - 1))
    return 2 * stdtr(freedom, -np.abs(gap) / np.sqrt(errors.sum(axis=0)))


def _variance_p_values(log_ratio: Double, n_old: float, n_new: float, kurtosis: Double | None) -> Double:
    from scipy.special import ndtr

    excess = np.full(len(log_ratio), _ASSUMED_KURTOSIS) if kurtosis is None else kurtosis
    # an excess of -2 is that of two points; the sample of a few rows may come close to it
    errors = np.sqrt(np.maximum(2 + excess, 0.1) * (1 / (n_old - 1) + 1 / (n_new - 1)))
    return 2 * ndtr(-np.abs(log_ratio) / errors)


def _effect(old: Moments, new: Moments) -> tuple[float, float, float]:
    """Mean and root mean square cosine of random new vectors after the whitening of the old, and its expectation."""
    whitening = _whitening(old)
    rank = whitening.shape[1]
    if rank == 0 or old.weight <= rank + 1:
        return float("nan"), float("nan"), float("nan")
    gap = (new.mean - old.mean) @ whitening
    within = whitening.T @ new.covariance @ whitening
    trace = float(np.trace(within))
    total = trace + float(gap @ gap)
    # what chance adds to the squared length of the gap, and to the norm
    shift = max(0.0, float(gap @ gap) - trace / new.weight - rank / (old.weight - rank))
    squares = float(np.sum((within + np.outer(gap, gap)) ** 2)) - total**2 / new.weight
    return (
        shift / total if total else 0.0,
        math.sqrt(max(squares / total**2, 1 / rank)) if total else float("nan"),
        1 / math.sqrt(rank * (1 - rank / old.weight)),
    )


def _recommend(new: Moments, is_changed: bool, spread: float, expected: float) -> tuple[Refit, str]:
    if not is_changed:
        return "no", "The vectors have not changed beyond chance, neither their mean nor their covariance. No refit."
    cosines = f"two random new vectors have a cosine of ±{spread:.3f} after the whitening of the old ones"
    if math.isnan(spread):
        cosines = "the old vectors are too few for a whitening"
    elif spread <= MOST_SPREAD * expected:
        return "no", f"{_CHANGED} No refit: {cosines}, close to the ±{expected:.3f} of no change."
    else:
        cosines += f", not ±{expected:.3f}"
    fewest = _REFIT_ROWS_A_DIM * new.dim
    if new.weight < fewest:
        return "too few rows", (
            f"{_CHANGED} A refit needs more rows: {cosines}. There are {new.weight:,.0f} new vectors; collect "
            f"{fewest:,}."
        )
    return "yes", f"{_CHANGED} Refit: {cosines}. Compare both maps on your pairs before you switch."
