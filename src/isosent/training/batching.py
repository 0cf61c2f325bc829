"""Batches of training examples: at random, of like length, or by a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.errors import InputError

Rows = NDArray[np.int64]
_LOOK = 100  # batches looked at for a row that fits nowhere


def widest_first(rows: Rows, tokens: NDArray[np.int64]) -> Rows:
    """Sort rows by the tokens of their texts, the longest first; equal ones keep their order."""
    by_total = np.argsort(tokens.sum(axis=0), kind="stable")
    return rows[np.lexsort(-tokens[np.ix_(rows, by_total)].T)]


def in_buckets(order: Rows, tokens: NDArray[np.int64], bucket: int) -> Rows:
    """Sort the rows within each bucket by length, so that neighbours are alike and yet differ from epoch to epoch."""
    return np.concatenate([order[:0], *(widest_first(rows, tokens) for rows in by_size(order, bucket))])


def by_size(order: Rows, size: int) -> list[Rows]:
    """Cut rows into batches of one size; the last one may be smaller."""
    return [order[start : start + size] for start in range(0, len(order), size)]


def by_budget(order: Rows, tokens: NDArray[np.int64], budget: int) -> list[Rows]:
    """Cut rows into batches whose padded tokens stay within a budget."""
    starts: list[int] = []
    widths = np.zeros(tokens.shape[1], np.int64)
    for position, row in enumerate(order):
        wider = np.maximum(widths, tokens[row])
        if not starts or (position - starts[-1] + 1) * wider.sum() > budget:
            starts.append(position)
            wider = tokens[row]
        widths = wider
    return np.split(order, starts[1:]) if starts else []


def without_shared_texts(order: Rows, size: int, texts_of: Sequence[frozenset[int]]) -> list[Rows]:
    """Cut rows into batches of one size in which no text is in two rows."""
    batches: list[list[int]] = []
    taken: list[set[int]] = []
    with_room: list[int] = []
    most = -(-len(order) // size)
    for row in order.tolist():
        place = next((b for b in with_room[:_LOOK] if taken[b].isdisjoint(texts_of[row])), None)
        if place is None and len(batches) < most:
            place = len(batches)
            batches.append([])
            taken.append(set())
            with_room.append(place)
        if place is None:
            place = with_room[0]
            row = _exchanged(row, batches, place, texts_of)
            for b in with_room:
                taken[b] = _texts(batches[b], texts_of)
        batches[place].append(row)
        taken[place] |= texts_of[row]
        if len(batches[place]) == size:
            with_room.remove(place)
    return [np.array(batch, np.int64) for batch in batches]


def _exchanged(row: int, batches: list[list[int]], place: int, texts_of: Sequence[frozenset[int]]) -> int:
    """Put the row in a batch where it shares no text, and return the row that leaves it for the batch at `place`."""
    here = _texts(batches[place], texts_of)
    for batch in reversed(batches[-_LOOK:]):
        sharing = [other for other in batch if not texts_of[other].isdisjoint(texts_of[row])]
        if batch is batches[place] or len(sharing) > 1:
            continue
        for position, other in enumerate(batch):
            if sharing in ([], [other]) and texts_of[other].isdisjoint(here):
                batch[position] = row
                return other
    return row


def _texts(batch: list[int], texts_of: Sequence[frozenset[int]]) -> set[int]:
    return {text for row in batch for text in texts_of[row]}


def split_to_multiple(batches: list[Rows], n_processes: int) -> list[Rows]:
    """Halve the largest batches until all processes have as many."""
    batches = list(batches)
    while len(batches) % n_processes:
        largest = max(range(len(batches)), key=lambda b: len(batches[b]))
        if len(batches[largest]) < 2:
            raise InputError(
                f"train: n_processes must be at most the number of examples; got {n_processes} for {len(batches)}."
            )
        batches[largest : largest + 1] = np.array_split(batches[largest], 2)
    return batches


def in_groups(batches: list[Rows], n_processes: int, rng: np.random.Generator) -> list[Rows]:
    """Shuffle batches, those together that the processes take at one step."""
    groups = rng.permutation(len(batches) // n_processes)
    return [batches[group * n_processes + turn] for group in groups for turn in range(n_processes)]


BATCHINGS: Final = ("random", "length", "tokens")
_BUCKET = 100  # batches
_CHUNK = 1024  # texts tokenized at once


class EpochBatches:
    """The batches of an epoch, which depend on the seed and the number of the epoch alone."""

    # Has what torch's DataLoader, accelerate and the trainers ask of a batch sampler. A run that goes on in the
    # middle of an epoch takes the batches of that epoch and skips those that are done.

    batch_size = None
    drop_last = False

    def __init__(self, make: Callable[[np.random.Generator], list[Rows]], seed: int) -> None:
        self._make = make
        self._seed = seed
        self._made: tuple[int, list[list[int]]] | None = None
        self.epoch = 0

    @property
    def sampler(self) -> EpochBatches:
        """Itself."""
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
    batching: str = "random",
    *,
    lengths: ArrayLike | None = None,
    token_budget: int | None = None,
    distinct: Sequence[Sequence[str]] | None = None,
    n_processes: int = 1,
) -> Callable[..., EpochBatches]:
    """Choose how batches are made, in the form that the trainer of sentence-transformers takes."""
    # Every example is in exactly one batch of an epoch, and every epoch has as many batches.
    # random A permutation, cut every `batch_size` examples: Reimers & Gurevych 2019. length A permutation, cut into
    # buckets of 100 batches; a bucket is sorted by length before it is cut. The batches come in random order. This is
    # smart batching of the paper's section 7, in training. tokens All examples sorted by length, equal ones at
    # random; a batch takes the next one as long as examples times the longest text, summed over columns, stays within
    # the budget. The batches come in random order. Gradients are means over a batch, so that an example weighs more
    # in a small one.
    # A text in more examples than there are batches cannot be kept apart by `distinct`; it then is in some batch
    # twice.
    tokens = _checked_lengths(batching, lengths)
    budget = _checked_budget(batching, tokens, token_budget)
    _check.whole_number("train", "n_processes", n_processes, 1)
    if batching == "tokens" and distinct is not None:
        raise InputError(
            "train: batching must be random or length where the texts of a batch are told apart, as in ranking; got "
            "tokens. A budget of tokens would change the number of negatives from batch to batch."
        )

    def sampler(dataset: Any, batch_size: int = 16, seed: int = 0, **_: Any) -> EpochBatches:
        n_examples = len(dataset)
        texts_of = None if distinct is None else _text_numbers(distinct)
        for name, told in (("lengths", tokens if batching != "random" else None), ("distinct", texts_of)):
            if told is not None and len(told) != n_examples:
                raise InputError(f"train: {name} must have {n_examples} rows, one an example; got {len(told)}.")

        def make(rng: np.random.Generator) -> list[Rows]:
            order = rng.permutation(n_examples)
            if batching == "length":
                order = in_buckets(order, tokens, _BUCKET * batch_size)
            if batching == "tokens":
                batches = by_budget(widest_first(order, tokens), tokens, budget)
            elif texts_of is not None:
                batches = without_shared_texts(order, batch_size, texts_of)
            else:
                batches = by_size(order, batch_size)
            return in_groups(split_to_multiple(batches, n_processes), n_processes, rng)

        return EpochBatches(make, seed)

    return sampler


def token_lengths(tokenize: Callable[[list[str]], Mapping[str, Any]], texts: Sequence[str]) -> NDArray[np.int64]:
    """Count the tokens that the model is given of each text."""
    row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    known = list(row_of)
    parts = [_lengths_of(tokenize(known[start : start + _CHUNK])) for start in range(0, len(known), _CHUNK)]
    counts = np.concatenate([np.zeros(0, np.int64), *parts])
    return counts[[row_of[text] for text in texts]] if len(texts) else counts


def example_lengths(
    tokenize: Callable[[list[str]], Mapping[str, Any]], columns: Sequence[Sequence[str]]
) -> NDArray[np.int64]:
    """Count the tokens of examples of several texts."""
    return np.stack([token_lengths(tokenize, column) for column in columns], axis=1)


def _lengths_of(features: Mapping[str, Any]) -> NDArray[np.int64]:
    if "attention_mask" in features:
        counts: NDArray[np.int64] = np.asarray(features["attention_mask"]).sum(axis=1)
    else:
        counts = np.diff(np.asarray(features["offsets"]), append=len(features["input_ids"]))
    return counts.astype(np.int64, copy=False)


def check_token_budget(batching: str, token_budget: int | None) -> None:
    """Refuse a budget without a use, and a use without a budget."""
    if (batching == "tokens") != (token_budget is not None):
        needs = "be given for" if batching == "tokens" else "come with"
        raise InputError(f"train: token_budget must {needs} batching=tokens; got {token_budget} and {batching}.")


def _checked_lengths(batching: str, lengths: ArrayLike | None) -> NDArray[np.int64]:
    _check.one_of("train", "batching", batching, BATCHINGS)
    if batching == "random":
        return np.zeros((0, 1), np.int64)
    if lengths is None:
        raise InputError(f"train: lengths must be given for batching={batching}; got None.")
    tokens = np.asarray(lengths, dtype=np.int64)
    return tokens if tokens.ndim == 2 else tokens[:, None]


def _checked_budget(batching: str, tokens: NDArray[np.int64], token_budget: int | None) -> int:
    check_token_budget(batching, token_budget)
    if token_budget is None:
        return 0
    _check.whole_number("train", "token_budget", token_budget, 1)
    longest = int(tokens.sum(axis=1).max(initial=1))
    if token_budget < longest:
        raise InputError(
            f"train: token_budget must be at least {longest}, the tokens of the longest example; got {token_budget}. "
            "Raise it, or cut texts earlier."
        )
    return token_budget


def _text_numbers(columns: Sequence[Sequence[str]]) -> list[frozenset[int]]:
    number: dict[str, int] = {}
    return [frozenset(number.setdefault(text, len(number)) for text in row) for row in zip(*columns, strict=True)]
