"""Data sets of Hugging Face on disk, as `save_to_disk` writes them: a folder of streams of Arrow, read as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from isosent._check import DATA_SET_FILE
from isosent.errors import FileFormatError
from isosent.io.arrow import ArrowTable
from isosent.io.json import check_schema, read_json
from isosent.io.schemas import FileName


class _DataFile(Struct):
    filename: FileName


class _State(Struct):
    """Which files hold the rows, in their order; the folder may hold others, such as copies of older rows."""

    data_files: list[_DataFile] = field(name="_data_files")
    indices_files: list[_DataFile] | None = field(name="_indices_data_files", default=None)


class DataSetTable:
    """An open data set."""

    def __init__(self, folder: Path) -> None:
        path = folder / DATA_SET_FILE
        state = check_schema(read_json(path), str(path), _State)
        if state.indices_files:
            raise FileFormatError(f"{folder} holds an order of its rows apart. Save it again, after flatten_indices().")
        if not state.data_files:
            raise FileFormatError(f"{folder} is a data set without files. Save it again.")
        paths = [folder / file.filename for file in state.data_files]
        if missing := [path for path in paths if not path.is_file() or not path.stat().st_size]:
            raise FileFormatError(f"{missing[0]} is missing or empty. Copy the whole folder again.")
        self._tables = [ArrowTable(str(path), path) for path in paths]
        self.schema = self._tables[0].schema
        for table, path in zip(self._tables, paths, strict=True):
            if not table.schema.equals(self.schema):
                raise FileFormatError(f"{path} has other columns than {paths[0].name}. Save the data set again.")
        self.n_rows = sum(table.n_rows for table in self._tables)

    def rows_at_once(self, names: Sequence[str] | None, *, is_streamed: bool = True) -> int:
        """How many rows fit in memory; refuses what would fill it."""
        return min(table.rows_at_once(names, is_streamed=is_streamed) for table in self._tables)

    def batches(
        self,
        names: Sequence[str] | None,
        *,
        start_row: int = 0,
        n_rows: int | None = None,
        is_streamed: bool = True,
    ) -> Iterator[Any]:
        """Read columns, or all, from a row on, at most `n_rows` at once, or `rows_at_once`."""
        starts = accumulate((table.n_rows for table in self._tables), initial=0)
        for start, table in zip(starts, self._tables, strict=False):
            if start + table.n_rows > start_row:
                first = max(0, start_row - start)
                yield from table.batches(names, start_row=first, n_rows=n_rows, is_streamed=is_streamed)
