import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from isosent.errors import CacheWarning, DuplicateWordWarning, FileFormatError, InputError
from isosent.io.checksum import UNSEALED, file_checksum, seal_file
from isosent.io.tensors import SEAL
from isosent.words import word_vectors
from isosent.words import word_vectors as vector_file
from isosent.words.word_vectors import convert_word_vectors, read_word_vectors

GOLDEN = Path(__file__).parents[1] / "golden"
FASTTEXT = GOLDEN / "fasttext_tiny.bin"
VECTORS = np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32)
WORDS = [f"w{row}" for row in range(50)]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(word_vectors, "_CACHED_FROM_BYTES", 1)
    monkeypatch.setenv("ISOSENT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "isosent" / "word_vectors"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(
        "".join(f"{word} {' '.join(map(repr, row))}\n" for word, row in zip(WORDS, VECTORS.tolist(), strict=True))
    )
    return path


def assert_same(words, others):
    assert list(words.vocabulary) == list(others.vocabulary)
    np.testing.assert_array_equal(words.vectors, others.vectors)
    assert words.content_hash == others.content_hash


def save_sealed(tensors, path, **metadata):
    metadata |= {"format": vector_file.FORMAT, "version": vector_file.VERSION, SEAL: UNSEALED}
    with path.open("w+b") as file:
        writer = vector_file._TensorWriter(file, 4096)
        for name, tensor in tensors.items():
            writer.append(name, tensor)
        writer.write_header(metadata)
    seal_file(path, path.read_bytes().find(UNSEALED.encode()), file_checksum(path))


def lies_in_a_file(array):
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return isinstance(array, memoryview) or type(array).__name__ == "mmap"


def test_a_large_file_is_converted_and_opens_from_a_memory_map(text, cache):
    words = read_word_vectors([text])
    assert len(list(cache.iterdir())) == 1
    assert type(words.vectors) is np.ndarray
    assert lies_in_a_file(words.vectors)
    assert lies_in_a_file(words.vocabulary.characters)
    assert_same(words, read_word_vectors([text], cache=False))


def test_a_converted_file_is_not_read_again(text, cache):
    first = read_word_vectors([text])
    state = text.stat()
    text.write_bytes(b"?" * state.st_size)
    os.utime(text, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert_same(read_word_vectors([text]), first)


def test_a_file_that_changed_is_converted_again_in_place_of_the_old(text, cache):
    read_word_vectors([text])
    text.write_text("a 1 2\n")
    assert list(read_word_vectors([text]).vocabulary) == ["a"]
    assert len(list(cache.iterdir())) == 1


def test_a_small_file_is_not_converted(text, tmp_path, monkeypatch):
    monkeypatch.setenv("ISOSENT_CACHE", str(tmp_path / "cache"))
    read_word_vectors([text])
    assert not (tmp_path / "cache").exists()


def test_nothing_is_converted_where_the_cache_is_not_wanted(text, cache):
    read_word_vectors([text], cache=False)
    assert not cache.exists()


def test_a_vocabulary_uses_a_converted_file_and_writes_none(text, cache):
    read = read_word_vectors([text], vocabulary=["w7", "w3"])
    assert not cache.exists()
    read_word_vectors([text])
    assert_same(read_word_vectors([text], vocabulary=["w7", "w3"]), read)


@pytest.mark.parametrize("content", [b"", b"damaged", None], ids=["empty", "other", "truncated"])
def test_a_damaged_cache_is_made_again(text, cache, content):
    first = read_word_vectors([text])
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.unlink()  # what is mapped stays whole
    file.write_bytes(whole[:-20] if content is None else content)
    assert_same(read_word_vectors([text]), first)
    assert len(file.read_bytes()) > 1000


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_changed_byte_of_the_cache_is_noticed_and_it_is_made_again(text, cache, share):
    words = read_word_vectors([text])
    (file,) = cache.iterdir()
    content = file.read_bytes()
    place = int(share * len(content))
    file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    assert_same(read_word_vectors([text]), words)
    assert [path.read_bytes() for path in cache.iterdir()] == [content]


def test_a_cache_that_cannot_be_written_is_no_error(text, cache, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ISOSENT_CACHE", str(tmp_path / "file"))
    with pytest.warns(CacheWarning, match=r"is read again each time: .* Set ISOSENT_CACHE to another folder\."):
        words = read_word_vectors([text])
    assert_same(words, read_word_vectors([text], cache=False))


def test_a_malformed_file_is_refused_and_leaves_no_cache(text, cache):
    text.write_text("a 1 2\nb 3\n")
    with pytest.raises(FileFormatError, match=r"line 2: expected"):
        read_word_vectors([text])
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("variables", [("XDG_CACHE_HOME",), ("HOME",)])
def test_the_cache_lies_where_the_system_keeps_caches(text, cache, monkeypatch, tmp_path, variables):
    monkeypatch.delenv("ISOSENT_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for variable in variables:
        monkeypatch.setenv(variable, str(tmp_path / variable))
    read_word_vectors([text])
    root = tmp_path / variables[0] / ("" if variables[0] == "XDG_CACHE_HOME" else ".cache")
    assert len(list((root / "isosent" / "word_vectors").iterdir())) == 1


def test_rows_of_repeated_words_do_not_reach_the_converted_file(text, cache):
    lines = [f"w{row} {row} {row % 7}\n" for row in range(40_000)]  # three blocks
    text.write_text("".join(lines[:5] + lines[:2] + lines[5:20_000] + lines[7:8] + lines[20_000:]))
    with pytest.warns(DuplicateWordWarning, match=r"rows left out: 3;"):
        words = read_word_vectors([text])
    assert list(words.vocabulary) == [f"w{row}" for row in range(40_000)]
    np.testing.assert_array_equal(words.vectors, [(row, row % 7) for row in range(40_000)])


def test_a_repeated_word_is_told_of_once(text, cache):
    text.write_text("a 1 2\na 3 4\n")
    with pytest.warns(DuplicateWordWarning):
        read_word_vectors([text])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_word_vectors([text])


def test_a_fasttext_model_keeps_its_subwords_in_the_cache(cache):
    cached, read = read_word_vectors([FASTTEXT]), read_word_vectors([FASTTEXT], cache=False)
    assert lies_in_a_file(cached.tables[0].vectors)
    np.testing.assert_array_equal(cached.vectors_of_unknown(["foxes"]), read.vectors_of_unknown(["foxes"]))
    assert_same(cached, read)


def test_the_safetensors_package_reads_what_is_written(text, tmp_path):
    convert_word_vectors([text], tmp_path / "out.safetensors")
    tensors = load_file(tmp_path / "out.safetensors")
    np.testing.assert_array_equal(tensors["vectors"], VECTORS)
    assert tensors["characters"].tobytes() == "".join(WORDS).encode()
    assert np.diff(tensors["offsets"]).tolist() == list(map(len, WORDS))


def test_a_converted_file_is_read_as_any_other(text, tmp_path):
    written = convert_word_vectors([text], tmp_path / "out.safetensors")
    assert_same(read_word_vectors([tmp_path / "out.safetensors"]), written)
    assert_same(written, read_word_vectors([text]))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("int8", 2e-2)])
def test_smaller_numbers_of_release_0_1_0_are_read_as_float32(dtype, tolerance):
    """`isosent words convert fasttext_tiny.bin --dtype DTYPE` of that release wrote the files."""
    words, exact = read_word_vectors([GOLDEN / f"words_{dtype}_0.1.0.safetensors"]), read_word_vectors([FASTTEXT])
    assert words.vectors.dtype == words.tables[0].vectors.dtype == np.float32
    np.testing.assert_allclose(words.vectors, exact.vectors, atol=tolerance)
    np.testing.assert_allclose(
        words.vectors_of_unknown(["foxes", "a"]), exact.vectors_of_unknown(["foxes", "a"]), atol=tolerance
    )


def test_a_converted_file_can_be_converted_on(text, tmp_path):
    convert_word_vectors([text], tmp_path / "one.safetensors")
    words = convert_word_vectors([tmp_path / "one.safetensors"], tmp_path / "two.safetensors")
    np.testing.assert_array_equal(words.vectors, VECTORS)


def test_several_files_are_converted_into_one(text, tmp_path):
    words = convert_word_vectors([text, FASTTEXT], tmp_path / "out.safetensors", vocabulary=["w1", "fox"])
    assert_same(words, read_word_vectors([text, FASTTEXT], vocabulary=["w1", "fox"]))
    np.testing.assert_array_equal(
        words.vectors_of_unknown(["foxes"])[0],
        [*np.zeros(5), *read_word_vectors([FASTTEXT]).vectors_of_unknown(["foxes"])[0]],
    )


def test_a_vocabulary_that_leaves_no_word_writes_nothing(text, tmp_path):
    with pytest.raises(InputError, match=r"there is no word of the vocabulary"):
        convert_word_vectors([text], tmp_path / "out.safetensors", vocabulary=["x"])
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.txt"]


def test_another_safetensors_file_is_refused(tmp_path):
    save_file({"embeddings": VECTORS}, tmp_path / "model.safetensors")
    with pytest.raises(FileFormatError, match=r"no word vectors that isosent words convert wrote"):
        read_word_vectors([tmp_path / "model.safetensors"])


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_a_truncated_converted_file_is_refused(text, tmp_path, kept):
    file = tmp_path / "out.safetensors"
    convert_word_vectors([text], file)
    content = file.read_bytes()
    file.write_bytes(content[: max(4200, int(kept * len(content)))])
    with pytest.raises(FileFormatError, match=r"out\.safetensors is damaged: buffer is too small .*\. Save it again"):
        read_word_vectors([file])


def test_a_converted_file_of_other_tensors_is_refused(text, tmp_path):
    file = tmp_path / "out.safetensors"
    convert_word_vectors([text], file)
    tensors = load_file(file)
    save_sealed({**tensors, "vectors": tensors["vectors"][1:]}, file, ngrams="[]")
    with pytest.raises(FileFormatError, match=r"is damaged: it has 50 words"):
        read_word_vectors([file])
    del tensors["slots"]
    save_sealed(tensors, file, ngrams="[]")
    with pytest.raises(FileFormatError, match=r"is damaged: 'slots'"):
        read_word_vectors([file])


def test_a_converted_file_opens_from_places_that_are_not_aligned(tmp_path):
    (tmp_path / "v.txt").write_text("a 1 2 3\nb 4 5 6\nc 7 8 9\n")
    words = convert_word_vectors([tmp_path / "v.txt"], tmp_path / "out.safetensors")
    assert words.vocabulary.ids_of(["c", "a", "x"]).tolist() == [2, 0, -1]
    assert words.vectors.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_a_changed_byte_of_a_converted_file_is_refused(text, tmp_path):
    file = tmp_path / "out.safetensors"
    convert_word_vectors([text], file)
    content = file.read_bytes()
    for place in np.linspace(0, len(content) - 1, 60).astype(int):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(FileFormatError, match=r"out\.safetensors"):
            read_word_vectors([file])


@pytest.mark.parametrize("ngrams", ["[[1]]", "{}", "7", "[" * 9999, '[["a", 1, 2]]', "[[1, 2, 3]]", "\0"])
def test_other_metadata_is_refused(text, tmp_path, ngrams):
    file = tmp_path / "out.safetensors"
    convert_word_vectors([text], file)
    save_sealed(load_file(file), file, ngrams=ngrams)
    with pytest.raises(FileFormatError, match=r"out\.safetensors"):
        read_word_vectors([file])
