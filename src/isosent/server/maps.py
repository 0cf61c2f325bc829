"""The maps of a proxy: those in use, by name; whether the API has changed since; the moments for the next one.

`Maps` are the models that were fitted on vectors of the API. `CanaryWatch` embeds a few fixed texts at the start and
every hour, and compares their vectors with those in the model folders. `Learner` adds up the moments of the vectors
that pass, for the next fit.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent.api.client import Upstream, upstream_facts
from isosent.api.dialects import NO_FIELDS
from isosent.api.refusals import HttpError
from isosent.encoders.api import KEPT_IN, ApiEncoder
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
from isosent.jobs.moments import FileMoments, moments_bytes, read_moments, write_moments
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.numeric.canary import LEAST_COSINE, Canary
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows
from isosent.search.models import check_query_model
from isosent.server.fields import space_fields
from isosent.server.limits import RequestError
from isosent.server.registry import CANARY_EVERY_S
from isosent.server.service import Metrics, failure_facts
from isosent.space import Space

_log = logging.getLogger("isosent.server")
_CANARY_AGAIN_S: Final = 60.0  # after a failure of the upstream
_SAVED_EVERY_S: Final = 60.0
_FOLDED_ROWS: Final = 256
_MOST_SEEN: Final = 1_000_000


class Maps(Mapping[str, SentenceEncoder]):
    """Models fitted on vectors of an API, by the names that clients use. The first is the default.

    The event loop and the thread of a reload share them: a model is not changed, but replaced in one step.

    Parameters
    ----------
    folders : mapping of str to Path
        The model folders; empty if vectors are passed on.
    query_folders : mapping of str to str, optional
        By the same names, static models that answer queries in place of the API. Each was distilled from the model
        that the API serves, with the same map, so its vectors lie in the same space.

    Attributes
    ----------
    dim : int or None
        Width of the vectors of the API; None without models.
    query_models : dict of str to SentenceEncoder
        The static models.

    Raises
    ------
    InputError
        If a model encodes texts itself, two were fitted on vectors of different widths, or a static model is of
        another space than its model.
    """

    def __init__(self, folders: Mapping[str, Path], query_folders: Mapping[str, str] | None = None) -> None:
        self._folders, self._query_folders = dict(folders), dict(query_folders or {})
        self._models: dict[str, SentenceEncoder] = {}
        self.query_models: dict[str, SentenceEncoder] = {}
        for name in folders:
            self._models[name], query_model = self._load(name)
            if query_model is not None:
                self.query_models[name] = query_model
        dims = {model.encoder.dim for model in self.values()}
        if len(dims) > 1:
            raise InputError(
                f"the models take vectors of {' and '.join(map(str, sorted(dims)))} dimensions. Name models of one."
            )
        self.dim: int | None = next(iter(dims), None)

    def __getitem__(self, name: str) -> SentenceEncoder:
        return self._models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)

    @property
    def upstream_model(self) -> str | None:
        """Name of the model of the API that the first map was fitted for, if a map has one."""
        return next(filter(None, (_upstream_model(model) for model in self.values())), None)

    def reload(self) -> None:
        """Load all models again; those that cannot be loaded stay unchanged."""
        for name in self._folders:
            try:
                model, query_model = self._load(name)
                if model.encoder.dim != self.dim:
                    raise InputError("another width")
            except Exception as error:  # whatever it is, the other models are loaded
                _log.error("reload failed", extra={"facts": failure_facts(name, error)})
            else:
                self._models[name] = model
                if query_model is not None:
                    self.query_models[name] = query_model
                _log.info("reloaded", extra={"facts": {"model": name, "space": model.fingerprint}})

    def _load(self, name: str) -> tuple[SentenceEncoder, SentenceEncoder | None]:
        model, query_folder = _load_map(self._folders[name]), self._query_folders.get(name)
        query_model = None if query_folder is None else load(query_folder)
        if query_model is not None:
            check_query_model(query_model, model.space, name)
        return model, query_model

    async def store_canary(self, name: str, canary: Canary) -> None:
        """Save a model with the vectors of the canary texts, unless it is replaced meanwhile."""
        model = self[name]
        saved = await asyncio.to_thread(_with_canary, model, canary, self._folders[name])
        if saved is not None and self[name] is model:
            self._models[name] = saved
            _log.info("canary stored", extra={"facts": {"model": name}})


def _load_map(folder: Path) -> SentenceEncoder:
    model = load(folder)
    if isinstance(model.encoder, ApiEncoder):  # the proxy asks the API in its place, for all dimensions
        if others := sorted(set(model.encoder.options) - {"dialect", KEPT_IN}):
            raise InputError(
                f"-m {folder}: the model asks its API with {', '.join(others)}, and a proxy without. Serve it: isosent "
                "serve FOLDER?send_texts=true."
            )
    elif not isinstance(model.encoder, PrecomputedVectors):
        raise InputError(
            f"-m {folder}: the model encodes texts itself. Name one that is fitted on vectors of the upstream."
        )
    return model


def _upstream_model(model: SentenceEncoder) -> str | None:
    """Name of the model of the API that made the vectors."""
    encoder = model.encoder
    return encoder.model if isinstance(encoder, ApiEncoder) else encoder.options.get("space")


def _with_canary(model: SentenceEncoder, canary: Canary, folder: Path) -> SentenceEncoder | None:
    """The model with the vectors of the canary texts, saved; None if the folder holds another one by now."""
    if load(folder).fingerprint != model.fingerprint:
        return None
    assert isinstance(model.encoder, PrecomputedVectors)  # a model of an API has one
    model = SentenceEncoder.from_record(model.encoder.with_canary(canary), replace(model.record, canary=canary))
    model.save(folder)
    return model


class CanaryWatch:
    """Fixed texts whose vectors show whether the API has changed. For the event loop alone."""

    def __init__(self, upstream: Upstream, maps: Maps, metrics: Metrics) -> None:
        self.upstream, self._maps, self._lowest = upstream, maps, metrics.canary
        for name in maps:
            self._lowest.labels(name).set(float("nan"))  # not yet known
        self.has_changed = False  # whether the texts have other vectors than in the model folders

    async def watch(self) -> None:
        """Check at the start and every hour."""
        while True:
            wait_s = CANARY_EVERY_S
            try:
                await self.check()
            except HttpError as error:
                _log.warning("canary not checked", extra={"facts": upstream_facts(error)})
                wait_s = _CANARY_AGAIN_S if error.status >= 500 else CANARY_EVERY_S
            except Exception as error:
                _log.warning("canary not stored", extra={"facts": {"error": type(error).__name__}})
            await asyncio.sleep(wait_s)

    async def check(self) -> None:
        """Embed the texts, and compare with the model folders; store the vectors where there are none."""
        documents = await self.upstream.fixed_vectors("document")
        queries = await self.upstream.fixed_vectors("query") if self.upstream.dialect.has_roles else documents
        now, lowest = Canary.of(documents, queries), 1.0
        for name, model in self._maps.items():
            if (canary := model.canary) is None:
                await self._maps.store_canary(name, now)
            cosine = 1.0 if canary is None else canary.lowest_cosine(now)
            self._lowest.labels(name).set(cosine)
            lowest = min(lowest, cosine)
        if (has_changed := lowest < LEAST_COSINE) or self.has_changed:
            event = "the upstream model has changed" if has_changed else "the upstream model is as before"
            _log.error(event, extra={"facts": {"lowest_cosine": round(lowest, 4)}})
        self.has_changed = has_changed


class Learner:
    """Exact moments of the vectors that pass, without texts and vectors.

    Each text counts once, as long as no more than a million different ones were seen since the start; later ones count
    whenever they pass. That a text was seen is known by a hash, in memory alone, that no other process can compute.
    Threads may share it: all of it is behind a lock.

    Parameters
    ----------
    path : Path
        File of moments. If it is there, learning goes on from it.
    space : str
        Name of the model of the API.
    dim : int, optional
        Width of the vectors, if it is known.

    Raises
    ------
    InputError
        If the file holds moments of other vectors.
    """

    def __init__(self, path: Path, space: str, dim: int | None = None) -> None:
        self._path, self._space, self._lock = path, space, threading.Lock()
        self._measured = read_moments(path) if path.exists() else None
        if self._measured is not None:
            wanted = self._space_of(dim or self._measured.moments.dim)
            if self._measured.space != wanted:
                raise InputError(f"--learn {path} holds moments of {self._measured.space}, not of {wanted}.")
        self._salt = secrets.token_bytes(16)
        self._seen: set[bytes] = set()
        self._fields: dict[str, Any] | None = None  # of the first text
        self._pending: list[NDArray[np.float32]] = []
        self._is_saved = True
        self._has_others = False

    def add(self, keys: Sequence[bytes], vectors: NDArray[np.float32], fields: Mapping[str, Any] = NO_FIELDS) -> None:
        """Count the texts that are new, if their vectors can be compared with those of the first text.

        Parameters
        ----------
        keys : sequence of bytes
            Hashes of the texts.
        vectors : ndarray of shape (n_texts, dim), float32
            One vector per text.
        fields : mapping of str to object, optional
            What the API was sent with the texts, such as a `task`, which may make another vector space.
        """
        others = space_fields(fields)
        with self._lock:
            if self._fields is None:
                self._fields = others
            elif others != self._fields:
                if not self._has_others:
                    _log.warning("not learned from texts whose fields, such as task, differ from those of the first")
                self._has_others = True
                return
            for key, vector in zip(keys, vectors, strict=True):
                salted = hashlib.blake2b(key, key=self._salt, digest_size=8).digest()
                if salted not in self._seen:
                    if len(self._seen) < _MOST_SEEN:
                        self._seen.add(salted)
                    self._pending.append(vector.copy())
            if len(self._pending) >= _FOLDED_ROWS:
                self._fold()

    @property
    def dim(self) -> int | None:
        """Width of the vectors that were learned from; None before the first."""
        return None if self._measured is None else self._measured.moments.dim

    def _space_of(self, dim: int) -> Space:
        return PrecomputedVectors.of_space(dim, None, self._space).space

    def _fold(self) -> None:
        """Add the vectors that wait to the moments."""
        if not self._pending:
            return
        rows = np.stack(self._pending)
        has_vector = nonzero_rows(rows)
        space = self._space_of(rows.shape[1])
        moments = Moments.from_rows(rows[has_vector])
        part = FileMoments(moments, int((~has_vector).sum()), space, ("isosent proxy",))
        measured = part if self._measured is None else self._measured + part
        self._measured = FileMoments(measured.moments, measured.n_zero_rows, measured.space, part.sources)
        self._is_saved, self._pending = False, []

    def content(self) -> bytes:
        """The file of moments.

        Returns
        -------
        bytes
            Content of a safetensors file.

        Raises
        ------
        RequestError
            If no text has passed yet.
        """
        with self._lock:
            self._fold()
            if self._measured is None:
                raise RequestError(404, "no text has passed yet, so there are no moments.")
            return moments_bytes(self._measured)

    def save(self) -> None:
        """Write the moments, if they have changed."""
        with self._lock:
            self._fold()
            if self._measured is not None and not self._is_saved:
                write_moments(self._path, self._measured)
                self._is_saved = True

    async def save_often(self) -> None:
        """Write the moments every minute."""
        while True:
            await asyncio.sleep(_SAVED_EVERY_S)
            await self.try_to_save()

    async def try_to_save(self) -> None:
        """Write the moments; the log says if that fails."""
        try:
            await asyncio.to_thread(self.save)
        except Exception as error:  # it goes on, and tries again
            _log.error("moments not saved", extra={"facts": {"error": type(error).__name__}})
