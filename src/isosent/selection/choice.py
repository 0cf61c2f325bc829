"""Choosing a transform, or none, without labels: from texts, or from moments alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.moments import Moments
from isosent.numeric.spectral_rule import LARGEST_MEAN_SHARE, MILD_STRENGTH, mean_share
from isosent.numeric.spectrum import Spectrum, spectrum
from isosent.selection.candidates import LEAVE, AutoChoice, Candidate, ScoredCandidate, candidates, half_whitening
from isosent.selection.copies import perturb
from isosent.selection.criterion import HALVES_FIRST, MEANING_KEPT, RELATED_FIRST, Odds, Rows, mean_odds, odds_of
from isosent.transforms.base import known_rows

MARGIN = 0.55
FEWEST_TEXTS = 100


def choose_from_texts(
    encode: Callable[[Sequence[str]], NDArray[np.float32]],
    texts: Sequence[str],
    moments: Moments,
    *,
    seed: int = 0,
) -> AutoChoice:
    """Choose by what the vectors make of perturbed copies of the texts.

    Parameters
    ----------
    encode : callable
        From texts to vectors; a text without a vector has a zero row.
    texts : sequence of str
        The texts to fit on; their order does not matter.
    moments : Moments
        Of their vectors, zero rows left out.
    seed : int, default 0
        Of the sample and its copies.

    Returns
    -------
    AutoChoice
        Leaving the vectors alone, or a whitening, with the scores of all candidates.

    Notes
    -----
    Up to 1,000 texts are drawn, each with a tf-idf neighbour and five copies that lost or exchanged words (see
    `perturb`); the copies are encoded. Kinds of pairs are compared by `log_odds`.

    1. A trial, whitening of strength 1/2 to half the dimensions, is set against the vectors as they are, by the mean
       log-odds that related pairs come first: a text and half its words before the text and a mixture of that many of
       its words with another text's, a mixture before random texts, a text without its frequent words before its
       neighbour. Where it wins by at least 0.55, the vectors are badly scaled, and step 2 says how to whiten them.
       Otherwise they are left alone; unless the trial tells two halves of a text, which have no word in common, from
       random texts better than both the vectors as they are and mean projection, and by at least as much as it loses
       on the mean: then the trial itself is chosen.
    2. Of the whitenings at least as strong as the trial and at most as wide, the one with the highest mean log-odds
       that meaning is kept: a text without its frequent words before the mixture; and, before its neighbour, a text
       without its rare words, the text without its frequent words against that without its rare ones, and its two
       halves against each other.

    With fewer than 100 usable texts (of four words or more, known to the encoder) `choose_from_moments` decides.
    """
    found = spectrum(moments.covariance, noise=moments.rounding_variance)
    parts = _sample_vectors(encode, texts, seed) if found.rank else {}
    n_texts = len(parts["text"]) if parts else 0
    if n_texts < FEWEST_TEXTS:
        why = f"There are fewer than {FEWEST_TEXTS} texts of four words or more, with spaces between, that it knows."
        return _choose_from_spectrum(moments, found, why)
    odds = _odds_over(parts, moments, found)
    grid = candidates(moments.dim, found.rank)
    chosen, reason = _choose_by_odds(odds, grid, half_whitening(moments.dim, found.rank), n_texts)
    scored = (ScoredCandidate(c, mean_odds(odds(c), MEANING_KEPT), mean_odds(odds(c), RELATED_FIRST)) for c in grid)
    return AutoChoice(chosen, tuple(scored), reason)


def choose_from_copies(parts: Mapping[str, NDArray[np.floating]], moments: Moments, found: Spectrum) -> Candidate:
    """Choose as `choose_from_texts` does, where the copies are encoded already and only the choice is wanted.

    Parameters
    ----------
    parts : mapping of str to ndarray of shape (n_texts, dim)
        Vectors of the sampled texts, their neighbours and their copies, see `Sample.lists`; a row that is zero in one
        of them is left out.
    moments : Moments
        Of the vectors to fit on.
    found : Spectrum
        Of their covariance.

    Returns
    -------
    Candidate
        The choice. Candidates that cannot be chosen are not scored.
    """
    parts = _known_in_all(parts) if parts and found.rank else {}
    n_texts = len(parts["text"]) if parts else 0
    if n_texts < FEWEST_TEXTS:
        return _choose_from_spectrum(moments, found, "").chosen
    odds, grid = _odds_over(parts, moments, found), candidates(moments.dim, found.rank)
    return _choose_by_odds(odds, grid, half_whitening(moments.dim, found.rank), n_texts)[0]


def _odds_over(
    parts: Mapping[str, NDArray[np.floating]], moments: Moments, found: Spectrum
) -> Callable[[Candidate], Odds]:
    rows = {name: Rows(part, moments, found) for name, part in parts.items()}
    return cache(lambda candidate: odds_of(candidate, rows))


def _choose_by_odds(
    odds: Callable[[Candidate], Odds], grid: Sequence[Candidate], trial: Candidate, n_texts: int
) -> tuple[Candidate, str]:
    """The choice and why; only candidates that it hangs on are scored."""
    raw, projection = Candidate(), Candidate("mean_projection")
    gain = mean_odds(odds(trial), RELATED_FIRST) - mean_odds(odds(raw), RELATED_FIRST)
    won = (
        f"over {n_texts} texts, {trial} told related pairs from unrelated ones by {gain:+.2f} log-odds against the "
        f"vectors as they are (at least {MARGIN:+.2f} is asked for)"
    )
    if gain >= MARGIN:
        chosen = max((c for c in grid if _goes_as_far(c, trial)), key=lambda c: mean_odds(odds(c), MEANING_KEPT))
        return chosen, (
            f"{won}; of the whitenings at least as strong and at most as wide, this one kept the meaning of shortened "
            "texts best."
        )
    halves_gain = odds(trial)[HALVES_FIRST] - max(odds(raw)[HALVES_FIRST], odds(projection)[HALVES_FIRST])
    if halves_gain > 0 and gain + halves_gain >= 0:
        return trial, f"{won}, but it told the two halves of a text from unrelated texts best, which share no word."
    return raw, f"{won}: these vectors are scaled well as they are."


def _goes_as_far(candidate: Candidate, trial: Candidate) -> bool:
    """Whether a candidate is a whitening at least as strong as the trial and at most as wide."""
    return (
        candidate.name == "whitening"
        and (candidate.strength or 0.0) >= (trial.strength or 0.0)
        and (candidate.n_components or 0) <= (trial.n_components or 0)
    )


def choose_from_moments(moments: Moments) -> AutoChoice:
    """Choose by the spectrum alone, for vectors whose texts are not at hand.

    Parameters
    ----------
    moments : Moments
        Of the vectors.

    Returns
    -------
    AutoChoice
        Whitening of strength 1/2 to half the dimensions where the mean holds over a fifth of the squared length (see
        `mean_share`); otherwise, leaving the vectors alone.

    Notes
    -----
    Coarser than `choose_from_texts`: it cannot tell a trained encoder whose vectors share a large mean from a raw one.
    """
    found = spectrum(moments.covariance, noise=moments.rounding_variance)
    return _choose_from_spectrum(moments, found, "No texts were looked at.")


def _choose_from_spectrum(moments: Moments, found: Spectrum, why: str) -> AutoChoice:
    raw = Candidate(LEAVE)
    if not found.rank:
        return AutoChoice(raw, (ScoredCandidate(raw),), "the vectors are all equal: there is nothing to even out.")
    share, trial = mean_share(moments), half_whitening(moments.dim, found.rank)
    reason = (
        f"the mean holds {share:.0%} of the squared length of the vectors; above {LARGEST_MEAN_SHARE:.0%}, whitening "
        f"of strength {MILD_STRENGTH} helps as a rule, and below it does not. {why}"
    )
    chosen = trial if share > LARGEST_MEAN_SHARE else raw
    return AutoChoice(chosen, (ScoredCandidate(raw), ScoredCandidate(trial)), reason)


def _sample_vectors(
    encode: Callable[[Sequence[str]], NDArray[np.float32]], texts: Sequence[str], seed: int
) -> dict[str, NDArray[np.floating]]:
    """Vectors of the sampled texts, their neighbours and their copies; texts without a vector are left out."""
    sample = perturb(texts, seed=seed)
    if len(sample.texts) < FEWEST_TEXTS:
        return {}
    encoded = encode([text for lines in sample.lists.values() for text in lines]).astype(np.float64)
    return _known_in_all(
        dict(zip(sample.lists, encoded.reshape(len(sample.lists), len(sample.texts), -1), strict=True))
    )


def _known_in_all(parts: Mapping[str, NDArray[np.floating]]) -> dict[str, NDArray[np.floating]]:
    """The rows that are not zero in any part."""
    known = np.all([known_rows(part) for part in parts.values()], axis=0)
    return {name: part[known] for name, part in parts.items()}
