"""Texts of like length together: batches under a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent.text.tokens import TokenIds


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Texts laid out as a rectangle, padded on the right.

    Parameters
    ----------
    rows : ndarray of shape (n_texts,), intp
        Which texts they are.
    input_ids, attention_mask, pooling_mask : ndarray of shape (n_texts, seq_len), int64
        Tokens; 1 where there is one, and where it is pooled.
    """

    rows: NDArray[np.intp]
    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    pooling_mask: NDArray[np.int64]

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
    """Cut texts into batches, the longest first.

    Parameters
    ----------
    tokens : TokenIds
        Texts that all have tokens.
    layout : Layout
        How batches look.

    Yields
    ------
    Batch
        Each text in one of them.
    """
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
    """How batches look.

    Parameters
    ----------
    budget : int
        Tokens of a batch at most, padding counted; a longer text has a batch of its own.
    pad_id : int
        Id that stands for padding.
    equal_lengths : bool, default False
        Whether only texts of the same length share a batch, for networks that see their padding.
    n_unpooled : int, default 0
        Leading tokens of each text that are not pooled.
    """

    budget: int
    pad_id: int
    equal_lengths: bool = False
    n_unpooled: int = 0
