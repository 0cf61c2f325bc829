"""A fit on texts: those that are encoded in this process, and those that workers encode.

`TextInputs` encodes the texts as a whole. `WorkerInputs` lets workers add up moments, shard by shard, in the folder
OUTPUT.shards, from which an interrupted fit resumes; the first texts of every shard are the sample.
"""

from __future__ import annotations

import os
from typing import Any

from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError, option
from isosent.io.columns import unused_vectors
from isosent.io.remote import local_copies, remove
from isosent.io.shards import SHARD_SIZE, input_paths
from isosent.io.texts import TextSource, read_labels
from isosent.jobs.fit_request import FitInputs, Floats
from isosent.jobs.inspect import known_pairs, pairs_found
from isosent.jobs.shards import how_resumed, measure_folder, sample_rows, sample_texts
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.pages.progress import progress_bar
from isosent.persistence import FitRecord
from isosent.transforms.base import NO_TRANSFORM, Auto
from isosent.transforms.labels import Attribute
from isosent.transforms.statistics import LabeledStatistics, Statistics, rows_with_vector

_DESCRIBED_ROWS = 10_000
_SAMPLED_TEXTS = 20_000  # for auto


class TextInputs(FitInputs):
    """Files of texts, which are encoded in this process."""

    def load(self) -> SentenceEncoder:
        """Read the texts, then load the model."""
        request, sources = self.request, [source for source in self.sources if source.kind == "texts"]
        self.texts = [text for source in sources for text in source.texts()]
        self.queries = None
        if request.queries is not None:
            self.queries = TextSource(request.queries).in_column(request.column).texts()
        self.attribute = None
        if request.erase is not None:
            labels = [label for source in sources for label in source.labels(request.erase)]
            self.attribute = Attribute.of({request.erase: labels}, len(self.texts))
        self.pairs = None if request.pairs is None else known_pairs(request.pairs)
        return super().load()

    def statistics(self, model: SentenceEncoder) -> tuple[SentenceEncoder, Statistics | None]:
        """Encode the texts; an encoder that learns from texts is fitted first."""
        request, learns = self.request, model.encoder.needs_corpus
        with progress_bar("encoding", "texts") as bar:
            model = model.fitted(self.texts, None, source=self.name, progress=bar if learns else None)
            if request.fitted_transform is None and self.attribute is None and not request.resizes:
                return model, None
            encoder = model.encoder if self.queries is None else model.encoder.for_documents()
            vectors = encoder.encode(self.texts, progress=bar)
        query_moments = None
        if self.queries is not None:
            query_vectors = model.encoder.for_queries().encode(self.queries)
            query_moments = Moments.from_rows(rows_with_vector(query_vectors))
        return model, Statistics.of_texts(self.texts, vectors, self.attribute, query_moments, source=self.name)

    def details(
        self, before: SentenceEncoder, after: SentenceEncoder, vectors: Floats | None, record: FitRecord | None
    ) -> dict[str, Any]:
        """What the texts count, and the pairs that were found."""
        n_tokens, n_unknown = before.encoder.coverage(self.texts)
        return {
            "unit": "distinct texts" if record is not None and record.choice else "texts",
            "n_tokens": n_tokens,
            "n_unknown": n_unknown,
            "pairs_found": None if self.pairs is None else pairs_found(before, after, *self.pairs, self.texts),
        }


class WorkerInputs(FitInputs):
    """Files of texts, which workers encode."""

    @property
    def name(self) -> str:
        """The inputs as they were named."""
        return ", ".join(self.request.inputs)

    def load(self) -> SentenceEncoder:
        """Refuse what is not encoded, and a model that workers cannot load."""
        self.paths = input_paths(self.request.inputs, "texts")
        self.folder = f"{os.fspath(self.request.output)}.shards"
        workers = option("engine")
        for path in self.paths if self.request.column is None else ():
            if column := unused_vectors(path):
                raise InputError(
                    f"fit: {workers} encode texts, and {path} has vectors in its column {column}. Leave the workers "
                    f"out, or name the texts: {option('column', 'NAME')}."
                )
        model = super().load()
        if model.encoder.needs_corpus:
            raise InputError(
                f"fit: a weighting is fitted in one process. Fit it on a part of the texts with "
                f"{option('transform', NO_TRANSFORM)}, and name its folder with -m."
            )
        return model

    def statistics(self, model: SentenceEncoder) -> tuple[SentenceEncoder, Statistics | None]:
        """Moments that workers make, and the first texts of every shard."""
        request, attribute = self.request, None
        if request.erase is not None:
            with local_copies(self.paths) as (copies, _):
                listed = [label for copy in copies for label in read_labels(copy, request.erase)]
            attribute = Attribute.of({request.erase: listed})
        with progress_bar("encoding", "texts") as bar:
            measured, index = measure_folder(
                model,
                self.paths,
                self.folder,
                column=request.column,
                erase=None if attribute is None else (attribute.name, attribute.values),
                shard_size=SHARD_SIZE if request.shard_size is None else request.shard_size,
                engine=request.engine,
                reference=request.model or DEFAULT_REFERENCE,
                resumed=lambda index: self.say(how_resumed(self.folder, "encode", index)),
                progress=bar,
            )
        texts = sample_texts(index, _SAMPLED_TEXTS, column=request.column)
        if attribute is None and not isinstance(request.fitted_transform, Auto):
            texts = texts[:_DESCRIBED_ROWS]  # no choice needs more
        moments, vectors, n_zero_rows = measured.moments, model.encoder.encode(texts), measured.n_zero_rows
        if attribute is None:
            return model, Statistics(self.name, moments, n_zero_rows, vectors, texts)
        sampled = attribute.rows(sample_rows(index, _SAMPLED_TEXTS))
        labeled = attribute.from_moments(moments, int((attribute.groups < 0).sum()))
        labels = LabeledStatistics(sampled, vectors, texts, labeled, n_zero_rows)
        moments, groups = labeled.joint.x, sampled.groups
        return model, Statistics(self.name, moments, n_zero_rows, vectors, texts, groups, labels=labels)

    def saved(self) -> None:
        """Remove the folder of moments."""
        remove(self.folder)

    def details(
        self, before: SentenceEncoder, after: SentenceEncoder, vectors: Floats | None, record: FitRecord | None
    ) -> dict[str, Any]:
        """Texts are counted."""
        return {"unit": "texts"}
