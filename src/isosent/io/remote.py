"""Files on other machines: s3://, gs://, hdfs:// and what else pyarrow or fsspec can read; and the same for local ones.

A remote file is copied when it is first read, and a remote result is copied when it is complete, so that readers and
writers only see local files.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from isosent import _extras
from isosent._check import brief
from isosent.errors import InputError, InputFileError, IsosentError, OutputError
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.space import INDEX_FILE, note_path
from isosent.io.vectors import ShardIndex, check_shard_folder
from isosent.io.vectors import read_index as _read_index
from isosent.io.vectors import write_index as _write_index

_REMOTE: Final = re.compile(r"^(?!https?:|file:|hf:)[a-z][a-z0-9+.-]+://")
_GLOB: Final = re.compile(r"[*?\[]")
_MOST_STAGED: Final = 2  # files that a worker keeps a copy of
_PIECE_BYTES: Final = 8 << 20

State = tuple[int, int]


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the URL of a file on another machine."""
    return bool(_REMOTE.match(os.fspath(path)))


def joined(folder: str | os.PathLike[str], name: str) -> str:
    """Path of a file in a folder."""
    return f"{os.fspath(folder).rstrip('/')}/{name}" if is_remote(folder) else str(Path(folder) / name)


def state_of(path: str) -> State | None:
    """Size and time of the last change; None for standard input and pipes, which have none."""
    if is_remote(path):
        info = _info(path)
        return int(info.size or 0), int(info.mtime_ns or 0)
    try:
        found = (Path(path) / INDEX_FILE if Path(path).is_dir() else Path(path)).stat()
    except (OSError, ValueError):
        return None  # the reader says why
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def is_pipe(path: str) -> bool:
    """Whether a path is standard input or a pipe, which can be opened only once."""
    if is_remote(path):
        return False
    try:
        return path == STANDARD_INPUT or (not stat.S_ISREG(Path(path).stat().st_mode) and not Path(path).is_dir())
    except (OSError, ValueError):
        return False


def expanded(patterns: Sequence[str], endings: Sequence[str]) -> list[str]:
    """List the files that are named: files, the files of a folder with one of the endings, and globs."""
    found: list[str] = []
    for pattern in patterns:
        base, _, name = pattern.rpartition("/")
        if _GLOB.search(name) and (is_remote(pattern) or not Path(pattern).exists()):
            if _GLOB.search(base):
                raise InputError(f"{pattern}: only the last part of a path may hold *, ? or [.")
            paths = [path for path in _listed(base or ".") if fnmatchcase(path.rpartition("/")[2], name)]
        elif _is_folder(pattern) and not (Path(pattern) / INDEX_FILE).exists():
            paths = [path for path in _listed(pattern) if path.lower().endswith(tuple(endings))]
        else:
            found.append(pattern)
            continue
        if not paths:
            raise InputError(f"{pattern}: no file there, or none that ends in {', '.join(endings)}.")
        found += sorted(paths)
    return found


def _is_folder(path: str) -> bool:
    if is_remote(path):
        return path.endswith("/") or _info(path, must_exist=False).type.name == "Directory"
    try:
        return Path(path).is_dir()
    except OSError:
        return False


def _listed(folder: str) -> list[str]:
    """Paths of the files in a folder."""
    if not is_remote(folder):
        if not Path(folder).is_dir():
            raise InputFileError(f"{folder} must exist; got no such folder.")
        return [str(path) for path in Path(folder).iterdir() if path.is_file() and not path.name.startswith(".")]
    fs = _extras.require("pyarrow.fs")

    with _reaching(folder):
        system, path = _filesystem(folder)
        scheme = folder.partition("://")[0]
        found = system.get_file_info(fs.FileSelector(path))
        return [f"{folder.rstrip('/')}/{each.base_name}" if scheme else each.path for each in found if each.is_file]


class Staged:
    """Local copies of remote files; the latest ones are kept."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._kept: dict[str, Path] = {}

    def close(self) -> None:
        """Remove the copies."""
        if self._folder is not None:
            self._folder.cleanup()
        self._folder, self._kept = None, {}

    def path_of(self, path: str) -> str:
        """Path of a file on this machine."""
        if not is_remote(path):
            return path
        if path not in self._kept:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="isosent-")
            if len(self._kept) == _MOST_STAGED:
                self._kept.pop(next(iter(self._kept))).unlink(missing_ok=True)
            copy = Path(self._folder.name) / f"{sha256(path.encode()).hexdigest()[:16]}-{path.rpartition('/')[2]}"
            _download(path, copy)
            self._kept[path] = copy
        return str(self._kept[path])


@contextmanager
def destination(folder: str, name: str) -> Iterator[Path]:
    """Where to write a file of a folder; a remote one is copied there when it is complete, its note first."""
    if not is_remote(folder):
        yield Path(folder) / name
        return
    with tempfile.TemporaryDirectory(prefix="isosent-") as temporary:
        path = Path(temporary) / name
        yield path
        for each in (note_path(path), path):
            if each.exists():
                _upload(each, joined(folder, each.name))


# -- a folder of shards ----------------------------------------------------------------------------------------------


def check_folder(folder: str) -> None:
    """Refuse a place where no shards can be written, before any work is done."""
    if not is_remote(folder):
        check_shard_folder(Path(folder))
    elif (names := sizes(folder)) and INDEX_FILE not in names:
        raise OutputError(f"{folder} must be empty, or hold shards with their {INDEX_FILE}; got {min(names)}.")


def sizes(folder: str) -> dict[str, int]:
    """Size in bytes of each file of a folder, by its name."""
    if not is_remote(folder):
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    fs = _extras.require("pyarrow.fs")

    with _reaching(folder):
        system, path = _filesystem(folder)
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return {each.base_name: int(each.size) for each in found if each.is_file}


def read_index(folder: str) -> ShardIndex | None:
    """Read the index of a folder of shards; None if there is none."""
    if not is_remote(folder):
        return _read_index(Path(folder))
    if INDEX_FILE not in sizes(folder):
        return None
    with tempfile.TemporaryDirectory() as temporary:
        _download(joined(folder, INDEX_FILE), Path(temporary) / INDEX_FILE)
        return _read_index(Path(temporary))


def write_index(folder: str, index: ShardIndex) -> None:
    """Write the index of a folder of shards, replacing the one that is there."""
    with destination(folder, INDEX_FILE) as path:
        _write_index(path.parent, index)


def remove(folder: str) -> None:
    """Remove a folder of shards."""
    if is_remote(folder):
        with _reaching(folder):
            system, path = _filesystem(folder)
            system.delete_dir(path)
    else:
        shutil.rmtree(folder)


# -- file systems ----------------------------------------------------------------------------------------------------


def _filesystem(url: str) -> tuple[Any, str]:
    scheme, _, path = url.partition("://")
    return _system_of(scheme, path.partition("/")[0]), path.rstrip("/")


@lru_cache(maxsize=16)
def _system_of(scheme: str, host: str) -> Any:
    """The file system of a URL. Keys and addresses of services are those of the environment, as for other tools."""
    fs = _extras.require("pyarrow.fs")

    if scheme in ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"):
        return fs.FileSystem.from_uri(f"{scheme}://{host}/")[0]
    import fsspec  # a dependency of huggingface-hub

    return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme)))


@contextmanager
def _reaching(url: str, error_type: type[IsosentError] = InputFileError) -> Iterator[None]:
    """Turn what file systems raise into an error that names the URL."""
    try:
        yield
    except IsosentError:
        raise
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise error_type(f"{url} cannot be reached: {brief(error)}.") from None


def _info(url: str, *, must_exist: bool = True) -> Any:
    with _reaching(url):
        system, path = _filesystem(url)
        info = system.get_file_info(path)
        if must_exist and info.type.name == "NotFound":
            raise InputFileError(f"{url} must exist; got no such file.")
        return info


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
