"""Every transformers architecture keeps the contract of an encoder: order, batches and padding are invisible."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import isosent
from isosent.encoders.transformer import TransformerEncoder

WORDS = [
    "the",
    "a",
    "man",
    "woman",
    "dog",
    "horse",
    "is",
    "was",
    "riding",
    "running",
    "quickly",
    "in",
    "park",
    "river",
    "red",
    "blue",
    "and",
    "of",
    "to",
]
TEXTS = [
    "the man is riding a horse",
    "a dog",
    "the red river",
    "a woman was running quickly in the park and the dog was running in the river of the blue man",
    "horse",
    "the woman and the man",
]
SMALL = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
CONFIGS = {
    "bert": transformers.BertConfig(**SMALL, max_position_embeddings=40),
    "roberta": transformers.RobertaConfig(**SMALL, max_position_embeddings=42, pad_token_id=1),
    "xlm-roberta": transformers.XLMRobertaConfig(**SMALL, max_position_embeddings=42, pad_token_id=1),
    "distilbert": transformers.DistilBertConfig(
        dim=24, n_layers=3, n_heads=2, hidden_dim=32, max_position_embeddings=40
    ),
    "mpnet": transformers.MPNetConfig(**SMALL, max_position_embeddings=42, pad_token_id=1),
    "modernbert": transformers.ModernBertConfig(
        **SMALL,
        max_position_embeddings=40,
        global_attn_every_n_layers=2,
        pad_token_id=1,
        cls_token_id=2,
        sep_token_id=3,
    ),
    "electra": transformers.ElectraConfig(**SMALL, embedding_size=24, max_position_embeddings=40),
    "fnet": transformers.FNetConfig(
        hidden_size=24, num_hidden_layers=3, intermediate_size=32, max_position_embeddings=40, pad_token_id=1
    ),
    "albert": transformers.AlbertConfig(**SMALL, embedding_size=12, max_position_embeddings=40),
    "xlnet": transformers.XLNetConfig(d_model=24, n_layer=3, n_head=2, d_inner=32),
    "bart": transformers.BartConfig(
        d_model=24,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=40,
        pad_token_id=1,
        bos_token_id=2,
        eos_token_id=3,
        decoder_start_token_id=3,
    ),
    "gpt2": transformers.GPT2Config(n_embd=24, n_layer=3, n_head=2, n_positions=40, bos_token_id=2, eos_token_id=3),
    "t5": transformers.T5Config(d_model=24, d_kv=12, d_ff=32, num_layers=3, num_heads=2),
}


def save_tokenizer(folder):
    vocabulary = {word: i for i, word in enumerate(["<unk>", "<pad>", "<s>", "</s>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", cls_token="<s>", sep_token="</s>"
    ).save_pretrained(folder)
    return len(vocabulary)


def save_model(folder, config):
    torch.manual_seed(0)
    config.vocab_size = save_tokenizer(folder)
    if config.model_type == "t5":
        transformers.T5EncoderModel(config).save_pretrained(folder)
    else:
        transformers.AutoModel.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=list(CONFIGS))
def folder(request, tmp_path_factory):
    return save_model(tmp_path_factory.mktemp(request.param), CONFIGS[request.param])


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("bert"), CONFIGS["bert"])


def one_by_one(folder, text):
    """Last hidden state and all hidden states of one text, by transformers alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kind = transformers.AutoConfig.from_pretrained(folder).model_type
    model = (transformers.T5EncoderModel if kind == "t5" else transformers.AutoModel).from_pretrained(folder).eval()
    model = model.get_encoder() if kind == "bart" else model
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.inference_mode():
        output = model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    return output.last_hidden_state[0].numpy(), [state[0].numpy() for state in output.hidden_states]


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"])
def test_padding_and_batches_are_invisible(folder, pooling, monkeypatch):
    encoder = isosent.load(f"hf:{folder}?pooling={pooling}")
    together = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=2e-6)
    monkeypatch.setattr(TransformerEncoder, "batch_tokens", 12)
    np.testing.assert_allclose(encoder.encode(TEXTS), alone, atol=2e-6)


def test_order_is_kept(folder):
    encoder = isosent.load(f"hf:{folder}")
    order = [4, 0, 5, 2, 1, 3]
    np.testing.assert_allclose(encoder.encode([TEXTS[i] for i in order]), encoder.encode(TEXTS)[order], atol=2e-6)


def test_the_last_layer_is_the_output_of_the_model(folder):
    last, _ = one_by_one(folder, TEXTS[0])
    np.testing.assert_allclose(isosent.load(f"hf:{folder}").encode(TEXTS[:1])[0], last.mean(axis=0), atol=2e-6)


@pytest.mark.parametrize("layers", ["0", "1,-1", "0,1,2,3", "-4"])
def test_layers_are_pooled_and_then_averaged(folder, layers):
    last, states = one_by_one(folder, TEXTS[3])
    states = [*states[:-1], last]
    expected = np.mean([states[int(layer)].max(axis=0) for layer in layers.split(",")], axis=0)
    found = isosent.load(f"hf:{folder}?layers={layers}&pooling=max").encode(TEXTS[:4])[3]
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_an_empty_text_gives_the_zero_row(folder):
    vectors = isosent.load(f"hf:{folder}").encode(["a dog", "", "   "])
    assert vectors[0].any()
    assert not vectors[1:].any()


def test_zero_texts_give_zero_rows(folder):
    vectors = isosent.load(f"hf:{folder}").encode([])
    assert vectors.shape == (0, 24)
    assert vectors.dtype == np.float32


def test_poolings_are_concatenated_in_the_order_written(bert):
    both = isosent.load(f"hf:{bert}?pooling=max,cls").encode(TEXTS)
    parts = [isosent.load(f"hf:{bert}?pooling={name}").encode(TEXTS) for name in ("max", "cls")]
    np.testing.assert_allclose(both, np.concatenate(parts, axis=1), atol=2e-6)


def test_texts_beyond_the_maximum_are_cut_with_one_warning_that_counts_them(bert):
    encoder = isosent.load(f"hf:{bert}?max_length=6")
    with pytest.warns(
        isosent.IsosentWarning, match="3 of 6 texts were cut at the encoder's maximum of 6 tokens"
    ) as seen:
        vectors = encoder.encode(TEXTS)
    assert len(seen) == 1
    np.testing.assert_allclose(vectors[0], encoder.encode(["the man is riding"])[0], atol=2e-6)


@pytest.mark.parametrize(("name", "maximum"), [("bert", "40"), ("roberta", "40"), ("mpnet", "40")])
def test_the_position_table_sets_the_maximum(tmp_path, name, maximum):
    encoder = isosent.load(f"hf:{save_model(tmp_path, CONFIGS[name])}")
    assert encoder.encoder.options["max_length"] == maximum
    with pytest.warns(isosent.IsosentWarning, match="were cut"):
        assert np.isfinite(encoder.encode(["dog " * 100])).all()


def test_a_saved_model_opens_again_and_gives_the_same_vectors(bert, tmp_path):
    encoder = isosent.load(f"hf:{bert}?layers=1,-1&pooling=cls")
    model = encoder.fit(TEXTS, transform=isosent.Whitening(3))
    model.save(tmp_path / "model")
    again = isosent.load(tmp_path / "model")
    assert again.encoder.options == model.encoder.options
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))


def test_a_model_refuses_other_weights(bert, tmp_path):
    encoder = isosent.load(f"hf:{bert}")
    encoder.fit(TEXTS, transform=isosent.Whitening(3)).save(tmp_path / "model")
    torch.manual_seed(1)
    save_tokenizer(tmp_path / "other")
    transformers.BertModel(CONFIGS["bert"]).save_pretrained(tmp_path / "other")
    with pytest.raises(isosent.ModelFolderError, match="Vectors of one mean nothing in the other"):
        isosent.load(f"{tmp_path / 'model'}?encoder=hf:{tmp_path / 'other'}")
    assert isosent.load(f"{tmp_path / 'model'}?encoder=hf:{bert}").dim == 3


@pytest.mark.parametrize("layers", ["4", "-5", "0,-4"])
def test_layers_that_are_not_there_or_named_twice_are_refused(bert, layers):
    with pytest.raises(isosent.ModelReferenceError, match="layers must") as refused:
        isosent.load(f"hf:{bert}?layers={layers}")
    assert "A model reference is one of" in str(refused.value)


def test_weights_in_pickles_are_not_loaded(bert, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((bert / name).read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(isosent.FileFormatError, match=r"as .safetensors; it holds none. Pickles are not loaded"):
        isosent.load(f"hf:{tmp_path}")


def test_missing_weights_are_refused(bert, tmp_path):
    from safetensors.torch import load_file, save_file

    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((bert / name).read_bytes())
    weights = load_file(bert / "model.safetensors")
    weights.pop("encoder.layer.2.output.dense.weight")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(isosent.FileFormatError, match=r"lacks 1 weights .*encoder.layer.2.output.dense.weight"):
        isosent.load(f"hf:{tmp_path}")


def test_damaged_weights_are_refused(bert, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((bert / name).read_bytes())
    (tmp_path / "model.safetensors").write_bytes((bert / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(isosent.FileFormatError, match="safetensors"):
        isosent.load(f"hf:{tmp_path}")


def test_code_that_comes_with_a_model_is_not_run(bert, tmp_path):
    for path in bert.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((bert / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine", "AutoModel": "mine.Mine"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    load = f"import isosent; isosent.load('hf:{tmp_path}')"
    finished = subprocess.run(
        [sys.executable, "-c", load], input="y\n" * 9, capture_output=True, text=True, check=False
    )
    assert "FileFormatError" in finished.stderr
    assert not (tmp_path / "ran").exists()


def test_a_model_with_other_settings_has_another_fingerprint(bert, tmp_path):
    for path in bert.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((bert / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    assert isosent.load(f"hf:{tmp_path}").fingerprint != isosent.load(f"hf:{bert}").fingerprint


@pytest.mark.parametrize("max_length", ["1", "2", "41", "none"])
def test_a_maximum_that_the_model_has_no_room_for_is_refused(bert, max_length):
    with pytest.raises(isosent.InputError, match="max_length must be above 2, its special tokens, and at most 40"):
        isosent.load(f"hf:{bert}?max_length={max_length}")


@pytest.mark.parametrize("location", ["./nowhere", "~/nowhere-at-all", "/nowhere"])
def test_a_folder_that_is_not_there_is_refused(location):
    with pytest.raises(isosent.InputFileError, match="must be a folder or an id on the hub; got no such folder"):
        isosent.load(f"hf:{location}")


def test_an_id_goes_through_the_hub_client_and_its_offline_switch(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(isosent.InputFileError, match="the hub did not give a model of that name"):
        isosent.load("hf:nobody/no-such-model@main")


def test_an_id_is_opened_from_the_cache_of_the_hub_client(bert, monkeypatch):
    calls = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **how: calls.append((name, how)) or str(bert))
    encoder = isosent.load("hf:owner/name@abc123")
    assert calls[0][0] == "owner/name"
    assert calls[0][1]["revision"] == "abc123"
    assert not any("bin" in pattern for pattern in calls[0][1]["allow_patterns"])
    assert encoder.encoder.reference == "hf:owner/name@abc123"


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(isosent.FileFormatError, match=r"has no config\.json"):
        isosent.load(f"hf:{tmp_path}")


def test_modules_without_a_counterpart_are_refused(bert, tmp_path):
    (tmp_path / "modules.json").write_text(json.dumps([{"path": "", "type": "sentence_transformers.models.CNN"}]))
    with pytest.raises(isosent.FileFormatError, match="got 'CNN'"):
        isosent.load(f"hf:{tmp_path}")
