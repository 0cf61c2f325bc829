"""Encoding by many processes and machines: where the workers of a job run, and batches in the jobs of other engines.

`engine_for` chooses between this process (`isosent.jobs.worker.LocalEngine`), `Processes` of this machine and a `Ray`
cluster. An engine gives a function that runs tasks in any order and yields their outcomes. A task whose worker dies
runs again: in a separate process, so that the one that kills is found, or on another actor; after three deaths it has
failed.
Tasks hold paths, never vectors: a `Worker` opens the files and the model by itself.

`Encode` is for Ray Data and its like, which bring the batches and decide where they go.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout
from functools import cached_property, partial
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_one
from threading import Thread
from typing import Any, Final

from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from isosent import _check, _extras
from isosent.api import usage
from isosent.api.usage import Usage
from isosent.errors import InputError, WorkerError, option
from isosent.io.texts import is_missing
from isosent.jobs.shards import Engine
from isosent.jobs.worker import Job, LocalEngine, Outcome, RunTasks, Task, Worker
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.numeric.threads import n_workers
from isosent.pages import progress
from isosent.pages.progress import Progress
from isosent.role import RoleName

_RAY: Final = "ray"
_IN_FLIGHT: Final = 2  # tasks of a worker, so that it never waits for the next one
_MOST_DEATHS: Final = 3  # of workers over one task
_START_S: Final = 600.0  # without any worker
_KNOCK_S: Final = 10.0


def engine_for(on: str | None, workers: int | None, gpus_per_worker: float = 0.0) -> Engine:
    """Choose where workers run: here, in processes, or with ``ray`` or ``ray://address`` on a cluster."""
    if workers is not None:
        _check.whole_number("workers", "workers", workers, 1)
    if on is None:
        if gpus_per_worker:
            raise InputError(f"GPUs per worker are for a cluster: {option('on', 'ray?gpus=X')}.")
        return LocalEngine() if workers in (None, 1) else Processes(workers or 1)
    if not (0 <= gpus_per_worker <= 1 or (gpus_per_worker > 1 and gpus_per_worker % 1 == 0)):
        raise InputError(
            f"{option('on', f'ray?gpus={gpus_per_worker:g}')}: choose a number from 0 to 1, or a whole number."
        )
    address = on.removeprefix(_RAY).removeprefix(":")
    if not on.startswith(_RAY) or (address and not address.startswith("//")):
        raise InputError(f"{option('on', on)}: write ray, or ray://ADDRESS.")
    _extras.require("ray")
    return Ray(on if address else None, workers, gpus_per_worker)


class Processes:
    """Processes of this machine, each with its share of the processors."""

    def __init__(self, n_processes: int) -> None:
        self._n_processes = n_processes
        self._pool: ProcessPoolExecutor | None = None

    @contextmanager
    def workers(self, job: Job, progress: Progress | None) -> Iterator[RunTasks]:
        """Start processes; those that die are replaced. All end at once if this process is interrupted."""
        is_over, ends_them = multiprocessing.Pipe(duplex=False)
        try:
            yield lambda tasks: self._run(partial(self._start, job, is_over), deque(tasks))
        except KeyboardInterrupt:
            ends_them.close()
            raise
        finally:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
                self._pool = None
            is_over.close()
            ends_them.close()

    def _start(self, job: Job, is_over: Connection) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._n_processes,
            multiprocessing.get_context("spawn"),
            _start_process,
            (job, max(1, n_workers() // self._n_processes), is_over),
        )

    def _run(self, start: Callable[[], ProcessPoolExecutor], queue: deque[Task]) -> Iterator[tuple[Task, Outcome]]:
        deaths: Counter[Task] = Counter()
        running: dict[Future[tuple[Outcome, dict[str, Usage]]], Task] = {}
        while queue or running:
            self._pool = self._pool or start()
            # after a death each of these tasks runs alone, before the others, so that the one that kills is found
            suspects = any(deaths[task] for task in (*running.values(), *islice(queue, 1)))
            most = 1 if suspects else _IN_FLIGHT * self._n_processes
            try:
                with _interrupts_blocked():
                    while queue and len(running) < most:
                        running[self._pool.submit(_attempt, queue[0])] = queue[0]
                        queue.popleft()
            except BrokenProcessPool:
                if not running:  # else they say so
                    self._pool = None
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                task, error = running.pop(future), future.exception()
                if not isinstance(error, BrokenProcessPool):
                    yield task, _worker_error(error) if error else _counted(future.result())
                    continue
                self._pool = None
                deaths[task] += 1
                if deaths[task] < _MOST_DEATHS:
                    queue.appendleft(task)
                else:
                    yield task, _death_error()


class _WorkerElsewhere(Worker):
    """A worker in a process that does nothing else."""

    def attempt_and_count(self, task: Task) -> tuple[Outcome, dict[str, Usage]]:
        """Do a task; also return what APIs were sent for it, of which a process that dies says nothing."""
        return self.attempt(task), usage.take()


_worker: _WorkerElsewhere | None = None


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes that start meanwhile do not see Ctrl-C, which a terminal sends to all: their parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_process(job: Job, n_threads: int, is_over: Connection) -> None:
    global _worker
    progress.bars_by_encoders = False
    Thread(target=_end_with_parent, args=(is_over,), daemon=True).start()
    os.environ["OMP_NUM_THREADS"] = str(n_threads)  # what is loaded later reads it
    threadpool_limits(n_threads)
    _worker = _WorkerElsewhere(job)


def _end_with_parent(is_over: Connection) -> None:
    """A driver that was killed stops nobody; the next one would work next to its processes."""
    parent = multiprocessing.parent_process()
    wait_for_one([is_over, *([parent.sentinel] if parent else [])])
    os._exit(1)


def _attempt(task: Task) -> tuple[Outcome, dict[str, Usage]]:
    assert _worker is not None
    return _worker.attempt_and_count(task)


def _counted(answer: tuple[Outcome, dict[str, Usage]]) -> Outcome:
    """The outcome of a task in another process; what APIs were sent for it counts here."""
    outcome, sent = answer
    usage.add(sent)
    return outcome


def _death_error() -> WorkerError:
    return WorkerError(f"{_MOST_DEATHS} workers died while they made it. Is there too little memory for a worker?")


def _worker_error(error: BaseException) -> WorkerError:
    """What is reported for an error that is none of isosent."""
    return WorkerError(f"{type(error).__name__}: {_check.brief(error)}")


class Ray:
    """Actors on a Ray cluster. Tasks hold paths, never vectors."""

    def __init__(self, address: str | None, n_actors: int | None, gpus_per_actor: float) -> None:
        self._address, self._n_actors, self._gpus = address, n_actors, gpus_per_actor

    @contextmanager
    def workers(self, job: Job, progress: Progress | None) -> Iterator[RunTasks]:
        """Connect to the cluster, or start one on this machine."""
        ray = _extras.require("ray")
        was_connected = ray.is_initialized()
        if not was_connected:
            address = self._address or os.environ.get("RAY_ADDRESS") or "local"  # not one that ran here some time ago
            try:
                _knock(address)
                ray.init(address, log_to_driver=False, configure_logging=False, include_dashboard=False)
            except (OSError, RuntimeError, ValueError) as error:
                raise InputError(f"no Ray cluster at {address}: {_check.brief(error)}.") from None
        actors = _Actors(ray, job, self._n_actors, self._gpus)
        try:
            with redirect_stdout(sys.stderr):  # Ray prints there, from a thread, that a worker died
                yield lambda tasks: actors.run(deque(tasks))
        finally:
            actors.stop()
            if not was_connected:
                ray.shutdown()


def _knock(address: str) -> None:
    """Raise an error if nobody answers at HOST:PORT: Ray would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S).close()


class _Actors:
    """Actors, the tasks that each of them has, and those that wait."""

    def __init__(self, ray: Any, job: Job, n_actors: int | None, gpus: float) -> None:
        self._ray, self._job = ray, ray.put(job)
        self._class = ray.remote(_WorkerElsewhere).options(num_cpus=1, num_gpus=gpus)
        self._n_actors = n_actors or max(
            1, int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1) // (gpus or 1))
        )
        self._needs = "1 CPU" + (f" and {gpus:g} GPUs" if gpus else "")
        self._starting: dict[Any, Any] = {}  # actors by what they answer when they have started
        self._ready: list[Any] = []
        self._running: dict[Any, tuple[Any, Task]] = {}
        self._alone_since_s = time.monotonic()

    def run(self, queue: deque[Task]) -> Iterator[tuple[Task, Outcome]]:
        """Run tasks; those of an actor that died run on another one."""
        deaths: Counter[Task] = Counter()
        while queue or self._running:
            self._fill(queue)
            done, _ = self._ray.wait([*self._running, *self._starting], timeout=1.0)
            for reference in done:
                if reference in self._starting:
                    self._welcome(reference)
                elif reference in self._running:
                    actor, task = self._running.pop(reference)
                    try:
                        yield task, _counted(self._ray.get(reference))
                    except self._ray.exceptions.RayActorError:
                        deaths[task] += 1
                        if deaths[task] >= _MOST_DEATHS:
                            yield task, _death_error()
                        else:
                            queue.appendleft(task)
                        queue.extendleft(self._drop(actor))
                    except self._ray.exceptions.RayError as error:
                        yield task, _worker_error(getattr(error, "cause", None) or error)
            if self._ready:
                self._alone_since_s = time.monotonic()
            elif time.monotonic() - self._alone_since_s > _START_S:
                raise WorkerError(
                    f"the cluster started no worker in {_START_S:.0f} s. A worker needs {self._needs}; the cluster has "
                    f"{self._ray.cluster_resources()}."
                )

    def _fill(self, queue: deque[Task]) -> None:
        for _ in range(self._n_actors - len(self._ready) - len(self._starting)):
            actor = self._class.remote(self._job)
            self._starting[actor.ready.remote()] = actor
        load = Counter(actor for actor, _ in self._running.values())
        for actor in self._ready * _IN_FLIGHT:
            if queue and load[actor] < _IN_FLIGHT:
                load[actor] += 1
                task = queue.popleft()
                self._running[actor.attempt_and_count.remote(task)] = (actor, task)

    def _welcome(self, reference: Any) -> None:
        actor = self._starting.pop(reference)
        try:
            self._ray.get(reference)
        except self._ray.exceptions.RayActorError:  # its node is gone; another one is started
            return
        self._ready.append(actor)

    def _drop(self, actor: Any) -> list[Task]:
        """Forget an actor that died, and return the tasks that it had not begun."""
        if actor in self._ready:
            self._ready.remove(actor)
        waiting = [reference for reference, (owner, _) in self._running.items() if owner is actor]
        return [self._running.pop(reference)[1] for reference in waiting]

    def stop(self) -> None:
        """End all actors."""
        for actor in (*self._ready, *self._starting.values()):
            self._ray.kill(actor)


# -- other engines ---------------------------------------------------------------------------------------------------


class Encode:
    """A function of batches for ``map_batches`` of Ray Data, which adds the vectors of a column of texts.

    Every worker loads the model once. Ray Data may give a batch twice, or lose one with a node; for results where every
    row is there exactly once, use ``isosent encode --on ray``.

    Parameters
    ----------
    model : str, default "wordllama"
        Reference of the model, as for `isosent.load`; the files must be reachable from all machines.
    column : str, default "text"
        Column with the texts; null is an empty text.
    output : str, default "vector"
        Column for the vectors, (n_texts, dim), float32.
    role : {"text", "query", "document"}, default "text"
        What the texts are encoded as.
    options : mapping of str to object, optional
        Options of the model.

    Raises
    ------
    InputError
        If there is no such column.

    Examples
    --------
    >>> import numpy as np
    >>> encode = Encode("wordllama")
    >>> encode({"text": np.array(["A man is riding a horse."], object)})["vector"].shape
    (1, 256)
    """

    def __init__(
        self,
        model: str = "wordllama",
        column: str = "text",
        output: str = "vector",
        *,
        role: RoleName = "text",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._reference, self._options = model, dict(options or {})
        self._column, self._output, self._role = column, output, role

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the batch with the vectors of its texts."""
        if self._column not in batch:
            raise InputError(f"the batch has no column {self._column}; it has: {', '.join(batch)}.")
        texts = ["" if is_missing(value) else value for value in batch[self._column]]
        return {**batch, self._output: self._model.encode(texts, role=self._role)}

    @cached_property
    def _model(self) -> SentenceEncoder:
        return load(self._reference, **self._options)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_model"}  # each worker loads its own
