"""Every format that a model can be exported to, by name."""

from __future__ import annotations

import os

from isosent.errors import InputError
from isosent.evaluation.result import EvaluationResult
from isosent.exports import faiss_export, numpy_export, onnx_folder, sentence_transformers_folder
from isosent.exports.note import Export
from isosent.model import SentenceEncoder

TARGETS = (
    sentence_transformers_folder.TARGET,
    onnx_folder.TARGET,
    faiss_export.TARGET,
    numpy_export.TARGET,
)


def export(
    model: SentenceEncoder,
    target: str,
    output: str | os.PathLike[str],
    *,
    tei: bool = False,
    results: EvaluationResult | None = None,
    index: str | None = None,
) -> Export:
    """Write a model in another format, after checking that it gives the same vectors.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    target : {"sentence-transformers", "onnx", "faiss", "numpy"}
        The format.
    output : path-like
        The folder (sentence-transformers, onnx) or file (faiss, numpy) to write.
    tei : bool, default False
        sentence-transformers: whether Text Embeddings Inference must be able to serve it.
    results : EvaluationResult, optional
        sentence-transformers: scores of this model, for the model card.
    index : str, optional
        faiss: what stands behind the map, as in ``faiss.index_factory``; "Flat" where left out.

    Returns
    -------
    Export
        What was written, and how close its vectors are to those of the model.

    Raises
    ------
    InputError
        If there is no such format, it cannot express the model, or an option belongs to another one.
    MissingExtraError
        If the format's package is not installed.
    OutputError
        If the result cannot be written, or gave other vectors than the model. What was there is intact.
    """
    if target not in TARGETS:
        raise InputError(f"export: the target must be one of {', '.join(TARGETS)}; got {target!r}.")
    if target != sentence_transformers_folder.TARGET and (tei or results is not None):
        raise InputError(f"export: --tei and --results belong to {sentence_transformers_folder.TARGET}; got {target}.")
    if target != faiss_export.TARGET and index is not None:
        raise InputError(f"export: --index belongs to {faiss_export.TARGET}; got {target}.")
    match target:
        case sentence_transformers_folder.TARGET:
            return sentence_transformers_folder.export_sentence_transformers(model, output, tei=tei, results=results)
        case onnx_folder.TARGET:
            return onnx_folder.export_onnx(model, output)
        case faiss_export.TARGET:
            return faiss_export.export_faiss(model, output, index=index or faiss_export.DEFAULT_INDEX)
        case _:
            return numpy_export.export_numpy(model, output)
