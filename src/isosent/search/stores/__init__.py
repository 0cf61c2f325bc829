"""Where the rows of an index are: in a folder, or in the table of a database. Nobody else asks which of the two.

`open_store` takes what a user named, the folder of an index or the URL of a table, and gives a `Store`, which refuses
what its kind cannot do. `find_index` is for commands that take an index or something else. The store of a folder is
here, the one of a table in `database.py`; a database is one module with the protocol that is described there.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from isosent.encoders.reference import MODEL_FILE
from isosent.errors import InputError, IsosentWarning, ModelFolderError, next_step, option
from isosent.io.vector_source import VectorSource
from isosent.loading import load
from isosent.search.commits import MODEL_FOLDER, QUERY_FOLDER, is_index
from isosent.search.index import Index
from isosent.search.inputs import Rows
from isosent.search.result import Hit
from isosent.search.rows import TEXT, ids_from_text
from isosent.search.stores.database import DatabaseStore, is_database, is_table_url
from isosent.transforms.maps import GroupMaps


class Store(Protocol):
    """Rows with vectors of one space that are searched. What a kind of store cannot do, it refuses."""

    @property
    def groups(self) -> GroupMaps | None:
        """The maps of groups of the model that encodes queries; None without any."""

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
        """The rows nearest to each query, or to each of the vectors, best first; options are those of `Index.search`.

        With `like`, ids, the rows nearest to these rows instead; with `explain`, the words that make a hit similar.
        """

    def index(self, needed_by: str) -> Index:
        """The index itself, for a command or an option that needs one."""


def open_store(place: str, model: str | None = None) -> Store:
    """Open the folder of an index, or the table of a database by its URL, when it is first used.

    `model` is the reference of the model of a table, or of that of an index which has moved.
    """
    return DatabaseStore(place, model) if is_database(place) else _FolderStore(place, model)


def find_index(place: str, needed_by: str) -> Index | None:
    """Open an index, if a folder holds one, damaged or not; the URL of a database is refused, other names are None."""
    if is_index(place):
        return Index.open(place)
    return DatabaseStore(place, None).index(needed_by) if is_table_url(place) else None


def rows_of_index(place: str, command: str, *, model: str | None, column: str | None, texts: str | None) -> Rows | None:
    """The rows of an index that a command was given in the place of a file; it takes no options of a file."""
    if (index := find_index(place, command)) is None:
        return None
    given = {"model": model, "column": column, "texts": texts}
    if unused := [option(name) for name, value in given.items() if value]:
        raise InputError(f"{command}: {place} is an index and has its own vectors. Leave out {', '.join(unused)}.")
    return Rows.of_index(index)


class _FolderStore:
    """An index in a folder."""

    def __init__(self, folder: str, moved: str | None) -> None:
        self.folder, self._moved = folder, moved

    @cached_property
    def _index(self) -> Index:
        """The index; if its model or that of its queries has moved, with what is there now."""
        moved = self._moved
        if moved is None or not is_index(self.folder):
            return Index.open(self.folder)
        # each is refused unless it has the fingerprint that is saved in the index, or the vectors of its canary
        queries = Path(self.folder) / QUERY_FOLDER
        if queries.is_dir():
            try:
                return Index.open(self.folder, query_model=load(queries, encoder=moved))
            except ModelFolderError as error:
                if moved.startswith("static:"):  # else the model itself is meant
                    reason = str(error).partition("\n")[0]
                    raise InputError(f"search: -m {moved} is not the query model of {self.folder}. {reason}") from None
        is_saved = (Path(moved) / MODEL_FILE).is_file()
        return Index.open(
            self.folder, load(moved) if is_saved else load(Path(self.folder) / MODEL_FOLDER, encoder=moved)
        )

    @property
    def groups(self) -> GroupMaps | None:
        return self._index.groups

    def index(self, _: str) -> Index:
        return self._index

    def hits(
        self,
        queries: Sequence[str],
        k: int,
        *,
        vectors: VectorSource | None = None,
        where: str | None = None,
        like: Sequence[str] = (),
        explain: bool = False,
        group: str | None = None,
        **options: Any,
    ) -> list[list[Hit]]:
        if queries and is_index(queries[0]) and not is_index(self.folder):
            raise InputError(
                f"search: {queries[0]} is the index. Name it first: isosent search {queries[0]} {self.folder}"
            )
        index = self._index
        if explain and TEXT not in index.schema.names:
            raise InputError(f"search: {option('explain', True)} needs the texts of the rows; this index has none.")
        if index.recall is not None and index.recall.has_drifted:
            warnings.warn(
                f"{self.folder}: the codebooks of its product codes no longer fit its rows, so it finds fewer of them. "
                f"How to build it again: {next_step(f'isosent info {self.folder}', 'Index.stats')}.",
                IsosentWarning,
                stacklevel=2,
            )
        if like:
            return index.more_like(ids_from_text(like, index.schema), k, where=where).hits()
        asked = queries if vectors is None else vectors
        hits = index.search(asked, k, where=where, group=group, **options).hits()
        if not explain:
            return hits
        pairs = zip(queries, hits, strict=True)
        return [[hit.explained(query, index.model, group) for hit in found] for query, found in pairs]
