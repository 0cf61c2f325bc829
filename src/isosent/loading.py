"""From a model reference, or a folder, to a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from isosent.encoders.base import Progress
from isosent.encoders.load import open_encoder
from isosent.encoders.options import FUNCTION, RUNTIME_OPTIONS
from isosent.encoders.precomputed import PRECOMPUTED, PrecomputedVectors
from isosent.encoders.reference import (
    DEFAULT_REFERENCE,
    MODEL_FILE,
    Reference,
    escape,
    options_of,
    parse_reference,
    stored_reference,
    unescape,
    without_permissions,
)
from isosent.encoders.static import FILE_OPTIONS
from isosent.encoders.static_load import Given, SplitFunction
from isosent.encoders.word_average import Corpus, Weighting
from isosent.errors import FileFormatError, InputError, InputTypeError, ModelFolderError
from isosent.io.checksum import verify_folder
from isosent.io.json import read_json
from isosent.io.schemas import FileList
from isosent.model import SentenceEncoder
from isosent.persistence import RECORD_FILE, ModelRecord, read_model


def load(
    reference: str | os.PathLike[str] = DEFAULT_REFERENCE,
    *,
    options: Mapping[str, str] | None = None,
    weighting: Weighting | None = None,
    tokenizer: SplitFunction | None = None,
    progress: Callable[[int], Progress] | None = None,
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
    weighting : Weighting, optional
        How words make a text, such as ``GEM(window=6)``; the same as the options of that name.
    tokenizer : callable, optional
        From a text to its words, for word vectors of a language that is written without spaces. It is not saved: a
        folder of such a model is opened with the same function again, which its fingerprint checks on samples.
    progress : callable, optional
        Called once with the bytes of the files of word vectors; returns what is called with the bytes read.

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
    InputTypeError
        If the weighting is none, or the tokenizer no function.
    MissingExtraError
        If ``hf:`` is asked for without the extra ``plm``.

    Warns
    -----
    PermissionIgnoredWarning
        If a saved folder holds ``trust_remote_code`` or ``pickled_weights``, or another option of how to compute. Only
        the caller gives these, each time; they are never read from a file.

    Examples
    --------
    >>> load("wordllama")
    <SentenceEncoder wordllama, 256 dimensions>
    """
    if weighting is not None and not isinstance(weighting, Weighting):
        raise InputTypeError(f"load: weighting must be a Weighting, such as GEM(); got {type(weighting).__name__}.")
    if tokenizer is not None and not callable(tokenizer):
        raise InputTypeError(
            f"load: tokenizer must be a function from a text to its words; got {type(tokenizer).__name__}. "
            "A tokenizer with a name is an option, as in words:FILE?tokenizer=whitespace."
        )
    written = dict(options or {}) | ({} if weighting is None else options_of(weighting))
    parsed = _parse(reference, written)
    if parsed.scheme == "folder":
        return _load_folder(parsed, tokenizer, progress)
    if tokenizer is not None:
        parsed = replace(parsed, options={**parsed.options, "tokenizer": FUNCTION})
    return SentenceEncoder(open_encoder(parsed, Given(tokenizer, progress=progress)))


def read_record(reference: str | os.PathLike[str], *, options: Mapping[str, str] | None = None) -> ModelRecord:
    """Read what a model is; the encoder of a saved folder is not opened for that."""
    parsed = _parse(reference, options)
    if parsed.scheme != "folder":
        return load(reference, options=options).record
    folder = unescape(parsed.location)
    record = read_model(folder)
    without_permissions(record.reference, record.options, file=Path(folder, MODEL_FILE))  # for its warning
    return record


def _parse(reference: str | os.PathLike[str], options: Mapping[str, str] | None) -> Reference:
    """A string is a reference, a path is a folder, whatever characters it has."""
    if isinstance(reference, str):
        return parse_reference(reference, options)
    if not isinstance(reference, os.PathLike):
        raise InputTypeError(f"load: reference must be a string or a path; got {type(reference).__name__}.")
    return parse_reference(escape(str(Path(reference).absolute())), options)


def _load_folder(
    parsed: Reference, tokenizer: SplitFunction | None, progress: Callable[[int], Progress] | None
) -> SentenceEncoder:
    folder = unescape(parsed.location)
    record = read_model(folder)
    _verify_trained(Path(folder))
    located = parsed.options.get("encoder")
    if record.reference == PRECOMPUTED and located in (None, PRECOMPUTED):
        return SentenceEncoder.from_record(PrecomputedVectors(record.encoder_dim, record.options), record)
    try:
        corpus = Corpus.from_tensors(record.corpus) if record.corpus else None
        runtime = {name: value for name, value in parsed.options.items() if name in RUNTIME_OPTIONS}
        reference = _encoder_reference(located, record, runtime, Path(folder, MODEL_FILE))
        encoder = open_encoder(reference, Given(tokenizer, corpus, progress))
    except InputError as error:
        raise ModelFolderError(
            f"{folder}: its encoder, {located or record.reference}, could not be opened: {error}\n"
            "If it was moved, name it: FOLDER?encoder=REFERENCE, or --encoder REFERENCE; other files that were moved "
            "as its options, as in FOLDER?encoder=words:FILE?stop_words=FILE."
        ) from error
    if encoder.fingerprint != record.encoder_fingerprint:
        raise ModelFolderError(
            f"{folder} was fitted on {record.reference} with the fingerprint "
            f"{record.encoder_fingerprint[:16]}; {encoder.reference} now has {encoder.fingerprint[:16]}. "
            "Vectors of one mean nothing in the other. Name the right encoder with ?encoder=REFERENCE, or fit again."
        )
    return SentenceEncoder.from_record(encoder, record)


def _verify_trained(folder: Path) -> None:
    """Refuse a trained folder whose files have changed; its record lists their checksums."""
    try:
        verify_folder(folder, read_json(folder / RECORD_FILE, FileList).get("checksums") or {})
    except FileNotFoundError:
        pass  # no trained folder
    except FileFormatError as error:
        raise ModelFolderError(f"{error} If it was changed on purpose, remove {RECORD_FILE}.") from None


def _encoder_reference(located: str | None, record: ModelRecord, runtime: Mapping[str, str], file: Path) -> Reference:
    """Where the encoder of a saved model lies, with the options in force and how to compute."""
    # What the caller wrote, `located` and `runtime`, may hold permissions; what the record says may not.
    if located is None:
        return stored_reference(record.reference, record.options, file=file, runtime=runtime)
    parsed = parse_reference(located, in_use=True)
    if record.reference == PRECOMPUTED:  # the encoder that made the vectors; its fingerprint tells
        if parsed.scheme == "folder":
            raise InputError("it must be an encoder; it is a saved model.")
        return parse_reference(located, runtime, in_use=True)
    stored = stored_reference(record.reference, record.options, file=file)
    if parsed.scheme != stored.scheme:
        raise InputError(f"it is another kind of model than {record.reference}.")
    if set(parsed.options) - {*FILE_OPTIONS, *RUNTIME_OPTIONS}:
        raise InputError("it must be written without options, but for files that were moved; those of the folder hold.")
    return parse_reference(located, {**stored.options, **parsed.options, **runtime}, in_use=True)
