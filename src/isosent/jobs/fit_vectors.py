"""A fit on vectors and moments in files.

Vectors are read block by block: once for their moments, which a checkpoint lets resume, and once more for a sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
from isosent.io.source import MomentsSource, open_vectors_or_moments
from isosent.io.texts import TextSource
from isosent.io.vector_source import VectorSource, picked_rows
from isosent.jobs.fit_request import FitInputs, Floats
from isosent.jobs.moments import FileMoments, labeled_moments_of, no_rows, sum_of_files, vectors_and_moments
from isosent.loading import load_model
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import nonzero_rows, sampled_rows
from isosent.pages.progress import progress_bar
from isosent.persistence import FitRecord, check_encoder_space
from isosent.search.inputs import texts_of_vectors
from isosent.search.rows import TEXT
from isosent.transforms.auto import held_out_recall
from isosent.transforms.base import NO_TRANSFORM, Auto, make_linear, needs_vectors, transform_name
from isosent.transforms.labels import Attribute
from isosent.transforms.statistics import LabeledStatistics, Statistics

_MEASURED_ROWS = 10_000  # of each file
_MOST_KEPT_DIMENSIONS = 4096  # of statistics in a model folder: of so many, they take 34 MB


class Recall(NamedTuple):
    """Neighbors that a map keeps: those of held-out original vectors that are still among the ten nearest."""

    label: str
    n_components: int
    recall: float  # mean over the queries, in [0, 1]
    n_texts: int  # vectors that were searched


class VectorInputs(FitInputs):
    """Files of vectors, and of moments."""

    def load(self) -> SentenceEncoder:
        """The model that made the vectors, or a stand-in for it; what does not belong together is refused."""
        request, measured = self.request, [source for source in self.sources if source.kind != "texts"]
        self.files, self.moments = vectors_and_moments(measured)
        self.n_rows = sum(source.n_rows for source in self.files)
        files = no_rows(self.files, self.moments)
        model = model_of_vectors([source.name for source in measured], files, request.model, request.space)
        self.queries = None
        if request.queries is not None:
            is_of_texts = self.of_texts is not None and all(each.column != request.column for each in self.files)
            column = None if is_of_texts else request.column
            self.queries = vectors_and_moments(
                [open_vectors_or_moments(request.queries, column=column, are_queries=True)]
            )
            no_rows([*self.files, *self.queries[0]], [*self.moments, *self.queries[1]])
        self.texts = self._own_texts()
        if request.texts is not None:
            self.texts = texts_of_vectors(TextSource(request.texts, self.of_texts), self.files)
        if self.texts is not None and len(self.texts) != self.n_rows:
            raise InputError(
                f"{request.texts} holds {len(self.texts)} texts; there are {self.n_rows} vectors. Give one text per "
                "vector."
            )
        self.attribute = None
        if request.erase is not None:
            labels = [label for source in self.files for label in source.labels(request.erase)]
            self.attribute = Attribute.of({request.erase: labels}, self.n_rows)
        return model

    def _own_texts(self) -> list[str] | None:
        """Texts that auto can compare: those of tables next to their vectors. Labels, which repeat, are none."""
        if self.moments or not isinstance(self.request.named_transform, Auto):
            return None
        texts: list[str] = []
        for source in self.files:
            columns = [name for name in source.text_columns if name != self.request.erase]
            if TEXT in columns or len(columns) == 1:
                name = TEXT if TEXT in columns else columns[0]
                texts += ["" if value is None else str(value) for value in source.labels(name)]
        return texts if len(texts) == self.n_rows < 2 * len(set(texts)) else None

    def statistics(self, model: SentenceEncoder) -> tuple[SentenceEncoder, Statistics | None]:
        """Moments, which are read block by block, and a sample; for a flow, the vectors themselves."""
        request = self.request
        if needs_vectors(request.fitted_transform):
            return model, Statistics(self.name, vectors=np.concatenate([*self._blocks()]))
        with progress_bar("reading", "vectors") as bar:
            measured = sum_of_files(
                self.files,
                self.moments,
                checkpoint=request.checkpoint,
                resumed=lambda n_rows: self.say(f"resuming from row {n_rows:,}, as saved in {request.checkpoint}"),
                progress=bar,
            )
            query_moments = None if self.queries is None else sum_of_files(*self.queries, progress=bar).moments
        source, moments = self.named(", ".join(measured.sources)), measured.moments  # moments name what they are of
        statistics = Statistics(source, moments, measured.n_zero_rows, query_moments=query_moments)
        if not self.files:
            return model, statistics
        rows, vectors = self._sampled()
        texts = None if self.texts is None else [self.texts[row] for row in rows.tolist()]
        statistics = replace(statistics, vectors=vectors, texts=texts)
        if self.attribute is None:
            return model, statistics
        groups, labels = self.attribute.groups[rows], self._labels(self.attribute, rows, vectors, texts)
        return model, replace(statistics, groups=groups, labels=labels)

    def fitted(self, model: SentenceEncoder, statistics: Statistics) -> SentenceEncoder:
        """Say of a model without a transform what it was made of, and keep the statistics of vectors of no encoder."""
        moments, has_transform = statistics.moments, self.request.fitted_transform is not None
        if not has_transform and moments is not None and not moments.weight:
            raise InputError("fit: there are no vectors, or only zero ones. At least one that is not zero is needed.")
        after = model.fitted_on_statistics(statistics, self.request.fitted_transform, report=self._say_likelihood)
        if moments is None:
            return after
        if not has_transform and after is model:  # else erasing is the fit
            counts = round(moments.weight), statistics.n_zero_rows, statistics.source
            fit = FitRecord.made_now(NO_TRANSFORM, {}, *counts)
            after = SentenceEncoder.from_record(model.encoder, replace(model.record, fits=(*model.fits, fit)))
        if not isinstance(model.encoder, PrecomputedVectors) or moments.dim > _MOST_KEPT_DIMENSIONS:
            return after
        return SentenceEncoder.from_record(model.encoder.with_statistics(moments), after.record)

    def sample(self, statistics: Statistics) -> Floats | None:
        """Nonzero rows at random, as `inspect` draws them."""
        if statistics.vectors is None or statistics.moments is not None:
            return statistics.vectors
        sample = statistics.vectors[sampled_rows(len(statistics.vectors))]
        return sample[nonzero_rows(sample)]

    def details(
        self, before: SentenceEncoder, after: SentenceEncoder, vectors: Floats | None, record: FitRecord | None
    ) -> dict[str, Any]:
        """Which vectors the sample is of, and which neighbors it keeps next to principal components of that size."""
        if vectors is None:
            return {"unit": "vectors"}
        files = self.named(self.files[0].name) if len(self.files) == 1 else f"{len(self.files)} files"
        details = {"unit": "vectors", "described": f"{len(vectors):,} of {self.n_rows:,} vectors of {files}"}
        transform, width = self.request.fitted_transform, after.dim
        is_linear = transform is not None and not needs_vectors(transform)
        if not is_linear or record is None or record.transform == NO_TRANSFORM or self.request.resizes:
            return details
        settings = {"n_components": min(width, vectors.shape[1]), "center": record.parameters.get("center", True)}
        transforms: dict[str, Any] = {"principal components": make_linear("principal_components", settings=settings)}
        if not isinstance(transform, Auto):
            transforms = {transform_name(transform).replace("_", " "): transform} | transforms
        recalls = {name: held_out_recall(vectors, each) for name, each in transforms.items()}
        return details | {
            "recalls": tuple(Recall(name, width, *recall) for name, recall in recalls.items() if recall is not None)
        }

    def _blocks(self) -> Iterator[Floats]:
        for source in self.files:
            yield from source.blocks()

    def _sampled(self) -> tuple[NDArray[np.intp], Floats]:
        """Up to 20,000 nonzero rows at random from all files, and their vectors; files are read once more."""
        rows = sampled_rows(self.n_rows)
        if not len(rows):
            return rows, np.empty((0, self.files[0].dim), np.float32)
        vectors = picked_rows(self._blocks(), rows)
        has_vector = nonzero_rows(vectors)
        return rows[has_vector], vectors[has_vector]

    def _labels(
        self, attribute: Attribute, rows: NDArray[np.intp], vectors: Floats, texts: Sequence[str] | None
    ) -> LabeledStatistics:
        """Labels, and their moments; what erasing changes is measured on texts, or else on the first rows of each file.

        Files are read once more.
        """
        first, parts = 0, []
        picked: list[Floats] = []
        places: list[int] = []
        for source in self.files:
            parts.append(labeled_moments_of(source, attribute.rows(slice(first, first + source.n_rows))))
            n_rows = min(source.n_rows, _MEASURED_ROWS)
            picked += source.part(0, n_rows).blocks() if texts is None else ()
            places += range(first, first + n_rows)
            first += source.n_rows
        moments, n_zero_rows = sum((part for part, _ in parts[1:]), parts[0][0]), sum(n_zero for _, n_zero in parts)
        if texts is not None:
            return LabeledStatistics(attribute.rows(rows), vectors, texts, moments, n_zero_rows)
        return LabeledStatistics(attribute.rows(places), np.concatenate(picked), None, moments, n_zero_rows)


def model_of_vectors(
    names: Sequence[str], files: FileMoments, reference: str | None, space: str | None
) -> SentenceEncoder:
    """The model that made the vectors, or a stand-in for it that cannot encode."""
    dim = files.moments.dim
    if reference is None:
        return SentenceEncoder(PrecomputedVectors.of_space(dim, files.space, space))
    model = load_model(reference)
    if model.encoder.dim != dim:
        raise InputError(
            f"{names[0]}: the vectors have {dim} dimensions; those of {reference} have {model.encoder.dim}."
        )
    check_encoder_space(model.record, " + ".join(names), files.space)
    return model


def paired_vectors(
    queries: VectorSource | MomentsSource, documents: Sequence[VectorSource | MomentsSource]
) -> tuple[NDArray[Any], NDArray[Any], FileMoments]:
    """Vectors of queries and of the documents that match them row by row, and their files without rows."""
    sources, _ = vectors_and_moments([queries, *documents])
    first, second = (
        np.concatenate([block for source in side for block in source.blocks()]) for side in (sources[:1], sources[1:])
    )
    if len(first) != len(second):
        names = ", ".join(source.name for source in documents)
        raise InputError(
            f"fit: {queries.name} holds {len(first):,} vectors, {names} {len(second):,}. Give a query for each "
            "document."
        )
    return first, second, no_rows(sources, ())
