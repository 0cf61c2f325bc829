"""Prompts of texts, queries and documents, against sentence-transformers on the same folder."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer, models
from tiny_models import DIM, TEXTS, bytes_tokenizer, hidden_states, plain_pooling, save_model, token_ids

import isosent
from isosent.errors import FileFormatError
from isosent.transforms.auto import choose_from_texts

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPTS = {"query": "find : ", "document": "passage : the", "other": "red , "}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """A folder of sentence-transformers with prompts."""

    def make(name="bert", *, tokenizer=None, pooling="mean", include_prompt=True, default=None, prompts=PROMPTS):
        where = tmp_path_factory.mktemp("prompts")
        save_model(where / "bare", name, tokenizer, n_layers=1 if name == "bert" else None)
        modules = [
            models.Transformer(str(where / "bare")),
            models.Pooling(DIM, pooling_mode=pooling, include_prompt=include_prompt),
        ]
        SentenceTransformer(modules=modules, device="cpu", prompts=prompts, default_prompt_name=default).save(
            str(where / "whole")
        )
        return where / "whole"

    return make


def theirs(folder, **how):
    return SentenceTransformer(str(folder), device="cpu").encode(TEXTS, **how)


@pytest.mark.parametrize("default", [None, "other", "query"])
def test_a_folder_of_sentence_transformers_says_its_prompts(make, default):
    folder = make(default=default)
    model, reference = isosent.load(f"hf:{folder}"), SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(model.encode(TEXTS), reference.encode(TEXTS), atol=2e-6)
    np.testing.assert_allclose(model.encode_query(TEXTS), reference.encode_query(TEXTS), atol=2e-6)
    np.testing.assert_allclose(model.encode_document(TEXTS), reference.encode_document(TEXTS), atol=2e-6)


@pytest.mark.parametrize(
    ("name", "tokenizer", "pooling"),
    [
        ("bert", None, "mean"),
        ("bert", None, "max"),
        ("t5", None, "mean_sqrt_len_tokens"),
        ("llama", None, "lasttoken"),
        ("qwen3", "bytes", "mean"),
    ],
)
def test_the_tokens_of_a_prompt_are_left_out_of_the_pooling(make, name, tokenizer, pooling):
    tokenizer = bytes_tokenizer() if tokenizer else None
    prompts = {"query": "find :", "document": "passage : the"}
    folder = make(name, tokenizer=tokenizer, pooling=pooling, include_prompt=False, prompts=prompts)
    model, reference = isosent.load(f"hf:{folder}"), SentenceTransformer(str(folder), device="cpu")
    postprocessing = [f" {text}" for text in TEXTS]
    np.testing.assert_allclose(model.encode_query(postprocessing), reference.encode_query(postprocessing), atol=5e-6)
    np.testing.assert_allclose(
        model.encode_document(postprocessing), reference.encode_document(postprocessing), atol=5e-6
    )
    np.testing.assert_allclose(model.encode(postprocessing), reference.encode(postprocessing), atol=5e-6)


def test_cls_is_the_first_token_behind_a_prompt_that_is_not_pooled(make):
    folder = make(pooling="cls", include_prompt=False)
    model, reference = isosent.load(f"hf:{folder}"), SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(model.encode_query(TEXTS), reference.encode_query(TEXTS), atol=5e-6)


@pytest.mark.parametrize("pooling", ["mean", "weighted_mean", "p_mean", "last_token"])
def test_a_space_behind_a_prompt_belongs_to_the_text_where_the_tokenizer_says_so(tmp_path, make, pooling):
    """Pieces of bytes take it into the first token of the text, which is pooled then as any other."""
    folder = make("qwen3", tokenizer=bytes_tokenizer(), include_prompt=False)
    encoder = isosent.load(f"hf:{folder}?pooling={pooling}").encoder.for_queries()
    tokenizer = encoder.tokenizer
    assert len(tokenizer("find : ")["input_ids"]) == len(tokenizer("find :")["input_ids"]) + 1
    states = hidden_states(folder, token_ids(folder, [f"find : {text}" for text in TEXTS]))
    n_prompt = len(tokenizer("find :")["input_ids"])
    expected = np.stack([plain_pooling(of_text[-1, n_prompt:], pooling) for of_text in states])
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=5e-6)


def test_lower_case_is_that_of_tokenizers(make):
    folder = make("qwen3", tokenizer=bytes_tokenizer())
    path = folder / "sentence_bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": True}))
    listed = ["\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3 came", "\u0391\u03a3. \u03c2", "\u0130ST \u1e9e"]
    reference = SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(isosent.load(f"hf:{folder}").encode(listed), reference.encode(listed), atol=5e-6)


def test_prompts_are_options_too(tiny_model):
    bare = isosent.load(f"hf:{tiny_model('bert')}")
    told = isosent.load(f"hf:{tiny_model('bert')}?prompt=red : &query_prompt=find &document_prompt=the ")
    for encode, prompt in ((told.encode, "red : "), (told.encode_query, "find "), (told.encode_document, "the ")):
        np.testing.assert_allclose(encode(TEXTS), bare.encode([prompt + text for text in TEXTS]), atol=2e-6)
    for encode in (bare.encode_query, bare.encode_document):
        np.testing.assert_array_equal(encode(TEXTS), bare.encode(TEXTS))
    assert told.fingerprint != bare.fingerprint


def test_an_option_replaces_the_prompt_of_the_folder(make):
    folder = make(default="other")
    cleared = isosent.load(f"hf:{folder}?prompt=&query_prompt=%26%3F%25")
    assert cleared.encoder.options["query_prompt"] == "&?%"
    np.testing.assert_allclose(cleared.encode(TEXTS), theirs(folder, prompt=""), atol=2e-6)
    np.testing.assert_allclose(cleared.encode_document(TEXTS), theirs(folder, prompt_name="document"), atol=2e-6)


@pytest.mark.parametrize("include_prompt", [True, False])
def test_a_blank_text_stays_zero_behind_a_prompt(make, include_prompt):
    model = isosent.load(f"hf:{make(default='other', include_prompt=include_prompt)}")
    for encode in (model.encode, model.encode_query, model.encode_document):
        assert np.flatnonzero(encode(["", "a dog", " \t\n", "horse"]).any(axis=1)).tolist() == [1, 3]


def test_a_saved_model_keeps_its_prompts_and_the_mean_of_its_queries(make, tmp_path):
    model = isosent.load(f"hf:{make()}").fitted(TEXTS, transform=isosent.Whitening(3), queries=TEXTS[:4])
    model.save(tmp_path / "model")
    again = isosent.load(tmp_path / "model")
    assert again.encoder.options["query_prompt"] == "find : "
    np.testing.assert_array_equal(again.encode_query(TEXTS), model.encode_query(TEXTS))
    np.testing.assert_array_equal(again.encode_document(TEXTS), model.encode_document(TEXTS))


def test_reading_goes_through_the_prompt_of_the_role(make):
    encoder = isosent.load(f"hf:{make(include_prompt=False)}").encoder
    for role in (encoder, encoder.for_queries(), encoder.for_documents()):
        [read] = role.read(TEXTS, [role.layer_pooling("-1", "mean")])
        np.testing.assert_array_equal(read, role.encode(TEXTS))
    assert encoder.for_queries().for_documents().prompt == PROMPTS["document"]


@pytest.mark.parametrize("name", ["passage", "corpus"])
def test_other_names_of_a_prompt_of_documents_are_understood(make, name):
    folder = make(prompts={"query": "find : ", name: "the "})
    model = isosent.load(f"hf:{folder}")
    np.testing.assert_allclose(model.encode_document(TEXTS), theirs(folder, prompt_name=name), atol=2e-6)


@pytest.mark.parametrize("content", ["[]", '{"prompts": ["find"]}', '{"prompts": {"query": 7}}'])
def test_damaged_prompts_are_refused(make, content):
    folder = make()
    (folder / "config_sentence_transformers.json").write_text(content)
    with pytest.raises(FileFormatError, match=r"config_sentence_transformers\.json"):
        isosent.load(f"hf:{folder}")


def test_a_default_that_names_no_prompt_is_refused(make):
    folder = make()
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"default_prompt_name": "absent"}))
    with pytest.raises(FileFormatError, match="default_prompt_name is 'absent'"):
        isosent.load(f"hf:{folder}")


def test_the_fingerprint_of_a_role_is_the_same_whether_or_not_it_was_asked_of_the_encoder_before(make):
    folder = f"hf:{make()}"
    asked, not_asked = isosent.load(folder).encoder, isosent.load(folder).encoder
    own = asked.fingerprint
    assert asked.for_queries().fingerprint == not_asked.for_queries().fingerprint
    assert not_asked.fingerprint == own


@pytest.mark.parametrize("queries", [None, TEXTS[:3]])
def test_auto_compares_the_vectors_that_it_is_fitted_on(tiny_model, monkeypatch, queries):
    seen = []

    def choose(vectors, *arguments, **named):
        seen.append(vectors)
        return choose_from_texts(vectors, *arguments, **named)

    monkeypatch.setattr("isosent.fitting.choose_from_texts", choose)
    model = isosent.load(f"hf:{tiny_model('bert')}?document_prompt=red : ")
    model.fitted(TEXTS, transform="auto?dims=2", queries=queries)
    expected = model.encode(TEXTS) if queries is None else model.encode_document(TEXTS)
    np.testing.assert_array_equal(seen[0], expected)


@pytest.mark.parametrize("how", [{"prompt": "red : "}, {"prompt": ""}, {"prompt_name": "other"}, {}])
@pytest.mark.parametrize("default", [None, "other"])
def test_a_wrapped_model_adds_the_prompt_that_is_named_and_no_other(make, default, how):
    reference = SentenceTransformer(str(make(include_prompt=False, default=default)), device="cpu")
    model = isosent.wrap(reference)
    for method in ("encode", "encode_query", "encode_document"):
        found, expected = (getattr(each, method)(TEXTS, **how) for each in (model, reference))
        np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_prompt_is_put_before_the_texts_of_a_wrapped_function():
    seen = []
    model = isosent.wrap(lambda texts: seen.extend(texts) or np.ones((len(texts), 2)), reference="wordllama")
    model.encode(["a cat"], prompt="red : ")
    assert seen[-1] == "red : a cat"
