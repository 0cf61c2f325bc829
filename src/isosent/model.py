"""SentenceEncoder: an encoder, and the transform that was fitted on its vectors.

A model is values that never change: an `Encoder` (texts to raw vectors), a `Postprocessing` (a map for documents, one
for queries, a flow, scaling), the record of what was fitted, and what cosines and codes mean. `encode` is the encoder
followed by `transform`. Methods that fit, each of which gives a new model, are in `fitting`; ``with_...`` add a
calibration or a quantization. `record` is what `save` writes and `load` reads back; `fingerprint` names the space.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args, overload

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.encoders.base import Encoder
from isosent.encoders.load import encoder_for, named_prompts, prompt_named, with_prompt
from isosent.errors import InputError, next_step
from isosent.explanation import Explanation, UnitSum, explain_cosine, unit_sum
from isosent.fitting import Fittable
from isosent.numeric.canary import Canary
from isosent.numeric.glow import Glow
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.similarity import cosine_matrix, unit_rows
from isosent.pages.progress import Progress, encoding_bar
from isosent.persistence import FitRecord, ModelRecord, StoredSize, write_model
from isosent.postprocessing import NO_POSTPROCESSING, Postprocessing
from isosent.role import DOCUMENTS, ROLE_NAMES, Role, RoleName
from isosent.space import Space
from isosent.storage import ENCODED, Precision, Storage
from isosent.transforms.calibration import Calibration
from isosent.transforms.maps import GroupMaps
from isosent.transforms.quantization import Quantization

if TYPE_CHECKING:
    from torch import Tensor


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


class SentenceEncoder(Fittable):
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
        return self._postprocessing.query_map

    @property
    def groups(self) -> GroupMaps | None:
        """The maps of groups such as languages, with the name of their column and the reference; None without any."""
        return self._postprocessing.groups

    @property
    def flow(self) -> Glow | None:
        """The fitted flow (BERT-flow, Li et al. 2020), which follows the map; None if there is none."""
        return self._postprocessing.flow

    @property
    def normalize(self) -> bool:
        """Whether the vectors are scaled to length 1 in the end; zero rows stay zero."""
        return self._postprocessing.normalizes

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

    def __deepcopy__(self, memo: dict[int, Any]) -> SentenceEncoder:
        """The model itself, which never changes; scikit-learn copies what an estimator is made with."""
        return self

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
            What to put before each text, or around it where ``{text}`` stands, in place of the prompt of the role; an
            empty prompt counts.
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
            step = next_step(
                "isosent quantize TEXTS -m MODEL", "model.with_quantization(Quantization.fit(unit_vectors))"
            )
            raise InputError(
                f"encode: precision {precision!r} needs a quantization, and the model has none. Fit one: {step}."
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

    def _with(self, postprocessing: Postprocessing, fit: FitRecord, encoder: Encoder | None = None) -> SentenceEncoder:
        is_same = encoder is None and postprocessing is self._postprocessing
        of_space = (self._calibration, self._quantization, self._storage) if is_same else ()
        return SentenceEncoder(encoder or self._encoder, postprocessing, (*self._fits, fit), *of_space)

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
