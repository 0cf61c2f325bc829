import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from isosent import LinearMap, Moments

VALUES = st.floats(-1e3, 1e3, width=32)
ROWS = st.tuples(st.integers(0, 12), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=VALUES)
)


def assert_equal_moments(a, b):
    scale = max(1.0, np.abs(b.scatter).max(initial=0.0), np.abs(b.mean).max(initial=0.0) ** 2)
    assert a.weight == b.weight
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(a.scatter, b.scatter, rtol=1e-9, atol=1e-9 * scale)


@given(rows=ROWS, data=st.data())
def test_any_split_gives_the_whole(rows, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    parts = np.split(rows, cuts)
    total = sum((Moments.from_rows(part) for part in parts), start=Moments.empty(rows.shape[1]))
    assert_equal_moments(total, Moments.from_rows(rows))


@given(rows=ROWS, data=st.data())
def test_the_order_of_rows_does_not_matter(rows, data):
    order = data.draw(st.permutations(range(len(rows))))
    assert_equal_moments(Moments.from_rows(rows[list(order)]), Moments.from_rows(rows))


@given(rows=ROWS, data=st.data())
def test_a_whole_weight_is_a_repeated_row(rows, data):
    counts = data.draw(arrays(np.int64, len(rows), elements=st.integers(0, 4)))
    weighted = Moments.from_rows(rows, counts)
    assert_equal_moments(weighted, Moments.from_rows(np.repeat(rows, counts, axis=0)))


@given(a=ROWS)
def test_nothing_added_changes_nothing(a):
    moments, nothing = Moments.from_rows(a), Moments.empty(a.shape[1])
    assert_equal_moments(moments + nothing, moments)
    assert_equal_moments(nothing + moments, moments)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-12, 12))
def test_scaling_the_rows_scales_the_moments(seed, exponent):
    rows = np.random.default_rng(seed).normal(size=(40, 3)).astype(np.float32)
    scale = np.float32(2.0**exponent)
    plain, scaled = Moments.from_rows(rows), Moments.from_rows(rows * scale)
    np.testing.assert_allclose(scaled.mean, plain.mean * scale, rtol=1e-6)
    np.testing.assert_allclose(scaled.scatter, plain.scatter * float(scale) ** 2, rtol=1e-6)


@given(rows=ROWS, seed=st.integers(0, 99))
def test_moments_behind_a_map_are_those_of_the_mapped_rows(rows, seed):
    rng = np.random.default_rng(seed)
    linear_map = LinearMap(rng.normal(size=(rows.shape[1], 3)), rng.normal(size=3))
    found = Moments.from_rows(rows).mapped(linear_map)
    if len(rows):
        assert_equal_moments(found, Moments.from_rows(linear_map.apply(rows)))
    assert found.weight == len(rows)
