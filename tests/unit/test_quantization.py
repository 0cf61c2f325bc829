"""int8 codes and bits of vectors."""

import numpy as np
import pytest

from isosent.errors import InputError
from isosent.numeric.similarity import unit_rows
from isosent.transforms.quantization import Quantization

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def vectors():
    return unit_rows((RNG.normal(size=(3000, 40)) * np.linspace(0.1, 1, 40) + 0.2).astype(np.float32))


@pytest.fixture(scope="module")
def quantization(vectors):
    return Quantization.fit(vectors[:2000])


def test_codes_are_those_of_faiss(vectors, quantization):
    faiss = pytest.importorskip("faiss")
    quantizer = faiss.ScalarQuantizer(40, faiss.ScalarQuantizer.QT_8bit)
    faiss.copy_array_to_vector(np.concatenate([quantization.low, quantization.span]), quantizer.trained)
    beyond = np.concatenate([vectors, vectors * 3, RNG.normal(size=(50_000, 40)).astype(np.float32)])
    codes = quantization.encode(beyond, "int8")
    faiss_codes = quantizer.compute_codes(beyond)
    np.testing.assert_array_equal(codes.view(np.uint8) ^ 128, faiss_codes)
    np.testing.assert_allclose(quantization.decode(codes, "int8"), quantizer.decode(faiss_codes), atol=1e-6)


@pytest.fixture(scope="module")
def product(vectors, quantization):
    return quantization.with_product(vectors, 8)


def test_a_product_projects_on_the_principal_axes_about_zero(vectors, quantization):
    axes = quantization.with_product(vectors, 20).projection  # 2 dimensions for each part
    np.testing.assert_allclose(axes.T @ axes, np.eye(40), atol=2e-3)
    few = quantization.with_product(vectors, 16).projection.astype(np.float64)
    exact = vectors.astype(np.float64)
    _, best = np.linalg.eigh(exact.T @ exact)
    best = best[:, -32:]
    np.testing.assert_allclose(few @ few.T, best @ best.T, atol=2e-3)


def test_codebooks_are_as_near_to_other_rows_as_those_of_faiss(vectors, quantization):
    faiss = pytest.importorskip("faiss")
    product = quantization.with_product(vectors[:2000], 8)
    fitted, others = (np.ascontiguousarray(rows @ product.projection) for rows in (vectors[:2000], vectors[2000:]))
    theirs = faiss.ProductQuantizer(32, 16, 4)
    theirs.cp.min_points_per_centroid = 1
    theirs.train(fitted)
    errors = []
    for codebooks in (product.codebooks, faiss.vector_to_array(theirs.centroids).reshape(16, 16, 2)):
        parts = others.reshape(-1, 16, 1, 2)
        errors.append(np.square(parts - codebooks).sum(axis=-1).min(axis=-1).sum(axis=1).mean())
    assert errors[0] < 1.05 * errors[1] < 0.5 * others.var(axis=0).sum()


def test_a_product_is_the_same_for_the_same_rows_and_seed(vectors, quantization, product):
    again = quantization.with_product(np.concatenate([vectors, np.zeros((3, 40), np.float32)]), 8)
    copy = Quantization.from_tensors(product.tensors())
    for name, array in product.tensors().items():
        np.testing.assert_array_equal(again.tensors()[name], array)
        np.testing.assert_array_equal(copy.tensors()[name], array)
    other = quantization.with_product(vectors, 8, seed=1)
    assert not np.array_equal(other.codebooks, product.codebooks)
    assert (product.code_bytes, quantization.code_bytes, product.with_product(vectors, 0).code_bytes) == (8, 0, 0)
    np.testing.assert_array_equal(product.rotation, quantization.rotation)


@pytest.mark.parametrize("rows", [np.ones((1, 3)), np.ones((5, 3)), np.array([[1.0, 0, 0], [1, 0, 1]])])
def test_a_product_of_fewer_rows_than_four_bits_have_values(rows):
    product = Quantization.fit(rows).with_product(rows, 1)
    parts = (unit_rows(rows) * np.linalg.norm(rows, axis=1, keepdims=True)) @ product.projection
    distances = np.abs(parts[:, :, None] - product.codebooks[None, :, :, 0]).min(axis=-1)
    assert distances.max() < 0.02


@pytest.mark.parametrize("code_bytes", [-1, 21, 2.5])
def test_a_product_of_an_impossible_number_of_bytes_is_refused(vectors, quantization, code_bytes):
    with pytest.raises(InputError, match="code_bytes"):
        quantization.with_product(vectors, code_bytes)


def test_int8_is_half_a_step_away_at_most_and_cuts_off_what_lies_beyond(vectors, quantization):
    low, high = quantization.low, quantization.low + quantization.span
    decoded = quantization.decode(quantization.encode(vectors * 3, "int8"), "int8")
    inside = np.clip(vectors * 3, low, high)
    assert (np.abs(decoded - inside) <= quantization.step * 0.501).all()
    assert ((vectors >= low) & (vectors <= high)).mean() > 0.9999


def test_ranges_of_a_hundred_rows_are_nearly_those_of_all(vectors, quantization):
    few = Quantization.fit(vectors[:100])
    np.testing.assert_allclose(few.span, quantization.span, rtol=0.25)


def test_bits_are_the_signs_of_the_rotated_vectors(vectors, quantization):
    bits = np.unpackbits(quantization.encode(vectors, "ubinary"), axis=1)[:, :40]
    rotated = (vectors - quantization.center) @ quantization.rotation
    np.testing.assert_array_equal(bits, rotated > 0)
    np.testing.assert_allclose(quantization.rotation.T @ quantization.rotation, np.eye(40), atol=1e-5)


def test_decoded_bits_point_where_the_vectors_do(vectors, quantization):
    decoded = quantization.decode(quantization.encode(vectors, "ubinary"), "ubinary")
    assert (unit_rows(decoded) * vectors).sum(axis=1).mean() > 0.8


def test_fit_is_deterministic_and_survives_its_tensors(vectors, quantization):
    again = Quantization.fit(np.concatenate([vectors[:2000], np.zeros((7, 40))]), seed=0)
    copy = Quantization.from_tensors(quantization.tensors())
    for name, array in quantization.tensors().items():
        np.testing.assert_array_equal(again.tensors()[name], array)
        np.testing.assert_array_equal(copy.tensors()[name], array)


def test_more_rows_than_are_needed_leave_the_rotation_as_it_is(vectors, quantization):
    many = Quantization.fit(np.tile(vectors, (4, 1)))
    np.testing.assert_array_equal(many.rotation, quantization.rotation)
    np.testing.assert_allclose(many.span, quantization.span, rtol=0.1)
    other = Quantization.fit(vectors, seed=1)
    assert not np.array_equal(other.rotation, quantization.rotation)


@pytest.mark.parametrize("rows", [np.ones((1, 3)), np.ones((5, 3)), np.array([[1.0, 0, 0], [1, 0, 1]])])
def test_one_row_and_constant_dimensions(rows):
    quantization = Quantization.fit(rows)
    codes = quantization.encode(rows, "int8")
    assert np.isfinite(quantization.decode(codes, "int8")).all()
    constant = quantization.step == 0
    assert (codes[:, constant] == -128).all()
    np.testing.assert_array_equal(quantization.decode(codes, "int8")[:, constant], rows[:, constant])


@pytest.mark.parametrize("dtype", ["int8", "ubinary"])
def test_no_rows_keep_their_width(quantization, dtype):
    codes = quantization.encode(np.empty((0, 40)), dtype)
    assert len(codes) == 0
    assert quantization.decode(codes, dtype).shape == (0, 40)


@pytest.mark.parametrize(
    ("vectors", "key_word"),
    [
        ([[np.nan, 1.0]], "NaN"),
        ([[np.inf, 1.0]], "infinity"),
        ([[1e60, 1.0]], "infinity"),
        ([[0.0, 0.0]], "zero"),
        ([1.0, 2.0], "2-D"),
    ],
)
def test_vectors_that_cannot_be_used_are_refused(vectors, key_word):
    with pytest.raises(InputError, match=key_word):
        Quantization.fit(vectors)


def test_codes_and_vectors_of_another_width_are_refused(vectors, quantization):
    with pytest.raises(InputError, match="39"):
        quantization.encode(vectors[:, :39], "int8")
    with pytest.raises(InputError, match="int8"):
        quantization.decode(np.zeros((3, 40), np.uint8), "int8")
    with pytest.raises(InputError, match="float16"):
        quantization.encode(vectors, "float16")


@pytest.mark.parametrize(
    ("name", "array", "key_word"),
    [
        ("low", np.zeros((2, 2), np.float32), "low"),
        ("step", np.full(40, -1, np.float32), "negative"),
        ("step", np.zeros(39, np.float32), "step"),
        ("center", np.full(40, np.nan, np.float32), "center"),
        ("rotation", np.eye(40), "float64"),
        ("rotation", None, "missing"),
        ("projection", None, "belong together"),
        ("codebooks", None, "belong together"),
        ("codebooks", np.zeros((16, 15, 2), np.float32), "codebooks"),
        ("codebooks", np.zeros((16, 16, 3), np.float32), "codebooks"),
        ("codebooks", np.zeros((15, 16, 2), np.float32), "codebooks"),
        ("codebooks", np.zeros((8, 16, 2), np.float32), "projection"),
        ("codebooks", np.zeros((0, 16, 2), np.float32), "codebooks"),
        ("codebooks", np.zeros((16, 16 * 2), np.float32), "codebooks"),
        ("codebooks", np.full((16, 16, 2), np.inf, np.float32), "infinity"),
        ("projection", np.zeros((40, 41), np.float32), "projection"),
        ("projection", np.zeros((40, 40)), "float64"),
    ],
)
def test_tensors_that_cannot_be_used_are_refused(product, name, array, key_word):
    tensors = product.tensors() | {name: array}
    if array is None:
        del tensors[name]
    with pytest.raises(InputError, match=key_word):
        Quantization.from_tensors(tensors)
