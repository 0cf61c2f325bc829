"""Loading a model by its reference (a name, a folder, an id on the Hugging Face hub), or wrapping one in memory.

`load` takes a reference with options; a folder that isosent saved is opened by `load_saved`, which loads the encoder
that it names and checks that it is the one of the record. `wrap` makes a model of an object of another library, or of a
dictionary of vectors; `wrap_tables` of files of texts and their vectors. `load_model` is `load` with a bar, for
commands, and `read_record` reads what a folder says without loading its encoder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from isosent.encoders.api import KEPT_IN
from isosent.encoders.base import Encoder
from isosent.encoders.load import load_encoder
from isosent.encoders.precomputed import PRECOMPUTED, PrecomputedVectors, made_again
from isosent.encoders.reference import (
    DEFAULT_REFERENCE,
    FILE_OPTIONS,
    FUNCTION,
    MODEL_FILE,
    RUNTIME_OPTIONS,
    Reference,
    escape,
    options_of,
    parse_reference,
    path_of,
    stored_reference,
    without_permissions,
)
from isosent.encoders.static_models import SplitFunction
from isosent.encoders.word_average import Corpus, Weighting
from isosent.encoders.wrapped import wrap_encoder
from isosent.errors import FileFormatError, InputError, InputTypeError, ModelFolderError, next_step, option, wrong_value
from isosent.io.checksum import verify_folder
from isosent.io.json import read_json
from isosent.io.schemas import FileList
from isosent.io.texts import read_texts
from isosent.io.vector_source import VectorSource
from isosent.model import SentenceEncoder
from isosent.pages.progress import Progress, progress_bar
from isosent.persistence import RECORD_FILE, ModelRecord, read_model
from isosent.space import are_same, same_space


def load(
    reference: str | os.PathLike[str] = DEFAULT_REFERENCE,
    *,
    weighting: Weighting | str | None = None,
    tokenizer: SplitFunction | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> SentenceEncoder:
    """Load a model.

    Parameters
    ----------
    reference : str or path-like, default "wordllama"
        - an id on the Hugging Face hub, such as ``sentence-transformers/all-MiniLM-L6-v2`` or
          ``minishlab/potion-base-8M``;
        - a folder: a model saved by isosent, transformers, sentence-transformers or Model2Vec;
        - ``wordllama``, English token vectors that come with isosent;
        - ``words:FILE[,FILE...]``, word vectors;
        - ``hf:ID-OR-DIR`` or ``static:ID-OR-DIR``, to say that it is a transformer or a Model2Vec model;
        - ``api:PROVIDER/MODEL`` or ``api:URL?model=NAME``, a model of an embedding API.

        Options may follow after a ``?``, as in ``hf:DIR?layers=1,-1&pooling=mean``.
    weighting : Weighting or str, optional
        How word vectors are averaged, such as ``GEM(window=6)`` or ``"sif"``.
    tokenizer : callable, str or path-like, optional
        For word vectors: the name of a splitter, a ``tokenizer.json``, or a function from a text to its words, for
        languages written without spaces. A function is not saved: pass it again to load a saved model.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in bytes of word vectors.
    **options
        Options by name, as in ``load("wordllama", weighting="sif", n_components=1)``; they win over those in
        `reference`. Values may be strings, as in a reference, or numbers, bools, lists and paths.

    Returns
    -------
    SentenceEncoder
        The model.

    Raises
    ------
    ModelReferenceError
        If the reference cannot be parsed, or an option is unknown or out of range.
    ModelFolderError
        If a saved model is damaged, or its encoder is no longer the one it was fitted on.
    InputTypeError
        If `weighting` or `tokenizer` has the wrong type.
    MissingExtraError
        If a transformer is loaded without the extra ``plm``.

    Warns
    -----
    PermissionIgnoredWarning
        If a saved model holds ``trust_remote_code`` or ``pickled_weights``, or another option of how to compute. Only
        the caller grants these, each time; they are never read from a file.

    Examples
    --------
    >>> load("wordllama")
    <SentenceEncoder wordllama, 256 dimensions>
    >>> load("wordllama", weighting="sif", n_components=1).encoder.needs_corpus
    True
    """
    if isinstance(weighting, Weighting):
        options |= options_of(weighting)
    elif isinstance(weighting, str):
        options["weighting"] = weighting
    elif weighting is not None:
        raise wrong_value(
            "load",
            "weighting",
            "be a name or a Weighting such as GEM()",
            type(weighting).__name__,
            error=InputTypeError,
        )
    split = tokenizer if callable(tokenizer) else None
    if tokenizer is not None and split is None:
        if not isinstance(tokenizer, (str, os.PathLike)):
            raise wrong_value(
                "load", "tokenizer", "be a function, a name or a path", repr(tokenizer), error=InputTypeError
            )
        options["tokenizer"] = tokenizer
    parsed = _parsed(reference, options)
    if parsed.scheme == "folder":
        folder = _folder(parsed)
        return load_saved(read_model(folder), folder, parsed, split, progress)
    if split is not None:
        parsed = replace(parsed, options={**parsed.options, "tokenizer": FUNCTION})
    return SentenceEncoder(load_encoder(parsed, split=split, progress=progress))


def wrap(model: Any, *, reference: str | None = None) -> SentenceEncoder:
    """Make a model of another library, or a function, a `SentenceEncoder` that can be fitted and evaluated.

    Parameters
    ----------
    model : object
        A loaded ``SentenceTransformer``, a Model2Vec ``StaticModel``, another object with a method ``encode``, or a
        function, from a list of texts to an array or tensor of shape (n_texts, dim). It is called once, with a few
        fixed texts; their vectors are its fingerprint. Or a mapping of texts to their vectors, which encodes these
        texts alone; a model that is fitted on it can be saved, and transforms later vectors from the same place.
    reference : str, optional
        Model reference that loads the same model, such as ``"hf:DIR"``. By default it is the name that a
        SentenceTransformer was loaded by.

    Returns
    -------
    SentenceEncoder
        A model without a transform. It can be pickled if `model` can. `SentenceEncoder.save` works only if `reference`
        loads an encoder with the same vectors. Without a reference, as for a function, a warning says that the model
        cannot be saved.

    Raises
    ------
    InputTypeError
        If `model` has no method ``encode`` and cannot be called.
    InputError
        If it does not return one vector of finite numbers per text, or does not know the fixed texts.

    Examples
    --------
    >>> from model2vec import StaticModel  # doctest: +SKIP
    >>> isosent.wrap(StaticModel.from_pretrained("DIR"), reference="static:DIR")  # doctest: +SKIP
    >>> wrap({"a cat": [1.0, 0.0], "a dog": [0.0, 1.0]}).similarity("a cat", "a dog")
    array([[0.]])
    """
    if isinstance(model, SentenceEncoder):
        return model
    return SentenceEncoder(model if isinstance(model, Encoder) else wrap_encoder(model, reference))


def wrap_tables(sources: Sequence[VectorSource]) -> SentenceEncoder:
    """Make a model of tables of texts and their vectors, which encodes these texts alone; see `wrap`."""
    vectors: dict[str, Any] = {}
    space = None
    for source in sources:
        if not source.is_table:
            raise InputError(
                f"{source.name} holds no texts, by which tasks find their vectors. Write both: isosent encode TEXTS -o "
                "FILE.parquet."
            )
        space = same_space(sources[0].name, space, source.name, source.space)
        rows = np.concatenate(list(source.blocks()))
        # the first file wins: a query that equals a document does not replace its vector
        vectors = dict(zip(read_texts(source.name, column="text"), rows, strict=True)) | vectors
    return wrap(vectors)


def load_model(reference: str | None) -> SentenceEncoder:
    """Load the model that a command names, or the default one, with a bar."""
    with progress_bar("reading word vectors", "bytes") as bar:
        return load(reference or DEFAULT_REFERENCE, progress=bar)


def read_record(reference: str | os.PathLike[str]) -> ModelRecord:
    """Read what a model is, without loading the encoder of a saved model."""
    parsed = _parsed(reference)
    if parsed.scheme != "folder":
        return load(reference).record
    folder = _folder(parsed)
    record = read_model(folder)
    without_permissions(record.reference, record.options, file=folder / MODEL_FILE)  # for its warning
    return record


def _parsed(reference: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Reference:
    if isinstance(reference, str):
        return parse_reference(reference, options)
    if not isinstance(reference, os.PathLike):
        raise wrong_value(
            "load",
            "reference",
            "be a string or a path",
            type(reference).__name__,
            "For a model in memory: isosent.wrap(model).",
            error=InputTypeError,
        )
    return parse_reference(escape(str(Path(reference).absolute())), options)


def _folder(parsed: Reference) -> Path:
    return path_of(parsed.location)


def load_saved(
    record: ModelRecord,
    folder: Path,
    parsed: Reference | None = None,
    split: SplitFunction | None = None,
    progress: Progress | None = None,
) -> SentenceEncoder:
    """Load the encoder of a saved model that has been read; `parsed` is how the caller named it, with options."""
    parsed = parsed or _parsed(folder)
    _verify_trained(folder)
    moved_to = parsed.options.get("encoder")
    if record.reference == PRECOMPUTED and moved_to in (None, PRECOMPUTED):
        return SentenceEncoder.from_record(
            PrecomputedVectors(record.encoder_dim, record.options, record.corpus, record.canary), record
        )
    try:
        learned = record.corpus if record.reference != PRECOMPUTED else None
        corpus = Corpus.from_tensors(learned) if learned else None
        runtime = {name: value for name, value in parsed.options.items() if name in RUNTIME_OPTIONS}
        reference = _encoder_reference(moved_to, record, runtime, folder / MODEL_FILE)
        encoder = load_encoder(reference, split=split, corpus=corpus, progress=progress, is_saved=True)
        facts = record.encoder_fingerprint, record.encoder_dim, record.canary
        encoder = encoder.as_saved(*facts, record.options.get(KEPT_IN))
    except InputError as error:
        reason = str(error).partition("\n")[0]  # the rest says what may be typed
        advice = (
            "\nIf it was moved, name it: FOLDER?encoder=REFERENCE. Name other files that were moved as its options, as "
            "in FOLDER?encoder=words:FILE?stop_words=FILE."
        )
        raise ModelFolderError(
            f"{folder}: its encoder, {moved_to or record.reference}, could not be loaded: {reason}"
            f"{advice if record.reference != PRECOMPUTED else ''}"  # the encoder of bare vectors was never known
        ) from error
    if encoder.fingerprint != record.encoder_fingerprint:
        is_same = are_same(encoder.fingerprint, record.encoder_fingerprint)
        if not is_same and (moved_to is None or not encoder.has_vectors_of(record.canary)):
            named = PrecomputedVectors(record.encoder_dim, {"space": record.options.get("space", "")})
            if record.encoder_fingerprint == named.fingerprint:  # by a person
                raise ModelFolderError(
                    f"{folder} was made of vectors of which only the name is known, {named.space.reference}, and not "
                    f"whether {encoder.reference} made them. If it did, make it again: "
                    f"{option('model', encoder.reference)} in place of {option('space')}."
                )
            if record.reference == PRECOMPUTED:
                verb, output = ("fit", "FOLDER") if record.fits else ("index", "INDEX")
                step = made_again(encoder.reference, output, is_fitted=bool(record.fits))
                then = next_step(", and an index of them: isosent index VECTORS -m FOLDER -o INDEX", "")
                raise ModelFolderError(
                    f"{folder} was made of vectors whose model is not known. If {encoder.reference} made them, "
                    f"{verb} them again with it: {step}{then if record.fits else ''}."
                )
            raise ModelFolderError(
                f"{folder} was fitted on {record.reference} with the fingerprint "
                f"{record.encoder_fingerprint[:16]}; {encoder.reference} now has {encoder.fingerprint[:16]}. "
                "Their vectors cannot be compared. Name the right encoder with ?encoder=REFERENCE, or fit again."
            )
        encoder.fingerprint = record.encoder_fingerprint  # the same vectors by another name
    return SentenceEncoder.from_record(encoder, record)


def _verify_trained(folder: Path) -> None:
    """Refuse a trained folder whose files have changed; its record lists their checksums."""
    try:
        verify_folder(folder, read_json(folder / RECORD_FILE, FileList).get("checksums") or {})
    except FileNotFoundError:
        pass  # not a trained folder
    except FileFormatError as error:
        raise ModelFolderError(f"{error} If it was changed on purpose, remove {RECORD_FILE}.") from None


def _encoder_reference(moved_to: str | None, record: ModelRecord, runtime: Mapping[str, Any], file: Path) -> Reference:
    """The encoder of a saved model, with the options in force and how to compute."""
    # What the caller wrote, `moved_to` and `runtime`, may hold permissions; what the record says may not.
    options = {name: value for name, value in record.options.items() if name != KEPT_IN}
    if moved_to is None:
        return stored_reference(record.reference, options, file=file, runtime=runtime)
    parsed = parse_reference(moved_to, in_use=True)
    if record.reference == PRECOMPUTED:  # the encoder that made the vectors; its fingerprint is compared
        if parsed.scheme == "folder":
            raise InputError("it is a saved model. Name its encoder.")
        return parse_reference(moved_to, runtime, in_use=True)
    stored = stored_reference(record.reference, options, file=file)
    if parsed.scheme != stored.scheme and not (parsed.scheme == "hub" and stored.scheme in ("hf", "static")):
        raise InputError(f"it is another kind of model than {record.reference}.")
    if parsed.scheme == "api":  # what was written is what is asked, and must give the vectors of the folder
        return parse_reference(moved_to, runtime, in_use=True)
    if set(parsed.options) - {*FILE_OPTIONS, *RUNTIME_OPTIONS}:
        raise InputError("it has options, but those of the folder hold. Leave them out, except files that were moved.")
    return parse_reference(moved_to, {**stored.options, **parsed.options, **runtime}, in_use=True)


def check_model(where: str, model: object) -> None:
    """Refuse what is not a model, such as its name."""
    if not isinstance(model, SentenceEncoder):
        advice = f"Use isosent.load({model!r})." if isinstance(model, str) else "Use isosent.load or isosent.wrap."
        raise wrong_value(where, "model", "be a SentenceEncoder", type(model).__name__, advice, error=InputTypeError)
