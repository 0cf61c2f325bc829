import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer

from isosent.numeric.kmeans import _iterated, k_means, nearest_center
from isosent.transforms.agreement import tfidf, words_of


def noise(seed):
    rows = np.random.default_rng(seed).standard_normal((400, 16)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def repeated(seed):
    """Each row several times."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((40, 4)).astype(np.float32)[rng.integers(0, 40, 200)]


def equally_far(seed):
    """Fewer different rows than draws, many of them equally far."""
    return np.random.default_rng(seed).integers(0, 3, (60, 4)).astype(np.float32)


def apart(seed):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((6000, 8)) + np.repeat(3 * rng.standard_normal((6, 8)), 1000, axis=0)).astype("f4")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("n_clusters", [1, 2, 5])
@pytest.mark.parametrize("make", [noise, repeated, apart])
def test_labels_are_those_of_scikit_learn(make, n_clusters, seed):
    rows = make(seed)
    expected = KMeans(n_clusters, n_init=3, random_state=seed).fit(rows)
    found = k_means(rows, n_clusters, n_starts=3, seed=seed)
    assert found.labels.tolist() == expected.labels_.tolist()
    np.testing.assert_allclose(found.centers, expected.cluster_centers_, atol=1e-5)
    others = make(seed + 2)
    assert nearest_center(others, found.centers).tolist() == expected.predict(others).tolist()


@pytest.mark.parametrize("n_clusters", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_labels_of_rows_at_equal_distances_are_those_of_scikit_learn(seed, n_clusters):
    rows = equally_far(seed)
    expected = KMeans(n_clusters, n_init=3, random_state=seed).fit(rows)
    assert k_means(rows, n_clusters, n_starts=3, seed=seed).labels.tolist() == expected.labels_.tolist()


@pytest.mark.parametrize("rows", [*map(equally_far, range(6)), np.eye(64, dtype=np.float32)])
def test_of_equally_near_centers_the_first_counts_in_whatever_order_products_are_summed(rows):
    found = k_means(rows, 5, n_starts=3, seed=0)
    for order in (np.arange(rows.shape[1])[::-1], np.random.default_rng(0).permutation(rows.shape[1])):
        assert k_means(rows[:, order], 5, n_starts=3, seed=0).labels.tolist() == found.labels.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_as_many_clusters_as_different_rows_have_one_each(seed):
    rows = equally_far(seed)
    names, expected = np.unique(rows, axis=0, return_inverse=True)
    found = k_means(rows, len(names), n_starts=2, seed=seed)
    pairs = set(zip(found.labels.tolist(), expected.tolist(), strict=True))
    assert len(pairs) == len(names)
    np.testing.assert_allclose(found.centers[found.labels], rows, atol=1e-6)


def test_a_cluster_without_rows_gets_the_farthest_one():
    rows = apart(0)
    begin = np.concatenate([rows[:4], np.full((2, 8), 100, np.float32)])  # no row is near the last two
    expected = KMeans(6, init=begin, n_init=1).fit(rows)
    mean = rows.mean(axis=0)
    found = _iterated(rows - mean, begin - mean, 1e-4 * float(rows.var(axis=0).mean()))
    assert len(set(found.labels.tolist())) == 6
    assert found.labels.tolist() == expected.labels_.tolist()


@pytest.mark.parametrize(
    "texts", [["a b a", "b c", "", "c c c c d", "!"], ["Zwei Wörter", "日本語 a", "zwei zwei"], ["x"]]
)
def test_tfidf_is_that_of_scikit_learn(texts):
    expected = TfidfVectorizer(analyzer=words_of, sublinear_tf=True).fit_transform(texts)
    found = tfidf(texts)
    assert found.shape == expected.shape
    np.testing.assert_allclose((found @ found.T).toarray(), (expected @ expected.T).toarray(), rtol=1e-12)
    np.testing.assert_allclose(np.sort(found.toarray()), np.sort(expected.toarray()), rtol=1e-12)


def test_tfidf_of_texts_without_a_word_is_empty():
    assert tfidf(["!", ""]).nnz == 0
