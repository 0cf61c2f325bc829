"""Exports and wrappers, in the hands of the libraries they are made for."""

import json
import shutil
import sys
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import save_file
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.sentence_transformer import modules
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from tokenizers import Tokenizer
from tokenizers.models import WordLevel, WordPiece
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

import isosent
from isosent import evaluate
from isosent.compat.sentence_transformers import SentenceTransformerLike
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError, OutputError
from isosent.exports import export
from isosent.exports import sentence_transformers as st_export
from isosent.exports.tokenizer import transformer_tokenizer
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.transforms.chain import L2Normalize, chain

TEXTS = [
    "A man is riding a horse.",
    "Is it raining?",
    "no",
    "A woman is cutting an onion into thin slices while her son watches from the other side of the table.",
    "Ein Satz auf Deutsch, mit Umlauten: äöü.",
]


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    """A transformer of two small layers whose tokens are letters."""
    folder = tmp_path_factory.mktemp("transformer")
    letters = [chr(c) for c in range(ord("!"), ord("~"))]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    named = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(
        **sizes, vocab_size=len(tokens), max_position_embeddings=160, initializer_range=0.2
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def small(transformer, tmp_path_factory):
    """The same as a folder of sentence-transformers, with modules behind it."""

    def small(name, *postprocessing, **settings):
        folder = tmp_path_factory.mktemp(name)
        parts = [modules.Transformer(str(transformer), **settings), modules.Pooling(24), *postprocessing]
        model = SentenceTransformer(modules=parts, device="cpu")
        model.prompts = {"query": "ask: ", "document": ""}
        model.save(str(folder), create_model_card=False)
        return folder

    return small


@pytest.fixture(scope="module")
def plain(small):
    return small("plain")


@pytest.fixture(scope="module")
def prompted(transformer, tmp_path_factory):
    """Folders with prompts for queries and documents, whose tokens are pooled or not."""

    @cache
    def prompted(name):
        folder = tmp_path_factory.mktemp(name)
        pooling = modules.Pooling(24, include_prompt=name == "pooled")
        model = SentenceTransformer(modules=[modules.Transformer(str(transformer)), pooling], device="cpu")
        model.prompts = {"query": "ask: ", "document": "found: ", "other": "something else: "}
        model.save(str(folder), create_model_card=False)
        return folder

    return prompted


def fit(reference, texts, *postprocessing, **how):
    return isosent.load(reference).fitted(
        texts, transform=chain(isosent.Whitening(8, strength=0.5), *postprocessing), **how
    )


def loaded(folder):
    return SentenceTransformer(str(folder), device="cpu")


def assert_same(model, folder, atol=1e-5):
    np.testing.assert_allclose(loaded(folder).encode(TEXTS), model.encode(TEXTS), atol=atol)


def kinds(folder):
    return [module["type"].rpartition(".")[2] for module in json.loads((folder / "modules.json").read_text())]


def test_a_folder_loads_without_isosent(plain, texts, tmp_path, monkeypatch):
    model = fit(f"hf:{plain}", texts)
    export(model, "sentence-transformers", tmp_path / "out")
    expected = model.encode(TEXTS)
    with monkeypatch.context() as without:
        for name in [name for name in sys.modules if name.partition(".")[0] == "isosent"]:
            without.setitem(sys.modules, name, None)
        with pytest.raises(ModuleNotFoundError):
            import_module("isosent")
        vectors = loaded(tmp_path / "out").encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert kinds(tmp_path / "out") == ["Transformer", "Pooling", "Dense"]


def test_modules_keep_their_order(small, texts, tmp_path):
    folder = small("order", modules.Dense(24, 12), modules.LayerNorm(12), modules.Normalize())
    model = fit(f"hf:{folder}", texts, L2Normalize())
    export(model, "sentence-transformers", tmp_path / "out")
    assert kinds(tmp_path / "out") == [
        "Transformer",
        "Pooling",
        "Dense",
        "LayerNorm",
        "Normalize",
        "Dense",
        "Normalize",
    ]
    assert_same(model, tmp_path / "out")


@pytest.mark.parametrize(
    "options",
    [
        "layers=0",
        "layers=1",
        "layers=1,2",
        "layers=0.3*0,0.7*2",
        "layers=0,1&pooling=cls",
        "layers=0.2*1,0.8*2&pooling=weighted_mean,mean_sqrt_len",
        "pooling=max,last_token",
        "normalize=true",
    ],
)
def test_layers_and_poolings(plain, texts, tmp_path, options):
    model = fit(f"hf:{plain}?{options}", texts)
    export(model, "sentence-transformers", tmp_path / "out")
    assert_same(model, tmp_path / "out")


def test_layers_above_the_highest_in_use_are_left_out(plain, texts, tmp_path):
    export(fit(f"hf:{plain}?layers=1", texts), "sentence-transformers", tmp_path / "out")
    assert loaded(tmp_path / "out")[0].model.config.num_hidden_layers == 1


def test_the_mean_of_layers_cannot_stand_before_the_maximum(plain, texts, tmp_path):
    with pytest.raises(InputError, match="averages layers before pooling and isosent after it"):
        export(fit(f"hf:{plain}?layers=1,2&pooling=max", texts), "sentence-transformers", tmp_path / "out")


@pytest.mark.parametrize("name", ["p_mean", "sbert_wk"])
def test_a_pooling_that_the_library_does_not_know_is_refused(plain, tmp_path, name):
    model = isosent.load(f"hf:{plain}?layers=1,2&pooling=mean,{name}")
    with pytest.raises(
        InputError, match=f"sentence-transformers has no pooling {name}\\. It has mean, cls, .*Export to onnx"
    ):
        export(model, "sentence-transformers", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["sentence-transformers", "onnx"])
def test_windows_of_long_texts_are_refused(plain, tmp_path, target):
    with pytest.raises(InputError, match="Load its encoder with long=truncate and fit again"):
        export(isosent.load(f"hf:{plain}?long=windows"), target, tmp_path / "out")


@pytest.mark.parametrize("target", ["faiss", "numpy"])
def test_the_map_behind_windows_of_long_texts_is_exported(plain, texts, tmp_path, target):
    model = fit(f"hf:{plain}?long=windows&max_length=32", texts[:40])
    assert export(model, target, tmp_path / "out").agreement.holds


def test_how_a_model_is_run_is_no_part_of_its_export(plain, texts, tmp_path):
    model = fit(f"hf:{plain}?dtype=bfloat16&batch_tokens=100", texts)
    written = export(model, "sentence-transformers", tmp_path / "out")
    assert written.space.fingerprint == model.fingerprint
    assert loaded(tmp_path / "out")[0].model.dtype == torch.float32
    for path in (tmp_path / "out").rglob("*.json"):
        assert not any(word in path.read_text("utf-8") for word in ("bfloat16", "batch_tokens"))


def assert_same_in_every_role(model, folder):
    found = loaded(folder)
    for ours, theirs in (
        (model.encode, found.encode),
        (model.encode_query, found.encode_query),
        (model.encode_document, found.encode_document),
    ):
        np.testing.assert_allclose(theirs(TEXTS), ours(TEXTS), atol=1e-5)


@pytest.mark.parametrize("name", ["pooled", "unpooled"])
@pytest.mark.parametrize("prompts", ["", "&prompt=tell: &query_prompt=say: &document_prompt=doc, a/b: "])
def test_prompts_in_force_are_exported(prompted, texts, tmp_path, name, prompts):
    model = fit(f"hf:{prompted(name)}?max_length=130{prompts}", texts)
    written = export(model, "sentence-transformers", tmp_path / "out")
    assert_same_in_every_role(model, tmp_path / "out")
    assert written.agreement.n_vectors > 3 * 40
    config = json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text())
    expected = {"query": "ask: ", "document": "found: "}
    if prompts:
        expected = {"query": "say: ", "document": "doc, a/b: ", "default": "tell: "}
    assert config["prompts"] == expected
    assert config["default_prompt_name"] == ("default" if prompts else None)
    options = json.loads((tmp_path / "out" / "isosent.json").read_text())["model"]["options"]
    assert options["document_prompt"] == expected["document"]
    assert f"query `{expected['query']}`" in (tmp_path / "out" / "README.md").read_text()


def test_a_tokenizer_without_padding_is_refused(transformer, tmp_path):
    shutil.copytree(transformer, tmp_path / "source")
    path = tmp_path / "source" / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(config | {"pad_token": None}), "utf-8")
    with pytest.warns(isosent.IsosentWarning, match="has no padding token"):
        model = isosent.load(f"hf:{tmp_path / 'source'}")
    with pytest.raises(InputError, match="sentence-transformers needs a padding token"):
        export(model, "sentence-transformers", tmp_path / "out")


def test_weights_in_a_pickle_that_were_read_are_exported(transformer, texts, tmp_path):
    shutil.copytree(transformer, tmp_path / "source")
    weights = tmp_path / "source" / "model.safetensors"
    torch.save(load_file(weights), tmp_path / "source" / "pytorch_model.bin")
    weights.unlink()
    model = fit(f"hf:{tmp_path / 'source'}?pickled_weights=true", texts)
    export(model, "sentence-transformers", tmp_path / "out")
    assert_same(model, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.bin"))


def test_a_prompt_of_another_role_is_found(prompted, texts, tmp_path, monkeypatch):
    model = fit(f"hf:{prompted('pooled')}", texts)
    exchanged = {"query": "found: ", "document": "ask: "}
    monkeypatch.setattr(st_export, "named_prompts", lambda encoder: exchanged)
    with pytest.raises(OutputError, match="the sentence-transformers export does not give the vectors"):
        export(model, "sentence-transformers", tmp_path / "out")


def test_weights_by_position_behind_an_unpooled_prompt_are_refused(prompted, tmp_path):
    model = isosent.load(f"hf:{prompted('unpooled')}?pooling=weighted_mean")
    with pytest.raises(InputError, match="pooling weighted_mean cannot leave out the tokens of a prompt"):
        export(model, "sentence-transformers", tmp_path / "out")


def test_length_case_and_prompts_are_kept(small, texts, tmp_path):
    folder = small("settings", max_seq_length=64)
    config = json.loads((folder / "config_sentence_transformers.json").read_text())
    config["default_prompt_name"] = "query"
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64, "do_lower_case": True}))
    model = fit(f"hf:{folder}", [text[:20] for text in texts])
    export(model, "sentence-transformers", tmp_path / "out")
    found = loaded(tmp_path / "out")
    assert (found.max_seq_length, found.prompts["query"]) == (64, "ask: ")
    assert (found.default_prompt_name, found.prompts["default"]) == ("default", "ask: ")
    with pytest.warns(isosent.IsosentWarning, match="were cut"):
        assert_same(model, tmp_path / "out")


def test_queries_take_their_own_route(plain, texts, tmp_path):
    model = fit(f"hf:{plain}", texts, queries=texts[:50])
    export(model, "sentence-transformers", tmp_path / "out")
    assert_same_in_every_role(model, tmp_path / "out")
    found = loaded(tmp_path / "out").encode(TEXTS, task="query", prompt="ask: ")
    np.testing.assert_allclose(found, model.encode_query(TEXTS), atol=1e-5)


def test_old_names_for_text_embeddings_inference(plain, texts, tmp_path):
    model = fit(f"hf:{plain}", texts, L2Normalize())
    export(model, "sentence-transformers", tmp_path / "out", tei=True)
    types = [module["type"] for module in json.loads((tmp_path / "out" / "modules.json").read_text())]
    assert types == [
        f"sentence_transformers.models.{kind}" for kind in ("Transformer", "Pooling", "Dense", "Normalize")
    ]
    pooling = json.loads((tmp_path / "out" / "1_Pooling" / "config.json").read_text())
    assert [name for name, on in pooling.items() if on is True] == ["pooling_mode_mean_tokens", "include_prompt"]
    assert json.loads((tmp_path / "out" / "sentence_bert_config.json").read_text())["max_seq_length"] == 160
    assert_same(model, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("layers=1,2", "uses one layer, and the model has layers=1,2"),
        ("pooling=max", "the server has no pooling max. It has cls, mean, last_token"),
        ("prompt=say: ", "gets prompts with each request; the model adds 'say: ' to every text"),
        ("normalize=true", "scales to length 1 only at the end"),
    ],
)
def test_what_text_embeddings_inference_would_serve_otherwise_is_refused(plain, texts, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        export(fit(f"hf:{plain}?{options}", texts), "sentence-transformers", tmp_path / "out", tei=True)
    assert list(tmp_path.iterdir()) == []


def test_text_embeddings_inference_pools_prompts(prompted, texts, tmp_path):
    export(fit(f"hf:{prompted('pooled')}", texts), "sentence-transformers", tmp_path / "out", tei=True)
    config = json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text())
    assert config["prompts"] == {"query": "ask: ", "document": "found: "}
    with pytest.raises(InputError, match="the server pools the tokens of prompts; the model does not"):
        export(isosent.load(f"hf:{prompted('unpooled')}"), "sentence-transformers", tmp_path / "other", tei=True)


def test_a_static_encoder_becomes_a_static_embedding(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, transform=chain(isosent.Whitening(32), L2Normalize()))
    export(model, "sentence-transformers", tmp_path / "out")
    assert kinds(tmp_path / "out") == ["StaticEmbedding", "Dense", "Normalize"]
    assert_same(model, tmp_path / "out")


def test_a_special_token_written_out_is_dropped_where_the_model_drops_it(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, transform=isosent.Whitening(32))
    export(model, "sentence-transformers", tmp_path / "out")
    written = ["the company said <unk> shares rose", "<unk> rose", "rose<unk><unk> and <s>fell</s>"]
    np.testing.assert_allclose(loaded(tmp_path / "out").encode(written), model.encode(written), atol=1e-4)


def test_words_skip_unknown_ones_there_too(texts, tmp_path):
    words = sorted({word for text in texts for word in text.lower().split()})[:300]
    rows = np.random.default_rng(0).standard_normal((len(words), 12))
    lines = (f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, rows, strict=True))
    (tmp_path / "words.txt").write_text("".join(lines), "utf-8")
    model = fit(f"words:{tmp_path / 'words.txt'}", texts)
    export(model, "sentence-transformers", tmp_path / "out")
    known = [text for text in texts[:50] if model.encode([text]).any()]
    np.testing.assert_allclose(loaded(tmp_path / "out").encode(known), model.encode(known), atol=1e-5)


@pytest.mark.parametrize("normalize", [True, False])
def test_a_skipped_unknown_token_is_exact_or_refused(texts, tmp_path, normalize):
    words = ["[UNK]", *sorted({word for text in texts for word in text.split()})[:200]]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    (tmp_path / "static").mkdir()
    tokenizer.save(str(tmp_path / "static" / "tokenizer.json"))
    vectors = np.random.default_rng(0).standard_normal((len(words), 12)).astype(np.float32)
    save_file({"embeddings": vectors}, tmp_path / "static" / "model.safetensors")
    (tmp_path / "static" / "config.json").write_text(json.dumps({"normalize": normalize}))
    model = fit(f"static:{tmp_path / 'static'}", texts)
    if normalize:
        export(model, "sentence-transformers", tmp_path / "out")
        assert kinds(tmp_path / "out") == ["StaticEmbedding", "Normalize", "Dense"]
    else:
        with pytest.raises(InputError, match=r"skips unknown tokens and StaticEmbedding .* counts them"):
            export(model, "sentence-transformers", tmp_path / "out")


def test_a_model_of_bare_vectors_has_no_texts_to_take(tmp_path):
    model = SentenceEncoder(PrecomputedVectors(4)).fitted_on_moments(
        Moments.from_rows(np.random.default_rng(0).standard_normal((50, 4))), transform=isosent.Whitening(2)
    )
    with pytest.raises(InputError, match="needs an encoder of texts"):
        export(model, "sentence-transformers", tmp_path / "out")


def test_a_wrong_folder_is_not_written(wordllama, texts, tmp_path, monkeypatch):
    right = st_export._dense

    def without_bias(linear_map):
        dense = right(linear_map)
        torch.nn.init.zeros_(dense.linear.bias)
        return dense

    monkeypatch.setattr(st_export, "_dense", without_bias)
    model = wordllama.fitted(texts, transform=isosent.Whitening(8))
    with pytest.raises(OutputError, match="the sentence-transformers export does not give the vectors"):
        export(model, "sentence-transformers", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_card_shows_what_was_fitted_and_measured(wordllama, texts, write_stsb, tmp_path):
    model = wordllama.fitted(texts, transform=isosent.Whitening(8), source="/home/somebody/corpus.txt")
    results = evaluate(model, write_stsb(tmp_path / "data"))
    export(model, "sentence-transformers", tmp_path / "out", results=results)
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| STSB | spearman | {100 * results.tasks['STSB'].score:.2f} † |" in card  # of a few pairs
    assert "n_components=8" in card
    assert "on 480 texts of corpus.txt" in card
    assert model.fingerprint in card
    assert "somebody" not in card


def test_scores_of_another_space_are_refused(wordllama, texts, write_stsb, tmp_path):
    results = evaluate(wordllama, write_stsb(tmp_path / "data"))
    model = wordllama.fitted(texts, transform=isosent.Whitening(8))
    with pytest.raises(InputError, match=f"{wordllama.fingerprint[:16]}.*{model.fingerprint[:16]}"):
        export(model, "sentence-transformers", tmp_path / "out", results=results)


def test_scores_of_a_transform_fitted_for_them_are_refused(wordllama, write_stsb, tmp_path):
    results = evaluate(wordllama, write_stsb(tmp_path / "data"), transform=isosent.Whitening(4))
    with pytest.raises(InputError, match="measured with a transform fitted for them"):
        export(wordllama, "sentence-transformers", tmp_path / "out", results=results)


def test_the_tokenizer_file_of_a_transformer_cuts_lower_cases_and_prompts_as_the_encoder(small):
    folder = small("tokens", max_seq_length=64)
    config = json.loads((folder / "config_sentence_transformers.json").read_text()) | {"default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64, "do_lower_case": True}))
    encoder = isosent.load(f"hf:{folder}").encoder
    ours = encoder.tokenize(TEXTS)
    theirs = transformer_tokenizer(encoder).encode_batch([*TEXTS, ""])
    found = [[i for i, on in zip(e.ids, e.attention_mask, strict=True) if on] for e in theirs]
    assert found[:-1] == [ours.ids[a:b].tolist() for a, b in pairwise(ours.offsets)]
    assert len(found[-1]) == encoder.n_special_tokens
    assert {len(e.ids) for e in theirs} == {64}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (
            "pooled",
            "max_length=64&layers=0.3*0,0.7*1&pooling=p_mean,cls&normalize=true",
            {
                "query": ("query_tokenizer.json", "query_model.onnx"),
                "document": ("document_tokenizer.json", "model.onnx"),
            },
        ),
        (
            "unpooled",
            "max_length=130&layers=1&document_prompt=",
            {"query": ("query_tokenizer.json", "query_model.onnx"), "document": ("tokenizer.json", "model.onnx")},
        ),
    ],
    ids=["pooled", "unpooled"],
)
def test_graphs_and_tokenizers_of_every_role(prompted, texts, tmp_path, name, options, expected):
    import onnxruntime

    model = isosent.load(f"hf:{prompted(name)}?{options}")
    if name == "pooled":
        short = [text[:20] for text in texts]
        transform = chain(isosent.Whitening(8, strength=0.5), L2Normalize())
        model = model.fitted(short, transform=transform, queries=short[:50])
    export(model, "onnx", tmp_path / "out")
    files = json.loads((tmp_path / "out" / "isosent.json").read_text())["files"]
    assert {role: (names["tokenizer"], names["graph"]) for role, names in files.items()} == {
        "text": ("tokenizer.json", "model.onnx"),
        **expected,
    }
    encode = {"text": model.encode, "query": model.encode_query, "document": model.encode_document}
    for role, names in files.items():
        session = onnxruntime.InferenceSession(tmp_path / "out" / names["graph"])
        batch = Tokenizer.from_file(str(tmp_path / "out" / names["tokenizer"])).encode_batch([*TEXTS, ""])
        inputs = {"input_ids": [e.ids for e in batch], "attention_mask": [e.attention_mask for e in batch]}
        assert [value.name for value in session.get_inputs()] == list(inputs)
        assert b".py" not in (tmp_path / "out" / names["graph"]).read_bytes()
        found = session.run(None, {name: np.array(rows, dtype=np.int64) for name, rows in inputs.items()})[0]
        with pytest.warns(isosent.IsosentWarning, match="were cut") if name == "pooled" else nullcontext():
            np.testing.assert_allclose(found, encode[role]([*TEXTS, ""]), atol=1e-5)


@pytest.fixture(scope="module")
def like(wordllama, texts):
    return SentenceTransformerLike(
        wordllama.fitted(texts, transform=isosent.Whitening(16), queries=texts[:50]), prompts={"query": "ask: "}
    )


def test_the_wrapper_gives_the_shapes_and_types_of_the_library(like):
    assert like.encode(TEXTS[0]).shape == (16,)
    assert like.encode([]).shape == (0, 16)
    assert isinstance(like.encode(TEXTS), np.ndarray)
    assert like.encode(TEXTS, convert_to_tensor=True).shape == torch.Size([5, 16])
    assert [type(row) for row in like.encode(TEXTS[:2], convert_to_numpy=False)] == [torch.Tensor] * 2
    assert like.encode(TEXTS, truncate_dim=4).shape == (5, 4)
    np.testing.assert_allclose(np.linalg.norm(like.encode(TEXTS, normalize_embeddings=True), axis=1), 1, rtol=1e-6)
    assert like.get_embedding_dimension() == like.get_sentence_embedding_dimension() == 16
    assert like.max_seq_length is None


def test_the_wrapper_puts_prompts_before_texts(like):
    asked = like.model.encode_query(["ask: what?"])
    np.testing.assert_array_equal(like.encode_query(["what?"]), asked)
    np.testing.assert_array_equal(like.encode(["what?"], prompt_name="query", queries=True), asked)
    np.testing.assert_array_equal(like.encode_document(["what?"]), like.model.encode(["what?"]))
    with pytest.raises(InputError, match=r"no prompt named 'passage'\. Its prompts: query, document\."):
        like.encode(["what?"], prompt_name="passage")


OTHER_PROMPTS = {"query": "question: ", "default": "any: ", "other": "another: "}


@pytest.mark.parametrize(
    ("name", "prompts", "default"),
    [
        ("pooled", None, ""),
        ("unpooled", OTHER_PROMPTS, ""),
        ("unpooled", None, "tell: "),
        ("pooled", OTHER_PROMPTS, "tell: "),
    ],
)
def test_the_wrapper_puts_one_prompt_before_a_text_as_the_library_does(prompted, name, prompts, default, tmp_path):
    model = isosent.load(f"hf:{prompted(name)}?prompt={default}")
    export(model, "sentence-transformers", tmp_path / "out")
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu", prompts=prompts)
    ours = SentenceTransformerLike(model, prompts=prompts)
    assert (ours.prompts, ours.default_prompt_name) == (theirs.prompts, theirs.default_prompt_name)
    for method in ("encode", "encode_query", "encode_document"):
        for how in ({}, {"prompt": "so: "}, {"prompt": ""}, {"prompt_name": "document"}):
            found, expected = (getattr(each, method)(TEXTS, **how) for each in (ours, theirs))
            np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=f"{method} {how}")


@pytest.mark.parametrize("dim", [0, -3])
def test_the_wrapper_refuses_to_keep_no_dimension(like, dim):
    with pytest.raises(InputError, match=f"truncate_dim must be a whole number >= 1; got {dim}"):
        like.encode(["what?"], truncate_dim=dim)


def test_the_wrapper_refuses_other_precisions(like):
    with pytest.raises(InputError, match="precision must be float32; got 'int8'"):
        like.encode(["what?"], precision="int8")


def test_the_wrapper_shows_a_bar_when_asked(like):
    assert like.encode(TEXTS, show_progress_bar=True).shape == (5, 16)


def test_the_wrapper_serves_an_evaluator_of_the_library(like, texts):
    scores = [float(7 * i % 11) for i in range(40)]
    found = EmbeddingSimilarityEvaluator(texts[:40], texts[1:41], scores, name="pairs")(like)
    first, second = like.model.encode(texts[:40]), like.model.encode(texts[1:41])
    cosines = util.pairwise_cos_sim(first, second)
    expected = np.corrcoef(np.argsort(np.argsort(cosines)), np.argsort(np.argsort(scores)))[0, 1]
    assert found["pairs_spearman_cosine"] == pytest.approx(expected, abs=0.05)
    assert like.model_card_data.metrics == found


def test_the_wrapper_serves_the_search_of_the_library(like, texts):
    vectors = like.encode_document(texts[:50], convert_to_tensor=True)
    hits = util.semantic_search(like.encode(texts[:5], convert_to_tensor=True), vectors, top_k=1)
    assert [hit[0]["corpus_id"] for hit in hits] == [0, 1, 2, 3, 4]
    assert like.similarity(vectors[:2], vectors).shape == (2, 50)
    torch.testing.assert_close(like.similarity_pairwise(vectors, vectors), torch.ones(50))


@pytest.mark.slow
def test_mteb_is_given_the_prompts_of_the_encoder(prompted):
    pytest.importorskip("mteb")
    from mteb.types import PromptType

    from isosent.compat.mteb import MTEBEncoder

    model = isosent.load(f"hf:{prompted('pooled')}?prompt=tell: ")
    encoder, task = MTEBEncoder(model), {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}
    batches = [{"text": TEXTS[:2]}, {"text": TEXTS[2:]}]
    for prompt_type, encode in (
        (None, model.encode),
        (PromptType.query, model.encode_query),
        (PromptType.document, model.encode_document),
    ):
        np.testing.assert_array_equal(encoder.encode(batches, **task, prompt_type=prompt_type), encode(TEXTS))
