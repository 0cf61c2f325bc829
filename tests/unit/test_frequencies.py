import warnings

import numpy as np
import pytest

from isosent.errors import FileFormatError, FrequencyWarning, InputError
from isosent.words.frequencies import (
    count_tokens,
    frequencies_of_counts,
    read_frequencies,
    share_without,
    warn_if_many_without,
    zipf_probabilities,
)
from isosent.words.tokens import TokenIds
from isosent.words.vocabulary import Vocabulary


@pytest.fixture
def read(tmp_path):
    def read(content, words):
        (tmp_path / "counts.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_frequencies(tmp_path / "counts.txt", Vocabulary.from_words(words))

    return read


def test_counts_are_divided_by_the_sum_of_the_file(read):
    found = read("the 6\nof 1\nman 3\n", ["man", "the"])
    assert (found.tolist(), found.dtype) == ([0.3, 0.6], np.float64)


def test_words_without_a_count_are_counted(read):
    found = read("the 6\nof 0\n", ["of", "the", "cat"])
    assert found.tolist() == [0, 1, 0]


def test_counts_of_a_repeated_word_are_added_up(read):
    assert read("a 1\nb 2\na 1\n", ["a", "b"]).tolist() == [0.5, 0.5]


def test_tabs_blank_lines_windows_lines_and_a_byte_order_mark_are_read(read):
    assert read("\ufeffstraße\t1\r\n\r\n  안녕  3 \r\n", ["안녕", "straße"]).tolist() == [0.75, 0.25]


def test_a_word_may_hold_a_space_that_is_not_ascii(read):
    assert read("a\xa0b 1\n", ["a\xa0b"]).tolist() == [1]


@pytest.mark.parametrize("line", ["word", "new york 3", "the -1", "the nan", "the inf", "the many", b"\xff 1", "7"])
def test_a_malformed_line_is_named(read, line):
    content = b"a 1\n\n" + (line if isinstance(line, bytes) else line.encode()) + b"\nb 2\n"
    with pytest.raises(FileFormatError, match=r"counts\.txt, line 3: expected a word and a count of 0 or more, found "):
        read(content, ["a"])


@pytest.mark.parametrize("content", ["a 0\nb 0\n", "\n \n", "a 1e308\nb 1e308\n"])
def test_counts_without_a_sum_are_refused(read, content):
    with pytest.raises(FileFormatError, match=r"its \d counts have the sum .*, which is not finite and above 0"):
        read(content, ["a"])


def test_zipf_counts_ranks_from_2_as_model2vec_does():
    # 1/2 : 1/3 : 1/4, model2vec/distill/inference.py, compute_weights
    np.testing.assert_allclose(zipf_probabilities(3), [6 / 13, 4 / 13, 3 / 13], rtol=1e-15)


def test_zipf_of_no_words_is_empty():
    assert zipf_probabilities(0).shape == (0,)


def test_occurrences_are_counted_without_unknown_words():
    tokens = TokenIds.from_lists([[0, 2, 2], [], [5, 0]])
    assert (count_tokens(tokens, 4).tolist(), count_tokens(tokens, 4).dtype) == ([2, 0, 2, 0], np.int64)


def test_counts_of_parts_add_up_to_those_of_the_whole():
    parts = [TokenIds.from_lists([[0, 2]]), TokenIds.from_lists([]), TokenIds.from_lists([[1, 2], [2]])]
    assert sum(count_tokens(part, 3) for part in parts).tolist() == [1, 1, 3]


def test_probabilities_of_a_corpus_are_shares_of_its_tokens():
    assert frequencies_of_counts(np.array([1, 0, 3])).tolist() == [0.25, 0, 0.75]


def test_a_corpus_without_a_known_word_is_refused():
    with pytest.raises(InputError, match="frequencies: the model knows no word of the corpus"):
        frequencies_of_counts(np.zeros(3, dtype=np.int64))


def test_the_share_without_a_frequency_is_one_of_the_known_tokens():
    assert share_without(np.array([0.5, 0.0, 0.5]), np.array([2, 1, 1])) == 0.25


def test_the_share_of_no_tokens_is_0():
    assert share_without(np.array([0.0]), np.array([0])) == 0


def test_a_large_share_without_a_frequency_is_warned_of():
    with pytest.warns(FrequencyWarning, match=r"^counts\.txt has no frequency for 12\.5% of the tokens, "):
        warn_if_many_without(0.125, "counts.txt")


def test_a_small_share_without_a_frequency_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_many_without(0.05, "counts.txt")
