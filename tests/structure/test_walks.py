"""How often a reader changes the file who follows one call from the command to the numbers."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import isosent
from isosent.cli.main import app

SOURCE = Path(isosent.__file__).parent
MOST_STAYS = 7
# Where the numbers are made, or a file gets its name. What happens below is another story.
ENDS = {
    "numeric/word_averages.py",
    "numeric/linear_map.py",
    "numeric/moments.py",
    "search/engine.py",
    "io/atomic.py",
}


QUEUE = "server/registry.py"  # where a request waits for the thread of its model


@contextmanager
def walked(target=ENDS):
    """All ways from outside to a file of the target: the files of the callers, in order, each counted once in a row."""
    walks, names = set(), {}

    def name_of(code):
        if code not in names:
            path = Path(code.co_filename)
            names[code] = path.relative_to(SOURCE).as_posix() if path.is_relative_to(SOURCE) else None
        return names[code]

    def on_call(frame, event, _):
        if event != "call" or name_of(frame.f_code) not in target:
            return
        files = []
        while frame is not None:
            name = name_of(frame.f_code)
            if name is not None and files[-1:] != [name]:
                files.append(name)
            frame = frame.f_back
        ends = [place for place, name in enumerate(files) if name in target]
        if ends == [0]:  # the first of the target on this way
            walks.add(tuple(reversed(files)))

    before = sys.getprofile()
    sys.setprofile(on_call)
    threading.setprofile(on_call)
    try:
        yield walks
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walks")
    texts = isosent.demo_texts()[:120]
    (folder / "texts.txt").write_text("\n".join(texts))
    model = isosent.load().fitted(texts, transform=isosent.Whitening(16))
    model.save(folder / "model")
    pytest.importorskip("isosent.search").Index.create(texts, model, folder=folder / "index")
    return folder


@pytest.mark.parametrize(
    ("command", "end"),
    [
        ("encode {0}/texts.txt -m {0}/model -o {0}/vectors.npy", "numeric/word_averages.py"),
        ("fit {0}/texts.txt --transform whitening --dims 16 -o {0}/fitted", "numeric/moments.py"),
        ("fit {0}/texts.txt --dims 16 -o {0}/chosen", "numeric/linear_map.py"),
        ("fit {0}/vectors.npy --transform whitening -o {0}/mapped", "numeric/moments.py"),
        ("index {0}/texts.txt -m {0}/model -o {0}/made", "numeric/word_averages.py"),
        ("search {0}/index onions", "search/engine.py"),
        ("search {0}/index onions --hybrid", "numeric/word_averages.py"),
    ],
    ids=lambda value: value.split()[0],
)
def test_a_command_is_followed_in_few_files_without_a_step_back(folder, command, end):
    words = [word.format(folder) for word in command.split()]
    vectors = folder / "vectors.npy"
    if str(vectors) in words[1:2] and not vectors.exists():
        np.save(vectors, isosent.load().encode(isosent.demo_texts()[:120]))
    # in a thread of its own: what earlier tests did to the profile of the main thread does not matter there
    with walked() as walks, ThreadPoolExecutor(1) as thread:
        thread.submit(app.main, words, standalone_mode=False).result()
    module = f"cli/{'search' if words[0] == 'index' else words[0]}.py"
    walks = {walk[walk.index(module) :] for walk in walks if module in walk}  # without what reads the options
    assert end in {walk[-1] for walk in walks}
    assert {walk for walk in walks if len(walk) > MOST_STAYS} == set()
    assert {walk for walk in walks if len(walk) > len(set(walk))} == set()


def test_a_request_is_followed_in_few_files_without_a_step_back(folder):
    testclient, server = pytest.importorskip("starlette.testclient"), pytest.importorskip("isosent.server")
    app = server.create_app({"m": isosent.load(folder / "model")})

    def answer():
        response = client.post("/v1/embeddings", json={"input": "a horse", "model": "m"})
        assert response.status_code == 200

    with walked({QUEUE}) as to_queue, testclient.TestClient(app) as client:
        answer()
    before = {walk for walk in to_queue if "server/embeddings.py" in walk}
    with walked() as walks, testclient.TestClient(server.create_app({"m": isosent.load(folder / "model")})) as client:
        answer()
    after = {walk for walk in walks if walk[0] == QUEUE}  # in the thread that the queue belongs to
    assert before
    assert {"numeric/word_averages.py", "numeric/linear_map.py"} <= {walk[-1] for walk in after}
    ways = {(*first[:-1], *second) for first in before for second in after}
    assert {way for way in ways if len(way) > MOST_STAYS or len(way) > len(set(way))} == set()
