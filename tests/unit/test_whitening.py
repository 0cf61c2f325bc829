import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError

from isosent import Whitening
from isosent.errors import InputError, RankWarning


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(400, 6)) @ rng.normal(size=(6, 6)) + rng.normal(size=6)


def cosines(rows):
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return units @ units.T


def test_the_covariance_becomes_the_identity(rows):
    whitened = Whitening().fit_transform(rows)
    np.testing.assert_allclose(np.cov(whitened.T, ddof=0), np.eye(6), atol=1e-10)
    np.testing.assert_allclose(whitened.mean(axis=0), 0, atol=1e-10)


def test_the_published_recipe_gives_the_same_cosines(rows):
    mean, covariance = rows.mean(axis=0), np.cov(rows.T)
    u, s, _ = np.linalg.svd(covariance)
    published = (rows - mean) @ (u @ np.diag(s**-0.5))[:, :4]
    np.testing.assert_allclose(cosines(Whitening(4).fit_transform(rows)), cosines(published), atol=1e-9)


def test_strength_zero_is_pca_up_to_signs(rows):
    ours, theirs = Whitening(3, strength=0.0).fit_transform(rows), PCA(3).fit_transform(rows)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-9)


@pytest.mark.parametrize("strength", [0.0, 0.25, 0.5, 1.0])
def test_strength_is_the_exponent_of_the_variances(rows, strength):
    whitening = Whitening(strength=strength).fit(rows)
    variances = whitening.transform(rows).var(axis=0)
    np.testing.assert_allclose(variances, whitening.explained_variance_ ** (1 - strength), rtol=1e-9)


def test_the_map_is_the_transform(rows):
    whitening = Whitening(3).fit(rows)
    linear_map = whitening.linear_map_
    np.testing.assert_array_equal(whitening.transform(rows), rows @ linear_map.weight + linear_map.bias)


def test_variances_are_those_of_pca(rows):
    whitening, pca = Whitening(4).fit(rows), PCA(4).fit(rows)
    np.testing.assert_allclose(whitening.explained_variance_, pca.explained_variance_ * 399 / 400)
    np.testing.assert_allclose(whitening.explained_variance_ratio_, pca.explained_variance_ratio_)


def test_inverse_transform_undoes_a_full_whitening(rows):
    whitening = Whitening(strength=0.7).fit(rows)
    np.testing.assert_allclose(whitening.inverse_transform(whitening.transform(rows)), rows, atol=1e-9)


def test_inverse_transform_of_fewer_components_is_that_of_pca(rows):
    whitening, pca = Whitening(2).fit(rows), PCA(2).fit(rows)
    expected = pca.inverse_transform(pca.transform(rows))
    np.testing.assert_allclose(whitening.inverse_transform(whitening.transform(rows)), expected, atol=1e-9)


def test_weights_are_repetitions(rows):
    counts = np.random.default_rng(1).integers(0, 3, size=len(rows))
    weighted = Whitening(3).fit(rows, sample_weight=counts)
    repeated = Whitening(3).fit(np.repeat(rows, counts, axis=0))
    np.testing.assert_allclose(weighted.linear_map_.weight, repeated.linear_map_.weight, atol=1e-9)


def test_partial_fits_are_one_fit(rows):
    whole, parts = Whitening(4).fit(rows), Whitening(4)
    for start in range(0, len(rows), 37):
        parts.partial_fit(rows[start : start + 37])
    np.testing.assert_allclose(parts.linear_map_.weight, whole.linear_map_.weight, atol=1e-9)


def test_partial_fit_takes_fewer_rows_than_dimensions_without_a_warning(rows):
    whitening = Whitening()
    for row in rows[:20]:
        whitening.partial_fit(row[None, :])
    np.testing.assert_allclose(whitening.linear_map_.weight, Whitening().fit(rows[:20]).linear_map_.weight, atol=1e-8)


def test_merging_is_fitting_on_both(rows):
    merged = Whitening(4).fit(rows[:100]).merge(Whitening(4).fit(rows[100:]))
    np.testing.assert_allclose(merged.linear_map_.weight, Whitening(4).fit(rows).linear_map_.weight, atol=1e-9)


def test_merging_other_dimensions_is_refused_and_changes_nothing(rows):
    whitening = Whitening().fit(rows)
    before = whitening.linear_map_
    with pytest.raises(InputError, match="of 6 dimensions, found 5"):
        whitening.merge(Whitening().fit(rows[:, :5]))
    assert whitening.linear_map_ is before


def test_merging_an_unfitted_one_is_refused(rows):
    with pytest.raises(NotFittedError):
        Whitening().fit(rows).merge(Whitening())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0, 30])
@pytest.mark.parametrize(("dim", "rank", "n_rows"), [(8, 3, 500), (64, 20, 500), (64, 20, 30_000), (300, 40, 2_000)])
def test_rank_deficient_rows_give_finite_vectors_of_the_true_rank(dtype, offset, dim, rank, n_rows):
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(n_rows, rank)) @ rng.normal(size=(rank, dim)) + offset).astype(dtype)
    whitening = Whitening()
    with pytest.warns(RankWarning, match=f"kept: {rank} instead of {dim}"):
        whitened = whitening.fit_transform(rows)
    assert whitened.shape == (n_rows, rank)
    np.testing.assert_allclose(np.cov(whitened.T, ddof=0), np.eye(rank), atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_rows", [2, 5, 32])
def test_fewer_rows_than_dimensions_give_one_component_less_than_rows(dtype, n_rows):
    rows = (np.random.default_rng(0).normal(size=(n_rows, 32)) + 3).astype(dtype)
    with pytest.warns(RankWarning, match="Fit on more texts"):
        whitened = Whitening().fit_transform(rows)
    assert whitened.shape == (n_rows, n_rows - 1)
    assert np.isfinite(whitened).all()


def test_a_constant_dimension_costs_one_component():
    rows = np.random.default_rng(0).normal(size=(30_000, 4)).astype(np.float32)
    rows[:, 2] = 0.1
    with pytest.warns(RankWarning, match="kept: 3 instead of 4"):
        assert Whitening().fit_transform(rows).shape == (30_000, 3)


def test_more_components_than_the_rank_are_cut_with_a_warning():
    rows = np.random.default_rng(0).normal(size=(5, 8))
    with pytest.warns(RankWarning, match="kept: 4 instead of 6"):
        assert Whitening(6).fit_transform(rows).shape == (5, 4)


def test_enough_rank_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Whitening(3).fit(np.random.default_rng(0).normal(size=(5, 8)))


@pytest.mark.parametrize("n_rows", [1, 3])
def test_equal_rows_are_refused(n_rows):
    with pytest.raises(InputError, match=r"rows do not vary \(rank 0"):
        Whitening().fit(np.ones((n_rows, 4)))


@pytest.mark.parametrize("n_components", [0, -1, 7, 2.5, "3", True])
def test_n_components_out_of_range_is_refused(rows, n_components):
    with pytest.raises(InputError, match=r"n_components .*must"):
        Whitening(n_components).fit(rows)


@pytest.mark.parametrize("strength", [-0.1, 1.1, np.nan, "1", True])
def test_strength_out_of_range_is_refused(rows, strength):
    with pytest.raises(InputError, match=r"strength must be from 0 to 1"):
        Whitening(strength=strength).fit(rows)


def test_nan_rows_are_refused_with_their_number(rows):
    rows[17, 3] = np.nan
    with pytest.raises(InputError, match=r"row 17 of .*holds NaN"):
        Whitening().fit(rows)


def test_a_failed_fit_leaves_the_object_as_it_was(rows):
    whitening = Whitening().fit(rows)
    before = dict(vars(whitening))
    with pytest.raises(InputError):
        whitening.fit(np.full((3, 6), np.nan))
    with pytest.raises(InputError):
        whitening.partial_fit(rows[:, :3])
    assert vars(whitening) == before


def test_a_changed_setting_counts_from_the_next_fit_on(rows):
    whitening = Whitening(2).fit(rows)
    whitening.set_params(n_components=3)
    assert whitening.transform(rows).shape[1] == 2
    assert whitening.fit_transform(rows).shape[1] == 3


def test_a_clone_is_unfitted(rows):
    twin = clone(Whitening(3, strength=0.5).fit(rows))
    assert (twin.n_components, twin.strength) == (3, 0.5)
    with pytest.raises(NotFittedError):
        twin.transform(rows)


def test_feature_names_are_those_of_the_class(rows):
    assert list(Whitening(2).fit(rows).get_feature_names_out()) == ["whitening0", "whitening1"]


def test_zero_rows_give_zero_rows_of_the_right_width(rows):
    assert Whitening(2).fit(rows).transform(rows[:0].astype(np.float32)).shape == (0, 2)


def test_the_largest_entry_of_every_axis_is_positive(rows):
    axes = Whitening(strength=0.0).fit(rows).linear_map_.weight
    assert (np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None, :], axis=0) > 0).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_one_large_constant_dimension_costs_itself_only(dtype):
    rows = np.random.default_rng(0).normal(size=(500, 5)).astype(dtype)
    rows[:, 0] = 1e7 if dtype == np.float32 else 6e4
    with pytest.warns(RankWarning, match="kept: 4 instead of 5"):
        whitened = Whitening().fit_transform(rows)
    np.testing.assert_allclose(np.cov(whitened.T.astype(float), ddof=0), np.eye(4), atol=1e-2)


def test_merging_keeps_the_coarser_rounding():
    rng = np.random.default_rng(0)
    low_rank = (rng.normal(size=(500, 3)) @ rng.normal(size=(3, 8)) + 30).astype(np.float32)
    for first, second in ((low_rank, low_rank.astype(np.float64)), (low_rank.astype(np.float64), low_rank)):
        merged = Whitening(3).fit(first).merge(Whitening(3).fit(second))
        assert merged.rank_ == 3


def test_merging_checks_the_settings(rows):
    whitening = Whitening().fit(rows).set_params(strength=7.0)
    with pytest.raises(InputError, match="strength must be from"):
        whitening.merge(Whitening().fit(rows))
