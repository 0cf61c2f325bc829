"""Rows that files hold: what the files that a user names become, as texts, vectors, ids and metadata.

`opened_rows` opens a file of texts, or of vectors whose texts may be in another file. A `RowFiles` reads them all
(`read`, for an index) or the texts alone (`read_texts`). `opened_inputs` opens several files, whose rows `joined_rows`
makes one. `read_rows` reads a table, where `_typed` makes numbers of columns that are all numbers. Texts of vectors in
another file are put in the order of these, which `_order_by_ids` finds by the ids of both.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from isosent import _check, _extras
from isosent._check import brief
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import FileFormatError, InputError, IsosentWarning, option
from isosent.io.bounds import open_content
from isosent.io.formats import format_by_name
from isosent.io.number_lists import SAMPLED_ROWS
from isosent.io.remote import local_copies
from isosent.io.shards import input_paths
from isosent.io.source import Source, kind_of_input, open_source
from isosent.io.tables import DECIMAL_COMMA, Table, is_number, open_table, table_in
from isosent.io.texts import TextSource, refuse_vectors, text_column, text_in
from isosent.io.typed_tables import typed_table
from isosent.io.vector_source import VectorSource
from isosent.search.rows import ID, TEXT, VECTOR, is_text
from isosent.search.units import units_of_lists
from isosent.storage import Storage

if TYPE_CHECKING:
    from isosent.search.index import Index

S = TypeVar("S", bound=Source)

_CUSTOM_ID: Final = "custom_id"  # of a request in a batch
_DIGITS: Final = re.compile(r"\d+", re.ASCII)
_FREE_CELLS: Final = 4 << 20  # of a table of text; beyond, a cell for each byte: rows of JSON may lack columns
# numbers that are written as numbers are: 007, +49 and 12e4 are names, and so is what 64 bits cannot hold exactly;
# 1e-05 and 1.5e+20 are how programs write numbers
_WHOLE: Final = r"^(0|-?[1-9]\d{0,18})$"
_DECIMAL: Final = r"^-?((0|[1-9]\d{0,14})(\.\d+)?|\d(\.\d+)?e[+-]\d{2,3})$"


@dataclass(frozen=True, slots=True)
class Rows:
    """What files hold, one value a row: texts or vectors or both, and ids and metadata as pyarrow reads them."""

    texts: list[str] | None
    vectors: VectorSource | None
    ids: Any = None
    metadata: Any = None
    column: str | None = None  # of the texts in their table, or in each of the tables

    @property
    def n_rows(self) -> int:
        return len(self.texts or ()) if self.vectors is None else self.vectors.n_rows

    @classmethod
    def of_index(cls, index: Index) -> Rows:
        """Those of an index, in its order: texts if it has any, vectors of its space, ids and metadata."""
        pa = _extras.require("pyarrow", extra="search")

        names = [name for name in index.schema.names if name != VECTOR]
        schema = pa.schema([index.schema.field(name) for name in names])
        table = pa.Table.from_batches([batch.select(names) for batch in index.batches()], schema)
        texts = [text or "" for text in table[TEXT].to_pylist()] if TEXT in names else None

        def read(first_row: int, n_rows: int) -> Iterator[Any]:
            yield from (units_of_lists(batch.column(VECTOR), index.dim) for batch in index.batches(n_rows))

        source = VectorSource(index.folder, len(index), index.dim, Storage.float32, index.space, read)
        others = [name for name in names if name not in (ID, TEXT)]
        return cls(texts, source, table[ID].to_pylist(), table.select(others))


@dataclass(frozen=True, slots=True)
class RowFiles:
    """A file of texts, or of vectors, which may have their texts in another file."""

    source: TextSource | VectorSource
    column: str | None  # of the texts
    texts: str | None  # the other file

    @property
    def are_vectors(self) -> bool:
        """Whether the rows have vectors, with or without texts."""
        return self.source.kind == "vectors"

    @property
    def vectors(self) -> VectorSource | None:
        """The source of the vectors, if the rows have any."""
        return self.source if self.source.kind == "vectors" else None

    def read_texts(self, *, advised: str | None = None) -> list[str] | None:
        """The texts, without anything next to them; None for vectors without any. An error advises a file of texts."""
        source = self.source
        if source.kind == "texts":
            return source.texts()
        if self.texts is not None:
            return texts_of_vectors(TextSource(self.texts, self.column), [source])
        names = source.text_columns if source.is_column else ()
        if not names:
            return None
        if TEXT not in names and len(names) > 1:
            raise InputError(
                f"{source.name} has the columns {', '.join(names)}. Name that of the texts: "
                f"{option('texts', advised or source.name)} {option('column', 'NAME')}."
            )
        with open_table(source.name, header=True) as table:
            name = TEXT if TEXT in names else names[0]
            return [text_in(table, number, name, value) for number, (value,) in table.rows(optional=[name])]

    def read(self, *, id_column: str | None = None, space: str | None = None, schema: Any = None) -> Rows:
        """All that the files hold; columns of text files get the types of `schema`, which is that of an index."""
        source = self.source
        if source.kind == "texts":
            if space is not None:
                raise InputError(f"{option('space', space)} is for vectors; {source.name} holds texts.")
            texts, ids, metadata, column = read_rows(
                source.name, column=self.column, id_column=id_column, schema=schema
            )
            return Rows(texts, None, ids, metadata, column)
        if space is not None:
            source = replace(source, space=PrecomputedVectors.of_space(source.dim, source.space, space).space)
        if self.texts is not None:
            texts, ids, metadata, _ = read_rows(self.texts, column=self.column, id_column=id_column, schema=schema)
            if (order := _order(self.texts, _ids(ids, metadata), [source])) is not None:
                texts = None if texts is None else [texts[place] for place in order]
                ids, metadata = (None if each is None else each.take(order) for each in (ids, metadata))
            return Rows(texts, source, ids, metadata)
        if source.is_column:
            names = [name for name in source.text_columns if name != id_column]
            column = TEXT if TEXT in names else names[0] if len(names) == 1 else None
            texts, ids, metadata, _ = read_rows(
                source.name, column=column, id_column=id_column, vector_column=source.column, schema=schema
            )
            return Rows(texts, source, ids, metadata)
        if (
            self.column not in (None, source.column) or id_column is not None
        ):  # an archive has arrays of different names
            named = option("column" if id_column is None else "id_column")
            raise InputError(f"{source.name} holds vectors alone; {named} belongs to {option('texts', 'FILE')}.")
        return Rows(None, source)


def opened_rows(path: str, *, column: str | None = None, texts: str | None = None) -> RowFiles:
    """Open a file of texts or vectors; a column is chosen as `opened_with_texts` does."""
    [source], of_texts = opened_with_texts(lambda named: [open_source(path, column=named)], column, texts)
    if texts is None:
        return RowFiles(source, column, None)
    if source.kind == "texts":
        raise InputError(f"{option('texts')} are for vectors; {path} holds texts.")
    return RowFiles(source, of_texts, texts)


def opened_with_texts(
    opened: Callable[[str | None], list[S]], column: str | None, texts: str | None
) -> tuple[list[S], str | None]:
    """Open files of vectors whose texts may be in another file, and find the column of these.

    A column that is named is chosen in every file that has it: in those of the vectors, in that of the texts, or both.
    """
    if column is None or texts is None or not TextSource(texts).is_table:
        return opened(column), None
    try:
        sources = opened(column)
    except InputError:  # they have no such column; what else is wrong is met again
        sources = []
    if any(_is_of_column(source, column) for source in sources):
        with _renaming(f"one to {TEXT}; {option('column', column)} names the vectors"):
            return sources, _column_of_texts(texts, column)
    with open_table(texts, header=True) as table:
        table.require(column)
    with _renaming(f"the column {column} of {texts} to {TEXT}", f"{option('column', 'NAME')}, and "):
        return opened(None), column


def _is_of_column(source: Source, column: str) -> bool:
    return source.kind == "vectors" and source.column == column


def _column_of_texts(path: str, column: str) -> str:
    with open_table(path, header=True) as table:
        is_there = column in table.columns and kind_of_input(path, column=column) == "texts"
        return text_column(table, column if is_there else None)


@contextmanager
def _renaming(what: str, before: str = "") -> Iterator[None]:
    """Where a column is named already, advice to name another one becomes advice to rename one."""
    try:
        yield
    except InputError as error:
        error.reword(lambda marked: marked.replace(option("column", "NAME"), f"{before}rename {what}"))
        raise


@contextmanager
def opened_inputs(
    inputs: Sequence[str], *, column: str | None, texts: str | None
) -> Iterator[tuple[list[str], list[RowFiles]]]:
    """Open files, folders of them and patterns, and their names; only texts can come from several files."""
    names = input_paths(inputs, "texts", "vectors", as_parts=False)
    with local_copies(names) as (paths, _):
        files = [opened_rows(path, column=column, texts=texts) for path in paths]
        if len(files) > 1 and (texts is not None or any(each.are_vectors for each in files)):
            raise InputError(
                f"index: {', '.join(paths)}: only texts can come from several files. Vectors with their texts: isosent "
                f"index VECTORS {option('texts', 'TEXTS')}."
            )
        yield names, files


def joined_rows(parts: Sequence[Rows]) -> Rows:
    """The rows of several files of texts as one."""
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    ids, tables = [part.ids for part in parts], [part.metadata for part in parts]
    columns = {part.column for part in parts}
    if any(part is None for part in ids) and not all(part is None for part in ids):
        raise InputError(
            f"index: some of the files have ids, and some have none. Name their column: {option('id_column')}."
        )
    try:
        return Rows(
            [text for part in parts for text in part.texts or ()],
            None,
            None if ids[0] is None else [one for part in ids for one in part.to_pylist()],
            None if None in tables else pa.concat_tables(tables, promote_options="permissive"),
            columns.pop() if len(columns) == 1 else None,
        )
    except pa.ArrowException as error:
        raise InputError(f"index: the columns of these files do not fit together: {brief(error)}.") from None


# -- joined by ids ---------------------------------------------------------------------------------------------------


def texts_of_vectors(texts: TextSource, sources: Sequence[VectorSource]) -> list[str]:
    """Texts in the order of the vectors, which lie in one file or several."""
    listed = texts.texts()
    if not all(source.is_column for source in sources):
        return listed
    name = _name_of_ids(texts.name) if texts.is_table else None
    ids = None if name is None else list(map(str, texts.labels(name)))
    order = _order(texts.name, ids, sources)
    return listed if order is None else [listed[place] for place in order]


def _order(texts: str, ids: list[str] | None, sources: Sequence[VectorSource]) -> list[int] | None:
    """The places of texts in the order of vectors, by the ids of both; None if they are in one order."""
    names = [_name_of_ids(source.name) if source.is_column else None for source in sources]
    if None in names:
        return None
    ids_of_vectors = [str(one) for source, name in zip(sources, names, strict=True) for one in source.labels(str(name))]
    vectors = ", ".join(source.name for source in sources)
    order = _order_by_ids(texts, ids, vectors, ids_of_vectors)
    if order is not None:
        warnings.warn(
            f"{texts} has another order than {vectors}; texts and vectors are joined by their ids.",
            IsosentWarning,
            stacklevel=3,
        )
    return order


def _name_of_ids(path: str) -> str | None:
    with open_table(path, header=True) as table:
        return next((name for name in (_CUSTOM_ID, ID) if name in table.columns), None)


def _ids(ids: Any, metadata: Any) -> list[str] | None:
    """The custom_id that requests of a batch have, or ids of rows."""
    if metadata is not None and _CUSTOM_ID in metadata.column_names:  # a batch has an id of its own for each answer
        ids = metadata[_CUSTOM_ID]
    return None if ids is None else [str(one) for one in ids.to_pylist()]


def _order_by_ids(texts: str, ids: list[str] | None, vectors: str, ids_of_vectors: list[str]) -> list[int] | None:
    """The places of texts in the order of the vectors beside them, by the ids of both; None if they are in one order.

    An API does not promise the order of a batch. Where only the vectors have ids, numbers in these show an order.
    """
    if ids == ids_of_vectors:
        return None
    if ids is not None and set(ids) & set(ids_of_vectors):
        places = {one: place for place, one in enumerate(ids)}
        for path, listed in ((texts, ids), (vectors, ids_of_vectors)):
            if len(set(listed)) < len(listed):
                repeated = next(one for one, count in Counter(listed).items() if count > 1)
                raise InputError(
                    f"{path}: the id {brief(repeated)} is there twice, so texts and vectors cannot be joined."
                )
        missing = set(ids) ^ set(ids_of_vectors)
        if missing:
            one = min(missing)
            path, other = (vectors, texts) if one in places else (texts, vectors)
            raise InputError(
                f"{path} has no row of the id {brief(one)}, and {other} has; {len(missing):,} ids are in one of them "
                "alone. Make both of the same rows, and write their ids alike."
            )
        return [places[one] for one in ids_of_vectors]
    numbers = [tuple(map(int, _DIGITS.findall(one))) for one in ids_of_vectors]
    is_counted = len({_DIGITS.sub("0", one) for one in ids_of_vectors}) == 1 and all(numbers)
    if is_counted and all(one < other for one, other in pairwise(numbers)):
        return None
    what = f"{vectors} has ids such as {brief(ids_of_vectors[0])}, and {texts} has none of them"
    if is_counted and sorted(numbers) in [[(n + start,) for n in range(len(numbers))] for start in (0, 1)]:
        advice = f"Name a table with these ids and the texts: {option('texts', 'FILE.csv')}, columns {ID} and {TEXT}."
        if ids is not None:
            one, other = brief(ids_of_vectors[0]), brief(ids[0])
            advice = f"Write the ids alike in both; in one there is {one}, in the other {other}."
        raise InputError(f"{what}: the numbers in them show that its rows are in another order. {advice}")
    warnings.warn(
        f"{what}: texts and vectors are paired in the order of their rows, which a batch of an API does not keep.",
        IsosentWarning,
        stacklevel=2,
    )
    return None


# -- rows of a table --------------------------------------------------------------------------------------------------


def read_rows(
    path: str,
    *,
    column: str | None = None,
    id_column: str | None = None,
    vector_column: str | None = None,
    schema: Any = None,
) -> tuple[list[str] | None, Any, Any, str | None]:
    """Texts, ids and metadata of a file: lines of text, or a table, whose other columns are the metadata.

    The last value is the column of the texts, None for lines or without one.

    The ids are None without a column for them, which is called id if it is not named. Next to vectors, texts are None
    without a column of texts. Columns of a text file get the types of `schema`, which is that of an index.
    """
    pa = _extras.require("pyarrow", extra="search")

    source = TextSource(path, column)
    if not source.is_table:
        if id_column is not None:
            raise InputError(
                f"{option('id_column', id_column)}: {path} is read as plain lines and has no columns. Leave it out."
            )
        return source.texts(), None, None, None
    is_untyped = format_by_name(path).rows == "fields"
    with open_content(path) as (name, content):
        n_bytes = content.seek(0, os.SEEK_END)
        content.seek(0)
        table = table_in(name, format_by_name(path), content, header=True)
        if vector_column is None:
            column = text_column(table, column, without=id_column)
        for named in filter(None, (column, id_column)):
            table.require(named)
        if table.schema is None:
            texts, columns = _columns(table, column, vector_column, max(_FREE_CELLS, n_bytes))
        else:
            texts, columns = _typed_columns(table, column, vector_column, id_column)
    kinds = {} if schema is None else {field.name: field.type for field in schema}
    id_column = id_column or (ID if ID in columns else None)
    ids = None if id_column is None else columns.pop(id_column)
    if ids is not None and is_untyped:
        ids = _typed_ids(ids, kinds.get(ID))
    columns.pop(str(column), None)
    others = {}
    for name, values in columns.items():
        own = _renamed(name)
        if own in others or (own != name and own in columns):
            raise InputError(f"{path} has the columns {name} and {own}; rename one: an index has its own {name}.")
        others[own] = _typed(values, kinds.get(own)) if is_untyped else values
    return texts, ids, pa.table(others), column


def _typed(texts: Any, kind: Any = None) -> Any:
    """A column of a text file, as the type of the same column of an index, or else as numbers if all of it are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    if texts.null_count == len(texts) or (kind is not None and is_text(kind)):
        return texts
    if kind is not None and not pa.types.is_integer(kind):  # for Arrow, 007 is a whole number
        try:
            return texts.cast(kind)
        except pa.ArrowException:  # no such values, or a type that text files cannot hold
            pass
    for pattern, numbers in ((_WHOLE, pa.int64()), (_DECIMAL, pa.float64())):
        if pc.all(pc.match_substring_regex(texts, pattern)).as_py():
            try:
                return texts.cast(numbers)
            except pa.ArrowInvalid:  # above 2^63
                return texts
    return texts


def _typed_ids(texts: Any, kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = _typed(texts, kind)
    if pa.types.is_integer(ids.type) and (pc.min(ids).as_py() or 0) >= 0:
        return ids
    return _typed(texts, pa.string())


def _renamed(name: str) -> str:
    """The name of a column next to the texts, other than those of the index itself."""
    return f"{name}_" if name in (ID, TEXT, VECTOR) else name


def _typed_columns(
    table: Table, column: str | None, vector_column: str | None, id_column: str | None
) -> tuple[list[str] | None, dict[str, Any]]:
    """The texts, and all columns but the vectors, with their types; texts and ids may lie within others."""
    import pyarrow as pa

    file = _check.input_file(table.name)
    typed = typed_table(str(file), file)
    schema = typed.schema
    if vector_column in schema.names:
        schema = schema.remove(schema.get_field_index(vector_column))
    columns = {}
    if schema.names:
        batches = typed.batches(schema.names if vector_column else None, is_streamed=False)
        read = pa.Table.from_batches(batches, schema)
        columns = dict(zip(read.column_names, read.columns, strict=True))
    if id_column is not None and id_column not in columns:
        columns[id_column] = pa.chunked_array([[value for _, (value,) in table.rows(id_column)]])
    if column is None:
        return None, columns
    if column in columns:
        values = list(enumerate(columns[column].to_pylist()))
    else:  # within another
        values = [(number, value) for number, (value,) in table.rows(column)]
    return _texts(table, column, values), columns


def _texts(table: Table, column: str | None, values: Sequence[tuple[int, Any]]) -> list[str] | None:
    """Values of a column that must be texts, each with the number of its row; None without a column."""
    if column is None:
        return None
    refuse_vectors(table.name, column, [value for _, value in values[:SAMPLED_ROWS]])
    return [text_in(table, number, column, value) for number, value in values]


def _columns(
    table: Table, column: str | None, vector_column: str | None, most_cells: int
) -> tuple[list[str] | None, dict[str, Any]]:
    """The texts, and all columns but the vectors; next to vectors, a row may lack its text."""
    import pyarrow as pa

    table.require_distinct()
    names = [name for name in table.columns if name != vector_column]
    required = () if column is None or vector_column is not None else (column,)
    values_of_texts, rows = [], []
    place = 0 if required else names.index(column) if column is not None else None
    for number, values in table.rows(*required, optional=names):
        if place is not None:
            values_of_texts.append((number, values[place]))
        rows.append(values[len(required) :])
        if len(rows) * len(names) > most_cells:
            raise FileFormatError(
                f"{table.name}: rows of {len(names):,} columns, as in the first, do not fit into the file. Leave "
                "out columns that few rows have."
            )
    texts = _texts(table, column, values_of_texts)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = {}
    for name, values in zip(names, columns, strict=True):
        if table.separator == ";":
            points = [value and DECIMAL_COMMA.sub(r"\1.\2", value) for value in values]
            values = tuple(points) if all(not value or is_number(value) for value in points) else values
        try:
            arrays[name] = pa.array(values, pa.string() if table.objects is None else None)
        except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
            raise InputError(f"{table.name}: the values of {name} are not of one type: {brief(error)}.") from None
    return texts, arrays
