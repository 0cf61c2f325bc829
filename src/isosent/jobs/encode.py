"""Encodes texts in a file block by block: into one file, or into shards that let an interrupted run resume."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import WINDOW, EncodingStats, Progress, collecting_stats
from isosent.errors import FileFormatError, InputError, IsosentError, OutputError
from isosent.io.atomic import locked
from isosent.io.parquet import VECTOR_COLUMN, ColumnsBeside
from isosent.io.space import Space, same_space
from isosent.io.texts import TextSource, text_blocks
from isosent.io.vectors import (
    ShardIndex,
    Sharding,
    ShardTexts,
    check_shard_folder,
    check_vector_file,
    open_shard,
    read_index,
    sweep_shards,
    write_index,
    writing_vectors,
)
from isosent.jobs.vectors import narrowed
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import nonzero_rows

_BLOCK_BYTES = 64 << 20
_MOST_WINDOWS = 4

Role = Literal["text", "query", "document"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Result of a job."""

    dim: int  # of the vectors
    encoding_stats: EncodingStats  # over all texts
    n_shards: int = 0  # 0 for a single file


def encode_file(
    model: SentenceEncoder,
    source: TextSource,
    output: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    role: Role = "text",
    progress: Progress | None = None,
) -> Encoded:
    """Encode texts into one file."""
    check_vector_file(output, dtype)
    job = _Job(model, source, role, progress, to_table=Path(output).suffix.lower() == ".parquet")
    encoding_stats = job.write(Path(output), source.n_texts, dtype, job.rows())
    job.warn(encoding_stats)
    return Encoded(job.dim, encoding_stats)


def encode_folder(
    model: SentenceEncoder,
    source: TextSource,
    folder: str | os.PathLike[str],
    *,
    sharding: Sharding | None = None,
    role: Role = "text",
    resumed: Callable[[ShardIndex], None] | None = None,
    progress: Progress | None = None,
) -> Encoded:
    """Encode texts into a folder of shards, and resume where an earlier run stopped."""
    folder = Path(folder)
    check_shard_folder(folder)
    sharding = sharding or Sharding()
    job = _Job(model, source, role, progress, to_table=sharding.file_format == "parquet")
    texts = ShardTexts(source.name, source.n_texts, source.sha256)
    new = ShardIndex(job.space, job.dim, texts, sharding, role, model.encoder.computed_in)
    with _exclusive(folder):
        index = _resumed_index(folder, new)
        if index.n_written and resumed:
            resumed(index)
        if index.n_written and progress:
            progress(index.n_rows_written)
        remaining = islice(job.rows(), index.n_rows_written, None)
        while not index.is_complete:
            index = job.write_shard(folder, index, remaining)
    encoding_stats = EncodingStats(**index.counts)
    job.warn(encoding_stats)
    return Encoded(index.dim, encoding_stats, index.n_shards)


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Create a folder if it does not exist, and lock it for this process."""
    is_new = not folder.exists()
    try:
        folder.mkdir(exist_ok=True)
        with locked(folder, wait=False):
            check_shard_folder(folder)
            sweep_shards(folder)
            try:
                yield
            finally:
                if is_new and not any(folder.iterdir()):
                    folder.rmdir()
    except OSError as error:
        if isinstance(error, IsosentError):
            raise
        raise OutputError(f"{folder} could not be written: {error.strerror or error}.") from error


def _resumed_index(folder: Path, new: ShardIndex) -> ShardIndex:
    """Index of an earlier run, or the new one; a run that cannot be resumed is refused."""
    index = read_index(folder)
    if index is None:
        write_index(folder, new)
        return new
    same_space("the model", new.space, str(folder), index.space)
    here, there = new.texts, index.texts
    if (here.n_texts, here.sha256) != (there.n_texts, there.sha256):
        raise InputError(
            f"{folder} was begun with other texts: {there.n_texts:,} of {there.name} then, {here.n_texts:,} of "
            f"{here.name} now, and the content differs. Name another folder, or remove this one."
        )
    now, then = (
        msgspec.structs.asdict(run.sharding) | {"role": run.role, "computed_in": run.computed_in}
        for run in (new, index)
    )
    if changed := [name for name in now if now[name] != then[name]]:
        before, after = (", ".join(f"{name}={settings[name]}" for name in changed) for settings in (then, now))
        raise InputError(
            f"{folder} was begun with other settings: {before}, not {after}. Name another folder, or remove this one."
        )
    for number in range(index.n_written):
        try:
            open_shard(folder, index, number).verify()
        except FileFormatError as error:
            raise FileFormatError(f"{error} If there is no copy, remove {folder} and encode again.") from None
    return index


Row = tuple[str, Sequence[Any]]  # a text, and the values of the columns that are written with its vector


class _Job:
    """Encodes the texts of a source, and writes their vectors."""

    def __init__(
        self, model: SentenceEncoder, source: TextSource, role: Role, progress: Progress | None, *, to_table: bool
    ) -> None:
        self._model, self._source, self._role, self._progress = model, source, role, progress
        self._to_table = to_table
        self._table = source.table() if to_table and source.table else None
        self.space = Space(model.fingerprint, model.record.name)
        self.dim = int(self._encode([]).shape[1])  # refuses a model that cannot encode, before anything is written

    def rows(self) -> Iterator[Row]:
        """Read the texts, with the other columns of their table."""
        if self._table is not None and not self._table.parquet:
            return self._table.rows()
        return ((text, (text,)) for text in self._source.read())

    def write_shard(self, folder: Path, index: ShardIndex, remaining: Iterator[Row]) -> ShardIndex:
        """Write the next shard, and then the index."""
        n_rows, path = index.shard_rows(index.n_written), folder / index.shard_name(index.n_written)
        try:
            encoding_stats = self.write(
                path, n_rows, index.sharding.dtype, islice(remaining, n_rows), index.n_rows_written
            )
            index = index.with_next(asdict(EncodingStats(**index.counts) + encoding_stats))
            write_index(folder, index)
        except OutputError as error:
            raise OutputError(
                f"{error} {index.n_written} of {index.n_shards} shards are complete and stay. Run the same command "
                "again to resume."
            ) from error
        return index

    def write(self, path: Path, n_rows: int, dtype: str, rows: Iterator[Row], first_row: int = 0) -> EncodingStats:
        """Encode texts into a file, with memory for one block of them."""
        takes_rows = self._to_table and not (self._table and self._table.parquet)
        # Other columns of the rows that are being encoded, at most one block: its vectors are written at once.
        columns: deque[Sequence[Any]] = deque(maxlen=None if takes_rows else 0)
        beside = None
        if takes_rows:
            schema = [("text", "string")] if self._table is None else self._table.schema
            beside = ColumnsBeside.of_rows(schema, columns)
        elif self._table is not None and self._table.parquet:
            beside = ColumnsBeside.of_file(self._table.parquet, VECTOR_COLUMN, start_row=first_row)

        def texts() -> Iterator[str]:
            for text, row in rows:
                columns.append(row)
                yield text

        # A block is a number of whole windows, so that its size does not change which texts share a batch.
        block_texts = WINDOW * max(1, min(_MOST_WINDOWS, _BLOCK_BYTES // (WINDOW * self.dim * 4)))
        n_zero_rows = 0
        with (
            collecting_stats() as stats,
            writing_vectors(path, (n_rows, self.dim), dtype=dtype, space=self.space, beside=beside) as write,
        ):
            for block in text_blocks(texts(), block_texts):
                vectors = self._encode(block)
                write(narrowed(vectors, dtype, first_row))
                n_zero_rows += len(block) - int(nonzero_rows(vectors).sum())
                first_row += len(block)
                del vectors  # before the next block
            self._source.check_unchanged()
        return stats.total + EncodingStats(n_zero_rows=n_zero_rows)

    def warn(self, encoding_stats: EncodingStats) -> None:
        """Warn once, about all texts."""
        record = self._model.record
        encoding_stats.warn(record.reference, record.options.get("max_length"), stacklevel=3)

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self._model.encode(texts, progress=self._progress, role=self._role)
        return vectors
