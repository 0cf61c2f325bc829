"""Writing vectors to a parquet table, with other columns beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.files.checksum import UNSEALED, HashingFile, seal_file
from isosent.files.parquet_vectors import SEAL_MARK, table_batches, table_schema
from isosent.files.vector_source import VectorSource

VECTOR_COLUMN = "vector"


class ColumnsBeside:
    """The columns that stand beside vectors in a table, handed out in the order of the rows.

    Parameters
    ----------
    schema : Schema
        Of these columns.
    batches : iterator of RecordBatch
        Their rows.
    name : str, optional
        What the column of vectors is called.
    position : int, optional
        Where it stands among them; behind them where left out.
    """

    def __init__(
        self, schema: Any, batches: Iterator[Any], name: str = VECTOR_COLUMN, position: int | None = None
    ) -> None:
        self.schema, self.name = schema, name
        self.position = len(schema) if position is None else position
        self._batches, self._held = batches, None

    @classmethod
    def of_texts(cls, blocks: Iterable[Sequence[str]]) -> ColumnsBeside:
        """Make one column ``text``.

        Parameters
        ----------
        blocks : iterable of sequences of str
            The texts, block by block; the next block is asked for when its rows are.

        Returns
        -------
        ColumnsBeside
            That column.
        """
        import pyarrow as pa

        tables = (pa.table({"text": pa.array(list(texts), pa.string())}) for texts in blocks)
        return cls(pa.schema({"text": pa.string()}), (batch for table in tables for batch in table.to_batches()))

    @classmethod
    def of_table(cls, source: VectorSource) -> ColumnsBeside:
        """Take every column of a parquet file but that of the vectors.

        Parameters
        ----------
        source : VectorSource
            A column of a parquet file.

        Returns
        -------
        ColumnsBeside
            The others.
        """
        schema, _ = table_schema(source.path)
        position = schema.names.index(source.column)
        kept = schema.remove(position)
        pandas = {name: value for name, value in (schema.metadata or {}).items() if name == b"pandas"}
        batches = table_batches(source.path, kept.names, 0, source.block_rows, source.state) if kept.names else iter(())
        return cls(kept.with_metadata(pandas), batches, str(source.column), position)

    def take(self, n_rows: int) -> Any:
        """Hand out the next rows.

        Parameters
        ----------
        n_rows : int
            How many; not more than are left.

        Returns
        -------
        Table
            These rows.
        """
        import pyarrow as pa

        parts = []
        while n_rows and self.schema.names:
            held = next(self._batches) if self._held is None else self._held
            part = held.slice(0, n_rows)
            parts.append(part)
            n_rows -= len(part)
            self._held = held.slice(len(part)) if len(part) < len(held) else None
        return pa.Table.from_batches(parts, self.schema)


@contextmanager
def writing_parquet(
    path: Path, dim: int, dtype: str, metadata: Mapping[str, str], beside: ColumnsBeside | None
) -> Iterator[Callable[[NDArray[Any]], None]]:
    """Write a table with a fixed-size list where the vectors stand, a row group a block.

    Parameters
    ----------
    path : Path
        The file.
    dim : int
        Dimensions of the vectors.
    dtype : str
        Type of their numbers.
    metadata : mapping of str to str
        Kept in the schema.
    beside : ColumnsBeside or None
        The other columns.

    Yields
    ------
    callable
        Takes the next block of vectors, shape (any number, dim).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    beside = beside or ColumnsBeside(pa.schema([]), iter(()))
    field = pa.field(beside.name, pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), dim))
    kept = dict(beside.schema.metadata or {}) | {name.encode(): value.encode() for name, value in metadata.items()}
    schema = beside.schema.insert(beside.position, field).with_metadata(kept)

    def write(rows: NDArray[Any]) -> None:
        flat = pa.array(np.ascontiguousarray(rows, dtype).ravel())
        columns = beside.take(len(rows)).columns
        columns.insert(beside.position, pa.FixedSizeListArray.from_arrays(flat, dim))
        writer.write_table(pa.Table.from_arrays(columns, schema=schema), max(1, len(rows)))

    settings = {"use_dictionary": beside.schema.names, "write_page_checksum": True}
    with path.open("wb") as file:
        hashing = HashingFile(file)
        with pq.ParquetWriter(hashing, schema, **settings) as writer:
            yield write
            # between the last column and the metadata, where no reader looks: what lies in the metadata itself is
            # copied by tools that rewrite a table, and would then be the checksum of another file
            seal_at = hashing.tell() + len(SEAL_MARK)
            hashing.write(SEAL_MARK + UNSEALED.encode())
    seal_file(path, seal_at, hashing.checksum)
