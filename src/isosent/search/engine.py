"""FAISS: a kind of index and a number type after the map of a model, and the exact recall of what it finds.

`SearchSettings` names a kind, a `Storage`, and how widely to search. `empty_codes` makes the FAISS index of unit
vectors that they describe, with the number types of the model's quantization; `prepend_map` puts the map of the model
in front, for the file. A `Segment` is such codes, product codes as FAISS compares them fast (`packed_codes`), finer
vectors by which candidates are scored again, and the rows that are hidden: `search` widens for a filter, compares one
by one where few rows are left, and goes on where a query found too few. `best` is the one order of hits. `held_out`
draws rows as queries with their exact nearest others, `choose_settings` walks from cheap settings to exact ones until
the recall is reached, and `OriginalNeighbors` are those of the same queries before the map.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Protocol

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.errors import FileFormatError, InputError, option
from isosent.io.schemas import Count
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.neighbors import best, exact_products, fast_nearest, nearest_of_blocks, no_neighbors
from isosent.numeric.similarity import unit_rows
from isosent.storage import INDEXED, Storage
from isosent.transforms.quantization import CODE_BITS, PARTS_A_BYTE, Quantization

Kind = Literal["flat", "ivf", "hnsw"]
KINDS: Final[tuple[Kind, ...]] = ("flat", "ivf", "hnsw")

K_MEASURED: Final = 10
TIE: Final = 1e-5  # scores that are closer count as equal
_KEPT_NEIGHBORS: Final = 50  # of a query among the original vectors
LINKS: Final = 16  # of a node of HNSW on a layer; twice as many on the lowest
_EF_CONSTRUCTION: Final = 80
FACTORS_BYTES: Final = 8  # that RaBitQ keeps beside the bits of a vector
_PACKED: Final = 32  # product codes that FAISS compares at a time
_FEWEST_OF_PACKED: Final = 20  # that are fetched: of fewer, FAISS 1.15 sometimes finds none
_QUERY_BITS: Final = 8  # per dimension of a query that is compared with bits
_FACTORS: Final[dict[Storage, tuple[int, ...]]] = {  # candidates per result to try
    Storage.int8: (2, 4, 10),
    Storage.binary: (10, 20, 40, 100),
    Storage.product: (10, 20, 30, 40, 60, 80, 120, 160, 240, 320),
}
_LARGE_SHARE: Final = 0.1
_SIMD: Final = 16  # FAISS is about ten times slower on float16 and int8 codes of other widths than multiples of this
_FEW_HIDDEN: Final = 100
_SMALL_SELECTION: Final = 50_000  # rows that are scored one by one rather than through the index
_WIDER: Final = 2  # times as many clusters and candidates, if a filter may leave rows that are far from a query
_BLOCK_ROWS: Final = 16_384
_SPARE: Final = 2  # rows that are fetched beyond those that are wanted, to see whether more are as near as the last
_WIDENED: Final = 8  # times as many, if more may be
_MOST_WIDENED: Final = 1024  # of more, a flat index compares all rows one by one
_MOST_FETCHED: Final = 1 << 22  # at a time
_LAST_DIGITS: Final = 1e-6  # what the order of summation can change


class SearchSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How an index is searched: what was asked for, and what was chosen by measuring."""

    kind: Kind = "flat"
    store: Storage = Storage.float32
    n_lists: Count = 0  # ivf: clusters
    n_probe: Count = 0  # ivf: clusters that are searched
    ef_search: Count = 0  # hnsw: nodes that are kept while searching
    oversampling: Annotated[int, Meta(ge=0, le=10_000)] = 0  # candidates per result that are scored again; 0: none
    code_bytes: Count = 0  # product: bytes of a code

    def __post_init__(self) -> None:
        _check.one_of("index", "store", self.store, INDEXED)
        if self.store not in stores_of(self.kind):
            raise InputError(
                f"index: hnsw has no {self.store} store. Use {option('kind', 'ivf')}, or "
                f"{option('store', Storage.int8)}."
            )
        if (self.code_bytes > 0) != (self.store is Storage.product):
            raise InputError(f"index: {self.store} has codes of {self.code_bytes} bytes. Make the index again.")


def stores_of(kind: Kind | None) -> tuple[Storage, ...]:
    """Number types that FAISS has for a kind of index, finest first."""
    return tuple(store for store in INDEXED if kind != "hnsw" or not store.is_coarse)


FULL_SIZE: Final = SearchSettings()  # every vector as float32, one by one


def tail_settings(settings: SearchSettings) -> SearchSettings:
    """How rows that were added later are searched."""
    return replace(settings, kind="flat", n_lists=0, n_probe=0, ef_search=0)


def bytes_of_product(dim: int) -> int:
    """Bytes of a product code, unless a size was chosen by measuring: one for 16 dimensions, and 8 or more."""
    return max(dim // 16, min(dim // PARTS_A_BYTE, 8), 1)


def bytes_per_vector(dim: int, kind: Kind, store: Storage, code_bytes: int = 0) -> float:
    """Bytes in memory for a vector while it is searched; of a product code, `code_bytes`, or as many as are usual."""
    if store is Storage.product:
        codes = code_bytes or bytes_of_product(dim)
    else:
        codes = store.n_bytes(code_width(dim, store)) + FACTORS_BYTES * store.is_bits
    return codes + {"flat": 0, "ivf": 8, "hnsw": 4 * 2 * LINKS * 1.1 + 8}[kind]


def large_share(oversampling: int, n_rows: int) -> float:
    """Share of the rows that are scored again for ten results; 0 if it is below a tenth, and rows are enough."""
    share = min(1.0, oversampling * K_MEASURED / max(n_rows, 1))
    return share if share > _LARGE_SHARE else 0.0


def _width(dim: int) -> int:
    """Width of codes that FAISS compares fast: zeros are appended."""
    return -(-dim // _SIMD) * _SIMD


def code_width(dim: int, store: Storage) -> int:
    """Dimensions of codes of a number type."""
    return _width(dim) if store in (Storage.float16, Storage.int8) else dim


def finer_settings(settings: SearchSettings) -> SearchSettings | None:
    """How vectors are kept next to their codes: codes of ivf cannot be read one by one, others are coarse; or None."""
    if settings.kind != "ivf" and settings.store.is_float:
        return None
    return SearchSettings(store=Storage.float32 if settings.store is Storage.float32 else Storage.float16)


# -- making and reading ----------------------------------------------------------------------------------------------


def to_vector_transform(linear_map: LinearMap) -> Any:
    """Convert a linear map to FAISS.

    Parameters
    ----------
    linear_map : LinearMap
        The map, such as ``model.linear_map``.

    Returns
    -------
    faiss.LinearTransform
        The same map; ``apply`` takes float32 vectors of shape (n, linear_map.dim).

    Raises
    ------
    MissingExtraError
        If faiss is not installed.
    """
    return _linear_transform(linear_map.weight, linear_map.bias)


def _linear_transform(weight: NDArray[np.floating], bias: NDArray[np.floating] | None = None) -> Any:
    faiss = _extras.require("faiss")
    transform = faiss.LinearTransform(*weight.shape, bias is not None)
    faiss.copy_array_to_vector(weight.T.astype(np.float32).ravel(), transform.A)
    if bias is not None:
        faiss.copy_array_to_vector(bias.astype(np.float32), transform.b)
    transform.is_trained = True
    return transform


def prepend_map(inner: Any, linear_map: LinearMap | None) -> Any:
    """Put a map and the scaling to length 1 before an index, so that raw vectors of the encoder go in."""
    faiss = _extras.require("faiss")
    index = faiss.IndexPreTransform(faiss.NormalizationTransform(inner.d), inner)
    if linear_map is not None:
        index.prepend_transform(to_vector_transform(linear_map))
    return index


def empty_codes(dim: int, settings: SearchSettings, quantization: Quantization) -> Any:
    """Make an index of unit vectors; of kind ivf, its clusters must be trained."""
    faiss = _extras.require("faiss")
    inner_product = faiss.METRIC_INNER_PRODUCT
    scalar = {Storage.float16: faiss.ScalarQuantizer.QT_fp16, Storage.int8: faiss.ScalarQuantizer.QT_8bit}.get(
        settings.store
    )
    front: Any = None
    if settings.store.is_bits:
        front = _linear_transform(quantization.rotation)
    elif settings.store is Storage.product:
        assert quantization.projection is not None
        front = _linear_transform(quantization.projection)
        dim = quantization.projection.shape[1]
    elif scalar is not None and _width(dim) > dim:
        front = faiss.RemapDimensionsTransform(dim, _width(dim), False)
        dim = _width(dim)
    quantizer: Any = faiss.IndexFlatIP(dim) if settings.kind == "ivf" else None
    match settings.kind, settings.store:
        case "flat", Storage.float32:
            index = faiss.IndexFlatIP(dim)
        case "flat", Storage.binary:
            index = faiss.IndexRaBitQ(dim, inner_product)
        case "flat", Storage.product:
            index = faiss.IndexPQ(dim, PARTS_A_BYTE * settings.code_bytes, CODE_BITS, inner_product)
        case "flat", _:
            index = faiss.IndexScalarQuantizer(dim, scalar, inner_product)
        case "ivf", Storage.float32:
            index = faiss.IndexIVFFlat(quantizer, dim, settings.n_lists, inner_product)
        case "ivf", Storage.binary:
            index = faiss.IndexIVFRaBitQ(quantizer, dim, settings.n_lists, inner_product)
        case "ivf", Storage.product:
            n_parts = PARTS_A_BYTE * settings.code_bytes
            index = faiss.IndexIVFPQ(quantizer, dim, settings.n_lists, n_parts, CODE_BITS, inner_product)
            index.by_residual = False  # the codebooks are those of whole vectors
        case "ivf", _:
            index = faiss.IndexIVFScalarQuantizer(quantizer, dim, settings.n_lists, scalar, inner_product, False)
        case _, Storage.float32:
            index = faiss.IndexHNSWFlat(dim, LINKS, inner_product)
        case _:
            index = faiss.IndexHNSWSQ(dim, scalar, LINKS, inner_product)
    if settings.kind == "ivf":
        index.cp.spherical, index.cp.min_points_per_centroid = True, 1
        index.own_fields = True  # of the quantizer
        quantizer.this.disown()
    if settings.kind == "hnsw":
        index.hnsw.efConstruction = _EF_CONSTRUCTION
    if settings.kind != "ivf":
        _set_ranges(index, quantization, settings)
    return index if front is None else faiss.IndexPreTransform(front, index)


def without_front(index: Any) -> Any:
    """The codes after the rotation of bits, or after zeros are appended."""
    faiss = _extras.require("faiss")
    return faiss.downcast_index(index.index) if isinstance(index, faiss.IndexPreTransform) else index


def _set_ranges(index: Any, quantization: Quantization, settings: SearchSettings) -> None:
    """Give an index the number type of the model, instead of one fitted on the vectors that it is trained on."""
    faiss = _extras.require("faiss")
    if settings.store is Storage.int8:
        missing = (0, index.d - len(quantization.low))
        low, span = np.pad(quantization.low, missing), np.pad(quantization.span, missing, constant_values=1)
        coded = faiss.downcast_index(index.storage) if settings.kind == "hnsw" else index
        faiss.copy_array_to_vector(np.concatenate([low, span]).astype(np.float32), coded.sq.trained)
        coded.is_trained = True
    if settings.store.is_bits and settings.kind == "flat":
        faiss.copy_array_to_vector((quantization.center @ quantization.rotation).astype(np.float32), index.center)
    if settings.store is Storage.product:
        assert quantization.codebooks is not None
        faiss.copy_array_to_vector(quantization.codebooks.ravel(), index.pq.centroids)
    index.is_trained = True


def train_codes(
    index: Any, vectors: Vectors, positions: NDArray[np.intp], settings: SearchSettings, quantization: Quantization
) -> None:
    """Cluster the unit vectors at these positions for an index of kind ivf."""
    if settings.store is Storage.product:  # whose codebooks are not trained again
        faiss = _extras.require("faiss")
        front, clusters = index.chain.at(0), without_front(index)
        rows = np.empty((len(positions), clusters.d), np.float32)
        for start in range(0, len(rows), _BLOCK_ROWS):  # shorter after the projection
            rows[start : start + _BLOCK_ROWS] = front.apply(vectors[positions[start : start + _BLOCK_ROWS]])
        clusters.train_q1(len(rows), faiss.swig_ptr(rows), False, faiss.METRIC_INNER_PRODUCT)
        index.is_trained = True
    else:
        index.train(vectors[positions])
    if settings.store in (Storage.int8, Storage.product):
        _set_ranges(without_front(index), quantization, settings)


def inner_codes(index: Any) -> Any:
    """The index after the map and the scaling."""
    return _extras.require("faiss").downcast_index(index.index)


# -- searching -------------------------------------------------------------------------------------------------------


@contextmanager
def one_thread() -> Iterator[None]:
    """Let FAISS compute in the calling thread, whose setting this is: each caller has threads that wait by spinning."""
    faiss = _extras.require("faiss")
    n_threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(n_threads)


class Segment:
    """Rows that are searched together: codes, and the finer vectors by which candidates are scored again."""

    def __init__(self, codes: Any, finer: Any, hidden: NDArray[np.bool_], packed: Any = None) -> None:
        self.codes = codes  # a FAISS index of unit vectors
        self.finer = finer  # a flat one; None if the codes are as fine
        self.hidden, self.n_hidden = hidden, int(hidden.sum())  # (n_rows,) rows that are deleted or have no vector
        self._packed = packed or (codes if finer is None else packed_codes(codes))
        self._refined = None if finer is None else _extras.require("faiss").IndexRefine(self._packed, finer)

    @property
    def n_rows(self) -> int:
        """Rows, hidden ones included."""
        return len(self.hidden)

    def rows(self, positions: NDArray[np.intp]) -> NDArray[np.float32]:
        """Unit vectors at these positions, (n, dim)."""
        index = self.codes if self.finer is None else self.finer
        with one_thread():
            rows: NDArray[np.float32] = index.reconstruct_batch(np.ascontiguousarray(positions, np.int64))
        if not np.isfinite(rows).all():  # isosent writes none; whoever made the file did
            raise FileFormatError("the index is damaged: a vector holds NaN or infinity. Make it again.")
        return rows

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        settings: SearchSettings,
        allowed: NDArray[np.bool_] | None = None,
        *,
        exact: bool = False,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and positions of the nearest rows, best first, (n_queries, k); -inf and -1 where there are fewer.

        Where hits are so near each other that their order depends on the processor, and everywhere if `exact`, scores
        are added up in float64.
        """
        hidden, n_hidden = self.hidden, self.n_hidden
        if allowed is not None:
            hidden = self.hidden | ~allowed
            n_hidden = int(hidden.sum())
        n_visible = self.n_rows - n_hidden
        if not len(queries) or not n_visible:
            return self._score_all(queries, k, np.empty(0, np.intp))
        if allowed is not None:
            if n_visible <= _SMALL_SELECTION or settings.kind == "hnsw":  # few links lead from a query to such rows
                return self._score_all(queries, k, np.flatnonzero(~hidden))
            n_probe = min(settings.n_lists, math.ceil(_WIDER * settings.n_probe * self.n_rows / n_visible))
            settings = replace(settings, n_probe=n_probe, oversampling=_WIDER * settings.oversampling)
        scores, positions = self.search_once(queries, k, settings, hidden, n_hidden, exact=exact)
        short = np.flatnonzero(positions[:, min(k, n_visible) - 1] < 0) if settings.kind != "flat" else ()
        if len(short):  # where a query was compared, there are fewer rows: compare it with all
            if settings.kind == "hnsw":  # copies of a text link only to each other
                scores[short], positions[short] = self._score_all(queries[short], k, np.flatnonzero(~hidden))
            else:
                everywhere = replace(settings, n_probe=settings.n_lists)
                scores[short], positions[short] = self.search_once(
                    queries[short], k, everywhere, hidden, n_hidden, exact=exact
                )
        return scores, positions

    def search_once(
        self,
        queries: NDArray[np.float32],
        k: int,
        settings: SearchSettings,
        hidden: NDArray[np.bool_],
        n_hidden: int,
        *,
        exact: bool = False,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """As `search`, but a query may find fewer rows than there are."""
        if settings.kind == "hnsw" and k >= 2 * K_MEASURED:  # chosen for ten hits
            settings = replace(settings, ef_search=min(settings.ef_search * (k // K_MEASURED), self.n_rows))
        selector, n_dropped = None, n_hidden
        if n_hidden > (_FEW_HIDDEN if not settings.oversampling else _FEW_HIDDEN // 10):
            selector, n_dropped = _extras.require("faiss").IDSelectorBitmap(np.packbits(~hidden, bitorder="little")), 0
        # few hidden rows are dropped afterwards: FAISS is slower with a selector
        # candidates are a multiple of the hits, and were chosen for ten hits
        n_hits = max(k, K_MEASURED + 1) if settings.oversampling else k
        n_hits = min(n_hits + n_dropped, self.n_rows)
        # no more than there are: FAISS makes room for as many as a manifest says
        most = -(-max(self.n_rows, _FEWEST_OF_PACKED if settings.code_bytes else 0) // n_hits)
        settings = replace(settings, oversampling=min(settings.oversampling, most))
        scores, positions = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        n_fetched, asking = min(n_hits + _SPARE, self.n_rows), np.arange(len(queries))
        has_rows = self.finer is not None or not settings.store.is_coarse  # such codes alone are no rows to score
        while len(asking):
            index, parameters = self.searched(settings, selector, n_hits / n_fetched)
            is_open = np.zeros(len(asking), np.bool_)
            n_block = max(1, _MOST_FETCHED // n_fetched)
            for start in range(0, len(asking), n_block):
                block = asking[start : start + n_block]
                with one_thread() if len(block) == 1 and settings.kind == "flat" else nullcontext():
                    found_scores, found = index.search(queries[block], n_fetched, params=parameters)
                is_apart = found_scores[:, :-1] - found_scores[:, 1:] > _LAST_DIGITS
                if not (n_dropped or exact or n_fetched < k) and is_apart.all() and (found >= 0).all():
                    scores[block], positions[block] = found_scores[:, :k], found[:, :k]
                    continue
                if n_dropped:
                    found[(found >= 0) & hidden[found]] = -1
                found_scores = np.where(found < 0, np.float32(-np.inf), found_scores)
                hits = best(found_scores, found, k + 1)
                scores[block], positions[block] = (each[:, :k] for each in hits)
                if has_rows:
                    with np.errstate(invalid="ignore"):  # of -inf
                        is_near = ~(hits[0][:, :-1] - hits[0][:, 1:] > _LAST_DIGITS)
                    near = np.flatnonzero(is_near.any(axis=1) | exact)
                    again = self._in_order(queries[block[near]], found[near], k)
                    scores[block[near]], positions[block[near]] = again
                # rows that FAISS left out may be as near as the last hit: which it takes depends on the processor
                least = scores[block, -1]
                is_open[start : start + n_block] = (found_scores[:, -1] >= least - _LAST_DIGITS) & np.isfinite(least)
            asking = asking[is_open]
            if not len(asking) or n_fetched == self.n_rows:
                break
            if n_fetched > _MOST_WIDENED and (settings.kind != "flat" or has_rows):
                if settings.kind == "flat":  # many are equal: compare one by one, rather than fetch all of them
                    scores[asking], positions[asking] = self._score_all(queries[asking], k, np.flatnonzero(~hidden))
                break
            n_fetched = min(_WIDENED * n_fetched, self.n_rows)
        return scores, positions

    def _in_order(
        self, queries: NDArray[np.float32], positions: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The k best of the rows that were found for each query, by their exact scores."""
        scores = np.empty(positions.shape, np.float32)
        n_queries = max(1, _BLOCK_ROWS // max(1, positions.shape[1]))
        for start in range(0, len(queries), n_queries):
            part = slice(start, start + n_queries)
            for first in range(0, positions.shape[1], _BLOCK_ROWS):
                found = np.maximum(positions[part, first : first + _BLOCK_ROWS], 0)
                rows = self.rows(found.ravel()).reshape(*found.shape, -1)
                scores[part, first : first + _BLOCK_ROWS] = exact_products(queries[part, None], rows)[:, 0]
        return best(np.where(positions < 0, np.float32(-np.inf), scores), positions, k)

    def searched(self, settings: SearchSettings, selector: Any = None, scale: float = 1) -> tuple[Any, Any]:
        """The FAISS index to search, and its parameters; `scale` multiplies the oversampling, which stays above 2."""
        settings = replace(
            settings,
            n_probe=min(settings.n_probe, settings.n_lists),
            ef_search=min(settings.ef_search, max(self.n_rows, 1)),
        )
        codes, refined = self.codes, self._refined
        if selector is not None and (settings.kind, settings.store) == ("flat", Storage.product):
            codes, settings = _selectable(codes), replace(settings, kind="ivf", n_probe=1)
            refined = None if refined is None else _extras.require("faiss").IndexRefine(codes, self.finer)
        parameters = _parameters(settings, selector)
        if refined is None or not settings.oversampling:
            return codes, parameters
        return refined, _extras.require("faiss").IndexRefineSearchParameters(
            k_factor=max(scale * settings.oversampling, min(settings.oversampling, 2)), base_index_params=parameters
        )

    def standalone(self, settings: SearchSettings) -> Any:
        """A FAISS index that searches in this way by itself, with the candidates that ten results have here."""
        faiss, index = _extras.require("faiss"), without_front(self._packed)
        if settings.kind == "ivf":
            index.nprobe = settings.n_probe
        elif settings.kind == "hnsw":
            index.hnsw.efSearch = settings.ef_search
        if settings.store.is_bits:
            index.qb = _QUERY_BITS
        if self.finer is None or not settings.oversampling:
            return self.codes
        refined = faiss.IndexRefine(self._packed, self.finer)
        n_dropped = self.n_hidden if self.n_hidden <= _FEW_HIDDEN // 10 else 0  # as in `search_once`
        refined.k_factor = (K_MEASURED + 1 + n_dropped) * settings.oversampling / K_MEASURED
        return refined

    def _score_all(
        self, queries: NDArray[np.float32], k: int, positions: NDArray[np.intp]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        parts = (positions[start : start + _BLOCK_ROWS] for start in range(0, len(positions), _BLOCK_ROWS))
        return nearest_of_blocks(queries, ((self.rows(part), part) for part in parts), k)


def packed_codes(codes: Any) -> Any:
    """The same product codes as FAISS compares them in registers; other codes are returned unchanged."""
    faiss, inner = _extras.require("faiss"), without_front(codes)
    if isinstance(inner, faiss.IndexIVFPQ):
        packed = faiss.IndexIVFPQFastScan(inner, _PACKED)
    elif isinstance(inner, faiss.IndexPQ):
        packed = faiss.IndexPQFastScan(inner, _PACKED)
    else:
        return codes
    front = faiss.IndexPreTransform(faiss.downcast_VectorTransform(codes.chain.at(0)), packed)
    front.referenced_objects = [codes, packed]  # whose clusters and projection it uses
    return front


def _selectable(codes: Any) -> Any:
    """The same product codes as the only cluster of an index of kind ivf: FAISS cannot leave out rows of a flat one."""
    faiss = _extras.require("faiss")
    flat, front = without_front(codes), faiss.downcast_VectorTransform(codes.chain.at(0))
    quantizer = faiss.IndexFlatIP(flat.d)
    quantizer.add(np.zeros((1, flat.d), np.float32))
    one = faiss.IndexIVFPQ(quantizer, flat.d, 1, flat.pq.M, CODE_BITS, faiss.METRIC_INNER_PRODUCT)
    one.own_fields, one.by_residual, one.pq, one.is_trained = True, False, flat.pq, True
    quantizer.this.disown()
    places = np.arange(flat.ntotal, dtype=np.int64)
    one.invlists.add_entries(0, flat.ntotal, faiss.swig_ptr(places), flat.codes.data())
    one.ntotal = flat.ntotal
    return faiss.IndexPreTransform(front, one)


def _parameters(settings: SearchSettings, selector: Any) -> Any:
    faiss = _extras.require("faiss")
    match settings.kind, settings.store:
        case "ivf", Storage.binary:
            return faiss.IVFRaBitQSearchParameters(nprobe=settings.n_probe, sel=selector, qb=_QUERY_BITS)
        case "flat", Storage.binary:
            return faiss.RaBitQSearchParameters(sel=selector, qb=_QUERY_BITS)
        case "ivf", _:
            return faiss.SearchParametersIVF(nprobe=settings.n_probe, sel=selector)
        case "hnsw", _:
            return faiss.SearchParametersHNSW(efSearch=settings.ef_search, sel=selector)
        case _:
            return None if selector is None else faiss.SearchParameters(sel=selector)


# -- measuring -------------------------------------------------------------------------------------------------------


class Vectors(Protocol):
    """Unit vectors as float32, in blocks or by their positions."""

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Yield all vectors in order."""

    def __getitem__(self, positions: NDArray[np.intp], /) -> NDArray[np.float32]: ...


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Rows of an index as queries, and the score that a row must have to be among their ten nearest others.

    Copies of a row are left out: a search that finds nothing but copies of a query says nothing about other queries.
    """

    rows: NDArray[np.intp]  # (n_queries,) positions
    queries: NDArray[np.float32]  # (n_queries, dim)
    least_scores: NDArray[np.float32]  # (n_queries,) exact score of the tenth
    hidden: NDArray[np.bool_]  # (n_rows,) copies of other rows, and rows without a vector

    def part(self, which: slice) -> HeldOut:
        """Some of the queries."""
        return HeldOut(self.rows[which], self.queries[which], self.least_scores[which], self.hidden)

    def neighbors(self, segment: Segment, settings: SearchSettings) -> list[NDArray[np.int64]]:
        """Positions of the ten nearest others of each query that a search returns."""
        n_hidden = int(self.hidden.sum())
        _, positions = segment.search_once(self.queries, K_MEASURED + 1, settings, self.hidden, n_hidden)
        return [
            found[(found >= 0) & (found != row)][:K_MEASURED] for row, found in zip(self.rows, positions, strict=True)
        ]

    def recalls(self, segment: Segment, settings: SearchSettings, exact: Vectors) -> NDArray[np.float64]:
        """Share of the ten nearest others of each query that a search returns; `exact` holds all unit vectors."""
        found = zip(self.queries, self.least_scores, self.neighbors(segment, settings), strict=True)
        # by score: float32 sums differ in the last digits
        hits = [(exact[others] @ query >= least - TIE).sum() for query, least, others in found]
        return np.array(hits) / K_MEASURED


def held_out(
    vectors: Vectors,
    is_distinct: NDArray[np.bool_],
    *,
    n_queries: int,
    seed: int,
    rows: NDArray[np.intp] | None = None,
) -> HeldOut | None:
    """Draw distinct rows as queries, or take `rows`, and find their nearest others exactly; None for too few."""
    candidates = np.flatnonzero(is_distinct)
    n_queries = min(n_queries, len(candidates) // 4) if rows is None else len(rows)
    if n_queries < K_MEASURED or len(candidates) <= 2 * K_MEASURED:
        return None
    if rows is None:
        rows = np.sort(np.random.default_rng(seed).choice(candidates, n_queries, replace=False))
    queries = np.ascontiguousarray(vectors[rows], np.float32)

    def distinct() -> Iterator[NDArray[np.float32]]:
        start = 0
        for block in vectors.blocks():
            yield np.ascontiguousarray(block[is_distinct[start : start + len(block)]])
            start += len(block)

    nearest = fast_nearest(queries, distinct(), K_MEASURED + 1)[0]
    return HeldOut(rows, queries, nearest[:, K_MEASURED], ~is_distinct)  # the best is the row itself


class OriginalNeighbors:
    """The nearest others of some rows among the vectors before a map, found while these pass once, in order.

    Of each query, more are kept than are needed: copies of other rows are known only in the end.
    """

    def __init__(self, rows: NDArray[np.intp], queries: NDArray[np.floating] | None = None) -> None:
        self.rows = rows  # (n_queries,) positions, ascending
        self._queries = queries  # (n_queries, dim); None: all of them are in the first vectors
        self._scores, self._positions = no_neighbors(len(rows), _KEPT_NEIGHBORS)
        self._n_seen = 0

    def add(self, vectors: NDArray[np.floating]) -> None:
        """Compare the queries with the next vectors."""
        if self._queries is None:
            self._queries = vectors[self.rows]
        if len(vectors):
            queries, units = (np.ascontiguousarray(unit_rows(rows), np.float32) for rows in (self._queries, vectors))
            scores, positions = fast_nearest(queries, [units], _KEPT_NEIGHBORS)
            both = np.hstack([self._positions, np.where(positions < 0, -1, positions + self._n_seen)])
            self._scores, self._positions = best(np.hstack([self._scores, scores]), both, _KEPT_NEIGHBORS)
        self._n_seen += len(vectors)

    def distinct(self, is_distinct: NDArray[np.bool_]) -> OriginalNeighbors:
        """Without copies of other rows, as neighbors and as queries, and without queries whose ten are not known."""
        is_other = (self._positions >= 0) & (self._positions != self.rows[:, None]) & is_distinct[self._positions]
        scores, positions = best(
            np.where(is_other, self._scores, np.float32(-np.inf)),
            np.where(is_other, self._positions, -1),
            _KEPT_NEIGHBORS,
        )
        tenth = scores[:, K_MEASURED - 1]
        usable = is_distinct[self.rows] & np.isfinite(tenth) & (tenth - TIE > scores[:, -1])
        chosen = copy.copy(self)
        chosen.rows, chosen._scores, chosen._positions = self.rows[usable], scores[usable], positions[usable]
        return chosen

    def part(self, which: slice) -> OriginalNeighbors:
        """Some of the queries."""
        chosen = copy.copy(self)
        chosen.rows, chosen._scores, chosen._positions = self.rows[which], self._scores[which], self._positions[which]
        return chosen

    def recall(self, neighbors: Sequence[NDArray[np.int64]]) -> float:
        """Share of the ten nearest others before the map among the neighbors that a search returned."""
        n_hits = 0
        for scores, positions, found in zip(self._scores, self._positions, neighbors, strict=True):
            n_hits += int(np.isin(found, positions[scores >= scores[K_MEASURED - 1] - TIE]).sum())
        return n_hits / (K_MEASURED * len(self.rows))


def choose_settings(
    settings: SearchSettings, questions: HeldOut | None, segment: Segment, exact: Vectors, *, min_recall: float
) -> tuple[SearchSettings, slice]:
    """Find the cheapest settings with at least this recall, or with the highest; and the queries that did not choose.

    Every other query chooses. Its recall is one standard error above what is asked for: other queries reach it, too.
    """
    ladder = list(_ladder(settings, segment.codes.ntotal))
    if questions is None or len(ladder) == 1:
        return ladder[0], slice(None)
    choosing = questions.part(slice(0, None, 2))
    highest: tuple[float, SearchSettings] | None = None
    for candidate in ladder:
        recalls = choosing.recalls(segment, candidate, exact)
        measured = float(recalls.mean() - recalls.std() / np.sqrt(len(recalls)))
        if highest is None or measured > highest[0]:
            highest = measured, candidate
        if measured >= min_recall:
            break
    assert highest is not None
    return highest[1], slice(1, None, 2)


def _ladder(settings: SearchSettings, n_rows: int) -> Iterator[SearchSettings]:
    """Settings to try, from cheap to exact, with at least this oversampling."""
    factors = _FACTORS.get(settings.store, (0,))
    factors = tuple(factor for factor in factors if factor >= settings.oversampling) or factors[-1:]
    doubled = [1 << power for power in range(20)]
    for factor in factors:
        match settings.kind:
            case "flat":
                yield replace(settings, oversampling=factor)
            case "ivf":
                last = factor == factors[-1]
                probes = [n for n in doubled if n < settings.n_lists] + [settings.n_lists]
                for n_probe in probes if last or len(factors) == 1 else probes[:7]:
                    yield replace(settings, oversampling=factor, n_probe=n_probe)
            case "hnsw":
                for ef in doubled[4:11]:
                    yield replace(settings, oversampling=factor, ef_search=min(ef, n_rows))
