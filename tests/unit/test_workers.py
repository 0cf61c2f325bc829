"""Jobs by workers: whoever makes the shards, in whatever order and after whatever accident, every byte is the same."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import isosent
from isosent import distributed
from isosent.cli.main import main
from isosent.distributed import Encode, Processes, Ray, engine_for
from isosent.errors import InputError, InputFileError, MissingExtraError, OutputError, WorkerError
from isosent.io.shards import Sharding, read_index
from isosent.io.vectors import open_vectors
from isosent.jobs.encode import TextRows
from isosent.jobs.shards import encode_folder, measure_folder, sum_of_pairs, transform_folder
from isosent.jobs.worker import Job, LocalEngine, Task, Worker
from isosent.transforms.whitening import Whitening

SHARDING = Sharding(50)
N_SHARDS = 10  # 4 + 3 + 3

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, texts):
    """Three files of different formats."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("inputs")
    listed = [*texts, *texts][:500]
    (folder / "a.txt").write_text("".join(f"{text}\n" for text in listed[:180]), "utf-8")
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in listed[180:320]), "utf-8")
    pq.write_table(pa.table({"text": listed[320:450]}), folder / "c.parquet", row_group_size=40)
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.fixture(scope="module")
def whole(inputs, wordllama, tmp_path_factory):
    """What one process makes."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    encode_folder(wordllama, inputs, folder, sharding=SHARDING)
    return folder


@pytest.fixture(scope="module")
def cluster():
    """Two nodes on this machine."""
    ray = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    settings = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("PYTHONPATH", str(Path(isosent.__file__).parents[1]))
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=settings)
        ray.init(cluster.address, log_to_driver=False, configure_logging=False)
        cluster.settings = settings
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def encode(inputs, folder, engine, model=None, **settings):
    model = model or isosent.load()
    return encode_folder(model, inputs, folder, sharding=SHARDING, engine=engine, reference="wordllama", **settings)


def after_rows(n_rows, act):
    """A progress that acts once, when so many rows are finished."""
    seen = [0]

    def progress(done, total):
        before, seen[0] = seen[0], done
        if before < n_rows <= done:
            act()

    return progress


def processes(pattern):
    """Ids of the processes whose command line matches."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if re.search(pattern, path.read_bytes().replace(b"\0", b" ").decode(errors="replace")):
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


def children(pattern, of=None):
    def parent(pid):
        try:
            return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return 0

    return [pid for pid in processes(pattern) if parent(pid) == (of or os.getpid())]


def kill_one(found):
    assert found
    os.kill(found[0], signal.SIGKILL)


# -- processes -------------------------------------------------------------------------------------------------------


def test_processes_make_the_bytes_of_one_process_though_one_is_killed(inputs, whole, wordllama, tmp_path):
    killed = after_rows(1, lambda: kill_one(children("spawn_main")))
    index = encode(inputs, tmp_path / "out", Processes(2), wordllama, progress=killed)
    assert index.is_complete
    assert index.n_shards == N_SHARDS
    assert contents(tmp_path / "out") == contents(whole)


@pytest.mark.slow
def test_a_worker_that_dies_while_it_waits_is_replaced(inputs, whole, wordllama, tmp_path):
    def killed(done, total):
        if not done:
            kill_one(children("spawn_main"))  # all inputs are described, and no shard is begun
            time.sleep(0.5)

    encode(inputs, tmp_path / "out", Processes(1), wordllama, progress=killed)
    assert contents(tmp_path / "out") == contents(whole)


@pytest.mark.slow
def test_a_task_that_kills_every_worker_ends_and_the_others_do_not(inputs, whole, wordllama, tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "_attempt", _kill_for_one_shard)
    monkeypatch.setattr(distributed, "_MOST_DEATHS", 2)
    with pytest.raises(WorkerError) as raised:
        encode(inputs, tmp_path / "out", Processes(2), wordllama)
    for part in ("b.jsonl, rows 50 to 99: 2 workers died", "1 of 10 shards could not be made"):
        assert part in str(raised.value)
    monkeypatch.undo()
    encode(inputs, tmp_path / "out", LocalEngine(), wordllama)
    assert contents(tmp_path / "out") == contents(whole)


def _kill_for_one_shard(task):
    if task.name == "make" and task.arguments[0].number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return distributed._worker.attempt_and_count(task)


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_whole_shards(inputs, whole, wordllama, tmp_path):
    arguments = ["encode", *inputs, "-o", str(tmp_path / "out"), "--shard-size", "50", "--workers", "2"]
    code = "from isosent.cli.main import main; main()"
    with subprocess.Popen([sys.executable, "-c", code, *arguments]) as driver:
        limit = time.monotonic() + 60
        while not (tmp_path / "out" / "part-00003.npy").exists() and time.monotonic() < limit:
            time.sleep(0.005)
        workers = children("spawn_main", of=driver.pid)
        driver.kill()
    assert len(workers) == 2
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    encode(inputs, tmp_path / "out", LocalEngine(), wordllama)
    assert contents(tmp_path / "out") == contents(whole)


@pytest.mark.slow
@pytest.mark.parametrize("reaches", ["the driver", "all processes"])
def test_an_interrupt_ends_the_workers(tmp_path, reaches):
    many = tmp_path / "many.txt"
    many.write_text("".join(f"A man is riding horse {number}.\n" for number in range(400_000)), "utf-8")
    command = [sys.executable, "-m", "isosent", "encode", str(many), "-o", str(tmp_path / "out"), "--workers", "2"]
    # a shell that starts the tests in the background makes all processes ignore interrupts
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, start_new_session=True, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    ) as driver:
        while not list(tmp_path.glob("out/.part-*")):  # a worker has begun a shard
            time.sleep(0.05)
        (os.kill if reaches == "the driver" else os.killpg)(driver.pid, signal.SIGINT)
        _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors
    assert processes(re.escape(str(tmp_path))) == []
    assert read_index(tmp_path / "out").missing  # it was not made to the end
    assert not list(tmp_path.glob("out/.part-*"))


def test_a_full_disk_stops_the_run_and_keeps_whole_shards(inputs, whole, wordllama, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limits[1]))  # shards have 51 KB, the last of each file fewer
    try:
        with pytest.raises(OutputError, match=r"part-0000\d\.npy could not be written: .*resume"):
            encode(inputs, tmp_path / "out", Processes(1), wordllama)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    encode(inputs, tmp_path / "out", LocalEngine(), wordllama)
    assert contents(tmp_path / "out") == contents(whole)


def test_a_model_that_cannot_be_loaded_by_workers_is_said_once(inputs, wordllama, tmp_path):
    with pytest.raises(InputError, match=r"'nowhere' .*") as raised:
        encode_folder(wordllama, inputs, tmp_path / "out", engine=Processes(1), reference="nowhere")
    assert "3 of 3 shards could not be made" in str(raised.value)


# -- any workers -----------------------------------------------------------------------------------------------------


def test_moments_have_the_same_bits_whoever_computes_them(inputs, wordllama, tmp_path):
    def measured(engine):
        folder = tmp_path / type(engine).__name__
        return measure_folder(wordllama, inputs, folder, shard_size=50, engine=engine, reference="wordllama")[0]

    here, there = measured(LocalEngine()), measured(Processes(2))
    np.testing.assert_array_equal(here.moments.scatter, there.moments.scatter)
    np.testing.assert_array_equal(here.moments.mean, there.moments.mean)
    assert (here.moments.weight, here.sources) == (450, tuple(inputs))
    vectors = np.concatenate([wordllama.encode(isosent.io.texts.read_texts(path)) for path in inputs])
    np.testing.assert_allclose(here.moments.mean, vectors.mean(axis=0), atol=1e-7)
    np.testing.assert_allclose(here.moments.covariance, np.cov(vectors.T, bias=True), atol=1e-6)


@pytest.mark.parametrize("n_parts", [1, 2, 3, 7, 8])
def test_parts_are_added_in_pairs_of_neighbors(n_parts):
    class Part(str):
        def __add__(self, other):
            return Part(f"({self}{other})")

    expected = {1: "0", 2: "(01)", 3: "((01)2)", 7: "(((01)(23))((45)6))", 8: "(((01)(23))((45)(67)))"}
    assert sum_of_pairs(Part(number) for number in range(n_parts)) == expected[n_parts]


def test_a_part_that_always_fails_is_named_when_the_others_are_complete(wordllama, texts, tmp_path):
    model = wordllama.fitted(texts, Whitening(8))
    model.save(tmp_path / "model")
    rows = np.random.default_rng(0).normal(size=(90, 256)).astype(np.float32)
    np.save(tmp_path / "good.npy", rows)
    rows[33] = np.nan
    np.save(tmp_path / "bad.npy", rows)
    inputs = [str(tmp_path / name) for name in ("bad.npy", "good.npy")]

    def transform():
        return transform_folder(
            *(model.record, inputs, tmp_path / "out"),
            sharding=Sharding(20),
            engine=Processes(1),
            reference=str(tmp_path / "model"),
        )

    with pytest.raises(InputFileError, match=r"(?s)bad\.npy, rows 20 to 39: .*row 33.*1 of 10 shards") as raised:
        transform()
    assert "good.npy" not in str(raised.value)
    assert read_index(tmp_path / "out").missing == [1]
    shutil.copy(tmp_path / "good.npy", tmp_path / "bad.npy")
    with pytest.raises(InputError, match="begun with other inputs"):
        transform()
    shutil.rmtree(tmp_path / "out")
    assert transform().is_complete
    made = np.concatenate(list(open_vectors(tmp_path / "out").blocks()))
    np.testing.assert_array_equal(made[90:], model.transform(np.load(inputs[1])))


def test_the_texts_of_a_column_and_the_other_columns_follow_their_shards(wordllama, texts, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    lines = [f'{number},"{text.replace(chr(34), "")}, ""so""\nit goes"\n' for number, text in enumerate(texts[:70])]
    (tmp_path / "t.csv").write_text("id,text\n" + "".join(lines), "utf-8")
    for name, engine in (("one", None), ("two", Processes(1))):
        encode_folder(
            *(wordllama, [str(tmp_path / "t.csv")], tmp_path / name),
            column="text",
            sharding=Sharding(20, "parquet"),
            engine=engine,
            reference="wordllama",
        )
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    tables = [pq.read_table(tmp_path / "two" / f"part-0000{number}.parquet") for number in range(4)]
    assert [value for table in tables for value in table["id"].to_pylist()] == [str(number) for number in range(70)]


@pytest.mark.slow
def test_the_command_line_has_workers(inputs, wordllama, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["isosent", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, capsys.readouterr()

    folder = str(Path(inputs[0]).parent)
    for name, workers in (("one", ()), ("two", ("--workers", "2"))):
        size = ("--shard-size", "50") if workers else ()
        assert run("fit", folder, "-o", name, "--transform", "whitening", "--dims", "16", *workers, *size)[0] == 0
        assert run("index", folder, "-o", f"index-{name}", *workers)[0] == 0
    one, two = (isosent.load(tmp_path / name) for name in ("one", "two"))
    np.testing.assert_allclose(two.encode(["A man."]), one.encode(["A man."]), atol=1e-5)
    files = [path for path in (tmp_path / "index-one").rglob("*") if path.is_file()]
    assert len(files) >= 5
    for path in files:
        assert path.read_bytes() == (tmp_path / "index-two" / path.relative_to(tmp_path / "index-one")).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two", "index-one", "index-two"}
    np.save("v.npy", wordllama.encode(["A man.", "A dog."]))
    assert run("transform", "v.npy", "-m", "one", "-o", "out", "--workers", "1")[1].out.startswith(
        "out: 2 x 16 float32"
    )
    for wrong, words in (
        (("encode", *inputs, "-o", "v.npy"), "3 inputs need a folder"),
        (("encode", inputs[0], "-o", "v2.npy", "--workers", "2"), "--workers, --on, --format and --shard-size"),
        (("encode", inputs[0], inputs[0], "-o", "out2"), "is named twice"),
        (("encode", inputs[0], "-o", "out2", "--on", "ray?cpus=1"), "the only option is the number of GPUs"),
        (("encode", "-", "-o", "out2", "--workers", "2"), "- can be read only once"),
        (
            ("fit", *inputs, "-o", "m", "--workers", "2", "--transform", "none"),
            "linear transform, not for --transform none",
        ),
        (("fit", inputs[0], "-m", "wordllama?weighting=sif", "-o", "m", "--workers", "2"), "fitted in one process"),
        (("index", "v.npy", "-o", "i", "--workers", "2"), "--workers encode texts; v.npy holds vectors"),
    ):
        code, said = run(*wrong)
        assert (code, said.out) == (2, "")
        assert words in said.err
        assert len(said.err.splitlines()) == 1


class FailsOnce:
    """A model that runs out of memory at one text, once."""

    def __init__(self, model, text, error=RuntimeError):
        self._model, self._text, self._error = model, text, error

    def __getattr__(self, name):
        return getattr(self._model, name)

    def encode(self, texts, **settings):
        if self._text in texts:
            self._text = None
            raise self._error("out of memory")
        return self._model.encode(texts, **settings)


def test_an_error_in_the_middle_of_a_shard_moves_no_row(wordllama, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(isosent.jobs.encode, "_encoded_blocks", _encode_five_by_five)
    (tmp_path / "t.txt").write_text("".join(f"{text}\n" for text in texts[:40]), "utf-8")
    inputs = [str(tmp_path / "t.txt")]
    index = encode_folder(wordllama, inputs, tmp_path / "whole", sharding=Sharding(20))
    (tmp_path / "out").mkdir()
    job = Job(makes="encode", reference="wordllama", fingerprint=wordllama.fingerprint, sharding=Sharding(20))
    worker = Worker(job, FailsOnce(wordllama, texts[7]))
    tasks = [
        Task("make", (shard, index.inputs[0], str(tmp_path / "out"), index.shard_name(shard.number)))
        for shard in index.plan
    ]
    with pytest.raises(RuntimeError, match="out of memory"):
        worker.attempt(tasks[0])
    for task in (tasks[1], tasks[0]):
        worker.attempt(task)
    worker.close()
    parts = contents(tmp_path / "out")
    assert parts == {name: each for name, each in contents(tmp_path / "whole").items() if name in parts}
    assert len(parts) == 4


def test_progress_goes_on_after_a_shard_that_failed(wordllama, texts, tmp_path, progress):
    (tmp_path / "t.txt").write_text("".join(f"{text}\n" for text in texts[:40]), "utf-8")
    model = FailsOnce(wordllama, texts[7], InputError)
    with pytest.raises(InputError, match="1 of 2 shards"):
        encode_folder(model, [str(tmp_path / "t.txt")], tmp_path / "out", sharding=Sharding(20), progress=progress)
    assert progress.complete() == [40]


def _encode_five_by_five(texts, encode, shape, progress):
    for block in isosent.io.texts.text_blocks(texts, 5):
        yield encode(block)


def test_rows_that_were_not_read_are_read_again(tmp_path):
    (tmp_path / "t.txt").write_text("".join(f"{number}\n" for number in range(30)))
    with isosent.io.texts.open_texts(tmp_path / "t.txt") as source:
        rows = TextRows(source, to_table=False)
        assert next(rows.take(0, 10)) == ("0", ("0",))
        assert [text for text, _ in rows.take(10, 3)] == ["10", "11", "12"]
        assert [text for text, _ in rows.take(13, 2)] == ["13", "14"]
        assert [text for text, _ in rows.take(5, 1)] == ["5"]


def test_a_run_with_another_column_or_other_columns_is_refused(wordllama, tmp_path):
    pytest.importorskip("pyarrow")

    def write(label, name="t.csv"):
        (tmp_path / name).write_text("a,b,label\n" + "".join(f"first {n},second {n},{label}\n" for n in range(20)))

    def encode(folder, column, file_format):
        sharding = Sharding(10, file_format)
        return encode_folder(wordllama, [str(tmp_path / "t.csv")], tmp_path / folder, column=column, sharding=sharding)

    write("OLD")
    for folder, file_format in (("npy", "npy"), ("parquet", "parquet")):
        encode(folder, "a", file_format)
        with pytest.raises(InputError, match="other inputs"):
            encode(folder, "b", file_format)
        with pytest.raises(InputError, match="nosuch"):
            encode(folder, "nosuch", file_format)
    write("NEW")
    assert encode("npy", "a", "npy").is_complete  # the texts are the same
    with pytest.raises(InputError, match="other inputs"):
        encode("parquet", "a", "parquet")


def test_a_shard_without_its_note_and_a_link_are_made_again(inputs, whole, wordllama, tmp_path):
    shutil.copytree(whole, tmp_path / "out")
    (tmp_path / "out" / "part-00001.npy.isosent.json").unlink()
    (tmp_path / "precious").write_text("precious")
    for name in ("part-00003.npy", "part-00005.npy.isosent.json"):
        (tmp_path / "out" / name).unlink()
        (tmp_path / "out" / name).symlink_to(tmp_path / "precious")
    encode(inputs, tmp_path / "out", LocalEngine(), wordllama)
    assert contents(tmp_path / "out") == contents(whole)
    assert (tmp_path / "precious").read_text() == "precious"


class Unshared:
    """Workers whose files nobody else sees."""

    def __init__(self, folder):
        self._folder = folder

    @contextmanager
    def workers(self, job, progress):
        worker = Worker(job)

        def run(tasks):
            for task in tasks:
                yield task, worker.attempt(task)
                for path in self._folder.glob("part-*"):
                    path.unlink()

        yield run
        worker.close()


def test_a_folder_that_is_not_shared_is_noticed(inputs, wordllama, tmp_path):
    with pytest.raises(OutputError, match=r"lacks part-00000\.npy, which a worker wrote"):
        encode(inputs, tmp_path / "out", Unshared(tmp_path / "out"), wordllama)


@pytest.mark.parametrize(
    ("on", "gpus", "words"),
    [
        ("spark", 0, r"on='spark': write ray, or ray://ADDRESS"),
        (None, 1, "are for a cluster"),
        ("ray", 1.5, r"gpus=1\.5': .*or a whole number"),
        ("ray", float("nan"), "gpus=nan"),
    ],
)
def test_workers_elsewhere_are_refused(on, gpus, words):
    with pytest.raises(InputError, match=words):
        engine_for(on, 2, gpus)


def test_ray_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="ray is not installed"):
        engine_for("ray", 2)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_cluster_that_does_not_answer_is_named(address, inputs, wordllama, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    assert not ray.is_initialized()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(InputError, match=f"no Ray cluster at {address}: .*refused"):
        encode(inputs, tmp_path / "out", engine_for(address if "ray:" in address else "ray", 1), wordllama)


# -- files elsewhere -------------------------------------------------------------------------------------------------


@pytest.fixture
def memory():
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


def test_inputs_and_shards_may_lie_elsewhere(memory, inputs, whole, wordllama):
    for path in inputs:
        memory.pipe(f"/in/{Path(path).name}", Path(path).read_bytes())
    urls = isosent.io.shards.input_paths(["memory://in"], "texts")
    assert urls == [f"memory://in/{Path(path).name}" for path in inputs]
    assert isosent.io.shards.input_paths(["memory://in/*.txt"]) == urls[:1]
    index = encode(urls, "memory://out", LocalEngine(), wordllama)
    assert index.is_complete
    names = [name for name in contents(whole) if name != "shards.json"]
    assert {name: memory.cat(f"/out/{name}") for name in names} == {name: contents(whole)[name] for name in names}
    memory.rm("/out/part-00004.npy")
    seen = []
    encode(urls, "memory://out", LocalEngine(), wordllama, resumed=lambda index: seen.append(index.missing))
    assert seen == [[4]]
    memory.mv("/in", "/user:hush-hush@in", recursive=True)  # as where the password is in the address
    urls = isosent.io.shards.input_paths(["memory://user:hush-hush@in"], "texts")
    for count in (2, 1):
        encode(urls, "memory://secret", LocalEngine(), wordllama, resumed=lambda index: seen.append(index.missing))
        index = memory.cat("/secret/shards.json").decode()
        assert "hush" not in index
        assert index.count("memory://user:***@in") == len(urls)
        memory.rm(f"/secret/part-0000{count}.npy")
    assert seen == [[4], [2]]
    with pytest.raises(InputFileError, match=r"memory://in/none\.txt: no such file"):
        encode(["memory://in/none.txt"], "memory://other", LocalEngine(), wordllama)


def test_names_elsewhere_mean_what_they_mean_here(memory, texts, tmp_path):
    expanded = isosent.io.shards.input_paths
    for name in ("a.txt", ".hidden.txt", "x[1].txt"):
        memory.pipe(f"/in/{name}", f"{texts[0]}\n".encode())
    assert expanded(["memory://in"], "texts") == ["memory://in/a.txt", "memory://in/x[1].txt"]
    assert expanded(["memory://in/x[1].txt"], "texts") == ["memory://in/x[1].txt"]
    folder = tmp_path / "n[1]"
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    assert expanded([f"{folder}/*.txt"], "texts") == [f"{folder}/a.txt"]


def test_an_input_elsewhere_whose_change_cannot_be_seen_is_read_again(memory, texts, wordllama):
    for first in (texts[0], texts[0][::-1]):
        memory.pipe("/in/a.txt", f"{first}\n{texts[1]}\n".encode())
        if first == texts[0]:
            encode(["memory://in/a.txt"], "memory://out", LocalEngine(), wordllama)
        else:
            with pytest.raises(InputError, match="begun with other inputs"):
                encode(["memory://in/a.txt"], "memory://out", LocalEngine(), wordllama)


def test_shards_elsewhere_are_checked_and_read_in_their_order(memory, inputs, wordllama, tmp_path):
    memory.pipe("/out/.shards.json-77.tmp", b"a killed upload")
    encode(inputs, "memory://out", LocalEngine(), wordllama)
    assert not memory.exists("/out/.shards.json-77.tmp")
    urls = isosent.io.shards.input_paths(["memory://out"], "vectors")
    assert urls == [f"memory://out/part-{number:05d}.npy" for number in range(N_SHARDS)]
    with isosent.io.remote.local_copies(["memory://out", urls[3]]) as (paths, named):
        assert named(f"in {paths[1]}") == f"in {urls[3]}"
        part = open_vectors(paths[1])
        assert part.space.fingerprint == wordllama.fingerprint
        part.verify()
        assert open_vectors(paths[0]).n_rows == 450
    with (
        pytest.raises(InputFileError, match=r"^memory://out/part-00003\.npy must be shown"),
        isosent.io.remote.local_copies(urls[3:4]) as (paths, _),
    ):
        raise InputFileError(f"{paths[0]} must be shown")
    index = isosent.io.shards.read_index("memory://out")
    isosent.io.shards.write_index("memory://out", index.with_shards({3: None}))
    with pytest.raises(InputFileError, match="has only 9 of its 10"):
        isosent.io.shards.input_paths(["memory://out"], "vectors")


def test_texts_and_vectors_elsewhere_are_fitted_and_indexed(memory, inputs, tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.chdir(tmp_path)
    for path in inputs:
        memory.pipe(f"/in/{Path(path).name}", Path(path).read_bytes())

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["isosent", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0

    assert run("encode", "memory://in", "-o", "memory://vectors", "--shard-size", "50") == 0
    for source in ("memory://in", "memory://vectors"):
        assert run("fit", source, "-o", "model", "--transform", "whitening", "--dims", "8") == 0
        assert "memory://" in isosent.load("model").fits[-1].source
        assert run("index", source, "-o", "index") == 0
        assert len(isosent.search.Index.open("index")) == 450
    assert run("fit", "memory://none.txt", "-o", "other") == 2


@pytest.mark.parametrize("url", ["s3a7://bucket/x.txt", "nosuch://x/y.txt", "github://a/b.txt"])
def test_a_file_system_that_is_not_known_is_named(url, wordllama, tmp_path):
    with pytest.raises(InputError, match=f"{url.partition(':')[0]}://.* cannot be reached"):
        encode([url], tmp_path / "out", LocalEngine(), wordllama)


# -- a Ray cluster ---------------------------------------------------------------------------------------------------


@contextmanager
def second_node(cluster):
    node = cluster.add_node(**{name: value for name, value in cluster.settings.items() if name != "include_dashboard"})
    try:
        yield node
    finally:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node)


@pytest.mark.slow
def test_a_cluster_that_loses_a_node_and_a_worker_makes_the_same_bytes(
    cluster, inputs, whole, wordllama, tmp_path, monkeypatch
):
    with second_node(cluster) as node:
        lost = after_rows(60, lambda: cluster.remove_node(node, allow_graceful=False))
        encode(inputs, tmp_path / "node", Ray(None, 2, 0), wordllama, progress=lost)
        assert contents(tmp_path / "node") == contents(whole)
    started = []
    welcome = distributed._Actors._welcome

    def noted(actors, reference):
        started.append(actors._ray.get(reference))
        welcome(actors, reference)

    monkeypatch.setattr(distributed._Actors, "_welcome", noted)
    killed = after_rows(60, lambda: kill_one(started))
    encode(inputs, tmp_path / "worker", Ray(None, 1, 0), wordllama, progress=killed)
    assert contents(tmp_path / "worker") == contents(whole)
    assert len(started) == 2


@pytest.mark.slow
def test_a_driver_of_a_cluster_that_is_killed_leaves_whole_shards(
    cluster, inputs, whole, wordllama, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # the cluster runs elsewhere
    with pytest.raises(KeyboardInterrupt):
        encode(inputs, "out", Ray(None, 1, 0), wordllama, progress=after_rows(60, _interrupt))
    assert 0 < len(read_index(tmp_path / "out").missing) < N_SHARDS
    encode(inputs, "out", Ray(None, 1, 0), wordllama)
    assert contents(tmp_path / "out") == contents(whole)


def _interrupt():
    raise KeyboardInterrupt


@pytest.mark.slow
def test_batches_of_ray_data_get_vectors(cluster, wordllama, texts):
    batch = {"text": np.array([texts[0], None], object), "id": np.arange(2)}
    encoded = Encode("wordllama")(batch)
    np.testing.assert_array_equal(encoded["vector"], wordllama.encode([texts[0], ""]))
    with pytest.raises(InputError, match="no column body"):
        Encode("wordllama", "body")(batch)
    import ray

    actor = ray.remote(num_cpus=1)(Encode).remote("wordllama")
    np.testing.assert_array_equal(ray.get(actor.__call__.remote(batch))["vector"], encoded["vector"])
