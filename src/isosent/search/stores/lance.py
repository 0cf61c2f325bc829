"""LanceDB: a table in a folder, with its own full-text index."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent._check import brief
from isosent.errors import InputError, OutputError, next_step, option
from isosent.io.atomic import locked
from isosent.io.system import disk_error
from isosent.numeric.neighbors import exact_products
from isosent.search.engine import FULL_SIZE, SearchSettings
from isosent.search.keywords import FUSED, fuse
from isosent.search.rows import ID, TEXT, VECTOR, check_columns, names_beside_hits
from isosent.search.stores.database import Fetched, best_hits, parsed_filter, place_and_table
from isosent.search.where import sql_literal, to_sql
from isosent.space import Space

_INDEXED_ROWS: Final = 100_000  # above, LanceDB clusters the vectors; below, it compares all of them
_RESERVED: Final = ("_distance", "_score", "_rowid", "_rowaddr", "_rowoffset")  # columns of LanceDB itself
_CANARY: Final = b"isosent.canary"
_SOURCE: Final = re.compile(r",? ?\S*\.rs(:\d+)*")  # where in LanceDB an error was raised


class LanceTable:
    """A table of rows with vectors of one space, by its URL ``lance:DIR?table=NAME``; it need not be there."""

    def __init__(self, url: str) -> None:
        self.folder, self._name = place_and_table(url, "lance:")
        self.name = f"table {self._name} of lance:{self.folder}"
        self._lancedb = _extras.require("lancedb")
        with _errors(self.folder):
            self._table = self._open_table()

    def _open_table(self) -> Any:
        if not Path(self.folder).is_dir():  # connecting would make it
            return None
        database = self._lancedb.connect(self.folder)
        return database.open_table(self._name) if self._name in database.list_tables().tables else None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Let one writer at a time go on from the last version: of two at once, both would insert the same rows."""
        with _errors(self.folder), locked(Path(self.folder)):
            if self._table is not None:
                self._table.checkout_latest()
            yield

    @property
    def exists(self) -> bool:
        """Whether the table is there."""
        return self._table is not None

    @property
    def table(self) -> Any:
        """The table."""
        if self._table is None:
            step = next_step(
                f"isosent index push INDEX {option('to', 'lance:DIR')}", "isosent.search.stores.database.push"
            )
            raise InputError(f"lance:{self.folder} has no table {self._name}. Make it: {step}.")
        return self._table

    @property
    def space(self) -> Space:
        """The space of its vectors."""
        space = Space.in_metadata(self.table.schema.metadata or {})
        if space is None:
            raise InputError(f"the {self.name} was not made by isosent: it names no space.")
        return space

    @property
    def canary(self) -> str | None:
        """Vectors of fixed texts; None if they were not kept."""
        stored = (self.table.schema.metadata or {}).get(_CANARY)
        return None if stored is None else stored.decode("ascii", "replace")

    @property
    def dim(self) -> int:
        """Width of its vectors."""
        return int(self.table.schema.field(VECTOR).type.list_size)

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.table.count_rows())

    def create(
        self, schema: Any, space: Space, dim: int, *, canary: str | None = None, size: SearchSettings = FULL_SIZE
    ) -> None:
        """Make an empty table, unless another writer has just made it."""
        for name in schema.names:
            if not name or "." in name or "`" in name or name in _RESERVED:
                raise InputError(f"the {self.name} cannot have a column named {name!r}. Rename it.")
        with _errors(self.folder):
            Path(self.folder).mkdir(parents=True, exist_ok=True)
        with self._writing():
            self._table = self._open_table()
            if self._table is None:
                database = self._lancedb.connect(self.folder)
                metadata = space.metadata | ({} if canary is None else {_CANARY: canary})
                self._table = database.create_table(self._name, schema=schema.with_metadata(metadata))

    def add(self, batch: Any) -> None:
        """Add rows, or replace those with the same ids, in one version of the table."""
        import pyarrow as pa

        with self._writing():
            schema = self.table.schema
            check_columns(f"the {self.name}", schema, batch.schema)
            # LanceDB leaves columns that the rows lack as they were
            columns = [
                batch.column(field.name) if field.name in batch.schema.names else pa.nulls(len(batch), field.type)
                for field in schema
            ]
            merge = self.table.merge_insert(ID).when_matched_update_all().when_not_matched_insert_all()
            merge.execute(pa.table(columns, names=schema.names), on_bad_vectors="null")

    def delete(self, ids: Sequence[Any]) -> int:
        """Delete rows; return how many there were."""
        with self._writing():
            before = self.count
            if ids:
                self.table.delete(f"{ID} in ({', '.join(map(sql_literal, ids))})")
            return before - self.count

    def search(
        self, units: NDArray[np.float32], k: int, *, where: str | None = None, texts: list[str] | None = None
    ) -> list[Any]:
        """Find the nearest rows, or with texts fuse them with those that share words: a pyarrow table per query."""
        n_hits = k if texts is None else max(k, FUSED)
        tables = []
        with _errors(self.folder):
            for number, unit in enumerate(units):
                query = self.table.search(unit, vector_column_name=VECTOR).distance_type("dot")
                query = query if where is None else query.where(_sql(where, self.table.schema), prefilter=True)
                hits = self._best(query, unit, n_hits)
                hits = hits if unit.any() else hits.slice(0, 0)  # a query of unknown words only is near to nothing
                if texts is not None:
                    hits = self._fused(hits, texts[number], unit, k, where)
                tables.append(hits.slice(0, k))
        return tables

    def _fused(self, by_vector: Any, text: str, unit: NDArray[np.float32], k: int, where: str | None) -> Any:
        import pyarrow as pa

        if TEXT not in self.table.schema.names:
            raise InputError("search: the table has no texts, so it cannot be searched by words.")
        # a match of all words as they are: the query language of LanceDB would read quotes and signs
        query = self.table.search(_match(text), query_type="fts")
        query = query if where is None else query.where(_sql(where, self.table.schema), prefilter=True)
        both = pa.concat_tables([by_vector, self._best(query, unit, FUSED, "_score")])
        names = both.column(ID).to_pylist()
        first = {name: place for place, name in reversed(list(enumerate(names)))}
        n_vectors = by_vector.num_rows
        rankings = [
            np.array([first[name] for name in part], np.int64) for part in (names[:n_vectors], names[n_vectors:])
        ]
        places, _ = fuse(rankings, k)
        return both.take(pa.array(places))

    def _best(self, query: Any, unit: NDArray[np.float32], k: int, by: str = "score") -> Any:
        """The k best hits of a query, with their cosines; equally good ones in the order of their ids."""

        def fetched(n_rows: int) -> Fetched:
            found = query.limit(n_rows).to_arrow()
            are_all = found.num_rows < n_rows
            found = found.filter(found.column(VECTOR).is_valid())
            hits = self._scored(found, unit)
            return hits, hits.column("score") if by == "score" else found.column(by), are_all

        return best_hits(fetched, k)

    def _scored(self, rows: Any, unit: NDArray[np.float32]) -> Any:
        """Hits with their cosines."""
        import pyarrow as pa

        lists = rows.column(VECTOR).combine_chunks()
        vectors = lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), unit.size)
        scores = pa.array(exact_products(unit, vectors) if len(lists) else np.empty(0, np.float32), pa.float32())
        # the schema lacks the columns that LanceDB adds to hits
        names = names_beside_hits([name for name in self.table.schema.names if name not in (ID, VECTOR)])
        return pa.table({ID: rows.column(ID), "score": scores} | {names[name]: rows.column(name) for name in names})

    def batches(self, n_rows: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield all rows, or some of their columns, as record batches."""
        query = self.table.search()
        with _errors(self.folder):
            yield from (query if columns is None else query.select(list(columns))).to_batches(n_rows)

    def finish(self, n_changed: int = 0, sample: Any = None, say: Any = None) -> None:
        """Index the texts, and the vectors if there are many."""
        from lancedb.index import FTS  # type: ignore[import-untyped, unused-ignore]

        with self._writing():
            if TEXT in self.table.schema.names:
                settings = FTS(language="English", stem=False, remove_stop_words=False)
                self.table.create_index(TEXT, config=settings)
            if self.count > _INDEXED_ROWS:
                self.table.create_index("dot", vector_column_name=VECTOR, index_type="IVF_HNSW_SQ")

    def close(self) -> None:
        """Do nothing: there is no connection."""


def _match(text: str) -> Any:
    from lancedb.query import MatchQuery  # type: ignore[import-untyped, unused-ignore]

    return MatchQuery(text, TEXT)


def _sql(where: str, schema: Any) -> str:
    return to_sql(parsed_filter(where, schema), lambda name: "`" + name.replace("`", "") + "`", sql_literal)


@contextmanager
def _errors(folder: str) -> Iterator[None]:
    """Turn what LanceDB raises into one sentence."""
    try:
        yield
    except InputError:
        raise
    except (RuntimeError, OSError, ValueError) as error:
        reason = brief(_SOURCE.sub("", str(error).splitlines()[0]))
        if disk := disk_error(error):
            raise OutputError(f"lance:{folder} could not be written: {disk}; its last version is intact.") from None
        raise InputError(f"lance:{folder}: {reason}") from None
