import importlib
import re

import numpy as np
import pytest
from sklearn.covariance import OAS
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from isosent import (
    AllButTheTop,
    CommonComponentRemoval,
    L2Normalize,
    MeanCentering,
    MeanProjection,
    Moments,
    PrincipalComponents,
    Standardize,
    Truncate,
    Whitening,
    chain,
)
from isosent.errors import InputError
from isosent.numeric.similarity import cosine_matrix, pairwise_cosine
from isosent.transforms.base import TRANSFORMS, make_transform, setting_names, transform_class, transform_name

METHODS = ["pca", "zca", "pca_cor", "zca_cor", "cholesky"]
LINEAR = [
    *(Whitening(4, method=method, strength=0.7, shrinkage="oas") for method in METHODS),
    PrincipalComponents(0.9),
    MeanCentering(),
    MeanProjection(),
    AllButTheTop(2),
    CommonComponentRemoval(2),
    Standardize(),
    Truncate(3),
    chain(MeanCentering(), AllButTheTop(), Whitening(3), L2Normalize()),
]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 6)) @ rng.normal(size=(6, 6)) + rng.normal(size=6)


def covariance(rows):
    return np.cov(rows.T, ddof=0)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_whitens(rows, method):
    whitened = Whitening(method=method).fit_transform(rows)
    np.testing.assert_allclose(covariance(whitened), np.eye(6), atol=1e-9)


@pytest.mark.parametrize("method", ["zca", "cholesky"])
@pytest.mark.parametrize("strength", [0.4, 1.0])
def test_rotated_methods_give_the_cosines_of_pca(rows, method, strength):
    found = Whitening(method=method, strength=strength).fit_transform(rows)
    expected = Whitening(strength=strength).fit_transform(rows)
    np.testing.assert_allclose(cosine_matrix(found, found), cosine_matrix(expected, expected), atol=1e-9)


@pytest.mark.parametrize("method", ["pca_cor", "zca_cor"])
def test_correlation_methods_whiten_standardized_rows(rows, method):
    found = Whitening(method=method, strength=0.4).fit_transform(rows)
    expected = Whitening(strength=0.4).fit_transform(StandardScaler().fit_transform(rows))
    np.testing.assert_allclose(cosine_matrix(found, found), cosine_matrix(expected, expected), atol=1e-9)


def test_zca_has_a_symmetric_map_close_to_its_input(rows):
    whitening = Whitening(method="zca").fit(rows)
    weight = whitening.linear_map_.weight
    np.testing.assert_allclose(weight, weight.T, atol=1e-12)
    standardized = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    distances = {
        method: np.linalg.norm(Whitening(method=method).fit_transform(rows) - standardized) for method in METHODS
    }
    assert min(distances, key=distances.get) == "zca_cor"  # Kessy et al. 2018: closest to the standardised rows


def test_zca_with_few_components_keeps_the_width_and_lowers_the_rank(rows):
    mapped = Whitening(2, method="zca").fit_transform(rows)
    assert mapped.shape == (300, 6)
    assert np.linalg.matrix_rank(mapped) == 2


def test_the_map_of_cholesky_is_triangular(rows):
    weight = Whitening(method="cholesky").fit(rows).linear_map_.weight
    np.testing.assert_allclose(weight, np.tril(weight), atol=1e-12)
    assert (weight.diagonal() > 0).all()


@pytest.mark.parametrize("n_rows", [8, 40, 300])
def test_oas_is_that_of_scikit_learn(n_rows):
    rows = np.random.default_rng(1).normal(size=(n_rows, 12)) * np.arange(1, 13)
    assert Whitening(shrinkage="oas").fit(rows).shrinkage_ == pytest.approx(OAS().fit(rows).shrinkage_, rel=1e-9)


def test_shrinkage_keeps_every_axis_of_few_rows():
    rows = np.random.default_rng(0).normal(size=(5, 12))
    assert Whitening(shrinkage="oas").fit_transform(rows).shape == (5, 12)


def test_shrinkage_is_a_mixture_with_the_mean_variance(rows):
    found = Whitening(shrinkage=0.3).fit(rows).explained_variance_
    values = np.linalg.eigvalsh(covariance(rows))[::-1]
    np.testing.assert_allclose(found, 0.7 * values + 0.3 * values.mean())


def test_eps_is_added_to_the_variances(rows):
    variances = np.var(Whitening(eps=0.5).fit_transform(rows), axis=0)
    values = np.linalg.eigvalsh(covariance(rows))[::-1]
    np.testing.assert_allclose(variances, values / (values + 0.5))


def test_uncentered_principal_components_are_singular_vectors_and_keep_all_cosines(rows):
    moved = rows + 3.0
    found = PrincipalComponents(center=False).fit(moved)
    squares = (found.transform(moved) ** 2).sum(axis=0)
    np.testing.assert_allclose(squares, np.linalg.svd(moved, compute_uv=False) ** 2)
    np.testing.assert_allclose(cosine_matrix(*[found.transform(moved)] * 2), cosine_matrix(moved, moved), atol=1e-9)
    assert np.abs(cosine_matrix(*[PrincipalComponents().fit_transform(moved)] * 2)).mean() < 0.5
    parts = PrincipalComponents(2, center=False).partial_fit(moved[:100]).partial_fit(moved[100:])
    whole = PrincipalComponents(2, center=False).fit(moved)
    np.testing.assert_allclose(parts.linear_map_.weight, whole.linear_map_.weight, atol=1e-9)


def test_without_centring_the_second_moment_is_whitened(rows):
    found = Whitening(center=False).fit_transform(rows)
    np.testing.assert_allclose(found.T @ found / len(found), np.eye(6), atol=1e-9)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 1), (0.7, 2), (0.95, 3), (1.0, 3)])
def test_a_share_of_the_variance_tells_the_width(share, expected):
    rows = np.random.default_rng(0).normal(size=(2000, 3)) * np.sqrt([6.0, 3.0, 1.0])
    assert Whitening(share).fit(rows).n_components_ == expected


def test_the_width_chosen_keeps_unrelated_rows_apart():
    rows = np.random.default_rng(0).normal(size=(20_000, 60)) * 0.95 ** np.arange(60)
    k = PrincipalComponents("auto").fit(rows).n_components_
    full = PrincipalComponents().fit_transform(rows)

    def spread(width):
        return pairwise_cosine(full[:10_000, :width], full[10_000:, :width]).std()

    assert 20 < k < 55
    assert 1 - spread(60) / spread(k) == pytest.approx(0.05, abs=0.02)


def test_principal_components_are_those_of_scikit_learn(rows):
    found = PrincipalComponents(3).fit_transform(rows)
    np.testing.assert_allclose(np.abs(found), np.abs(PCA(3).fit_transform(rows)), atol=1e-9)


def test_common_components_are_the_singular_vectors_of_the_rows(rows):
    removed = TruncatedSVD(1).fit(rows).components_[0]
    np.testing.assert_allclose(CommonComponentRemoval().fit_transform(rows), rows - np.outer(rows @ removed, removed))


def test_all_but_the_top_leaves_nothing_along_the_top(rows):
    top = PCA(2).fit(rows).components_
    left = AllButTheTop(2).fit_transform(rows)
    np.testing.assert_allclose(left @ top.T, 0, atol=1e-9)
    np.testing.assert_allclose(left.mean(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize(("dim", "n_removed"), [(10, 1), (100, 1), (300, 3), (768, 8)])
def test_all_but_the_top_removes_a_hundredth_of_the_dimensions(dim, n_removed):
    moments = Moments(1000.0, np.ones(dim), np.diag(np.arange(dim, 0, -1.0)))
    weight = AllButTheTop().fit_moments(moments).linear_map_.weight
    assert round(dim - np.trace(weight)) == n_removed


def test_mean_projection_leaves_nothing_along_the_mean(rows):
    projected = MeanProjection().fit_transform(rows)
    np.testing.assert_allclose(projected @ rows.mean(axis=0), 0, atol=1e-9)


def test_standardize_is_that_of_scikit_learn(rows):
    with_a_constant = np.column_stack([rows, np.full(len(rows), 3.0)])
    expected = StandardScaler().fit_transform(with_a_constant)
    np.testing.assert_allclose(Standardize().fit_transform(with_a_constant), expected, atol=1e-9)


@pytest.mark.parametrize(
    "transform",
    [
        Whitening(),
        Whitening(method="cholesky"),
        Whitening(method="zca_cor"),
        PrincipalComponents(),
        MeanCentering(),
        Standardize(),
    ],
)
def test_the_way_back_leads_back(rows, transform):
    np.testing.assert_allclose(transform.inverse_transform(transform.fit_transform(rows)), rows, atol=1e-9)


@pytest.mark.parametrize("transform", LINEAR, ids=str)
def test_parts_merge_to_the_whole(rows, transform):
    weights = np.random.default_rng(2).uniform(0.5, 2, size=len(rows))
    whole = transform.fit(rows, sample_weight=weights).transform(rows)
    slices = slice(0, 1), slice(1, 90), slice(90, 90), slice(90, None)
    parts = [Moments.from_rows(rows[part], weights[part]) for part in slices]
    np.testing.assert_allclose(transform.fit_moments(sum(parts)).transform(rows), whole, atol=1e-8)
    streamed = transform.fit(rows[:50], sample_weight=weights[:50])
    streamed.partial_fit(rows[50:], sample_weight=weights[50:])
    np.testing.assert_allclose(streamed.transform(rows), whole, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_chain_is_its_steps_one_by_one(rows, dtype):
    steps = [MeanProjection(), AllButTheTop(1), Standardize(), Whitening(4, strength=0.5), L2Normalize()]
    rows, expected = rows.astype(dtype), rows.astype(dtype)
    for step in steps:
        expected = step.fit_transform(expected)
    found = chain(*steps).fit_transform(rows)
    assert found.dtype == dtype
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-9 if dtype == np.float64 else 2e-5)


def test_what_a_step_removed_is_no_component_for_the_next(rows):
    with pytest.warns(UserWarning, match="components kept: 4 instead of 6"):
        fitted = chain(AllButTheTop(2), Whitening()).fit(rows * [1e4, 1, 1, 1, 1, 1])
    assert fitted.n_components_ == 4


def test_a_chain_of_a_chain_is_a_chain(rows):
    inner = chain(MeanCentering(), Standardize())
    found = chain(inner, Whitening(3)).fit_transform(rows)
    np.testing.assert_allclose(found, chain(MeanCentering(), Standardize(), Whitening(3)).fit_transform(rows))


def test_a_chain_that_goes_on_behind_unit_lengths_is_refused(rows):
    with pytest.raises(InputError, match=r"l2_normalize is step 1, .*Make it the last step"):
        chain(L2Normalize(), Whitening()).fit(rows)


def test_a_chain_of_nothing_is_refused():
    with pytest.raises(InputError, match="at least one transform"):
        chain()


def test_a_chain_with_a_stranger_is_refused(rows):
    with pytest.raises(TypeError, match="must be transforms of isosent"):
        chain(StandardScaler(), Whitening()).fit(rows)


def test_transforms_stand_in_pipelines_and_searches(rows):
    target = rows @ np.arange(6)
    pipeline = make_pipeline(chain(MeanCentering(), Whitening()), Normalizer(), Ridge())
    search = GridSearchCV(pipeline, {"chain__whitening__n_components": [1, 3, 6]}, cv=3).fit(rows, target)
    assert search.best_params_ == {"chain__whitening__n_components": 6}


@pytest.mark.parametrize(("library", "kind"), [("pandas", "DataFrame"), ("polars", "DataFrame")])
def test_data_frames_come_out_where_they_are_asked_for(rows, library, kind):
    frames = importlib.import_module(library)
    whitening = Whitening(2).set_output(transform=library).fit(rows)
    frame = whitening.transform(rows)
    assert isinstance(frame, getattr(frames, kind))
    assert list(frame.columns) == ["whitening0", "whitening1"] == list(whitening.get_feature_names_out())


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (Whitening(method="ica"), "method must be one of pca, zca"),
        (Whitening(shrinkage="some"), "shrinkage must be one of oas"),
        (Whitening(shrinkage=1.5), "shrinkage must be from"),
        (Whitening(eps=-1), "eps must be a finite number >= 0"),
        (Whitening(1.5), "must be above 0 and at most 1 as a share of the variance"),
        (Whitening("all"), "n_components must be a whole number"),
        (AllButTheTop(6), "must be a whole number from 1 to 5"),
        (CommonComponentRemoval(0), "must be a whole number from 1 to 5"),
        (Truncate(7), "must be from 1 to 6"),
        (PrincipalComponents(-1), "must be from 1 to 6"),
    ],
)
def test_settings_out_of_range_are_refused(rows, transform, words):
    with pytest.raises(InputError, match=words):
        transform.fit(rows)


def test_moments_of_no_rows_are_refused():
    with pytest.raises(InputError, match=r"those of no row\. At least one"):
        Whitening().fit_moments(Moments.empty(3))


@pytest.mark.parametrize("method", ["pca", "zca", "cholesky"])
def test_the_way_back_and_forth_changes_nothing_with_few_axes(method):
    rows = np.random.default_rng(0).normal(size=(600, 200)) * 0.97 ** np.arange(200)
    whitening = Whitening(20, method=method).fit(rows)
    mapped = whitening.transform(rows)
    np.testing.assert_allclose(whitening.transform(whitening.inverse_transform(mapped)), mapped, atol=1e-8)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_share_may_be_a_number_of_numpy(rows, kind):
    assert Whitening(kind(0.9)).fit(rows).n_components_ == Whitening(0.9).fit(rows).n_components_


def test_a_chain_ends_with_unit_lengths_however_it_is_nested(rows):
    found = chain(MeanCentering(), chain(Whitening(3), L2Normalize())).fit_transform(rows)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    with pytest.raises(InputError, match=r"l2_normalize is step 2, .*Make it the last step"):
        chain(chain(Whitening(), L2Normalize()), Truncate(3)).fit(rows)


def test_shrinkage_without_centring_is_that_of_scikit_learn(rows):
    expected = OAS(assume_centered=True).fit(rows).shrinkage_
    assert Whitening(shrinkage="oas", center=False).fit(rows).shrinkage_ == pytest.approx(expected, rel=1e-9)


def test_rows_of_weight_zero_do_not_count(rows):
    weights = np.r_[np.zeros(100), np.ones(200)]
    found = Moments.from_rows(rows, weights)
    expected = Moments.from_rows(rows[100:])
    assert found.weight == expected.weight
    np.testing.assert_allclose(found.scatter, expected.scatter)


def test_a_transform_is_written_as_a_model_reference_is():
    made = make_transform("mean_projection,whitening?method=zca&shrinkage=oas&eps=1e-5", settings={"strength": 0.5})
    assert made.get_params()["steps"][1][1].get_params() == {
        "n_components": None,
        "method": "zca",
        "strength": 0.5,
        "shrinkage": "oas",
        "center": True,
        "eps": 1e-5,
    }
    assert make_transform("whitening?dims=4").n_components == 4
    assert make_transform("common_component_removal?by_share=true").by_share is True
    for text, words in (
        ("whitening?metod=zca", "no option metod. Did you mean method"),
        ("mean_centering?eps=1", "It has none"),
        ("glow_flow?depth", "name=value&name=value"),
        ("whitening?eps=1&eps=2", "gives the option eps twice"),
    ):
        with pytest.raises(InputError, match=re.escape(words)):
            make_transform(text)


def test_every_setting_of_a_transform_can_be_named():
    for name in TRANSFORMS:
        made = transform_class(name)()  # whose settings scikit-learn knows
        assert sorted(made.get_params(deep=False)) == sorted(setting_names(name)), name
        assert transform_name(made) == name
