"""Whether what makes vectors has changed since a folder was written: vectors of fixed texts, then and now.

A `Canary` holds the vectors of `FIXED_TEXTS` of the bare encoder, as documents and as queries. A folder that names its
own texts could make a server encode what it likes; these are part of the code.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.numeric.similarity import unit_rows

_PARTS: Final = (
    "A man is riding a horse on the beach at sunset.",
    "Interest rates were raised by half a point.",
    "How do I reset my password?",
    "She slices an onion and some garlic.",
    "The quick brown fox jumps over the lazy dog.",
)
# The last is of 600 tokens and changes its subject every 120, so that a cut at another length shows.
FIXED_TEXTS: Final = (
    "The quick brown fox jumps over the lazy dog.",
    "How do I reset my password?",
    "El tren sale a las ocho de la mañana.",
    "今天天气很好。",
    "def add(a, b): return a + b",
    "Interest rates were raised by half a point.",
    "1234567890",
    " ".join(" ".join([part] * 12) for part in _PARTS),
)
N_SHORT: Final = 7
# Of another number type or backend, int8 included, the lowest cosine is 0.997 and more; of another maximum length,
# prompt, pooling, layer or model, 0.97 and less (bench/canary.py).
LEAST_COSINE: Final = 0.99
LEAST_KEPT: Final = 0.85
CHANGED: Final = "the model behind has changed:"


class CanaryCheck(NamedTuple):
    """How the vectors that a model gives now differ from those that were stored.

    Attributes
    ----------
    lowest_cosine : float or None
        Lowest cosine of a fixed text's vector now with the stored one, in [-1, 1]; None if none were stored.
    kept_neighbors : float or None
        Share of the ten nearest of some texts of an index that are the same, in [0, 1]; None without texts.
    n_rows : int
        Number of these texts.
    """

    lowest_cosine: float | None
    kept_neighbors: float | None = None
    n_rows: int = 0

    @property
    def has_changed(self) -> bool:
        """Whether another model makes the vectors, or the same with other settings: a lowest cosine below 0.99.

        Without stored vectors of fixed texts, a share of neighbors below 0.85 says so.
        """
        if self.lowest_cosine is not None:
            return self.lowest_cosine < LEAST_COSINE
        return self.kept_neighbors is not None and self.kept_neighbors < LEAST_KEPT

    @property
    def are_other_texts(self) -> bool:
        """Whether the model is the same, and the vectors of an index are not those of its texts."""
        return not self.has_changed and self.kept_neighbors is not None and self.kept_neighbors < LEAST_KEPT

    def __str__(self) -> str:
        facts = []
        if self.lowest_cosine is not None:
            facts.append(f"lowest cosine of fixed texts {self.lowest_cosine:.4f} (unchanged: {LEAST_COSINE} or more)")
        if self.kept_neighbors is not None:
            facts.append(f"{self.kept_neighbors:.0%} of the ten nearest of {self.n_rows} of its texts are the same")
        return "; ".join(facts)


class Canary(NamedTuple):
    """Vectors of the first fixed texts, scaled to length 1; a text without a vector has the zero row."""

    documents: NDArray[np.float16] | None  # (n_texts, dim); None if queries alone were encoded
    queries: NDArray[np.float16]  # (n_texts, dim); the same array if there are no prompts

    @classmethod
    def of(cls, documents: NDArray[np.floating] | None, queries: NDArray[np.floating]) -> Canary:
        """Keep vectors as they come."""
        rounded = None if documents is None else unit_rows(documents).astype(np.float16)
        return cls(rounded, unit_rows(queries).astype(np.float16))

    def lowest_cosine(self, now: Canary) -> float:
        """The lowest cosine with vectors of the same texts that were made now, as far as both have them."""
        pairs = [(self.queries, now.queries)]
        if self.documents is not None and now.documents is not None:
            pairs.append((self.documents, now.documents))
        return min(lowest_cosine(*(rows[: min(map(len, pair))] for rows in pair)) for pair in pairs)

    def mean_difference(self, now: Canary) -> float:
        """Mean 1 - cosine of queries with those that were made now, in [0, 2]; infinite for other dimensions."""
        if self.queries.shape != now.queries.shape:
            return float("inf")
        before, after = (unit_rows(each.queries.astype(np.float64)) for each in (self, now))
        return float(np.square(before - after).sum() / (2 * len(before)))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Both arrays by name; queries if they differ."""
        arrays = {"documents": self.documents, "queries": self.queries}
        if self.documents is not None and np.array_equal(self.documents, self.queries):
            del arrays["queries"]
        return {name: rows for name, rows in arrays.items() if rows is not None}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]], dim: int) -> Canary:
        """Check arrays of a file; `dim` is that of the encoder."""
        for name, rows in tensors.items():
            if name not in ("documents", "queries") or rows.ndim != 2 or not N_SHORT <= len(rows) <= len(FIXED_TEXTS):
                raise InputError(f"canary: {name} has the shape {rows.shape}, not ({len(FIXED_TEXTS)}, {dim}).")
            _check.same_dim("canary", name, rows.shape[1], dim)
            _check.finite_rows("canary", name, rows.astype(np.float32))
        documents = tensors["documents"]
        return cls.of(documents.astype(np.float32), tensors.get("queries", documents).astype(np.float32))

    def to_text(self) -> str:
        """The vectors of the short texts as queries, which a first query compares, for the comment of a table."""
        return base64.b64encode(self.queries[:N_SHORT].tobytes()).decode()

    @classmethod
    def from_text(cls, where: str, text: str) -> Canary:
        """Read what `to_text` wrote; `where` is the table."""
        try:
            rows = np.frombuffer(base64.b64decode(text, validate=True), np.float16).reshape(N_SHORT, -1)
            _check.finite_rows("canary", "queries", rows.astype(np.float32))
        except ValueError:  # InputError is one, too
            raise InputError(
                "its vectors of fixed texts are damaged. Push an index to a new table.", where=where
            ) from None
        return cls(None, rows)


def lowest_cosine(stored: NDArray[np.floating], vectors: NDArray[np.floating]) -> float:
    """Lowest cosine of row i with row i: 1 if both have no vector, 0 if one has none or they have other dimensions."""
    if stored.shape != vectors.shape:
        return 0.0
    a, b = unit_rows(stored.astype(np.float64)), unit_rows(vectors.astype(np.float64))
    cosines = np.where(a.any(axis=1) | b.any(axis=1), np.einsum("ij,ij->i", a, b), 1.0)
    return float(cosines.min())
