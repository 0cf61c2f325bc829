"""GEM: sentence vectors without training, by orthogonal bases (Yang, Zhu & Chen 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import wrong_value
from isosent.numeric.gem_kernels import coarse_kernel, gem_kernel
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.spectrum import spectrum
from isosent.numeric.threads import over_chunks

SCORES = ("novelty", "significance", "uniqueness")
WIDEST_WINDOW = 64  # the work for a word grows with the square of its window


@dataclass(frozen=True, eq=False)
class PrincipalVectors:
    """Principal vectors of the coarse vectors of a corpus, strongest first."""

    vectors: NDArray[np.float64]  # (n_candidates, dim), unit rows
    # (n_candidates,); they grow with the root of the number of texts, and with the third power of the length of the
    # word vectors (the default `power`)
    singular_values: NDArray[np.float64]

    @classmethod
    def from_moments(cls, moments: Moments, n_candidates: int) -> PrincipalVectors:
        """Compute them from the moments of coarse vectors."""
        if n_candidates > moments.dim:
            raise wrong_value(
                "GEM", "n_candidates", f"be at most {moments.dim}, the dimensions of the vectors", n_candidates
            )
        eigen = spectrum(moments.second_moment, noise=moments.rounding_variance)
        n_vectors = min(n_candidates, eigen.rank)
        vectors = np.ascontiguousarray(eigen.vectors[:, :n_vectors].T)
        return cls(vectors, np.sqrt(eigen.values[:n_vectors] * moments.weight))

    def products(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Products of word vectors with the principal vectors, (n_rows, n_candidates rounded up to 16, zeros last)."""
        n_vectors = len(self.vectors)
        products = np.zeros((len(rows), -(-n_vectors // 16) * 16))  # as `gem_kernels.padded` computes
        products[:, :n_vectors] = self._map.apply(rows)
        return products

    @cached_property
    def _map(self) -> LinearMap:  # which has the same bits in any batch
        return LinearMap(self.vectors.T, np.zeros(len(self.vectors)))


def check_settings(
    *,
    window: int,
    n_removed: int,
    removal: str,
    scores: Sequence[str],
    significance: str,
    ranking: str,
    uniqueness: str,
) -> None:
    """Refuse settings that `gem_vectors` cannot use."""
    _check.whole_number("GEM", "window", window, 1)
    if window > WIDEST_WINDOW:
        raise wrong_value("GEM", "window", f"be at most {WIDEST_WINDOW}", window)
    _check.whole_number("GEM", "n_removed", n_removed, 1)
    _check.one_of("GEM", "removal", removal, ("sdr", "sir", "none"))
    _check.one_of("GEM", "significance", significance, ("columns", "window"))
    _check.one_of("GEM", "ranking", ranking, ("weighted", "unweighted"))
    _check.one_of("GEM", "uniqueness", uniqueness, ("published", "scaled"))
    if not scores or len(set(scores)) < len(scores) or set(scores) - set(SCORES):
        raise wrong_value("GEM", "scores", f"be some of {', '.join(SCORES)}, each once", repr(scores))


def coarse_vectors(
    rows: NDArray[np.float32], ids: NDArray[np.int32], offsets: NDArray[np.int64], *, power: float = 3.0
) -> NDArray[np.float32]:
    """Coarse sentence vectors, (n_texts, dim), from which the principal vectors of a corpus are computed."""
    # g = sum_j sigma_j^t U_j (equation 7), with the words of a text as the columns of S = U diag(sigma) V^T. The sign
    # of a singular vector is arbitrary; here each U_j points to the side of the mean of the text's words, or where it
    # is perpendicular to the mean (to 1e-6), to the side of the first word that is not. So the result does not depend
    # on the linear-algebra library. Singular values that are rounding noise are left out. Computed in float64, from
    # the n x n Gram matrix or, for texts with more words than dimensions, from the dim x dim one.
    vectors = np.empty((len(offsets) - 1, rows.shape[1]), dtype=np.float32)
    over_chunks(lambda *chunk: coarse_kernel((rows, ids, offsets), float(power), chunk, vectors), offsets)
    return vectors


class GemVectors(NamedTuple):
    """Sentence vectors, and what they are made of."""

    vectors: NDArray[np.float32]  # (n_texts, dim)
    weights: NDArray[np.float64]  # of each word, (n_words,)
    chosen: NDArray[np.int64]  # principal vectors chosen for each text, (n_texts, n_chosen)


def gem_vectors(
    rows: NDArray[np.float32],
    products: NDArray[np.float64],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    *,
    principal: PrincipalVectors,
    window: int = 7,
    n_removed: int = 17,
    removal: str = "sdr",
    scores: Sequence[str] = SCORES,
    significance: str = "columns",
    ranking: str = "weighted",
    uniqueness: str = "published",
) -> GemVectors:
    """Sentence vectors of GEM, and what they are made of.

    `products` are those of `PrincipalVectors.products`; the settings are documented at `GEM`.
    """
    # Algorithm 1 of the paper. A word v is split into its projection on the other words of its window and the residual
    # r q, with q of length 1. Its weight is the sum of alpha_n = exp(r / |v|), alpha_s = r / columns and
    # alpha_u = exp(-|sigma_d * D^T q| / h) (equations 4 to 6 and 9). Then c = sum alpha v and c <- c - D D^T c, with D
    # the h principal vectors chosen for the text: those it points to most (sdr), or the strongest of the corpus (sir).
    # removal="none" chooses as sdr does, for the uniqueness score, and removes nothing.
    #
    # A word whose residual is at most 1e-6 of its length, such as a repeated word, has r = 0 and q = 0, so the weight
    # 2; it adds no direction for other words either. The window is clipped at the ends of the text.
    #
    # With uniqueness="scaled", alpha_u = exp(-|(sigma_d / sigma_1) * D^T q|) is between 1/e and 1; the published score
    # is 0 or 1 for nearly every word, depending on the size of the corpus and the length of word vectors.
    #
    # The kernel needs only products of words: the inverse of the Gram matrix of a window yields every residual, and
    # changes by one bordering and one elimination from word to word. These products are float32; a text with a residual
    # below a sixth of its word is repeated by Gram-Schmidt in float64. Time grows linearly with the words of a text,
    # and with the square of the window.
    sigma = principal.singular_values
    strengths = sigma if ranking == "weighted" else np.ones_like(sigma)
    n_chosen = min(n_removed, len(sigma))
    uniqueness_scale = sigma / sigma[:1] if uniqueness == "scaled" else sigma / max(n_chosen, 1)
    options = (
        window,
        n_chosen,
        strengths[:0] if removal == "sir" else strengths,
        ("novelty" in scores, "significance" in scores, "uniqueness" in scores),
        0 if significance == "columns" else 2 * window + 1,
        removal != "none",
    )
    texts = (rows, products, ids, offsets)
    corpus = (principal.vectors, principal.vectors.astype(np.float32), uniqueness_scale)
    n_texts = len(offsets) - 1
    vectors = np.empty((n_texts, rows.shape[1]), dtype=np.float32)
    weights, chosen = np.empty(len(ids)), np.empty((n_texts, n_chosen), dtype=np.int64)
    over_chunks(lambda *chunk: gem_kernel(texts, corpus, options, chunk, (vectors, weights, chosen)), offsets)
    return GemVectors(vectors, weights, chosen)
