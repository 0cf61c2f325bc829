"""What an index holds after one commit, with all its files open: later commits do not change it.

`Snapshot.open` opens the last commit, and begins again if a writer committed meanwhile (`open_consistently`). A
`Snapshot` opens the files of each segment (`_Part`), or takes those that the snapshot before has open. Positions count
over all segments; `starts` says where each begins. `nearest` searches each `Segment` of `engine` and keeps the
best of all; `fused` adds the ranking by words, `matches` drops what chance would find, and `shares` compares a score
with those of random pairs. Ids, rows and vectors are read by position: `ids_at`, `take`, `vectors`, and all in batches.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError, option, wrong_value
from isosent.io.atomic import recover
from isosent.io.tensors import read_tensors
from isosent.numeric.neighbors import best
from isosent.numeric.similarity import nonzero_rows
from isosent.persistence import read_model
from isosent.search.chance import Chance
from isosent.search.codes_file import check_codes, read_codes
from isosent.search.commits import (
    MANIFEST,
    MODEL_FOLDER,
    QUERY_FOLDER,
    SegmentEntry,
    State,
    manifest_state,
    read_array,
    read_state,
    remove_unnamed,
    verify,
    write_state,
)
from isosent.search.engine import SearchSettings, Segment, finer_settings, inner_codes, packed_codes, tail_settings
from isosent.search.keywords import FUSED, Keywords, fuse
from isosent.search.rows import HAS_VECTOR, ID, MAPPED, TEXT, VECTOR, RowFile, id_array
from isosent.search.where import matching_rows, parse_where
from isosent.space import Space, same_space
from isosent.transforms.quantization import Quantization

Opened = TypeVar("Opened")


@dataclass(frozen=True, slots=True)
class _Part:
    """The files of a segment; they are kept open, because a writer may remove them."""

    rows: RowFile
    has_vector: NDArray[np.bool_]
    codes: Any
    finer: Any
    packed: Any  # the codes as they are compared, which takes a pass over them
    keywords: Keywords | None
    owner: Any  # the index that the codes are a part of

    @classmethod
    def open(cls, folder: Path, entry: SegmentEntry, dim: int, settings: SearchSettings) -> _Part:
        # first, because the size of this file bounds the number of rows
        check_codes(folder / entry.codes.name, entry.n_rows, dim, settings, has_map=True)
        owner = read_codes(folder / entry.codes.name, dim)
        finer, kept = None, finer_settings(settings)
        if (entry.vectors is None) != (kept is None):
            raise FileFormatError(
                f"{folder / MANIFEST}: {entry.codes.name} has {'no ' if kept else ''}vectors next to it, unlike "
                f"every {settings.kind} index of {settings.store}. Make the index again."
            )
        if entry.vectors is not None and kept is not None:
            check_codes(folder / entry.vectors.name, entry.n_rows, dim, kept, has_map=False)
            finer = read_codes(folder / entry.vectors.name, dim)
        rows = RowFile(folder / entry.rows.name, entry.n_rows)
        has_vector = rows.columns([HAS_VECTOR]).column(0).to_numpy().astype(bool)
        keywords = None if entry.keywords is None else Keywords.read(folder / entry.keywords.name, entry.n_rows)
        codes = inner_codes(owner)
        packed = codes if finer is None else packed_codes(codes)
        return cls(rows, has_vector, codes, finer, packed, keywords, owner)


def _positions(path: Path, n_rows: int) -> NDArray[np.int64]:
    """Positions of deleted rows."""
    positions = read_array(path)
    if positions.dtype != np.int64 or positions.ndim != 1 or ((positions < 0) | (positions >= n_rows)).any():
        raise FileFormatError(f"{path} does not hold positions of {n_rows} rows. Make the index again.")
    return positions


def open_consistently(folder: Path, open_all: Callable[[State], Opened]) -> Opened:
    """Open all files of the last commit; again if a writer committed, or replaced the folder, meanwhile."""
    recover(folder)
    while True:
        before = manifest_state(folder)
        try:
            state = read_state(folder)
            for entry in state.files:
                verify(folder, entry)
            result = open_all(state)
        except (OSError, InputError):
            if manifest_state(folder) == before:
                raise
        else:
            if manifest_state(folder) == before:  # else its files may be those of two commits
                return result


def copy_last_commit(source: Path, target: Path) -> None:
    """Copy what the last commit names into a folder."""

    def copy(state: State) -> None:
        for entry in state.files:
            shutil.copyfile(source / entry.name, target / entry.name)
        for name in (MODEL_FOLDER, *([QUERY_FOLDER] if state.queries else [])):
            shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        write_state(target, state)
        remove_unnamed(target, state)  # of a commit that went away while it was copied

    open_consistently(source, copy)


class Snapshot:
    """The rows of an index by their positions, which count over all segments."""

    @classmethod
    def open(cls, folder: Path, *, space: Space | None, before: Snapshot | None = None) -> Snapshot:
        """Open the last commit of a folder, for a model of a space if there is one."""

        def of_state(state: State) -> Snapshot:
            if space is not None:
                same_space("the model", space, f"the index {folder}", state.space)
            snapshot = cls(folder, state, before)
            same_space("its model", snapshot.record.space, f"the index {folder}", state.space)
            return snapshot

        return open_consistently(folder, of_state)

    def __init__(self, folder: Path, state: State, before: Snapshot | None = None) -> None:
        self._folder, self.state, self.record = folder, state, read_model(folder / MODEL_FOLDER)
        # segments of an older snapshot are not opened again
        parts = {} if before is None else dict(zip(before.state.segments, before._parts, strict=True))
        self._parts: list[_Part] = [
            parts.get(entry)
            or _Part.open(folder, entry, state.dim, tail_settings(state.settings) if number else state.settings)
            for number, entry in enumerate(state.segments)
        ]
        self.rows = [part.rows for part in self._parts]
        self.starts = np.cumsum([0, *(entry.n_rows for entry in state.segments)])
        self.deleted = np.zeros(state.n_rows, bool)
        if state.deleted is not None:
            self.deleted[_positions(folder / state.deleted.name, state.n_rows)] = True
        self.segments = [
            Segment(
                part.codes,
                part.finer,
                self.deleted[start : start + len(part.has_vector)] | ~part.has_vector,
                part.packed,
            )
            for part, start in zip(self._parts, self.starts, strict=False)
        ]
        chance = None if state.chance is None else read_tensors(folder / state.chance.name, ())[0]
        self.chance = None if chance is None else Chance.from_tensors(chance)
        if self.chance is not None:
            _check.same_dim(str(folder), "chance", self.chance.dim, state.dim)

    def __len__(self) -> int:
        return self.state.n_rows - self.state.n_deleted

    @property
    def space(self) -> Space:
        """Space of the vectors."""
        return self.state.space

    @property
    def quantization(self) -> Quantization:
        """The number types of the model."""
        if self.record.quantization is None:
            raise FileFormatError(f"{self._folder / MODEL_FOLDER}: its quantization is missing. Make the index again.")
        code_bytes = self.state.settings.code_bytes
        if code_bytes not in (0, self.record.quantization.code_bytes):
            raise FileFormatError(
                f"{self._folder / MODEL_FOLDER}: its quantization has codes of {self.record.quantization.code_bytes} "
                f"bytes, and the index of {code_bytes}. Make the index again."
            )
        return self.record.quantization

    @property
    def n_without_vector(self) -> int:
        """Rows that are not deleted and have no vector."""
        has_vector = np.concatenate([part.has_vector for part in self._parts])
        return int((~has_vector & ~self.deleted).sum())

    @property
    def n_mapped(self) -> int:
        """Rows that are not deleted, and whose vectors were mapped from those of another model."""
        if MAPPED not in self.rows[0].schema.names:
            return 0
        columns = [rows.columns([MAPPED]).column(0).fill_null(False).to_numpy() for rows in self.rows]
        return int((np.concatenate(columns) & ~self.deleted).sum())

    @property
    def live(self) -> NDArray[np.intp]:
        """Positions of the rows that are not deleted."""
        return np.flatnonzero(~self.deleted)

    @cached_property
    def _ids(self) -> Any:
        """Ids of all rows, deleted ones included."""
        import pyarrow as pa

        return pa.concat_arrays([rows.columns([ID]).column(0).combine_chunks() for rows in self.rows])

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """Ids that are whole numbers, with -1 after the last."""
        return np.append(self._ids.to_numpy(), -1)

    @cached_property
    def metadata(self) -> Any:
        """All columns but the texts, of all rows."""
        import pyarrow as pa

        names = [name for name in self.rows[0].schema.names if name not in (TEXT, HAS_VECTOR)]
        return pa.concat_tables([rows.columns(names) for rows in self.rows])

    def matching(self, where: str) -> NDArray[np.bool_]:
        """Which rows match a filter, deleted ones included, (n_rows,)."""
        import pyarrow as pa

        schema = self.rows[0].schema
        names = parse_where(where, schema.remove(schema.get_field_index(HAS_VECTOR))).columns
        if TEXT not in names:
            return matching_rows(self.metadata, where)
        # texts are most of the rows: they are read when a filter names them, and not kept in memory
        return matching_rows(pa.concat_tables([rows.columns(sorted(names)) for rows in self.rows]), where)

    def ids_at(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Ids at positions of any shape; -1 or None where a position is -1."""
        import pyarrow as pa

        if pa.types.is_integer(self._ids.type):
            return self._numbers[positions]
        ids = self._ids.take(pa.array(positions.ravel(), mask=positions.ravel() < 0))
        return np.asarray(ids.to_numpy(zero_copy_only=False)).reshape(positions.shape)

    def positions_of(self, ids: Any) -> NDArray[np.intp]:
        """Position of the row with each id, -1 where there is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = id_array(ids)
        if len(column) and pa.types.is_string(column.type) != pa.types.is_string(self._ids.type):
            kind = "strings" if pa.types.is_string(self._ids.type) else "whole numbers"
            raise InputError(f"id {column[0].as_py()!r}: the ids of this index are {kind}.")
        live = self.live
        found = pc.index_in(column.cast(self._ids.type), value_set=self._ids.take(pa.array(live)))
        places = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.intp)
        return np.where(places < 0, -1, live[places] if len(live) else -1)

    def n_changed(self, deleted: NDArray[np.bool_], added: Any = ()) -> int:
        """How many ids have another row than when the first segment was built, if these are deleted and added."""
        import pyarrow as pa

        n_built = int(self.starts[1])
        is_changed = np.concatenate([deleted[:n_built], ~deleted[n_built:]])
        ids = self._ids.take(pa.array(np.flatnonzero(is_changed)))
        return len(pa.chunked_array([ids, id_array(added).cast(ids.type)]).unique())

    def take(self, positions: NDArray[np.intp]) -> Any:
        """Rows of the table at these positions, in this order."""
        import pyarrow as pa

        owners = np.searchsorted(self.starts, positions, side="right") - 1
        parts, order = [], []
        for owner in np.unique(owners):
            places = np.flatnonzero(owners == owner)
            parts.append(self.rows[owner].take(positions[places] - self.starts[owner]))
            order.append(places)
        if not parts:
            return self.rows[0].schema.empty_table().drop_columns([HAS_VECTOR])
        back = np.argsort(np.concatenate(order), kind="stable")
        return pa.concat_tables(parts).take(pa.array(back)).drop_columns([HAS_VECTOR])

    def vectors(self, positions: NDArray[np.intp]) -> NDArray[np.float32]:
        """Unit vectors at positions of any shape, (..., dim); the zero row where a position is -1."""
        flat = positions.ravel()
        vectors = np.zeros((len(flat), self.state.dim), np.float32)
        owners = np.where(flat < 0, -1, np.searchsorted(self.starts, flat, side="right") - 1)
        for owner in np.unique(owners[owners >= 0]):
            places = np.flatnonzero(owners == owner)
            vectors[places] = self.segments[owner].rows(flat[places] - self.starts[owner])
        return vectors.reshape(*positions.shape, self.state.dim)

    def batches(self, n_rows: int) -> Iterator[Any]:
        """Yield rows and vectors as record batches."""
        live = self.live
        for start in range(0, len(live), n_rows):
            yield self.take_with_vectors(live[start : start + n_rows]).combine_chunks().to_batches()[0]

    def take_with_vectors(self, positions: NDArray[np.intp]) -> Any:
        """Rows of the table at these positions, and their vectors: null for a row without one."""
        import pyarrow as pa

        vectors = self.vectors(positions)
        mask = pa.array(~nonzero_rows(vectors))
        lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), self.state.dim, mask=mask)
        return self.take(positions).append_column(VECTOR, lists)

    # -- searching -----------------------------------------------------------------------------------------------

    def nearest(
        self, units: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Cosines and positions of the nearest rows, best first, (n_queries, k); -inf and -1 where there are fewer."""
        results = []
        settings, has_several = self.state.settings, len(self.segments) > 1
        for segment, start in zip(self.segments, self.starts, strict=False):
            if segment.n_rows:
                part = None if allowed is None else allowed[start : start + segment.n_rows]
                scores, positions = segment.search(units, k, settings, part, exact=has_several)
                results.append((scores, np.where(positions < 0, -1, positions + start)))
            settings = tail_settings(settings)
        if not results:
            return np.full((len(units), k), -np.inf, np.float32), np.full((len(units), k), -1)
        if len(results) == 1:
            return results[0]
        return best(np.hstack([scores for scores, _ in results]), np.hstack([found for _, found in results]), k)

    def fused(
        self,
        texts: list[str],
        units: NDArray[np.float32],
        by_vectors: NDArray[np.int64],
        allowed: NDArray[np.bool_] | None,
        k: int,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Fuse the rankings by vectors and by words; the scores are still cosines."""
        if not any(part.keywords for part in self._parts):
            raise InputError("search: the index has no texts, so it cannot be searched by words.")
        visible = ~self.deleted if allowed is None else allowed & ~self.deleted
        positions = np.full((len(texts), k), -1)
        for row, text in enumerate(texts):
            rankings = [by_vectors[row][by_vectors[row] >= 0], self._by_words(text, visible)]
            ranked, _ = fuse(rankings, k)
            positions[row, : len(ranked)] = ranked
        scores = np.einsum("qd,qkd->qk", units, self.vectors(positions))
        return np.where(positions < 0, np.float32(-np.inf), scores).astype(np.float32), positions

    def _by_words(self, text: str, visible: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Positions of the rows that share words with a text, best first."""
        found: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
        for part, start in zip(self._parts, self.starts, strict=False):
            keywords = part.keywords
            if keywords is not None and keywords.n_rows:
                mask = visible[start : start + keywords.n_rows]
                positions, scores = keywords.search(text, FUSED, mask=mask)
                found.append((positions + start, scores))
        if not found:
            return np.empty(0, np.int64)
        positions = np.concatenate([positions for positions, _ in found])
        order = np.lexsort((positions, -np.concatenate([scores for _, scores in found])))
        return positions[order][:FUSED]

    def matches(
        self,
        units: NDArray[np.float32],
        scores: NDArray[np.float32],
        positions: NDArray[np.int64],
        false_positives: float,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Keep the hits that beat chance, in their order."""
        if not 0 < false_positives < 1:
            raise wrong_value("search", "false_positives", "be between 0 and 1", f"{false_positives:g}")
        if self.chance is None:
            raise InputError(
                "search: the index has too few texts to say how high unrelated texts score. "
                f"Leave {option('false_positives')} out."
            )
        found = positions >= 0
        is_match = self.chance.is_match(
            units,
            self.vectors(positions),
            np.where(found, scores, np.float32(0)),
            false_positives=false_positives,
            n_rows=len(self),
        )
        kept = is_match & found
        order = np.argsort(~kept, axis=1, kind="stable")
        scores, positions = np.where(kept, scores, np.float32(-np.inf)), np.where(kept, positions, -1)
        return np.take_along_axis(scores, order, 1), np.take_along_axis(positions, order, 1)

    def shares(
        self, units: NDArray[np.float32], positions: NDArray[np.int64], scores: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Share of random pairs with a lower score, (n_queries, k); NaN where there is no hit."""
        found = positions >= 0
        if self.chance is None or not found.any():
            return np.full(positions.shape, np.nan)
        shares = self.chance.share(units, self.vectors(positions), np.where(found, scores, np.float32(0)))
        return np.where(found, shares, np.nan)
