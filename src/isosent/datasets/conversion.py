"""From a file of the hub to the file that the readers of tasks know."""

from __future__ import annotations

import gzip
import json
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from isosent.datasets.manifest import DataFile
from isosent.errors import FileFormatError
from isosent.files.bounds import LARGEST_JSON, read_document

_STSB_UNUSED = "\t" * 4  # genre, file, year and id, which no reader needs
_RTE_LABELS = ("entailment", "not_entailment")


def converted(file: DataFile, source: Path) -> bytes:
    """Make the content of a file.

    Parameters
    ----------
    file : DataFile
        What is wanted.
    source : Path
        The file of the hub.

    Returns
    -------
    bytes
        The content.

    Raises
    ------
    FileFormatError
        If the file of the hub is damaged, or is not what it is said to be.
    """
    try:
        return CONVERSIONS[file.how](file, source)
    except (ValueError, LookupError, TypeError, EOFError, OSError, zlib.error, tarfile.TarError) as error:
        what = f"it lacks {error.args[0]}" if isinstance(error, KeyError) else error
        raise FileFormatError(f"{source} must hold what {file.path} is made from; it does not: {what}.") from error


def _copy(file: DataFile, source: Path) -> bytes:
    return source.read_bytes()


def _gunzip(file: DataFile, source: Path) -> bytes:
    return _unpacked(source)


def _unpacked(source: Path) -> bytes:
    with gzip.open(source) as file:
        return read_document(str(source), cast("IO[bytes]", file), LARGEST_JSON)


def _member(file: DataFile, source: Path) -> bytes:
    with tarfile.open(source) as archive:
        content = archive.extractfile(file.member) if file.member in archive.getnames() else None
        if content is None:
            raise KeyError(file.member)
        return read_document(str(source), content, LARGEST_JSON)


def _stsb(file: DataFile, source: Path) -> bytes:
    """The seven columns of the STS benchmark, out of packed JSON lines."""
    lines = _unpacked(source).decode().split("\n")
    rows = [json.loads(line) for line in lines if line]
    return _lines([f"{_STSB_UNUSED}{row['score']:.6g}\t{row['sentence1']}\t{row['sentence2']}" for row in rows], 6)


def _rte(file: DataFile, source: Path) -> bytes:
    """The table of GLUE, without a column of labels where they are not public."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(source).to_pylist()
    names = ["index", "sentence1", "sentence2", "label"][: 4 if rows[0]["label"] >= 0 else 3]
    fields = [[str(row["idx"]), row["sentence1"], row["sentence2"], _RTE_LABELS[row["label"]]] for row in rows]
    return _lines(["\t".join(line[: len(names)]) for line in (names, *fields)], len(names) - 1)


CONVERSIONS: Mapping[str, Callable[[DataFile, Path], bytes]] = {
    "copy": _copy,
    "gunzip": _gunzip,
    "member": _member,
    "stsb": _stsb,
    "rte": _rte,
}


def _lines(lines: Sequence[str], n_tabs: int) -> bytes:
    if any(line.count("\t") != n_tabs or "\n" in line for line in lines):
        raise ValueError("its texts must be free of tabs and line feeds")
    return "".join(f"{line}\n" for line in lines).encode()
