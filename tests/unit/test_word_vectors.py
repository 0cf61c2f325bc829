import gzip
import re

import numpy as np
import pytest

from isosent import FileFormatError, InputFileError
from isosent.errors import DuplicateWordWarning
from isosent.text import word_vectors
from isosent.text.word_vectors import read_word_vectors

WORDS = ("the", "of", "naïve")
VECTORS = np.array([[0.5, -1.0, 2.0], [1.25, 0.0, -3e-4], [7.0, 8.0, 9.5]], dtype=np.float32)


def text_rows(words=WORDS, vectors=VECTORS):
    return "".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in zip(words, vectors, strict=True))


def binary(words=WORDS, vectors=VECTORS, *, n_rows=None, after=b"\n"):
    content = f"{len(words) if n_rows is None else n_rows} {len(vectors[0])}\n".encode()
    for word, vector in zip(words, vectors, strict=True):
        content += word.encode() + b" " + np.asarray(vector, dtype="<f4").tobytes() + after
    return content


@pytest.fixture
def read(tmp_path):
    def read(*contents):
        paths = []
        for number, content in enumerate(contents):
            paths.append(tmp_path / f"vectors{number}")
            paths[-1].write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_word_vectors(paths)

    return read


def assert_is(read_back, words=WORDS, vectors=VECTORS):
    assert list(read_back.index) == list(words)
    assert list(read_back.index.values()) == list(range(len(words)))
    assert read_back.vectors.dtype == np.float32
    np.testing.assert_array_equal(read_back.vectors, vectors)


def test_glove_text_has_no_header(read):
    assert_is(read(text_rows()))


def test_word2vec_text_has_a_header(read):
    assert_is(read("3 3\n" + text_rows()))


def test_the_last_line_needs_no_line_feed(read):
    assert_is(read(text_rows().rstrip("\n")))


def test_windows_line_ends_and_trailing_spaces_are_taken_off(read):
    assert_is(read(("3 3\n" + text_rows()).replace("\n", " \r\n")))


def test_tabs_may_stand_between_the_fields(read):
    assert_is(read(text_rows().replace(" ", "\t")))


@pytest.mark.parametrize("content", [text_rows().encode(), ("3 3\n" + text_rows()).encode(), binary()])
def test_gzipped_files_are_read_whatever_their_name(read, content):
    assert_is(read(gzip.compress(content)))


@pytest.mark.parametrize("after", [b"\n", b""], ids=["line feed after each", "nothing after each"])
def test_word2vec_binary_is_read(read, after):
    assert_is(read(binary(after=after)))


def test_a_binary_vector_may_hold_the_bytes_of_a_space_and_a_line_feed(read):
    vectors = np.frombuffer(b"\x20\x20\x20\x20\x0a\x0a\x0a\x0a" * 2, dtype="<f4").reshape(2, 2)
    vectors = np.concatenate([vectors, [[0.0, 1.0]]]).astype(np.float32)
    assert_is(read(binary(vectors=vectors)), vectors=vectors)


def test_blocks_of_lines_change_nothing(read, monkeypatch):
    monkeypatch.setattr(word_vectors, "_BLOCK_BYTES", 1)
    assert_is(read(text_rows()))


def test_a_later_block_counts_its_lines_from_the_start_of_the_file(read, monkeypatch):
    monkeypatch.setattr(word_vectors, "_BLOCK_BYTES", 1)
    with pytest.raises(FileFormatError, match=r"line 3 must hold"):
        read("a 1 2\nb 3 4\nc 5\n")


def test_numbers_are_those_that_numpy_parses(read):
    assert_is(read("a 1e-3 -.5\nb +2 1E+2\n"), ("a", "b"), np.array([[1e-3, -0.5], [2, 100]], dtype=np.float32))


def test_several_files_are_concatenated_with_zeros_for_missing_words(read):
    both = read("a 1 2\nb 3 4\n", "c 5 6 7\nb 8 9 10\n")
    assert_is(both, ("a", "b", "c"), [[1, 2, 0, 0, 0], [3, 4, 8, 9, 10], [0, 0, 5, 6, 7]])


def test_a_text_and_a_binary_file_can_be_concatenated(read):
    both = read(text_rows(), binary())
    assert_is(both, WORDS, np.hstack([VECTORS, VECTORS]))


def test_words_may_hold_spaces(read):
    assert_is(
        read("a 1 2\n. . 3 4\nat name@domain.com 5 6\n"), ("a", ". .", "at name@domain.com"), [[1, 2], [3, 4], [5, 6]]
    )


def test_a_no_break_space_is_part_of_a_word(read):
    assert_is(read("a 1 2\nb\u00a0c 3 4\n"), ("a", "b\u00a0c"), [[1, 2], [3, 4]])


def test_a_word_of_digits_is_a_word(read):
    assert_is(read("a 1 2\n2019 3 4\n"), ("a", "2019"), [[1, 2], [3, 4]])


def test_case_tells_words_apart(read):
    assert_is(read("A 1 2\na 3 4\n"), ("A", "a"), [[1, 2], [3, 4]])


def test_a_byte_order_mark_is_no_part_of_the_first_word(read):
    assert_is(read(b"\xef\xbb\xbf" + b"a 1 2\nb 3 4\n"), ("a", "b"), [[1, 2], [3, 4]])


def test_a_control_character_in_a_word_of_word2vec_text_does_not_make_it_binary(read):
    assert_is(read("2 2\na\x1fb 1 2\nc 3 4\n"), ("a\x1fb", "c"), [[1, 2], [3, 4]])


def test_a_short_row_names_its_line(read):
    with pytest.raises(
        FileFormatError, match=r"line 2 must hold a word and 2 numbers, as the file begins; got 2 fields: 'b 3'\."
    ):
        read("a 1 2\nb 3\nc 4 5\n")


def test_a_short_row_behind_a_header_names_its_line(read):
    with pytest.raises(FileFormatError, match=r"line 3 must hold a word and 2 numbers"):
        read("2 2\na 1 2\nb 3\n")


def test_a_row_that_is_too_long_names_its_line(read):
    with pytest.raises(
        FileFormatError, match=r"line 3 must hold a word and 2 numbers, as the file begins; got 4 fields: 'c 5 6 7'\."
    ):
        read("a 1 2\nb 3 4\nc 5 6 7\n")


def test_a_short_row_is_not_made_good_by_a_double_space(read):
    with pytest.raises(FileFormatError, match=r"line 2 must hold"):
        read("a 1 2\nb  3\nc 4 5\n")


@pytest.mark.parametrize("value", ["x", "0x10", "1,5", "--1"])
def test_a_row_that_is_not_numeric_names_its_line(read, value):
    with pytest.raises(FileFormatError, match=rf"line 2 must hold 2 numbers; got '3 {re.escape(value)}'"):
        read(f"a 1 2\nb 3 {value}\nc 4 5\n")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_a_row_that_is_not_finite_names_its_line(read, value):
    with pytest.raises(FileFormatError, match=r"line 2 must be finite; got NaN or infinity"):
        read(f"a 1 2\nb 3 {value}\nc 4 5\n")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a 1 2\n\nb 3 4\n", 2),
        ("a 1 2\r\n \t \r\nb 3 4\r\n", 2),
        ("a 1 2\nb 3 4\n\n", 3),
        ("3 2\na 1 2\n\nb 3 4\n", 3),
        ("2 2\n\na 1 2\nb 3 4\n", 2),
    ],
    ids=["between rows", "of white space", "at the end", "behind a header", "first behind a header"],
)
def test_a_blank_line_names_its_line(read, content, line):
    words = rf"line {line} must hold a word and 2 numbers, as the file begins; got a blank line\."
    with pytest.raises(FileFormatError, match=words):
        read(content)


def test_a_binary_row_that_is_not_finite_is_malformed_and_named(read):
    vectors = VECTORS.copy()
    vectors[1, 0] = np.nan
    with pytest.raises(FileFormatError, match=r"vector 2 must be finite; got NaN or infinity\."):
        read(binary(vectors=vectors))


def test_of_repeated_words_the_first_row_is_kept_and_the_rest_counted(read):
    with pytest.warns(
        DuplicateWordWarning, match=r"repeats words: rows left out: 2; the first row of each word is kept\."
    ):
        assert_is(read("a 1 2\nb 3 4\na 5 6\na 7 8\n"), ("a", "b"), [[1, 2], [3, 4]])


def test_repeated_words_of_a_binary_file_are_counted_too(read):
    with pytest.warns(DuplicateWordWarning, match=r"rows left out: 1;"):
        assert_is(read(binary(words=("a", "b", "a"))), ("a", "b"), VECTORS[:2])


@pytest.mark.parametrize("n_rows", [2, 4])
def test_a_header_that_promises_another_number_of_text_rows_is_refused(read, n_rows):
    with pytest.raises(FileFormatError, match=rf"must hold {n_rows} rows, as its header says; got 3"):
        read(f"{n_rows} 3\n" + text_rows())


@pytest.mark.parametrize("after", [b"\n", b""], ids=["line feed after each", "nothing after each"])
@pytest.mark.parametrize("n_rows", [2, 4])
def test_a_header_that_promises_another_number_of_binary_vectors_is_refused(read, n_rows, after):
    with pytest.raises(FileFormatError, match=rf"must hold {n_rows} vectors"):
        read(binary(n_rows=n_rows, after=after))


def test_a_header_that_promises_another_width_is_refused(read):
    with pytest.raises(FileFormatError, match=r"line 2 must hold a word and 4 numbers"):
        read("3 4\n" + text_rows())


@pytest.mark.parametrize("n_lost", [2, 5, 13, 30])
def test_a_truncated_binary_file_is_refused(read, n_lost):
    with pytest.raises(FileFormatError, match=r"must hold 3 vectors"):
        read(binary()[:-n_lost])


def long_text():
    numbers = np.random.default_rng(0).normal(size=(2000, 3))
    return "".join(f"word{row} {a:.6f} {b:.6f} {c:.6f}\n" for row, (a, b, c) in enumerate(numbers)).encode()


def test_a_truncated_gzip_file_is_refused(read):
    zipped = gzip.compress(long_text())
    with pytest.raises(FileFormatError, match=r"is not a whole gzip file"):
        read(zipped[: len(zipped) // 2])


@pytest.mark.parametrize("place", [0.25, 0.5, 0.9999], ids=["early", "middle", "checksum"])
def test_a_damaged_gzip_file_is_refused(read, place):
    zipped = bytearray(gzip.compress(long_text()))
    start = int(len(zipped) * place) - 4
    zipped[start : start + 4] = bytes(255 - byte for byte in zipped[start : start + 4])
    with pytest.raises(FileFormatError, match=r"gzip"):
        read(bytes(zipped))


def test_an_undecodable_word_names_its_line(read):
    with pytest.raises(FileFormatError, match=r"line 2 must start with a word in UTF-8; got b'caf\\xe9'"):
        read(b"a 1 2\ncaf\xe9 3 4\n")


def test_an_undecodable_word_of_a_binary_file_names_its_vector(read):
    content = binary().replace("naïve".encode(), b"na\xefve")
    with pytest.raises(FileFormatError, match=r"vector 3 must start with a word in UTF-8"):
        read(content)


@pytest.mark.parametrize("content", ["0 3\n", gzip.compress(b"")], ids=["header of none", "gzip of nothing"])
def test_a_file_without_any_vector_is_refused(read, content):
    with pytest.raises(FileFormatError, match=r"must hold at least one word vector; got none"):
        read(content)


@pytest.mark.parametrize("content", ["\n", "word\n", "a text, not vectors\n", "word,1,2\n"])
def test_a_file_that_holds_no_vectors_at_all_names_its_first_line(read, content):
    with pytest.raises(FileFormatError, match=r"line 1 must hold"):
        read(content)


def test_an_empty_file_is_refused(read):
    with pytest.raises(InputFileError, match=r"must not be empty"):
        read(b"")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputFileError, match=r"glove\.txt must exist; got no such file"):
        read_word_vectors([tmp_path / "glove.txt"])


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(InputFileError, match=r"must be a file; got a directory"):
        read_word_vectors([tmp_path])
