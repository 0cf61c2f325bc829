"""How tokens are pooled, crossed with which layers and whether to whiten: table 1 of WhiteningBERT."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import Progress
from isosent.evaluation.sts_files import read_sts
from isosent.model import SentenceEncoder
from isosent.networks.layer_pooling import SBERT_WK, canonical_pooling
from isosent.numeric.pooling import POOLINGS
from isosent.numeric.sbert_wk import sbert_wk_layers
from isosent.research.study import (
    AUTO,
    NONE,
    TRANSFORMS,
    WHITENING,
    LayerCell,
    Measured,
    PlacedTask,
    averages,
    place_tasks,
    plain_transformer,
    score_reading,
    side_by_side,
)

EXHAUSTIVE = {NONE: 3, WHITENING: 3, AUTO: 2}

Layers = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LayerVectors:
    """Every layer of a transformer, pooled, for all sentences of some tasks and their copies."""

    measured: Measured  # what the model is called
    pooling: str  # how each layer is pooled
    layers: list[NDArray[np.float32]]  # from the embedding layer to the last
    placed: list[PlacedTask]  # the tasks

    def mean_of(self, layers: Layers, placed: PlacedTask) -> NDArray[np.float32]:
        """Return the mean of some pooled layers, for the texts of a task."""
        total = self.layers[layers[0]][placed.rows]
        for layer in layers[1:]:
            total += self.layers[layer][placed.rows]
        return total if len(layers) == 1 else total / np.float32(len(layers))


def read_layers(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    tasks: Sequence[str] | None = None,
    sickr: str = "full",
    pooling: str = "mean",
    progress: Callable[[int], Progress] | None = None,
) -> LayerVectors:
    """Read every layer of a transformer off one pass over the sentences of STS tasks."""
    encoder, pooling = plain_transformer("study layers", model, name), canonical_pooling(pooling)
    layer_poolings = [encoder.layer_pooling(str(layer), pooling) for layer in range(encoder.n_layers + 1)]
    texts, placed = place_tasks(read_sts(folder, tasks=tasks, sickr=sickr))
    pooled = encoder.read(texts, layer_poolings, progress=None if progress is None else progress(len(texts)))
    return LayerVectors(Measured(name, encoder.reference, sickr), pooling, pooled, placed)


def study_layers(
    vectors: LayerVectors, *, aggregation: str = "all", progress: Callable[[int], Progress] | None = None
) -> list[LayerCell]:
    """Score every single layer, every pair and more, as they are, whitened, and as "auto" chooses."""
    # All sets of up to three layers are scored (of up to two for "auto"); from the best of that size on, the best set
    # of each size is extended by one layer after another. Each layer is pooled, then the layers are averaged.
    search = _Search(vectors, aggregation)
    n_layers = len(vectors.layers)
    search.tell = None if progress is None else progress(len(vectors.placed) * n_measured(n_layers))
    for size in range(1, min(max(EXHAUSTIVE.values()), n_layers) + 1):
        transforms = [transform for transform in TRANSFORMS if EXHAUSTIVE[transform] >= size]
        search.score(combinations(range(n_layers), size), transforms)
    for transform in TRANSFORMS:
        for size in range(min(EXHAUSTIVE[transform], n_layers), n_layers):
            best = search.best(size, transform)
            more = (layer for layer in range(n_layers) if layer not in best)
            search.score((tuple(sorted((*best, layer))) for layer in more), [transform])
    return search.cells


def n_measured(n_layers: int) -> int:
    """Count what is scored on each task."""
    total = 0
    for most in EXHAUSTIVE.values():
        most = min(most, n_layers)
        total += sum(len(list(combinations(range(n_layers), size))) for size in range(1, most + 1))
        total += sum(n_layers - size for size in range(most, n_layers))
    return total


class _Search:
    """Scores sets of layers on all tasks, and knows the best of those it has seen."""

    def __init__(self, vectors: LayerVectors, aggregation: str) -> None:
        self.cells: list[LayerCell] = []
        self.tell: Progress | None = None
        self._vectors = vectors
        self._aggregation = aggregation

    def score(self, sets: Iterable[Layers], transforms: Sequence[str]) -> None:
        vectors = self._vectors
        work = ((layers, placed) for layers in sets for placed in vectors.placed)
        done = side_by_side(work, lambda each: score_reading(each[1], vectors.mean_of(*each), transforms))
        for (layers, placed), scores in done:
            self.cells += vectors.measured.cells(vectors.pooling, layers, placed.task, scores)
            if self.tell:
                self.tell(len(transforms))

    def best(self, size: int, transform: str) -> Layers:
        return best_of_sizes(self.cells, self._aggregation)[transform][size].layers


@dataclass(frozen=True, slots=True)
class BestSet:
    """The best set of layers of some size, by the average over the tasks."""

    layers: Layers  # the layers
    average: float  # mean over the tasks, in [-1, 1]; NaN where no set of that size has one


def best_of_sizes(cells: Iterable[LayerCell], aggregation: str) -> dict[str, dict[int, BestSet]]:
    """Find the best set of layers of every size among those scored."""
    found: dict[str, dict[int, BestSet]] = {}
    for (_, layers, transform), average in averages(cells, aggregation).items():
        sizes = found.setdefault(transform, {})
        seen = sizes.get(len(layers))
        if seen is None or not average <= seen.average:
            sizes[len(layers)] = BestSet(layers, average) if seen is None or not np.isnan(average) else seen
    return found


def pair_grid(cells: Sequence[LayerCell], transform: str, aggregation: str) -> NDArray[np.float64]:
    """Lay out single layers and pairs as a matrix (figure 1 of the paper)."""
    n_layers = 1 + max(layer for cell in cells for layer in cell.layers)
    grid = np.full((n_layers, n_layers), np.nan)
    for (_, layers, of), average in averages(cells, aggregation).items():
        if of == transform and len(layers) <= 2:
            grid[layers[-1], layers[0]] = average
    return grid


STUDIED = ("cls", *(name for name in POOLINGS if name != "cls"), SBERT_WK)


def study_pooling(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    tasks: Sequence[str] | None = None,
    sickr: str = "full",
    poolings: Sequence[str] = STUDIED,
    progress: Callable[[int], Progress] | None = None,
) -> list[LayerCell]:
    """Score every pooling of the last layer, of layers 1 and the last, and of the last two."""
    # The network runs once over the sentences of each task; all readings are taken from that pass.
    encoder = plain_transformer("study pooling", model, name)
    names = dict.fromkeys(canonical_pooling(pooling) for pooling in poolings)
    wanted = [(pooling, layers) for pooling in names for layers in _layer_sets(pooling, encoder.n_layers)]
    layer_poolings = [encoder.layer_pooling(",".join(map(str, layers)), pooling) for pooling, layers in wanted]
    found = read_sts(folder, tasks=tasks, sickr=sickr)
    placed_texts = [place_tasks([task]) for task in found]
    tell = None if progress is None else progress(sum(len(texts) for texts, _ in placed_texts))
    measured, cells = Measured(name, encoder.reference, sickr), []
    for texts, (placed,) in placed_texts:
        vectors = encoder.read(texts, layer_poolings, progress=tell)
        done = side_by_side(vectors, partial(score_reading, placed))
        for (pooling, layers), (_, scores) in zip(wanted, done, strict=True):
            cells += measured.cells(pooling, layers, placed.task, scores)
    return cells


def _layer_sets(pooling: str, n_layers: int) -> list[tuple[int, ...]]:
    if pooling == SBERT_WK:
        return [sbert_wk_layers(n_layers)]
    return list(dict.fromkeys([(n_layers,), (1, n_layers), (n_layers - 1, n_layers)]))
