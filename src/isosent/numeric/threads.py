"""Threads for compiled kernels and matrix products, both of which release the interpreter's lock."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

_LEAST_TOKENS = 4096
_CHUNKS_A_WORKER = 4  # texts of as many tokens take unlike times


@dataclass(slots=True)
class _Products:
    """Calls of `one_thread_products` under way, and the threads that BLAS used before the first of them."""

    lock: Lock = field(default_factory=Lock)
    n_under_way: int = 0
    n_threads: int = 1
    limit: Any = None


_products = _Products()


def n_workers() -> int:
    """Threads to use: ``OMP_NUM_THREADS`` where it is set, else the processors this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked):
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over_chunks(run: Callable[[int, int], None], offsets: NDArray[np.int64]) -> None:
    """Run a kernel over all texts, in as many threads as `n_workers` says."""
    n_texts, n_threads = len(offsets) - 1, n_workers()
    n_chunks = min(n_threads * _CHUNKS_A_WORKER, n_texts, int(offsets[-1] - offsets[0]) // _LEAST_TOKENS + 1)
    if min(n_chunks, n_threads) <= 1:
        if n_texts:
            run(0, n_texts)
        return
    shares = offsets[0] + (offsets[-1] - offsets[0]) * np.arange(1, n_chunks) // n_chunks
    bounds = sorted({0, *np.searchsorted(offsets, shares).tolist(), n_texts})  # a long text fills several shares
    with ThreadPoolExecutor(min(n_threads, n_chunks)) as pool:
        list(pool.map(run, bounds[:-1], bounds[1:]))


@contextmanager
def one_thread_products() -> Iterator[int]:
    """Let BLAS compute each matrix product in one thread, so that the result does not depend on how many there are."""
    # BLAS cuts a product into a part for each of its threads, and rounds the edges of a part differently. A process
    # with fewer threads, such as a worker of joblib, would get other last bits.
    with _products.lock:
        if not _products.n_under_way:
            blas = _blas()
            _products.n_threads = max((library.num_threads for library in blas.lib_controllers), default=1)
            _products.limit = blas.limit(limits=1)
        _products.n_under_way += 1
    try:
        yield _products.n_threads
    finally:
        with _products.lock:
            _products.n_under_way -= 1
            if not _products.n_under_way:
                _products.limit.restore_original_limits()


def over_blocks(run: Callable[[int], None], n_rows: int, block_rows: int) -> None:
    """Run matrix products over blocks of rows, side by side, each in one thread."""
    starts = range(0, n_rows, block_rows)
    with one_thread_products() as n_threads:
        if min(n_threads, len(starts)) <= 1:
            for start in starts:
                run(start)
            return
        with ThreadPoolExecutor(min(n_threads, len(starts))) as pool:
            for _ in pool.map(run, starts):
                pass


@cache
def _blas() -> ThreadpoolController:
    """The libraries of matrix products that are loaded; numpy's is."""
    return ThreadpoolController().select(user_api="blas")
