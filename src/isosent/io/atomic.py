"""Files and folders that are replaced in one step: a run that is killed leaves the old one or the new one.

- `check_destination` and `check_folder` refuse a place before any work is done.
- `replacing` and `replacing_folder` give a temporary path next to the place. When the block ends well, the content is
  flushed to the disk and the path renamed; two folders are exchanged in one call of the system where it has one.
- A temporary name says which host and process made it, and the process locks the file while it writes. So `sweep` can
  tell what killed processes left, and `recover` puts back what one of them had moved aside.
- `locked` lets one thread of one process at a time write to a folder.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from isosent._locks import Lock
from isosent.errors import IsosentError, OutputError
from isosent.io.system import disk_error

try:
    import fcntl
except ImportError:  # Windows has no such locks: nothing is swept there
    fcntl = None  # type: ignore[assignment]

_TEMPORARY: Final = re.compile(
    r"\.(?P<name>.+)\.isosent-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}\.(?P<kind>tmp|old)(\.[^/]*)?", re.DOTALL
)
_LONGEST_NAME: Final = 150  # bytes of a name that go into a temporary one, which may have 255
_ABANDONED_S: Final = 24 * 3600
_SWEPT: Final[set[str]] = set()  # folders that this process has swept
_IN_USE: Final[set[Path]] = set()  # temporary files and folders of this process
_NO_LOCKS: Final = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF, errno.EINVAL)


# -- checks before any work ------------------------------------------------------------------------------------------


def check_destination(path: str | os.PathLike[str], *, reads: Iterable[str | os.PathLike[str] | None] = ()) -> None:
    """Refuse a path where no file can be written, before any work is done."""
    path = Path(path)
    for source in reads:
        if source is not None and Path(source).is_file() and path.exists() and path.samefile(source):
            raise OutputError(f"{path} is also an input, which would be lost. Name another file.")

    if path.is_dir():
        raise OutputError(f"{path} is a directory. Name a file.")
    if path.exists() and not path.is_file():
        raise OutputError(f"{path} is a device or a pipe. Name a regular file.")
    check_parent(path)


def check_parent(path: Path) -> None:
    """Refuse a path whose folder does not exist or cannot be written to."""
    parent = path.absolute().parent
    if not parent.is_dir():
        raise OutputError(f"{path}: there is no folder {parent}. Make it first.")
    if not os.access(parent, os.W_OK):
        raise OutputError(f"{path}: the folder {parent} cannot be written to. Name another one.")


@dataclass(frozen=True, slots=True)
class Replaceable:
    """What may be replaced by a new folder: its name for messages, and whether a folder is one."""

    name: str
    is_here: Callable[[Path], bool]


def check_folder(path: str | os.PathLike[str], replaceable: Replaceable) -> bool:
    """Refuse a place where no folder can be written, before any work is done; say whether one will be replaced."""
    path = Path(path)
    check_parent(path)
    recover(path)
    is_replaced = path.is_dir() and replaceable.is_here(path)
    if path.exists() and not is_replaced and not (path.is_dir() and not any(path.iterdir())):
        raise OutputError(f"{path} exists, and is neither empty nor {replaceable.name}. Name another folder.")
    return is_replaced


# -- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def replacing(path: str | os.PathLike[str], *, mode_of: Path | None = None) -> Iterator[Path]:
    """Give a temporary path next to `path`; when the block ends well, it becomes `path` in one step."""
    path = Path(path).resolve()
    check_destination(path)
    temporary = _temporary_name(path, "tmp", path.suffix)
    with _in_use(temporary, path, "file") as descriptors:
        descriptors.append(descriptor := _open_to_lock(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR))
        mode = _make_private(temporary)
        if not fcntl or not _lock(descriptor, wait=False):  # Windows renames no file that is open
            _close(descriptor)
        yield temporary
        fsync(temporary)
        like = mode_of if mode_of and mode_of.exists() else path
        temporary.chmod(stat.S_IMODE(like.stat().st_mode) if like.exists() else mode)
        temporary.replace(path)


@contextmanager
def replacing_folder(path: str | os.PathLike[str], replaceable: Replaceable) -> Iterator[Path]:
    """Give a temporary folder next to `path`; when the block ends well, it takes the place of `path` in one step."""
    # Linux and macOS exchange the two folders in one step. Where the system or the file system cannot, there are two
    # renames; `recover` undoes the first if a kill comes between them.
    path = Path(path).resolve()
    check_folder(path, replaceable)
    temporary = _temporary_name(path, "tmp")
    with _in_use(temporary, path, "folder") as descriptors:
        temporary.mkdir()
        mode = _make_private(temporary)
        if fcntl:
            descriptors.append(descriptor := _open_to_lock(temporary))
            _lock(descriptor, wait=False)
        yield temporary
        for inner in temporary.rglob("*"):
            if inner.is_symlink():
                continue
            if inner.is_file():
                inner.chmod(mode & 0o666)  # some libraries write for their owner alone
            fsync(inner)
        temporary.chmod(stat.S_IMODE(path.stat().st_mode) if path.exists() else mode)
        fsync(temporary)
        put_in_place(temporary, path)


@contextmanager
def _in_use(temporary: Path, path: Path, kind: str) -> Iterator[list[int]]:
    """Remove a temporary file or folder and its lock however its use ends; an error says why `path` was not written."""
    descriptors: list[int] = []
    try:
        _sweep_once(path.parent)
        _IN_USE.add(temporary)
        yield descriptors
    except Exception as error:
        if (reason := _write_error(error, temporary)) is None:
            raise
        intact = f"; the {kind} that was there is intact" if path.exists() else ""
        raise OutputError(f"{path} could not be written: {reason}{intact}.") from error
    finally:
        if temporary in _IN_USE:  # a forked child forgets it
            with suppress(OSError):
                if kind == "folder":
                    shutil.rmtree(temporary, ignore_errors=True)
                else:
                    temporary.unlink()
        for descriptor in descriptors:
            _close(descriptor)
        _IN_USE.discard(temporary)


def put_in_place(temporary: Path, path: Path) -> None:
    """Move a folder to its place; what was there is removed."""
    if not path.exists():
        temporary.rename(path)
        return
    if exchange(temporary, path):
        shutil.rmtree(temporary, ignore_errors=True)
        return
    older = _temporary_name(path, "old")
    _IN_USE.add(older)
    try:
        path.rename(older)
        temporary.rename(path)
    finally:
        if not path.exists():  # whatever came between the two, Ctrl-C among them
            older.rename(path)
        shutil.rmtree(older, ignore_errors=True)
        _IN_USE.discard(older)


def remove_folder(path: Path) -> None:
    """Remove a folder at once: a kill leaves all of it, or a temporary name that is swept."""
    temporary = _temporary_name(path, "tmp")
    path.rename(temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def _make_private(temporary: Path) -> int:
    """Let nobody but the owner open a new file or folder; the mode that it would have had."""
    # The mode is read off while it is empty: asking for the umask means to change it for all threads.
    mode = stat.S_IMODE(temporary.stat().st_mode)
    temporary.chmod(0o700 if temporary.is_dir() else 0o600)
    return mode


def _temporary_name(path: Path, kind: str, suffix: str = "") -> Path:
    name = path.name.removesuffix(suffix) if suffix else path.name
    if kind == "tmp":
        name = name.encode()[:_LONGEST_NAME].decode(errors="ignore")
    return path.with_name(f".{name}.isosent-{_host()}-{os.getpid()}-{secrets.token_hex(4)}.{kind}{suffix}")


def _write_error(error: Exception, temporary: Path) -> str | None:
    """Why a file could not be written; None for an error about something else, or one of isosent."""
    if isinstance(error, IsosentError):
        return None
    if isinstance(error, OSError) and error.filename and temporary.name not in str(error.filename):
        return None  # an input that cannot be read
    return error.strerror or str(error) if isinstance(error, OSError) else disk_error(error)


def fsync(path: Path) -> None:
    """Wait until a file or folder is on the disk, so that a rename never precedes its content."""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- exchanging two folders ------------------------------------------------------------------------------------------


def exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False, and nothing done, where the system cannot."""
    rename, flag, directory = _exchange_call()
    if rename is None:
        return False
    if rename(directory, os.fsencode(one), directory, os.fsencode(other), flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):  # the file system has no such thing
        return False
    raise OSError(code, os.strerror(code), str(other))


@cache
def _exchange_call() -> tuple[Callable[..., int] | None, int, int]:
    """The system's call, its flag for an exchange, and the code of the working directory."""
    name, flag, directory = {"linux": ("renameat2", 2, -100), "darwin": ("renameatx_np", 2, -2)}.get(
        sys.platform, ("", 0, 0)
    )
    try:
        call = getattr(ctypes.CDLL(None, use_errno=True), name) if name else None
    except (AttributeError, OSError):
        call = None
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return call, flag, directory


# -- what killed runs leave ------------------------------------------------------------------------------------------


def is_temporary(name: str) -> bool:
    """Whether a name is that of a file or folder that is still being written."""
    return _TEMPORARY.fullmatch(name) is not None


def recover(path: str | os.PathLike[str]) -> None:
    """Put a folder back that a killed process had moved aside to replace it; called before a folder is opened."""
    path = Path(path).absolute()
    with suppress(OSError, ValueError):
        if path.exists() or not path.parent.is_dir():
            return
        for older, match in _temporaries(path.parent):
            if match["kind"] == "old" and match["name"] == path.name and not _may_be_alive(older, match):
                older.rename(path)
                return


def sweep(folder: Path) -> None:
    """Remove what killed processes left in a folder, and put back what they had moved aside."""
    with suppress(OSError):
        for path, match in _temporaries(folder):
            if _may_be_alive(path, match):
                continue
            if match["kind"] == "old":
                recover(folder / match["name"])
                if not (folder / match["name"]).exists():  # never the only copy
                    continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _temporaries(folder: Path) -> list[tuple[Path, re.Match[str]]]:
    """Temporary files and folders in a folder; only their names are read, because there may be many."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if ".isosent-" in entry.name)
    return [(folder / match[0], match) for match in map(_TEMPORARY.fullmatch, names) if match]


def _sweep_once(folder: Path) -> None:
    """Sweep a folder once per process: it may hold many files, and be written to as often."""
    if str(folder) not in _SWEPT:
        _SWEPT.add(str(folder))
        sweep(folder)


def _may_be_alive(path: Path, match: re.Match[str]) -> bool:
    """Whether the process that made a temporary file or folder may still be at work."""
    # On the same host, its process id and its lock must both say that it is gone. Of other hosts on a shared disk
    # nothing is known: what they left is taken for abandoned when it has not changed for a day.
    if path in _IN_USE:
        return True
    if match["host"] != _host() or fcntl is None:
        return time.time() - _last_change(path) < _ABANDONED_S
    if int(match["pid"]) != os.getpid():
        try:
            os.kill(int(match["pid"]), 0)
        except ProcessLookupError:
            pass
        except (OSError, OverflowError):
            return True
        else:
            return True
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return not path.is_symlink()
    try:  # the lock also tells containers apart, whose process ids mean nothing to each other
        return not _lock(descriptor, wait=False)
    finally:
        os.close(descriptor)


def _last_change(path: Path) -> float:
    inner = path.rglob("*") if path.is_dir() and not path.is_symlink() else ()
    return max(float(max(other.lstat().st_mtime, other.lstat().st_ctime)) for other in (path, *inner))


@cache
def _host() -> str:
    """Name of this machine or container among those that share its disk."""
    return hashlib.sha256(platform.node().encode("utf-8", "replace")).hexdigest()[:8]


# -- one writer at a time --------------------------------------------------------------------------------------------


@contextmanager
def locked(folder: Path, *, wait: bool = True, of: Path | None = None) -> Iterator[None]:
    """Let one thread of one process at a time write to a folder, or to that `of` a file for this purpose alone.

    File systems without locks let everybody write.
    """
    state, subject = folder.stat(), of or folder
    with _LOCKS_GUARD:
        lock = _LOCKS.setdefault((state.st_dev, state.st_ino), _FolderLock())
    if not lock.threads.acquire(blocking=wait):
        raise _busy_error(subject)
    try:
        if lock.depth and not wait:  # it is this thread that has it
            raise _busy_error(subject)
        descriptor = _open_to_lock(folder) if fcntl and not lock.depth else -1
        try:
            if descriptor >= 0 and not _lock(descriptor, wait=wait):
                raise _busy_error(subject)
            if descriptor >= 0 and of and not _is_in_place(descriptor, folder):
                raise _busy_error(subject)  # the one who had it is just removing it
            lock.depth += 1
            try:
                yield
            finally:
                lock.depth -= 1
        finally:
            _close(descriptor)
    finally:
        lock.threads.release()


def _is_in_place(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Lock a file or folder; False if another process has it. File systems without locks give them to everybody."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _open_to_lock(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file or folder to lock it."""
    descriptor = os.open(path, flags, 0o666)
    _DESCRIPTORS.add(descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    """Close what `_open_to_lock` returned, unless that was done, or was done by the parent of this process."""
    if descriptor in _DESCRIPTORS:
        _DESCRIPTORS.discard(descriptor)
        with suppress(OSError):  # closing is not enough while a child process that is just starting has it, too
            if fcntl:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


class _FolderLock:
    """A lock of this process on a folder: a thread that has it may take it again, as a system's lock does not allow."""

    def __init__(self) -> None:
        self.threads, self.depth = threading.RLock(), 0


_LOCKS: dict[tuple[int, int], _FolderLock] = {}
_LOCKS_GUARD = Lock()
_DESCRIPTORS: Final[set[int]] = set()  # of what is locked


def _leave_to_parent() -> None:
    """Give up, in a forked child, what the parent locks and writes: the child unlocks and removes nothing of it."""
    _LOCKS.clear()
    _IN_USE.clear()
    for descriptor in _DESCRIPTORS:  # else the lock of a parent that is killed lives on
        with suppress(OSError):
            os.close(descriptor)
    _DESCRIPTORS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _busy_error(folder: Path) -> OutputError:
    return OutputError(f"{folder}: another process or thread is writing to it. Wait for it to finish.")


def user_cache(kind: str) -> Path:
    """Find the folder of one kind of files."""
    root = os.environ.get("ISOSENT_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "isosent" / kind
