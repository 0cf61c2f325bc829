"""Vectors whose model is named too late: what messages advise is typed as it stands; then texts are searched."""

import re
import shlex

import numpy as np
import pytest

TEXTS = [
    f"{a} {b}" for a in ("river", "garden", "music", "winter", "doctor") for b in ("stone", "letter", "planet", "car")
]


@pytest.fixture(autouse=True)
def here(isosent_, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    assert isosent_("encode", "texts.txt", "-o", "noted.npy").code == 0
    np.save("bare.npy", np.load("noted.npy"))
    return tmp_path


def advised(message, **names):
    """The commands that a message advises, with the names of this test."""
    for word, name in ({"MODEL": "wordllama", "FOLDER": "folder", "INDEX": "made"} | names).items():
        message = re.sub(rf"\b{word}\b", name, message)
    return [
        shlex.split(command)
        for command in re.findall(r"isosent ((?:index|fit) .*?)(?=[,.;:] |\.?$|, isosent)", message, re.M)
    ]


@pytest.mark.parametrize("vectors", ["bare.npy", "noted.npy"])
@pytest.mark.parametrize("is_fitted", [False, True])
def test_an_index_of_vectors_is_searched_by_text_after_what_is_advised(isosent_, vectors, is_fitted):
    if is_fitted:
        assert isosent_("fit", vectors, "--transform", "whitening", "-o", "fitted").code == 0
    assert isosent_("index", vectors, *(["-m", "fitted"] * is_fitted), "-o", "index").code == 0
    refused = isosent_("search", "index", "river stone")
    commands = advised(refused.err, VECTORS=vectors)
    assert [command[0] for command in commands] == ["fit", "index"] if is_fitted else ["index"]
    for command in commands:
        assert isosent_(*command, *(["--transform", "whitening"] if command[0] == "fit" else [])).code == 0
    assert "\n1.0000" in "\n" + isosent_("search", "index", "river stone", "-k", "1").out


def test_a_model_of_unnamed_vectors_encodes_after_what_is_advised(isosent_, refuses):
    assert isosent_("fit", "bare.npy", "--transform", "whitening", "-o", "fitted").code == 0
    for model in ("fitted", "fitted?encoder=wordllama"):
        refused = isosent_("encode", "texts.txt", "-m", model, "-o", "x.npy")
        refuses(refused)
        command, *_ = advised(refused.err, VECTORS="bare.npy")
        assert isosent_(*command, "--transform", "whitening").code == 0
        assert isosent_("encode", "texts.txt", "-m", "folder", "-o", "x.npy").code == 0
        assert isosent_("transform", "bare.npy", "-m", "fitted", "-o", "y.npy").code == 0
        np.testing.assert_allclose(np.load("x.npy"), np.load("y.npy"), atol=1e-5)


def test_a_model_of_vectors_with_a_note_says_how_it_encodes(isosent_, refuses):
    assert isosent_("fit", "noted.npy", "--transform", "whitening", "-o", "fitted").code == 0
    refused = isosent_("encode", "texts.txt", "-m", "fitted", "-o", "x.npy")
    refuses(refused)
    named = re.search(r"-m '(.*?)'", refused.err)[1].replace("FOLDER", "fitted")
    assert isosent_("encode", "texts.txt", "-m", named, "-o", "x.npy").code == 0


def test_a_table_of_unnamed_vectors_is_made_again_in_another_table(isosent_, refuses):
    pytest.importorskip("qdrant_client")
    assert isosent_("index", "bare.npy", "-o", "index").code == 0
    assert isosent_("index", "push", "index", "--to", "qdrant:store").code == 0
    refused = isosent_("search", "qdrant:store", "river stone", "-m", "wordllama")
    refuses(refused, "which model", "another table")
    assert "same model" not in refused.err
    [command] = advised(refused.err, VECTORS="bare.npy")
    assert isosent_(*command).code == 0
    refused = isosent_("index", "push", "made", "--to", "qdrant:store")
    refuses(refused, "another table")
    other = "qdrant:store" + re.search(r"\?table=NAME", refused.err)[0].replace("NAME", "other")
    assert isosent_("index", "push", "made", "--to", other).code == 0
    assert isosent_("search", other, "river stone", "-m", "wordllama", "-k", "1").out.startswith("1.0000")
