"""Files and folders here and elsewhere: s3://, gs://, hdfs://, hf://datasets/ and what else pyarrow or fsspec reaches.

This is the one place that knows which of the two a path is. All that is above sees local files only:

- `Staged` and `local_copies` copy a remote file, with the note next to it, or a folder when it is first read.
- `destination` gives a local path to write to; the complete file is uploaded, under a temporary name first where the
  file system has no atomic uploads.
- `sizes`, `exists`, `is_folder` and `state_of` ask about a place, and `remove` and `sweep_uploads` clear it.

The last section reaches the file systems: each function there takes a URL.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from isosent import _extras
from isosent._check import brief
from isosent.errors import InputFileError, IsosentError, OutputError
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.formats import format_by_name
from isosent.io.notes import INDEX_FILE, NOTE_ENDING, note_path

_REMOTE: Final = re.compile(r"^(?!https?:|file:|hf:(?!//datasets/))[a-z][a-z0-9+.-]+://")
_MOST_STAGED: Final = 2  # files that a worker keeps a copy of
_PIECE_BYTES: Final = 8 << 20
_LONGEST_NAME: Final = 100  # characters of a copy
_UNFINISHED: Final = re.compile(r"\..+-\d+\.tmp")  # uploads

State = tuple[int, int]


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the URL of a file on another machine."""
    return bool(_REMOTE.match(os.fspath(path)))


def path_in(folder: str | os.PathLike[str], name: str) -> str:
    """Path of a file in a folder."""
    return f"{os.fspath(folder).rstrip('/')}/{name}" if is_remote(folder) else str(Path(folder) / name)


def state_of(path: str) -> State | None:
    """Size and time of the last change; None for standard input and pipes, and where no time is known."""
    if is_remote(path):
        info = _info(path)
        return None if info.mtime_ns is None else (int(info.size or 0), int(info.mtime_ns))
    try:
        state = (Path(path) / INDEX_FILE if Path(path).is_dir() else Path(path)).stat()
    except (OSError, ValueError):
        return None  # the reader says why
    return (state.st_size, state.st_mtime_ns) if stat.S_ISREG(state.st_mode) else None


def is_pipe(path: str) -> bool:
    """Whether a path is standard input or a pipe, which can be opened only once."""
    if is_remote(path):
        return False
    try:
        return path == STANDARD_INPUT or (not stat.S_ISREG(Path(path).stat().st_mode) and not Path(path).is_dir())
    except (OSError, ValueError):
        return False


def exists(path: str) -> bool:
    """Whether there is a file or a folder."""
    if is_remote(path):
        return bool(_info(path, must_exist=False).type.name != "NotFound")
    try:
        return Path(path).exists()
    except OSError:  # a name that is too long
        return False


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a folder."""
    if is_remote(path):
        url = os.fspath(path)
        return url.endswith("/") or _info(url, must_exist=False).type.name == "Directory"
    try:
        return Path(path).is_dir()
    except OSError:
        return False


def files_in(folder: str) -> list[str]:
    """Paths of the files in a folder, but for hidden ones."""
    if is_remote(folder):
        return [path_in(folder, name) for name in sizes(folder, must_exist=True) if not name.startswith(".")]
    if not Path(folder).is_dir():
        raise InputFileError(f"{folder}: no such folder.")
    return [str(path) for path in Path(folder).iterdir() if path.is_file() and not path.name.startswith(".")]


def sizes(folder: str, *, must_exist: bool = False) -> dict[str, int]:
    """Size in bytes of each file of a folder, by its name; without links, which may lead elsewhere."""
    if not is_remote(folder):
        with os.scandir(folder) as entries:
            return {each.name: each.stat().st_size for each in entries if each.is_file(follow_symlinks=False)}
    fs = _extras.require("pyarrow.fs")

    with _reaching(folder):
        system, path = _filesystem(folder)
        infos = system.get_file_info(fs.FileSelector(path, allow_not_found=not must_exist))
        return {info.base_name: int(info.size or 0) for info in infos if info.is_file}


# -- reading: copies on this machine ---------------------------------------------------------------------------------


class Staged:
    """Local copies of remote files and folders of shards; the latest `most` are kept."""

    def __init__(self, most: int = _MOST_STAGED) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._most, self._copies = most, dict[str, Path]()

    def close(self) -> None:
        """Remove the copies."""
        if self._folder is not None:
            self._folder.cleanup()
        self._folder, self._copies = None, {}

    def path_of(self, path: str) -> str:
        """Path of a file on this machine."""
        if not is_remote(path):
            return path
        if path not in self._copies:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="isosent-")
            if len(self._copies) >= self._most:
                _remove_copy(self._copies.pop(next(iter(self._copies))))
            name = path.rstrip("/").rpartition("/")[2][-_LONGEST_NAME:]  # its ending is needed
            copy = Path(self._folder.name) / f"{sha256(path.encode()).hexdigest()[:16]}-{name}"
            _copy(path, copy)
            self._copies[path] = copy
        return str(self._copies[path])

    def with_addresses(self, message: str) -> str:
        """Put addresses in place of the paths of copies."""
        for path, copy in self._copies.items():
            message = message.replace(str(copy), path)
        return message

    def rename(self, error: IsosentError) -> None:
        """Put addresses in place of the paths of copies in a message."""
        error.reword(self.with_addresses)


@contextmanager
def local_copies(paths: Sequence[str]) -> Iterator[tuple[list[str], Callable[[str], str]]]:
    """Copy what is remote, for as long as it is read; and how messages name the files that were copied."""
    with closing(Staged(len(paths))) as staged:
        try:
            yield [staged.path_of(path) for path in paths], staged.with_addresses
        except IsosentError as error:
            staged.rename(error)
            raise


def _copy(url: str, copy: Path) -> None:
    """Copy a folder of shards, or a file with the note next to it."""
    if is_folder(url):
        copy.mkdir()
        for name in sizes(url):
            _download(path_in(url, name), copy / name)
        return
    _download(url, copy)
    if format_by_name(copy).has_note and exists(url + NOTE_ENDING):
        _download(url + NOTE_ENDING, note_path(copy))


def _remove_copy(copy: Path) -> None:
    if copy.is_dir():
        shutil.rmtree(copy)
    else:
        copy.unlink(missing_ok=True)
        note_path(copy).unlink(missing_ok=True)


# -- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def destination(folder: str, name: str) -> Iterator[Path]:
    """Where to write a file of a folder; a remote one is copied there when it is complete, its note first."""
    if not is_remote(folder):
        path = Path(folder) / name
        for each in (path, path.with_name(name + NOTE_ENDING)):
            if each.is_symlink():
                each.unlink(missing_ok=True)  # it would lead elsewhere
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="isosent-") as temporary:
        path = Path(temporary) / name
        yield path
        for each in (note_path(path), path):
            if each.exists():
                _upload(each, path_in(folder, each.name))


def is_upload(name: str) -> bool:
    """Whether a name is that of a file that is still being uploaded, or was when a process was killed."""
    return _UNFINISHED.fullmatch(name) is not None


def sweep_uploads(folder: str) -> None:
    """Remove what killed uploads left in a folder elsewhere."""
    for name in filter(is_upload, sizes(folder)):
        _delete(path_in(folder, name))


def remove(folder: str) -> None:
    """Remove a folder of shards, its index last: a run that is killed meanwhile is resumed."""
    if is_remote(folder):
        for name in sizes(folder):
            if name != INDEX_FILE:
                _delete(path_in(folder, name))
        with _reaching(folder):
            system, path = _filesystem(folder)
            system.delete_dir(path)
        return
    for each in Path(folder).iterdir():
        if each.name != INDEX_FILE and each.is_file():
            each.unlink()
    shutil.rmtree(folder)


# -- file systems ----------------------------------------------------------------------------------------------------


def _filesystem(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path on it. Keys and addresses of services are those of the environment."""
    fs = _extras.require("pyarrow.fs")

    scheme, _, rest = url.partition("://")
    if scheme in ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"):
        host, _, path = rest.partition("/")
        system, base = _system_of(f"{scheme}://{host}/")
        return system, f"{base.rstrip('/')}/{path}".rstrip("/")
    import fsspec  # a dependency of huggingface-hub

    system, path = fsspec.core.url_to_fs(url)
    return fs.PyFileSystem(fs.FSSpecHandler(system)), path.rstrip("/")


@lru_cache(maxsize=16)
def _system_of(url: str) -> tuple[Any, str]:
    system, base = _extras.require("pyarrow.fs").FileSystem.from_uri(url)
    return system, base


@contextmanager
def _reaching(url: str, error_type: type[IsosentError] = InputFileError) -> Iterator[None]:
    """Turn what file systems raise, which may be anything, into an error that names the URL."""
    try:
        yield
    except IsosentError:
        raise
    except FileNotFoundError:
        raise error_type(f"{url}: no such file.") from None
    except Exception as error:
        raise error_type(f"{url} cannot be reached: {brief(error)}.") from None


def _info(url: str, *, must_exist: bool = True) -> Any:
    with _reaching(url):
        system, path = _filesystem(url)
        info = system.get_file_info(path)
        if must_exist and info.type.name == "NotFound":
            raise InputFileError(f"{url}: no such file.")
        return info


def _delete(url: str) -> None:
    with _reaching(url):
        system, path = _filesystem(url)
        system.delete_file(path)


def _download(url: str, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with _reaching(url):
        system, name = _filesystem(url)
        with system.open_input_stream(name) as file, temporary.open("wb") as copy:
            while piece := file.read(_PIECE_BYTES):
                copy.write(piece)
    temporary.rename(path)


def _upload(path: Path, url: str) -> None:
    """Copy a file to its place; file systems without atomic uploads get it under a temporary name first."""
    with _reaching(url, OutputError):
        system, name = _filesystem(url)
        base, _, last = name.rpartition("/")
        is_atomic = system.type_name in ("s3", "gcs", "abfs")
        target = name if is_atomic else f"{base}/.{last}-{os.getpid()}.tmp"
        if not is_atomic:
            system.create_dir(base, recursive=True)
        with path.open("rb") as file, system.open_output_stream(target) as copy:
            while piece := file.read(_PIECE_BYTES):
                copy.write(piece)
        if not is_atomic:
            system.move(target, name)
