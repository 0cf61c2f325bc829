"""What a search returns, and what an index says of itself.

A `SearchResult` is that of an index; its positions and scores are there at once, ids and columns are read from the
snapshot when they are requested (`to_arrow`). A `Hit` is one row of it, or of the table of a database: what commands
and servers show, with the words that make it similar if they ask (`explained`). `IndexStats` are the facts of an index:
its size, its recall, and whether that is stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import to_builtins
from numpy.typing import NDArray

from isosent import _extras
from isosent.explanation import Explanation
from isosent.model import SentenceEncoder
from isosent.search.commits import QueryRecall, Recall
from isosent.search.engine import SearchSettings, bytes_per_vector, large_share, stores_of
from isosent.search.rows import ID, TEXT, names_beside_hits
from isosent.search.snapshot import Snapshot
from isosent.space import Space
from isosent.storage import Storage


@dataclass(frozen=True, slots=True)
class Hit:
    """A row that a search found, whichever store it is in; `explained` adds the words that make it similar."""

    rank: int
    id: int | str
    score: float  # the cosine
    columns: Mapping[str, Any]  # the text, if there are texts, and the metadata
    share: float | None = None  # of random pairs with a lower score; NaN if unknown, None where a store has none
    explanation: Explanation | None = None

    @property
    def text(self) -> str | None:
        """The text of the row; None without one."""
        text: str | None = self.columns.get(TEXT)
        return text

    def explained(self, query: str, model: SentenceEncoder, group: str | None, longest: int | None = None) -> Hit:
        """The same with the words of the text, cut to the longest, that a model finds similar to the query."""
        of_row = None if model.groups is None else self.columns.get(model.groups.column)
        text = (self.text or "")[:longest]
        explanation = model.explain(query, text, roles=("query", "document"), groups=(group, of_row))
        return replace(self, explanation=explanation)

    def to_json(self) -> dict[str, Any]:
        """Values by name: the columns follow what the search says of the row."""
        share = {} if self.share is None else {"share": self.share}
        return {"rank": self.rank, "id": self.id, "score": self.score, **share, **self.columns}


STALE_SHARE: Final = 0.1  # of the rows; if more have changed, the recall is measured again


class SearchResult:
    """Hits of every query, best first; ids and texts are read when they are requested.

    Parameters
    ----------
    snapshot : Snapshot
        What was searched; later commits do not change it.
    queries : ndarray of shape (n_queries, dim), float32
        Unit vectors of the queries.
    positions : ndarray of shape (n_queries, k), int64
        Positions of the hits; -1 where there are fewer than k.
    scores : ndarray of shape (n_queries, k), float32
        Cosines; -inf where there are fewer than k.
    n_without_vector : int
        Queries without a token that the encoder knows; they have no hit by vectors.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        queries: NDArray[np.float32],
        positions: NDArray[np.int64],
        scores: NDArray[np.float32],
        *,
        n_without_vector: int = 0,
    ) -> None:
        self._snapshot, self.queries = snapshot, queries
        self.positions, self.scores, self.n_without_vector = positions, scores, n_without_vector

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        return f"<SearchResult of {len(self)} queries, {int(self.n_hits.sum())} hits>"

    @property
    def n_hits(self) -> NDArray[np.int64]:
        """Hits of each query, (n_queries,)."""
        return np.asarray((self.positions >= 0).sum(axis=1))

    def without_repeats(self, k: int) -> SearchResult:
        """Return the best hit of each text, at most k for each query; hits without a text are all kept.

        Parameters
        ----------
        k : int
            Most hits of a query.

        Returns
        -------
        SearchResult
            Of the same queries, with -1 at the end where fewer than k are left.
        """
        positions = np.full((len(self), k), -1, np.int64)
        scores = np.full((len(self), k), -np.inf, np.float32)
        for query, found in enumerate(self.positions):
            found = found[found >= 0]
            rows = self._snapshot.take(found)
            texts = rows.column("text").to_pylist() if "text" in rows.column_names else [None] * len(found)
            first = {text if text is not None else place: place for place, text in reversed(list(enumerate(texts)))}
            places = sorted(first.values())[:k]
            positions[query, : len(places)] = found[places]
            scores[query, : len(places)] = self.scores[query, places]
        return SearchResult(self._snapshot, self.queries, positions, scores, n_without_vector=self.n_without_vector)

    @cached_property
    def ids(self) -> NDArray[Any]:
        """Ids, (n_queries, k): int64 with -1, or strings with None, where there are fewer than k hits."""
        return self._snapshot.ids_at(self.positions)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """Share of random pairs of the index with a lower score, corrected for hubs, (n_queries, k); NaN for no hit."""
        return self._snapshot.shares(self.queries, self.positions, self.scores)

    def to_arrow(self) -> Any:
        """Return one row per hit: query, rank, id, score, share, text, and the columns of the metadata.

        A column of the metadata that is called like one of the first five gets an underscore: ``score_``.

        Returns
        -------
        pyarrow.Table
            Of `n_hits.sum()` rows, in the order of the queries, best hits first.
        """
        import pyarrow as pa

        queries, ranks = np.nonzero(self.positions >= 0)
        rows = self._snapshot.take(self.positions[queries, ranks])
        own = {
            "query": pa.array(queries),
            "rank": pa.array(ranks + 1),
            "id": rows.column("id"),
            "score": pa.array(self.scores[queries, ranks]),
            "share": pa.array(self.shares[queries, ranks]),
        }
        names = names_beside_hits(rows.column_names[1:])
        return pa.table(own | {names[name]: rows.column(name) for name in names})

    def hits(self) -> list[list[Hit]]:
        """Return the hits of each query, best first, with the values of `to_arrow`.

        Returns
        -------
        list of list of Hit
            One list for each query.
        """
        hits: list[list[Hit]] = [[] for _ in range(len(self))]
        for row in self.to_arrow().to_pylist():
            query, *own = (row.pop(name) for name in ("query", "rank", ID, "score", "share"))
            rank, name, score, share = own
            hits[query].append(Hit(rank, name, score, row, share))
        return hits

    def to_pandas(self) -> Any:
        """Return `to_arrow` as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame
            One row per hit.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        _extras.require("pandas")
        return self.to_arrow().to_pandas()


@dataclass(frozen=True, slots=True)
class IndexStats:
    """Facts about an index.

    `Index.stats` returns one.

    Parameters
    ----------
    n_rows : int
        Rows that a search can find.
    n_deleted : int
        Rows that are hidden until the index is compacted.
    n_added : int
        Rows in addition to the built ones, which are compared one by one.
    n_zero_rows : int
        Rows without a vector.
    dim : int
        Width of the vectors.
    space : Space
        The vector space, with its fingerprint.
    settings : SearchSettings
        Kind, number type, and how widely the index is searched.
    bytes_searched : int
        Memory of the codes.
    bytes_on_disk : int
        Size of the folder.
    recall : Recall or None
        What was measured when the index was built; None for too few rows. ``recall`` is that of the ten nearest others
        against an exact search of the vectors of the index itself, after the map of its model; ``original_recall``
        that against an exact search of the vectors before the map, or None if there is no map or they were not there.
    has_map : bool
        Whether the model of the index changes the vectors of its encoder.
    n_changed : int
        Rows that were added, replaced or deleted since the index was built, each id once.
    generation : int
        Number of commits.
    queries : QueryRecall or None
        What a static model of queries finds; None without one.
    n_mapped : int
        Rows whose vectors were mapped from those of another model, and not replaced since.
    codebook_bytes : int
        Memory of the codebooks of product codes, however many rows there are; 0 for other codes.
    """

    n_rows: int
    n_deleted: int
    n_added: int
    n_zero_rows: int
    dim: int
    space: Space
    settings: SearchSettings
    bytes_searched: int
    bytes_on_disk: int
    recall: Recall | None
    has_map: bool
    n_changed: int
    generation: int
    queries: QueryRecall | None = None
    n_mapped: int = 0
    codebook_bytes: int = 0

    @classmethod
    def of(cls, folder: Path, snapshot: Snapshot) -> IndexStats:
        """Collect them from a commit of a folder.

        Parameters
        ----------
        folder : Path
            Folder of the index, for its size on the disk.
        snapshot : Snapshot
            The commit.

        Returns
        -------
        IndexStats
            The facts.
        """
        state, settings, n_bytes = snapshot.state, snapshot.state.settings, 0
        for path in folder.rglob("*"):
            with suppress(FileNotFoundError):  # removed by a writer
                n_bytes += path.stat().st_size if path.is_file() else 0
        return cls(
            state.n_rows - state.n_deleted,
            state.n_deleted,
            state.n_rows - state.segments[0].n_rows,
            snapshot.n_without_vector,
            state.dim,
            state.space,
            settings,
            round(state.n_rows * bytes_per_vector(state.dim, settings.kind, settings.store, settings.code_bytes)),
            n_bytes,
            state.recall,
            snapshot.record.postprocessing.dim is not None,
            state.n_changed,
            state.generation,
            state.queries,
            snapshot.n_mapped,
            snapshot.quantization.codebook_bytes if settings.code_bytes else 0,
        )

    def bytes_by_store(self) -> dict[Storage, float]:
        """Return the memory of the vectors that are searched in each dtype of this kind of index, finest first.

        Returns
        -------
        dict of str to float
            Bytes by the name of the dtype.
        """
        kind, code_bytes = self.settings.kind, self.settings.code_bytes
        return {store: self.n_rows * bytes_per_vector(self.dim, kind, store, code_bytes) for store in stores_of(kind)}

    def to_json(self) -> dict[str, Any]:
        """Return the facts as JSON values.

        Returns
        -------
        dict
            A key per fact, ``is_stale`` and ``has_drifted``.
        """
        return {**to_builtins(self), "is_stale": self.is_stale, "has_drifted": self.has_drifted}

    @property
    def large_share(self) -> float:
        """Share of the rows that are reranked for ten results, if it is large: of more rows, a search keeps less."""
        return large_share(self.settings.oversampling, self.n_rows)

    @property
    def has_drifted(self) -> bool:
        """Whether codebooks that are fitted on the rows as they are now would keep clearly more of their neighbors."""
        return self.recall is not None and self.recall.has_drifted

    @property
    def is_stale(self) -> bool:
        """Whether more than a tenth of the rows have changed since the recall was measured; never of an exact index."""
        if (self.settings.kind, self.settings.store) == ("flat", Storage.float32):
            return False
        return self.recall is not None and self.n_changed > STALE_SHARE * self.recall.n_rows
