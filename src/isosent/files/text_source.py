"""Texts in a file of any size, read block by block and as often as wanted."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice

from isosent.errors import InputFileError
from isosent.files.content import opened_content
from isosent.files.texts import ending_of, no_texts, texts_in

_AT_ONCE = 1024
_SEPARATOR = "\ud800"  # a lone surrogate is in no text


@dataclass(frozen=True, slots=True)
class TextSource:
    """Texts in a file; only a block of them is in memory at a time.

    Parameters
    ----------
    name : str
        What people call it.
    n_texts : int
        Texts in it.
    sha256 : str
        Hash of the texts in their order, whatever file they are in.
    read : callable
        Gives the texts from the first one on, one after the other; one such reading at a time.
    is_unchanged : callable
        Tells whether the file is as it was when the texts were counted.
    """

    name: str
    n_texts: int
    sha256: str
    read: Callable[[], Iterator[str]]
    is_unchanged: Callable[[], bool]

    def check_unchanged(self) -> None:
        """Refuse texts that are not those that were counted.

        Raises
        ------
        InputFileError
            If the file was changed meanwhile.
        """
        if not self.is_unchanged():
            raise InputFileError(f"{self.name} must stay as it is while it is read; it was changed. Start again.")


@contextmanager
def open_texts(path: str | os.PathLike[str], *, column: str | None = None) -> Iterator[TextSource]:
    """Count the texts of a file, which reads all of it once: a bad line is refused here.

    Parameters
    ----------
    path : path-like
        What `read_texts` reads. Standard input and pipes are copied into memory, beyond 64 MiB into a temporary file.
    column : str, optional
        Column that holds the texts. May be left out where the table has only one.

    Yields
    ------
    TextSource
        The texts, as long as the block runs.

    Raises
    ------
    InputFileError
        If the file is missing, empty or a directory.
    FileFormatError
        If the content is not what the format promises, see `read_texts`, or there is no text.
    InputError
        If the column is not there, or is given for plain lines.
    """
    with opened_content(path) as (name, file):

        def read() -> Iterator[str]:
            file.seek(0)
            return texts_in(name, ending_of(path), file, column)

        def stamp() -> tuple[int, int] | None:
            if not isinstance(file, BufferedReader):
                return None  # a copy
            found = os.fstat(file.fileno())
            return found.st_size, found.st_mtime_ns

        before = stamp()
        n_texts, digest = 0, hashlib.sha256()
        for block in text_blocks(read(), _AT_ONCE):
            n_texts += len(block)
            digest.update(_SEPARATOR.join([*block, ""]).encode("utf-8", "surrogatepass"))
        if not n_texts:
            raise no_texts(name)
        yield TextSource(name, n_texts, digest.hexdigest(), read, lambda: stamp() == before)


def text_blocks(
    texts: Iterable[str], n_texts: int, *, n_characters: int = 16 << 20, at_once: int = 16
) -> Iterator[list[str]]:
    """Cut texts into blocks that fit into memory.

    Parameters
    ----------
    texts : iterable of str
        Texts.
    n_texts : int
        Texts of a block, at most.
    n_characters : int, default 16 Mi
        With so many characters a block ends.
    at_once : int, default 16
        Characters are counted every so many texts: one by one takes 10 % of the time of reading them.

    Yields
    ------
    list of str
        The next block, never empty.

    Examples
    --------
    >>> list(text_blocks(iter("abc"), 2))
    [['a', 'b'], ['c']]
    """
    block: list[str] = []
    texts, room = iter(texts), n_characters
    while more := list(islice(texts, min(at_once, n_texts - len(block)))):
        block += more
        room -= sum(map(len, more))
        if len(block) == n_texts or room <= 0:
            yield block
            block, room = [], n_characters
    if block:
        yield block
