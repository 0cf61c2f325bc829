"""word2vec's binary format with words that it was not made for: each row is read right, or the file is refused."""

import numpy as np
import pytest

from isosent.errors import FileFormatError, UndecodableWordWarning
from isosent.words.word_vectors import read_word_vectors

WORDS_WITH_BLANKS = [
    *(
        " ",
        "  ",
        "New York",
        "Apollo 11",
        "of the war",
        "of the",
        " leading",
        "trailing ",
        "a  b",
        "1 2 3",
        "UN IBM 42",
    ),
    *("é è", "北京 大学", "a \tb", "\u00a0 x", "x\u3000 y", "-- --", "a " * 60 + "b"),
]
PLAIN_WORDS = ["of", "dog", "naïve", "2019", "a\tb", "no\u00a0break", "em\u2003space", "北京", "</s>", "New_York"]


def vectors_of(n_rows, dim, seed=0):
    return (0.3 * np.random.default_rng(seed).normal(size=(n_rows, dim))).astype("<f4")


def rows_of(words, vectors, row_end):
    return b"".join(word.encode() + b" " + row.tobytes() + row_end for word, row in zip(words, vectors, strict=True))


@pytest.fixture
def read(tmp_path):
    def read(words, vectors, row_end, change=lambda content: content):
        path = tmp_path / "words.bin"
        content = f"{len(words)} {vectors.shape[1]}\n".encode() + rows_of(words, vectors, row_end)
        path.write_bytes(change(content))
        return read_word_vectors([path])

    return read


def assert_holds(read_back, words, vectors):
    assert list(read_back.vocabulary) == words
    assert read_back.vectors.tobytes() == vectors.tobytes()


@pytest.mark.parametrize("row_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("dim", [3, 50])
def test_where_line_feeds_follow_rows_the_words_may_hold_blanks(read, dim, row_end):
    words = [word for pair in zip(WORDS_WITH_BLANKS, PLAIN_WORDS * 2, strict=False) for word in pair]
    words = list(dict.fromkeys(words))
    vectors = vectors_of(len(words), dim)
    assert_holds(read(words, vectors, row_end), words, vectors)


def test_a_float_may_hold_the_line_feed_that_would_end_a_shorter_word(read):
    words, vectors = ["of", "New York", "dog"], vectors_of(3, 50)
    content = bytearray(vectors.tobytes())
    content[2 * 200 - len("York ")] = ord("\n")  # after 200 bytes from the first blank on
    vectors = np.frombuffer(bytes(content), "<f4").reshape(3, 50)
    assert_holds(read(words, vectors, b"\n"), words, vectors)


@pytest.mark.parametrize("word", WORDS_WITH_BLANKS)
@pytest.mark.parametrize("dim", [3, 50])
def test_without_line_feeds_a_word_with_blanks_is_refused_and_its_row_named(read, word, dim):
    words = ["of", word, "dog", "cat"]
    with pytest.raises(FileFormatError, match=r"vector 2\b.*words with blanks"):
        read(words, vectors_of(4, dim), b"")


@pytest.mark.parametrize("kind", ["float16", "ones", "integers", "zeros"])
def test_it_is_refused_whatever_its_numbers_are_like(read, kind):
    vectors = {
        "float16": vectors_of(40, 50).astype(np.float16).astype("<f4"),
        "ones": np.sign(vectors_of(40, 50)),
        "integers": np.round(100 * vectors_of(40, 50)),
        "zeros": np.zeros((40, 50), "<f4"),
    }[kind]
    vectors[0] = 0.25
    for word in ("New York", " ", "Apollo 11", "of the"):
        words = ["of", word, *(f"word{row}" for row in range(38))]
        with pytest.raises(FileFormatError, match=r"vector 2\b.*words with blanks"):
            read(words, vectors, b"")


def test_the_last_word_ends_where_the_file_does(read):
    words, vectors = ["of", "dog", "New York"], vectors_of(3, 3)
    assert_holds(read(words, vectors, b""), words, vectors)


@pytest.mark.parametrize("row_end", [b"", b"\n"], ids=["no line feeds", "LF"])
def test_vectors_that_begin_with_the_byte_of_a_blank_are_read(read, row_end):
    words, vectors = [f"word{row}" for row in range(3000)], vectors_of(3000, 50)
    content = bytearray(vectors.tobytes())
    for row in range(0, 3000, 7):
        content[200 * row + row % 3] = ord(" ")  # after text, in some
        content[200 * row : 200 * row + row % 3] = b"ab"[: row % 3]
    vectors = np.frombuffer(bytes(content), "<f4").reshape(3000, 50)
    assert_holds(read(words, vectors, row_end), words, vectors)


def test_without_line_feeds_a_word_may_begin_with_one(read):
    words, vectors = ["of", "\n", "\n\n", "\nfoo", "dog"], vectors_of(5, 8)
    assert_holds(read(words, vectors, b""), words, vectors)


def test_an_empty_line_may_precede_the_rows(read):
    words, vectors = ["of", "dog", "cat", "cow"], vectors_of(4, 8)
    content = read(words, vectors, b"\n", lambda content: content.replace(b"\n", b"\n\n", 1))
    assert_holds(content, words, vectors)


def test_a_word_that_is_longer_than_a_block_is_refused(read):
    for row_end in (b"", b"\n"):
        with pytest.raises(FileFormatError, match=r"vector 2.*longer than 64 KiB"):
            read(["of", "x" * 70_000, "dog"], vectors_of(3, 8), row_end)


@pytest.mark.parametrize("row_end", [b"", b"\n"], ids=["no line feeds", "LF"])
@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:2000] + content[2003:],
        lambda content: content[:2000] + b"abc" + content[2000:],
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content + b"more",
        lambda content: content[:-100],
    ],
    ids=["bytes are lost", "bytes are added", "converted to Windows line ends", "more follows", "truncated"],
)
def test_a_file_whose_rows_have_lost_their_places_is_refused(read, row_end, change):
    words = [f"word{row}" for row in range(40)]
    with pytest.raises(FileFormatError):
        read(words, vectors_of(40, 300, seed=1), row_end, change)


@pytest.mark.parametrize("dtype", ["<f8", "<f2"])
@pytest.mark.parametrize("row_end", [b"", b"\n"], ids=["no line feeds", "LF"])
def test_numbers_of_another_type_are_refused(read, dtype, row_end):
    words = [f"word{row}" for row in range(40)]
    with pytest.raises(FileFormatError):
        read(words, vectors_of(40, 50).astype(dtype), row_end)


@pytest.mark.parametrize("row_end", [b"", b"\n"], ids=["no line feeds", "LF"])
def test_words_in_another_encoding_are_left_out_and_the_others_read(read, row_end):
    words, vectors = ["of", "naïve", "dog", "cat"], vectors_of(4, 50)
    with pytest.warns(UndecodableWordWarning, match="left out: 1"):
        read_back = read(words, vectors, row_end, lambda content: content.replace("naïve".encode(), b"na\xefve"))
    assert_holds(read_back, ["of", "dog", "cat"], vectors[[0, 2, 3]])


@pytest.mark.parametrize("row_end", [b"\r", b"\t", b"\n\n"], ids=["CR", "tab", "two line feeds"])
def test_what_ends_rows_does_not_become_a_part_of_words(read, row_end):
    with pytest.raises(FileFormatError, match=r"begin with|more bytes follow"):
        read(PLAIN_WORDS, vectors_of(len(PLAIN_WORDS), 20), row_end)


@pytest.mark.parametrize("word", ["", "a\nb"])
def test_a_first_word_that_hides_the_line_feeds_is_refused(read, word):
    words = [word, *PLAIN_WORDS]
    with pytest.raises(FileFormatError, match="begin with"):
        read(words, vectors_of(len(words), 20), b"\n")
