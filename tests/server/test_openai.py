"""Clients of OpenAI: only the URL changes."""

import asyncio
import base64
import logging
import random
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import pytest

import isosent
from isosent import LinearMap
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import unit_rows
from isosent.postprocessing import Postprocessing
from isosent.search import Index
from isosent.server.app import create_app
from isosent.transforms.maps import GroupMaps, MapStep

KEY = "a key that is not looked at"


def post(client, **body):
    return client.post("/v1/embeddings", json=body)


def vectors_of(response):
    assert response.status_code == 200, response.text
    return np.array([row["embedding"] for row in response.json()["data"]], dtype=np.float32)


@pytest.fixture
def sdk(client):
    with openai.OpenAI(base_url=f"{client.base_url}/v1", api_key=KEY, max_retries=0) as sdk:
        yield sdk


def test_the_openai_client_gets_the_vectors_of_the_library(sdk, small, texts):
    answer = sdk.embeddings.create(model="small", input=texts[:20])  # it asks for base64
    vectors = np.array([row.embedding for row in answer.data], dtype=np.float32)
    expected = unit_rows(small.encode(texts[:20]))
    assert np.array_equal(vectors, expected.astype(np.float32))
    assert [row.index for row in answer.data] == list(range(20))
    assert answer.model == "small"
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == len(small.encoder.tokenize(texts[:20]).ids)


def test_the_vectors_do_not_depend_on_the_other_requests(sdk, small, texts, record_property):
    seed = random.randrange(1 << 30)
    record_property("seed", seed)
    generator = random.Random(seed)
    requests = [generator.sample(texts, generator.choice([1, 1, 2, 5, 17, 40, 90])) for _ in range(48)]
    alone = {text: unit_rows(small.encode([text]))[0].astype(np.float32) for part in requests for text in part}
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda part: sdk.embeddings.create(model="small", input=part), requests))
    for part, answer in zip(requests, answers, strict=True):
        vectors = np.array([row.embedding for row in answer.data], dtype=np.float32)
        np.testing.assert_array_equal(vectors, np.stack([alone[text] for text in part]))


def test_the_asynchronous_client_gets_them_too(client, small):
    async def embed():
        async with openai.AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key=KEY, max_retries=0) as sdk:
            answers = [sdk.embeddings.create(model="small", input=f"text {number}") for number in range(8)]
            return [answer.data[0].embedding for answer in await asyncio.gather(*answers)]

    expected = [unit_rows(small.encode([f"text {number}"]))[0] for number in range(8)]
    assert np.array_equal(np.array(asyncio.run(embed()), dtype=np.float32), np.array(expected, dtype=np.float32))


def test_the_openai_client_lists_models_and_raises_its_own_errors(sdk):
    assert [model.id for model in sdk.models.list()] == ["small", "wordllama", "notes"]
    assert sdk.models.retrieve("small").id == "small"
    with pytest.raises(openai.NotFoundError, match="small, wordllama, notes") as caught:
        sdk.embeddings.create(model="large", input="text")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError, match="is empty"):
        sdk.embeddings.create(model="small", input="")


def test_base64_and_numbers_are_the_same_vectors(client):
    numbers = vectors_of(post(client, model="small", input=["a dog", "a cat"]))
    rows = post(client, model="small", input=["a dog", "a cat"], encoding_format="base64").json()["data"]
    coded = np.array([np.frombuffer(base64.b64decode(row["embedding"]), "<f4") for row in rows])
    assert np.array_equal(numbers, coded)


def test_fewer_dimensions_are_the_first_ones_scaled_again(client, small):
    response = post(client, model="small", input="a dog", dimensions=10)
    expected = unit_rows(small.encode(["a dog"])[:, :10])
    assert np.allclose(vectors_of(response), expected, atol=1e-7)
    assert response.headers["X-Isosent-Space"] != small.fingerprint
    full = post(client, model="small", input="a dog", dimensions=64)
    assert full.headers["X-Isosent-Space"] == small.fingerprint


@pytest.mark.parametrize(("dimensions", "word"), [(65, "64"), (0, "64"), (-1, "64")])
def test_dimensions_beyond_the_width_are_refused(client, dimensions, word):
    response = post(client, model="small", input="a dog", dimensions=dimensions)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "dimensions"
    assert word in response.json()["error"]["message"]


def test_dimensions_without_an_order_are_refused_with_the_reason(client):
    response = post(client, model="wordllama", input="a dog", dimensions=64)
    assert response.status_code == 400
    assert "no order" in response.json()["error"]["message"]


def test_token_ids_stand_for_their_text(client, wordllama):
    ids = wordllama.encoder.tokenize(["A man is riding a horse."]).ids.tolist()
    expected = vectors_of(post(client, model="wordllama", input="A man is riding a horse."))
    for given in (ids, [ids]):
        assert np.array_equal(vectors_of(post(client, model="wordllama", input=given)), expected)


@pytest.mark.parametrize("ids", [[32_000], [-1], [10**12], [9906, 1917, 0]])
def test_token_ids_of_another_vocabulary_are_refused(client, ids):
    response = post(client, model="wordllama", input=ids)
    assert response.status_code == 400
    assert "Send texts" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"input": []}, "empty"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": [["a"]]}, "input[0]"),
        ({"input": [1, "a"]}, "number"),
        ({"input": [None]}, "null"),
        ({"input": [[]]}, "another list"),
        ({"input": {"text": "a"}}, "object"),
        ({"input": "a", "dimensions": "many"}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "hex"),
        ({"input": "a", "input_type": "poem"}, "input_type"),
        ({}, "input"),
    ],
)
def test_wrong_bodies_get_400_with_the_reason(client, body, word):
    response = client.post("/v1/embeddings", json={"model": "small", **body})
    assert response.status_code == 400
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert word in error["message"]


def test_fields_of_a_newer_client_are_ignored_and_logged_once(client, logged):
    expected = vectors_of(post(client, model="small", input="a dog"))
    with logged(logging.WARNING) as records:
        for _ in range(2):
            response = post(client, model="small", input="a dog", field_of_2030={"a": [1]}, **{"a text of mine": 1})
            assert np.array_equal(vectors_of(response), expected)
    facts = [record.facts for record in records if "unknown field" in record.getMessage()]
    assert {"body": "EmbeddingsBody", "field": "field_of_2030"} in facts
    assert len(facts) == 2
    assert "mine" not in str(facts)  # which may be what somebody wrote


@pytest.mark.parametrize(
    "fields",
    [
        {f"f{number}": 1 for number in range(3000)},
        {"parameters": {f"f{number}": 1 for number in range(3000)}},
        {"a": {"b": {f"c{number}": {"d": 1} for number in range(150)}}},
        {"f" * 3000: 1},
    ],
)
def test_more_fields_than_a_client_has_are_refused(client, fields):
    response = client.post("/v1/embeddings", json={"model": "small", "input": "a dog", **fields})
    assert response.status_code == 400
    assert "field" in response.json()["error"]["message"]
    post(client, model="small", input="a dog", metadata={f"f{number}": 1 for number in range(3000)})


@pytest.mark.parametrize(
    "fields",
    [
        {"task": "retrieval.query"},
        {"task_type": "RETRIEVAL_QUERY"},
        {"taskType": "SEMANTIC_SIMILARITY"},
        {"text_type": "query"},
        {"instruction": "Represent the question"},
        {"instruct": "Find answers"},
        {"prompt": "query: "},
        {"late_chunking": True},
        {"normalize": False},
        {"normalized": False},
        {"normalize_embeddings": False},
        {"embedding_type": "int8"},
        {"embedding_types": ["float", "int8"]},
        {"output_dtype": "ubinary"},
        {"embed_dtype": "float16"},
        {"endianness": "big"},
        {"output_dimension": 8},
        {"outputDimensionality": 8},
        {"matryoshka_dim": 8},
        {"truncate_dim": 8},
        {"truncation": False},
        {"truncate_prompt_tokens": 5},
        {"truncation_side": "left"},
        {"max_tokens": 3},
        {"max_length": 3},
        {"add_special_tokens": False},
        {"pooling": "cls"},
        {"return_sparse": True},
        {"modality": "image"},
        {"extra_body": {"input_type": "query"}},
        {"messages": [{"role": "user", "content": "a"}]},
        {"disable_normalization": True},
        {"noTruncation": True},
        {"unit_norm": False},
        {"is_query": True},
        {"input-type": "query"},
        {"sentence_type": "query"},
        {"mode": "query"},
        {"engine": "wordllama"},
        {"model_name": "wordllama"},
        {"revision": "main"},
        {"embedding_size": 8},
        {"max_len": 3},
        {"binary": True},
        {"late_interaction": True},
    ],
    ids="-".join,
)
def test_a_field_that_would_change_vectors_elsewhere_is_refused(client, fields):
    [name] = fields
    response = post(client, model="small", input="a dog", **fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, name)
    assert name in response.json()["error"]["message"]
    refused = client.post("/embed", json={"model": "small", "inputs": "a dog", **fields})
    assert refused.status_code == (200 if name == "normalize" else 422)  # which that path has


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "me"},
        {"metadata": {"prompt": "a"}},
        {"priority": 3},
        {"request_id": "7"},
        {"prompt_cache_key": "a"},
        {"task": None},
        {"instruction": ""},
        {"late_chunking": False},
        {"normalize": True},
        {"normalized": True},
        {"embedding_type": "float"},
        {"embedding_types": ["float"]},
        {"output_dtype": "float"},
        {"embed_dtype": "float32"},
        {"endianness": "native"},
        {"output_dimension": None},
        {"truncate": True},
        {"truncate": "END"},
        {"truncation": True},
        {"truncate_prompt_tokens": -1},
        {"add_special_tokens": True},
        {"modality": "text"},
        {"options": {"wait_for_model": True}},
        {"parameters": {"normalize": True, "more": {"task": None}}},
        {"disable_normalization": False},
        {"no_truncation": False},
        {"is_query": False},
    ],
    ids="-".join,
)
def test_a_field_that_says_what_happens_anyway_is_accepted(client, small, fields):
    expected = unit_rows(small.encode(["a dog"])).astype(np.float32)
    np.testing.assert_array_equal(vectors_of(post(client, model="small", input="a dog", **fields)), expected)


@pytest.fixture(scope="module")
def prompted(running, tiny_model):
    """A client of a model with prompts, and the same model without."""
    folder = tiny_model("bert")
    model = isosent.load(f"hf:{folder}?query_prompt=find the &document_prompt=two red ")
    with (
        running(create_app({"prompted": model})) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False, timeout=60) as client,
    ):
        yield client, isosent.load(f"hf:{folder}")


@pytest.mark.parametrize(
    ("side", "prompt"),
    [
        (None, ""),
        ("text", ""),
        ("default", ""),
        ("query", "find the "),
        ("search_query", "find the "),
        ("document", "two red "),
        ("search_document", "two red "),
        ("passage", "two red "),
    ],
)
def test_a_request_gets_the_prompt_of_its_side(prompted, side, prompt):
    client, plain = prompted
    expected = unit_rows(plain.encode([prompt + text for text in ("dog", "A man rides.")]))
    for field in ("input_type", "prompt_name"):
        body = {"input": ["dog", "A man rides."], **({} if side is None else {field: side})}
        np.testing.assert_allclose(vectors_of(client.post("/v1/embeddings", json=body)), expected, atol=1e-6)
        body["inputs"] = body.pop("input")
        for path in ("/embed", "/"):
            response = client.post(path, json=body)
            if field == "input_type" and side not in (None, "text", "default"):  # which these paths do not have
                assert (response.status_code, "input_type" in response.text) == (422, True)
            else:
                np.testing.assert_allclose(response.json(), expected, atol=1e-6)


@pytest.mark.parametrize(
    "side", ["Query", "s2p_query", "query ", "classification", "", "question", ["query"], {"a": 1}]
)
def test_a_side_that_is_not_known_is_refused(prompted, side):
    client, _ = prompted
    for field in ("input_type", "prompt_name"):
        assert client.post("/v1/embeddings", json={"input": "dog", field: side}).status_code == 400
    assert client.post("/embed", json={"inputs": "dog", "prompt_name": side}).status_code == 422


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"parameters": {"normalize": False}}, "parameters.normalize"),
        ({"encode_kwargs": {"truncate_dim": 8}}, "encode_kwargs.truncate_dim"),
        ({"options": {"num_ctx": 5}}, "options.num_ctx"),
        ({"extra": {"more": {"task": "retrieval.query"}}}, "extra.more.task"),
    ],
)
def test_a_field_in_another_is_refused_as_well(client, fields, name):
    response = post(client, model="small", input="a dog", **fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, name)


def test_sides_that_contradict_each_other_are_refused(client):
    response = post(client, model="small", input="a dog", input_type="query", prompt_name="document")
    assert (response.status_code, "contradict" in response.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", ""),
        (b"{", "truncated"),
        (b"[1,", ""),
        (b"NaN", ""),
        (b"[" * 100_000, ""),
        (b'{"input": "\xff"}', "UTF-8"),
        (b'{"input": "\xed\xa0\x80"}', "UTF-8"),
        (b'{"input": "\\ud800"}', "one half of a surrogate pair"),
        (b'{"input": "\\ud83d and more"}', "one half of a surrogate pair"),
        (b'{"input": "\\udc00 and more"}', "one half of a surrogate pair"),
        (b'{"input": "\\ud83d\\ude00 \\\\ud83d", "model": }', "malformed"),  # a whole character, and a backslash
    ],
)
def test_malformed_json_gets_400(client, content, word):
    response = client.post("/v1/embeddings", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert word in response.json()["error"]["message"]


def test_a_body_that_is_no_json_gets_415(client):
    assert client.post("/v1/embeddings", content=b"input=a").status_code == 415


def test_too_many_texts_and_too_many_bytes_get_413_with_the_flag(client):
    many = post(client, model="small", input=["a"] * 301)
    large = post(client, model="small", input="a " * 110_000)
    assert (many.status_code, large.status_code) == (413, 413)
    assert "--max-texts" in many.json()["error"]["message"]
    assert "--max-body-bytes" in large.json()["error"]["message"]


def test_answers_name_their_space_and_refuse_another(client, small):
    response = post(client, model="small", input="a dog")
    assert response.headers["X-Isosent-Space"] == small.fingerprint
    assert response.headers["X-Isosent-Truncated"] == "0"
    same = {"If-Space": small.fingerprint}
    other = {"If-Space": "0" * 64}
    assert client.post("/v1/embeddings", json={"model": "small", "input": "a"}, headers=same).status_code == 200
    assert client.post("/v1/embeddings", json={"model": "small", "input": "a"}, headers=other).status_code == 409


def test_texts_of_a_group_get_its_map(running, wordllama):
    maps = GroupMaps("lang", "en", {"de": LinearMap(-np.eye(wordllama.dim), np.zeros(wordllama.dim))})
    model, texts = (
        SentenceEncoder(wordllama.encoder, Postprocessing((MapStep(groups=maps),))),
        ["A man rides a horse.", "Two dogs."],
    )
    index = Index.create(texts, model, metadata={"lang": ["en", "de"]})
    with (
        running(create_app({"mapped": model, "rows": index, "wordllama": wordllama})) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False, timeout=60) as client,
    ):
        expected = unit_rows(wordllama.encode(texts))
        np.testing.assert_array_equal(vectors_of(post(client, input=texts)), expected)
        np.testing.assert_array_equal(vectors_of(post(client, input=texts, group="de")), -expected)
        embedded = client.post("/embed", json={"inputs": texts, "group": "de"}).json()
        np.testing.assert_allclose(embedded, -expected, atol=1e-7)
        for body in ({"group": "fr"}, {"group": "de", "model": "wordllama"}):
            assert post(client, input=texts, **body).status_code == 422
        body = {"query": texts[1], "group": "de", "explain": True, "k": 1}
        [hit] = client.post("/search", json=body).json()["hits"]
        assert (hit["text"], round(hit["score"], 5)) == (texts[1], 1)
