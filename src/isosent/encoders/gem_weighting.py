"""GEM as a weighting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.corpus import Corpus
from isosent.encoders.weighting import Weighting, Words
from isosent.errors import InputError
from isosent.numeric.gem import SCORES, GemSettings, PrincipalVectors, coarse_vectors, gem_vectors
from isosent.numeric.moments import Moments


@dataclass(frozen=True, slots=True)
class GEM(Weighting):
    """Geometric embedding by orthogonal bases (Yang, Zhu & Chen 2019), see `gem_vectors`.

    Parameters
    ----------
    window : int, default 7
        Words on each side that a word is compared with, m; at most 64.
    n_candidates : int, default 45
        Principal vectors of the corpus, K; at most the dimensions.
    n_removed : int, default 17
        Those of them that count for a text and are removed from it, h; at most `n_candidates`.
    power : float, default 3.0
        Power of the singular values in the coarse vectors, t; at least 0.
    removal : {"sdr", "sir", "none"}, default "sdr"
        By sentence, the strongest of the corpus, or nothing, as for supervised tasks.
    scores : sequence of {"novelty", "significance", "uniqueness"}, default all
        Scores that add up to the weight of a word.
    significance : {"columns", "window"}, default "columns"
        Divisor of the significance score.
    ranking : {"weighted", "unweighted"}, default "weighted"
        Whether singular values count in the choice of principal vectors; "unweighted" for CQA, with a window of 6 and
        15 removed.
    uniqueness : {"published", "scaled"}, default "published"
        Whether the uniqueness score takes singular values over `n_removed`, or over the largest.

    Raises
    ------
    InputError
        If a setting is out of range.
    """

    name: ClassVar[str] = "gem"
    window: int = 7
    n_candidates: int = 45
    n_removed: int = 17
    power: float = 3.0
    removal: str = "sdr"
    scores: Sequence[str] = SCORES
    significance: str = "columns"
    ranking: str = "weighted"
    uniqueness: str = "published"
    _settings: GemSettings = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shared = {each.name: getattr(self, each.name) for each in fields(GemSettings)}
        object.__setattr__(self, "_settings", GemSettings(**shared))
        _check.whole_number("GEM", "n_candidates", self.n_candidates, 1)
        _check.not_negative("GEM", "power", self.power)
        if self.n_removed > self.n_candidates:
            raise InputError(f"GEM: n_removed must be at most n_candidates, {self.n_candidates}; got {self.n_removed}.")

    @property
    def has_principal(self) -> bool:
        """Whether anything of it takes principal vectors."""
        return self.removal != "none" or "uniqueness" in self.scores

    @property
    def learns(self) -> bool:
        """Whether it takes principal vectors."""
        return self.has_principal

    def check(self, word_dim: int) -> None:
        """Refuse more candidates than dimensions."""
        if self.n_candidates > word_dim:
            raise InputError(
                f"GEM: n_candidates must be at most the {word_dim} dimensions of the word vectors; "
                f"got {self.n_candidates}."
            )

    def coarse(self, words: Words) -> NDArray[np.float32]:
        """Return the coarse vectors."""
        return coarse_vectors(words.rows, words.ids, words.offsets, power=self.power)

    def principal(self, moments: Moments) -> PrincipalVectors:
        """Return the principal vectors."""
        return PrincipalVectors.from_moments(moments, self.n_candidates)

    def combine(self, words: Words, corpus: Corpus) -> NDArray[np.float32]:
        """Return the vectors of GEM."""
        principal = corpus.principal or PrincipalVectors(np.empty((0, words.rows.shape[1])), np.empty(0))
        return gem_vectors(
            words.rows, words.products, words.ids, words.offsets, principal=principal, settings=self._settings
        )
