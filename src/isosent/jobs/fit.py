"""Fit a transform on texts or vectors in files, save the model, and measure what the fit has changed.

`run_fit` does what a `FitRequest` asks, in stages: open the inputs, load the model, take statistics of the vectors,
erase and transform, choose a size, save, and measure. Statistics are taken by the inputs, of which `INPUTS` lists the
kinds: texts, texts that workers encode, and vectors with moments. `_fit_on_pairs` reads matching texts or vectors
instead. What does not go together is refused by the request.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from isosent.errors import InputError, IsosentWarning, option
from isosent.io.pairs import read_matches
from isosent.io.remote import local_copies
from isosent.io.shards import input_paths
from isosent.io.source import kind_of_input, open_source, open_vectors_or_moments
from isosent.jobs import fit_texts, fit_vectors
from isosent.jobs.fit_request import FitInputs, FitRequest, Say
from isosent.jobs.inspect import PairRecalls, SeparateGroups, find_groups
from isosent.loading import load_model
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import sampled_rows
from isosent.numeric.spectrum import SpaceReport, describe_space
from isosent.pages.progress import progress_bar
from isosent.persistence import FitRecord
from isosent.search.inputs import opened_with_texts
from isosent.search.smaller import FEWEST_ROWS, Size, Sizes, sizes
from isosent.transforms.base import NO_TRANSFORM, Auto
from isosent.transforms.statistics import Statistics

INPUTS = {
    "texts": fit_texts.TextInputs,
    "workers": fit_texts.WorkerInputs,
    "vectors": fit_vectors.VectorInputs,
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FitResult:
    """A fitted model, and what the fit has changed."""

    model: SentenceEncoder
    record: FitRecord | None  # of this fit; None if there was nothing to fit
    unit: str  # of what the record counts: texts, distinct texts, vectors or pairs
    follows_fit: bool  # whether the model was fitted before
    loses_storage: bool  # whether it named a dtype for an index, and no longer does
    spaces: tuple[SpaceReport, SpaceReport] | None = None  # before and after
    described: str | None = None  # which rows `spaces` are of, if not of all texts
    recalls: tuple[fit_vectors.Recall, ...] = ()  # of vectors without texts
    groups: SeparateGroups | None = None  # if the rows are two separate groups
    n_tokens: int = 0  # of the texts, if the encoder can count them
    n_unknown: int = 0
    sizes: Sizes | None = None  # if the vectors were to become smaller
    size: Size | None = None  # that was chosen
    n_vectors: int = 0  # in all, if `sizes` are those of a sample
    pairs_found: PairRecalls | None = None  # before and after erasing, if pairs are known


def run_fit(request: FitRequest, *, say: Say = print) -> FitResult:
    """Fit a model as requested, save it, and measure what has changed."""
    request.check()
    if request.fits_pairs:
        return _fit_on_pairs(request)
    with _opened(request, say) as inputs:
        request.check(inputs.sources)
        original, transform = inputs.load(), request.fitted_transform
        if transform is not None:
            transform.check_settings(original.dim)
        if transform is not None or request.erase is not None:
            original.record.postprocessing.check_fit(transform or Auto(), queries=request.queries is not None)
        before, statistics = inputs.statistics(original)
        after = before if statistics is None else inputs.fitted(before, statistics)
        sized: dict[str, Any] = {}
        if request.resizes and statistics is not None:
            after, sized = _smaller(request, before, after, statistics)
        after.save(request.output)
        inputs.saved()
        sample = None if statistics is None else inputs.sample(statistics)
        vectors = None if sample is None or not len(sample) else before.transform(sample)
        record = _record(original, after)
        details = inputs.details(before, after, vectors, record)
        if sample is not None and vectors is not None and statistics is not None:
            details["spaces"] = describe_space(vectors), describe_space(after.transform(sample))
            details["groups"] = find_groups(vectors, statistics.texts)
        return _result(original, after, **sized, **details)


@contextmanager
def _opened(request: FitRequest, say: Say) -> Iterator[FitInputs]:
    """The inputs, which know what they hold; remote ones are copied unless workers read them."""
    if request.engine is not None:
        yield INPUTS["workers"](request, (), say)
        return
    with local_copies(input_paths(request.inputs, "texts", "vectors", as_parts=False)) as (paths, named):
        sources, of_texts = opened_with_texts(
            lambda column: [open_source(path, column=column, moments=True) for path in paths],
            request.column,
            request.texts,
        )
        kind = "texts" if all(source.kind == "texts" for source in sources) else "vectors"
        yield INPUTS[kind](request, sources, say, of_texts=of_texts, named=named)


def _smaller(
    request: FitRequest, before: SentenceEncoder, after: SentenceEncoder, statistics: Statistics
) -> tuple[SentenceEncoder, dict[str, Any]]:
    """The model with the size that reaches the goal, a map to fewer dimensions, if they help, and a dtype; and how.

    The size and the sizes that were measured are fields of `FitResult`.
    """
    assert statistics.vectors is not None
    rows = sampled_rows(len(statistics.vectors))
    sample, texts = statistics.vectors[rows], statistics.texts
    is_original = all(_keeps_cosines(fit, before.dim, after.dim) for fit in after.fits[len(before.fits) :])
    try:
        measured = sizes(
            after.transform(sample),
            texts=None if texts is None else [texts[row] for row in rows.tolist()],
            originals=None if is_original else before.transform(sample),
            n_bytes=request.n_bytes,
            widths=None if after.record.postprocessing.last is None else (after.dim,),  # nothing can follow it
            codecs=request.details,
        )
    except InputError:
        goal = option("loss" if request.n_bytes is None else "n_bytes")
        raise InputError(
            f"fit: {goal} needs {FEWEST_ROWS} different vectors or more, whose neighbors are measured."
        ) from None
    # the most neighbors within the bytes, or the fewest bytes within the loss
    size = measured.smallest(request.loss or 0.0) if request.n_bytes is None else measured.within(request.n_bytes)
    moments, source = statistics.all_moments(), statistics.source
    model = measured.model(size, sample, model=after, moments=moments, source=source)
    n_vectors = round(moments.weight)
    return model, {"sizes": measured, "size": size, "n_vectors": n_vectors if n_vectors > len(sample) else 0}


def _keeps_cosines(fit: FitRecord, dim: int, n_components: int) -> bool:
    """Whether vectors have the same neighbors after a fit as before: it is none, or a rotation about zero."""
    is_rotation = fit.transform == "principal_components" and not fit.parameters.get("center", True)
    return fit.transform == NO_TRANSFORM or (is_rotation and n_components == dim)


def _fit_on_pairs(request: FitRequest) -> FitResult:
    """Fit a map on pairs of texts in a table, or of vectors in files."""
    pairs, column, queries_only = str(request.pairs), request.column, request.queries_only
    kind = kind_of_input(pairs, column=column, moments=True)
    request.check(pairs=kind)
    if kind == "texts":
        first, second, kinds, groups = read_matches(pairs, columns=column)
        before = load_model(request.model)
        if queries_only and groups is not None:
            message = f"{pairs}: the columns of each {next(iter(groups))} are ignored, as only queries are mapped."
            warnings.warn(message, IsosentWarning, stacklevel=2)
            groups = None
        with progress_bar("encoding", "texts") as bar:
            after = before.fitted_on_pairs(
                first, second, queries_only=queries_only, kinds=kinds, groups=groups, source=pairs, progress=bar
            )
    else:
        paths = [pairs, *request.inputs]
        sources = [
            open_vectors_or_moments(path, column=column, are_queries=place == 0) for place, path in enumerate(paths)
        ]
        request.check(sources, pairs=kind)
        queries, documents, files = fit_vectors.paired_vectors(sources[0], sources[1:])
        before = fit_vectors.model_of_vectors(paths, files, request.model, request.space)
        after = before.fitted_on_pairs(queries, documents, queries_only=queries_only, source=", ".join(paths))
    after.save(request.output)
    return _result(before, after, unit="pairs")


def _record(before: SentenceEncoder, after: SentenceEncoder) -> FitRecord | None:
    """The last fit, if it is new."""
    return after.fits[-1] if len(after.fits) > len(before.fits) else None


def _result(before: SentenceEncoder, after: SentenceEncoder, **details: Any) -> FitResult:
    """The result of a fit of a model that was loaded."""
    record = _record(before, after)
    return FitResult(
        model=after,
        record=record,
        follows_fit=bool(before.fits and record is not None and record.transform != NO_TRANSFORM),
        loses_storage=before.record.storage is not None and after.record.storage is None,
        **details,
    )
