"""Commands of isosent in forked processes, which can be killed, limited and timed out.

A fork starts in milliseconds, since the parent has imported everything already. The parent starts no threads, which a
fork would break.
"""

import contextlib
import gc
import importlib
import io
import logging
import os
import pickle
import pkgutil
import resource
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

LONGEST_S = 120
HEAVY = ("torch", "transformers", "sentence_transformers", "datasets", "accelerate", "faiss", "onnx", "onnxruntime")


def warm_up(folder: Path, modules: Sequence[str] = ()) -> None:
    """Import isosent and what its commands import, and compile its kernels, so that forks need not."""
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    package = importlib.import_module("isosent")
    names = [module.name for module in pkgutil.walk_packages(package.__path__, "isosent.")]
    light = [name for name in names if modules or ".compat" not in name]
    for name in (*light, "pyarrow.parquet", "safetensors.numpy", "sklearn.linear_model", "wordllama", *modules):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with tempfile.TemporaryDirectory() as home, contextlib.redirect_stdout(None), contextlib.chdir(folder):
        os.environ["ISOSENT_CACHE"] = home
        command(["encode", "texts.txt", "-m", "words:words.txt", "-o", f"{home}/warm.npy"])
    gc.freeze()  # what is collected in a fork is copied


@dataclass(frozen=True, slots=True)
class Finished:
    """How a fork ended: exit code (negative: the signal; None: timed out), what it returned and printed."""

    code: int | None
    value: Any
    out: str
    err: str
    elapsed_s: float


def forked(function: Callable[[], Any], *, kill_after_s: float | None = None, limit_s: float = LONGEST_S) -> Finished:
    """Call a function in a fork; SIGKILL it after so many seconds."""
    pipes = [os.pipe() for _ in range(3)]  # no files: a limit on their size must not silence the process
    sys.stdout.flush()
    start_s = time.monotonic()
    process = os.fork()
    if process == 0:
        _child(function, [write for _, write in pipes])
    for _, write in pipes:
        os.close(write)
    stop_s = start_s + (limit_s if kill_after_s is None else kill_after_s)
    contents = _read_all([read for read, _ in pipes], stop_s)
    is_late = contents is None
    if is_late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    code = None if is_late and kill_after_s is None else os.waitstatus_to_exitcode(status)
    value, out, err = contents or (b"", b"", b"")
    for read, _ in pipes:
        os.close(read)
    elapsed_s = time.monotonic() - start_s
    return Finished(code, pickle.loads(value) if value else None, out.decode(), err.decode(errors="replace"), elapsed_s)


def _read_all(reads: list[int], stop_s: float) -> tuple[bytes, ...] | None:
    """Read pipes until all are closed; None where the time is up."""
    contents = dict.fromkeys(reads, b"")
    is_open = set(reads)
    while is_open:
        ready, _, _ = select.select(list(is_open), [], [], max(0.0, stop_s - time.monotonic()))
        if not ready:
            return None
        for read in ready:
            piece = os.read(read, 1 << 16)
            contents[read] += piece
            if not piece:
                is_open.discard(read)
    return tuple(contents.values())


def _child(function: Callable[[], Any], writes: list[int]) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(writes[1], 1)
        os.dup2(writes[2], 2)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), "utf-8", line_buffering=True)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), "utf-8", line_buffering=True)
        value = function()
        code = value if isinstance(value, int) and not isinstance(value, bool) else 0
        content = pickle.dumps(value)
        while content:
            content = content[os.write(writes[0], content) :]
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def command(arguments: Sequence[str]) -> int:
    """Run the command line in this process; returns its exit code."""
    main = importlib.import_module("isosent.cli.main").main
    sys.argv = ["isosent", *arguments]
    try:
        main()
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        sys.stderr.write(f"{stop.code}\n")
        return 1
    return 0


def run(arguments: Sequence[str], folder: Path, prepare: Callable[[], None] | None = None, **how: Any) -> Finished:
    """Run the command line in a fork, in a folder."""

    def inside() -> int:
        os.chdir(folder)
        os.environ["ISOSENT_CACHE"] = str(folder / "cache")
        if prepare:
            prepare()
        return command(arguments)

    return forked(inside, **how)


# -- many cases by one fork ------------------------------------------------------------------------------------------


class Late(BaseException):
    """Raised in a case that takes too long; nothing that handles an `Exception` swallows it."""


def each_case(
    function: Callable[[Any], Any], cases: Sequence[Any], *, limit_s: float, memory_bytes: int
) -> Iterator[Any]:
    """Call a function with each case in a fork; a fork that dies or hangs is replaced.

    Yields its results in order; a string that tells how the fork ended in place of a result.
    """
    start = 0
    while start < len(cases):
        read, write = os.pipe()
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            os.close(read)
            _work(function, cases[start:], write, limit_s, memory_bytes)
        os.close(write)
        with os.fdopen(read, "rb") as results:
            while start < len(cases):
                ready, _, _ = select.select([results], [], [], limit_s + 10)
                length = results.read(8) if ready else b""
                if len(length) < 8:
                    break
                content = results.read(int.from_bytes(length, "little"))
                yield pickle.loads(content)
                start += 1
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if start < len(cases):
            yield (
                f"hang: nothing for {limit_s + 10} s"
                if not ready
                else f"crash: the process ended with {os.waitstatus_to_exitcode(status)}"
            )
            start += 1


def _work(function: Callable[[Any], Any], cases: Sequence[Any], write: int, limit_s: float, memory_bytes: int) -> None:
    def late(*_: object) -> None:
        raise Late

    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGALRM, late)
        limit_memory(memory_bytes)
        for case in cases:
            signal.setitimer(signal.ITIMER_REAL, limit_s)
            try:
                result = function(case)
            except Late:
                result = ("hang", f"more than {limit_s} s")
            signal.setitimer(signal.ITIMER_REAL, 0)
            content = pickle.dumps(result)
            os.write(write, len(content).to_bytes(8, "little"))
            while content:
                content = content[os.write(write, content) :]
    finally:
        os._exit(0)


def limit_memory(n_bytes: int) -> None:
    """Let this process take so many more bytes."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + n_bytes, resource.RLIM_INFINITY))


# -- forks for a process with threads --------------------------------------------------------------------------------


class Forks:
    """Asks the parent, which has no threads, for forks that it can talk to and kill."""

    def __init__(self, parent: socket.socket) -> None:
        self._parent = parent

    def fork(self) -> tuple[int, Connection]:
        """Start a fork; its process id, and a connection to it."""
        self._parent.send(b"fork")
        content, descriptors, *_ = socket.recv_fds(self._parent, 32, 1)
        return int(content), Connection(descriptors[0])

    def wait(self, process: int) -> int:
        """Wait until a fork has ended; its exit code, negative for a signal."""
        self._parent.send(b"%d" % process)
        return int(self._parent.recv(32))


def with_forks(main: Callable[[Forks], None], work: Callable[[Connection], None]) -> int:
    """Call `main` in a fork, and `work` in each fork that it asks for; returns the exit code of the first."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    first = _fork_of(lambda: main(Forks(theirs)), ours)
    theirs.close()
    alive = set()
    while request := ours.recv(32):
        if request == b"fork":
            here, there = socket.socketpair()
            process = _fork_of(partial(_talk, work, here), ours, there)
            alive.add(process)
            socket.send_fds(ours, [b"%d" % process], [there.fileno()])
            here.close()
            there.close()
        else:
            _, status = os.waitpid(int(request), 0)
            alive.discard(int(request))
            ours.send(b"%d" % os.waitstatus_to_exitcode(status))
    for process in alive:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    _, status = os.waitpid(first, 0)
    return os.waitstatus_to_exitcode(status)


def _talk(work: Callable[[Connection], None], end: socket.socket) -> None:
    work(Connection(end.detach()))


def _fork_of(function: Callable[[], None], *closed: socket.socket) -> int:
    """Call a function in a fork without some sockets of its parent; returns the process id."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        for opened in closed:
            opened.close()
        function()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
