"""Batches computed side by side, in threads, a bounded number at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from threading import Lock
from typing import TypeVar

from isosent import _extras

T = TypeVar("T")
R = TypeVar("R")

_MOST_WORKERS = 16


@dataclass(slots=True)
class _Outside:
    """Threads that torch used when the first of the workers under way began: a thread born meanwhile finds theirs."""

    lock: Lock = field(default_factory=Lock)
    n_under_way: int = 0
    n_threads: int = 0


_outside = _Outside()


def run_batches(
    batches: Iterable[T], compute: Callable[[T], R], n_workers: int = 1, *, threads_each: int | None = None
) -> Iterator[tuple[T, R]]:
    """Compute batches, each in one thread.

    Parameters
    ----------
    batches : iterable
        The batches; they are taken as threads come free, at most twice as many as there are workers ahead of the one
        that is handed out.
    compute : callable
        From a batch to its result. With several workers it is called from several threads.
    n_workers : int, default 1
        Threads; with one, or for a single batch, everything happens in the calling thread.
    threads_each : int, optional
        Threads that torch uses within each worker; by default as many as everywhere. The calling thread keeps its own.

    Yields
    ------
    batch, result
        In the order of the batches. What `compute` raises is raised here; batches that were not begun are dropped then,
        and also when the caller stops early.
    """
    batches = iter(batches)
    first_two = list(islice(batches, 2))
    if n_workers == 1 or len(first_two) < 2:
        for batch in chain(first_two, batches):
            yield batch, compute(batch)
        return
    under_way: deque[tuple[T, Future[R]]] = deque()
    with _threads(n_workers, threads_each) as threads:
        try:
            for batch in chain(first_two, batches):
                under_way.append((batch, threads.submit(compute, batch)))
                if len(under_way) > 2 * n_workers:
                    first, future = under_way.popleft()
                    yield first, future.result()
            while under_way:
                first, future = under_way.popleft()
                yield first, future.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _threads(n_workers: int, threads_each: int | None) -> Iterator[ThreadPoolExecutor]:
    """Threads in which torch uses so many of its own; what it uses elsewhere is as before afterwards."""
    if threads_each is None:
        with ThreadPoolExecutor(n_workers) as threads:
            yield threads
        return
    torch = _extras.require("torch")
    n_before = torch.get_num_threads()
    with _outside.lock:
        _outside.n_threads = _outside.n_threads if _outside.n_under_way else n_before
        _outside.n_under_way += 1
    try:
        with ThreadPoolExecutor(n_workers, initializer=torch.set_num_threads, initargs=(threads_each,)) as threads:
            yield threads
    finally:
        with _outside.lock:
            _outside.n_under_way -= 1
            torch.set_num_threads(n_before if _outside.n_under_way else _outside.n_threads)


def share_of_threads(n_threads: int | None = None) -> tuple[int, int]:
    """Divide the threads of torch among workers.

    Parameters
    ----------
    n_threads : int, optional
        Threads in all; by default as many as torch would use for one product, which ``OMP_NUM_THREADS`` and
        ``torch.set_num_threads`` set.

    Returns
    -------
    n_workers, threads_each : int
        For `run_batches`. One thread a worker, up to 16 workers.

    Notes
    -----
    A product of a batch is short: threads that share it wait for one another at its end, at every one of the dozens of
    steps of a layer, while workers with a batch each never wait. Above 16 the interpreter's lock, which they share,
    begins to count.
    """
    if n_threads is None:
        n_threads = int(_extras.require("torch").get_num_threads())
    n_workers = min(n_threads, _MOST_WORKERS)
    return n_workers, n_threads // n_workers
