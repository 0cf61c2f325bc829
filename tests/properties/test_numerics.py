"""Moments, whitening, principal components and cosines against exact rationals, and long double for many rows.

The tolerance is the one that `Moments.from_rows` promises.
"""

import contextlib
import warnings
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from isosent import Moments, PrincipalComponents, SentenceEncoder, Whitening
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError, RankWarning

EPS = np.finfo(np.float64).eps
LONG = np.longdouble
DTYPES = [np.float16, np.float32, np.float64]
LARGEST = {np.float16: 60_000.0, np.float32: 1e38, np.float64: 1e140}
SMALLEST = {np.float16: 6e-8, np.float32: 1e-45, np.float64: 1e-120}  # the first two are denormal


def exact_moments(rows, weights):
    """Weight, mean and scatter as arrays of fractions."""
    fraction = np.vectorize(Fraction, otypes=[object])
    rows, weights = fraction(rows.astype(np.float64)), fraction(weights)[:, None]
    weight = weights.sum()
    mean = (weights * rows).sum(axis=0) / weight
    return weight, mean, (rows - mean).T @ (weights * (rows - mean))


def long_moments(rows, weights):
    """The same in long double. The mean is corrected once, because its first sum has rounding errors too."""
    rows, weights = rows.astype(LONG), weights.astype(LONG)[:, None]
    weight = weights.sum()
    mean = rows[0] + (weights * (rows - rows[0])).sum(axis=0) / weight
    mean += (weights * (rows - mean)).sum(axis=0) / weight
    return weight, mean, (rows - mean).T @ (weights * (rows - mean))


def assert_within_the_promise(found, rows, weights, reference=exact_moments, n_additions=0):
    weight, mean, scatter = reference(rows, weights)
    assert abs(found.weight - weight) <= EPS * len(rows) * weight
    largest = np.abs(rows.astype(LONG)).max(axis=0)
    s = np.sqrt(np.diagonal(scatter).astype(LONG))
    r = EPS * largest * np.sqrt(LONG(weight))
    added = np.outer(r, s) + np.outer(s, r) + np.outer(r, r)
    tolerance = 1e-13 * np.outer(s, s) + (1e-9 + 2 * n_additions) * added
    assert (np.abs(found.mean - mean) <= (4 + 2 * n_additions) * EPS * largest).all()
    assert (np.abs(found.scatter - scatter) <= tolerance).all()


@st.composite
def rows_of_any_size(draw):
    """Rows whose columns have different sizes and means; some are constant, some repeat another one."""
    dtype = draw(st.sampled_from(DTYPES))
    n_rows, dim = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    rows = draw(arrays(np.float64, (n_rows, dim), elements=st.floats(-1, 1, width=16)))
    size = st.floats(np.log10(SMALLEST[dtype]), np.log10(LARGEST[dtype]) - 0.1)
    scales = 10.0 ** draw(arrays(np.float64, dim, elements=size))
    means = draw(arrays(np.float64, dim, elements=st.sampled_from([0.0, 1.0, 1e3, 1e8])))
    rows = (rows + means) * scales / (1 + means)
    for column in range(dim):
        kind = draw(st.sampled_from(["own", "own", "constant", "repeated"]))
        if kind != "own":
            rows[:, column] = rows[0, column] if kind == "constant" else rows[:, 0]
    return rows.astype(dtype)


def weights_of(data, n_rows):
    """One each, or weights of very different size."""
    if data.draw(st.booleans()):
        return np.ones(n_rows)
    return 10.0 ** data.draw(arrays(np.float64, n_rows, elements=st.floats(-12, 12)))


@settings(max_examples=150, deadline=None)
@given(rows=rows_of_any_size(), data=st.data())
def test_moments_keep_the_promise(rows, data):
    weights = weights_of(data, len(rows))
    assert_within_the_promise(Moments.from_rows(rows, weights), rows, weights)


@settings(max_examples=100, deadline=None)
@given(rows=rows_of_any_size(), data=st.data())
def test_merging_in_any_order_keeps_the_promise(rows, data):
    weights = weights_of(data, len(rows))
    parts = [Moments.from_rows(rows[i : i + 1], weights[i : i + 1]) for i in range(len(rows))]
    while len(parts) > 1:
        first = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        second = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        parts.append(first + second)
    assert_within_the_promise(parts[0], rows, weights, n_additions=len(rows) - 1)


def many_rows(name):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(1000, 6))
    if name == "constant columns":
        noise[:, 2], noise[:, 3], noise[:, 4] = 1e10 / 3, 0, 0.1
    if name == "repeated columns":
        noise[:, 3], noise[:, 5] = noise[:, 0], noise[:, 1]
    return {
        "float16 near 60,000": lambda: (60_000 + rng.integers(-100, 100, size=(1000, 6)) * 32).astype(np.float16),
        "float16 up to 60,000": lambda: (noise.clip(-1, 1) * 60_000).astype(np.float16),
        "float16 denormal": lambda: (rng.integers(-3, 4, size=(1000, 6)) * 6e-8).astype(np.float16),
        "float32 near 1e38": lambda: (1e38 + noise * 1e36).astype(np.float32),
        "float32 up to 3e38": lambda: (noise.clip(-3, 3) * 1e38).astype(np.float32),
        "float32 denormal": lambda: (noise * 1e-40).astype(np.float32),
        "constant columns": lambda: noise,
        "repeated columns": lambda: noise,
        "one row": lambda: noise[:1],
        "two rows": lambda: noise[:2],
        "two close rows": lambda: 1000 + noise[:2] * 1e-9,
        "mean 1000, float32": lambda: (1000 + rng.normal(size=(100_000, 6))).astype(np.float32),
        "mean 1000, float64": lambda: 1000 + rng.normal(size=(100_000, 6)),
        "mean 1e8, float64": lambda: 1e8 + rng.normal(size=(100_000, 6)),
        "one distant row": lambda: np.vstack([noise, np.full((1, 6), 1e12)]),
    }[name]()


NAMES = [
    "float16 near 60,000",
    "float16 up to 60,000",
    "float16 denormal",
    "float32 near 1e38",
    "float32 up to 3e38",
    "float32 denormal",
    "constant columns",
    "repeated columns",
    "one row",
    "two rows",
    "two close rows",
    "mean 1000, float32",
    "mean 1000, float64",
    "mean 1e8, float64",
    "one distant row",
]


@pytest.mark.parametrize("name", NAMES)
def test_moments_of_many_rows_keep_the_promise(name):
    rows = many_rows(name)
    n_rows = len(rows)
    assert_within_the_promise(Moments.from_rows(rows), rows, np.ones(n_rows), long_moments)
    rng = np.random.default_rng(1)
    for exponents in (rng.uniform(-12, 12, n_rows), rng.uniform(-60, 60, n_rows), np.eye(1, n_rows)[0] * 15):
        weights = 10.0**exponents
        assert_within_the_promise(Moments.from_rows(rows, weights), rows, weights, long_moments)
        parts = zip(np.array_split(rows, 9), np.array_split(weights, 9), strict=True)
        total = sum((Moments.from_rows(*part) for part in parts), start=Moments.empty(6))
        assert_within_the_promise(total, rows, weights, long_moments, n_additions=9)


@pytest.mark.parametrize("name", ["float16 up to 60,000", "float16 denormal", "mean 1000, float32", "mean 1000, grid"])
def test_products_in_float32_keep_the_promise(name):
    rows = many_rows("mean 1000, float64").astype(np.float16) if name == "mean 1000, grid" else many_rows(name)
    _, mean, scatter = long_moments(rows, np.ones(len(rows)))
    in_double = Moments.from_rows(rows)
    found = Moments.from_rows(rows, n_rows_total=10**12)
    assert (found.scatter != in_double.scatter).any()
    s = np.sqrt(np.diagonal(scatter))
    assert (np.abs(found.mean - mean) <= 1e-6 * np.abs(rows.astype(LONG)).max(axis=0)).all()
    assert (np.abs(found.scatter - scatter) <= 3e-6 * np.outer(s, s)).all()
    axes = np.linalg.eigh(found.scatter)[1]
    variances = np.diagonal(axes.T @ scatter @ axes)
    assert (np.abs(np.diagonal(axes.T @ found.scatter @ axes) - variances) <= 1e-3 * variances).all()


@pytest.mark.parametrize("transform", [Whitening, PrincipalComponents])
@pytest.mark.parametrize("name", NAMES)
def test_maps_of_many_rows_give_the_covariance_they_promise(transform, name):
    rows = many_rows(name)
    rank = {"one row": 0, "two rows": 1, "two close rows": 1, "constant columns": 3, "repeated columns": 4}.get(name, 6)
    rank = 1 if name == "one distant row" else rank  # float64 holds nothing else beside it
    with contextlib.ExitStack() as stack:
        if rank == 0:
            stack.enter_context(pytest.raises(InputError, match="rank 0"))
        elif rank < 6:
            stack.enter_context(pytest.warns(RankWarning, match=f"{rank} instead of 6"))
        else:
            stack.enter_context(warnings.catch_warnings(action="error"))
        linear_map = transform().fit(rows).linear_map_
    if rank == 0:
        return
    weight, mean, scatter = long_moments(rows, np.ones(len(rows)))
    axes = linear_map.weight.astype(LONG)
    mapped = axes.T @ (scatter / weight) @ axes
    size = np.sqrt(np.outer(np.diagonal(mapped), np.diagonal(mapped)))
    assert np.abs(mapped - np.diag(np.diagonal(mapped))).max() <= 1e-9 * size.max()
    if transform is Whitening:
        np.testing.assert_allclose(np.diagonal(mapped), 1, atol=1e-9)
    else:
        np.testing.assert_allclose(axes.T @ axes, np.eye(rank), atol=1e-13)
    bound = 1e-13 * (np.abs(mean) @ np.abs(axes)) + EPS * np.abs(axes).sum(axis=0)
    assert (np.abs(mean @ axes + linear_map.bias) <= bound).all()


@settings(max_examples=150, deadline=None)
@given(rows=rows_of_any_size(), data=st.data())
def test_cosines_are_those_of_exact_rationals(rows, data):
    model, context = SentenceEncoder(PrecomputedVectors(rows.shape[1])), Context(prec=60)
    i, j = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, len(rows) - 1))
    a, b = ([Fraction(value) for value in rows[row].tolist()] for row in (i, j))
    product = sum(x * y for x, y in zip(a, b, strict=True))
    squares = sum(x * x for x in a) * sum(x * x for x in b)
    exact = 0.0
    if squares:
        squared = product * product / squares
        size = context.sqrt(context.divide(Decimal(squared.numerator), Decimal(squared.denominator)))
        exact = float(size) if product > 0 else -float(size)
    assert abs(model.similarity(rows[i], rows[j])[0, 0] - exact) <= 1e-14


@pytest.mark.parametrize("size", [1e154, 1e200, 1e308])
def test_moments_that_leave_float64_are_refused(size):
    with pytest.raises(InputError, match="float64"):
        Moments.from_rows([[size, 1.0], [-size, 2.0]])
    with pytest.raises(InputError, match="float64"):
        Moments.from_rows([[size, 1.0]]) + Moments.from_rows([[-size, 2.0]])


def test_weights_that_leave_float64_are_refused():
    with pytest.raises(InputError, match=r"weights.*1e\+308"):
        Moments.from_rows([[1.0], [2.0]], [1e308, 1e308])
    heavy = Moments.from_rows([[1e-10]], [1e308])
    with pytest.raises(InputError, match=r"1e\+308"):
        heavy + heavy
