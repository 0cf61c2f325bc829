"""Scoring many readings of one transformer: its sentences and their copies encoded once, maps fitted on the task."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from isosent import _check
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import FileFormatError, InputError
from isosent.evaluation.published import published_rows
from isosent.evaluation.run import TARGET
from isosent.evaluation.sts import AGGREGATIONS, aggregate, pair_scores
from isosent.evaluation.sts_files import STSTask
from isosent.io.json import check_schema, nan_where_none, read_json, without_nan
from isosent.io.schemas import AutoStudy, DimsStudies, FlowStudy, GemStudy, LayerStudy
from isosent.model import SentenceEncoder
from isosent.networks.batching import run_batches
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import spearman
from isosent.numeric.spectrum import spectrum
from isosent.numeric.threads import n_workers
from isosent.research.auto import ROWS, AutoCell
from isosent.research.dims import DimsStudy
from isosent.research.flow import FlowCell
from isosent.research.gem import GemCell
from isosent.transforms.auto import FEWEST_TEXTS, Candidate, Rows, choose_from_augmentations, perturb
from isosent.transforms.base import known_rows

_FORMAT = "isosent study {} 1"


class StudyResult(Protocol):
    """One of the results that a study is a list of."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""


@dataclass(frozen=True, slots=True)
class Study:
    """A study that was read from its file."""

    name: str  # which: auto, dims, flow, gem, layers or pooling
    results: tuple[Any, ...]  # what the function of that name, such as ``study_auto``, found


def study_to_json(name: str, results: Sequence[StudyResult]) -> dict[str, Any]:
    """Return a study as plain values."""
    return {"format": _FORMAT.format(name), "results": [result.to_json() for result in results]}


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read the file of a study."""
    path = _check.input_file(path)
    document = read_json(path)
    name = STUDY_FORMATS.get(str(document.get("format")))
    if name is None:
        raise FileFormatError(
            f"{path} must be a study, written by isosent study ... --json OUT, of one of the formats "
            f"{', '.join(STUDY_FORMATS)}; got {document.get('format')!r}."
        )
    schema, read = _READERS[name]
    check_schema(document, str(path), schema)
    results = tuple(map(read, document["results"]))
    if missing := next((lacks for result in results if (lacks := _missing(result))), None):
        raise FileFormatError(f"{path} must hold a score of {missing}; it does not. Run the study again.")
    return Study(name, results)


def _missing(result: Any) -> str | None:
    """A score that a table of the study needs and a result does not have, which a schema cannot say."""
    if isinstance(result, AutoCell):
        return next((f"{result.task}, {row}" for row in ROWS if row not in result.scores), None)
    if isinstance(result, DimsStudy):
        scored: set[tuple[str, int | None]] = {(cell.task, cell.k) for cell in result.cells}
        scored |= {(cell.task, None) for cell in result.untransformed}
        wanted = product(result.tasks, (*result.widths, None))
        return next((f"{task} at {k or 'all'} dimensions" for task, k in wanted if (task, k) not in scored), None)
    return None


@dataclass(frozen=True, slots=True)
class PublishedScore:
    """A published number for what was measured."""

    spearman: float  # in [-1, 1]
    source: str  # where it stands


@dataclass(frozen=True, slots=True)
class LayerCell:
    """One reading of a model on one task, under one transform."""

    model: str  # what the model is called
    pooling: str  # how each layer is pooled
    layers: tuple[int, ...]  # the layers whose mean is taken; 0 is the embedding layer
    transform: str  # "none", "whitening" or "auto", fitted on the sentences of the task (target)
    chosen: str | None  # what "auto" chose
    task: str  # the task
    spearman: Mapping[str, float]  # by aggregation, in [-1, 1]; NaN where undefined
    # By aggregation, where there is one for the same model, layers, pooling, transform and protocol
    published: Mapping[str, PublishedScore]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; an undefined score is None."""
        published = {how: {"spearman": there.spearman, "source": there.source} for how, there in self.published.items()}
        plain: dict[str, Any] = without_nan(
            {
                "model": self.model,
                "pooling": self.pooling,
                "layers": list(self.layers),
                "transform": self.transform,
                "chosen": self.chosen,
                "task": self.task,
                "spearman": dict(self.spearman),
                "published": published,
            }
        )
        return plain

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LayerCell:
        """Make it of what `to_json` returned."""
        read = {
            "layers": tuple(document["layers"]),
            "spearman": nan_where_none(document["spearman"]),
            "published": {how: PublishedScore(**there) for how, there in document["published"].items()},
        }
        return cls(**{**document, **read})

    def lines(self) -> Iterable[dict[str, Any]]:
        """Yield it as lines of a table, one an aggregation; an undefined score is None."""
        for how, score in self.spearman.items():
            there = self.published.get(how)
            yield {
                "model": self.model,
                "pooling": self.pooling,
                "layers": layers_label(self.layers),
                "n_layers": len(self.layers),
                "transform": self.transform,
                "chosen": self.chosen,
                "task": self.task,
                "aggregation": how,
                "spearman": None if math.isnan(score) else score,
                "published": None if there is None else there.spearman,
                "source": None if there is None else there.source,
            }


@dataclass(frozen=True, slots=True)
class Measured:
    """What all cells of a study have in common, to make them from scores."""

    name: str  # what the model is called
    reference: str  # the reference that published numbers are looked up by
    sickr: str  # pairs of SICK-R that are evaluated

    def cells(
        self, pooling: str, layers: tuple[int, ...], task: STSTask, scores: Mapping[str, Score]
    ) -> list[LayerCell]:
        """Make the cells of one reading on one task, one a transform."""
        return [
            LayerCell(
                self.name,
                pooling,
                layers,
                transform,
                score.chosen,
                task.name,
                score.spearman,
                self._published(pooling, layers, transform, task),
            )
            for transform, score in scores.items()
        ]

    def _published(
        self, pooling: str, layers: tuple[int, ...], transform: str, task: STSTask
    ) -> dict[str, PublishedScore]:
        if transform == AUTO:
            return {}
        options = {"layers": ",".join(map(str, layers)), "pooling": pooling}
        protocol: dict[str, Any] = {
            "transform": None if transform == NONE else transform,
            "fit": TARGET,
            "parameters": {},
            "missing_subsets": task.missing_subsets,
        }
        rows = published_rows({"reference": self.reference, "options": options, "fits": []}, protocol)
        return {
            row.aggregation: PublishedScore(scores[task.name] / 100, row.label)
            for row in rows
            if task.name in (scores := row.scores_of([task.name], self.sickr))
        }


def layers_label(layers: Sequence[int]) -> str:
    """Write layers as the papers do."""
    if len(layers) > 3 and layers[-1] - layers[0] == len(layers) - 1:
        return f"L{layers[0]}..L{layers[-1]}"
    return "+".join(f"L{layer}" for layer in layers)


def averages(cells: Iterable[LayerCell], aggregation: str) -> dict[tuple[str, tuple[int, ...], str], float]:
    """Average a study over its tasks."""
    scores: dict[tuple[str, tuple[int, ...], str], list[float]] = {}
    for cell in cells:
        scores.setdefault((cell.pooling, cell.layers, cell.transform), []).append(cell.spearman[aggregation])
    return {key: float(np.mean(each)) for key, each in scores.items()}


def published_average(cells: Sequence[LayerCell], aggregation: str) -> float:
    """Average the published numbers over the tasks of a study."""
    found = [cell.published[aggregation].spearman for cell in cells if aggregation in cell.published]
    return float(np.mean(found)) if found and len(found) == len(cells) else float("nan")


NONE, WHITENING, AUTO = TRANSFORMS = ("none", "whitening", "auto")

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class PlacedTask:
    """A task, and where its sentences and their copies stand among texts that are encoded together."""

    task: STSTask  # the task
    rows: NDArray[np.intp]  # the places of its texts, each once, those of the scored pairs first
    n_scored: int  # how many of them stand in scored pairs
    # For each subset, the first and the second sentences of its pairs, as places in `rows`
    pairs: tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]
    counts: NDArray[np.float64]  # how often each text is among those to fit on; 0 for copies
    # Sampled texts, their neighbours and their copies, see `Sample.lists`, as places in `rows`; empty where there are
    # too few texts
    sample: Mapping[str, NDArray[np.intp]]


@dataclass(frozen=True, slots=True)
class Score:
    """What one reading is worth on one task under one transform."""

    spearman: Mapping[str, float]  # by aggregation; NaN where undefined
    chosen: str | None = None  # what "auto" chose


_UNDEFINED = Score(dict.fromkeys(AGGREGATIONS, float("nan")))


def plain_transformer(where: str, model: SentenceEncoder, name: str) -> TransformerEncoder:
    """Take the transformer out of a model, refusing models that have no layers to choose from."""
    encoder = model.encoder
    if not isinstance(encoder, TransformerEncoder):
        raise InputError(f"{where}: model must be a transformer, such as hf:FOLDER; got {name}.")
    if model.fits:
        raise InputError(
            f"{where}: model must have nothing fitted behind it, because each map is fitted on the task; got {name}."
        )
    if encoder.n_layers < 2:
        raise InputError(f"{where}: model must have at least 2 layers; got {name} with {encoder.n_layers}.")
    return encoder


def place_tasks(tasks: Sequence[STSTask]) -> tuple[list[str], list[PlacedTask]]:
    """Gather the texts of some tasks, each once, with the copies that "auto" looks at."""
    places: dict[str, int] = {}
    placed = [_place(task, places) for task in tasks]
    return list(places), placed


def _place(task: STSTask, places: dict[str, int]) -> PlacedTask:
    sample = perturb(task.target_texts)
    lists = sample.lists if len(sample.texts) >= FEWEST_TEXTS else {}
    scored = list(dict.fromkeys(task.texts))
    own = {text: row for row, text in enumerate(dict.fromkeys([*scored, *task.target_texts, *_flat(lists)]))}
    for text in own:
        places.setdefault(text, len(places))
    counts = Counter(task.target_texts)
    return PlacedTask(
        task,
        np.array([places[text] for text in own], dtype=np.intp),
        len(scored),
        tuple((_rows(own, subset.first), _rows(own, subset.second)) for subset in task.subsets),
        np.array([counts[text] for text in own], dtype=np.float64),
        {name: _rows(own, texts) for name, texts in lists.items()},
    )


def _flat(lists: Mapping[str, Sequence[str]]) -> list[str]:
    return [text for texts in lists.values() for text in texts]


def _rows(own: Mapping[str, int], texts: Sequence[str]) -> NDArray[np.intp]:
    return np.array([own[text] for text in texts], dtype=np.intp)


def side_by_side(work: Iterable[T], score: Callable[[T], R]) -> Iterator[tuple[T, R]]:
    """Score several things at once, each in a thread of its own."""
    # Eigenpairs of a few hundred dimensions gain little from threads that share them, and lose much where these have
    # to wait for one another: each thread computes alone.
    with threadpool_limits(1):
        yield from run_batches(work, score, n_workers())


def score_reading(
    placed: PlacedTask, vectors: NDArray[np.float32], transforms: Sequence[str] = TRANSFORMS
) -> dict[str, Score]:
    """Score the vectors of one reading on one task."""
    # Whitening has strength 1 and keeps every axis that is more than noise. Moments, eigenpairs and cosines are
    # float64.

    def score(mapped: NDArray[np.floating], chosen: str | None = None) -> Score:
        cosines = [pair_scores(mapped[first], mapped[second]) for first, second in placed.pairs]
        return Score(aggregate(spearman, placed.task.subsets, cosines), chosen)

    scored, known = vectors[: placed.n_scored], known_rows(vectors)
    scores = {NONE: score(scored)} if NONE in transforms else {}
    if len(scores) == len(transforms):
        return scores
    fitted_on = (placed.counts > 0) & known
    moments = Moments.from_rows(vectors[fitted_on], placed.counts[fitted_on])
    found = spectrum(moments.covariance, noise=moments.rounding_variance)
    rows, has_vector = Rows(scored, moments, found), known[: placed.n_scored, None]
    if WHITENING in transforms:
        whitening = Candidate("whitening", 1.0, found.rank)
        scores[WHITENING] = score(rows.under(whitening) * has_vector) if found.rank else _UNDEFINED
    if AUTO in transforms:
        parts = {name: vectors[places].astype(np.float64) for name, places in placed.sample.items()}
        chosen = choose_from_augmentations(parts, moments, found)
        scores[AUTO] = score(rows.under(chosen) * has_vector, str(chosen))
    return scores


_READERS: Mapping[str, tuple[Any, Callable[[Mapping[str, Any]], Any]]] = {
    "auto": (AutoStudy, AutoCell.from_json),
    "dims": (DimsStudies, DimsStudy.from_json),
    "flow": (FlowStudy, FlowCell.from_json),
    "gem": (GemStudy, GemCell.from_json),
    "layers": (LayerStudy, LayerCell.from_json),
    "pooling": (LayerStudy, LayerCell.from_json),
}
STUDY_FORMATS: Mapping[str, str] = {_FORMAT.format(name): name for name in _READERS}
