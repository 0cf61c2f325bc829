"""Texts in a file to vectors in files, block by block: one file, or shards that a killed run goes on with."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import WINDOW, EncodingStats, Progress, collecting_stats
from isosent.errors import FileFormatError, InputError, IsosentError, OutputError
from isosent.io.atomic import locked
from isosent.io.parquet import ColumnsBeside
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
from isosent.transforms.base import known_rows

_BLOCK_BYTES = 64 << 20
_METHODS = {"text": "encode", "query": "encode_query", "document": "encode_document"}
_MOST_WINDOWS = 4


@dataclass(frozen=True, slots=True)
class Encoded:
    """What was written."""

    dim: int  # dimensions of the vectors
    encoding_stats: EncodingStats  # what was counted over all texts
    n_shards: int = 0  # shards they are in; 0 for a single file


def encode_file(
    model: SentenceEncoder,
    source: TextSource,
    output: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    role: str = "text",
    progress: Progress | None = None,
) -> Encoded:
    """Encode texts into one file, with memory for a block of them."""
    check_vector_file(output, dtype)
    run = _Run(model, source, role, progress, to_table=Path(output).suffix.lower() == ".parquet")
    dim = run.dim()
    encoding_stats = run.write(Path(output), (source.n_texts, dim), dtype, run.space, run.rows())
    run.warn(encoding_stats)
    return Encoded(dim, encoding_stats)


def encode_folder(
    model: SentenceEncoder,
    source: TextSource,
    folder: str | os.PathLike[str],
    *,
    sharding: Sharding | None = None,
    role: str = "text",
    resumed: Callable[[ShardIndex], None] | None = None,
    progress: Progress | None = None,
) -> Encoded:
    """Encode texts into a folder of shards, with memory for a block of them; go on where an earlier run stopped."""
    folder = Path(folder)
    check_shard_folder(folder)
    sharding = sharding or Sharding()
    run = _Run(model, source, role, progress, to_table=sharding.file_format == "parquet")
    texts = ShardTexts(source.name, source.n_texts, source.sha256)
    asked = ShardIndex(run.space, run.dim(), texts, sharding, role, model.encoder.computed_in)
    with _held(folder):
        index = _reached(folder, asked)
        if index.n_written and resumed:
            resumed(index)
        if index.n_written and progress:
            progress(index.n_rows_written)
        left = islice(run.rows(), index.n_rows_written, None)
        while not index.is_complete:
            index = run.next_shard(folder, index, left)
    encoding_stats = EncodingStats(**index.counts)
    run.warn(encoding_stats)
    return Encoded(index.dim, encoding_stats, index.n_shards)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Have a folder for this process alone; make it where it is not there."""
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


def _reached(folder: Path, asked: ShardIndex) -> ShardIndex:
    """How far an earlier run came, if there was one; refuse what cannot be gone on with."""
    index = read_index(folder)
    if index is None:
        write_index(folder, asked)
        return asked
    same_space("the model", asked.space, str(folder), index.space)
    here, there = asked.texts, index.texts
    if (here.n_texts, here.sha256) != (there.n_texts, there.sha256):
        raise InputError(
            f"{folder} was begun with other texts: {there.name} with {there.n_texts:,} texts; {here.name} has "
            f"{here.n_texts:,} now. Name another folder, or remove this one."
        )
    now, then = (
        msgspec.structs.asdict(run.sharding) | {"role": run.role, "computed_in": run.computed_in}
        for run in (asked, index)
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


Row = tuple[str, Sequence[Any]]  # a text, and what is written beside its vector


class _Run:
    """Texts on their way through a model."""

    def __init__(
        self, model: SentenceEncoder, source: TextSource, role: str, progress: Progress | None, *, to_table: bool
    ) -> None:
        self.model, self.source, self.role, self.progress = model, source, role, progress
        self.to_table = to_table
        self.table = source.table() if to_table and source.table else None

    def rows(self) -> Iterator[Row]:
        """Read the texts, with what is written beside the vectors."""
        if self.table is not None:
            return self.table.rows()
        return ((text, (text,)) for text in self.source.read())

    @property
    def space(self) -> Space:
        """Where the vectors belong."""
        return Space(self.model.fingerprint, self.model.record.name)

    def dim(self) -> int:
        """Dimensions of the vectors; refuses a model that cannot encode before anything is written."""
        return int(self._encode([]).shape[1])

    def warn(self, encoding_stats: EncodingStats) -> None:
        """Warn of all texts at once."""
        record = self.model.record
        encoding_stats.warn(record.reference, record.options.get("max_length"), stacklevel=3)

    def next_shard(self, folder: Path, index: ShardIndex, left: Iterator[Row]) -> ShardIndex:
        """Write the next shard and the index behind it."""
        n_rows, dtype = index.shard_rows(index.n_written), index.sharding.dtype
        path = folder / index.shard_name(index.n_written)
        try:
            texts = islice(left, n_rows)
            encoding_stats = self.write(path, (n_rows, index.dim), dtype, index.space, texts, index.n_rows_written)
            index = index.with_next(asdict(EncodingStats(**index.counts) + encoding_stats))
            write_index(folder, index)
        except OutputError as error:
            raise OutputError(
                f"{error} {index.n_written} of {index.n_shards} shards are whole and stay; the same command goes on "
                "with the next."
            ) from error
        return index

    def write(
        self, path: Path, shape: tuple[int, int], dtype: str, space: Space, rows: Iterator[Row], first_row: int = 0
    ) -> EncodingStats:
        """Encode texts into a file."""
        waiting: deque[Sequence[Any]] = deque()  # the rows of the block that is encoded
        beside = None
        if self.to_table:
            beside = ColumnsBeside.of_rows([("text", "string")] if self.table is None else self.table.schema, waiting)

        def texts() -> Iterator[str]:
            for text, row in rows:
                if self.to_table:
                    waiting.append(row)
                yield text

        n_zero_rows = 0
        with (
            collecting_stats() as tallied,
            writing_vectors(path, shape, dtype=dtype, space=space, beside=beside) as write,
        ):
            for block in text_blocks(texts(), self._block_texts(shape[1])):
                vectors = self._encode(block)
                write(narrowed(vectors, dtype, first_row))
                n_zero_rows += len(block) - int(known_rows(vectors).sum())
                first_row += len(block)
                del vectors  # ahead of the next block
            self.source.check_unchanged()
        return tallied.total + EncodingStats(n_zero_rows=n_zero_rows)

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = getattr(self.model, _METHODS[self.role])(texts, progress=self.progress)
        return vectors

    @staticmethod
    def _block_texts(dim: int) -> int:
        """Texts of a block: whole windows, so that what shares a batch does not depend on the blocks."""
        return WINDOW * max(1, min(_MOST_WINDOWS, _BLOCK_BYTES // (WINDOW * dim * 4)))
