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
    """Token ids of several texts, one behind the other.

    Parameters
    ----------
    ids : ndarray of shape (n_tokens,), int32
        Ids of all texts.
    offsets : ndarray of shape (n_texts + 1,), int64
        Text i has ``ids[offsets[i]:offsets[i + 1]]``.
    cut : ndarray of shape (n_cut,), intp, optional
        Texts that lost tokens because they were longer than the tokenizer's maximum; none by default.
    n_unknown : int, default 0
        Tokens that the vocabulary lacks.
    n_tokens : int, default -1
        All tokens, the unknown ones that were left out included; -1 stands for as many as there are ids.
    unknown : tuple of str, default ()
        Distinct unknown words that were kept: they have the ids vocab_size, vocab_size + 1, ...
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    cut: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    n_unknown: int = 0
    n_tokens: int = -1
    unknown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.n_tokens < 0:
            object.__setattr__(self, "n_tokens", len(self.ids))

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]], cut: Sequence[int] = ()) -> TokenIds:
        """Join lists of ids.

        Parameters
        ----------
        lists : sequence of sequences of int
            Ids of each text.
        cut : sequence of int, default none
            Which of them were cut.

        Returns
        -------
        TokenIds
            The same ids.

        Examples
        --------
        >>> tokens = TokenIds.from_lists([[5, 6], [], [7]])
        >>> tokens.ids, tokens.offsets, tokens.lengths
        (array([5, 6, 7], dtype=int32), array([0, 2, 2, 3]), array([2, 0, 1]))
        """
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
        """Select texts.

        Parameters
        ----------
        rows : ndarray of shape (n_rows,), intp
            Texts in the order wanted.

        Returns
        -------
        TokenIds
            Their tokens, and all of `unknown`. What was cut or left out is not known text by text: it counts as none.
        """
        lengths = self.lengths[rows]
        offsets = offsets_of(lengths)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return TokenIds(self.ids[np.repeat(self.offsets[rows], lengths) + within], offsets, unknown=self.unknown)

    def padded(self, pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lay the texts out as a rectangle, padded on the right.

        Parameters
        ----------
        pad_id : int
            Id that stands for padding.

        Returns
        -------
        input_ids : ndarray of shape (n_texts, seq_len), int64
            The ids.
        attention_mask : ndarray of shape (n_texts, seq_len), int64
            1 for a token, 0 for padding.

        Examples
        --------
        >>> input_ids, attention_mask = TokenIds.from_lists([[5, 6], [7]]).padded(0)
        >>> input_ids.tolist(), attention_mask.tolist()
        ([[5, 6], [7, 0]], [[1, 1], [1, 0]])
        """
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
    """Where texts begin that lie one behind the other.

    Parameters
    ----------
    lengths : ndarray or sequence of shape (n_texts,), int
        Length of each.

    Returns
    -------
    ndarray of shape (n_texts + 1,), int64
        Beginnings, and the end.

    Examples
    --------
    >>> offsets_of([2, 0, 1])
    array([0, 2, 2, 3])
    """
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def pieces_of(text: str) -> Iterator[str]:
    """Cut a long text at blanks into pieces of a million characters, which tokenizers take with 100 MB of memory.

    Parameters
    ----------
    text : str
        Any text.

    Yields
    ------
    str
        The text itself, or pieces of it without the blanks between them.
    """
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
    """Leave tokens out.

    Parameters
    ----------
    kept : ndarray of shape (n_tokens,), bool
        Which stay.
    ids : ndarray of shape (n_tokens,), int32
        Ids of all texts.
    offsets : ndarray of shape (n_texts + 1,), int64
        Where each text begins, and the end.

    Returns
    -------
    ids, offsets : ndarray
        Of the tokens that stay.
    """
    return ids[kept], offsets_of(kept)[offsets]
