"""The index folder: a manifest that names all other files, renamed into place last, and one writer at a time.

A writer only adds files, under names that contain the number of the commit. A process that is killed at any moment
leaves the last manifest and the files that it names. Readers keep their files open: a writer may remove them meanwhile.

`State` is what the manifest holds. `writing` locks the folder for one writer, and `changing` for one change, after
which it sweeps (`remove_unnamed`); `write_file` and `write_bytes` add a file with its checksum; `write_state` commits.
`read_state` reads the last commit, `verify` one of its files, and `manifest_state` says whether a writer committed
meanwhile. `replacing_index` gives a new folder that takes the place of another.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta, Struct, to_builtins
from numpy.typing import NDArray

from isosent import _extras
from isosent._check import brief
from isosent.encoders.reference import folder_kind
from isosent.errors import FileFormatError, InputError, InputFileError, OutputError, next_step
from isosent.io.atomic import Replaceable, check_folder, is_temporary, locked, replacing, replacing_folder, sweep
from isosent.io.checksum import FileState, checksum_of, file_state, verify_file
from isosent.io.json import check_format, check_schema, format_of, read_json, write_document
from isosent.io.notes import INDEX_FILE
from isosent.io.schemas import Checksum, Count, Document, FileName, Positive
from isosent.io.system import disk_error, system_error
from isosent.search.engine import Kind, SearchSettings
from isosent.search.rows import IdKind
from isosent.space import Space

FORMAT, FORMAT_VERSION = "isosent-index", 1
MANIFEST = "manifest.json"
MODEL_FOLDER = "model"
_DRIFTED: Final = 0.05  # of the recall of product codes alone; of texts of the same kind it differs by 0.025 at most
QUERY_FOLDER = "queries"  # of a static model that encodes queries
_FILES: Final = re.compile(
    r"(rows|codes|vectors|keywords|deleted|chance)-\d{6,}(-\d+)?\.(parquet|faiss|npy|safetensors)"
)

Share = Annotated[float, Meta(ge=0, le=1)]


class FileEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the folder."""

    name: FileName
    checksum: Checksum


class SegmentEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """The files of rows that are searched together."""

    n_rows: Count
    rows: FileEntry
    codes: FileEntry
    vectors: FileEntry | None = None
    keywords: FileEntry | None = None


class CodebookFit(Struct, frozen=True, forbid_unknown_fields=True):
    """Recall of product codes alone, among a sample of the rows."""

    recall: Share  # with the codebooks of the index
    refitted: Share  # with codebooks that are fitted on rows of the sample


class Recall(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was measured when the first segment was built."""

    recall: Share  # of the ten nearest others, on average, against an exact search of the vectors of the index
    n_queries: Positive
    n_rows: Positive
    min_recall: Share  # what was asked for
    original_recall: Share | None = None  # of the same queries, against an exact search of the vectors before the map
    codebooks: CodebookFit | None = None  # of product codes, when the index was compacted

    @property
    def has_drifted(self) -> bool:
        """Whether codebooks that are fitted on the rows as they are now would keep clearly more of their neighbors."""
        return self.codebooks is not None and self.codebooks.refitted - self.codebooks.recall > _DRIFTED


class QueryRecall(Struct, frozen=True, forbid_unknown_fields=True):
    """Which share of the ten nearest rows of the model's own queries a static model finds for texts of the index."""

    recall: Share
    reranked: Share  # if the model ranks the best hundred again
    n_queries: Positive


class State(Struct, frozen=True, forbid_unknown_fields=True):
    """What an index holds after a commit."""

    generation: Positive  # the number of commits
    space: Space
    dim: Positive
    settings: SearchSettings
    kind: Kind | None  # that was asked for; None: chosen again when the index is compacted
    ids: IdKind
    next_number: Count
    segments: Annotated[tuple[SegmentEntry, ...], Meta(min_length=1)]
    deleted: FileEntry | None = None  # positions, counted over all segments
    n_deleted: Count = 0
    chance: FileEntry | None = None
    recall: Recall | None = None  # None for fewer rows than can be measured
    n_changed: Count = 0  # rows that were added, replaced or deleted since, each id once
    queries: QueryRecall | None = None  # None: the model encodes queries

    @property
    def n_rows(self) -> int:
        """Rows of all segments, deleted ones included."""
        return sum(segment.n_rows for segment in self.segments)

    @property
    def files(self) -> list[FileEntry]:
        """All files but the manifest and the model."""
        named: list[FileEntry | None] = [self.deleted, self.chance]
        for segment in self.segments:
            named += [segment.rows, segment.codes, segment.vectors, segment.keywords]
        return [entry for entry in named if entry is not None]


class _Manifest(Document):
    index: State


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds an index, damaged or not."""
    return format_of(Path(path) / MANIFEST) == FORMAT


INDEX = Replaceable("an isosent index", is_index)


def check_index_folder(folder: Path) -> bool:
    """Refuse, before any work, a folder that cannot become an index; whether it holds one, which is replaced."""
    _extras.require("faiss")  # the extra is named before a file is read
    return check_folder(folder, INDEX)


def read_state(folder: Path) -> State:
    """Read the manifest of an index."""
    try:
        document = read_json(folder / MANIFEST)
    except FileNotFoundError:
        raise _no_index(folder) from None
    check_format(document, str(folder / MANIFEST), FORMAT, FORMAT_VERSION)
    _drop_parts(document, folder)
    state = check_schema(document, str(folder / MANIFEST), _Manifest).index
    names = [entry.name for entry in state.files]
    if len(set(names)) < len(names):  # each would be opened, and take memory, again
        raise FileFormatError(f"{folder / MANIFEST}: names a file twice. Copy the index again.")
    return state


def _drop_parts(document: dict[str, Any], folder: Path) -> None:
    """Take from settings of an earlier version the parts of its product codes, which had another form."""
    index = document.get("index")
    settings = index.get("settings") if isinstance(index, dict) else None
    if isinstance(settings, dict) and settings.pop("n_parts", 0):
        raise FileFormatError(f"{folder}: its product codes were made by an earlier version. Make the index again.")


def _no_index(folder: Path) -> InputFileError:
    """The error for what is no index: what it is instead, and how to make an index of it."""
    what, command = "there is no such folder", "isosent index TEXTS -o INDEX"
    call = "Index.create(texts, model, folder=...)"
    if folder.is_file():
        what, command = "it is a file", f"isosent index {folder} -o INDEX"
    elif folder.is_dir() and folder_kind(folder) is not None:
        what, command = "it is a model", f"isosent index TEXTS -m {folder} -o INDEX"
    elif (folder / INDEX_FILE).exists():
        what, command = "it is a folder of vectors", f"isosent index {folder} -o INDEX"
        call = "Index.create(vectors=..., folder=...)"
    elif folder.is_dir():
        what = f"it has no {MANIFEST}"
    return InputFileError(f"{folder} is not an index: {what}. Make one: {next_step(command, call)}")


def write_state(folder: Path, state: State) -> None:
    """Write the manifest: with this, a commit takes place."""
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "isosent_version": version("isosent")}
    write_document(folder / MANIFEST, head | {"index": to_builtins(state)})


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Let one process at a time commit to an index, or replace it; a second one is refused."""
    if not folder.is_dir():
        raise InputFileError(f"{folder} is not an index of isosent: there is no such folder.")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{folder} cannot be written to.")
    inode = folder.stat().st_ino
    with locked(folder, wait=False):
        if folder.stat().st_ino != inode:
            raise OutputError(f"{folder}: another process has just replaced it. Open it again.")
        sweep(folder)
        yield


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Let one process at a time change an index; of a change that fails, no file stays."""
    try:
        with writing(folder):
            try:
                yield
            finally:
                with suppress(OSError, InputError):
                    remove_unnamed(folder, read_state(folder))
    except Exception as error:
        reason = disk_error(error)
        if reason is None:
            raise
        raise OutputError(f"{folder} could not be written: {reason}; its last commit is intact.") from error


@contextmanager
def replacing_index(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary folder that takes the place of `folder`, unless somebody is writing to an index there."""
    with ExitStack() as stack, replacing_folder(folder, INDEX) as temporary:
        was_index = is_index(folder)
        if was_index:
            stack.enter_context(writing(Path(folder)))
        yield temporary
        if not was_index and is_index(folder):  # made meanwhile
            stack.enter_context(writing(Path(folder)))


def remove_unnamed(folder: Path, state: State) -> None:
    """Remove files that no commit names any more."""
    named = {entry.name for entry in state.files}
    for path in list(folder.iterdir()):
        if path.name not in named and _FILES.fullmatch(path.name) and not is_temporary(path.name):
            with suppress(OSError):  # on Windows, while a reader has it open
                path.unlink()


def remove_temporary(home: str, maker: int) -> None:
    """Remove the folder of a temporary index, but not for a forked child of the process that made it."""
    if os.getpid() == maker:
        shutil.rmtree(home, ignore_errors=True)


def manifest_state(folder: Path) -> FileState | None:
    """The state of the manifest, which changes with each commit; None if there is no manifest."""
    try:
        return file_state(folder / MANIFEST)
    except OSError:
        return None


def verify(folder: Path, entry: FileEntry) -> None:
    """Refuse a file that is missing or has changed since it was written."""
    path = folder / entry.name
    try:
        verify_file(path, entry.checksum, state=file_state(path))
    except FileNotFoundError:
        raise FileFormatError(f"{folder}: {entry.name} is missing. Copy the whole folder.") from None


def write_file(folder: Path, name: str, write: Callable[[Path], str]) -> FileEntry:
    """Write a file in one step; `write` returns its checksum."""
    with replacing(folder / name) as temporary:
        checksum = write(temporary)
    return FileEntry(name, checksum)


def write_bytes(folder: Path, name: str, content: bytes) -> FileEntry:
    """Write a small file in one step."""

    def write(path: Path) -> str:
        path.write_bytes(content)
        return checksum_of(content)

    return write_file(folder, name, write)


def array_bytes(array: NDArray[Any]) -> bytes:
    """An array as a .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def read_array(path: Path) -> NDArray[Any]:
    """Read an array of a .npy file by memory map."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        if unreadable := system_error(error, path):
            raise unreadable from None
        reason = brief(error).partition(": <")[0]  # numpy shows an object of its parser
        raise FileFormatError(f"{path} is no array saved by numpy, or it is damaged: {reason}.") from None
