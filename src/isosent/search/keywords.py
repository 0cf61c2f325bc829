"""Search for words: BM25 (bm25s), kept in one file, and the fusion of rankings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import FileFormatError
from isosent.io.checksum import checksum_of
from isosent.io.tensors import map_tensors, tensors_bytes
from isosent.transforms.auto import words_of

FUSED: Final = 100  # hits of each ranking that are fused
FUSION_CONSTANT: Final = 60  # Cormack, Clarke and Buettcher 2009
_TENSORS: Final = {"data": "F32", "indices": "I32", "indptr": "I64", "words": "U8"}
_KOREAN: Final = re.compile("[\uac00-\ud7a3]+|[^\uac00-\ud7a3]+")


class Keywords:
    """Scores of each word in each row: BM25 with the formula of Lucene, k1 1.5 and b 0.75."""

    def __init__(self, n_rows: int, words: bytes, scores: dict[str, Any]) -> None:
        self.n_rows, self._coded, self._scores = n_rows, words, scores

    @cached_property
    def _words(self) -> dict[str, int]:
        words = self._coded.decode().split("\n") if self._coded else []
        return {word: number for number, word in enumerate(words)}

    @classmethod
    def build(cls, texts: Iterable[str | None]) -> Keywords:
        """Count the words of texts; None has none."""
        bm25s = _extras.require("bm25s")
        numbers: dict[str, int] = {}
        rows = [[numbers.setdefault(word, len(numbers)) for word in keywords_of(text or "")] for text in texts]
        if not numbers:
            return cls(len(rows), b"", _arrays(np.empty(0), np.empty(0), np.zeros(1), len(rows)))
        model = bm25s.BM25(method="lucene", csc_backend="scipy")
        model.index((rows, numbers), show_progress=False, create_empty_token=False)
        found = model.scores
        arrays = _arrays(found["data"], found["indices"], found["indptr"], len(rows))
        return cls(len(rows), "\n".join(numbers).encode(), arrays)

    def search(
        self, query: str, k: int, *, mask: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions and scores of the rows that share words with a query, best first; equal scores by position."""
        numbers = [self._words[word] for word in keywords_of(query) if word in self._words]
        if not numbers:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        model = _extras.require("bm25s").BM25(method="lucene")
        model.scores, model.nonoccurrence_array = self._scores, None
        scores: NDArray[np.float32] = model.get_scores_from_ids(numbers)
        if mask is not None:
            scores = np.where(mask, scores, np.float32(0))
        positions = np.flatnonzero(scores > 0)
        if len(positions) > 4 * k:
            least = np.partition(scores[positions], -k)[-k]
            positions = positions[scores[positions] >= least]
        positions = positions[np.argsort(-scores[positions], kind="stable")][:k]
        return positions.astype(np.int64), scores[positions]

    def write(self, path: Path) -> str:
        """Write one file, and return its checksum."""
        words = np.frombuffer(self._coded, np.uint8)
        arrays = {name: self._scores[name] for name in ("data", "indices", "indptr")}
        content = tensors_bytes({**arrays, "words": words}, {"n_rows": str(self.n_rows)})
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
        return cls(n_rows, words, _arrays(data, indices, indptr, n_rows))


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


def _arrays(data: Any, indices: Any, indptr: Any, n_rows: int) -> dict[str, Any]:
    """The columns of a sparse matrix (n_rows, n_words), as bm25s keeps them."""
    return {
        "data": np.asarray(data, np.float32),
        "indices": np.asarray(indices, np.int32),
        "indptr": np.asarray(indptr, np.int64),
        "num_docs": n_rows,
    }


def fuse(rankings: Sequence[NDArray[np.int64]], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Reciprocal rank fusion: the sum of 1 / (60 + rank) over the rankings of one query; equal sums by position."""
    positions = np.concatenate(rankings)
    parts = np.concatenate([1 / (FUSION_CONSTANT + 1 + np.arange(len(ranking))) for ranking in rankings])
    unique, places = np.unique(positions, return_inverse=True)
    sums: NDArray[np.float64] = np.bincount(places, parts, minlength=len(unique)).astype(np.float64)
    order = np.lexsort((unique, -sums))[:k]
    return unique[order], sums[order]
