"""Checksums of files that isosent writes, by which damage is noticed before a file is used."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import IO, Final

import xxhash

from isosent._check import DATA_SET_FILE
from isosent.errors import FileFormatError
from isosent.io.system import open_to_read

# xxh3 reads 5 to 15 times as many bytes per second as blake2b on one core; bench/checksums.py measures it
_PREFIX: Final = "xxh3:"
_N_DIGITS: Final = 32
UNSEALED: Final = _PREFIX + "0" * _N_DIGITS
PATTERN: Final = rf"^{_PREFIX}[0-9a-f]{{{_N_DIGITS}}}$"

_CHUNK_BYTES: Final = 1 << 20

FileState = tuple[int, int, int]


def checksum_of(content: bytes) -> str:
    """Checksum of bytes."""
    return _PREFIX + xxhash.xxh3_128_hexdigest(content)


def sealed(content: bytes) -> bytes:
    """Replace the last `UNSEALED` in `content` by its checksum."""
    before, _, after = content.rpartition(UNSEALED.encode())
    return before + checksum_of(content).encode() + after


def is_intact(content: bytes, seal: str) -> bool:
    """Whether bytes that hold `seal` are those that were sealed with it."""
    before, middle, after = content.rpartition(seal.encode())
    return bool(middle) and checksum_of(before + UNSEALED.encode() + after) == seal


class HashingFile:
    """A file that is written front to back, and the checksum of what was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._digest = file, xxhash.xxh3_128()
        self.closed = False

    def write(self, content: bytes | memoryview) -> int:
        """Write bytes."""
        self._digest.update(content)
        return self._file.write(content)

    def flush(self) -> None:
        """Hand what was written to the system."""
        self._file.flush()

    def tell(self) -> int:
        """Bytes written."""
        return self._file.tell()

    @property
    def checksum(self) -> str:
        """Checksum of all that was written."""
        return _PREFIX + self._digest.hexdigest()


def file_checksum(path: Path) -> str:
    """Checksum of a file."""
    with open_to_read(path) as file:
        return open_file_checksum(file)


def open_file_checksum(file: IO[bytes], seal_at: int | None = None) -> str:
    """Checksum of an open file from its position on; the seal that starts at byte `seal_at` counts as zeros."""
    digest = xxhash.xxh3_128()
    if seal_at is not None:
        while (n_left := seal_at - file.tell()) > 0 and (chunk := file.read(min(_CHUNK_BYTES, n_left))):
            digest.update(chunk)
        file.seek(seal_at + len(UNSEALED))
        digest.update(UNSEALED.encode())
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return _PREFIX + digest.hexdigest()


def file_state(path: Path) -> FileState:
    """What changes when a file is replaced or written to: its inode, its size, and the time of its last change.

    Of a data set of Hugging Face, the sums of those of its files.
    """
    files = [path, *(path.parent.glob("data-*.arrow") if path.name == DATA_SET_FILE else ())]
    states = [file.stat() for file in files]
    return sum(s.st_ino for s in states), sum(s.st_size for s in states), sum(s.st_mtime_ns for s in states)


def open_file_state(file: IO[bytes]) -> FileState:
    """The same of an open file."""
    state = os.fstat(file.fileno())
    return state.st_ino, state.st_size, state.st_mtime_ns


def check_unchanged(path: Path, state: FileState | None) -> None:
    """Refuse a file that was replaced since it had a state; called when it has been opened again."""
    # Parts of two files must never be taken for one.
    if state not in (None, file_state(path)):
        raise FileFormatError(f"{path} was replaced while it was read. Read it again.")


def verify_file(path: Path, checksum: str, seal_at: int | None = None, state: FileState | None = None) -> None:
    """Refuse a file whose bytes have changed since `checksum` was taken; read once per process and version."""
    require_checksum(str(path), checksum, _checksum_of_version(path, seal_at, state or file_state(path)))


def require_checksum(name: str, expected: str, actual: str) -> None:
    """Refuse a file whose checksum is not the one it was written with."""
    if actual != expected:
        raise damaged(name)


def damaged(name: str) -> FileFormatError:
    """What is raised for a file whose checksum differs."""
    return FileFormatError(
        f"{name}: damaged or edited. Its bytes are not those that isosent wrote (the checksum differs). "
        "Restore it from a copy, or write it again."
    )


@lru_cache(maxsize=1024)
def _checksum_of_version(path: Path, seal_at: int | None, state: FileState) -> str:
    with open_to_read(path) as file:
        check_unchanged(path, state)
        return open_file_checksum(file, seal_at)


def seal_file(path: Path, seal_at: int, checksum: str) -> None:
    """Replace `UNSEALED` in a file by its checksum."""
    with path.open("rb+") as file:
        file.seek(seal_at)
        file.write(checksum.encode())


def folder_checksums(folder: Path, *, without: Iterable[str] = ()) -> dict[str, str]:
    """Checksum of every file below a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: file_checksum(names[name]) for name in names if name not in set(without)}


def verify_folder(folder: Path, checksums: dict[str, str]) -> None:
    """Refuse a folder in which a file of a list is missing or has changed."""
    for name, checksum in checksums.items():
        path = folder / name
        if not path.is_file():
            raise FileFormatError(f"{folder}: {name} is missing. Copy the whole folder.")
        verify_file(path, checksum)
