"""Lists of words that are to be kept."""

from __future__ import annotations

import os
from collections.abc import Iterable

from isosent import _check
from isosent.files.texts import lines_in
from isosent.text.vocabulary import Vocabulary


def read_wanted_words(words: Iterable[str] | str | os.PathLike[str]) -> Vocabulary:
    """Read words, repeated ones once.

    Parameters
    ----------
    words : iterable of str, or path-like
        Words, or a file of UTF-8 text with one word a line; a number behind the word, such as its count, is left out.

    Returns
    -------
    Vocabulary
        The words.

    Raises
    ------
    InputFileError
        If there is no such file, or it is empty.
    FileFormatError
        If it is not UTF-8; the message names the line.

    Examples
    --------
    >>> list(read_wanted_words(["the", "man", "the"]))
    ['the', 'man']
    """
    if isinstance(words, (str, os.PathLike)):
        path = _check.input_file(words)
        with path.open("rb") as file:
            words = [_without_count(line.split()) for line in lines_in(str(path), file) if line.strip()]
    return Vocabulary.from_words(dict.fromkeys(words))


def _without_count(fields: list[str]) -> str:
    try:
        float(fields[-1])
    except ValueError:
        return " ".join(fields)
    return " ".join(fields[:-1] or fields)
