"""The tokenizer of an encoder as one ``tokenizer.json`` that gives the same ids without isosent."""

from __future__ import annotations

import json
import re
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Lowercase, Normalizer, Prepend, Replace, Sequence
from tokenizers.pre_tokenizers import Metaspace, Split
from tokenizers.pre_tokenizers import Sequence as Splits
from tokenizers.processors import TemplateProcessing

from isosent.encoders.base import Encoder
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.loading import load
from isosent.words.subwords import SubwordTokenizer
from isosent.words.tokens import WordTokenizer

WORD_MARK = "\ue000"  # stands before each word of a vocabulary of whole words
_LETTER, _SPACE = r"\p{L}\p{N}_", r"\s\x{1c}-\x{1f}"
_WORDS = {"wordpunct": rf"[{_LETTER}]+|[^{_LETTER}{_SPACE}]+", "whitespace": rf"[^{_SPACE}]+"}
# Python lower-cases a final sigma by its context, the tokenizers library does not.
_FINAL_SIGMA = Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς")


def transformer_tokenizer(encoder: TransformerEncoder) -> Tokenizer:
    """The tokenizer of a transformer with prompt, lower-casing, special tokens, maximum length and padding."""
    if encoder.has_place:
        raise InputError(
            f"export: a tokenizer.json cannot keep words after a text that it cuts, as the prompt {encoder.prompt!r} "
            "has. Leave the prompt out, and write its words into the texts."
        )
    source = encoder.tokenizer
    tokenizer = Tokenizer.from_str(source.backend_tokenizer.to_str())
    before: list[Normalizer] = [Prepend(encoder.prompt)] if encoder.prompt else []
    if encoder.module_folder.lowercase:
        before += [_FINAL_SIGMA, Lowercase()]
    _normalize_first(tokenizer, before)
    _limit(tokenizer, encoder.max_length)
    tokenizer.enable_padding(pad_id=encoder.network.pad_id, pad_token=source.pad_token or "[PAD]")
    return tokenizer


def tokenizer_for_static(encoder: Encoder) -> Tokenizer:
    """The tokenizer of an encoder for a static model of it, without prompt; that of wordllama for an API."""
    if isinstance(encoder, TransformerEncoder):
        return transformer_tokenizer(encoder.with_prompt(""))
    bundled = load("wordllama").encoder
    assert isinstance(bundled, StaticEncoder)
    return static_tokenizer(bundled)


def static_tokenizer(encoder: StaticEncoder) -> Tokenizer:
    """The tokenizer of a static encoder, without special tokens; it gives the unknown token, see `unknown_id`."""
    if isinstance(encoder.tokenizer, WordTokenizer):
        return _word_tokenizer(encoder.tokenizer)
    subwords = _subword_tokenizer(encoder)
    tokenizer = Tokenizer.from_str(subwords.tokenizer.to_str())
    tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    if subwords.max_characters is not None:
        _normalize_first(tokenizer, [Replace(Regex(rf"(?<=\A(?m:.{{{subwords.max_characters}}}))(?m:.*)"), "")])
    _limit(tokenizer, subwords.max_length)
    return tokenizer


def unknown_id(encoder: StaticEncoder) -> int | None:
    """The id that `static_tokenizer` gives and the encoder skips, if any."""
    return None if isinstance(encoder.tokenizer, WordTokenizer) else _subword_tokenizer(encoder).unknown_id


def _subword_tokenizer(encoder: StaticEncoder) -> SubwordTokenizer:
    if not isinstance(encoder.tokenizer, SubwordTokenizer):
        name = type(encoder.tokenizer).__name__
        raise InputError(f"export: a tokenizer that isosent does not know, {name}, cannot be exported.")
    return encoder.tokenizer


def _word_tokenizer(words: WordTokenizer) -> Tokenizer:
    # A byte-pair model without merges, without an unknown token and with `ignore_merges` gives a word its id or
    # nothing; every other model of the library insists on an unknown token. The mark before each word keeps the letters
    # of an unknown word from being looked up as words.
    vocabulary = {
        WORD_MARK + word: token_id
        for token_id, word in enumerate(words.vocabulary())
        if not words.token_filter.drops(word)
    }
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    if words.lowercase:
        tokenizer.normalizer = Sequence([_FINAL_SIGMA, Lowercase()])
    split = Split(Regex(_WORDS[words.split]), "removed", invert=True)
    tokenizer.pre_tokenizer = Splits([split, Metaspace(replacement=WORD_MARK, prepend_scheme="always", split=False)])
    return tokenizer


def without_literal(tokenizer: Tokenizer, token_id: int) -> Tokenizer:
    """A tokenizer that drops an added token written out in a text, and otherwise gives the same ids."""
    # Added tokens split a text before it is normalized. The split is kept and the token is not.
    token = tokenizer.get_added_tokens_decoder().get(token_id)
    if token is None:
        return tokenizer
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [added for added in state["added_tokens"] if added["id"] != token_id]
    dropping = Tokenizer.from_str(json.dumps(state))
    literal = f"(?:{re.escape(token.content)})+"
    steps: list[Normalizer] = [
        Replace(Regex(rf"\A{literal}|{literal}\z"), ""),
        Replace(Regex(literal), WORD_MARK),
    ]
    for step in _steps_of(dropping.normalizer):
        steps += [step, Replace(WORD_MARK, WORD_MARK + step.prepend)] if isinstance(step, Prepend) else [step]
    dropping.normalizer = Sequence(steps)
    split: Any = Split(WORD_MARK, "removed")
    dropping.pre_tokenizer = split if dropping.pre_tokenizer is None else Splits([split, dropping.pre_tokenizer])
    return dropping


def _normalize_first(tokenizer: Tokenizer, before: list[Normalizer]) -> None:
    if steps := [*before, *_steps_of(tokenizer.normalizer)]:
        tokenizer.normalizer = Sequence(steps)


def _steps_of(normalizer: Any) -> list[Any]:
    if isinstance(normalizer, Sequence):
        return [normalizer[i] for i in range(len(normalizer))]
    return [] if normalizer is None else [normalizer]


def _limit(tokenizer: Tokenizer, max_length: int | None) -> None:
    if max_length is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(max_length)
