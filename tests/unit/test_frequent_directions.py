"""The sketch of a scatter: its bound, and what is fitted on it."""

import numpy as np
import pytest

from isosent.errors import InputError, MemoryWarning
from isosent.io.vectors import open_vectors
from isosent.jobs import vectors
from isosent.jobs.vectors import moments_of, sketch_of
from isosent.numeric.frequent_directions import FrequentDirections
from isosent.numeric.moments import Moments
from isosent.transforms.linear import MeanCentering
from isosent.transforms.whitening import PrincipalComponents, Whitening

SIZE = 12


@pytest.fixture(params=["decaying", "flat", "few axes"])
def rows(request):
    rng = np.random.default_rng(3)
    variances = {"decaying": 0.8 ** np.arange(40), "flat": np.ones(40), "few axes": np.repeat([1.0, 0.0], [9, 31])}
    mixing = np.linalg.qr(rng.normal(size=(40, 40))).Q
    return (rng.normal(size=(500, 40)) * np.sqrt(variances[request.param])) @ mixing + 5.0


def sketched(rows, order=None):
    parts = np.array_split(rows, [70, 75, 300])
    sketches = [FrequentDirections.empty(40, SIZE).updated(part) for part in parts]
    return sum((sketches[number] for number in (order or range(4))[1:]), sketches[(order or [0])[0]])


@pytest.mark.parametrize("order", [None, [2, 0, 3, 1]])
def test_the_scatter_is_underestimated_by_at_most_the_stated_error(rows, order):
    sketch, exact = sketched(rows, order), Moments.from_rows(rows)
    assert sketch.rows.shape[0] <= SIZE
    np.testing.assert_allclose(sketch.mean, exact.mean, rtol=1e-12)
    missing = np.linalg.eigvalsh(exact.scatter - sketch.rows.T @ sketch.rows)
    scale = np.trace(exact.scatter)
    assert missing[0] >= -1e-12 * scale
    assert missing[-1] <= sketch.error + 1e-12 * scale
    variances = np.linalg.eigvalsh(exact.scatter)[::-1]
    for k in range(SIZE):
        assert sketch.error <= variances[k:].sum() / (SIZE + 1 - k) + 1e-12 * scale


def test_rows_that_vary_along_few_axes_lose_nothing():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 9)) @ rng.normal(size=(9, 40)) + 2.0
    sketch, exact = sketched(rows), Moments.from_rows(rows)
    np.testing.assert_allclose(sketch.rows.T @ sketch.rows, exact.scatter, atol=1e-9 * np.trace(exact.scatter))
    for transform in (PrincipalComponents(5), Whitening(5, strength=0.5)):
        same = type(transform)(**transform.get_params()).fit_moments(exact)
        transform.fit_moments(sketch)
        np.testing.assert_allclose(transform.transform(rows), same.transform(rows), atol=1e-6)


def test_zero_rows_do_not_count_and_no_rows_are_neutral():
    rows = np.random.default_rng(0).normal(size=(20, 40))
    empty = FrequentDirections.empty(40, SIZE)
    sketch = empty.updated(np.concatenate([rows, np.zeros((3, 40))]))
    assert sketch.weight == 20
    np.testing.assert_array_equal((empty + sketch).mean, sketch.mean)
    assert (empty + empty).weight == 0
    assert empty.spectrum.rank == 0


def test_what_cannot_be_sketched_is_refused():
    sketch = FrequentDirections.empty(4, 3).updated(np.random.default_rng(0).normal(size=(9, 4)))
    with pytest.raises(InputError, match="row 1"):
        sketch.updated([[1, 2, 3, 4], [1, np.nan, 3, 4]])
    with pytest.raises(InputError, match="dimensions"):
        sketch.updated(np.ones((2, 5)))
    with pytest.raises(InputError, match="size"):
        FrequentDirections.empty(4, 0)
    with pytest.raises(InputError, match="sketch"):
        MeanCentering().fit_moments(sketch)
    for settings in ({"method": "zca"}, {"shrinkage": "oas"}, {"center": False}):
        with pytest.raises(InputError, match="sketch"):
            Whitening(2, **settings).fit_moments(sketch)
    with pytest.raises(InputError, match="rank 0"):
        PrincipalComponents(1).fit_moments(FrequentDirections.empty(4, 3).updated(np.ones((5, 4))))


def test_files_are_sketched_and_many_dimensions_are_warned_of(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(100, 40)).astype(np.float32)
    np.save(tmp_path / "v.npy", rows)
    sketch = sketch_of([open_vectors(tmp_path / "v.npy")] * 2, SIZE)
    assert sketch.weight == 200
    monkeypatch.setattr(vectors, "_MANY_DIMENSIONS", 39)
    with pytest.warns(MemoryWarning, match="40 dimensions take 12.5 KiB"):
        moments_of([open_vectors(tmp_path / "v.npy")])
