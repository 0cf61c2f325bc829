import numpy as np
import pytest
import scipy

from isosent.numeric.statistics import (
    bootstrap_differences,
    bootstrap_p_value,
    holm,
    mcnemar_exact,
    williams_test,
)


@pytest.fixture
def scored():
    """Two predictions of the same ordinal scores, with ties in all three."""
    random = np.random.default_rng(3)
    gold = random.integers(0, 6, size=60).astype(float)
    first, second = (np.round(gold + random.normal(scale=scale, size=60), 1) for scale in (1, 3))
    return first, second, gold


def test_williams_gives_the_textbook_example():
    # Howell, Statistical Methods for Psychology, 6th edition, page 262: t = 1.36 with 23 degrees of freedom, p = .187
    t, p_value = williams_test(0.80, 0.72, 0.89, 26)
    assert (round(t, 3), round(p_value, 3)) == (1.361, 0.187)


def test_williams_gives_the_example_of_another_package():
    # r.test(103, .4, .5, .1) of R's psych, "Steiger case A": t = -0.89, probability < 0.37
    t, p_value = williams_test(0.4, 0.5, 0.1, 103)
    assert (round(t, 2), round(p_value, 2)) == (-0.89, 0.37)


def test_williams_takes_either_side_first():
    (t, p_value), (back, same) = williams_test(0.6, 0.5, 0.3, 50), williams_test(0.5, 0.6, 0.3, 50)
    assert t == -back
    assert p_value == same


def test_williams_is_undefined_where_a_correlation_is_or_items_are_too_few():
    assert np.isnan(williams_test(float("nan"), 0.5, 0.3, 50)).all()
    assert np.isnan(williams_test(0.6, 0.5, 0.3, 3)).all()


def test_williams_of_the_same_prediction_twice():
    assert williams_test(0.6, 0.6, 1.0, 50) == (0.0, 1.0)


def test_williams_rejects_one_true_hypothesis_in_twenty():
    random = np.random.default_rng(0)
    mixing = np.linalg.cholesky([[1, 0.7, 0.7], [0.7, 1, 0.8], [0.7, 0.8, 1]])
    p_values = []
    for _ in range(2000):
        (_, first, second), (_, _, between), _ = np.corrcoef(mixing @ random.normal(size=(3, 60)))
        p_values.append(williams_test(first, second, between, 60)[1])
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=0.015)  # three standard errors


@pytest.mark.parametrize(("only_first", "only_second"), [(0, 0), (1, 0), (3, 9), (9, 3), (7, 7), (40, 70)])
def test_mcnemar_is_a_binomial_test_of_what_only_one_gets_right(only_first, only_second):
    told = [1.0] * only_first + [0.0] * only_second
    first, second = np.array([*told, 1, 0]), np.array([*(1 - right for right in told), 1, 0])
    n_told = only_first + only_second
    expected = scipy.stats.binomtest(only_first, n_told).pvalue if n_told else 1.0
    assert mcnemar_exact(first, second) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("statistic", ["spearman", "pearson", "mean"])
def test_the_paired_bootstrap_is_a_plain_loop_over_the_same_draws(scored, statistic):
    first, second, gold = scored

    def of(values, rows):
        if statistic == "mean":
            return values[rows].mean()
        return getattr(scipy.stats, f"{statistic}r")(values[rows], gold[rows]).statistic

    random, expected = np.random.default_rng(5), []
    for _ in range(100):
        rows = random.integers(60, size=60)
        expected.append(of(second, rows) - of(first, rows))
    found = bootstrap_differences(statistic, first, second, gold, n_resamples=100, seed=5)
    assert found == pytest.approx(np.array(expected), abs=1e-12)


def test_the_same_prediction_twice_never_differs(scored):
    first, _, gold = scored
    differences = bootstrap_differences("spearman", first, first, gold, n_resamples=50)
    assert not differences.any()
    assert bootstrap_p_value(differences) == 1


def test_the_p_value_of_the_bootstrap_counts_the_rarer_side():
    assert bootstrap_p_value(np.array([-1.0] * 4 + [1.0] * 95)) == pytest.approx(2 * 5 / 100)
    assert bootstrap_p_value(np.array([1.0] * 4 + [-1.0] * 95)) == pytest.approx(2 * 5 / 100)


def test_a_draw_that_is_undefined_leaves_the_p_value_undefined():
    assert np.isnan(bootstrap_p_value(np.array([0.1, np.nan, 0.2])))


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_keeps_the_order():
    assert holm([0.03, 0.001, 0.8, 0.01]) == pytest.approx([0.06, 0.004, 0.8, 0.03])


def test_holm_counts_only_tests_that_are_defined():
    corrected = holm([float("nan"), 0.02, 0.6])
    assert np.isnan(corrected[0])
    assert corrected[1:] == pytest.approx([0.04, 0.6])


def test_holm_stays_a_probability():
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []


@pytest.mark.parametrize("noise", [0, 1e-9])
def test_predictions_that_are_the_same_are_told_apart_by_nothing(noise):
    random = np.random.default_rng(3)
    first, gold = random.normal(size=(2, 400))
    second = 3 * first + 1 + noise * random.normal(size=400)
    correlations = [np.corrcoef(*pair)[0, 1] for pair in ((first, gold), (second, gold), (first, second))]
    assert williams_test(*correlations, 400)[1] == 1.0
