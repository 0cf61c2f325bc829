"""Words looked up in a vocabulary, as a regular expression, white space or a function of the user's splits texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np

from isosent import _check
from isosent.errors import InputTypeError
from isosent.text.scanning import number_unknown, scan_texts
from isosent.text.token_filter import TokenFilter
from isosent.text.tokens import SPLITTERS, UNKNOWN_RULES, TokenIds, keep_where, offsets_of
from isosent.text.vocabulary import Vocabulary, words_as_bytes


class WordTokenizer:
    r"""Runs of characters looked up in a vocabulary.

    Parameters
    ----------
    words : Vocabulary
        The known words.
    split : {"wordpunct", "whitespace"}, default "wordpunct"
        How a text is split: into runs of word characters and runs of others (the regular expression
        ``\w+|[^\w\s]+``, NLTK's wordpunct), or at white space only (``str.split``).
    lowercase : bool, default True
        Whether the text is lower-cased (``str.lower``) before it is split.
    punctuation : {"keep", "drop", "gem"}, default "keep"
        ``drop`` leaves out tokens without any word character, ``gem`` those that are one of ``! . : ? @ - " '``
        alone, as the authors of GEM do. What is left out counts neither as a token nor as unknown.
    stop_words : iterable of str, default ()
        Words left out in the same way; looked up after lower-casing.
    unknown : {"skip", "keep"}, default "skip"
        Whether words outside the vocabulary are left out or get the ids vocab_size, vocab_size + 1, ... in the order
        in which they appear in the texts of one call.

    Raises
    ------
    InputError
        If an option is none of the words above.

    Examples
    --------
    >>> tokenizer = WordTokenizer(Vocabulary.from_words(["the", "man", "."]))
    >>> tokens = tokenizer(["The man sleeps.", ""])
    >>> tokens.ids, tokens.lengths, tokens.n_unknown, tokens.n_tokens
    (array([0, 1, 2], dtype=int32), array([3, 0]), 1, 4)
    """

    def __init__(
        self,
        words: Vocabulary,
        *,
        split: str = "wordpunct",
        lowercase: bool = True,
        punctuation: str = "keep",
        stop_words: Iterable[str] = (),
        unknown: str = "skip",
    ) -> None:
        _check.one_of("tokenizer", "split", split, SPLITTERS)
        _check.one_of("tokenizer", "unknown", unknown, UNKNOWN_RULES)
        self.words = words
        self.split = split
        self.lowercase = lowercase
        self.unknown = unknown
        self.token_filter = TokenFilter(punctuation, frozenset(stop_words))
        self._dropped = Vocabulary.from_words(sorted(self.token_filter.tokens))

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the texts."""
        return scan_texts(
            list(map(str.lower, texts)) if self.lowercase else texts,
            self.words,
            split=self.split,
            keeps_unknown=self.unknown == "keep",
            drops_punctuation=self.token_filter.drops_punctuation,
            dropped=self._dropped,
        )

    def vocabulary(self) -> Iterable[str]:
        """Yield the words in the order of their ids."""
        return self.words


class CallableTokenizer:
    """Words that a function finds, looked up in a vocabulary; for languages written without spaces.

    Parameters
    ----------
    function : callable
        From one text to the sequence of its words.
    words : Vocabulary
        The known words.
    lowercase : bool, default False
        Whether the function gets the text lower-cased.
    punctuation : {"keep", "drop", "gem"}, default "keep"
        As in `WordTokenizer`.
    stop_words : iterable of str, default ()
        As in `WordTokenizer`.
    unknown : {"skip", "keep"}, default "skip"
        As in `WordTokenizer`.

    Raises
    ------
    InputError
        If an option is none of the words above.

    Examples
    --------
    >>> tokenizer = CallableTokenizer(list, Vocabulary.from_words("你好"))
    >>> tokenizer(["你好吗", "好"]).ids
    array([0, 1, 1], dtype=int32)
    """

    def __init__(
        self,
        function: Callable[[str], Sequence[str]],
        words: Vocabulary,
        *,
        lowercase: bool = False,
        punctuation: str = "keep",
        stop_words: Iterable[str] = (),
        unknown: str = "skip",
    ) -> None:
        _check.one_of("tokenizer", "unknown", unknown, UNKNOWN_RULES)
        self.function = function
        self.words = words
        self.lowercase = lowercase
        self.unknown = unknown
        self.token_filter = TokenFilter(punctuation, frozenset(stop_words))

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the texts.

        Raises
        ------
        InputTypeError
            If the function returns something else than strings.
        """
        lists = [
            [word for word in self._split(text) if not self.token_filter.drops(word)]
            for text in (map(str.lower, texts) if self.lowercase else texts)
        ]
        return look_up_words(lists, self.words, keeps_unknown=self.unknown == "keep")

    def vocabulary(self) -> Iterable[str]:
        """Yield the words in the order of their ids."""
        return self.words

    def _split(self, text: str) -> Sequence[str]:
        words = self.function(text)
        wrong = [words] if isinstance(words, str) or not isinstance(words, Sequence) else words
        for word in wrong:
            if wrong is not words or not isinstance(word, str):
                raise InputTypeError(
                    f"tokenizer: the function must return a sequence of strings; got {word!r} for the text "
                    f"{text[:60]!r}. Return a list of words."
                )
        return words


def look_up_words(lists: Sequence[Sequence[str]], words: Vocabulary, *, keeps_unknown: bool) -> TokenIds:
    """Look up texts that are split already.

    Parameters
    ----------
    lists : sequence of sequences of str
        Words of each text.
    words : Vocabulary
        The known words.
    keeps_unknown : bool
        Whether unknown words get ids from vocab_size on, or are left out.

    Returns
    -------
    TokenIds
        Ids of the words.
    """
    text, bounds = words_as_bytes(chain.from_iterable(lists))
    starts, stops = bounds[:-1], bounds[1:]
    ids, offsets = words.ids_of_spans(text, starts, stops), offsets_of([len(listed) for listed in lists])
    is_unknown = ids < 0
    n_unknown = int(np.count_nonzero(is_unknown))
    if keeps_unknown:
        unknown = number_unknown(ids, len(words), text, starts[is_unknown], stops[is_unknown])
        return TokenIds(ids, offsets, n_unknown=n_unknown, unknown=unknown)
    return TokenIds(*keep_where(~is_unknown, ids, offsets), n_unknown=n_unknown, n_tokens=len(ids))
