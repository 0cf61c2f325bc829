import gzip
import json
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from isosent.errors import FileFormatError
from isosent.words.word_vectors import read_word_vectors

GOLDEN = Path(__file__).parents[1] / "golden"
MODEL = GOLDEN / "fasttext_tiny.bin"


@pytest.fixture(scope="module")
def golden():
    return json.loads((GOLDEN / "fasttext_tiny.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def model():
    return read_word_vectors([MODEL])


def written(
    words=("the", "of"),
    *,
    labels=(),
    dim=2,
    n_buckets=5,
    lengths=(1, 2),
    matrix=None,
    version=12,
    model=2,
    n_pruned=-1,
    is_quantized=False,
):
    """A model byte by byte, as Args::save, Dictionary::save and DenseMatrix::save of fastText write it."""
    rows = len(words) + n_buckets
    matrix = np.arange(rows * dim).reshape(rows, dim) if matrix is None else np.asarray(matrix)
    content = struct.pack("<2i", 793712314, version)
    content += struct.pack("<12id", dim, 5, 5, 1, 5, 1, 1, model, n_buckets, *lengths, 100, 1e-4)
    content += struct.pack("<3i2q", len(words) + len(labels), len(words), len(labels), 99, n_pruned)
    for kind, entries in enumerate((words, labels)):
        for entry in entries:
            content += entry.encode() + b"\0" + struct.pack("<qb", 7, kind)
    content += struct.pack("<?2q", is_quantized, rows, dim) + matrix.astype("<f4").tobytes()
    n_outputs = len(labels) or len(words)
    return content + struct.pack("<?2q", False, n_outputs, dim) + bytes(4 * n_outputs * dim)


@pytest.fixture
def read(tmp_path):
    def read(content, **options):
        (tmp_path / "model").write_bytes(content)
        return read_word_vectors([tmp_path / "model"], **options)

    return read


def test_words_are_those_of_fasttext(model, golden):
    assert list(model.vocabulary) == list(golden["known"])


def test_vectors_of_known_words_are_those_of_fasttext(model, golden):
    expected = np.array(list(golden["known"].values()), dtype=np.float32)
    np.testing.assert_array_equal(model.vectors, expected)


def test_vectors_of_unknown_words_are_those_of_fasttext(model, golden):
    expected = np.array(list(golden["unknown"].values()), dtype=np.float32)
    np.testing.assert_array_equal(model.vectors_of_unknown(list(golden["unknown"])), expected)


def test_buckets_of_ngrams_are_those_of_fasttext(model, golden):
    ids, offsets = model.tables[0].buckets([word.encode() for word in golden["buckets"]])
    split = [ids[first:last].tolist() for first, last in pairwise(offsets)]
    assert split == list(golden["buckets"].values())


def test_no_words_have_no_vectors_but_their_width(model):
    assert model.vectors_of_unknown([]).shape == (0, 4)


def test_a_word_without_any_ngram_gets_zeros(read):
    words = read(written(lengths=(6, 6)))
    assert words.vectors_of_unknown(["ab", "</s>"]).tolist() == [[0, 0], [0, 0]]


def test_a_model_without_ngrams_has_the_rows_of_its_matrix(read):
    words = read(written(lengths=(0, 0)))
    assert words.vectors.tolist() == [[0, 1], [2, 3]]
    assert words.tables == ()


def test_labels_of_a_classifier_are_no_words(read):
    words = read(written(labels=("__label__a",), lengths=(0, 0), model=3))
    assert list(words.vocabulary) == ["the", "of"]


def test_a_classifier_of_version_11_has_no_ngrams(read):
    assert read(written(version=11, model=3)).tables == ()


def test_a_vocabulary_keeps_the_ngrams(read):
    all_words, some = read(written()), read(written(), vocabulary=["of"])
    assert list(some.vocabulary) == ["of"]
    np.testing.assert_array_equal(some.vectors, all_words.vectors[1:])
    np.testing.assert_array_equal(some.vectors_of_unknown(["the"]), all_words.vectors_of_unknown(["the"]))


def test_a_concatenation_has_subword_vectors_where_a_file_with_them_lacks_the_word(tmp_path, golden):
    (tmp_path / "text").write_text("foxes 1 2\nfox 3 4\n")
    both = read_word_vectors([tmp_path / "text", MODEL])
    assert list(both.vocabulary) == ["foxes", *dict.fromkeys(["fox", *golden["known"]])]
    np.testing.assert_array_equal(
        both.vectors[:2],
        np.array([[1, 2, *golden["unknown"]["foxes"]], [3, 4, *golden["known"]["fox"]]], dtype=np.float32),
    )


def test_a_concatenation_makes_subword_vectors_where_it_can(tmp_path, golden):
    (tmp_path / "text").write_text("foxes 1 2\n")
    both = read_word_vectors([tmp_path / "text", MODEL, MODEL])
    expected = np.array([[0, 0, *golden["unknown"]["ab"], *golden["unknown"]["ab"]]], dtype=np.float32)
    np.testing.assert_array_equal(both.vectors_of_unknown(["ab"]), expected)


def test_progress_is_told_all_bytes(read, progress):
    read(written(), progress=progress)
    assert progress.complete() == [len(written())]


@pytest.mark.parametrize("n_lost", [1, 16, 40, 100, 130, 150, len(written()) - 6])
def test_a_truncated_model_is_refused(read, n_lost):
    with pytest.raises(FileFormatError, match=r"is a truncated fastText model"):
        read(written()[:-n_lost])


def test_a_quantized_model_is_refused(read):
    with pytest.raises(FileFormatError, match=r"is quantised, as \.ftz files are"):
        read(written(is_quantized=True))


def test_a_pruned_model_is_refused(read):
    with pytest.raises(FileFormatError, match=r"was pruned, and lacks n-grams"):
        read(written(n_pruned=3))


def test_an_unknown_version_is_refused(read):
    with pytest.raises(FileFormatError, match=r"of version 13, only 11 and 12"):
        read(written(version=13))


def test_a_matrix_of_another_size_is_refused(read):
    content = bytearray(written())
    start = content.index(struct.pack("<2q", 7, 2))
    content[start : start + 8] = struct.pack("<q", 6)
    with pytest.raises(FileFormatError, match=r"6 vectors of 2 words and 5 buckets of n-grams"):
        read(bytes(content))


def test_a_word_whose_vector_is_not_finite_is_named(read):
    matrix = np.zeros((7, 2))
    matrix[1, 0] = np.nan
    with pytest.raises(FileFormatError, match=r"vector 2: the vector of 'of' holds NaN or infinity"):
        read(written(matrix=matrix))


def test_a_bucket_that_is_not_finite_is_named(read):
    matrix = np.zeros((7, 2))
    matrix[5, 1] = np.inf
    with pytest.raises(FileFormatError, match=r"n-gram bucket 3 holds NaN"):
        read(written(matrix=matrix))


def test_a_packed_model_is_refused(read):
    with pytest.raises(FileFormatError, match=r"is a packed fastText model"):
        read(gzip.compress(written()))


def test_text_of_fasttext_with_blanks_at_the_ends_of_lines_is_read(read):
    words = read("2 3\n</s> 1 2 3 \nnaïve 4 5 6 \n".encode())
    assert list(words.vocabulary) == ["</s>", "naïve"]
    assert words.vectors.tolist() == [[1, 2, 3], [4, 5, 6]]
