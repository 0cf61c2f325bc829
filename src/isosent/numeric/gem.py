"""GEM: zero-training sentence vectors by orthogonal bases (Yang, Zhu & Chen 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.numeric.gem_kernels import coarse_kernel, gem_kernel
from isosent.numeric.moments import Moments
from isosent.numeric.spectrum import spectrum
from isosent.numeric.threads import one_thread_products, over_chunks

SCORES = ("novelty", "significance", "uniqueness")
REMOVALS = ("sdr", "sir", "none")
SIGNIFICANCES = ("columns", "window")
RANKINGS = ("weighted", "unweighted")
UNIQUENESSES = ("published", "scaled")
WIDEST_WINDOW = 64  # what is done for a word grows with the square of its window


@dataclass(frozen=True, slots=True)
class GemSettings:
    """How GEM weighs the words of a text."""

    window: int = 7  # words on each side that a word is compared with, m; in 1 ... 64
    n_removed: int = 17  # principal vectors of the corpus that count for a text, h; at least 1
    # Sentence-dependent removal takes the `n_removed` that a text points to most, sentence-independent removal the
    # strongest of the corpus. "none" chooses as "sdr" does for the uniqueness score, and removes nothing
    removal: str = "sdr"
    scores: Sequence[str] = SCORES  # scores that are added up to the weight of a word
    # Divisor of the significance score: the words that the window has, or 2 m + 1 (equation 6 as printed)
    significance: str = "columns"
    ranking: str = "weighted"  # whether singular values count when a text's principal vectors are ranked
    # Whether the uniqueness score takes singular values over h, or over the largest of the corpus, which makes it
    # independent of the size of the corpus and the length of word vectors
    uniqueness: str = "published"

    def __post_init__(self) -> None:
        _check.whole_number("GEM", "window", self.window, 1)
        if self.window > WIDEST_WINDOW:
            raise InputError(f"GEM: window must be at most {WIDEST_WINDOW}; got {self.window}.")
        _check.whole_number("GEM", "n_removed", self.n_removed, 1)
        _check.one_of("GEM", "removal", self.removal, REMOVALS)
        _check.one_of("GEM", "significance", self.significance, SIGNIFICANCES)
        _check.one_of("GEM", "ranking", self.ranking, RANKINGS)
        _check.one_of("GEM", "uniqueness", self.uniqueness, UNIQUENESSES)
        if not self.scores or len(set(self.scores)) < len(self.scores) or set(self.scores) - set(SCORES):
            raise InputError(f"GEM: scores must be some of {', '.join(SCORES)}, each once; got {self.scores!r}.")


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalVectors:
    """What GEM knows of a corpus."""

    vectors: NDArray[np.float64]  # left singular vectors of the coarse vectors of its texts, strongest first, as rows
    # Theirs; they grow with the root of the number of texts, and with the third power of the length of word vectors
    singular_values: NDArray[np.float64]

    @classmethod
    def from_moments(cls, moments: Moments, n_candidates: int) -> PrincipalVectors:
        """Take them from the moments of coarse vectors; moments of the parts of a corpus add up to those of the whole."""  # noqa: E501
        if n_candidates > moments.dim:
            raise InputError(
                f"GEM: n_candidates must be at most the {moments.dim} dimensions of the vectors; got {n_candidates}."
            )
        found = spectrum(moments.second_moment, noise=moments.rounding_variance)
        n_found = min(n_candidates, found.rank)
        vectors = np.ascontiguousarray(found.vectors[:, :n_found].T)
        return cls(vectors, np.sqrt(found.values[:n_found] * moments.weight))

    def products(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Products of word vectors with each of them, as `gem_vectors` takes them."""
        n_found = len(self.vectors)
        products = np.zeros((len(rows), -(-n_found // 16) * 16))
        with one_thread_products():
            products[:, :n_found] = rows.astype(np.float64) @ self.vectors.T
        return products


def coarse_vectors(
    rows: NDArray[np.float32], ids: NDArray[np.int32], offsets: NDArray[np.int64], *, power: float = 3.0
) -> NDArray[np.float32]:
    """Coarse sentence vectors, from which GEM takes the principal vectors of a corpus."""
    # :math:`g = \sum_j \sigma_j^t U_j` (equation 7) with :math:`S = U \operatorname{diag}(\sigma) V^\top` and words
    # as columns of S. A singular vector is defined up to its sign; here each :math:`U_j` points to the side of the
    # mean of the text's words, and where that is perpendicular to it (to 1e-6), to the side of the first word that is
    # not. So the result does not depend on the linear-algebra library. Singular values that are rounding noise take
    # no part. Computed in float64, from the n x n Gram matrix or, for texts of more words than dimensions, from the
    # dim x dim one.
    vectors = np.empty((len(offsets) - 1, rows.shape[1]), dtype=np.float32)
    over_chunks(lambda *chunk: coarse_kernel((rows, ids, offsets), float(power), chunk, vectors), offsets)
    return vectors


def gem_vectors(
    rows: NDArray[np.float32],
    products: NDArray[np.float64],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    *,
    principal: PrincipalVectors,
    settings: GemSettings,
) -> NDArray[np.float32]:
    """Sentence vectors of GEM."""
    # Algorithm 1 of the paper. A word v is split into its projection on the other words of its window and the
    # residual :math:`r q`, q of length 1. Its weight is the sum of :math:`\alpha_n = \exp(r / \lVert v \rVert)`,
    # :math:`\alpha_s = r / \text{columns}` and :math:`\alpha_u = \exp(-\lVert \sigma_d \odot D^\top q \rVert / h)`
    # (equations 4 to 6 and 9), and :math:`c = \sum \alpha v`, :math:`c \leftarrow c - D D^\top c`, with D the h
    # principal vectors of the text.
    # Rank: a word with a residual of at most 1e-6 of its length has r = 0, q = 0 and so the weight 2, a repeated word
    # for one; it adds no direction for others either. The window is clipped at the ends of the text.
    # With ``uniqueness="scaled"``, :math:`\alpha_u = \exp(-\lVert (\sigma_d / \sigma_1) \odot D^\top q \rVert)`:
    # between 1/e and 1, where the published score is 0 or 1 for nearly every word.
    # Nothing but products of words is needed: the inverse of the Gram matrix of a window tells every residual, and
    # changes by one bordering and one elimination from word to word. Products of words are float32 there; a text with
    # a residual below a sixth of its word is done again by Gram-Schmidt in float64. Time grows linearly with the
    # words of a text, and with the square of the window.
    sigma = principal.singular_values
    strengths = sigma if settings.ranking == "weighted" else np.ones_like(sigma)
    n_chosen = min(settings.n_removed, len(sigma))
    in_score = sigma / sigma[:1] if settings.uniqueness == "scaled" else sigma / max(n_chosen, 1)
    options = (
        settings.window,
        n_chosen,
        strengths[:0] if settings.removal == "sir" else strengths,
        ("novelty" in settings.scores, "significance" in settings.scores, "uniqueness" in settings.scores),
        0 if settings.significance == "columns" else 2 * settings.window + 1,
        settings.removal != "none",
    )
    texts = (rows, products, ids, offsets)
    corpus = (principal.vectors, principal.vectors.astype(np.float32), in_score)
    vectors = np.empty((len(offsets) - 1, rows.shape[1]), dtype=np.float32)
    over_chunks(lambda *chunk: gem_kernel(texts, corpus, options, chunk, vectors), offsets)
    return vectors
