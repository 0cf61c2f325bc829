import socket
import threading
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

import isosent
from isosent.search import Index
from isosent.server import Limits, create_app

NOTES = [
    "A man is riding a horse.",
    "Two dogs play in the snow.",
    "She slices an onion.",
    "The bank raised its interest rates.",
    "He repaired his bicycle.",
]


@contextmanager
def _running(app):
    """Serve an application on loopback in a thread, and give its port."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on"))
    thread = threading.Thread(target=server.run, args=([sock],))
    thread.start()
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def running():
    return _running


@pytest.fixture(scope="session")
def small(wordllama, texts):
    """A model whose dimensions have an order."""
    return wordllama.fitted(texts, isosent.Whitening(n_components=64))


@pytest.fixture(scope="session")
def notes(wordllama):
    metadata = {"year": [2019, 2020, 2021, 2022, 2023]}
    return Index.create(NOTES, wordllama, ids=["horse", "dogs", "onion", "bank", "bicycle"], metadata=metadata)


@pytest.fixture(scope="session")
def client(running, small, wordllama, notes):
    """A client of a server with two models and an index."""
    limits = Limits(max_texts=300, max_body_bytes=200_000, request_timeout_s=5)
    app = create_app({"small": small, "wordllama": wordllama, "notes": notes}, limits=limits)
    with running(app) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        yield client
