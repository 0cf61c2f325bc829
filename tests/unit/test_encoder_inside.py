"""Encoders that lie inside of the folder of their model, and what sentence-transformers folders say of their layers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from untrusted import change_json

import isosent
from isosent.encoders.reference import absolute_reference, relative_reference
from isosent.errors import FileFormatError, ModelFolderError
from isosent.persistence import holds_its_encoder, model_files

PROBES = ["the man is riding a horse", "a dog"]


@pytest.fixture
def whole(tiny_model, tmp_path):
    """A model folder with its encoder."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("bert"), folder / "encoder")
    record = isosent.load(f"hf:{folder / 'encoder'}").record
    for name, content in model_files(folder, record).items():
        (folder / name).write_bytes(content)
    return folder


def rewrite(folder, **encoder):
    stored = json.loads((folder / "model.json").read_text("utf-8"))["encoder"]
    change_json(folder / "model.json", encoder=stored | encoder)


@pytest.mark.parametrize("path", ["encoder", "deep/er", "a, b? & 100%"])
def test_a_path_inside_goes_there_and_back(tmp_path, path):
    reference = absolute_reference(
        f"static:{path.replace('%', '%25').replace(',', '%2C').replace('?', '%3F')}", tmp_path
    )
    assert absolute_reference(relative_reference(reference, tmp_path), tmp_path) == reference


@pytest.mark.parametrize(
    "reference",
    ["hf:/elsewhere/encoder", "hf:owner/name", "wordllama", "words:/models/mine/glove.txt", "hf:/models/mine"],
)
def test_an_encoder_elsewhere_has_no_path_inside(reference):
    assert relative_reference(reference, Path("/models/mine")) is None


def test_a_folder_with_its_encoder_opens_wherever_it_is(whole, tmp_path):
    vectors = isosent.load(whole).encode(PROBES)
    whole.rename(tmp_path / "moved")
    np.testing.assert_array_equal(isosent.load(tmp_path / "moved").encode(PROBES), vectors)
    assert holds_its_encoder(tmp_path / "moved")


def test_a_model_fitted_behind_it_elsewhere_names_it_whole(whole, tmp_path):
    isosent.load(whole).save(tmp_path / "other")
    encoder = json.loads((tmp_path / "other" / "model.json").read_text())["encoder"]
    assert encoder["reference"] == f"hf:{whole / 'encoder'}"
    assert "inside" not in encoder
    assert not holds_its_encoder(tmp_path / "other")


@pytest.mark.parametrize("reference", ["hf:../other", "hf:/etc", "hf:", "wordllama", "hf:a/../../b"])
def test_a_path_that_leads_outside_is_refused(whole, reference):
    rewrite(whole, reference=reference)
    with pytest.raises(ModelFolderError, match="is no encoder inside a model folder, which is hf:NAME or static:NAME"):
        isosent.load(whole)


def test_an_encoder_that_is_gone_is_named(whole):
    shutil.rmtree(whole / "encoder")
    with pytest.raises(ModelFolderError, match=r"its encoder, hf:.*encoder, could not be loaded"):
        isosent.load(whole)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "isosent-model", "encoder": 3}'])
def test_other_files_hold_no_encoder(tmp_path, content):
    (tmp_path / "model.json").write_text(content)
    assert not holds_its_encoder(tmp_path)


@pytest.fixture
def layered(tiny_model, tmp_path):
    """Write a folder of sentence-transformers that averages layers."""

    def layered(start, pooling="mean"):
        transformer = modules.Transformer(str(tiny_model("bert")), config_kwargs={"output_hidden_states": True})
        mean = modules.WeightedLayerPooling(24, num_hidden_layers=3, layer_start=start)
        parts = [transformer, mean, modules.Pooling(24, pooling_mode=pooling)]
        model = SentenceTransformer(modules=parts, device="cpu")
        model.save_pretrained(str(tmp_path / "layered"), create_model_card=False)
        return tmp_path / "layered", model

    return layered


@pytest.mark.parametrize(("start", "layers"), [(0, "0,1,2,3"), (2, "2,3")])
def test_a_mean_of_layers_of_sentence_transformers_is_read(layered, start, layers):
    folder, model = layered(start)
    ours = isosent.load(f"hf:{folder}")
    assert ours.encoder.options["layers"] == layers
    np.testing.assert_allclose(ours.encode(PROBES), model.encode(PROBES), atol=1e-5)


def test_layers_that_are_asked_for_win(layered):
    folder, _ = layered(1)
    assert isosent.load(f"hf:{folder}?layers=-1").encoder.options["layers"] == "3"


def test_the_maximum_of_a_mean_of_layers_is_refused(layered):
    folder, _ = layered(1, "max")
    with pytest.raises(FileFormatError, match="pools the mean of layers by max"):
        isosent.load(f"hf:{folder}")


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0], [np.nan, 1.0], [1.0, np.nan], [[1.0, 1.0]]])
def test_weights_of_layers_that_make_no_mean_are_refused(layered, weights):
    folder, _ = layered(2)
    save_file({"layer_weights": np.array(weights, "float32")}, folder / "1_WeightedLayerPooling" / "model.safetensors")
    with pytest.raises(FileFormatError, match="expected weights of 0 or more of the layers from layer_start on"):
        isosent.load(f"hf:{folder}")
