"""Texts that people try on the web page, and what the sliders draw."""

from __future__ import annotations

import io
import secrets
import tempfile
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.numeric.spectrum import spectrum
from isosent.persistence import model_files
from isosent.server.limits import RequestError
from isosent.transforms.auto import AutoChoice, choose_from_texts
from isosent.transforms.base import Auto
from isosent.transforms.whitening import Whitening

_MOST_SETS: Final = 8
_MOST_BYTES: Final = 256 << 20  # of the vectors of all sets; 20,000 texts with 384 dimensions have 92 MB
_MATRIX_TEXTS: Final = 24
_PAIRS: Final = 5_000
_BINS: Final = 50
_NEIGHBOURS: Final = 8
_LONGEST_TEXT: Final = 300


@dataclass(frozen=True, eq=False)
class TextSet:
    """Texts that somebody tries, and their rotated vectors: a slider is a scaling of these and a cut."""

    texts: list[str]
    model: SentenceEncoder
    raw: NDArray[np.float32]  # of the bare encoder
    units: NDArray[np.float32]  # as they are, scaled to length 1
    rotated: NDArray[np.float32]  # along the principal axes, (n_texts, rank)
    variances: NDArray[np.float64]  # (rank,)
    pairs: NDArray[np.intp]  # random pairs of rows, (2, n_pairs)
    choice: AutoChoice

    @classmethod
    def of(cls, texts: list[str], model: SentenceEncoder, raw: NDArray[np.float32]) -> TextSet:
        """Rotate the vectors of texts to their principal axes."""
        vectors = model.transform(raw)
        has_vector = nonzero_rows(vectors)
        moments = Moments.from_rows(vectors[has_vector])
        eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
        if has_vector.sum() < 2 or not eigen.rank:
            raise RequestError(422, "the texts must have at least two different vectors.", param="texts")
        rotated = ((vectors - moments.mean) @ eigen.vectors[:, : eigen.rank]).astype(np.float32)
        rotated[~has_vector] = 0
        rng = np.random.default_rng(0)
        first = rng.integers(len(texts), size=_PAIRS)
        pairs = np.stack([first, (first + rng.integers(1, len(texts), size=_PAIRS)) % len(texts)])
        choice = choose_from_texts(vectors, texts, Auto())
        units = unit_rows(vectors).astype(np.float32)
        return cls(texts, model, raw, units, rotated, eigen.values[: eigen.rank], pairs, choice)

    def facts(self) -> dict[str, Any]:
        """What is drawn once."""
        chosen = self.choice.chosen
        return {
            "n_texts": len(self.texts),
            "texts": [text[:_LONGEST_TEXT] for text in self.texts],
            "dim": self.units.shape[1],
            "rank": self.rotated.shape[1],
            "variances": self.variances,
            "verdict": self.choice.reason,
            "strength": chosen.strength if chosen.name == "whitening" else 0.0,
            "dimensions": chosen.n_components or self.rotated.shape[1],
            "changes": chosen.name != "none",
            "before": self._drawn(self.units),
        }

    def draw(self, strength: float, dimensions: int, query: int) -> dict[str, Any]:
        """What a position of the sliders changes."""
        scale = (self.variances[:dimensions] ** (-strength / 2)).astype(np.float32)
        after = unit_rows(self.rotated[:, :dimensions] * scale)
        return {**self._drawn(after), "neighbours": self._neighbours(after, query)}

    def _drawn(self, units: NDArray[np.float32]) -> dict[str, Any]:
        """Cosines of the first texts, and how those of random pairs are distributed."""
        few = units[:_MATRIX_TEXTS]
        first, second = self.pairs
        cosines = np.einsum("ij,ij->i", units[first], units[second])
        counts = np.histogram(np.clip(cosines, -1, 1), _BINS, (-1, 1))[0]
        matrix = np.round((few @ few.T).astype(np.float64), 3)
        return {"matrix": matrix, "histogram": counts / len(cosines), "mean": float(cosines.mean())}

    def _neighbours(self, after: NDArray[np.float32], query: int) -> list[dict[str, Any]]:
        """The nearest texts after, with their ranks before."""
        scores = np.stack([units @ units[query] for units in (self.units, after)])
        scores[:, query] = -2
        order = np.argsort(-scores, axis=1, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(1, order.shape[1] + 1)[None, :].repeat(2, axis=0), axis=1)
        n = min(_NEIGHBOURS, len(self.texts) - 1)
        rows = list(dict.fromkeys([*order[1, :n].tolist(), *order[0, :n].tolist()]))
        return [
            {
                "row": row,
                "before": {"rank": int(ranks[0, row]), "cosine": float(scores[0, row])},
                "after": {"rank": int(ranks[1, row]), "cosine": float(scores[1, row])},
            }
            for row in rows
        ]

    def zip_of_model(self, strength: float, dimensions: int) -> bytes:
        """A model folder with the map that the sliders show."""
        fitted = self.model.fitted_on_vectors(
            self.raw, Whitening(n_components=dimensions, strength=strength), source="texts tried on the web page"
        )
        content = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in model_files(Path(folder), fitted.record).items():
                archive.writestr(f"isosent-model/{name}", data)
        return content.getvalue()


def new_name() -> str:
    """An id that nobody can guess."""
    return secrets.token_urlsafe(12)


class TextSets:
    """The sets that were tried last; older ones are forgotten."""

    def __init__(self) -> None:
        self._sets: OrderedDict[str, TextSet] = OrderedDict()

    def add(self, name: str, texts: TextSet) -> None:
        """Keep a set."""
        self._sets[name] = texts
        while len(self._sets) > _MOST_SETS or (len(self._sets) > 1 and self._n_bytes > _MOST_BYTES):
            self._sets.popitem(last=False)

    @property
    def _n_bytes(self) -> int:
        return sum(each.raw.nbytes + each.units.nbytes + each.rotated.nbytes for each in self._sets.values())

    def get(self, name: str) -> TextSet:
        """The set with an id."""
        if name not in self._sets:
            raise RequestError(404, "these texts are no longer here. Load them again.", param="id")
        self._sets.move_to_end(name)
        return self._sets[name]
