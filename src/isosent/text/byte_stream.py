"""The bytes of a file, plain, gzipped, or a member of a zip archive."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from isosent import _check
from isosent.errors import FileFormatError, InputFileError
from isosent.files import bounds

Progress = Callable[[int], object]

_HEAD_BYTES = 1 << 20
_BLOCK_BYTES = 8 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
_LARGEST_DEFLATE_RATIO = 1032
_NOT_MEANT = "__MACOSX/"


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file, or a member of a zip archive.

    Parameters
    ----------
    path : Path
        The file or the archive.
    member : str or None
        The member; None for a file, or for the only member of an archive.
    """

    path: Path
    member: str | None = None

    @classmethod
    def of(cls, written: str | os.PathLike[str]) -> FilePlace:
        """Read ``FILE`` or ``ARCHIVE.zip!MEMBER``.

        Parameters
        ----------
        written : path-like
            A path. Where there is none of that name, what follows an exclamation mark is a member.

        Returns
        -------
        FilePlace
            Where the bytes are.

        Raises
        ------
        InputFileError
            If there is no such file, it is empty, or a directory.
        """
        text = os.fspath(written)
        for position, character in enumerate(text):
            if character == "!" and Path(text[:position]).is_file() and not Path(text).exists():
                return cls(_check.input_file(text[:position]), text[position + 1 :])
        return cls(_check.input_file(text))

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}!{self.member}"


@dataclass(frozen=True, slots=True, eq=False)
class ByteStream:
    """Bytes that are read once, from their beginning.

    Parameters
    ----------
    place : FilePlace
        Where they come from, for messages.
    head : bytes
        The first of them.
    is_packed : bool
        Whether they are compressed or in an archive.
    most_bytes : int
        There are no more than this.
    """

    place: FilePlace
    head: bytes
    is_packed: bool
    most_bytes: int
    _file: IO[bytes]
    _on_disk: IO[bytes]
    _progress: Progress | None

    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes, `head` first, and tell `progress` the bytes of the file on the disk that they took.

        Yields
        ------
        bytes
            A piece, not empty.

        Raises
        ------
        FileFormatError
            If a packed file grows beyond `bounds.LARGEST_EXPANSION`.
        """
        told, piece = 0, self.head
        n_bytes = len(piece)
        most = max(bounds.FREELY_EXPANDED, bounds.LARGEST_EXPANSION * self.place.path.stat().st_size)
        while piece:
            if self._progress is not None:
                self._progress(self._on_disk.tell() - told)
                told = self._on_disk.tell()
            yield piece
            piece = self._file.read(_BLOCK_BYTES)
            n_bytes += len(piece)
            if self.is_packed and n_bytes > most:
                raise FileFormatError(
                    f"{self.place} unpacks to more than {bounds.LARGEST_EXPANSION} times its size; word vectors do "
                    "not. Unpack it first if you trust it."
                )


@contextmanager
def open_bytes(place: FilePlace, progress: Progress | None = None) -> Iterator[ByteStream]:
    """Open a file, and tell what it is packed in by its content.

    Parameters
    ----------
    place : FilePlace
        The file.
    progress : callable or None, default None
        Told the bytes that were read from the disk since the last call.

    Yields
    ------
    ByteStream
        The bytes, unpacked.

    Raises
    ------
    FileFormatError
        If the packing is damaged (also while the block reads), or the archive has no such member, or several and none
        is named.
    """
    with place.path.open("rb") as on_disk:
        magic, size = on_disk.read(4), place.path.stat().st_size
        on_disk.seek(0)
        if magic == _ZIP_MAGIC:
            kind = "zip archive"
        elif place.member is not None:
            raise FileFormatError(f"{place.path} must be a zip archive; it starts otherwise.")
        else:
            kind = "gzip file"
        try:
            if magic == _ZIP_MAGIC:
                with zipfile.ZipFile(on_disk) as archive:
                    found = _member(place, archive)
                    with archive.open(found) as file:
                        yield ByteStream(place, file.read(_HEAD_BYTES), True, found.file_size, file, on_disk, progress)
            elif magic[:2] == _GZIP_MAGIC:
                with gzip.open(on_disk) as unpacked:
                    most_bytes = size * _LARGEST_DEFLATE_RATIO
                    yield ByteStream(
                        place,
                        unpacked.read(_HEAD_BYTES),
                        True,
                        most_bytes,
                        cast("IO[bytes]", unpacked),
                        on_disk,
                        progress,
                    )
            else:
                yield ByteStream(place, on_disk.read(_HEAD_BYTES), False, size, on_disk, on_disk, progress)
        except (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
            raise FileFormatError(f"{place} is not a whole {kind}: {error}.") from None


def _member(place: FilePlace, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = {
        info.filename: info
        for info in archive.infolist()
        if not info.is_dir() and not info.filename.startswith(_NOT_MEANT)
    }
    listed = ", ".join(members) or "none"
    if place.member is None and len(members) != 1:
        one = next(iter(members), "MEMBER")
        raise InputFileError(f"{place.path} must hold one file; it holds: {listed}. Name one: {place.path}!{one}")
    found = next(iter(members.values())) if place.member is None else members.get(place.member)
    if found is None:
        raise InputFileError(f"{place.path} has no member {place.member}; it has: {listed}.")
    if found.flag_bits & 1:
        raise FileFormatError(f"{place.path}: member {found.filename} must not be encrypted; it is. Unpack it first.")
    return found
