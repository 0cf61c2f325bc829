"""Scores, memory and search time against the dimensions that a transform keeps: figure 1 of BERT-whitening.

`study_dims` fits the transform once per task and scores its leading dimensions at each width; `measure_search` times an
exact search at each, and `_published` looks for published scores. The record is `DimsStudy`; `_tables` lays it out for
the terminal, and `dims_figure` draws it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from isosent import _check
from isosent.cli.options import whole_numbers
from isosent.errors import InputError
from isosent.evaluation.published import published_rows
from isosent.evaluation.run import TARGET, describe_fitting, fit_tasks
from isosent.evaluation.sts import STSSet, score_task, sts_task
from isosent.evaluation.tables import x100
from isosent.model import SentenceEncoder
from isosent.numeric.neighbors import best_columns
from isosent.numeric.statistics import N_RESAMPLES, bootstrap_interval, central_interval
from isosent.pages.figures import Axis, Figure, Key, Panel, color_of, dash_of
from isosent.pages.progress import Progress
from isosent.pages.report import ReportTable
from isosent.research.study import (
    ALL,
    DimsCell,
    DimsStudy,
    PublishedWidth,
    SearchTime,
    StudyKind,
    bytes_of_a_million,
    deviations_of,
    read_sets,
    study_notes,
    task_titles,
)
from isosent.transforms.base import Auto, LinearTransform, make_linear, needs_vectors, resolve_transform, transform_name

LEADING = ("whitening", "principal_components", "truncate")  # transforms whose first k columns are those of width k
_METHODS = ("pca", "pca_cor")
N_DOCS, N_QUERIES, N_REPEATS = 100_000, 100, 5
TOP = 10
_MAX_BYTES = 1 << 29
_BLOCK, _CHUNK = 64, 4096
_N_DRAWS = 10  # of random dimensions
_AVERAGE = "average"
_SEARCH_DASH = "2 4"
_TICKS_APART = 1.9


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


def _run(model: SentenceEncoder, data: Path, own: Mapping[str, Any], **common: Any) -> list[DimsStudy]:
    transform = resolve_transform(own["transform"] or LEADING[0], dim=model.dim)
    if transform is None or isinstance(transform, Auto) or needs_vectors(transform):
        raise InputError(
            f"--transform {own['transform']}: the study of dimensions needs {' or '.join(LEADING)} at the end."
        )
    widths = whole_numbers("dims?widths=", own["widths"]) if "widths" in own else None
    n_docs, *others = whole_numbers("dims?docs=", own.get("docs", f"{N_DOCS}"))
    if others or n_docs < 0:
        raise InputError(f"dims?docs={own['docs']}: choose a whole number, 0 or more.")
    fit = own["fit_on"] or TARGET
    settings = {"transform": transform, "widths": widths, "fit": fit, "n_docs": n_docs, "sickr": own["sickr"]}
    return [study_dims(model, data, **settings, **common)]


def _tables(studies: Sequence[DimsStudy], how: str) -> Iterator[ReportTable]:
    """A row per width, with memory and search time; published rows below. All x100."""
    for result in studies:
        columns: list[str | None] = [*result.tasks, *([None] if len(result.tasks) > 1 else [])]
        times = {time.k: f"{1000 * time.elapsed_s:.2f}" for time in result.search}
        intervals = {k: result.interval(k) for k in result.widths} if how == ALL else {}
        has_intervals = not all(math.isnan(low) for low, _ in intervals.values())
        titles = task_titles(result.cells)
        names = [
            *(titles[column] if column else "average" for column in columns),
            *(["95% interval"] if has_intervals else []),
        ]
        names += ["MB per million", *(["ms per query"] if times else [])]
        table = ReportTable("dimensions", *names, title=result.name, caption=_caption(result, how))
        best = {column: result.best(column, how) for column in columns}
        curves = {column: result.curve(column, how) for column in columns}

        def cost(
            k: int,
            interval: tuple[float, float] | None = None,
            times: Mapping[int, str] = times,
            has_intervals: bool = has_intervals,
        ) -> list[str]:
            shown = "" if interval is None else ", ".join(f"{100 * end:.1f}" for end in interval)
            columns = [shown] if has_intervals else []
            return [*columns, f"{bytes_of_a_million(k) / 1e6:,.0f}", *([times.get(k, "")] if times else [])]

        whole = [x100(result.untransformed_score(column, how)) + " " for column in columns]
        table.add_row(f"{result.dim}, original", *whole, *cost(result.dim))
        table.add_section()
        for k in result.widths:
            marked = (x100(curves[column][k]) + ("*" if best[column] == k else " ") for column in columns)
            table.add_row(str(k), *marked, *cost(k, intervals.get(k)))
        drawn = {column: result.curve(column, how, of_random=True) for column in columns}
        if result.random:
            table.add_section()
        for k in sorted({cell.k for cell in result.random}):
            table.add_row(f"random {k}", *(x100(drawn[column].get(k, math.nan)) + " " for column in columns), *cost(k))
        for row in result.published:
            table.add_section()
            cells = result.cells if row.transformed else result.untransformed
            scores = {cell.task: cell.spearman[row.aggregation] for cell in cells if cell.k == row.k}
            label = row.aggregation if row.transformed else f"original, {row.aggregation}"
            table.add_row(f"{row.k}, {label}", *(x100(scores[task]) + " " if task else "" for task in columns))
            published = (f"{row.scores[task]:.2f} " if task in row.scores else "" for task in columns if task)
            table.add_row(f"  published: {row.label}", *published)
        yield table


def _caption(result: DimsStudy, how: str) -> str:
    protocol = result.protocol
    settings = {name: value for name, value in protocol["parameters"].items() if name != "n_components"}
    lines = [
        f"Spearman x100, {how}; * best of its column",
        f"{protocol['transform']}({', '.join(f'{name}={value}' for name, value in settings.items())}) fitted on "
        f"{protocol['fit']}",
    ]
    lines += [
        f"SICKR: {cell.n_pairs} pairs ({protocol['sickr']})" for cell in result.untransformed if cell.task == "SICKR"
    ]
    lines += study_notes(result.cells)
    if result.random:
        lines.append("random: so many of the original dimensions, mean of ten draws; interval: of resampled pairs")
    lines.append(f"sentences without a vector: {sum(cell.n_zero_rows for cell in result.untransformed)}")
    ranks = {cell.task: cell.n_components for cell in result.cells if cell.n_components < cell.k}
    for rank in sorted(set(ranks.values())):
        tasks = ", ".join(task for task, n_components in ranks.items() if n_components == rank)
        lines.append(f"rank of {tasks}: {rank}; wider rows have so many dimensions")
    for time in result.search[:1]:
        lines.append(
            f"search: exact, ten nearest of {time.n_docs:,} float32 vectors, {time.n_queries} queries at once, one "
            f"thread, median of {time.n_repeats}"
        )
    return "\n".join(lines)


def dims_figure(studies: Sequence[DimsStudy], how: str = ALL) -> Figure:
    """A panel per study: scores, memory and search time over the dimensions kept, the best width of a line marked."""
    keys = _task_keys(studies)
    panels = [_panel(study, keys, how) for study in studies]
    rows = [("", panels[start : start + 2]) for start in range(0, len(panels), 2)]
    widths = sorted({k for study in studies for k in study.widths})
    tasks = ", ".join(key.label for key in keys.values())
    description = f"Spearman of {tasks} at {widths[0]} to {widths[-1]} dimensions."
    legend = [*keys.values()]
    legend += [
        Key(f"search of {n:,} vectors (right axis)", "mark", dash=_SEARCH_DASH)
        for n in sorted({time.n_docs for study in studies for time in study.search})
    ]
    return Figure("Scores, memory and search time by dimensions", description, rows, legend)


def _task_keys(studies: Sequence[DimsStudy]) -> dict[str | None, Key]:
    """The line of every task, and of their average (None) where there are several."""
    titles = task_titles(cell for study in studies for cell in study.cells)
    tasks = list(titles)
    keys: dict[str | None, Key] = {}
    for number, task in enumerate(tasks):
        keys[task] = Key(titles[task], color_of(number), dash=dash_of(number))
    if len(tasks) > 1:
        keys[None] = Key(_AVERAGE, "ink", width=3)
    return keys


def dims_title(study: DimsStudy) -> str:
    return f"{study.name.rpartition('/')[2]}, {study.protocol['transform']} fitted on {study.protocol['fit']}"


def _panel(study: DimsStudy, keys: Mapping[str | None, Key], how: str) -> Panel:
    shown = {task: key for task, key in keys.items() if task is None or task in study.tasks}
    curves = {task: [(k, 100 * s) for k, s in study.curve(task, how).items() if not math.isnan(s)] for task in shown}
    by_task = {task: study.untransformed_score(task, how) for task in shown}
    whole = {task: 100 * score for task, score in by_task.items() if not math.isnan(score)}
    scores = [*whole.values(), *(score for points in curves.values() for _, score in points)] or [0.0]
    widths = sorted({*study.widths, study.dim})
    low, high = widths[0], max(widths[-1], widths[0] + 1)
    ticks: list[float] = [high]  # those widths that leave room for their numbers
    for k in reversed(widths):
        if k * _TICKS_APART <= ticks[-1]:
            ticks.append(k)
    memory = [float(bytes_of_a_million(round(k))) for k in (low, high, *ticks)]
    milliseconds = [(time.k, 1000 * time.elapsed_s) for time in study.search]
    times = Axis("ms/query", 0.0, max(time for _, time in milliseconds)) if milliseconds else None
    panel = Panel(
        Axis("dimensions kept (open circles: without the transform)", low, high, log=True, at=ticks[::-1]),
        Axis("Spearman x100", min(scores) - 1, max(scores) + 1),
        title=dims_title(study),
        top_axis=Axis("memory of a million", memory[0], memory[1], log=True, write=_bytes, at=memory[2:]),
        right_axis=times,
    )
    if times:
        panel.line(milliseconds, "mark", dash=_SEARCH_DASH, y_axis=times)
    for task, points in curves.items():
        panel.line(points, shown[task].color, width=shown[task].width, dash=shown[task].dash)
    for task, points in curves.items():
        best = study.best(task, how)
        for k, score in points:
            if k == best:
                panel.dot(k, score, shown[task].color, tip=f"{shown[task].label}: {score:.2f} at {k}")
    for task, score in whole.items():
        tip = f"{shown[task].label}, without the transform: {score:.2f}"
        panel.dot(study.dim, score, shown[task].color, is_open=True, tip=tip)
    return panel


def _bytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.3g} GB"


STUDY = StudyKind(_run, _tables, dims_figure, options=("transform", "fit_on"), settings=("widths", "docs"))
