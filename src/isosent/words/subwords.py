"""Tokens of a ``tokenizer.json``: rows of an embedding matrix, or words looked up in a vocabulary.

`SubwordTokenizer` wraps the library tokenizers: long texts in pieces, truncated, unknown tokens left out. If no token
can cross a blank, which `odd_patterns` reads from the steps of the tokenizer, a `TokenCache` tokenizes each distinct
piece between blanks once. `TokenLookup` looks the tokens up in a vocabulary of word vectors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Raw
from msgspec.json import decode
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError
from isosent.io import bounds
from isosent.io.texts import text_blocks
from isosent.numeric.compiled import has_compiler
from isosent.words.tokens import (
    LONGEST_PIECE,
    UNKNOWN_RULES,
    TokenFilter,
    TokenIds,
    keep_where,
    offsets_of,
    pieces_of,
    scan_texts,
    spell_words,
)
from isosent.words.vocabulary import Vocabulary, words_as_bytes

Tokenize = Callable[[Sequence[str]], TokenIds]

_MARK = "▁"
_LLAMA_STEPS = [
    {"type": "Prepend", "prepend": _MARK},
    {"type": "Replace", "pattern": {"String": " "}, "content": _MARK},
]
_KEEP_BLANKS = {"Lowercase", "NFC", "NFD"}
_NORMALIZERS = _KEEP_BLANKS | {"BertNormalizer", "StripAccents", "NFKC", "NFKD"}
_SPLITS_AT_BLANKS = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
_SPLITS_FURTHER = _SPLITS_AT_BLANKS | {"Punctuation", "Digits"}
_MOST_PIECES, _MOST_BYTES, _GROWTH = 1 << 18, 1 << 24, 4
_FEW_CHARACTERS = 1 << 12  # of a call, which are tokenized faster than they are cut
_MANY_CHARACTERS = 1 << 18  # of all longer calls: tokenizing as many takes a fifth of loading the compiled code
_TOGETHER = 128


class Patterns(NamedTuple):
    """What a `TokenCache` knows of its tokenizer."""

    odd: Sequence[str]  # a text that contains one of these is not cut at blanks
    begins: NDArray[np.bool_] | None  # which tokens can only be the first of a piece


class TokenCache:
    """Tokenizes each distinct piece of the texts once, and keeps its tokens.

    With it, wordllama encodes 15,252 sentences of STS-B, each once, twice as fast; texts that were seen before, 6 times
    (`bench/words.py` has the rows). At most 262,144 pieces are kept; the others are tokenized again in every call.
    What it needs to know of the tokenizer, None if tokens cross blanks, it asks when there are many texts.
    """

    def __init__(self, tokenize: Tokenize, patterns: Callable[[], Patterns | None]) -> None:
        self._tokenize = tokenize
        self._find_patterns = patterns
        self._cached = Vocabulary.from_words([]), TokenIds.from_lists([])
        self._n_missed = self._n_characters = 0

    @cached_property
    def _patterns(self) -> Patterns | None:
        return self._find_patterns()

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids that the tokenizer gives the texts."""
        if not len(self._cached[0]):
            n_characters = sum(map(len, texts))
            self._n_characters += n_characters if n_characters >= _FEW_CHARACTERS else 0
            if n_characters < _FEW_CHARACTERS or self._n_characters < _MANY_CHARACTERS:
                return self._tokenize(texts)
        if self._patterns is None:
            return self._tokenize(texts)
        is_odd = self._is_odd(texts, self._patterns.odd)
        if not is_odd.any():
            return self._from_pieces(texts, self._patterns)
        even, odd = (list(compress(texts, chosen)) for chosen in (~is_odd, is_odd))
        rows = np.argsort(np.argsort(is_odd, kind="stable"), kind="stable")
        return _concatenated(self._from_pieces(even, self._patterns), self._tokenize(odd)).take(rows)

    def _is_odd(self, texts: Sequence[str], patterns: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts contain an odd pattern. Most patterns occur in none, which one search of all texts shows."""
        padded = [f" {text} " for text in texts]
        together = "\0".join(padded)
        is_odd = np.zeros(len(texts), dtype=np.bool_)
        for pattern in patterns:
            if pattern in together:
                is_odd |= [pattern in text for text in padded]
        return is_odd

    def _from_pieces(self, texts: Sequence[str], patterns: Patterns) -> TokenIds:
        cached, tokens = self._cached
        pieces = scan_texts(texts, cached, split="blank", keeps_unknown=True)
        if pieces.unknown:
            tokens = _concatenated(tokens, self._tokens_of(pieces.unknown, patterns.begins))
            self._n_missed += len(pieces.unknown)
            if len(cached) <= _GROWTH * self._n_missed and _fits_in_memory(cached, tokens):
                self._cached, self._n_missed = (_with_words(cached, pieces.unknown), tokens), 0
        token_ids = tokens.take(pieces.ids.astype(np.intp))
        return TokenIds(token_ids.ids, token_ids.offsets[pieces.offsets])

    def _tokens_of(self, pieces: Sequence[str], begins: NDArray[np.bool_] | None) -> TokenIds:
        """Tokenize pieces: many with one call of the library where the tokens tell where the next piece begins."""
        if begins is not None:
            together = [" ".join(pieces[start : start + _TOGETHER]) for start in range(0, len(pieces), _TOGETHER)]
            ids = self._tokenize(together).ids
            starts = np.flatnonzero(begins[ids])
            if len(starts) == len(pieces):
                return TokenIds(ids, np.append(starts, len(ids)))
        return self._tokenize(pieces)


def odd_patterns(state: Mapping[str, Any]) -> list[str] | None:
    """Patterns that a text must not contain for its tokens to be those of its blank-separated pieces, in order."""
    # Three kinds of tokenizers allow this. Byte-pair models that turn blanks into marks (Llama 2), if no token has a
    # mark after another character: then no merge crosses the start of a mark. Any model after a split at white space
    # (BERT), if the normalizers leave blanks as they are and do not look across them. Any model after a Metaspace that
    # splits and puts a mark before every piece, if the normalizers also neither make a blank nor leave a piece empty.
    # Added tokens are found before anything else. Where blanks become marks, each blank counts.
    if state["model"].get("dropout") or any(token["normalized"] for token in state["added_tokens"]):
        return None
    added = [token["content"] for token in state["added_tokens"]]
    splitter = _steps(state["pre_tokenizer"])
    kinds, normalizers = [step["type"] for step in splitter], {step["type"] for step in _steps(state["normalizer"])}
    if not kinds:
        return ["  ", "\n", _MARK, *added] if _is_llama(state) else None
    if kinds == ["Metaspace"]:
        marks_all = splitter[0]["prepend_scheme"] != "never" and splitter[0]["split"]
        return ["  ", "\n", _MARK, *added] if marks_all and normalizers <= _KEEP_BLANKS else None
    splits = kinds[0] in _SPLITS_AT_BLANKS and _SPLITS_FURTHER.issuperset(kinds)
    return added if splits and normalizers <= _NORMALIZERS else None


def _is_llama(state: Mapping[str, Any]) -> bool:
    """Whether blanks become marks, and no token of the byte-pair model has a mark after another character."""
    model = state["model"]
    return (
        model["type"] == "BPE"
        and _steps(state["normalizer"]) == _LLAMA_STEPS
        and not (model["continuing_subword_prefix"] or model["end_of_word_suffix"])
        and _MARK in model["vocab"]
        and not any(_MARK in token.lstrip(_MARK) for token in model["vocab"])
    )


def _without_vocabulary(state: str) -> dict[str, Any]:
    """The steps of a ``tokenizer.json``, which are a thousandth of it."""
    parts = decode(state, type=dict[str, Raw])
    model = decode(parts.pop("model"), type=dict[str, Raw])
    options = {name: decode(value) for name, value in model.items() if name not in ("vocab", "merges")}
    return {name: decode(part) for name, part in parts.items()} | {"model": options}


def _steps(step: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    return [single for part in step.get("normalizers", step.get("pretokenizers")) for single in _steps(part)]


def _concatenated(first: TokenIds, second: TokenIds) -> TokenIds:
    offsets = np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]])
    return TokenIds(np.concatenate([first.ids, second.ids]), offsets)


def _with_words(cached: Vocabulary, words: Sequence[str]) -> Vocabulary:
    characters, offsets = words_as_bytes(words)
    return Vocabulary.from_bytes(
        np.concatenate([cached.characters, characters]),
        np.concatenate([cached.offsets, offsets[1:] + cached.offsets[-1]]),
    )


def _fits_in_memory(cached: Vocabulary, tokens: TokenIds) -> bool:
    n_largest = max(len(cached.characters), len(tokens.ids))
    return len(tokens.offsets) <= _MOST_PIECES and n_largest < _MOST_BYTES


_MOST_TEXTS = 1 << 16
# Two letters or digits, neither of a script without spaces: Thai to Myanmar, Khmer, Kana, Han
_SPACED = "[^\\W\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_INSIDE_WORD = re.compile(_SPACED * 2)


class SubwordTokenizer:
    """A ``tokenizer.json``, without special tokens; the unknown token is skipped."""

    # A text of more than a million characters is tokenized in pieces, cut at blanks. Where tokens provably never
    # cross a blank, pieces of texts that were seen before are not tokenized again: see `TokenCache`.

    def __init__(
        self, path: Path, *, max_length: int | None = None, cut_characters: bool = False, skip_unknown: bool = True
    ) -> None:
        from tokenizers import Tokenizer

        try:
            self.tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for every malformed file
            raise FileFormatError(f"{path} is no tokenizer.json: {_check.brief(error)}.") from None
        if not self.tokenizer.get_vocab_size(with_added_tokens=False):
            raise FileFormatError(f"{path} has no tokens.")
        if self.largest_id > bounds.LARGEST_TOKEN_ID:
            raise FileFormatError(f"{path}: a token has the id {self.largest_id}; at most {bounds.LARGEST_TOKEN_ID}.")
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.max_length = max_length
        self.max_characters = None
        if cut_characters and max_length is not None:
            self.max_characters = max_length * int(np.median([len(token) for token in self.vocabulary()]))
        state = _without_vocabulary(self.tokenizer.to_str())
        bounds.check_growth(str(path), state)
        unknown = state["model"].get("unk_token")
        self._unknown_token = state["model"].get("unk_id") if unknown is None else self.tokenizer.token_to_id(unknown)
        self.unknown_id = self._unknown_token if skip_unknown else None
        self._tokenize: Tokenize = TokenCache(self._whole_texts, self._patterns)

    def _patterns(self) -> Patterns | None:
        """Where texts can be cut at blanks; None if tokens may cross these, or without the compiled code that cuts."""
        odd = odd_patterns(decode(self.tokenizer.to_str())) if has_compiler() else None
        return None if odd is None else Patterns(odd, self._beginnings(odd))

    def _beginnings(self, odd: Sequence[str]) -> NDArray[np.bool_] | None:
        """Which tokens begin with the mark of a blank; None without marks, or if an added token has a blank in it."""
        # A piece has no mark but the one before it, so that it has one of these tokens at most: its first.
        if _MARK not in odd or any(" " in pattern.strip(" ") for pattern in odd):
            return None
        begins = np.zeros(self.largest_id + 1, dtype=np.bool_)
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=False)
        begins[[number for token, number in vocabulary.items() if token.startswith(_MARK)]] = True
        return begins

    @cached_property
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

    def spans(self, text: str, tokens: TokenIds) -> list[tuple[int, int]]:
        """Where each token of a text begins and ends in it."""
        encoding = self.tokenizer.encode(text[: self.max_characters], add_special_tokens=False)
        ids, spans = tokens.ids.tolist(), list[tuple[int, int]]()
        for token_id, span in zip(encoding.ids, encoding.offsets, strict=True):  # unknown tokens may have been left out
            if len(spans) < len(ids) and token_id == ids[len(spans)]:
                spans.append(span)
        return spans + [(0, 0)] * (len(ids) - len(spans))

    def spell(self, text: str, tokens: TokenIds) -> tuple[list[str], NDArray[np.intp]]:
        """Words of a text as it has them, and which of them each of its tokens belongs to."""
        words: list[str] = []
        word_of, begin, end = [], 0, -1
        for token_id, (start, stop) in zip(tokens.ids.tolist(), self.spans(text, tokens), strict=True):
            start = min(start + len(text[start:stop]) - len(text[start:stop].lstrip()), stop)
            follows = start == end and (begin == end or _INSIDE_WORD.match(text, start - 1))
            if not words or not (start < end or follows):
                begin = start
                words.append("")
            end = stop
            words[-1] = text[begin:end].strip() or self.tokenizer.id_to_token(token_id) or ""
            word_of.append(len(words) - 1)
        return words, np.array(word_of, dtype=np.intp)

    def decode(self, ids: Sequence[int]) -> str:
        """Return a text with these token ids, if there is one."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        vocabulary = self.tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def _whole_texts(self, texts: Sequence[str]) -> TokenIds:
        pieces = [list(pieces_of(text)) for text in texts]
        parts = []  # a character takes 70 bytes while it is tokenized: some pieces at a time
        for block in text_blocks(chain.from_iterable(pieces), _MOST_TEXTS, n_characters=LONGEST_PIECE, at_once=1):
            try:
                encodings = self.tokenizer.encode_batch_fast(block, add_special_tokens=False)
            except BaseException as error:  # tokenizers raises nothing more special, and panics at a regular expression
                if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                    raise
                reason = _check.brief(error).rpartition(" error: ")[2]
                raise FileFormatError(f"tokenizer.json cannot be used: {reason}.") from None
            parts.append(TokenIds.from_lists([encoding.ids for encoding in encodings]))
        lengths = np.concatenate([np.empty(0, dtype=np.int64), *(part.lengths for part in parts)])
        ids = np.concatenate([np.empty(0, dtype=np.int32), *(part.ids for part in parts)])
        return TokenIds(ids, offsets_of(lengths)[offsets_of(list(map(len, pieces)))])


class TokenLookup:
    """Tokens of a ``tokenizer.json`` looked up in a vocabulary by how they are written there."""

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
        token_ids = self.tokenizer(list(map(str.lower, texts)) if self.lowercase else texts)
        tokens, offsets = keep_where(self._stays[token_ids.ids], token_ids.ids, token_ids.offsets)
        ids = self._word_of[tokens]
        is_known = ids >= 0
        n_unknown = len(ids) - int(np.count_nonzero(is_known))
        if self.unknown == "skip":
            return TokenIds(*keep_where(is_known, ids, offsets), token_ids.truncated_rows, n_unknown, len(ids))
        distinct, firsts, numbers = np.unique(tokens[~is_known], return_index=True, return_inverse=True)
        order = np.argsort(firsts, kind="stable")
        ids[~is_known] = len(self.words) + np.argsort(order, kind="stable")[numbers]
        unknown = tuple(self._tokens[token] for token in distinct[order].tolist())
        return TokenIds(ids, offsets, token_ids.truncated_rows, n_unknown, unknown=unknown)

    def spell(self, text: str, tokens: TokenIds) -> tuple[list[str], NDArray[np.intp]]:
        """Words of a text as it has them, one for each token."""
        return spell_words(text, tokens, self.words, lowercase=self.lowercase)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the words of token ids, with blanks between them."""
        return " ".join(self.words[number] for number in ids)

    def vocabulary(self) -> Iterable[str]:
        """Yield the words in the order of their ids."""
        return self.words
