"""Files that were converted once, in the user's cache."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from isosent.errors import CacheWarning, FileFormatError, OutputError
from isosent.files.atomic import replacing
from isosent.files.user_cache import user_cache
from isosent.text.byte_stream import FilePlace
from isosent.text.vector_file import VERSION, StoredVectors, open_vector_file


def open_cached(place: FilePlace) -> tuple[StoredVectors, str] | None:
    """Open the converted file of another one.

    Parameters
    ----------
    place : FilePlace
        The file that was converted.

    Returns
    -------
    tuple of (StoredVectors, str) or None
        As `open_vector_file` gives it; None where there is none, or a damaged one.
    """
    path = _cache_file(place)
    if not path.is_file():
        return None
    try:
        return open_vector_file(path)
    except (FileFormatError, OSError):
        return None


def write_cached(place: FilePlace, write: Callable[[Path], None]) -> None:
    """Convert a file into the cache, in place of what older states of it left there.

    Parameters
    ----------
    place : FilePlace
        The file.
    write : callable
        Takes a path and writes the converted file to it.

    Warns
    -----
    CacheWarning
        If the cache cannot be written.
    """
    path = _cache_file(place)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(path) as temporary:
            write(temporary)
    except OutputError as error:
        warnings.warn(
            f"{place} is read whole each time, as it cannot be converted: {error} Set ISOSENT_CACHE to another folder.",
            CacheWarning,
            stacklevel=2,
        )
        return
    for older in path.parent.glob(f"{path.name.partition('-')[0]}-*"):
        if older.name != path.name:
            with suppress(OSError):
                older.unlink()


def _cache_file(place: FilePlace) -> Path:
    """A name made of where the file is and, behind a hyphen, of the state it is in."""
    state = place.path.stat()
    where, when = f"{place.path.resolve()}!{place.member}", f"{state.st_size} {state.st_mtime_ns} {VERSION}"
    hashes = [hashlib.sha256(part.encode("utf-8", "surrogateescape")).hexdigest()[:16] for part in (where, when)]
    return user_cache("word_vectors") / f"{'-'.join(hashes)}.safetensors"
