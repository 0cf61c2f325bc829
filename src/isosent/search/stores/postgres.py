"""PostgreSQL with pgvector as a store of the rows of an index: one table, whose comment names the vector space.

`create` makes the table, its trigger and the index of words. `add` copies a batch of rows into a temporary table and
merges it, in one transaction. `finish` builds the HNSW index: whoever holds the lock of the table builds, others wait,
and the server ends the build of a process that is gone. `finish` then finds the smallest `hnsw.ef_search` that reaches
the recall, and writes it into the comment, where `search` reads it. What the user has set is left unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

import numpy as np
from msgspec import DecodeError, Struct, ValidationError, structs
from msgspec import json as msgspec_json
from numpy.typing import NDArray

from isosent import _extras
from isosent._check import brief
from isosent.errors import InputError, option
from isosent.search.commits import FORMAT
from isosent.search.engine import FULL_SIZE, K_MEASURED, SearchSettings
from isosent.search.keywords import FUSED, fuse
from isosent.search.rows import ID, TEXT, VECTOR, check_columns, names_beside_hits, plain_values
from isosent.search.stores.database import TABLE, parsed_filter
from isosent.search.stores.postgres_connection import Connection, arrow_types, nul_in, sql_columns
from isosent.search.stores.tuning import (
    MIN_RECALL,
    Draw,
    Sample,
    Say,
    Tuning,
    least_effort,
    retuned,
    share_found,
)
from isosent.search.where import to_sql
from isosent.space import Space, are_same

_FORMAT_VERSION = 1  # of the comment
_OLDEST_PGVECTOR: Final = (0, 8)  # iterative scans
_LARGEST_HALFVEC: Final = 4000  # dimensions that HNSW of pgvector can hold
_LONGEST_TABLE: Final = 50  # bytes; names of the indexes are longer than that of the table
_EFFORTS: Final = (40, 60, 80, 120, 160, 200, 300, 400, 600, 800, 1000)  # values of hnsw.ef_search, for ten hits
_EFFORTS_BITS: Final = (100, 200, 400, 800, 1600, 3200)  # rows to rank again, for ten hits
_EFFORT, _EFFORT_BITS = 200, 800  # of a table whose recall was not measured
_A_HIT, _A_HIT_BITS = 2, 20  # more of them for each hit beyond ten
_FILTERED_EF: Final = 400  # rows that fit a filter may be far from the query
_LARGEST_EF: Final = 1000
# 64, the default of pgvector, needs twice the ef_search for the same recall, and saves a fifth of the build
_EF_CONSTRUCTION: Final = 128
_SOURCES: Final = {"client": "the connection", "user": "the role", "database user": "the role in this database"}

_TRIGGER: Final = """
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  fingerprint text := obj_description(TG_RELID, 'pg_class')::json ->> 'fingerprint';
  setting text := coalesce(nullif(current_setting('isosent.space', true), ''), 'not set');
BEGIN
  IF setting IS DISTINCT FROM fingerprint THEN
    RAISE EXCEPTION 'table %% holds vectors of the space %%; isosent.space is %%', TG_TABLE_NAME, fingerprint, setting
      USING HINT = 'Write with isosent, or make vectors with the same model and SET isosent.space to its fingerprint.';
  END IF;
  RETURN NULL;
END $$"""


class _Comment(Struct):
    """The comment of a table."""

    format: str
    format_version: int
    fingerprint: str
    reference: str
    dim: int
    bits: bool = False  # whether the index is one of bits
    canary: str | None = None  # vectors of fixed texts
    tuning: Tuning | None = None


class PostgresTable(Connection):
    """The rows of an index in a table.

    Its URL is ``postgresql://user:password@host/database?table=NAME``; other options of the URL are psycopg's.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.table = self.options.get("table", TABLE)
        if not 0 < len(self.table.encode()) <= _LONGEST_TABLE or "\0" in self.table:
            raise InputError(
                f"the name of a table has 1 to {_LONGEST_TABLE} bytes; {self.table!r:.80} is longer or empty."
            )
        if (bits := self.options.get("bits", "false")) not in ("true", "false"):
            raise InputError(f"bits={bits:.80}: write true or false.")
        self._bits = bits == "true"
        self.name = f"table {self.table} of {self.name}"
        self._connection = self._connect()
        self._at = self._quoted(self.table)
        self._columns: dict[str, str] = {}  # SQL type by name
        self._effort = 0  # of the search that goes on
        self._comment = self._read_comment()

    # -- what the table is ---------------------------------------------------------------------------------------

    def _read_comment(self) -> _Comment | None:
        """Read comment and columns; None if there is no table, or one that is not ours."""
        with self._errors("read"):
            row = self._connection.execute(
                "SELECT c.oid, obj_description(c.oid, 'pg_class') FROM pg_class c "
                "WHERE c.oid = to_regclass(quote_ident(%s))",
                [self.table],
            ).fetchone()
            self._is_there = row is not None
            comment = None if row is None else _parsed(row[1])
            if row is None or comment is None:
                return None
            columns = self._connection.execute(
                "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
                "WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                [row[0]],
            ).fetchall()
            self._columns = {name: kind for name, kind in columns if name == VECTOR or kind in arrow_types()}
            self._is_half = self._columns.get(VECTOR, "").endswith("halfvec")
            self._register(self._connection)
        return comment

    def _register(self, connection: Any) -> None:
        """Send and receive vectors in the binary format of pgvector: exact, and without parsing numbers."""
        psycopg = _extras.require("psycopg")
        try:
            _extras.require("pgvector.psycopg").register_vector(connection)
        except psycopg.ProgrammingError as error:
            if error.sqlstate is not None:  # an error of the server
                raise
            raise InputError(
                f"{self.name}: the type vector of pgvector is not in the search_path of this user."
            ) from None

    @property
    def _own_comment(self) -> _Comment:
        if self._comment is None:
            if self._is_there:
                raise InputError(f"{self.name} is not a table of isosent. Name another one: ?table=NAME.")
            raise InputError(f"{self.name}: there is no such table. Push an index to it first.")
        return self._comment

    @property
    def exists(self) -> bool:
        """Whether the table is there and is ours."""
        return self._comment is not None

    @property
    def space(self) -> Space:
        """Space of the vectors."""
        return Space(self._own_comment.fingerprint, self._own_comment.reference)

    @property
    def canary(self) -> str | None:
        """Vectors of fixed texts; None if they were not kept."""
        return self._own_comment.canary

    @property
    def dim(self) -> int:
        """Width of the vectors."""
        return self._own_comment.dim

    @property
    def count(self) -> int:
        """Number of rows."""
        self._own_comment  # noqa: B018
        with self._errors("read"):
            return int(self._run(f"SELECT count(*) FROM {self._at}").fetchone()[0])

    def _schema(self) -> Any:
        """The columns as pyarrow reads them."""
        import pyarrow as pa

        types = arrow_types() | {self._columns[VECTOR]: pa.list_(pa.float32(), self.dim)}
        return pa.schema([(name, types[kind]) for name, kind in self._columns.items()])

    # -- writing -------------------------------------------------------------------------------------------------

    def create(
        self, schema: Any, space: Space, dim: int, *, canary: str | None = None, size: SearchSettings = FULL_SIZE
    ) -> None:
        """Make the table and its trigger; one that exists must be of the same space and width."""
        if self._comment is None and self._is_there:
            self._own_comment  # noqa: B018
        if self._comment is None:
            if dim > _LARGEST_HALFVEC:
                raise InputError(
                    f"{self.name}: pgvector can index {_LARGEST_HALFVEC:,} dimensions; the vectors have {dim:,}. "
                    f"Fit a model with fewer: {option('n_components', 512)}."
                )
            columns = sql_columns(schema, dim)
            comment = _Comment(FORMAT, _FORMAT_VERSION, space.fingerprint, space.reference, dim, self._bits, canary)
            self._create(columns, comment)
            self._comment = self._read_comment()
        if not are_same(self.space.fingerprint, space.fingerprint):
            raise InputError(
                f"{self.name} holds vectors of the space {self.space}; these belong to {space}. Encode both with the "
                "same model, or name another table."
            )
        if self.dim != dim:
            raise InputError(f"{self.name} holds vectors with {self.dim} dimensions; these have {dim}.")

    def _create(self, columns: dict[str, str], comment: _Comment) -> None:
        with self._errors("create"), self._connection.transaction():
            # of two that create the same table, the second finds it
            self._run("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"isosent {self.table}"])
            row = self._run("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
            if row is None:
                with self._errors("extension"):
                    self._run("CREATE EXTENSION vector")
                row = self._run("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
            if tuple(map(int, re.findall(r"\d+", row[0])[:2])) < _OLDEST_PGVECTOR:
                oldest = ".".join(map(str, _OLDEST_PGVECTOR))
                raise InputError(f"{self.name}: needs pgvector {oldest} or newer; the database has {row[0]}.")
            if self._read_comment() is not None:
                return
            defined = ", ".join(f"{self._quoted(name)} {kind}" for name, kind in columns.items())
            self._run(f"CREATE TABLE {self._at} ({defined}, PRIMARY KEY ({self._quoted(ID)}))")
            self._run(f"COMMENT ON TABLE {self._at} IS {self._literal(msgspec_json.encode(comment).decode())}")
            function = self._quoted(f"{self.table}_space")
            self._run(_TRIGGER.replace("{function}", function))
            self._run(
                f"CREATE TRIGGER isosent_space BEFORE INSERT OR UPDATE ON {self._at} "
                f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
            )
            if TEXT in columns:
                words = f"to_tsvector('simple', {self._quoted(TEXT)})"
                self._run(f"CREATE INDEX {self._quoted(self.table + '_words')} ON {self._at} USING gin ({words})")

    def finish(self, n_changed: int = 0, sample: Draw | None = None, say: Say | None = None) -> None:
        """Build the index of vectors, measure its recall, and say it.

        `sample` draws queries (n_queries, dim), with the exact cosine of the tenth nearest row of each (n_queries,).
        """
        say = say or (lambda _: None)
        is_built, before = self._build(say), self._own_comment.tuning
        tuning, drawn = retuned(before, n_changed, sample, self._measured, is_new=is_built)
        if tuning is not None and tuning != before:
            self._save(tuning)
        self._say_recall(say, drawn)

    def _build(self, say: Say) -> bool:
        """Build the HNSW index unless it is there: after many rows were added, as ten times as fast as before.

        Return whether it was built. Copies of the index, which processes left that were killed, are dropped.
        """
        operators, column = f"{'halfvec' if self._is_half else 'vector'}_ip_ops", self._quoted(VECTOR)
        if self._own_comment.bits:
            operators, column = "bit_hamming_ops", f"({_bits(column, self.dim)})"
        with self._errors("write"):
            is_there, leftovers, is_owner = self._indexes(operators)
        if is_there and not (leftovers and is_owner):
            return False
        with self._writing():
            self._lock(say)
            is_there, leftovers, _ = self._indexes(operators)
            for name in leftovers:
                self._run(f"DROP INDEX {name}")
                say(f"{self.name}: dropped {name.replace('%%', '%')}, an index that is not used")
            if not is_there:
                name = self._quoted(f"{self.table}_hnsw")
                options = f"(ef_construction = {_EF_CONSTRUCTION})"
                self._run(f"CREATE INDEX {name} ON {self._at} USING hnsw ({column} {operators}) WITH {options}")
        return not is_there

    def _indexes(self, operators: str) -> tuple[bool, list[str], bool]:
        """Whether an HNSW index serves a search; names of its copies and of invalid ones; whether the table is ours.

        Indexes of other columns, of other operators or of a part of the rows are their makers' business.
        """
        rows = self._run(
            "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), i.indisvalid, c.reloptions, i.indnatts, "
            "pg_get_expr(i.indexprs, i.indrelid) "
            "FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "JOIN pg_am a ON a.oid = c.relam JOIN pg_opclass o ON o.oid = i.indclass[0] "
            "LEFT JOIN pg_attribute v ON v.attrelid = i.indrelid AND v.attnum = i.indkey[0] "
            "WHERE i.indrelid = to_regclass(quote_ident(%s)) AND a.amname = 'hnsw' AND o.opcname = %s "
            "AND i.indpred IS NULL AND (v.attname = %s OR pg_get_expr(i.indexprs, i.indrelid) LIKE %s) "
            "ORDER BY NOT i.indisvalid, c.oid",
            [self.table, operators, VECTOR, f"%binary_quantize({VECTOR})%"],
        ).fetchall()
        owner = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(quote_ident(%s))"
        is_owner = bool(self._run(owner, [self.table]).fetchone()[0])
        definitions, leftovers = [], []
        for name, is_valid, *definition in rows:
            if not is_valid or definition in definitions:
                leftovers.append(name.replace("%", "%%"))
            definitions.append(definition)
        return any(row[1] for row in rows), leftovers, is_owner

    def _lock(self, say: Say) -> None:
        """Wait until nobody else builds an index of the table; CREATE INDEX of others conflicts with this lock."""
        errors = _extras.require("psycopg").errors
        statement = f"LOCK TABLE {self._at} IN SHARE UPDATE EXCLUSIVE MODE"
        try:
            with self._connection.transaction():
                self._run(f"{statement} NOWAIT")
        except errors.LockNotAvailable:
            query = (
                "SELECT pid FROM pg_locks WHERE relation = to_regclass(quote_ident(%s)) AND granted "
                "AND mode IN ('ShareUpdateExclusiveLock', 'ShareLock') AND pid <> pg_backend_pid()"
            )
            if row := self._run(query, [self.table]).fetchone():
                say(f"{self.name}: waiting for process {row[0]} of the server, which builds its index or vacuums it")
            self._run(statement)

    # -- recall --------------------------------------------------------------------------------------------------

    def _measured(self, sample: Sample) -> Tuning:
        """The least effort that reaches the recall."""
        efforts = _EFFORTS_BITS if self._own_comment.bits else _EFFORTS
        return least_effort(efforts, lambda effort: self._recall(*sample, effort), len(sample[0]), self.count)

    def _recall(self, queries: NDArray[np.float32], least_scores: NDArray[np.float32], effort: int | None) -> float:
        """Share of the ten nearest rows that a search finds."""
        tables = self._searched(queries, K_MEASURED, effort)
        return share_found(tables, least_scores, 1e-4 if self._is_half else 1e-5)

    def _save(self, tuning: Tuning) -> None:
        psycopg = _extras.require("psycopg")
        self._comment = structs.replace(self._own_comment, tuning=tuning)
        with self._errors("write"), suppress(psycopg.errors.InsufficientPrivilege):  # only the owner may write it
            text = self._literal(msgspec_json.encode(self._comment).decode())
            self._run(f"COMMENT ON TABLE {self._at} IS {text}")

    def add(self, batch: Any) -> None:
        """Add the rows of a record batch, and replace those with the same ids, in one transaction."""
        target = self._schema()
        check_columns(f"the {self.name}", target, batch.schema)
        if nul := nul_in(batch):
            raise InputError(
                f"{self.name}: the column {nul[1]} of the row {nul[0]!r:.80} holds the character NUL (\\0), which "
                "PostgreSQL cannot store. Remove it from the text, and push again."
            )
        names = [name for name in target.names if name in batch.schema.names]
        values = [self._column(batch.column(name), target.field(name)) for name in names]
        listed = ", ".join(map(self._quoted, names))
        # columns that the rows lack get what new rows get: null, unless somebody set another default
        replaced = ", ".join(
            f"{self._quoted(name)} = {f'excluded.{self._quoted(name)}' if name in names else 'DEFAULT'}"
            for name in target.names
            if name != ID
        )
        types = [re.sub(r"^.*\.", "", self._columns[name]) for name in names]
        with self._writing():
            self._run("SELECT set_config('isosent.space', %s, true)", [self._own_comment.fingerprint])
            self._run(f"CREATE TEMP TABLE isosent_added ON COMMIT DROP AS SELECT {listed} FROM {self._at} LIMIT 0")
            statement = f"COPY isosent_added ({listed}) FROM STDIN (FORMAT BINARY)".replace("%%", "%")  # no parameters
            with self._connection.cursor().copy(statement) as copy:
                copy.set_types(types)
                for row in zip(*values, strict=True):
                    copy.write_row(row)
            # in the order of ids: two writers lock rows in the same order, so that they wait and never block each other
            self._run(
                f"INSERT INTO {self._at} ({listed}) SELECT {listed} FROM isosent_added ORDER BY {self._quoted(ID)} "
                f"ON CONFLICT ({self._quoted(ID)}) DO UPDATE SET {replaced}"
            )

    def _column(self, column: Any, field: Any) -> Sequence[Any]:
        """Values of a column for COPY."""
        if field.name == VECTOR:
            return self._vector_values(column)
        return plain_values(self.name, column, field)

    def _vector_values(self, column: Any) -> list[Any]:
        width = getattr(column.type, "list_size", None)
        if width != self.dim:
            raise InputError(
                f"{self.name} holds vectors with {self.dim} dimensions; these have {width or column.type}."
            )
        flat = column.values.slice(column.offset * width, len(column) * width)
        vectors = self._sql_values(flat.to_numpy(zero_copy_only=False).reshape(len(column), width))
        return [None if is_null else v for v, is_null in zip(vectors, column.is_null().to_pylist(), strict=True)]

    def _sql_values(self, vectors: NDArray[np.floating]) -> list[Any]:
        """Vectors (n, dim) as those of pgvector."""
        pgvector = _extras.require("pgvector")
        make = pgvector.HalfVector if self._is_half else pgvector.Vector
        return [make(vector) for vector in vectors]

    def delete(self, ids: Sequence[Any]) -> int:
        """Delete rows; ids that the table has not are left out of the count."""
        wanted = self._ids_of(ids)
        with self._errors("write"):
            return int(self._run(f"DELETE FROM {self._at} WHERE {self._quoted(ID)} = ANY(%s)", [wanted]).rowcount)

    def _ids_of(self, ids: Sequence[Any]) -> list[Any]:
        self._own_comment  # noqa: B018
        if self._columns[ID] == "text":
            return [str(name) for name in ids]
        try:
            return [int(name) for name in ids]
        except ValueError as error:
            raise InputError(f"the ids of {self.name} are whole numbers: {brief(error)}.") from None

    def _say_recall(self, say: Say, drawn: Sample | None) -> None:
        comment = self._own_comment
        if (tuning := comment.tuning) is None:
            return
        effort = f"{tuning.effort} candidates" if comment.bits else f"ef_search {tuning.effort}"
        say(tuning.sentence(effort))
        if tuning.recall < MIN_RECALL:
            advice = ". A table without bits=true finds more" if comment.bits else ""
            say(f"warning: no setting reached the recall of {MIN_RECALL}{advice}")
        with self._errors("search"):
            chosen = self._set.get("hnsw.ef_search")
        if chosen is not None:
            by = _SOURCES.get(chosen[1], chosen[1])
            recall = f" Its recall@10 is {self._recall(*drawn, None):.4f}." if drawn is not None else ""
            say(f"hnsw.ef_search is {chosen[0]}, set by {by}; searches use that.{recall}")

    # -- reading -------------------------------------------------------------------------------------------------

    def batches(self, n_rows: int = 8192, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield all rows, or some of their columns, as record batches, ordered by id."""
        import pyarrow as pa

        self._own_comment  # noqa: B018
        schema = self._schema()
        schema = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        connection = self._connect()  # of its own: a cursor ends with its transaction
        with connection, self._errors("read"):
            self._register(connection)
            with connection.transaction(), connection.cursor("isosent", binary=True) as cursor:
                listed = ", ".join(map(self._quoted, schema.names))
                cursor.execute(f"SELECT {listed} FROM {self._at} ORDER BY {self._quoted(ID)}", ())
                while rows := cursor.fetchmany(n_rows):
                    yield pa.RecordBatch.from_arrays(self._arrays(rows, schema), schema=schema)

    def _arrays(self, rows: list[Any], schema: Any) -> list[Any]:
        """Columns of rows from the server."""
        import pyarrow as pa

        columns = zip(*rows, strict=True) if rows else [()] * len(schema)
        arrays = []
        for values, field in zip(columns, schema, strict=True):
            if field.name == VECTOR:
                is_null = pa.array([value is None for value in values], pa.bool_())
                vectors = np.zeros((len(values), self.dim), np.float32)
                for row, value in enumerate(values):
                    if value is not None:
                        vectors[row] = value.to_numpy()
                arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), self.dim, mask=is_null))
            else:
                arrays.append(pa.array(values, field.type))
        return arrays

    # -- searching -----------------------------------------------------------------------------------------------

    def search(
        self, units: NDArray[np.float32], k: int, *, where: str | None = None, texts: list[str] | None = None
    ) -> list[Any]:
        """One table per query, best first: id, score (cosine), text, metadata. With texts, words count too."""
        return self._searched(units, k, None, where=where, texts=texts)

    def _searched(
        self,
        units: NDArray[np.float32],
        k: int,
        effort: int | None,
        *,
        where: str | None = None,
        texts: list[str] | None = None,
    ) -> list[Any]:
        """As `search`, with an effort other than that of the table."""
        import pyarrow as pa

        schema = self._schema()
        if units.shape[1] != self.dim:
            raise InputError(
                f"{self.name} holds vectors with {self.dim} dimensions; the queries have {units.shape[1]}."
            )
        if texts is not None and TEXT not in schema.names:
            raise InputError(f"{self.name} has no texts, so it cannot be searched by words.")
        condition, values = self._condition(where)
        names = [ID, *(name for name in schema.names if name not in (ID, VECTOR))]
        fields = [schema.field(ID), pa.field("score", pa.float32())]
        fields += [schema.field(old).with_name(new) for old, new in names_beside_hits(names[1:]).items()]
        tables = []
        with self._errors("search"), self._connection.transaction():
            n_hits = max(k, FUSED) if texts is not None else k
            self._effort = self._settings(n_hits, effort, is_filtered=where is not None)
            for row, (vector, unit) in enumerate(zip(self._sql_values(units), units, strict=True)):
                if texts is None:
                    rows = self._nearest(names, vector, k, condition, values) if unit.any() else []
                else:
                    rows = self._fused(names, vector if unit.any() else None, texts[row], k, condition, values)
                arrays = self._arrays(rows, pa.schema(fields))
                tables.append(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
        return tables

    @cached_property
    def _set(self) -> dict[str, tuple[str, str]]:
        """Settings of searches by HNSW that the user has chosen: value and source by name."""
        # pgvector, which knows their names, is loaded by the first use of its type
        rows = self._run(
            "SELECT name, setting, source FROM pg_settings, (SELECT '[0]'::vector) AS loaded "
            "WHERE name = ANY(%s) AND source <> 'default'",
            [["hnsw.ef_search", "hnsw.iterative_scan"]],
        ).fetchall()
        return {name: (setting, source) for name, setting, source in rows}

    def _settings(self, k: int, effort: int | None, *, is_filtered: bool) -> int:
        """Set up searches of a transaction, but for what the user has set; return how many candidates bits need."""
        comment = self._own_comment
        tuned = None if comment.tuning is None else comment.tuning.effort
        usual, a_hit = (_EFFORT_BITS, _A_HIT_BITS) if comment.bits else (_EFFORT, _A_HIT)
        is_chosen = effort is not None
        effort = (effort or tuned or usual) + a_hit * max(0, k - K_MEASURED)
        ef_search = min(max(effort, k, _FILTERED_EF if is_filtered else 0), _LARGEST_EF)
        for name, value in (("hnsw.ef_search", str(ef_search)), ("hnsw.iterative_scan", "relaxed_order")):
            if is_chosen or name not in self._set:
                self._run("SELECT set_config(%s, %s, true)", [name, value])
        return effort

    def _condition(self, where: str | None) -> tuple[str, list[Any]]:
        """A filter as SQL, with its values."""
        self._own_comment  # noqa: B018
        if where is None:
            return "true", []
        values: list[Any] = []

        def value(given: Any) -> str:
            values.append(given)
            return "%s"

        return to_sql(parsed_filter(where, self._schema()), self._quoted, value), values

    def _nearest(self, names: Sequence[str], vector: Any, k: int, condition: str, values: list[Any]) -> list[Any]:
        """Rows nearest to a vector: columns and, second, the cosine."""
        column = self._quoted(VECTOR)
        listed = ", ".join(map(self._quoted, names[1:]))
        inner = f"{column} <#> %s AS isosent_distance FROM {self._at} WHERE {column} IS NOT NULL AND {condition}"
        # rows that are as near as the last are fetched, too, so that the order of ids says which are returned
        ordered, fetched, parameters = "isosent_distance", "FETCH FIRST (%s) ROWS WITH TIES", [vector, *values, k]
        if self._own_comment.bits:
            bits = _bits(column, self.dim)
            ordered, fetched = f"{bits} <~> {_bits('%s', self.dim)}", "LIMIT %s"  # many rows differ in as many bits
            parameters = [vector, *values, vector, max(self._effort, k)]
        # + 0: PostgreSQL takes the rows of the index as sorted, and a relaxed scan does not quite sort them
        query = (
            f"SELECT {self._quoted(ID)}, -isosent_distance{', ' if listed else ''}{listed} "
            f"FROM (SELECT *, {inner} ORDER BY {ordered} {fetched}) AS nearest "
            f"ORDER BY isosent_distance + 0, {self._quoted(ID)} LIMIT %s"
        )
        rows = self._run(query, [*parameters, k], binary=True).fetchall()
        if len(rows) < k:  # a scan of HNSW gives up after 20,000 rows that a filter hides
            with self._connection.transaction(force_rollback=True):
                self._run("SELECT set_config('enable_indexscan', 'off', true)")
                rows = self._run(query, [*parameters, k], binary=True).fetchall()
        return list(rows)

    def _fused(
        self,
        names: Sequence[str],
        vector: Any,
        text: str,
        k: int,
        condition: str,
        values: list[Any],
    ) -> list[Any]:
        """As `_nearest`, by the fused rankings of vectors and words."""
        found = self._nearest([ID], vector, max(k, FUSED), condition, values) if vector is not None else []
        by_vectors = [row[0] for row in found]
        words = f"to_tsvector('simple', {self._quoted(TEXT)})"
        rows = self._run(
            f"SELECT {self._quoted(ID)} FROM {self._at}, websearch_to_tsquery('simple', %s) AS isosent_query "
            f"WHERE {words} @@ isosent_query AND {condition} "
            f"ORDER BY ts_rank_cd({words}, isosent_query) DESC, {self._quoted(ID)} LIMIT %s",
            [text, *values, FUSED],
        ).fetchall()
        by_words = [row[0] for row in rows]
        ids = list(dict.fromkeys([*by_vectors, *by_words]))
        numbers = {name: number for number, name in enumerate(ids)}
        rankings = [np.array([numbers[name] for name in ranking], np.int64) for ranking in (by_vectors, by_words)]
        best = [ids[number] for number in fuse(rankings, k)[0]]
        listed = "".join(f", {self._quoted(name)}" for name in names[1:])
        score = "0" if vector is None else f"coalesce(-({self._quoted(VECTOR)} <#> %s), 0)"
        full = self._run(
            f"SELECT {self._quoted(ID)}, {score}{listed} FROM {self._at} WHERE {self._quoted(ID)} = ANY(%s)",
            [*([] if vector is None else [vector]), best],
            binary=True,
        ).fetchall()
        return sorted(full, key=lambda row: best.index(row[0]))


def _parsed(comment: str | None) -> _Comment | None:
    """The comment of our tables; None for others."""
    try:
        parsed = msgspec_json.decode((comment or "").encode(), type=_Comment)
    except (DecodeError, ValidationError):
        return None
    if parsed.format != FORMAT:
        return None
    if parsed.format_version != _FORMAT_VERSION:
        raise InputError(
            f"the table has format version {parsed.format_version}; this isosent reads version {_FORMAT_VERSION}."
        )
    return parsed


def _bits(vector: str, dim: int) -> str:
    return f"binary_quantize({vector})::bit({dim})"
