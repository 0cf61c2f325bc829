"""Clients of Text Embeddings Inference: bodies, answers and status codes are those of its documentation."""

import ast
import logging
import shutil

import httpx
import numpy as np
import pytest
from huggingface_hub import InferenceClient

import isosent
from isosent.numeric.similarity import unit_rows
from isosent.search import Index
from isosent.server import Limits, create_app


def test_embed_takes_a_text_or_several(client, wordllama):
    expected = unit_rows(wordllama.encode(["a dog", "a cat"])).astype(np.float32)
    one = client.post("/embed", json={"inputs": "a dog", "model": "wordllama"}).json()
    two = client.post("/embed", json={"inputs": ["a dog", "a cat"], "model": "wordllama"}).json()
    assert np.array_equal(np.float32(one), expected[:1])
    assert np.array_equal(np.float32(two), expected)
    assert client.post("/", json={"inputs": "a dog", "model": "wordllama"}).json() == one


def test_without_normalize_the_vectors_keep_their_length(client, wordllama):
    body = {"inputs": "a dog", "normalize": False, "truncate": True, "truncation_direction": "Right"}
    answer = client.post("/embed", json=body | {"model": "wordllama"}).json()
    assert np.array_equal(np.float32(answer), wordllama.encode(["a dog"]))


def test_cut_vectors_keep_their_length_without_normalize(client, small):
    body = {"inputs": "a dog", "normalize": False, "dimensions": 5}
    assert np.array_equal(np.float32(client.post("/embed", json=body).json()), small.encode(["a dog"])[:, :5])


def test_embed_all_gives_a_vector_for_each_token(client, wordllama):
    [vectors] = client.post("/embed_all", json={"inputs": "a dog runs", "model": "wordllama"}).json()
    assert np.allclose(np.mean(vectors, axis=0), wordllama.encode("a dog runs"), atol=1e-6)


def test_similarity_is_the_cosine(client, wordllama):
    inputs = {"source_sentence": "a dog", "sentences": ["a puppy", "a car"]}
    answer = client.post("/similarity", json={"inputs": inputs, "model": "wordllama"}).json()
    assert np.allclose(answer, wordllama.similarity("a dog", ["a puppy", "a car"])[0], atol=1e-6)


def test_the_client_of_hugging_face_needs_a_url_and_nothing_else(client, small):
    texts = ["A man rides a horse.", "Eine Katze schläft. 🐈"]
    expected = unit_rows(small.encode(texts)).astype(np.float32)
    hub = InferenceClient(model=str(client.base_url), token="none")
    assert np.array_equal(np.float32(hub.feature_extraction(texts)), expected)
    assert np.allclose(hub.feature_extraction(texts[0]), expected[:1], atol=1e-6)
    cosines = hub.sentence_similarity(texts[0], other_sentences=[texts[1], texts[0]])
    assert np.allclose(cosines, [expected[0] @ expected[1], 1], atol=1e-6)


def test_the_root_takes_what_is_compared_too(client, logged):
    inputs = {"source_sentence": "a dog", "sentences": ["a puppy", "a car"]}
    named = {"model": "wordllama", "parameters": {"truncate": True, "later": 1}}
    with logged(logging.WARNING) as records:
        answer = client.post("/", json={"inputs": inputs, **named})
    assert [record.facts["field"] for record in records] == ["parameters.later"]
    assert answer.json() == client.post("/similarity", json={"inputs": inputs, **named}).json()
    assert client.post("/", json={"inputs": {"source_sentence": "a dog"}}).status_code == 422


def test_the_tokens_are_counted_in_the_header_of_text_embeddings_inference(client, wordllama):
    answer = client.post("/embed", json={"inputs": ["a dog", "two cats"], "model": "wordllama"})
    n_tokens = len(wordllama.encoder.tokenize(["a dog", "two cats"]).ids)
    assert answer.headers["X-Compute-Tokens"] == str(n_tokens)


def test_tokens_have_ids_and_places(client, wordllama):
    [tokens] = client.post("/tokenize", json={"inputs": "hello you", "model": "wordllama"}).json()
    assert [token["id"] for token in tokens] == wordllama.encoder.tokenize(["hello you"]).ids.tolist()
    assert [token["text"] for token in tokens] == ["hello", " you"]
    assert [(token["start"], token["stop"]) for token in tokens] == [(0, 5), (5, 9)]
    assert not any(token["special"] for token in tokens)


def test_info_names_every_limit_and_its_flag(client):
    info = client.get("/info").json()
    assert info["model_id"] == "small"
    assert info["max_client_batch_size"] == 300
    assert info["max_concurrent_requests"] == Limits().max_connections
    flags = {limit["flag"] for limit in info["limits"]}
    assert flags == {
        "--max-body-bytes",
        "--max-texts",
        "--max-batch-tokens",
        "--max-queued-tokens",
        "--max-connections",
        "--request-timeout",
    }


def test_health_says_nothing_but_200(client):
    response = client.get("/health")
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/embed", {"inputs": []}, 400),
        ("/embed", {"inputs": ""}, 400),
        ("/embed", {"inputs": 3}, 422),
        ("/embed", {"input": "a"}, 422),
        ("/embed", {"inputs": ["a"] * 301}, 413),
        ("/embed", {"inputs": "a", "prompt_name": "poem"}, 422),
        ("/embed", {"inputs": "a", "truncation_direction": "Left"}, 422),
        ("/embed", {"inputs": "a", "model": "large"}, 404),
        ("/embed_all", {"inputs": []}, 400),
        ("/embed_all", {"inputs": "a b c d " * 20_000}, 413),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, 400),
        ("/similarity", {"inputs": {"source_sentence": "", "sentences": ["a"]}}, 400),
        ("/similarity", {"inputs": "a"}, 422),
        ("/tokenize", {"inputs": []}, 400),
        ("/tokenize", {"inputs": [1]}, 422),
        ("/tokenize", {"inputs": "a", "prompt_name": "query"}, 422),
        ("/embed", {"inputs": "a", "input_type": "query"}, 422),
        ("/embed_all", {"inputs": "a", "prompt_name": "query"}, 422),
        ("/embed_all", {"inputs": "a", "dimensions": 3}, 422),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a"]}, "dimensions": 3}, 422),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a"]}, "parameters": {"task": "x"}}, 422),
        ("/", {"inputs": "a", "parameters": {"prompt_name": "query"}}, 422),
        ("/", {"inputs": "a", "parameters": {"truncate": False}}, 422),
        ("/", {"inputs": {"source_sentence": "a", "sentences": ["a"]}, "dimensions": 3}, 422),
        ("/", {"inputs": {"source_sentence": "a", "sentences": ["a"]}, "prompt_name": "query"}, 422),
    ],
)
def test_what_is_refused_has_a_message_and_a_type(client, path, body, status):
    response = client.post(path, json=body)
    assert response.status_code == status
    assert set(response.json()) == {"error", "error_type"}
    assert response.json()["error"]


def test_metrics_have_the_names_of_text_embeddings_inference(client):
    client.post("/embed", json={"inputs": "a"})
    lines = client.get("/metrics").text
    for name in (
        'te_request_count{method="/embed"}',
        'te_request_success{method="/embed"}',
        "te_request_duration_bucket",
        "te_batch_next_size_bucket",
        "te_batch_next_tokens_bucket",
        'te_queue_size{model="small"} 0.0',
        "te_request_queue_duration_bucket",
        'isosent_texts_total{model="small"}',
        "# TYPE te_request_count counter\n",
        "# TYPE te_request_success counter\n",
        "# TYPE te_request_failure counter\n",
        "# TYPE te_queue_size gauge\n",
    ):
        assert name in lines


def test_a_model_with_percentiles_gives_them_in_a_header_that_clients_ignore(running, client, small, texts):
    calibration = isosent.Calibration.from_random_pairs(small.encode(texts))
    inputs = {"source_sentence": "a dog", "sentences": ["a puppy", "a car", "a dog"]}
    with running(create_app({"m": small.with_calibration(calibration)})) as port:
        answer = httpx.post(f"http://127.0.0.1:{port}/similarity", json={"inputs": inputs}, trust_env=False)
        many = {"inputs": inputs | {"sentences": ["a car"] * 301}}
        longer = httpx.post(f"http://127.0.0.1:{port}/similarity", json=many, trust_env=False)
    percentiles = [float(share) for share in answer.headers["X-Isosent-Percentiles"].split(",")]
    assert np.allclose(percentiles, calibration(answer.json()), atol=1e-5)
    assert len(longer.json()) == 301
    plain = client.post("/similarity", json={"inputs": inputs, "model": "small"})
    assert np.allclose(plain.json(), answer.json(), atol=1e-6)
    for without in (longer, plain):
        assert "X-Isosent-Percentiles" not in without.headers


@pytest.fixture(scope="module")
def tiny_client(running, tiny_model, tmp_path_factory):
    """A client of a model of 40 tokens, in a folder that no response should name."""
    folder = tmp_path_factory.mktemp("a secret") / "mini"
    shutil.copytree(tiny_model("bert"), folder)
    model = isosent.load(f"hf:{folder}")
    with (
        running(create_app({"mini": model, "rows": Index.create(["a dog", "two cats"], model)})) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False, timeout=60) as client,
    ):
        yield client


LONG = "the dog " * 100


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": LONG, "truncate": False}),
        ("/embed_all", {"inputs": LONG, "truncate": False}),
        ("/v1/embeddings", {"input": LONG, "truncate": False}),
        ("/v1/embeddings", {"input": LONG, "truncate": "NONE"}),
        ("/", {"inputs": {"source_sentence": LONG, "sentences": ["a"]}, "parameters": {"truncate": False}}),
    ],
)
def test_texts_that_would_be_truncated_are_refused_on_request(tiny_client, path, body):
    assert tiny_client.post(path, json=body).status_code == 422
    text = str(body).replace(LONG, "the dog")
    assert tiny_client.post(path, json=ast.literal_eval(text)).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/embeddings", {"input": [10**6]}, 400),
        ("/v1/embeddings", {"input": [-1]}, 400),
        ("/v1/embeddings", {"input": [[5], [10**6]]}, 400),
        ("/embed", {"inputs": [10**6]}, 400),
        ("/embed_all", {"inputs": [10**6]}, 400),
        ("/v1/embeddings", {"input": "a", "dimensions": 3}, 400),
        ("/v1/embeddings", {"input": "a", "group": "fr"}, 422),
        ("/explain", {"a": "a dog", "b": "a cat"}, 422),
        ("/search", {"query": "a dog", "explain": True}, 422),
        ("/search", {"query": "a dog", "where": "year = 3"}, 422),
        ("/info", None, 200),
        ("/status", None, 200),
        ("/v1/models", None, 200),
        ("/metrics", None, 200),
    ],
)
def test_no_response_names_a_folder_of_the_server(tiny_client, path, body, status):
    response = tiny_client.get(path) if body is None else tiny_client.post(path, json=body)
    assert response.status_code == status
    assert "secret" not in response.text
    assert "hf:" not in response.text
