"""Tokens of a ``tokenizer.json``: rows of an embedding matrix, or words looked up in a vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from isosent import _check
from isosent.errors import FileFormatError
from isosent.files import bounds
from isosent.files.text_source import text_blocks
from isosent.text.piece_memory import PieceMemory, odd_patterns
from isosent.text.token_filter import TokenFilter
from isosent.text.tokens import LONGEST_PIECE, UNKNOWN_RULES, TokenIds, keep_where, offsets_of, pieces_of
from isosent.text.vocabulary import Vocabulary

_MOST_TEXTS = 1 << 16


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

    Notes
    -----
    A text of more than a million characters is tokenized in pieces, cut at blanks. Where tokens provably never cross a
    blank, pieces of texts that were seen before are not tokenized again: see `PieceMemory`.
    """

    def __init__(
        self, path: Path, *, max_length: int | None = None, cut_characters: bool = False, skip_unknown: bool = True
    ) -> None:
        try:
            self.tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for every malformed file
            raise FileFormatError(f"{path} must be a tokenizer.json; got: {error}.") from None
        if self.largest_id > bounds.LARGEST_TOKEN_ID:
            raise FileFormatError(f"{path}: a token has the id {self.largest_id}; at most {bounds.LARGEST_TOKEN_ID}.")
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.max_length = max_length
        self.max_characters = None
        if cut_characters and max_length is not None:
            self.max_characters = max_length * int(np.median([len(token) for token in self.vocabulary()]))
        state = json.loads(self.tokenizer.to_str())
        unknown = state["model"].get("unk_token")
        self._unknown_token = state["model"].get("unk_id") if unknown is None else self.tokenizer.token_to_id(unknown)
        self.unknown_id = self._unknown_token if skip_unknown else None
        odd = odd_patterns(state)
        self._tokenize = self._whole_texts if odd is None else PieceMemory(self._whole_texts, odd)

    @property
    def largest_id(self) -> int:
        """Largest id that a text can get; ids need not be without gaps."""
        return max(self.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the texts."""
        is_cut = np.zeros(len(texts), dtype=np.bool_)
        if self.max_characters is not None:
            is_cut[:] = [len(text) > self.max_characters for text in texts]
            texts = [text[: self.max_characters] for text in texts]
        tokens = self._tokenize(texts)
        ids, offsets = tokens.ids, tokens.offsets
        if self.max_length is not None:
            lengths = np.diff(offsets)
            is_cut |= lengths > self.max_length
            within = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)
            ids, offsets = keep_where(within < self.max_length, ids, offsets)
        n_tokens, is_known = len(ids), ids != (-1 if self._unknown_token is None else self._unknown_token)
        n_unknown = n_tokens - int(np.count_nonzero(is_known))
        if self.unknown_id is not None and n_unknown:
            ids, offsets = keep_where(is_known, ids, offsets)
        return TokenIds(ids, offsets, np.flatnonzero(is_cut), n_unknown, n_tokens)

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        vocabulary = self.tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def _whole_texts(self, texts: Sequence[str]) -> TokenIds:
        pieces = [list(pieces_of(text)) for text in texts]
        parts = []  # a character takes 70 bytes while it is tokenized: some pieces at a time
        for block in text_blocks(chain.from_iterable(pieces), _MOST_TEXTS, n_characters=LONGEST_PIECE, at_once=1):
            encodings = self.tokenizer.encode_batch_fast(block, add_special_tokens=False)
            parts.append(TokenIds.from_lists([encoding.ids for encoding in encodings]))
        lengths = np.concatenate([np.empty(0, dtype=np.int64), *(part.lengths for part in parts)])
        ids = np.concatenate([np.empty(0, dtype=np.int32), *(part.ids for part in parts)])
        return TokenIds(ids, offsets_of(lengths)[offsets_of(list(map(len, pieces)))])


class TokenLookup:
    """Tokens of a ``tokenizer.json`` looked up in a vocabulary by how they are written there.

    Parameters
    ----------
    tokenizer : SubwordTokenizer
        The file; it must not skip its unknown token, which is looked up like any other.
    words : Vocabulary
        The known words.
    lowercase : bool, default False
        Whether texts are lower-cased (``str.lower``) first.
    token_filter : TokenFilter, optional
        Tokens left out.
    unknown : {"skip", "keep"}, default "skip"
        Whether tokens outside the vocabulary are left out or get the ids vocab_size, vocab_size + 1, ... in the order
        in which they appear in the texts of one call.

    Raises
    ------
    InputError
        If `unknown` is none of these words.
    """

    def __init__(
        self,
        tokenizer: SubwordTokenizer,
        words: Vocabulary,
        *,
        lowercase: bool = False,
        token_filter: TokenFilter | None = None,
        unknown: str = "skip",
    ) -> None:
        _check.one_of("tokenizer", "unknown", unknown, UNKNOWN_RULES)
        self.tokenizer = tokenizer
        self.words = words
        self.lowercase = lowercase
        self.token_filter = TokenFilter() if token_filter is None else token_filter
        self.unknown = unknown
        tokens = tokenizer.tokenizer.get_vocab(with_added_tokens=True)
        self._tokens = {token_id: token for token, token_id in tokens.items()}
        token_ids = np.fromiter(self._tokens, dtype=np.int64)
        self._word_of = np.full(tokenizer.largest_id + 1, -1, dtype=np.int32)
        self._word_of[token_ids] = words.ids_of(self._tokens.values())
        self._stays = np.ones(len(self._word_of), dtype=np.bool_)
        self._stays[token_ids] = [not self.token_filter.drops(token) for token in self._tokens.values()]

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the texts."""
        found = self.tokenizer(list(map(str.lower, texts)) if self.lowercase else texts)
        tokens, offsets = keep_where(self._stays[found.ids], found.ids, found.offsets)
        ids = self._word_of[tokens]
        is_known = ids >= 0
        n_unknown = len(ids) - int(np.count_nonzero(is_known))
        if self.unknown == "skip":
            return TokenIds(*keep_where(is_known, ids, offsets), found.cut, n_unknown, len(ids))
        distinct, firsts, numbers = np.unique(tokens[~is_known], return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        ids[~is_known] = len(self.words) + np.argsort(order)[numbers]
        unknown = tuple(self._tokens[token] for token in distinct[order].tolist())
        return TokenIds(ids, offsets, found.cut, n_unknown, unknown=unknown)

    def vocabulary(self) -> Iterable[str]:
        """Yield the words in the order of their ids."""
        return self.words
