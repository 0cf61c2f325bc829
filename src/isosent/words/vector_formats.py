"""Files of word vectors in any format, told apart by their content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from isosent.errors import FileFormatError
from isosent.words.fasttext import MAGIC, NgramTable, fasttext_rows
from isosent.words.formats import ByteStream, FilePlace, Progress, RowBlock, check_dim, open_bytes, text_rows
from isosent.words.vocabulary import Vocabulary
from isosent.words.word2vec import binary_rows, continues_in_binary, read_header

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, eq=False)
class FileRows:
    """A file of word vectors, opened."""

    format: str  # name of its format
    blocks: Iterable[RowBlock]  # its rows, to be read once
    tables: tuple[NgramTable, ...] = ()  # vectors of n-grams; empty where it has none


def is_safetensors(place: FilePlace) -> bool:
    """Tell a .safetensors file by its first bytes."""
    with place.path.open("rb") as file:
        start = file.read(9)
    return start[8:] == b"{" and int.from_bytes(start[:8], "little") < place.path.stat().st_size


def format_of(place: FilePlace) -> str:
    """Name the format of a file."""
    if is_safetensors(place):
        return "isosent safetensors"
    with open_rows(place) as rows:
        return rows.format


@contextmanager
def open_rows(
    place: FilePlace, wanted: Vocabulary | None = None, progress: Progress | None = None
) -> Iterator[FileRows]:
    """Open a file of text, of word2vec's binary format, or of fastText."""
    with open_bytes(place, progress) as stream:
        if stream.head.startswith(MAGIC):
            if stream.is_packed:
                raise FileFormatError(f"{place} must not be packed, being a fastText model. Unpack it first.")
            blocks, table = fasttext_rows(place, wanted, progress)
            rows = FileRows("fastText binary", blocks, () if table is None else (table,))
        else:
            rows = _plain_rows(stream, wanted)
        yield FileRows(rows.format, _at_least_one(place, rows.blocks), rows.tables)


def _plain_rows(stream: ByteStream, wanted: Vocabulary | None) -> FileRows:
    """Rows of text or of word2vec."""
    where = str(stream.place)
    pieces = stream.pieces()
    head = next(pieces, b"").removeprefix(_BYTE_ORDER_MARK)
    first_line, _, postprocessing = head.partition(b"\n")
    header = read_header(first_line)
    if header is None:
        return FileRows("text", text_rows(where, chain([head], pieces), None, wanted))
    n_rows, dim = header
    check_dim(f"{where}, line 1", dim)
    if not continues_in_binary(postprocessing, dim):
        return FileRows("text with header", text_rows(where, chain([postprocessing], pieces), header, wanted))
    if n_rows * (4 * dim + 2) > stream.most_bytes:
        raise FileFormatError(
            f"{where} must hold {n_rows} vectors of {dim} floats, as its header says; it ends before."
        )
    return FileRows("word2vec binary", binary_rows(where, chain([postprocessing], pieces), header, wanted))


def _at_least_one(place: FilePlace, blocks: Iterable[RowBlock]) -> Iterator[RowBlock]:
    block = None
    for block in blocks:
        yield block
    if block is None:
        raise FileFormatError(f"{place} must hold at least one word vector; got none.")
