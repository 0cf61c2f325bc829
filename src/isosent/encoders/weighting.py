"""How the vectors of a text's words become one vector: the zero-training methods, as settings and nothing else."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.corpus import Corpus
from isosent.errors import InputError
from isosent.numeric.frequency_weights import sif_weights, usif_weights
from isosent.numeric.gem import PrincipalVectors
from isosent.numeric.moments import Moments
from isosent.numeric.word_averages import balanced_means, power_means, weighted_means
from isosent.transforms.base import LinearTransform
from isosent.transforms.choice import make_linear


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The words of some texts, as a weighting sees them.

    Parameters
    ----------
    rows : ndarray of shape (n, dim), float32
        Word vectors.
    products : ndarray of shape (n, K rounded up to a multiple of 16), float64
        Their products with the principal vectors of the corpus.
    ids : ndarray of shape (n_tokens,), int32
        Row of each word, one text behind the other.
    offsets : ndarray of shape (n_texts + 1,), int64
        Text i has ``ids[offsets[i]:offsets[i + 1]]``.
    weights : ndarray of shape (n_tokens,), float32, or None
        Weight of each word by its frequency.
    """

    rows: NDArray[np.float32]
    products: NDArray[np.float64]
    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float32] | None


class Weighting(ABC):
    """A way to make one vector of word vectors."""

    name: ClassVar[str]
    uses_frequencies: ClassVar[bool] = False
    whitens_words: ClassVar[bool] = False
    is_linear: ClassVar[bool] = False

    @property
    def learns(self) -> bool:
        """Whether it has to see a corpus, for more than the frequencies of words."""
        return self.transform() is not None

    def dim(self, word_dim: int) -> int:
        """Dimensions of the vectors that it makes of word vectors of `word_dim` dimensions."""
        return word_dim

    def check(self, word_dim: int) -> None:  # noqa: B027 - most fit any
        """Refuse word vectors that have too few dimensions for it."""

    def word_weights(self, corpus: Corpus) -> NDArray[np.float64] | None:
        """Weight of each word of the vocabulary, and of any unknown one behind them; None for 1."""
        return None

    @property
    def has_principal(self) -> bool:
        """Whether it takes principal vectors of a corpus."""
        return False

    def coarse(self, words: Words) -> NDArray[np.float32]:
        """Vectors, one a text, whose moments over a corpus tell its principal vectors."""
        raise NotImplementedError

    def principal(self, moments: Moments) -> PrincipalVectors:
        """Principal vectors from the moments of what `coarse` returned."""
        raise NotImplementedError

    @abstractmethod
    def combine(self, words: Words, corpus: Corpus) -> NDArray[np.float32]:
        """Return one vector a text, shape (n_texts, dim); zero for a text without words."""

    def transform(self) -> LinearTransform | None:
        """The linear step that belongs to the method, to be fitted behind it on the corpus."""
        return None


@dataclass(frozen=True, slots=True)
class Average(Weighting):
    """Mean of the word vectors."""

    name: ClassVar[str] = "mean"
    is_linear: ClassVar[bool] = True

    def combine(self, words: Words, corpus: Corpus) -> NDArray[np.float32]:
        """Return the means."""
        return weighted_means(words.rows, words.ids, words.offsets)


@dataclass(frozen=True, slots=True)
class SIF(Weighting):
    """Mean weighted by smooth inverse frequency, without the common components (Arora et al. 2017).

    Parameters
    ----------
    a : float, default 1e-3
        Smoothing constant, see `sif_weights`.
    n_components : int, default 1
        Common components that are removed; 0 for none.

    Notes
    -----
    Arora, Liang & Ma 2017, *A Simple but Tough-to-Beat Baseline for Sentence Embeddings*, algorithm 1. The components
    are the first singular vectors of the corpus it is fitted on, uncentred.
    """

    name: ClassVar[str] = "sif"
    uses_frequencies: ClassVar[bool] = True
    is_linear: ClassVar[bool] = True
    a: float = 1e-3
    n_components: int = 1

    def __post_init__(self) -> None:
        _check.above_zero("SIF", "a", self.a)
        _check.whole_number("SIF", "n_components", self.n_components, 0)

    def check(self, word_dim: int) -> None:
        """Refuse to remove as many components as there are dimensions."""
        _check_below("SIF", self.n_components, word_dim)

    def word_weights(self, corpus: Corpus) -> NDArray[np.float64]:
        """Return a / (a + p)."""
        return sif_weights(corpus.probabilities_and_none(), self.a)

    def combine(self, words: Words, corpus: Corpus) -> NDArray[np.float32]:
        """Return the weighted means."""
        return weighted_means(words.rows, words.ids, words.offsets, words.weights)

    def transform(self) -> LinearTransform | None:
        """Return the removal of the common components."""
        return _removal(self.n_components) if self.n_components else None


@dataclass(frozen=True, slots=True)
class USIF(Weighting):
    """Unsupervised smooth inverse frequency (Ethayarajh 2018).

    Parameters
    ----------
    n_components : int, default 5
        Common components that are removed, each by its share of their variance; 0 for none.

    Notes
    -----
    Ethayarajh 2018, *Unsupervised Random Walk Sentence Embeddings*: weights without a parameter (`usif_weights`),
    coordinates divided by their norm over a text (`balanced_means`), piecewise removal of components.
    """

    name: ClassVar[str] = "usif"
    uses_frequencies: ClassVar[bool] = True
    n_components: int = 5

    def __post_init__(self) -> None:
        _check.whole_number("USIF", "n_components", self.n_components, 0)

    @property
    def learns(self) -> bool:
        """True: it takes the mean length of texts."""
        return True

    def check(self, word_dim: int) -> None:
        """Refuse to remove as many components as there are dimensions."""
        _check_below("USIF", self.n_components, word_dim)

    def word_weights(self, corpus: Corpus) -> NDArray[np.float64]:
        """Return the weights that frequencies and mean length give."""
        return usif_weights(corpus.probabilities_and_none(), corpus.mean_length)

    def combine(self, words: Words, corpus: Corpus) -> NDArray[np.float32]:
        """Return the balanced weighted means."""
        weights = np.ones(len(words.ids), np.float32) if words.weights is None else words.weights
        return balanced_means(words.rows, words.ids, words.offsets, weights)

    def transform(self) -> LinearTransform | None:
        """Return the removal of the common components."""
        return _removal(self.n_components, by_share=True) if self.n_components else None


@dataclass(frozen=True, slots=True)
class PowerMean(Weighting):
    """Concatenated power means (Rueckle et al. 2018).

    Parameters
    ----------
    powers : sequence of float, default (-inf, 1, inf)
        Each above 0, or -inf for the minimum; inf is the maximum.
    z_norm : bool, default True
        Whether every dimension is centred and divided by its standard deviation over the corpus.

    Notes
    -----
    Rueckle, Eger, Peyrard & Gurevych 2018, *Concatenated Power Mean Word Embeddings*, arXiv 1803.01400.
    """

    name: ClassVar[str] = "p_mean"
    powers: Sequence[float] = (-math.inf, 1.0, math.inf)
    z_norm: bool = True

    def __post_init__(self) -> None:
        powers = self.powers if isinstance(self.powers, Iterable) else ()
        fit = [isinstance(p, (int, float, np.number)) and (p > 0 or p == -math.inf) for p in powers]
        if not fit or not all(fit):
            raise InputError(f"PowerMean: powers must be numbers above 0, inf or -inf; got {self.powers!r}.")

    def dim(self, word_dim: int) -> int:
        """One width a power."""
        return word_dim * len(self.powers)

    def combine(self, words: Words, corpus: Corpus) -> NDArray[np.float32]:
        """Return the power means."""
        return power_means(words.rows, words.ids, words.offsets, self.powers)

    def transform(self) -> LinearTransform | None:
        """Return the z-normalisation."""
        return make_linear("standardize") if self.z_norm else None


def _check_below(where: str, n_components: int, dim: int) -> None:
    if n_components >= dim:
        raise InputError(
            f"{where}: n_components must be below the {dim} dimensions of the word vectors; got {n_components}."
        )


def _removal(n_components: int, *, by_share: bool = False) -> LinearTransform:
    return make_linear("common_component_removal", settings={"n_components": n_components, "by_share": by_share})
