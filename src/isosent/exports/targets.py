"""Every format that a model can be exported to, by name."""

from __future__ import annotations

import os

from isosent.errors import InputError
from isosent.evaluation.result import EvaluationResult
from isosent.exports import faiss, numpy, onnx, sentence_transformers
from isosent.exports.check import Export
from isosent.model import SentenceEncoder

TARGETS = (
    sentence_transformers.TARGET,
    onnx.TARGET,
    faiss.TARGET,
    numpy.TARGET,
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
    if target != sentence_transformers.TARGET and (tei or results is not None):
        raise InputError(f"export: --tei and --results belong to {sentence_transformers.TARGET}; got {target}.")
    if target != faiss.TARGET and index is not None:
        raise InputError(f"export: --index belongs to {faiss.TARGET}; got {target}.")
    match target:
        case sentence_transformers.TARGET:
            return sentence_transformers.export_sentence_transformers(model, output, tei=tei, results=results)
        case onnx.TARGET:
            return onnx.export_onnx(model, output)
        case faiss.TARGET:
            return faiss.export_faiss(model, output, index=index or faiss.DEFAULT_INDEX)
        case _:
            return numpy.export_numpy(model, output)
