"""Search for words: BM25, kept in one file, and the fusion of rankings."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from isosent.errors import FileFormatError
from isosent.io.checksum import checksum_of
from isosent.io.tensors import map_tensors, tensors_bytes
from isosent.numeric.neighbors import best_columns
from isosent.transforms.agreement import words_of

FUSED: Final = 100  # hits of each ranking that are fused
FUSION_CONSTANT: Final = 60  # Cormack, Clarke and Buettcher 2009
_K1, _B = 1.5, 0.75
_TENSORS: Final = {"data": "F32", "indices": "I32", "indptr": "I64", "words": "U8"}
_KOREAN: Final = re.compile("[\uac00-\ud7a3]+|[^\uac00-\ud7a3]+")


class Keywords:
    """Scores of each word in each row: BM25 with k1 = 1.5 and b = 0.75."""

    def __init__(self, n_rows: int, words: bytes, scores: dict[str, Any]) -> None:
        self.n_rows, self._coded, self._scores = n_rows, words, scores

    @cached_property
    def _words(self) -> dict[str, int]:
        words = self._coded.decode().split("\n") if self._coded else []
        return {word: number for number, word in enumerate(words)}

    @classmethod
    def build(cls, texts: Iterable[str | None]) -> Keywords:
        """Count the words of texts; None has none."""
        numbers: dict[str, int] = defaultdict(lambda: len(numbers))
        words, lengths = array("i"), array("i")
        for text in texts:
            row = keywords_of(text or "")
            words.extend(map(numbers.__getitem__, row))
            lengths.append(len(row))
        n_words_of = np.asarray(lengths, np.int32)
        rows = np.repeat(np.arange(len(lengths), dtype=np.int32), n_words_of)
        shape = (len(lengths), len(numbers))
        counts = csc_array((np.ones(len(rows), np.float32), (rows, np.asarray(words, np.int32))), shape)
        return cls(len(lengths), "\n".join(numbers).encode(), _bm25(counts, n_words_of))

    def search(
        self, query: str, k: int, *, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions and scores of the rows that share words with a query, best first; equal scores by position."""
        numbers = [self._words[word] for word in keywords_of(query) if word in self._words]
        if not numbers:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        scores = np.zeros(self.n_rows, np.float32)
        for number in numbers:
            entries = slice(*self._scores["indptr"][number : number + 2])
            np.add.at(scores, self._scores["indices"][entries], self._scores["data"][entries])
        if mask is not None:
            scores = np.where(mask, scores, np.float32(0))
        positions = np.flatnonzero(scores > 0)
        positions = positions[best_columns(scores[None, positions], k)[0]]
        return positions.astype(np.int64), scores[positions]

    def write(self, path: Path) -> str:
        """Write one file, and return its checksum."""
        words = np.frombuffer(self._coded, np.uint8)
        content = tensors_bytes({**self._scores, "words": words}, {"n_rows": str(self.n_rows)})
        path.write_bytes(content)
        return checksum_of(content)

    @classmethod
    def read(cls, path: Path, n_rows: int) -> Keywords:
        """Open a file of so many rows by memory map."""
        tensors, metadata = map_tensors(path)
        try:
            if {name: tensor.dtype for name, tensor in tensors.items()} != _TENSORS:
                raise ValueError(f"it holds {', '.join(tensors)}")
            data, indices, indptr, coded = (tensors[name].array for name in _TENSORS)
            words = coded.tobytes()
            words.decode()
            n_words = words.count(b"\n") + bool(words)
            if (found := int(metadata["n_rows"])) != n_rows:
                raise ValueError(f"it has {found} rows, not {n_rows}")
            is_flat = all(tensor.array.ndim == 1 for tensor in tensors.values())
            is_sound = (
                is_flat and len(indptr) == n_words + 1 and indptr[0] == 0 and indptr[-1] == len(data) == len(indices)
            )
            if not is_sound or (np.diff(indptr) < 0).any():
                raise ValueError("its arrays do not fit together")
            if len(indices) and (indices.min() < 0 or indices.max() >= n_rows):
                raise ValueError(f"it names rows beyond its {n_rows}")
        except (KeyError, ValueError) as error:
            raise FileFormatError(
                f"{path} does not hold the words of an index, or it is damaged: {error}. Make the index again."
            ) from None
        return cls(n_rows, words, _arrays(data, indices, indptr))


def keywords_of(text: str) -> list[str]:
    """Words in one spelling; Korean ones as pairs of characters, because particles are attached to them."""
    if text.isascii():
        return words_of(text)
    words = words_of(unicodedata.normalize("NFKC", text).casefold())
    parts = [part for word in words for part in _KOREAN.findall(word)]
    return [pair for part in parts for pair in _pairs(part)]


def _pairs(word: str) -> list[str]:
    if len(word) < 3 or not "\uac00" <= word[0] <= "\ud7a3":
        return [word]
    return [word[place : place + 2] for place in range(len(word) - 1)]


def _bm25(counts: csc_array, n_words_of: NDArray[np.int32]) -> dict[str, Any]:
    """Turn counts (n_rows, n_words) into scores, with the formula of Lucene (Kamphuis et al. 2020, table 1)."""
    n_with = np.diff(counts.indptr)
    idf = np.log(1 + (counts.shape[0] - n_with + 0.5) / (n_with + 0.5)).astype(np.float32)
    mean_length = n_words_of.mean() if counts.nnz else 1
    saturation = _K1 * (1 - _B + _B * n_words_of / mean_length)[counts.indices]
    data = np.repeat(idf, n_with) * (counts.data / (counts.data + saturation))
    return _arrays(data, counts.indices, counts.indptr)


def _arrays(data: Any, indices: Any, indptr: Any) -> dict[str, Any]:
    """The columns of a sparse matrix (n_rows, n_words)."""
    return {
        "data": np.asarray(data, np.float32),
        "indices": np.asarray(indices, np.int32),
        "indptr": np.asarray(indptr, np.int64),
    }


def fuse(rankings: Sequence[NDArray[np.int64]], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Reciprocal rank fusion: the sum of 1 / (60 + rank) over the rankings of one query; equal sums by position."""
    positions = np.concatenate(rankings)
    parts = np.concatenate([1 / (FUSION_CONSTANT + 1 + np.arange(len(ranking))) for ranking in rankings])
    unique, places = np.unique(positions, return_inverse=True)
    sums: NDArray[np.float64] = np.bincount(places, parts, minlength=len(unique)).astype(np.float64)
    order = np.lexsort((unique, -sums))[:k]
    return unique[order], sums[order]
