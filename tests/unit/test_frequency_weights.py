import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isosent.errors import InputError
from isosent.numeric.word_averages import sif_weights, usif_weights

shares = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=2, max_size=40).filter(lambda p: max(p) > 1e-9)


@given(shares, st.floats(1e-6, 1))
def test_sif_weighs_frequent_words_less(probabilities, a):
    probabilities = np.array(probabilities)
    weights = sif_weights(probabilities, a)
    assert ((weights > 0) & (weights <= 1)).all()
    assert (np.diff(weights[np.argsort(probabilities)]) <= 0).all()


def test_sif_of_a_word_of_the_probability_a_is_one_half():
    np.testing.assert_allclose(sif_weights(np.array([1e-3, 3e-3]), 1e-3), [1 / 2, 1 / 4])


def test_sif_of_a_word_without_a_frequency_is_1():
    assert sif_weights(np.array([0.0, 0.5]))[0] == 1


@given(shares, st.floats(1, 100))
def test_usif_weighs_frequent_words_less(probabilities, mean_length):
    known = np.array(probabilities)
    weights = usif_weights(known, mean_length)
    assert (np.isfinite(weights) & (weights > 0)).all()
    assert (np.diff(weights[np.argsort(np.where(known > 0, known, known[known > 0].min()))]) <= 1e-12).all()


def test_usif_by_hand():
    """Of 4 words, 1 is above 1 - (3 / 4)^2 = 0.4375: alpha = 1 / 4, Z = 2, a = (3 / 4) / (1 / 2) = 3 / 2."""
    probabilities = np.array([0.7, 0.1, 0.15, 0.05])
    np.testing.assert_allclose(usif_weights(probabilities, 2.0), 1.5 / (0.75 + probabilities))


def test_usif_counts_known_words_only():
    """The fourth word changes neither alpha nor Z, and weighs as much as the rarest."""
    weights = usif_weights(np.array([0.7, 0.2, 0.1, 0.0]), 2.0)
    np.testing.assert_allclose(weights[:3], usif_weights(np.array([0.7, 0.2, 0.1]), 2.0))
    assert weights[3] == weights[2]


@pytest.mark.parametrize("probabilities", [[1.0], [0.5, 0.5], [1e-9, 1e-9, 1e-9]], ids=str)
@pytest.mark.parametrize("mean_length", [1.0, 5.0, 1e6])
def test_usif_is_positive_where_all_words_or_none_are_above_the_bound(probabilities, mean_length):
    weights = usif_weights(np.array(probabilities), mean_length)
    assert (np.isfinite(weights) & (weights > 0)).all()


def test_float32_probabilities_give_float64_weights():
    probabilities = np.array([0.25, 0.5], dtype=np.float32)
    assert sif_weights(probabilities).dtype == usif_weights(probabilities, 3.0).dtype == np.float64


@pytest.mark.parametrize("a", [0, -1.0, float("nan")])
def test_a_smoothing_constant_that_is_not_positive_is_refused(a):
    with pytest.raises(InputError, match=r"sif_weights: a must be > 0; got"):
        sif_weights(np.array([0.1]), a)


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, np.inf])
def test_what_is_no_probability_is_refused(value):
    with pytest.raises(InputError, match=r"sif_weights: probabilities must lie in \[0, 1\]; got"):
        sif_weights(np.array([0.1, value]))
    with pytest.raises(InputError, match=r"usif_weights: probabilities must lie in \[0, 1\]; got"):
        usif_weights(np.array([0.1, value]), 2.0)


@pytest.mark.parametrize("probabilities", [[], [0.0, 0.0]], ids=str)
def test_usif_without_any_frequency_is_refused(probabilities):
    with pytest.raises(InputError, match=r"usif_weights: no word has a frequency"):
        usif_weights(np.array(probabilities), 2.0)


@pytest.mark.parametrize("mean_length", [0.0, 0.5, np.nan])
def test_usif_of_texts_shorter_than_a_word_is_refused(mean_length):
    with pytest.raises(InputError, match=r"usif_weights: mean_length must be at least 1; got"):
        usif_weights(np.array([0.5]), mean_length)
