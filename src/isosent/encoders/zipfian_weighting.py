"""Words whitened by their frequency, ahead of any weighting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.corpus import Corpus
from isosent.encoders.weighting import Average, Weighting, Words
from isosent.errors import InputError
from isosent.numeric.gem import PrincipalVectors
from isosent.numeric.moments import Moments
from isosent.transforms.base import LinearTransform


@dataclass(frozen=True, slots=True)
class ZipfianWhitening(Weighting):
    """Word vectors whitened by the frequencies of words, then any other weighting (Yokoi et al. 2024).

    Parameters
    ----------
    then : Weighting, default Average()
        What makes one vector of the whitened word vectors.

    Notes
    -----
    Mean and covariance of the word vectors are weighted by unigram probability; Yokoi, Bao, Kurita & Shimodaira 2024,
    *Zipfian Whitening*, arXiv 2411.00680.
    """

    whitens_words: ClassVar[bool] = True
    uses_frequencies: ClassVar[bool] = True
    then: Weighting = field(default_factory=Average)

    def __post_init__(self) -> None:
        if not isinstance(self.then, Weighting) or isinstance(self.then, ZipfianWhitening):
            raise InputError(f"ZipfianWhitening: then must be another weighting; got {self.then!r}.")

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the other, with "zipfian" in front."""
        return f"zipfian_{self.then.name}"

    @property
    def is_linear(self) -> bool:  # type: ignore[override]
        """As the other is."""
        return self.then.is_linear

    @property
    def learns(self) -> bool:
        """Whether the other does."""
        return self.then.learns

    def dim(self, word_dim: int) -> int:
        """That of the other."""
        return self.then.dim(word_dim)

    def check(self, word_dim: int) -> None:
        """Check as the other does."""
        self.then.check(word_dim)

    def word_weights(self, corpus: Corpus) -> NDArray[np.float64] | None:
        """Return those of the other."""
        return self.then.word_weights(corpus)

    @property
    def has_principal(self) -> bool:
        """Whether the other does."""
        return self.then.has_principal

    def coarse(self, words: Words) -> NDArray[np.float32]:
        """Return those of the other."""
        return self.then.coarse(words)

    def principal(self, moments: Moments) -> PrincipalVectors:
        """Return those of the other."""
        return self.then.principal(moments)

    def combine(self, words: Words, corpus: Corpus) -> NDArray[np.float32]:
        """Combine as the other does."""
        return self.then.combine(words, corpus)

    def transform(self) -> LinearTransform | None:
        """Return that of the other."""
        return self.then.transform()
