"""Search by kind of index, number type and width: bytes, build time, speed, recall, and the same with plain FAISS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.evaluation.tables import x100
from isosent.model import SentenceEncoder
from isosent.numeric.neighbors import fast_nearest
from isosent.pages.progress import Progress
from isosent.pages.report import ReportTable
from isosent.research.study import RetrievalCell, StudyKind, read_sets
from isosent.search.engine import KINDS, prepend_map, stores_of
from isosent.search.index import Index
from isosent.search.units import unit_vectors

LEAST_GRADE: Final = 4.5  # of pairs that mean the same, of 5
K: Final = 10
_BATCH: Final = 100
_REPEATS: Final = 5
_MOST_QUERIES: Final = 2000
_WIDTH: Final = 128


def study_retrieval(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    tasks: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> list[RetrievalCell]:
    """Index the distinct sentences of the STS sets in every way, and search for those that mean the same as others.

    The sentences are encoded once. Transforms are fitted on them, without labels.
    """
    listed = read_sets(folder, tasks=tasks)
    texts = list(dict.fromkeys(text for each in listed for text in each.texts))
    row_of = {text: row for row, text in enumerate(texts)}
    raw = model.encoder.encode(texts, progress=progress)
    pairs = np.array(
        sorted(
            {
                (row_of[a], row_of[b])
                for each in listed
                for part in each.subsets
                for a, b, grade in zip(part.first, part.second, part.scores, strict=True)
                if grade >= LEAST_GRADE and a != b
            }
        )
    ).reshape(-1, 2)
    pairs = np.random.default_rng(0).permutation(pairs)[:_MOST_QUERIES]
    cells = []
    for fitted, label in _variants(model, raw):
        units = unit_vectors(fitted.transform(raw))
        nearest = fast_nearest(units[pairs[:, 0]], [units], K + 1)[1]
        exact = _other_neighbors(nearest, pairs[:, 0])
        for kind in KINDS:
            for store in stores_of(kind):
                start = perf_counter()
                index = Index.create(vectors=raw, model=fitted, kind=kind, store=store)
                build_s = perf_counter() - start
                cells.append(_measure(index, raw, pairs, exact, name=name, vectors=label, build_s=build_s))
    return cells


def _variants(model: SentenceEncoder, raw: NDArray[np.float32]) -> Iterator[tuple[SentenceEncoder, str]]:
    """The model as it is, and with transforms that are fitted on the vectors."""
    yield model, "as they are"
    if model.dim > _WIDTH and model.record.postprocessing.last is None:
        for transform in ("principal_components", "whitening"):
            settings = {"n_components": _WIDTH}
            yield model.fitted_on_vectors(raw, transform, settings=settings), f"{transform} {_WIDTH}"


def _measure(
    index: Index,
    raw: NDArray[np.float32],
    pairs: NDArray[np.intp],
    exact: NDArray[np.intp],
    *,
    name: str,
    vectors: str,
    build_s: float,
) -> RetrievalCell:
    queries, wanted = pairs[:, 0], pairs[:, 1]
    found = _other_neighbors(index.search(raw[queries], k=K + 1).positions, queries)
    settings, stats = index.stats().settings, index.stats()
    batch = np.ascontiguousarray(raw[queries[:_BATCH]], np.float32)
    plain = plain_search(index)
    ours_s, plain_s = alternating_medians(lambda: index.search(batch, k=K).ids, lambda: plain(batch, K))
    return RetrievalCell(
        name,
        vectors,
        settings.kind,
        settings.store,
        index.dim,
        len(index),
        stats.bytes_searched / len(index),
        stats.bytes_on_disk / len(index),
        build_s,
        len(batch) / ours_s,
        len(batch) / plain_s,
        float(np.mean([len(np.intersect1d(*rows)) / K for rows in zip(found, exact, strict=True)])),
        float((found == wanted[:, None]).any(axis=1).mean()),
    )


def _other_neighbors(neighbors: NDArray[np.intp], rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The first ten of each row without the query itself."""
    return np.stack([ids[ids != row][:K] for ids, row in zip(neighbors, rows, strict=True)])


def plain_search(index: Index) -> Callable[[NDArray[np.float32], int], Any]:
    """The same search by FAISS alone: the same codes, settings and candidates, which are scored again by FAISS."""
    faiss = _extras.require("faiss")
    segment = index.first_segment
    codes, parameters = segment.searched(index.stats().settings)
    with_map = prepend_map(codes, index.model.linear_map)
    nested = None if parameters is None else faiss.SearchParametersPreTransform(index_params=parameters)

    def search(queries: NDArray[np.float32], k: int) -> Any:
        assert segment, parameters  # FAISS keeps no references to them
        return with_map.search(queries, k) if nested is None else with_map.search(queries, k, params=nested)

    return search


def alternating_medians(*calls: Callable[[], Any], repeats: int = _REPEATS) -> list[float]:
    """Median time of each call, in seconds, taken in turns."""
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, taken in zip(calls, times, strict=True):
            start = perf_counter()
            call()
            taken.append(perf_counter() - start)
    return [median(taken) for taken in times]


def _tables(cells: Sequence[RetrievalCell], _: str) -> Iterator[ReportTable]:
    """A row per index. The last columns are percentages."""
    columns = ("kind", "store", "bytes", "on disk", "build s", "queries/s", "of FAISS", "recall@10", "labeled")
    caption = (
        "bytes per vector; queries/s in batches of 100, and as a multiple of plain FAISS with the same codes;\n"
        "recall@10 against exact search, and of labeled paraphrases"
    )
    for vectors in dict.fromkeys(cell.vectors for cell in cells):
        of_vectors = [cell for cell in cells if cell.vectors == vectors]
        title = f"{cells[0].model}: {cells[0].n_rows} sentences, {of_vectors[0].dim} dimensions, {vectors}"
        table = ReportTable(*columns, title=title, caption=caption)
        for cell in of_vectors:
            speed = f"{cell.queries_per_s:,.0f}", f"{cell.queries_per_s / cell.plain_queries_per_s:.2f}"
            sizes = f"{cell.bytes_searched:.0f}", f"{cell.bytes_on_disk:.0f}", f"{cell.build_s:.1f}"
            table.add_row(cell.kind, cell.store, *sizes, *speed, x100(cell.recall), x100(cell.labelled_recall))
        yield table


def _run(model: SentenceEncoder, data: Path, _: Mapping[str, Any], **common: Any) -> list[RetrievalCell]:
    return study_retrieval(model, data, **common)


STUDY = StudyKind(_run, _tables)
