"""Writing a folder in one step: built beside its place, checked there, renamed."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isosent.errors import OutputError
from isosent.exports.note import NOTE_FILE
from isosent.files.atomic import check_parent


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a place where no folder can be written, before any work is done.

    Parameters
    ----------
    path : path-like
        The folder to write.

    Raises
    ------
    OutputError
        If something else than an older export or an empty folder is there, or its parent cannot be written to.
    """
    path = Path(path)
    check_parent(path)
    is_replaceable = path.is_dir() and ((path / NOTE_FILE).exists() or not any(path.iterdir()))
    if path.exists() and not is_replaceable:
        raise OutputError(
            f"{path} must be a new or empty folder or an older export; got something else. Name another one."
        )


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary folder beside `path`; when the block ends well, it takes the place of `path`.

    Parameters
    ----------
    path : path-like
        The folder to write.

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
    check_folder(path)
    token = secrets.token_hex(4)
    temporary, older = (path.with_name(f".{path.name}-{token}.{kind}") for kind in ("tmp", "old"))
    try:
        temporary.mkdir()
        yield temporary
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
