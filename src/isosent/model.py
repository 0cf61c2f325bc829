"""SentenceEncoder: an encoder, and the transform that was fitted on its vectors.

A model is values that never change: an `Encoder` (texts to raw vectors), a `Postprocessing` (a map for documents, one
for queries, a flow, scaling), the record of what was fitted, and what cosines and codes mean. `encode` is the encoder
followed by `transform`. Each method that fits gives a new model: `fitted` encodes texts, `fitted_on_moments` needs
moments alone, and both end in `fitted_on_statistics`; `fitted_on_pairs` takes matching texts or vectors. ``with_...``
add a calibration or a quantization. For "auto" they ask `transforms.auto`, which compares candidates on the texts.
`record` is what `save` writes and `load` reads back; `fingerprint` names the space.
"""

from __future__ import annotations

import copy
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args, overload

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.encoders.base import Encoder
from isosent.encoders.load import encoder_for, named_prompts, prompt_named, with_prompt
from isosent.errors import InputError, IsosentWarning
from isosent.explanation import Explanation, UnitSum, explain_cosine, unit_sum
from isosent.numeric.canary import Canary
from isosent.numeric.glow import Glow
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import cosine_matrix, unit_rows
from isosent.pages.progress import Progress, encoding_bar, part_of
from isosent.persistence import FitRecord, ModelRecord, StoredSize, write_model
from isosent.postprocessing import NO_POSTPROCESSING, Postprocessing
from isosent.role import DOCUMENTS, ROLE_NAMES, Role, RoleName
from isosent.space import Space
from isosent.storage import ENCODED, Precision, Storage
from isosent.transforms.auto import AutoChoice, choose_from_texts, choose_without_texts
from isosent.transforms.base import (
    AUTO,
    Auto,
    FitCallback,
    LinearTransform,
    Transform,
    needs_vectors,
    resolve_transform,
    resolved_settings,
    transform_name,
)
from isosent.transforms.calibration import Calibration
from isosent.transforms.flow_step import FlowStep
from isosent.transforms.labels import Attribute, Labels
from isosent.transforms.maps import GroupMaps, MapStep, check_roles
from isosent.transforms.pairs import MatchingPairs, choose_from_pairs
from isosent.transforms.quantization import Quantization
from isosent.transforms.scaling import NormalizeStep
from isosent.transforms.statistics import LabeledStatistics, Statistics, rows_with_vector

if TYPE_CHECKING:
    from torch import Tensor

PairGroups = tuple[Sequence[Any], Sequence[Any]]  # the group of each first and of each second text


class _RoleOptions(TypedDict, total=False):
    """Arguments of `SentenceEncoder.encode_query` that do not change the type of its result."""

    batch_size: int | None
    show_progress_bar: bool | None
    normalize_embeddings: bool
    device: object
    progress: Progress | None
    precision: Precision
    prompt: str | None
    prompt_name: str | None
    truncate_dim: int | None
    group: object


class _EncodeOptions(_RoleOptions, total=False):
    """Those of `SentenceEncoder.encode`."""

    role: RoleName


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
    quantization : Quantization, optional
        How the vectors become int8 codes or bits.
    storage : StoredSize, optional
        How an index stores the vectors by default.
    canary : Canary, optional
        Vectors of fixed texts, as they were when the model was saved.
    """

    def __init__(
        self,
        encoder: Encoder,
        postprocessing: Postprocessing = NO_POSTPROCESSING,
        fits: tuple[FitRecord, ...] = (),
        calibration: Calibration | None = None,
        quantization: Quantization | None = None,
        storage: StoredSize | None = None,
        *,
        canary: Canary | None = None,
    ) -> None:
        if postprocessing.dim is not None:
            _check.same_dim("SentenceEncoder", "encoder", encoder.dim, postprocessing.dim)
        self._encoder, self._postprocessing, self._fits = encoder, postprocessing, fits
        self._calibration, self._quantization, self._storage = calibration, quantization, storage
        self._canary = canary
        if quantization is not None:
            _check.same_dim("SentenceEncoder", "quantization", quantization.dim, self.dim)

    @classmethod
    def from_record(cls, encoder: Encoder, record: ModelRecord) -> SentenceEncoder:
        """Combine an encoder with the rest of a saved model.

        Parameters
        ----------
        encoder : Encoder
            The encoder that the record names.
        record : ModelRecord
            What a model folder holds, as from `record`.

        Returns
        -------
        SentenceEncoder
            The model that was saved.

        Raises
        ------
        InputError
            If the encoder has other dimensions than the map or the quantization of the record.
        """
        parts = record.postprocessing, record.fits, record.calibration, record.quantization, record.storage
        return cls(encoder, *parts, canary=record.canary)

    @property
    def encoder(self) -> Encoder:
        """The encoder alone: its ``encode`` returns vectors of shape (n_texts, encoder.dim), float32."""
        return self._encoder

    @property
    def linear_map(self) -> LinearMap | None:
        """All linear transforms that were fitted as one map, of shape (encoder.dim, dim), float64; None without any."""
        return self._postprocessing.map_of(DOCUMENTS)

    @property
    def query_map(self) -> LinearMap | None:
        """The map of queries if it was fitted separately; it has the weight of `linear_map` and another bias."""
        step = self._postprocessing.step(MapStep)
        return None if step is None else step.query_map

    @property
    def groups(self) -> GroupMaps | None:
        """The maps of groups such as languages, with the name of their column and the reference; None without any."""
        return self._postprocessing.groups

    @property
    def flow(self) -> Glow | None:
        """The fitted flow (BERT-flow, Li et al. 2020), which follows the map; None if there is none."""
        step = self._postprocessing.step(FlowStep)
        return None if step is None else step.glow

    @property
    def normalize(self) -> bool:
        """Whether the vectors are scaled to length 1 in the end; zero rows stay zero."""
        return self._postprocessing.step(NormalizeStep) is not None

    @property
    def fits(self) -> tuple[FitRecord, ...]:
        """What was fitted, step by step: a `FitRecord` of each with its settings, texts and source."""
        return self._fits

    @property
    def calibration(self) -> Calibration | None:
        """What a cosine between two of the vectors means, if that was measured; else None. See `similarity`."""
        return self._calibration

    @property
    def quantization(self) -> Quantization | None:
        """How the vectors, scaled to length 1, become int8 codes or bits (see `encode`); None if not fitted."""
        return self._quantization

    @property
    def canary(self) -> Canary | None:
        """Vectors of fixed texts when the folder was written that the model was loaded from; None if it has none."""
        return self._canary

    @property
    def dim(self) -> int:
        """Dimensions of the sentence vectors that `encode` returns."""
        return self._postprocessing.n_components or self._encoder.dim

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the embedding space, in hexadecimal: only vectors with the same fingerprint can be compared.

        It covers the encoder and all that follows; not backend, dtype and devices, `calibration` and `quantization`.
        """
        return self.space.fingerprint

    @cached_property
    def space(self) -> Space:
        """The embedding space: its `fingerprint`, and a name for people."""
        return self.record.space

    def __repr__(self) -> str:
        steps = "".join(f" -> {fit.transform}" for fit in self._fits if fit.transform != "none")
        return f"<SentenceEncoder {self._encoder.reference}{steps}, {self.dim} dimensions>"

    @overload
    def encode(
        self, texts: str | Sequence[str], *, convert_to_tensor: Literal[False] = ..., **options: Unpack[_EncodeOptions]
    ) -> NDArray[Any]: ...

    @overload
    def encode(
        self, texts: str | Sequence[str], *, convert_to_tensor: Literal[True], **options: Unpack[_EncodeOptions]
    ) -> Tensor: ...

    @overload  # tensors, or whatever flags say that are not known before it runs
    def encode(
        self,
        texts: str | Sequence[str],
        *,
        convert_to_numpy: bool = ...,
        convert_to_tensor: bool = ...,
        **options: Unpack[_EncodeOptions],
    ) -> Any: ...

    def encode(
        self,
        texts: str | Sequence[str],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: object = None,
        progress: Progress | None = None,
        role: RoleName = "text",
        precision: Precision = Storage.float32,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
        group: object = None,
    ) -> Any:
        """Encode texts. Takes the arguments that code written for sentence-transformers passes.

        Parameters
        ----------
        texts : str or sequence of str
            One text, or any number of them: a list, a tuple, an array, or a pandas or polars Series, of which blank
            cells count as empty texts.
        batch_size : int, optional
            Without effect: batches are made by number of tokens (``batch_tokens`` of a model reference).
        show_progress_bar : bool, optional
            Whether to show a progress bar. By default it appears in terminals and notebooks after two seconds.
        normalize_embeddings : bool, default False
            Whether to scale vectors to length 1; zero rows stay zero.
        convert_to_numpy : bool, default True
            Whether to return an array; if not, a list of tensors.
        convert_to_tensor : bool, default False
            Whether to return one tensor; it wins over `convert_to_numpy`.
        device : str or torch.device, optional
            Where a transformer computes this time, such as ``"cuda:0"``.
        progress : callable, optional
            Called as ``progress(done, total)``, counted in texts, in place of a bar.
        role : {"text", "query", "document"}, default "text"
            What the texts are, for encoders with prompts and models with a query map.
        precision : {"float32", "int8", "ubinary"}, default "float32"
            Numbers, or the codes that the quantization of the model gives the vectors scaled to length 1: a byte or a
            bit per dimension. No code stands for "no vector".
        prompt : str, optional
            What to put before each text, in place of the prompt of the role; an empty prompt counts.
        prompt_name : str, optional
            Name of a prompt of the encoder: "query", "document" or "default". `prompt` wins over it. The first two are
            also the role if none is given.
        truncate_dim : int, optional
            Number of leading dimensions to keep, before vectors are scaled to length 1.
        group : str or sequence of str, optional
            Group of the texts, or of each, such as its language, for a model with a map of each group (see
            `fitted_on_pairs`). By default the reference, whose texts have no separate map.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            Row i belongs to text i; shape (dim,) for a single string. A text without a token that the encoder knows
            has the zero row, also after a transform. A `TruncationWarning` tells how many texts were cut at the
            encoder's maximum length. Codes are int8 of the same shape, or uint8 of shape (n_texts, ceil(dim / 8)).

        Raises
        ------
        InputTypeError
            If something in `texts` is not a string.
        InputError
            If the encoder cannot compute on `device`, the model has no quantization, there is no prompt or group of
            that name, or `truncate_dim` is below 1 or comes with codes.
        """
        if batch_size is not None:
            _check.whole_number("encode", "batch_size", batch_size, 1)
        _check.one_of("encode", "precision", precision, ENCODED)
        _check.one_of("encode", "role", role, ROLE_NAMES)
        quantization = None if precision == Storage.float32 else self._quantization
        if quantization is None and precision != Storage.float32:
            raise InputError(
                f"encode: precision {precision!r} needs a quantization, and the model has none. Fit one: isosent "
                "quantize TEXTS -m MODEL, or model.with_quantization(Quantization.fit(unit_vectors))."
            )
        if truncate_dim is not None:
            _check.whole_number("encode", "truncate_dim", truncate_dim, 1)
            if precision != Storage.float32:
                raise InputError(f"encode: truncate_dim {truncate_dim} needs float32; codes stand for all dimensions.")
        if prompt is None and role == "text" and prompt_name in ("query", "document"):
            role = "query" if prompt_name == "query" else "document"
        encoder = encoder_for(self._encoder if device is None else self._encoder.on_device(str(device)), role)
        is_single = isinstance(texts, str)
        listed = _check.text_list("encode", [texts] if isinstance(texts, str) else texts)
        if prompt is None and prompt_name is not None:
            prompt = prompt_named(named_prompts(self._encoder), prompt_name)
        if prompt is not None:
            encoder, listed = with_prompt(encoder, listed, prompt)
        with encoding_bar(progress, is_wanted=show_progress_bar) as report:
            encoded = encoder.encode(listed, progress=report)
        vectors: NDArray[Any] = self.transform(encoded, queries=role == "query", group=group)[:, :truncate_dim]
        if normalize_embeddings or quantization is not None:
            vectors = unit_rows(vectors).astype(np.float32, copy=False)
        if quantization is not None and precision != Storage.float32:
            vectors = quantization.encode(vectors, Storage(precision))
        if convert_to_numpy and not convert_to_tensor:
            return vectors[0] if is_single else vectors
        tensors = _extras.require("torch").from_numpy(np.ascontiguousarray(vectors))
        return tensors[0] if is_single else tensors if convert_to_tensor else list(tensors)

    @overload
    def encode_document(
        self, texts: str | Sequence[str], *, convert_to_tensor: Literal[False] = ..., **arguments: Unpack[_RoleOptions]
    ) -> NDArray[Any]: ...

    @overload
    def encode_document(
        self, texts: str | Sequence[str], *, convert_to_tensor: Literal[True], **arguments: Unpack[_RoleOptions]
    ) -> Tensor: ...

    @overload
    def encode_document(
        self,
        texts: str | Sequence[str],
        *,
        convert_to_numpy: bool = ...,
        convert_to_tensor: bool = ...,
        **arguments: Unpack[_RoleOptions],
    ) -> Any: ...

    def encode_document(self, texts: str | Sequence[str], **arguments: Any) -> Any:
        """Encode texts to be found: as `encode`, with the encoder's prompt of documents if it has one.

        Parameters
        ----------
        texts : str or sequence of str
            The documents.
        **arguments
            As for `encode`, but for `role`.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            As from `encode`.

        Raises
        ------
        InputTypeError, InputError
            As from `encode`.
        """
        return self.encode(texts, role="document", **arguments)

    @overload
    def encode_query(
        self, texts: str | Sequence[str], *, convert_to_tensor: Literal[False] = ..., **arguments: Unpack[_RoleOptions]
    ) -> NDArray[Any]: ...

    @overload
    def encode_query(
        self, texts: str | Sequence[str], *, convert_to_tensor: Literal[True], **arguments: Unpack[_RoleOptions]
    ) -> Tensor: ...

    @overload
    def encode_query(
        self,
        texts: str | Sequence[str],
        *,
        convert_to_numpy: bool = ...,
        convert_to_tensor: bool = ...,
        **arguments: Unpack[_RoleOptions],
    ) -> Any: ...

    def encode_query(self, texts: str | Sequence[str], **arguments: Any) -> Any:
        """Encode queries: as `encode`, with the prompt of queries and the query map if the model has them.

        Parameters
        ----------
        texts : str or sequence of str
            The queries.
        **arguments
            As for `encode`, but for `role`.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            As from `encode`; compare them with vectors of `encode_document`.

        Raises
        ------
        InputTypeError, InputError
            As from `encode`.
        """
        return self.encode(texts, role="query", **arguments)

    def transform(
        self, vectors: NDArray[np.floating], *, queries: bool = False, group: object = None
    ) -> NDArray[np.float32]:
        """Apply what follows the encoder to vectors of the bare encoder.

        Parameters
        ----------
        vectors : ndarray of shape (n_texts, encoder.dim), float
            What ``model.encoder.encode`` returned, here or elsewhere; zero rows stay zero.
        queries : bool, default False
            Whether they are vectors of queries.
        group : str or sequence of str, optional
            As for `encode`.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            What `encode` would have returned for the same texts.

        Raises
        ------
        InputError
            If the dimensions are not those of the encoder, a number is NaN or infinite, a result is beyond float32, or
            the model has no such group.
        """
        array = _check.matrix("transform", "vectors", vectors)
        _check.same_dim("transform", "vectors", array.shape[1], self._encoder.dim)
        return self._postprocessing.apply(array, Role(queries, group))

    def similarity(
        self,
        a: str | Sequence[str] | NDArray[np.floating],
        b: str | Sequence[str] | NDArray[np.floating],
        *,
        calibrated: bool = False,
    ) -> NDArray[np.float64]:
        """Cosine of each of `a` with each of `b`, or what it means.

        Parameters
        ----------
        a, b : str, sequence of str, or array of shape (n, dim) or (dim,)
            Texts, or vectors of this model; a single text or vector counts as one row.
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

    def _vectors_of(self, name: str, values: Any) -> NDArray[np.floating]:
        """Vectors of texts, or vectors as they are; one row for a single text or vector."""
        rows = _check.texts_or_vectors("similarity", name, values)
        return self.encode(rows) if isinstance(rows, list) else rows

    def explain(
        self,
        a: str,
        b: str,
        *,
        roles: tuple[RoleName, RoleName] = ("text", "text"),
        groups: tuple[str | None, str | None] = (None, None),
    ) -> Explanation:
        """Say which words make two texts similar: the cosine as an exact sum over pairs of words.

        Possible if the vector of a text is a sum of vectors of its words: means, `SIF`, `USIF`, `GEM`, static models,
        and any linear transform after them.

        Parameters
        ----------
        a, b : str
            Two texts of at most 5,000 tokens.
        roles : pair of {"text", "query", "document"}, default ("text", "text")
            What the texts are, as for `encode`; ``("query", "document")`` for a query and what it found.
        groups : pair of str, optional
            The group of each text, as for `encode`.

        Returns
        -------
        Explanation
            What each pair of words contributes. The sum is the cosine of `similarity`, 0 if a text has no vector.

        Raises
        ------
        InputError
            If a vector is no sum over words: transformers, power means other than the mean, wrapped models, and after
            a flow. If a text is too long.

        Examples
        --------
        >>> import isosent
        >>> model = isosent.load("wordllama")
        >>> explanation = model.explain("A man rides a bike.", "Someone is on a bicycle.")
        >>> [pair.b for pair in explanation.top() if pair.a == "bike"][0]
        'bicycle'
        """
        texts = _check.text_list("explain", [a, b])
        _check.same_count("explain", "roles", len(roles), 2)
        for role in roles:
            _check.one_of("explain", "roles", role, get_args(RoleName))
        if (step := self._postprocessing.nonlinear) is not None:
            raise InputError(
                f"explain: a cosine is no sum over pairs of words after {step.noun}, which is not linear. Use another "
                "model."
            )
        return explain_cosine(*map(self._unit_sum, texts, roles, groups))

    def _unit_sum(self, text: str, role: RoleName, group: str | None) -> UnitSum:
        """The vector of a text as a sum over its words."""
        summands = encoder_for(self._encoder, role).summands(text)
        vector = self.encode(text, role=role, group=group, show_progress_bar=False)
        return unit_sum(summands, self._postprocessing.map_of(Role(role == "query", group)), vector)

    def with_calibration(self, calibration: Calibration | None) -> SentenceEncoder:
        """Return this model with another calibration.

        Parameters
        ----------
        calibration : Calibration or None
            What a cosine means, fitted on vectors of this model; None removes it.

        Returns
        -------
        SentenceEncoder
            A new model with the same vectors.
        """
        parts = self._postprocessing, self._fits, calibration, self._quantization, self._storage
        return SentenceEncoder(self._encoder, *parts, canary=self._canary)

    def with_quantization(
        self, quantization: Quantization | None, storage: StoredSize | None = None
    ) -> SentenceEncoder:
        """Return this model with another quantization; its fingerprint stays the same.

        Parameters
        ----------
        quantization : Quantization or None
            How vectors become codes, fitted on vectors of this model that were scaled to length 1; None removes it.
        storage : StoredSize, optional
            How an index stores the vectors by default.

        Returns
        -------
        SentenceEncoder
            A new model; ``encode(texts, precision="int8")`` uses the quantization.

        Raises
        ------
        InputError
            If the quantization was fitted on vectors of other dimensions.
        """
        parts = self._postprocessing, self._fits, self._calibration, quantization, storage
        return SentenceEncoder(self._encoder, *parts, canary=self._canary)

    def fitted(
        self,
        texts: Sequence[str],
        transform: Transform | Auto | str | None = AUTO,
        *,
        settings: Mapping[str, Any] | None = None,
        erase: Labels | Mapping[str, Labels] | None = None,
        queries: Sequence[str] | None = None,
        encoded: NDArray[np.float32] | None = None,
        source: str = "texts in memory",
        progress: Progress | None = None,
        report: FitCallback | None = None,
    ) -> SentenceEncoder:
        """Return this model with a transform fitted on texts.

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
            Settings of a transform that is named, such as ``{"n_components": 128}``. "auto" also has a ``purpose``,
            "pairs", "topics" or "search": what the vectors are for, which it then judges alone. Without one, it does
            nothing that harms either pairs or topics.
        erase : sequence or mapping of str to sequence, optional
            A label of each text, or ``{name: labels}``: values, such as languages, or numbers. Vectors no longer tell
            it, and the transform is fitted on what is left. Texts without a label (None, NaN, empty) are left out.
        queries : sequence of str, optional
            Queries like those to be used later. Their mean is fitted separately: `encode_query` shifts it onto the
            mean of the documents. The map is fitted on the scatter of both, each about its own mean.
        encoded : ndarray of shape (n_texts, encoder.dim), float32, optional
            What ``model.encoder.encode(texts)`` returned (that of ``encoder.for_documents()`` with queries), to save
            encoding the texts again.
        source : str, optional
            Where the texts come from, for the record.
        progress : callable, optional
            Called as ``progress(done, total)``, counted in texts.
        report : callable, optional
            Called with the `FitProgress` of a flow.

        Returns
        -------
        SentenceEncoder
            A new model. A linear transform is folded into the map of this one.

        Raises
        ------
        InputError
            If no text has a vector, the transform or the labels cannot be used, or queries come without a transform.

        Examples
        --------
        >>> import isosent
        >>> model = isosent.load("wordllama").fitted(isosent.demo_texts(), "whitening", settings={"n_components": 64})
        >>> model.encode(["A man is riding a horse."]).shape
        (1, 64)
        """
        texts = _check.some_texts("fit", texts)
        queries = None if queries is None else _check.some_texts("fit", queries)
        chosen = resolve_transform(transform, settings, dim=self.dim)
        if chosen is None and queries is not None:
            raise InputError("fit: queries need a transform, and there is none. Leave them out.")
        attribute = None
        if erase is not None:
            attribute = Attribute.of(erase, len(texts))
            self._postprocessing.check_fit(attribute.erasure())
        if chosen is not None:
            self._postprocessing.check_fit(chosen, queries=queries is not None)
        if self._encoder.needs_corpus:
            model = self._with_encoder_fitted(texts, source, progress)
            return model.fitted(
                texts, chosen, erase=erase, queries=queries, source=source, progress=progress, report=report
            )
        if chosen is None and erase is None:
            return self
        encoder = self._encoder if queries is None else self._encoder.for_documents()
        if encoded is None:
            with encoding_bar(progress) as bar:
                encoded = encoder.encode(texts, progress=bar)
        _check.same_count("fit", "encoded", len(encoded), len(texts))
        query_moments = None
        if queries is not None:
            query_moments = Moments.from_rows(rows_with_vector(self._encoder.for_queries().encode(queries)))
        statistics = Statistics.of_texts(texts, encoded, attribute, query_moments, source=source)
        return self.fitted_on_statistics(statistics, chosen, report=report)

    def fitted_on_statistics(
        self, statistics: Statistics, transform: Transform | Auto | None, *, report: FitCallback | None = None
    ) -> SentenceEncoder:
        """Erase labels, if there are any, and fit a transform, or what auto chooses. All fits but on pairs come here.

        Labels that are not visible are not erased; a warning says so.
        """
        self._encoder.require_fitted("fit")
        model = self
        if transform is not None:
            self._postprocessing.check_fit(transform, queries=statistics.query_moments is not None)
        if statistics.labels is not None:
            model = self._erased(statistics.labels, statistics.source)
            statistics = statistics.without_labels(erased=model is not self)
        if transform is None:
            return model
        choice = model._choice(transform, statistics) if isinstance(transform, Auto) else transform
        basis, n_zero_rows = statistics.basis(distinct=isinstance(transform, Auto))
        queries, source = statistics.query_moments, statistics.source
        return model._fit(choice, basis, queries, source=source, n_zero_rows=n_zero_rows, report=report)

    def _erased(self, labels: LabeledStatistics, source: str) -> SentenceEncoder:
        """The model without an attribute; unchanged, with a warning, if it is not visible."""
        name, effect = labels.attribute.name, labels.attribute.effect(self.transform(labels.vectors), labels.texts)
        if not effect.is_visible:
            warnings.warn(f"erase: {name} is not visible, so nothing was erased: {effect.reason}", IsosentWarning, 2)
            return self
        return self._fit(
            labels.moments.erasure(),
            labels.moments,  # type: ignore[arg-type]
            source=source,
            n_zero_rows=labels.n_zero_rows,
            parameters=labels.moments.facts(name),
            choice=effect.to_json(),
        )

    def _choice(self, wanted: Auto, statistics: Statistics) -> AutoChoice:
        """What auto chooses: by texts, or else by the neighbors that a sample keeps."""
        is_erased = bool(self._fits) and self._fits[-1].transform == "erasure"
        vectors = None if statistics.vectors is None else self._postprocessing.apply(statistics.vectors)
        if statistics.texts is None:
            assert statistics.moments is not None
            return choose_without_texts(
                self._postprocessing.moments(statistics.moments), wanted, vectors, is_erased=is_erased
            )
        assert vectors is not None
        return choose_from_texts(vectors, statistics.texts, wanted, groups=statistics.groups, is_erased=is_erased)

    def fitted_on_vectors(
        self,
        vectors: NDArray[np.floating],
        transform: Transform | Auto | str = AUTO,
        *,
        settings: Mapping[str, Any] | None = None,
        source: str = "vectors in memory",
        report: FitCallback | None = None,
    ) -> SentenceEncoder:
        """Return this model with a transform fitted on vectors of its bare encoder.

        Parameters
        ----------
        vectors : ndarray of shape (n_rows, encoder.dim), float
            What ``model.encoder.encode`` returned, here or elsewhere; zero rows, of texts without a vector, are left
            out.
        transform : Transform or str, default "auto"
            As for `fitted`. Without texts, "auto" applies no transform, or keeps the principal components if `settings`
            ask for fewer dimensions.
        settings : mapping of str to object, optional
            As for `fitted`.
        source : str, optional
            Where the vectors come from, for the record.
        report : callable, optional
            Called with the `FitProgress` of a flow.

        Returns
        -------
        SentenceEncoder
            A new model. A linear transform is folded into the map of this one.

        Raises
        ------
        InputError
            If the dimensions are not those of the encoder, all rows are zero, a number is NaN or infinite, or the
            transform refuses the rows.
        """
        self._encoder.require_fitted("fitted_on_vectors")
        array = _check.matrix("fitted_on_vectors", "vectors", vectors)
        _check.same_dim("fitted_on_vectors", "vectors", array.shape[1], self._encoder.dim)
        chosen = resolve_transform(transform, settings, dim=self.dim)
        if not isinstance(chosen, Auto):
            return self.fitted_on_statistics(Statistics(source, vectors=array), chosen, report=report)
        rows = rows_with_vector(array)
        statistics = Statistics(source, Moments.from_rows(rows), len(array) - len(rows), rows)
        return self.fitted_on_statistics(statistics, chosen)

    def fitted_on_moments(
        self,
        moments: Moments,
        transform: LinearTransform | Auto | str = AUTO,
        *,
        query_moments: Moments | None = None,
        texts: Sequence[str] | None = None,
        groups: NDArray[Any] | None = None,
        sample: NDArray[np.floating] | None = None,
        encoded: NDArray[np.floating] | None = None,
        n_zero_rows: int = 0,
        source: str = "moments in memory",
    ) -> SentenceEncoder:
        """Return this model with a transform fitted on the moments of vectors of its bare encoder.

        Parameters
        ----------
        moments : Moments
            Of the vectors of texts, without zero rows.
        transform : LinearTransform or str, default "auto"
            As for `fitted_on_vectors`.
        query_moments : Moments, optional
            Of the vectors of queries, whose mean is fitted separately (see `fitted`).
        texts : sequence of str, optional
            Texts like those of the moments, by which "auto" chooses; it uses up to 20,000.
        groups : ndarray of shape (n_texts,), optional
            Group of each text, such as its language, which "auto" keeps from moving further apart; found if not given.
        sample : ndarray of shape (n_rows, encoder.dim), float, optional
            Nonzero vectors, without texts: for fewer dimensions, "auto" subtracts the mean if their neighbors stay.
        encoded : ndarray of shape (n_texts, encoder.dim), float, optional
            The vectors of `texts`, to save encoding them, or where the model cannot encode.
        n_zero_rows : int, default 0
            Zero rows that were left out, for the record.
        source : str, optional
            As for `fitted`.

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
        self._encoder.require_fitted("fitted_on_moments")
        chosen = resolve_transform(transform, dim=self.dim)
        if chosen is None:
            return self
        self._postprocessing.check_fit(chosen)
        if needs_vectors(chosen):
            raise InputError(
                f"a {chosen.kind} is fitted on vectors, not on moments. Use fitted_on_vectors.",
                where="fitted_on_moments",
            )
        vectors = sample if texts is None else encoded
        if texts is not None and vectors is None and isinstance(chosen, Auto):
            vectors = self._encoder.encode(texts)
        statistics = Statistics(source, moments, n_zero_rows, vectors, texts, groups, query_moments)
        return self.fitted_on_statistics(statistics, chosen)

    def fitted_on_pairs(
        self,
        queries: Sequence[str] | NDArray[np.floating],
        documents: Sequence[str] | NDArray[np.floating],
        *,
        queries_only: bool = False,
        kinds: Sequence[Any] | None = None,
        groups: PairGroups | Mapping[str, PairGroups] | None = None,
        source: str = "pairs in memory",
        progress: Progress | None = None,
    ) -> SentenceEncoder:
        r"""Return this model with a map fitted on matching pairs, or unchanged if none ranks held-out pairs better.

        Parameters
        ----------
        queries, documents : sequence of str, or array of shape (n_pairs, encoder.dim)
            Texts that match, row by row, or what the bare encoder returned for them. A text may occur in several pairs.
        queries_only : bool, default False
            Whether only queries are transformed, so that stored vectors of documents stay unchanged.
        kinds : sequence, optional
            The kind of each pair, such as its source. The map must then serve kinds that it was not fitted on. Pairs
            without one (None, NaN, empty) are left out, with a warning.
        groups : pair of sequences, or mapping of str to one, optional
            The group of each query and that of each document, such as their languages: at most 100. One more candidate
            is then a map of each group to a reference, the group that most others have pairs with. Pass the group to
            `encode`. A mapping names it, for the column of an index: ``{"lang": (of_queries, of_documents)}``.
        source : str, optional
            Where the pairs come from, for the record.
        progress : callable, optional
            Called as ``progress(done, total)``, counted in texts.

        Returns
        -------
        SentenceEncoder
            A new model. The ``choice`` of its last fit says what was compared. If its ``transform`` is ``"none"``, the
            vectors are those of this model.

        Raises
        ------
        InputError
            If the numbers of queries and documents differ; if pairs form fewer than 30 sets that share no text (with
            `groups`, those of each group with the reference); if vectors are NaN or infinite; or if vectors of this
            model end with length 1 or a flow.

        Notes
        -----
        With x and y the vectors of a pair, both sides are transformed by :math:`(x - \mu) D_g^{-s/2} V`, with D the
        covariance of x - y, shrunk by g, V principal axes, and a strength s; or by plain whitening. Queries alone are
        transformed by :math:`(S_{xx} + l I)^{-1} (S_{xy} + l I)`, ridge regression towards the identity. A fifth of the
        pairs is held out, whole groups that share no text. Folds of the others choose s, g and l by the mean reciprocal
        rank of the document. The map is used if this and nDCG@10 gain beyond chance on the fifth (95% intervals above
        zero, and random signs), with `kinds` on those that it was not fitted on. It is then fitted on all pairs.

        With `groups`, each text is searched for among the texts of both sides, all encoded as documents. With a and b
        the vectors of pairs of a group and the reference, each about its own mean, vectors of the group become
        :math:`(x - \mu_a) (A^\top A + l I)^{-1} (A^\top B + l I) + \mu_b`, and the reference stays unchanged.
        """
        self._encoder.require_fitted("fitted_on_pairs")
        self._postprocessing.check_fit(Auto())
        sides = [_check.texts_or_vectors("fitted_on_pairs", "pairs", side) for side in (queries, documents)]
        _check.same_count("fitted_on_pairs", "documents", len(sides[1]), len(sides[0]))
        column, labels = _pair_groups(groups)
        for name, values in (("kinds", kinds), *(("groups", each) for each in labels or ())):
            if values is not None:
                _check.same_count("fitted_on_pairs", name, len(values), len(sides[0]))
        check_roles(queries=queries_only or self.query_map is not None, groups=labels is not None)
        vectors, keys = [], []
        done, n_texts = 0, sum(len(side) for side in sides if isinstance(side, list))
        # a map of a group is of its documents and queries
        for role, side in zip(("query" if labels is None else "document", "document"), sides, strict=True):
            if isinstance(side, list):
                encoded = encoder_for(self._encoder, role).encode(side, progress=part_of(progress, done, n_texts))
                done += len(side)
            else:
                encoded = side
            _check.same_dim("fitted_on_pairs", "pairs", encoded.shape[1], self._encoder.dim)
            vectors.append(self._postprocessing.apply(encoded, Role(role == "query")))
            keys.append(side if isinstance(side, list) else [row.tobytes() for row in side])
        pairs = MatchingPairs(vectors[0], vectors[1], keys[0], keys[1], kinds, labels)
        choice = choose_from_pairs(pairs, queries_only=queries_only)
        counts, details = (len(pairs), pairs.n_zero_rows, source), choice.to_json()
        fit = FitRecord.made_now(choice.chosen.name, choice.parameters, *counts, choice=details)
        step = choice.step(column, queries_only=queries_only)
        if step is None:
            return SentenceEncoder.from_record(self._encoder, replace(self.record, fits=(*self._fits, fit)))
        return self._with(self._postprocessing.append(step), fit)

    def _with_encoder_fitted(self, texts: list[str], source: str, progress: Progress | None) -> SentenceEncoder:
        """Fit an encoder that learns from texts, and the linear step that belongs to it (SIF, p_mean)."""
        encoder = self._encoder.on_corpus(texts, progress=progress)
        postprocessing, step = NO_POSTPROCESSING, encoder.own_transform()
        if step is not None:
            postprocessing = postprocessing.fitted(step, rows_with_vector(encoder.encode(texts)))
        parameters, n_texts = encoder.settings(), encoder.corpus_size
        record = FitRecord.made_now(parameters.pop("weighting"), parameters, n_texts, len(texts) - n_texts, source)
        return SentenceEncoder(encoder, postprocessing, (record,))

    def _fit(
        self,
        transform: Transform | AutoChoice,
        statistics: Moments | NDArray[np.floating],
        query_moments: Moments | None = None,
        *,
        source: str,
        n_zero_rows: int = 0,
        report: FitCallback | None = None,
        parameters: Mapping[str, Any] | None = None,
        choice: Mapping[str, Any] | None = None,
    ) -> SentenceEncoder:
        """Fit a transform, or what auto chose, on moments of the bare encoder's vectors, or on their nonzero rows.

        All fits but those on pairs end here. `parameters` and `choice` are for the record, if the transform does not
        say them.
        """
        fit: Transform | None
        if isinstance(transform, AutoChoice):
            fit, choice = transform.chosen.transform(), transform.to_json()
        else:
            fit = copy.deepcopy(transform)
        postprocessing = self._postprocessing.fitted(fit, statistics, query_moments, report=report)
        n_texts = len(statistics) if isinstance(statistics, np.ndarray) else round(statistics.weight)
        name = "none" if fit is None else transform_name(fit)
        if parameters is None:
            parameters = {} if fit is None else resolved_settings(fit)
        history = tuple(map(asdict, fit.history_)) if needs_vectors(fit) else None
        counts = n_texts, n_zero_rows, source
        return self._with(postprocessing, FitRecord.made_now(name, parameters, *counts, choice=choice, history=history))

    def _with(self, postprocessing: Postprocessing, fit: FitRecord) -> SentenceEncoder:
        """Another space: calibration, quantization and storage are not those of its vectors."""
        return SentenceEncoder(self._encoder, postprocessing, (*self._fits, fit))

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
        InputError
            If the encoder was wrapped (see `wrap`) and no reference loads it again.
        """
        write_model(folder, SentenceEncoder.from_record(self._encoder.saved_as(), self.record).saved_record)

    @property
    def record(self) -> ModelRecord:
        """What a model folder holds of this model: its encoder's reference and fingerprint, and all that follows."""
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
            self._quantization,
            self._storage,
        )

    @property
    def saved_record(self) -> ModelRecord:
        """As `record`, with the vectors that the encoder gives fixed texts now, by which a change of it is noticed."""
        return replace(self.record, canary=self._encoder.canary_now())

    def has_vectors_of(self, record: ModelRecord) -> bool:
        """Whether this is a saved model by another name.

        Parameters
        ----------
        record : ModelRecord
            What a model folder holds.

        Returns
        -------
        bool
            Whether what follows the encoder is the same, and the encoder gives the fixed texts the vectors that were
            saved. False for word vectors and static models, whose fingerprint says it.
        """
        here = replace(self.record, encoder_fingerprint=record.encoder_fingerprint)
        return here.fingerprint == record.fingerprint and self._encoder.has_vectors_of(record.canary)


def _pair_groups(groups: object) -> tuple[str, tuple[list[Any], list[Any]] | None]:
    """The column of the groups of pairs, and the groups of both sides."""
    if groups is None:
        return "group", None
    named = groups if isinstance(groups, Mapping) else {"group": groups}
    [(column, sides)] = named.items() if len(named) == 1 else [("", ())]
    if isinstance(sides, str) or not isinstance(sides, Iterable) or len(listed := list(sides)) != 2:
        raise InputError("groups: give one pair, the groups of the queries and those of the documents, or its mapping.")
    if not isinstance(column, str) or not re.fullmatch(r"[^\x00-\x1f\x7f-\x9f]+", column):
        raise InputError(f"groups: the name of a column, {column!r:.80}, is not printable text.")
    if any(isinstance(side, str) or not isinstance(side, Iterable) for side in listed):
        raise InputError("groups: give the group of each query, and that of each document, as two sequences.")
    return column, (list(listed[0]), list(listed[1]))
