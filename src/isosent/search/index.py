"""Index: a folder of texts, ids, metadata and vectors that is searched by meaning, by words, or by both.

An `Index` shows one commit of its folder, a `Snapshot`, whose files stay open; its models are `IndexModels`. `create`
and `from_batches` make unit vectors (`units.py`) and a table of rows, and `build.write_index` writes the first commit.
`search` and `more_like` ask `queries.py` which rows of the snapshot are nearest. A change locks the folder
(`_writing`), which shows the last commit, perhaps of another process; `changes.py` writes new files, and `_commit`
writes the manifest and opens what it names. A snapshot never changes: threads may search while one of them adds rows.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, OutputError
from isosent.loading import check_model
from isosent.model import SentenceEncoder
from isosent.numeric.canary import Canary, CanaryCheck
from isosent.pages.progress import Progress
from isosent.search.build import write_index
from isosent.search.changes import (
    APPEND_ONLY,
    OtherVectors,
    check_added,
    migrated,
    rebuilt,
    with_query_model,
    with_rows,
)
from isosent.search.commits import (
    Recall,
    State,
    array_bytes,
    changing,
    read_state,
    remove_temporary,
    replacing_index,
    write_bytes,
    write_state,
)
from isosent.search.engine import Kind, Segment
from isosent.search.models import IndexModels, check_query_model, model_of_vectors
from isosent.search.queries import nearest_rows, rows_like, unique_hits
from isosent.search.recall import original_queries, recall_of_neighbors, recall_of_originals
from isosent.search.result import IndexStats, SearchResult
from isosent.search.rows import HAS_VECTOR, ID, VECTOR, id_kind_of, like, other_ids, rows_table
from isosent.search.snapshot import Snapshot, copy_last_commit
from isosent.search.units import (
    BATCH_ROWS,
    Queries,
    VectorsLike,
    encoded_units,
    opened_queries,
    opened_vectors,
    row_groups,
    units_of_lists,
)
from isosent.space import Space, same_space
from isosent.storage import IndexStorage
from isosent.transforms.maps import GroupMaps

_LARGEST_TAIL: Final = 1000
_LARGEST_TAIL_SHARE: Final = 0.25


class Index:
    """Texts or vectors in a folder, to be searched by meaning, by words, or by both.

    `create` and `open` return one. It shows what the folder held when it was opened; `add`, `remove` and `compact`
    change the folder, and then this object. Threads may share it.

    Parameters
    ----------
    folder : path-like
        The folder of the index.
    model : SentenceEncoder, optional
        As for `open`.
    snapshot : Snapshot, optional
        What the folder holds, if it is open already.

    Examples
    --------
    >>> import isosent
    >>> texts = ["A man is riding a horse.", "Two dogs play in the snow.", "She slices an onion."]
    >>> from isosent.search import Index
    >>> index = Index.create(texts, isosent.load("wordllama"))
    >>> index.search("cutting vegetables", k=1).ids
    array([[2]])
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        model: SentenceEncoder | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._models = IndexModels(self.folder, model, is_new=snapshot is not None)
        self._snapshot: Snapshot = self._models.last_commit() if snapshot is None else snapshot

    # -- making --------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        texts: Sequence[str] | None = None,
        model: SentenceEncoder | None = None,
        *,
        vectors: VectorsLike | None = None,
        ids: Sequence[str] | Sequence[int] | None = None,
        metadata: Any = None,
        folder: str | os.PathLike[str] | None = None,
        kind: Kind | None = None,
        store: IndexStorage | None = None,
        budget_mb: float | None = None,
        min_recall: float | None = None,
        query_model: SentenceEncoder | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Index:
        """Make an index of texts, or of vectors of a model's encoder.

        Parameters
        ----------
        texts : sequence of str, optional
            The texts. They are encoded with the model unless there are vectors.
        model : SentenceEncoder, optional
            What encodes texts and queries; it is saved in the index. Not needed for vectors, which are then used as
            they are.
        vectors : array of shape (n_rows, encoder.dim), or path, optional
            Raw vectors of the model's encoder, one per text; the map of the model is applied to them. A file may be
            larger than memory, and may hold vectors of the model itself if its note says so.
        ids : sequence of str or int, optional
            A different id for each row; by default numbers from 0 on, which are never given again.
        metadata : table, optional
            Columns to filter by: a mapping of lists, or a pandas, polars or pyarrow table. A model with a map of each
            group of texts takes the group of each row from the column that it names (`SentenceEncoder.groups`).
        folder : path-like, optional
            Where to write the index: a new or empty folder, or one with an index, which is replaced. By default a
            temporary folder that lives as long as the object; see `save`.
        kind : {"flat", "ivf", "hnsw"}, optional
            Compare with every vector, with those of near clusters, or along a graph, to which rows can be added but not
            removed. By default flat up to 200,000 rows and ivf above.
        store : {"float32", "float16", "int8", "binary", "product"}, optional
            Number type of the vectors that are searched. Candidates of int8, binary and product are scored again with a
            float16 copy on disk. A product code has the bytes that the model has codebooks for, else one for 16
            dimensions. By default float32, or with a budget the finest that fits.
        budget_mb : float, optional
            Most memory for the vectors that are searched, in 10^6 bytes.
        min_recall : float, default 0.95
            Share of the ten nearest rows that a search must return, measured with up to 500 rows as queries. The
            cheapest settings that reach it are taken.
        query_model : SentenceEncoder, optional
            A static model that was distilled from `model`: it encodes queries in microseconds, and is saved in the
            index. How many of the nearest rows it finds is measured. See `search` for ranking them again by the model.
        seed : int, default 0
            Seed of clusters, samples and queries.
        progress : callable, optional
            Called as ``progress(done, total)``, counted in rows.

        Returns
        -------
        Index
            The index, open.

        Raises
        ------
        InputError
            If there are neither texts nor vectors, counts differ, ids occur twice, vectors belong to another space, or
            the budget is too small.
        OutputError
            If the folder holds something else or cannot be written; what was there is intact.
        """
        if texts is None and vectors is None:
            raise InputError("index: there are neither texts nor vectors. Pass texts, vectors, or both.")
        listed = None if texts is None else _check.text_list("index", texts)
        source = opened_vectors("index", vectors)
        if model is None:
            if source is None:
                raise InputError("index: there is no model to encode the texts. Pass model=isosent.load(...).")
            model = model_of_vectors(source.dim, source.space)
        check_model("index", model)
        n_rows = len(listed or ()) if source is None else source.n_rows
        _check.same_count("index", "texts", n_rows if listed is None else len(listed), n_rows)
        table = rows_table(n_rows, ids=ids, texts=listed, metadata=metadata)
        groups = row_groups(model.record, table)
        originals = original_queries(model, listed, source, n_rows, seed=seed)
        if query_model is not None:  # refused before anything is written
            check_query_model(query_model, model.space)
            if (n_texts := len(listed or ())) < 2:
                raise InputError(f"index: a query model is measured on two texts or more; this index has {n_texts}.")
        others = OtherVectors.of(model, source)
        observers = [each.add for each in (originals, others) if each is not None]
        units = encoded_units(model, listed, source, progress, observers=observers, groups=groups)
        index = cls._build(
            folder,
            model,
            units,
            table,
            id_kind=id_kind_of(ids),
            kind=kind,
            store=store,
            budget_mb=budget_mb,
            min_recall=min_recall,
            seed=seed,
            originals=originals,
        )
        if others is not None:
            others.warn()
        if query_model is not None:
            with index._writing() as snapshot:
                state = with_query_model(index.folder, snapshot, model, query_model, seed=seed)
                index._commit(state, snapshot.deleted)
        return index

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[Any],
        *,
        space: Space,
        dim: int,
        model: SentenceEncoder | None = None,
        folder: str | os.PathLike[str] | None = None,
        kind: Kind | None = None,
        store: IndexStorage | None = None,
    ) -> Index:
        """Make an index of pyarrow record batches as `batches` yields them: vectors of the model, already mapped.

        Parameters
        ----------
        batches : iterable of pyarrow.RecordBatch
            With the columns id, vector (null for a row without one), text if there are texts, and those of the
            metadata.
        space : Space
            The space of the vectors; a model must have the same.
        dim : int
            Width of the vectors.
        model : SentenceEncoder, optional
            What encodes queries. Without one, queries must be vectors of this space.
        folder : path-like, optional
            As for `create`.
        kind : {"flat", "ivf", "hnsw"}, optional
            As for `create`.
        store : {"float32", "float16", "int8", "binary", "product"}, optional
            As for `create`.

        Returns
        -------
        Index
            The index, open.

        Raises
        ------
        InputError
            If the model belongs to another space; the message names both.
        """
        import pyarrow as pa

        if model is None:
            model = model_of_vectors(dim, space)
        same_space("the model", model.space, "the table", space)
        tables = []

        def units() -> Iterator[NDArray[np.float32]]:
            for batch in batches:
                tables.append(pa.table(batch).drop_columns([VECTOR]))
                yield units_of_lists(batch.column(VECTOR), dim)

        def table() -> Any:
            return pa.concat_tables(tables).combine_chunks() if tables else rows_table(0)

        return cls._build(folder, model, units(), table, kind=kind, store=store)

    @classmethod
    def _build(
        cls,
        folder: str | os.PathLike[str] | None,
        model: SentenceEncoder,
        units: Iterable[NDArray[np.float32]],
        table: Any,
        **settings: Any,
    ) -> Index:
        """Build in the folder, or in a temporary one that is removed with the index."""
        home = None if folder is not None else tempfile.mkdtemp(prefix="isosent-index-")
        target = Path(folder) if folder is not None else Path(str(home), "index")
        try:
            index = cls(target, model, write_index(target, model, units, table, **settings))
        except BaseException:
            if home is not None:
                shutil.rmtree(home, ignore_errors=True)
            raise
        if home is not None:
            weakref.finalize(index, remove_temporary, home, os.getpid())
        return index

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        model: SentenceEncoder | None = None,
        *,
        query_model: SentenceEncoder | None = None,
    ) -> Index:
        """Open an index.

        Parameters
        ----------
        folder : path-like
            What `create` or `save` wrote.
        model : SentenceEncoder, optional
            What encodes queries, if it is loaded already or was wrapped. By default the model that is saved in the
            index is loaded when a text must be encoded. ``load(folder / "model", encoder=REFERENCE)`` loads it from
            another place, and refuses another model.
        query_model : SentenceEncoder, optional
            The static model of queries, if the index was made with one and it has moved: in the same way
            ``load(folder / "queries", encoder=REFERENCE)``.

        Returns
        -------
        Index
            The last committed state.

        Raises
        ------
        InputFileError
            If there is no index.
        FileFormatError
            If one of its files is damaged or missing.
        InputError
            If the model or the query model is another one; the message names both.
        """
        index = cls(folder, model)
        if query_model is not None:
            index._models.take_moved(query_model, index._snapshot.state.queries)
        return index

    # -- what it holds -------------------------------------------------------------------------------------------

    @property
    def model(self) -> SentenceEncoder:
        """What encodes queries; loaded when it is first needed."""
        return self._models.of_vectors(self._snapshot)

    @property
    def query_model(self) -> SentenceEncoder:
        """What encodes queries: a static model if the index was made with one, else the model."""
        return self._models.of_queries(self._snapshot)

    @property
    def space(self) -> Space:
        """The vector space, with its fingerprint."""
        return self._snapshot.space

    @property
    def canary(self) -> Canary | None:
        """Vectors of fixed texts by the bare encoder of the model, when it was saved; None if it encoded none."""
        return self._snapshot.record.canary

    @property
    def groups(self) -> GroupMaps | None:
        """The maps of groups of the model, which is not loaded for it; None without any."""
        return self._snapshot.record.postprocessing.groups

    @property
    def dim(self) -> int:
        """Width of the vectors after the map."""
        return self._snapshot.state.dim

    @property
    def first_segment(self) -> Segment:
        """What was built, without rows that were added later."""
        return self._snapshot.segments[0]

    @property
    def recall(self) -> Recall | None:
        """What was measured when the index was built; None for too few rows. See `IndexStats`."""
        return self._snapshot.state.recall

    def __len__(self) -> int:
        return len(self._snapshot)

    def __repr__(self) -> str:
        settings = self._snapshot.state.settings
        return f"<Index of {len(self)} x {self.dim}, {settings.kind}, {settings.store}, {self.space}>"

    @property
    def schema(self) -> Any:
        """The columns as a pyarrow schema: id, text if there are texts, and the metadata."""
        rows = self._snapshot.rows[0].schema
        return rows.remove(rows.get_field_index(HAS_VECTOR))

    def batches(self, n_rows: int = BATCH_ROWS) -> Iterator[Any]:
        """Yield all rows as pyarrow record batches.

        Parameters
        ----------
        n_rows : int, default 8192
            Rows of a batch.

        Yields
        ------
        pyarrow.RecordBatch
            The columns id, text if there are texts, those of the metadata, and vector: lists of dim float32 of length
            1, or null for a row without a vector.
        """
        return self._snapshot.batches(n_rows)

    @property
    def ids_are_strings(self) -> bool:
        """Whether ids are strings, not whole numbers."""
        return self._snapshot.state.ids == "str"

    def rows(self, ids: Sequence[str] | Sequence[int]) -> Any:
        """Return rows by their ids.

        Parameters
        ----------
        ids : sequence of str or int
            Ids of the rows; those that the index has not are left out.

        Returns
        -------
        pyarrow.Table
            The columns of `batches`, in the order of the ids.

        Raises
        ------
        InputError
            If the ids are of another type than those of the index.
        """
        snapshot = self._snapshot
        positions = snapshot.positions_of(ids)
        return snapshot.take_with_vectors(positions[positions >= 0])

    # -- searching -----------------------------------------------------------------------------------------------

    def search(
        self,
        queries: Queries,
        k: int = 10,
        *,
        where: str | None = None,
        hybrid: bool = False,
        false_positives: float | None = None,
        rerank: bool = False,
        unique: bool = False,
        group: str | None = None,
    ) -> SearchResult:
        """Find the rows nearest to each query.

        Parameters
        ----------
        queries : str, sequence of str, or array of shape (n_queries, encoder.dim), or VectorSource
            Texts, or raw vectors of the model's encoder; an open file may hold vectors of the model itself.
        k : int, default 10
            Most hits of a query.
        where : str, optional
            Condition on the ids, the texts and the metadata, such as ``'lang = "en" and year >= 2020'``.
        hybrid : bool, default False
            Whether to fuse the ranking by vectors with one by words (BM25); queries must be texts.
        false_positives : float, optional
            Keep only hits that beat chance: of queries that have nothing to do with the texts, about this share gets a
            hit. By default the nearest rows are returned, however far away they are.
        rerank : bool, default False
            For an index with a query model: let the model rank the best 100 rows that the query model finds.
        unique : bool, default False
            Whether equal texts count once: the best row of each text is a hit.
        group : str, optional
            Group of the queries, such as their language, for a model with a map of each; by default the reference.

        Returns
        -------
        SearchResult
            Ids and cosines, best first.

        Raises
        ------
        InputError
            If a query is empty, k or false_positives is out of range, a column or group is unknown, or vectors have
            another width or hold NaN.
        """
        _check.whole_number("search", "k", k, 1)
        find = partial(
            nearest_rows,
            self._snapshot,
            self._models,
            opened_queries(queries),
            where=where,
            hybrid=hybrid,
            false_positives=false_positives,
            rerank=rerank,
            group=group,
        )
        return unique_hits(find, k, max(1, len(self))) if unique else find(k)

    def more_like(self, ids: Sequence[str] | Sequence[int], k: int = 10, *, where: str | None = None) -> SearchResult:
        """Find the rows nearest to rows of the index, without themselves.

        Parameters
        ----------
        ids : sequence of str or int
            Ids of the rows.
        k : int, default 10
            Most hits of a row.
        where : str, optional
            As for `search`.

        Returns
        -------
        SearchResult
            Ids and cosines, best first, one row per id.

        Raises
        ------
        InputError
            If an id is unknown.
        """
        return rows_like(self._snapshot, ids, k, where=where)

    def recall_against(
        self,
        vectors: VectorsLike,
        *,
        ids: Sequence[str] | Sequence[int] | None = None,
        seed: int = 0,
    ) -> tuple[float, int]:
        """Measure how many neighbors of other vectors of the same texts the index finds, such as those before a map.

        Up to 500 of the rows are queries. The ten nearest others that the index returns for its own vector of a query
        are compared with the ten that an exact search of `vectors` finds. Rows with copies are no queries.

        Parameters
        ----------
        vectors : array of shape (n_rows, any dim), or path
            A vector of each row of the index, in the order of the rows.
        ids : sequence of str or int, optional
            The ids of these vectors, all those of the index, if they come in another order.
        seed : int, default 0
            Seed of the queries.

        Returns
        -------
        recall : float
            Share of the ten nearest others that the index returns, on average.
        n_queries : int
            Number of queries.

        Raises
        ------
        InputError
            If there is not one vector per row of the index, an id is unknown, or there are fewer than 40 different
            vectors.

        Examples
        --------
        >>> import numpy as np
        >>> vectors = np.random.default_rng(0).normal(size=(200, 32)).astype(np.float32)
        >>> Index.create(vectors=vectors).recall_against(vectors)
        (1.0, 50)
        """
        return recall_of_originals(self._snapshot, vectors, ids, seed=seed)

    def recall_of_neighbors(
        self, truth: str | os.PathLike[str], queries: VectorsLike | None = None, k: int = 10
    ) -> tuple[float, int]:
        """Measure how many of the true neighbors of queries the index finds, which a benchmark published.

        Parameters
        ----------
        truth : path-like
            File of ann-benchmarks (``.hdf5``), with the queries, or only neighbors (``.ivecs``, ``.ibin``). Neighbors
            are rows of the vectors that the index was made of, counted from 0, which are its ids.
        queries : array of shape (n_queries, encoder.dim), or path, optional
            Their vectors; by default those of the file.
        k : int, default 10
            Neighbors of a query.

        Returns
        -------
        recall : float
            Share of the k nearest that the index returns, on average. Where the file has distances, rows as near as the
            last of them count, too.
        n_queries : int
            Number of queries.

        Raises
        ------
        InputError
            If the file has no queries and there are none, they are not as many, a neighbor is no id of the index, or
            the neighbors are the nearest by another distance than the cosine.
        """
        return recall_of_neighbors(self._snapshot, self.search, truth, queries, k)

    def verify(self) -> CanaryCheck:
        """Encode a few texts again, and compare them with what the index holds.

        Fixed texts, as documents and as queries, show whether the model behind has changed. Eight texts of the index,
        the longest of 64 drawn at random, show whether its neighbors have.

        Returns
        -------
        CanaryCheck
            The lowest cosine of the fixed texts (None for an index of an earlier version), and the share of the ten
            nearest of the eight rows that stayed (None for an index without texts).

        Raises
        ------
        InputError
            If the model encodes no texts, or there is nothing to compare.

        Examples
        --------
        >>> import isosent
        >>> index = Index.create(isosent.demo_texts()[:100], isosent.load("wordllama"))
        >>> index.verify().has_changed
        False
        """
        return self._models.verified(self._snapshot)

    # -- changing ------------------------------------------------------------------------------------------------

    def add(
        self,
        texts: Sequence[str] | None = None,
        *,
        vectors: VectorsLike | None = None,
        ids: Sequence[str] | Sequence[int] | None = None,
        metadata: Any = None,
        check_space: bool = False,
        committed: Callable[[int, int], None] | None = None,
        progress: Progress | None = None,
    ) -> NDArray[Any]:
        """Add rows, and replace those with the same ids.

        Parameters
        ----------
        texts : sequence of str, optional
            As for `create`.
        vectors : array of shape (n_rows, encoder.dim), or path, optional
            As for `create`.
        ids : sequence of str or int, optional
            As for `create`; needed if the other rows have ids that they were given.
        metadata : table, optional
            As for `create`. Columns that are left out are null.
        check_space : bool, default False
            Whether to warn of `vectors` that differ from those of the index (of 20 or more), if their space is not
            known, or known by a name that a person gave.
        committed : callable, optional
            Called as ``committed(n_replaced, n_rows)``: how many rows were replaced, and how many there are now.
        progress : callable, optional
            As for `create`.

        Returns
        -------
        ndarray of shape (n_rows,)
            The ids of the rows.

        Raises
        ------
        InputError
            As for `create`, if a column is unknown, or if a row of an hnsw index would be replaced.
        OutputError
            If another process or thread is writing to the index, or it cannot be written; the last commit is intact.
        """
        if texts is None and vectors is None:
            raise InputError("add: there are neither texts nor vectors. Pass texts, vectors, or both.")
        listed = None if texts is None else _check.text_list("add", texts)
        source, space = opened_vectors("add", vectors), self.space
        n_rows = len(listed or ()) if source is None else source.n_rows
        groups = row_groups(self._snapshot.record, rows_table(n_rows, metadata=metadata))
        model = self._models.of_texts(self._snapshot) if source is None else None
        blocks = list(encoded_units(model or self._snapshot.record, listed, source, progress, groups=groups))
        units = np.concatenate([np.empty((0, self.dim), np.float32), *blocks])
        with self._writing() as snapshot:
            state = snapshot.state
            same_space("the model of the new rows", space, f"the index {self.folder}", state.space)
            if check_space and source is not None:
                check_added(self.folder, snapshot, source.space, units)
            is_other_kind = len(units) and id_kind_of(ids) != state.ids  # an empty list is of either kind
            if (ids is None) != (state.ids == "numbers") or is_other_kind:
                raise other_ids(self.folder, state.ids, None if ids is None else id_kind_of(ids))
            table = rows_table(len(units), ids=ids, texts=listed, metadata=metadata, first_number=state.next_number)
            table = like(table, self.schema)
            if len(units):
                self._commit(*with_rows(self.folder, snapshot, table, units))
            n_rows = len(self._snapshot)
            if committed is not None:  # before anybody else writes
                committed(len(snapshot) + len(units) - n_rows, n_rows)
            state = self._snapshot.state
            n_built = state.segments[0].n_rows
            if state.n_rows - n_built > max(_LARGEST_TAIL, _LARGEST_TAIL_SHARE * n_built):
                with suppress(OSError, OutputError):  # the rows are committed; the next call tries again
                    self._commit(*rebuilt(self.folder, self._snapshot))
        return np.asarray(table.column(ID).to_numpy())

    def remove(self, ids: Sequence[str] | Sequence[int]) -> int:
        """Delete rows.

        Parameters
        ----------
        ids : sequence of str or int
            Ids of the rows; those that the index has not are left out of the count.

        Returns
        -------
        int
            Number of rows that were deleted.

        Raises
        ------
        InputError
            If the index is of kind hnsw, from which FAISS cannot delete.
        OutputError
            As for `add`.
        """
        with self._writing() as snapshot:
            state = snapshot.state
            if state.settings.kind == "hnsw":
                raise InputError(APPEND_ONLY.format("delete"))
            positions = snapshot.positions_of(ids)
            positions = np.unique(positions[positions >= 0])
            if positions.size:
                deleted = snapshot.deleted.copy()
                deleted[positions] = True
                self._commit(replace(state, n_changed=snapshot.n_changed(deleted)), deleted)
        return len(positions)

    def compact(self) -> None:
        """Build the index again from its rows: without deleted ones, and with recall and chance measured again.

        Raises
        ------
        OutputError
            As for `add`.
        """
        with self._writing() as snapshot:
            self._commit(*rebuilt(self.folder, snapshot))

    def migrate(self, mapping: SentenceEncoder, model: SentenceEncoder) -> None:
        """Map all vectors to those of another model, in one step; queries are encoded by that model from then on.

        Mapped rows are marked in the column ``isosent_mapped``. Replace them by `add`, with the same ids; both kinds
        are searched together meanwhile. Ids that the index gave are kept, and are then given by the caller. Recall and
        chance are measured again. An index that was mapped to that model before stays unchanged. No other thread may
        use this object meanwhile.

        Parameters
        ----------
        mapping : SentenceEncoder
            The `model` of `isosent.evaluation.migration.migrate`, which maps vectors of the model of this index.
        model : SentenceEncoder
            The model that it maps to.

        Raises
        ------
        InputError
            If the map is not from the model of this index to `model`, mapped rows are left, the kind is hnsw, or the
            column of the groups of `model` is missing.
        OutputError
            As for `add`.
        """
        last_commit = partial(self._models.last_commit, self._snapshot)
        snapshot = migrated(self.folder, self._snapshot, last_commit, mapping, model)
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._models.replace(model)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Copy the last commit of the index to a folder.

        Parameters
        ----------
        folder : path-like
            A new or empty folder, or one with an index, which is replaced in one step.

        Raises
        ------
        OutputError
            If the folder holds something else or cannot be written; what was there is intact.
        """
        with suppress(OSError):
            if Path(folder).samefile(self.folder):
                return
        with replacing_index(folder) as temporary:
            copy_last_commit(self.folder, temporary)

    def stats(self) -> IndexStats:
        """Describe the index: rows, bytes, recall, and whether the recall is stale.

        Returns
        -------
        IndexStats
            The facts, of the commit that this object shows.
        """
        return IndexStats.of(self.folder, self._snapshot)

    @contextmanager
    def _writing(self) -> Iterator[Snapshot]:
        """Lock the folder, and begin with its last commit, which may be of another process."""
        with changing(self.folder):
            if read_state(self.folder) != self._snapshot.state:
                self._snapshot = self._models.last_commit(before=self._snapshot)
            yield self._snapshot

    def _commit(self, state: State, deleted: NDArray[np.bool_]) -> None:
        """Write which rows are deleted, then the manifest, and show the new state."""
        generation, positions = state.generation + 1, np.flatnonzero(deleted)
        entry = None
        if positions.size:
            entry = write_bytes(self.folder, f"deleted-{generation:06d}.npy", array_bytes(positions))
        state = replace(state, generation=generation, deleted=entry, n_deleted=len(positions))
        write_state(self.folder, state)
        self._snapshot = self._models.last_commit(before=self._snapshot)
