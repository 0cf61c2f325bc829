"""SentenceEncoder: an encoder and the linear map behind it."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Encoder, Progress
from isosent.encoders.opening import open_encoder
from isosent.encoders.reference import DEFAULT_REFERENCE, Reference, escape, parse_reference, unescape
from isosent.errors import InputError, InputTypeError, ModelFolderError
from isosent.model_folder import read_model, write_model
from isosent.model_record import FitRecord, ModelRecord
from isosent.numeric.linear_map import LinearMap
from isosent.transforms.base import LinearTransform, known_rows, map_known_rows, settings_of


class SentenceEncoder:
    """Texts to sentence vectors: an encoder, and the map that was fitted behind it.

    Made by `load` and by `fit`; never changed after that.

    Parameters
    ----------
    encoder : Encoder
        Turns texts into vectors.
    linear_map : LinearMap, optional
        Applied to these; none for a bare encoder.
    fits : tuple of FitRecord, optional
        What the map was fitted on.

    Examples
    --------
    >>> import isosent
    >>> encoder = isosent.load("wordllama")
    >>> encoder.encode(["A man is riding a horse.", ""]).shape
    (2, 256)
    """

    def __init__(self, encoder: Encoder, linear_map: LinearMap | None = None, fits: tuple[FitRecord, ...] = ()) -> None:
        if linear_map is not None:
            _check.same_dim("SentenceEncoder", "encoder", encoder.dim, linear_map.dim)
        self._encoder = encoder
        self._linear_map = linear_map
        self._fits = fits

    @property
    def encoder(self) -> Encoder:
        """The encoder in front of the map."""
        return self._encoder

    @property
    def linear_map(self) -> LinearMap | None:
        """The map behind the encoder, of shape (encoder's dim, dim)."""
        return self._linear_map

    @property
    def fits(self) -> tuple[FitRecord, ...]:
        """What the map was fitted on, step by step."""
        return self._fits

    @property
    def dim(self) -> int:
        """Dimensions of the sentence vectors."""
        return self._encoder.dim if self._linear_map is None else self._linear_map.n_components

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
            Any number of texts, none included.
        progress : callable, optional
            Called with the number of texts finished since the last call.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            Row i belongs to text i. A text without a token that the encoder knows has no vector: its row is zero,
            behind a map too.

        Raises
        ------
        InputTypeError
            If `texts` is a bare string (pass ``[text]``) or holds something that is not a string.

        Warns
        -----
        TruncationWarning
            Once a call, with the number of texts that were cut at the encoder's maximum.
        """
        return self.map_encoded(self._encoder.encode(texts, progress=progress))

    def map_encoded(self, encoded: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply this model's map to vectors that its bare encoder gave.

        Parameters
        ----------
        encoded : ndarray of shape (n_texts, encoder.dim), float32
            What ``model.encoder.encode`` returned.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            What `encode` would have returned for the same texts.
        """
        if self._linear_map is None:
            return encoded
        return map_known_rows(self._linear_map, encoded).astype(np.float32, copy=False)

    def fit(
        self,
        texts: Sequence[str],
        *,
        transform: LinearTransform,
        source: str = "texts in memory",
        progress: Progress | None = None,
    ) -> SentenceEncoder:
        """Fit a transform on texts, without labels.

        Parameters
        ----------
        texts : sequence of str
            Texts like those to be compared later.
        transform : LinearTransform
            An unfitted transform such as ``Whitening(n_components=128)``; it is copied, not changed.
        source : str, optional
            Where the texts come from, for the record.
        progress : callable, optional
            Called with the number of texts encoded since the last call.

        Returns
        -------
        SentenceEncoder
            A new one: this one with the fitted map behind it. Maps behind maps are folded into one.

        Raises
        ------
        InputError
            If there is no text, none of them has a vector, or the transform refuses them.
        """
        if isinstance(transform, str) or not hasattr(transform, "fit"):
            raise InputTypeError(f"fit: transform must be an object such as Whitening(128); got {transform!r}.")
        encoded = self._encoder.encode(_check.some_texts("fit", texts), progress=progress)
        return self.fit_encoded(encoded, transform=transform, source=source)

    def fit_encoded(
        self, encoded: NDArray[np.float32], *, transform: LinearTransform, source: str = "vectors in memory"
    ) -> SentenceEncoder:
        """Fit a transform as `fit` does, on texts that were encoded before.

        Parameters
        ----------
        encoded : ndarray of shape (n_texts, encoder.dim), float32
            What ``model.encoder.encode`` returned; zero rows are left out.
        transform : LinearTransform
            An unfitted transform; it is copied, not changed.
        source : str, optional
            Where the texts come from, for the record.

        Returns
        -------
        SentenceEncoder
            A new one: this one with the fitted map behind it.

        Raises
        ------
        InputError
            If no text has a vector, or the transform refuses them.
        """
        vectors = self.map_encoded(encoded)
        known = vectors[known_rows(vectors)]
        if not len(known):
            raise InputError(
                f"fit: texts must hold words that the encoder knows; got {len(vectors)} texts without any."
            )
        fitted = copy.deepcopy(transform).fit(known)
        record = FitRecord(
            transform=type(transform).__name__.lower(),
            parameters=settings_of(fitted),
            n_texts=len(known),
            n_zero_rows=len(vectors) - len(known),
            source=source,
            fitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        behind = fitted.linear_map_
        folded = behind if self._linear_map is None else self._linear_map.then(behind)
        return SentenceEncoder(self._encoder, folded, (*self._fits, record))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a model folder: the encoder's reference and options, the map, and what it was fitted on.

        Parameters
        ----------
        folder : path-like
            A new or empty folder, or one that holds a model, which is replaced in one step.

        Raises
        ------
        OutputError
            If the folder holds something else or cannot be written. An older model there is intact.

        Notes
        -----
        The encoder itself is not copied; the folder holds its fingerprint, and opens with no other.
        """
        write_model(folder, self.record)

    @property
    def record(self) -> ModelRecord:
        """What a model folder holds of this model."""
        encoder = self._encoder
        return ModelRecord(
            encoder.reference, encoder.options, encoder.dim, encoder.fingerprint, self._linear_map, self._fits
        )


def load(
    reference: str | os.PathLike[str] = DEFAULT_REFERENCE, *, options: Mapping[str, str] | None = None
) -> SentenceEncoder:
    """Open a model.

    Parameters
    ----------
    reference : str or path-like, default "wordllama"
        A path is a folder saved by isosent. A string is ``wordllama``, ``words:FILE[,FILE...]``, ``static:DIR``,
        ``hf:ID-OR-DIR`` or a folder saved by isosent, with options behind a ``?``, as in
        ``hf:DIR?layers=1,-1&pooling=mean``.
    options : mapping of str to str, optional
        Further options; they win over those in `reference`.

    Returns
    -------
    SentenceEncoder
        The model.

    Raises
    ------
    ModelReferenceError
        If the reference or an option is outside the grammar, which the message lists.
    ModelFolderError
        If a saved folder is damaged, or its encoder is no longer the one it was fitted on.
    MissingExtraError
        If ``hf:`` is asked for without the extra ``plm``.

    Examples
    --------
    >>> load("wordllama")
    <SentenceEncoder wordllama, 256 dimensions>
    """
    parsed = _parse(reference, options)
    if parsed.scheme == "folder":
        return _load_folder(parsed)
    return SentenceEncoder(open_encoder(parsed))


def read_record(reference: str | os.PathLike[str], *, options: Mapping[str, str] | None = None) -> ModelRecord:
    """Read what a model is; the encoder of a saved folder is not opened for that.

    Parameters
    ----------
    reference : str or path-like
        As for `load`.
    options : mapping of str to str, optional
        As for `load`.

    Returns
    -------
    ModelRecord
        What a folder of the model holds.

    Raises
    ------
    InputError
        As `load` does.
    """
    parsed = _parse(reference, options)
    return (
        read_model(unescape(parsed.location)) if parsed.scheme == "folder" else load(reference, options=options).record
    )


def _parse(reference: str | os.PathLike[str], options: Mapping[str, str] | None) -> Reference:
    """A string is a reference, a path is a folder, whatever characters it has."""
    if isinstance(reference, str):
        return parse_reference(reference, options)
    if not isinstance(reference, os.PathLike):
        raise InputTypeError(f"load: reference must be a string or a path; got {type(reference).__name__}.")
    return parse_reference(escape(str(Path(reference).absolute())), options)


def _load_folder(parsed: Reference) -> SentenceEncoder:
    folder = unescape(parsed.location)
    record = read_model(folder)
    located = parsed.options.get("encoder", record.reference)
    try:
        parsed_encoder = parse_reference(located, in_use=True)
        if parsed_encoder.scheme != parse_reference(record.reference, in_use=True).scheme:
            raise InputError(f"it is another kind of model than {record.reference}.")
        if parsed_encoder.options:
            raise InputError("it must be written without options; those of the folder hold.")
        encoder = open_encoder(parse_reference(located, record.options, in_use=True))
    except InputError as error:
        raise ModelFolderError(
            f"{folder}: its encoder, {located}, could not be opened: {error}\n"
            "If it was moved, name it: FOLDER?encoder=REFERENCE, or --encoder REFERENCE."
        ) from error
    if encoder.fingerprint != record.encoder_fingerprint:
        raise ModelFolderError(
            f"{folder} was fitted on {record.reference} with the fingerprint "
            f"{record.encoder_fingerprint[:16]}; {encoder.reference} now has {encoder.fingerprint[:16]}. "
            "Vectors of one mean nothing in the other. Name the right encoder with ?encoder=REFERENCE, or fit again."
        )
    return SentenceEncoder(encoder, record.linear_map, record.fits)
