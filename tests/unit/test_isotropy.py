import math

import numpy as np
import pytest

from isosent.numeric.spectrum import effective_rank, isoscore, participation_ratio, uniformity


def published_isoscore(variances):
    """Rudman et al. 2022, algorithm 1, step by step."""
    n = len(variances)
    scaled = math.sqrt(n) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(scaled - np.ones(n)) / math.sqrt(2 * (n - math.sqrt(n)))
    dimensions_used = (n - defect**2 * (n - math.sqrt(n))) ** 2 / n**2
    return (n * dimensions_used - 1) / (n - 1)


@pytest.mark.parametrize("decay", [0.0, 0.01, 0.3, 3.0])
@pytest.mark.parametrize("dim", [2, 3, 50, 768])
def test_isoscore_is_that_of_the_published_algorithm(dim, decay):
    variances = 7.0 * np.exp(-decay * np.arange(dim))
    assert isoscore(variances) == pytest.approx(published_isoscore(variances), abs=1e-12)


def test_isoscore_of_k_equal_variances_is_the_share_of_dimensions_beyond_the_first():
    assert isoscore(np.ones(9)) == 1.0
    assert isoscore(np.repeat([1.0, 0.0], [5, 4])) == pytest.approx(4 / 8)
    assert isoscore(np.repeat([1.0, 0.0], [1, 8])) == 0.0


def test_isoscore_is_undefined_in_one_dimension_and_without_variance():
    assert math.isnan(isoscore(np.array([2.0])))
    assert math.isnan(isoscore(np.zeros(4)))


def test_participation_ratio_counts_equal_variances_and_survives_tiny_ones():
    assert participation_ratio(np.repeat([3.0, 0.0], [4, 6])) == pytest.approx(4)
    assert participation_ratio(np.full(5, 1e-300)) == pytest.approx(5)
    assert math.isnan(participation_ratio(np.zeros(3)))


def test_participation_ratio_is_at_most_the_effective_rank():
    variances = np.random.default_rng(0).exponential(size=(100, 8)) ** 3
    assert all(1 <= participation_ratio(row) <= effective_rank(row) + 1e-12 for row in variances)


def test_uniformity_is_that_of_distances_between_unit_vectors():
    units = np.random.default_rng(0).normal(size=(40, 5))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    pairs = [(i, j) for i in range(40) for j in range(i)]
    distances = np.array([np.sum((units[i] - units[j]) ** 2) for i, j in pairs])
    expected = math.log(np.mean(np.exp(-2 * distances)))
    assert uniformity(np.array([units[i] @ units[j] for i, j in pairs])) == pytest.approx(expected, abs=1e-12)
    assert math.isnan(uniformity(np.empty(0)))
