"""The demo: encode the sample that comes with isosent, shorten its vectors, save, load, and compare."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.loading import load
from isosent.numeric.similarity import nearest_rows
from isosent.numeric.spectrum import SpaceReport, describe_space

DEMO_COMPONENTS = 64
_N_QUERIES = 5


class Neighbour(NamedTuple):
    """The text nearest to a query."""

    text: str
    score: float  # cosine with the query
    same_meaning: bool


class DemoStage(NamedTuple):
    """The sample in one vector space."""

    space: SpaceReport
    n_found: int  # texts whose nearest neighbour is their paraphrase
    neighbours: tuple[Neighbour, ...]  # of each query


class DemoReport(NamedTuple):
    """Results of the demo."""

    n_texts: int
    n_paraphrased: int  # texts that have a paraphrase
    queries: tuple[str, ...]
    before: DemoStage  # vectors of the encoder
    after: DemoStage  # vectors of the model that was saved and loaded
    verdict: str  # of auto
    n_found_at_full_strength: int  # under whitening of strength 1 and the same width
    reloaded_identical: bool  # whether the loaded model gave bit-identical vectors
    elapsed_s: float


def demo_texts() -> list[str]:
    """Return the sentences of the shipped sample.

    Returns
    -------
    list of str
        Short English sentences on everyday topics, written for this purpose.
    """
    return [row["text"] for row in _sample()]


def run_demo(folder: str | os.PathLike[str]) -> DemoReport:
    """Encode the sample, let auto choose a transform to fewer dimensions, save, load, and compare."""
    start = time.perf_counter()
    texts, meanings = demo_texts(), np.array([int(row["meaning"]) for row in _sample()])
    encoder = load()
    settings = {"n_components": DEMO_COMPONENTS}
    model = encoder.fitted(texts, settings=settings, source="the sample of the demo")
    model.save(folder)
    choice = model.fits[-1].choice or {}
    at_full_strength = encoder.fitted(texts, "whitening", settings=settings).encode(texts)
    vectors = model.encode(texts)
    reloaded = load(folder).encode(texts)
    _, first_rows, counts = np.unique(meanings, return_index=True, return_counts=True)
    paired = first_rows[counts > 1]
    queries = paired[np.linspace(0, len(paired) - 1, _N_QUERIES).astype(int)]
    return DemoReport(
        n_texts=len(texts),
        n_paraphrased=int(counts[counts > 1].sum()),
        queries=tuple(texts[query] for query in queries),
        before=_stage(encoder.encode(texts), texts, meanings, queries),
        after=_stage(reloaded, texts, meanings, queries),
        verdict=str(choice["reason"]),
        n_found_at_full_strength=_stage(at_full_strength, texts, meanings, queries).n_found,
        reloaded_identical=bool(np.array_equal(vectors, reloaded)),
        elapsed_s=time.perf_counter() - start,
    )


def _sample() -> list[dict[str, str]]:
    content = (files("isosent") / "data" / "sample.tsv").read_text("utf-8")
    return list(csv.DictReader(content.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def _stage(
    vectors: NDArray[np.float32], texts: Sequence[str], meanings: NDArray[np.int64], queries: NDArray[np.intp]
) -> DemoStage:
    nearest, score = nearest_rows(vectors)
    same = meanings[nearest] == meanings
    return DemoStage(
        space=describe_space(vectors),
        n_found=int(same.sum()),
        neighbours=tuple(Neighbour(texts[nearest[q]], float(score[q]), bool(same[q])) for q in queries),
    )
