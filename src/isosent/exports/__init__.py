"""Export a model to other libraries: sentence-transformers, onnxruntime, FAISS, NumPy, PostgreSQL."""

from __future__ import annotations

import os

from isosent.errors import InputError, option
from isosent.evaluation.result import EvaluationResult
from isosent.exports import faiss, numpy, onnx, sentence_transformers, sql
from isosent.exports.check import Export
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import open_vectors
from isosent.model import SentenceEncoder
from isosent.pages.progress import Progress

TARGETS = (sentence_transformers.TARGET, onnx.TARGET, faiss.TARGET, numpy.TARGET, sql.TARGET)


def export(
    model: SentenceEncoder,
    target: str,
    output: str | os.PathLike[str],
    *,
    tei: bool = False,
    results: EvaluationResult | None = None,
    index: str | None = None,
    vectors: str | os.PathLike[str] | VectorSource | None = None,
    ids: str | None = None,
    with_map: bool = True,
    progress: Progress | None = None,
) -> Export:
    """Write a model in another format.

    The export is loaded in the other library and must give the vectors of the model before it appears under its name.

    Parameters
    ----------
    model : SentenceEncoder
        The model to export.
    target : {"sentence-transformers", "onnx", "faiss", "numpy", "sql"}
        The format:

        - ``"sentence-transformers"``: a folder for ``SentenceTransformer(FOLDER)``;
        - ``"onnx"``: a folder with ``model.onnx`` and ``tokenizer.json``. If queries have their own prompt or map, it
          also holds ``query_tokenizer.json`` or ``query_model.onnx``, and the same for documents; ``isosent.json``
          says which belong together;
        - ``"faiss"``: an index that applies the fitted map to what is added and searched, so it takes vectors of the
          encoder and returns cosines after the map. It is empty unless there are `vectors`;
        - ``"numpy"``: a safetensors file with ``weight`` of shape (encoder.dim, dim) and ``bias`` of shape (dim,),
          float32, ``query_bias`` if queries have their own map (and ``query_weight`` if more than the bias
          differs), and the arrays of the quantization if the model has one;
        - ``"sql"``: a script that makes functions for PostgreSQL with pgvector. They map vectors of the encoder in a
          column to unit vectors of the model, so that wide columns can be indexed by expression.
    output : path-like
        The folder (sentence-transformers, onnx) or file (faiss, numpy, sql) to write. Only an older export is replaced.
        The note on a file is written next to it, as ``OUTPUT.isosent.json`` (faiss).
    tei : bool, default False
        sentence-transformers: also make the folder work with Text Embeddings Inference, which reads the module names
        and settings of releases before 6.
    results : EvaluationResult, optional
        sentence-transformers: scores of this model for the model card.
    index : str, optional
        faiss: the index after the map, as for ``faiss.index_factory``; "Flat" by default. ``"SQ8"`` uses the ranges of
        the model's quantization.
    vectors : path-like or VectorSource, optional
        faiss: file of vectors to fill the index with: those of the encoder, or of the model if the file says so.
        Zero rows are left out.
    ids : str, optional
        faiss: column of that file, if it is a parquet file, with a different integer >= 0 for each row; by default
        rows are numbered from 0.
    with_map : bool, default True
        faiss: whether a filled index applies the map. Without it, it takes vectors of the model.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in vectors.

    Returns
    -------
    Export
        The path, the vector space, and how close the vectors are to those of the model.

    Raises
    ------
    InputError
        If there is no such format, the format cannot express the model, an option belongs to another format, or
        `results` belong to another model.
    MissingExtraError
        If the package of the format is not installed.
    OutputError
        If the output cannot be written, holds something other than an older export, or gives other vectors than the
        model. What was there before is left as it was.

    Notes
    -----
    isosent gives a text without a known token the zero row. sentence-transformers gives it the vector of its special
    tokens, or the bias of the map; such texts are left out of the comparison.

    Examples
    --------
    >>> import isosent
    >>> model = isosent.load("wordllama").fitted(isosent.demo_texts(), "whitening")
    >>> export(model, "numpy", "map.safetensors").agreement.holds  # doctest: +SKIP
    True
    """
    if model.groups is not None:
        raise InputError(
            f"export: no other format chooses a map by the {model.groups.column} of a text, as this model does. Use "
            "isosent for it: isosent encode, index or serve."
        )
    if target not in TARGETS:
        raise InputError(f"export: there is no format {target!r}. Choose one of {', '.join(TARGETS)}.")
    if target != sentence_transformers.TARGET and (tei or results is not None):
        raise InputError(
            f"export: tei and {option('results')} are for {sentence_transformers.TARGET}, not for {target}. "
            "Leave them out."
        )
    if target != faiss.TARGET and not (index is None and vectors is None and ids is None and with_map):
        raise InputError(
            f"export: index, map, {option('vectors')} and {option('ids')} are for {faiss.TARGET}, not for {target}. "
            "Leave them out."
        )
    if vectors is None and not (ids is None and with_map):
        raise InputError(
            f"export: {option('ids')} and map=false are for a filled index. Name its vectors: "
            f"{option('vectors', 'FILE')}."
        )
    match target:
        case sentence_transformers.TARGET:
            return sentence_transformers.export_sentence_transformers(model, output, tei=tei, results=results)
        case onnx.TARGET:
            return onnx.export_onnx(model, output)
        case faiss.TARGET:
            source = None if vectors is None else open_vectors(vectors)
            factory = index or faiss.DEFAULT_INDEX
            return faiss.export_faiss(
                model, output, index=factory, vectors=source, ids=ids, with_map=with_map, progress=progress
            )
        case sql.TARGET:
            return sql.export_sql(model, output)
        case _:
            return numpy.export_numpy(model, output)
