"""Batches through a network, on one device or several, with half the batch where memory runs out."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError, MemoryWarning
from isosent.network.batches import Batch, Layout, batches_of
from isosent.network.workers import run_batches
from isosent.text.tokens import TokenIds

Backend = Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], Sequence[Any]]
_FAR = 64  # batches whose vectors may be on a GPU
_MEMORY_WORDS = ("out of memory", "alloc_failed", "allocate memory", "not enough memory", "bad allocation", "bad_alloc")


class Computing:
    """Computes readings of tokenized texts.

    Parameters
    ----------
    backends : sequence of callable
        From ``input_ids``, ``attention_mask`` and ``pooling_mask``, each of shape (n_texts, seq_len) int64, to an array
        or a tensor of shape (n_texts, width) for each reading. Each runs one batch at a time, all of them at once; the
        same one may stand there several times.
    widths : sequence of int
        Dimensions of each reading.
    budget : int
        Tokens of a batch.
    threads_each : int, optional
        Threads that torch uses for each backend; by default as many as everywhere.
    """

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
        """Compute texts.

        Parameters
        ----------
        tokens : TokenIds
            Texts that all have tokens.
        layout : Layout
            How batches look.
        progress : callable, optional
            Called with the number of texts finished since the last call.

        Returns
        -------
        list of ndarray of shape (n_texts, width), float32
            One a reading.

        Raises
        ------
        InputError
            If there is not memory enough for one text.
        """
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
