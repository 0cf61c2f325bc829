"""Texts to token ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from isosent.errors import FileFormatError

_WORDPUNCT = re.compile(r"\w+|[^\w\s]+")


@dataclass(frozen=True, slots=True, eq=False)
class TokenIds:
    """Token ids of several texts, one behind the other.

    Parameters
    ----------
    ids : ndarray of shape (n_tokens,), int32
        Ids of all texts.
    offsets : ndarray of shape (n_texts + 1,), int64
        Text i has ``ids[offsets[i]:offsets[i + 1]]``.
    n_cut : int, default 0
        Texts that lost tokens because they were longer than the tokenizer's maximum.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    n_cut: int = 0

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]], n_cut: int = 0) -> TokenIds:
        """Join lists of ids.

        Parameters
        ----------
        lists : sequence of sequences of int
            Ids of each text.
        n_cut : int, default 0
            Texts among them that were cut.

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
        offsets = np.zeros(len(lists) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in lists], out=offsets[1:])
        ids = np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=offsets[-1])
        return cls(ids, offsets, n_cut)

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
            Their tokens.
        """
        lengths = self.lengths[rows]
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return TokenIds(self.ids[np.repeat(self.offsets[rows], lengths) + within], offsets)

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


def wordpunct(text: str) -> list[str]:
    r"""Split into runs of word characters and runs of punctuation, NLTK's ``wordpunct`` (``\w+|[^\w\s]+``).

    Parameters
    ----------
    text : str
        A text.

    Returns
    -------
    list of str
        Its words.

    Examples
    --------
    >>> wordpunct("Don't stop -- it's 3.5 km!")
    ['Don', "'", 't', 'stop', '--', 'it', "'", 's', '3', '.', '5', 'km', '!']
    """
    return _WORDPUNCT.findall(text)


SPLITTERS: dict[str, Callable[[str], list[str]]] = {"wordpunct": wordpunct, "whitespace": str.split}


class Tokenizing(Protocol):
    """What turns texts into ids: the contract of the tokenizers below."""

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the texts."""
        ...

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        ...


class WordTokenizer:
    """Words looked up in a vocabulary; an unknown word is skipped.

    Parameters
    ----------
    index : mapping of str to int
        Id of each word, 0 ... vocab_size - 1 in order.
    split : {"wordpunct", "whitespace"}
        How a text is split into words.
    lowercase : bool
        Whether the text is lower-cased before it is split.
    """

    def __init__(self, index: Mapping[str, int], *, split: str, lowercase: bool) -> None:
        self.index = index
        self.split = split
        self.lowercase = lowercase

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the known words of the texts."""
        index, split = self.index, SPLITTERS[self.split]
        if self.lowercase:
            texts = [text.lower() for text in texts]
        return TokenIds.from_lists([[index[word] for word in split(text) if word in index] for text in texts])

    def vocabulary(self) -> Iterable[str]:
        """Yield the words in the order of their ids."""
        return self.index.keys()


class SubwordTokenizer:
    """A ``tokenizer.json``, without special tokens; the unknown token is skipped.

    Parameters
    ----------
    path : Path
        The file.
    max_length : int or None, default None
        Tokens a text is cut at; None for no limit.
    cut_characters : bool, default False
        Whether a text is also cut at `max_length` times the median length of a token, as Model2Vec does first.
    skip_unknown : bool, default True
        Whether the unknown token is skipped.

    Raises
    ------
    FileFormatError
        If the file is not a tokenizer.
    """

    def __init__(
        self, path: Path, *, max_length: int | None = None, cut_characters: bool = False, skip_unknown: bool = True
    ) -> None:
        try:
            self.tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for every malformed file
            raise FileFormatError(f"{path} must be a tokenizer.json; got: {error}.") from None
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.max_length = max_length
        self.max_characters = None
        if cut_characters and max_length is not None:
            self.max_characters = max_length * int(np.median([len(token) for token in self.vocabulary()]))
        model = json.loads(self.tokenizer.to_str())["model"]
        unknown = model.get("unk_token")
        unknown_id = model.get("unk_id") if unknown is None else self.tokenizer.token_to_id(unknown)
        self.unknown_id = unknown_id if skip_unknown else None

    @property
    def largest_id(self) -> int:
        """Largest id that a text can get; ids need not be without gaps."""
        return max(self.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the texts."""
        shortened = [text[: self.max_characters] for text in texts]
        encodings = self.tokenizer.encode_batch_fast(shortened, add_special_tokens=False)
        whole = [encoding.ids for encoding in encodings]
        lists = [ids[: self.max_length] for ids in whole]
        n_cut = sum(
            len(ids) < len(whole_ids) or len(short) < len(text)
            for ids, whole_ids, short, text in zip(lists, whole, shortened, texts, strict=True)
        )
        if self.unknown_id is not None:
            lists = [[i for i in ids if i != self.unknown_id] for ids in lists]
        return TokenIds.from_lists(lists, n_cut)

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        vocabulary = self.tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)
