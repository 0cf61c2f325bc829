"""What the operating system refuses: which file it was, and why. Such an error says nothing about a file's content."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Value = TypeVar("Value")

# others, such as "invalid argument", may well come from what a file holds
_SYSTEM_ERRORS: Final = {
    *(errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.EROFS),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EACCES, errno.EPERM),
    *(errno.ESTALE, errno.ETIMEDOUT, errno.ENODEV, errno.ENXIO),
}
# how native libraries spell them when they raise no OSError: faiss, safetensors, torch
_SPELLED: Final = re.compile(
    "|".join(re.escape(os.strerror(code)) for code in _SYSTEM_ERRORS)
    + rf"|(?:os error|system error number) (?P<code>{'|'.join(map(str, _SYSTEM_ERRORS))})\b"
    + "|(?P<torch>PytorchStreamWriter failed writing)"
)
_CODES: Final = {os.strerror(code): code for code in _SYSTEM_ERRORS}
_ADVICE: Final = {
    errno.ENOSPC: " Free some space, then try again.",
    errno.EDQUOT: " Free some space, then try again.",
    errno.EIO: " The disk, or the connection to it, may fail: check it, then try again.",
    errno.EMFILE: " Allow more open files: ulimit -n 4096.",
}


def system_code(error: BaseException) -> int | None:
    """The number of the system's error behind an exception; None for one that is about something else."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in _SYSTEM_ERRORS else None
    if match := _SPELLED.search(str(error)):
        if match["torch"]:  # without a reason: of all, a full disk is the likely one
            return errno.ENOSPC
        return int(match["code"]) if match["code"] else _CODES[match[0]]
    return None


def disk_error(error: BaseException | None) -> str | None:
    """Why the system could not write; None if neither an error nor its causes say so."""
    visited = set()  # causes may go in a circle
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        if (code := system_code(error)) is not None:
            return os.strerror(code)
        error = error.__cause__ or error.__context__
    return None


def system_error(error: BaseException, path: str | os.PathLike[str]) -> OSError | None:
    """The system's error behind an exception, with the name of the file; None for one that is about its content."""
    code = system_code(error)
    return None if code is None else OSError(code, os.strerror(code), str(path))


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name a file in the system's errors, which say nothing but "too many open files", or so."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def sentence(error: OSError) -> str:
    """A message for people: which file, what was wrong, what to do."""
    name = error.filename if isinstance(error.filename, (str, bytes, os.PathLike)) else "standard output"
    reason = error.strerror or str(error) or "it could not be read or written"
    return f"{os.fsdecode(name)}: {reason.rstrip('.')}.{_ADVICE.get(error.errno or 0, '')}"


def uninterrupted(call: Callable[[], Value]) -> Value:
    """Call native code again where a signal interrupted one of its calls; Python does so for its own."""
    while True:
        try:
            return call()
        except Exception as error:  # errors of onnxruntime share no base class
            if system_code(error) != errno.EINTR:
                raise


def open_to_read(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a file of bytes; errors while it is read name it, as those while it is opened do."""
    return io.BufferedReader(_NamedFile(os.fspath(path)))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file; errors name it."""
    with open_to_read(path) as file:
        return file.read()


class _NamedFile(io.FileIO):
    def readinto(self, buffer: WriteableBuffer, /) -> int:
        with naming(str(self.name)):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with naming(str(self.name)):
            return super().readall()
