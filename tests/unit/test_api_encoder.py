"""An embedding API as a model, in front of an API on loopback that does what public reports say of real ones."""

import asyncio
import gc
import gzip
import json
import os
import pickle
import sqlite3
import time
import warnings
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from fake_api import DIM, Answer, FakeApi, texts_in
from untrusted import change_json

import isosent
from isosent.api import cache, client, session
from isosent.api.cache import VectorCache
from isosent.api.dialects import DIALECTS
from isosent.encoders.reference import without_permissions
from isosent.errors import (
    ApiError,
    CacheWarning,
    FileFormatError,
    InputError,
    ModelReferenceError,
    OutputError,
    PermissionIgnoredWarning,
)
from isosent.io.texts import open_texts
from isosent.io.vectors import open_vectors
from isosent.jobs.encode import encode_file
from isosent.numeric.canary import FIXED_TEXTS, Canary
from isosent.numeric.similarity import unit_rows
from isosent.search import Index
from isosent.space import Space, are_same, hash_of, same_space
from isosent.storage import Storage

TEXTS = [f"text {number} about {'dogs' if number % 2 else 'interest rates'}" for number in range(100)]
KEY = "sk-a-key-that-must-not-be-seen"


@pytest.fixture
def api():
    with FakeApi().running() as api:
        yield api


@pytest.fixture
def load(api, tmp_path, monkeypatch):
    """Load the API as a model, whose blocks have ten texts."""
    monkeypatch.setattr(session, "_MOST_TEXTS", 10)
    monkeypatch.setattr(client, "_FIRST_WAIT_S", 0.001)

    def load(**options):
        options = {"model": "big", "cache": tmp_path / "cache", **options}
        return isosent.load(f"api:{api.url}/v1", **options)

    return load


def expected(api, texts, side=""):
    return np.array([api.vector_of(text, side) if text.strip() else np.zeros(api.dim) for text in texts], np.float32)


def paid(api):
    """Texts that the API answered, without the fixed ones."""
    return [text for text in api.answered if text not in FIXED_TEXTS]


def error(status, message, **details):
    return Answer(status, {"error": {"message": message, **details}})


# -- vectors -----------------------------------------------------------------------------------------------------------


def test_every_text_gets_its_vector_and_is_asked_for_once(load, api, progress):
    model = load()
    texts = [*TEXTS, "", "  ", *TEXTS[::3]]
    np.testing.assert_array_equal(model.encode(texts, progress=progress), expected(api, texts))
    assert progress.complete()[-1] == len(texts)
    assert sorted(paid(api)) == sorted(TEXTS)
    assert "" not in api.texts
    assert max(len(texts_in(body)) for body in api.bodies) == 10
    assert model.encode([]).shape == (0, DIM)
    assert model.encode("text 1 about dogs").shape == (DIM,)


def test_what_is_in_the_cache_and_what_is_new_keep_their_order(load, api):
    load().encode(TEXTS[::2])
    model = load()  # and knows the API without asking it
    n_requests = len(api.requests)
    np.testing.assert_array_equal(model.encode(TEXTS[::2]), expected(api, TEXTS[::2]))
    assert len(api.requests) == n_requests
    np.testing.assert_array_equal(model.encode(TEXTS), expected(api, TEXTS))
    assert sorted(paid(api)) == sorted(TEXTS)


def test_without_a_cache_texts_are_asked_for_again(load, api):
    for _ in range(2):
        load(cache="none").encode(TEXTS[:5])
    assert paid(api) == TEXTS[:5] * 2


def test_it_works_where_an_event_loop_runs(load, api):
    async def cell():
        return load().encode(TEXTS)

    np.testing.assert_array_equal(asyncio.run(cell()), expected(api, TEXTS))


def test_threads_share_a_model_and_no_text_is_asked_for_twice(load, api, together):
    model = load()
    for vectors in together(lambda turn: model.encode(TEXTS), n_threads=8):
        np.testing.assert_array_equal(vectors, expected(api, TEXTS))
    assert sorted(paid(api)) == sorted(TEXTS)


def test_models_that_share_a_cache_ask_for_no_text_twice(load, api, together):
    load().dim  # noqa: B018
    api.misbehave = lambda body, n: time.sleep(0.02)
    for vectors in together(lambda turn: load().encode(TEXTS), n_threads=4):
        np.testing.assert_array_equal(vectors, expected(api, TEXTS))
    assert sorted(paid(api)) == sorted(TEXTS)


def test_what_another_process_got_meanwhile_is_not_asked_for(load, api, monkeypatch):
    model = load()
    model.encode(TEXTS[:1])
    load().encode(TEXTS[:20])
    monkeypatch.setattr(session, "_FLIGHTS", {})
    looked_up, usual = [], session.Session._from_cache
    # what the first lookup does not find yet
    monkeypatch.setattr(
        session.Session,
        "_from_cache",
        lambda self, known, keys: usual(self, known, keys) if looked_up else looked_up.append(keys) or {},
    )
    np.testing.assert_array_equal(load().encode(TEXTS[:30]), expected(api, TEXTS[:30]))
    assert sorted(paid(api)) == sorted(TEXTS[:30])


def test_what_is_told_of_progress_may_raise_and_may_encode(load, api):
    model = load()

    def leave(n_done, n_all):
        if n_done:
            raise SystemExit

    with pytest.raises(SystemExit):
        model.encode(TEXTS, progress=leave)
    told = []

    def encode(n_done, n_all):
        told.append(n_done)
        np.testing.assert_array_equal(model.encode(["a", TEXTS[-1]]), expected(api, ["a", TEXTS[-1]]))

    np.testing.assert_array_equal(model.encode(TEXTS, progress=encode), expected(api, TEXTS))
    assert told[-1] == len(TEXTS)


def test_a_copy_in_another_process_needs_no_request_to_know_the_api(load, api):
    model = load()
    model.encode(TEXTS)
    n_requests = len(api.requests)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.fingerprint == model.fingerprint
    np.testing.assert_array_equal(copy.encode(TEXTS), expected(api, TEXTS))
    assert len(api.requests) == n_requests


# -- dialects ----------------------------------------------------------------------------------------------------------

BASE64 = {"encoding_format": "base64"}
FORMS = {  # the path and the body of a query and of a document, with 8 dimensions
    "openai": ("/v1/embeddings", {"input": ["a"], "model": "m", "dimensions": 8} | BASE64, {}, {}),
    "azure": ("/v1", {"input": ["a"], "model": "m", "dimensions": 8} | BASE64, {}, {}),
    "cohere": (
        "/v1/v2/embed",
        {"texts": ["a"], "model": "m", "output_dimension": 8, "embedding_types": ["float"]},
        {"input_type": "search_query"},
        {"input_type": "search_document"},
    ),
    "voyage": (
        "/v1/embeddings",
        {"input": ["a"], "model": "m", "output_dimension": 8} | BASE64,
        {"input_type": "query"},
        {"input_type": "document"},
    ),
    "jina": (
        "/v1/embeddings",
        {"input": ["a"], "model": "m", "dimensions": 8},
        {"task": "retrieval.query"},
        {"task": "retrieval.passage"},
    ),
    "tei": ("/v1/embed", {"inputs": ["a"], "truncate": True, "dimensions": 8}, {}, {}),
    "ollama": ("/v1/api/embed", {"input": ["a"], "model": "m", "dimensions": 8}, {}, {}),
}


@pytest.mark.parametrize("dialect", FORMS)
def test_each_api_is_asked_in_its_own_form(load, api, dialect):
    path, body, query, document = FORMS[dialect]
    model = load(model="m", dialect=dialect, dimensions=8)
    vectors = model.encode_query(["a"]), model.encode_document(["a"])
    assert [each.shape for each in vectors] == [(1, 8), (1, 8)]
    assert np.isin(model.encode(["a"]), vectors).all() == (dialect == "cohere" or not query)  # as documents, or so
    sent = [(path, body) for path, _, body in api.requests if texts_in(body) == ["a"]]
    if query and dialect != "cohere":
        sent.pop()  # without a role
    asked = [(path, body | query), (path, body | document)]
    assert sent == (asked if query else asked[:1])  # without a difference the text is asked for once
    for vector, side in zip(vectors, (query, document), strict=True):
        np.testing.assert_array_equal(vector[0], api.vector_of("a", next(iter(side.values()), ""), 8))


def test_gemini_is_asked_in_its_own_form(load, api, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    load(model="m", dialect="gemini", dimensions=8, key_env="MY_KEY").encode_query(["a", "b"])
    path, headers, body = api.requests[-1]
    assert path == "/v1/models/m:batchEmbedContents"
    assert {name.lower(): value for name, value in headers.items()}["x-goog-api-key"] == KEY
    assert body["requests"][1] == {
        "model": "models/m",
        "content": {"parts": [{"text": "b"}]},
        "taskType": "RETRIEVAL_QUERY",
        "outputDimensionality": 8,
    }


def test_prompts_take_the_place_of_roles(load, api):
    model = load(query_prompt="query: ")
    np.testing.assert_array_equal(model.encode_query(["a"]), expected(api, ["query: a"]))
    np.testing.assert_array_equal(model.encode_document(["a"]), expected(api, ["a"]))
    np.testing.assert_array_equal(model.encode(["a"], prompt="P "), expected(api, ["P a"]))
    np.testing.assert_array_equal(model.encode(["a"], prompt="P {text} after {text}."), expected(api, ["P a after a."]))
    assert model.fingerprint != load().fingerprint


def test_a_text_or_prompt_that_is_no_unicode_is_refused(load, api):
    encoder = load().encoder
    encoder.encode(["a"])
    n_requests = len(api.requests)
    calls = [
        lambda: encoder.encode(["\ud800"]),
        lambda: encoder.estimate(["\ud800"]),
        lambda: encoder.with_prompt("\ud800").encode(["a"]),
        lambda: load(prompt="\ud800").encode(["a"]),
    ]
    for call in calls:
        with pytest.raises(InputError, match="surrogate"):
            call()
    assert len(api.requests) == n_requests


def test_no_prompt_has_the_vectors_of_another(load, api):
    encoder = load().encoder
    for prompt, text in (("a", "b\0c"), ("a\0b", "c")):
        np.testing.assert_array_equal(encoder.with_prompt(prompt).encode([text]), expected(api, [prompt + text]))


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "headers"),
    [
        ({"error": {"message": "Rate limit reached"}}, {"retry-after": "0.2"}),
        ({"error": {"message": "Rate limit reached"}}, {"retry-after-ms": "200"}),
        ({"error": {"message": "Limit 3, Used 3, Requested 1. Please try again in 200ms."}}, {}),
        ({"error": {"code": 429, "details": [{"retryDelay": "0.2s"}]}}, {}),
    ],
)
def test_the_api_is_given_the_time_that_it_names(load, api, monkeypatch, content, headers):
    waits, slow_down = [], client.Pace.slow_down
    monkeypatch.setattr(client.Pace, "slow_down", lambda pace, wait_s: waits.append(wait_s) or slow_down(pace, wait_s))
    api.misbehave = lambda body, n: Answer(429, content, headers) if n == 4 else None
    np.testing.assert_array_equal(load().encode(TEXTS), expected(api, TEXTS))
    assert waits == [pytest.approx(0.2)]
    assert sorted(paid(api)) == sorted(TEXTS)


def test_no_request_begins_during_a_pause():
    async def seconds():
        pace = client.Pace(16, patience_s=10)
        began = time.monotonic()
        pace.slow_down(0.2)
        pace.slow_down(0.1)  # another request that was refused, too
        await asyncio.gather(*(pace.wait() for _ in range(3)))
        return time.monotonic() - began, pace.n_requests

    waited_s, n_requests = asyncio.run(seconds())
    assert waited_s >= 0.2
    assert n_requests == 2  # half of those in the beginning, once


def test_more_refusals_than_a_caller_would_bear_end_no_job(load, api):
    api.misbehave = lambda body, n: error(429, "Too Many Requests") if n % 3 else None
    np.testing.assert_array_equal(load().encode(TEXTS), expected(api, TEXTS))
    assert sorted(paid(api)) == sorted(TEXTS)


@pytest.mark.parametrize(
    "answer",
    [
        error(429, "You exceeded your current quota, please check your plan", code="insufficient_quota"),
        Answer(429, {"error": {"message": "daily limit"}}, {"retry-after": "86400"}),
    ],
)
def test_a_limit_that_waiting_does_not_lift_is_said_at_once(load, api, answer):
    model = load()
    model.encode(TEXTS[:10])
    n_requests = len(api.requests)
    api.misbehave = lambda body, n: answer
    with pytest.raises(ApiError, match=r"429.*(quota|daily).*cache"):
        model.encode(TEXTS[:20])
    assert len(api.requests) == n_requests + 1


def test_requests_run_side_by_side_and_fewer_after_a_refusal(load, api):
    refused = []

    def limit(body, n):
        time.sleep(0.05)
        if api.n_running > 6:
            refused.append(n)
            return error(429, "slow down")
        return None

    api.misbehave = limit
    texts = [f"t{number}" for number in range(400)]
    np.testing.assert_array_equal(load().encode(texts), expected(api, texts))
    assert 4 < api.most_running <= 16
    assert len(refused) < 40  # of as many requests that are answered


@pytest.mark.parametrize(
    ("most", "refusal"),
    [
        (4, error(400, "Value error, batch size is invalid, it should not be larger than 4.: input.contents")),
        (3, error(413, "batch size 10 > maximum allowed batch size 3")),
        (4, error(422, "")),
    ],
)
def test_texts_per_request_are_learned(load, api, most, refusal):
    api.misbehave = lambda body, n: refusal if len(texts_in(body)) > most and n > 1 else None
    model = load()
    np.testing.assert_array_equal(model.encode(TEXTS[:50]), expected(api, TEXTS[:50]))
    n_requests = len(api.requests)
    np.testing.assert_array_equal(model.encode(TEXTS), expected(api, TEXTS))
    assert all(len(texts_in(body)) <= most for body in api.bodies[n_requests:])
    assert sorted(paid(api)) == sorted(TEXTS)


def test_tokens_per_request_are_learned(load, api, monkeypatch):
    monkeypatch.setattr(session, "_MOST_TEXTS", 32)

    def limit(body, n):
        n_tokens = sum(map(len, texts_in(body)))
        if n > 1 and n_tokens > 1500:
            return error(
                400, f"Requested {n_tokens} tokens, max 1500 tokens per request", code="max_tokens_per_request"
            )
        return None

    api.misbehave = limit
    model, texts = load(), [f"{number} " + "x" * 95 for number in range(64)]
    np.testing.assert_array_equal(model.encode(texts[:32]), expected(api, texts[:32]))
    n_requests = len(api.requests)
    np.testing.assert_array_equal(model.encode(texts), expected(api, texts))
    assert all(sum(map(len, texts_in(body))) <= 1500 for body in api.bodies[n_requests:])
    assert sorted(paid(api)) == sorted(texts)


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, "'$.input' is invalid. Please check the API reference"),
        error(400, "This model's maximum context length is 8192 tokens, however you requested 9000 tokens"),
        error(500, "failed to encode response: json: unsupported value: NaN"),  # Ollama
    ],
)
def test_a_text_that_the_api_refuses_is_named_and_the_others_are_kept(load, api, refusal):
    api.misbehave = lambda body, n: refusal if "bad one" in texts_in(body) else None
    texts = [*TEXTS[:15], "bad one", *TEXTS[15:]]
    with pytest.raises(ApiError, match="'bad one'"):
        load().encode(texts)
    model = load()
    np.testing.assert_array_equal(model.encode(TEXTS), expected(api, TEXTS))
    assert sorted(paid(api)) == sorted(TEXTS)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_vector_that_is_none_is_named_and_the_others_are_kept(load, api, value):
    usual = api.vector_of
    api.vector_of = lambda text, *more: np.full(DIM, value, np.float32) if text == "bad one" else usual(text, *more)
    with pytest.raises(ApiError, match=r"(NaN|zeros).*'bad one'"):
        load().encode([*TEXTS[:5], "bad one", *TEXTS[5:8]])
    load().encode(TEXTS[:8])
    assert sorted(paid(api)) == sorted([*TEXTS[:8], "bad one"])


def test_a_number_too_large_for_a_vector_is_refused_without_a_warning(load, api):
    model = load()
    model.encode(["a"])
    api.misbehave = lambda body, n: Answer(200, {"data": [{"embedding": [1e300] * DIM}]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ApiError, match="infinity"):
            model.encode(["b"])


def test_after_an_error_what_is_in_flight_is_kept_and_nothing_is_begun(load, api):
    def fail(body, n):
        if TEXTS[0] in texts_in(body):
            return error(404, "no such model")
        if n > 1:
            time.sleep(0.1)
        return None

    api.misbehave = fail
    with pytest.raises(ApiError, match="no such model"):
        load().encode(TEXTS)
    n_paid = len(paid(api))
    assert 0 < n_paid < 80
    api.misbehave = lambda body, n: None
    load().encode(TEXTS)
    assert sorted(paid(api)) == sorted(TEXTS)


def test_after_an_error_nothing_is_lost_where_the_api_takes_fewer_texts(load, api):
    texts = [f"t{number}" for number in range(400)]

    def fail(body, n):
        if len(texts_in(body)) > 2 and n > 1:
            return error(413, "batch size > maximum allowed batch size 2")
        time.sleep(0.01 if texts[300] in texts_in(body) else 0.03)
        return error(404, "no such model") if texts[300] in texts_in(body) else None

    api.misbehave = fail
    with pytest.raises(ApiError, match="no such model"):
        load().encode(texts)
    assert 100 < len(paid(api)) < 400
    api.misbehave = lambda body, n: None
    load().encode(texts)
    assert sorted(paid(api)) == sorted(texts)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error(401, "no key"), "401"),
        (error(403, "not you"), "403"),
        (error(404, "no such model"), "no such model"),
        (error(429, "quota", code="insufficient_quota"), "quota"),
        (Answer(200, b"[" * 200_000), "cannot be read"),
        (Answer(200, gzip.compress(b" " * (1 << 25)), {"content-encoding": "gzip"}), "too long"),
        (Answer(200, b"no gzip", {"content-encoding": "gzip"}), "cannot be decompressed"),
    ],
)
def test_what_is_wrong_with_all_texts_blames_none_and_is_asked_once(load, api, answer, words):
    model = load()
    model.encode(TEXTS[:1])
    n_requests = len(api.requests)
    api.misbehave = lambda body, n: answer
    with pytest.raises(ApiError, match=words) as caught:
        model.encode(["one text"])
    assert "one text" not in str(caught.value)
    assert len(api.requests) == n_requests + 1


@pytest.mark.parametrize("is_known", [True, False])
def test_an_api_that_hangs_is_given_up(load, api, monkeypatch, is_known):
    monkeypatch.setattr(session, "_TIMEOUT_S", 0.2)
    model = load()
    if is_known:
        model.encode(["a"])
    n_requests = len(api.requests)
    api.misbehave = lambda body, n: time.sleep(1)
    with pytest.raises(ApiError, match="did not answer") as caught:
        model.encode(TEXTS[:10])
    assert "text is" not in str(caught.value)
    assert len(api.requests) - n_requests == (2 if is_known else 1)  # and not in ever smaller parts


def test_what_takes_too_long_is_asked_for_in_halves(load, api, monkeypatch):
    monkeypatch.setattr(session, "_TIMEOUT_S", 0.3)

    def stall(body, n):
        if len(texts_in(body)) > 7 and n > 1:
            time.sleep(0.6)
            return error(500, "nobody reads this")
        return None

    api.misbehave = stall
    np.testing.assert_array_equal(load().encode(TEXTS[:20]), expected(api, TEXTS[:20]))


def test_an_api_without_base64_or_index_is_understood(load, api):
    def floats(body, n):
        if body.get("encoding_format") == "base64":
            return error(400, "base64 encoding is not supported")
        return Answer(200, {"data": [{"embedding": row.tolist()} for row in api.rows(body)]})

    api.misbehave = floats
    np.testing.assert_allclose(load().encode(TEXTS), expected(api, TEXTS))


def test_another_number_of_vectors_or_dimensions_is_refused(load, api):
    with pytest.raises(ApiError, match=f"{DIM} dimensions; 99"):
        load(dimensions=99).encode(["a"])
    model = load()
    model.encode(["a"])
    api.misbehave = lambda body, n: Answer(200, {"data": [{"embedding": [1.0] * DIM}] * 3})
    with pytest.raises(ApiError, match="3 vectors for 1 texts"):
        model.encode(["b"])
    api.misbehave = lambda body, n: Answer(200, {"data": [{"embedding": [1.0] * (DIM + 1)}]})
    with pytest.raises(ApiError, match=f"{DIM + 1} dimensions"):
        model.encode(["b"])


def test_an_api_that_refuses_everything_blames_no_text(load, api):
    api.misbehave = lambda body, n: error(400, "unknown model: big")
    with pytest.raises(ApiError, match="unknown model: big") as caught:
        load().encode(["a"])
    assert "text is" not in str(caught.value)


def test_what_an_api_says_controls_no_terminal(load, api):
    api.misbehave = lambda body, n: error(400, "no\x1b[2J\r\n such\u202emodel\x07")
    with pytest.raises(ApiError, match="such model") as caught:
        load().encode(["a"])
    assert str(caught.value).isprintable()


def test_an_api_that_is_not_there_is_said(tmp_path):
    model = isosent.load("api:http://127.0.0.1:1/v1?model=m", cache=tmp_path)
    with pytest.raises(ApiError, match="cannot be reached"):
        model.encode(["a"])


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_key_comes_from_the_environment_and_is_written_nowhere(load, api, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    model = load(key_env="MY_KEY")
    fitted = model.fitted(TEXTS, isosent.Whitening(n_components=4))
    fitted.save(tmp_path / "model")
    assert {headers["Authorization"] for _, headers, _ in api.requests} == {f"Bearer {KEY}"}
    api.misbehave = lambda body, n: error(401, f"Incorrect API key provided: {KEY}")
    with pytest.raises(ApiError, match="MY_KEY") as caught:
        model.encode(["another"])
    api.misbehave = lambda body, n: error(400, f"the key {KEY} may not")
    with pytest.raises(ApiError, match=r"the key \.\.\. may not") as other:
        model.encode(["another"])
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert caught.value.__context__ is other.value.__context__ is None  # which have the headers of the request
    for content in (written, pickle.dumps(model), str(caught.value).encode(), str(other.value).encode()):
        assert KEY.encode() not in content


def test_a_missing_key_is_asked_for_by_its_name(load, api, monkeypatch):
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(InputError, match="MY_KEY"):
        load(key_env="MY_KEY").encode(["a"])
    assert api.requests == []


def test_no_key_goes_to_an_address_that_is_not_the_providers(load, api, monkeypatch):
    for name in ("OPENAI_API_KEY", "COHERE_API_KEY"):
        monkeypatch.setenv(name, KEY)
    load().encode(["a"])
    assert not any(KEY in str(headers) for _, headers, _ in api.requests)


@pytest.mark.parametrize("proxy", ["foo:secret", "http://user:secret@h:port", "gopher://secret"])
def test_a_proxy_that_cannot_be_used_is_refused_by_its_variable(monkeypatch, proxy):
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    model = isosent.load("api:http://192.0.2.1/v1?model=m&cache=none")
    with pytest.raises(InputError, match="HTTP_PROXY") as caught:
        model.encode(["a"])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "is_warned"),
    [
        ("api:http://192.0.2.1/v1?model=m&key_env=MY_KEY", True),
        ("api:http://192.0.2.1/v1?model=m", False),
        ("api:http://127.0.0.1:9/v1?model=m&key_env=MY_KEY", False),
        ("api:https://192.0.2.1/v1?model=m&key_env=MY_KEY", False),
    ],
)
def test_a_key_that_would_be_sent_unencrypted_is_said(reference, is_warned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        isosent.load(reference, cache="none")
    assert ["MY_KEY" in str(each.message) for each in caught] == [True] * is_warned


@pytest.mark.parametrize(
    ("provider", "url", "variable"),
    [
        ("openai/text-embedding-3-small", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("voyage/voyage-3.5", "https://api.voyageai.com/v1", "VOYAGE_API_KEY"),
        ("https://api.openai.com/v1?model=text-embedding-3-small", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    ],
)
def test_a_provider_has_its_address_and_key(provider, url, variable, monkeypatch):
    monkeypatch.delenv(variable, raising=False)
    encoder = isosent.load(f"api:{provider}", cache="none").encoder
    with pytest.raises(InputError, match=variable):
        encoder.encode(["a"])
    assert encoder._session.endpoint.url == url


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("api:nobody/model", "providers: openai"),
        ("api:openai", "PROVIDER/MODEL"),
        ("api:openai/m?model=n", "Leave model"),
        ("api:https://host/v1", "name the model"),
        ("api:https://host?model=m", "dialect"),
        ("api:https://user:secret@host/v1?model=m", "no key"),
        ("api:https://host/v1%3Fapi_key=secret?model=m", "no key"),
        ("api:https://host/v1%3Fsubscription-key=secret?model=m", "no key"),
        ("api:https://host/v1%3Fapi-version=1%26sig=secret?model=m", "no key"),
        ("api:https://secret@host/v1?model=m&foo=1", "no option foo"),
        ("api:https://secret@[host/v1?model=m", "no key"),
        ("api:secret@host/v1?model=m", "PROVIDER/MODEL"),
        ("api:https://host/v1?model=m&api_key=secret", "no option api_key"),
        ("api:https://host/v1?model=m&key=secret&dimensions=0", "no option key"),
        ("api:https://host/v1?secret", "name=value"),
        ("https://host/v1?key=secret", "unknown prefix https"),
        ("api:openai/m?key_env=secret1", "environment variable"),
        ("api:https:///v1?model=m", "no URL"),
        ("api:https://host/v1?model=m&key_env=sk-secret", "environment variable"),
        ("api:https://host/v1?model=m&dimensions=0", "dimensions=0"),
        ("api:https://host/v1?model=m&pooling=mean", "no option pooling"),
    ],
)
def test_a_reference_that_cannot_be_right_is_refused_before_anything_is_sent(reference, words):
    with pytest.raises(ModelReferenceError, match=words) as caught:
        isosent.load(reference)
    assert "secret" not in str(caught.value)


# -- folders -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(load, api, tmp_path):
    load().fitted(TEXTS, isosent.Whitening(n_components=4)).save(tmp_path / "model")
    api.requests.clear()
    return tmp_path / "model"


def test_a_folder_asks_its_api_only_if_that_is_permitted(folder, load, api, tmp_path):
    model = isosent.load(folder)
    assert model.dim == 4
    for call in (lambda: model.encode(["a"]), lambda: model.encoder.canary_now(), lambda: model.save(tmp_path / "x")):
        with pytest.raises(InputError, match="send_texts=true"):
            call()
    assert api.requests == []
    permitted = isosent.load(f"{folder}?send_texts=true&cache={tmp_path / 'cache'}")
    assert api.requests == []  # not before a text is encoded
    bare = load()
    np.testing.assert_allclose(permitted.encode(TEXTS), permitted.transform(bare.encode(TEXTS)))
    assert api.requests == []  # all are in the cache
    named = isosent.load(folder, encoder=f"api:{api.url}/v1?model=big&cache=none")
    np.testing.assert_allclose(named.encode(TEXTS[:3]), permitted.encode(TEXTS[:3]))


@pytest.mark.parametrize("option", ["send_texts=true", "key_env=HOME", "cache=/tmp/elsewhere", "cache_mb=1"])
@pytest.mark.parametrize("where", ["options", "reference"])
def test_a_folder_grants_itself_nothing(folder, api, option, where):
    name, _, value = option.partition("=")
    document = json.loads((folder / "model.json").read_text())["encoder"]
    stored = {"options": document["options"] | {name: value}} if where == "options" else {}
    stored |= {"reference": f"{document['reference']}&{option}"} if where == "reference" else {}
    change_json(folder / "model.json", encoder=document | stored)
    with pytest.warns(PermissionIgnoredWarning, match=name):
        model = isosent.load(folder)
    with pytest.raises(InputError, match="send_texts"):
        model.encode(["a"])
    assert api.requests == []
    assert model.encoder._session.endpoint.key_variable is None


@pytest.mark.parametrize("reference", ["{api}", "{api}&send_texts=true", "{folder}?encoder={api}"])
def test_a_reference_in_a_file_sends_nothing(folder, api, tmp_path, reference):
    """Such as a map of `isosent reproduce`, or of `isosent index migrate`."""
    named = f"api:{api.url}/v1?model=big&cache={tmp_path / 'cache'}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PermissionIgnoredWarning)
        cleaned, _ = without_permissions(reference.format(api=named, folder=folder), {}, file="map.yaml")
    model = isosent.load(cleaned)
    with pytest.raises(InputError, match="send_texts"):
        model.encode(["a"])
    assert api.requests == []


def test_a_server_of_a_folder_needs_the_permission_at_its_start(folder, tmp_path):
    from isosent.cli.serve import open_source

    with pytest.raises(InputError, match="send_texts=true"):
        open_source(str(folder))
    assert open_source(f"{folder}?send_texts=true&cache={tmp_path / 'cache'}").dim == 4


def test_a_server_and_a_proxy_answer_with_the_vectors_of_a_folder(folder, load, api, tmp_path, running):
    import httpx

    from isosent.server import create_app
    from isosent.server.maps import Maps
    from isosent.server.proxy import Proxy, create_proxy

    permitted = isosent.load(f"{folder}?send_texts=true&cache={tmp_path / 'cache'}")
    maps = Maps({"small": folder})
    assert maps.upstream_model == "big"
    upstream = client.Upstream(
        f"{api.url}/v1", DIALECTS["openai"], "big", httpx.AsyncClient(trust_env=False, verify=False)
    )
    expected = unit_rows(permitted.encode(TEXTS[:3]))

    def ask(port, texts):
        url, body = f"http://127.0.0.1:{port}/v1/embeddings", {"input": texts, "model": "small"}
        return httpx.post(url, json=body, trust_env=False, timeout=30)

    for app in (create_app({"small": permitted}), create_proxy(Proxy(upstream, maps))):
        with running(app) as port:
            rows = [row["embedding"] for row in ask(port, TEXTS[:3]).json()["data"]]
            np.testing.assert_allclose(rows, expected, atol=1e-6)
            api.misbehave = lambda body, n: error(400, "no such text") if "bad one" in texts_in(body) else None
            failed = ask(port, ["bad one"])
            assert failed.status_code in (400, 502)
            assert "no such text" in failed.json()["error"]["message"]
    load(dimensions=8).fitted(TEXTS, isosent.Whitening(n_components=4)).save(tmp_path / "other")
    with pytest.raises(InputError, match="dimensions"):
        Maps({"other": tmp_path / "other"})


def test_a_changed_model_is_noticed_before_a_text_is_sent(folder, load, api, tmp_path):
    saved, bare = isosent.load(f"{folder}?send_texts=true&cache={tmp_path / 'cache'}"), load()
    before = bare.encode(TEXTS[:5])
    fingerprint = bare.fingerprint
    api.seed = 1  # another model by the same name
    for model in (saved, load()):
        with pytest.raises(ApiError, match="has changed"):
            model.encode(["new"])
    assert "new" not in api.texts
    now = load()
    assert now.fingerprint != fingerprint
    after = now.encode(TEXTS[:5])
    np.testing.assert_array_equal(after, expected(api, TEXTS[:5]))
    assert not np.allclose(before, after)
    api.seed = 0  # and back
    with pytest.raises(ApiError, match="has changed"):
        load().encode(["new"])
    assert load().fingerprint == fingerprint
    np.testing.assert_array_equal(load().encode(TEXTS[:5]), before)
    np.testing.assert_allclose(saved.transform(before), isosent.load(folder).transform(before))


def test_noise_and_another_address_change_no_fingerprint(load, api, tmp_path):
    seen = []
    for number, noise in enumerate((0, 1e-6, 1e-6, 1e-5)):
        api.noise = noise
        seen.append(load(cache=tmp_path / f"cache{number}").encoder.space)
    with FakeApi().running() as other:
        seen.append(isosent.load(f"api:{other.url}/v1?model=big&cache=none").encoder.space)
    assert len({hash_of(space.fingerprint) for space in seen}) == 1
    for space in seen[1:]:
        same_space("here", seen[0], "there", space)
    with pytest.raises(InputError, match="cannot be compared"):
        same_space("here", seen[0], "there", load(cache=tmp_path / "new", model="small").encoder.space)


def served_again(seed, spread, noise, **changes):
    """The space of an API on another machine: `spread` and `noise` are 1 - cosine, to the model and between answers."""
    endpoint = session.Endpoint("api:x", "http://x", "openai", "m", None, {}, None)._replace(**changes)
    rng, rows = np.random.default_rng(seed), np.random.default_rng(0).standard_normal((7, 384))
    rows += np.sqrt(2 * spread) * np.random.default_rng(1).standard_normal(rows.shape)
    answers = [rows + np.sqrt(noise) * rng.standard_normal(rows.shape) for _ in range(2)]
    before, now = (Canary.of(None, each[:, : changes.get("dimensions")]) for each in answers)
    return session.Session(endpoint, None, 1)._new(now, before.mean_difference(now), []).fingerprint


@pytest.mark.parametrize("noise", [0, 1e-6, 1e-4, 1e-3])
def test_noise_of_an_api_is_never_taken_for_another_model(noise):
    first = served_again(0, 0, noise)
    assert all(are_same(first, served_again(seed, 0, noise)) for seed in range(1, 201))


@pytest.mark.parametrize("noise", [0, 1e-4, 4e-4])
def test_noise_of_an_api_lets_no_other_model_pass(noise):
    first = served_again(0, 0, noise)
    int8 = 1.4e-3  # of all-MiniLM-L6-v2: mean 1 - cosine of the fixed texts
    for changes in ({"spread": int8}, {"spread": 0.01}, {"spread": 0.3}):
        assert not any(are_same(first, served_again(seed, noise=noise, **changes)) for seed in range(1, 51)), changes
    for changes in ({"dimensions": 256}, {"model": "n"}, {"prompts": {"document": "passage: "}}):
        assert not are_same(first, served_again(1, 0, noise, **changes)), changes


def test_an_api_that_answers_at_random_lets_no_other_model_pass():
    assert not are_same(served_again(0, 0, 0.3), served_again(1, 0.3, 0.3))


def test_a_folder_uses_what_a_cache_has_by_a_noisy_name(load, api, tmp_path):
    api.dim, api.noise = 384, 0.02  # 1 - cosine of 4e-4
    load(cache=tmp_path / "mine").fitted(TEXTS, isosent.Whitening(n_components=4)).save(tmp_path / "model")
    load(cache=tmp_path / "theirs").encode(TEXTS)
    n_requests = len(api.requests)
    saved = isosent.load(f"{tmp_path / 'model'}?send_texts=true&cache={tmp_path / 'theirs'}")
    assert saved.encode(TEXTS).shape == (len(TEXTS), 4)
    assert len(api.requests) == n_requests


def test_files_of_two_machines_merge_unless_the_model_is_another(load, api, tmp_path):
    api.dim, api.noise = 384, 0.03
    files = []
    for number in range(3):
        api.seed = number // 2
        model = load(cache=tmp_path / f"cache{number}")
        files.append(tmp_path / f"{number}.npy")
        (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:20]))
        with open_texts(str(tmp_path / "texts.txt")) as texts:
            encode_file(model, texts, str(files[-1]), dtype="float32", role="text")
    spaces = [open_vectors(file).space for file in files]
    assert len({space.fingerprint for space in spaces}) == 3
    same_space("first", spaces[0], "second", spaces[1])
    with pytest.raises(InputError, match="cannot be compared"):
        same_space("first", spaces[0], "third", spaces[2])


def test_what_is_made_of_noisy_vectors_has_one_space():
    fingerprints = {served_again(seed, 0, 1e-6) for seed in range(8)}
    assert len(fingerprints) > 1
    assert len(set(map(hash_of, fingerprints))) == 1
    assert len({Space(each, "x").of_codes(Storage.int8).fingerprint for each in fingerprints}) == 1
    record = isosent.load("wordllama").fitted(TEXTS * 3, isosent.Whitening(n_components=4)).record
    assert len({replace(record, encoder_fingerprint=each).fingerprint for each in fingerprints}) == 1


def test_an_index_is_searched_by_the_model_as_another_machine_saw_it(load, api, tmp_path):
    api.dim, api.noise = 384, 0.02
    mine, theirs = (load(cache=tmp_path / name) for name in ("mine", "theirs"))
    assert mine.fingerprint != theirs.fingerprint
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    with open_texts(str(tmp_path / "texts.txt")) as texts:
        encode_file(mine, texts, str(tmp_path / "v.npy"), dtype="float32", role="text")
    index = Index.create(list(TEXTS), vectors=tmp_path / "v.npy", folder=tmp_path / "index")
    reference = f"api:{api.url}/v1?model=big&cache={tmp_path / 'theirs'}"
    moved = isosent.load(index.folder / "model", encoder=reference)
    assert moved.fingerprint == mine.fingerprint
    assert Index.open(index.folder, moved).search([TEXTS[3]], k=1).ids[0][0] == 3


def test_noise_is_no_change(load, api):
    load().encode(TEXTS[:3])
    api.noise = 0.02
    load().encode(TEXTS[:6])
    assert sorted(paid(api)) == sorted(TEXTS[:6])


def test_a_folder_of_another_model_is_no_copy(folder, api):
    with FakeApi().running() as other:
        other.seed = 5
        model = isosent.load(folder, encoder=f"api:{other.url}/v1?model=big&cache=none")
        with pytest.raises(ApiError, match="has changed"):
            model.encode(["a"])
        assert "a" not in other.texts


def alike(seed, text):
    """A vector of a model whose cosines are all between 0.7 and 0.9, as those of E5 and of gte are."""
    rows = [np.random.default_rng([seed, *part.encode()]).standard_normal(384) for part in ("", text)]
    return (2 * rows[0] + rows[1]).astype(np.float32)


@pytest.mark.parametrize("signs", ["found", "equal"])
def test_vectors_of_another_model_in_the_cache_are_not_used(load, api, tmp_path, monkeypatch, signs):
    """Two models by the same name, seen from two machines; however unlikely equal fingerprints are."""
    if signs == "equal":
        monkeypatch.setattr(session, "_projected", lambda canary, n: np.zeros(n))
    api.dim = 384
    api.vector_of = lambda text, *_: alike(api.seed, text)
    mine = load(cache=tmp_path / "mine")
    mine.fitted(TEXTS, isosent.Whitening(n_components=4)).save(tmp_path / "model")
    api.seed = 1
    other = load(cache=tmp_path / "other")
    other.encode(["a"])
    assert are_same(other.fingerprint, mine.fingerprint) == (signs == "equal")
    saved = isosent.load(f"{tmp_path / 'model'}?send_texts=true&cache={tmp_path / 'other'}")
    with pytest.raises(ApiError, match="has changed" if signs == "found" else "another model"):
        saved.encode(["a"])
    api.seed = 0
    fresh = isosent.load(f"{tmp_path / 'model'}?send_texts=true&cache={tmp_path / 'fresh'}")
    for _ in range(2):  # asked, and from the cache
        np.testing.assert_allclose(fresh.encode(["b"]), fresh.transform(expected(api, ["b"])), rtol=1e-5)
    assert api.texts.count("b") == 1


# -- caches ------------------------------------------------------------------------------------------------------------


def change(cache, *statements):
    with closing(sqlite3.connect(cache / "vectors.sqlite", isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


@pytest.mark.parametrize(
    "change_of_vector",
    ["x'00112233445566'", "'text'", "x'0000803f'", "zeroblob(96)", "cast(zeroblob(92) || x'0000c07f' AS BLOB)"],
)
def test_a_damaged_vector_is_asked_for_again(load, api, tmp_path, change_of_vector):
    load().encode(TEXTS[:3])
    change(tmp_path / "cache", f"UPDATE vectors SET vector = {change_of_vector}")
    np.testing.assert_array_equal(load().encode(TEXTS[:3]), expected(api, TEXTS[:3]))
    assert len(paid(api)) == 6
    np.testing.assert_array_equal(load().encode(TEXTS[:3]), expected(api, TEXTS[:3]))
    assert len(paid(api)) == 6


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DROP TABLE apis", "apis.*cache="),
        ("ALTER TABLE apis DROP COLUMN dim", "dim.*cache="),
        ("UPDATE apis SET canary = 'AAAA'", "damaged.*cache="),
        ("UPDATE apis SET dim = x'00'", "damaged.*cache="),
        ("PRAGMA user_version = 9", "newer.*9.*cache="),
    ],
)
def test_a_cache_that_cannot_be_read_is_refused(load, api, tmp_path, damage, words):
    load().encode(TEXTS[:3])
    change(tmp_path / "cache", damage)
    with pytest.raises((OutputError, FileFormatError), match=words) as caught:
        load().encode(TEXTS[:3])
    assert ".." not in str(caught.value)


@pytest.mark.parametrize("table", ["apis", "vectors"])
def test_a_cache_that_cannot_be_written_ends_no_job(load, api, tmp_path, table):
    load().encode(TEXTS[:3])
    change(
        tmp_path / "cache",
        "DELETE FROM apis",
        f"CREATE TRIGGER full BEFORE INSERT ON {table} BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END",
    )
    with pytest.warns(CacheWarning, match="disk is full"):
        np.testing.assert_array_equal(load().encode(TEXTS[:6]), expected(api, TEXTS[:6]))


def test_processes_that_make_a_cache_at_once_agree(tmp_path, together):
    for turn in range(3):
        caches = together(lambda _, turn=turn: VectorCache(tmp_path / f"{turn}", max_bytes=10**6), n_threads=8)
        for each in caches:
            assert each.facts()["vectors"] == 0
            each.close()


def test_a_cache_is_opened_and_read_while_a_job_writes(load, api, tmp_path, monkeypatch):
    load().encode(TEXTS[:3])
    monkeypatch.setattr(cache, "_BUSY_S", 0.1)
    with closing(sqlite3.connect(tmp_path / "cache" / "vectors.sqlite", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        np.testing.assert_array_equal(load().encode(TEXTS[:3]), expected(api, TEXTS[:3]))
    assert len(paid(api)) == 3


def test_a_cache_that_may_only_be_read_is_read(load, api, tmp_path, monkeypatch):
    gc.freeze()  # what was imported is no garbage, and takes a second to look at
    load().encode(TEXTS[:3])
    for _ in range(100):  # a thread may still hold the cache open
        gc.collect()
        if len(list((tmp_path / "cache").iterdir())) == 1:
            break
        time.sleep(0.05)
    before = contents(tmp_path / "cache")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    model = load()
    np.testing.assert_array_equal(model.encode(TEXTS[:3]), expected(api, TEXTS[:3]))
    with pytest.warns(CacheWarning, match="readonly"):
        np.testing.assert_array_equal(model.encode(TEXTS[:5]), expected(api, TEXTS[:5]))
    assert contents(tmp_path / "cache") == before
    monkeypatch.undo()
    load(cache=tmp_path / "cache").encode(["of another process"])
    gc.collect()
    with pytest.raises(OutputError, match="another process"):
        model.encode(TEXTS[:3])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("n_tokens", [2**63, 10**30, 1e300, -1])
def test_a_number_of_tokens_that_is_none_counts_as_unknown(load, api, n_tokens):
    def answer(body, n):
        data = [{"index": number, "embedding": row.tolist()} for number, row in enumerate(api.rows(body))]
        return Answer(200, {"data": data, "usage": {"total_tokens": n_tokens}})

    api.misbehave = answer
    model = load()
    np.testing.assert_allclose(model.encode(TEXTS), expected(api, TEXTS))
    assert model.encoder.usage[:3] == (100, 0, 0)


def test_an_estimate_sends_nothing(load, api):
    encoder = load().encoder
    assert encoder.estimate([*TEXTS, *TEXTS, ""]) == (100, 0, round(sum(len(t.encode()) for t in TEXTS) / 4))
    assert api.requests == []
    encoder.encode(TEXTS[:50])
    n_requests = len(api.requests)
    assert load().encoder.estimate(TEXTS) == (100, 50, sum(len(text) for text in TEXTS[50:]))  # as it charges
    assert len(api.requests) == n_requests
