"""Texts to ids in one pass over their bytes, on all processors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.workers import over_chunks
from isosent.text.tokens import TokenIds, offsets_of
from isosent.text.vocabulary import Number, Vocabulary, same_spans
from isosent.text.word_table import PUNCTUATION, SPACE, TEXT_END, WORD, scan

_N_ASCII, _N_UNICODE = 0x80, 0x110000
_NOTHING = Vocabulary.from_words([])


def scan_texts(
    texts: Sequence[str],
    vocabulary: Vocabulary,
    *,
    split: str,
    keeps_unknown: bool,
    drops_punctuation: bool = False,
    dropped: Vocabulary = _NOTHING,
) -> TokenIds:
    r"""Cut texts into tokens and look these up.

    Parameters
    ----------
    texts : sequence of str
        The texts, lower-cased if they are to be.
    vocabulary : Vocabulary
        The known words.
    split : {"wordpunct", "whitespace", "blank"}
        Where tokens end: as with the regular expression ``\w+|[^\w\s]+``, at white space (``str.split``), or at blanks
        and line feeds alone.
    keeps_unknown : bool
        Whether unknown words are left out or get ids from vocab_size on, in the order in which they appear.
    drops_punctuation : bool, default False
        Whether tokens without any word character are left out.
    dropped : Vocabulary, optional
        Further tokens to leave out.

    Returns
    -------
    TokenIds
        The same for any number of threads.
    """
    data = _joined(texts)
    text = np.frombuffer(data, dtype=np.uint8)
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    offsets[1:] = np.flatnonzero(text == TEXT_END) + 1
    classes = _classes(_N_ASCII if data.isascii() else _N_UNICODE, spaces=" \n" if split == "blank" else r"\s")
    rules = (classes, split == "wordpunct", drops_punctuation)
    ids, lengths = np.empty(len(text), dtype=np.int32), np.empty(len(texts), dtype=np.int64)
    unknown = np.empty((2, len(text) if keeps_unknown else 0), dtype=np.int64)
    counts: dict[int, tuple[int, int]] = {}

    def run(first: int, last: int) -> None:
        start, stop = int(offsets[first]), int(offsets[last])
        room = (unknown[0, start:stop], unknown[1, start:stop])
        found = (ids[start:stop], lengths[first:last])
        counts[start] = scan(text, (start, stop), rules, vocabulary.arrays, dropped.arrays, found, room)

    over_chunks(run, offsets)
    n_ids, n_unknown = ({start: counts[start][i] for start in sorted(counts)} for i in range(2))
    tokens = _pieces(ids, n_ids)
    if not keeps_unknown:
        n_skipped = sum(n_unknown.values())
        return TokenIds(tokens, offsets_of(lengths), n_unknown=n_skipped, n_tokens=len(tokens) + n_skipped)
    starts, stops = _pieces(unknown[0], n_unknown), _pieces(unknown[1], n_unknown)
    words = number_unknown(tokens, len(vocabulary), text, starts, stops)
    return TokenIds(tokens, offsets_of(lengths), n_unknown=len(starts), unknown=words)


def number_unknown(
    ids: NDArray[np.int32],
    vocab_size: int,
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
) -> tuple[str, ...]:
    """Give unknown words ids of their own.

    Parameters
    ----------
    ids : ndarray of shape (n_tokens,), int32
        Ids, -1 for an unknown word; these are replaced by vocab_size, vocab_size + 1, ... as the words first appear.
    vocab_size : int
        Words that are known.
    text : ndarray of shape (n_bytes,), uint8
        UTF-8.
    starts, stops : ndarray of shape (n_unknown,), int64
        Where the unknown words lie in `text`.

    Returns
    -------
    tuple of str
        The distinct unknown words.
    """
    firsts = same_spans(text, starts, stops)
    is_first = firsts == np.arange(len(firsts))
    numbers = np.cumsum(is_first, dtype=np.int32) - 1
    ids[ids < 0] = vocab_size + numbers[firsts]
    spans = zip(starts[is_first].tolist(), stops[is_first].tolist(), strict=True)
    return tuple(text[start:stop].tobytes().decode() for start, stop in spans)


def _joined(texts: Sequence[str]) -> bytes:
    """UTF-8 of all texts, a line feed behind each; those inside, white space like any other, become blanks."""
    joined = "\n".join([*texts, ""])
    if joined.count("\n") > len(texts):
        joined = "\n".join([*(text.replace("\n", " ") for text in texts), ""])
    return joined.encode()


def _pieces(array: NDArray[Number], counts: Mapping[int, int]) -> NDArray[Number]:
    """What each thread wrote, from where its texts begin on, moved together."""
    return np.concatenate([array[:0], *(array[start : start + count] for start, count in counts.items())])


@cache
def _classes(n_code_points: int, *, spaces: str) -> NDArray[np.uint8]:
    r"""Class of each code point by Python's own ``\w`` and what counts as a space."""
    characters = np.arange(n_code_points, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    classes = np.full(n_code_points, PUNCTUATION)
    for pattern, kind in ((r"\w+", WORD), (f"[{spaces}]+", SPACE)):
        for run in re.finditer(pattern, characters):
            classes[run.start() : run.end()] = kind
    return classes
