"""Every key of a sentence-transformers folder is applied as that library applies it, or refused by its name."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tiny_models import DIM, TEXTS, write_json
from untrusted import change_json

import isosent
from isosent.encoders.st_modules import MODULE_KEYS, TRANSFORMER_KEYS
from isosent.errors import FileFormatError, ModelFolderError, TruncationWarning
from isosent.exports import export

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS, TRANSFORMER, MODULES = "config_sentence_transformers.json", "sentence_bert_config.json", "modules.json"
LONG = " ".join(TEXTS)


@pytest.fixture(scope="module")
def saved(tiny_model, tmp_path_factory):
    """A folder that sentence-transformers wrote: Transformer, Pooling, Dense, LayerNorm, Normalize."""
    torch.manual_seed(0)
    parts = [modules.Transformer(str(tiny_model("bert", n_layers=1))), modules.Pooling(DIM), modules.Dense(DIM, 12)]
    model = SentenceTransformer(modules=[*parts, modules.LayerNorm(12), modules.Normalize()], device="cpu")
    folder = tmp_path_factory.mktemp("saved") / "folder"
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "folder")


def theirs(folder, texts=(*TEXTS, LONG), method="encode"):
    return getattr(SentenceTransformer(str(folder), device="cpu"), method)(list(texts))


def check(folder, texts=(*TEXTS, LONG)):
    model = isosent.load(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        np.testing.assert_allclose(model.encode(list(texts)), theirs(folder, texts), atol=1e-5)
    return model


# -- applied -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_dims", [5, 12, 64])
def test_truncate_dim_cuts_the_vectors_after_the_last_module(folder, tmp_path, n_dims):
    change_json(folder / SETTINGS, truncate_dim=n_dims)
    model = check(folder)
    assert model.dim == min(n_dims, 12)
    assert model.encoder.options["normalize"] == "false"
    scaled = isosent.load(folder, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(scaled.encode(TEXTS), axis=1), 1, atol=1e-6)
    for each in (model, scaled) if n_dims == 5 else ():
        output = tmp_path / each.encoder.options["normalize"]
        export(each, "sentence-transformers", output)
        np.testing.assert_allclose(theirs(output, TEXTS), each.encode(TEXTS), atol=1e-5)
        np.testing.assert_allclose(isosent.load(output).encode(TEXTS), each.encode(TEXTS), atol=1e-5)


def test_a_model_saved_before_its_folder_was_truncated_does_not_open(folder, tmp_path):
    isosent.load(folder).save(tmp_path / "saved")
    change_json(folder / SETTINGS, truncate_dim=5)
    with pytest.raises(ModelFolderError, match="fingerprint"):
        isosent.load(tmp_path / "saved")


@pytest.mark.parametrize("name", ["tokenizer_args", "processor_kwargs"])
def test_the_maximum_length_of_the_tokenizer_wins(folder, name):
    change_json(folder / TRANSFORMER, **{name: {"model_max_length": 6}, "max_seq_length": 12})
    assert check(folder).encoder.max_length == 6


@pytest.mark.parametrize("length", [3, 12, 40, None])
def test_a_maximum_length(folder, length):
    change_json(folder / TRANSFORMER, max_seq_length=length)
    check(folder)


def test_a_tokenizer_that_cuts_the_beginning_does_so_with_texts_of_any_length(folder):
    change_json(folder / "tokenizer_config.json", truncation_side="left")
    change_json(folder / TRANSFORMER, max_seq_length=12)
    check(folder, [*TEXTS, LONG, "the " * 300_000 + "red river"])


def test_a_default_prompt_and_those_of_roles(folder):
    prompts = {"query": "find : ", "document": "the ", "other": "red "}
    change_json(folder / SETTINGS, prompts=prompts, default_prompt_name="other")
    model = check(folder)
    np.testing.assert_allclose(model.encode_query(TEXTS), theirs(folder, TEXTS, "encode_query"), atol=1e-5)
    np.testing.assert_allclose(model.encode_document(TEXTS), theirs(folder, TEXTS, "encode_document"), atol=1e-5)


@pytest.mark.parametrize("name", ["query", "document"])
def test_a_default_prompt_of_a_role_without_one(folder, name):
    change_json(folder / SETTINGS, prompts={}, default_prompt_name=name)
    check(folder)


@pytest.mark.parametrize("flag", ["cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "lasttoken"])
def test_a_pooling_by_its_old_flags(folder, flag):
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": DIM, f"pooling_mode_{flag}": True})
    check(folder)


def test_no_flag_is_the_mean_and_names_win_over_flags(folder):
    path = folder / "1_Pooling" / "config.json"
    write_json(path, {"word_embedding_dimension": DIM, "pooling_mode_mean_tokens": False})
    assert check(folder).encoder.options["pooling"] == "mean"
    write_json(path, {"embedding_dimension": DIM, "pooling_mode": "cls", "pooling_mode_max_tokens": True})
    assert check(folder).encoder.options["pooling"] == "cls"


# -- of no effect ------------------------------------------------------------------------------------------------------

HARMLESS = [
    (SETTINGS, {"truncate_dim": None, "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "dot"}),
    (SETTINGS, {"requirements": {}, "model_type": "SentenceTransformer", "later": None}),
    (TRANSFORMER, {"transformer_task": "feature-extraction", "unpad_inputs": False, "query_length": None}),
    (TRANSFORMER, {"model_args": {}, "tokenizer_args": {}, "config_args": {}, "processing_kwargs": {}}),
    (TRANSFORMER, {"model_kwargs": {"attn_implementation": "eager", "dtype": "float32", "trust_remote_code": True}}),
    (TRANSFORMER, {"model_args": {"torch_dtype": "auto", "low_cpu_mem_usage": True, "revision": "main"}}),
    (TRANSFORMER, {"processor_kwargs": {"padding_side": "right", "use_fast": True, "truncation_side": "right"}}),
    (TRANSFORMER, {"config_kwargs": {"use_cache": False, "trust_remote_code": True, "output_attentions": False}}),
    (TRANSFORMER, {"processing_kwargs": {"image": {"size": 3}, "chat_template": {"add_generation_prompt": True}}}),
    ("2_Dense/config.json", {"use_residual": False, "module_output_name": "sentence_embedding"}),
    ("4_Normalize/config.json", {"module_input_name": "sentence_embedding"}),
]


@pytest.mark.parametrize(("name", "keys"), HARMLESS)
def test_what_changes_no_vector_is_read(folder, name, keys):
    expected = isosent.load(folder).encode(TEXTS)
    change_json(folder / name, **keys)
    check(folder)
    np.testing.assert_array_equal(isosent.load(folder).encode(TEXTS), expected)


VERSION = {"__version__": {"sentence_transformers": "2.0.0", "transformers": "4.7.0", "pytorch": "1.9.0+cu102"}}
FLAGS = {f"pooling_mode_{name}": False for name in ("mean_tokens", "max_tokens", "mean_sqrt_len_tokens")}
MORE_FLAGS = {
    **FLAGS,
    "pooling_mode_weightedmean_tokens": False,
    "pooling_mode_lasttoken": False,
    "include_prompt": True,
}
TANH = {"in_features": DIM, "out_features": 12, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
COSINE = {"default_prompt_name": None, "similarity_fn_name": "cosine"}
POPULAR = {
    "all-MiniLM-L6-v2, all-mpnet-base-v2, multi-qa, LaBSE, distiluse": (
        VERSION,
        {"max_seq_length": 32, "do_lower_case": False},
        {"pooling_mode_cls_token": True} | FLAGS,
        TANH,
    ),
    "e5, multilingual-e5, gte": (None, {"max_seq_length": 32, "do_lower_case": False}, MORE_FLAGS, TANH),
    "bge": (VERSION, {"max_seq_length": 32, "do_lower_case": True}, {"pooling_mode_cls_token": True} | FLAGS, TANH),
    "nomic": (VERSION | {"prompts": {"clustering": "the ", "query": "find : "}} | COSINE, {}, MORE_FLAGS, TANH),
    "mxbai, arctic": (VERSION | COSINE | {"prompts": {"query": "find : "}}, {"max_seq_length": 32}, MORE_FLAGS, TANH),
    "stella": (VERSION | COSINE | {"prompts": {"s2p_query": "find : ", "s2s_query": "the "}}, {}, MORE_FLAGS, TANH),
    "Qwen3-Embedding": (
        VERSION | COSINE | {"prompts": {"query": "find : ", "document": ""}},
        {},
        MORE_FLAGS | {"pooling_mode_lasttoken": True},
        TANH,
    ),
    "embeddinggemma": (
        {"model_type": "SentenceTransformer", "prompts": {"query": "find : ", "Retrieval-query": "the "}} | VERSION,
        {"max_seq_length": 32, "do_lower_case": False},
        MORE_FLAGS | {"pooling_mode_mean_tokens": True},
        TANH | {"activation_function": "torch.nn.modules.linear.Identity"},
    ),
}


@pytest.mark.parametrize("name", POPULAR)
def test_folders_written_like_those_of_popular_models_are_read(folder, name):
    settings, transformer, pooling, dense = POPULAR[name]
    (folder / SETTINGS).unlink()
    if settings is not None:
        write_json(folder / SETTINGS, settings)
    write_json(folder / TRANSFORMER, transformer)
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": DIM} | pooling)
    write_json(folder / "2_Dense" / "config.json", dense)
    (folder / "4_Normalize" / "config.json").unlink()  # older releases wrote none
    check(folder)


# -- refused -----------------------------------------------------------------------------------------------------------

CHANGING = [
    (TRANSFORMER, {"config_args": {"num_hidden_layers": 2}}, "config_args: num_hidden_layers is 2"),
    (TRANSFORMER, {"config_kwargs": {"num_hidden_layers": 2}}, "config_kwargs: num_hidden_layers"),
    (TRANSFORMER, {"config_args": {"hidden_act": "relu"}}, "hidden_act is 'relu'"),
    (TRANSFORMER, {"tokenizer_args": {"truncation_side": "left"}}, "tokenizer_args: truncation_side is 'left'"),
    (TRANSFORMER, {"processor_kwargs": {"truncation_side": "left"}}, "processor_kwargs: truncation_side"),
    (TRANSFORMER, {"processor_kwargs": {"do_lower_case": True}}, "do_lower_case is True"),
    (TRANSFORMER, {"tokenizer_args": {"model_max_length": -3}}, "model_max_length"),
    (TRANSFORMER, {"model_args": {"load_in_8bit": True}}, "load_in_8bit is True"),
    (TRANSFORMER, {"model_kwargs": {"quantization_config": {"bits": 4}}}, "quantization_config"),
    (TRANSFORMER, {"model_kwargs": {"dtype": "int8"}}, "dtype is 'int8'"),
    (TRANSFORMER, {"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask'"),
    (TRANSFORMER, {"module_output_name": "sentence_embedding"}, "module_output_name"),
    (TRANSFORMER, {"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}}, "text"),
    (
        TRANSFORMER,
        {"modality_config": {"text": {"method": "forward", "method_output_name": ["hidden_states", 1]}}},
        "method_output_name",
    ),
    (TRANSFORMER, {"modality_config": {"text": {"method": "get_text_features"}}}, "method is 'get_text_features'"),
    (TRANSFORMER, {"modality_config": {"image": {"method": "forward"}}}, "takes no texts"),
    (
        TRANSFORMER,
        {
            "modality_config": {
                "text": {"method": "forward", "method_output_name": "last_hidden_state"},
                "message": {"method": "forward", "method_output_name": "last_hidden_state"},
            }
        },
        "modality_config: message",
    ),
    (TRANSFORMER, {"processing_kwargs": {"text": {"max_length": 4}}}, "processing_kwargs: text"),
    (TRANSFORMER, {"processing_kwargs": {"common": {"add_special_tokens": False}}}, "processing_kwargs: common"),
    (TRANSFORMER, {"query_length": 4}, "query_length is 4"),
    (TRANSFORMER, {"document_length": 4}, "document_length is 4"),
    (TRANSFORMER, {"query_expansion": {"strategy": "fixed", "length": 8}}, "query_expansion"),
    (TRANSFORMER, {"tokenizer_name_or_path": "bert-base-uncased"}, "tokenizer_name_or_path"),
    (TRANSFORMER, {"later": 1}, "later is 1"),
    (SETTINGS, {"model_type": "CrossEncoder"}, "model_type is 'CrossEncoder'"),
    (SETTINGS, {"model_type": "SparseEncoder"}, "model_type"),
    (SETTINGS, {"truncate_dim": 0}, "truncate_dim"),
    (SETTINGS, {"truncate_dim": -4}, "truncate_dim"),
    (SETTINGS, {"default_prompt_name": "absent"}, "default_prompt_name is 'absent'"),
    (SETTINGS, {"output_scale": 2.0}, "output_scale is 2.0"),
    ("1_Pooling/config.json", {"pooling_mode_later": True}, "pooling_mode_later is True"),
    ("1_Pooling/config.json", {"pooling_mode": []}, "pooling_mode"),
    ("1_Pooling/config.json", {"pooling_mode": ["mean", "mean"]}, "pooling_mode.*twice"),
    ("2_Dense/config.json", {"use_residual": True}, "use_residual is True"),
    ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "module_input_name"),
    ("2_Dense/config.json", {"module_output_name": "scores"}, "module_output_name is 'scores'"),
    ("2_Dense/config.json", {"later": [1]}, "later"),
    ("2_Dense/config.json", {"bias": False}, "linear.bias, linear.weight; expected linear.weight alone"),
    ("2_Dense/config.json", {"activation_function": "torch.nn.modules.activation.PReLU"}, "PReLU"),
    ("2_Dense/config.json", {"activation_function": "torch.nn.modules.activation.Threshold"}, "Threshold"),
    ("2_Dense/config.json", {"activation_function": None}, "activation_function None"),
    ("3_LayerNorm/config.json", {"eps": 1e-3}, "eps is 0.001"),
    ("4_Normalize/config.json", {"module_input_name": "token_embeddings"}, "module_input_name"),
    ("4_Normalize/config.json", {"module_output_name": "scores"}, "module_output_name"),
    ("4_Normalize/config.json", {"p": 1}, "p is 1"),
]


@pytest.mark.parametrize(("name", "keys", "words"), CHANGING)
def test_what_could_change_vectors_is_refused_by_its_name(folder, name, keys, words):
    change_json(folder / name, **keys)
    with pytest.raises(FileFormatError, match=rf"{name}.*{words}|{Path(name).parent}.*{words}"):
        isosent.load(folder)


def test_an_unknown_key_of_a_module_is_refused(folder):
    listed = json.loads((folder / MODULES).read_text())
    write_json(folder / MODULES, [listed[0] | {"options": {"scale": 2}}, *listed[1:]])
    with pytest.raises(FileFormatError, match=r"modules\.json: options is"):
        isosent.load(folder)


def test_arguments_for_code_of_the_folder_are_refused(folder):
    listed = json.loads((folder / MODULES).read_text())
    write_json(folder / MODULES, [listed[0] | {"kwargs": ["task"]}, *listed[1:]])
    check(folder)  # the code of transformers takes no task
    change_json(folder / "config.json", auto_map={"AutoModel": "code.Model"})
    with pytest.raises(FileFormatError, match="its code takes task"):
        isosent.load(folder, trust_remote_code=True)


@pytest.mark.parametrize(
    "order",
    [
        (0, 2, 1, 3, 4),  # Dense before the pooling
        (0, 1, 2, 1, 3),  # a second pooling, of the tokens again
        (1, 0, 2, 3, 4),
        (0, 1, 0, 2),
    ],
)
def test_modules_in_places_where_they_would_mean_something_else(folder, order):
    listed = json.loads((folder / MODULES).read_text())
    write_json(folder / MODULES, [listed[place] for place in order])
    with pytest.raises(FileFormatError, match=r"modules\.json: the module '\w+' is not read at its place"):
        isosent.load(folder)


def test_a_router_is_refused(folder):
    listed = json.loads((folder / MODULES).read_text())
    listed[2]["type"] = "sentence_transformers.base.modules.router.Router"
    write_json(folder / MODULES, listed)
    with pytest.raises(FileFormatError, match="the module 'Router'"):
        isosent.load(folder)


def test_weights_of_something_else_are_refused(folder):
    path = folder / "2_Dense" / "model.safetensors"
    save_file(load_file(path) | {"residual.weight": torch.zeros(12, DIM)}, path)
    with pytest.raises(FileFormatError, match=r"residual\.weight; expected linear\.weight and linear\.bias alone"):
        isosent.load(folder)


def test_layers_that_are_not_given_are_not_averaged(tiny_model, tmp_path):
    # without the hidden states of all layers, sentence-transformers skips the module
    mean = modules.WeightedLayerPooling(DIM, num_hidden_layers=3, layer_start=1)
    config = {"output_hidden_states": True}
    parts = [modules.Transformer(str(tiny_model("bert")), config_kwargs=config), mean, modules.Pooling(DIM)]
    SentenceTransformer(modules=parts, device="cpu").save_pretrained(str(tmp_path), create_model_card=False)
    assert check(tmp_path).encoder.options["layers"] == "1,2,3"
    change_json(tmp_path / "config.json", output_hidden_states=False)
    with pytest.raises(FileFormatError, match=r"config\.json: output_hidden_states is not true"):
        isosent.load(tmp_path)
    change_json(tmp_path / TRANSFORMER, config_kwargs={"output_hidden_states": True})
    check(tmp_path)


def test_positions_of_a_prompt_that_is_not_pooled_are_not_counted_silently(folder):
    change_json(folder / SETTINGS, prompts={"query": "find : "})
    change_json(folder / "1_Pooling" / "config.json", pooling_mode="weightedmean", include_prompt=False)
    with pytest.raises(FileFormatError, match="weightedmean without the prompt"):
        isosent.load(folder)
    assert isosent.load(folder, pooling="mean").dim == 12
    change_json(folder / SETTINGS, prompts={})
    check(folder)


@pytest.mark.parametrize("name", ["tokenizer_args", "processor_kwargs"])
def test_two_sides_to_cut_are_refused(folder, name):
    change_json(folder / TRANSFORMER, max_seq_length=12, **{name: {"truncation_side": "right"}})
    check(folder)
    change_json(folder / "tokenizer_config.json", truncation_side="left")
    with pytest.raises(FileFormatError, match=r"truncation_side is 'right'.*'left'"):
        isosent.load(folder)


def test_types_of_tokens_other_than_zero_are_refused(folder):
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    for place, piece in enumerate(content["post_processor"]["single"]):
        next(iter(piece.values()))["type_id"] = int(place == 2)
    write_json(path, content)
    check(folder)  # the network is told of none
    change_json(folder / "tokenizer_config.json", model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    with pytest.raises(FileFormatError, match=r"type 1 \(token_type_ids\)"):
        isosent.load(folder)


# -- static models -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(wordllama, texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "static"
    export(wordllama.fitted(texts, transform=isosent.Whitening(8)), "sentence-transformers", folder)
    (folder / "isosent.json").unlink()  # of the export, which notices changes
    return folder


@pytest.fixture
def static(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "static")


def test_an_export_of_a_static_model_is_truncated_too(static):
    check(static)
    change_json(static / SETTINGS, truncate_dim=3)
    assert check(static).dim == 3


@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        (SETTINGS, {"prompts": {"query": "find : "}}, "prompts: .*static"),
        (SETTINGS, {"model_type": "SparseEncoder"}, "model_type"),
        ("1_Dense/config.json", {"use_residual": True}, "use_residual"),
        ("0_StaticEmbedding/tokenizer.json", {}, None),
    ],
)
def test_what_could_change_vectors_of_a_static_model_is_refused(static, name, keys, words):
    if words is None:
        name, words = "tokenizer.json", "direction is 'Left'"
        cut = {"direction": "Left", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
        keys = {"truncation": cut}
    change_json(static / name, **keys)
    with pytest.raises(FileFormatError, match=rf"{name}.*{words}"):
        isosent.load(static)


def test_weights_of_tokens_that_only_one_library_applies_are_refused(static):
    path = next(static.rglob("model.safetensors"))
    tensors = load_file(path)
    save_file(tensors | {"weights": torch.ones(len(tensors["embedding.weight"]))}, path)
    with pytest.raises(FileFormatError, match=r"holds weights next to embedding\.weight"):
        isosent.load(f"static:{static}")


def test_the_settings_of_two_libraries_that_disagree_are_refused(static):
    write_json(static / "config.json", {"model_type": "model2vec", "normalize": True})
    with pytest.raises(FileFormatError, match=r"Dense after the StaticEmbedding.*Model2Vec"):
        isosent.load(static)


# -- the list ----------------------------------------------------------------------------------------------------------


def test_the_list_has_every_key_that_the_installed_release_writes():
    """A key of a new release that is not listed is refused: this test says so before a user does."""
    refused = {"query_length", "document_length", "query_expansion"}
    lists = {
        modules.Transformer: TRANSFORMER_KEYS,
        modules.Pooling: MODULE_KEYS["Pooling"],
        modules.WeightedLayerPooling: MODULE_KEYS["WeightedLayerPooling"],
        modules.Dense: MODULE_KEYS["Dense"],
        modules.LayerNorm: MODULE_KEYS["LayerNorm"],
        modules.Normalize: MODULE_KEYS["Normalize"],
        modules.Dropout: MODULE_KEYS["Dropout"],
    }
    for kind, keys in lists.items():
        assert set(kind.config_keys) - refused <= {*keys.applied, *keys.harmless, *keys.fixed}, kind
