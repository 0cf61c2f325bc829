"""Fitting: from texts, or the moments of their vectors, to what follows an encoder, and the record of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from isosent.behind import NOTHING, Behind
from isosent.encoders.base import Encoder, Progress
from isosent.errors import InputError
from isosent.model_record import FitRecord
from isosent.numeric.moments import Moments
from isosent.selection.candidates import AutoChoice
from isosent.selection.choice import choose_from_moments
from isosent.transforms.base import LinearTransform, known_rows, settings_of, transform_name


def fit_encoder(
    encoder: Encoder, texts: Sequence[str], *, source: str, progress: Progress | None = None
) -> tuple[Encoder, Behind, FitRecord]:
    """Fit an encoder that needs a corpus, and the linear step that belongs to it.

    Parameters
    ----------
    encoder : Encoder
        One that `needs_corpus`.
    texts : sequence of str
        The corpus.
    source : str
        Where they come from, for the record.
    progress : callable, optional
        Called with the number of texts finished since the last call.

    Returns
    -------
    encoder : Encoder
        The fitted one.
    behind : Behind
        Its linear step.
    record : FitRecord
        What was done.

    Raises
    ------
    InputError
        If no text has a vector.
    """
    fitted = encoder.on_corpus(texts, progress=progress)
    own = fitted.own_transform()
    behind = NOTHING if own is None else NOTHING.fitted(own, moments_of_known(fitted.encode(texts)))
    settings = fitted.settings()
    n_known = fitted.corpus_size
    return fitted, behind, _record(settings.pop("weighting"), settings, n_known, len(texts) - n_known, source)


def fit_behind(
    behind: Behind,
    transform: LinearTransform | Literal["auto"],
    moments: Moments,
    query_moments: Moments | None = None,
    *,
    choice: AutoChoice | None = None,
    n_zero_rows: int = 0,
    source: str,
) -> tuple[Behind, FitRecord]:
    """Fit a transform behind what follows an encoder.

    Parameters
    ----------
    behind : Behind
        What follows the encoder so far.
    transform : LinearTransform or "auto"
        Unfitted, copied; "auto" looks at the spectrum, unless `choice` says what was chosen.
    moments, query_moments : Moments
        Of the encoder's vectors, see `Behind.fitted`.
    choice : AutoChoice, optional
        What "auto" chose before.
    n_zero_rows : int, default 0
        Zero rows left out, for the record.
    source : str
        Where the vectors come from, for the record.

    Returns
    -------
    behind : Behind
        It and the transform, folded.
    record : FitRecord
        What was done.

    Raises
    ------
    InputError
        If the transform refuses the moments, or `behind` ends with scaling to length 1.
    """
    behind.check_fit(transform)
    if isinstance(transform, str):
        choice = choice or choose_from_moments(behind.moments(moments))
        chosen = choice.chosen.transform()
    else:
        chosen = copy.deepcopy(transform)
    name = "none" if chosen is None else transform_name(chosen)
    settings = {} if chosen is None else settings_of(chosen)
    record = _record(name, settings, round(moments.weight), n_zero_rows, source, choice)
    return behind.fitted(chosen, moments, query_moments), record


def moments_of_known(encoded: NDArray[np.float32], *, radial: bool = False) -> Moments:
    """Moments of the vectors of texts that have one.

    Parameters
    ----------
    encoded : ndarray of shape (n_texts, dim), float32
        What an encoder returned.
    radial : bool, default False
        As for `Moments.from_rows`.

    Returns
    -------
    Moments
        Zero rows left out.

    Raises
    ------
    InputError
        If no text has a vector.
    """
    known = encoded[known_rows(encoded)]
    if not len(known):
        raise InputError(f"fit: texts must hold words that the encoder knows; got {len(encoded)} texts without any.")
    return Moments.from_rows(known, radial=radial)


def _record(
    name: str,
    settings: Mapping[str, Any],
    n_texts: int,
    n_zero_rows: int,
    source: str,
    choice: AutoChoice | None = None,
) -> FitRecord:
    return FitRecord(
        transform=name,
        parameters=settings,
        n_texts=n_texts,
        n_zero_rows=n_zero_rows,
        source=source,
        fitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        choice=None if choice is None else choice.to_json(),
    )
