"""Texts longer than an encoder's maximum, as overlapping windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent.text.tokens import TokenIds, offsets_of


@dataclass(frozen=True, slots=True)
class WindowRule:
    """How a long text is cut.

    Parameters
    ----------
    max_length : int
        Tokens of a window, the leading and closing ones included.
    overlap : int
        Tokens that a window shares with the one before.
    n_leading, n_closing : int
        Special tokens, and those of a prompt, that stand at the beginning and the end of every window.
    """

    max_length: int
    overlap: int
    n_leading: int
    n_closing: int

    @property
    def n_own(self) -> int:
        """Tokens of the text itself in a window."""
        return self.max_length - self.n_leading - self.n_closing


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Windows of several texts.

    Parameters
    ----------
    tokens : TokenIds
        The windows, those of a text side by side.
    starts : ndarray of shape (n_texts,), intp
        First window of each text; each has one at least.
    weights : ndarray of shape (n_windows,), float32
        Tokens that no window before it has, so that every token counts once.
    """

    tokens: TokenIds
    starts: NDArray[np.intp]
    weights: NDArray[np.float32]

    def joined(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Give each text the weighted mean of the vectors of its windows.

        Parameters
        ----------
        vectors : ndarray of shape (n_windows, dim), float32
            Pooled vectors of the windows.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            One a text; that of a text with one window is left as it is.
        """
        if len(self.starts) == len(vectors):
            return vectors
        sums = np.add.reduceat(vectors * self.weights[:, None], self.starts)
        joined = (sums / np.add.reduceat(self.weights, self.starts)[:, None]).astype(np.float32, copy=False)
        single = np.diff(np.append(self.starts, len(vectors))) == 1
        joined[single] = vectors[self.starts[single]]
        return joined


def windows_of(tokens: TokenIds, rule: WindowRule) -> Windows:
    """Cut long texts into windows.

    Parameters
    ----------
    tokens : TokenIds
        Whole texts, special tokens included.
    rule : WindowRule
        How to cut.

    Returns
    -------
    Windows
        Texts within the maximum stay whole.

    Examples
    --------
    >>> tokens = TokenIds.from_lists([[1, 10, 11, 12, 13, 14, 2], [1, 10, 2]])
    >>> windows = windows_of(tokens, WindowRule(max_length=5, overlap=1, n_leading=1, n_closing=1))
    >>> [windows.tokens.take(np.array([row])).ids.tolist() for row in range(3)], windows.weights.tolist()
    ([[1, 10, 11, 12, 2], [1, 12, 13, 14, 2], [1, 10, 2]], [3.0, 2.0, 1.0])
    """
    lists: list[NDArray[np.int32]] = []
    starts, weights = [], []
    for start, stop in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True):
        ids = tokens.ids[start:stop]
        starts.append(len(lists))
        if len(ids) <= rule.max_length:
            lists.append(ids)
            weights.append(max(1, len(ids) - rule.n_leading - rule.n_closing))
            continue
        closing = len(ids) - rule.n_closing
        leading, own, end = ids[: rule.n_leading], ids[rule.n_leading : closing], ids[closing:]
        done = 0
        while done < len(own):
            first = max(0, done - rule.overlap)
            window = own[first : first + rule.n_own]
            lists.append(np.concatenate([leading, window, end]))
            weights.append(first + len(window) - done)
            done = first + len(window)
    ids, offsets = np.concatenate([*lists, tokens.ids[:0]]), offsets_of([len(window) for window in lists])
    return Windows(
        TokenIds(ids, offsets),
        np.array(starts, dtype=np.intp),
        np.array(weights, dtype=np.float32),
    )
