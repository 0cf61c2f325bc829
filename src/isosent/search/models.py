"""The models of an index: what encodes its queries, and whether that still gives the vectors it was made of.

An `IndexModels` loads the model of the folder, and the static model of queries if there is one, when they are first
needed; threads share them. `last_commit` opens what the folder holds, and refuses another model. The vectors of fixed
texts, and of some texts of the index, show whether a model has changed (`warn_if_changed`, `verified`).
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from isosent._locks import Lock
from isosent.encoders.precomputed import PrecomputedVectors, made_again
from isosent.encoders.static import StaticEncoder
from isosent.errors import InputError, IsosentWarning, ModelFolderError, next_step, option
from isosent.loading import load_saved
from isosent.model import SentenceEncoder
from isosent.numeric.canary import CHANGED, CanaryCheck
from isosent.numeric.similarity import nonzero_rows
from isosent.persistence import ModelRecord, read_model
from isosent.search.commits import MODEL_FOLDER, QUERY_FOLDER, QueryRecall
from isosent.search.engine import K_MEASURED
from isosent.search.rows import TEXT
from isosent.search.snapshot import Snapshot
from isosent.search.units import row_groups, unit_vectors
from isosent.space import Space, are_same, same_space

_N_VERIFIED = 8
_VERIFIED_AMONG = 64


class IndexModels:
    """The models of the index in a folder, for the snapshots of it."""

    def __init__(self, folder: Path, model: SentenceEncoder | None, *, is_new: bool) -> None:
        self.folder, self._model = folder, model
        self._static: SentenceEncoder | None = None
        self._other_name: str | None = None  # fingerprint of a space that the model has by another name
        self._loading = Lock()
        self._is_checked = is_new  # made by this model

    def last_commit(self, before: Snapshot | None = None) -> Snapshot:
        """Open the last commit; it must be of the model's space, if the model is loaded, or have its vectors."""
        model = self._model
        if model is None:
            return Snapshot.open(self.folder, space=None, before=before)
        try:
            return Snapshot.open(self.folder, space=model.space, before=before)
        except InputError:
            snapshot = Snapshot.open(self.folder, space=None, before=before)
            here = snapshot.space.fingerprint
            if are_same(here, model.fingerprint) or (
                here != self._other_name and not model.has_vectors_of(snapshot.record)
            ):
                raise
            self._other_name = here  # not encoded again at each commit
            return snapshot

    def of_vectors(self, snapshot: Snapshot) -> SentenceEncoder:
        """The model of the vectors; it may encode no texts."""
        with self._loading:  # a model may be large, and threads may ask for it at once
            if self._model is None:
                self._model = self._load(MODEL_FOLDER, snapshot.record)
        return self._model

    def of_texts(self, snapshot: Snapshot) -> SentenceEncoder:
        """The model of the vectors, refused if it encodes no texts."""
        model = self.of_vectors(snapshot)
        if isinstance(model.encoder, PrecomputedVectors):
            vector = next_step("a file of its vector, such as query.npy", "its vector")
            folder, known = str(self.folder), model.encoder.model
            texts = f" {option('texts', 'FILE')}" if TEXT in snapshot.rows[0].schema.names else ""
            step = made_again(known or "MODEL", folder, is_fitted=False, texts=texts)
            again = f"index the vectors again with the model that made them: {step}"
            if model.record.fits:
                again = (
                    "fit the vectors again with the model that made them, and index them with what is fitted: "
                    f"{made_again(known or 'MODEL', 'FOLDER', is_fitted=True)}"
                    f"{next_step(f', isosent index VECTORS{texts} -m FOLDER -o {folder}', '')}"
                )
            if known is not None:
                call = f"load(folder / {MODEL_FOLDER!r}, encoder={known!r}) for Index.open"
                again += f". A search alone needs no more than {next_step(f'-m {known}', call)}"
            raise InputError(
                f"{folder} has no model of texts: it holds vectors alone. Encode the query where they came from, "
                f"and search with {vector}; or {again}."
            )
        return model

    def of_queries(self, snapshot: Snapshot) -> SentenceEncoder:
        """The static model of queries if the index was made with one, else the model."""
        if snapshot.state.queries is None:
            return self.of_texts(snapshot)
        with self._loading:
            if self._static is None:
                self._static = self._load(QUERY_FOLDER, read_model(self.folder / QUERY_FOLDER))
        return self._static

    def replace(self, model: SentenceEncoder) -> None:
        """Take another model, whose vectors the folder now holds; a query model was of the old one."""
        self._model, self._static = model, None

    def take_moved(self, query_model: SentenceEncoder, queries: QueryRecall | None) -> None:
        """Take a model in place of the query model, unless it gives other vectors."""
        if queries is None:
            raise InputError(f"{self.folder} was made without a query model. Leave query_model out.")
        record = read_model(self.folder / QUERY_FOLDER)
        if query_model.fingerprint != record.fingerprint and not query_model.has_vectors_of(record):
            raise InputError(
                f"{query_model.record.name} is not the query model of {self.folder}, which is {record.name}."
            )
        self._static = query_model

    def _load(self, name: str, record: ModelRecord) -> SentenceEncoder:
        """Load a model of this folder, whose encoder may lie elsewhere."""
        try:
            return load_saved(record, self.folder / name)
        except ModelFolderError as error:
            reason, is_elsewhere, _ = str(error).partition("\n")
            if not is_elsewhere:
                raise
            step = next_step(f"isosent search {self.folder} QUERY -m REFERENCE", "see Index.open")
            raise ModelFolderError(f"{reason}\nIf it was moved, put it back, or name it: {step}.") from error

    def _canary_cosine(self, snapshot: Snapshot, *, of_first_query: bool = False) -> float | None:
        """Lowest cosine of fixed texts, when the index was made and now; None if they were not kept."""
        pairs = []
        if snapshot.state.queries is not None:
            query_model = self.of_queries(snapshot)
            pairs.append((query_model.encoder, query_model.canary))
        if not (pairs and of_first_query):
            pairs.append((self.of_texts(snapshot).encoder, snapshot.record.canary))
        cosines = []
        for encoder, canary in pairs:
            now = None if canary is None else encoder.canary_now(of_first_query=of_first_query)
            if canary is not None:
                cosines.append(0.0 if now is None else canary.lowest_cosine(now))
        return min(cosines, default=None)

    def warn_if_changed(self, snapshot: Snapshot) -> None:
        """Before the first query: whether the model still gives the vectors that it gave when the index was made."""
        if self._is_checked:
            return
        self._is_checked = True
        check = CanaryCheck(self._canary_cosine(snapshot, of_first_query=True))
        if check.has_changed:
            step = next_step(f"isosent index verify {self.folder}", "Index.verify")
            warnings.warn(f"{self.folder}: {CHANGED} {check}. See: {step}", IsosentWarning, stacklevel=4)

    def verified(self, snapshot: Snapshot) -> CanaryCheck:
        """Encode fixed texts, and the longest of some rows drawn at random, again; see `Index.verify`."""
        if isinstance((model := self.of_vectors(snapshot)).encoder, PrecomputedVectors):
            raise InputError(
                f"{self.folder}: what made the vectors ({model.encoder.space.reference}) is not here, so no text can "
                "be encoded again. Encode some of the texts there, and compare these vectors with the old ones of the "
                f"same texts: {next_step('isosent drift OLD NEW', 'isosent.drift')}."
            )
        rows = np.empty(0, np.intp)
        lowest, kept = self._canary_cosine(snapshot), None
        if TEXT in snapshot.rows[0].schema.names:
            drawn = np.sort(np.random.default_rng(0).permutation(snapshot.live)[:_VERIFIED_AMONG])
            drawn = drawn[nonzero_rows(snapshot.vectors(drawn))] if len(drawn) else drawn
            texts = snapshot.take(drawn).column(TEXT).to_pylist()
            has_text = np.array([bool(text) for text in texts], bool)
            drawn, texts = drawn[has_text], [text for text in texts if text]
            longest = sorted(range(len(drawn)), key=lambda row: -len(texts[row]))[:_N_VERIFIED]
            rows = drawn[longest]
        if len(rows):
            groups = None if model.groups is None else row_groups(model.record, snapshot.take(rows))
            encoded = model.encode(
                [texts[row] for row in longest], role="document", group=groups, show_progress_bar=False
            )
            k = min(K_MEASURED, len(snapshot))
            then, now = (
                snapshot.nearest(units, k, None)[1] for units in (snapshot.vectors(rows), unit_vectors(encoded))
            )
            kept = float(np.mean([np.isin(old, new).mean() for old, new in zip(then, now, strict=True)]))
        if lowest is None and kept is None:
            raise InputError(f"{self.folder}: nothing can be compared: it has no texts. Make the index again.")
        return CanaryCheck(lowest, kept, len(rows))


def model_of_vectors(dim: int, space: Space | None) -> SentenceEncoder:
    """The model of vectors that come from elsewhere, which encodes no texts."""
    return SentenceEncoder(PrecomputedVectors.of_space(dim, space))


def check_query_model(query_model: SentenceEncoder, space: Space, where: str = "the index") -> None:
    """Refuse a model for queries that is not static, or not of the space of an index or model."""
    shares = query_model.encoder.shared_space if isinstance(query_model.encoder, StaticEncoder) else None
    if shares is None or query_model.record.postprocessing.steps:
        raise InputError(
            f"{query_model.record.name} lies in the space of no other model. Distil one from the model of {where}: "
            f"{next_step('isosent distill MODEL TEXTS -o FOLDER', 'isosent.distill')}."
        )
    same_space("the query model", shares, where, space)
