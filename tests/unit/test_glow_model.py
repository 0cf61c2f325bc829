"""A flow behind an encoder: fitted, saved, opened, refused."""

import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file
from tampering import replace_part

import isosent
from isosent import L2Normalize, MeanCentering, Moments, Whitening, chain
from isosent.errors import InputError, ModelFolderError
from isosent.exports import TARGETS, export
from isosent.io.vectors import open_vectors
from isosent.jobs.vectors import transform_file
from isosent.loading import read_record
from isosent.transforms.flow import GlowFlow

pytest.importorskip("torch")

FLOW = GlowFlow(depth=1, width=4)


@pytest.fixture(scope="module")
def flowed(wordllama, texts):
    return wordllama.fitted(texts, transform=FLOW, source="demo")


@pytest.fixture(scope="module")
def vectors(wordllama, texts):
    return wordllama.encode(texts)


@pytest.fixture
def saved(flowed, tmp_path):
    flowed.save(tmp_path / "model")
    return tmp_path / "model"


def flow_file(folder):
    (path,) = folder.glob("flow-*.safetensors")
    return path


def test_a_model_ends_with_the_flow(flowed, vectors, texts):
    alone = GlowFlow(depth=1, width=4).fit(vectors)
    np.testing.assert_array_equal(flowed.encode(texts), alone.transform(vectors))
    assert (flowed.dim, flowed.linear_map, FLOW.__dict__.get("glow_")) == (256, None, None)


def test_the_record_tells_the_settings_and_the_likelihood(flowed):
    (record,) = flowed.fits
    assert (record.transform, record.n_texts, record.source) == ("glow_flow", 480, "demo")
    assert record.parameters == FLOW.get_params()
    assert record.history[0]["n_rows"] == 0
    assert record.history[-1]["n_rows"] == record.history[-1]["n_total"] == 456


def test_texts_without_a_vector_stay_zero_and_are_not_fitted_on(wordllama, texts):
    model = wordllama.fitted([*texts, "", ""], transform=FLOW)
    assert (model.fits[0].n_texts, model.fits[0].n_zero_rows) == (480, 2)
    assert not model.encode([""]).any()
    assert not model.encode_query([""]).any()


def test_a_flow_stands_behind_a_map(wordllama, vectors, texts):
    whitened = wordllama.fitted(texts, transform=Whitening(32))
    model = whitened.fitted(texts, transform=FLOW)
    expected = GlowFlow(depth=1, width=4).fit(whitened.transform(vectors)).transform(whitened.transform(vectors))
    np.testing.assert_array_equal(model.encode(texts), expected)
    assert model.dim == 32


def test_queries_go_through_their_own_map_and_the_same_flow(wordllama, texts):
    mapped = wordllama.fitted(texts[:240], transform=MeanCentering(), queries=texts[240:])
    model = mapped.fitted(texts, transform=FLOW)
    expected = model.flow.forward(mapped.encode_query(texts[:5]))
    np.testing.assert_allclose(model.encode_query(texts[:5]), expected, atol=1e-5)
    assert np.abs(model.encode_query(texts[:5]) - model.encode_document(texts[:5])).max() > 1e-3


def test_vectors_can_be_fitted_on_alone(wordllama, flowed, vectors):
    seen = []
    model = wordllama.fitted_on_vectors(vectors, transform=FLOW, report=seen.append)
    assert model.fingerprint == flowed.fingerprint
    assert seen[-1].n_rows == 456
    whitened = wordllama.fitted_on_vectors(vectors, transform=Whitening(8))
    np.testing.assert_array_equal(
        whitened.linear_map.weight,
        wordllama.fitted_on_moments(Moments.from_rows(vectors), transform=Whitening(8)).linear_map.weight,
    )
    with pytest.raises(InputError, match="expected vectors of 256 dimensions, found 5"):
        wordllama.fitted_on_vectors(np.ones((99, 5)), transform=FLOW)


@pytest.mark.parametrize("transform", [Whitening(4), "auto", FLOW, chain(MeanCentering(), L2Normalize())])
def test_nothing_is_fitted_behind_a_flow(flowed, texts, transform):
    with pytest.raises(InputError, match="after a flow"):
        flowed.fitted(texts, transform=transform)


def test_nothing_is_fitted_on_moments_behind_a_flow_or_with_one(flowed, wordllama, vectors):
    moments = Moments.from_rows(vectors)
    with pytest.raises(InputError, match="after a flow"):
        flowed.fitted_on_moments(moments, transform=Whitening(4))
    with pytest.raises(InputError, match="a flow is fitted on vectors, not on moments"):
        wordllama.fitted_on_moments(moments, transform=FLOW)


def test_a_flow_takes_no_queries(wordllama, texts):
    with pytest.raises(InputError, match="a flow cannot shift queries"):
        wordllama.fitted(texts, transform=FLOW, queries=texts[:9])


def test_a_flow_is_no_step_of_a_chain(wordllama, texts):
    with pytest.raises(InputError, match="step 2 is a flow, which is not linear and cannot be part of a chain"):
        wordllama.fitted(texts, transform=chain(MeanCentering(), GlowFlow()))


@pytest.mark.parametrize("target", TARGETS)
def test_no_other_format_takes_a_flow(flowed, tmp_path, target):
    with pytest.raises(InputError, match="flow"):
        export(flowed, target, tmp_path / "out")


def test_a_saved_model_gives_bit_identical_vectors(wordllama, flowed, saved, texts):
    loaded = isosent.load(saved)
    np.testing.assert_array_equal(loaded.encode(texts), flowed.encode(texts))
    assert loaded.fingerprint == flowed.fingerprint != wordllama.fingerprint
    (canary,) = saved.glob("canary-*")
    assert sorted(path.name for path in saved.iterdir()) == [canary.name, flow_file(saved).name, "model.json"]


def test_a_flow_and_the_map_before_it_are_saved_together(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, transform=Whitening(16)).fitted(texts, transform=FLOW)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(isosent.load(tmp_path / "model").encode(texts), model.encode(texts))
    assert len(list((tmp_path / "model").iterdir())) == 4  # with model.json and canary


def test_a_model_without_the_flow_takes_the_place_of_one_with_it(wordllama, saved):
    wordllama.save(saved)
    assert list(saved.glob("flow-*")) == []
    assert len(list(saved.iterdir())) == 2  # model.json and canary


def test_a_damaged_flow_is_refused(saved):
    path = flow_file(saved)
    arrays = load_file(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelFolderError, match=rf"{path.name}: damaged"):
        read_record(saved)
    replace_part(saved, "flow", {name: array for name, array in arrays.items() if name != "0.0.shift"})
    with pytest.raises(ModelFolderError, match=r"does not hold the arrays of a flow: .*'0\.0\.shift'"):
        read_record(saved)
    replace_part(saved, "flow", {**arrays, "0.0.shift": arrays["0.0.shift"] + 1})
    with pytest.raises(ModelFolderError, match="a file was altered"):
        read_record(saved)
    flow_file(saved).unlink()
    with pytest.raises(ModelFolderError, match=r"flow-\w+.safetensors is missing"):
        read_record(saved)


def test_a_flow_of_another_width_is_refused(saved, wordllama, texts, tmp_path):
    wordllama.fitted(texts, transform=Whitening(16)).save(tmp_path / "narrow")
    (narrow,) = (tmp_path / "narrow").glob("linear_map-*")
    replace_part(saved, "linear_map", load_file(narrow))
    with pytest.raises(ModelFolderError, match="map and flow do not fit together"):
        read_record(saved)


def test_files_of_vectors_go_through_the_flow(flowed, saved, vectors, tmp_path):
    np.save(tmp_path / "vectors.npy", vectors)
    transform_file(open_vectors(tmp_path / "vectors.npy"), read_record(saved), tmp_path / "out.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), flowed.transform(vectors), atol=1e-5)


def test_a_saved_flow_opens_and_encodes_without_torch(flowed, saved):
    code = (
        "import sys, importlib.abc\nclass NoTorch(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, NoTorch())\nimport isosent\n"
        f"print(isosent.load({str(saved)!r}).encode(['a text']).sum())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(found) == pytest.approx(flowed.encode(["a text"]).sum(), abs=1e-3)
