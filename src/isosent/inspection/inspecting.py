"""`inspect_texts` and `inspect_vectors`: all there is to say about a vector space before it is transformed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.behind import NOTHING
from isosent.calibration import FEWEST_PAIRS
from isosent.encoders.base import Progress
from isosent.errors import InputError, RankWarning, TruncationWarning
from isosent.inspection.advice import advise
from isosent.inspection.blocks import ArrayBlocks, VectorBlocks
from isosent.inspection.effect import HELD_OUT_TEXTS, Effect, drop_words, paired_change, rank_copies
from isosent.inspection.result import Inspection, Stage
from isosent.inspection.survey import Survey, survey
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.selection.candidates import AutoChoice
from isosent.selection.choice import choose_from_moments, choose_from_texts
from isosent.transforms.base import LinearTransform
from isosent.transforms.choice import make_linear

AS_THEY_ARE = "as they are"
MARKS = tuple(tenth / 10 for tenth in range(1, 10))
_BINS = 60
_FEWEST_HELD_OUT = 30
_MEASURED = (
    "The map was fitted on one half of the texts. Each text of the other half was copied twice, each time with 30 % of "
    "its words dropped at random, and the one copy was looked for among the other copies of all of them. Copies "
    "stand in for texts that mean the same; they are no human judgement."
)
_TOO_FEW = "There are too few texts to fit on one half of them and measure on the other."
_NO_TEXTS = "Bare vectors do not tell which of them belong together, so no effect on pairs can be measured from them."


Map = Callable[[NDArray[np.floating]], NDArray[np.floating]]


def inspect_texts(
    model: SentenceEncoder,
    texts: Sequence[str],
    *,
    seed: int = 0,
    source: str = "texts in memory",
    progress: Callable[[int], Progress] | None = None,
) -> Inspection:
    """Look at the vectors that a model gives to texts, and say whether they should be transformed.

    Parameters
    ----------
    model : SentenceEncoder
        The model; what it already has behind its encoder is part of it.
    texts : sequence of str
        Texts like those to be compared later.
    seed : int, default 0
        Of every sample.
    source : str, optional
        Where the texts come from, for the record.
    progress : callable, optional
        Called once with the number of texts to encode; returns what is called with the number of texts finished.

    Returns
    -------
    Inspection
        Figures, what auto would choose, its effect on held-out pairs, and an advice.

    Raises
    ------
    InputError
        If there is no text.

    Notes
    -----
    The texts themselves are encoded once, and two copies of up to 2,000 of them for the effect, beside what the choice
    needs. The choice is made on all texts; for the effect its map is fitted on one half and measured on the other.
    """
    texts = _check.some_texts("inspect_texts", texts)
    if model.encoder.needs_corpus:
        model = model.fit(texts, transform=None)
    encoded = model.encode(texts, progress=None if progress is None else progress(len(texts)))
    n_duplicates = len(texts) - len(set(texts))
    seen = survey(ArrayBlocks(encoded), seed=seed, n_duplicate_texts=n_duplicates)
    choice, effect = None, None
    if _varies(seen):
        choice = choose_from_texts(model.encode, texts, seen.moments, seed=seed)
        effect = _effect(model, encoded, _halves(texts, encoded, seed), _compared(choice), texts, seed)
    note = _TOO_FEW if effect is None else _MEASURED
    reference = f"{model.encoder.reference}{''.join(f' -> {fit.transform}' for fit in model.fits)}"
    return _conclude(seen, choice, effect=(effect, note), origin=(source, reference), seed=seed)


def inspect_vectors(
    vectors: VectorBlocks | NDArray[Any],
    *,
    seed: int = 0,
    source: str = "vectors in memory",
    progress: Callable[[int], Progress] | None = None,
) -> Inspection:
    """Look at vectors that somebody already has, and say whether they should be transformed.

    Parameters
    ----------
    vectors : ndarray of shape (n_rows, dim), any real dtype, or VectorBlocks
        The vectors, or what `open_vectors` gives, which is read once. NaN and infinity are counted and left out.
    seed : int, default 0
        Of every sample.
    source : str, optional
        Where they come from, for the record.
    progress : callable, optional
        Called once with the number of rows; returns what is called with the number of rows finished.

    Returns
    -------
    Inspection
        As `inspect_texts` gives, without an effect: vectors do not tell which of them belong together.

    Raises
    ------
    InputError
        If an array is not 2-D or holds no real numbers.
    """
    if isinstance(vectors, np.ndarray):
        vectors = ArrayBlocks(_check.matrix("inspect_vectors", "vectors", vectors))
    seen = survey(vectors, seed=seed, progress=progress)
    choice = choose_from_moments(seen.moments) if _varies(seen) else None
    return _conclude(seen, choice, effect=(None, _NO_TEXTS), origin=(source, None), seed=seed)


def _varies(seen: Survey) -> bool:
    return seen.counts.n_pairs >= FEWEST_PAIRS and bool(seen.eigenvalues()[0] > 0)


def _compared(choice: AutoChoice) -> tuple[str, LinearTransform]:
    """What stands beside the vectors as they are: the choice, or full whitening where it is to leave them alone."""
    chosen = choice.chosen.transform()
    if chosen is None:
        return "full whitening", make_linear("whitening")
    return str(choice.chosen), chosen


def _fit(transform: LinearTransform, moments: Moments) -> Map:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        return NOTHING.fitted(transform, moments).apply


def _conclude(
    seen: Survey,
    choice: AutoChoice | None,
    *,
    effect: tuple[Effect | None, str],
    origin: tuple[str, str | None],
    seed: int,
) -> Inspection:
    """Put the figures of both stages together, and say what follows."""
    values, cosines = seen.eigenvalues(), seen.cosines(seed=seed)
    stages = [(AS_THEY_ARE, seen, values, cosines)]
    if choice is not None:
        label, compared = _compared(choice)
        mapped = _fit(compared, seen.moments)(seen.sample)
        behind = survey(ArrayBlocks(mapped), seed=seed)
        stages.append((label, behind, behind.eigenvalues(), behind.cosines(seed=seed)))
    drawn = [stage[3] for stage in stages]
    edges = _edges(np.concatenate(drawn))
    before, *rest = [_stage(*stage, edges) for stage in stages]
    after = rest[0] if rest else None
    return Inspection(
        source=origin[0],
        model=origin[1],
        seed=seed,
        counts=seen.counts,
        eigenvalues=tuple(values.tolist()),
        choice=choice,
        before=before,
        after=after,
        effect=effect[0],
        effect_note=effect[1],
        advice=advise(seen.counts, choice, effect[0], is_text=origin[1] is not None),
        marks=MARKS,
        cosine_edges=tuple(edges.tolist()),
    )


def _edges(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    if not len(cosines):
        return np.linspace(-1, 1, _BINS + 1)
    low, high = np.quantile(cosines, [0.0005, 0.9995])
    margin = 0.02 + 0.05 * (high - low)
    return np.linspace(max(-1.0, low - margin), min(1.0, high + margin), _BINS + 1)


def _stage(
    label: str,
    seen: Survey,
    values: NDArray[np.float64],
    cosines: NDArray[np.float64],
    edges: NDArray[np.float64],
) -> Stage:
    shares = np.histogram(np.clip(cosines, edges[0], edges[-1]), edges)[0] / max(len(cosines), 1)
    percentiles: tuple[float, ...] = (float("nan"),) * len(MARKS)
    if len(cosines):
        percentiles = tuple(float((cosines < mark).mean()) for mark in MARKS)
    return Stage(label, seen.figures(cosines, values), tuple(shares.tolist()), percentiles)


def _halves(
    texts: Sequence[str], encoded: NDArray[np.floating], seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of two halves of the distinct texts that have a vector; of the second at most `HELD_OUT_TEXTS`."""
    first_rows = {text: row for row, text in reversed(list(enumerate(texts)))}
    rows = np.sort(np.fromiter(first_rows.values(), np.intp))
    rows = rows[encoded[rows].any(axis=1)]
    shuffled = np.random.default_rng(seed).permutation(rows)
    half = len(shuffled) // 2
    return shuffled[:half], shuffled[half : half + HELD_OUT_TEXTS]


def _effect(
    model: SentenceEncoder,
    encoded: NDArray[np.float32],
    halves: tuple[NDArray[np.intp], NDArray[np.intp]],
    compared: tuple[str, LinearTransform],
    texts: Sequence[str],
    seed: int,
) -> Effect | None:
    """Fit on one half and look for the copies of the other; None where a half is too little for that."""
    fitted_on, held_out = halves
    if len(held_out) < _FEWEST_HELD_OUT:
        return None
    label, transform = compared
    try:
        apply = _fit(transform, Moments.from_rows(encoded[fitted_on]))
    except InputError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        copies = [model.encode(drop_words([texts[row] for row in held_out], seed=seed + number)) for number in (1, 2)]
    known = copies[0].any(axis=1) & copies[1].any(axis=1)
    first, second = (vectors[known] for vectors in copies)
    before, after = rank_copies(first, second), rank_copies(apply(first), apply(second))
    found, ranked = (paired_change(*scores, seed=seed) for scores in zip(before, after, strict=True))
    return Effect(label, int(known.sum()), found, ranked)
