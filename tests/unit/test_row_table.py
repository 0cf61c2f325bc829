import pickle

import numpy as np
import pytest

from isosent import GEM, SIF
from isosent.encoders.static import RowTable, StaticEncoder
from isosent.encoders.word_average import Average, ZipfianWhitening
from isosent.numeric.gem import PrincipalVectors
from isosent.numeric.linear_map import LinearMap
from isosent.words.tokens import TokenIds, WordTokenizer
from isosent.words.vocabulary import Vocabulary
from isosent.words.word_vectors import WordVectors

DIM = 8
WORDS = [f"w{i}" for i in range(30)]
SHARES = np.arange(30, 0, -1) / np.arange(1, 31).sum()
TEXTS = ["w0 w1 w2", "w3", "", "w4 w4 w29 w7 w0", "zebra", "w1 zebra w2 unicorn", "zebra zebra"]
GEM_SMALL = GEM(n_candidates=4, n_removed=2)


class Lengths:
    """A table of n-grams that makes a vector of the length of a word."""

    first_column = 0

    def means(self, words):
        return np.array([np.arange(DIM) - len(word) for word in words], dtype=np.float32)


@pytest.fixture
def vectors():
    return np.random.default_rng(3).normal(size=(len(WORDS), DIM)).astype(np.float32)


@pytest.fixture
def word_map():
    rng = np.random.default_rng(4)
    return LinearMap(rng.normal(size=(DIM, 5)), rng.normal(size=5))


def principal(dim=DIM):
    orthogonal = np.linalg.qr(np.random.default_rng(5).normal(size=(dim, dim)))[0]
    return PrincipalVectors(np.ascontiguousarray(orthogonal[:3]), np.array([3.0, 2.0, 1.0]))


def look_up(table, *lists, unknown=()):
    tokens = TokenIds.from_lists(lists)
    rows, products, ids = table.look_up(TokenIds(tokens.ids, tokens.offsets, unknown=unknown))
    return rows[ids], products[ids] if len(products) else None


def encoder_of(vectors, *, tables=(), unknown="skip", weighting=GEM_SMALL):
    vocabulary = Vocabulary.from_words(WORDS)
    words = WordVectors(vocabulary, vectors, tables, "hash")
    tokenizer = WordTokenizer(vocabulary, unknown="skip" if unknown == "skip" else "keep")
    options = {"unknown": unknown}
    encoder = StaticEncoder("words:w", options, tokenizer, words, weighting=weighting, frequencies=SHARES)
    return encoder.on_corpus(TEXTS[:4] * 3)


def test_float32_vectors_are_used_where_they_lie(vectors):
    rows, products, ids = RowTable(vectors, (), None, None).look_up(TokenIds.from_lists([[2, 1]]))
    assert rows is vectors
    assert products.size == 0
    assert ids.tolist() == [2, 1]


def test_rows_are_mapped_once_and_stay(vectors, word_map):
    table = RowTable(vectors, (), word_map, None)
    first, _ = look_up(table, [1, 2])
    second, _ = look_up(table, [3, 2, 1, 4])
    np.testing.assert_array_equal(second[[2, 1]], first)
    np.testing.assert_allclose(second, vectors[[3, 2, 1, 4]] @ word_map.weight + word_map.bias, rtol=1e-5, atol=1e-5)
    assert table.dim == 5


def test_products_belong_to_the_rows(vectors):
    rows, products = look_up(RowTable(vectors, (), None, principal()), [7, 8, 7], [9])
    assert products.shape == (4, 16)
    np.testing.assert_allclose(products[:, :3], rows.astype(np.float64) @ principal().vectors.T)
    assert not products[:, 3:].any()


def test_products_are_those_of_mapped_rows(vectors, word_map):
    rows, products = look_up(RowTable(vectors, (), word_map, principal(5)), [7, 8])
    np.testing.assert_allclose(products[:, :3], rows.astype(np.float64) @ principal(5).vectors.T)


def test_words_in_any_number_of_calls_are_the_words_in_one(vectors):
    table = RowTable(vectors, (), None, principal())
    parts = [look_up(table, [i, (i * 7) % 30]) for i in range(30)]
    rows, products = look_up(RowTable(vectors, (), None, principal()), *([i, (i * 7) % 30] for i in range(30)))
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), rows)
    np.testing.assert_allclose(np.concatenate([part[1] for part in parts]), products, rtol=1e-12)


def test_no_words_are_looked_up(vectors):
    for table in (RowTable(vectors, (), None, principal()), RowTable(vectors, (), None, None)):
        assert len(look_up(table)[0]) == 0
        assert len(look_up(table, [], [])[0]) == 0


def test_unknown_words_get_the_mean_of_all_vectors(vectors):
    rows, _ = look_up(RowTable(vectors, (), None, None), [2, 30, 31], [30], unknown=("zebra", "unicorn"))
    np.testing.assert_array_equal(rows[0], vectors[2])
    np.testing.assert_allclose(rows[1:], np.tile(vectors.mean(axis=0), (3, 1)), atol=1e-6)


def test_unknown_words_get_the_vectors_of_their_sub_words(vectors):
    rows, _ = look_up(RowTable(vectors, (Lengths(),), None, None), [30, 2], [31, 30], unknown=("ab", "cdef"))
    np.testing.assert_array_equal(rows[[0, 2, 3]], Lengths().means(["ab", "cdef", "ab"]))
    np.testing.assert_array_equal(rows[1], vectors[2])


def test_unknown_words_are_mapped_and_multiplied_too(vectors, word_map):
    rows, products = look_up(RowTable(vectors, (Lengths(),), word_map, principal(5)), [30], unknown=("abc",))
    np.testing.assert_allclose(rows, Lengths().means(["abc"]) @ word_map.weight + word_map.bias, rtol=1e-5)
    np.testing.assert_allclose(products[:, :3], rows.astype(np.float64) @ principal(5).vectors.T)


def test_unknown_words_of_one_call_do_not_reach_the_next(vectors):
    table = RowTable(vectors, (Lengths(),), None, principal())
    look_up(table, [30, 4], unknown=("abc",))
    rows, _ = look_up(table, [30, 5, 4], unknown=("abcdefg",))
    np.testing.assert_array_equal(rows[0], Lengths().means(["abcdefg"])[0])
    np.testing.assert_array_equal(rows[1:], vectors[[5, 4]])


def test_a_pickled_table_gives_the_same_rows(vectors):
    table = RowTable(vectors, (), None, principal())
    expected = look_up(table, [1, 2])
    again = look_up(pickle.loads(pickle.dumps(table)), [1, 2])
    np.testing.assert_array_equal(again[0], expected[0])
    np.testing.assert_array_equal(again[1], expected[1])


def test_sub_words_are_words_like_others(vectors):
    """A text of a word outside the vocabulary is what it would be with the word in it."""
    expected = encoder_of(np.concatenate([vectors[:-2], Lengths().means(["zebra", "unicorn"])]), weighting=Average())
    found = encoder_of(vectors, tables=(Lengths(),), unknown="subwords", weighting=Average())
    np.testing.assert_array_equal(found.encode(["w1 zebra w2 unicorn"]), expected.encode(["w1 w28 w2 w29"]))


@pytest.mark.parametrize("tables", [(), (Lengths(),)], ids=["mean", "sub-words"])
@pytest.mark.parametrize("weighting", [Average(), SIF(), GEM_SMALL, ZipfianWhitening()], ids=lambda w: w.name)
def test_unknown_words_that_are_kept_have_a_vector_in_any_batch(vectors, tables, weighting):
    encoder = encoder_of(vectors, tables=tables, unknown="subwords" if tables else "mean", weighting=weighting)
    together = encoder.encode(TEXTS)
    assert together.any(axis=1).tolist() == [True, True, False, True, True, True, True]
    for text, row in zip(TEXTS, together, strict=True):
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(encoder)).encode([text])[0], row)
