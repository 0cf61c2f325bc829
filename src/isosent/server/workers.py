"""Serve an application with several processes on one port.

`serve_workers` binds the port, starts the processes and waits for what happens to them: a signal is passed on to all, a
process that dies is replaced, and one that cannot load its models ends the service. Each process makes the application
for itself, so that no thread and no lock is copied; they share the memory of files that are mapped. A pipe from each
process says that it serves, why it cannot, or that a client has asked it for a reload. A process whose pipe breaks has
lost its parent, and drains.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any, Final, NamedTuple

from prometheus_client.multiprocess import mark_process_dead
from starlette.applications import Starlette

from isosent.errors import InputError, IsosentError, option, quoted
from isosent.numeric.threads import n_workers as n_processors
from isosent.server.run import bound_socket, log_to_stderr, serve
from isosent.server.service import METRICS_VARIABLE

_CLOSING_S: Final = 70.0  # after the last request: the queue of a model is given 60 s
_THREADS: Final = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS")
_log = logging.getLogger("isosent.server")


class _Process(NamedTuple):
    number: int
    process: SpawnProcess
    pipe: Connection


def serve_workers(
    make_app: Callable[[], Starlette],
    n_workers: int,
    *,
    host: str,
    port: int,
    drain_delay_s: float = 0,
    drain_timeout_s: float = 30,
) -> None:
    """Serve an application with several processes until a signal.

    Raises
    ------
    InputError
        If the address is in use, or a process ends before it serves.
    """
    if sys.platform == "win32":
        raise InputError(f"{option('workers')}: Windows cannot share a port among processes. Leave it out.")
    log_to_stderr()
    sockets = _sockets(host, port, n_workers)
    with tempfile.TemporaryDirectory(prefix="isosent-metrics-") as folder:
        os.environ[METRICS_VARIABLE] = folder  # read by prometheus-client when a process imports it
        for variable in _THREADS:
            os.environ.setdefault(variable, str(max(1, n_processors() // n_workers)))
        drain_s = (drain_delay_s, drain_timeout_s)
        _Supervisor(make_app, sockets, drain_s=drain_s, metrics_folder=folder).run()


def _sockets(host: str, port: int, n_workers: int) -> Sequence[socket.socket]:
    """A socket per process, among which Linux divides the connections evenly; elsewhere the same for all."""
    first = bound_socket(host, port)  # fails if anybody else has the port
    if sys.platform != "linux":
        return [first] * n_workers
    port = first.getsockname()[1]
    first.close()
    return [bound_socket(host, port, is_shared=True) for _ in range(n_workers)]


class _Supervisor:
    """The parent of the processes. All of it runs in the main thread, where signals arrive between two steps."""

    def __init__(
        self,
        make_app: Callable[[], Starlette],
        sockets: Sequence[socket.socket],
        *,
        drain_s: tuple[float, float],
        metrics_folder: str,
    ) -> None:
        self._make_app, self._sockets, self._drain_s = make_app, sockets, drain_s
        self._metrics_folder = metrics_folder
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[int, _Process] = {}  # by number
        self._serving: set[int] = set()
        self._outdated: set[int] = set()  # have begun to load before a reload
        self._is_announced = False
        self._ends_by: float | None = None  # when what is left is killed
        self._failure: str | None = None

    def run(self) -> None:
        """Start the processes, and return when all have ended."""
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(sig, self._on_signal)
        for number in range(len(self._sockets)):
            self._start(number)
        while self._running:
            running = list(self._running.values())
            left_s = None if self._ends_by is None else max(0.0, self._ends_by - time.monotonic())
            if not wait([each for run in running for each in (run.process.sentinel, run.pipe)], left_s):
                for run in running:
                    _log.error("worker killed", extra={"facts": {"worker": run.number, "reason": "it did not end"}})
                    run.process.kill()
            for run in running:
                self._look_at(run)
        if self._failure is not None:
            raise InputError(self._failure)

    def _on_signal(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGHUP:
            self._outdated = set(self._running) - self._serving
            self._reload(self._serving)
        else:
            self._end()

    def _reload(self, numbers: set[int]) -> None:
        for number in sorted(numbers):
            self._send(self._running[number].process, signal.SIGHUP)

    def _end(self) -> None:
        """Have all drain, or end at once if they drain already."""
        self._ends_by = time.monotonic() + sum(self._drain_s) + _CLOSING_S
        for run in list(self._running.values()):
            self._send(run.process, signal.SIGTERM)

    def _send(self, process: SpawnProcess, sig: int) -> None:
        if process.pid is not None and process.exitcode is None:
            os.kill(process.pid, sig)

    def _start(self, number: int) -> None:
        ours, pipe = self._context.Pipe()
        arguments = (self._make_app, number, self._sockets[number], pipe, self._drain_s)
        process = self._context.Process(target=_work, args=arguments, name=f"isosent worker {number}")
        # A terminal sends SIGINT to all; one is enough. SIGHUP waits until the process can reload.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            process.start()
        finally:
            self._running[number] = _Process(number, process, ours)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        pipe.close()
        if self._ends_by is not None:  # the signal came meanwhile
            self._send(process, signal.SIGTERM)

    def _look_at(self, run: _Process) -> None:
        """Read what a process says, and whether it has ended."""
        number, facts = run.number, {"worker": run.number, "pid": run.process.pid}
        while run.pipe.poll():
            try:
                message = run.pipe.recv()
            except EOFError:
                run.process.join()
                break
            if message == "reload":
                self._outdated = set(self._running) - self._serving
                self._reload(self._serving - {number})
            elif message == "serving":
                self._serving.add(number)
                self._reload(self._outdated & {number})
                self._outdated.discard(number)
                _log.info("worker serves", extra={"facts": facts})
                if len(self._serving) == len(self._sockets) and not self._is_announced:
                    self._is_announced = True
                    host, port, *_ = self._sockets[0].getsockname()
                    workers = {"workers": len(self._sockets)}
                    _log.info("listening", extra={"facts": {"host": host, "port": port} | workers})
            else:
                self._failure = self._failure or message
        if run.process.exitcode is None:
            return
        is_replaced = number in self._serving
        self._serving.discard(number)
        del self._running[number]
        run.pipe.close()
        mark_process_dead(run.process.pid, self._metrics_folder)  # type: ignore[no-untyped-call, unused-ignore]
        if self._ends_by is not None:
            return
        facts |= {"exit": run.process.exitcode}
        if is_replaced:
            _log.error("worker ended", extra={"facts": facts | {"action": "replaced"}})
            self._start(number)
        else:
            reason = f"a worker ended with {facts['exit']} before it could serve. See the log above."
            self._failure = self._failure or reason
            _log.error("worker ended", extra={"facts": facts | {"action": "the service ends"}})
            self._end()


def _work(
    make_app: Callable[[], Starlette],
    number: int,
    sock: socket.socket,
    pipe: Connection,
    drain_s: tuple[float, float],
) -> None:
    """Serve, in a process."""
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    try:
        app = make_app()
    except IsosentError as error:
        pipe.send(quoted(error))
        sys.exit(1)
    service: Any = app.state.service
    service.worker, service.has_reloaded = number, lambda: pipe.send("reload")
    serve(
        app,
        host=sock.getsockname()[0],
        port=sock.getsockname()[1],
        drain_delay_s=drain_s[0],
        drain_timeout_s=drain_s[1],
        sockets=[sock],
        on_started=lambda: pipe.send("serving"),
    )


def _end_with_parent(pipe: Connection) -> None:
    """A parent that was killed stops nobody."""
    try:
        pipe.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
