import logging
from contextlib import contextmanager

import httpx
import pytest

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


@pytest.fixture(scope="session")
def logged():
    """Collect what a server logs from a level on."""

    @contextmanager
    def logged(level):
        logger, records = logging.getLogger("isosent.server"), []
        handler, before = logging.Handler(), logger.level
        handler.emit = records.append
        logger.addHandler(handler)
        logger.setLevel(level)
        try:
            yield records
        finally:
            logger.setLevel(before)
            logger.removeHandler(handler)

    return logged


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
    with (
        running(app) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False, timeout=60) as client,
    ):
        yield client
