"""Content of files that are read more than once, pipes among them."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

from isosent import _check
from isosent.errors import InputFileError, OutputError

STANDARD_INPUT = "-"

_SPOOLED_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20


@contextmanager
def opened_content(path: str | os.PathLike[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Open a file of texts; what cannot be read twice, such as standard input, is copied aside first.

    Parameters
    ----------
    path : path-like
        A file, or ``-``.

    Yields
    ------
    name : str
        What messages call it.
    file : binary file
        Its content, at its beginning; a copy is held in memory up to 64 MiB and lies in a temporary file beyond.

    Raises
    ------
    InputFileError
        If the file is missing, empty, a directory or cannot be read.
    OutputError
        If there is no room for the copy.
    """
    if str(path) == STANDARD_INPUT:
        with _copied(sys.stdin.buffer, "standard input") as copy:
            if not copy.tell():
                raise InputFileError("standard input must hold at least one text; got nothing.")
            copy.seek(0)
            yield "standard input", copy
        return
    name, path = str(path), _check.input_file(path)
    try:
        opened = path.open("rb")
    except OSError as error:
        raise InputFileError(f"{name} could not be read: {error.strerror}.") from error
    with opened:
        if path.is_file():
            yield name, opened
            return
        with _copied(opened, name) as copy:
            copy.seek(0)
            yield name, copy


@contextmanager
def _copied(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    with SpooledTemporaryFile(_SPOOLED_BYTES) as copy:
        try:
            shutil.copyfileobj(file, copy, _PIECE_BYTES)
        except OSError as error:
            raise OutputError(f"{name} could not be copied into a temporary file: {error.strerror}.") from error
        yield cast("BinaryIO", copy)
