import gzip

import pytest
from safetensors.numpy import load_file

GLOVE = "man 1 2 3\ndog 2 1 5\ncat 3 -1 0\nyak 0 0 7\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "glove.txt").write_text(GLOVE)
    return tmp_path


def test_words_are_converted(isosent_):
    finished = isosent_("words", "convert", "glove.txt", "-o", "glove.safetensors")
    assert finished.code == 0
    assert finished.out == "glove.safetensors: 4 x 3 float32; sub-words: none\n"
    assert load_file("glove.safetensors")["vectors"].tolist() == [[1, 2, 3], [2, 1, 5], [3, -1, 0], [0, 0, 7]]


def test_several_files_and_some_words(isosent_, here):
    (here / "more.gz").write_bytes(gzip.compress(b"cow 1\nyak 2\n"))
    (here / "words.txt").write_text("yak 12\ncow 3\n")
    finished = isosent_(
        "words", "convert", "glove.txt", "more.gz", "-o", "out.safetensors", "--vocabulary", "words.txt"
    )
    assert finished.out == "out.safetensors: 2 x 4 float32; sub-words: none\n"
    vectors = load_file("out.safetensors")["vectors"]
    assert vectors.tolist() == [[0, 0, 7, 2], [0, 0, 0, 1]]


@pytest.mark.parametrize(("name", "format_name"), [("glove.txt", "text"), ("glove.safetensors", "isosent safetensors")])
def test_info_tells_what_a_file_holds(isosent_, name, format_name):
    isosent_("words", "convert", "glove.txt", "-o", "glove.safetensors")
    lines = [line.split(maxsplit=1) for line in isosent_("info", name).out.splitlines()]
    facts = {first: rest.strip() for first, rest in lines}
    assert facts["format"] == format_name
    assert (facts["rows"], facts["dimensions"], facts["dtype"]) == ("4", "3", "float32")
    assert facts["first"].split() == ["words", "man", "dog", "cat", "yak"]


def test_the_same_words_have_the_same_hash_before_and_after(isosent_):
    isosent_("words", "convert", "glove.txt", "-o", "glove.safetensors")
    hashes = {isosent_("info", name).out.split()[-1] for name in ("glove.txt", "glove.safetensors")}
    assert len(hashes) == 1


def test_what_is_read_is_not_written(isosent_, refuses):
    refuses(isosent_("words", "convert", "glove.txt", "-o", "glove.txt"), "is one of the files")


def test_bad_files_are_refused_in_one_sentence(isosent_, refuses, here):
    (here / "bad.txt").write_text("man 1 2\ndog 1\n")
    refuses(isosent_("words", "convert", "bad.txt", "-o", "out.safetensors"), "bad.txt, line 2: expected")
    refuses(isosent_("info", "missing.txt"), "missing.txt")
    refuses(isosent_("words", "convert", "glove.txt", "-o", "no/out.safetensors"), "there is no folder")
