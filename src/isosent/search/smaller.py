"""How small vectors can be stored, and how many of their neighbors each way keeps.

`sizes` holds some vectors out as queries and finds their ten nearest others exactly. It then stores the others in many
ways, dimensions x centering x dtype, with the codes of an index (`engine`) and with other codecs of FAISS, and counts
how many of the *original* neighbors each way finds. A way whose map alone, in float32, keeps no more than a smaller one
that was measured cannot be on the front, so its codes are not tried. `Sizes` holds what was measured: the front, the
best within so many bytes, the smallest within a loss, the sentence that says what was gained and lost, and the model
that stores vectors so. Every command measures on the same rows of its vectors: `held_out_rows`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from isosent import _check, _extras
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError, RankWarning, option
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.numeric.neighbors import best_columns
from isosent.numeric.similarity import held_out_rows, nonzero_rows, spearman, unit_rows
from isosent.numeric.statistics import bootstrap_differences, bootstrap_interval
from isosent.persistence import StoredSize
from isosent.search.engine import (
    K_MEASURED,
    SearchSettings,
    Segment,
    bytes_per_vector,
    empty_codes,
    finer_settings,
    large_share,
    one_thread,
)
from isosent.storage import INDEXED, Storage
from isosent.transforms.agreement import sample_pairs
from isosent.transforms.base import NO_TRANSFORM, LinearTransform, make_linear
from isosent.transforms.quantization import FEWEST_FOR_PRODUCT, MOST_ROWS, Quantization

FEWEST_ROWS: Final = 110
_SHARES: Final = (0.75, 0.5, 0.25)  # of the dimensions
_TIE: Final = 1e-6  # float32 sums differ in the last digits
_STORED: Final[tuple[tuple[Storage, int], ...]] = (  # dtype, and candidates per result that are scored again
    (Storage.float16, 0),
    (Storage.int8, 2),
    (Storage.binary, 10),
    (Storage.binary, 40),
)
_ALONE: Final[tuple[tuple[Storage, int], ...]] = ((Storage.int8, 0), (Storage.binary, 0), (Storage.product, 0))
_PRODUCTS: Final = (8, 16, 24, 32, 48, 64, 96)  # bytes of product codes
_PRODUCT_OVERSAMPLING: Final = (0, 40, 80, 120)
_FEWEST_DIMS_A_BYTE: Final = 4  # with fewer, other codes take as little and keep more
_ENOUGH: Final = 0.9995  # recall, above which longer product codes are not tried
_LEAST_RECALL, _MOST_RECALL, _RECALL_MARGIN = 0.5, 0.999, 0.001  # of what an index is to reach
_CODEC_ROWS: Final = 10_000  # that a product quantization is trained on
_CODEC_STEPS: Final = 8
_PARTS: Final = {2: "half", 4: "a quarter", 8: "an eighth"}
_TRUNCATE, _COMPONENTS = "truncate", "principal_components"


@dataclass(frozen=True, slots=True)
class Size:
    """One way to store vectors, and what it keeps.

    `Sizes` holds them.

    Parameters
    ----------
    n_components : int
        Dimensions.
    transform : str
        "none", "principal_components" or "truncate" (the first dimensions).
    center : bool
        Whether the mean is subtracted.
    dtype : str
        A dtype of an index ("float32", "float16", "int8", "binary", "product"), or the name of another codec of FAISS.
    oversampling : int
        Candidates per result that are scored again with a finer copy; 0 if there is none.
    n_bytes : float
        Bytes in memory per vector, in a flat index.
    n_bytes_on_disk : float
        Bytes per vector of the finer copy, which stays on disk; 0 if there is none.
    recall : float
        Share of the ten nearest original neighbors that are found, in [0, 1].
    low, high : float
        Ends of the 95% bootstrap interval of the recall, over the queries. If all n neighbors are found, the lower end
        is 1 - 3 / n (rule of three).
    queries_per_s : float
        Queries per second of this machine, all vectors compared, in one batch.
    agreement : float or None
        Rank correlation of the cosines with word overlap, of the vectors that results are scored by; None without
        texts or finer vectors.
    original_recall : float or None
        Share of the ten nearest neighbors of the vectors before a transform; None if none was given.
    """

    n_components: int
    transform: str
    center: bool
    dtype: str
    oversampling: int
    n_bytes: float
    n_bytes_on_disk: float
    recall: float
    low: float
    high: float
    queries_per_s: float = field(compare=False)
    agreement: float | None
    original_recall: float | None
    by_query: NDArray[np.float64] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.dtype_label} at {self.n_components} dimension{'s' * (self.n_components != 1)}"

    @property
    def dtype_label(self) -> str:
        """The dtype, and whether candidates are scored again."""
        return f"{self.dtype}, rescored" if self.oversampling else self.dtype

    @property
    def is_stored(self) -> bool:
        """Whether an index of isosent stores vectors in this way by default."""
        return self.dtype in INDEXED and (self.dtype, self.oversampling) not in _ALONE

    @property
    def code_bytes(self) -> int:
        """Bytes of a product code; 0 for other codes."""
        return round(self.n_bytes) if self.dtype == Storage.product else 0

    @property
    def map_label(self) -> str:
        """How the dimensions are made: principal components, centered or uncentered, or the first; empty for all."""
        if self.transform == _COMPONENTS:
            return "centered" if self.center else "uncentered"
        return "first" if self.transform == _TRUNCATE else ""

    def fit(self) -> LinearTransform | None:
        """The unfitted transform of the vectors; None if they stay unchanged."""
        if self.transform == NO_TRANSFORM:
            return None
        settings: dict[str, Any] = {"center": self.center} if self.transform == _COMPONENTS else {}
        return make_linear(self.transform, settings={"n_components": self.n_components, **settings})


class Sizes(Struct, frozen=True):
    """What each way to store vectors keeps of their neighbors.

    `sizes` returns it.

    Attributes
    ----------
    dim : int
        Dimensions of the original vectors.
    n_texts : int
        Vectors that were searched. Recall depends on their number: of more, often fewer are kept.
    n_queries : int
        Vectors that were held out as queries.
    rows : tuple of Size
        All that was measured, by bytes in memory.
    """

    dim: int
    n_texts: int
    n_queries: int
    rows: tuple[Size, ...]

    @property
    def front(self) -> tuple[Size, ...]:
        """The sizes of which none smaller keeps as many neighbors, largest first."""
        front: list[Size] = []
        for each in sorted(self.rows, key=lambda each: (each.n_bytes, -each.recall, -each.queries_per_s)):
            if not front or each.recall > front[-1].recall:
                front.append(each)
        return tuple(reversed(front))

    def within(self, n_bytes: float) -> Size:
        """The size of an index that keeps the most neighbors within so many bytes in memory per vector."""
        stored = [each for each in self.rows if each.is_stored]
        fitting = [each for each in stored if each.n_bytes <= n_bytes]
        if not fitting:
            least = min(each.n_bytes for each in stored)
            raise InputError(
                f"{option('n_bytes', f'{n_bytes:g}')}: the smallest size that was measured takes {least:g} bytes."
            )
        return max(fitting, key=lambda each: (each.recall, -each.n_bytes, -each.oversampling))

    def smallest(self, loss: float) -> Size:
        """The smallest size of an index that loses at most this share of the neighbors, with the fewest candidates."""
        stored = [each for each in self.rows if each.is_stored and each.recall >= 1 - loss - 1e-12]
        return min(stored, key=lambda each: (each.n_bytes, each.oversampling, -each.recall))

    def next_smaller(self, size: Size) -> Size | None:
        """The next smaller size of an index on the front; None if there is none."""
        stored = Sizes(self.dim, self.n_texts, self.n_queries, tuple(each for each in self.rows if each.is_stored))
        return next((each for each in stored.front if each.n_bytes < size.n_bytes), None)

    def recall_of_map(self, size: Size) -> float:
        """Recall of the same dimensions in float32."""
        same = (size.n_components, size.transform, size.center)
        return max(e.recall for e in self.rows if (e.n_components, e.transform, e.center) == same)

    def sentence(self, size: Size) -> str:
        """What a size saves and loses, and what the next smaller one would cost."""
        ratio = 4 * self.dim / size.n_bytes
        part = _PARTS.get(int(ratio) if ratio == int(ratio) else 0) or (
            f"1/{ratio:.0f}" if ratio > 2.5 else f"{1 / ratio:.0%}"
        )
        beside = f" (and {size.n_bytes_on_disk:,.0f} bytes on disk)" if size.n_bytes_on_disk else ""
        saved = "all of the memory" if ratio == 1 else f"{part} of the memory{beside}"
        interval = f"(95% interval {1 - size.high:.2%} to {1 - size.low:.2%})"
        lost = f"{1 - size.recall:.2%} of the neighbors lost {interval}" if size.low < 1 else "no neighbors lost"
        if size.original_recall is not None:
            here = lost.replace("the neighbors", "the neighbors of the transformed vectors")
            lost = f"{here}, and {1 - size.original_recall:.2%} of those of the original vectors"
        share = large_share(size.oversampling, self.n_texts)
        reranked = f", of which {share:.0%} are reranked for ten results" if share else ""
        said = f"{size}: {saved}, {lost}, among {self.n_texts:,} vectors{reranked}."
        smaller = self.next_smaller(size)
        if smaller is None:
            return f"{said} Nothing smaller was measured."
        cost = -bootstrap_differences("mean", size.by_query, smaller.by_query)
        low, high = np.quantile(cost, [0.025, 0.975])
        return (
            f"{said} The next smaller step, {smaller}, takes {smaller.n_bytes:,.0f} instead of {size.n_bytes:,.0f} "
            f"bytes and loses {size.recall - smaller.recall:.2%} more ({low:.2%} to {high:.2%})."
        )

    def model(
        self,
        size: Size,
        vectors: ArrayLike,
        *,
        model: SentenceEncoder | None = None,
        moments: Moments | None = None,
        source: str = "vectors in memory",
    ) -> SentenceEncoder:
        """Fit the model that stores vectors in this size; ``isosent fit --bytes`` saves the same.

        Parameters
        ----------
        size : Size
            One of these, such as ``within(200)``, that an index stores.
        vectors : array_like of shape (n_rows, dim), any real dtype
            The vectors that were measured, or others of their kind. The map and the ranges of codes are fitted on them.
        model : SentenceEncoder, optional
            What made the vectors, loaded or wrapped, so that texts can be encoded. By default a model of vectors alone.
        moments : Moments, optional
            Of all vectors without zero rows, if `vectors` are a sample.
        source : str, optional
            Where they come from, for the record.

        Returns
        -------
        SentenceEncoder
            ``Index.create(vectors=vectors, model=model)`` stores vectors in this size; ``save`` writes a folder.

        Raises
        ------
        InputError
            If an index does not store such a size, or the vectors are not of these dimensions.

        Examples
        --------
        >>> import numpy as np
        >>> vectors = np.random.default_rng(0).normal(size=(1000, 32)).astype(np.float32)
        >>> found = sizes(vectors)
        >>> found.model(found.within(64), vectors).dim
        32
        """
        if not size.is_stored:
            raise InputError(f"sizes: an index does not store {size}. Choose one by within(...) or smallest(...).")
        array = _check.matrix("sizes", "vectors", vectors)
        _check.finite_rows("sizes", "vectors", array)
        fitted = SentenceEncoder(PrecomputedVectors.of_space(array.shape[1], None)) if model is None else model
        _check.same_dim("sizes", "vectors", array.shape[1], fitted.encoder.dim)
        array = array[nonzero_rows(array)]
        transform = size.fit()
        if transform is not None:
            all_moments = Moments.from_rows(array) if moments is None else moments
            fitted = fitted.fitted_on_moments(all_moments, transform, source=source)
        promised = size.recall / (self.recall_of_map(size) or 1) - _RECALL_MARGIN
        storage = StoredSize(
            dtype=size.dtype,
            oversampling=size.oversampling,
            n_bytes=size.n_bytes,
            min_recall=round(max(_LEAST_RECALL, min(_MOST_RECALL, promised)), 4),
            recall=size.recall,
            n_texts=self.n_texts,
            neighbors_of="the original vectors" if size.original_recall is None else "the transformed vectors",
        )
        units = unit_rows(fitted.transform(array))
        quantization = Quantization.fit(units).with_product(units, size.code_bytes)
        return fitted.with_quantization(quantization, storage)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values.

        Returns
        -------
        dict
            The fields; of each size also whether it is on the front.
        """
        front = self.front
        rows = [
            {name: value for name, value in asdict(each).items() if name != "by_query"} | {"is_on_front": each in front}
            for each in self.rows
        ]
        return {"dim": self.dim, "n_texts": self.n_texts, "n_queries": self.n_queries, "rows": rows}


def sizes(
    vectors: ArrayLike,
    *,
    texts: Sequence[str] | None = None,
    originals: ArrayLike | None = None,
    n_bytes: float | None = None,
    widths: Sequence[int] | None = None,
    codecs: bool = False,
    seed: int = 0,
) -> Sizes:
    """Measure how many neighbors vectors keep in each way to store them.

    Parameters
    ----------
    vectors : array_like of shape (n_rows, dim), any real dtype
        Vectors as compared, by cosine. Of more than 20,000, as many are drawn at random; copies and zero rows
        are left out.
    texts : sequence of str, optional
        The text of each vector, to measure the agreement of cosines with word overlap, too.
    originals : array_like of shape (n_rows, original_dim), optional
        The same vectors before a transform, if there was one: how many of their neighbors are found is measured, too.
    n_bytes : float, optional
        Bytes per vector; the dimensions that fill them are tried next to the usual shares.
    widths : sequence of int, optional
        Dimensions to try, instead of shares of all.
    codecs : bool, default False
        Whether codecs of FAISS without a finer copy are tried, too, for comparison: 4 bits a dimension, RaBitQ, and
        product quantization with and without a learned rotation (OPQ). Training them takes seconds.
    seed : int, default 0
        Seed of the sample, the queries and the quantization.

    Returns
    -------
    Sizes
        All that was measured.

    Raises
    ------
    MissingExtraError
        If faiss is not installed.
    InputError
        If a vector holds NaN or infinity, texts and vectors are not as many, or fewer than 110 vectors differ.

    Notes
    -----
    Up to 500 vectors are queries; maps and codes are fitted on the others, which are searched. Recall is the share of
    the ten nearest by the cosine of the original vectors, exactly, that are among the ten found.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).normal(size=(1000, 32)).astype(np.float32)
    >>> found = sizes(vectors)
    >>> found.smallest(loss=0.01).n_bytes <= found.within(128).n_bytes
    True
    """
    _extras.require("faiss")
    if isinstance(vectors, (str, os.PathLike)):
        raise InputError(f"sizes: {os.fspath(vectors)} is a path, not an array. Read it: numpy.load.")
    array = _check.matrix("sizes", "vectors", vectors)
    _check.finite_rows("sizes", "vectors", array)
    before = None if originals is None else _check.matrix("sizes", "originals", originals)
    for name, beside in (("texts", texts), ("originals", before)):
        if beside is not None:
            _check.same_count("sizes", name, len(beside), len(array))
    queries, others = held_out_rows(array, seed)
    picked = np.concatenate([queries, others])
    rows = array[picked].astype(np.result_type(array, np.float32), copy=False)  # float16 would round lengths
    if len(rows) < FEWEST_ROWS:
        raise InputError(
            f"sizes: too few different vectors, {len(rows)}. Give {FEWEST_ROWS} or more: their neighbors are measured."
        )
    experiment = _Experiment(
        (rows / np.abs(rows).max()).astype(np.float32),  # squares of huge numbers would overflow
        None if texts is None else [texts[row] for row in picked.tolist()],
        None if before is None else before[picked],
        n_queries=len(queries),
        seed=seed,
    )
    dim = rows.shape[1]
    maps = _maps(dim, widths, n_bytes)
    measured = [size for each in maps if experiment.map(*each) for size in experiment.measure(Storage.float32, 0)]
    for width in sorted({each.n_components for each in measured}, reverse=True):
        # codes of the best map of this width; a map that keeps no more than a smaller size cannot be on the front
        best = max((each for each in measured if each.n_components == width), key=lambda each: each.recall)
        is_original = best.transform == NO_TRANSFORM
        experiment.map(width, best.transform, best.center)
        for store, oversampling in (*_STORED, *(_ALONE[:-1] if is_original else ())):
            n = bytes_per_vector(width, "flat", store)
            if is_original or not any(e.n_bytes <= n and e.recall >= best.recall for e in measured if e.is_stored):
                measured += experiment.measure(store, oversampling)
        if is_original and experiment.n_docs >= FEWEST_FOR_PRODUCT:
            measured += experiment.products()
    if codecs:
        experiment.map(dim, NO_TRANSFORM, False)
        measured += experiment.codecs()
    return Sizes(dim, experiment.n_docs, experiment.n_queries, tuple(sorted(measured, key=lambda each: each.n_bytes)))


def _maps(dim: int, widths: Sequence[int] | None, n_bytes: float | None) -> Iterator[tuple[int, str, bool]]:
    """Dimensions, transform, and whether the mean is subtracted, of every map to try."""
    if widths is None:
        n_bytes = None if n_bytes is None else min(n_bytes, 4 * dim)
        filling = () if n_bytes is None else (n_bytes // 4, n_bytes // 2, n_bytes // 16 * 16, 8 * (n_bytes - 8))
        widths = sorted({*(int(share * dim) for share in _SHARES), *map(int, filling)}, reverse=True)
    yield dim, NO_TRANSFORM, False
    if not len(widths):
        return
    yield dim, _COMPONENTS, True
    for width in widths:
        if 1 <= width < dim:
            yield width, _COMPONENTS, False
            yield width, _COMPONENTS, True
            yield width, _TRUNCATE, False


class _Experiment:
    """Held-out queries, the vectors that they search, and these under one map at a time."""

    def __init__(
        self,
        rows: NDArray[np.float32],
        texts: list[str] | None,
        originals: NDArray[Any] | None,
        *,
        n_queries: int,
        seed: int,
    ) -> None:
        self._rows, self._seed = rows, seed  # queries first
        self.n_queries, self.n_docs = n_queries, len(rows) - n_queries
        self._cosines, self._least = self._exact(rows)
        self._originals = None if originals is None else self._exact(originals)
        self._pairs = () if texts is None else sample_pairs(texts, seed=seed)
        self._moments = Moments.from_rows(rows[n_queries:])
        self._axes: dict[bool, Any] = {}
        self._map = rows.shape[1], NO_TRANSFORM, False
        self._quantization: Quantization | None = None
        self._agreement: float | None = None

    def _exact(self, rows: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Cosines of queries and vectors, and the tenth of each query, (n_queries, 1)."""
        units = np.ascontiguousarray(unit_rows(rows), np.float32)
        cosines = units[: self.n_queries] @ units[self.n_queries :].T
        return cosines, np.take_along_axis(cosines, best_columns(cosines, K_MEASURED)[:, -1:], axis=1)

    def map(self, width: int, name: str, center: bool) -> bool:
        """Take the vectors under a map; False if they do not vary along so many axes."""
        rows: NDArray[np.floating] = self._rows
        if name == _TRUNCATE:
            rows = rows[:, :width]
        elif name == _COMPONENTS and width == rows.shape[1]:  # a rotation keeps all cosines
            rows = rows - self._moments.mean * center
        elif name == _COMPONENTS:
            if center not in self._axes:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RankWarning)
                    fitted = make_linear(name, settings={"center": center}).fit_moments(self._moments)
                self._axes[center] = fitted.linear_map_.apply(rows)
            if self._axes[center].shape[1] < width:
                return False
            rows = self._axes[center][:, :width]
        units = np.ascontiguousarray(unit_rows(rows), np.float32)
        self._mapped_queries, self._mapped_docs = units[: self.n_queries], units[self.n_queries :]
        self._map, self._quantization = (width, name, center), None
        halves = [(half.overlap, np.einsum("ij,ij->i", units[half.first], units[half.second])) for half in self._pairs]
        self._agreement = float(np.mean([spearman(*half) for half in halves])) if halves else None
        return True

    def _fitted_quantization(self) -> Quantization:
        if self._quantization is None:
            self._quantization = Quantization.fit(self._mapped_docs, seed=self._seed)
        return self._quantization

    def measure(self, store: Storage, *oversamplings: int, code_bytes: int = 0) -> Iterator[Size]:
        """Store the vectors as an index does, and search them."""
        dim, docs = self._map[0], self._mapped_docs
        quantization, settings = self._fitted_quantization(), SearchSettings(store=store, code_bytes=code_bytes)
        if code_bytes:  # on half of them at most: a codebook knows what it was fitted on
            sample = docs[: min(len(docs) // 2, MOST_ROWS)]
            quantization = quantization.with_product(sample, code_bytes, seed=self._seed)
        finer_store = finer_settings(settings) if any(oversamplings) else None
        codes = empty_codes(dim, settings, quantization)
        codes.add(docs)
        finer = None if finer_store is None else empty_codes(dim, finer_store, quantization)
        if finer is not None:
            finer.add(docs)
        in_memory = bytes_per_vector(dim, "flat", store, code_bytes)
        for oversampling in oversamplings:
            segment = Segment(codes, finer if oversampling else None, np.zeros(len(docs), bool))
            start = perf_counter()
            _, found = segment.search(self._mapped_queries, K_MEASURED, replace(settings, oversampling=oversampling))
            seconds = perf_counter() - start
            on_disk = bytes_per_vector(dim, "flat", finer_store.store) if oversampling and finer_store else 0.0
            agreement = self._agreement if oversampling or store.is_float else None
            yield self._size(
                store, in_memory, found, seconds, on_disk=on_disk, agreement=agreement, oversampling=oversampling
            )

    def products(self) -> Iterator[Size]:
        """Product codes, from few bytes to as many as keep nearly all neighbors."""
        for code_bytes in _PRODUCTS:
            if code_bytes * _FEWEST_DIMS_A_BYTE > self._map[0]:
                return
            found = list(self.measure(Storage.product, *_PRODUCT_OVERSAMPLING, code_bytes=code_bytes))
            yield from found
            if any(each.recall >= _ENOUGH and each.oversampling == _PRODUCT_OVERSAMPLING[1] for each in found):
                return

    def codecs(self) -> Iterator[Size]:
        """Other codecs of FAISS, alone: what a vector takes is all there is."""
        faiss = _extras.require("faiss")
        dim, docs = self._map[0], self._mapped_docs
        keys = {"4 bits": "SQ4", "RaBitQ, 4 bits": f"RR{dim},RaBitQ4"}
        for part in (16, 8, 4):
            if dim % part == 0 and len(docs) >= _CODEC_ROWS:
                keys |= {f"product quantization, 1/{part}": f"PQ{dim // part}np"}
                keys |= {f"OPQ, 1/{part}": f"OPQ{dim // part},PQ{dim // part}np"}
        for name, key in keys.items():
            try:
                index = faiss.index_factory(dim, key, faiss.METRIC_INNER_PRODUCT)
            except RuntimeError:  # several bits of RaBitQ are not in FAISS 1.12
                continue
            inner = index
            if isinstance(index, faiss.IndexPreTransform):
                inner = faiss.downcast_index(index.index)
                rotation = faiss.downcast_VectorTransform(index.chain.at(0))
                if isinstance(rotation, faiss.OPQMatrix):
                    rotation.niter = rotation.niter_pq_0 = _CODEC_STEPS
                    rotation.max_train_points = _CODEC_ROWS
            if isinstance(inner, faiss.IndexPQ):
                inner.pq.cp.niter = _CODEC_STEPS
            with one_thread():  # threads of FAISS wait by spinning, in thousands of short steps
                index.train(docs[:_CODEC_ROWS])
            index.add(docs)
            start = perf_counter()
            _, found = index.search(self._mapped_queries, K_MEASURED)
            yield self._size(name, float(inner.code_size), found, perf_counter() - start)

    def _size(
        self,
        dtype: str,
        n_bytes: float,
        positions: NDArray[np.int64],
        seconds: float,
        *,
        on_disk: float = 0.0,
        agreement: float | None = None,
        oversampling: int = 0,
    ) -> Size:
        by_query, original_recall = self._recalls(positions, self._cosines, self._least), None
        if self._originals is not None:
            original_recall = float(self._recalls(positions, *self._originals).mean())
        recall, (low, high) = float(by_query.mean()), bootstrap_interval("mean", by_query)
        is_reference = (dtype, self._map[1]) == (Storage.float32, NO_TRANSFORM)
        if recall == 1 and not is_reference:  # resamples of no loss have none; the rule of three bounds it
            low = 1 - 3 / (K_MEASURED * len(by_query))
        width, name, center = self._map
        speed = len(positions) / max(seconds, 1e-9)
        return Size(
            n_components=width,
            transform=name,
            center=center,
            dtype=dtype,
            oversampling=oversampling,
            n_bytes=n_bytes,
            n_bytes_on_disk=on_disk,
            recall=recall,
            low=low,
            high=high,
            queries_per_s=speed,
            agreement=agreement,
            original_recall=original_recall,
            by_query=by_query,
        )

    @staticmethod
    def _recalls(
        positions: NDArray[np.int64], cosines: NDArray[np.float32], least: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Share of the ten nearest of each query that were found."""
        nearest = np.take_along_axis(cosines, np.maximum(positions, 0), axis=1)
        return ((nearest >= least - _TIE) & (positions >= 0)).mean(axis=1)
