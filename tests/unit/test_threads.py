"""What threads and forked children share: indexes, schemas, locks, temporary folders (docs/threads.md)."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from threadpoolctl import ThreadpoolController

from isosent import Moments
from isosent.errors import OutputError
from isosent.io.atomic import locked
from isosent.numeric.threads import one_thread_products
from isosent.search import Index, rows

N_ROWS, DIM, N_ROUNDS = 1500, 16, 15
WAIT_S = 60


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).standard_normal((N_ROWS, DIM)).astype(np.float32)


@pytest.fixture(scope="module")
def texts_of_rows():
    return [f"text {number} of row{number % 97}" for number in range(N_ROWS)]


@pytest.fixture
def small_groups(monkeypatch):
    """Files of many row groups, of which two are kept: nearly every read finds none."""
    monkeypatch.setattr(rows, "_GROUP_ROWS", 50)
    monkeypatch.setattr(rows, "_GROUPS_IN_MEMORY", 2)


# -- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rounds", [2, pytest.param(N_ROUNDS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
def test_threads_share_an_index(vectors, texts_of_rows, small_groups, together, tmp_path, kind, n_rounds):
    metadata = {"part": [number % 7 for number in range(N_ROWS)]}
    Index.create(texts_of_rows, vectors=vectors, metadata=metadata, kind=kind, folder=tmp_path / "index")
    alone, shared = Index.open(tmp_path / "index"), Index.open(tmp_path / "index")

    def found(index, turn):
        queries = vectors[turn : turn + 2]
        where = f"part = {turn % 7}" if turn % 3 else None
        return index.search(queries, k=20, where=where).to_arrow()

    expected = [found(alone, turn) for turn in range(20)]
    first = found(alone, 0)
    assert first["text"].to_pylist() == [texts_of_rows[number] for number in first["id"].to_pylist()]
    results = together(lambda turn: found(shared, turn % 20).equals(expected[turn % 20]), n_rounds)
    assert all(results)


def test_threads_search_by_words_and_in_a_model(wordllama, texts, together, tmp_path):
    Index.create(texts, wordllama, folder=tmp_path / "index")
    alone, shared = Index.open(tmp_path / "index"), Index.open(tmp_path / "index")  # the model is not loaded yet
    queries = texts[::16]
    expected = [alone.search(query, hybrid=True).to_arrow() for query in queries]

    def is_the_same(turn):
        number = turn % len(queries)
        return shared.search(queries[number], hybrid=True).to_arrow().equals(expected[number])

    assert all(together(is_the_same, 8))


def test_a_reader_sees_one_commit_while_another_thread_adds(vectors, small_groups, together, tmp_path):
    ids = [f"id{number}" for number in range(N_ROWS)]
    Index.create(ids=ids, vectors=vectors, folder=tmp_path / "index")
    writer = Index.open(tmp_path / "index")

    def act(turn):
        if turn == 0:
            for number in range(12):
                writer.add(ids=[f"new{number}"], vectors=vectors[number : number + 1])
            return True
        index = Index.open(tmp_path / "index")
        table = index.search(vectors[:20], k=2).to_arrow()
        n_new = len(index) - N_ROWS
        # the copies of the first rows are found up to the number that this commit holds
        return sum(name.startswith("new") for name in table["id"].to_pylist()) == n_new

    assert all(together(act, 3))


def test_one_thread_at_a_time_changes_an_index(vectors, together, tmp_path):
    index = Index.create(ids=["first"], vectors=vectors[:1], folder=tmp_path / "index")

    def add(turn):
        try:
            return [index.add(ids=[f"id{turn}"], vectors=vectors[turn : turn + 1])[0]]
        except OutputError:  # it is busy
            return []

    added = {name for names in together(add) for name in names}
    assert added
    assert set(Index.open(tmp_path / "index").search(vectors[:40], k=40).ids.ravel()) == added | {"first"}


def test_threads_add_up_moments_of_their_own(vectors, together):
    parts = together(lambda turn: Moments.from_rows(vectors[turn::16].astype(np.float64)))
    total = sum(parts, Moments.empty(DIM))
    assert_allclose(total.covariance, np.cov(vectors.T.astype(np.float64), bias=True), rtol=1e-9, atol=1e-12)


_FIRST_USE = """
import sys, threading, msgspec
from isosent.io.json import check_schema, decode
sys.setswitchinterval(1e-6)

def meet(schema, barrier):
    barrier.wait()
    check_schema({"a": [{"f1": 2}], "b": {"x": {}}}, "file", schema)
    decode(b'{"a": [], "b": {}}', schema)

for number in range(100):
    fields = [(f"f{n}", "int | None", None) for n in range(20)]
    inner = msgspec.defstruct("Inner", fields, namespace={"__module__": __name__})
    outer = msgspec.defstruct("Outer", [("a", tuple[inner, ...]), ("b", dict[str, inner])])
    barrier = threading.Barrier(8)
    threads = [threading.Thread(target=meet, args=(outer, barrier)) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print("met")
"""


def test_threads_may_be_the_first_to_use_a_schema():
    """The crash that this would be cannot be caught: it takes a process of its own."""
    command = [sys.executable, "-c", _FIRST_USE]
    run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (run.returncode, run.stdout) == (0, "met\n"), run.stderr[-2000:]


# -- forked children -------------------------------------------------------------------------------------------------

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def run_forked(script, *arguments):
    """Run a script that forks, in a process without other threads; its lines."""
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.split()


_SEARCH = """
import os, sys
import numpy as np
from isosent.search import Index
vectors = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)
index = Index.create(vectors=vectors)
expected = index.search(vectors[:64], k=50).ids
child = os.fork()
if not child:
    print(np.array_equal(index.search(vectors[:64], k=50).ids, expected))
    sys.exit()  # and not at once: what is left to do at the end of a process is done
os.waitpid(child, 0)
print(index.folder.is_dir(), np.array_equal(Index.open(index.folder).search(vectors[:64], k=50).ids, expected))
"""


@forks
@pytest.mark.slow
def test_a_forked_child_searches_and_leaves_a_temporary_index_to_its_parent():
    assert run_forked(_SEARCH) == ["True", "True", "True"]


_TRANSFORMER = """
import os, sys
import numpy as np
import isosent
model = isosent.load("hf:" + sys.argv[1])
texts = isosent.demo_texts()
expected = model.encode(texts)
child = os.fork()
if not child:
    print(bool(np.allclose(model.encode(texts), expected, atol=1e-5)))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""


@forks
@pytest.mark.slow
def test_a_forked_child_encodes_with_a_transformer(tiny_model):
    assert run_forked(_TRANSFORMER, tiny_model("bert")) == ["True"]


_LOCKS_AT_FORK = """
import os, threading
import isosent
from isosent import _locks
from isosent.io import atomic, json
from isosent.numeric import compiled, threads

model = isosent.load("wordllama")
expected = model.encode(["a man rides a horse"])
held, done = threading.Event(), threading.Event()

def hold():
    with json._TYPES, threads._Limit.lock, compiled._lock, atomic._LOCKS_GUARD:
        held.set()
        done.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if not child:
    model = isosent.load("wordllama").fitted(isosent.demo_texts()[:40], isosent.Whitening(8))
    os._exit(0 if model.dim == 8 else 1)
print(os.waitpid(child, 0)[1])
done.set()
thread.join()
"""


@forks
def test_a_forked_child_finds_locks_free_that_another_thread_had():
    assert run_forked(_LOCKS_AT_FORK) == ["0"]


_WRITER = """
import os, sys, time
from pathlib import Path
from isosent.io.atomic import locked, replacing
with locked(Path(sys.argv[1])), replacing(Path(sys.argv[1], "file")) as temporary:
    temporary.write_text("half")
    child = os.fork()
    if not child:
        print(os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
"""


@forks
def test_the_lock_of_a_killed_writer_ends_though_a_forked_child_lives(tmp_path):
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    child = int(writer.stdout.readline())
    try:
        with pytest.raises(OutputError, match="writing"), locked(tmp_path, wait=False):
            pass
        writer.kill()
        writer.wait(WAIT_S)
        with locked(tmp_path, wait=False):
            pass
    finally:
        writer.kill()
        os.kill(child, signal.SIGKILL)
        writer.stdout.close()


_UNWINDS = """
import os, sys
from pathlib import Path
from isosent.io.atomic import locked, replacing
with locked(Path(sys.argv[1])), replacing(Path(sys.argv[1], "file")) as temporary:
    temporary.write_text("all")
    child = os.fork()
    if not child:
        sys.exit()  # leaves the blocks of its parent
    os.waitpid(child, 0)
    other = os.fork()
    if not other:
        try:
            with locked(Path(sys.argv[1]), wait=False):
                print("unlocked")
        except Exception:
            print("locked")
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(other, 0)
print(Path(sys.argv[1], "file").read_text())
"""


@forks
def test_a_forked_child_unlocks_and_removes_nothing_of_its_parent(tmp_path):
    assert run_forked(_UNWINDS, tmp_path) == ["locked", "all"]


def test_products_have_one_thread_whichever_thread_asks(together):
    """Of threadpoolctl, only the first thread that sets a limit can set another, as long as it lives."""
    controller = ThreadpoolController().select(user_api="blas")
    of_numpy = [each for each in controller.lib_controllers if "numpy" in each.filepath]  # others may be loaded later
    assert of_numpy

    def n_threads():
        return {library.num_threads for library in of_numpy}

    def n_threads_within(_):
        with one_thread_products():
            return n_threads()

    with controller.limit(limits=2):
        before = n_threads()
        assert together(n_threads_within, n_rounds=20) == [{1}] * 16 * 20
        assert n_threads() == before == {2}


_OF_SCIPY = """
import numpy
from threadpoolctl import threadpool_info
from isosent.numeric.threads import one_thread_products

def n_threads():
    return {each["num_threads"] for each in threadpool_info() if each["filepath"].split("/")[-2] != "numpy.libs"}

with one_thread_products():  # the libraries that are loaded by now are found
    import scipy.linalg
    scipy.linalg.blas.dnrm2([1.0])
    with one_thread_products():
        pass
before = n_threads()
with one_thread_products():
    print(*n_threads())
print(n_threads() == before)
"""


def test_the_library_of_scipy_is_limited_though_it_is_loaded_later():
    environment = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    finished = subprocess.run([sys.executable, "-c", _OF_SCIPY], env=environment, capture_output=True, text=True)
    assert finished.stdout.split() == ["1", "True"], finished.stderr
