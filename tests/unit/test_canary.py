"""Vectors of fixed texts that show whether the model behind a folder has changed."""

import json
import shutil
import warnings

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tampering import refuses, replace_part

import isosent
from isosent.errors import InputError, IsosentWarning
from isosent.numeric.canary import FIXED_TEXTS, LEAST_COSINE, N_SHORT, Canary, lowest_cosine
from isosent.numeric.similarity import unit_rows

pytest.importorskip("faiss")

from isosent.search import Index

DIM = 16


class Api:
    """A model of another library, which can change."""

    def __init__(self, angle=0.0):
        self.angle, self.n_calls = angle, 0

    def __call__(self, texts):
        self.n_calls += 1
        rows = np.array([self.vector(text) for text in texts])
        return np.cos(self.angle) * rows + np.sin(self.angle) * np.roll(rows, 1, axis=1)

    @staticmethod
    def vector(text):
        return np.random.default_rng(list(text.encode())).standard_normal(DIM).astype(np.float32)


def wrapped(api):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsosentWarning)  # it cannot be saved
        return isosent.wrap(api)


@pytest.fixture
def bert(tiny_model):
    pytest.importorskip("transformers")
    return tiny_model("bert")


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def folder(api, texts, tmp_path):
    Index.create(texts[:80], wrapped(api), folder=tmp_path / "index")
    return tmp_path / "index"


def canary_of(vectors):
    return Canary.of(vectors, vectors)


def test_a_folder_keeps_the_vectors_of_the_fixed_texts_by_both_roles(bert, tmp_path):
    model = isosent.load(f"hf:{bert}?query_prompt=query: ")
    model.save(tmp_path / "model")
    canary = isosent.load(tmp_path / "model").canary
    short = FIXED_TEXTS[:N_SHORT]
    assert np.allclose(canary.documents[:N_SHORT], unit_rows(model.encoder.encode(short)), atol=1e-3)
    assert np.allclose(canary.queries[:N_SHORT], unit_rows(model.encoder.for_queries().encode(short)), atol=1e-3)
    assert lowest_cosine(canary.documents, canary.queries) < LEAST_COSINE


def test_half_precision_is_no_change_and_another_width_or_a_lost_text_is():
    rows = np.random.default_rng(0).standard_normal((len(FIXED_TEXTS), DIM)).astype(np.float32)
    stored = canary_of(rows)
    assert stored.lowest_cosine(canary_of(1e-3 * rows.astype(np.float16))) > 0.9999
    assert stored.lowest_cosine(canary_of(rows[:, :8])) == 0
    zero = rows.copy()
    zero[2] = 0
    assert stored.lowest_cosine(canary_of(zero)) == 0
    assert canary_of(zero).lowest_cosine(canary_of(zero)) == pytest.approx(1)


def test_another_calibration_or_quantization_keeps_the_canary(wordllama, tmp_path):
    wordllama.save(tmp_path / "model")
    model = isosent.load(tmp_path / "model")
    assert model.canary is not None
    assert model.with_calibration(None).canary is model.canary
    assert model.with_quantization(None).canary is model.canary


def test_a_model_of_vectors_and_one_that_knows_none_of_the_texts_have_no_canary(tmp_path):
    rows = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    texts = [f"text {row}" for row in range(50)]
    isosent.wrap(dict(zip(texts, rows, strict=True))).fitted(texts, "whitening").save(tmp_path / "stored")
    (tmp_path / "words.txt").write_text("".join(f"w{row} {row} 1 2\n" for row in range(9)))
    isosent.load(f"words:{tmp_path / 'words.txt'}").save(tmp_path / "words")
    for name in ("stored", "words"):
        assert isosent.load(tmp_path / name).canary is None
        assert "canary" not in json.loads((tmp_path / name / "model.json").read_text())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: {"documents": rows[:, :9]}, "256"),
        (lambda rows: {"documents": rows[:3]}, "shape"),
        (lambda rows: {"documents": rows[0]}, "shape"),
        (lambda rows: {"documents": rows, "others": rows}, "others"),
        (lambda rows: {"documents": np.where(rows == rows[0, 0], np.nan, rows)}, "holds NaN"),
        (lambda rows: {"queries": rows}, "documents"),
    ],
)
def test_a_damaged_canary_is_refused(wordllama, tmp_path, change, words):
    wordllama.save(tmp_path / "model")
    [path] = (tmp_path / "model").glob("canary-*")
    replace_part(tmp_path / "model", "canary", change(load_file(path)["documents"]))
    refuses(tmp_path / "model", words)


def test_the_first_query_warns_once_of_a_model_that_has_changed(api, folder, texts):
    model = wrapped(api)
    unchanged = Index.open(folder, model)
    assert unchanged.search(texts[3], 1).ids == [[3]]
    assert not unchanged.verify().has_changed
    api.angle = 1.0
    index = Index.open(folder, model)
    with pytest.warns(IsosentWarning, match="has changed.*cosine.*Index.verify"):
        index.search("a query")
    index.search("a query")  # a second warning would be an error
    check = index.verify()
    assert check.has_changed
    assert check.lowest_cosine < 0.9
    assert check.kept_neighbors < 1


def test_an_index_checks_its_model_once_and_not_when_it_was_just_made(api, folder, texts):
    model = wrapped(api)
    index = Index.open(folder, model)
    n_before = api.n_calls
    index.search("a query")
    index.search("a query")
    assert api.n_calls == n_before + 3
    made = Index.create(texts[:20], model)
    n_before = api.n_calls
    made.search("a query")
    assert api.n_calls == n_before + 1


def test_the_same_vectors_by_another_name_are_accepted_and_others_are_refused(folder):
    almost = wrapped(Api(angle=0.01))
    index = Index.open(folder, almost)
    assert index.space.fingerprint != almost.fingerprint
    index.add(["one more text"])
    assert index.search("one more text", 1).ids == [[80]]
    mapped = almost.fitted_on_vectors(np.random.default_rng(0).standard_normal((40, DIM)), "whitening")
    with pytest.raises(InputError, match="space"):
        Index.open(folder, wrapped(Api(angle=0.5)))
    with pytest.raises(InputError, match="space"):  # the same encoder, but with a map
        Index.open(folder, mapped)


def test_a_model_that_was_rounded_takes_the_place_of_its_encoder(bert, tiny_model, tmp_path, texts):
    isosent.load(f"hf:{bert}").fitted(texts[:50], isosent.Whitening(4)).save(tmp_path / "model")
    shutil.copytree(bert, tmp_path / "rounded")
    path = tmp_path / "rounded" / "model.safetensors"
    save_file({name: array.astype(np.float16) for name, array in load_file(path).items()}, path, {"format": "pt"})
    expected = isosent.load(tmp_path / "model")
    found = isosent.load(f"{tmp_path / 'model'}?encoder=hf:{tmp_path / 'rounded'}")
    assert found.fingerprint == expected.fingerprint
    assert found.encoder.encode(texts[:2]).tobytes() != expected.encoder.encode(texts[:2]).tobytes()
    with pytest.raises(InputError, match="fingerprint"):
        isosent.load(f"{tmp_path / 'model'}?encoder=hf:{tiny_model('bert', seed=1)}")


def test_an_index_of_an_earlier_version_is_verified_by_its_texts(api, folder):
    for path in folder.glob("model/canary-*"):
        path.unlink()
    document = json.loads((folder / "model" / "model.json").read_text())
    del document["canary"], document["checksum"]
    (folder / "model" / "model.json").write_text(json.dumps(document))
    model = wrapped(api)
    check = Index.open(folder, model).verify()
    assert (check.lowest_cosine, check.kept_neighbors, check.n_rows) == (None, 1, 8)
    api.angle = 1.5
    assert Index.open(folder, model).verify().has_changed


def test_vectors_without_a_model_of_texts_cannot_be_verified():
    rows = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    with pytest.raises(InputError, match="is not here"):
        Index.create(vectors=rows).verify()
