import numpy as np
import pytest

from isosent import LinearMap
from isosent.errors import InputError


@pytest.fixture
def linear_map():
    rng = np.random.default_rng(0)
    return LinearMap(rng.normal(size=(5, 3)), rng.normal(size=3))


@pytest.mark.parametrize("n_rows", [0, 1, 7])
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(np.float64, np.float64), (np.float32, np.float32), (np.float16, np.float32), (np.int64, np.float32)],
)
def test_rank_width_and_dtype_are_the_same_for_every_number_of_rows(linear_map, n_rows, dtype, expected):
    rows = np.random.default_rng(1).normal(size=(n_rows, 5)).astype(dtype)
    mapped = linear_map.apply(rows)
    assert mapped.shape == (n_rows, 3)
    assert mapped.dtype == expected
    np.testing.assert_allclose(mapped, rows.astype(float) @ linear_map.weight + linear_map.bias, rtol=1e-4, atol=1e-4)


def test_two_maps_fold_to_one(linear_map):
    after = LinearMap(np.random.default_rng(2).normal(size=(3, 2)), np.array([1.0, -1.0]))
    rows = np.random.default_rng(3).normal(size=(4, 5))
    np.testing.assert_allclose(linear_map.then(after).apply(rows), after.apply(linear_map.apply(rows)), rtol=1e-12)


def test_maps_of_other_widths_do_not_fold(linear_map):
    with pytest.raises(InputError, match="of 3 dimensions, found 5"):
        linear_map.then(linear_map)


def test_nan_rows_are_refused_with_their_number(linear_map):
    rows = np.ones((4, 5), dtype=np.float32)
    rows[2] = np.nan
    with pytest.raises(InputError, match=r"row 2 of .*holds NaN"):
        linear_map.apply(rows)


def test_rows_whose_sum_overflows_are_not_refused():
    rows = np.full((4, 5), 3e38, dtype=np.float32)
    small = LinearMap(np.full((5, 3), 1e-3), np.zeros(3))
    np.testing.assert_allclose(small.apply(rows), 1.5e36, rtol=1e-5)


def test_rows_that_overflow_behind_the_map_are_refused(linear_map):
    with pytest.raises(InputError, match="rows map to values beyond float32"):
        linear_map.apply(np.full((4, 5), 3e38, dtype=np.float32))


def test_rows_of_another_width_are_refused(linear_map):
    with pytest.raises(InputError, match="expected rows of 5 dimensions, found 4"):
        linear_map.apply(np.ones((2, 4)))


def test_shapes_that_disagree_are_refused():
    with pytest.raises(InputError, match="weight and bias must have shapes"):
        LinearMap(np.ones((2, 3)), np.ones(2))


def test_a_map_that_is_not_finite_is_refused():
    with pytest.raises(InputError, match="holds NaN or infinity"):
        LinearMap(np.array([[np.inf]]), np.zeros(1))


@pytest.fixture
def many_rows():
    return np.random.default_rng(4).normal(size=(9000, 5)).astype(np.float32)


def test_rows_of_several_blocks_are_mapped(linear_map, many_rows):
    np.testing.assert_allclose(
        linear_map.apply(many_rows), many_rows.astype(float) @ linear_map.weight + linear_map.bias, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n_components", [1, 2, 5])
def test_a_bad_value_is_found_even_where_its_weight_is_zero(many_rows, value, n_components):
    many_rows[8500, 4] = value
    with pytest.raises(InputError, match="row 8500 of"):
        LinearMap(np.eye(5)[:, :n_components], np.zeros(n_components)).apply(many_rows)


def test_bytes_are_mapped_as_the_numbers_that_they_are(linear_map):
    rows = np.random.default_rng(5).integers(-128, 128, size=(6, 5), dtype=np.int8)
    np.testing.assert_allclose(linear_map.apply(rows), linear_map.apply(rows.astype(np.float32)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_map_that_removes_few_directions_gives_what_its_weight_does(dtype):
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.standard_normal((64, 2)))[0]
    linear_map = LinearMap(np.eye(64) - directions @ directions.T, rng.standard_normal(64))
    rows = rng.standard_normal((50, 64)).astype(dtype)
    expected = rows.astype(np.float64) @ linear_map.weight + linear_map.bias
    np.testing.assert_allclose(linear_map.apply(rows), expected, atol=1e-12 if dtype == np.float64 else 2e-6)


def test_a_map_that_scales_dimensions_gives_what_its_weight_does():
    rng = np.random.default_rng(0)
    linear_map = LinearMap(np.diag(rng.random(40)), rng.standard_normal(40))
    rows = rng.standard_normal((50, 40))
    np.testing.assert_allclose(linear_map.apply(rows), rows @ linear_map.weight + linear_map.bias, rtol=1e-12)


@pytest.mark.parametrize("weight", [np.eye(40), np.eye(40) - np.eye(40, k=0) * ([1] + [0] * 39), np.ones((40, 40))])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_every_kind_of_map_refuses_a_row_that_is_not_finite(weight, value):
    rows = np.ones((5, 40))
    rows[3, 7] = value
    with pytest.raises(InputError, match="row 3"):
        LinearMap(weight, np.zeros(40)).apply(rows)
