"""Weightings: how the vectors of the words of a text become one vector.

A `Weighting` gets `Words`, the rows of some texts, and the `Corpus`, what was learned from texts: word probabilities,
mean length, the word map and principal vectors. `word_weights` says what a word counts, `combine` makes the vectors,
`summands` the parts that add up to one, and `transform` names the linear step that follows, such as the removal of
principal components. Only GEM has principal vectors: they come from the moments of its `coarse` vectors. A setting of a
weighting is a field of its class; `reference` turns fields into options.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, wrong_value
from isosent.numeric.gem import SCORES, GemVectors, PrincipalVectors, check_settings, coarse_vectors, gem_vectors
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.word_averages import balanced_means, power_means, sif_weights, usif_weights, weighted_means
from isosent.transforms.base import LinearTransform, make_linear


class Words(NamedTuple):
    """The words of some texts."""

    rows: NDArray[np.float32]  # word vectors
    products: NDArray[np.float64]  # of the rows with the principal vectors of the corpus
    ids: NDArray[np.int32]  # row of each word; text i has ``ids[offsets[i]:offsets[i + 1]]``
    offsets: NDArray[np.int64]
    weights: NDArray[np.float32] | None  # of each word, by its frequency


class Weighting(ABC):
    """Base of the weightings."""

    name: ClassVar[str]
    uses_frequencies: ClassVar[bool] = False
    whitens_words: ClassVar[bool] = False
    is_linear: ClassVar[bool] = False

    @property
    def learns(self) -> bool:
        """Whether it must be fitted on texts, for more than word frequencies."""
        return self.transform() is not None

    def dim(self, word_dim: int) -> int:
        """Dimensions of sentence vectors, from those of word vectors."""
        return word_dim

    def check(self, word_dim: int) -> None:  # noqa: B027
        """Refuse word vectors with too few dimensions."""

    def word_weights(self, corpus: Corpus) -> NDArray[np.float64] | None:
        """Weight of each word of the vocabulary, and last that of any unknown word; None for 1."""
        return None

    @property
    def has_principal(self) -> bool:
        """Whether it uses principal vectors of a corpus (GEM)."""
        return False

    def coarse(self, words: Words) -> NDArray[np.float32]:
        """One vector per text, from whose moments `principal` takes the principal vectors of a corpus."""
        raise NotImplementedError

    def principal(self, moments: Moments) -> PrincipalVectors:
        """Principal vectors of a corpus, from moments of its coarse vectors."""
        raise NotImplementedError

    @abstractmethod
    def combine(self, words: Words, corpus: Corpus) -> NDArray[np.float32]:
        """One vector per text, shape (n_texts, dim); zero for a text without words."""

    def summands(self, words: Words, corpus: Corpus) -> NDArray[np.float64] | None:
        """One vector per word of a single text, whose sum is what `combine` returns; None if there are none."""
        if not self.is_linear:
            return None
        each = words._replace(offsets=np.arange(len(words.ids) + 1))  # a text of one word each
        return self.combine(each, corpus).astype(np.float64) / max(1, len(words.ids))

    def transform(self) -> LinearTransform | None:
        """The linear step that belongs to the method, to be fitted on vectors of the corpus."""
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
        Common components to remove; 0 for none.

    Notes
    -----
    Arora, Liang & Ma 2017, *A Simple but Tough-to-Beat Baseline for Sentence Embeddings*, algorithm 1. The components
    are the first singular vectors of the corpus, uncentred.
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
        """Refuse to remove every dimension."""
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
        Common components to remove, each by its share of their variance; 0 for none.

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
        """True: it uses the mean length of texts."""
        return True

    def check(self, word_dim: int) -> None:
        """Refuse to remove every dimension."""
        _check_below("USIF", self.n_components, word_dim)

    def word_weights(self, corpus: Corpus) -> NDArray[np.float64]:
        """Return the weights by frequency and mean length."""
        return usif_weights(corpus.probabilities_and_none(), corpus.mean_length)

    def combine(self, words: Words, corpus: Corpus) -> NDArray[np.float32]:
        """Return the balanced weighted means."""
        weights = np.ones(len(words.ids), np.float32) if words.weights is None else words.weights
        return balanced_means(words.rows, words.ids, words.offsets, weights)

    def summands(self, words: Words, corpus: Corpus) -> NDArray[np.float64] | None:
        """Return the weighted words, each coordinate divided by its norm over this text."""
        rows = words.rows[words.ids].astype(np.float64)
        norms = np.linalg.norm(rows, axis=0)
        weights = np.ones(len(rows)) if words.weights is None else words.weights.astype(np.float64)
        return weights[:, None] * rows / (max(1, len(rows)) * np.where(norms > 0, norms, 1))

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
            raise wrong_value("PowerMean", "powers", "be numbers above 0, inf or -inf", repr(self.powers))

    @property
    def is_linear(self) -> bool:  # type: ignore[override]
        """Whether the mean is the only power."""
        return tuple(self.powers) == (1,)

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
        raise wrong_value(where, "n_components", f"be below {dim}, the dimensions of the word vectors", n_components)


def _removal(n_components: int, *, by_share: bool = False) -> LinearTransform:
    return make_linear("common_component_removal", settings={"n_components": n_components, "by_share": by_share})


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """What a weighting learned from texts: frequencies, lengths and principal vectors, if it uses them."""

    n_texts: int = 0  # texts with at least one known word
    mean_length: float = 0.0  # known words that these have on average
    probabilities: NDArray[np.float64] | None = None  # unigram probability of each word
    word_map: LinearMap | None = None  # whitens the word vectors
    principal: PrincipalVectors | None = None  # of the coarse vectors of the texts

    def probabilities_and_none(self) -> NDArray[np.float64]:
        """Probability of each word, and last 0 for any word outside the vocabulary."""
        return np.append(np.empty(0) if self.probabilities is None else self.probabilities, 0.0)

    def tensors(self) -> dict[str, NDArray[np.float64]]:
        """Named arrays for a model folder."""
        arrays = {"size": np.array([self.n_texts, self.mean_length])}
        if self.probabilities is not None:
            arrays["probabilities"] = self.probabilities
        if self.word_map is not None:
            arrays |= {"word_weight": self.word_map.weight, "word_bias": self.word_map.bias}
        if self.principal is not None:
            arrays |= {
                "principal_vectors": self.principal.vectors,
                "singular_values": self.principal.singular_values,
            }
        return arrays

    @classmethod
    def from_tensors(cls, arrays: Mapping[str, NDArray[np.float64]]) -> Corpus:
        """The inverse of `tensors`."""
        try:
            n_texts, mean_length = int(arrays["size"][0]), float(arrays["size"][1])
            word_map = LinearMap(arrays["word_weight"], arrays["word_bias"]) if "word_weight" in arrays else None
            principal = None
            if "principal_vectors" in arrays:
                principal = PrincipalVectors(arrays["principal_vectors"], arrays["singular_values"])
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise FileFormatError(f"what the encoder learned from texts is damaged: {error}.") from None
        return cls(n_texts, mean_length, arrays.get("probabilities"), word_map, principal)


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
        How many of them are used for a text and removed from it, h; at most `n_candidates`.
    power : float, default 3.0
        Power of the singular values in the coarse vectors, t; at least 0.
    removal : {"sdr", "sir", "none"}, default "sdr"
        Remove the principal vectors chosen for the sentence, the strongest of the corpus, or none (supervised tasks).
    scores : sequence of {"novelty", "significance", "uniqueness"}, default all
        Scores that add up to the weight of a word.
    significance : {"columns", "window"}, default "columns"
        Divisor of the significance score.
    ranking : {"weighted", "unweighted"}, default "weighted"
        Whether singular values count in the choice of principal vectors. The paper uses "unweighted" for CQA, with a
        window of 6 and 15 removed.
    uniqueness : {"published", "scaled"}, default "published"
        Whether the uniqueness score divides singular values by `n_removed`, or by the largest.

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

    def __post_init__(self) -> None:
        check_settings(**self._settings)
        _check.whole_number("GEM", "n_candidates", self.n_candidates, 1)
        _check.not_negative("GEM", "power", self.power)
        if self.n_removed > self.n_candidates:
            raise wrong_value("GEM", "n_removed", f"be at most n_candidates, {self.n_candidates}", self.n_removed)

    @property
    def has_principal(self) -> bool:
        """Whether removal or scores use principal vectors."""
        return self.removal != "none" or "uniqueness" in self.scores

    @property
    def learns(self) -> bool:
        """Whether it uses principal vectors."""
        return self.has_principal

    def check(self, word_dim: int) -> None:
        """Refuse more candidates than dimensions."""
        if self.n_candidates > word_dim:
            raise wrong_value(
                "GEM", "n_candidates", f"be at most {word_dim}, the dimensions of the word vectors", self.n_candidates
            )

    def coarse(self, words: Words) -> NDArray[np.float32]:
        """Return the coarse vectors."""
        return coarse_vectors(words.rows, words.ids, words.offsets, power=self.power)

    def principal(self, moments: Moments) -> PrincipalVectors:
        """Return the principal vectors."""
        return PrincipalVectors.from_moments(moments, self.n_candidates)

    def combine(self, words: Words, corpus: Corpus) -> NDArray[np.float32]:
        """Return the vectors of GEM."""
        return self._vectors(words, self._principal(words, corpus))[0]

    def summands(self, words: Words, corpus: Corpus) -> NDArray[np.float64] | None:
        """Return the words by their weights in this text, without the principal vectors chosen for it."""
        principal = self._principal(words, corpus)
        _, weights, chosen = self._vectors(words, principal)
        summands = weights[:, None] * words.rows[words.ids]
        if self.removal != "none":
            removed = principal.vectors[chosen[0]]
            summands -= (summands @ removed.T) @ removed
        return summands

    def _principal(self, words: Words, corpus: Corpus) -> PrincipalVectors:
        return corpus.principal or PrincipalVectors(np.empty((0, words.rows.shape[1])), np.empty(0))

    def _vectors(self, words: Words, principal: PrincipalVectors) -> GemVectors:
        return gem_vectors(words.rows, words.products, words.ids, words.offsets, principal=principal, **self._settings)

    @property
    def _settings(self) -> dict[str, Any]:
        names = ("window", "n_removed", "removal", "scores", "significance", "ranking", "uniqueness")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class ZipfianWhitening(Weighting):
    """Word vectors whitened by the frequencies of words, then any other weighting (Yokoi et al. 2024).

    Parameters
    ----------
    then : Weighting, default Average()
        How the whitened word vectors become one vector.

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
            raise wrong_value("ZipfianWhitening", "then", "be another weighting", repr(self.then))

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the other weighting with "zipfian" in front."""
        return f"zipfian_{self.then.name}"

    # Everything but the whitening of the words is left to the other weighting.
    is_linear = property(lambda self: self.then.is_linear)
    learns = property(lambda self: self.then.learns)
    has_principal = property(lambda self: self.then.has_principal)
    dim = property(lambda self: self.then.dim)
    check = property(lambda self: self.then.check)
    word_weights = property(lambda self: self.then.word_weights)
    coarse = property(lambda self: self.then.coarse)
    principal = property(lambda self: self.then.principal)
    combine = property(lambda self: self.then.combine)
    summands = property(lambda self: self.then.summands)
    transform = property(lambda self: self.then.transform)
