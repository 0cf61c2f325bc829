"""Scoring many readings of one transformer: its sentences and their copies encoded once, maps fitted on the task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.evaluation.sts import AGGREGATIONS, aggregate, pair_scores
from isosent.evaluation.sts_files import STSTask
from isosent.model import SentenceEncoder
from isosent.network.workers import run_batches
from isosent.numeric.metrics import spearman
from isosent.numeric.moments import Moments
from isosent.numeric.spectrum import spectrum
from isosent.numeric.workers import n_workers
from isosent.selection.candidates import Candidate
from isosent.selection.choice import FEWEST_TEXTS, choose_from_copies
from isosent.selection.copies import perturb
from isosent.selection.criterion import Rows
from isosent.transforms.base import known_rows

NONE, WHITENING, AUTO = TRANSFORMS = ("none", "whitening", "auto")

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class PlacedTask:
    """A task, and where its sentences and their copies stand among texts that are encoded together.

    Parameters
    ----------
    task : STSTask
        The task.
    rows : ndarray of shape (n_rows,), intp
        The places of its texts, each once, those of the scored pairs first.
    n_scored : int
        How many of them stand in scored pairs.
    pairs : tuple of (ndarray, ndarray)
        For each subset, the first and the second sentences of its pairs, as places in `rows`.
    counts : ndarray of shape (n_rows,), float64
        How often each text is among those to fit on; 0 for copies.
    sample : mapping of str to ndarray of shape (n_texts,), intp
        Sampled texts, their neighbours and their copies, see `Sample.lists`, as places in `rows`; empty where there are
        too few texts.
    """

    task: STSTask
    rows: NDArray[np.intp]
    n_scored: int
    pairs: tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]
    counts: NDArray[np.float64]
    sample: Mapping[str, NDArray[np.intp]]


@dataclass(frozen=True, slots=True)
class Score:
    """What one reading is worth on one task under one transform.

    Parameters
    ----------
    spearman : mapping of str to float
        By aggregation; NaN where undefined.
    chosen : str or None
        What "auto" chose.
    """

    spearman: Mapping[str, float]
    chosen: str | None = None


_UNDEFINED = Score(dict.fromkeys(AGGREGATIONS, float("nan")))


def plain_transformer(where: str, model: SentenceEncoder, name: str) -> TransformerEncoder:
    """Take the transformer out of a model, refusing models that have no layers to choose from.

    Parameters
    ----------
    where : str
        Who asks; begins the message.
    model : SentenceEncoder
        The model.
    name : str
        What it is called.

    Returns
    -------
    TransformerEncoder
        Its encoder.

    Raises
    ------
    InputError
        If it is no transformer, something is fitted behind it, or it has fewer than two layers.
    """
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
    """Gather the texts of some tasks, each once, with the copies that "auto" looks at.

    Parameters
    ----------
    tasks : sequence of STSTask
        The tasks.

    Returns
    -------
    texts : list of str
        What has to be encoded.
    placed : list of PlacedTask
        Where each task finds its own.
    """
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
    """Score several things at once, each in a thread of its own.

    Parameters
    ----------
    work : iterable
        What there is to score.
    score : callable
        From one of these to its scores.

    Yields
    ------
    work, scores
        In the order of the work.

    Notes
    -----
    Eigenpairs of a few hundred dimensions gain little from threads that share them, and lose much where these have to
    wait for one another: each thread computes alone.
    """
    with threadpool_limits(1):
        yield from run_batches(work, score, n_workers())


def score_reading(
    placed: PlacedTask, vectors: NDArray[np.float32], transforms: Sequence[str] = TRANSFORMS
) -> dict[str, Score]:
    """Score the vectors of one reading on one task.

    Parameters
    ----------
    placed : PlacedTask
        The task.
    vectors : ndarray of shape (n_rows, dim), float32
        Vectors of its texts, in the order of `PlacedTask.rows`; zero for a text without a token.
    transforms : sequence of str, default all
        Which of `TRANSFORMS`; maps are fitted on all sentences of the task (target).

    Returns
    -------
    dict of str to Score
        One a transform. Whitening is undefined where all vectors are equal, as [CLS] is in the embedding layer.

    Notes
    -----
    Whitening has strength 1 and keeps every axis that is more than noise. Moments, eigenpairs and cosines are float64.
    """

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
        chosen = choose_from_copies(parts, moments, found)
        scores[AUTO] = score(rows.under(chosen) * has_vector, str(chosen))
    return scores
