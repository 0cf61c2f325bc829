"""The proxy in front of APIs that speak OpenAI's dialect in their own way."""

import asyncio
import base64
import json
from contextlib import ExitStack
from functools import cache

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import isosent
from isosent.api.cache import VectorCache
from isosent.api.client import Upstream
from isosent.api.dialects import DIALECTS
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.model import SentenceEncoder
from isosent.server.maps import Maps
from isosent.server.proxy import Proxy, create_proxy

DIM = 8


def vector_of(text, **fields):
    """What the API makes of a text and of the fields that count."""
    content = json.dumps([text, fields], sort_keys=True).encode()
    return np.random.default_rng(list(content)).standard_normal(DIM).astype(np.float32)


class Api:
    """An API whose refusals and answers a test replaces."""

    def __init__(self):
        self.bodies = []
        self.refuse = lambda body: None
        self.counted = ("input_type", "task", "instruction", "prompt_name", "truncate", "options")
        self.answer = self.usual

    async def post(self, request):
        body = json.loads(await request.body())
        self.bodies.append(body)
        await asyncio.sleep(0.01)
        return self.refuse(body) or self.answer(body)

    def rows(self, body):
        fields = {name: body[name] for name in self.counted if name in body}
        texts = next(body[name] for name in ("input", "texts", "inputs") if name in body)
        return [vector_of(text, **fields) for text in texts]

    def usual(self, body):
        if "texts" in body:
            return JSONResponse({"embeddings": {"float": [row.tolist() for row in self.rows(body)]}, "meta": None})
        if "inputs" in body:
            return JSONResponse([row.tolist() for row in self.rows(body)])
        if "encoding_format" not in body and "model" in body and not self.openai:
            return JSONResponse({"embeddings": [row.tolist() for row in self.rows(body)]})
        rows = self.rows(body)
        if body.get("encoding_format") == "base64":
            rows = [base64.b64encode(row.tobytes()).decode() for row in rows]
        else:
            rows = [row.tolist() for row in rows]
        return JSONResponse({"data": [{"index": n, "embedding": row} for n, row in enumerate(rows)]})

    openai = True

    def sizes(self):
        return [len(body["input"]) for body in self.bodies]


@pytest.fixture(scope="module")
def running_api(running):
    api = Api()
    with running(Starlette(routes=[Route("/{path:path}", api.post, methods=["POST"])])) as port:
        yield api, f"http://127.0.0.1:{port}/v1"


@pytest.fixture
def api(running_api):
    running_api[0].__init__()
    running_api[0].openai = True
    return running_api[0]


@pytest.fixture
def make(running, running_api):
    """Start a proxy that passes vectors on, or with a map."""
    with ExitStack() as stack:

        def make(dialect="openai", maps=None, **more):
            cache = more.pop("cache", None)
            client = httpx.AsyncClient(trust_env=False, verify=False)
            upstream = Upstream(running_api[1], DIALECTS[dialect], "big", client, **more)
            proxy = Proxy(upstream, maps or Maps({}), cache=cache)
            proxy.canary.watch = lambda: asyncio.sleep(3600)
            port = stack.enter_context(running(create_proxy(proxy)))
            url = f"http://127.0.0.1:{port}"
            client = stack.enter_context(httpx.Client(base_url=url, trust_env=False, verify=False, timeout=30))
            client.upstream = upstream
            return client

        yield make


@pytest.fixture(scope="module")
def proxies(running, running_api):
    """A proxy of each dialect that passes vectors on, for what it does not learn."""
    with ExitStack() as stack:

        @cache
        def proxy_of(dialect):
            client = httpx.AsyncClient(trust_env=False, verify=False)
            proxy = Proxy(
                Upstream(running_api[1], DIALECTS[dialect], "big", client, key="the-key-of-the-proxy"), Maps({})
            )
            port = stack.enter_context(running(create_proxy(proxy)))
            url = f"http://127.0.0.1:{port}"
            return stack.enter_context(httpx.Client(base_url=url, trust_env=False, verify=False, timeout=30))

        yield proxy_of


@pytest.fixture
def proxy(proxies, api):
    return proxies("openai")


def ask(client, inputs=("a", "b"), /, **fields):
    return client.post("/v1/embeddings", json={"input": list(inputs), **fields})


def vectors_of(response):
    assert response.status_code == 200, response.text
    return np.array([row["embedding"] for row in response.json()["data"]], dtype=np.float32)


def expected(texts, **fields):
    return np.array([vector_of(text, **fields) for text in texts])


def message_of(response):
    return response.json()["error"]["message"]


# -- numbers of rows ---------------------------------------------------------------------------------------------------


def numbered(*numbers):
    """Rows of the texts "a", "b", "c" with these numbers; "-" for none."""

    def answer(body):
        rows = [row.tolist() for row in expected(["a", "b", "c"][: len(body["input"])])]
        at = [n if isinstance(n, int) and 0 <= n < len(rows) else place for place, n in enumerate(numbers)]
        data = [{"embedding": rows[at[place]]} | ({} if n == "-" else {"index": n}) for place, n in enumerate(numbers)]
        return JSONResponse({"data": data})

    return answer


@pytest.mark.parametrize(
    "numbers",
    [
        ("-", 1, 2),  # Gemini
        ("-", 2, 1),
        ("-", "-", "-"),
        (None, None, None),
        (None, 1, 2),
        ("-",),
        (0, 1, 2),
        (2, 0, 1),
        (0.0, 1.0, 2.0),
    ],
)
def test_rows_without_numbers_are_in_the_order_of_the_texts(proxy, api, numbers):
    api.answer = numbered(*numbers)
    texts = ["a", "b", "c"][: len(numbers)]
    np.testing.assert_array_equal(vectors_of(ask(proxy, texts)), expected(texts))


@pytest.mark.parametrize(
    "numbers",
    [
        (0, "-", 2),
        (0, 1, "-"),
        (1, "-", 2),
        ("-", "-", 2),
        ("-", 0, 1),
        ("-", 1, 1),
        ("-", 2, 3),
        (1, 2, 3),
        (0, 0, 0),
        (0, 1, 1),
        (0, 1, 3),
        (-1, 0, 1),
        ("0", "1", "2"),
        (0, 1, "2"),
        (0, 1.5, 2),
        (0, None, 2),
        ([0], [1], [2]),
    ],
)
def test_rows_whose_numbers_have_gaps_are_refused(proxy, api, numbers):
    api.answer = numbered(*numbers)
    response = ask(proxy, ["a", "b", "c"])
    assert (response.status_code, "cannot be read" in message_of(response)) == (502, True)


ROW = [0.5] * DIM


@pytest.mark.parametrize(
    "data",
    [
        [{"index": 0, "embedding": None}, {"index": 1, "embedding": None}],
        [{"index": 0, "embedding": ROW}, {"index": 1, "embedding": None}],
        [{"index": 0, "embedding": [None] * DIM}, {"index": 1, "embedding": ROW}],
        [{"index": 0}, {"index": 1}],
        [ROW, ROW],
        {"0": ROW, "1": ROW},
        None,
        [],
        [{"index": 0, "embedding": [ROW]}, {"index": 1, "embedding": [ROW]}],
        [{"index": 0, "embedding": {"float": ROW}}, {"index": 1, "embedding": {"float": ROW}}],
    ],
)
def test_data_without_vectors_is_refused(proxy, api, data):
    api.answer = lambda body: JSONResponse({"data": data})
    assert ask(proxy).status_code == 502


def test_whole_numbers_are_numbers(proxy, api):
    rows = [[1, 0, -3, 4, 5, 6, 7, 8], [2, 2, 2, 2, 0, 0, 0, 0]]
    api.answer = lambda body: JSONResponse({"data": [{"embedding": row} for row in rows]})
    np.testing.assert_array_equal(vectors_of(ask(proxy)), rows)


# -- what was charged --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "n_tokens"),
    [
        ({"prompt_tokens": 7, "total_tokens": 7}, 7),
        ({"total_tokens": 9}, 9),
        ({"prompt_tokens": None, "total_tokens": 9}, 9),
        ({"prompt_tokens": 0, "total_tokens": 9}, 9),
        ({"prompt_tokens": -1, "total_tokens": 9}, 9),
        ({"prompt_tokens": "x", "total_tokens": 9}, 9),
        ({"total_tokens": 9.0}, 9),
        ({"input_tokens": 3}, 3),
        ({"prompt_tokens": True}, 0),
        ({"total_tokens": 2.5}, 0),
        ({}, 0),
        (None, 0),
        ([], 0),
        ("free", 0),
    ],
)
def test_the_tokens_that_were_charged_are_reported(proxy, api, usage, n_tokens):
    data = [{"embedding": ROW}, {"embedding": ROW}]
    api.answer = lambda body: JSONResponse({"data": data, "usage": usage})
    assert ask(proxy).json()["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}


def test_tokens_of_all_parts_add_up(make, api):
    api.refuse = lambda body: at_most(4, body, 413, {"message": "Payload Too Large"})
    api.answer = lambda body: JSONResponse(
        {"data": [{"embedding": ROW} for _ in body["input"]], "usage": {"total_tokens": len(body["input"])}}
    )
    assert ask(make(), [f"text {n}" for n in range(11)]).json()["usage"]["total_tokens"] == 11


# -- formats -----------------------------------------------------------------------------------------------------------


REFUSED_FORMATS = {
    "vllm": (400, {"object": "error", "message": "base64 encoding is not currently supported", "code": 400}),
    "nested": (400, {"error": {"message": "Unsupported encoding_format: base64", "type": "invalid_request_error"}}),
    "fastapi": (
        422,
        {"detail": [{"loc": ["body", "encoding_format"], "msg": "Input should be 'float'", "input": "base64"}]},
    ),
    "litellm": (400, {"error": {"message": "gemini does not support parameters: {'encoding_format': 'base64'}"}}),
    "a list": (400, [{"error": {"code": 400, "message": "Invalid value at encoding_format"}}]),
    "says nothing": (400, {"error": {"message": "Bad Request"}}),
    "an error text": (400, {"error": "base64 is not supported"}),
    "empty": (400, {}),
    "unprocessable": (422, {"detail": "Unprocessable Entity"}),
    "not implemented": (501, {"message": "encoding_format base64"}),
}


@pytest.mark.parametrize("name", list(REFUSED_FORMATS))
def test_an_api_without_base64_is_asked_for_floats_from_then_on(make, api, name):
    status, content = REFUSED_FORMATS[name]
    api.refuse = lambda body: JSONResponse(content, status) if body.get("encoding_format") == "base64" else None
    client = make()
    for texts in (["a", "b"], ["c"], ["d"]):
        np.testing.assert_array_equal(vectors_of(ask(client, texts)), expected(texts))
    assert [body["encoding_format"] for body in api.bodies] == ["base64", "float", "float", "float"]


@pytest.mark.parametrize("text", ["base64 is not supported", "Bad Request", ""])
def test_a_refusal_in_plain_text_is_understood(make, api, text):
    api.refuse = lambda body: PlainTextResponse(text, 400) if body.get("encoding_format") == "base64" else None
    np.testing.assert_array_equal(vectors_of(ask(make())), expected(["a", "b"]))


def test_an_api_without_the_field_gets_none(make, api):
    forbidden = {"detail": [{"type": "extra_forbidden", "loc": ["body", "encoding_format"], "msg": "not permitted"}]}
    api.refuse = lambda body: JSONResponse(forbidden, 422) if "encoding_format" in body else None
    client = make()
    for text in "ab":
        np.testing.assert_array_equal(vectors_of(ask(client, [text])), expected([text]))
    assert [body.get("encoding_format") for body in api.bodies] == ["base64", "float", None, None]


def test_an_api_that_sends_base64_is_not_asked_again_when_it_refuses_a_text(make, api):
    client = make()
    ask(client)
    api.refuse = lambda body: JSONResponse({"error": {"message": "Bad Request"}}, 400)
    assert ask(client, ["c"]).status_code == 400
    assert len(api.bodies) == 2


def test_a_refusal_of_something_else_is_passed_on_at_once(make, api):
    api.refuse = lambda body: JSONResponse({"error": {"message": "no such model: big"}}, 400)
    response = ask(make())
    assert (response.status_code, "no such model" in message_of(response)) == (400, True)
    assert len(api.bodies) == 1


def test_an_api_that_ignores_the_format_sends_floats(proxy, api):
    api.answer = lambda body: JSONResponse({"data": [{"embedding": row.tolist()} for row in api.rows(body)]})
    np.testing.assert_array_equal(vectors_of(ask(proxy)), expected(["a", "b"]))


# -- numbers of texts --------------------------------------------------------------------------------------------------


def at_most(most, body, status, content):
    if len(body["input"]) <= most:
        return None
    return PlainTextResponse(content, status) if isinstance(content, str) else JSONResponse(content, status)


def dashscope(n):
    said = "<400> InternalError.Algo.InvalidParameter: Value error, batch size is invalid, it should not be larger than"
    return {"error": {"message": f"{said} {n}.: input.contents", "code": "InvalidParameter"}}


REFUSED_NUMBERS = {
    "dashscope": (10, 400, dashscope(10)),
    "siliconflow": (64, 413, {"code": 20042, "message": "input batch size 100 > maximum allowed batch size 64"}),
    "tei": (32, 422, {"message": "batch size 100 > maximum allowed batch size 32", "type": "Validation"}),
    "fastapi": (
        64,
        422,
        {"detail": [{"loc": ["body", "input"], "msg": "List should have at most 64 items after validation, not 100"}]},
    ),
    "azure": (16, 400, {"error": {"message": "Too many inputs. The max number of inputs is 16."}}),
    "gemini": (50, 400, [{"error": {"message": "at most 50 requests can be in one batch"}}]),
    "openai": (
        20,
        400,
        {
            "error": {
                "message": "Invalid 'input': array too long. Expected an array with maximum length 20, but got 100"
            }
        },
    ),
    "cohere": (96, 400, {"message": "invalid request: total number of texts must be at most 96"}),
    "says nothing": (10, 400, {"error": {"message": "Bad Request"}}),
    "empty": (10, 413, ""),
    "nginx": (10, 413, "<html><head><title>413 Request Entity Too Large</title></head></html>"),
    "one": (1, 400, {"error": {"message": "batch size must be 1"}}),
    "mistral": (10, 400, {"message": "Too many inputs in request, split into more batches."}),
}


@pytest.mark.parametrize("name", list(REFUSED_NUMBERS))
def test_an_api_that_takes_fewer_texts_is_asked_with_fewer_from_then_on(make, api, name):
    most, status, content = REFUSED_NUMBERS[name]
    api.refuse = lambda body: at_most(most, body, status, content)
    client, texts = make(), [f"text {n}" for n in range(100)]
    np.testing.assert_array_equal(vectors_of(ask(client, texts)), expected(texts))
    api.bodies.clear()
    np.testing.assert_array_equal(vectors_of(ask(client, texts[::-1])), expected(texts[::-1]))
    assert max(api.sizes()) <= most
    assert sum(api.sizes()) == 100  # none was refused
    assert max(api.sizes()) >= most / 2


def test_format_and_number_are_learned_together(make, api):
    wrong = {"detail": "Bad Request"}
    api.refuse = lambda body: (
        JSONResponse(wrong, 400) if body.get("encoding_format") == "base64" else at_most(10, body, 400, wrong)
    )
    client, texts = make(), [f"text {n}" for n in range(35)]
    np.testing.assert_array_equal(vectors_of(ask(client, texts)), expected(texts))
    api.bodies.clear()
    assert ask(client, texts).status_code == 200
    assert {body["encoding_format"] for body in api.bodies} == {"float"}
    assert 5 <= max(api.sizes()) <= 10


def test_requests_at_the_same_time_learn_without_an_error(make, api):
    api.refuse = lambda body: at_most(7, body, 413, {"message": "Payload Too Large"})
    client = make()

    async def at_once():
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as other:
            parts = [[f"text {number} {n}" for n in range(40)] for number in range(8)]
            url = f"{client.base_url}/v1/embeddings"
            return parts, await asyncio.gather(*[other.post(url, json={"input": part}) for part in parts])

    for part, response in zip(*asyncio.run(at_once()), strict=True):
        np.testing.assert_array_equal(vectors_of(response), expected(part))


def test_one_text_that_is_refused_does_not_make_later_requests_small(make, api):
    too_long = {"error": {"message": "Bad Request"}}
    api.refuse = lambda body: JSONResponse(too_long, 400) if "long" in body["input"] else None
    client, texts = make(), [f"text {n}" for n in range(32)]
    assert ask(client, [*texts[:20], "long", *texts[20:]]).status_code == 400
    api.bodies.clear()
    assert ask(client, texts).status_code == 200
    assert api.sizes() == [32]


def test_a_limit_of_tokens_splits_a_request_and_not_later_ones(make, api):
    def refuse(body):
        n_tokens = sum(map(len, body["input"]))
        said = f"The max allowed tokens per submitted batch is 100. Your batch has {n_tokens} tokens."
        return JSONResponse({"detail": said}, 400) if n_tokens > 100 else None

    api.refuse = refuse
    client, texts = make(), [f"{n:030d}" for n in range(10)]
    np.testing.assert_array_equal(vectors_of(ask(client, texts)), expected(texts))
    api.bodies.clear()
    assert ask(client, [str(n) for n in range(10)]).status_code == 200
    assert api.sizes() == [10]


def test_a_number_of_texts_can_be_set(make, api):
    texts = [f"text {n}" for n in range(25)]
    np.testing.assert_array_equal(vectors_of(ask(make(max_texts=10), texts)), expected(texts))
    assert sorted(api.sizes()) == [5, 10, 10]


# -- fields that change vectors ----------------------------------------------------------------------------------------

PASSED = [
    {"input_type": "query"},
    {"input_type": "passage"},
    {"input_type": "classification"},
    {"task": "retrieval.query"},
    {"task": "text-matching"},
    {"task_type": "RETRIEVAL_DOCUMENT"},
    {"instruction": "Find answers"},
    {"prompt_name": "s2p_query"},
    {"prompt": "query: "},
    {"truncate": "NONE"},
    {"truncate": False},
    {"truncation": False},
    {"truncate_prompt_tokens": 128},
    {"text_type": "query"},
    {"title": "a title"},
    {"normalize": False},
    {"normalized": True},
    {"add_special_tokens": False},
    {"provider": {"order": ["x"]}},
    {"a_field_of_2030": [1, {"a": None}]},
]


@pytest.mark.parametrize("fields", PASSED, ids=lambda fields: "-".join(fields))
def test_a_field_that_changes_vectors_is_sent_and_parts_the_cache(make, api, fields, tmp_path):
    api.counted = tuple(fields)
    client = make(cache=VectorCache(tmp_path / "cache", max_bytes=10**6))
    plain = expected(["a", "b"])
    for _ in range(2):
        np.testing.assert_array_equal(vectors_of(ask(client)), plain)
        np.testing.assert_array_equal(vectors_of(ask(client, **fields)), expected(["a", "b"], **fields))
    assert len(api.bodies) == 2  # each came from the cache once
    [name] = fields
    other = {name: "another value"}
    if name != "input_type" and name != "prompt_name":
        np.testing.assert_array_equal(vectors_of(ask(client, **other)), expected(["a", "b"], **other))


@pytest.mark.parametrize("has_map", [False, True])
def test_the_space_of_an_answer_is_that_of_its_fields(make, api, folder, has_map):
    api.counted = ("task", "instruction", "input_type", "truncate")
    client = make(maps=Maps({"small": folder}) if has_map else None)

    def space_of(wanted=None, **fields):
        headers = {} if wanted is None else {"If-Space": wanted}
        response = client.post("/v1/embeddings", json={"input": ["a"], **fields}, headers=headers)
        assert response.status_code in (200, 409)
        return response.status_code, response.headers.get("X-Isosent-Space")

    _, plain = space_of()
    for fields in ({"input_type": "query"}, {"task": "retrieval.passage"}, {"truncate": "NONE"}, {"user": "me"}):
        assert space_of(plain, **fields) == (200, plain)
    others = [{"task": "separation"}, {"task": "text-matching"}, {"instruction": "a"}, {"instruction": "b"}]
    spaces = [space_of(**fields)[1] for fields in others]
    assert len({plain, *spaces}) == 5
    n_bodies = len(api.bodies)
    for space, fields in zip(spaces, others, strict=True):
        assert space_of(plain, text="new", **fields)[0] == 409
        assert space_of(space, **fields) == (200, space)
    assert len(api.bodies) == n_bodies + 4  # a refused request costs nothing


def test_fields_in_another_order_are_the_same(make, api, tmp_path):
    client = make(cache=VectorCache(tmp_path / "cache", max_bytes=10**6))
    ask(client, task="x", options={"a": 1, "b": 2})
    ask(client, options={"b": 2, "a": 1}, task="x")
    assert len(api.bodies) == 1


@pytest.mark.parametrize(
    "fields",
    [{"user": "me"}, {"metadata": {"a": 1}}, {"input_type": None}, {"request_id": "7"}, {"output_dtype": "float"}],
    ids=lambda fields: "-".join(fields),
)
def test_a_field_that_changes_no_vector_shares_the_cache(make, api, fields, tmp_path):
    client = make(cache=VectorCache(tmp_path / "cache", max_bytes=10**6))
    ask(client)
    assert ask(client, **fields).status_code == 200
    assert len(api.bodies) == 1
    assert not set(fields) & set(api.bodies[0])


def test_queries_and_documents_in_flight_are_two_requests(proxy, api):

    async def at_once():
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as other:
            url = f"{proxy.base_url}/v1/embeddings"
            sides = ("query", "document", "query")
            bodies = [{"input": ["a"], "input_type": side} for side in sides]
            return sides, await asyncio.gather(*[other.post(url, json=body) for body in bodies])

    for side, response in zip(*asyncio.run(at_once()), strict=True):
        np.testing.assert_array_equal(vectors_of(response), expected(["a"], input_type=side))
    assert sorted(body["input_type"] for body in api.bodies) == ["document", "query"]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"output_dtype": "int8"}, "output_dtype"),
        ({"embedding_type": "ubinary"}, "embedding_type"),
        ({"embedding_types": ["int8"]}, "embedding_types"),
        ({"embed_dtype": "float16"}, "embed_dtype"),
        ({"endianness": "big"}, "endianness"),
        ({"precision": "binary"}, "precision"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"output_dimension": 4}, "dimensions"),
        ({"outputDimensionality": 4}, "dimensions"),
        ({"dimension": 4}, "dimensions"),
        ({"matryoshka_dim": 4}, "dimensions"),
        ({"dimensions": 4}, "dimensions"),
        ({"late_chunking": True}, "other texts"),
        ({"return_multivector": True}, "return_multivector"),
        ({"extra_body": {"input_type": "query"}}, "next to input"),
        ({"input_type": "query", "prompt_name": "document"}, "contradict"),
        ({"instruction": "x" * 20_000}, "16384"),
        ({"parameters": {"output_dtype": "int8"}}, "output_dtype"),
        ({"options": {"more": {"dimension": 4}}}, "dimensions"),
        ({"embedding_size": 4}, "dimensions"),
        ({"compression": "int8"}, "compression"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_field_that_cannot_have_its_effect_is_refused(proxy, api, fields, word):
    response = ask(proxy, **fields)
    assert (response.status_code, word in message_of(response)) == (400, True)
    assert api.bodies == []


@pytest.mark.parametrize(
    ("dialect", "fields", "sent"),
    [
        ("cohere", {"input_type": "query"}, {"input_type": "search_query"}),
        ("cohere", {"prompt_name": "passage"}, {"input_type": "search_document"}),
        ("cohere", {"input_type": "classification"}, {"input_type": "classification"}),
        ("cohere", {"truncate": "NONE"}, {"input_type": "search_document", "truncate": "NONE"}),
        ("tei", {"prompt_name": "query"}, {"prompt_name": "query", "truncate": True}),
        ("tei", {"truncate": False}, {"truncate": False}),
        ("tei", {"truncation_direction": "Left"}, {"truncation_direction": "Left"}),
        ("ollama", {"options": {"num_ctx": 64}}, {"options": {"num_ctx": 64}}),
        ("ollama", {"task": None}, {}),
    ],
)
def test_a_dialect_is_sent_the_fields_that_it_has(proxies, api, dialect, fields, sent):
    api.openai = False
    assert ask(proxies(dialect), **fields).status_code == 200
    [body] = api.bodies
    assert {name: body.get(name) for name in sent} == sent
    assert set(body) <= {*sent, "model", "input", "inputs", "texts", "embedding_types", "truncate", "input_type"}


@pytest.mark.parametrize(
    ("dialect", "field"),
    [
        ("cohere", "task"),
        ("cohere", "texts"),
        ("cohere", "images"),
        ("tei", "input_type"),
        ("tei", "inputs"),
        ("tei", "task"),
        ("ollama", "input_type"),
        ("ollama", "prompt_name"),
        ("ollama", "instruction"),
        ("ollama", "a_field_of_2030"),
    ],
)
def test_a_dialect_without_a_field_refuses_it(proxies, api, dialect, field):
    response = ask(proxies(dialect), **{field: "query"})
    assert (response.status_code, field in message_of(response)) == (400, True)
    assert api.bodies == []


@pytest.fixture
def folder(tmp_path):
    rows = np.random.default_rng(0).standard_normal((200, DIM)).astype(np.float32)
    model = SentenceEncoder(PrecomputedVectors(DIM, {"space": "big"}))
    model.fitted_on_vectors(rows, isosent.Whitening(n_components=4)).save(tmp_path / "small")
    return tmp_path / "small"


def test_the_fields_reach_the_api_with_a_transform_too(make, api, folder):
    client = make(maps=Maps({"small": folder}))
    raw = expected(["a", "b"], input_type="query")
    after = isosent.load(folder).transform(raw)
    after /= np.linalg.norm(after, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors_of(ask(client, input_type="query")), after, atol=1e-6)
    response = ask(client, normalize=False)
    assert (response.status_code, "normalize" in message_of(response)) == (400, True)


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "word"),
    [
        (
            lambda: JSONResponse({"detail": [{"loc": ["body", "x"], "msg": "is wrong", "input": "secret"}]}, 422),
            "body.x",
        ),
        (lambda: JSONResponse({"detail": "is wrong"}, 422), "is wrong"),
        (lambda: JSONResponse([{"error": {"message": "is wrong"}}], 400), "is wrong"),
        (lambda: JSONResponse({"error": {"error": {"message": "is wrong"}}}, 400), "is wrong"),
        (lambda: JSONResponse("is wrong", 400), "is wrong"),
        (lambda: PlainTextResponse("is wrong", 400), "is wrong"),
        (lambda: Response("<html>oops</html>", 400, media_type="text/html"), "400"),
        (lambda: JSONResponse({"message": "no model /srv/secret/models/mini here"}, 400), "no model mini here"),
        (lambda: JSONResponse({"message": "no model hf:/srv/secret/mini here"}, 400), "no model mini here"),
        (lambda: JSONResponse({"message": "use /v1/models"}, 400), "use /v1/models"),
        (lambda: JSONResponse({"message": "wrong key the-key-of-the-proxy"}, 400), "wrong key ..."),
    ],
)
def test_an_error_of_any_shape_is_one_sentence_without_secrets(proxy, api, response, word):
    api.refuse = lambda body: response()
    answer = ask(proxy, ["a"])
    assert answer.status_code == response().status_code
    assert word in message_of(answer)
    assert "secret" not in answer.text
    assert "<html>" not in answer.text


# -- paths -------------------------------------------------------------------------------------------------------------


def test_a_slash_at_the_end_changes_nothing(proxy):
    response = proxy.post("/v1/embeddings/", json={"input": ["a", "b"]})
    np.testing.assert_array_equal(vectors_of(response), expected(["a", "b"]))
    assert proxy.get("/v1/models/").json()["data"][0]["id"] == "big"


@pytest.mark.parametrize("path", ["/embeddings", "/api/embeddings", "/v1/embed", "/v1/v1/embeddings", "/nothing"])
def test_a_wrong_path_leads_to_the_right_one(proxy, path):
    response = proxy.post(path, json={"input": "a"})
    assert (response.status_code, "/v1/embeddings" in message_of(response)) == (404, True)
