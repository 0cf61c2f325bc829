"""Reading JSON, a line an object, with messages that tell the line."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from isosent import _check
from isosent.errors import FileFormatError
from isosent.files.bounds import lines_of


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the objects of a JSON lines file one after the other; blank lines are passed over.

    Parameters
    ----------
    path : Path
        The file.

    Yields
    ------
    number : int
        Number of the line, from 1.
    row : dict
        Its object.

    Raises
    ------
    InputFileError
        If there is no such file, or it is empty.
    FileFormatError
        If a line is no JSON object.
    """
    with _check.input_file(path).open("rb") as file:
        for number, line in enumerate(lines_of(str(path), file), start=1):
            if line.strip():
                yield number, json_object(f"{path}: line {number}", line)


def json_object(where: str, line: bytes) -> dict[str, Any]:
    """Parse a line.

    Parameters
    ----------
    where : str
        Begins the message if something is wrong.
    line : bytes
        UTF-8.

    Returns
    -------
    dict
        The object.

    Raises
    ------
    FileFormatError
        If it is none.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where} must be a JSON object; got: {error}.") from None
    if not isinstance(row, dict):
        raise FileFormatError(f"{where} must be a JSON object; got {type(row).__name__}.")
    return row


def text_of(where: str, row: Mapping[str, Any], name: str) -> str:
    """Return a text of a row.

    Parameters
    ----------
    where : str
        Begins the message if something is wrong.
    row : mapping of str to object
        The row.
    name : str
        Its field.

    Returns
    -------
    str
        The text.

    Raises
    ------
    FileFormatError
        If it is not there, no string, or not valid Unicode.
    """
    text = row.get(name)
    if not isinstance(text, str):
        got = type(text).__name__ if name in row else "no such field"
        raise FileFormatError(f"{where}: {name} must be a string; got {got}.")
    if not _check.is_unicode(text):
        raise FileFormatError(f"{where}: {name} must be valid Unicode; got a lone surrogate.")
    return text
