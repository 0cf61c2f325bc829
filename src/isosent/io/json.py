"""JSON files: read with a bound on their size and against a schema, written with a checksum.

Every JSON file that isosent reads passes through here. A schema is a type of msgspec, which may be the record itself.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeVar, overload

import msgspec

from isosent._locks import Lock
from isosent.errors import FileFormatError, InputFileError
from isosent.io.atomic import replacing
from isosent.io.bounds import LARGEST_DOCUMENT, shown_bytes
from isosent.io.checksum import PATTERN, UNSEALED, damaged, is_intact, sealed
from isosent.io.system import read_bytes, system_error

Record = TypeVar("Record")


def without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON cannot write, by None, at any depth."""
    if isinstance(value, dict):
        return {name: without_nan(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def nan_where_none(scores: Mapping[str, float | None]) -> dict[str, float]:
    """Bring back undefined scores from JSON, the inverse of `without_nan` for a mapping of numbers."""
    return {name: math.nan if score is None else float(score) for name, score in scores.items()}


_SEAL: Final = "checksum"
# msgspec studies a type when it first meets it, and crashes if two threads do so at once
_TYPES: Final = Lock()
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")  # an escape can spell a lone surrogate, which UTF-8 cannot


def read_json(path: str | os.PathLike[str], schema: Any = dict[str, Any]) -> Any:
    """Read a JSON file."""
    path = Path(path)
    try:
        if (size := path.stat().st_size) > LARGEST_DOCUMENT:
            raise FileFormatError(f"{path}: {shown_bytes(size)}; at most {shown_bytes(LARGEST_DOCUMENT)} are read.")
        content = read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{path}: no such file.") from None
    except FileFormatError:
        raise
    except OSError as error:
        if unreadable := system_error(error, path):
            raise unreadable from None
        raise InputFileError(f"{path}: cannot be read: {error.strerror or error}.") from None
    return parse_json(content, str(path), schema)


def parse_json(content: bytes | str, where: str, schema: Any = dict[str, Any]) -> Any:
    """Parse JSON from memory; `where` names it in messages. Otherwise as `read_json`."""
    content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    try:
        document = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where}: damaged, truncated or not JSON: {error}.") from None
    if _SURROGATE.search(content) and not _is_unicode(document):
        raise FileFormatError(f"{where}: holds a lone surrogate, which is not valid Unicode.")
    seal = document.get(_SEAL) if isinstance(document, dict) else None
    if isinstance(seal, str) and re.match(PATTERN, seal) and not is_intact(content, seal):
        raise damaged(where)
    check_schema(document, where, schema)
    return document


def decode(content: bytes, schema: type[Record]) -> Record:
    """Read JSON of others, such as a request, into a record; what msgspec raises is left to the caller."""
    with _TYPES:
        return msgspec.json.decode(content, type=schema)


@overload
def check_schema(value: Any, where: str, schema: type[Record]) -> Record: ...
@overload
def check_schema(value: Any, where: str, schema: UnionType) -> Any: ...
def check_schema(value: Any, where: str, schema: Any) -> Any:
    """Convert JSON values to the type of a schema, and refuse those that do not fit; the message says where."""
    try:
        with _TYPES:
            return msgspec.convert(value, schema)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError) as error:
        raise FileFormatError(f"{where}: {str(error).removesuffix('.')}.") from None


def _is_unicode(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def check_format(document: Any, where: str, name: str, format_version: int) -> None:
    """Refuse a document of another format or version; checked before its schema, for a clearer message."""
    actual = document.get("format") if isinstance(document, dict) else None
    if actual != name:
        raise FileFormatError(
            f"{where}: expected the format {name}, found {'none' if actual is None else repr(actual):.60}."
        )
    if document.get("format_version") != format_version:
        raise FileFormatError(
            f"{where}: format version {document.get('format_version')!r}; isosent {version('isosent')} reads "
            f"version {format_version}. It was written by isosent {document.get('isosent_version') or '(unknown)'}: "
            "install that one."
        )


def format_of(path: str | os.PathLike[str]) -> str | None:
    """The format that a JSON file names, whatever else is in it; None where it names none."""
    try:
        content = read_bytes(path) if Path(path).stat().st_size <= LARGEST_DOCUMENT else b""
        return str(json.loads(content)["format"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        if unreadable := system_error(error, path):
            raise unreadable from error
        return None


def read_document(path: str | os.PathLike[str], name: str, format_version: int, schema: Any) -> dict[str, Any]:
    """Read a file that `write_document` wrote: its format and version are checked, then its schema."""
    document: dict[str, Any] = read_json(path)
    check_format(document, str(path), name, format_version)
    check_schema(document, str(path), schema)
    return document


def read_record(path: str | os.PathLike[str], name: str, format_version: int, record: type[Record]) -> Record:
    """Read a file as `read_document` does, into a record."""
    return check_schema(read_document(path, name, format_version, record), str(path), record)


def document_bytes(document: dict[str, Any]) -> bytes:
    """A document as JSON that ends with its own checksum."""
    content = json.dumps(document | {_SEAL: UNSEALED}, indent=2, ensure_ascii=False) + "\n"
    return sealed(content.encode("utf-8", "replace"))  # names of files may hold bytes that are no text


def write_document(path: str | os.PathLike[str], document: dict[str, Any]) -> None:
    """Write a document in one step; an `OutputError` leaves what was there."""
    with replacing(path) as temporary:
        temporary.write_bytes(document_bytes(document))
