"""Scores, memory and search time against the dimensions that a transform keeps: figure 1 of BERT-whitening."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from isosent import _check
from isosent.errors import InputError
from isosent.evaluation.published import published_rows
from isosent.evaluation.result import N_RESAMPLES
from isosent.evaluation.run import TARGET, describe_fitting, fit_tasks
from isosent.evaluation.sts import STSSet, score_task, sts_task
from isosent.model import SentenceEncoder
from isosent.numeric.neighbors import best_columns
from isosent.numeric.statistics import bootstrap_interval, central_interval
from isosent.pages.progress import Progress
from isosent.research.study import ALL, DimsCell, DimsStudy, PublishedWidth, SearchTime, deviations_of, read_sets
from isosent.transforms.base import LinearTransform, make_linear, transform_name

LEADING = ("whitening", "principal_components", "truncate")  # transforms whose first k columns are those of width k
_METHODS = ("pca", "pca_cor")
N_DOCS, N_QUERIES, N_REPEATS = 100_000, 100, 5
TOP = 10
_MAX_BYTES = 1 << 29
_BLOCK, _CHUNK = 64, 4096
_N_DRAWS = 10  # of random dimensions


def study_dims(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    transform: LinearTransform | None = None,
    widths: Sequence[int] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    sickr: str = "full",
    n_docs: int = N_DOCS,
    n_resamples: int = N_RESAMPLES,
    tasks: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> DimsStudy:
    """Score a model on STS tasks at several widths, and time an exact search of `n_docs` vectors at each.

    Each sentence is encoded once and the transform is fitted once per task, at full width. It must be one of `LEADING`
    or a chain that ends with one; whitening where left out. `widths` defaults to `width_grid`; `n_docs=0` skips the
    search, and `n_resamples=0` the intervals and the scores of random dimensions.
    """
    transform = make_linear(LEADING[0]) if transform is None else transform
    _check_transform(transform, model)
    if widths is not None and not len(widths):
        raise InputError("study dims: no widths are named. Leave them out for a grid.")
    dim = model.dim
    if widths is None:
        widths = width_grid(dim)
    else:
        widths = sorted({_check.component_count("study dims", k, dim, name="widths") for k in widths})
    listed = read_sets(folder, tasks=tasks, sickr=sickr)
    untransformed, cells, at_random = [], [], list[DimsCell]()
    sts_tasks = list(map(sts_task, listed))
    fitted_tasks = fit_tasks(model, sts_tasks, transforms=[transform], fit_on=fit, progress=progress)
    for task, (bare, text_vectors, (fitted,)) in zip(listed, fitted_tasks, strict=True):
        texts = list(dict.fromkeys(task.texts))
        row_of = {text: row for row, text in enumerate(texts)}
        vectors = text_vectors(texts)
        raw, transformed = (each.transform(vectors) for each in (bare, fitted))
        untransformed.append(_score(task, row_of, raw, dim, n_resamples))
        cells += [_score(task, row_of, transformed, k, n_resamples) for k in widths]
        if n_resamples:
            at_random += [_score_at_random(task, row_of, raw, k) for k in widths if k < dim]
    missing = {task.name: list(task.missing_subsets) for task in listed if task.missing_subsets}
    protocol = describe_fitting(transform, fit) | {"sickr": sickr, "missing_subsets": missing}
    facts = model.record.facts()
    search = measure_search(widths, n_docs=n_docs) if n_docs else []
    comparable = [task.name for task in listed if not task.deviations]
    published = _published(facts, protocol, comparable, widths, dim)
    return DimsStudy(
        name, facts, protocol, tuple(untransformed), tuple(cells), tuple(search), published, tuple(at_random)
    )


def width_grid(dim: int) -> list[int]:
    """Powers of two from 8 on, more and more steps between them, and the full width."""
    octaves = [8 << octave for octave in range(dim.bit_length())]
    parts = {start: 1 if start < 32 else 2 if start < 128 else 4 for start in octaves}
    steps = (start + part * start // n_parts for start, n_parts in parts.items() for part in range(n_parts))
    return sorted({*(step for step in steps if step < dim), dim})


def _check_transform(transform: LinearTransform, model: SentenceEncoder) -> None:
    settings = transform.get_params(deep=False)
    steps = [step for _, step in settings["steps"]] if "steps" in settings else [transform]
    linear = [step for step in steps if transform_name(step) != "l2_normalize"]
    last = linear[-1] if linear else steps[-1]
    last_settings = last.get_params(deep=False)
    if transform_name(last) not in LEADING or last_settings.get("method", _METHODS[0]) not in _METHODS:
        raise InputError(
            f"study dims: the transform ends with {transform_name(last)}, whose first axes are not the best of their "
            f"number. Choose {', '.join(LEADING)} (whitening by method {' or '.join(_METHODS)})."
        )
    if last_settings["n_components"] is not None:
        dims = last_settings["n_components"]
        raise InputError(
            f"study dims: the transform keeps only some dimensions (dims={dims}). Leave dims out, and give widths."
        )
    if model.normalize:
        raise InputError(
            "study dims: the model ends with scaling to length 1, and no transform can follow that. Study its encoder."
        )


def _score(
    task: STSSet, row_of: Mapping[str, int], vectors: NDArray[np.float32], k: int, n_resamples: int = 0
) -> DimsCell:
    def leading(texts: Sequence[str]) -> NDArray[np.float32]:
        return vectors[[row_of[text] for text in texts], :k]

    scores = score_task(task, leading)
    n_components = min(k, vectors.shape[1])
    gold, interval = np.concatenate([subset.scores for subset in task.subsets]), None
    if n_resamples:
        interval = bootstrap_interval("spearman", scores.cosines, gold, n_resamples=n_resamples)
    counts = (n_components, scores.n_pairs, scores.n_zero_rows)
    return DimsCell(task.name, k, *counts, dict(scores.spearman), interval, deviations_of(task))


def _score_at_random(task: STSSet, row_of: Mapping[str, int], vectors: NDArray[np.float32], k: int) -> DimsCell:
    """Mean over draws of k dimensions of the vectors; its interval holds 95% of draws, not of pairs."""
    rng = np.random.default_rng(k)
    draws = [
        _score(task, row_of, vectors[:, rng.choice(vectors.shape[1], k, replace=False)], k) for _ in range(_N_DRAWS)
    ]
    means = {how: float(np.mean([cell.spearman[how] for cell in draws])) for how in draws[0].spearman}
    interval = central_interval(np.array([cell.spearman[ALL] for cell in draws]))
    first = draws[0]
    return DimsCell(task.name, k, k, first.n_pairs, first.n_zero_rows, means, interval, first.deviations)


def _published(
    model: Mapping[str, Any], protocol: Mapping[str, Any], tasks: Sequence[str], widths: Sequence[int], dim: int
) -> tuple[PublishedWidth, ...]:
    """Published scores of the model, as it is and at each width."""
    published = []
    for k, is_transformed in [(dim, False), *((k, True) for k in widths)]:
        wanted: dict[str, Any] = dict(protocol)
        if is_transformed:
            wanted["parameters"] = protocol["parameters"] | {"n_components": None if k == dim else k}
        else:
            wanted |= {"transform": None, "parameters": {}}
        published += [
            PublishedWidth(row.label, k, is_transformed, row.aggregation, dict(scores))
            for row in published_rows(model, wanted)
            if (scores := row.scores_of(tasks, protocol["sickr"]))
        ]
    return tuple(published)


def measure_search(
    widths: Sequence[int], *, n_docs: int = N_DOCS, n_queries: int = N_QUERIES, n_repeats: int = N_REPEATS
) -> list[SearchTime]:
    """Time the exact search of the ten best on one thread, at several widths."""
    # Random vectors, for their values do not matter to the time; the same number of them at every width.
    widest = max(widths)
    n_docs = max(TOP, min(n_docs, _MAX_BYTES // (widest * np.dtype(np.float32).itemsize)))
    rng = np.random.default_rng(0)
    docs, queries = (rng.standard_normal((rows, widest), dtype=np.float32) for rows in (n_docs, n_queries))
    times = []
    for k in widths:
        narrow_docs, narrow_queries = np.ascontiguousarray(docs[:, :k]), np.ascontiguousarray(queries[:, :k])
        seconds = []
        with threadpool_limits(1):
            for _ in range(1 + n_repeats):
                start = perf_counter()
                exact_top(narrow_queries, narrow_docs, TOP)
                seconds.append(perf_counter() - start)
        times.append(SearchTime(k, n_docs, n_queries, n_repeats, median(seconds[1:]) / n_queries))
    return times


def exact_top(
    queries: NDArray[np.float32], docs: NDArray[np.float32], n_top: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Indices and scores of the documents of largest inner product, each of shape (n_queries, n_top)."""
    # Products are taken in chunks that stay in the cache, and of these only the largest one of every block of
    # documents is kept. The best documents are in the blocks whose largest products are best; those are taken again.
    n_queries, n_docs = len(queries), len(docs)
    starts = range(0, n_docs, _CHUNK)
    largest = np.full((n_queries, len(starts) * (_CHUNK // _BLOCK)), -np.inf, dtype=np.float32)
    products = np.empty((n_queries, _CHUNK), dtype=np.float32)
    for start in starts:
        chunk = docs[start : start + _CHUNK]
        if len(chunk) < _CHUNK:
            products.fill(-np.inf)
        products[:, : len(chunk)] = queries @ chunk.T
        first = start // _BLOCK
        products.reshape(n_queries, -1, _BLOCK).max(axis=2, out=largest[:, first : first + _CHUNK // _BLOCK])
    blocks = np.sort(best_columns(largest, n_top), axis=1)
    indices = np.empty((n_queries, n_top), dtype=np.intp)
    scores = np.empty((n_queries, n_top), dtype=np.float32)
    for row, query in enumerate(queries):
        candidates = (blocks[row, :, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        candidates = candidates[candidates < n_docs]
        products_of_row = docs[candidates] @ query
        best = np.argsort(-products_of_row, kind="stable")[:n_top]
        indices[row], scores[row] = candidates[best], products_of_row[best]
    return indices, scores
