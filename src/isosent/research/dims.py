"""What the number of dimensions is worth: scores, memory and search time against the axes that a transform keeps."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from isosent import _check
from isosent.encoders.base import Progress
from isosent.errors import InputError
from isosent.evaluation.published import published_rows
from isosent.evaluation.run import TARGET, describe_fitting, fit_tasks
from isosent.evaluation.sts import AGGREGATIONS, score_task, sts_task
from isosent.evaluation.sts_files import STSTask, read_sts
from isosent.io.json import nan_where_none, without_nan
from isosent.model import SentenceEncoder
from isosent.transforms.base import LinearTransform, make_linear, transform_name

TOP = 10
N_DOCS, N_QUERIES, N_REPEATS = 100_000, 100, 5
_MAX_BYTES = 1 << 29
_BLOCK, _CHUNK = 64, 4096


@dataclass(frozen=True, slots=True)
class SearchTime:
    """Time of an exact search at one width."""

    k: int  # dimensions of the vectors
    n_docs: int  # vectors searched, and queries searched for at once
    n_queries: int  # vectors searched, and queries searched for at once
    n_repeats: int  # searches timed, after one that was not
    elapsed_s: float  # median time of a search, divided by the queries


def exact_top(
    queries: NDArray[np.float32], docs: NDArray[np.float32], n_top: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """The documents of largest inner product with each query, by looking at all of them."""
    # Products are taken in chunks that stay in the cache, and of these only the largest one of every block of
    # documents is kept. The best documents lie in the blocks whose largest products are best; those are taken again.
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
    blocks = np.sort(np.argpartition(-largest, n_top - 1, axis=1)[:, :n_top], axis=1)
    indices = np.empty((n_queries, n_top), dtype=np.intp)
    scores = np.empty((n_queries, n_top), dtype=np.float32)
    for row, query in enumerate(queries):
        candidates = (blocks[row, :, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        candidates = candidates[candidates < n_docs]
        found = docs[candidates] @ query
        best = np.argsort(-found, kind="stable")[:n_top]
        indices[row], scores[row] = candidates[best], found[best]
    return indices, scores


def measure_search(
    widths: Sequence[int], *, n_docs: int = N_DOCS, n_queries: int = N_QUERIES, n_repeats: int = N_REPEATS
) -> list[SearchTime]:
    """Time the exact search of the ten best on one thread, at several widths."""
    # Random float32 vectors, for their values do not matter to the time; the same number of them at every width.
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


_FLOAT32_BYTES = 4
_MILLION = 10**6


def size_of_a_million(k: int) -> int:
    """Bytes of a million float32 vectors of k dimensions."""
    return _MILLION * _FLOAT32_BYTES * k


@dataclass(frozen=True, slots=True)
class DimsCell:
    """Scores of one task at one width."""

    task: str  # the task
    k: int  # dimensions asked for
    n_components: int  # dimensions compared: k, or fewer where the vectors of the task vary along fewer axes
    n_pairs: int  # pairs, and sentences among them without a vector; their cosine counts as 0
    n_zero_rows: int  # pairs, and sentences among them without a vector; their cosine counts as 0
    spearman: Mapping[str, float]  # of each of `AGGREGATIONS`, in [-1, 1]; NaN where undefined

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DimsCell:
        """Make it of its fields as plain values, an undefined score being None."""
        return cls(**{**document, "spearman": nan_where_none(document["spearman"])})


@dataclass(frozen=True, slots=True)
class PublishedWidth:
    """Published scores of the same model under the same transform."""

    label: str  # model and source
    k: int  # dimensions
    transformed: bool  # whether the transform stood behind it
    aggregation: str  # one of `AGGREGATIONS`
    scores: Mapping[str, float]  # task and Spearman x100


@dataclass(frozen=True, slots=True)
class DimsStudy:
    """Scores, memory and search time of a model at several widths."""

    name: str  # what the model is called
    model: Mapping[str, Any]  # reference, options, dimensions and fingerprint of the model
    protocol: Mapping[str, Any]  # transform, what it was fitted on, the pairs of SICK-R
    untransformed: tuple[DimsCell, ...]  # each task without the transform
    cells: tuple[DimsCell, ...]  # each task at each width, task by task
    search: tuple[SearchTime, ...]  # exact search at each width; none where it was not asked for
    published: tuple[PublishedWidth, ...]  # published scores, where there are some

    @property
    def widths(self) -> list[int]:
        """The widths, ascending."""
        return sorted({cell.k for cell in self.cells})

    @property
    def tasks(self) -> list[str]:
        """The tasks, in their order."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    def curve(self, task: str | None = None, how: str = AGGREGATIONS[0]) -> dict[int, float]:
        """Spearman at each width."""
        scores = {
            k: [cell.spearman[how] for cell in self.cells if cell.k == k and task in (None, cell.task)]
            for k in self.widths
        }
        return {k: float(np.mean(of_k)) for k, of_k in scores.items()}

    def whole(self, task: str | None = None, how: str = AGGREGATIONS[0]) -> float:
        """Return Spearman without the transform; parameters as for `curve`."""
        return float(np.mean([cell.spearman[how] for cell in self.untransformed if task in (None, cell.task)]))

    def best(self, task: str | None = None, how: str = AGGREGATIONS[0]) -> int | None:
        """Return the width of the highest score, the smallest of several; None where all are undefined."""
        curve = {k: score for k, score in self.curve(task, how).items() if not np.isnan(score)}
        return max(curve, key=curve.__getitem__) if curve else None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; an undefined score is None."""
        best = {task: {how: self.best(task, how) for how in AGGREGATIONS} for task in self.tasks}
        memory = {str(k): size_of_a_million(k) for k in self.widths}
        plain: dict[str, Any] = without_nan(asdict(self) | {"best": best, "bytes_per_million": memory})
        return plain

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> DimsStudy:
        """Make it of what `to_json` returned."""
        return cls(
            document["name"],
            document["model"],
            document["protocol"],
            tuple(map(DimsCell.from_json, document["untransformed"])),
            tuple(map(DimsCell.from_json, document["cells"])),
            tuple(SearchTime(**time) for time in document["search"]),
            tuple(PublishedWidth(**row) for row in document["published"]),
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return it as the lines of a table; what is not known is None."""
        times = {time.k: time for time in self.search}
        return [
            self._row(cell, transform, times.get(cell.k))
            for transform, cells in (("none", self.untransformed), (self.protocol["transform"], self.cells))
            for cell in cells
        ]

    def _row(self, cell: DimsCell, transform: str, time: SearchTime | None) -> dict[str, Any]:
        transformed = transform != "none"
        published = {
            found.aggregation: found
            for found in reversed(self.published)
            if found.k == cell.k and found.transformed == transformed and cell.task in found.scores
        }
        row: dict[str, Any] = {"model": self.name, "task": cell.task, "transform": transform}
        row |= {name: getattr(cell, name) for name in ("k", "n_components", "n_pairs", "n_zero_rows")}
        row |= {f"spearman_{how}": score for how, score in cell.spearman.items()}
        row |= {
            f"published_{how}": published[how].scores[cell.task] / 100 if how in published else None
            for how in AGGREGATIONS
        }
        row |= {
            "published_in": "; ".join(published[how].label for how in AGGREGATIONS if how in published) or None,
            "bytes_per_million": size_of_a_million(cell.k),
            "search_s_per_query": None if time is None else time.elapsed_s,
            "search_n_docs": None if time is None else time.n_docs,
        }
        plain: dict[str, Any] = without_nan(row)
        return plain


LEADING = ("whitening", "principal_components", "truncate")
_METHODS = ("pca", "pca_cor")


@dataclass(frozen=True, slots=True)
class DimsPlan:
    """What is studied."""

    # What keeps the leading axes: one of `LEADING`, or a chain that ends with one, at full width
    transform: LinearTransform = field(default_factory=lambda: make_linear(LEADING[0]))
    widths: Sequence[int] | None = None  # dimensions kept; `width_grid` where left out
    fit: str | os.PathLike[str] = TARGET  # as for `evaluate`
    sickr: str = "full"  # as for `evaluate`
    n_docs: int = N_DOCS  # vectors that are searched; 0 measures no search


class _Rows:
    """Vectors of texts, found by text."""

    def __init__(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        self.vectors = vectors
        self._row_of = {text: row for row, text in enumerate(texts)}

    def of(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.vectors[[self._row_of[text] for text in texts]]


def width_grid(dim: int) -> list[int]:
    """Widths to look at: powers of two from 8 on, with steps between them that narrow, and the full width."""
    octaves = [8 << octave for octave in range(dim.bit_length())]
    parts = {start: 1 if start < 32 else 2 if start < 128 else 4 for start in octaves}
    steps = (start + part * start // n_parts for start, n_parts in parts.items() for part in range(n_parts))
    return sorted({*(step for step in steps if step < dim), dim})


def study_dims(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    plan: DimsPlan | None = None,
    tasks: Sequence[str] | None = None,
    progress: Callable[[int], Progress] | None = None,
) -> DimsStudy:
    """Score a model on STS tasks at several widths, and time a search at each."""
    # Each sentence is encoded once, and the transform is fitted once for each task, at full width: its first k
    # columns are the transform of width k.
    plan = DimsPlan() if plan is None else plan
    widths = _check_plan(plan, model)
    found = read_sts(folder, tasks=tasks, sickr=plan.sickr)
    untransformed, cells = [], []
    ready = fit_tasks(
        model, list(map(sts_task, found)), transforms=[plan.transform], fit_on=plan.fit, progress=progress
    )
    for task, (bare, text_vectors, (fitted,)) in zip(found, ready, strict=True):
        texts = list(dict.fromkeys(task.texts))
        vectors = text_vectors(texts)
        plain, transformed = (_Rows(texts, model.transform(vectors)) for model in (bare, fitted))
        untransformed.append(_measure(task, bare, plain, model.dim))
        cells += [_measure(task, bare, transformed, k) for k in widths]
    missing = {task.name: list(task.missing_subsets) for task in found if task.missing_subsets}
    protocol = describe_fitting(plan.transform, plan.fit) | {"sickr": plan.sickr, "missing_subsets": missing}
    facts = model.record.facts()
    search = measure_search(widths, n_docs=plan.n_docs) if plan.n_docs else []
    published = _published(facts, protocol, [task.name for task in found], [*widths], model.dim)
    return DimsStudy(name, facts, protocol, tuple(untransformed), tuple(cells), tuple(search), published)


def _check_plan(plan: DimsPlan, model: SentenceEncoder) -> list[int]:
    """Refuse what cannot be studied; return the widths, ascending."""
    settings = plan.transform.get_params(deep=False)
    steps = [step for _, step in settings["steps"]] if "steps" in settings else [plan.transform]
    linear = [step for step in steps if transform_name(step) != "l2_normalize"]
    last = linear[-1] if linear else steps[-1]
    own = last.get_params(deep=False)
    if transform_name(last) not in LEADING or own.get("method", _METHODS[0]) not in _METHODS:
        raise InputError(
            f"study dims: transform must end with {', '.join(LEADING)} (whitening by method {' or '.join(_METHODS)}), "
            f"whose first axes are the best of their number; got {last!r}."
        )
    if own["n_components"] is not None:
        raise InputError(
            f"study dims: transform must be of full width, for its first axes are taken from it; got {last!r}. Name "
            "widths instead."
        )
    if model.normalize:
        raise InputError(
            "study dims: the model must not end with scaling to length 1, because nothing folds behind that; it does. "
            "Study its encoder."
        )
    if plan.widths is None:
        return width_grid(model.dim)
    if not len(plan.widths):
        raise InputError("study dims: widths must hold at least one number; got none. Leave them out for a grid.")
    return sorted({_check.component_count("study dims", k, model.dim) for k in plan.widths})


def _measure(task: STSTask, model: SentenceEncoder, rows: _Rows, k: int) -> DimsCell:
    scores = score_task(task, SentenceEncoder(model.encoder), lambda texts: rows.of(texts)[:, :k])
    return DimsCell(task.name, k, min(k, rows.vectors.shape[1]), scores.n_pairs, scores.n_zero_rows, scores.spearman)


def _published(
    model: Mapping[str, Any], protocol: Mapping[str, Any], tasks: Sequence[str], widths: Sequence[int], dim: int
) -> tuple[PublishedWidth, ...]:
    """What was published for the model, as it is and at each width."""
    found = []
    for k, transformed in [(dim, False), *((k, True) for k in widths)]:
        wanted: dict[str, Any] = dict(protocol)
        if transformed:
            wanted["parameters"] = protocol["parameters"] | {"n_components": None if k == dim else k}
        else:
            wanted |= {"transform": None, "parameters": {}}
        for row in published_rows(model, wanted):
            scores = row.scores_of(tasks, protocol["sickr"])
            if scores:
                found.append(PublishedWidth(row.label, k, transformed, row.aggregation, scores))
    return tuple(found)
