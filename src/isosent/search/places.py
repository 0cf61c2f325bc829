"""A map of vectors: a place in two dimensions for each, near to those of its nearest neighbors, and how many of these.

`neighbor_map` gives equal vectors one place. t-SNE places the others, or a sample of them: then each of the rest lies
next to its nearest neighbor in the sample (`_placed_next_to`). Too few rows for t-SNE are placed by their principal
axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from isosent import _check, _extras
from isosent.errors import InputError, MissingExtraError
from isosent.numeric.neighbors import near_others, nearest_among
from isosent.numeric.similarity import nonzero_rows
from isosent.numeric.threads import n_workers
from isosent.pages.progress import Progress
from isosent.search.closeness import MOST_EXACT
from isosent.search.duplicates import distinct
from isosent.search.units import VectorsLike, compared_units

N_NEIGHBORS: Final = 10
_PCA: Final = "PCA"
_OPEN_TSNE: Final = "t-SNE by openTSNE"
_SLOW_TSNE: Final = "t-SNE by scikit-learn"
_MOST_FITTED: Final = {_OPEN_TSNE: 50_000, _SLOW_TSNE: 5_000}  # rows: 2 to 3 minutes on two processors
_FEWEST: Final = 10  # rows of t-SNE
_FEWEST_FOR_THREADS: Final = 2_000
_PERPLEXITY: Final = 30
_N_STEPS: Final = (250, 500)  # of openTSNE, exaggerated first
_STEPS_A_CALL: Final = 10

Places = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class NeighborMap:
    """Vectors in two dimensions.

    Made by `neighbor_map`.

    Parameters
    ----------
    places : ndarray of shape (n_rows, 2), float32
        Place of each vector; equal vectors have the same one. NaN for zero rows, which stand for texts without a
        vector. The unit has no meaning.
    neighbors : ndarray of shape (n_rows, k), intp
        Rows of the nearest other vectors, nearest first; k is 10, or less if there are fewer. Of equal vectors, the
        first row is named. -1 for zero rows. Among more than 20,000 different vectors, nearly the nearest.
    cosines : ndarray of shape (n_rows, k), float32
        Cosines with these; NaN for zero rows.
    method : str
        What placed them: t-SNE, and by which library, or PCA.
    n_fitted : int
        Different vectors that it was fitted on; each other one lies next to the nearest of these.
    distinct_rows : ndarray of shape (n_distinct,), intp
        First row of each different vector.
    measured_rows : ndarray of shape (n_measured,), intp
        Those whose neighbors are exact, by which `kept` is measured: all, or a sample.
    kept : float
        Share of the nearest vectors that are also among the nearest places, 0 to 1; NaN for a single vector.
    """

    places: Places
    neighbors: NDArray[np.intp]
    cosines: NDArray[np.float32]
    method: str
    n_fitted: int
    distinct_rows: NDArray[np.intp]
    measured_rows: NDArray[np.intp]
    kept: float

    def __repr__(self) -> str:
        return f"<NeighborMap: {len(self.places)} vectors by {self.method}, keeps {self.kept:.0%} of the nearest>"

    def kept_of(self, other: NeighborMap) -> float:
        """Share of the nearest vectors of another map of the same rows that are among the nearest places of this one.

        Parameters
        ----------
        other : NeighborMap
            Such as that of the vectors before a transform.

        Returns
        -------
        float
            From 0 to 1; NaN if the other map has a single vector.

        Raises
        ------
        InputError
            If the maps have different numbers of rows.
        """
        _check.same_count("kept_of", "other", len(other.places), len(self.places))
        return _share_kept(self.places, other.distinct_rows, other.measured_rows, other.neighbors)


def neighbor_map(vectors: VectorsLike, *, seed: int = 0, progress: Progress | None = None) -> NeighborMap:
    """Place vectors in two dimensions, near to their nearest neighbors by cosine, for a picture.

    Parameters
    ----------
    vectors : array of shape (n_rows, dim), or path
        Such as ``model.encode(texts)``. Their lengths do not count.
    seed : int, default 0
        Seed of the sample and of t-SNE.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in vectors, then in steps.

    Returns
    -------
    NeighborMap
        The places, the true neighbors, and how many of them the places keep.

    Raises
    ------
    InputError
        If there is no vector but zero rows, or a number is NaN or infinite.

    Notes
    -----
    t-SNE (van der Maaten and Hinton 2008) with perplexity 30, begun at the principal components, on vectors of length
    1. With openTSNE (the extra map) it is fitted on up to 50,000 different vectors, without it by scikit-learn on up to
    5,000. Each other one lies next to the nearest of these. Fewer than 10 different vectors are placed by PCA.

    Examples
    --------
    >>> import isosent
    >>> from isosent.search import neighbor_map
    >>> drawn = neighbor_map(isosent.load("wordllama").encode(isosent.demo_texts()[:9]))
    >>> drawn.places.shape, drawn.method
    ((9, 2), 'PCA')
    """
    _check.whole_number("neighbor_map", "seed", seed, 0)
    units = compared_units("neighbor_map", None, None, vectors, progress)
    first_rows, place_of_row = distinct(None, units)
    is_drawn = nonzero_rows(units[first_rows])
    rows = np.array(first_rows, np.intp)[is_drawn]
    if not rows.size:
        raise InputError("all rows are zero: no text has a vector, so there is nothing to draw.", where="neighbor_map")
    near = near_others(units[rows], min(N_NEIGHBORS, len(rows) - 1), most_exact=MOST_EXACT, seed=seed)
    if near.sample is not None and near.nearest is not None:
        near.cosines[near.sample], near.places[near.sample] = near.nearest
    measured = np.arange(len(rows)) if near.sample is None else near.sample
    places, method, n_fitted = _placed(units[rows], seed, progress)
    place = np.where(is_drawn, np.cumsum(is_drawn) - 1, -1)[place_of_row]

    def of_rows(values: NDArray[Any], missing: float) -> NDArray[Any]:
        return np.where(place[:, None] < 0, values.dtype.type(missing), values[place])

    all_places, neighbors = of_rows(places, np.nan), of_rows(rows[near.places], -1)
    return NeighborMap(
        all_places,
        neighbors,
        of_rows(near.cosines, np.nan),
        method,
        n_fitted,
        rows,
        rows[measured],
        _share_kept(all_places, rows, rows[measured], neighbors),
    )


def _share_kept(
    places: Places, rows: NDArray[np.intp], measured: NDArray[np.intp], neighbors: NDArray[np.intp]
) -> float:
    """Share of the neighbors of the measured rows that are also among the nearest places of rows."""
    from scipy.spatial import cKDTree

    nearest, k = neighbors[measured], neighbors.shape[1]
    if not k:
        return float("nan")
    rows = rows[np.isfinite(places[rows, 0])]  # those of another map may be zero rows here
    asking = np.flatnonzero(np.isfinite(places[measured, 0]))
    _, near = cKDTree(places[rows]).query(places[measured[asking]], min(k + 1, len(rows)), workers=n_workers())
    found = rows[near.reshape(len(asking), -1)]
    is_itself = found == measured[asking, None]
    is_itself[~is_itself.any(axis=1), -1] = True  # of many at one place: it was not found, so there is one too many
    is_kept = (nearest[asking][:, :, None] == np.where(is_itself, -1, found)[:, None, :]).any(axis=2)
    return float(is_kept.sum() / nearest.size)


# -- placing ---------------------------------------------------------------------------------------------------------


def _placed(units: NDArray[np.float32], seed: int, progress: Progress | None) -> tuple[Places, str, int]:
    """Places of different unit vectors, the method, and how many it was fitted on."""
    if len(units) < _FEWEST:
        return _principal_places(units), _PCA, len(units)
    method, fitted_places = _tsne()
    sample = np.sort(np.random.default_rng(seed).permutation(len(units))[: _MOST_FITTED[method]])
    fitted = fitted_places(units[sample], seed, progress).astype(np.float32)
    if len(sample) == len(units):
        return fitted, method, len(sample)
    rest = np.setdiff1d(np.arange(len(units)), sample, assume_unique=True)
    places = np.empty((len(units), 2), np.float32)
    places[sample], places[rest] = fitted, _placed_next_to(units[rest], units[sample], fitted, seed)
    return places, method, len(sample)


def _placed_next_to(units: NDArray[np.float32], fitted: NDArray[np.float32], places: Places, seed: int) -> Places:
    """Places next to that of the nearest fitted vector, nearer than to any other place.

    The mean or the median of several neighbors keeps half as many: these lie in several parts of the map.
    """
    from scipy.spatial import cKDTree

    nearest = nearest_among(units, fitted, 1)[1][:, 0]
    distances = np.asarray(cKDTree(places).query(places, [2], workers=n_workers())[0])[:, 0]  # 1 is the place itself
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0, 2 * np.pi, len(units))
    radii = distances[nearest] / 2 * np.sqrt(rng.uniform(size=len(units)))
    offsets = radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return (places[nearest] + offsets).astype(np.float32)


def _principal_places(units: NDArray[np.float32]) -> Places:
    """The first two principal components; zeros where there are fewer."""
    centered = units - units.mean(axis=0)
    u, s, _ = np.linalg.svd(centered, full_matrices=False)
    components = (u * s)[:, :2]
    return np.pad(components, ((0, 0), (0, 2 - components.shape[1]))).astype(np.float32)


def _tsne() -> tuple[str, Callable[[NDArray[np.float32], int, Progress | None], NDArray[Any]]]:
    try:
        _extras.require("openTSNE")
    except MissingExtraError:
        return _SLOW_TSNE, _by_sklearn
    return _OPEN_TSNE, _by_open_tsne


def missing_library(drawn: NeighborMap) -> MissingExtraError | None:
    """The library that would have placed more vectors by t-SNE."""
    if drawn.method == _SLOW_TSNE and drawn.n_fitted < len(drawn.distinct_rows):
        try:
            _extras.require("openTSNE")
        except MissingExtraError as error:
            return error
    return None


def _perplexity(n_rows: int) -> float:
    return min(_PERPLEXITY, (n_rows - 1) / 3)


def _n_threads(n_rows: int) -> int:
    return n_workers() if n_rows > _FEWEST_FOR_THREADS else 1  # threads of OpenMP wait for each other in every step


def _by_open_tsne(units: NDArray[np.float32], seed: int, progress: Progress | None) -> NDArray[Any]:
    steps = iter(range(0, sum(_N_STEPS) + 1, _STEPS_A_CALL))

    def count(*_: object) -> None:
        if progress:
            progress(next(steps), sum(_N_STEPS))

    count()
    tsne = _extras.require("openTSNE").TSNE(
        perplexity=_perplexity(len(units)),
        early_exaggeration_iter=_N_STEPS[0],
        n_iter=_N_STEPS[1],
        n_jobs=_n_threads(len(units)),
        random_state=seed,
        callbacks=count,
        callbacks_every_iters=_STEPS_A_CALL,
    )
    return np.asarray(tsne.fit(units))


def _by_sklearn(units: NDArray[np.float32], seed: int, progress: Progress | None) -> NDArray[Any]:
    from sklearn.manifold import TSNE

    with threadpool_limits(_n_threads(len(units)), user_api="openmp"):
        return np.asarray(TSNE(perplexity=_perplexity(len(units)), random_state=seed).fit_transform(units))
