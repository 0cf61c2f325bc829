"""Threads for compiled kernels, which release the interpreter's lock."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

_LEAST_TOKENS = 4096
_CHUNKS_A_WORKER = 4  # texts of as many tokens take unlike times


def n_workers() -> int:
    """Threads to use: ``OMP_NUM_THREADS`` where it is set, else the processors this process may use.

    Returns
    -------
    int
        At least 1.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked):
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over_chunks(run: Callable[[int, int], None], offsets: NDArray[np.int64]) -> None:
    """Run a kernel over all texts, in as many threads as `n_workers` says.

    Parameters
    ----------
    run : callable
        Takes the first text of a chunk and the one behind its last; writes results of these only.
    offsets : ndarray of shape (n_texts + 1,), int64
        Where the tokens (or characters) of each text begin; chunks have about equally many.
    """
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
