"""Writing a folder in one step: built beside its place, checked there, renamed."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from isosent.errors import OutputError
from isosent.exports.note import NOTE_FILE
from isosent.files.atomic import as_new_file, check_parent


@dataclass(frozen=True, slots=True)
class Replaceable:
    """What may be replaced by a new folder.

    Parameters
    ----------
    name : str
        What it is, for messages.
    is_here : callable
        Whether a folder is one.
    """

    name: str
    is_here: Callable[[Path], bool]


EXPORT = Replaceable("an older export", lambda folder: (folder / NOTE_FILE).exists())


def check_folder(path: str | os.PathLike[str], replaceable: Replaceable = EXPORT) -> None:
    """Refuse a place where no folder can be written, before any work is done.

    Parameters
    ----------
    path : path-like
        The folder to write.
    replaceable : Replaceable, optional
        What may be there already, beside an empty folder.

    Raises
    ------
    OutputError
        If something else is there, or its parent cannot be written to.
    """
    path = Path(path)
    check_parent(path)
    may_go = path.is_dir() and (replaceable.is_here(path) or not any(path.iterdir()))
    if path.exists() and not may_go:
        raise OutputError(
            f"{path} must be a new or empty folder or {replaceable.name}; got something else. Name another one."
        )


@contextmanager
def replacing_folder(path: str | os.PathLike[str], replaceable: Replaceable = EXPORT) -> Iterator[Path]:
    """Give a temporary folder beside `path`; when the block ends well, it takes the place of `path`.

    Parameters
    ----------
    path : path-like
        The folder to write.
    replaceable : Replaceable, optional
        As for `check_folder`.

    Yields
    ------
    Path
        A new empty folder.

    Raises
    ------
    OutputError
        If the folder cannot be written. What was at `path` is still there.
    """
    path = Path(path).resolve()
    check_folder(path, replaceable)
    token = secrets.token_hex(4)
    temporary, older = (path.with_name(f".{path.name}-{token}.{kind}") for kind in ("tmp", "old"))
    try:
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                as_new_file(file)
        if path.exists():
            path.rename(older)
        temporary.rename(path)
    except OSError as error:
        if isinstance(error, OutputError):
            raise
        raise OutputError(f"{path} could not be written: {error.strerror or error}.") from error
    finally:
        if older.exists() and not path.exists():  # whatever came between the two names, Ctrl-C among them
            older.rename(path)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(older, ignore_errors=True)
