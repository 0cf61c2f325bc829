"""Fit a transform on texts or vectors in files, save the model, and measure what the fit has changed.

`fit_files` opens the inputs, and passes them on as sources: to `fit_texts`, which encodes them here, to `fit_shards`,
which lets workers encode them, or to `fit_vectors`, which reads vectors and moments block by block. `fit_pairs` reads
matching texts or vectors. Each refuses what cannot be fitted before it reads much, saves the model as soon as it is
fitted, and returns a `FitResult`.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.precomputed import PrecomputedVectors
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError, IsosentWarning
from isosent.io.columns import unused_vectors
from isosent.io.pairs import read_matches
from isosent.io.remote import local_copies, remove
from isosent.io.shards import SHARD_SIZE, input_paths
from isosent.io.source import MomentsSource, kind_of_input, open_source, open_vectors_or_moments
from isosent.io.texts import TEXT_ENDINGS, TextSource, read_labels
from isosent.io.vector_source import VectorSource, picked_rows
from isosent.io.vectors import VECTOR_ENDINGS
from isosent.jobs.inspect import PairRecalls, SeparateGroups, find_groups, known_pairs, pairs_found
from isosent.jobs.shards import Engine, how_resumed, measure_folder, sample_rows, sample_texts
from isosent.jobs.vectors import (
    FileMoments,
    labeled_moments_of,
    load_model,
    model_of_vectors,
    no_rows,
    paired_vectors,
    sum_of_files,
    vectors_and_moments,
)
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows, sampled_rows
from isosent.numeric.spectrum import SpaceReport, describe_space
from isosent.pages.progress import progress_bar
from isosent.persistence import FitRecord
from isosent.search.rows import texts_of_vectors
from isosent.search.smaller import FEWEST_ROWS, Size, Sizes, sizes
from isosent.transforms.auto import held_out_recall
from isosent.transforms.base import (
    NO_TRANSFORM,
    Auto,
    FitProgress,
    LinearTransform,
    Transform,
    make_linear,
    needs_vectors,
    transform_name,
)
from isosent.transforms.labels import Attribute

_DESCRIBED_ROWS = 10_000
_SAMPLED_TEXTS = 20_000  # for auto
_MOST_KEPT_DIMENSIONS = 4096  # of statistics in a model folder: of so many, they take 34 MB

Say = Callable[[str], None]
Named = Callable[[str], str]
SampledTexts = tuple[list[str], NDArray[np.floating], NDArray[np.intp]]  # texts, their vectors and rows


class Recall(NamedTuple):
    """Neighbors that a map keeps: those of held-out original vectors that are still among the ten nearest."""

    label: str
    n_components: int
    recall: float  # mean over the queries, in [0, 1]
    n_texts: int  # vectors that were searched


class Goal(NamedTuple):
    """How small vectors are to become: within so many bytes each, or at most so many neighbors lost."""

    n_bytes: float | None = None
    loss: float | None = None

    @property
    def option(self) -> str:
        """The option of the command line."""
        return "--loss" if self.n_bytes is None else "--bytes"

    def choose(self, measured: Sizes) -> Size:
        """The size that keeps the most neighbors within the bytes, or the smallest within the loss."""
        return measured.smallest(self.loss or 0.0) if self.n_bytes is None else measured.within(self.n_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class FitResult:
    """A fitted model, and what the fit has changed."""

    model: SentenceEncoder
    record: FitRecord | None  # of this fit; None if there was nothing to fit
    unit: str  # of what the record counts: texts, distinct texts or vectors
    spaces: tuple[SpaceReport, SpaceReport] | None = None  # before and after
    described: str | None = None  # which rows `spaces` are of, if not of all texts
    recalls: tuple[Recall, ...] = ()  # of vectors without texts
    groups: SeparateGroups | None = None  # if the rows are two separate groups
    n_tokens: int = 0  # of the texts, if the encoder can count them
    n_unknown: int = 0
    follows_fit: bool = False  # whether the model was fitted before
    loses_storage: bool = False  # whether it named a dtype for an index, and no longer does
    sizes: Sizes | None = None  # if the vectors were to become smaller
    size: Size | None = None  # that was chosen
    pairs_found: PairRecalls | None = None  # before and after erasing, if pairs are known


def fit_files(
    inputs: Sequence[str],
    output: str | os.PathLike[str],
    reference: str | None,
    transform: Transform | Auto | None,
    *,
    column: str | None = None,
    erase: str | None = None,
    queries: str | None = None,
    texts: str | None = None,
    space: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    shard_size: int | None = None,
    goal: Goal | None = None,
    pairs: str | None = None,
    codecs: bool = False,
    say: Say = print,
) -> FitResult:
    """Fit a transform on files of texts, or of vectors and moments; without a reference, vectors are of no encoder."""
    if goal is not None:
        _check_goal(goal, transform, erase=erase, queries=queries, engine=engine)
        if isinstance(transform, Auto) and transform.purpose is None:
            transform = None  # the neighbors to keep are those of the vectors that were given
    if engine is not None:
        if any(each is not None for each in (queries, texts, space, checkpoint, pairs)):
            raise InputError("fit: --queries, --texts, --space, --checkpoint and --pairs do not go with --workers.")
        return fit_shards(
            inputs,
            output,
            reference,
            transform,
            engine=engine,
            column=column,
            erase=erase,
            shard_size=SHARD_SIZE if shard_size is None else shard_size,
            say=say,
        )
    if shard_size is not None:
        raise InputError("fit: --shard-size is for --workers.")
    with local_copies(input_paths(inputs, (*TEXT_ENDINGS, *VECTOR_ENDINGS), as_parts=False)) as (paths, named):
        sources = [open_source(path, column=column, moments=True) for path in paths]
        of_texts = [source for source in sources if source.kind == "texts"]
        measured = [source for source in sources if source.kind != "texts"]
        if measured:
            if of_texts:
                names = f"{of_texts[0].name} holds texts, and {measured[0].name} holds vectors"
                raise InputError(f"fit: {names}. Name files of one kind.")
            if pairs is not None:
                raise InputError(f"fit: {pairs} is searched in texts, and {paths[0]} holds vectors. Name the texts.")
            return fit_vectors(
                measured,
                output,
                reference,
                transform,
                named=named,
                erase=erase,
                queries=None if queries is None else open_vectors_or_moments(queries, column=column),
                texts=texts,
                space=space,
                checkpoint=checkpoint,
                goal=goal,
                codecs=codecs,
                say=say,
            )
        if (texts, space, checkpoint) != (None, None, None):
            raise InputError(f"fit: --texts, --space and --checkpoint are for vectors; {', '.join(paths)} holds texts.")
        return fit_texts(
            of_texts,
            output,
            reference,
            transform,
            named=named,
            erase=erase,
            queries=None if queries is None else TextSource(queries).in_column(column),
            goal=goal,
            pairs=pairs,
            codecs=codecs,
            say=say,
        )


def fit_texts(
    sources: Sequence[TextSource],
    output: str | os.PathLike[str],
    reference: str | None,
    transform: Transform | Auto | None,
    *,
    named: Named = str,
    erase: str | None = None,
    queries: TextSource | None = None,
    goal: Goal | None = None,
    pairs: str | None = None,
    codecs: bool = False,
    say: Say = print,
) -> FitResult:
    """Fit a transform on the vectors of texts; an encoder that learns from texts is fitted first."""
    texts = [text for source in sources for text in source.texts()]
    query_texts = None if queries is None else queries.texts()
    labels = None if erase is None else {erase: [label for source in sources for label in source.labels(erase)]}
    known = None if pairs is None else known_pairs(pairs)
    model = load_model(reference)
    if transform is None and query_texts is not None:
        raise InputError("fit: --queries needs a transform, and --transform is none.")
    if transform is not None:
        transform.check_settings(model.dim)
    fits_more = transform is not None or labels is not None or goal is not None
    name, learns = named(", ".join(source.name for source in sources)), model.encoder.needs_corpus
    with progress_bar("encoding", "texts") as bar:
        before = after = model.fitted(texts, None, source=name, progress=bar if learns else None)
        if fits_more:
            encoder = before.encoder if query_texts is None else before.encoder.for_documents()
            encoded = encoder.encode(texts, progress=bar)
            if transform is not None or labels is not None:
                after = before.fitted(
                    texts,
                    transform,
                    erase=labels,
                    queries=query_texts,
                    encoded=encoded,
                    source=name,
                    report=_likelihood_to(say),
                )
    result = FitResult(after, None, "texts")
    if goal is not None:
        moments = Moments.from_rows(encoded[nonzero_rows(encoded)])
        result = _smaller(result, encoded, moments, goal, texts=texts, codecs=codecs, before=before, source=name)
        after = result.model
    after.save(output)
    record = after.fits[-1] if len(after.fits) > len(model.fits) else None
    n_tokens, n_unknown = before.encoder.coverage(texts)
    result = replace(
        result,
        pairs_found=None if known is None else pairs_found(before, after, *known, texts),
        record=record,
        unit="distinct texts" if record is not None and record.choice else "texts",
        n_tokens=n_tokens,
        n_unknown=n_unknown,
        follows_fit=bool(model.fits and record is not None and record.transform != NO_TRANSFORM),
        loses_storage=_loses_storage(model, after),
    )
    if not fits_more:
        return result
    vectors = before.transform(encoded)
    spaces = describe_space(vectors), describe_space(after.transform(encoded))
    return replace(result, spaces=spaces, groups=find_groups(vectors, texts))


def fit_vectors(
    inputs: Sequence[VectorSource | MomentsSource],
    output: str | os.PathLike[str],
    reference: str | None,
    transform: Transform | Auto | None,
    *,
    named: Named = str,
    erase: str | None = None,
    queries: VectorSource | MomentsSource | None = None,
    texts: str | None = None,
    space: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    goal: Goal | None = None,
    codecs: bool = False,
    say: Say = print,
) -> FitResult:
    """Fit a transform on vectors in files, and on moments; the encoder that made them may be named, or their space."""
    sources, merged = vectors_and_moments(inputs)
    before = model_of_vectors([source.name for source in inputs], no_rows(sources, merged), reference, space)
    if transform is not None:
        transform.check_settings(before.dim)
    elif queries is not None:
        raise InputError("fit: --queries needs a transform, and --transform is none.")
    if erase is not None and (merged or needs_vectors(transform) or (queries, checkpoint) != (None, None)):
        raise InputError("fit: --erase of vectors does not go with moments, a flow, --queries and --checkpoint.")
    if goal is not None and (needs_vectors(transform) or not sources):
        raise InputError(f"fit: {goal.option} needs vectors, not moments, and no flow.")
    is_auto = isinstance(transform, Auto) or (goal is not None and transform is None)
    if texts is not None and (merged or not is_auto):
        raise InputError("fit: --texts are for --transform auto, which compares the vectors of texts with them.")
    sampled = None if texts is None else _sampled_texts(texts, sources)
    model, groups = before, None
    if transform is not None and needs_vectors(transform):
        if merged or (queries, checkpoint) != (None, None):
            raise InputError("fit: a flow needs vectors; moments, --queries and --checkpoint do not go with it.")
        vectors = np.concatenate([block for source in sources for block in source.blocks()])
        names = named(", ".join(source.name for source in sources))
        after = before.fitted_on_vectors(vectors, transform, source=names, report=_likelihood_to(say))
        sample = _sample_of(sources) if sources else None
    else:
        query_files = None if queries is None else vectors_and_moments([queries])
        if query_files:
            no_rows([*sources, *query_files[0]], [*merged, *query_files[1]])  # refused before anything is read
        with progress_bar("reading", "vectors") as bar:
            if erase is not None:
                model, groups = _erased_vectors(before, sources, erase, sampled, named=named)
            measured = sum_of_files(
                sources,
                merged,
                checkpoint=checkpoint,
                resumed=lambda n_rows: say(f"resuming from row {n_rows:,}, as saved in {checkpoint}"),
                progress=bar,
            )
            query_moments = sum_of_files(*query_files, progress=bar).moments if query_files else None
        compares = isinstance(transform, Auto) and transform.n_components is not None and sampled is None
        sample = _sample_of(sources) if sources else None
        rows = sample if measured.moments.weight and compares else None
        after = _fitted_on_files(model, measured, transform, query_moments, sampled, named, groups=groups, rows=rows)
    result = FitResult(after, None, "vectors")
    if goal is not None and sample is not None:
        moments, names, listed = measured.moments, named(", ".join(measured.sources)), sampled and sampled[0]
        result = _smaller(result, sample, moments, goal, before=before, source=names, texts=listed, codecs=codecs)
        after = result.model
    after.save(output)
    result = replace(result, record=after.fits[-1])
    if sample is None or not len(sample):
        return result
    vectors = before.transform(sample)
    return replace(
        result,
        spaces=(describe_space(vectors), describe_space(after.transform(sample))),
        described=f"{len(sample):,} of {sum(source.n_rows for source in sources):,} vectors of "
        + (named(sources[0].name) if len(sources) == 1 else f"{len(sources)} files"),
        recalls=()
        if transform is None or needs_vectors(transform) or after.fits[-1].transform == NO_TRANSFORM or goal is not None
        else _recalls(vectors, transform, after),
        groups=find_groups(vectors) if sampled is None else find_groups(before.transform(sampled[1]), sampled[0]),
    )


def fit_shards(
    inputs: Sequence[str],
    output: str | os.PathLike[str],
    reference: str | None,
    transform: Transform | Auto | None,
    *,
    engine: Engine,
    column: str | None = None,
    erase: str | None = None,
    shard_size: int = SHARD_SIZE,
    say: Say = print,
) -> FitResult:
    """Fit a linear transform on texts that workers encode; the folder OUTPUT.shards lets an interrupted fit resume."""
    before, paths = load_model(reference), input_paths(inputs, TEXT_ENDINGS)
    for path in paths:
        if column is None and (name := unused_vectors(path)):
            raise InputError(
                f"fit: --workers encode texts, and {path} has vectors in its column {name}. Leave the workers out, or "
                "name the texts: --column NAME."
            )
    if transform is None or needs_vectors(transform):
        name = NO_TRANSFORM if transform is None else transform_name(transform)
        raise InputError(f"fit: --workers are for a linear transform, not for {name}. Leave them out.")
    transform.check_settings(before.dim)
    if before.encoder.needs_corpus:
        raise InputError(
            "fit: a weighting is fitted in one process. Fit it on a part of the texts with --transform none, and name "
            "its folder with -m."
        )
    folder = f"{os.fspath(output)}.shards"
    attribute = None
    if erase is not None:
        with local_copies(paths) as (copies, _):
            attribute = Attribute.of({erase: [label for copy in copies for label in read_labels(copy, erase)]})
    with progress_bar("encoding", "texts") as bar:
        measured, index = measure_folder(
            before,
            paths,
            folder,
            column=column,
            erase=None if attribute is None else (attribute.name, attribute.values),
            shard_size=shard_size,
            engine=engine,
            reference=reference or DEFAULT_REFERENCE,
            resumed=lambda index: say(how_resumed(folder, "encode", index)),
            progress=bar,
        )
    texts, source = sample_texts(index, _SAMPLED_TEXTS, column=column), ", ".join(inputs)
    model, moments, groups = before, measured.moments, None
    if attribute is not None:
        sampled = attribute.rows(sample_rows(index, _SAMPLED_TEXTS))
        labeled = attribute.from_moments(moments, int((attribute.groups < 0).sum()))
        encoded, n_zero_rows = before.encoder.encode(texts), measured.n_zero_rows
        model = before.erased(sampled, encoded, texts, moments=labeled, n_zero_rows=n_zero_rows, source=source)
        moments, groups = labeled.joint.x, sampled.groups
        texts, groups = [text for text, group in zip(texts, groups, strict=True) if group >= 0], groups[groups >= 0]
    after = model.fitted_on_moments(
        moments, transform, texts=texts, groups=groups, n_zero_rows=measured.n_zero_rows, source=source
    )
    after.save(output)
    remove(folder)
    encoded = before.encoder.encode(texts[:_DESCRIBED_ROWS])
    vectors = before.transform(encoded)
    spaces = describe_space(vectors), describe_space(after.transform(encoded))
    found = find_groups(vectors, texts[:_DESCRIBED_ROWS])
    return FitResult(after, after.fits[-1], "texts", spaces=spaces, groups=found)


def fit_pairs(
    pairs: str,
    output: str | os.PathLike[str],
    reference: str | None,
    *,
    inputs: Sequence[str] = (),
    queries_only: bool = False,
    column: str | None = None,
    space: str | None = None,
) -> FitResult:
    """Fit a map on pairs: of texts in a table; or of vectors, where `pairs` holds the query of each row of `inputs`."""
    if kind_of_input(pairs, column=column, moments=True) != "texts":
        queries, documents, files = paired_vectors(pairs, inputs, column=column)
        before = model_of_vectors([pairs, *inputs], files, reference, space)
        source = f"{pairs}, {', '.join(inputs)}"
        after = before.fitted_on_pairs(queries, documents, queries_only=queries_only, source=source)
    else:
        if others := [*inputs, *([] if space is None else ["--space"])]:
            raise InputError(f"fit: {pairs} holds texts, so {others[0]} has no use. Leave it out.")
        first, second, kinds, groups = read_matches(pairs, columns=column)
        before = load_model(reference)
        with progress_bar("encoding", "texts") as bar:
            if queries_only and groups is not None:
                message = f"{pairs}: the columns of each {next(iter(groups))} are ignored, as only queries are mapped."
                warnings.warn(message, IsosentWarning, stacklevel=2)
                groups = None
            after = before.fitted_on_pairs(
                first, second, queries_only=queries_only, kinds=kinds, groups=groups, source=pairs, progress=bar
            )
    after.save(output)
    record = after.fits[-1]
    follows_fit = bool(before.fits and record.transform != NO_TRANSFORM)
    return FitResult(after, record, "pairs", follows_fit=follows_fit, loses_storage=_loses_storage(before, after))


def _loses_storage(before: SentenceEncoder, after: SentenceEncoder) -> bool:
    return before.record.storage is not None and after.record.storage is None


def _erased_vectors(
    model: SentenceEncoder,
    sources: Sequence[VectorSource],
    column: str,
    sampled: SampledTexts | None,
    *,
    named: Named,
) -> tuple[SentenceEncoder, NDArray[np.intp] | None]:
    """The model without an attribute, whose labels are a column next to the vectors, and the groups of all labels.

    None for groups if the attribute was not visible, so that nothing was erased. What erasing changes is measured on
    vectors with texts, or else on the first rows of each file.
    """
    labels = [label for source in sources for label in source.labels(column)]
    attribute = Attribute.of({column: labels}, sum(source.n_rows for source in sources))
    row, parts = 0, []
    rows: list[NDArray[np.floating]] = []
    places: list[int] = []
    for source in sources:
        parts.append(labeled_moments_of(source, attribute.rows(slice(row, row + source.n_rows))))
        if sampled is None:
            rows += source.part(0, min(source.n_rows, _DESCRIBED_ROWS)).blocks()
            places += range(row, row + min(source.n_rows, _DESCRIBED_ROWS))
        row += source.n_rows
    texts, vectors, picked = (None, np.concatenate(rows), places) if sampled is None else sampled
    moments, n_zero_rows = sum((part for part, _ in parts[1:]), parts[0][0]), sum(n_zero for _, n_zero in parts)
    sample, names = attribute.rows(picked), named(", ".join(source.name for source in sources))
    erased = model.erased(sample, vectors, texts, moments=moments, n_zero_rows=n_zero_rows, source=names)
    return erased, None if erased is model else attribute.groups


def _check_goal(
    goal: Goal, transform: Transform | Auto | None, *, erase: str | None, queries: str | None, engine: Engine | None
) -> None:
    """Refuse a size that does not go with the rest, before anything is read."""
    if any(value is not None and not math.isfinite(value) for value in goal):
        raise InputError(f"fit: {goal.option} is not a finite number.")
    if others := [option for option, value in {"--erase": erase, "--queries": queries}.items() if value]:
        raise InputError(
            f"fit: {goal.option} measures the vectors that {' and '.join(others)} would change. Fit twice: leave "
            f"{goal.option} out, then fit with {goal.option} on the model that was saved: -m FOLDER."
        )
    given = {"--transform none": transform is None, "--workers": engine}
    if others := [option for option, value in given.items() if value]:
        raise InputError(f"fit: {goal.option} does not go with {' and '.join(others)}. Leave one out.")
    if isinstance(transform, Auto) and transform.n_components is not None:
        raise InputError(f"fit: {goal.option} and --dims both set the size. Leave one out.")


def _smaller(
    result: FitResult,
    vectors: NDArray[np.floating],
    moments: Moments,
    goal: Goal,
    *,
    before: SentenceEncoder,
    source: str,
    texts: Sequence[str] | None = None,
    codecs: bool = False,
) -> FitResult:
    """The model with the size that reaches the goal: a map to fewer dimensions, if they help, and a dtype."""
    model = result.model
    rows = sampled_rows(len(vectors))
    sample, texts = vectors[rows], None if texts is None else [texts[row] for row in rows.tolist()]
    is_original = all(_keeps_cosines(fit, before.dim, model.dim) for fit in model.fits[len(before.fits) :])
    widths = None if model.record.postprocessing.last is None else (model.dim,)  # nothing can follow it
    try:
        measured = sizes(
            model.transform(sample),
            texts=texts,
            originals=None if is_original else before.transform(sample),
            n_bytes=goal.n_bytes,
            widths=widths,
            codecs=codecs,
        )
    except InputError:
        raise InputError(
            f"fit: {goal.option} needs {FEWEST_ROWS} different vectors or more, whose neighbors are measured."
        ) from None
    size = goal.choose(measured)
    model = measured.model(size, sample, model=model, moments=moments, source=source)
    return replace(result, model=model, sizes=measured, size=size)


def _keeps_cosines(fit: FitRecord, dim: int, n_components: int) -> bool:
    """Whether vectors have the same neighbors after a fit as before: it is none, or a rotation about zero."""
    is_rotation = fit.transform == "principal_components" and not fit.parameters.get("center", True)
    return fit.transform == NO_TRANSFORM or (is_rotation and n_components == dim)


def _fitted_on_files(
    before: SentenceEncoder,
    measured: FileMoments,
    transform: LinearTransform | Auto | None,
    query_moments: Moments | None,
    sampled: SampledTexts | None,
    named: Named,
    *,
    groups: NDArray[np.intp] | None,
    rows: NDArray[np.floating] | None,
) -> SentenceEncoder:
    """The model with a transform, or with none, and with the statistics of vectors of no encoder.

    `groups`, (n_rows,), are those of the labels that were erased, if any; auto decides on the rows with a label.
    """
    source, moments, n_zero_rows = named(", ".join(measured.sources)), measured.moments, measured.n_zero_rows
    if transform is None and not moments.weight:
        raise InputError("fit: there are no vectors, or only zero ones. At least one that is not zero is needed.")
    if transform is None and groups is not None:  # erasing is the fit
        after = before
    elif transform is None:
        fit = FitRecord.made_now(NO_TRANSFORM, {}, round(moments.weight), n_zero_rows, source)
        after = SentenceEncoder.from_record(before.encoder, replace(before.record, fits=(*before.fits, fit)))
    else:
        texts, encoded, _ = sampled or (None, None, None)
        if sampled is not None and groups is not None:
            has_label = groups[sampled[2]] >= 0
            texts = [text for text, is_labeled in zip(sampled[0], has_label, strict=True) if is_labeled]
            encoded, groups = sampled[1][has_label], groups[sampled[2]][has_label]
        after = before.fitted_on_moments(
            moments,
            transform,
            query_moments=query_moments,
            texts=texts,
            encoded=encoded,
            groups=groups,
            sample=rows,
            n_zero_rows=n_zero_rows,
            source=source,
        )
    if not isinstance(before.encoder, PrecomputedVectors) or moments.dim > _MOST_KEPT_DIMENSIONS:
        return after
    return SentenceEncoder.from_record(before.encoder.with_statistics(moments), after.record)


def _sampled_texts(path: str, sources: Sequence[VectorSource]) -> SampledTexts:
    """Texts of vectors in files, these vectors and their rows, at most 20,000 at random, without zero rows."""
    listed, n_rows = texts_of_vectors(TextSource(path), sources), sum(source.n_rows for source in sources)
    if len(listed) != n_rows:
        raise InputError(f"{path} holds {len(listed)} texts; there are {n_rows} vectors. Give one text per vector.")
    rows = sampled_rows(n_rows)
    vectors = picked_rows((block for source in sources for block in source.blocks()), rows)
    has_vector = nonzero_rows(vectors)
    return [listed[row] for row in rows[has_vector]], vectors[has_vector], rows[has_vector]


def _sample_of(sources: Sequence[VectorSource]) -> NDArray[np.floating]:
    """Up to 20,000 nonzero rows at random from all files, as `inspect` draws them; files are read once more."""
    rows = sampled_rows(sum(source.n_rows for source in sources))
    if not len(rows):
        return np.empty((0, sources[0].dim), np.float32)
    sample = picked_rows((block for source in sources for block in source.blocks()), rows)
    return sample[nonzero_rows(sample)]


def _recalls(
    sample: NDArray[np.floating], transform: LinearTransform | Auto, after: SentenceEncoder
) -> tuple[Recall, ...]:
    """Neighbor recall of the transform, next to principal components of the same size."""
    width = after.dim
    settings = {"n_components": min(width, sample.shape[1]), "center": after.fits[-1].parameters.get("center", True)}
    transforms = {"principal components": make_linear("principal_components", settings=settings)}
    if not isinstance(transform, Auto):
        transforms = {transform_name(transform).replace("_", " "): transform} | transforms
    recalls = {name: held_out_recall(sample, each) for name, each in transforms.items()}
    return tuple(Recall(name, width, *recall) for name, recall in recalls.items() if recall is not None)


def _likelihood_to(say: Say) -> Callable[[FitProgress], None]:
    def report(point: FitProgress) -> None:
        bits = f"{point.held_out_bits:.4f} bits per dimension, held-out rows"
        say(f"{point.n_rows:,} of {point.n_total:,} rows: {bits}")

    return report
