"""Fitting: from texts, their vectors, or the moments of these, to what follows an encoder, and the record of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
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
from isosent.transforms.base import (
    AUTO,
    FlowTransform,
    Report,
    Transform,
    is_flow,
    known_rows,
    settings_of,
    transform_name,
)


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


def fit_on_vectors(
    behind: Behind,
    transform: Transform | Literal["auto"],
    vectors: NDArray[np.floating],
    query_vectors: NDArray[np.floating] | None = None,
    *,
    choose: Callable[[Moments], AutoChoice] | None = None,
    source: str,
    report: Report | None = None,
) -> tuple[Behind, FitRecord]:
    """Fit a transform behind what follows an encoder, on vectors.

    Parameters
    ----------
    behind : Behind
        What follows the encoder so far.
    transform : Transform or "auto"
        Unfitted, copied.
    vectors, query_vectors : ndarray of shape (n_texts, encoder's dim), float
        Of the encoder; zero rows, which stand for "no vector", are left out.
    choose : callable, optional
        What "auto" asks, with the moments behind `behind`; the spectrum alone where left out.
    source : str
        Where the vectors come from, for the record.
    report : callable, optional
        Told how far the fit of a flow is.

    Returns
    -------
    behind : Behind
        It and the transform.
    record : FitRecord
        What was done.

    Raises
    ------
    InputError
        If no row is other than zero, or the transform refuses them.
    """
    behind.check_fit(transform, queries=query_vectors is not None)
    if is_flow(transform):
        return _fit_flow(behind, transform, vectors, source, report)
    radial = not isinstance(transform, str) and transform.uses_radial_moments
    moments = moments_of_known(vectors, radial=radial)
    query_moments = None if query_vectors is None else moments_of_known(query_vectors, radial=radial)
    choice = choose(behind.moments(moments)) if choose and transform == AUTO else None
    n_zero_rows = len(vectors) - round(moments.weight)
    return fit_behind(behind, transform, moments, query_moments, choice=choice, n_zero_rows=n_zero_rows, source=source)


def _fit_flow(
    behind: Behind, transform: FlowTransform, vectors: NDArray[np.floating], source: str, report: Report | None
) -> tuple[Behind, FitRecord]:
    known = _known(vectors)
    flow = copy.deepcopy(transform).fit(behind.apply(known), report=report)
    record = _record(transform_name(flow), settings_of(flow), len(known), len(vectors) - len(known), source)
    history = tuple(asdict(seen) for seen in flow.history_)
    return replace(behind, flow=flow.glow_), replace(record, history=history)


def fit_behind(
    behind: Behind,
    transform: Transform | Literal["auto"],
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
    transform : Transform or "auto"
        Unfitted, copied, and linear; "auto" looks at the spectrum, unless `choice` says what was chosen.
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
        If the transform refuses the moments or needs the vectors, or `behind` ends with scaling to length 1 or a flow.
    """
    behind.check_fit(transform)
    if is_flow(transform):
        raise InputError("fit_moments: a flow must be fitted on vectors; got their moments. Use fit or fit_vectors.")
    if isinstance(transform, str):
        choice = choice or choose_from_moments(behind.moments(moments))
        chosen = choice.chosen.transform()
    else:
        chosen = copy.deepcopy(transform)
    name = "none" if chosen is None else transform_name(chosen)
    settings = {} if chosen is None else settings_of(chosen)
    record = _record(name, settings, round(moments.weight), n_zero_rows, source, choice)
    return behind.fitted(chosen, moments, query_moments), record


def moments_of_known(encoded: NDArray[np.floating], *, radial: bool = False) -> Moments:
    """Moments of the vectors of texts that have one.

    Parameters
    ----------
    encoded : ndarray of shape (n_texts, dim), float
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
    return Moments.from_rows(_known(encoded), radial=radial)


def _known(encoded: NDArray[np.floating]) -> NDArray[np.floating]:
    known = encoded[known_rows(encoded)]
    if not len(known):
        raise InputError(f"fit: texts must hold words that the encoder knows; got {len(encoded)} texts without any.")
    return known


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
