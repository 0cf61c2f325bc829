"""Which layers of a transformer make the best sentence vectors: every one, every pair, and the best of every size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import Progress
from isosent.evaluation.sts_files import read_sts
from isosent.model import SentenceEncoder
from isosent.network.reading import canonical_pooling
from isosent.studies.reading_cells import Measured, ReadingCell, averages
from isosent.studies.readings import (
    AUTO,
    NONE,
    TRANSFORMS,
    WHITENING,
    PlacedTask,
    place_tasks,
    plain_transformer,
    score_reading,
    side_by_side,
)

EXHAUSTIVE = {NONE: 3, WHITENING: 3, AUTO: 2}

Layers = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LayerVectors:
    """Every layer of a transformer, pooled, for all sentences of some tasks and their copies.

    Parameters
    ----------
    measured : Measured
        What the model is called.
    pooling : str
        How each layer is pooled.
    layers : list of ndarray of shape (n_texts, dim), float32
        From the embedding layer to the last.
    placed : list of PlacedTask
        The tasks.
    """

    measured: Measured
    pooling: str
    layers: list[NDArray[np.float32]]
    placed: list[PlacedTask]

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
    """Read every layer of a transformer off one pass over the sentences of STS tasks.

    Parameters
    ----------
    model : SentenceEncoder
        A transformer with nothing fitted behind it. Its layers, its pooling and what follows the pooling (Dense,
        Normalize) are set aside.
    folder : path-like
        Where the original files lie, see `read_sts`.
    name : str
        What the model is called in the results.
    tasks : sequence of str, optional
        As for `evaluate_sts`.
    sickr : {"full", "test"}, default "full"
        As for `evaluate_sts`.
    pooling : str, default "mean"
        How each layer is pooled.
    progress : callable, optional
        As for `evaluate_sts`.

    Returns
    -------
    LayerVectors
        What `study_layers` takes. It holds n_texts x (n_layers + 1) x dim float32 numbers.

    Raises
    ------
    InputError
        If the model is another one, or as `evaluate_sts` does.
    """
    encoder, pooling = plain_transformer("study layers", model, name), canonical_pooling(pooling)
    readings = [encoder.reading(str(layer), pooling) for layer in range(encoder.n_layers + 1)]
    texts, placed = place_tasks(read_sts(folder, tasks=tasks, sickr=sickr))
    pooled = encoder.read(texts, readings, progress=None if progress is None else progress(len(texts)))
    return LayerVectors(Measured(name, encoder.reference, sickr), pooling, pooled, placed)


def study_layers(
    vectors: LayerVectors, *, aggregation: str = "all", progress: Callable[[int], Progress] | None = None
) -> list[ReadingCell]:
    """Score every single layer, every pair and more, as they are, whitened, and as "auto" chooses.

    Parameters
    ----------
    vectors : LayerVectors
        What `read_layers` gave.
    aggregation : {"all", "mean", "wmean"}, default "all"
        Whose average over the tasks says which layers go on in the greedy search.
    progress : callable, optional
        Called once with the number of measurements; returns what is called with the number of those done.

    Returns
    -------
    list of ReadingCell
        One a set of layers, transform and task.

    Notes
    -----
    All sets of up to three layers are scored (of up to two for "auto"); from the best of that size on, the best set of
    each size is extended by one layer after another. Each layer is pooled, then the layers are averaged.

    References
    ----------
    Huang et al. 2021, *WhiteningBERT: An Easy Unsupervised Sentence Embedding Approach*, arXiv 2104.01767, figures 1
    and 2.
    """
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
    """Count what is scored on each task.

    Parameters
    ----------
    n_layers : int
        Layers, the embedding layer included.

    Returns
    -------
    int
        Sets of layers, over all transforms.

    Examples
    --------
    >>> n_measured(7)
    189
    """
    total = 0
    for most in EXHAUSTIVE.values():
        most = min(most, n_layers)
        total += sum(len(list(combinations(range(n_layers), size))) for size in range(1, most + 1))
        total += sum(n_layers - size for size in range(most, n_layers))
    return total


class _Search:
    """Scores sets of layers on all tasks, and knows the best of those it has seen."""

    def __init__(self, vectors: LayerVectors, aggregation: str) -> None:
        self.cells: list[ReadingCell] = []
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
    """The best set of layers of some size, by the average over the tasks.

    Parameters
    ----------
    layers : tuple of int
        The layers.
    average : float
        Mean over the tasks, in [-1, 1]; NaN where no set of that size has one.
    """

    layers: Layers
    average: float


def best_of_sizes(cells: Iterable[ReadingCell], aggregation: str) -> dict[str, dict[int, BestSet]]:
    """Find the best set of layers of every size among those scored.

    Parameters
    ----------
    cells : iterable of ReadingCell
        What `study_layers` returned.
    aggregation : str
        Whose average decides.

    Returns
    -------
    dict
        By transform and number of layers. The labels of the tasks decide, so it is a bound, not a recipe.
    """
    found: dict[str, dict[int, BestSet]] = {}
    for (_, layers, transform), average in averages(cells, aggregation).items():
        sizes = found.setdefault(transform, {})
        seen = sizes.get(len(layers))
        if seen is None or not average <= seen.average:
            sizes[len(layers)] = BestSet(layers, average) if seen is None or not np.isnan(average) else seen
    return found


def pair_grid(cells: Sequence[ReadingCell], transform: str, aggregation: str) -> NDArray[np.float64]:
    """Lay out single layers and pairs as a matrix (figure 1 of the paper).

    Parameters
    ----------
    cells : sequence of ReadingCell
        What `study_layers` returned.
    transform : str
        Which transform.
    aggregation : str
        Which of the aggregations.

    Returns
    -------
    ndarray of shape (n_layers, n_layers), float64
        Averages over the tasks: of layers i and j in row j and column i, of one layer on the diagonal; NaN above it.
    """
    n_layers = 1 + max(layer for cell in cells for layer in cell.layers)
    grid = np.full((n_layers, n_layers), np.nan)
    for (_, layers, of), average in averages(cells, aggregation).items():
        if of == transform and len(layers) <= 2:
            grid[layers[-1], layers[0]] = average
    return grid
