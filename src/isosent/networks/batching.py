"""Cut texts into batches of similar length and run them on one device or several."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from queue import SimpleQueue
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import InputError, MemoryWarning
from isosent.pages.progress import Progress, counted
from isosent.words.tokens import TokenIds

# From input_ids, attention_mask and pooling_mask, each (n_texts, seq_len) int64, to an array or tensor of shape
# (n_texts, width) for each layer pooling.
Backend = Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], Sequence[Any]]
_MAX_PENDING = 64  # batches whose vectors stay on a GPU: fetched late, so that the GPU does not wait for the copy
_MAX_PENDING_STATES = 4  # batches whose hidden states stay there too
_MEMORY_ERRORS = (
    "out of memory",
    "alloc_failed",
    "allocate memory",
    "not enough memory",
    "bad_alloc",
    "bad allocation",
)


class BatchRunner:
    """Runs tokenized texts through backends, one batch at a time each, all backends at once."""

    def __init__(
        self, backends: Sequence[Backend], widths: Sequence[int], budget: int, *, threads_each: int | None = None
    ) -> None:
        self._budget = budget  # tokens of a batch
        self._widths = widths
        self._threads_each = threads_each  # threads that torch uses for each backend; None for as many as elsewhere
        self._n_workers = len(backends)
        self._idle: SimpleQueue[Backend] = SimpleQueue()  # the same backend may be in it several times
        for backend in backends:
            self._idle.put(backend)
        self._has_warned = False

    def run(
        self,
        tokens: TokenIds,
        progress: Progress | None = None,
        *,
        pad_id: int = 0,
        equal_lengths: bool = False,
        see: See | None = None,
    ) -> list[NDArray[np.float32]]:
        """Vectors of texts that all have tokens, one array (n_texts, width) per layer pooling; see `batches_of`.

        `see` gets each batch with the last output of the backends, which is the states of its tokens, in their order.
        """
        batches = batches_of(tokens, self._budget, pad_id=pad_id, equal_lengths=equal_lengths)
        outputs = [np.empty((len(tokens.lengths), width), dtype=np.float32) for width in self._widths]
        pending: deque[tuple[Batch, Sequence[Any]]] = deque()
        most = _MAX_PENDING if see is None else _MAX_PENDING_STATES
        computed = run_batches(batches, self._compute, self._n_workers, threads_each=self._threads_each)
        parts = chain.from_iterable(parts for _, parts in computed)
        for batch, vectors in counted(parts, progress, len(tokens.lengths), lambda part: len(part[0].rows)):
            pending.append((batch, vectors))
            while len(pending) > (most if getattr(vectors[0], "is_cuda", False) else 0):
                _store(outputs, see, *pending.popleft())
        for batch, vectors in pending:
            _store(outputs, see, batch, vectors)
        return outputs

    def _compute(self, batch: Batch) -> list[tuple[Batch, Sequence[Any]]]:
        backend = self._idle.get()
        try:
            return list(self._compute_in_memory(backend, batch))
        finally:
            self._idle.put(backend)

    def _compute_in_memory(self, backend: Backend, batch: Batch) -> Iterator[tuple[Batch, Sequence[Any]]]:
        """Compute a batch, halving it until it fits into memory."""
        try:
            vectors = backend(*batch.arrays)
        except Exception as error:  # the errors of onnxruntime share no base class with the others
            if not (isinstance(error, MemoryError) or any(words in str(error).lower() for words in _MEMORY_ERRORS)):
                raise
            n_texts, seq_len = batch.input_ids.shape
            if n_texts == 1:
                raise InputError(
                    f"encode: a text of {seq_len} tokens does not fit into memory. Set max_length to less."
                ) from error
        else:
            yield batch, vectors
            return
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"A batch of {n_texts} x {seq_len} tokens did not fit into memory and was halved; the vectors are the "
                f"same. Set batch_tokens below {n_texts * seq_len}.",
                MemoryWarning,
                stacklevel=2,
            )
        for half in batch.halves():
            yield from self._compute_in_memory(backend, half)


def _store(outputs: Sequence[NDArray[np.float32]], see: See | None, batch: Batch, vectors: Sequence[Any]) -> None:
    arrays = [vector if isinstance(vector, np.ndarray) else vector.float().cpu().numpy() for vector in vectors]
    if see is not None:
        see(batch, arrays.pop())
    for output, array in zip(outputs, arrays, strict=True):
        output[batch.rows] = array


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Token ids of some texts, padded on the right."""

    rows: NDArray[np.intp]  # position of each text, (n_texts,)
    input_ids: NDArray[np.int64]  # (n_texts, seq_len), like both masks
    attention_mask: NDArray[np.int64]  # 1 for a token
    pooling_mask: NDArray[np.int64]  # 1 for a token that is pooled

    @property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The arguments of a backend."""
        return self.input_ids, self.attention_mask, self.pooling_mask

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the texts."""
        middle = len(self.rows) // 2
        first, second = (
            Batch(self.rows[part], *(array[part] for array in self.arrays))
            for part in (slice(middle), slice(middle, None))
        )
        return first, second


def batches_of(tokens: TokenIds, budget: int, *, pad_id: int = 0, equal_lengths: bool = False) -> Iterator[Batch]:
    """Cut texts into batches, the longest first, of at most `budget` tokens including padding.

    A longer text is a batch by itself. With `equal_lengths`, for networks that see their padding, only texts of the
    same length share a batch.
    """
    lengths = tokens.lengths
    longest_first = np.argsort(-lengths, kind="stable")
    negative_lengths = -lengths[longest_first]  # ascending, as searchsorted needs it
    start = 0
    while start < len(longest_first):
        stop = start + max(1, budget // -int(negative_lengths[start]))
        if equal_lengths:
            stop = min(stop, int(np.searchsorted(negative_lengths, negative_lengths[start], side="right")))
        rows = longest_first[start:stop]
        taken = tokens.take(rows)
        input_ids, attention_mask = taken.padded(pad_id)
        pooling_mask = attention_mask
        if np.any(taken.n_unpooled):
            places = np.arange(attention_mask.shape[1])
            pooling_mask = attention_mask * (places >= np.reshape(taken.n_unpooled, (-1, 1)))
        yield Batch(rows, input_ids, attention_mask, pooling_mask)
        start = stop


See = Callable[[Batch, NDArray[np.float32]], None]

T = TypeVar("T")
R = TypeVar("R")


def run_batches(
    batches: Iterable[T], compute: Callable[[T], R], n_workers: int = 1, *, threads_each: int | None = None
) -> Iterator[tuple[T, R]]:
    """Yield each batch with its result, in order, computed by `n_workers` threads.

    Batches are taken as threads become free, at most twice as many as there are workers ahead of the one that is
    yielded. An error of `compute` is raised here; it, and a caller that stops early, drop the batches not yet begun.
    """
    batches = iter(batches)
    first_two = list(islice(batches, 2))
    if n_workers == 1 or len(first_two) < 2:
        for batch in chain(first_two, batches):
            yield batch, compute(batch)
        return
    running: deque[tuple[T, Future[R]]] = deque()
    with _thread_pool(n_workers, threads_each) as pool:
        try:
            for batch in chain(first_two, batches):
                running.append((batch, pool.submit(compute, batch)))
                if len(running) > 2 * n_workers:
                    first, future = running.popleft()
                    yield first, future.result()
            while running:
                first, future = running.popleft()
                yield first, future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class _Pools:
    """Pools that limit torch's threads now. A thread that starts meanwhile inherits the limit, so it is undone here."""

    lock = Lock()
    n_running = 0
    n_threads_before = 0  # what torch used when the first of them began


@contextmanager
def _thread_pool(n_workers: int, threads_each: int | None) -> Iterator[ThreadPoolExecutor]:
    """Threads in which torch uses `threads_each` threads; its setting elsewhere is restored afterwards."""
    if threads_each is None:
        with ThreadPoolExecutor(n_workers) as pool:
            yield pool
        return
    torch = _extras.require("torch")
    n_before = torch.get_num_threads()
    with _Pools.lock:
        if not _Pools.n_running:
            _Pools.n_threads_before = n_before
        _Pools.n_running += 1
    try:
        with ThreadPoolExecutor(n_workers, initializer=torch.set_num_threads, initargs=(threads_each,)) as pool:
            yield pool
    finally:
        with _Pools.lock:
            _Pools.n_running -= 1
            torch.set_num_threads(n_before if _Pools.n_running else _Pools.n_threads_before)


_MAX_WORKERS = 16


def share_of_threads() -> tuple[int, int]:
    """Divide torch's threads: the number of workers, and the threads of each."""
    # A product of one batch is short. Threads that share it wait for one another at the end of each of the dozens of
    # steps of a layer; workers with a batch each never wait. Above 16 workers the interpreter's lock begins to count.
    n_threads = int(_extras.require("torch").get_num_threads())
    n_workers = min(n_threads, _MAX_WORKERS)
    return n_workers, n_threads // n_workers
