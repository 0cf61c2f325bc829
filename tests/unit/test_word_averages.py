import tracemalloc

import numpy as np
import pytest

from isosent.numeric.word_averages import balanced_means, power_means, weighted_means

INF = np.inf
LENGTHS = (3, 0, 1, 8, 0, 5, 2)
POWERS = (-INF, 1.0, 2.0, 3.0, 0.5, INF)


@pytest.fixture
def rows():
    return np.random.default_rng(1).normal(size=(20, 7)).astype(np.float32)


def ragged(lengths=LENGTHS, n_rows=20):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.random.default_rng(2).integers(0, n_rows, offsets[-1], dtype=np.int32), offsets


def ones(ids):
    return np.ones(len(ids), dtype=np.float32)


AVERAGES = {
    "mean": weighted_means,
    "weighted": lambda rows, ids, offsets: weighted_means(rows, ids, offsets, 2 * ones(ids)),
    "balanced": lambda rows, ids, offsets: balanced_means(rows, ids, offsets, ones(ids)),
    "power": lambda rows, ids, offsets: power_means(rows, ids, offsets, POWERS),
}
every_average = pytest.mark.parametrize("average", AVERAGES.values(), ids=AVERAGES)


@every_average
def test_a_text_without_words_has_the_zero_vector(rows, average):
    vectors = average(rows, *ragged())
    assert vectors.dtype == np.float32
    assert vectors.any(axis=1).tolist() == [length > 0 for length in LENGTHS]


@every_average
def test_no_texts_have_no_vectors(rows, average):
    width = average(rows, *ragged()).shape[1]
    assert average(rows, *ragged(())).shape == (0, width)
    assert average(rows[:0], *ragged((0, 0))).shape == (2, width)


@every_average
def test_threads_change_nothing(rows, average, monkeypatch):
    ids, offsets = ragged(np.arange(300) % 90)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    expected = average(rows, ids, offsets)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    np.testing.assert_array_equal(average(rows, ids, offsets), expected)


@every_average
def test_a_text_of_100000_words_takes_little_memory(rows, average):
    ids, offsets = ragged((100_000, 3))
    average(rows, *ragged())  # compiled
    tracemalloc.start()
    vectors = average(rows, ids, offsets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(vectors).all()
    assert peak < 2e6


def test_the_mean_of_100000_words_is_near_that_of_float64(rows):
    ids, offsets = ragged((100_000,))
    np.testing.assert_allclose(
        weighted_means(rows, ids, offsets)[0], rows.astype(np.float64)[ids].mean(axis=0), atol=1e-4
    )


def test_weights_are_divided_by_the_number_of_words():
    rows = np.array([[2.0, 0.0], [0.0, 4.0]], dtype=np.float32)
    ids, offsets = np.array([0, 1], np.int32), np.array([0, 2])
    found = weighted_means(rows, ids, offsets, np.array([0.5, 0.25], dtype=np.float32))
    np.testing.assert_array_equal(found, [[0.5, 0.5]])


def test_balanced_coordinates_do_not_depend_on_their_scale(rows):
    ids, offsets = ragged()
    weights = np.linspace(0.1, 1, len(ids)).astype(np.float32)
    scaled = rows * np.array([1, 2, 4, 8, 16, 32, 64], dtype=np.float32)
    np.testing.assert_allclose(
        balanced_means(scaled, ids, offsets, weights), balanced_means(rows, ids, offsets, weights), atol=1e-6
    )


def test_a_coordinate_that_every_word_has_0_in_stays_0(rows):
    rows[:, 3] = 0
    ids, offsets = ragged()
    assert not balanced_means(rows, ids, offsets, ones(ids))[:, 3].any()


def test_minimum_mean_and_maximum_stand_side_by_side(rows):
    ids, offsets = ragged((6,))
    found = power_means(rows, ids, offsets, (-INF, 1, INF))[0].reshape(3, -1)
    words = rows[ids]
    np.testing.assert_array_equal(found[[0, 2]], [words.min(axis=0), words.max(axis=0)])
    np.testing.assert_allclose(found[1], words.mean(axis=0), atol=1e-6)


def test_the_second_power_is_the_root_of_the_mean_square(rows):
    ids, offsets = ragged((6,))
    expected = np.sqrt((rows[ids].astype(np.float64) ** 2).mean(axis=0))
    np.testing.assert_allclose(power_means(rows, ids, offsets, (2,))[0], expected, rtol=1e-6)


def test_the_power_mean_of_one_positive_word_is_the_word(rows):
    found = power_means(np.abs(rows), np.array([4], np.int32), np.array([0, 1]), POWERS)[0].reshape(len(POWERS), -1)
    np.testing.assert_allclose(found, np.tile(np.abs(rows[4]), (len(POWERS), 1)), rtol=1e-6)


@pytest.mark.parametrize("dim", [1, 7])
def test_a_few_texts_get_the_same_bits_as_many(dim):
    rows = np.random.default_rng(3).normal(size=(20, dim)).astype(np.float32) * np.float32(1e30)
    rows[4], rows[5] = -0.0, 3e38
    ids, offsets = ragged((30, 0, 1, 90, 2))
    few = weighted_means(rows, ids, offsets)
    more, ends = np.concatenate([ids, np.zeros(2000, ids.dtype)]), np.append(offsets, offsets[-1] + 2000)
    assert few.tobytes() == weighted_means(rows, more, ends)[:5].tobytes()
