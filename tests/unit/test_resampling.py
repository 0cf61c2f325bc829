import numpy as np
import pytest
import scipy

from isosent.numeric.statistics import bootstrap_interval, central_interval, resampled_counts, weighted_statistic


def plain(statistic, values, gold):
    """The statistic by scipy, NaN where a correlation is undefined."""
    if statistic == "mean":
        return values.mean()
    if np.ptp(values) == 0 or np.ptp(gold) == 0:
        return float("nan")
    return getattr(scipy.stats, f"{statistic}r")(values, gold).statistic


def drawn_rows(counts):
    return np.repeat(np.arange(len(counts)), counts.astype(int))


def test_draws_hold_as_many_items_as_there_are_in_blocks_of_all():
    blocks = list(resampled_counts(80_000, n_resamples=7, seed=1))
    assert [block.shape for block in blocks] == [(3, 80_000), (3, 80_000), (1, 80_000)]
    assert (np.concatenate(blocks).sum(axis=1) == 80_000).all()


def test_the_size_of_a_block_changes_no_draw():
    threes = np.concatenate(list(resampled_counts(80_000, n_resamples=6, seed=4)))
    for n_resamples in (1, 2, 4):
        last = list(resampled_counts(80_000, n_resamples=n_resamples, seed=4))[-1]
        assert np.array_equal(last, threes[n_resamples - len(last) : n_resamples])


def test_the_seed_makes_the_draws():
    drawn = [np.concatenate(list(resampled_counts(30, n_resamples=4, seed=seed))) for seed in (0, 0, 1)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_every_item_is_drawn_alike():
    counts = np.concatenate(list(resampled_counts(10, n_resamples=20_000)))
    assert counts.mean(axis=0) == pytest.approx(np.ones(10), abs=0.03)
    assert counts.var(axis=0) == pytest.approx(np.full(10, 0.9), abs=0.05)


@pytest.mark.parametrize("statistic", ["spearman", "pearson", "mean"])
@pytest.mark.parametrize("kind", ["without ties", "with ties", "gold of two values", "far from 0"])
def test_a_weighted_statistic_is_that_of_the_drawn_items(statistic, kind):
    random = np.random.default_rng(8)
    values, gold = random.normal(size=40), random.normal(size=40)
    if kind == "with ties":
        values, gold = np.round(values), np.round(gold * 2) / 2
    elif kind == "gold of two values":
        gold = (gold > 0).astype(float)
    elif kind == "far from 0":
        values, gold = values + 1e4, gold - 1e4
    counts = next(resampled_counts(40, n_resamples=60, seed=2))
    found = weighted_statistic(statistic, values, gold)(counts)
    expected = [plain(statistic, values[rows], gold[rows]) for rows in map(drawn_rows, counts)]
    assert found == pytest.approx(np.array(expected), abs=1e-9)


@pytest.mark.parametrize("statistic", ["spearman", "pearson"])
def test_a_draw_of_equal_values_is_undefined(statistic):
    random = np.random.default_rng(0)
    n_undefined = 0
    for _ in range(6):
        values, gold = random.choice([0.1, 0.7, 0.30001], size=5), random.choice([1.0, 2.0, 3.3], size=5)
        counts = next(resampled_counts(5, n_resamples=100, seed=3))
        found = weighted_statistic(statistic, values, gold)(counts)
        expected = np.array([plain(statistic, values[rows], gold[rows]) for rows in map(drawn_rows, counts)])
        assert found == pytest.approx(expected, abs=1e-9, nan_ok=True)
        n_undefined += int(np.isnan(expected).sum())
    assert n_undefined > 30


def test_weights_need_be_no_draw():
    values, gold = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])
    ones = np.ones((1, 4))
    assert weighted_statistic("spearman", values, gold)(ones) == pytest.approx(0.8)
    assert weighted_statistic("pearson", values, gold)(3 * ones) == pytest.approx(0.8)


def test_single_precision_is_computed_in_double():
    values = np.random.default_rng(0).random(50).astype(np.float32)
    counts = next(resampled_counts(50, n_resamples=5))
    assert np.array_equal(
        weighted_statistic("pearson", values, values**2)(counts),
        weighted_statistic("pearson", values.astype(float), (values**2).astype(float))(counts),
    )


def test_a_correlation_needs_gold():
    with pytest.raises(TypeError, match="spearman needs gold scores"):
        weighted_statistic("spearman", np.ones(3))


def test_an_interval_holds_the_middle_of_the_draws():
    draws = np.arange(1001.0)
    assert central_interval(draws) == pytest.approx((25, 975))
    assert central_interval(draws, 0.5) == pytest.approx((250, 750))


def test_an_interval_is_undefined_where_a_draw_or_the_statistic_is():
    assert np.isnan(central_interval(np.array([0.1, np.nan]))).all()
    assert np.isnan(bootstrap_interval("spearman", np.ones(20), np.arange(20.0))).all()
    assert np.isnan(bootstrap_interval("mean", np.ones(1))).all()
    assert np.isnan(bootstrap_interval("mean", np.ones(0))).all()


def test_the_interval_of_a_mean_is_that_of_theory():
    values = np.random.default_rng(0).normal(size=400)
    low, high = bootstrap_interval("mean", values, n_resamples=4000)
    spread = values.std() / 20
    assert (low, high) == pytest.approx(values.mean() + np.array([-1.96, 1.96]) * spread, abs=0.1 * spread)


@pytest.mark.parametrize("statistic", ["spearman", "pearson", "mean"])
def test_intervals_hold_the_truth_nineteen_times_in_twenty(statistic):
    # of 300 intervals by 200 draws; the standard error of the share is 0.013. For jointly normal values of correlation
    # 0.7 the rank correlation of the population is 6 / pi * arcsin(0.7 / 2)
    truth = {"spearman": 6 / np.pi * np.arcsin(0.35), "pearson": 0.7, "mean": 0.0}[statistic]
    random, n_held = np.random.default_rng(1), 0
    for seed in range(300):
        gold = random.normal(size=150)
        values = 0.7 * gold + np.sqrt(1 - 0.7**2) * random.normal(size=150)
        low, high = bootstrap_interval(statistic, values, gold, n_resamples=200, seed=seed)
        n_held += low <= truth <= high
    assert 0.9 <= n_held / 300 <= 0.985
