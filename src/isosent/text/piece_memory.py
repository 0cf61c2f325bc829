"""Sub-word tokens of texts put together from those of their pieces between blanks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.text.scanning import scan_texts
from isosent.text.tokens import TokenIds
from isosent.text.vocabulary import Vocabulary, words_as_bytes

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


class PieceMemory:
    """Tokenizes each distinct piece of the texts once, and remembers the pieces.

    Parameters
    ----------
    tokenize : callable
        The tokenizer: from texts to their ids.
    odd : sequence of str
        Texts that hold one of these, with a blank before and behind them, are given to the tokenizer whole: see
        `odd_patterns`.

    Notes
    -----
    At most 262,144 pieces are remembered; the others are tokenized again in every call.
    """

    def __init__(self, tokenize: Tokenize, odd: Sequence[str]) -> None:
        self._tokenize = tokenize
        self._odd = odd
        self._known = Vocabulary.from_words([]), TokenIds.from_lists([])
        self._n_missed = 0

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids that the tokenizer gives the texts."""
        is_odd = self._is_odd(texts)
        if not is_odd.any():
            return self._from_pieces(texts)
        even, odd = (list(compress(texts, chosen)) for chosen in (~is_odd, is_odd))
        rows = np.argsort(np.argsort(is_odd, kind="stable"))
        return _joined(self._from_pieces(even), self._tokenize(odd)).take(rows)

    def _is_odd(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts hold an odd pattern; most patterns stand in none, which one look at all of them tells."""
        padded = [f" {text} " for text in texts]
        together = "\0".join(padded)
        is_odd = np.zeros(len(texts), dtype=np.bool_)
        for pattern in self._odd:
            if pattern in together:
                is_odd |= [pattern in text for text in padded]
        return is_odd

    def _from_pieces(self, texts: Sequence[str]) -> TokenIds:
        known, tokens = self._known
        pieces = scan_texts(texts, known, split="blank", keeps_unknown=True)
        if pieces.unknown:
            tokens = _joined(tokens, self._tokenize(pieces.unknown))
            self._n_missed += len(pieces.unknown)
            if len(known) <= _GROWTH * self._n_missed and _fits_in_memory(known, tokens):
                self._known, self._n_missed = (_with_words(known, pieces.unknown), tokens), 0
        found = tokens.take(pieces.ids.astype(np.intp))
        return TokenIds(found.ids, found.offsets[pieces.offsets])


def odd_patterns(state: Mapping[str, Any]) -> list[str] | None:
    """What a text must not hold for its tokens to be those of its pieces between blanks, one behind the other.

    Parameters
    ----------
    state : mapping
        Content of a ``tokenizer.json``.

    Returns
    -------
    list of str or None
        None for a tokenizer that is not certain to be of one of the kinds below.

    Notes
    -----
    Three kinds. Byte-pair models that turn blanks into marks (Llama 2), if no token has a mark behind another
    character: then no merge crosses the place in front of a mark. Any model behind a split at white space (BERT), if
    the normalizers leave a blank as it is and look at nothing beyond it. Any model behind a Metaspace that splits and
    puts a mark in front of every piece, if the normalizers moreover neither make a blank nor leave a piece empty.
    An added token is found before all else. Where blanks become marks, every one of them counts.
    """
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
    """Whether blanks become marks, and no token of the byte-pair model has one behind another character."""
    model = state["model"]
    return (
        model["type"] == "BPE"
        and _steps(state["normalizer"]) == _LLAMA_STEPS
        and not (model["continuing_subword_prefix"] or model["end_of_word_suffix"])
        and _MARK in model["vocab"]
        and not any(_MARK in token.lstrip(_MARK) for token in model["vocab"])
    )


def _steps(step: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    return [single for part in step.get("normalizers", step.get("pretokenizers")) for single in _steps(part)]


def _joined(first: TokenIds, second: TokenIds) -> TokenIds:
    offsets = np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]])
    return TokenIds(np.concatenate([first.ids, second.ids]), offsets)


def _with_words(known: Vocabulary, words: Sequence[str]) -> Vocabulary:
    characters, offsets = words_as_bytes(words)
    return Vocabulary.from_bytes(
        np.concatenate([known.characters, characters]),
        np.concatenate([known.offsets, offsets[1:] + known.offsets[-1]]),
    )


def _fits_in_memory(known: Vocabulary, tokens: TokenIds) -> bool:
    return len(tokens.offsets) <= _MOST_PIECES and len(known.characters) < _MOST_BYTES and len(tokens.ids) < _MOST_BYTES
