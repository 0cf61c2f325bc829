import gzip
import io
import re
import zipfile

import numpy as np
import pytest

from isosent.errors import DuplicateWordWarning, FileFormatError, InputError, InputFileError, UndecodableWordWarning
from isosent.words import formats as byte_stream
from isosent.words.word_vectors import read_word_vectors

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
    def read(*contents, **options):
        paths = []
        for number, content in enumerate(contents):
            paths.append(tmp_path / f"vectors{number}")
            paths[-1].write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_word_vectors(paths, **options)

    return read


def assert_is(read_back, words=WORDS, vectors=VECTORS):
    assert list(read_back.vocabulary) == list(words)
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


@pytest.fixture
def tiny_blocks(monkeypatch):
    monkeypatch.setattr(byte_stream, "_HEAD_BYTES", 24)
    monkeypatch.setattr(byte_stream, "_BLOCK_BYTES", 3)


@pytest.mark.parametrize("content", [text_rows(), "3 3\n" + text_rows(), text_rows() + " \n\n", binary()])
@pytest.mark.usefixtures("tiny_blocks")
def test_blocks_change_nothing(read, content):
    assert_is(read(content))


@pytest.mark.usefixtures("tiny_blocks")
def test_a_later_block_counts_its_lines_from_the_start_of_the_file(read):
    with pytest.raises(FileFormatError, match=r"line 12: expected a word and"):
        read("a 1 2\nb 3 4\n" + 9 * "b 3 4\n" + "c 5\n")


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


def test_white_space_in_a_word_does_not_depend_on_the_lines_around_it(read):
    for more in ("", "of late 4 5 6\n"):  # a word with a blank makes a block be read line by line
        assert list(read(f"man 1 2 3\na\x0bb 1 2 3\n{more}").vocabulary)[1] == "a\x0bb"


def test_a_row_without_a_word_names_its_line(read):
    with pytest.raises(FileFormatError, match="line 2: expected a word and 3 numbers"):
        read("man 1 2 3\n 4 5 6\n")


def test_a_control_character_in_a_row_is_refused(read):
    with pytest.raises(FileFormatError, match="line 2: expected"):
        read("man 1 2 3\ndog 4\x015 6\n")


def test_a_short_row_names_its_line(read):
    with pytest.raises(
        FileFormatError, match=r"line 2: expected a word and 2 numbers, as the file begins, found 2 fields: 'b 3'\."
    ):
        read("a 1 2\nb 3\nc 4 5\n")


def test_a_short_row_behind_a_header_names_its_line(read):
    with pytest.raises(FileFormatError, match=r"line 3: expected a word and 2 numbers"):
        read("2 2\na 1 2\nb 3\n")


def test_a_row_that_is_too_long_names_its_line(read):
    with pytest.raises(
        FileFormatError, match=r"line 3: expected a word and 2 numbers, as the file begins, found 4 fields: 'c 5 6 7'\."
    ):
        read("a 1 2\nb 3 4\nc 5 6 7\n")


def test_a_short_row_is_not_made_good_by_a_double_space(read):
    with pytest.raises(FileFormatError, match=r"line 2: expected"):
        read("a 1 2\nb  3\nc 4 5\n")


@pytest.mark.parametrize("value", ["x", "0x10", "1,5", "--1"])
def test_a_row_that_is_not_numeric_names_its_line(read, value):
    with pytest.raises(FileFormatError, match=rf"line 2: expected 2 numbers, found '3 {re.escape(value)}'"):
        read(f"a 1 2\nb 3 {value}\nc 4 5\n")


def test_rarer_white_space_between_numbers_is_refused(read):
    with pytest.raises(FileFormatError, match=r"line 2: expected 2 numbers, found '3 4\\x0b5'"):
        read("a 1 2\nb 3 4\v5\nc 4 5\n")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_a_row_that_is_not_finite_names_its_line(read, value):
    with pytest.raises(FileFormatError, match=r"line 2: the vector of 'b' holds NaN or infinity\."):
        read(f"a 1 2\nb 3 {value}\nc 4 5\n")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a 1 2\n\nb 3 4\n", 2),
        ("a 1 2\r\n \t \r\nb 3 4\r\n", 2),
        ("3 2\na 1 2\n\nb 3 4\n", 3),
        ("2 2\n\na 1 2\nb 3 4\n", 2),
    ],
    ids=["between rows", "of white space", "behind a header", "first behind a header"],
)
def test_a_blank_line_names_its_line(read, content, line):
    words = rf"line {line}: expected a word and 2 numbers, as the file begins, found a blank line\."
    with pytest.raises(FileFormatError, match=words):
        read(content)


@pytest.mark.parametrize("end", ["\n", "\n\n \r\n", " \t"])
def test_blank_lines_at_the_end_are_no_rows(read, end):
    assert_is(read("2 2\na 1 2\nb 3 4" + end), ("a", "b"), [[1, 2], [3, 4]])


def test_a_binary_row_that_is_not_finite_is_malformed_and_its_word_named(read):
    vectors = VECTORS.copy()
    vectors[1, 0] = np.nan
    with pytest.raises(FileFormatError, match=r"vector 2: the vector of 'of' holds NaN or infinity\."):
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
    with pytest.raises(FileFormatError, match=rf"its header says {n_rows} rows, but there are 3"):
        read(f"{n_rows} 3\n" + text_rows())


@pytest.mark.parametrize("after", [b"\n", b""], ids=["line feed after each", "nothing after each"])
@pytest.mark.parametrize("n_rows", [2, 4])
def test_a_header_that_promises_another_number_of_binary_vectors_is_refused(read, n_rows, after):
    with pytest.raises(FileFormatError, match=rf"its header says {n_rows} vectors"):
        read(binary(n_rows=n_rows, after=after))


def test_a_header_that_promises_another_width_is_refused(read):
    with pytest.raises(FileFormatError, match=r"line 2: expected a word and 4 numbers"):
        read("3 4\n" + text_rows())


@pytest.mark.parametrize("n_lost", [2, 5, 13, 30])
def test_a_truncated_binary_file_is_refused(read, n_lost):
    with pytest.raises(FileFormatError, match=r"its header says 3 vectors"):
        read(binary()[:-n_lost])


def long_text():
    numbers = np.random.default_rng(0).normal(size=(2000, 3))
    return "".join(f"word{row} {a:.6f} {b:.6f} {c:.6f}\n" for row, (a, b, c) in enumerate(numbers)).encode()


def test_a_truncated_gzip_file_is_refused(read):
    zipped = gzip.compress(long_text())
    with pytest.raises(FileFormatError, match=r"not a complete gzip file"):
        read(zipped[: len(zipped) // 2])


@pytest.mark.parametrize("place", [0.25, 0.5, 0.9999], ids=["early", "middle", "checksum"])
def test_a_damaged_gzip_file_is_refused(read, place):
    zipped = bytearray(gzip.compress(long_text()))
    start = int(len(zipped) * place) - 4
    zipped[start : start + 4] = bytes(255 - byte for byte in zipped[start : start + 4])
    with pytest.raises(FileFormatError, match=r"gzip"):
        read(bytes(zipped))


@pytest.mark.parametrize(
    "content",
    [
        text_rows().encode().replace("naïve".encode(), b"na\xefve"),
        ("3 3\n" + text_rows()).encode().replace("naïve".encode(), b"na\xc3"),
        binary().replace("naïve".encode(), b"na\xefve"),
    ],
    ids=["text", "with header", "binary"],
)
def test_words_that_are_not_utf8_are_left_out_and_counted(read, content):
    with pytest.warns(UndecodableWordWarning, match=r"holds words that are not UTF-8: rows left out: 1\."):
        assert_is(read(content), WORDS[:2], VECTORS[:2])


def test_halves_of_a_character_in_two_words_are_not_one(read):
    with pytest.warns(UndecodableWordWarning, match=r"left out: 2"):
        assert_is(read(b"a 1 2\n\xc3 3 4\n\xa9 5 6\n"), ("a",), [[1, 2]])


def test_a_file_of_undecodable_words_alone_is_refused(read):
    with (
        pytest.warns(UndecodableWordWarning, match=r"left out: 1"),
        pytest.raises(InputError, match=r"there is no word in UTF-8\."),
    ):
        read(b"\xe9 1 2\n")


@pytest.mark.parametrize(
    "content", ["0 3\n", gzip.compress(b""), "\n"], ids=["header of none", "gzip of nothing", "blank line"]
)
def test_a_file_without_any_vector_is_refused(read, content):
    with pytest.raises(FileFormatError, match=r"holds no word vectors"):
        read(content)


@pytest.mark.parametrize("content", ["\n \na 1\n", "word\n", "a text, not vectors\n", "word,1,2\n"])
def test_a_file_that_holds_no_vectors_at_all_names_its_first_line(read, content):
    with pytest.raises(FileFormatError, match=r"line 1: expected"):
        read(content)


def test_an_empty_file_is_refused(read):
    with pytest.raises(InputFileError, match=r"is empty"):
        read(b"")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputFileError, match=r"glove\.txt: no such file"):
        read_word_vectors([tmp_path / "glove.txt"])


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(InputFileError, match=r"is a folder"):
        read_word_vectors([tmp_path])


@pytest.mark.parametrize(
    "number",
    [
        "0.1",
        "-0.000012345678",
        "123456789012345678901234567890e-25",
        "0.30000001192092896",
        "1.00000005960464477539",
        "16777217",
        "3.4028235e38",
        "1.4e-45",
        "7e-46",
        "-0",
        "00012.5000",
        ".5e+1",
        "5.E-1",
        "1e-320",
        "99999999999999999999",
    ],
)
def test_each_number_is_rounded_as_python_rounds_it(read, number):
    expected = np.float32(float(number))
    assert (
        read(f"a {number} 1\nb 1 {number}\n").vectors.tobytes()
        == np.array([[expected, 1], [1, expected]], dtype=np.float32).tobytes()
    )


def test_random_numbers_of_any_length_are_rounded_as_python_rounds_them(read):
    random = np.random.default_rng(0)
    numbers = [
        f"{value:.{digits}{kind}}"
        for value, digits, kind in zip(
            random.normal(size=6000) * 10.0 ** random.integers(-30, 30, size=6000),
            random.integers(1, 20, size=6000),
            random.choice(list("eg"), size=6000),
            strict=True,
        )
    ]
    rows = "".join(f"w{i} {' '.join(numbers[i : i + 6])}\n" for i in range(0, 6000, 6))
    expected = np.array(list(map(float, numbers)), dtype=np.float32)
    np.testing.assert_array_equal(read(rows).vectors.ravel(), expected)


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize("content", [text_rows(), "3 3\n" + text_rows(), binary()])
def test_the_only_member_of_a_zip_archive_is_read(read, content):
    assert_is(read(zipped(vectors=content)))


def test_a_zip_archive_of_several_members_lists_them(read):
    with pytest.raises(InputFileError, match=r"holds several files: a, b\. Unpack it"):
        read(zipped(a="a 1\n", b="b 2\n"))


@pytest.mark.parametrize("place", [0.3, 0.6])
def test_a_damaged_zip_archive_is_refused(read, place):
    content = bytearray(zipped(vectors=long_text()))
    start = int(len(content) * place)
    content[start : start + 4] = bytes(255 - byte for byte in content[start : start + 4])
    with pytest.raises(FileFormatError, match=r"not a complete zip archive"):
        read(bytes(content))


def test_a_truncated_zip_archive_is_refused(read):
    with pytest.raises(FileFormatError, match=r"not a complete zip archive"):
        read(zipped(vectors=long_text())[:5000])


def test_progress_is_told_all_bytes_of_the_file(read, progress):
    content = long_text()
    read(content, progress=progress)
    assert progress.complete() == [len(content)]


def test_a_binary_header_beyond_the_file_is_refused_before_it_is_read(read):
    content = binary().replace(b"3 3\n", b"999999999999 3\n")
    with pytest.raises(FileFormatError, match=r"its header says 999999999999 vectors of 3 floats, but it ends"):
        read(content)


@pytest.mark.parametrize("content", [text_rows(), "3 3\n" + text_rows(), binary()])
def test_a_vocabulary_keeps_its_words_in_the_order_of_the_file(read, content):
    assert_is(read(content, vocabulary=["naïve", "cat", "the", "the"]), ("the", "naïve"), VECTORS[[0, 2]])


def test_numbers_of_words_outside_the_vocabulary_are_not_read(read):
    assert_is(read("a 1 2\nb x y\nc nan 4\n", vocabulary=["a"]), ("a",), [[1, 2]])


def test_a_vocabulary_finds_words_with_spaces(read):
    assert_is(read("a 1 2\n. . 3 4\n", vocabulary=[". ."]), (". .",), [[3, 4]])


def test_rows_of_another_width_are_refused_outside_the_vocabulary_too(read):
    with pytest.raises(FileFormatError, match=r"line 2: expected a word and 2 numbers"):
        read("a 1 2\nb 3\n", vocabulary=["a"])


@pytest.mark.parametrize("content", ["the\nnaïve\n", "the 30\nnaïve 2\n", "\ufeffthe\t3e-2\r\n\r\nnaïve\r\n"])
def test_a_vocabulary_may_be_a_file_with_counts_or_without(read, tmp_path, content):
    (tmp_path / "words.txt").write_bytes(content.encode())
    assert_is(read(text_rows(), vocabulary=tmp_path / "words.txt"), ("the", "naïve"), VECTORS[[0, 2]])


def test_a_vocabulary_that_is_not_utf8_names_its_line(read, tmp_path):
    (tmp_path / "words.txt").write_bytes(b"a\ncaf\xe9\n")
    with pytest.raises(FileFormatError, match=r"words\.txt, line 2 is not UTF-8"):
        read(text_rows(), vocabulary=tmp_path / "words.txt")


@pytest.mark.parametrize("vocabulary", [["cat"], []])
def test_a_vocabulary_that_leaves_no_word_is_refused(read, vocabulary):
    with pytest.raises(InputError, match=r"there is no word of the vocabulary\."):
        read(text_rows(), vocabulary=vocabulary)


def test_one_of_several_files_may_hold_no_word_of_the_vocabulary(read):
    both = read("a 1 2\nb 3 4\n", "c 5\n", vocabulary=["c", "b"])
    assert_is(both, ("b", "c"), [[3, 4, 0], [0, 0, 5]])


def test_the_same_content_has_the_same_hash_in_any_format(read):
    assert len({read(content).content_hash for content in (text_rows(), "3 3\n" + text_rows(), binary())}) == 1


def test_other_content_has_another_hash(read):
    hashes = {
        read(content).content_hash
        for content in ("a 1 2\nb 3 4\n", "a 1 2\nb 3 5\n", "a 1 2\nc 3 4\n", "ab 1 2\nb 3 4\n")
    }
    assert len(hashes) == 4


WITH_BLANKS = [" ", "New York", "Apollo 11", ". . .", "a  b", "a\tb", "trailing ", " leading", "x\u3000 y", "1 2", "3"]


@pytest.mark.parametrize("word", WITH_BLANKS)
@pytest.mark.parametrize("end", ["\n", " \r\n"], ids=["LF", "blank and CRLF"])
def test_behind_a_header_a_word_is_all_that_precedes_the_numbers(read, word, end):
    content = f"3 3\nof 1 2 3\n{word} 4 5 6\ndog 7 8 9\n".replace("\n", end)
    assert_is(read(content), ("of", word, "dog"), [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert_is(read(content, vocabulary=[word]), (word,), [[4, 5, 6]])


def test_words_that_differ_in_their_blanks_alone_keep_their_vectors(read):
    words = ("a\tb", "a b", "a  b", "a b ", " a b")
    content = "5 2\n" + "".join(f"{word} {row} 7\n" for row, word in enumerate(words))
    assert_is(read(content), words, [[row, 7] for row in range(5)])


def test_behind_a_header_several_blanks_may_separate_numbers(read):
    content = "2 3\nNew  York  1  2  3\nof  4  5  6\n"
    assert_is(read(content), ("New York", "of"), [[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize("first", ["of", "New York"])
def test_a_header_that_promises_fewer_dimensions_is_refused(read, first):
    with pytest.raises(FileFormatError, match="header says 2 dimensions"):
        read(f"3 2\n{first} 1 2 3\ndog 4 5 6\ncat 7 8 9\n")


def test_without_a_header_a_word_of_blanks_is_read_and_a_number_too_many_refused(read):
    assert_is(read("of 1 2 3\n  4 5 6\n"), ("of", " "), [[1, 2, 3], [4, 5, 6]])
    with pytest.raises(FileFormatError, match=r"line 2: expected a word and 3 numbers.*header"):
        read("of 1 2 3\nApollo 11 4 5 6\n")


def test_a_binary_file_may_hold_no_control_character(read):
    vectors = np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], dtype=np.float32)
    assert not any(byte < 32 for byte in vectors.tobytes())
    assert_is(read(binary(("of", "dog"), vectors, after=b"")), ("of", "dog"), vectors)
