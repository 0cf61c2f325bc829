"""Writing so that a failed or killed run leaves the old file as it was."""

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from isosent.errors import IsosentError, OutputError


def check_destination(path: str | os.PathLike[str], *, reads: Iterable[str | os.PathLike[str] | None] = ()) -> None:
    """Refuse a place where no file can be written, before any work is done.

    Parameters
    ----------
    path : path-like
        The file to write.
    reads : iterable of path-like or None
        What the work reads; None, and what is no file, counts for nothing.

    Raises
    ------
    OutputError
        If it is a directory, its folder does not exist or cannot be written to, or it is one of the files that are
        read.
    """
    path = Path(path)
    for source in reads:
        if source is not None and Path(source).is_file() and path.exists() and path.samefile(source):
            raise OutputError(f"{path} must not be a file that is read, which would be lost. Name another.")

    if path.is_dir():
        raise OutputError(f"{path} must be a file to write; got a directory. Name a file.")
    if path.exists() and not path.is_file():
        raise OutputError(f"{path} must be a regular file; got a device or a pipe. Name a file.")
    check_parent(path)


def check_parent(path: Path) -> None:
    """Refuse a path whose folder does not exist or cannot be written to.

    Parameters
    ----------
    path : Path
        The file or folder to make.

    Raises
    ------
    OutputError
        If that cannot work.
    """
    parent = path.absolute().parent
    if not parent.is_dir():
        raise OutputError(f"{path} must lie in an existing folder; got no folder {parent}. Make it first.")
    if not os.access(parent, os.W_OK):
        raise OutputError(f"{path} must lie in a folder that can be written to; {parent} cannot.")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`; when the block ends well, it becomes `path` in one step.

    Parameters
    ----------
    path : path-like
        The file to write. Its folder must exist.

    Yields
    ------
    Path
        A path, not yet taken, in the same folder and with the same ending.

    Raises
    ------
    OutputError
        If the file cannot be written, the disk is full for one. What was at `path` is still there.
    """
    path = Path(path).resolve()
    check_destination(path)
    temporary = path.with_name(f".{path.stem}-{secrets.token_hex(4)}.tmp{path.suffix}")
    try:
        yield temporary
        flush_to_disk(temporary)
        if path.exists():
            shutil.copymode(path, temporary)
        else:
            as_new_file(temporary)
        temporary.replace(path)
    except OSError as error:
        if isinstance(error, IsosentError):
            raise
        kept = "; the file that was there is intact" if path.exists() else ""
        raise OutputError(f"{path} could not be written: {error.strerror or error}{kept}.") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Let one process at a time write to a folder, where the system has such locks.

    Parameters
    ----------
    folder : Path
        An existing folder.
    wait : bool, default True
        Whether to wait for a process that has it; else it is refused.

    Yields
    ------
    None
        While this process has it.

    Raises
    ------
    OutputError
        If another process has it, without `wait`.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(f"{folder} must be free; another process writes to it. Wait for that one.") from None
        yield
    finally:
        os.close(descriptor)


def as_new_file(path: Path) -> None:
    """Give a file the permissions that new files get; some libraries write for their owner alone.

    Parameters
    ----------
    path : Path
        The file.
    """
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def flush_to_disk(path: Path) -> None:
    """Wait until the content of a file is on the disk, so that the rename never precedes it.

    Parameters
    ----------
    path : Path
        The file.
    """
    with path.open("rb+") as file:
        os.fsync(file.fileno())
