"""Search, explanations, and what every request passes: keys, hosts, origins, ids, logs."""

import logging
import re
from functools import partial

import httpx
import numpy as np
import pytest
from safetensors.numpy import load_file
from tampering import replace_part

import isosent
from isosent.search import Index, rows
from isosent.server import create_app

KEYS = ["the first key of this server", "another key of this server"]


def search(client, **body):
    return client.post("/search", json=body)


def test_search_finds_the_nearest_rows_with_their_columns(client, notes):
    hits = search(client, query="cutting vegetables", k=2).json()["hits"]
    assert hits[0]["id"] == "onion"
    assert hits[0]["rank"] == 1
    assert hits[0]["year"] == 2021
    assert hits[0]["text"] == "She slices an onion."
    assert hits[0]["score"] == pytest.approx(float(notes.search("cutting vegetables", 1).scores[0, 0]), abs=1e-6)


@pytest.mark.slow
def test_many_clients_search_an_index_of_which_nothing_was_read(running, together, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_GROUP_ROWS", 50)
    monkeypatch.setattr(rows, "_GROUPS_IN_MEMORY", 2)
    vectors = np.random.default_rng(0).standard_normal((2000, 8)).astype(np.float32)
    index = Index.create([f"text {row}" for row in range(2000)], vectors=vectors, folder=tmp_path / "index")
    expected = [index.more_like([row], 40).to_arrow().drop(["query"]).to_pylist() for row in range(35)]
    with running(create_app({"index": Index.open(tmp_path / "index")})) as port:

        def hits(row):
            body = {"like": row, "k": 40}
            return httpx.post(f"http://127.0.0.1:{port}/search", json=body, trust_env=False, timeout=60).json()["hits"]

        assert all(together(lambda row: hits(row) == expected[row], n_rounds=3, n_threads=32))


def test_search_takes_filters_words_and_rows(client):
    assert [hit["id"] for hit in search(client, query="animals", where="year < 2020").json()["hits"]] == ["horse"]
    assert len(search(client, query="animals", hybrid=True, k=3).json()["hits"]) == 3
    like = search(client, like="horse", k=2).json()["hits"]
    assert "horse" not in [hit["id"] for hit in like]
    explained = search(client, query="a horse", k=1, explain=True).json()["hits"][0]
    assert explained["words"][0]["b"] == "horse"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": "a", "like": "horse"},
        {"query": " "},
        {"query": "a", "k": 0},
        {"query": "a", "k": 100_000},
        {"query": "a", "where": "colour = 3"},
        {"query": "a", "where": "("},
        {"query": "a", "false_positives": 2.0},
        {"like": 3},
        {"like": "nobody"},
        {"like": "horse", "hybrid": True},
        {"query": "a", "k": 500, "explain": True},
        {"query": "a", "index": "other"},
        {"query": "a", "filter": "year < 2020"},  # a misspelled condition would find what it hides
    ],
)
def test_searches_that_mean_nothing_are_refused(client, body):
    response = search(client, **body)
    assert response.status_code in (404, 422)
    assert response.json()["error"]["message"]


def test_explanations_add_up_to_the_cosine(client):
    answer = client.post("/explain", json={"a": "a dog runs", "b": "the puppy ran", "model": "wordllama"}).json()
    assert sum(pair["contribution"] for pair in answer["pairs"]) == pytest.approx(answer["cosine"])


def test_unknown_paths_and_methods_are_refused_in_json(client):
    assert client.get("/nowhere").status_code == 404
    assert client.get("/v1/embeddings").status_code == 405
    assert client.get("/nowhere").json()["error"]["message"]


def test_every_answer_has_a_request_id_and_guards_against_browsers(client):
    named = client.get("/health", headers={"X-Request-ID": "mine-1"})
    assert named.headers["X-Request-ID"] == "mine-1"
    made = client.get("/health", headers={"X-Request-ID": "a b\tc"})
    assert re.fullmatch(r"[0-9a-f]{16}", made.headers["X-Request-ID"])
    assert "default-src 'self'" in made.headers["Content-Security-Policy"]
    assert made.headers["X-Content-Type-Options"] == "nosniff"
    assert "set-cookie" not in made.headers


def test_pages_of_other_sites_may_not_ask(client):
    foreign = client.post("/embed", json={"inputs": "a"}, headers={"Origin": "https://example.com"})
    own = client.post("/embed", json={"inputs": "a"}, headers={"Origin": f"http://{client.base_url.netloc.decode()}"})
    assert (foreign.status_code, own.status_code) == (403, 200)
    for origin in ("http://[", "null", ""):
        assert client.post("/embed", json={"inputs": "a"}, headers={"Origin": origin}).status_code == 403


@pytest.fixture(scope="module")
def guarded(wordllama, running):
    with running(create_app({"wordllama": wordllama}, keys=KEYS, hosts=["127.0.0.1"])) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Basic {KEYS[0]}"}, 401),
        ({"Authorization": f"Bearer {KEYS[0]}"}, 200),
        ({"Authorization": f"bearer {KEYS[1]}"}, 200),
        ({"api-key": KEYS[1]}, 200),
        ({"Authorization": f"Bearer {KEYS[0]}", "Host": "evil.example"}, 421),
        ({"Authorization": f"Bearer {KEYS[0]}", "Host": "["}, 421),
    ],
)
def test_a_key_is_needed_where_there_are_keys(guarded, headers, status):
    response = httpx.post(f"{guarded}/embed", json={"inputs": "a"}, headers=headers, trust_env=False)
    assert response.status_code == status
    assert not any(key in response.text for key in KEYS)


def test_health_needs_no_key_and_metrics_do(guarded):
    for path, status in (("/health", 200), ("/ready", 200), ("/openapi.json", 200), ("/metrics", 401), ("/info", 401)):
        assert httpx.get(f"{guarded}{path}", trust_env=False).status_code == status


def test_a_reload_needs_keys(client, guarded):
    assert client.post("/admin/reload").status_code == 403
    assert httpx.post(f"{guarded}/admin/reload", trust_env=False).status_code == 401
    answer = httpx.post(f"{guarded}/admin/reload", headers={"Authorization": f"Bearer {KEYS[0]}"}, trust_env=False)
    assert answer.json() == {"reloaded": ["wordllama"], "failed": []}
    after = httpx.post(f"{guarded}/embed", json={"inputs": "a"}, headers={"api-key": KEYS[0]}, trust_env=False)
    assert after.status_code == 200


def test_logs_hold_no_texts_and_no_keys(client, guarded, logged):
    secret = "confidential words of a client"
    with logged(logging.INFO) as records:
        client.post("/embed", json={"inputs": secret})
        client.get(f"/{secret}")
        client.post("/embed", json={"inputs": [secret, 3]})
        httpx.post(f"{guarded}/embed", json={"inputs": secret}, headers={"api-key": KEYS[0]}, trust_env=False)
    said = " ".join(f"{record.getMessage()} {getattr(record, 'facts', '')}" for record in records)
    assert "request" in said
    assert "confidential" not in said
    assert KEYS[0] not in said


def test_compressed_bodies_are_refused(client):
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert client.post("/embed", content=b"\x1f\x8b", headers=headers).status_code == 415


def test_the_names_of_clients_are_no_metrics(client):
    client.get("/v1/models/made-up-by-a-client")
    assert "made-up" not in client.get("/metrics").text


def test_every_path_is_described(client):
    document = client.get("/openapi.json").json()
    assert {"/v1/embeddings", "/embed", "/search", "/ready"} <= set(document["paths"])
    schema = document["components"]["schemas"]["EmbeddingsBody"]
    assert schema["required"] == ["input"]
    assert schema["properties"]["input"]["anyOf"]
    compared = document["components"]["schemas"]["RootBody"]["properties"]["inputs"]["anyOf"]
    assert {"$ref": "#/components/schemas/SimilarityInputs"} in compared
    assert "source_sentence" in document["components"]["schemas"]["SimilarityInputs"]["properties"]


def test_a_model_that_has_changed_is_not_ready(running, wordllama, tmp_path, wait_until, logged):
    wordllama.save(tmp_path / "model")

    def ready_and_cosine(folder):
        with logged(logging.WARNING) as records, running(create_app({"m": partial(isosent.load, folder)})) as port:
            url = f"http://127.0.0.1:{port}"

            def is_logged():
                return any("has changed" in record.getMessage() for record in records)

            def cosine():
                metrics = httpx.get(f"{url}/metrics", trust_env=False).text
                found = re.search(r'isosent_canary_cosine\{model="m"\} (\S+)', metrics)
                return None if found is None else float(found[1])

            wait_until(lambda: cosine() is not None)
            wait_until(lambda: is_logged() or cosine() > 0.999)
            return httpx.get(f"{url}/ready", trust_env=False), cosine()

    answer, cosine = ready_and_cosine(tmp_path / "model")
    assert (answer.status_code, cosine) == (200, pytest.approx(1, abs=1e-4))
    [path] = (tmp_path / "model").glob("canary-*")
    replace_part(tmp_path / "model", "canary", {"documents": np.roll(load_file(path)["documents"], 1, axis=1)})
    answer, cosine = ready_and_cosine(tmp_path / "model")
    assert answer.status_code == 503
    assert "changed" in answer.json()["status"]
    assert cosine < 0.9


@pytest.mark.parametrize("slash", ["/", "//"])
def test_a_slash_at_the_end_changes_nothing(client, slash):
    body = {"model": "small", "input": "a dog"}
    plain, other = (client.post(f"/v1/embeddings{end}", json=body) for end in ("", slash))
    assert (other.status_code, other.json()["data"]) == (200, plain.json()["data"])
    assert client.get(f"/v1/models/small{slash}").json()["id"] == "small"
    assert client.get(f"/v1/models{slash}", headers={"X-Forwarded-Proto": "https"}).status_code == 200
    assert client.post(f"/embed{slash}", json={"inputs": ""}).json()["error_type"] == "Validation"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/embeddings", "/v1/embeddings"),
        ("/v1/v1/embeddings", "/v1/embeddings"),
        ("//v1/embeddings", "/v1/embeddings"),
        ("/api/v1/embeddings", "/v1/embeddings"),
        ("/openai/deployments/x/embeddings", "/v1/embeddings"),
        ("/v1/embedding", "/v1/embeddings"),
        ("/v1", "/v1/embeddings"),
        ("/nothing/like/it", "/v1/embeddings"),
        ("/models", "/v1/models"),
        ("/models/small", "/v1/models"),
        ("/v1/embed", "/embed"),
        ("/v1/search", "/search"),
        ("/v1/info", "/info"),
    ],
)
def test_a_path_that_is_not_there_leads_to_the_one_that_was_meant(client, path, meant):
    response = client.post(f"{client.base_url}{path}", json={"input": "a dog"})
    assert response.status_code == 404
    assert f"Use {meant}" in response.json()["error"]["message"]


def test_another_method_is_named(client):
    response = client.get("/v1/embeddings")
    assert (response.status_code, "POST" in response.json()["error"]["message"]) == (405, True)
