"""Drift on drawn vectors: what changed is named, chance is not, and bad input is refused."""

import numpy as np
import pytest

from isosent.errors import InputError, InputTypeError
from isosent.numeric.drift import drift, excess_kurtosis, fourth_powers, shared_axes
from isosent.numeric.moments import Moments

DEVIATIONS = np.array([4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.8, 0.5])


def drawn(n_rows, seed, dim=8):
    deviations = np.resize(DEVIATIONS, dim)
    return np.random.default_rng(seed).normal(size=(n_rows, dim)) * deviations


def compared(old, new):
    moments = [Moments.from_rows(rows) for rows in (old, new)]
    axes = shared_axes(*moments)
    fourth = sum(fourth_powers(rows, each.mean, axes) for rows, each in zip((old, new), moments, strict=True))
    return drift(*moments, kurtosis=excess_kurtosis(fourth, moments, axes))


@pytest.mark.parametrize("dimension", [0, 3, 7])
def test_a_shifted_mean_is_named_with_its_axis(dimension):
    old, new = drawn(2000, 1), drawn(2000, 2)
    new[:, dimension] += DEVIATIONS[dimension]
    result = compared(old, new)
    assert result.is_changed
    assert result.mean_p_value < 1e-6 < result.covariance_p_value
    assert result.axes[0].dimension == dimension
    assert result.axes[0].shift * np.sign(result.axes[0].entry) == pytest.approx(1, abs=0.15)
    assert result.axes[0].variance_ratio == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("dimension", [0, 3, 7])
def test_a_scaled_axis_is_named_by_its_variance(dimension):
    old, new = drawn(2000, 1), drawn(2000, 2)
    new[:, dimension] *= 1.5
    result = compared(old, new)
    assert result.covariance_p_value < 1e-6 < result.mean_p_value
    assert [each.dimension for each in result.axes] == [dimension]
    assert result.axes[0].variance_ratio == pytest.approx(2.25, rel=0.15)
    assert 0.9 < abs(result.axes[0].entry) <= 1
    alone = drift(Moments.from_rows(old), Moments.from_rows(new))
    assert (alone.knows_kurtosis, alone.is_changed, alone.axes) == (False, False, ())


def test_moments_alone_show_what_most_axes_share():
    old, new = drawn(2000, 1), drawn(2000, 2)
    result = drift(Moments.from_rows(old), Moments.from_rows(new * 1.5))
    assert result.covariance_p_value < 1e-6
    assert np.isnan([each.variance_p_value for each in result.axes]).all()


@pytest.mark.parametrize(("n_rows", "dim"), [((100, 100), 8), ((40, 40), 100), ((30, 120), 60)])
def test_false_positives_are_rare_also_with_fewer_rows_than_dimensions(n_rows, dim):
    n_runs, alarms = 80, np.zeros(2)
    for run in range(n_runs):
        old, new = (drawn(n, [run, side], dim) for side, n in enumerate(n_rows))
        result = compared(old, new)
        alarms += (result.mean_p_value < 0.05, result.covariance_p_value < 0.05)
    assert (alarms <= 12).all()  # more with a probability of 0.0002, at 5%


def test_a_whitening_that_no_longer_fits_is_fitted_again_if_there_are_enough_rows():
    old, new = drawn(4000, 1), drawn(4000, 2)[:, ::-1]
    assert compared(old, new).refit == "yes"
    assert compared(old, new[:31]).refit == "too few rows"
    slightly = drawn(4000, 2) * np.array([1.2, 1, 1, 1, 1, 1, 1, 1])
    assert (compared(old, slightly).is_changed, compared(old, slightly).refit) == (True, "no")
    same = compared(old, drawn(4000, 2))
    assert (same.is_changed, same.refit, same.axes) == (False, "no", ())
    assert same.spread == pytest.approx(same.spread_expected, rel=0.02)


def test_a_moved_mean_counts_as_a_cosine_of_all_pairs():
    old, new = drawn(4000, 1), drawn(4000, 2)
    new[:, 0] += 4 * DEVIATIONS[0]
    assert compared(old, new).mean_shift == pytest.approx(16 / (16 + 8), abs=0.02)
    assert compared(old, new).refit == "yes"
    assert compared(old, drawn(4000, 2)).mean_shift < 0.001


def test_what_few_rows_add_by_chance_is_subtracted():
    result = compared(drawn(300, 1, dim=100), drawn(200, 2, dim=100))
    assert result.mean_shift < 0.003
    assert result.spread == pytest.approx(result.spread_expected, rel=0.06)
    assert result.spread_expected > 0.12  # 0.1 for many rows


def test_old_vectors_that_are_too_few_for_a_whitening_have_no_spread():
    old, new = drawn(30, 1, dim=40), drawn(1000, 2, dim=40) + 3
    result = compared(old, new)
    assert np.isnan([result.spread, result.spread_expected]).all()
    assert result.refit == "yes"


def test_axes_without_variance_in_one_set_stay_finite():
    old, new = drawn(100, 1), drawn(100, 2)
    old[:, 2] = 0
    result = compared(old, new)
    assert result.axes[0].dimension == 2
    assert all(np.isfinite([each.shift, each.variance_ratio]).all() for each in result.axes)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_the_unit_of_the_vectors_does_not_matter(scale):
    old, new = drawn(300, 1), drawn(300, 2) * 1.2
    plain, scaled = compared(old, new), compared(scale * old, scale * new)
    assert scaled.covariance_p_value == pytest.approx(plain.covariance_p_value, rel=1e-6)
    assert scaled.spread == pytest.approx(plain.spread)
    assert [each.axis for each in scaled.axes] == [each.axis for each in plain.axes]


def test_sets_that_cannot_be_compared_are_refused():
    old = Moments.from_rows(drawn(50, 1))
    with pytest.raises(InputError, match="9"):
        drift(old, Moments.from_rows(np.ones((50, 9))))
    with pytest.raises(InputError, match="19"):
        drift(old, Moments.from_rows(drawn(19, 1)))
    with pytest.raises(InputError, match="equal"):
        drift(*[Moments.from_rows(np.ones((50, 8)))] * 2)
    with pytest.raises(InputError, match="kurtosis"):
        drift(old, old, kurtosis=np.zeros(3))


def test_what_is_no_moments_is_refused():
    with pytest.raises(InputTypeError, match="old must be Moments; got one list"):
        drift(["a text"], ["another"])
