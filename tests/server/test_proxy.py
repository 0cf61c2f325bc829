"""The proxy: every dialect, and upstreams that misbehave."""

import asyncio
import base64
import json
import logging
import re
import socket
import sqlite3

import httpx
import numpy as np
import openai
import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tampering import replace_part

import isosent
from isosent.api import client as api_client
from isosent.api.cache import VectorCache
from isosent.api.client import Upstream
from isosent.api.dialects import DIALECTS, dialect_of
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import FileFormatError, InputError
from isosent.jobs.moments import read_moments
from isosent.model import SentenceEncoder
from isosent.numeric.canary import FIXED_TEXTS
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows
from isosent.postprocessing import Postprocessing
from isosent.server.fields import role_of
from isosent.server.limits import Limits
from isosent.server.maps import Learner, Maps
from isosent.server.proxy import Fetches, Proxy, create_proxy
from isosent.transforms.maps import GroupMaps, MapStep

DIM = 12
CALLER = {"Authorization": "Bearer the key of a caller"}


def vector_of(item, dim=DIM):
    seed = int.from_bytes(repr(item).encode()[-8:], "little")
    return np.random.default_rng([seed, len(repr(item))]).standard_normal(dim).astype(np.float32)


class FakeUpstream:
    """An API that keeps what it was asked, and misbehaves as it is told."""

    def __init__(self):
        self.requests, self.misbehave = [], None

    @property
    def texts(self):
        return [item for _, body in self.requests for item in body.get("input") or body.get("inputs") or body["texts"]]

    async def answer(self, request):
        body = json.loads(await request.body())
        self.requests.append((request, body))
        if self.misbehave is not None:
            answer = self.misbehave(len(self.requests))
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer is not None:
                return answer
        path = request.url.path
        if path == "/v2/embed":
            rows = [vector_of(item).tolist() for item in body["texts"]]
            return JSONResponse({"embeddings": {"float": rows}, "meta": {"billed_units": {"input_tokens": 7}}})
        if path == "/embed":
            rows = [vector_of(item).tolist() for item in body["inputs"]]
            return JSONResponse(rows, headers={"x-compute-tokens": "7"})
        if path.endswith(":batchEmbedContents"):
            texts = [request["content"]["parts"][0]["text"] for request in body["requests"]]
            return JSONResponse({"embeddings": [{"values": vector_of(text).tolist()} for text in texts]})
        if path == "/api/embed":
            rows = [vector_of(item).tolist() for item in body["input"]]
            return JSONResponse({"embeddings": rows, "prompt_eval_count": 7})
        if "encoding_format" not in body:  # Jina
            rows = [vector_of(item).tolist() for item in body["input"]]
            data = [{"index": n, "embedding": row} for n, row in enumerate(rows)]
            return JSONResponse({"data": data, "usage": {"total_tokens": 7}})
        assert body["encoding_format"] == "base64"
        assert "dimensions" not in body
        rows = [base64.b64encode(vector_of(item).tobytes()).decode() for item in body["input"]]
        data = [{"index": number, "embedding": row} for number, row in enumerate(rows)]
        answer = {"data": data[::-1], "usage": {"prompt_tokens": 7}}
        return JSONResponse(answer, headers={"x-ratelimit-remaining-tokens": "42"})


@pytest.fixture(scope="module")
def fake():
    return FakeUpstream()


@pytest.fixture(scope="module")
def upstream_url(running, fake):
    with running(Starlette(routes=[Route("/{path:path}", fake.answer, methods=["POST"])])) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def rows():
    return np.array([vector_of(f"text {number}") for number in range(400)])


@pytest.fixture
def folder(rows, tmp_path):
    model = SentenceEncoder(PrecomputedVectors(DIM, {"space": "big-model"}))
    model.fitted_on_vectors(rows, isosent.Whitening(n_components=6)).save(tmp_path / "small")
    return tmp_path / "small"


PATHS = {"openai": "/v1", "azure": "/openai/deployments/d/embeddings?api-version=1"}


@pytest.fixture
def make(upstream_url, fake, running, folder, monkeypatch):
    """Start a proxy of a dialect; gives a client of it."""
    monkeypatch.setattr(api_client, "_FIRST_WAIT_S", 0.001)
    fake.requests.clear()
    fake.misbehave = None
    opened = []

    def make(dialect="openai", *, key=None, keys=(), folders=None, timeout_s=20, url=upstream_url, **more):
        connection = Upstream(
            url + PATHS.get(dialect, ""),
            DIALECTS[dialect],
            "big-model",
            httpx.AsyncClient(trust_env=False, verify=False),
            key=key,
            timeout_s=timeout_s,
        )
        maps = Maps({"small": folder} if folders is None else folders)
        proxy = Proxy(connection, maps, limits=Limits(max_texts=300), has_keys=bool(keys), **more)
        proxy.canary.watch = lambda: asyncio.sleep(3600)
        context = running(create_proxy(proxy, keys=keys))
        port = context.__enter__()
        opened.append(context)
        client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False, headers=CALLER, timeout=30
        )
        opened.append(client)
        client.__enter__()
        client.proxy = proxy
        return client

    yield make
    for context in reversed(opened):
        context.__exit__(None, None, None)


def ask(client, texts=("a dog", "a cat"), **body):
    return client.post("/v1/embeddings", json={"input": list(texts), **body})


def expected_vectors(folder, texts):
    model = isosent.load(folder)
    return unit_rows(model.transform(np.array([vector_of(text) for text in texts]))).astype(np.float32)


def vectors_of(response):
    assert response.status_code == 200, response.text
    return np.array([row["embedding"] for row in response.json()["data"]], dtype=np.float32)


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_every_dialect_gives_the_vectors_of_the_map(make, fake, folder, dialect):
    client = make(dialect)
    response = ask(client)
    assert np.allclose(vectors_of(response), expected_vectors(folder, ["a dog", "a cat"]), atol=1e-6)
    assert response.headers["X-Isosent-Space"] == isosent.load(folder).fingerprint
    assert response.json()["usage"]["prompt_tokens"] == (0 if dialect == "gemini" else 7)  # which does not say
    [(request, _)] = fake.requests
    assert request.headers["authorization"] == CALLER["Authorization"]


def test_the_openai_client_needs_no_change(make, folder):
    client = make()
    with openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="sk", max_retries=0) as sdk:
        answer = sdk.embeddings.create(model="small", input=["a dog"], dimensions=3)
        expected = unit_rows(expected_vectors(folder, ["a dog"])[:, :3])
        assert np.allclose(answer.data[0].embedding, expected[0], atol=1e-6)
        assert [model.id for model in sdk.models.list()] == ["small"]
        assert sdk.models.retrieve("small").dimensions == 6
        with pytest.raises(openai.NotFoundError, match="small"):
            sdk.models.retrieve("large")


def test_the_key_of_the_proxy_is_sent_and_that_of_the_client_is_not(make, fake):
    client = make("azure", key="the-key-of-the-upstream", keys=["the-key-of-a-client"])
    assert ask(client).status_code == 401
    answer = client.post("/v1/embeddings", json={"input": "a"}, headers={"Authorization": "Bearer the-key-of-a-client"})
    assert answer.status_code == 200
    request = fake.requests[-1][0]
    assert request.headers["api-key"] == "the-key-of-the-upstream"
    assert "authorization" not in request.headers


def test_rate_limits_are_passed_on(make):
    assert ask(make()).headers["x-ratelimit-remaining-tokens"] == "42"


def test_token_ids_are_passed_on_where_the_upstream_takes_them(make, fake):
    assert ask(make(), [[1, 2, 3]]).status_code == 200
    assert fake.texts == [[1, 2, 3]]
    refused = ask(make("cohere"), [[1, 2, 3]])
    assert refused.status_code == 400
    assert "token ids" in refused.json()["error"]["message"]


def test_queries_of_cohere_are_queries(make, fake):
    client = make("cohere")
    ask(client, ["a"], input_type="search_query")
    ask(client, ["a"])
    assert [body["input_type"] for _, body in fake.requests] == ["search_query", "search_document"]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"input": []}, 400, "empty"),
        ({"input": [""]}, 400, "empty"),
        ({"input": [-1]}, 400, "token ids"),
        ({"input": ["a"] * 301}, 413, "--max-texts"),
        ({"input": "a", "model": "other"}, 404, "small"),
        ({"input": "a", "dimensions": 7}, 400, "6"),
    ],
)
def test_wrong_requests_never_reach_the_upstream(make, fake, body, status, word):
    response = make().post("/v1/embeddings", json=body)
    assert response.status_code == status
    assert word in response.json()["error"]["message"]
    assert fake.requests == []


def test_another_space_is_refused(make):
    response = make().post("/v1/embeddings", json={"input": "a"}, headers={"If-Space": "0" * 64})
    assert response.status_code == 409


def data_of(rows):
    return JSONResponse({"data": [{"index": number, "embedding": row} for number, row in enumerate(rows)]})


NAN = [float("nan")] * DIM
MISBEHAVIOR = {
    "another width": (lambda n: data_of([[1.0] * 5] * 2), 502, "5 dimensions"),
    "ragged": (lambda n: data_of([[1.0] * 5, [1.0] * 6]), 502, "cannot be read"),
    "NaN": (lambda n: Response(json.dumps({"data": [{"index": 0, "embedding": NAN}] * 1})), 502, "cannot be read"),
    "NaN in base64": (
        lambda n: data_of([base64.b64encode(np.float32(NAN).tobytes()).decode()] * 2),
        502,
        "NaN",
    ),
    "too few": (lambda n: data_of([[1.0] * DIM]), 502, "1 vectors for 2 texts"),
    "wrong numbers": (
        lambda n: JSONResponse({"data": [{"index": 1, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]}),
        502,
        "cannot be read",
    ),
    "zeros": (lambda n: data_of([[1.0] * DIM, [0.0] * DIM]), 502, "zeros for 1 of 2 texts"),
    "no JSON": (lambda n: Response("<html>"), 502, "cannot be read"),
    "a list": (lambda n: JSONResponse([1, 2]), 502, "cannot be read"),
    "bad base64": (lambda n: data_of(["!!!", "!!!"]), 502, "cannot be read"),
    "a redirect": (lambda n: Response(status_code=307, headers={"Location": "http://127.0.0.1:1/"}), 502, "307"),
    "broken": (lambda n: Response(status_code=500), 502, "500"),
    "unauthorized": (
        lambda n: JSONResponse({"error": {"message": "no such key", "code": "invalid_api_key"}}, 401),
        401,
        "no such key",
    ),
    "bad request": (lambda n: JSONResponse({"message": "too long"}, 400), 400, "too long"),
    "later": (
        lambda n: JSONResponse({"error": {"message": "slow down"}}, 429, headers={"Retry-After": "77"}),
        429,
        "slow down",
    ),
}


CAUSES = {"ragged": "ValueError", "no JSON": "DecodeError", "a list": "TypeError", "bad base64": "Error"}


@pytest.mark.parametrize("name", list(MISBEHAVIOR))
def test_an_upstream_that_misbehaves_gives_one_sentence(make, fake, name, logged):
    fake.misbehave, status, word = MISBEHAVIOR[name]
    with logged(logging.WARNING) as records:
        response = ask(make())
    assert response.status_code == status
    assert word in response.json()["error"]["message"]
    assert response.headers.get("Retry-After") == ("77" if name == "later" else None)
    failures = [record.facts for record in records if record.getMessage() == "upstream failed"]
    assert [facts["status"] for facts in failures] == ([502] if status == 502 else [])
    for facts in failures:
        assert word in facts["reason"]
        assert facts.get("cause") == CAUSES.get(name, facts.get("cause"))
        assert facts.get("cause") not in ("ExceptionGroup", "RequestError")


def test_blank_texts_may_have_a_vector_of_zeros(make, fake, tmp_path):
    fake.misbehave = lambda n: data_of([[0.0] * DIM, [1.0] * DIM])
    assert vectors_of(ask(make(folders={}, cache=VectorCache(tmp_path / "cache", max_bytes=10**6)), [" ", "a"])).any()


def test_zeros_that_an_older_version_kept_are_asked_for_again(make, fake, tmp_path):
    cache = VectorCache(tmp_path / "cache", max_bytes=10**6)
    client = make(cache=cache)
    keys = [client.proxy.fetches.key("a dog", "text", {"authorization": CALLER["Authorization"]})]
    cache.put({keys[0]: np.zeros(DIM, np.float32)})
    assert vectors_of(ask(client, ["a dog"])).any()
    assert fake.texts == ["a dog"]


def test_an_upstream_that_is_down_or_slow_gives_502_or_504(make, fake, logged):
    with logged(logging.WARNING) as records:
        assert ask(make(url="http://127.0.0.1:1")).status_code == 502
    [facts] = [record.facts for record in records if record.getMessage() == "upstream failed"]
    assert facts == {"status": 502, "reason": "the upstream cannot be reached.", "cause": "ConnectionRefusedError"}

    async def sleep():
        await asyncio.sleep(5)

    fake.misbehave = lambda n: sleep()
    response = ask(make(timeout_s=0.2))
    assert response.status_code == 504
    assert "--upstream-timeout" in response.json()["error"]["message"]


def test_the_proxy_is_ready_while_the_upstream_can_be_reached(make, fake, running, monkeypatch):
    client = make()
    assert client.get("/ready").status_code == 200  # nothing is known yet: it is asked without a text
    assert fake.requests == []
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client.proxy.upstream.url = f"http://127.0.0.1:{port}/v1"
    assert client.get("/ready").status_code == 200  # what was known a moment ago
    assert ask(client).status_code == 502
    refused = client.get("/ready")
    assert (refused.status_code, refused.json()) == (503, {"status": "the upstream cannot be reached"})
    monkeypatch.setattr(api_client, "_KNOWN_FOR_S", 0)
    assert client.get("/ready").status_code == 503  # without a request in between
    client.proxy.upstream.url = make().proxy.upstream.url
    assert client.get("/ready").status_code == 200
    fake.misbehave = lambda n: Response(status_code=500)  # of one text
    assert ask(client).status_code == 502
    assert client.get("/ready").status_code == 200
    monkeypatch.setattr(api_client, "_KNOWN_FOR_S", 60)
    fake.misbehave = lambda n: Response(status_code=503)
    assert ask(client).status_code == 502
    assert client.get("/ready").status_code == 503
    fake.misbehave = None
    assert ask(client).status_code == 200
    assert client.get("/ready").status_code == 200


def test_a_single_failure_does_not_make_the_proxy_unready(make, fake):
    client = make()
    fake.misbehave = lambda n: Response(status_code=503, headers={"Retry-After": "60"})  # so it is not asked again
    for _ in range(2):
        assert ask(client).status_code == 502
        assert client.get("/ready").status_code == 200  # the API answers a question without a text
    assert ask(client).status_code == 502
    assert client.get("/ready").status_code == 503  # the third in a row
    fake.misbehave = None
    assert ask(client).status_code == 200
    assert client.get("/ready").status_code == 200
    fake.misbehave = lambda n: Response(status_code=503, headers={"Retry-After": "60"})
    assert ask(client).status_code == 502
    assert client.get("/ready").status_code == 200


def test_failures_at_the_same_time_count_as_one(make, fake):
    async def fail_together():
        await asyncio.sleep(0.3)
        return Response(status_code=503, headers={"Retry-After": "60"})

    client = make()
    fake.misbehave = lambda n: fail_together()

    async def at_once():
        async with httpx.AsyncClient(trust_env=False, verify=False, headers=CALLER) as other:
            url = f"{client.base_url}/v1/embeddings"
            return await asyncio.gather(*[other.post(url, json={"input": [f"text {n}"]}) for n in range(5)])

    assert [answer.status_code for answer in asyncio.run(at_once())] == [502] * 5
    assert len(fake.requests) == 5
    assert client.get("/ready").status_code == 200


def test_what_fails_for_a_moment_is_asked_again(make, fake, folder):
    fake.misbehave = lambda n: Response(status_code=503, headers={"Retry-After": "0"}) if n < 3 else None
    assert np.allclose(vectors_of(ask(make(), ["a"])), expected_vectors(folder, ["a"]), atol=1e-6)
    assert len(fake.requests) == 3


def test_the_key_of_the_proxy_is_not_blamed_on_the_client(make, fake):
    fake.misbehave = lambda n: JSONResponse({"error": {"message": "wrong key sk-123"}}, 401)
    response = ask(make(key="sk-123"))
    assert response.status_code == 502
    assert "sk-123" not in response.text


def test_equal_texts_are_asked_once(make, fake):
    async def slowly():
        await asyncio.sleep(0.3)

    client = make()
    assert vectors_of(ask(client, ["a", "a", "b"])).shape == (3, 6)
    assert fake.texts == ["a", "b"]
    fake.requests.clear()

    async def at_once():
        async with httpx.AsyncClient(trust_env=False, verify=False) as http:
            before = client.proxy.upstream
            fetches = Fetches(Upstream(before.url, before.dialect, before.model, http), None, None, CollectorRegistry())
            return await asyncio.gather(*[fetches.vectors(["at once"], "text", {}) for _ in range(4)])

    assert len({answer.vectors.tobytes() for answer in asyncio.run(at_once())}) == 1
    assert fake.texts == ["at once"]
    fake.requests.clear()
    fake.misbehave = lambda n: slowly()

    async def both():
        async with httpx.AsyncClient(trust_env=False, verify=False, headers=CALLER) as other:
            body = {"input": ["c"]}
            return await asyncio.gather(*[other.post(f"{client.base_url}/v1/embeddings", json=body) for _ in range(5)])

    answers = asyncio.run(both())
    assert fake.texts == ["c"]
    assert len({answer.text for answer in answers}) <= 2  # only the tokens that were paid for differ


def test_the_cache_makes_a_new_map_free(make, fake, folder, tmp_path):
    cache = VectorCache(tmp_path / "cache", max_bytes=10**6)
    first = ask(make(cache=cache), ["a", "b"])
    fake.requests.clear()
    again = VectorCache(tmp_path / "cache", max_bytes=10**6)
    second = ask(make(cache=again), ["b", "a"])
    assert fake.requests == []
    assert np.array_equal(vectors_of(first), vectors_of(second)[::-1])
    assert second.json()["usage"]["prompt_tokens"] == 0
    other = make(cache=VectorCache(tmp_path / "cache", max_bytes=10**6))
    other.headers["Authorization"] = "Bearer another caller"
    ask(other, ["a"])
    assert fake.texts == ["a"]  # what one caller has paid for is not given to another
    for file in tmp_path.glob("cache*"):
        content = file.read_bytes()
        assert b"key of a caller" not in content


def test_the_cache_stays_small_and_forgets_what_was_not_used(tmp_path):
    cache = VectorCache(tmp_path / "cache", max_bytes=400_000)
    rows = {number.to_bytes(32, "big"): np.full(256, number, np.float32) for number in range(1000)}
    keys = list(rows)
    for start in range(0, 1000, 20):
        cache.put({key: rows[key] for key in keys[start : start + 20]})
        assert keys[0] in cache.get(keys[:1])
    found = cache.get(keys)
    assert keys[0] in found
    assert keys[-1] in found
    assert keys[1] not in found
    assert len(found) < 400
    cache.close()


def test_a_file_that_is_no_cache_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"not a database" * 100)
    with pytest.raises(FileFormatError, match="cache"):
        VectorCache(tmp_path / "file", max_bytes=10**6)


def test_moments_are_those_of_the_distinct_texts(make, tmp_path, fake):
    path = tmp_path / "seen.safetensors"
    client = make(folders={}, learner=Learner(path, "big-model"))
    texts = [f"text {number}" for number in range(300)]
    for start in range(0, 300, 100):
        vectors = vectors_of(ask(client, texts[start : start + 100]))
        assert np.array_equal(vectors[0], vector_of(texts[start]))  # passed on as they are
    ask(client, texts[:50])  # counted already
    (tmp_path / "fetched.safetensors").write_bytes(client.get("/moments").content)
    measured = read_moments(tmp_path / "fetched.safetensors")
    exact = Moments.from_rows(np.array([vector_of(text) for text in texts]))
    assert measured.moments.weight == 300
    assert np.allclose(measured.moments.covariance, exact.covariance)
    assert measured.space == PrecomputedVectors(DIM, {"space": "big-model"}).space
    assert b"text 1" not in (tmp_path / "fetched.safetensors").read_bytes()
    asyncio.run(client.proxy.learner.try_to_save())
    more = Learner(path, "big-model")  # goes on where it was
    more.add([b"new", b"new"], np.array([vector_of("new")] * 2))
    more.save()
    assert read_moments(path).moments.weight == 301


def test_moments_of_another_model_are_refused(tmp_path):
    learner = Learner(tmp_path / "seen.safetensors", "big-model")
    learner.add([b"one", b"two"], np.eye(2, dtype=np.float32))
    learner.save()
    with pytest.raises(InputError, match="other-model"):
        Learner(tmp_path / "seen.safetensors", "other-model")


def test_vectors_that_pass_are_those_of_the_model_that_was_named(make, tmp_path):
    client = make(folders={}, learner=Learner(tmp_path / "seen.safetensors", "big-model"))
    assert ask(client, model="big-model").status_code == 200
    assert ask(client, model="other-model").status_code == 404
    assert ask(client, dimensions=3).status_code == 400  # nobody knows whether they have an order
    refused = client.post("/v1/embeddings", json={"input": "a"}, headers={"If-Space": "0" * 64})
    assert refused.status_code == 409


def test_a_cache_that_another_process_writes_to_is_still_read(tmp_path):
    cache = VectorCache(tmp_path / "cache", max_bytes=10**6)
    cache.put({b"key": np.ones(3, np.float32)})
    other = sqlite3.connect(tmp_path / "cache", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        assert list(cache.get([b"key"])) == [b"key"]
    finally:
        other.execute("ROLLBACK")
        other.close()
        cache.close()
        cache.close()


def test_vectors_of_another_task_are_not_learned_from(make, fake, tmp_path):
    learner = Learner(tmp_path / "seen.safetensors", "big-model")
    client = make(folders={}, learner=learner)
    for start, fields in ((0, {"task": "classification"}), (5, {"task": "text-matching"}), (10, {})):
        body = {"model": "big-model", "input": [f"text {number}" for number in range(start, start + 5)], **fields}
        assert client.post("/v1/embeddings", json=body).status_code == 200
    learner.save()
    moments = read_moments(tmp_path / "seen.safetensors").moments
    assert moments.weight == 5
    np.testing.assert_allclose(moments.mean, np.mean([vector_of(f"text {n}") for n in range(5)], axis=0), atol=1e-6)


@pytest.mark.parametrize(("task", "role"), [("QUESTION_ANSWERING", "query"), ("FACT_VERIFICATION", "query")])
def test_tasks_of_gemini_that_are_queries(task, role):
    assert role_of(task) == role_of("RETRIEVAL_QUERY") == role
    assert role_of("CLASSIFICATION") == "text"


def test_vectors_of_other_numbers_in_base64_are_refused(make, fake):
    client = make(folders={})
    for number_type in ("float64", "float16", "int8"):
        row = base64.b64encode((100 * vector_of("a dog")).astype(number_type).tobytes()).decode()
        fake.misbehave = lambda _, row=row: JSONResponse({"data": [{"index": 0, "embedding": row}]})
        response = client.post("/v1/embeddings", json={"model": "big-model", "input": "a dog"})
        assert response.status_code == 502, number_type


def test_without_learn_there_are_no_moments(make):
    assert make().get("/moments").status_code == 404


def test_canary_texts_show_that_the_upstream_has_changed(make, fake, folder, logged):
    client = make()
    asyncio.run(rechecked(client.proxy))
    assert isosent.load(folder).canary.documents.shape == (len(FIXED_TEXTS), DIM)
    assert isosent.load(folder).fingerprint == client.proxy.maps["small"].fingerprint
    asyncio.run(rechecked(client.proxy))
    assert client.get("/ready").status_code == 200
    rows = [np.roll(vector_of(text), 1).tolist() for text in FIXED_TEXTS]
    fake.misbehave = lambda n: data_of(rows)
    with logged(logging.ERROR) as records:
        asyncio.run(rechecked(client.proxy))
    assert client.get("/ready").status_code == 503
    assert any("changed" in record.getMessage() for record in records)
    lowest = re.search(r'isosent_canary_cosine{model="small"} (\S+)', client.get("/metrics").text)
    assert float(lowest[1]) < 0.9


def test_a_canary_of_an_earlier_proxy_is_compared(make, fake, folder):
    model = isosent.load(folder)
    stored = np.array([vector_of(text) for text in [*FIXED_TEXTS[:7], "another text"]])
    replace_part(folder, "corpus", {"canary": stored.astype(np.float64)})
    client = make()
    assert client.proxy.maps["small"].fingerprint == model.fingerprint
    asyncio.run(rechecked(client.proxy))
    assert client.get("/ready").status_code == 200
    fake.misbehave = lambda n: data_of([np.roll(vector_of(text), 1).tolist() for text in FIXED_TEXTS])
    asyncio.run(rechecked(client.proxy))
    assert client.get("/ready").status_code == 503


def test_an_api_that_takes_no_long_text_has_a_canary_of_the_short_ones(make, fake, folder):
    client = make()
    too_long = {"error": {"message": "too long"}}
    fake.misbehave = lambda n: JSONResponse(too_long, 400) if n == 1 else None
    asyncio.run(rechecked(client.proxy))
    assert isosent.load(folder).canary.documents.shape == (len(FIXED_TEXTS) - 1, DIM)


async def rechecked(proxy):
    """Check the canary texts in an event loop of its own."""
    before = proxy.upstream
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        proxy.canary.upstream = Upstream(before.url, before.dialect, before.model, client)
        await proxy.canary.check()


def test_several_maps_are_several_models(make, rows, folder, tmp_path):
    model = SentenceEncoder(PrecomputedVectors(DIM, {"space": "big-model"}))
    model.fitted_on_vectors(rows, isosent.Whitening(n_components=4)).save(tmp_path / "tiny")
    client = make(folders={"small": folder, "tiny": tmp_path / "tiny"})
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["small", "tiny"]
    assert vectors_of(ask(client, model="tiny")).shape == (2, 4)
    assert vectors_of(ask(client)).shape == (2, 6)


def test_a_reload_takes_the_new_map(make, rows, folder):
    client = make()
    before = isosent.load(folder)
    after = SentenceEncoder(before.encoder).fitted_on_vectors(rows, isosent.Whitening(n_components=5))
    after.save(folder)
    client.proxy.reload()
    assert ask(client).headers["X-Isosent-Space"] == after.fingerprint
    (folder / "model.json").write_text("{}")
    client.proxy.reload()
    assert ask(client).headers["X-Isosent-Space"] == after.fingerprint


def test_a_model_of_texts_is_refused(wordllama, tmp_path, texts):
    wordllama.fitted(texts, isosent.Whitening(8)).save(tmp_path / "texts")
    with pytest.raises(InputError, match="encodes texts itself"):
        Maps({"a": tmp_path / "texts"})


@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://x.openai.azure.com/openai/deployments/d/embeddings?api-version=1", "azure"),
        ("https://api.cohere.com", "cohere"),
        ("http://localhost:11434", "ollama"),
    ],
)
def test_the_dialect_follows_from_the_url(url, dialect):
    assert dialect_of(url) == dialect


def test_a_url_that_says_nothing_needs_a_dialect():
    assert dialect_of("http://localhost:8080") is None


def test_a_session_of_one_caller_serves_no_other(make, fake):
    sessions = []

    def with_sessions(_):
        request = fake.requests[-1][0]
        sessions.append(request.headers.get("cookie"))
        is_good = request.headers["authorization"] == "Bearer good" or sessions[-1] is not None
        if not is_good:
            return JSONResponse({"error": {"message": "a wrong key"}}, 401)
        vectors = [{"index": 0, "embedding": [1.0] * DIM}]
        return JSONResponse({"data": vectors}, headers={"set-cookie": "session=good; Path=/"})

    client = make()
    fake.misbehave = with_sessions
    for text, key, status in [("a", "good", 200), ("b", "wrong", 401), ("c", "good", 200), ("d", "none", 401)]:
        answer = client.post("/v1/embeddings", json={"input": text}, headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == status
    assert sessions == [None] * 4


@pytest.mark.parametrize("header", ["authorization", "api-key"])
@pytest.mark.parametrize("keys", [(), ("a key of the proxy",)])
def test_a_key_of_any_bytes_is_wrong(make, fake, header, keys):
    client = make(keys=keys, key="the key of the proxy" if keys else None)
    for key in (b"\xff\xfe\xe9", "schl\u00fcssel".encode(), b"\xe9" * 40):
        headers = {b"authorization": b"none", header.encode(): b"Bearer " + key}
        answer = client.post("/v1/embeddings", json={"input": "a dog"}, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
    assert not fake.requests


def test_an_unknown_group_is_refused_before_the_api_is_asked(make, fake, tmp_path):
    eye = LinearMap(np.eye(DIM), np.zeros(DIM))
    grouped = Postprocessing((MapStep(groups=GroupMaps("lang", "en", {"de": eye})),))
    SentenceEncoder(PrecomputedVectors(DIM, {"space": "big-model"}), grouped).save(tmp_path / "grouped")
    client = make(folders={"grouped": tmp_path / "grouped"})
    assert ask(client, group="fr").status_code == 422
    assert not fake.requests
    assert ask(client, group="de").status_code == 200
