"""The queue of a model: batches, fairness, limits, and failures that stay with the request that caused them."""

import threading
import time
from concurrent.futures import wait

import numpy as np
import pytest
from fake_api import Answer, FakeApi

import isosent
from isosent.errors import ApiError
from isosent.server.limits import Limits, RequestError
from isosent.server.registry import RetiredError, Worker
from isosent.server.service import Metrics


class Bench:
    """A model whose encoder waits for a signal, and what it was asked for."""

    def __init__(self):
        self.may_go, self.has_begun = threading.Event(), threading.Event()
        self.batches = []

    def __call__(self, texts):
        self.batches.append(list(texts))
        self.has_begun.set()
        assert self.may_go.wait(10)
        if "bad" in texts:
            raise ValueError("a text that cannot be encoded")
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32).reshape(-1, 2)


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def make(request):
    """Make a worker that ends with the test."""

    def make(model, **limits):
        worker = Worker(model, "model", limits=Limits(**limits), metrics=Metrics())
        request.addfinalizer(lambda: (worker.retire(), worker.join(10)))
        return worker

    return make


@pytest.fixture
def held(bench, make):
    """Make a worker that computes the text "first", and does not end it before the test says so."""
    bench.may_go.set()

    def held(**limits):
        with pytest.warns(isosent.IsosentWarning):
            model = isosent.wrap(Counting(bench))
        bench.batches.clear()
        bench.has_begun.clear()
        bench.may_go.clear()
        worker = make(model, **limits)
        first = worker.submit(["first"])
        assert bench.has_begun.wait(10)
        return worker, first

    return held


class Counting:
    """A model of another library."""

    def __init__(self, bench):
        self.encode = bench


def test_a_response_is_that_of_the_library_whatever_else_is_in_the_batch(make, small, texts):
    worker = make(small)
    parts = [texts[start : start + size] for start, size in zip(range(0, 400, 10), [1, 2, 7, 40] * 10, strict=True)]
    futures = [worker.submit(part) for part in parts]
    for part, future in zip(parts, futures, strict=True):
        assert np.array_equal(future.result(30).vectors, small.encode(part))


def test_what_queues_up_meanwhile_is_the_next_batch(held, bench):
    worker, first = held()
    others = [worker.submit([f"text {number}", f"more {number}"]) for number in range(5)]
    bench.may_go.set()
    wait([first, *others], 10)
    assert bench.batches == [["first"], [f"{word} {number}" for number in range(5) for word in ("text", "more")]]


def test_a_batch_has_as_many_tokens_as_allowed_and_requests_take_turns(held, bench):
    worker, first = held(max_batch_tokens=8)
    long = worker.submit([f"long request {number}" for number in range(12)])
    short = worker.submit(["short"])
    finished = []
    long.add_done_callback(lambda _: finished.append("long"))
    short.add_done_callback(lambda _: finished.append("short"))
    bench.may_go.set()
    wait([first, long, short], 10)
    assert finished == ["short", "long"]
    assert len(bench.batches) > 4
    assert np.array_equal(long.result().vectors[:, 0], [len(f"long request {number}") for number in range(12)])


def test_a_failing_batch_fails_its_own_request_only(held, bench):
    worker, first = held()
    good, bad, other = worker.submit(["good"]), worker.submit(["fine", "bad"]), worker.submit(["other"])
    bench.may_go.set()
    assert good.result(10).vectors[0, 0] == 4
    assert other.result(10).vectors[0, 0] == 5
    with pytest.raises(ValueError, match="cannot be encoded"):
        bad.result(10)
    assert first.done()


def test_a_client_that_has_gone_is_skipped(held, bench):
    worker, _ = held()
    gone, stays = worker.submit(["gone"]), worker.submit(["stays"])
    assert gone.cancel()
    bench.may_go.set()
    stays.result(10)
    assert bench.batches == [["first"], ["stays"]]
    assert worker.n_queued_tokens == 0


def test_a_full_queue_refuses_with_the_time_to_wait(held, bench):
    worker, _ = held(max_queued_tokens=50)
    waiting = worker.submit(["a text of some words"] * 20)
    with pytest.raises(RequestError, match="--max-queued-tokens") as caught:
        worker.submit(["one more"])
    assert caught.value.status == 429
    assert int(caught.value.headers["Retry-After"]) >= 1
    bench.may_go.set()
    waiting.result(10)
    assert worker.submit(["one more"]).result(10).vectors.shape == (1, 2)


def test_a_retired_worker_answers_what_is_in_its_queue(held, bench):
    worker, first = held()
    last = worker.submit(["last"])
    worker.retire()
    with pytest.raises(RetiredError):
        worker.submit(["too late"])
    bench.may_go.set()
    assert last.result(10).vectors[0, 0] == 4
    assert first.done()


def test_no_texts_have_no_vectors(make, wordllama):
    assert make(wordllama).submit([]).result(10).vectors.shape == (0, 256)


def test_queries_and_documents_are_encoded_as_such(make, wordllama, texts):
    model = wordllama.fitted(texts, isosent.Whitening(8), queries=[f"what about {text}" for text in texts[:200]])
    worker = make(model)
    futures = {role: worker.submit(["a dog"], role) for role in ("text", "query", "document")}
    assert np.array_equal(futures["query"].result(10).vectors, model.encode_query(["a dog"]))
    assert np.array_equal(futures["document"].result(10).vectors, model.encode_document(["a dog"]))
    assert not np.array_equal(futures["query"].result().vectors, futures["text"].result(10).vectors)


def test_cut_texts_are_counted(make, tiny_model):
    model = isosent.load(f"hf:{tiny_model('bert')}?max_length=8")
    embedded = make(model).submit(["a " * 50, "a dog"]).result(30)
    assert embedded.n_truncated == 1


def test_a_text_without_tokens_has_the_zero_vector(make, tiny_model):
    [vector] = make(isosent.load(f"hf:{tiny_model('bert')}")).submit([" \n "]).result(30).vectors
    assert not vector.any()


def test_vectors_of_a_transformer_do_not_depend_on_the_batch(make, tiny_model, texts):
    model = isosent.load(f"hf:{tiny_model('bert')}")
    worker = make(model)
    futures = [worker.submit([text]) for text in texts[:40]]
    for text, future in zip(texts[:40], futures, strict=True):
        assert np.abs(future.result(30).vectors - model.encode([text])).max() <= 2e-6


# -- a model that is an API --------------------------------------------------------------------------------------------


@pytest.fixture
def api():
    with FakeApi().running() as api:
        yield api


def test_requests_to_an_api_go_out_side_by_side(api, make):
    model = isosent.load(f"api:{api.url}/v1?model=big&cache=none")
    expected = model.encode(["first"])
    at_once = threading.Barrier(4)
    api.misbehave = lambda body, n: [at_once.wait(20), None][1]  # after four have come
    worker = make(model)
    futures = []
    for number in range(4):
        n_requests = len(api.requests)
        futures.append(worker.submit([f"text {number}"]))
        while len(api.requests) == n_requests:  # else one request would have the texts of several clients
            assert not futures[-1].done()
            time.sleep(0.001)
    for number, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(20).vectors, [api.vector_of(f"text {number}")])
    assert expected.shape == (1, api.dim)


def test_pieces_of_a_request_to_an_api_come_together_and_fail_together(api, make):
    model = isosent.load(f"api:{api.url}/v1?model=big&cache=none")
    worker = make(model, max_batch_tokens=20)
    texts = [f"text {number} of a request that is cut into pieces" for number in range(60)]
    several = [worker.submit(texts), worker.submit(texts[:7])]
    np.testing.assert_array_equal(several[0].result(20).vectors, [api.vector_of(text) for text in texts])
    np.testing.assert_array_equal(several[1].result(20).vectors, [api.vector_of(text) for text in texts[:7]])
    api.misbehave = lambda body, n: Answer(401, {"error": {"message": "no such key"}})
    with pytest.raises(ApiError, match="no such key"):
        worker.submit([f"{text}, again" for text in texts]).result(20)
    api.misbehave = lambda body, n: None
    assert worker.submit(["after it"]).result(20).vectors.shape == (1, api.dim)
    assert worker.n_queued_tokens == 0
