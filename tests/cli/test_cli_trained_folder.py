"""Commands that open a folder, on one that a training wrote."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import isosent
from isosent.training.base_models import open_base
from isosent.training.run import saving_trained

PROBES = ["A man is riding a horse.", "no"]


@pytest.fixture(scope="module")
def folder(texts, tmp_path_factory, quick_trainers):
    """A trained model with a map behind it."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    base = open_base("scratch:?layers=1&dim=8&heads=2&vocab=300&max_length=64", texts)
    with saving_trained(base[0], folder, transform=isosent.Whitening(4), fit_texts=texts[:100]):
        return folder


@pytest.fixture
def text_file(texts, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts[:60]) + "\n", "utf-8")
    return path


def test_encode(isosent_, folder, text_file, texts, tmp_path):
    assert isosent_("encode", text_file, "-m", folder, "-o", tmp_path / "vectors.npy").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), isosent.load(folder).encode(texts[:60]), atol=1e-5)


def test_fit(isosent_, folder, text_file, tmp_path):
    finished = isosent_("fit", text_file, "-m", folder, "-o", tmp_path / "fitted", "--dims", "3")
    assert finished.code == 0, finished.err
    assert isosent.load(tmp_path / "fitted").dim == 3


def test_export(isosent_, folder, tmp_path):
    finished = isosent_("export", folder, "--to", "sentence-transformers", "-o", tmp_path / "out")
    assert finished.code == 0, finished.err
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(PROBES)
    np.testing.assert_allclose(theirs, isosent.load(folder).encode(PROBES), atol=1e-5)


def test_an_export_does_not_take_its_place(isosent_, folder, refuses):
    refuses(isosent_("export", folder, "--to", "sentence-transformers", "-o", folder), "is neither empty")
