import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from vector_makers import write_vectors

import isosent
from isosent import Whitening
from isosent.errors import OutputError
from isosent.io.atomic import Replaceable, _host, exchange, locked, recover, replacing, replacing_folder, sweep
from isosent.io.vectors import writing_vectors

KILLED = -signal.SIGKILL

KILL = """
import os, signal, sys
from pathlib import Path
import numpy as np

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def die_at(owner, name, call, *, after=False):
    original, calls = getattr(owner, name), [0]
    def wrapped(*args, **kwargs):
        calls[0] += 1
        if calls[0] == call and not after:
            die()
        result = original(*args, **kwargs)
        if calls[0] == call:
            die()
        return result
    setattr(owner, name, wrapped)

def die_half_way(call):
    original, calls = Path.write_bytes, [0]
    def write_bytes(path, content):
        calls[0] += 1
        if calls[0] == call:
            original(path, content[: len(content) // 2])
            die()
        return original(path, content)
    Path.write_bytes = write_bytes
"""

POINTS = {
    "half of the map is written": "die_half_way(1)",
    "the map is written": "die_at(os, 'fsync', 1)",
    "the map is not yet in place": "die_at(os, 'replace', 1)",
    "the map is in place": "die_at(os, 'replace', 1, after=True)",
    "the model file is not yet written": "die_at(Path, 'write_bytes', 2)",
    "the model file is written": "die_at(os, 'fsync', 2)",
    "the model file is not yet in place": "die_at(os, 'replace', 2)",
    "the model file is in place": "die_at(os, 'replace', 2, after=True)",
    "the old map is not yet removed": "die_at(Path, 'unlink', 3)",
}
BEFORE_THE_MODEL_FILE = list(POINTS)[:-2]

# A write limit stands for a full disk: both fail in the middle of a write, with an error of the system.
FULL_DISK = """
import resource, signal, sys
sys.dont_write_bytecode = True
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
{imports}
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
{call}
"""
COMMAND_ON_A_FULL_DISK = FULL_DISK.format(imports="from isosent.cli.main import main", call="main()")


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def models(tmp_path):
    """Folders of an old and a new model behind the same word vectors, and the vectors that they give."""
    rows = np.random.default_rng(2).normal(size=(30, 5)).round(3)
    glove = tmp_path / "glove.txt"
    glove.write_text("".join(f"w{i} {' '.join(map(str, row))}\n" for i, row in enumerate(rows)))
    words = [f"w{i}" for i in range(30)]
    encoder = isosent.load(f"words:{glove}")
    vectors = []
    for name, n_components in (("old", 4), ("new", 2)):
        model = encoder.fitted(words, transform=Whitening(n_components))
        model.save(tmp_path / name)
        vectors.append(model.encode(words))
    return tmp_path / "old", tmp_path / "new", *vectors, words


SAVE = """
from isosent.persistence import read_model, write_model
record = read_model(sys.argv[2])
{point}
write_model(sys.argv[1], record)
"""


def save_and_die(point, folder, new):
    finished = run(KILL + SAVE.format(point=POINTS[point]), folder, new)
    assert (finished.returncode, finished.stderr) == (KILLED, "")


def test_a_writer_that_ends_well_replaces_the_file(tmp_path):
    (tmp_path / "file.txt").write_text("old")
    with replacing(tmp_path / "file.txt") as temporary:
        temporary.write_text("new")
        assert (tmp_path / "file.txt").read_text() == "old"
        assert (temporary.parent, temporary.suffix) == (tmp_path, ".txt")
    assert (tmp_path / "file.txt").read_text() == "new"
    assert names(tmp_path) == ["file.txt"]


def test_a_new_file_appears(tmp_path):
    with replacing(tmp_path / "file.txt") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "file.txt").read_text() == "new"


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt("mine")])
def test_a_failing_writer_leaves_the_old_file_and_no_temporary_files(tmp_path, error):
    def write():
        with replacing(tmp_path / "file.txt") as temporary:
            temporary.write_text("half")
            raise error

    (tmp_path / "file.txt").write_text("old")
    with pytest.raises(type(error), match="mine"):
        write()
    assert (tmp_path / "file.txt").read_text() == "old"
    assert names(tmp_path) == ["file.txt"]


def test_a_failing_system_call_becomes_a_sentence_and_leaves_the_old_file(tmp_path):
    def write():
        with replacing(tmp_path / "file.txt") as temporary:
            temporary.write_text("half")
            raise OSError(28, "No space left on device")

    (tmp_path / "file.txt").write_text("old")
    words = r"file\.txt could not be written: No space left on device; the file that was there is intact\."
    with pytest.raises(OutputError, match=words):
        write()
    assert (tmp_path / "file.txt").read_text() == "old"
    assert names(tmp_path) == ["file.txt"]


def test_a_failing_new_file_does_not_speak_of_an_old_one(tmp_path):
    def write():
        with replacing(tmp_path / "file.txt"):
            raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match=r"file\.txt could not be written: No space left on device\.$"):
        write()
    assert names(tmp_path) == []


def test_a_failing_flush_leaves_the_old_file(tmp_path, monkeypatch):
    def fail(_):
        raise OSError(5, "Input/output error")

    np.save(tmp_path / "v.npy", np.zeros(3))
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError, match=r"v\.npy could not be written: Input/output error; the file that was there"):
        write_vectors(tmp_path / "v.npy", np.ones((2, 3), np.float32), ["a", "b"])
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), np.zeros(3))
    assert names(tmp_path) == ["v.npy"]


def test_a_missing_folder_is_refused(tmp_path):
    with (
        pytest.raises(OutputError, match=r"there is no folder .*nowhere\. Make it first\."),
        replacing(tmp_path / "nowhere" / "file.txt"),
    ):
        pass


def test_a_directory_in_place_of_the_file_is_refused(tmp_path):
    with (
        pytest.raises(OutputError, match=r"is a directory\. Name a file\."),
        replacing(tmp_path),
    ):
        pass


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
def test_a_failing_encode_leaves_the_old_vectors_and_no_temporary_files(tmp_path, name, monkeypatch):
    def fail_half_way(file, *_, **__):
        file.write(b"half of it")
        raise RuntimeError("mine")

    write_vectors(tmp_path / name, np.zeros((1, 3), np.float32), ["a"])
    before, before_names = (tmp_path / name).read_bytes(), names(tmp_path)
    monkeypatch.setattr("pyarrow.parquet.ParquetWriter", fail_half_way)
    monkeypatch.setattr("isosent.io.npy.writer", fail_half_way)
    with pytest.raises(RuntimeError, match="mine"):
        write_vectors(tmp_path / name, np.ones((2, 3), np.float32), ["a", "b"])
    assert (tmp_path / name).read_bytes() == before
    assert names(tmp_path) == before_names


def test_a_process_killed_in_the_middle_of_writing_vectors_leaves_the_old_file(tmp_path):
    script = """
from isosent.io.vectors import writing_vectors
vectors = np.arange(27, dtype=np.float32).reshape(9, 3)
opened = Path.open

class Dying:
    def __init__(self, file):
        self.file = file
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.file.close()
    def write(self, content):
        if bytes(content) == vectors.tobytes():
            self.file.write(bytes(content)[:50])
            self.file.flush()
            die()
        return self.file.write(content)

def open_(path, mode="r", *more, **settings):
    file = opened(path, mode, *more, **settings)
    return Dying(file) if mode == "wb" else file

Path.open = open_
with writing_vectors(sys.argv[1], (9, 3)) as write:
    write(vectors)
"""
    np.save(tmp_path / "v.npy", np.zeros(3))
    finished = run(KILL + script, tmp_path / "v.npy")
    assert (finished.returncode, finished.stderr) == (KILLED, "")
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), np.zeros(3))
    (left,) = [path for path in tmp_path.iterdir() if path.name != "v.npy"]
    assert 50 < left.stat().st_size < 27 * 4 + 128


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (1000, 256)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_written_byte_for_byte_as_numpy_writes_it(tmp_path, shape, order):
    vectors = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    write_vectors(tmp_path / "ours.npy", np.asarray(vectors, order=order), ["a"] * len(vectors))
    np.save(tmp_path / "theirs.npy", vectors)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()


@pytest.mark.parametrize("point", BEFORE_THE_MODEL_FILE)
def test_a_process_killed_before_the_model_file_is_in_place_leaves_the_old_model(models, point):
    old, new, old_vectors, _, words = models
    save_and_die(point, old, new)
    np.testing.assert_array_equal(isosent.load(old).encode(words), old_vectors)


@pytest.mark.parametrize("point", [point for point in POINTS if point not in BEFORE_THE_MODEL_FILE])
def test_a_process_killed_after_the_model_file_is_in_place_leaves_the_new_model(models, point):
    old, new, _, new_vectors, words = models
    save_and_die(point, old, new)
    np.testing.assert_array_equal(isosent.load(old).encode(words), new_vectors)


@pytest.mark.parametrize("point", ["half of the map is written", "the map is in place", "the model file is in place"])
def test_after_a_killed_save_over_a_model_the_next_save_leaves_exactly_two_files(models, point):
    old, new, *_ = models
    save_and_die(point, old, new)
    isosent.load(new).save(old)
    assert names(old) == names(new)


@pytest.mark.parametrize("point", ["half of the map is written", "the map is in place", "the model file is written"])
def test_after_a_killed_save_into_a_new_folder_the_same_save_works(models, point, tmp_path):
    _, new, _, new_vectors, words = models
    save_and_die(point, tmp_path / "first", new)
    isosent.load(new).save(tmp_path / "first")
    np.testing.assert_array_equal(isosent.load(tmp_path / "first").encode(words), new_vectors)


def full_from(nth):
    """Stand for `Path.write_bytes` on a disk that is full from the n-th file on: the map, or the model file."""
    write, calls = Path.write_bytes, []

    def write_bytes(path, content):
        calls.append(path)
        if len(calls) >= nth:
            raise OSError(28, "No space left on device")
        return write(path, content)

    return write_bytes


@pytest.mark.parametrize("nth", [1, 2])
def test_a_failing_save_over_a_model_leaves_it_and_no_temporary_files(models, nth, monkeypatch):
    old, new, old_vectors, _, words = models
    model, before = isosent.load(new), names(old)
    monkeypatch.setattr(Path, "write_bytes", full_from(nth))
    with pytest.raises(OutputError, match=r"could not be written: No space left on device"):
        model.save(old)
    monkeypatch.undo()
    np.testing.assert_array_equal(isosent.load(old).encode(words), old_vectors)
    assert names(old) == before


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("exists", [False, True], ids=["new folder", "empty folder"])
def test_a_failing_first_save_leaves_nothing(models, tmp_path, nth, exists, monkeypatch):
    if exists:
        (tmp_path / "first").mkdir()
    model = isosent.load(models[1])
    monkeypatch.setattr(Path, "write_bytes", full_from(nth))
    with pytest.raises(OutputError, match=r"could not be written: No space left on device"):
        model.save(tmp_path / "first")
    monkeypatch.undo()
    assert (names(tmp_path / "first") if exists else (tmp_path / "first").exists()) == ([] if exists else False)


@pytest.fixture
def words_file(tmp_path):
    (tmp_path / "glove.txt").write_text("man 1 2 3\ndog 2 1 5\ncat 3 -1 0\nyak 0 0 7\n")
    (tmp_path / "texts.txt").write_text("a man\na dog\na cat\nman yak\n" * 10)
    return tmp_path / "glove.txt"


@pytest.mark.slow
def test_encode_on_a_full_disk_exits_with_2_and_leaves_the_old_file(tmp_path, words_file):
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "v.npy"
    output.write_bytes(b"old")
    finished = run(COMMAND_ON_A_FULL_DISK, "encode", tmp_path / "texts.txt", "-m", f"words:{words_file}", "-o", output)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert finished.stderr.startswith(f"error: {output} could not be written: ")
    assert finished.stderr.endswith("the file that was there is intact.\n")
    assert len(finished.stderr.splitlines()) == 1
    assert output.read_bytes() == b"old"
    assert names(tmp_path / "out") == ["v.npy"]


@pytest.mark.slow
def test_fit_on_a_full_disk_exits_with_2_and_leaves_the_old_model(models, tmp_path):
    old, _, old_vectors, _, words = models
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    (tmp_path / "words.txt").write_text("\n".join(words))
    finished = run(COMMAND_ON_A_FULL_DISK, "fit", tmp_path / "words.txt", "-m", old, "--dims", 3, "-o", old)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert "could not be written: File too large" in finished.stderr
    assert len(finished.stderr.splitlines()) == 1
    assert {name: (old / name).read_bytes() for name in before} == before
    np.testing.assert_array_equal(isosent.load(old).encode(words), old_vectors)


@pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
@pytest.mark.parametrize("n_texts", [20, 1020, 10_000])
def test_vectors_that_do_not_fit_on_the_disk_are_an_error_in_words(tmp_path, name, n_texts):
    (tmp_path / name).write_bytes(b"old")
    vectors = np.random.default_rng(0).random((n_texts, 3), np.float32)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10 * n_texts, limits[1]))  # Python ignores its signal
    try:
        with (
            pytest.raises(OutputError, match=rf"{name} could not be written: .*File too large"),
            writing_vectors(tmp_path / name, vectors.shape) as write,
        ):
            write(vectors)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == b"old"


# -- folders, leftovers, permissions ---------------------------------------------------------------------------------

REPLACE_FOLDER = """
from isosent.io import atomic
{patch}
ANY = atomic.Replaceable("anything", lambda folder: True)
with atomic.replacing_folder(sys.argv[1], ANY) as temporary:
    (temporary / "content").write_text("new")
    (temporary / "more").write_text("new")
"""
NO_EXCHANGE = "atomic.exchange = lambda one, other: False\n"
ANY = Replaceable("anything", lambda folder: True)


def older_folder(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "content").write_text("old")
    return tmp_path / "out"


def killed_while_replacing(folder, patch):
    finished = run(KILL + REPLACE_FOLDER.format(patch=patch), folder)
    assert (finished.returncode, finished.stderr) == (KILLED, "")


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("after", [False, True])
def test_a_folder_that_is_killed_between_two_renames_is_put_back(tmp_path, n, after):
    folder = older_folder(tmp_path)
    killed_while_replacing(folder, f"{NO_EXCHANGE}die_at(os, 'rename', {n}, after={after})")
    recover(folder)
    assert (folder / "content").read_text() == ("new" if (n, after) == (2, True) else "old")
    with replacing_folder(folder, ANY) as temporary:
        (temporary / "content").write_text("newest")
    sweep(tmp_path)
    assert (folder / "content").read_text() == "newest"
    assert names(tmp_path) == ["out"]


def test_a_model_folder_that_was_moved_aside_is_opened_again(models):
    old, _, old_vectors, _, words = models
    aside = old.with_name(f".{old.name}.isosent-{_host()}-{dead_process()}-0123abcd.old")
    old.rename(aside)
    np.testing.assert_array_equal(isosent.load(str(old)).encode(words), old_vectors)
    assert not aside.exists()


def test_two_folders_are_exchanged_in_one_step(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").write_text(name)
    if not exchange(tmp_path / "one", tmp_path / "two"):
        pytest.skip("this file system cannot exchange two names")
    assert [(tmp_path / name / "content").read_text() for name in ("one", "two")] == ["two", "one"]


def test_a_folder_that_is_exchanged_is_there_at_every_kill(tmp_path):
    folder = older_folder(tmp_path)
    killed_while_replacing(folder, "die_at(atomic, 'exchange', 1, after=True)")
    assert (folder / "content").read_text() == "new"
    sweep(tmp_path)
    assert names(tmp_path) == ["out"]


def dead_process():
    """Number of a process that has ended."""
    return run("import os; print(os.getpid())").stdout.strip()


@pytest.mark.parametrize("point", ["os, 'fsync', 1", "os, 'replace', 1"])
def test_the_next_run_removes_what_a_killed_one_left(tmp_path, point):
    script = (
        KILL
        + f"""
from isosent.io.atomic import replacing
die_at({point})
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
"""
    )
    assert run(script, tmp_path / "v.txt").returncode == KILLED
    assert len(names(tmp_path)) == 1
    finished = run(
        "import sys; from isosent.io.atomic import replacing\n"
        "with replacing(sys.argv[1]) as temporary: temporary.write_text('new')",
        tmp_path / "other.txt",
    )
    assert finished.returncode == 0
    assert names(tmp_path) == ["other.txt"]


def test_what_a_live_process_writes_is_not_removed(tmp_path):
    script = """
import sys; from isosent.io.atomic import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("new")
    print(temporary.name, flush=True)
    sys.stdin.readline()
"""
    command = [sys.executable, "-c", script, str(tmp_path / "v.txt")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        temporary = writer.stdout.readline().strip()
        sweep(tmp_path)
        assert names(tmp_path) == [temporary]
        writer.communicate("\n", timeout=30)
    assert names(tmp_path) == ["v.txt"]


def leftover(folder, *, host, pid, kind="tmp", age_s=0):
    path = folder / f".out.isosent-{host}-{pid}-0123abcd.{kind}"
    path.mkdir()
    (path / "content").write_text("half")
    for inner in (path / "content", path):
        os.utime(inner, (time.time() - age_s,) * 2)
    return path


def test_what_another_host_writes_is_left_alone(tmp_path):
    leftover(tmp_path, host="0123abcd", pid=dead_process())
    sweep(tmp_path)
    assert len(names(tmp_path)) == 1


@pytest.mark.parametrize("host", [_host(), "0123abcd"])
def test_the_only_copy_of_a_folder_is_never_swept(tmp_path, host, monkeypatch):
    leftover(tmp_path, host=host, pid=os.getpid(), kind="old")  # a container starts with the same id again
    in_two_days = time.time() + 48 * 3600
    monkeypatch.setattr(time, "time", lambda: in_two_days)
    sweep(tmp_path)
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "content").read_text() == "half"


def test_files_are_written_where_there_are_no_locks(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with replacing(tmp_path / "v.txt") as temporary, locked(tmp_path):
        temporary.write_text("new")
    with replacing_folder(tmp_path / "out", ANY) as temporary:
        (temporary / "content").write_text("new")
    assert names(tmp_path) == ["out", "v.txt"]


def test_a_lock_ends_though_a_child_process_lives_on(tmp_path):
    """A child that was forked has the same lock; closing the file in its parent does not end it."""
    read, write = os.pipe()
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # until the parent is done
            os._exit(0)
    try:
        with locked(tmp_path, wait=False):
            pass
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)


def test_a_thread_may_take_its_lock_again_but_not_ask_for_a_free_folder(tmp_path):
    with (
        locked(tmp_path),
        locked(tmp_path),
        pytest.raises(OutputError, match="another process or thread is writing to it"),
        locked(tmp_path, wait=False),
    ):
        pass
    with locked(tmp_path, wait=False):
        pass


def test_a_file_that_only_looks_temporary_is_left(tmp_path):
    for name in (".v.tmp.txt", ".v.isosent-1-0123abcd", "v.isosent-0123abcd-1-0123abcd.tmp", ".git"):
        (tmp_path / name).write_text("mine")
    before = names(tmp_path)
    sweep(tmp_path)
    assert names(tmp_path) == before


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions(tmp_path, umask):
    before = os.umask(umask)
    try:
        with replacing(tmp_path / "new.txt") as temporary:
            assert temporary.stat().st_mode & 0o777 == 0o600
            temporary.write_text("new")
        with replacing_folder(tmp_path / "folder", ANY) as temporary:
            assert temporary.stat().st_mode & 0o777 == 0o700
            (temporary / "content").write_text("new")
    finally:
        os.umask(before)
    assert (tmp_path / "new.txt").stat().st_mode & 0o777 == 0o666 & ~umask
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~umask
    assert (tmp_path / "folder" / "content").stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_private_file_is_private_while_it_is_rewritten(tmp_path):
    (tmp_path / "v.txt").write_text("old")
    (tmp_path / "v.txt").chmod(0o600)
    with replacing(tmp_path / "v.txt") as temporary:
        temporary.write_text("new")
        assert temporary.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "v.txt").stat().st_mode & 0o777 == 0o600


def test_every_file_of_a_private_model_is_private(models):
    old, new, *_ = models
    (old / "model.json").chmod(0o600)
    isosent.load(new).save(old)
    assert {path.stat().st_mode & 0o777 for path in old.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("write error in file: 3 != 12 (No space left on device)"), "No space left on device"),
        (ValueError("I/O error: something (os error 27)"), "File too large"),
    ],
)
def test_a_full_disk_is_recognized_whatever_a_library_raises(tmp_path, error, reason):
    with pytest.raises(OutputError, match=reason), replacing(tmp_path / "v.txt"):
        raise error
    assert names(tmp_path) == []


def test_an_error_of_our_own_passes_through_nested_writers_as_it_is(tmp_path):
    with pytest.raises(RuntimeError, match="mine"), replacing(tmp_path / "a"), replacing(tmp_path / "b"):
        raise RuntimeError("mine")
    assert names(tmp_path) == []
