"""The note of an export: ``isosent.json`` in a folder, ``FILE.isosent.json`` beside a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from isosent.errors import FileFormatError, InputFileError
from isosent.io.checksum import folder_checksums, verify_folder
from isosent.io.json import check_schema, read_json
from isosent.io.schemas import ExportNote
from isosent.io.space import note_path

NOTE_FILE = "isosent.json"
FORMAT = "isosent-export"
_READ = (".json", ".jinja", ".txt", ".model", ".onnx", ".safetensors")
_UNCHECKED = (NOTE_FILE, "README.md")  # the note has its own checksum, and people edit the card


def exported_checksums(folder: Path) -> dict[str, str]:
    """Checksum of every file of an exported folder, for its note."""
    return folder_checksums(folder, without=_UNCHECKED)


def is_replaceable(folder: Path) -> bool:
    """Whether a folder is an export and nothing else: files that its note does not list may be somebody's own."""
    try:
        document = read_json(folder / NOTE_FILE)
    except OSError:
        return False
    listed = document.get("checksums")
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    # exports from before checksums list nothing
    return document.get("format") == FORMAT and (not listed or files <= {*listed, *_UNCHECKED})


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
        if document.get("format") == FORMAT:  # those from before checksums have none
            check_schema(document, str(folder / NOTE_FILE), ExportNote)
            try:
                verify_folder(folder, {n: c for n, c in document.get("checksums", {}).items() if _is_needed(folder, n)})
            except FileFormatError as error:
                raise FileFormatError(f"{error} If it was changed on purpose, remove {NOTE_FILE}.") from None


def is_noted(path: str | os.PathLike[str], target: str) -> bool:
    """Whether the note of an export is there, and one of that format; for a folder, or a file with its note beside."""
    try:
        document = read_json(_note_of(path))
    except OSError:
        return False
    return bool(document.get("format") == FORMAT and document.get("target") == target)


def read_export_note(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the note of an exported folder, or the one beside a file; an `InputFileError` where there is none."""
    note = _note_of(path)
    try:
        document: dict[str, Any] = read_json(note)
    except FileNotFoundError:
        raise InputFileError(f"{note} must be the note of an export; there is no such file.") from None
    if document.get("format") != FORMAT:
        raise FileFormatError(f"{note} must be the note of an export; it holds something else.")
    check_schema(document, str(note), ExportNote)
    return document


def _note_of(path: str | os.PathLike[str]) -> Path:
    return Path(path) / NOTE_FILE if Path(path).is_dir() else note_path(Path(path))
