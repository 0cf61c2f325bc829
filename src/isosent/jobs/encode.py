"""Encodes texts in a file block by block, into one file of vectors."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import WINDOW, EncodingStats, collecting_stats
from isosent.encoders.load import encoder_for
from isosent.errors import InputError
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.formats import format_by_name
from isosent.io.texts import CountedTexts, TextSource, open_texts, text_blocks
from isosent.io.typed_tables import VECTOR_COLUMN, OtherColumns
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import check_vector_file, open_vectors, writing_vectors
from isosent.jobs.moments import EncodedSource
from isosent.jobs.vectors import groups_of_rows, narrowed
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import nonzero_rows
from isosent.pages.progress import Progress, counted, part_of
from isosent.role import RoleName
from isosent.space import Space
from isosent.storage import Storage

if TYPE_CHECKING:
    from isosent.api.session import Estimate

_BLOCK_BYTES = 64 << 20
_MOST_WINDOWS = 4

BlockEncoder = Callable[..., NDArray[np.float32]]  # of a list of texts
Row = tuple[str, Sequence[Any]]  # a text, and the values of the columns that are written with its vector


def encode_file(
    model: SentenceEncoder,
    source: CountedTexts,
    output: str | os.PathLike[str],
    *,
    dtype: str = Storage.float32,
    role: RoleName = "text",
    progress: Progress | None = None,
) -> tuple[int, EncodingStats]:
    """Encode texts into one file; the dimensions of the vectors, and what was counted over all texts."""
    check_vector_file(output, dtype)
    encode, dim = encoding(model, role)  # refuses a model that cannot encode, before anything is written
    encode = with_groups(encode, groups_of_rows(model.groups, source, 0, source.n_texts))
    rows = TextRows(source, to_table=format_by_name(output).is_table)
    space = model.space
    part = 0, source.n_texts
    encoding_stats = write_encoded(output, rows, part, encode, dim=dim, space=space, dtype=dtype, progress=progress)
    warn_once(model, encoding_stats)
    return dim, encoding_stats


@contextmanager
def texts_encoded(
    inputs: Sequence[TextSource | EncodedSource],
    load_model: Callable[[], SentenceEncoder] | None,
    *,
    progress: Progress | None = None,
) -> Iterator[list[EncodedSource]]:
    """Inputs with temporary files of vectors in place of texts; the model is loaded for these only."""
    with TemporaryDirectory() as folder:
        sources: list[EncodedSource] = []
        model = None
        for place, source in enumerate(inputs):
            if source.kind != "texts":
                sources.append(source)
                continue
            if source.name != STANDARD_INPUT:
                _check.input_file(source.name)
            if load_model is None:
                raise InputError(f"{source.name} holds texts, not vectors. Name the model that encodes them: -m MODEL.")
            model = model or load_model()
            file = Path(folder, f"{place}.npy")
            with source.counted() as texts:
                encode_file(model, texts, file, progress=progress)
            sources.append(replace(open_vectors(file), texts=source.name))
        yield sources


def estimate_files(
    model: SentenceEncoder, paths: Sequence[str], *, column: str | None, role: RoleName, progress: Progress | None
) -> Estimate:
    """What an API would be sent for the texts of files, about; nothing is sent."""
    with ExitStack() as files:
        sources = [files.enter_context(open_texts(path, column=column)) for path in paths]
        texts = chain.from_iterable(source.read(0) for source in sources)
        n_texts = sum(source.n_texts for source in sources)
        return encoder_for(model.encoder, role).estimate(counted(texts, progress, n_texts, lambda text: 1))


def encoding(model: SentenceEncoder, role: RoleName) -> tuple[BlockEncoder, int]:
    """How texts are encoded, and the dimensions of their vectors."""
    encode = partial(model.encode, role=role)
    return encode, int(encode([]).shape[1])


def with_groups(encode: BlockEncoder, groups: Sequence[Any] | None) -> BlockEncoder:
    """The same of texts of these groups, in their order."""
    if groups is None:
        return encode
    rest_of_groups = iter(groups)
    return lambda texts, **settings: encode(texts, group=list(islice(rest_of_groups, len(texts))), **settings)


def warn_once(model: SentenceEncoder, encoding_stats: EncodingStats) -> None:
    """Warn once, about all texts."""
    record = model.record
    encoding_stats.warn(record.reference, record.options.get("max_length"), stacklevel=3)


class TextRows:
    """The texts of a source, with the columns of their table where these are written too, from any row on."""

    kind: ClassVar[Literal["texts"]] = "texts"

    def __init__(self, source: CountedTexts, *, to_table: bool) -> None:
        self.source, self.to_table = source, to_table
        self.table = source.table() if to_table and source.table else None
        self._rows: Iterator[Row] = iter(())
        self._next = -1

    def take(self, first_row: int, n_rows: int) -> Iterator[Row]:
        """Read rows. Later ones than before are read on from there, without beginning again."""
        if not 0 <= self._next <= first_row:
            self._rows, self._next = self._open(first_row)
        skipped, self._next = first_row - self._next, -1  # unless all are read
        yield from islice(self._rows, skipped, skipped + n_rows)
        self._next = first_row + n_rows

    def _open(self, first_row: int) -> tuple[Iterator[Row], int]:
        if self.table is not None and not self.table.typed:
            return self.table.rows(), 0
        return ((text, (text,)) for text in self.source.read(first_row)), first_row

    def other_columns(self, first_row: int, columns: deque[Sequence[Any]]) -> OtherColumns | None:
        """What is written next to the vectors: columns of a file, or the queue that rows are put into."""
        if self.table is not None and self.table.typed:
            return OtherColumns.of_file(self.table.typed, VECTOR_COLUMN, start_row=first_row)
        schema = [("text", "string")] if self.table is None else self.table.schema
        return OtherColumns.of_rows(schema, columns) if self.to_table else None


def write_encoded(
    path: str | os.PathLike[str],
    rows: TextRows,
    part: tuple[int, int],
    encode: BlockEncoder,
    *,
    dim: int,
    space: Space,
    dtype: str,
    progress: Progress | None = None,
) -> EncodingStats:
    """Encode part of the texts, (first row, rows), into a file, with memory for one block of them."""
    first_row, n_rows = part
    # Other columns of the rows that are being encoded, at most one block: its vectors are written at once.
    columns: deque[Sequence[Any]] = deque()
    other_columns = rows.other_columns(first_row, columns)
    keeps_columns = other_columns is not None and not (rows.table and rows.table.typed)

    def texts() -> Iterator[str]:
        for text, row in rows.take(first_row, n_rows):
            if keeps_columns:
                columns.append(row)
            yield text

    n_zero_rows, row = 0, first_row
    with (
        collecting_stats() as stats,
        writing_vectors(path, (n_rows, dim), dtype=dtype, space=space, other_columns=other_columns) as write,
    ):
        for vectors in _encoded_blocks(texts(), encode, (n_rows, dim), progress):
            write(narrowed(vectors, dtype, row))
            n_zero_rows += len(vectors) - int(nonzero_rows(vectors).sum())
            row += len(vectors)
            del vectors  # before the next block
        rows.source.check_unchanged()
    return stats.total + EncodingStats(n_zero_rows=n_zero_rows)


def encoded_source(
    rows: TextRows,
    part: tuple[int, int],
    encode: BlockEncoder,
    *,
    dim: int,
    space: Space,
    progress: Progress | None = None,
) -> VectorSource:
    """Vectors of part of the texts, (first row, rows), as a source that is encoded while it is read."""
    first_row, n_rows = part

    def read(start_row: int, block_rows: int) -> Iterator[NDArray[Any]]:
        taken = rows.take(first_row + start_row, n_rows - start_row)
        yield from _encoded_blocks((text for text, _ in taken), encode, (n_rows, dim), progress)
        rows.source.check_unchanged()

    return VectorSource(Path(rows.source.name), n_rows, dim, Storage.float32, space, read)


def _encoded_blocks(
    texts: Iterator[str], encode: BlockEncoder, shape: tuple[int, int], progress: Progress | None
) -> Iterator[NDArray[np.float32]]:
    (n_rows, dim), done = shape, 0
    # A block is a number of whole windows, so that its size does not change which texts share a batch.
    n_texts = WINDOW * max(1, min(_MOST_WINDOWS, _BLOCK_BYTES // (WINDOW * dim * 4)))
    for block in text_blocks(texts, n_texts):
        yield encode(block, progress=part_of(progress, done, n_rows))
        done += len(block)
