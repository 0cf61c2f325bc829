"""SentenceEncoder: an encoder and what was fitted behind it."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Encoder, Progress
from isosent.errors import InputError
from isosent.numeric.glow import Glow
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import cosine_matrix
from isosent.persistence import FitRecord, ModelRecord, write_model
from isosent.postprocessing import NO_POSTPROCESSING, Postprocessing
from isosent.transforms.auto import AutoChoice, choose_from_moments, choose_from_texts
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
from isosent.transforms.calibration import Calibration


def fit_encoder(
    encoder: Encoder, texts: Sequence[str], *, source: str, progress: Progress | None = None
) -> tuple[Encoder, Postprocessing, FitRecord]:
    """Fit an encoder that needs a corpus, and the linear step that belongs to it."""
    fitted = encoder.on_corpus(texts, progress=progress)
    own = fitted.own_transform()
    postprocessing = (
        NO_POSTPROCESSING if own is None else NO_POSTPROCESSING.fitted(own, moments_of_known(fitted.encode(texts)))
    )
    settings = fitted.settings()
    n_known = fitted.corpus_size
    return fitted, postprocessing, _record(settings.pop("weighting"), settings, n_known, len(texts) - n_known, source)


def fit_on_vectors(
    postprocessing: Postprocessing,
    transform: Transform | Literal["auto"],
    vectors: NDArray[np.floating],
    query_vectors: NDArray[np.floating] | None = None,
    *,
    choose: Callable[[Moments], AutoChoice] | None = None,
    source: str,
    report: Report | None = None,
) -> tuple[Postprocessing, FitRecord]:
    """Fit a transform behind what follows an encoder, on vectors."""
    postprocessing.check_fit(transform, queries=query_vectors is not None)
    if is_flow(transform):
        return _fit_flow(postprocessing, transform, vectors, source, report)
    radial = not isinstance(transform, str) and transform.uses_radial_moments
    moments = moments_of_known(vectors, radial=radial)
    query_moments = None if query_vectors is None else moments_of_known(query_vectors, radial=radial)
    choice = choose(postprocessing.moments(moments)) if choose and transform == AUTO else None
    n_zero_rows = len(vectors) - round(moments.weight)
    return fit_postprocessing(
        postprocessing, transform, moments, query_moments, choice=choice, n_zero_rows=n_zero_rows, source=source
    )


def _fit_flow(
    postprocessing: Postprocessing,
    transform: FlowTransform,
    vectors: NDArray[np.floating],
    source: str,
    report: Report | None,
) -> tuple[Postprocessing, FitRecord]:
    known = _known(vectors)
    flow = copy.deepcopy(transform).fit(postprocessing.apply(known), report=report)
    record = _record(transform_name(flow), settings_of(flow), len(known), len(vectors) - len(known), source)
    history = tuple(asdict(seen) for seen in flow.history_)
    return replace(postprocessing, flow=flow.glow_), replace(record, history=history)


def fit_postprocessing(
    postprocessing: Postprocessing,
    transform: Transform | Literal["auto"],
    moments: Moments,
    query_moments: Moments | None = None,
    *,
    choice: AutoChoice | None = None,
    n_zero_rows: int = 0,
    source: str,
) -> tuple[Postprocessing, FitRecord]:
    """Fit a transform behind what follows an encoder."""
    postprocessing.check_fit(transform)
    if is_flow(transform):
        raise InputError("fit_moments: a flow must be fitted on vectors; got their moments. Use fit or fit_vectors.")
    if isinstance(transform, str):
        choice = choice or choose_from_moments(postprocessing.moments(moments))
        chosen = choice.chosen.transform()
    else:
        chosen = copy.deepcopy(transform)
    name = "none" if chosen is None else transform_name(chosen)
    settings = {} if chosen is None else settings_of(chosen)
    record = _record(name, settings, round(moments.weight), n_zero_rows, source, choice)
    return postprocessing.fitted(chosen, moments, query_moments), record


def moments_of_known(encoded: NDArray[np.floating], *, radial: bool = False) -> Moments:
    """Moments of the vectors of texts that have one."""
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


class SentenceEncoder:
    """Texts to sentence vectors: an encoder, and what was fitted behind it.

    Made by `load` and by `fit`, never changed after that.

    Parameters
    ----------
    encoder : Encoder
        Turns texts into vectors.
    behind : Behind, optional
        What follows the encoder; nothing for a bare one.
    fits : tuple of FitRecord, optional
        What that was fitted on.
    calibration : Calibration, optional
        What a cosine of this space means.
    """

    def __init__(
        self,
        encoder: Encoder,
        postprocessing: Postprocessing = NO_POSTPROCESSING,
        fits: tuple[FitRecord, ...] = (),
        calibration: Calibration | None = None,
    ) -> None:
        if postprocessing.dim is not None:
            _check.same_dim("SentenceEncoder", "encoder", encoder.dim, postprocessing.dim)
        self._encoder = encoder
        self._postprocessing = postprocessing
        self._fits = fits
        self._calibration = calibration

    @classmethod
    def from_record(cls, encoder: Encoder, record: ModelRecord) -> SentenceEncoder:
        """Put a model together from its opened encoder and the record of the rest."""
        return cls(encoder, record.postprocessing, record.fits, record.calibration)

    @property
    def encoder(self) -> Encoder:
        """The encoder in front of the map."""
        return self._encoder

    @property
    def linear_map(self) -> LinearMap | None:
        """The map behind the encoder, of shape (encoder's dim, dim)."""
        return self._postprocessing.linear_map

    @property
    def query_map(self) -> LinearMap | None:
        """The map of queries, where they have a mean of their own; the weight is that of `linear_map`."""
        return self._postprocessing.query_map

    @property
    def flow(self) -> Glow | None:
        """The flow behind the map."""
        return self._postprocessing.flow

    @property
    def normalize(self) -> bool:
        """Whether vectors are scaled to length 1 in the end."""
        return self._postprocessing.normalize

    @property
    def fits(self) -> tuple[FitRecord, ...]:
        """What the map was fitted on, step by step."""
        return self._fits

    @property
    def calibration(self) -> Calibration | None:
        """What a cosine of this space means, where that was measured."""
        return self._calibration

    @property
    def dim(self) -> int:
        """Dimensions of the sentence vectors."""
        return self._encoder.dim if self.linear_map is None else self.linear_map.n_components

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the vector space; vectors can be compared only within one."""
        return self.record.fingerprint

    def __repr__(self) -> str:
        steps = "".join(f" -> {fit.transform}" for fit in self._fits)
        return f"<SentenceEncoder {self._encoder.reference}{steps}, {self.dim} dimensions>"

    def encode(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Encode texts.

        Parameters
        ----------
        texts : sequence of str
            Any number of texts.
        progress : callable, optional
            Called with the number of texts finished since the last call.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            Row i belongs to text i; that of a text without a token that the encoder knows is zero, behind a map too.
            A `TruncationWarning` tells how many texts were cut at the encoder's maximum.

        Raises
        ------
        InputTypeError
            If `texts` is a bare string (pass ``[text]``), or something in it is no string.
        """
        return self.transform(self._encoder.encode(texts, progress=progress))

    def encode_document(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Encode texts to be found: as `encode`, but with the encoder's prompt of documents where it has one."""
        return self.transform(self._encoder.for_documents().encode(texts, progress=progress))

    def encode_query(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Encode texts to search with: as `encode`, but with their own prompt, and mean where there was one to fit."""
        return self.transform(self._encoder.for_queries().encode(texts, progress=progress), queries=True)

    def transform(self, vectors: NDArray[np.floating], *, queries: bool = False) -> NDArray[np.float32]:
        """Take vectors that this model's bare encoder gave through what follows it.

        Parameters
        ----------
        vectors : ndarray of shape (n_texts, encoder.dim), float
            What ``model.encoder.encode`` returned, or what an encoder elsewhere did; zero rows stay zero.
        queries : bool, default False
            Whether they are those of queries.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            What `encode` would have returned for the same texts.
        """
        return self._postprocessing.apply(vectors, queries=queries)

    def similarity(
        self,
        a: Sequence[str] | NDArray[np.floating],
        b: Sequence[str] | NDArray[np.floating],
        *,
        calibrated: bool = False,
    ) -> NDArray[np.float64]:
        """Cosine of each of `a` with each of `b`, or what it means.

        Parameters
        ----------
        a, b : sequence of str, or ndarray of shape (n, dim)
            Texts, or vectors of this model.
        calibrated : bool, default False
            Whether cosines become what the model's calibration says.

        Returns
        -------
        ndarray of shape (n_a, n_b), float64
            Cosines in [-1, 1], 0 where either vector is zero; calibrated, in [0, 1].

        Raises
        ------
        InputError
            If the model holds no calibration, the widths differ, or vectors hold something else than finite numbers.
        """
        if calibrated and self._calibration is None:
            make = "model.with_calibration(Calibration.from_random_pairs(vectors))"
            raise InputError(f"similarity: the model must hold a calibration; it holds none. Make one: {make}.")
        cosines = cosine_matrix(self._vectors_of("a", a), self._vectors_of("b", b))
        return self._calibration(cosines) if calibrated and self._calibration else cosines

    def _vectors_of(self, name: str, texts: Sequence[str] | NDArray[np.floating]) -> NDArray[np.floating]:
        if not isinstance(texts, np.ndarray):
            return self.encode(texts)
        vectors = _check.matrix("similarity", name, texts)
        _check.finite_rows("similarity", name, vectors)
        return vectors

    def with_calibration(self, calibration: Calibration | None) -> SentenceEncoder:
        """Return this model with another calibration."""
        return SentenceEncoder(self._encoder, self._postprocessing, self._fits, calibration)

    def fit(
        self,
        texts: Sequence[str],
        *,
        transform: Transform | Literal["auto"] | None,
        queries: Sequence[str] | None = None,
        encoded: NDArray[np.float32] | None = None,
        source: str = "texts in memory",
        progress: Progress | None = None,
    ) -> SentenceEncoder:
        """Fit a transform on texts, without labels.

        Parameters
        ----------
        texts : sequence of str
            Texts like those to be compared later; the documents, where there are queries.
        transform : Transform, "auto" or None
            An unfitted transform such as ``Whitening(n_components=128)``, which is copied, not changed; or "auto",
            which chooses one, or none, see `choose_from_texts`. An encoder that learns from texts, such as GEM, is
            fitted on them first; None fits it alone.
        queries : sequence of str, optional
            Texts to search with. They get a mean of their own: `encode_query` shifts it onto that of the documents,
            and the map is fitted on the scatter of both, each about its own mean.
        encoded : ndarray of shape (n_texts, encoder.dim), float32, optional
            What ``model.encoder.encode(texts)`` returned, that of ``encoder.for_documents()`` with queries.
        source : str, optional
            Where the texts come from, for the record.
        progress : callable, optional
            As for `encode`.

        Returns
        -------
        SentenceEncoder
            A new one: this one with the fitted transform behind it, folded into a map before it where that goes.

        Raises
        ------
        InputError
            If no text has a vector, the transform refuses them, or there is none for the queries.
        """
        listed = _check.some_texts("fit", texts)
        listed_queries = None if queries is None else _check.some_texts("fit", queries)
        if transform is None and queries is not None:
            raise InputError("fit: queries must come with a transform; got None. Leave them out.")
        if transform is not None:
            self._postprocessing.check_fit(transform, queries=queries is not None)
        if self._encoder.needs_corpus:
            encoder, postprocessing, record = fit_encoder(self._encoder, listed, source=source, progress=progress)
            fitted = SentenceEncoder(encoder, postprocessing, (record,))
            return fitted.fit(listed, transform=transform, queries=listed_queries, source=source, progress=progress)
        if transform is None:
            return self
        model = self if queries is None else SentenceEncoder(self._encoder.for_documents(), self._postprocessing)
        if encoded is None:
            encoded = model.encoder.encode(listed, progress=progress)
        _check.same_count("fit", "encoded", len(encoded), len(listed))
        query_vectors = None if listed_queries is None else self._encoder.for_queries().encode(listed_queries)
        choose = partial(choose_from_texts, model.encode, listed)
        after = fit_on_vectors(self._postprocessing, transform, encoded, query_vectors, choose=choose, source=source)
        return self._with_fit(*after)

    def fit_vectors(
        self,
        vectors: NDArray[np.floating],
        *,
        transform: Transform | Literal["auto"],
        source: str = "vectors in memory",
        report: Report | None = None,
    ) -> SentenceEncoder:
        """Fit a transform as `fit` does, on what the bare encoder returned; a flow tells `report` how far it is."""
        self._encoder.require_fitted("fit_vectors")
        array = _check.matrix("fit_vectors", "vectors", vectors)
        _check.same_dim("fit_vectors", "vectors", array.shape[1], self._encoder.dim)
        return self._with_fit(*fit_on_vectors(self._postprocessing, transform, array, source=source, report=report))

    def fit_moments(
        self,
        moments: Moments,
        *,
        transform: Transform | Literal["auto"],
        query_moments: Moments | None = None,
        choice: AutoChoice | None = None,
        n_zero_rows: int = 0,
        source: str = "moments in memory",
    ) -> SentenceEncoder:
        """Fit a transform as `fit` does, on the moments of vectors that this model's bare encoder gave.

        Parameters
        ----------
        moments : Moments
            Of the vectors of texts; zero rows, which stand for "no vector", should not be among them.
        transform : LinearTransform or "auto"
            As for `fit`; "auto" looks at the spectrum, unless `choice` says what was chosen.
        query_moments : Moments, optional
            The same of queries.
        choice : AutoChoice, optional
            What "auto" chose before.
        n_zero_rows : int, default 0
            Zero rows left out, for the record.
        source : str, optional
            Where the vectors come from, for the record.

        Returns
        -------
        SentenceEncoder
            A new one: this one with the fitted map behind it.

        Raises
        ------
        InputError
            If the transform refuses the moments, the encoder is not fitted, or this model ends with length 1.
        """
        self._encoder.require_fitted("fit_moments")
        fitted = fit_postprocessing(
            self._postprocessing,
            transform,
            moments,
            query_moments,
            choice=choice,
            n_zero_rows=n_zero_rows,
            source=source,
        )
        return self._with_fit(*fitted)

    def _with_fit(self, postprocessing: Postprocessing, record: FitRecord) -> SentenceEncoder:
        return SentenceEncoder(self._encoder, postprocessing, (*self._fits, record))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a model folder: all but the encoder, which is named by its reference and fingerprint.

        Parameters
        ----------
        folder : path-like
            A new or empty one, or one that holds a model, which is replaced in one step.

        Raises
        ------
        OutputError
            If the folder holds something else or cannot be written. An older model there is intact.
        """
        write_model(folder, self.record)

    @property
    def record(self) -> ModelRecord:
        """What a model folder holds of this model."""
        encoder = self._encoder
        return ModelRecord(
            encoder.reference,
            encoder.options,
            encoder.dim,
            encoder.fingerprint,
            self._postprocessing,
            self._fits,
            self._calibration,
            encoder.corpus_tensors(),
        )
