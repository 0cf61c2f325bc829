"""What word-vector encoders know of the texts they were fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent.errors import FileFormatError
from isosent.numeric.gem import PrincipalVectors
from isosent.numeric.linear_map import LinearMap


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Frequencies, lengths and principal vectors, as far as a weighting asks for them.

    Parameters
    ----------
    n_texts : int, default 0
        Texts with at least one known word.
    mean_length : float, default 0.0
        Known words that these have on average.
    probabilities : ndarray of shape (vocab_size,), float64, optional
        Unigram probability of each word, 0 where it is unknown.
    word_map : LinearMap, optional
        Whitens the word vectors.
    principal : PrincipalVectors, optional
        Of the coarse vectors of the texts.
    """

    n_texts: int = 0
    mean_length: float = 0.0
    probabilities: NDArray[np.float64] | None = None
    word_map: LinearMap | None = None
    principal: PrincipalVectors | None = None

    def probabilities_and_none(self) -> NDArray[np.float64]:
        """Return the probabilities, and behind them 0 for any word outside the vocabulary."""
        known = np.empty(0) if self.probabilities is None else self.probabilities
        return np.append(known, 0.0)

    def tensors(self) -> dict[str, NDArray[np.float64]]:
        """Return all of it as named arrays, for a model folder."""
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
        """Put it together from what `tensors` returned.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            Named arrays.

        Returns
        -------
        Corpus
            The same.

        Raises
        ------
        FileFormatError
            If an array is missing.
        """
        try:
            n_texts, mean_length = int(arrays["size"][0]), float(arrays["size"][1])
            word_map = LinearMap(arrays["word_weight"], arrays["word_bias"]) if "word_weight" in arrays else None
            principal = None
            if "principal_vectors" in arrays:
                principal = PrincipalVectors(arrays["principal_vectors"], arrays["singular_values"])
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise FileFormatError(f"what the encoder knows of its corpus is damaged: {error}.") from None
        return cls(n_texts, mean_length, arrays.get("probabilities"), word_map, principal)
