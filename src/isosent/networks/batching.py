"""Batches through a network, on one device or several, with half the batch where memory runs out."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from queue import SimpleQueue
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import InputError, MemoryWarning
from isosent.words.tokens import TokenIds


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Texts laid out as a rectangle, padded on the right."""

    rows: NDArray[np.intp]  # which texts they are
    input_ids: NDArray[np.int64]  # tokens; 1 where there is one, and where it is pooled
    attention_mask: NDArray[np.int64]  # tokens; 1 where there is one, and where it is pooled
    pooling_mask: NDArray[np.int64]  # tokens; 1 where there is one, and where it is pooled

    @property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """What a backend takes."""
        return self.input_ids, self.attention_mask, self.pooling_mask

    def halves(self) -> tuple[Batch, Batch]:
        """Return the same texts in two batches."""
        middle = len(self.rows) // 2
        first, second = (
            Batch(self.rows[part], *(array[part] for array in self.arrays))
            for part in (slice(middle), slice(middle, None))
        )
        return first, second


def batches_of(tokens: TokenIds, layout: Layout) -> Iterator[Batch]:
    """Cut texts into batches, the longest first."""
    lengths = tokens.lengths
    longest_first = np.argsort(-lengths, kind="stable")
    falling = -lengths[longest_first]
    start = 0
    while start < len(longest_first):
        stop = start + max(1, layout.budget // -int(falling[start]))
        if layout.equal_lengths:
            stop = min(stop, int(np.searchsorted(falling, falling[start], side="right")))
        rows = longest_first[start:stop]
        input_ids, attention_mask = tokens.take(rows).padded(layout.pad_id)
        pooling_mask = attention_mask
        if layout.n_unpooled:
            pooling_mask = attention_mask.copy()
            pooling_mask[:, : layout.n_unpooled] = 0
        yield Batch(rows, input_ids, attention_mask, pooling_mask)
        start = stop


@dataclass(frozen=True, slots=True)
class Layout:
    """How batches look."""

    budget: int  # tokens of a batch at most, padding counted; a longer text has a batch of its own
    pad_id: int  # id that stands for padding
    # Whether only texts of the same length share a batch, for networks that see their padding
    equal_lengths: bool = False
    n_unpooled: int = 0  # leading tokens of each text that are not pooled


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
    """Compute batches, each in one thread."""
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
    """Divide the threads of torch among workers."""
    # A product of a batch is short: threads that share it wait for one another at its end, at every one of the dozens
    # of steps of a layer, while workers with a batch each never wait. Above 16 the interpreter's lock, which they
    # share, begins to count.
    if n_threads is None:
        n_threads = int(_extras.require("torch").get_num_threads())
    n_workers = min(n_threads, _MOST_WORKERS)
    return n_workers, n_threads // n_workers


Backend = Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], Sequence[Any]]
_FAR = 64  # batches whose vectors may be on a GPU
_MEMORY_WORDS = ("out of memory", "alloc_failed", "allocate memory", "not enough memory", "bad allocation", "bad_alloc")


class Computing:
    """Computes readings of tokenized texts."""

    def __init__(
        self, backends: Sequence[Backend], widths: Sequence[int], budget: int, *, threads_each: int | None = None
    ) -> None:
        self.budget = budget
        self._threads_each = threads_each
        self._widths = widths
        self._n_workers = len(backends)
        self._free: SimpleQueue[Backend] = SimpleQueue()
        for backend in backends:
            self._free.put(backend)
        self._warned = False

    def vectors(
        self, tokens: TokenIds, layout: Layout, progress: Callable[[int], None] | None = None
    ) -> list[NDArray[np.float32]]:
        """Compute texts."""
        n_texts = len(tokens.lengths)
        outputs = [np.empty((n_texts, width), dtype=np.float32) for width in self._widths]
        far: deque[tuple[Batch, Sequence[Any]]] = deque()
        batches = batches_of(tokens, layout)
        for _, parts in run_batches(batches, self._compute, self._n_workers, threads_each=self._threads_each):
            for batch, vectors in parts:
                if getattr(vectors[0], "is_cuda", False):
                    far.append((batch, vectors))
                    if len(far) > _FAR:
                        _store(outputs, *far.popleft())
                else:
                    _store(outputs, batch, vectors)
                if progress:
                    progress(len(batch.rows))
        for batch, vectors in far:  # fetched late: the GPU does not wait for the one that reads
            _store(outputs, batch, vectors)
        return outputs

    def _compute(self, batch: Batch) -> list[tuple[Batch, Sequence[Any]]]:
        backend = self._free.get()
        try:
            return list(self._within_memory(backend, batch))
        finally:
            self._free.put(backend)

    def _within_memory(self, backend: Backend, batch: Batch) -> Iterator[tuple[Batch, Sequence[Any]]]:
        """Compute a batch, in halves where it does not fit."""
        try:
            vectors = backend(*batch.arrays)
        except Exception as error:  # those of onnxruntime have no class in common with the others
            if not _is_out_of_memory(error):
                raise
            if len(batch.rows) == 1:
                raise InputError(
                    f"encode: a text of {batch.input_ids.shape[1]} tokens must fit into memory; it does not. Set "
                    "max_length to less."
                ) from error
        else:
            yield batch, vectors
            return
        self._say_once(batch)
        for half in batch.halves():
            yield from self._within_memory(backend, half)

    def _say_once(self, batch: Batch) -> None:
        if not self._warned:
            self._warned = True
            n_texts, length = batch.input_ids.shape
            warnings.warn(
                f"A batch of {n_texts} x {length} tokens did not fit into memory and was halved; vectors are the same. "
                f"Set batch_tokens below {n_texts * length}.",
                MemoryWarning,
                stacklevel=2,
            )


def _store(outputs: Sequence[NDArray[np.float32]], batch: Batch, vectors: Sequence[Any]) -> None:
    for output, vector in zip(outputs, vectors, strict=True):
        output[batch.rows] = vector if isinstance(vector, np.ndarray) else vector.float().cpu().numpy()


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _MEMORY_WORDS)
