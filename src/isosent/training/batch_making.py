"""How rows in some order become batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError

Rows = NDArray[np.int64]
_LOOK = 100  # batches looked at for a row that fits nowhere


def widest_first(rows: Rows, tokens: NDArray[np.int64]) -> Rows:
    """Sort rows by the tokens of their texts, the longest first; equal ones keep their order.

    Parameters
    ----------
    rows : ndarray of shape (n_rows,), int64
        The rows.
    tokens : ndarray of shape (n_examples, n_columns), int64
        Tokens of each text.

    Returns
    -------
    ndarray of shape (n_rows,), int64
        The same rows, by the column of most tokens, and by the next one where that is equal. In a batch of them one
        column needs next to no padding and the others little; by the sum of both, which says less of either, it is
        about ten times as much with pairs of natural language inference.
    """
    by_total = np.argsort(tokens.sum(axis=0), kind="stable")
    return rows[np.lexsort(-tokens[np.ix_(rows, by_total)].T)]


def in_buckets(order: Rows, tokens: NDArray[np.int64], bucket: int) -> Rows:
    """Sort the rows within each bucket by length, so that neighbours are alike and yet differ from epoch to epoch.

    Parameters
    ----------
    order : ndarray of shape (n_rows,), int64
        Rows in random order.
    tokens : ndarray of shape (n_examples, n_columns), int64
        Tokens of each text.
    bucket : int
        Rows a bucket.

    Returns
    -------
    ndarray of shape (n_rows,), int64
        The same rows.
    """
    return np.concatenate([order[:0], *(widest_first(rows, tokens) for rows in by_size(order, bucket))])


def by_size(order: Rows, size: int) -> list[Rows]:
    """Cut rows into batches of one size; the last one may be smaller.

    Parameters
    ----------
    order : ndarray of shape (n_rows,), int64
        The rows.
    size : int
        Rows a batch.

    Returns
    -------
    list of ndarray
        The batches.
    """
    return [order[start : start + size] for start in range(0, len(order), size)]


def by_budget(order: Rows, tokens: NDArray[np.int64], budget: int) -> list[Rows]:
    """Cut rows into batches whose padded tokens stay within a budget.

    Parameters
    ----------
    order : ndarray of shape (n_rows,), int64
        The rows.
    tokens : ndarray of shape (n_examples, n_columns), int64
        Tokens of each text.
    budget : int
        Most tokens a batch, at least those of the longest row.

    Returns
    -------
    list of ndarray
        The batches.
    """
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
    """Cut rows into batches of one size in which no text is in two rows.

    Parameters
    ----------
    order : ndarray of shape (n_rows,), int64
        The rows.
    size : int
        Rows a batch.
    texts_of : sequence of frozenset of int
        Numbers of the texts of each example.

    Returns
    -------
    list of ndarray
        As many batches as without the rule. A row goes to the first batch with room that has none of its texts; at
        the end it may change places with a row of another batch. Where that fails too, the batch holds a text twice.
    """
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
    """Halve the largest batches until all processes have as many.

    Parameters
    ----------
    batches : list of ndarray
        The batches.
    n_processes : int
        What their number is made a multiple of.

    Returns
    -------
    list of ndarray
        The same rows in the same order.

    Raises
    ------
    InputError
        If there are fewer rows than processes.
    """
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
    """Shuffle batches, those together that the processes take at one step.

    Parameters
    ----------
    batches : list of ndarray
        The batches, neighbours alike in length; a multiple of `n_processes`.
    n_processes : int
        Batches a step.
    rng : numpy.random.Generator
        Draws the order.

    Returns
    -------
    list of ndarray
        The same batches.
    """
    groups = rng.permutation(len(batches) // n_processes)
    return [batches[group * n_processes + turn] for group in groups for turn in range(n_processes)]
