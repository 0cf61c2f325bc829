"""Prompts with words after the text, as transformers computes them: PromptEOL, texts that stand twice, a last token.

Expected vectors are those of transformers for the whole string, or of batches padded on the left; expected tokens are
counted in words, for which these tokenizers have one token each.
"""

import json

import numpy as np
import pytest
import tiny_models
import torch
import transformers
from sentence_transformers import SentenceTransformer, models
from tiny_models import DIM

import isosent
from isosent.errors import FileFormatError, InputError, IsosentWarning, ModelFolderError, TruncationWarning
from isosent.exports import export

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPTS = {
    "PromptEOL": 'find : "{text}" is the',
    "words after the text": "{text} and the",
    "end": "{text}</s>",
    "twice": "the {text} , the {text}",
}
TEXTS = [text for text in tiny_models.TEXTS if len(text) < 40]  # twice, they fit into 40 positions
LONG = "man dog horse river red blue woman park man dog horse river red blue woman park"


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2", "bert"])
def test_the_last_token_is_that_of_transformers(name, prompt, tiny_model):
    folder = tiny_model(name)
    texts = [*TEXTS, "a dog.", 'the "red river"']  # whose last character may be one token with what follows it
    for layer in (1, 2, tiny_models.N_LAYERS):
        vectors = isosent.load(f"hf:{folder}?layers={layer}&pooling=last_token", prompt=prompt).encode(texts)
        states = tiny_models.hidden_states(
            folder, tiny_models.token_ids(folder, [prompt.replace("{text}", text) for text in texts])
        )
        np.testing.assert_allclose(vectors, [of_text[layer, -1] for of_text in states], atol=5e-6)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_last_token_is_that_of_a_batch_padded_on_the_left(name, tiny_model):
    folder = tiny_model(name)
    vectors = isosent.load(f"hf:{folder}?layers=2&pooling=last_token", prompt=PROMPTS["PromptEOL"]).encode(TEXTS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    asked = [PROMPTS["PromptEOL"].replace("{text}", text) for text in TEXTS]
    batch = tokenizer(asked, padding=True, return_tensors="pt", return_token_type_ids=False)
    assert not batch["attention_mask"][:, 0].all()
    positions = (batch["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
    with torch.inference_mode():
        output = tiny_models.loaded(folder)(**batch, position_ids=positions, output_hidden_states=True)
    np.testing.assert_allclose(vectors, output.hidden_states[2][:, -1].numpy(), atol=5e-6)


@pytest.mark.parametrize("pooling", ["mean", "last_token", "weighted_mean", "max"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_a_text_that_stands_twice_is_pooled_from_the_second_time_on(name, pooling, tiny_model):
    folder = tiny_model(name)
    model = isosent.load(f"hf:{folder}?layers=2&pooling={pooling}", prompt="find the {text} , passage : {text}")
    asked = [f"find the {text} , passage : {text}" for text in TEXTS]
    n_before = {"gpt2": 5, "llama": 6, "bert": 6}[name]  # words of the prompt, and an opening token
    expected = []
    for text, states in zip(
        TEXTS, tiny_models.hidden_states(folder, tiny_models.token_ids(folder, asked)), strict=True
    ):
        second = states[2, n_before + len(text.split()) :]
        assert len(second) == len(text.split()) + (name == "bert")  # with the closing token
        expected.append(tiny_models.plain_pooling(second, pooling))
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=5e-6)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("prompt", "max_length", "n_kept"),
    [
        ("find the {text} is running", 12, 6),
        ("{text} is running", 12, 8),
        ("the {text} , find {text} is", 12, 3),
        ("the {text} , find {text} is", 13, 3),
        ("find the {text}", 8, 4),
    ],
)
def test_what_is_cut_is_the_text(prompt, max_length, n_kept, side, tiny_model):
    folder = tiny_model("bert", truncation_side=side)  # with one special token before and one after
    encoder = isosent.load(f"hf:{folder}?max_length={max_length}", prompt=prompt).encoder
    words = LONG.split()
    kept = " ".join(words[:n_kept] if side == "right" else words[-n_kept:])
    with pytest.warns(TruncationWarning, match="1 of 2 texts"):
        vectors = encoder.encode([LONG, "dog"])
    tokens = encoder.tokenize([LONG, "dog"])
    expected = tiny_models.token_ids(folder, [prompt.replace("{text}", text) for text in (kept, "dog")])
    assert [tokens.ids[: tokens.offsets[1]].tolist(), tokens.ids[tokens.offsets[1] :].tolist()] == expected
    np.testing.assert_allclose(vectors[0], encoder.encode([kept])[0], atol=2e-6)


def test_a_character_of_several_tokens_is_kept_or_cut_as_a_whole(tiny_model):
    folder = tiny_model("qwen2")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lengths = set()
    for max_length in range(12, 24):
        encoder = isosent.load(f"hf:{folder}?max_length={max_length}", prompt="a {text} is").encoder
        ids = encoder.tokenize(["日本語の川" * 3]).ids
        lengths.add(len(ids))
        assert len(ids) <= max_length
        text = tokenizer.decode(ids)
        assert text == f"a {text[2:-3]} is"
        assert ("日本語の川" * 3).startswith(text[2:-3])
        assert text[2:-3]
    assert len(lengths) < 12


def test_lower_case_may_be_longer_than_the_text(tmp_path, tiny_model):
    folder = tmp_path / "lower"
    parts = [models.Transformer(str(tiny_model("qwen2"))), models.Pooling(DIM, pooling_mode="lasttoken")]
    SentenceTransformer(modules=parts, device="cpu").save(str(folder))
    path = folder / "sentence_bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": True}))
    encoder = isosent.load(f"hf:{folder}?max_length=24", prompt="THE {text} IS").encoder
    decoded = encoder.tokenizer.decode(encoder.tokenize(["\u0130" * 30]).ids)
    assert decoded.startswith("the i\u0307")
    assert decoded.endswith(" is")


@pytest.mark.parametrize("command", ["save", "fitted"])
def test_a_saved_model_has_its_prompt(command, tmp_path, tiny_model):
    model = isosent.load(f"hf:{tiny_model('llama')}?layers=2&pooling=last_token", prompt=PROMPTS["PromptEOL"])
    if command == "fitted":
        model = model.fitted(TEXTS * 4, transform=isosent.Whitening(4))
    model.save(tmp_path / "model")
    again = isosent.load(tmp_path / "model")
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert again.fingerprint == model.fingerprint
    if command == "fitted":  # as numpy whitens the vectors of transformers
        asked = [PROMPTS["PromptEOL"].replace("{text}", text) for text in TEXTS]
        folder = tiny_model("llama")
        states = tiny_models.hidden_states(folder, tiny_models.token_ids(folder, asked))
        rows = np.stack([of_text[2, -1] for of_text in states]).astype(np.float64)
        values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
        expected = (rows - rows.mean(axis=0)) @ vectors[:, ::-1][:, :4] / np.sqrt(values[::-1][:4])
        actual = model.encode(TEXTS)
        np.testing.assert_allclose(actual @ actual.T, expected @ expected.T, rtol=2e-3, atol=2e-3)


def test_queries_and_documents_have_the_prompt_unless_they_have_another(tiny_model):
    folder = tiny_model("llama")
    model = isosent.load(f"hf:{folder}?query_prompt=find :", prompt="{text} and")
    plain = isosent.load(f"hf:{folder}")
    np.testing.assert_allclose(model.encode_document(TEXTS), model.encode(TEXTS))
    np.testing.assert_allclose(model.encode_query(TEXTS), plain.encode([f"find :{text}" for text in TEXTS]), atol=5e-6)


def test_a_blank_text_has_the_zero_row_and_repeated_texts_one_vector(tiny_model):
    model = isosent.load(f"hf:{tiny_model('llama')}?max_length=12", prompt="the {text} , {text} is")
    vectors = model.encode(["dog", " ", "", "dog"])
    assert not vectors[1:3].any()
    np.testing.assert_array_equal(vectors[0], vectors[3])
    assert model.encode([]).shape == (0, DIM)


def test_a_text_within_one_token_of_the_prompt_has_a_vector(tiny_model):
    folder = tiny_model("gpt2")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    merged, text = next(
        (token, token[1:-1])
        for token in map(tokenizer.decode, range(3, len(tokenizer)))
        if len(token) > 2 and token.strip() == token and len(tokenizer(token)["input_ids"]) == 1
    )
    prompt = f"{merged[0]}{{text}}{merged[-1]}"
    model = isosent.load(f"hf:{folder}?layers=2&pooling=last_token", prompt=f"{prompt} {prompt}")
    asked = f"{merged} {merged}"
    states = tiny_models.hidden_states(folder, tiny_models.token_ids(folder, [asked]))[0]
    np.testing.assert_allclose(model.encode([text])[0], states[2, -1], atol=5e-6)


@pytest.mark.parametrize("name", ["prompt", "query_prompt"])
def test_a_saved_model_of_when_a_place_stood_before_the_text_is_refused(name, tmp_path, tiny_model, monkeypatch):
    folder = f"hf:{tiny_model('bert')}"
    monkeypatch.setattr("isosent.encoders.transformer.PROMPTS", ())  # no prompt is looked at
    isosent.load(folder, **{name: "find {text}"}).save(tmp_path / "model")
    monkeypatch.undo()
    with pytest.raises(ModelFolderError, match="fingerprint"):
        isosent.load(tmp_path / "model")


@pytest.mark.parametrize("options", [{"prompt": "x "}, {"prompt": "x ", "query_prompt": ""}, {"query_prompt": "q "}])
def test_options_of_an_encoder_are_those_of_loading(options, tiny_model):
    folder = f"hf:{tiny_model('bert')}"
    for before in ({}, {"prompt": "y "}):
        assert (
            isosent.load(folder, **before).encoder.with_options(**options).options
            == isosent.load(folder, **before | options).encoder.options
        )


def test_without_room_for_the_text_nothing_is_encoded(tiny_model):
    model = isosent.load(f"hf:{tiny_model('bert')}?max_length=6", prompt="the dog {text} and the")
    with pytest.raises(InputError, match=r"max_length=6.*no room"):
        model.encode(["man dog"])


def test_what_cannot_keep_the_words_is_refused(tiny_model, tmp_path):
    folder = tiny_model("bert")
    with pytest.raises(InputError, match="long=windows"):
        isosent.load(f"hf:{folder}?long=windows&max_length=20", prompt="{text} and")
    model = isosent.load(f"hf:{folder}", prompt="{text} and")
    for target in ("sentence-transformers", "onnx"):
        with pytest.raises(InputError, match=r"\{text\} and") as refused:
            export(model, target, tmp_path / target)
        assert "Export to" not in str(refused.value)
        assert not (tmp_path / target).exists()
    wrapped = isosent.wrap(SentenceTransformer(modules=[models.Transformer(str(folder)), models.Pooling(DIM)]))
    with pytest.raises(InputError, match="before texts only"):
        wrapped.encode(TEXTS, prompt="{text} and")


def test_a_folder_whose_prompt_has_a_place_is_refused(tmp_path, tiny_model):
    parts = [models.Transformer(str(tiny_model("bert"))), models.Pooling(DIM)]
    SentenceTransformer(modules=parts, device="cpu", prompts={"query": "find {text}"}).save(str(tmp_path / "folder"))
    with pytest.raises(FileFormatError, match=r"find \{text\}"):
        isosent.load(f"hf:{tmp_path / 'folder'}")


def test_a_folder_that_says_add_eos_token_without_adding_it_is_refused(tmp_path):
    folder = tiny_models.save_model(tmp_path, "llama", eos_token="</s>")
    path = folder / "tokenizer_config.json"
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text) | {"add_eos_token": True}))
    assert transformers.AutoTokenizer.from_pretrained(folder)("dog")["input_ids"][-1] != 3
    with pytest.raises(FileFormatError, match="add_eos_token"):
        isosent.load(f"hf:{folder}")
    path.write_text(text)
    isosent.load(f"hf:{folder}").save(tmp_path / "saved")
    expected = isosent.load(f"hf:{folder}").encode(TEXTS)
    path.write_text(json.dumps(json.loads(text) | {"add_eos_token": True}))
    with pytest.warns(IsosentWarning, match="add_eos_token"):
        saved = isosent.load(tmp_path / "saved")
    np.testing.assert_array_equal(saved.encode(TEXTS), expected)
    vectors = isosent.load(f"hf:{folder}?pooling=last_token", prompt="{text}</s>").encode(TEXTS)
    ids = [[*row, 3] for row in tiny_models.token_ids(folder, TEXTS)]
    expected = [of_text[-1, -1] for of_text in tiny_models.hidden_states(folder, ids)]
    np.testing.assert_allclose(vectors, expected, atol=5e-6)
