"""Finding and splitting the tab separated files of public tasks, which know no quoting."""

import os
from collections.abc import Iterator
from pathlib import Path

from isosent import _check
from isosent.errors import FileFormatError
from isosent.files.texts import lines_in


def folders_below(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Walk through a folder and all below it, links followed, each folder once.

    Parameters
    ----------
    root : Path
        Where to start.

    Yields
    ------
    path : Path
        A folder.
    files : list of str
        Names of the files in it.
    """
    visited: set[str] = set()
    for path, folders, files in os.walk(root, followlinks=True):
        folders[:] = sorted(folder for folder in folders if os.path.realpath(Path(path, folder)) not in visited)
        visited.update(os.path.realpath(Path(path, folder)) for folder in folders)
        yield Path(path), files


def read_lines(path: Path, encoding: str = "UTF-8") -> list[str]:
    """Return the lines of a file, split at line feeds only; there must be one."""
    with _check.input_file(path).open("rb") as file:
        lines = list(lines_in(str(path), file, encoding))
    if not lines:
        raise FileFormatError(f"{path} must hold at least one line; it is empty.")
    return lines


def split_fields(path: Path, number: int, line: str, at_least: int) -> list[str]:
    """Split a line at its tabs.

    Parameters
    ----------
    path : Path
        The file, for the message.
    number : int
        Number of the line, from 1.
    line : str
        The line.
    at_least : int
        Fields that there must be.

    Returns
    -------
    list of str
        The fields.

    Raises
    ------
    FileFormatError
        If there are fewer.
    """
    fields = line.split("\t")
    if len(fields) < at_least:
        raise FileFormatError(
            f"{path}: line {number} must have at least {at_least} fields between tabs; got {len(fields)}."
        )
    return fields
