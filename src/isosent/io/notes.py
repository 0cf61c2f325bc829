"""Notes, which say in which space the vectors of a file lie: next to a file of vectors, or to an export.

The note of a file of vectors (`VectorNote`) has one entry per file: `write_note` adds one, and `read_note` checks that
it is of this very file. The note of an export (`ExportNote`) has the checksums of its files, which `verify_export`
compares; `shared_space` reads there in which space of another model the vectors of a distilled one lie, and
`fitted_texts` which texts it has seen.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from isosent.errors import FileFormatError, InputFileError
from isosent.io.atomic import replacing
from isosent.io.checksum import folder_checksums, verify_folder
from isosent.io.json import check_schema, document_bytes, read_document, read_json
from isosent.io.schemas import (
    Checksum,
    Count,
    Document,
    Fields,
    FileList,
    Finite,
    Positive,
    SealedFile,
    Seconds,
    Sha256,
    Text,
    Whole,
)
from isosent.io.system import open_to_read, read_bytes
from isosent.io.tensors import read_tensors
from isosent.space import Space

FORMAT = "isosent-vectors"
FORMAT_VERSION = 2

INDEX_FILE = "shards.json"  # of a folder of shards

NOTE_ENDING = ".isosent.json"
SUMS_ENDING = ".tokens.safetensors"  # beside a shard: sums of the vectors of its tokens
_SAMPLES, _SAMPLE_BYTES = 64, 4096


class NotedFile(Struct, forbid_unknown_fields=True, kw_only=True):
    """One state of the file that a note describes."""

    size_bytes: Count
    sample_sha256: Sha256
    checksum: Checksum | None = None
    fingerprint: str | None = None
    reference: Text | None = None
    shape: tuple[Count, Positive] | None = None
    dtype: str | None = None


class VectorNote(Document):
    """``FILE.isosent.json`` next to an array."""

    files: Annotated[list[NotedFile], Meta(min_length=1, max_length=2)]


def file_identity(path: Path) -> dict[str, Any]:
    """What distinguishes a file from others without reading all of it: its size, and a hash of 64 stretches of it."""
    size, digest = path.stat().st_size, hashlib.sha256()
    last = max(0, size - _SAMPLE_BYTES)
    with open_to_read(path) as file:
        for start in sorted({last * i // (_SAMPLES - 1) for i in range(_SAMPLES)}):
            file.seek(start)
            digest.update(file.read(_SAMPLE_BYTES))
    return {"size_bytes": size, "sample_sha256": digest.hexdigest()}


def note_path(path: Path) -> Path:
    """Name of the note next to a file."""
    path = path.resolve() if path.is_symlink() else path
    return path.with_name(path.name + NOTE_ENDING)


def note_entry(path: Path, checksum: str, facts: Mapping[str, Any], space: Space | None) -> dict[str, Any]:
    """What a note says of a file: its identity, its checksum, ``shape`` and ``dtype`` of its vectors, their space."""
    return file_identity(path) | {"checksum": checksum, **facts, **(space.to_json() if space else {})}


def older_entry(path: Path) -> dict[str, Any] | None:
    """What a note says of the file that is about to be replaced; None if there is no file."""
    if not path.is_file():
        return None
    with suppress(InputFileError):  # a damaged note is replaced with its file
        if entry := _entry_of(path):
            return entry
    return file_identity(path)


def write_note(path: Path, entry: dict[str, Any], older: dict[str, Any] | None = None) -> None:
    """Write the note next to a file.

    Just before the file is replaced, the note describes both the new file and the older one, so that a kill between
    the two leaves a note that fits.
    """
    note = note_path(path)
    entries = [entry] if older in (None, entry) else [entry, older]
    content = document_bytes({"format": FORMAT, "format_version": FORMAT_VERSION, "files": entries})
    if not note.exists() or read_bytes(note) != content:
        with replacing(note, mode_of=path) as temporary:
            temporary.write_bytes(content)


def read_note(path: Path) -> tuple[Space | None, str | None]:
    """Read the space and the checksum of a file from the note next to it; None where it has none."""
    if not note_path(path).exists():
        return None, None
    entry = _entry_of(path) or _entry_of(path)  # once more: another process may be replacing both
    if entry is None:
        raise FileFormatError(
            f"{note_path(path)} describes other content than {path.name} has now: one of the two is damaged, or was "
            f"replaced. Restore both from a copy, or write both again; if {path.name} was replaced on purpose, remove "
            "the note."
        )
    space = Space.of(entry) if "fingerprint" in entry else None
    return space, entry.get("checksum")


def _entry_of(path: Path) -> dict[str, Any] | None:
    """The entry for a file in the note next to it; None without a note, or if it describes other content."""
    note = note_path(path)
    try:
        document = read_document(note, FORMAT, FORMAT_VERSION, VectorNote)
    except FileNotFoundError:
        return None
    except FileFormatError as error:
        raise FileFormatError(f"{error} Remove it, or write it and {path.name} again.") from None
    identity = file_identity(path).items()
    return next((entry for entry in document["files"] if identity <= entry.items()), None)


# -- notes of exports: isosent.json in a folder, FILE.isosent.json beside a file -------------------------------------


NOTE_FILE = "isosent.json"
TEXTS_FILE = "texts.safetensors"
EXPORT_FORMAT = "isosent-export"
_READ = (".json", ".jinja", ".txt", ".model", ".onnx", ".safetensors")
_UNCHECKED = (NOTE_FILE, "README.md")  # the note has its own checksum, and people edit the card


class _Agreement(Fields):
    n_vectors: Whole
    largest_difference: Seconds
    lowest_cosine: Finite


class _FilesOfRole(Fields):
    tokenizer: str | None
    graph: str


class _ExportedFile(Fields):
    size_bytes: Whole
    sample_sha256: Sha256
    checksum: Checksum
    fingerprint: str
    reference: Text


class _KeptNearest(Struct):
    static: Finite


class _Distilled(Struct):  # what is shown of it; the rest may change
    n_texts: Whole
    n_held_out: Whole
    cosine: Finite
    nearest: _KeptNearest


class ExportNote(SealedFile, kw_only=True):
    """What every note of an export says."""

    target: str
    isosent_version: str
    fingerprint: str
    reference: Text
    normalize: bool
    model: dict[str, Any]
    agreement: _Agreement
    inputs: str | None = None


class _FolderNote(ExportNote, kw_only=True):
    """``isosent.json`` in an exported folder."""

    checksums: dict[str, Checksum]
    tei: bool = False
    output: str | None = None
    files: dict[str, _FilesOfRole] | None = None  # of ONNX
    shares: Space | None = None  # the space of another model, in which the vectors of this one lie
    distilled: _Distilled | None = None  # how well


class _IndexNote(ExportNote, kw_only=True):
    """``FILE.isosent.json`` next to an index of FAISS."""

    index: str
    recipe: str = ""  # how an index with a finer copy is searched
    files: Annotated[list[_ExportedFile], Meta(min_length=1, max_length=2)]


def exported_checksums(folder: Path) -> dict[str, str]:
    """Checksum of every file of an exported folder, for its note."""
    return folder_checksums(folder, without=_UNCHECKED)


def is_replaceable(folder: Path) -> bool:
    """Whether a folder is an export and nothing else: files that its note does not list may be the user's."""
    try:
        document = read_json(folder / NOTE_FILE, FileList)
    except (FileNotFoundError, FileFormatError):
        return False
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    return document.get("format") == EXPORT_FORMAT and files <= {*(document.get("checksums") or ()), *_UNCHECKED}


def verify_export(folder: Path) -> None:
    """Refuse an exported folder whose files have changed since; a folder that is no export passes."""
    try:
        _verify(folder)
    except FileFormatError:
        _verify(folder)  # a second look: another process may just have put a new export in place


def _is_needed(folder: Path, name: str) -> bool:
    """Whether a listed file must be there to open the folder; a download leaves out the others."""
    return (folder / name).is_file() or (name.endswith(_READ) and not name.startswith(("onnx/", "openvino/")))


def _verify(folder: Path) -> None:
    if (folder / NOTE_FILE).is_file():
        document = read_json(folder / NOTE_FILE)
        if document.get("format") == EXPORT_FORMAT:
            check_schema(document, str(folder / NOTE_FILE), _FolderNote)
            try:
                verify_folder(folder, {n: c for n, c in document["checksums"].items() if _is_needed(folder, n)})
            except FileFormatError as error:
                raise FileFormatError(f"{error} If it was changed on purpose, remove {NOTE_FILE}.") from None


def is_noted(path: str | os.PathLike[str], target: str) -> bool:
    """Whether a folder, or a file with its note next to it, is an export to this target."""
    try:
        document = read_json(_export_note_path(path))
    except (FileNotFoundError, FileFormatError):
        return False
    return bool(document.get("format") == EXPORT_FORMAT and document.get("target") == target)


def read_export_note(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the note of an exported folder, or the one next to a file; an `InputFileError` where there is none."""
    note = _export_note_path(path)
    try:
        document: dict[str, Any] = read_json(note)
    except FileNotFoundError:
        raise InputFileError(f"{note}: there is no such note of an export.") from None
    if document.get("format") != EXPORT_FORMAT:
        raise FileFormatError(f"{note} is not the note of an export.")
    check_schema(document, str(note), _FolderNote if Path(path).is_dir() else _IndexNote)
    return document


def shared_space(folder: Path) -> Space | None:
    """The space of another model in which the vectors of an exported folder lie; None without one."""
    if not (folder / NOTE_FILE).is_file():
        return None
    shares = read_json(folder / NOTE_FILE).get("shares")
    return None if shares is None else check_schema(shares, str(folder / NOTE_FILE), Space)


def fitted_texts(folder: Path) -> NDArray[np.uint64] | None:
    """Sorted hashes of the texts that the model in an exported folder was distilled from; None if they are not kept."""
    path = folder / TEXTS_FILE
    if not path.is_file() or not (folder / NOTE_FILE).is_file():  # another tool may give a file this name
        return None
    hashes = read_tensors(path, ())[0].get("hashes")
    if hashes is None or hashes.ndim != 1 or hashes.dtype != np.uint64:
        raise FileFormatError(f"{path}: damaged. It holds no hashes of texts. Remove it, or distil again.")
    return hashes


def _export_note_path(path: str | os.PathLike[str]) -> Path:
    return Path(path) / NOTE_FILE if Path(path).is_dir() else note_path(Path(path))
