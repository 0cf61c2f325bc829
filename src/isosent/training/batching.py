"""Batches of training examples: at random, or of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent.errors import InputError

Rows = NDArray[np.int64]
_BUCKET: Final = 100  # batches that are sorted by length together
_LOOK: Final = 100  # batches searched for one that shares no text with a row
_CHUNK: Final = 1024  # texts tokenized at once


class EpochBatches:
    """The batches of an epoch, which depend on the seed and the number of the epoch alone."""

    # It has what torch's DataLoader, accelerate and the trainers ask of a batch sampler. A resumed run takes the
    # batches of the same epoch and skips those that were used.

    batch_size = None
    drop_last = False

    def __init__(self, make: Callable[[np.random.Generator], list[Rows]], seed: int) -> None:
        self._make = make
        self._seed = seed
        self._made: tuple[int, list[list[int]]] | None = None
        self.epoch = 0

    @property
    def sampler(self) -> EpochBatches:
        """The sampler whose epoch the trainers set: this object."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Go to another epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches())

    def __len__(self) -> int:
        return len(self._batches())

    def _batches(self) -> list[list[int]]:
        if self._made is None or self._made[0] != self.epoch:
            batches = self._make(np.random.default_rng([self._seed, self.epoch]))
            self._made = self.epoch, [batch.tolist() for batch in batches]
        return self._made[1]


def batch_sampler(
    *, lengths: ArrayLike | None = None, distinct: Sequence[Sequence[str]] | None = None, n_processes: int = 1
) -> Callable[..., EpochBatches]:
    """A factory of batch samplers, as the trainer of sentence-transformers takes it.

    Every example is in exactly one batch of an epoch. With `lengths` of shape (n_examples, n_columns), examples of
    similar length share a batch. With `distinct`, the columns of texts, no batch has a text in two of its rows, unless
    more examples have it than there are batches.
    """
    # Random: a permutation, cut every `batch_size` examples, as in Reimers & Gurevych 2019. By length: the permutation
    # is cut into buckets of 100 batches, each bucket is sorted by length and cut into batches; these come in random
    # order. This is the smart batching of the paper's section 7, in training. Batches of a budget of tokens were not
    # faster: 1,600 NLI pairs, two layers of MiniLM, one thread of a CPU: 59 examples a second of processor time by
    # length, 54 and 65 with budgets of 16 and 32 mean examples.
    tokens = None if lengths is None else _as_columns(lengths)
    texts_of = None if distinct is None else _text_numbers(distinct)

    def sampler(dataset: Any, batch_size: int = 16, seed: int = 0, **_: Any) -> EpochBatches:
        n_examples = len(dataset)
        for name, rows in (("lengths", tokens), ("distinct", texts_of)):
            if rows is not None and len(rows) != n_examples:
                raise InputError(f"train: {name} must have one row per example, {n_examples}; got {len(rows)}.")

        def make(rng: np.random.Generator) -> list[Rows]:
            order = rng.permutation(n_examples)
            if tokens is not None:
                buckets = _cut(order, _BUCKET * batch_size)
                order = np.concatenate([order[:0], *(_longest_first(bucket, tokens) for bucket in buckets)])
            batches = _cut(order, batch_size) if texts_of is None else _without_shared(order, batch_size, texts_of)
            batches = _split_to_multiple(batches, n_processes)
            # shuffled in groups, because the processes take the batches of a group in one step
            groups = rng.permutation(len(batches) // n_processes)
            return [batches[group * n_processes + rank] for group in groups for rank in range(n_processes)]

        return EpochBatches(make, seed)

    return sampler


def _as_columns(lengths: ArrayLike) -> NDArray[np.int64]:
    tokens = np.asarray(lengths, dtype=np.int64)
    return tokens if tokens.ndim == 2 else tokens[:, None]


def _text_numbers(columns: Sequence[Sequence[str]]) -> list[frozenset[int]]:
    number: dict[str, int] = {}
    return [frozenset(number.setdefault(text, len(number)) for text in row) for row in zip(*columns, strict=True)]


def _cut(order: Rows, size: int) -> list[Rows]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def _longest_first(rows: Rows, tokens: NDArray[np.int64]) -> Rows:
    """Sort rows by the tokens of their texts; equal ones keep their order."""
    by_total = np.argsort(tokens.sum(axis=0), kind="stable")
    return rows[np.lexsort(-tokens[np.ix_(rows, by_total)].T)]


def _without_shared(order: Rows, size: int, texts_of: Sequence[frozenset[int]]) -> list[Rows]:
    """Cut rows into batches of one size in which no text is in two rows."""
    batches: list[list[int]] = []
    texts_in: list[set[int]] = []  # texts of each batch
    with_room: list[int] = []  # batches that are not full
    n_batches = -(-len(order) // size)
    for row in order.tolist():
        place = next((b for b in with_room[:_LOOK] if texts_in[b].isdisjoint(texts_of[row])), None)
        if place is None and len(batches) < n_batches:
            place = len(batches)
            batches.append([])
            texts_in.append(set())
            with_room.append(place)
        if place is None:
            place = with_room[0]
            row = _exchange(row, batches, place, texts_of)
            for b in with_room:
                texts_in[b] = {text for other in batches[b] for text in texts_of[other]}
        batches[place].append(row)
        texts_in[place] |= texts_of[row]
        if len(batches[place]) == size:
            with_room.remove(place)
    return [np.array(batch, np.int64) for batch in batches]


def _exchange(row: int, batches: list[list[int]], place: int, texts_of: Sequence[frozenset[int]]) -> int:
    """Put a row into a batch where it shares no text; returns the row that leaves it for the batch at `place`."""
    texts_here = {text for other in batches[place] for text in texts_of[other]}
    for batch in reversed(batches[-_LOOK:]):
        sharing = [other for other in batch if not texts_of[other].isdisjoint(texts_of[row])]
        if batch is batches[place] or len(sharing) > 1:
            continue
        for position, other in enumerate(batch):
            if sharing in ([], [other]) and texts_of[other].isdisjoint(texts_here):
                batch[position] = row
                return other
    return row


def _split_to_multiple(batches: list[Rows], n_processes: int) -> list[Rows]:
    """Halve the largest batches until all processes have the same number."""
    while len(batches) % n_processes:
        largest = max(range(len(batches)), key=lambda b: len(batches[b]))
        if len(batches[largest]) < 2:
            raise InputError(f"train: {n_processes} processes need as many examples; got {len(batches)}.")
        batches[largest : largest + 1] = np.array_split(batches[largest], 2)
    return batches


def example_lengths(
    tokenize: Callable[[list[str]], Mapping[str, Any]], columns: Sequence[Sequence[str]]
) -> NDArray[np.int64]:
    """Tokens of each text of each example, of shape (n_examples, n_columns)."""
    texts = list(dict.fromkeys(text for column in columns for text in column))
    counts: dict[str, int] = {}
    for start in range(0, len(texts), _CHUNK):
        chunk = texts[start : start + _CHUNK]
        features = tokenize(chunk)
        if "attention_mask" in features:
            lengths = np.asarray(features["attention_mask"]).sum(axis=1)
        else:  # of a table of token vectors: all ids in one row, and where each text starts
            lengths = np.diff(np.asarray(features["offsets"]), append=len(features["input_ids"]))
        counts.update(zip(chunk, lengths.tolist(), strict=True))
    return np.array([[counts[text] for text in row] for row in zip(*columns, strict=True)], np.int64).reshape(
        -1, len(columns)
    )
