"""Duplicates: groups of texts that say the same."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from isosent.errors import InputError
from isosent.numeric.neighbors import nearest_others
from isosent.report.groups_page import duplicates_page
from isosent.search import cluster, find_duplicates


def planted(n_texts=600, dim=32, sizes=(2, 3, 60), seed=0):
    """Random vectors, and groups of rows near the first ones."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n_texts, dim))
    groups = [[number] for number in range(len(sizes))]
    for group, size in zip(groups, sizes, strict=True):
        for _ in range(size - 1):
            group.append(len(vectors))
            vectors = np.vstack([vectors, vectors[group[0]] + rng.normal(size=dim) * 0.1])
    rows = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return rows, groups


def test_planted_groups_are_found_and_nothing_else():
    vectors, groups = planted()
    found = find_duplicates(None, vectors=vectors)
    assert sorted(found.groups) == sorted(map(tuple, groups))
    assert [len(group) for group in found.groups] == [60, 3, 2]
    assert found.n_duplicates == 65
    assert len(found.kept) == len(vectors) - 62
    assert (found.scores[list(found.groups[0])] > 0.9).all()
    assert np.isnan(found.scores[500])
    assert (found.shares[list(found.groups[2])] > 0.99).all()


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_the_threshold_says_how_near_duplicates_are(rate):
    vectors, _ = planted(sizes=(2, 3, 4))
    found = find_duplicates(None, vectors=vectors, false_positives=rate)
    distances = np.linalg.norm(vectors[:, None].astype(float) - vectors[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    around = np.sort(distances, axis=1)[:, 1:3].mean(axis=1)  # the second and the third nearest
    around = np.maximum(around, 0.85 * np.median(around))
    nearness = np.sqrt(around[:, None] * around) / distances
    in_groups = np.zeros(len(vectors), bool)
    in_groups[[row for group in found.groups for row in group]] = True
    assert nearness[in_groups].max(axis=1).min() > found.threshold > nearness[~in_groups].max() > 1
    assert find_duplicates(None, vectors=vectors[:50]).threshold is None


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
def test_texts_without_a_duplicate_are_rarely_in_a_group(rate):
    rng = np.random.default_rng(1)
    centers = rng.normal(size=(40, 24))
    vectors = centers[rng.integers(40, size=2000)] + 1.5 * rng.normal(size=(2000, 24))
    found = find_duplicates(None, vectors=vectors, false_positives=rate)
    assert found.n_duplicates / 2000 <= 1.5 * rate


def test_more_false_positives_give_more_duplicates(wordllama, texts):
    strict, lax = (find_duplicates(texts, wordllama, false_positives=rate) for rate in (0.001, 0.2))
    assert strict.n_duplicates <= lax.n_duplicates
    assert (strict.false_positives, lax.false_positives) == (0.001, 0.2)


def test_the_rate_has_an_effect_where_all_texts_are_alike():
    """In a pool of topics, of which some are denser than others."""
    rng = np.random.default_rng(0)
    centers, details = rng.normal(size=(60, 24)), rng.normal(size=(60, 10, 24))
    topics, kinds = rng.integers(60, size=3000), rng.integers(10, size=3000)
    noise = np.exp(0.8 * rng.normal(size=(3000, 1))) * rng.normal(size=(3000, 24))
    vectors = centers[topics] + 0.8 * details[topics, kinds] + 0.5 * noise
    found = [find_duplicates(None, vectors=vectors, false_positives=rate) for rate in (0.001, 0.01, 0.05, 0.2)]
    n_grouped = [each.n_duplicates for each in found]
    assert n_grouped == sorted(set(n_grouped))


def test_vectors_of_texts_are_compared_as_those_of_the_model_are(wordllama, texts):
    listed = [*texts[:200], f"Hello, {texts[3]}"]
    by_model, by_vectors = find_duplicates(listed, wordllama), find_duplicates(listed, vectors=wordllama.encode(listed))
    assert by_model.groups == by_vectors.groups
    np.testing.assert_allclose(by_model.scores, by_vectors.scores, atol=1e-6)


def test_a_model_transforms_vectors_of_its_encoder(wordllama, texts):
    fitted = wordllama.fitted(texts, "whitening")
    vectors = wordllama.encode(texts)
    found = find_duplicates(texts, fitted, vectors=vectors, false_positives=0.2)
    assert found.groups == find_duplicates(texts, fitted, false_positives=0.2).groups
    np.testing.assert_allclose(cluster(texts, fitted, vectors=vectors).scores, cluster(texts, fitted).scores, atol=1e-4)


def test_vectors_alone():
    vectors = np.random.default_rng(0).normal(size=(8, 4))
    vectors[5], vectors[6:] = 3 * vectors[2], 0
    found = find_duplicates(None, vectors=vectors)
    assert (found.groups, found.n_texts, found.texts, found.n_without_vector) == (((2, 5),), 8, None, 2)
    assert found.to_json()["groups"][0][0]["text"] is None
    assert found.kept.tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert "8 texts" in repr(found)


def test_edited_sentences_are_found(wordllama, texts):
    first = [text for row, text in enumerate(texts) if row % 3 == 0]
    edited = [text.rstrip(".") + " !" for text in first[:20]]
    found = find_duplicates([*first, *edited], wordllama)
    pairs = {group for group in found.groups if len(group) == 2}
    assert sum((row, len(first) + row) in pairs for row in range(20)) >= 18


def test_equal_texts_are_in_one_group_though_the_encoder_knows_no_word(wordllama, texts):
    odd = "\u16a0\u16a2\u16a6"
    listed = [odd, *texts, odd, texts[0], odd]
    vectors = wordllama.encode(listed)
    vectors[[row for row, text in enumerate(listed) if text == odd]] = 0
    found = find_duplicates(listed, vectors=vectors)
    group = next(group for group in found.groups if 0 in group)
    assert group == (0, len(texts) + 1, len(texts) + 3)
    assert found.n_without_vector == 3
    assert (found.scores[list(group)] == 1).all()
    assert np.isnan(found.shares[list(group)]).all()
    assert any({1, len(texts) + 2} <= set(each) for each in found.groups)


def test_few_texts_are_compared_by_their_words_only(wordllama):
    found = find_duplicates(["one", "One", "two", "one"], wordllama)
    assert found.groups == ((0, 1, 3),)
    assert found.false_positives is None
    assert find_duplicates(["one"], wordllama).groups == ()
    assert find_duplicates(["one"] * 300, wordllama).groups == (tuple(range(300)),)


def test_equal_vectors_are_duplicates():
    vectors, _ = planted(sizes=())
    found = find_duplicates(None, vectors=np.vstack([vectors, np.tile(vectors[7], (40, 1))]))
    assert found.groups == ((7, *range(600, 640)),)


@pytest.mark.parametrize(("n", "copies"), [(30, 2), (20, 10), (5, 60)])
@pytest.mark.parametrize("number_type", ["float16", "float32", "float64"])
def test_vectors_that_differ_by_rounding_are_duplicates(n, copies, number_type):
    rng = np.random.default_rng(0)
    distinct = rng.normal(size=(n, 32))
    computed = np.repeat(distinct, copies, axis=0) * (1 + 1e-6 * rng.normal(size=(n * copies, 32)))
    found = find_duplicates(None, vectors=computed.astype(number_type))
    assert sorted(found.groups) == [tuple(range(row, row + copies)) for row in range(0, n * copies, copies)]
    apart = np.repeat(distinct, 2, axis=0) * (1 + 1e-2 * rng.normal(size=(2 * n, 32)))
    assert find_duplicates(None, vectors=apart[:60].astype(number_type)).groups == ()


def test_scores_are_of_the_nearest_in_a_large_group():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=16) + 0.1 * rng.normal(size=(700, 16))
    found = find_duplicates([f"the  cat sat{'!' * row}" for row in range(700)], vectors=vectors)
    assert found.groups == (tuple(range(700)),)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = units @ units.T - 2 * np.eye(700)
    np.testing.assert_allclose(found.scores, cosines.max(axis=1), atol=1e-6)


def test_a_third_of_the_texts_may_be_in_large_groups():
    vectors, groups = planted(n_texts=250, sizes=(50, 40, 30))
    assert sorted(find_duplicates(None, vectors=vectors).groups) == sorted(map(tuple, groups))


@pytest.mark.parametrize("n_languages", [3, 4, 6])
def test_a_pool_of_translations_without_its_languages(n_languages):
    rng = np.random.default_rng(0)
    meanings = rng.normal(size=(150, 64))
    translations = np.repeat(meanings, n_languages, axis=0)
    rows = np.concatenate([translations + 0.2 * rng.normal(size=translations.shape), rng.normal(size=(300, 64))])
    found = find_duplicates(None, vectors=rows.astype(np.float32))
    expected = {tuple(range(first, first + n_languages)) for first in range(0, len(translations), n_languages)}
    groups = {tuple(sorted(group)) for group in found.groups}
    assert len(groups & expected) >= 0.98 * len(expected)
    assert len(groups - expected) <= 0.03 * 300


def test_nearly_all_texts_are_duplicates():
    vectors, _ = planted(n_texts=3, sizes=(100, 2, 2))
    assert len(find_duplicates(None, vectors=vectors).groups) <= 3


def test_vectors_that_are_all_equal_say_nothing():
    texts = [f"{first} {second}" for first in "abcdefghijklm" for second in "nopqrstuvwxy"]
    assert find_duplicates(texts, vectors=np.ones((len(texts), 8))).groups == ()


def test_the_seed_decides():
    vectors, _ = planted()
    first, second = (find_duplicates(None, vectors=vectors, seed=3) for _ in range(2))
    assert first.groups == second.groups
    assert (first.scores == second.scores)[~np.isnan(first.scores)].all()


def test_a_data_frame_has_a_row_per_text_in_a_group():
    vectors, _ = planted()
    found = find_duplicates(None, vectors=vectors)
    frame = found.to_pandas()
    assert list(frame.columns) == ["group", "row", "text", "score", "share"]
    assert len(frame) == found.n_duplicates
    assert frame.group.max() == len(found.groups)
    assert found.to_json()["groups"][-1][0]["row"] == found.groups[-1][0]


@pytest.mark.parametrize("n_rows", [50, 5000])  # one block, and two
def test_neighbors_are_the_nearest_other_rows(n_rows):
    rows = np.random.default_rng(0).normal(size=(n_rows, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    cosines, places = nearest_others(rows, 3)
    assert cosines.shape == places.shape == (n_rows, 3)
    some = np.linspace(0, n_rows - 1, 50).astype(int)
    expected = rows[some].astype(float) @ rows.T
    expected[np.arange(50), some] = -2
    np.testing.assert_array_equal(places[some], np.argsort(-expected, axis=1)[:, :3])
    np.testing.assert_allclose(cosines[some], np.take_along_axis(expected, places[some], 1), atol=1e-6)


def test_neighbors_of_some_rows_among_many():
    rows = np.random.default_rng(0).normal(size=(70_000, 4)).astype(np.float32)
    rows[40_000:40_005] = rows[3]
    some = np.array([3, 40_001, 69_999])
    cosines, places = nearest_others(rows, 3, rows=some)
    expected = rows[some] @ rows.T
    expected[np.arange(3), some] = -np.inf
    np.testing.assert_allclose(cosines, -np.sort(-expected, axis=1)[:, :3], rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(expected, places, axis=1), cosines, rtol=1e-5)


@pytest.fixture(scope="module")
def many():
    """More vectors than are compared with all others in `in_lists`, and groups."""
    vectors, groups = planted(n_texts=4000, sizes=(2, 3, 4) * 20 + (400,))
    return vectors, sorted(map(tuple, groups))


@pytest.fixture
def in_lists(monkeypatch):
    monkeypatch.setattr("isosent.search.closeness.MOST_EXACT", 2000)


def test_small_sets_are_compared_exactly(many):
    vectors, groups = many
    found = find_duplicates(None, vectors=vectors, false_positives=0.001)
    assert found.recall is None
    assert sorted(found.groups) == groups


@pytest.mark.usefixtures("in_lists")
def test_large_sets_are_grouped_in_lists_and_say_with_which_recall(many, monkeypatch):
    vectors, groups = many
    found = find_duplicates(None, vectors=vectors, false_positives=0.001)
    assert sorted(found.groups) == groups
    assert found.recall == found.to_json()["recall"] == 1
    monkeypatch.setattr("isosent.numeric.neighbors._FEWEST_PROBED", 1)
    monkeypatch.setattr("isosent.numeric.neighbors._MOST_PROBED", 1)
    assert 0.3 < find_duplicates(None, vectors=vectors, false_positives=0.2).recall < 0.99


@pytest.mark.usefixtures("in_lists")
def test_groups_do_not_depend_on_the_number_of_threads(many):
    vectors, _ = many
    found = []
    for n_threads in (1, 3):
        with threadpool_limits(n_threads, user_api="blas"):
            found.append(find_duplicates(None, vectors=vectors, false_positives=0.2))
    assert found[0].groups == found[1].groups
    assert found[0].recall == found[1].recall


@pytest.mark.usefixtures("in_lists")
def test_recall_is_unknown_without_a_pair():
    vectors, _ = planted(n_texts=2500, sizes=())
    found = find_duplicates(None, vectors=vectors, false_positives=0.001)
    assert found.groups == ()
    assert np.isnan(found.recall)
    assert found.to_json()["recall"] is None


def test_bad_arguments_are_refused(wordllama):
    with pytest.raises(InputError, match="no texts"):
        find_duplicates([], wordllama)
    for rate in (0, 0.5, -1, float("nan")):
        with pytest.raises(InputError, match="false_positives"):
            find_duplicates(["one"], wordllama, false_positives=rate)
    with pytest.raises(InputError, match=r"2 texts and 3 vectors"):
        find_duplicates(["one", "two"], vectors=np.ones((3, 2)))
    with pytest.raises(InputError, match="neither"):
        find_duplicates(None)
    with pytest.raises(InputError, match="seed"):
        find_duplicates(["one"], wordllama, seed=-1)


def test_a_page_escapes_texts_and_marks_what_differs(wordllama):
    hostile = "<script>alert(1)</script> & more"
    found = find_duplicates([hostile, hostile, "two"], wordllama)
    page = duplicates_page(found, source="<b>.txt", vectors="m&m")
    assert hostile not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page
    assert "<b>.txt" not in page
    assert "m&amp;m" in page
    found = find_duplicates(["Where is my card?", "Where is my card? Thanks."], wordllama)
    assert "<mark>Thanks.</mark>" in duplicates_page(found, source="", vectors="")
