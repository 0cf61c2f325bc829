"""A model as a folder that sentence-transformers loads without isosent."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from isosent import _extras
from isosent.encoders.base import Encoder
from isosent.encoders.module_folder import ROLES
from isosent.encoders.prompts import DEFAULT_PROMPT, named_prompts
from isosent.errors import InputError
from isosent.evaluation.result import EvaluationResult
from isosent.exports.exportable import exportable
from isosent.exports.model_card import model_card
from isosent.exports.note import EXPORT, Export, space_of, write_folder_note
from isosent.exports.self_check import Agreement, compare_on_texts, require_agreement, total
from isosent.exports.sentence_transformers_modules import InexpressibleError, modules_of
from isosent.exports.text_embeddings_inference import check_servable, write_old_names
from isosent.files.atomic import check_folder, replacing_folder
from isosent.model import SentenceEncoder
from isosent.network.loading import quiet

TARGET = "sentence-transformers"


def export_sentence_transformers(
    model: SentenceEncoder,
    output: str | os.PathLike[str],
    *,
    tei: bool = False,
    results: EvaluationResult | None = None,
) -> Export:
    """Write a folder for ``SentenceTransformer(FOLDER)``.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    output : path-like
        The folder to write: new, empty, or an older export.
    tei : bool, default False
        Whether Text Embeddings Inference must be able to serve it: module names and settings as releases before 6 of
        sentence-transformers wrote them.
    results : EvaluationResult, optional
        Scores of this model, for the model card.

    Returns
    -------
    Export
        What was written.

    Raises
    ------
    InputError
        If the target cannot express the model, or the results are those of another model.
    MissingExtraError
        If sentence-transformers is not installed.
    OutputError
        If the folder cannot be written, or gave other vectors than the model. What was there is intact.

    Notes
    -----
    A text without a token is a zero row in isosent. The library has no such rule: a transformer gives it the vector of
    its special tokens, a static encoder the bias of the map. Such texts are left out of the comparison.
    """
    check_folder(output, EXPORT)
    _extras.require("sentence_transformers")
    model = exportable(model)
    if tei:
        check_servable(model)
    card = model_card(model, results)
    with replacing_folder(output, EXPORT) as folder, quiet_library():
        try:
            as_sentence_transformer(model).save_pretrained(str(folder), create_model_card=False)
        except InexpressibleError as error:
            raise InputError(f"export: {error} Export to onnx.") from error
        if tei:
            write_old_names(folder, model.encoder)
        agreement = check_vectors(TARGET, model, folder)
        (folder / "README.md").write_text(card, "utf-8")
        write_folder_note(folder, TARGET, model, agreement, {"tei": tei})
    return Export(TARGET, Path(output), space_of(model), agreement)


@contextmanager
def quiet_library() -> Iterator[None]:
    """Keep what the library and transformers say while they load and save off the terminal."""
    logger = logging.getLogger("sentence_transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with quiet(_extras.require("transformers")):
            yield
    finally:
        logger.setLevel(level)


def as_sentence_transformer(model: SentenceEncoder) -> Any:
    """Make a model of sentence-transformers that gives the same vectors.

    Parameters
    ----------
    model : SentenceEncoder
        The model.

    Returns
    -------
    SentenceTransformer
        On the CPU, with weights of its own and the prompts in force.

    Raises
    ------
    InexpressibleError
        If the library cannot express the model, or hold it.
    InputError
        If the encoder is no mean of vectors of tokens, or not fitted.
    MissingExtraError
        If the library is not installed.
    """
    library = _extras.require("sentence_transformers")
    try:
        return library.SentenceTransformer(
            modules=modules_of(model), device="cpu", similarity_fn_name="cosine", **_prompts(model.encoder)
        )
    except (ValueError, StrictDataclassError) as error:
        if isinstance(error, InputError):
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        options = ", ".join(f"{name}={value}" for name, value in model.encoder.options.items() if value)
        raise InexpressibleError(
            f"sentence-transformers must be able to hold {model.encoder.reference} with {options}; it says: {reason}."
        ) from error


def _prompts(encoder: Encoder) -> dict[str, Any]:
    """The prompts in force, as the library takes them."""
    prompts = named_prompts(encoder)
    return {"prompts": prompts, "default_prompt_name": DEFAULT_PROMPT if DEFAULT_PROMPT in prompts else None}


def check_vectors(target: str, model: SentenceEncoder, folder: Path) -> Agreement:
    """Load a folder as a user of the library would, and compare what it makes of texts of every role.

    Parameters
    ----------
    target : str
        Name of the format, for the message.
    model : SentenceEncoder
        What the vectors must be those of.
    folder : Path
        The folder.

    Returns
    -------
    Agreement
        How close they are.

    Raises
    ------
    OutputError
        If they differ by more than float32 rounding explains.
    MissingExtraError
        If the library is not installed.
    """
    library = _extras.require("sentence_transformers")
    loaded = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    methods = (loaded.encode, loaded.encode_query, loaded.encode_document)
    agreement = total(
        compare_on_texts(model, partial(method, show_progress_bar=False), zero_rows=False, role=role)
        for role, method in zip(ROLES, methods, strict=True)
    )
    require_agreement(target, agreement)
    return agreement
