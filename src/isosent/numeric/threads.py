"""Threads for compiled kernels and matrix products, which both release the interpreter's lock."""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import LibController, ThreadpoolController

from isosent._locks import Lock

_MIN_TOKENS = 4096
_CHUNKS_PER_WORKER = 4  # texts with the same number of tokens take different times

Result = TypeVar("Result")


def n_workers() -> int:
    """Threads to use: ``OMP_NUM_THREADS`` if it is set, else the number of processors available to this process."""
    variable = os.environ.get("OMP_NUM_THREADS", "")
    if variable.isdigit() and int(variable):
        return int(variable)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over_chunks(run: Callable[[int, int], None], offsets: NDArray[np.int64]) -> None:
    """Call ``run(first, end)`` for chunks of texts with about as many tokens each; `offsets` is (n_texts + 1,)."""
    n_texts, n_threads = len(offsets) - 1, n_workers()
    n_chunks = min(n_threads * _CHUNKS_PER_WORKER, n_texts, int(offsets[-1] - offsets[0]) // _MIN_TOKENS + 1)
    if min(n_chunks, n_threads) <= 1:
        if n_texts:
            run(0, n_texts)
        return
    shares = offsets[0] + (offsets[-1] - offsets[0]) * np.arange(1, n_chunks) // n_chunks
    bounds = sorted({0, *np.searchsorted(offsets, shares).tolist(), n_texts})  # a long text can fill several shares
    with ThreadPoolExecutor(min(n_threads, n_chunks)) as pool:
        list(pool.map(run, bounds[:-1], bounds[1:]))


def over_blocks(run: Callable[[int], object], n_rows: int, block_rows: int) -> None:
    """Call ``run(start)``, which computes matrix products, for blocks of rows in parallel."""
    deque(map_blocks(run, n_rows, block_rows), 0)


def map_blocks(run: Callable[[int], Result], n_rows: int, block_rows: int) -> Iterator[Result]:
    """Yield what `run` returns for each block, in the order of the blocks; a few are computed ahead."""
    starts = range(0, n_rows, block_rows)
    with one_thread_products() as n_threads:
        if min(n_threads, len(starts)) <= 1:
            yield from map(run, starts)
            return
        ahead: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(min(n_threads, len(starts))) as pool:
            for start in starts:
                ahead.append(pool.submit(run, start))
                if len(ahead) > 2 * n_threads:  # each result takes memory
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()


class _Limit:
    """The limit on BLAS that calls of `one_thread_products` share."""

    lock = Lock()
    n_calls = 0
    before: tuple[tuple[LibController, int], ...] = ()  # threads of each BLAS, before the first of these calls


@contextmanager
def one_thread_products() -> Iterator[int]:
    """Let BLAS compute each matrix product in one thread; yields the number of threads it uses otherwise."""
    # BLAS cuts a product into one part per thread, and rounds the edges of the parts differently. A process with
    # fewer threads, such as a worker of joblib, would get other last bits.
    with _Limit.lock:
        if not _Limit.n_calls:
            _Limit.before = tuple((library, library.num_threads) for library in _blas("scipy.linalg" in sys.modules))
            _limit((library, 1) for library, _ in _Limit.before)
        _Limit.n_calls += 1
    try:
        yield max((n_threads for _, n_threads in _Limit.before), default=1)
    finally:
        with _Limit.lock:
            _Limit.n_calls -= 1
            if not _Limit.n_calls:
                _limit(_Limit.before)


def _limit(n_threads: Iterable[tuple[LibController, int]]) -> None:
    """Set the threads of each BLAS library, for all threads of this process."""
    for library, n in n_threads:
        # since 3.8, threadpoolctl does nothing in all threads but the first that set a limit, as long as that one lives
        getattr(library, "_real_set_num_threads", library.set_num_threads)(n)


@cache
def _blas(with_scipy: bool) -> list[LibController]:  # scipy has a library of its own, which is loaded later
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers  # numpy's BLAS is loaded by now
    # a BLAS with OpenMP, such as that of FAISS, keeps a number of threads for each thread, which no other can set
    return [library for library in libraries if getattr(library, "threading_layer", None) != "openmp"] or libraries
