"""Erasing an attribute: exact against plain numpy, in any order and parts; bad labels; what is measured."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import isosent
from isosent import Moments, Whitening, chain
from isosent.errors import InputError, IsosentWarning
from isosent.transforms.erasure import Erasure, measure
from isosent.transforms.labels import labels_of

DIM = 12


def rows_and_labels(n_rows=300, n_values=3, *, numbers=False, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.normal(size=n_rows) if numbers else rng.integers(n_values, size=n_rows)
    signs = labels[:, None] if numbers else np.eye(n_values)[labels]
    rows = rng.normal(size=(n_rows, DIM)) @ rng.normal(size=(DIM, DIM)) + 5
    rows += signs @ rng.normal(size=(signs.shape[1], DIM)) * 3
    return rows, labels if numbers else np.array(["de", "en", "es", "fr"])[labels]


def plain(rows, labels, g):
    """LEACE by numpy alone, with scikit-learn's names for nothing."""
    z = labels[:, None] if labels.dtype.kind == "f" else (labels[:, None] == np.unique(labels)).astype(float)
    x, z = rows - rows.mean(0), z - z.mean(0)
    covariance = x.T @ x / len(x)
    values, axes = np.linalg.eigh((1 - g) * covariance + g * np.trace(covariance) / x.shape[1] * np.eye(x.shape[1]))
    whitener, inverse = axes / np.sqrt(values) @ axes.T, axes * np.sqrt(values) @ axes.T
    left, singular, _ = np.linalg.svd(whitener @ x.T @ z / len(x), full_matrices=False)
    left = left[:, singular > 1e-6 * singular[0]]
    if labels.dtype.kind != "f":  # each value counts the same
        x = rows - np.mean([rows[labels == each].mean(0) for each in np.unique(labels)], axis=0)
    return rows - x @ (inverse @ left @ left.T @ whitener).T


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("g", [0.0, 0.1, 1.0])
def test_it_is_that_of_plain_numpy_by_parts_at_once_in_any_order_and_merged(g, numbers):
    rows, labels = rows_and_labels(numbers=numbers)
    expected, order = plain(rows, labels, g), np.argsort(labels, kind="stable")  # parts lack values
    at_once = Erasure(numbers, g).fit(rows, labels)
    parts, halves = Erasure(numbers, g), [Erasure(numbers, g), Erasure(numbers, g)]
    for part in np.array_split(order, 7):
        parts.partial_fit(rows[part], labels[part])
    for half, part in zip(halves, (order[::-1][:120], order[::-1][120:]), strict=True):
        half.partial_fit(rows[part], labels[part])
    for fitted in (at_once, parts, halves[0].merge(halves[1])):
        error = np.linalg.norm(fitted.transform(rows) - expected, axis=1) / np.linalg.norm(expected, axis=1)
        assert error.max() < 1e-5


def test_no_linear_classifier_is_left_and_the_rest_stays():
    rows, labels = rows_and_labels()
    fitted = Erasure().fit(rows, labels)
    erased = fitted.transform(rows)
    assert LogisticRegression(max_iter=1000).fit(rows, labels).score(rows, labels) > 0.9
    most = np.unique(labels, return_counts=True)[1].max() / len(labels)
    assert LogisticRegression(max_iter=1000).fit(erased, labels).score(erased, labels) <= most + 0.01
    assert np.linalg.matrix_rank(erased - rows, tol=1e-6) == 2
    means = np.array([rows[labels == each].mean(0) for each in fitted.values_])
    for each in fitted.values_:
        np.testing.assert_allclose(erased[labels == each].mean(0), means.mean(0))
    assert fitted.values_ == ("de", "en", "es")


def test_rows_without_a_label_are_left_out():
    rows, labels = rows_and_labels()
    missing = [None, float("nan"), " ", *labels[3:]]
    fitted = Erasure().fit(rows, missing)
    assert fitted.n_missing_ == 3
    np.testing.assert_allclose(fitted.linear_map_.weight, Erasure().fit(rows[3:], labels[3:]).linear_map_.weight)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"] * 300, "one class"),
        (["a", "b"], "labels"),
        ([None] * 300, "no row has a label"),
        ([f"{n}" for n in range(300)], "300 different values; at most 100"),
        (None, "requires y"),
    ],
)
def test_bad_labels_are_refused_in_one_sentence(labels, message):
    with pytest.raises(InputError, match=message):
        Erasure().fit(rows_and_labels()[0], labels)


def test_bad_rows_numbers_and_moments_are_refused():
    rows, labels = rows_and_labels()
    for numbers, message in (([1.0] * 300, "one class"), ([np.inf] * 300, "infinite"), (labels, "must be numbers")):
        with pytest.raises(InputError, match=message):
            Erasure(numeric=True).fit(rows, numbers)
    rows[7, 3] = np.nan
    with pytest.raises(InputError, match="row 7"):
        Erasure().fit(rows, labels)
    with pytest.raises(InputError, match="no labels"):
        Erasure().fit_moments(Moments.from_rows(rows[:7]))
    with pytest.raises(InputError, match="no labels"):
        chain(Erasure(), Whitening(2)).fit(rows[:7])
    numbers = Erasure(numeric=True).fit(rows[:7], np.arange(7.0))
    with pytest.raises(InputError, match="some labels are numbers, others are not"):
        numbers.merge(Erasure().fit(rows[:7], list("aabbaab")))


def test_vectors_without_the_attribute_or_all_equal_stay():
    rows, labels = np.tile(np.random.default_rng(0).normal(size=(50, DIM)), (2, 1)), np.repeat(["a", "b"], 50)
    np.testing.assert_allclose(Erasure().fit_transform(rows, labels), rows, atol=1e-9)
    np.testing.assert_array_equal(Erasure().fit_transform(np.ones((4, 3)), list("aabb")), np.ones((4, 3)))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["en"] * 50, "every label is 'en'"),
        ([float("nan")] * 50, "every label is missing"),
        (["a"] * 40, "40 labels for 50 texts"),
        (["a"] * 29 + ["b"] * 21, r"b \(21\)"),
        (["a"] * 49 + ["b"], r"b \(1\)"),
        ([5] * 50, "every label is '5'"),
        ([*range(49), float("inf")], "row 49 is infinite"),
    ],
)
def test_labels_that_cannot_be_erased_are_refused_by_name(labels, message):
    with pytest.raises(InputError, match=message):
        labels_of(labels, 50)


def test_a_million_groups_are_refused_before_any_work():
    with pytest.raises(InputError, match="1,000,000 different values; at most 100"):
        labels_of((f"author {n}" for n in range(1_000_000)), 1_000_000)


def test_labels_are_numbers_if_there_are_more_than_a_few():
    assert labels_of(range(40)).dtype == np.float64
    assert np.isnan(labels_of([*range(40), "", None])[-2:]).all()
    assert labels_of([0, 1] * 30).tolist()[:3] == ["0", "1", "0"]
    assert labels_of(np.array([True, False] * 30)).tolist()[:2] == ["True", "False"]


@pytest.mark.parametrize("numbers", [False, True])
def test_what_erasing_changes_is_measured_on_other_rows(numbers):
    rows, labels = rows_and_labels(1200, numbers=numbers)
    effect = measure(rows, labels if numbers else labels.astype(object))
    assert effect.is_visible
    assert effect.told[0] > 0.8
    assert abs(effect.told[1] - effect.told[2]) < 0.1
    assert effect.same[0] > effect.same[1] + 0.1
    assert abs(effect.same[1] - effect.same[2]) < 0.1
    shuffled = np.random.default_rng(1).permutation(labels)
    assert not measure(rows, shuffled if numbers else shuffled.astype(object)).is_visible


# models


def pool(texts):
    """The demo texts, and the same in another language: every word has another ending and other vectors."""
    other = [" ".join(f"{word[::-1]}" for word in text.rstrip(".").split()) for text in texts]
    return [*texts[:240], *other[240:]], ["en"] * 240 + ["ne"] * (len(texts) - 240)


def test_a_model_erases_labels_and_then_chooses_on_what_is_left(wordllama, texts, tmp_path):
    mixed, labels = pool(texts)
    labels[0] = None
    model = wordllama.fitted(mixed, "whitening", settings={"strength": 0.5, "n_components": 64}, erase={"lang": labels})
    vectors = wordllama.encode(mixed)
    erased = Erasure().fit(vectors, labels).linear_map_
    expected = Whitening(64, strength=0.5).fit(erased.apply(vectors[1:])).transform(erased.apply(vectors))
    np.testing.assert_allclose(model.encode(mixed), expected, atol=1e-4 * np.abs(expected).max())
    assert [fit.transform for fit in model.fits] == ["erasure", "whitening"]
    assert model.fits[0].parameters == {"attribute": "lang", "values": "en, ne", "n_missing": 1}
    assert (model.fits[0].n_texts, model.fits[1].n_texts) == (479, 479)
    model.save(tmp_path / "model")
    loaded = isosent.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.encode(mixed[:5]), model.encode(mixed[:5]))
    assert loaded.fits[0].choice["told"][0] > 0.9 > loaded.fits[0].choice["told"][1]
    alone = wordllama.fitted(mixed, None, erase=labels)
    np.testing.assert_allclose(alone.linear_map.weight, erased.weight, atol=1e-9)


def test_labels_that_the_vectors_do_not_tell_change_nothing(wordllama, texts):
    labels = [number % 2 for number in range(len(texts))]
    with pytest.warns(IsosentWarning, match="labels is not visible, so nothing was erased"):
        model = wordllama.fitted(texts, "mean_centering", erase=labels)
    plain_model = wordllama.fitted(texts, "mean_centering")
    np.testing.assert_array_equal(model.encode(texts), plain_model.encode(texts))
    assert len(model.fits) == 1


def test_labels_of_another_length_are_refused_by_a_model(wordllama, texts):
    with pytest.raises(InputError, match="labels: 3 labels for 480 texts"):
        wordllama.fitted(texts, erase=["a", "b", "c"])
    with pytest.raises(InputError, match="one attribute, not 2"):
        wordllama.fitted(texts, erase={"a": texts, "b": texts})
