"""What is no vector, and vectors of extreme size: a right result or one clear sentence, never a warning of numpy."""

import warnings
from itertools import product

import numpy as np
import pytest
from sklearn.base import clone

from isosent import (
    AllButTheTop,
    Calibration,
    CommonComponentRemoval,
    GlowFlow,
    L2Normalize,
    LinearMap,
    MeanCentering,
    MeanProjection,
    Moments,
    PrincipalComponents,
    SentenceEncoder,
    Standardize,
    Truncate,
    Whitening,
    chain,
    load,
)
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError, InputTypeError, RankWarning
from isosent.transforms.quantization import Quantization

DIM = 6
METHODS = ("pca", "zca", "pca_cor", "zca_cor", "cholesky")
BY_VARIANCE = {
    **{method: Whitening(method=method) for method in METHODS},
    "half": Whitening(strength=0.5),
    "uncentred": Whitening(center=False),
    "shrunk": Whitening(shrinkage=0.1),
    "oas": Whitening(shrinkage="oas"),
    "auto": Whitening("auto"),
    "share": Whitening(0.9),
    "principal_components": PrincipalComponents(),
    "all_but_the_top": AllButTheTop(1),
    "common_component_removal": CommonComponentRemoval(2, by_share=True),
    "standardize": Standardize(),
}
OTHERS = {
    "mean_centering": MeanCentering(),
    "mean_projection": MeanProjection(),
    "truncate": Truncate(2),
    "l2_normalize": L2Normalize(),
}
LINEAR = BY_VARIANCE | OTHERS | {"chain": chain(MeanCentering(), Whitening(), L2Normalize())}
OF_UNIT_SIZE = [
    "pca",
    "zca",
    "pca_cor",
    "zca_cor",
    "cholesky",
    "uncentred",
    "shrunk",
    "oas",
    "standardize",
    "l2_normalize",
    "chain",
]

every_transform = pytest.mark.parametrize("transform", LINEAR.values(), ids=LINEAR)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(200, DIM)) @ rng.normal(size=(DIM, DIM)) + rng.normal(size=DIM)


def model_behind(rows, transform):
    return SentenceEncoder(PrecomputedVectors(rows.shape[1])).fitted_on_vectors(rows, transform=clone(transform))


def outcome(transform, rows):
    """What a transform fitted on rows makes of them, or the sentence it refuses them with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        try:
            return clone(transform).fit(rows).transform(rows), ""
        except InputError as error:
            return None, str(error)


NO_VECTORS = {
    "dates": np.array([["2020-01-01", "2020-01-02"]] * 40, dtype="datetime64[D]"),
    "spans": np.ones((40, 2), dtype="timedelta64[s]"),
    "complex": np.ones((40, 2)) + 1j,
    "objects": np.array([[1, {}]] * 40, dtype=object),
    "words": np.array([["a", "b"]] * 40),
    "bytes": np.array([[b"a", b"b"]] * 40),
    "records": np.zeros((40, 2), dtype=[("x", "f4"), ("y", "f4")]),
    "masked": np.ma.masked_array(np.random.default_rng(0).normal(size=(40, 2)), mask=[[True, False]] * 40),
    "ragged": [[1.0, 2.0], [3.0]] * 20,
}
GOOD = np.random.default_rng(1).normal(size=(100, 2))


def takers():
    """Everything public that takes vectors, by name."""
    for name, transform in {**LINEAR, "glow_flow": GlowFlow(n_levels=1)}.items():
        fitted = clone(transform)
        yield f"{name}.fit", fitted.fit
        if name not in ("glow_flow", "all_but_the_top", "common_component_removal"):
            yield f"{name}.transform", clone(transform).fit(GOOD).transform
    whitening, bare = Whitening().fit(GOOD), SentenceEncoder(PrecomputedVectors(2))
    model = bare.fitted_on_vectors(GOOD, transform=Whitening())
    yield "partial_fit", Whitening().partial_fit
    yield "inverse_transform", whitening.inverse_transform
    yield "LinearMap.apply", whitening.linear_map_.apply
    yield "LinearMap", lambda weight: LinearMap(weight, np.zeros(2))
    yield "Moments.from_rows", Moments.from_rows
    yield "sample_weight", lambda weights: Whitening().fit(GOOD[:40], sample_weight=weights)
    yield "model.transform", model.transform
    yield "bare.transform", bare.transform
    yield "fit_vectors", lambda vectors: bare.fitted_on_vectors(vectors, transform=Whitening())
    yield "similarity", lambda vectors: model.similarity(vectors, vectors)
    yield "from_random_pairs", Calibration.from_random_pairs
    yield "from_null", Calibration.from_null
    yield "from_labels", lambda cosines: Calibration.from_labels(cosines, np.arange(40))
    yield "Quantization.fit", Quantization.fit
    yield "Quantization.encode", lambda vectors: Quantization.fit(GOOD).encode(vectors, "int8")
    yield "calibration", Calibration.from_random_pairs(GOOD)


@pytest.mark.parametrize("name", dict(takers()))
def test_what_is_no_matrix_of_real_numbers_is_refused(name):
    take = dict(takers())[name]
    for values in NO_VECTORS.values():
        with pytest.raises((InputError, InputTypeError)):
            take(values)


@pytest.mark.parametrize("values", [np.array([[np.nan, 1.0]]), np.array([[np.inf, 1.0]], dtype=np.float32)])
def test_similarity_refuses_vectors_that_are_not_finite(values):
    with pytest.raises(InputError, match=r"row 0 of .*holds"):
        SentenceEncoder(PrecomputedVectors(2)).similarity(GOOD, values)


def test_a_mask_that_hides_nothing_is_no_obstacle():
    np.testing.assert_array_equal(Whitening().fit_transform(np.ma.masked_array(GOOD)), Whitening().fit_transform(GOOD))


def test_lists_are_vectors():
    model = model_behind(GOOD, Whitening())
    np.testing.assert_array_equal(model.transform(GOOD.tolist()), model.transform(GOOD))


SIZES = [(np.float32, 1e-39), (np.float32, 1e-30), (np.float32, 1e37), (np.float64, 1e-60), (np.float64, 1e60)]


@pytest.mark.parametrize("name", OF_UNIT_SIZE)
def test_the_size_of_the_rows_changes_nothing(rows, name):
    """Float32 has few digits at 1e-39, which rows of an ordinary size are rounded to as well."""
    for dtype, size in SIZES:
        sized = (rows * size).astype(dtype)
        power = 2.0 ** -round(np.log2(size))
        ordinary = sized.astype(np.float64) * power
        found = clone(LINEAR[name]).fit(sized).transform(sized)
        assert found.dtype == dtype
        expected = clone(LINEAR[name]).fit(ordinary).transform(ordinary)
        np.testing.assert_allclose(
            found, expected, atol=1e-9 if dtype == np.float64 else 2e-5, err_msg=f"{dtype} {size}"
        )


@every_transform
def test_no_transform_warns_of_size(rows, transform):
    for dtype, size in [*SIZES, (np.float32, 1e-44)]:
        sized = (rows * size).astype(dtype)
        fitted = clone(transform).fit(sized)
        mapped = fitted.transform(sized)
        assert np.isfinite(mapped).all(), (dtype, size)
        if hasattr(fitted, "inverse_transform"):
            assert np.isfinite(fitted.inverse_transform(mapped)).all(), (dtype, size)


@every_transform
def test_rows_beyond_those_sizes_are_refused_or_right(rows, transform):
    for size in (1e-320, 1e-160, 1e-80, 1e80, 1e100, 1e300):
        mapped, refusal = outcome(transform, rows * size)
        if transform in OTHERS.values() and (size < 1e300 or isinstance(transform, L2Normalize)):
            expected = clone(transform).fit(rows).transform(rows)
            scale = 1 if isinstance(transform, L2Normalize) else size
            assert refusal == ""
            if size > 1e-300:  # below, numbers have few digits
                np.testing.assert_allclose(mapped / scale, expected, atol=1e-9)
        else:
            assert any(word in refusal for word in ("size", "squares", "vary")), size


def test_a_refusal_tells_the_size_and_what_to_do(rows):
    with pytest.raises(InputError, match=r"\d.*e-160 in size, not between 1e-70 and 1e\+70.*Multiply"):
        Whitening().fit(rows * 1e-160)


@every_transform
def test_dimensions_of_very_different_sizes_do_no_harm(rows, transform):
    for scales in (np.logspace(-38, 36, DIM), np.logspace(-8, 8, DIM), [1e-39, 1, 1, 1, 1, 1]):
        mapped, refusal = outcome(transform, (rows * scales).astype(np.float32))
        assert np.isfinite(mapped).all() if not refusal else "do not vary" in refusal, scales


@every_transform
def test_equal_rows_are_refused_or_mapped(transform):
    for count, value in product([1, 50], [0.0, 1e-39, 0.3]):
        mapped, refusal = outcome(transform, np.full((count, DIM), value, dtype=np.float32))
        assert np.isfinite(mapped).all() if not refusal else "do not vary" in refusal, (count, value)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1e-39, 1.0, 1e37])
def test_rows_of_lower_rank_keep_their_rank(rows, method, size):
    flat = rows[:, :2] @ np.random.default_rng(2).normal(size=(2, DIM))
    with pytest.warns(RankWarning, match="2 instead of 6"):
        whitening = Whitening(method=method).fit(flat * size)
    assert whitening.rank_ == 2


@pytest.mark.parametrize("size", [1e-39, 1.0, 1e37])
@every_transform
def test_zero_rows_stay_zero_in_a_model(rows, transform, size):
    sized = np.vstack([np.zeros(DIM), rows * size, np.zeros(DIM)]).astype(np.float32)
    if isinstance(transform, L2Normalize):
        transform = chain(transform)
    mapped = model_behind(sized, transform).transform(sized)
    assert mapped.dtype == np.float32
    assert not mapped[[0, -1]].any()
    assert mapped[1:-1].any(axis=1).all()


@pytest.mark.parametrize("size", [1e39, 1e300])
def test_vectors_beyond_float32_are_refused_by_a_model(rows, size):
    for model in (SentenceEncoder(PrecomputedVectors(DIM)), model_behind(rows, MeanCentering())):
        with pytest.raises(InputError, match="float32"):
            model.transform(rows * size)


def test_a_map_beyond_float32_maps_rows_of_float32():
    linear_map = LinearMap(np.array([[1e39, 1e-39], [0.0, 1e-39]]), np.array([0.0, 1.0]))
    small, large = np.float32([[1e-39, 0]]), np.float32([[0, 3e38]])
    np.testing.assert_allclose(linear_map.apply(small), [[1, 1]], rtol=1e-5)
    np.testing.assert_allclose(linear_map.apply(large), [[0, 1.3]], rtol=1e-6)
    with pytest.raises(InputError, match="beyond float32"):
        linear_map.apply(np.float32([[3, 0]]))
    with pytest.raises(InputError, match=r"row 0 of .*holds NaN"):
        linear_map.apply(np.float32([[np.nan, 0]]))


@pytest.mark.parametrize("size", [1e-39, 1e-44, 1e-30, 1e30, 1e37])
def test_word_vectors_of_extreme_size_are_encoded(tmp_path, rows, size):
    lines = (f"w{i} {' '.join(repr(float(x)) for x in np.float32(row * size))}\n" for i, row in enumerate(rows))
    (tmp_path / "words.txt").write_text("".join(lines))
    texts = [f"w{i} w{i + 1}" for i in range(0, 198, 2)] + [""]
    bare = load(f"words:{tmp_path / 'words.txt'}")
    model = bare.fitted(texts, transform=Whitening())
    vectors = model.encode(texts)
    assert np.isfinite(vectors).all()
    assert not vectors[-1].any()
    cosines = model.similarity(texts, texts)
    assert (np.abs(cosines) <= 1 + 1e-6).all()
