"""SentenceEncoder: an encoder, and the transform that was fitted on its vectors."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

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
    LinearTransform,
    Report,
    Transform,
    is_flow,
    known_rows,
    resolve_transform,
    settings_of,
    transform_name,
)
from isosent.transforms.calibration import Calibration


class SentenceEncoder:
    """Texts to sentence vectors: an encoder, and the transform that was fitted on its vectors.

    `load`, `wrap` and `fitted` return one; it never changes afterwards.

    Parameters
    ----------
    encoder : Encoder
        Turns texts into vectors.
    postprocessing : Postprocessing, optional
        What follows the encoder; nothing by default.
    fits : tuple of FitRecord, optional
        What the postprocessing was fitted on, step by step.
    calibration : Calibration, optional
        What a cosine between two of the vectors means.
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
        """Combine an encoder with the rest of a saved model."""
        return cls(encoder, record.postprocessing, record.fits, record.calibration)

    @property
    def encoder(self) -> Encoder:
        """The encoder, without the transform."""
        return self._encoder

    @property
    def linear_map(self) -> LinearMap | None:
        """The fitted linear map, of shape (encoder.dim, dim)."""
        return self._postprocessing.linear_map

    @property
    def query_map(self) -> LinearMap | None:
        """The map of queries if it was fitted separately; it has the weight of `linear_map` and another bias."""
        return self._postprocessing.query_map

    @property
    def flow(self) -> Glow | None:
        """The fitted flow, which follows the map."""
        return self._postprocessing.flow

    @property
    def normalize(self) -> bool:
        """Whether the vectors are scaled to length 1 in the end."""
        return self._postprocessing.normalize

    @property
    def fits(self) -> tuple[FitRecord, ...]:
        """What was fitted, step by step."""
        return self._fits

    @property
    def calibration(self) -> Calibration | None:
        """What a cosine between two of the vectors means, if that was measured."""
        return self._calibration

    @property
    def dim(self) -> int:
        """Dimensions of the sentence vectors."""
        return self._encoder.dim if self.linear_map is None else self.linear_map.n_components

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the vector space; only vectors with the same fingerprint can be compared."""
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
            Row i belongs to text i. A text without a token that the encoder knows has the zero row, also after a
            transform. A `TruncationWarning` tells how many texts were cut at the encoder's maximum length.

        Raises
        ------
        InputTypeError
            If `texts` is a bare string (pass ``[text]``), or something in it is not a string.
        """
        return self.transform(self._encoder.encode(texts, progress=progress))

    def encode_document(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Encode texts to be found: as `encode`, with the encoder's prompt of documents if it has one."""
        return self.transform(self._encoder.for_documents().encode(texts, progress=progress))

    def encode_query(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """Encode queries: as `encode`, with the prompt of queries and the query map if the model has them."""
        return self.transform(self._encoder.for_queries().encode(texts, progress=progress), queries=True)

    def transform(self, vectors: NDArray[np.floating], *, queries: bool = False) -> NDArray[np.float32]:
        """Apply what follows the encoder to vectors of the bare encoder.

        Parameters
        ----------
        vectors : ndarray of shape (n_texts, encoder.dim), float
            What ``model.encoder.encode`` returned, here or elsewhere; zero rows stay zero.
        queries : bool, default False
            Whether they are vectors of queries.

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
            Whether to map the cosines by the model's calibration.

        Returns
        -------
        ndarray of shape (n_a, n_b), float64
            Cosines in [-1, 1], 0 where either vector is zero; calibrated, in [0, 1].

        Raises
        ------
        InputError
            If the model has no calibration, the widths differ, or vectors hold NaN or infinity.
        """
        if calibrated and self._calibration is None:
            make = "model.with_calibration(Calibration.from_random_pairs(vectors))"
            raise InputError(f"similarity: the model has no calibration. Make one: {make}.")
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

    def fitted(
        self,
        texts: Sequence[str],
        transform: Transform | str | None = AUTO,
        *,
        settings: Mapping[str, Any] | None = None,
        queries: Sequence[str] | None = None,
        encoded: NDArray[np.float32] | None = None,
        source: str = "texts in memory",
        progress: Progress | None = None,
        report: Report | None = None,
    ) -> SentenceEncoder:
        """Return this model with a transform fitted on texts, without labels.

        An encoder that learns from texts, such as GEM, is fitted on them first.

        Parameters
        ----------
        texts : sequence of str
            Texts like those to be compared later; the documents if there are queries.
        transform : Transform, str or None, default "auto"
            An unfitted transform such as ``Whitening(n_components=128)``, which is copied; names as on the command
            line, such as ``"whitening"`` or ``"mean_centering,whitening"``; ``"auto"``, which chooses one or none by
            the texts; or ``"none"`` or None, which fits the encoder alone.
        settings : mapping of str to object, optional
            Settings of a transform that is named, such as ``{"n_components": 128}``.
        queries : sequence of str, optional
            Queries like those to be used later. Their mean is fitted separately: `encode_query` shifts it onto the
            mean of the documents. The map is fitted on the scatter of both, each about its own mean.
        encoded : ndarray of shape (n_texts, encoder.dim), float32, optional
            What ``model.encoder.encode(texts)`` returned (that of ``encoder.for_documents()`` with queries), to save
            encoding the texts again.
        source : str, optional
            Where the texts come from, for the record.
        progress : callable, optional
            Called with the number of texts finished since the last call.
        report : callable, optional
            Called with the `FitProgress` of a flow.

        Returns
        -------
        SentenceEncoder
            A new model. A linear transform is folded into the map of this one.

        Raises
        ------
        InputError
            If no text has a vector, the transform refuses them, or queries come without a transform.

        Examples
        --------
        >>> import isosent
        >>> model = isosent.load("wordllama").fitted(isosent.demo_texts(), "whitening", settings={"n_components": 64})
        >>> model.encode(["A man is riding a horse."]).shape
        (1, 64)
        """
        texts = _check.some_texts("fit", texts)
        queries = None if queries is None else _check.some_texts("fit", queries)
        transform = resolve_transform(transform, settings, dim=self.dim)
        if transform is None and queries is not None:
            raise InputError("fit: queries need a transform; got none. Leave them out.")
        if transform is not None:
            self._postprocessing.check_fit(transform, queries=queries is not None)
        if self._encoder.needs_corpus:
            model = self._with_encoder_fitted(texts, source, progress)
            return model.fitted(texts, transform, queries=queries, source=source, progress=progress, report=report)
        if transform is None:
            return self
        encoder = self._encoder if queries is None else self._encoder.for_documents()
        if encoded is None:
            encoded = encoder.encode(texts, progress=progress)
        _check.same_count("fit", "encoded", len(encoded), len(texts))
        query_vectors = None if queries is None else self._encoder.for_queries().encode(queries)
        encode = SentenceEncoder(encoder, self._postprocessing).encode
        choose = partial(choose_from_texts, encode, texts) if transform == AUTO else None
        return self._fitted_on(transform, encoded, query_vectors, choose=choose, source=source, report=report)

    def fit(self, texts: Sequence[str], *args: Any, **kwargs: Any) -> SentenceEncoder:
        """Do the same as `fitted`; deprecated, because it returns a new model and leaves this one as it is."""
        warnings.warn("SentenceEncoder.fit is now named fitted.", DeprecationWarning, stacklevel=2)
        return self.fitted(texts, *args, **kwargs)

    def fitted_on_vectors(
        self,
        vectors: NDArray[np.floating],
        transform: Transform | str = AUTO,
        *,
        settings: Mapping[str, Any] | None = None,
        source: str = "vectors in memory",
        report: Report | None = None,
    ) -> SentenceEncoder:
        """Return this model with a transform fitted on vectors of its bare encoder; parameters as for `fitted`.

        Without texts, "auto" chooses by the spectrum of the vectors alone.
        """
        self._encoder.require_fitted("fit_vectors")
        array = _check.matrix("fit_vectors", "vectors", vectors)
        _check.same_dim("fit_vectors", "vectors", array.shape[1], self._encoder.dim)
        chosen = resolve_transform(transform, settings, dim=self.dim)
        return self if chosen is None else self._fitted_on(chosen, array, source=source, report=report)

    def fitted_on_moments(
        self,
        moments: Moments,
        transform: LinearTransform | str = AUTO,
        *,
        settings: Mapping[str, Any] | None = None,
        query_moments: Moments | None = None,
        choice: AutoChoice | None = None,
        n_zero_rows: int = 0,
        source: str = "moments in memory",
    ) -> SentenceEncoder:
        """Return this model with a transform fitted on the moments of vectors of its bare encoder.

        Parameters
        ----------
        moments : Moments
            Of the vectors of texts, without zero rows.
        transform : LinearTransform or str, default "auto"
            As for `fitted`; "auto" chooses by the spectrum, or takes `choice`.
        settings : mapping of str to object, optional
            Settings of a transform that is named.
        query_moments : Moments, optional
            Of the vectors of queries.
        choice : AutoChoice, optional
            What "auto" chose before.
        n_zero_rows : int, default 0
            Zero rows that were left out, for the record.
        source : str, optional
            Where the vectors come from, for the record.

        Returns
        -------
        SentenceEncoder
            A new model.

        Raises
        ------
        InputError
            If the transform refuses the moments, the encoder is not fitted, or vectors of this model end with
            length 1 or a flow.
        """
        self._encoder.require_fitted("fit_moments")
        chosen = resolve_transform(transform, settings, dim=self.dim)
        if chosen is None:
            return self
        self._postprocessing.check_fit(chosen)
        if is_flow(chosen):
            raise InputError("fit_moments: a flow is fitted on vectors, not on moments. Use fitted_on_vectors.")
        fit: LinearTransform | None
        if isinstance(chosen, str):
            choice = choice or choose_from_moments(self._postprocessing.moments(moments))
            fit = choice.chosen.transform()
        else:
            fit, choice = copy.deepcopy(chosen), None
        postprocessing = self._postprocessing.fitted(fit, moments, query_moments)
        name, parameters = ("none", {}) if fit is None else (transform_name(fit), _resolved_settings(fit))
        record = _record(name, parameters, round(moments.weight), n_zero_rows, source)
        record = replace(record, choice=None if choice is None else choice.to_json())
        return SentenceEncoder(self._encoder, postprocessing, (*self._fits, record))

    def _with_encoder_fitted(self, texts: list[str], source: str, progress: Progress | None) -> SentenceEncoder:
        """Fit an encoder that learns from texts, and the linear step that belongs to it (SIF, p_mean)."""
        encoder = self._encoder.on_corpus(texts, progress=progress)
        postprocessing, step = NO_POSTPROCESSING, encoder.own_transform()
        if step is not None:
            postprocessing = postprocessing.fitted(step, Moments.from_rows(_rows_with_vector(encoder.encode(texts))))
        parameters, n_texts = encoder.settings(), encoder.corpus_size
        record = _record(parameters.pop("weighting"), parameters, n_texts, len(texts) - n_texts, source)
        return SentenceEncoder(encoder, postprocessing, (record,))

    def _fitted_on(
        self,
        transform: Transform | str,
        vectors: NDArray[np.floating],
        query_vectors: NDArray[np.floating] | None = None,
        *,
        choose: Callable[[Moments], AutoChoice] | None = None,
        source: str,
        report: Report | None,
    ) -> SentenceEncoder:
        """Fit a transform, or what `choose` or the spectrum says, on vectors of the bare encoder."""
        self._postprocessing.check_fit(transform, queries=query_vectors is not None)
        if is_flow(transform):
            return self._with_flow(transform, vectors, source, report)
        radial = bool(getattr(transform, "uses_radial_moments", False))
        moments = Moments.from_rows(_rows_with_vector(vectors), radial=radial)
        query_moments = None
        if query_vectors is not None:
            query_moments = Moments.from_rows(_rows_with_vector(query_vectors), radial=radial)
        return self.fitted_on_moments(
            moments,
            transform,
            query_moments=query_moments,
            choice=choose(self._postprocessing.moments(moments)) if choose else None,
            n_zero_rows=len(vectors) - round(moments.weight),
            source=source,
        )

    def _with_flow(
        self, transform: FlowTransform, vectors: NDArray[np.floating], source: str, report: Report | None
    ) -> SentenceEncoder:
        rows = _rows_with_vector(vectors)
        flow = copy.deepcopy(transform).fit(self._postprocessing.apply(rows), report=report)
        record = _record(transform_name(flow), settings_of(flow), len(rows), len(vectors) - len(rows), source)
        record = replace(record, history=tuple(asdict(step) for step in flow.history_))
        return SentenceEncoder(self._encoder, replace(self._postprocessing, flow=flow.glow_), (*self._fits, record))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a model folder. It holds all but the encoder, which it names by its reference and fingerprint.

        Parameters
        ----------
        folder : path-like
            A new or empty folder, or one that holds a model, which is replaced in one step.

        Raises
        ------
        OutputError
            If the folder holds something else or cannot be written. An older model there is intact.
        """
        write_model(folder, self.record)

    @property
    def record(self) -> ModelRecord:
        """What a model folder holds of this model."""
        return ModelRecord(
            self._encoder.reference,
            self._encoder.options,
            self._encoder.dim,
            self._encoder.fingerprint,
            self._postprocessing,
            self._fits,
            self._calibration,
            self._encoder.corpus_tensors(),
        )


def _rows_with_vector(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """The rows that are not zero, of which there must be one."""
    rows = vectors[known_rows(vectors)]
    if not len(rows):
        raise InputError(f"fit: the encoder knows no word of the {len(vectors)} texts, so all their vectors are zero.")
    return rows


def _resolved_settings(transform: LinearTransform) -> dict[str, Any]:
    """Settings of a fitted transform, with the numbers that stand for "auto" and for a share of the variance."""
    settings = settings_of(transform)
    for name, value in settings.items():
        resolved = getattr(transform, f"{name}_", None)
        if resolved is not None and (value == AUTO or (name == "n_components" and isinstance(value, float))):
            settings[name] = resolved.item() if isinstance(resolved, np.generic) else resolved
    return settings


def _record(name: str, parameters: Mapping[str, Any], n_texts: int, n_zero_rows: int, source: str) -> FitRecord:
    fitted_at = datetime.now(UTC).isoformat(timespec="seconds")
    return FitRecord(name, parameters, n_texts, n_zero_rows, source, fitted_at)
