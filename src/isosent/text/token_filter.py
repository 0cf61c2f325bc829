"""Tokens that are left out before they are looked up: punctuation and stop words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from isosent import _check
from isosent.errors import FileFormatError

PUNCTUATION_RULES = ("keep", "drop", "gem")

_GEM_PUNCTUATION = frozenset("!.:?@-\"'")
_WORD_CHARACTER = re.compile(r"\w")


@dataclass(frozen=True)
class TokenFilter:
    """Which tokens are left out: they count neither as tokens nor as unknown.

    Parameters
    ----------
    punctuation : {"keep", "drop", "gem"}, default "keep"
        ``drop`` leaves out tokens without any word character, ``gem`` those that are one of ``! . : ? @ - " '`` alone,
        as the authors of GEM do.
    stop_words : frozenset of str, default frozenset()
        Words left out, as they stand in the lower-cased text where a tokenizer lower-cases.

    Raises
    ------
    InputError
        If `punctuation` is none of these words.
    """

    punctuation: str = "keep"
    stop_words: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        _check.one_of("tokenizer", "punctuation", self.punctuation, PUNCTUATION_RULES)

    @property
    def drops_punctuation(self) -> bool:
        """Whether tokens without any word character are left out."""
        return self.punctuation == "drop"

    @cached_property
    def tokens(self) -> frozenset[str]:
        """All other tokens that are left out."""
        return self.stop_words | _GEM_PUNCTUATION if self.punctuation == "gem" else self.stop_words

    def drops(self, token: str) -> bool:
        """Whether a token is left out.

        Parameters
        ----------
        token : str
            The token.

        Returns
        -------
        bool
            True if it is.
        """
        return token in self.tokens or (self.drops_punctuation and not _WORD_CHARACTER.search(token))


def read_stop_words(source: str) -> frozenset[str]:
    """Read words to leave out.

    Parameters
    ----------
    source : str
        ``keep`` for none, ``english`` for the 318 words of scikit-learn's ``ENGLISH_STOP_WORDS``, or a file in UTF-8
        with one word a line; blanks around a word and blank lines do not count.

    Returns
    -------
    frozenset of str
        The words, as they are written: a tokenizer that lower-cases finds lower-cased ones only.

    Raises
    ------
    InputFileError
        If there is no such file.
    FileFormatError
        If it is not UTF-8, or a line holds more than one word.
    """
    if source == "keep":
        return frozenset()
    if source == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return frozenset(ENGLISH_STOP_WORDS)
    path = _check.input_file(source)
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} must be UTF-8; got: {error}.") from None
    for number, line in enumerate(lines, 1):
        if len(line.split()) > 1:
            raise FileFormatError(f"{path}: line {number} must hold one word; got {line[:60]!r}.")
    return frozenset(line.strip() for line in lines if line.strip())
