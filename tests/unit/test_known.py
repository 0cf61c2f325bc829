"""Known texts: which new texts an old set holds already."""

import numpy as np
import pytest

import isosent
from isosent.errors import InputError
from isosent.search import find_known


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def planted(n_old=500, n_new=200, n_copies=20, dim=32, seed=0):
    """Random old and new vectors; the first new ones lie near old ones, which a search by numpy finds."""
    rng = np.random.default_rng(seed)
    old, new = rng.normal(size=(n_old, dim)), rng.normal(size=(n_new, dim))
    new[:n_copies] = old[rng.permutation(n_old)[:n_copies]] + 0.1 * rng.normal(size=(n_copies, dim))
    old, new = unit(old), unit(new)
    return old, new, (new.astype(float) @ old.T.astype(float)).argmax(axis=1)


def test_planted_vectors_are_found_with_the_nearest_old_one():
    old, new, nearest = planted()
    found = find_known(None, None, vectors=new, old_vectors=old)
    assert found.old_rows[:20].tolist() == nearest[:20].tolist()
    assert found.new.tolist() == list(range(20, 200))
    assert (found.n_known, found.n_equal) == (20, 0)
    cosines = (new.astype(float) * old[nearest].astype(float)).sum(axis=1)
    np.testing.assert_allclose(found.scores[:20], cosines[:20], rtol=1e-6)
    assert np.isnan(found.scores[20:]).all()
    assert (found.shares[:20] > 0.99).all()


def test_vectors_that_were_scaled_before_are_equal():
    old, new, _ = planted(n_copies=0)
    longer = np.concatenate([new, 3.3 * old[:50]]).astype(np.float32)
    for again in (unit(unit(old) * 7), old):
        found = find_known(None, None, vectors=longer, old_vectors=again)
        assert found.old_rows[200:].tolist() == list(range(50))
        assert found.n_equal == 50


@pytest.mark.parametrize("rate", [0.01, 0.05])
def test_new_vectors_are_rarely_taken_for_known(rate):
    rng = np.random.default_rng(1)
    centers = rng.normal(size=(40, 24))
    rows = centers[rng.integers(40, size=2400)] + 1.5 * rng.normal(size=(2400, 24))
    found = find_known(None, None, vectors=rows[:800], old_vectors=rows[800:], false_positives=rate)
    assert found.n_known / 800 <= 1.5 * rate


def test_many_copies_among_the_new_do_not_hide_the_old_one():
    old, new, _ = planted(n_copies=1)
    rng = np.random.default_rng(2)
    copies = unit(old[7] + 0.01 * rng.normal(size=(60, old.shape[1])))
    found = find_known(None, None, vectors=np.concatenate([new[1:], copies]), old_vectors=old)
    assert found.old_rows[-60:].tolist() == [7] * 60
    assert found.n_known == 60


def test_in_large_sets_the_same_ones_are_found(monkeypatch):
    old, new, nearest = planted(n_old=3000)
    exact = find_known(None, None, vectors=new, old_vectors=old)
    monkeypatch.setattr("isosent.search.closeness.MOST_EXACT", 1000)
    in_lists = find_known(None, None, vectors=new, old_vectors=old)
    assert in_lists.old_rows.tolist() == exact.old_rows.tolist()
    assert exact.old_rows[:20].tolist() == nearest[:20].tolist()


def test_words_decide_as_for_duplicates(wordllama):
    old = [*isosent.demo_texts()[:150], "Transfer 100 euros to Anna.", "zzzqqq", "The last one."]
    new = [
        old[3],
        f"Hello, {old[5].lower()}",
        old[8].upper(),
        "Transfer 200 euros to Anna.",
        "Transfer 100 euros to Peter.",
        "transfer 100 euros to Anna!",
        "zzzqqq",
        "",
        "Where is the moon?",
        "The last one.",
    ]
    found = find_known(new, old, wordllama)
    assert found.old_rows.tolist() == [3, 5, 8, -1, -1, 150, 151, -1, -1, 152]
    assert found.is_equal.tolist() == [True, False, False, False, False, False, True, False, False, True]
    assert found.n_without_vector == 1
    assert found.scores[[0, 9]].tolist() == [1, 1]
    assert found.rows()[1][:5] == (1, new[1], 5, old[5], False)
    assert found.to_pandas()["old_text"].tolist()[5] == old[150]


def test_vectors_of_texts_are_as_good_as_the_model(wordllama):
    texts = isosent.demo_texts()
    old, new = texts[:200], [*texts[200:300], texts[0].upper(), texts[1]]
    expected = find_known(new, old, wordllama)
    assert expected.n_known >= 2
    vectors = wordllama.encode(new), wordllama.encode(old)
    for found in (
        find_known(new, old, vectors=vectors[0], old_vectors=vectors[1]),
        find_known(new, old, wordllama, old_vectors=vectors[1]),
    ):
        assert found.old_rows.tolist() == expected.old_rows.tolist()


def test_few_texts_are_known_by_small_changes_alone(wordllama):
    found = find_known(["A DOG!", "A small dog."], ["a dog", "a cat"], wordllama)
    assert found.old_rows.tolist() == [0, -1]
    assert (found.false_positives, found.threshold) == (None, None)


def test_sides_that_do_not_go_together_are_refused(wordllama):
    old, new, _ = planted()
    with pytest.raises(InputError, match="31 dimensions"):
        find_known(None, None, vectors=new[:, :31], old_vectors=old)
    with pytest.raises(InputError, match="neither texts nor vectors"):
        find_known(["a"], None, wordllama)
    with pytest.raises(isosent.IsosentError, match="model"):
        find_known(["a"], ["b"])
    with pytest.raises(InputError, match=r"0\.5"):
        find_known(["a"], ["b"], wordllama, false_positives=0.5)
