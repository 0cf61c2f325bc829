"""Qdrant as a store of the rows of an index: a collection, whose metadata name the space, on a server or in a folder.

A point is a row: its payload is the columns that are not null, and its id that of the row, or for other strings than
UUIDs a UUID made of it, because Qdrant has no others. Vectors are compared by inner product, which leaves them as they
are; the score of unit vectors is the cosine. `create` chooses the codes that are nearest to those of the index, and
candidates are scored again by the vectors; `finish` waits for the server's index, measures the recall, and keeps it
with the collection. A filter becomes conditions (`_filter`), or is refused where Qdrant would give other rows. A folder
is the client's own local mode, which compares all rows and has no codes and no index.
"""

from __future__ import annotations

import math
import os
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, UUID, uuid5

import numpy as np
from msgspec import Struct, ValidationError, convert, structs, to_builtins
from numpy.typing import NDArray

from isosent import _extras
from isosent._check import brief
from isosent.errors import InputError, IsosentError, IsosentWarning, OutputError, next_step, option
from isosent.io.atomic import locked
from isosent.search.commits import FORMAT
from isosent.search.engine import FULL_SIZE, K_MEASURED, SearchSettings
from isosent.search.rows import ID, TEXT, VECTOR, check_columns, names_beside_hits, plain_type, plain_values
from isosent.search.stores.database import DIGEST, Fetched, best_hits, parsed_filter, place_and_table
from isosent.search.stores.tuning import MIN_RECALL, Draw, Sample, Say, Tuning, least_effort, retuned, share_found
from isosent.search.where import Condition
from isosent.space import Space
from isosent.storage import Storage

KEY_VARIABLE: Final = "QDRANT_API_KEY"
_BEGINNING: Final = "qdrant:"
_METADATA: Final = "isosent"  # key among the metadata of a collection
_VERSION: Final = 1  # of what is written there
_MANY_OF_FOLDER: Final = 2000  # rows at once, whose time is said
_TIMEOUT: Final = 60  # seconds, of a request
_REQUEST_BYTES: Final = 8 << 20  # a server takes 32 MiB, unless it is set up otherwise
_NUMBER_BYTES: Final = 22  # of a float32 in JSON, at most
_PARTS: Final = (64, 32, 16, 8, 4)  # by how much product codes of Qdrant compress float32
_EF: Final = 128  # hnsw_ef of the first effort
_EFFORTS: Final = (1, 2, 4, 8)  # times as many nodes and candidates
_EXACT: Final = 2**53  # Qdrant compares whole numbers in order as float64
_MOST: Final = 2**63 - 1
_WAIT: Final = 1  # seconds between two looks at the state of the index
_LONGEST_WAIT: Final = 600  # seconds in which the server indexes nothing more
_KINDS: Final = {  # type of pyarrow, and of Qdrant's index of a column
    "string": "keyword",
    "int64": "integer",
    "double": "float",
    "bool": "bool",
    "date32[day]": "datetime",
    "timestamp[us]": "datetime",
    "timestamp[us, tz=UTC]": "datetime",
}


class _Facts(Struct, frozen=True):
    """What a collection is, in its metadata."""

    format: str
    format_version: int
    space: Space
    dim: int
    columns: dict[str, str]  # type by name, but for the vector
    oversampling: int = 0  # candidates per result that are scored again; 0: no codes
    canary: str | None = None  # vectors of fixed texts
    tuning: Tuning | None = None


class QdrantTable:
    """The rows of an index in a collection; its URL is ``qdrant:``, a server or a folder, and ``?table=NAME``."""

    def __init__(self, url: str) -> None:
        self._is_server = _is_server(url.removeprefix(_BEGINNING))
        self._place, self._name = place_and_table(url, _BEGINNING)
        self._url = url  # holds no password: it would have been refused
        self._key = os.environ.get(KEY_VARIABLE, "").strip() or None if self._is_server else None
        self.name = f"table {self._name} of {_BEGINNING}{self._place}"
        self._models = _extras.require("qdrant_client.models")
        self._opened = ExitStack()
        self._client: Any = None
        self._is_slow_said = False
        if self._is_server or (Path(self._place) / "meta.json").is_file():  # else opening it would make it
            self._open()
        self._facts = self._read_facts()

    def _open(self) -> None:
        make = _extras.require("qdrant_client").QdrantClient
        with self._errors("connect"):
            if self._is_server:
                self._client = make(url=self._place, api_key=self._key, timeout=_TIMEOUT, check_compatibility=False)
            else:  # one client at a time can open it: others wait
                self._opened.enter_context(locked(Path(self._place)))
                self._client = make(path=self._place)
        self._opened.callback(self._client.close)

    def close(self) -> None:
        """Close the connection."""
        self._opened.close()

    # -- what the table is ---------------------------------------------------------------------------------------

    def _read_facts(self) -> _Facts | None:
        self._is_there = False
        if self._client is None:
            return None
        with self._errors("read"):
            self._is_there = self._client.collection_exists(self._name)
            metadata = self._client.get_collection(self._name).config.metadata if self._is_there else None
        try:
            facts = convert((metadata or {}).get(_METADATA), _Facts)
        except ValidationError:
            return None
        if (facts.format, facts.format_version) != (FORMAT, _VERSION):
            raise InputError(f"the {self.name} has format version {facts.format_version}; {_VERSION} is read.")
        return facts

    @property
    def _own_facts(self) -> _Facts:
        if self._facts is None:
            if self._is_there:
                raise InputError(f"the {self.name} was not made by isosent: it names no space. Add ?table=NAME.")
            step = next_step(
                f"isosent index push INDEX {option('to', self._url)}", "isosent.search.stores.database.push"
            )
            with self._errors("read"):
                found = [] if self._client is None else self._client.get_collections().collections
            others = f" Its tables: {brief(', '.join(sorted(each.name for each in found)), 300)}." if found else ""
            raise InputError(f"{_BEGINNING}{self._place} has no table {self._name}.{others} Make it: {step}.")
        return self._facts

    @property
    def exists(self) -> bool:
        """Whether the table is there and is ours."""
        return self._facts is not None

    @property
    def space(self) -> Space:
        """The space of its vectors."""
        return self._own_facts.space

    @property
    def canary(self) -> str | None:
        """Vectors of fixed texts; None if they were not kept."""
        return self._own_facts.canary

    @property
    def dim(self) -> int:
        """Width of its vectors."""
        return self._own_facts.dim

    @property
    def count(self) -> int:
        """Number of rows."""
        self._own_facts  # noqa: B018
        with self._errors("read"):
            return int(self._client.count(self._name, exact=True).count)

    def _schema(self) -> Any:
        """The columns as pyarrow reads them, the vector last."""
        import pyarrow as pa

        types = {str(kind): kind for kind in (pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.date32())}
        types |= {str(kind): kind for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"))}
        fields = [(name, types[kind]) for name, kind in self._own_facts.columns.items()]
        return pa.schema([*fields, (VECTOR, pa.list_(pa.float32(), self.dim))])

    # -- writing -------------------------------------------------------------------------------------------------

    def create(
        self, schema: Any, space: Space, dim: int, *, canary: str | None = None, size: SearchSettings = FULL_SIZE
    ) -> None:
        """Make an empty collection, unless another writer has just made it, with the codes of a size."""
        columns = {each.name: str(plain_type("Qdrant", each)) for each in schema if each.name != VECTOR}
        for name in columns:
            if not name or '"' in name or "\\" in name:
                raise InputError(f"the {self.name} cannot have a column named {name!r}. Rename it.")
        if self._client is None:
            with self._errors("write"):
                Path(self._place).mkdir(parents=True, exist_ok=True)
            self._open()
            self._facts = self._read_facts()
        if self._is_there:
            self._own_facts  # noqa: B018
            return
        oversampling = 0 if size.store.is_float else max(size.oversampling, 1)
        facts = _Facts(FORMAT, _VERSION, space, dim, columns, oversampling, canary)
        models = self._models
        vectors = models.VectorParams(
            size=dim,
            distance=models.Distance.DOT,  # Cosine would change the last digits of vectors of length 1
            datatype=None if size.store is Storage.float32 else models.Datatype.FLOAT16,
            on_disk=True if oversampling else None,
        )
        with self._errors("write"):
            self._client.create_collection(
                self._name,
                vectors_config=vectors,
                quantization_config=self._codes(size, dim),
                metadata={_METADATA: to_builtins(facts)},
            )
            self._facts = self._read_facts()
            if self._facts is None:
                self._client.delete_collection(self._name)
                raise InputError(f"the server of the {self.name} keeps no metadata. Qdrant 1.16 or newer is needed.")
            self._index_columns()  # before the rows: the graph of vectors takes them in

    def _index_columns(self) -> None:
        """Index the columns that a filter may name; what is there stays."""
        for name, kind in self._own_facts.columns.items() if self._is_server else ():
            if name not in (TEXT, DIGEST):
                self._client.create_payload_index(self._name, _path(name), field_schema=_KINDS[kind])

    def _codes(self, size: SearchSettings, dim: int) -> Any:
        """The codes of Qdrant that are nearest to those of an index, in memory; the vectors stay on disk."""
        models = self._models
        if size.store is Storage.int8:
            scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
            return models.ScalarQuantization(scalar=scalar)
        if size.store is Storage.binary:
            return models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
        if size.store is Storage.product:
            ratio = next(each for each in _PARTS if 4 * dim >= each * size.code_bytes)
            product = models.ProductQuantizationConfig(compression=f"x{ratio}", always_ram=True)
            return models.ProductQuantization(product=product)
        return None

    def add(self, batch: Any) -> None:
        """Add rows, or replace those with the same ids, in requests that a server takes."""
        schema = self._schema()
        check_columns(f"the {self.name}", schema, batch.schema)
        names = [name for name in schema.names if name in batch.schema.names and name != VECTOR]
        values = [_written(plain_values(self.name, batch.column(name), schema.field(name))) for name in names]
        for name, column in zip(names, values, strict=True):
            if infinite := [row for row, value in enumerate(column) if isinstance(value, float) and math.isinf(value)]:
                row = batch.column(ID)[infinite[0]].as_py()
                raise InputError(  # JSON has none: a server would keep null
                    f"the {self.name} cannot hold {column[infinite[0]]} in the column {name} of row {row!r}. Replace "
                    "it by a number, or leave it empty."
                )
        if not self._is_server and batch.num_rows > _MANY_OF_FOLDER and not self._is_slow_said:
            self._is_slow_said = True
            message = f"a folder of Qdrant takes about 25 ms for each row; a server is fast: {_BEGINNING}http://localhost:6333"
            warnings.warn(message, IsosentWarning, stacklevel=3)
        points: list[Any] = []
        n_bytes = 0
        for vector, *row in zip(batch.column(VECTOR).to_pylist(), *values, strict=True):
            payload = {name: value for name, value in zip(names, row, strict=True) if value is not None}
            size = _NUMBER_BYTES * len(vector or ()) + len(str(payload).encode("utf-8", "replace"))
            if points and n_bytes + size > _REQUEST_BYTES:
                self._upsert(points)
                points, n_bytes = [], 0
            points.append(
                self._models.PointStruct(
                    id=_point(payload[ID]), vector={} if vector is None else vector, payload=payload
                )
            )
            n_bytes += size
        if points:
            self._upsert(points)

    def _upsert(self, points: list[Any]) -> None:
        with self._errors("write"):
            self._client.upsert(self._name, points=points, wait=True)

    def delete(self, ids: Sequence[Any]) -> int:
        """Delete rows; return how many there were."""
        self._own_facts  # noqa: B018
        points, models = [_point(name) for name in ids], self._models
        if not points:
            return 0
        with self._errors("write"):
            there = models.Filter(must=[models.HasIdCondition(has_id=points)])
            n_there = self._client.count(self._name, count_filter=there, exact=True).count
            self._client.delete(self._name, points_selector=models.PointIdsList(points=points), wait=True)
            return int(n_there)

    def finish(self, n_changed: int = 0, sample: Draw | None = None, say: Say | None = None) -> None:
        """Wait until the server has indexed the vectors, measure the recall, and say it."""
        say = say or (lambda _: None)
        facts = self._own_facts
        if not self._is_server:
            if facts.oversampling:
                say(f"{self.name}: a folder has no codes; searches compare all vectors. A server of Qdrant has them.")
            return
        with self._errors("write"):
            self._index_columns()  # for a push that was killed before it did
        if not self._is_indexed(say):
            warnings.warn(
                f"the {self.name} has all rows, but its server indexed no more of them for {_LONGEST_WAIT} s, "
                "so the recall is not measured. Look for an error in its log, and push again when it is green.",
                IsosentWarning,
                stacklevel=2,
            )
            return
        tuning, _ = retuned(facts.tuning, n_changed, sample, self._measured, is_new=False)
        if tuning is None:
            return
        if tuning != facts.tuning:
            self._facts = structs.replace(facts, tuning=tuning)
            with self._errors("write"):
                self._client.update_collection(self._name, metadata={_METADATA: to_builtins(self._facts)})
        candidates = f", {facts.oversampling * tuning.effort} candidates per result" if facts.oversampling else ""
        say(tuning.sentence(f"hnsw_ef {_EF * tuning.effort}{candidates}"))
        if tuning.recall < MIN_RECALL:
            say(f"warning: no setting reached the recall of {MIN_RECALL}")

    def _is_indexed(self, say: Say) -> bool:
        """Wait for the index, without which a search would compare all rows and find them all."""
        n_indexed, since = None, time.monotonic()
        while True:
            with self._errors("read"):
                state = self._client.get_collection(self._name)
            if state.status != self._models.CollectionStatus.YELLOW:
                return True
            if n_indexed is None:
                say(f"{self.name}: all rows are written; waiting for the server to index them")
            if state.indexed_vectors_count != n_indexed:
                n_indexed, since = state.indexed_vectors_count or 0, time.monotonic()
            if time.monotonic() - since > _LONGEST_WAIT:
                return False
            time.sleep(_WAIT)

    def _measured(self, sample: Sample) -> Tuning:
        """The least effort that reaches the recall; float16 rounds cosines."""

        def recall(effort: int) -> float:
            return share_found(self._searched(sample[0], K_MEASURED, None, effort), sample[1], 1e-4)

        return least_effort(_EFFORTS, recall, len(sample[0]), self.count)

    # -- reading -------------------------------------------------------------------------------------------------

    def batches(self, n_rows: int = 8192, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield all rows, or some of their columns, as record batches, in the order of Qdrant."""
        import pyarrow as pa

        schema = self._schema()
        schema = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        payload = [_path(name) for name in schema.names if name != VECTOR]
        limit = (
            min(n_rows, max(1, 4 * _REQUEST_BYTES // (_NUMBER_BYTES * self.dim))) if VECTOR in schema.names else n_rows
        )
        offset = None
        while True:
            with self._errors("read"):
                points, offset = self._client.scroll(
                    self._name,
                    limit=limit,
                    offset=offset,
                    with_payload=payload if columns is not None else True,
                    with_vectors=VECTOR in schema.names,
                )
            if points:
                arrays = [self._column(points, each) for each in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            if offset is None:
                return

    def _column(self, points: list[Any], each: Any) -> Any:
        """A column of points."""
        import pyarrow as pa

        if each.name == VECTOR:
            return pa.array([point.vector or None for point in points], each.type)
        values = [(point.payload or {}).get(each.name) for point in points]
        is_time = pa.types.is_temporal(each.type)  # written as texts
        return pa.array(values, pa.string()).cast(each.type) if is_time else pa.array(values, each.type)

    # -- searching -----------------------------------------------------------------------------------------------

    def search(
        self, units: NDArray[np.float32], k: int, *, where: str | None = None, texts: list[str] | None = None
    ) -> list[Any]:
        """One table per query, best first: id, score (cosine), text, metadata."""
        if texts is not None:
            raise InputError(
                f"search: {option('hybrid', True)} needs a ranking by words, which the {self.name} has not. Pull an "
                "index, or push it to PostgreSQL or LanceDB."
            )
        tuning = self._own_facts.tuning
        return self._searched(units, k, where, 1 if tuning is None else tuning.effort)

    def _searched(self, units: NDArray[np.float32], k: int, where: str | None, effort: int) -> list[Any]:
        import pyarrow as pa

        models, schema, facts = self._models, self._schema(), self._own_facts
        names = names_beside_hits([name for name in schema.names if name not in (ID, VECTOR)])
        chosen = None if where is None else _filter(models, parsed_filter(where, schema))
        params = None
        if self._is_server:
            codes = models.QuantizationSearchParams(rescore=True, oversampling=float(facts.oversampling * effort))
            params = models.SearchParams(hnsw_ef=_EF * effort, quantization=codes if facts.oversampling else None)
        tables = []
        for unit in units:

            def fetched(n_rows: int, unit: NDArray[np.float32] = unit) -> Fetched:
                points: list[Any] = []
                if unit.any():  # a query of unknown words only is near to nothing
                    with self._errors("search"):
                        points = self._client.query_points(
                            self._name,
                            query=unit.tolist(),
                            query_filter=chosen,
                            search_params=params,
                            limit=n_rows,
                            with_payload=True,
                        ).points
                scores = pa.array([point.score for point in points], pa.float32())
                columns = {ID: self._column(points, schema.field(ID)), "score": scores}
                columns |= {names[name]: self._column(points, schema.field(name)) for name in names}
                return pa.table(columns), scores, len(points) < n_rows

            tables.append(best_hits(fetched, k))
        return tables

    # -- errors --------------------------------------------------------------------------------------------------

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Say in one sentence what Qdrant refused, without the key."""
        exceptions = _extras.require("qdrant_client.http.exceptions")
        try:
            yield
        except IsosentError:
            raise
        except exceptions.UnexpectedResponse as error:
            reason = self._reason(error)
            if error.status_code in (401, 403):
                reason += f" ({error.status_code}): the key in {KEY_VARIABLE} is missing, wrong, or allows less"
            raise self._refused(action, reason) from None
        except exceptions.ApiException as error:  # nobody answers, or not in time
            raise self._refused(action, self._reason(error)) from None
        except (ValueError, RuntimeError, OSError) as error:
            raise self._refused(action, self._reason(error)) from None

    def _refused(self, action: str, reason: str) -> IsosentError:
        if action == "write":
            return OutputError(f"the {self.name} could not be written: {reason}; push again to go on.")
        return InputError(f"the {self.name}: {reason}.")

    def _reason(self, error: Exception) -> str:
        """Why Qdrant refused, on one line and without the key."""
        text = str(error)
        with suppress(AttributeError, ValueError, KeyError, TypeError):  # answers of a proxy are written otherwise
            text = error.structured()["status"]["error"]  # type: ignore[attr-defined]
        text = " ".join(text.split())
        return brief((text.replace(self._key, "***") if self._key else text).rstrip("."), 300)


def _is_server(address: str) -> bool:
    """Whether an address is that of a server, not a folder."""
    if not re.match(r"\w\w+:/|//", address):  # C:/ is a folder
        place = address.partition("?")[0]
        if re.match(r"[\w.-]+:\d+(/|$)", place) and not Path(place).is_dir():
            raise InputError(
                f"{_BEGINNING}{place} names neither a folder nor a server. Write {_BEGINNING}http://{place} or "
                f"{_BEGINNING}https://{place} for a server."
            )
        return False
    try:
        parts = urlsplit(address)
        is_clear = parts.scheme in ("http", "https") and bool(parts.netloc) and "@" not in parts.netloc
    except ValueError:
        is_clear = False
    if not is_clear:  # not shown: it may hold a password
        raise InputError(
            f"the URL of a server is written {_BEGINNING}https://host:6333?table=NAME, without user and password; its "
            f"key is read from {KEY_VARIABLE}."
        )
    return True


def _point(name: Any) -> int | str:
    """The id of a point: a whole number, a UUID as it is, or one made of another string."""
    if not isinstance(name, str):
        return int(name)
    try:
        is_uuid = str(UUID(name)) == name
    except ValueError:
        is_uuid = False
    return name if is_uuid else str(uuid5(NAMESPACE_URL, f"isosent:{name}"))


def _written(values: list[Any]) -> list[Any]:
    """Values as JSON has them."""
    return [value.isoformat() if isinstance(value, date) else value for value in values]


def _path(name: str) -> str:
    """A column as Qdrant reads it: points and brackets would lead into values."""
    return name if re.fullmatch(r"(?a)[A-Za-z_]\w*", name) else f'"{name}"'


# -- filters -----------------------------------------------------------------------------------------------------------


def _filter(models: Any, condition: Condition, *, is_negated: bool = False) -> Any:
    """A filter of Qdrant with the logic of SQL: what is null matches no test, and neither does what is not the test."""
    match condition.operator:
        case "and" | "or":
            parts = [_filter(models, part, is_negated=is_negated) for part in condition.conditions]
            are_all = (condition.operator == "and") != is_negated
            return models.Filter(must=parts) if are_all else models.Filter(should=parts)
        case "not":
            return _filter(models, condition.conditions[0], is_negated=not is_negated)
    empty = models.IsEmptyCondition(is_empty=models.PayloadField(key=_path(str(condition.column))))
    if condition.operator == "is null":
        return models.Filter(must_not=[empty]) if is_negated else models.Filter(must=[empty])
    if condition.operator in ("<=", ">") and condition.values[0] == _MOST:  # which is rounded: all rows, or none
        is_none = (condition.operator == ">") != is_negated
        return models.Filter(must=[empty] if is_none else None, must_not=[empty])
    tests = [_test(models, condition, value) for value in condition.values]
    if (condition.operator == "!=") != is_negated:
        return models.Filter(must_not=[*tests, empty])
    return models.Filter(should=tests)


def _test(models: Any, condition: Condition, value: Any) -> Any:
    """A condition of Qdrant for one value."""
    key = _path(str(condition.column))
    bound = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}.get(condition.operator)
    if isinstance(value, (bool, str)) or (isinstance(value, int) and bound is None):
        if bound is not None:
            raise InputError(f"where: Qdrant has no order of {condition.column}. Compare it with = or in.")
        return models.FieldCondition(key=key, match=models.MatchValue(value=value))
    if isinstance(value, int) and abs(value) >= _EXACT:
        raise InputError(
            f"where: Qdrant rounds numbers as large as {value} in a comparison by order. Compare {condition.column} "
            "with = or in."
        )
    bounds = {"gte": value, "lte": value} if bound is None else {bound: value}
    make = models.DatetimeRange if isinstance(value, date) else models.Range
    return models.FieldCondition(key=key, range=make(**bounds))
