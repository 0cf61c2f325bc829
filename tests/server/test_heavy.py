"""Long work: a queue of its own that ends, and nothing for clients that have gone."""

import threading

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Route

from isosent.server.http import Gate, read_body, unless_gone
from isosent.server.limits import Limits
from isosent.server.page import TryBody
from isosent.server.registry import HeavyWork
from isosent.server.service import Metrics


class Work:
    """Requests for long work that ends when the test says so."""

    def __init__(self, running):
        self.may_end, self.begun, self.queue = threading.Event(), [], HeavyWork()
        routes = [Route("/long/{name}", self.long), Route("/short", self.short, methods=["POST"])]
        gate = Middleware(Gate, metrics=Metrics())
        self.server = running(Starlette(routes=routes, middleware=[gate]))
        self.clients, self.statuses = [], []

    async def long(self, request):
        return await unless_gone(request, self.queue.run(self.work, request.path_params["name"]))

    def work(self, name):
        self.begun.append(name)
        assert self.may_end.wait(30)
        return Response(name)

    async def short(self, request):
        body = await read_body(request, Limits(), TryBody)
        return Response(str(len(body.texts)))

    def ask(self, name):
        """Ask for long work in a thread."""

        def ask():
            self.statuses.append(httpx.get(f"{self.url}/long/{name}", trust_env=False, timeout=60).status_code)

        self.clients.append(threading.Thread(target=ask))
        self.clients[-1].start()

    def __enter__(self):
        self.url = f"http://127.0.0.1:{self.server.__enter__()}"
        return self

    def __exit__(self, *error):
        self.may_end.set()
        for client in self.clients:
            client.join()
        self.queue.close()
        self.server.__exit__(*error)


@pytest.fixture
def work(running):
    with Work(running) as work:
        yield work


def test_short_requests_do_not_wait_for_long_ones(work, wait_until):
    for number in range(20):
        work.ask(number)
    wait_until(lambda: work.queue.n_waiting == 20)
    texts = ["a text that a shared thread decodes"] * 5000
    answer = httpx.post(f"{work.url}/short", json={"texts": texts}, trust_env=False, timeout=30)
    assert answer.text == "5000"
    assert len(work.begun) == 2


def test_a_full_queue_refuses(work, wait_until):
    for number in range(32):
        work.ask(number)
    wait_until(lambda: work.queue.n_waiting == 32)
    answer = httpx.get(f"{work.url}/long/more", trust_env=False, timeout=30)
    assert answer.status_code == 429
    assert answer.headers["Retry-After"] == "1"
    work.may_end.set()
    for client in work.clients:
        client.join()
    assert work.statuses == [200] * 32
    assert httpx.get(f"{work.url}/long/again", trust_env=False, timeout=30).status_code == 200


def test_what_nobody_waits_for_is_not_begun(work, wait_until):
    for number in range(2):
        work.ask(number)
    wait_until(lambda: len(work.begun) == 2)
    for number in range(5):
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{work.url}/long/gone-{number}", trust_env=False, timeout=0.2)
    wait_until(lambda: work.queue.n_waiting == 2)
    work.may_end.set()
    assert httpx.get(f"{work.url}/long/last", trust_env=False, timeout=30).status_code == 200
    assert sorted(work.begun) == ["0", "1", "last"]
