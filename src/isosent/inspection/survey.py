"""One pass over vectors: what is wrong with the rows, their moments, and a sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.inspection.blocks import VectorBlocks
from isosent.numeric.isotropy import (
    effective_rank,
    isoscore,
    mean_cosine_of_sum,
    participation_ratio,
    uniformity,
)
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import random_cosines, unit_rows
from isosent.numeric.spectrum import spectrum

SAMPLE_ROWS = 20_000
COSINE_PAIRS = 100_000


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows, and what is wrong with them.

    Parameters
    ----------
    n_rows : int
        All rows.
    n_used : int
        Rows that are neither zero nor non-finite: all other figures are theirs.
    dim : int
        Dimensions.
    dtype : str
        Type of the numbers as they came.
    n_zero : int
        Rows of zeros, which stand for "no vector".
    n_non_finite : int
        Rows with NaN or infinity.
    n_duplicates : int
        Used rows that equal an earlier one, number by number.
    n_duplicate_texts : int or None
        Texts that equal an earlier one; None where only vectors are known.
    """

    n_rows: int
    n_used: int
    dim: int
    dtype: str
    n_zero: int
    n_non_finite: int
    n_duplicates: int
    n_duplicate_texts: int | None

    @property
    def rows_per_dim(self) -> float:
        """Used rows for each dimension."""
        return self.n_used / self.dim

    @property
    def n_pairs(self) -> int:
        """Pairs of different used rows."""
        return self.n_used * (self.n_used - 1) // 2


@dataclass(frozen=True, slots=True)
class SpaceFigures:
    """How vectors fill their space. A figure that is undefined is NaN.

    Parameters
    ----------
    dim : int
        Dimensions.
    relative_mean_norm : float
        Length of the mean over the mean length, in [0, 1].
    mean_cosine : float
        Mean cosine of two different vectors, over all pairs.
    cosine_sd : float
        Standard deviation over random pairs.
    cosine_p05, cosine_p50, cosine_p95 : float
        Percentiles over random pairs.
    isoscore : float
        In [0, 1], see `isoscore`.
    effective_rank : float
        In [1, dim].
    participation_ratio : float
        In [1, dim].
    uniformity : float
        At most 0, lower is more uniform.
    top_dimension_share : float
        Share of the variance that the coordinate of largest variance has.
    top_axis_share : float
        Share of the variance along the first principal axis.
    """

    dim: int
    relative_mean_norm: float
    mean_cosine: float
    cosine_sd: float
    cosine_p05: float
    cosine_p50: float
    cosine_p95: float
    isoscore: float
    effective_rank: float
    participation_ratio: float
    uniformity: float
    top_dimension_share: float
    top_axis_share: float


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What one pass over vectors tells.

    Parameters
    ----------
    counts : RowCounts
        Rows, good and bad.
    moments : Moments
        Those of the used rows.
    mean_norm : float
        Their mean length.
    unit_sum : ndarray of shape (dim,), float64
        Sum of their directions.
    sample : ndarray of shape (n_sample, dim), float
        A random part of them, at most `SAMPLE_ROWS`, in their order.
    """

    counts: RowCounts
    moments: Moments
    mean_norm: float
    unit_sum: NDArray[np.float64]
    sample: NDArray[np.floating]

    def eigenvalues(self) -> NDArray[np.float64]:
        """Return the variances along the principal axes, descending, rounding noise as 0.

        Returns
        -------
        ndarray of shape (dim,), float64
            Eigenvalues of the covariance.
        """
        found = spectrum(self.moments.covariance, noise=self.moments.rounding_variance)
        values = found.values.copy()
        values[found.rank :] = 0
        return values

    def cosines(self, *, seed: int) -> NDArray[np.float64]:
        """Draw pairs from the sample.

        Parameters
        ----------
        seed : int
            Of the draw; the same pairs of rows for every survey of as many sampled rows.

        Returns
        -------
        ndarray of shape (n_pairs,), float64
            Cosines of `COSINE_PAIRS` pairs; none below two rows.
        """
        if len(self.sample) < 2:
            return np.empty(0)
        return random_cosines(self.sample, n_pairs=COSINE_PAIRS, seed=seed)

    def figures(self, cosines: NDArray[np.float64], eigenvalues: NDArray[np.float64]) -> SpaceFigures:
        """Describe the space.

        Parameters
        ----------
        cosines : ndarray of shape (n_pairs,), float64
            What `cosines` gave.
        eigenvalues : ndarray of shape (dim,), float64
            What `eigenvalues` gave.

        Returns
        -------
        SpaceFigures
            The figures.
        """
        moments, nan = self.moments, float("nan")
        some = eigenvalues[0] > 0
        low, middle, high = np.quantile(cosines, [0.05, 0.5, 0.95]) if len(cosines) else (nan, nan, nan)
        return SpaceFigures(
            dim=moments.dim,
            relative_mean_norm=float(np.linalg.norm(moments.mean / self.mean_norm)) if self.mean_norm else nan,
            mean_cosine=mean_cosine_of_sum(self.unit_sum, self.counts.n_used),
            cosine_sd=float(cosines.std()) if len(cosines) else nan,
            cosine_p05=float(low),
            cosine_p50=float(middle),
            cosine_p95=float(high),
            isoscore=isoscore(eigenvalues),
            effective_rank=effective_rank(eigenvalues),
            participation_ratio=participation_ratio(eigenvalues),
            uniformity=uniformity(cosines),
            top_dimension_share=float(moments.scatter.diagonal().max() / np.trace(moments.scatter)) if some else nan,
            top_axis_share=float(eigenvalues[0] / eigenvalues.sum()) if some else nan,
        )


def survey(
    vectors: VectorBlocks,
    *,
    seed: int,
    n_duplicate_texts: int | None = None,
    progress: Callable[[int], Callable[[int], None]] | None = None,
) -> Survey:
    """Look at vectors once, block by block.

    Parameters
    ----------
    vectors : VectorBlocks
        The vectors. Rows of zeros and rows with NaN or infinity are counted and left out.
    seed : int
        Of the sample.
    n_duplicate_texts : int, optional
        Noted in the counts.
    progress : callable, optional
        Called once with the number of rows; returns what is called with the number of rows finished.

    Returns
    -------
    Survey
        What was seen.

    Notes
    -----
    Memory: a block, the sample, a few matrices of shape (dim, dim), and for the duplicates, told by a 64-bit hash,
    eight bytes a row. -0 equals 0.
    """
    rng, n_rows, dim = np.random.default_rng(seed), vectors.n_rows, vectors.dim
    wanted = np.sort(rng.choice(n_rows, min(n_rows, SAMPLE_ROWS), replace=False))
    advance = None if progress is None else progress(n_rows)
    start = n_zero = n_non_finite = 0
    moments, unit_sum, norms = Moments.empty(dim), np.zeros(dim), 0.0
    hashes, sample = [np.empty(0, np.int64)], [np.empty((0, dim), np.float32)]
    for block in vectors.blocks():
        finite, filled = np.isfinite(block).all(axis=1), block.any(axis=1)
        used = finite & filled
        n_non_finite += int((~finite).sum())
        n_zero += int((~filled).sum())
        first, last = np.searchsorted(wanted, [start, start + len(block)])
        picked = wanted[first:last] - start
        sample.append(_floats(block[picked[used[picked]]]))
        start += len(block)
        rows = block if used.all() else block[used]
        hashes.append(_row_hashes(rows))
        moments += Moments.from_rows(rows, eps=vectors.eps, n_rows_total=n_rows)
        directions, lengths = _directions(rows)
        unit_sum += directions
        norms += lengths
        if advance:
            advance(len(block))
    all_hashes = np.concatenate(hashes)
    counts = RowCounts(
        n_rows=start,
        n_used=len(all_hashes),
        dim=dim,
        dtype=vectors.dtype,
        n_zero=n_zero,
        n_non_finite=n_non_finite,
        n_duplicates=len(all_hashes) - len(np.unique(all_hashes)),
        n_duplicate_texts=n_duplicate_texts,
    )
    return Survey(counts, moments, norms / max(len(all_hashes), 1), unit_sum, np.concatenate(sample))


def _floats(rows: NDArray[Any]) -> NDArray[np.floating]:
    return rows if rows.dtype == np.float64 else rows.astype(np.float32)


def _directions(rows: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
    """Sum of the unit vectors, and sum of the lengths: products with them, which never underflow as squares do."""
    floats = rows.astype(np.float64)
    units = unit_rows(floats)
    return units.sum(axis=0), float(np.einsum("ij,ij->", floats, units))


def _row_hashes(rows: NDArray[Any]) -> NDArray[np.int64]:
    """A 64-bit hash of the bytes of each row."""
    positive = np.ascontiguousarray(rows if rows.dtype.kind != "f" else rows + rows.dtype.type(0))
    whole_rows = positive.view(np.dtype((np.void, positive.dtype.itemsize * positive.shape[1]))).ravel()
    return np.fromiter(map(hash, whole_rows.tolist()), np.int64, len(rows))
