"""Databases that hold the rows of an index: one protocol, how one is searched, and what is copied to and from it.

A `Database` is an open table. `open_database` finds its kind by the beginning of the URL; each kind is a module that is
imported then. `push` writes the rows of an index whose hash (`_with_digests`) the table lacks, deletes the others, and
lets the database measure its recall with queries from `_sample`. `pull` makes an index of the rows of a table.
`DatabaseStore` encodes queries with the model of a table and searches it: the store that `open_store` gives for a URL.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from isosent import _check
from isosent.errors import InputError, IsosentWarning, option
from isosent.io.vector_source import VectorSource
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.numeric.canary import CHANGED, Canary, CanaryCheck
from isosent.numeric.neighbors import fast_nearest
from isosent.numeric.similarity import nonzero_rows
from isosent.pages.progress import Progress, counted
from isosent.search.engine import FULL_SIZE, K_MEASURED, SearchSettings
from isosent.search.index import Index
from isosent.search.result import Hit
from isosent.search.rows import ID, VECTOR
from isosent.search.stores.tuning import Draw, Sample, Say
from isosent.search.units import Queries, opened_queries, query_units, unit_vectors, units_of_lists
from isosent.search.where import Condition, parse_where
from isosent.space import Space, same_space
from isosent.transforms.maps import GroupMaps

# of each row: a hash of what was pushed, so that a push writes only what differs
DIGEST: Final = "isosent_digest"
_PART_ROWS: Final = 8192
TABLE: Final = "isosent_rows"  # unless the URL names another one
_MOST_QUERIES: Final = 200  # of a measured recall
_SPARE: Final = 8  # rows that are fetched beyond those that are wanted, to see whether more are as good as the last
_WIDENED: Final = 8  # times as many, if more may be
_MOST_FETCHED: Final = 100_000
_LAST_DIGITS: Final = 1e-6  # what the order of summation can change

# rows with their cosines, a score of each, and whether there are no others
Fetched: TypeAlias = tuple[Any, Any, bool]


class _Kind(NamedTuple):
    """A kind of database: its class, which is imported when a table is opened, and how its URL is written."""

    beginning: str  # of the URL, a regular expression; also of mistyped ones, which may hold a password
    module: str
    table: str
    example: str


_KINDS: Final = (
    _Kind("(?i:postgres)[^/]*:", "postgres", "PostgresTable", "postgresql://user@host/db?table=NAME"),
    _Kind("lance:", "lance", "LanceTable", "lance:DIR"),
    _Kind("qdrant:", "qdrant", "QdrantTable", "qdrant:https://host:6333?table=NAME, qdrant:DIR"),
)
URLS: Final = ", ".join(kind.example for kind in _KINDS)


class Database(Protocol):
    """A table of rows with vectors of one space. Vectors are unit vectors; scores are cosines."""

    name: str  # of the table and its database, without a password

    @property
    def exists(self) -> bool:
        """Whether the table is there."""

    @property
    def space(self) -> Space:
        """The space of its vectors."""

    @property
    def dim(self) -> int:
        """Width of its vectors."""

    @property
    def count(self) -> int:
        """Number of rows."""

    @property
    def canary(self) -> str | None:
        """Vectors of fixed texts, as `Canary.to_text` writes them; None if they were not kept."""

    def create(
        self, schema: Any, space: Space, dim: int, *, canary: str | None = None, size: SearchSettings = FULL_SIZE
    ) -> None:
        """Make a table with the columns of a pyarrow schema, and if it can, with codes of the size of an index."""

    def add(self, batch: Any) -> None:
        """Add the rows of a record batch, or replace those with the same ids, or refuse them."""

    def delete(self, ids: Sequence[Any]) -> int:
        """Delete rows; return how many there were."""

    def search(
        self, units: NDArray[np.float32], k: int, *, where: str | None = None, texts: list[str] | None = None
    ) -> list[Any]:
        """Find the nearest rows, or with texts fuse them with those that share words: a pyarrow table per query."""

    def batches(self, n_rows: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield all rows, or some of their columns, as record batches."""

    def finish(self, n_changed: int = 0, sample: Draw | None = None, say: Say | None = None) -> None:
        """Do what is left after the last part, such as building and measuring an index."""

    def close(self) -> None:
        """Close the connection."""


def is_database(target: str) -> bool:
    """Whether a name on the command line is the URL of a database."""
    return is_table_url(target) or "://" in target


def is_table_url(target: str) -> bool:
    """Whether a name can be nothing but the URL of a database, even where it may be that of a file or a model."""
    return any(re.match(kind.beginning, target) for kind in _KINDS)


def _without_password(url: str) -> str:
    """A URL for messages, without user and options, where a password may be."""
    return re.sub("(?s)^([^:@/]*:(//)?)?.*@", r"\1", url).partition("?")[0]


def open_database(url: str) -> Database:
    """Open a table by its URL, one of `URLS`."""
    for kind in _KINDS:
        if re.match(kind.beginning, url):
            return getattr(import_module(f"isosent.search.stores.{kind.module}"), kind.table)(url)
    scheme = re.split("[:/?@]", url)[0]  # the rest may hold a password
    raise InputError(f"{_check.brief(scheme)!r} is no database. Write {URLS}.")


def place_and_table(url: str, beginning: str) -> tuple[str, str]:
    """Split a URL such as ``lance:DIR?table=NAME`` into its place and the name of its table."""
    place, _, query = url.removeprefix(beginning).partition("?")
    name = query.removeprefix("table=") if query else TABLE
    if not place or (query and not query.startswith("table=")) or not re.fullmatch(r"[\w-]+", name):
        shown = _without_password(url)
        raise InputError(f"{shown} names no table. Write {beginning}DIR or {beginning}DIR?table=NAME.")
    return place, name


def parsed_filter(where: str, schema: Any) -> Condition:
    """Parse a filter; what a table holds besides the columns of the user cannot be named, and is not listed."""
    fields = [field for field in schema if field.name not in (VECTOR, DIGEST)]
    return parse_where(where, import_module("pyarrow").schema(fields))


def best_hits(fetched: Callable[[int], Fetched], k: int) -> Any:
    """The k best hits of a query; equally good ones in the order of their ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n_fetched = k + _SPARE
    while True:
        hits, scores, are_all = fetched(n_fetched)
        columns = pa.table({"score": scores, ID: hits.column(ID)})
        order = pc.sort_indices(columns, [("score", "descending"), (ID, "ascending")])[:k]
        # what was left out may be as good as the last hit: which of equal ones a database takes is its own affair
        if are_all or n_fetched > _MOST_FETCHED or len(order) < k:
            return hits.take(order)
        if scores[order[-1].as_py()].as_py() - pc.min(scores).as_py() > _LAST_DIGITS:
            return hits.take(order)
        n_fetched *= _WIDENED


def push(index: Index, url: str, *, progress: Progress | None = None, say: Say | None = None) -> tuple[int, int]:
    """Make a table hold exactly the rows of an index.

    Parameters
    ----------
    index : Index
        The rows.
    url : str
        ``postgresql://user:password@host/db?table=NAME``, ``lance:DIR?table=NAME``, or ``qdrant:`` before the URL of a
        server or a folder. The table is made if it is not there.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in rows.
    say : callable, optional
        Called with one line about whatever takes long or was measured: who else writes, and the recall.

    Returns
    -------
    tuple of (int, int)
        Number of rows that were written and that were deleted.

    Raises
    ------
    InputError
        If the table belongs to another space, has another width or another kind of ids (the message names both) or
        lacks a column of the index, a text cannot be stored, or the database cannot be reached.

    Notes
    -----
    Every part of 8,192 rows is one transaction (in Qdrant, some requests), and each row holds a hash of its content. A
    push writes the rows with another hash, and deletes those that the index has not. So one that was interrupted is
    resumed by running it again, and after a small change little is written. PostgreSQL cannot hold a text with the
    character NUL: the push ends before the part with such a text, whose row the error names.
    """
    database = open_database(url)
    try:
        if not database.exists:
            first = next(index.batches(1), None)
            if first is None:
                raise InputError(f"push: the index {index.folder} has no rows.")
            canary = None if index.canary is None else index.canary.to_text()
            schema = _with_digests(first, index.dim).schema
            database.create(schema, index.space, index.dim, canary=canary, size=index.stats().settings)
        another = "Or push the index to another table: end the URL with ?table=NAME."
        same_space(f"the index {index.folder}", index.space, f"the {database.name}", database.space, otherwise=another)
        _check.same_dim("push", "the table", database.dim, index.dim)
        pushed: dict[Any, int | None] = {}
        for batch in database.batches(_PART_ROWS, (ID, DIGEST)):
            pushed.update(zip(batch.column(ID).to_pylist(), batch.column(DIGEST).to_pylist(), strict=True))
        n_written = 0
        for batch in counted(index.batches(_PART_ROWS), progress, len(index)):
            rows = _with_digests(batch, index.dim)
            digests = zip(rows.column(ID).to_pylist(), rows.column(DIGEST).to_pylist(), strict=True)
            rows = rows.filter([pushed.pop(name, None) != digest for name, digest in digests])
            if rows.num_rows:
                database.add(rows)
            n_written += rows.num_rows
        gone = list(pushed)
        n_deleted = sum(database.delete(gone[n : n + _PART_ROWS]) for n in range(0, len(gone), _PART_ROWS))
        database.finish(n_written + n_deleted, partial(_sample, index), say)
        return n_written, n_deleted
    finally:
        database.close()


def _sample(index: Index) -> Sample | None:
    """Draw queries near rows of an index, and compare them with all rows; None if there are too few."""
    n_queries = min(_MOST_QUERIES, len(index) // 4)
    if n_queries < K_MEASURED:
        return None
    # A row finds itself and what is beside it too easily. With 30,000 sentences and ef_search 200, recall was 0.996 for
    # rows, 0.977 for sums of rows as below, 0.991 for other sentences, and 0.967 for questions about other things.
    chosen = np.random.default_rng(0).choice(len(index), 3 * n_queries, replace=False)
    vectors = np.empty((len(chosen), index.dim), np.float32)
    start = 0
    for rows in _vectors(index):
        is_here = (chosen >= start) & (chosen < start + len(rows))
        vectors[is_here] = rows[chosen[is_here] - start]
        start += len(rows)
    first, second, third = np.split(vectors, 3)
    queries = unit_vectors(first + second - third)
    queries = queries[nonzero_rows(queries)]
    nearest, _ = fast_nearest(queries, (rows[nonzero_rows(rows)] for rows in _vectors(index)), K_MEASURED)
    return (queries, nearest[:, -1]) if len(queries) and np.isfinite(nearest).all() else None


def _vectors(index: Index) -> Iterator[NDArray[np.float32]]:
    for batch in index.batches(_PART_ROWS):
        yield units_of_lists(batch.column(VECTOR), index.dim)


def _with_digests(batch: Any, dim: int) -> Any:
    import pyarrow as pa

    columns = {}
    for field in batch.schema.remove(batch.schema.get_field_index(VECTOR)):
        column = batch.column(field.name)
        if pa.types.is_temporal(field.type) and field.type.bit_width <= 64:  # Python has no times after the year 9999
            column = column.view(f"int{field.type.bit_width}")
        columns[f"{field.name} {field.type}"] = column
    rows = zip(pa.table(columns).to_pylist(), units_of_lists(batch.column(VECTOR), dim), strict=True)
    digests = [xxh3_64_intdigest(repr(row).encode() + unit.tobytes()) for row, unit in rows]
    return batch.append_column(DIGEST, pa.array(np.array(digests, np.uint64).view(np.int64)))


def pull(url: str, folder: Any, *, model: SentenceEncoder | None = None, progress: Progress | None = None) -> Index:
    """Make an index of the rows of a table.

    Parameters
    ----------
    url : str
        As for `push`.
    folder : path-like
        Where to write the index; as for `Index.create`.
    model : SentenceEncoder, optional
        What encodes queries; it must have the space of the table.
    progress : callable, optional
        Called as ``progress(done, None)``, counted in rows: their number is not known.

    Returns
    -------
    Index
        The index, open.

    Raises
    ------
    InputError
        If there is no such table, or the model belongs to another space; the message names both.
    """
    database = open_database(url)
    try:

        def batches() -> Iterator[Any]:
            for batch in counted(database.batches(_PART_ROWS), progress, None):
                yield batch.select([name for name in batch.schema.names if name != DIGEST])

        return Index.from_batches(batches(), space=database.space, dim=database.dim, model=model, folder=folder)
    finally:
        database.close()


class DatabaseStore:
    """The table of a database by its URL, searched with the model that made its vectors; each search connects to it."""

    def __init__(self, url: str, model: SentenceEncoder | str | None) -> None:
        self._url, self._reference = url, model

    @cached_property
    def model(self) -> SentenceEncoder:
        """What encodes queries."""
        if self._reference is None:
            raise InputError(
                "search: a database needs the model that made its vectors: -m MODEL. For vectors of an API it is the "
                "model that is saved in the index that was pushed: -m INDEX/model."
            )
        return load(self._reference) if isinstance(self._reference, str) else self._reference

    @property
    def groups(self) -> GroupMaps | None:
        """The maps of groups of the model; None without any."""
        return self.model.groups

    def index(self, needed_by: str) -> Index:
        """Refuse: the rows are in no folder."""
        raise InputError(
            f"{needed_by} needs an index, and {_without_password(self._url)} is a database. isosent index pull makes "
            "an index of it, and isosent index push writes one back."
        )

    def hits(
        self,
        queries: Sequence[str],
        k: int,
        *,
        vectors: VectorSource | None = None,
        where: str | None = None,
        hybrid: bool = False,
        group: str | None = None,
        **options: Any,
    ) -> list[list[Hit]]:
        """The rows nearest to each query, best first; other options need an index."""
        if options:
            self.index(f"search: {', '.join(map(option, sorted(options)))}")
        asked = queries if vectors is None else vectors
        tables = self.search(asked, k, where=where, hybrid=hybrid, group=group)
        return [
            [Hit(rank, row.pop(ID), row.pop("score"), row) for rank, row in enumerate(table.to_pylist(), start=1)]
            for table in tables
        ]

    def search(
        self,
        queries: Queries,
        k: int = 10,
        *,
        where: str | None = None,
        hybrid: bool = False,
        group: str | None = None,
    ) -> list[Any]:
        """Find the rows nearest to each text or vector: a pyarrow table with the columns id, score, text and others.

        Warns if the model gives other vectors than when the table was made.
        """
        model = self.model
        _check.whole_number("search", "k", k, 1)
        asked = opened_queries(queries)
        texts = asked if isinstance(asked, list) else None
        if hybrid and texts is None:
            raise InputError("search: hybrid needs the texts of the queries, and these are vectors.")
        database = open_database(self._url)
        try:
            here = model.space
            again = "An index is pushed again to another table: end the URL with ?table=NAME."
            same_space("the model", here, f"the {database.name}", database.space, otherwise=again)
            if database.canary is not None and texts is not None:
                now = model.encoder.canary_now(of_first_query=True)
                stored = Canary.from_text(database.name, database.canary)
                check = CanaryCheck(0.0 if now is None else stored.lowest_cosine(now))
                if check.has_changed:
                    warnings.warn(f"{database.name}: {CHANGED} {check}.", IsosentWarning, stacklevel=2)
            if isinstance(asked, list):
                units = unit_vectors(model.encode(asked, role="query", group=group, show_progress_bar=False))
            else:
                units = query_units(model.record, asked, group)
            tables = database.search(units, k, where=where, texts=texts if hybrid else None)
            return [table.drop_columns([DIGEST]) if DIGEST in table.column_names else table for table in tables]
        finally:
            database.close()
