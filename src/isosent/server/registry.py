"""The models and indexes that a server has, by name, and how they are replaced while requests run."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
from isosent.model import Role, SentenceEncoder
from isosent.numeric.similarity import unit_rows
from isosent.persistence import FitRecord
from isosent.search.index import Index
from isosent.server.limits import Limits, RequestError, reason_of
from isosent.server.metrics import Metrics
from isosent.server.worker import RetiredError, Worker

Source = Callable[[], SentenceEncoder | Index]
T = TypeVar("T")
_log = logging.getLogger("isosent.server")
_MOST_ATTEMPTS = 100
_QUERY = ("query", "search_query")  # of sentence-transformers; of Cohere
_DOCUMENT = ("document", "search_document", "passage")


@dataclass(frozen=True, eq=False)
class Served:
    """A model or an index under its name."""

    name: str
    model: SentenceEncoder
    index: Index | None
    worker: Worker

    @property
    def has_texts(self) -> bool:
        """Whether the model can encode texts."""
        return not isinstance(self.model.encoder, PrecomputedVectors)

    def space(self, dimensions: int | None = None) -> str:
        """Fingerprint of the vector space, of vectors that are cut, too."""
        return space_of(self.model.fingerprint, self.model.dim, dimensions)


def space_of(fingerprint: str, dim: int, dimensions: int | None) -> str:
    """Fingerprint of a vector space; another one if its vectors are cut."""
    if dimensions is None or dimensions == dim:
        return fingerprint
    return hashlib.sha256(f"{fingerprint} dimensions={dimensions}".encode()).hexdigest()


def role_of(*sides: str | None) -> Role:
    """Role of texts, as requests name it."""
    if any(side in _QUERY for side in sides):
        return "query"
    return "document" if any(side in _DOCUMENT for side in sides) else "text"


def check_dimensions(model: SentenceEncoder, name: str, dimensions: int | None) -> None:
    """Refuse to cut vectors whose dimensions have no order."""
    if dimensions is None or dimensions == model.dim:
        return
    if not 1 <= dimensions <= model.dim:
        message = f"dimensions must be from 1 to {model.dim}, the width of {name}; got {dimensions}."
        raise RequestError(400, message, param="dimensions")
    if not is_ordered(model):
        raise RequestError(
            400,
            f"the dimensions of {name} are in no order, so none can be left out. A model with a whitening map or "
            "principal components can be cut.",
            param="dimensions",
        )


def is_ordered(model: SentenceEncoder) -> bool:
    """Whether the first k dimensions of a model are the k of the largest variance before they were evened out."""
    if model.flow is not None:
        return False
    last: FitRecord | None = next((fit for fit in reversed(model.fits) if fit.transform != "none"), None)
    if last is None:
        return False
    name, parameters = last.transform, last.parameters
    if name == "chain":  # of steps, the last of which decides
        steps = [step for step in parameters.get("steps", ()) if step.get("transform") != "l2_normalize"]
        last_step = steps[-1] if steps else {}
        name, parameters = last_step.get("transform", ""), last_step
    return name == "principal_components" or (name == "whitening" and parameters.get("method", "pca") == "pca")


def cut(vectors: NDArray[np.float32], dimensions: int | None, *, normalize: bool) -> NDArray[np.float32]:
    """The first dimensions of vectors, scaled to length 1 if that is wanted."""
    vectors = vectors if dimensions is None else vectors[:, :dimensions]
    return unit_rows(vectors).astype(np.float32, copy=False) if normalize else vectors


class Registry:
    """Models by name. A reload loads all of them again, beside those in use, and then exchanges them."""

    def __init__(self, sources: Mapping[str, Source], *, limits: Limits, metrics: Metrics) -> None:
        self._sources, self._limits, self._metrics = dict(sources), limits, metrics
        self._reloading = threading.Lock()
        self._served = {name: self._load(name) for name in self._sources}

    def __iter__(self) -> Any:
        return iter(self._served.values())

    def get(self, name: str | None, kind: Literal["model", "index"] = "model") -> Served:
        """The model or index with a name; without one, the first."""
        matching = [served for served in self._served.values() if kind == "model" or served.index is not None]
        if name is None and matching:
            return matching[0]
        for served in matching:
            if served.name == name:
                return served
        if not matching:
            raise RequestError(404, f"no {kind} is served here.", param=kind, code=f"{kind}_not_found")
        names = ", ".join(served.name for served in matching)
        message = f"there is no {kind} {name!r:.80} here; there is {names}."
        raise RequestError(404, message, param=kind, code=f"{kind}_not_found")

    def text_model(self, name: str | None) -> Served:
        """The model with a name; refuse one that cannot encode texts."""
        served = self.get(name)
        if not served.has_texts:
            message = f"{served.name} was fitted on vectors and cannot encode texts. See isosent proxy."
            raise RequestError(400, message, param="model")
        return served

    def reload(self) -> dict[str, str | None]:
        """Load all models again; what each failed with, or None. Those that fail stay as they are."""
        outcomes: dict[str, str | None] = {}
        if not self._reloading.acquire(blocking=False):
            raise RequestError(409, "a reload is running.")
        try:
            for name in self._sources:
                try:
                    new = self._load(name)
                except Exception as error:  # whatever it is, the others are loaded
                    outcomes[name] = type(error).__name__
                    facts = {"model": name, "error": type(error).__name__, "reason": reason_of(error)}
                    _log.error("reload failed", extra={"facts": facts})
                    continue
                old, self._served[name] = self._served[name], new
                old.worker.retire()  # it still answers what is in its queue
                outcomes[name] = None
                _log.info("reloaded", extra={"facts": {"model": name, "space": new.space()}})
        finally:
            self._reloading.release()
        return outcomes

    def close(self) -> None:
        """End all threads, after what is in the queues."""
        for served in self._served.values():
            served.worker.retire()
        for served in self._served.values():
            served.worker.join(timeout_s=60)

    def _load(self, name: str) -> Served:
        loaded = self._sources[name]()
        index = loaded if isinstance(loaded, Index) else None
        model = loaded.model if isinstance(loaded, Index) else loaded
        if index is None and isinstance(model.encoder, PrecomputedVectors):
            raise InputError(f"{name} was fitted on vectors and cannot encode texts. Use isosent proxy.")
        model.encoder.require_fitted("serve")
        _ = model.fingerprint  # takes long for large models; not in the first request
        return Served(name, model, index, Worker(model, name, limits=self._limits, metrics=self._metrics))


async def with_current(find: Callable[[], Served], use: Callable[[Served], Any]) -> Any:
    """Use a model; again if it was replaced between the two steps, so that a reload loses no request."""
    for _ in range(_MOST_ATTEMPTS):
        try:
            return await use(find())
        except RetiredError:
            await asyncio.sleep(0.01)
    raise RequestError(503, "the server is about to stop.")
