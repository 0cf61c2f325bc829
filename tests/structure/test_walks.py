"""How often a reader changes the file who follows one call from the command to the numbers."""

import json
import subprocess
import sys
import threading
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

import isosent
from isosent.cli.main import app

pytestmark = pytest.mark.slow

SOURCE = Path(isosent.__file__).parent
# of a request: HTTP, its dialect, its space, the queue, the model, its steps, a step, the map; of a search: its store
MOST_STAYS = 8
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


COMMANDS = {
    "encode {0}/texts.txt -m {0}/model -o {0}/vectors.npy": "numeric/word_averages.py",
    "fit {0}/texts.txt --transform whitening --dims 16 -o {0}/fitted": "numeric/moments.py",
    "fit {0}/texts.txt --dims 16 -o {0}/chosen": "numeric/linear_map.py",
    "fit {0}/vectors.npy --transform whitening -o {0}/mapped": "numeric/moments.py",
    "index {0}/texts.txt -m {0}/model -o {0}/made": "numeric/word_averages.py",
    "search {0}/index onions": "search/engine.py",
    "search {0}/index onions --hybrid": "numeric/word_averages.py",
}


def all_walks(folder):
    """The walks of each command, and of a request before and after its queue."""
    from starlette.testclient import TestClient

    from isosent.search import Index
    from isosent.server import create_app

    texts = isosent.demo_texts()[:120]
    (folder / "texts.txt").write_text("\n".join(texts))
    model = isosent.load().fitted(texts, transform=isosent.Whitening(16))
    model.save(folder / "model")
    Index.create(texts, model, folder=folder / "index")
    results = {}
    for command in COMMANDS:
        with walked() as walks, redirect_stdout(StringIO()):
            app.main([word.format(folder) for word in command.split()], standalone_mode=False)
        results[command] = list(walks)
    for part, target in {"to the queue": {QUEUE}, "from the queue": ENDS}.items():
        with walked(target) as walks, TestClient(create_app({"m": isosent.load(folder / "model")})) as client:
            response = client.post("/v1/embeddings", json={"input": "a horse", "model": "m"})
        assert response.status_code == 200
        results[part] = list(walks)
    return results


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory):
    pytest.importorskip("isosent.search")
    pytest.importorskip("starlette.testclient")
    # in a process of its own: a profile does not always outlive what other tests do to theirs
    command = [sys.executable, __file__, tmp_path_factory.mktemp("walks")]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: {tuple(walk) for walk in walks} for name, walks in json.loads(output).items()}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_followed_in_few_files_without_a_step_back(all_of_them, command):
    name = command.split()[0]
    module = f"cli/{name}.py"
    walks = {walk[walk.index(module) :] for walk in all_of_them[command] if module in walk}  # not to read the options
    assert COMMANDS[command] in {walk[-1] for walk in walks}
    most = MOST_STAYS + 2 * (name == "search")  # through the store, and the models of the index
    assert {walk for walk in walks if len(walk) > most} == set()
    assert {walk for walk in walks if len(walk) > len(set(walk))} == set()


def test_a_request_is_followed_in_few_files_without_a_step_back(all_of_them):
    before = {walk for walk in all_of_them["to the queue"] if "server/embeddings.py" in walk}
    after = {walk for walk in all_of_them["from the queue"] if walk[0] == QUEUE}  # in the thread of the queue
    assert before
    assert {"numeric/word_averages.py", "numeric/linear_map.py"} <= {walk[-1] for walk in after}
    ways = {(*first[:-1], *second) for first in before for second in after}
    assert {way for way in ways if len(way) > MOST_STAYS or len(way) > len(set(way))} == set()


if __name__ == "__main__":
    json.dump(all_walks(Path(sys.argv[1])), sys.stdout)
