"""Word vectors as kernels take them: float32 rows of the words in use, however the vectors are stored."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.gem import PrincipalVectors
from isosent.numeric.linear_map import LinearMap
from isosent.text.stored_numbers import Numbers, Scales, decoded
from isosent.text.tokens import TokenIds
from isosent.text.word_vectors import Subwords

_NO_PRODUCTS = np.empty((0, 0))


class RowTable:
    """Rows and products of words, made when a word is first seen and kept.

    Float32 vectors that nothing is to be done with are used where they lie.

    Parameters
    ----------
    vectors : ndarray of shape (vocab_size, dim), float32, float16 or int8
        What is stored.
    scales : ndarray of shape (vocab_size,), float32, or None
        Those of int8.
    subwords : Subwords or None
        Makes vectors of unknown words; without it these get the mean of all vectors.
    word_map : LinearMap or None
        Applied to every word vector.
    principal : PrincipalVectors or None
        Vectors to multiply every word vector with.
    """

    def __init__(
        self,
        vectors: Numbers,
        scales: Scales | None,
        subwords: Subwords | None,
        word_map: LinearMap | None,
        principal: PrincipalVectors | None,
    ) -> None:
        self._vectors = vectors
        self._scales = scales
        self._subwords = subwords
        self._word_map = word_map
        self._principal = principal
        self._is_direct = vectors.dtype == np.float32 and word_map is None and principal is None
        self._n_rows = 0
        self._place: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._rows = np.empty((0, vectors.shape[1] if word_map is None else word_map.n_components), dtype=np.float32)
        self._products = _NO_PRODUCTS
        self._mean: NDArray[np.float32] | None = None
        self.lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return RowTable, (self._vectors, self._scales, self._subwords, self._word_map, self._principal)

    @property
    def dim(self) -> int:
        """Dimensions of the rows."""
        return self._rows.shape[1]

    def look_up(self, tokens: TokenIds) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.int32]]:
        """Rows of the words of some texts; hold `lock` while they are in use.

        Parameters
        ----------
        tokens : TokenIds
            The texts.

        Returns
        -------
        rows : ndarray of shape (n, dim), float32
            Vectors.
        products : ndarray of shape (n, K rounded up to a multiple of 16), float64
            Theirs with the principal vectors; empty without these.
        ids : ndarray of shape (n_tokens,), int32
            Row of each token.
        """
        if self._is_direct and not tokens.unknown:
            return self._vectors, _NO_PRODUCTS, tokens.ids
        vocab_size = len(self._vectors)
        if not len(self._place):
            self._place = np.full(vocab_size, -1, dtype=np.int32)
        is_known = tokens.ids < vocab_size
        known = tokens.ids[is_known] if tokens.unknown else tokens.ids
        new = np.unique(known[self._place[known] < 0])
        self._write(decoded(self._vectors, self._scales, new))
        self._place[new] = np.arange(self._n_rows, self._n_rows + len(new))
        self._n_rows += len(new)
        if not tokens.unknown:
            return self._rows, self._products, self._place[known]
        self._write(self._vectors_of_unknown(tokens.unknown))  # behind those that stay, for this call only
        ids = tokens.ids + np.int32(self._n_rows - vocab_size)
        ids[is_known] = self._place[known]
        return self._rows, self._products, ids

    def _write(self, vectors: NDArray[np.float32]) -> None:
        """Write rows behind those that stay."""
        rows = vectors
        if self._word_map is not None:  # in float64: float32 products of one row and of many are not the same
            rows = self._word_map.apply(vectors.astype(np.float64)).astype(np.float32)
        start, stop = self._n_rows, self._n_rows + len(rows)
        self._rows = _with_room(self._rows, stop)
        self._rows[start:stop] = rows
        if self._principal is not None:
            products = self._principal.products(rows)
            if not len(self._products):
                self._products = products[:0]
            self._products = _with_room(self._products, stop)
            self._products[start:stop] = products

    def _vectors_of_unknown(self, words: tuple[str, ...]) -> NDArray[np.float32]:
        if self._subwords is not None:
            return self._subwords.vectors(words)
        if self._mean is None:
            self._mean = _mean_row(self._vectors, self._scales)
        return np.broadcast_to(self._mean, (len(words), len(self._mean)))


def _with_room(array: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """The array, or one of at least twice its length that begins with it."""
    if n_rows <= len(array):
        return array
    longer = np.empty((max(n_rows, 2 * len(array)), array.shape[1]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _mean_row(vectors: Numbers, scales: Scales | None, block: int = 65536) -> NDArray[np.float32]:
    sums = [
        decoded(vectors, scales, slice(start, start + block)).sum(axis=0, dtype=np.float64)
        for start in range(0, len(vectors), block)
    ]
    mean: NDArray[np.float64] = np.sum(sums, axis=0) / len(vectors)
    return mean.astype(np.float32)
