"""Texts to token ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

SPLITTERS = ("wordpunct", "whitespace")
UNKNOWN_RULES = ("skip", "keep")
LONGEST_PIECE = 1 << 20  # characters


@dataclass(frozen=True, slots=True, eq=False)
class TokenIds:
    """Token ids of several texts, one behind the other."""

    ids: NDArray[np.int32]  # ids of all texts
    offsets: NDArray[np.int64]  # text i has ``ids[offsets[i]:offsets[i + 1]]``
    # Texts that lost tokens because they were longer than the tokenizer's maximum; none by default
    cut: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    n_unknown: int = 0  # tokens that the vocabulary lacks
    # All tokens, the unknown ones that were left out included; -1 stands for as many as there are ids
    n_tokens: int = -1
    # Distinct unknown words that were kept: they have the ids vocab_size, vocab_size + 1,
    unknown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.n_tokens < 0:
            object.__setattr__(self, "n_tokens", len(self.ids))

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]], cut: Sequence[int] = ()) -> TokenIds:
        """Join lists of ids."""
        offsets = offsets_of([len(ids) for ids in lists])
        ids = np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=offsets[-1])
        return cls(ids, offsets, np.array(cut, dtype=np.intp))

    @property
    def n_cut(self) -> int:
        """Texts that were cut."""
        return len(self.cut)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each text, shape (n_texts,)."""
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.intp]) -> TokenIds:
        """Select texts."""
        lengths = self.lengths[rows]
        offsets = offsets_of(lengths)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return TokenIds(self.ids[np.repeat(self.offsets[rows], lengths) + within], offsets, unknown=self.unknown)

    def padded(self, pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lay the texts out as a rectangle, padded on the right."""
        lengths = self.lengths
        attention_mask = np.arange(lengths.max(initial=0))[None, :] < lengths[:, None]
        input_ids = np.full(attention_mask.shape, pad_id, dtype=np.int64)
        input_ids[attention_mask] = self.ids
        return input_ids, attention_mask.astype(np.int64)


class Tokenizing(Protocol):
    """What turns texts into ids: the contract of every tokenizer."""

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the texts."""
        ...

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        ...


def offsets_of(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    """Where texts begin that lie one behind the other."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def pieces_of(text: str) -> Iterator[str]:
    """Cut a long text at blanks into pieces of a million characters, which tokenizers take with 100 MB of memory."""
    start = 0
    while len(text) - start > LONGEST_PIECE:
        at = text.rfind(" ", start + 1, start + LONGEST_PIECE + 1)
        stop = start + LONGEST_PIECE if at < 0 else at
        yield text[start:stop]
        start = stop + (at >= 0)
    yield text[start:] if start else text


def keep_where(
    kept: NDArray[np.bool_], ids: NDArray[np.int32], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Leave tokens out."""
    return ids[kept], offsets_of(kept)[offsets]
