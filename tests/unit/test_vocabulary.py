import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isosent.errors import InputError
from isosent.words.vocabulary import Vocabulary, first_rows, take_words, words_as_bytes

words_without_surrogates = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def test_ids_are_the_positions_of_the_words():
    vocabulary = Vocabulary.from_words(["the", "straße", "안녕", "🙂"])
    assert vocabulary.ids_of(["🙂", "the", "cat", "straße", "안녕"]).tolist() == [3, 0, -1, 1, 2]


def test_ids_are_int32():
    assert Vocabulary.from_words(["a"]).ids_of(["a"]).dtype == np.int32


def test_ids_of_no_words_are_none():
    assert Vocabulary.from_words(["a"]).ids_of([]).shape == (0,)


def test_words_come_in_the_order_of_their_ids():
    vocabulary = Vocabulary.from_words(["b", "a", "ü"])
    assert (list(vocabulary), len(vocabulary), vocabulary[2]) == (["b", "a", "ü"], 3, "ü")


def test_membership_is_that_of_the_words():
    vocabulary = Vocabulary.from_words(["b", "a"])
    assert ("a" in vocabulary, "c" in vocabulary, 1 in vocabulary) == (True, False, False)


def test_an_empty_vocabulary_knows_nothing():
    vocabulary = Vocabulary.from_words([])
    assert (len(vocabulary), list(vocabulary), vocabulary.id_of("a")) == (0, [], -1)


def test_the_empty_word_is_a_word_like_any_other():
    assert Vocabulary.from_words(["a", ""]).ids_of(["", "a", "b"]).tolist() == [1, 0, -1]


@settings(deadline=None)
@given(st.lists(words_without_surrogates, unique=True), st.lists(words_without_surrogates))
def test_ids_are_those_of_a_dict(words, others):
    index = {word: i for i, word in enumerate(words)}
    wanted = words + others
    assert Vocabulary.from_words(words).ids_of(wanted).tolist() == [index.get(word, -1) for word in wanted]


def test_ten_thousand_words_are_told_apart():
    words = [f"{i:x}" for i in range(10_000)]
    assert np.array_equal(Vocabulary.from_words(words).ids_of(words), np.arange(10_000))


def test_the_table_is_the_one_that_stored_files_hold():
    # FNV-1a test vectors of its authors: "a" is af63dc4c8601ec8c, "b" af63df4c8601f1a5, "c" af63de4c8601eff2
    hashes = [0xAF63DC4C8601EC8C, 0xAF63DF4C8601F1A5, 0xAF63DE4C8601EFF2]
    slots = Vocabulary.from_words(["a", "b", "c"]).slots
    assert [slots[(value ^ value >> 32) % 8] for value in hashes] == [0, 1, 2]


def test_read_only_arrays_make_the_same_vocabulary():
    vocabulary = Vocabulary.from_words(["a", "bc"])
    again = Vocabulary(vocabulary.characters.copy(), vocabulary.offsets.copy(), vocabulary.slots.copy())
    assert again.ids_of(["bc", "a"]).tolist() == [1, 0]
    assert not again.slots.flags.writeable


@pytest.mark.parametrize("slots", [[-1, -1], [0, 1], [0, 1, -1], [0, 1, 2, -1], [0, 5, -1, -1], []])
def test_a_table_of_other_words_is_refused(slots):
    characters, offsets = words_as_bytes(["a", "b"])
    with pytest.raises(InputError, match="vocabulary: the hash table of 2 words"):
        Vocabulary(characters, offsets, np.array(slots, dtype=np.int32))


@pytest.mark.parametrize("offsets", [[], [0, 1], [1, 2], [0, 2, 1, 2]])
def test_offsets_that_do_not_fit_are_refused(offsets):
    with pytest.raises(InputError, match="vocabulary: offsets must rise from 0 to 2"):
        Vocabulary.from_bytes(np.frombuffer(b"ab", dtype=np.uint8), np.array(offsets, dtype=np.int64))


def test_a_repeated_word_is_refused():
    with pytest.raises(InputError, match="the word 'b' is in rows 1 and 3"):
        Vocabulary.from_words(["a", "b", "c", "b"])


def test_a_lone_surrogate_is_refused():
    with pytest.raises(InputError, match=r"the word 'a\\ud800' is not valid Unicode"):
        Vocabulary.from_words(["a\ud800"])


@pytest.mark.parametrize("words", [[b"a", b"\xff"], [b"\xc3", b"\xa4"], [b"a", b"\xed\xa0\x80"]])
def test_bytes_that_are_not_words_in_utf8_are_refused(words):
    offsets = np.cumsum([0, *map(len, words)])
    with pytest.raises(InputError, match=r"vocabulary: the word in row .* is not UTF-8"):
        Vocabulary.from_bytes(np.frombuffer(b"".join(words), dtype=np.uint8), offsets)


def test_first_rows_leave_repeated_words_out():
    assert first_rows(*words_as_bytes(["b", "a", "b", "", "a", ""])).tolist() == [0, 1, 3]


def test_take_selects_words_in_the_order_wanted():
    vocabulary = Vocabulary.from_words(["a", "straße", "c"]).take(np.array([1, 0]))
    assert (list(vocabulary), vocabulary.id_of("a"), vocabulary.id_of("c")) == (["straße", "a"], 1, -1)


def test_take_of_nothing_is_empty():
    characters, offsets = take_words(*words_as_bytes(["a", "b"]), np.array([], dtype=np.int64))
    assert (characters.shape, offsets.tolist()) == ((0,), [0])
