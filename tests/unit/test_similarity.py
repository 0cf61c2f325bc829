import numpy as np
import pytest

from isosent.numeric.similarity import nonzero_rows, unit_rows

ROUNDING = {"float16": 2e-3, "float32": 3e-7, "float64": 1e-15}


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        ("float16", 1e-3),
        ("float16", 2e3),
        ("float32", 1e-25),
        ("float32", 1e-12),
        ("float32", 1.0),
        ("float32", 1e19),
        ("float32", 3e37),
        ("float64", 1e-200),
        ("float64", 1e200),
    ],
)
def test_rows_of_any_size_are_scaled_to_length_1(dtype, scale):
    rng = np.random.default_rng(0)
    rows = (rng.uniform(1, 9, size=(20, 7)) * rng.choice([-1, 1], size=(20, 7)) * scale).astype(dtype)
    exact = rows.astype(np.longdouble)
    rows[4] = 0
    units = unit_rows(rows)
    assert units.dtype == dtype
    assert not units[4].any()
    kept = np.arange(20) != 4
    expected = exact / np.sqrt((exact**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(units[kept], expected[kept].astype(np.float64), rtol=ROUNDING[dtype])


def test_a_signaling_nan_is_no_zero_and_no_warning():
    rows = np.zeros((3, 40), np.float32)
    rows.view(np.uint32)[1, 17] = 0x7F800001
    np.testing.assert_array_equal(nonzero_rows(rows), [False, True, False])


@pytest.mark.parametrize(("n_rows", "dim"), [(3000, 256), (2, 300_000), (400_000, 1)])
def test_rows_have_the_same_bits_among_many(n_rows, dim):
    rows = np.random.default_rng(0).standard_normal((n_rows, dim)).astype(np.float32)
    rows[-1] = 0
    expected = rows / np.maximum(np.sqrt((rows * rows).sum(axis=1, keepdims=True)), np.float32(1e-30))
    np.testing.assert_array_equal(unit_rows(rows), expected)
