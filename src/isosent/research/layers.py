"""Which layers of a transformer, and which pooling of their tokens: figures 1 and 2 and table 1 of WhiteningBERT.

The network runs once over the sentences. Each layer pooling is scored unchanged, whitened, and as auto chooses, with
the transform fitted on the sentences of the task.

`study_layers` and `study_pooling` choose what to score; `search_layers` encodes the distinct texts of the tasks
(`place_tasks`) for many layer poolings in one pass, and `score_vectors` scores each under each transform. The records
are `LayerCell`; `research.layer_tables` arranges them for tables and figures.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from isosent.cli.options import split_names
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.evaluation.published import published_rows
from isosent.evaluation.run import TARGET
from isosent.evaluation.sts import AGGREGATIONS, STSSet, aggregate, pair_scores
from isosent.model import SentenceEncoder
from isosent.networks.batching import run_batches
from isosent.networks.layer_pooling import SBERT_WK, canonical_pooling, sbert_wk_layers
from isosent.networks.pooling import POOLINGS
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows, spearman
from isosent.numeric.spectrum import spectrum
from isosent.numeric.threads import n_workers
from isosent.pages.progress import Progress, counted, part_of
from isosent.research.layer_tables import (
    AUTO,
    EXHAUSTIVE,
    NONE,
    TRANSFORMS,
    WHITENING,
    Layers,
    best_of_sizes,
    layer_figure,
    layer_tables,
    pooling_figure,
    pooling_tables,
)
from isosent.research.study import ALL, LayerCell, PublishedScore, StudyKind, deviations_of, read_sets
from isosent.transforms.agreement import OverlapPairs, sample_pairs
from isosent.transforms.auto import Candidate, choose, under
from isosent.transforms.base import Auto

STUDIED_POOLINGS = ("cls", *(name for name in POOLINGS if name != "cls"), SBERT_WK)

T = TypeVar("T")
R = TypeVar("R")


def study_layers(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    tasks: Sequence[str] | None = None,
    sickr: str = "full",
    pooling: str = "mean",
    aggregation: str = ALL,
    progress: Progress | None = None,
) -> list[LayerCell]:
    """Score every layer, every pair and more sets of layers; `progress` is called for the texts, then for the scores.

    All sets of up to three layers are scored (of up to two for auto). From the best of that size on, the best set of
    each size is extended by one layer at a time. Each layer is pooled, then the layers are averaged.
    """
    encoder, pooling = _transformer_of("study layers", model, name), canonical_pooling(pooling)
    single_layers = [encoder.layer_pooling(str(layer), pooling) for layer in range(encoder.n_layers + 1)]
    texts, placed = place_tasks(read_sets(folder, tasks=tasks, sickr=sickr))
    layers = encoder.read(texts, single_layers, progress=progress)
    make_cells = partial(layer_cells, name=name, reference=encoder.reference, sickr=sickr, pooling=pooling)
    return search_layers(layers, placed, make_cells, aggregation=aggregation, progress=progress)


def search_layers(
    pooled: Sequence[NDArray[np.float32]],
    placed: Sequence[PlacedTask],
    make_cells: Callable[[Layers, STSSet, Mapping[str, Score]], list[LayerCell]],
    *,
    aggregation: str = ALL,
    progress: Progress | None = None,
) -> list[LayerCell]:
    """Score sets of pooled layers, from the embedding layer to the last."""
    n_layers = len(pooled)
    cells: list[LayerCell] = []
    n_sets = 0
    for most in (min(most, n_layers) for most in EXHAUSTIVE.values()):
        n_sets += sum(math.comb(n_layers, size) for size in range(1, most + 1))
        n_sets += sum(n_layers - size for size in range(most, n_layers))
    n_scored, n_scores = 0, len(placed) * n_sets

    def mean_of(layers: Layers, task: PlacedTask) -> NDArray[np.float32]:
        total = pooled[layers[0]][task.rows]
        for layer in layers[1:]:
            total += pooled[layer][task.rows]
        return total if len(layers) == 1 else total / np.float32(len(layers))

    def score(sets: Iterable[Layers], transforms: Sequence[str]) -> None:
        nonlocal n_scored
        work = ((layers, task) for layers in sets for task in placed)
        scored = _in_threads(work, lambda each: score_vectors(each[1], mean_of(*each), transforms))
        part = part_of(progress, n_scored, n_scores)
        for (layers, task), scores in counted(scored, part, n_scores, lambda _: len(transforms)):
            cells.extend(make_cells(layers, task.task, scores))
            n_scored += len(transforms)

    for size in range(1, min(max(EXHAUSTIVE.values()), n_layers) + 1):
        transforms = [transform for transform in TRANSFORMS if EXHAUSTIVE[transform] >= size]
        score(combinations(range(n_layers), size), transforms)
    for transform in TRANSFORMS:
        for size in range(min(EXHAUSTIVE[transform], n_layers), n_layers):
            best = best_of_sizes(cells, aggregation)[transform][size].layers
            others = (layer for layer in range(n_layers) if layer not in best)
            score((tuple(sorted((*best, layer))) for layer in others), [transform])
    return cells


def study_pooling(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    tasks: Sequence[str] | None = None,
    sickr: str = "full",
    poolings: Sequence[str] = STUDIED_POOLINGS,
    progress: Progress | None = None,
) -> list[LayerCell]:
    """Score every pooling of the last layer, of layers 1 and the last, and of the last two."""
    encoder = _transformer_of("study pooling", model, name)
    n_layers = encoder.n_layers
    sets = list(dict.fromkeys([(n_layers,), (1, n_layers), (n_layers - 1, n_layers)]))
    wanted = [
        (pooling, layers)
        for pooling in dict.fromkeys(canonical_pooling(pooling) for pooling in poolings)
        for layers in ([sbert_wk_layers(n_layers)] if pooling == SBERT_WK else sets)
    ]
    layer_poolings = [encoder.layer_pooling(",".join(map(str, layers)), pooling) for pooling, layers in wanted]
    per_task = [place_tasks([task]) for task in read_sets(folder, tasks=tasks, sickr=sickr)]
    cells, done, n_texts = [], 0, sum(len(texts) for texts, _ in per_task)
    for texts, (placed,) in per_task:
        vectors = encoder.read(texts, layer_poolings, progress=part_of(progress, done, n_texts))
        done += len(texts)
        scored = _in_threads(vectors, partial(score_vectors, placed))
        for (pooling, layers), (_, scores) in zip(wanted, scored, strict=True):
            cells += layer_cells(
                layers, placed.task, scores, name=name, reference=encoder.reference, sickr=sickr, pooling=pooling
            )
    return cells


class Score(NamedTuple):
    """A task under one transform: Spearman by aggregation, and the choice of auto."""

    spearman: Mapping[str, float]
    chosen: str | None = None


def layer_cells(
    layers: Layers,
    task: STSSet,
    scores: Mapping[str, Score],
    *,
    name: str,
    reference: str,
    sickr: str,
    pooling: str,
) -> list[LayerCell]:
    """Records of one layer pooling on one task, one per transform, with the numbers that were published for it."""
    return [
        LayerCell(
            name,
            pooling,
            layers,
            transform,
            score.chosen,
            task.name,
            dict(score.spearman),
            _published(reference, sickr, pooling, layers, transform, task),
            deviations_of(task),
        )
        for transform, score in scores.items()
    ]


def _published(
    reference: str, sickr: str, pooling: str, layers: Layers, transform: str, task: STSSet
) -> dict[str, PublishedScore]:
    if transform == AUTO or task.deviations:
        return {}
    options = {"layers": ",".join(map(str, layers)), "pooling": pooling}
    protocol: dict[str, Any] = {
        "transform": None if transform == NONE else transform,
        "fit": TARGET,
        "parameters": {},
    }
    return {
        row.aggregation: PublishedScore(scores[task.name] / 100, row.label)
        for row in published_rows({"reference": reference, "options": options, "fits": []}, protocol)
        if task.name in (scores := row.scores_of([task.name], sickr))
    }


def _transformer_of(where: str, model: SentenceEncoder, name: str) -> TransformerEncoder:
    encoder = model.encoder
    if not isinstance(encoder, TransformerEncoder):
        raise InputError(f"{name} is no transformer. Name one, such as hf:FOLDER.", where=where)
    if model.fits:
        raise InputError(f"{name} has a fitted transform. Name its encoder; the study fits on each task.", where=where)
    if encoder.n_layers < 2:
        raise InputError(f"{name} has {encoder.n_layers} layer. At least 2 are needed.", where=where)
    return encoder


class PlacedTask(NamedTuple):
    """A task, and the rows of its sentences among texts that are encoded together."""

    task: STSSet
    rows: NDArray[np.intp]  # of its distinct texts, those of the scored pairs first
    n_scored: int  # how many of them are in scored pairs
    pairs: tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]  # per subset: first and second texts, places in `rows`
    counts: NDArray[np.float64]  # how often each text is among those to fit on
    overlap_pairs: tuple[OverlapPairs, ...]  # pairs that auto compares, places in `rows`


def place_tasks(tasks: Sequence[STSSet]) -> tuple[list[str], list[PlacedTask]]:
    """The distinct texts of some tasks, with the pairs that auto compares."""
    row_of: dict[str, int] = {}
    placed = []
    for task in tasks:
        scored = list(dict.fromkeys(task.texts))
        places = {text: place for place, text in enumerate(dict.fromkeys([*scored, *task.target_texts]))}
        for text in places:
            row_of.setdefault(text, len(row_of))
        counts = Counter(task.target_texts)
        pairs = tuple((_places(places, subset.first), _places(places, subset.second)) for subset in task.subsets)
        rows = np.array([row_of[text] for text in places], dtype=np.intp)
        count_of_each = np.array([counts[text] for text in places], dtype=np.float64)
        overlap_pairs = sample_pairs(list(places), topics=True)
        placed.append(PlacedTask(task, rows, len(scored), pairs, count_of_each, overlap_pairs))
    return list(row_of), placed


def _places(places: Mapping[str, int], texts: Sequence[str]) -> NDArray[np.intp]:
    return np.array([places[text] for text in texts], dtype=np.intp)


def _in_threads(work: Iterable[T], score: Callable[[T], R]) -> Iterator[tuple[T, R]]:
    """Score several things at once, each on one thread."""
    # Eigenpairs of a few hundred dimensions gain little from threads that share them, and lose much where these wait
    # for one another: each worker computes alone.
    with threadpool_limits(1):
        yield from run_batches(work, score, n_workers())


def score_vectors(
    placed: PlacedTask, vectors: NDArray[np.float32], transforms: Sequence[str] = TRANSFORMS
) -> dict[str, Score]:
    """Score the vectors of a task, in the order of `PlacedTask.rows`, under each transform.

    Whitening has strength 1 and keeps every axis that is more than noise. Moments, eigenpairs and cosines are float64.
    """

    def score(mapped: NDArray[np.floating], chosen: str | None = None) -> Score:
        cosines = [pair_scores(mapped[first], mapped[second]) for first, second in placed.pairs]
        return Score(aggregate(spearman, placed.task.subsets, cosines), chosen)

    scored, has_vector = vectors[: placed.n_scored], nonzero_rows(vectors)
    scores = {NONE: score(scored)} if NONE in transforms else {}
    if len(scores) == len(transforms):
        return scores
    is_scored = has_vector[: placed.n_scored, None]
    if WHITENING in transforms:
        moments = Moments.from_rows(vectors[has_vector], placed.counts[has_vector])
        if spectrum(moments.covariance, noise=moments.rounding_variance).rank:
            (whitened,) = under(scored, moments, [Candidate("whitening", 1.0)])
            scores[WHITENING] = score(whitened * is_scored)
        else:
            scores[WHITENING] = Score(dict.fromkeys(AGGREGATIONS, float("nan")))
    if AUTO in transforms:
        chosen = choose(vectors, placed.overlap_pairs, Auto()).chosen
        transform, mapped = chosen.transform(), scored
        if transform is not None:
            mapped = transform.fit_moments(Moments.from_rows(vectors[has_vector])).linear_map_.apply(scored)
        scores[AUTO] = score(mapped * is_scored, str(chosen))
    return scores


def _run_layers(model: SentenceEncoder, data: Path, own: Mapping[str, Any], **common: Any) -> list[LayerCell]:
    pooling, how = own["pooling"] or "mean", own["aggregation"]
    return study_layers(model, data, pooling=pooling, aggregation=how, sickr=own["sickr"], **common)


def _run_pooling(model: SentenceEncoder, data: Path, own: Mapping[str, Any], **common: Any) -> list[LayerCell]:
    poolings = split_names(own["pooling"]) or STUDIED_POOLINGS
    return study_pooling(model, data, poolings=poolings, sickr=own["sickr"], **common)


LAYERS = StudyKind(_run_layers, layer_tables, layer_figure, options=("pooling",))
POOLING = StudyKind(_run_pooling, pooling_tables, pooling_figure, options=("pooling",))
