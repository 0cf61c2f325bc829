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
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from isosent import _extras
from isosent._check import brief
from isosent.errors import InputError, InputFileError, IsosentError, OutputError
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.space import INDEX_FILE, NOTE_ENDING, note_path
from isosent.io.vectors import ShardIndex, check_complete, check_shard_folder, is_folder
from isosent.io.vectors import read_index as _read_index
from isosent.io.vectors import write_index as _write_index

_REMOTE: Final = re.compile(r"^(?!https?:|file:|hf:)[a-z][a-z0-9+.-]+://")
_GLOB: Final = re.compile(r"[*?\[]")
_MOST_STAGED: Final = 2  # files that a worker keeps a copy of
_PIECE_BYTES: Final = 8 << 20
_LONGEST_NAME: Final = 100  # characters of a copy
_NOTED: Final = (".npy", ".fvecs")  # files that have a note beside them
_UNFINISHED: Final = re.compile(r"\..+-\d+\.tmp")  # uploads

State = tuple[int, int]


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the URL of a file on another machine."""
    return bool(_REMOTE.match(os.fspath(path)))


def joined(folder: str | os.PathLike[str], name: str) -> str:
    """Path of a file in a folder."""
    return f"{os.fspath(folder).rstrip('/')}/{name}" if is_remote(folder) else str(Path(folder) / name)


def state_of(path: str) -> State | None:
    """Size and time of the last change; None for standard input and pipes, and where no time is known."""
    if is_remote(path):
        info = _info(path)
        return None if info.mtime_ns is None else (int(info.size or 0), int(info.mtime_ns))
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


def expanded(patterns: Sequence[str], endings: Sequence[str], *, as_parts: bool = True) -> list[str]:
    """List the files that are named: files, the files of a folder with one of the endings, and globs.

    A folder of shards is one input; elsewhere its parts are, in their order, unless `as_parts` is false.
    """
    found: list[str] = []
    for pattern in patterns:
        base, _, name = pattern.rpartition("/")
        if _is_folder(pattern):
            paths = _inputs_in(pattern, tuple(endings), as_parts)
        elif _GLOB.search(pattern) and not _exists(pattern):
            if _GLOB.search(base) and not _is_folder(base):
                raise InputError(f"{pattern}: only the last part of a path may hold *, ? or [.")
            paths = sorted(path for path in _listed(base or ".") if fnmatchcase(path.rpartition("/")[2], name))
        else:
            found.append(pattern)
            continue
        if not paths:
            raise InputError(f"{pattern}: no file there, or none that ends in {', '.join(endings)}.")
        found += paths
    return found


def _inputs_in(folder: str, endings: tuple[str, ...], as_parts: bool) -> list[str]:
    if is_remote(folder) and as_parts and (index := read_index(folder)):
        check_complete(folder, index)
        names = [index.shard_name(number) for number in range(index.n_shards)]
        return [joined(folder, name) for name in names if name.endswith(endings)]
    if INDEX_FILE in sizes(folder) if is_remote(folder) else (Path(folder) / INDEX_FILE).exists():
        return [folder]
    return sorted(path for path in _listed(folder) if path.lower().endswith(endings))


def _exists(path: str) -> bool:
    if is_remote(path):
        return bool(_info(path, must_exist=False).type.name != "NotFound")
    try:
        return Path(path).exists()
    except OSError:
        return False


def _is_folder(path: str) -> bool:
    if is_remote(path):
        return path.endswith("/") or _info(path, must_exist=False).type.name == "Directory"
    return is_folder(path)


def _listed(folder: str) -> list[str]:
    """Paths of the files in a folder, but for hidden ones."""
    if is_remote(folder):
        return [joined(folder, name) for name in sizes(folder, must_exist=True) if not name.startswith(".")]
    if not Path(folder).is_dir():
        raise InputFileError(f"{folder} must exist; got no such folder.")
    return [str(path) for path in Path(folder).iterdir() if path.is_file() and not path.name.startswith(".")]


class Staged:
    """Local copies of remote files and folders of shards; the latest `most` are kept."""

    def __init__(self, most: int = _MOST_STAGED) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._most, self._kept = most, dict[str, Path]()

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
            if len(self._kept) >= self._most:
                _remove_copy(self._kept.pop(next(iter(self._kept))))
            name = path.rstrip("/").rpartition("/")[2][-_LONGEST_NAME:]  # its ending is needed
            copy = Path(self._folder.name) / f"{sha256(path.encode()).hexdigest()[:16]}-{name}"
            _copy(path, copy)
            self._kept[path] = copy
        return str(self._kept[path])

    def named(self, message: str) -> str:
        """Put addresses in place of the paths of copies."""
        for path, copy in self._kept.items():
            message = message.replace(str(copy), path)
        return message

    def rename(self, error: IsosentError) -> None:
        """Put addresses in place of the paths of copies in a message."""
        error.args = tuple(self.named(each) if isinstance(each, str) else each for each in error.args)


@contextmanager
def copied(paths: Sequence[str]) -> Iterator[tuple[list[str], Callable[[str], str]]]:
    """Copy what is remote, for as long as it is read; and how messages name the files that were copied."""
    with closing(Staged(len(paths))) as staged:
        try:
            yield [staged.path_of(path) for path in paths], staged.named
        except IsosentError as error:
            staged.rename(error)
            raise


def _copy(url: str, copy: Path) -> None:
    """Copy a folder of shards, or a file with the note beside it."""
    if _is_folder(url):
        copy.mkdir()
        for name in sizes(url):
            _download(joined(url, name), copy / name)
        return
    _download(url, copy)
    if copy.suffix.lower() in _NOTED and _exists(url + NOTE_ENDING):
        _download(url + NOTE_ENDING, note_path(copy))


def _remove_copy(copy: Path) -> None:
    if copy.is_dir():
        shutil.rmtree(copy)
    else:
        copy.unlink(missing_ok=True)
        note_path(copy).unlink(missing_ok=True)


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
                _upload(each, joined(folder, each.name))


# -- a folder of shards ----------------------------------------------------------------------------------------------


def check_folder(folder: str) -> None:
    """Refuse a place where no shards can be written, before any work is done."""
    if not is_remote(folder):
        check_shard_folder(Path(folder))
    elif (names := [each for each in sizes(folder) if not _UNFINISHED.fullmatch(each)]) and INDEX_FILE not in names:
        raise OutputError(f"{folder} must be empty, or hold shards with their {INDEX_FILE}; got {min(names)}.")


def sweep_folder(folder: str) -> None:
    """Remove what killed uploads left in a folder elsewhere."""
    for name in filter(_UNFINISHED.fullmatch, sizes(folder)):
        with _reaching(folder):
            system, path = _filesystem(joined(folder, name))
            system.delete_file(path)


def sizes(folder: str, *, must_exist: bool = False) -> dict[str, int]:
    """Size in bytes of each file of a folder, by its name; without links, which may lead elsewhere."""
    if not is_remote(folder):
        with os.scandir(folder) as entries:
            return {each.name: each.stat().st_size for each in entries if each.is_file(follow_symlinks=False)}
    fs = _extras.require("pyarrow.fs")

    with _reaching(folder):
        system, path = _filesystem(folder)
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=not must_exist))
        return {each.base_name: int(each.size or 0) for each in found if each.is_file}


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
    """Remove a folder of shards, its index last: a run that is killed meanwhile is resumed."""
    if not is_remote(folder):
        for each in Path(folder).iterdir():
            if each.name != INDEX_FILE and each.is_file():
                each.unlink()
        shutil.rmtree(folder)
        return
    with _reaching(folder):
        for name in sizes(folder):
            if name != INDEX_FILE:
                system, path = _filesystem(joined(folder, name))
                system.delete_file(path)
        system, path = _filesystem(folder)
        system.delete_dir(path)


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
    except Exception as error:
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
