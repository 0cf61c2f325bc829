"""A WordPiece vocabulary from texts, the same one every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import NFC, BertNormalizer
from tokenizers.normalizers import Sequence as Steps
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer

from isosent import _check
from isosent.errors import InputError

if TYPE_CHECKING:
    from tokenizers.normalizers import Normalizer

PAD, UNKNOWN, FIRST, LAST = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_INNER = "##"
_MOST_CHARACTERS = 0.25


def train_wordpiece(texts: Sequence[str], *, vocab_size: int, lowercase: bool) -> Tokenizer:
    """Train a WordPiece tokenizer.

    Parameters
    ----------
    texts : sequence of str
        Texts in the language of those to be encoded later.
    vocab_size : int
        Tokens at most, 16 or more; fewer where the texts do not give as many.
    lowercase : bool
        Whether texts are lower-cased.

    Returns
    -------
    Tokenizer
        Puts ``[CLS]`` and ``[SEP]`` around a text.

    Raises
    ------
    InputError
        If there is no text, or none has a character.

    Notes
    -----
    Texts are brought into Unicode's composed form (NFC) and keep their accents, so that a Hangul syllable stays one
    character. The characters in the vocabulary are the most frequent ones, a quarter of it at most: each takes two
    entries, one to begin a word and one (``##``) inside of it. A word with another character is ``[UNK]``.

    The library numbers characters inside of words in the order of a hash map that changes from run to run, and settles
    ties by these numbers, so that even the set of tokens changes. They are handed to it in a fixed order, as if they
    were special tokens.
    """
    texts = _check.some_texts("scratch", texts)
    tokenizer = Tokenizer(WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizer = _normalizer(lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    characters = _frequent_characters(normalizer, texts, int(vocab_size * _MOST_CHARACTERS))
    trainer = WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *(_INNER + character for character in characters)],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _with_vocabulary(tokenizer)


def _normalizer(lowercase: bool) -> Normalizer:
    return Steps([NFC(), BertNormalizer(strip_accents=False, lowercase=lowercase)])


def _frequent_characters(normalizer: Normalizer, texts: Sequence[str], n_most: int) -> list[str]:
    """The most frequent characters, ties by code point, in the order of code points."""
    counts = Counter(character for text in texts for character in normalizer.normalize_str(text))
    ranked = sorted((character for character in counts if not character.isspace()), key=lambda c: (-counts[c], c))
    if not ranked:
        raise InputError(f"scratch: texts must hold characters; got {len(texts)} blank texts.")
    return sorted(ranked[:n_most])


def _with_vocabulary(trained: Tokenizer) -> Tokenizer:
    """The same without the characters among the special tokens, and with those around a text."""
    vocabulary = trained.get_vocab(with_added_tokens=True)
    tokenizer = Tokenizer(WordPiece(vocab=vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer, tokenizer.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{FIRST} $A {LAST}",
        pair=f"{FIRST} $A {LAST} $B:1 {LAST}:1",
        special_tokens=[(token, vocabulary[token]) for token in (FIRST, LAST)],
    )
    return tokenizer
