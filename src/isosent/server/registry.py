"""The models and indexes that a server has, by name: the queue and thread of each, and how they are replaced.

A `Worker` is the queue of a model and the thread that empties it: the next batch is what has queued up while the last
one was computed, and there is no timer. Of a model that is an API, several threads wait for it side by side. The event
loop puts in requests (`embed`, `call`) and awaits their futures. The thread takes a piece of each waiting request
(`_next_pieces`), encodes all pieces at once (`_embed`), and applies the map to each request alone (`_finish`). What
both sides use is behind one condition. `HeavyWork` runs what is no batch and takes long, in two threads with a queue
that ends. A `Registry` has a `Served` (model, index, worker) under each
name, with a second worker if a static model answers queries, and exchanges it for a new one at a reload.
`ModelService` has both, and the life of the server.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.load import encoder_for
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.numeric.canary import FIXED_TEXTS, LEAST_COSINE, Canary
from isosent.numeric.similarity import nonzero_rows
from isosent.role import RoleName
from isosent.search.index import Index
from isosent.search.models import check_query_model
from isosent.server.limits import Limits, RequestError
from isosent.server.service import Metrics, Service, failure_facts, freeze_memory
from isosent.words.tokens import TokenIds

_CHARACTERS_A_TOKEN = 4  # for a queue whose texts are not yet tokenized; corrected by what was measured
_PIECE_TEXTS = 256
_SMOOTHING = 0.2
_FEW_CHARACTERS: Final = 2000  # of a request that may be computed in the event loop, in 0.1 to 0.3 ms
_MOST_CHARACTERS_HERE: Final = 10_000  # of all that are computed there at once, in 1 ms
_API_THREADS: Final = 16  # of a model that is an API: as many requests as it is sent at the same time
_HEAVY_THREADS: Final = 2
_MOST_WAITING: Final = 32
CANARY_EVERY_S: Final = 3600.0
_CANARY_ROLES: Final[tuple[RoleName, ...]] = ("document", "query")
_LOOK_EVERY_S: Final = 5.0  # for models that a reload brought
T = TypeVar("T")


class Embedded(NamedTuple):
    """Vectors of the texts of a request."""

    vectors: NDArray[np.float32]  # (n_texts, dim)
    raw: NDArray[np.float32]  # before the map, (n_texts, encoder.dim)
    n_tokens: int
    n_truncated: int  # texts that were cut at the encoder's maximum length


class RetiredError(Exception):
    """The worker has been replaced by one with a newer model."""


@dataclass(eq=False)
class _Request:
    texts: list[str]
    role: RoleName
    future: Future[Embedded]
    vectors: NDArray[np.float32]  # of the bare encoder
    n_estimated: list[int]  # tokens of each text, before they are tokenized
    queued_at: float = field(default_factory=time.perf_counter)
    n_taken: int = 0  # texts that are in a batch, or were
    n_left: int = 0  # texts without a vector
    n_tokens: int = 0
    n_truncated: int = 0


class _Piece(NamedTuple):
    """Some texts of a request."""

    request: _Request
    start: int
    stop: int

    @property
    def texts(self) -> list[str]:
        return self.request.texts[self.start : self.stop]

    @property
    def n_estimated(self) -> list[int]:
        return self.request.n_estimated[self.start : self.stop]


class Worker:
    """Embeds the texts of all requests for a model, in a separate thread, or several if it is an API, which waits.

    Threads may share it.

    Large requests are split, and the pieces of all requests take turns, so that a short request does not wait for a
    long one. Only the encoder sees a batch; the map is applied to each request alone. So a response does not depend on
    what else was in the batch.
    """

    def __init__(self, model: SentenceEncoder, name: str, *, limits: Limits, metrics: Metrics) -> None:
        self.model = model
        self._name, self._limits, self._metrics = name, limits, metrics
        self._queue_size, self._queued_tokens = metrics.queue_size.labels(name), metrics.queued_tokens.labels(name)
        self._queue_duration = metrics.queue_duration.labels(name)
        self._encoders = {role: encoder_for(model.encoder, role) for role in ("text", "query", "document")}
        self._waiting: deque[_Request] = deque()
        self._calls: deque[tuple[Callable[[], Any], Future[Any], int]] = deque()
        n_threads = 1 if model.encoder.usage is None else _API_THREADS
        self._condition, self._computing = threading.Condition(), threading.Semaphore(n_threads)
        is_cheap = all(each.has_tokens and not each.is_costly for each in self._encoders.values())
        self._is_quick = is_cheap and not model.record.postprocessing.nonlinear  # a few texts take microseconds
        self._is_due = False  # `_compute_here`, in this turn of the event loop
        self._is_retired = False
        self._characters_a_token = float(_CHARACTERS_A_TOKEN)
        self.n_queued_tokens = 0
        self.tokens_per_s = 0.0
        self._threads = [
            threading.Thread(target=self._run, name=f"isosent {name}", daemon=True) for _ in range(n_threads)
        ]
        for thread in self._threads:
            thread.start()

    # -- called by the event loop ----------------------------------------------------------------------------------

    async def embed(self, texts: Sequence[str], role: RoleName = "text") -> Embedded:
        """Return the vectors of texts; a caller that is cancelled leaves the queue."""
        if not self._is_quick or sum(map(len, texts)) > _FEW_CHARACTERS:
            return await asyncio.wrap_future(self.submit(texts, role))
        future = self.submit(texts, role, wakes=False)
        loop = asyncio.get_running_loop()
        computed, thread = loop.create_future(), threading.get_ident()

        def settle(_: Future[Embedded]) -> None:
            if threading.get_ident() == thread:  # no need to wake up the loop
                _end_wait(computed)
            else:
                loop.call_soon_threadsafe(_end_wait, computed)

        future.add_done_callback(settle)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._compute_here)  # together with what other connections have brought by then
        try:
            await computed
        except asyncio.CancelledError:
            future.cancel()
            raise
        return future.result()

    def _compute_here(self) -> None:
        """Compute what waits in the event loop if that takes less than to wake up the thread and be woken by it."""
        self._is_due = False
        if not self._computing.acquire(blocking=False):
            return  # the thread takes what waits when it is ready
        try:
            with self._condition:
                is_small = sum(len(text) for each in self._waiting for text in each.texts) <= _MOST_CHARACTERS_HERE
                pieces = self._next_pieces() if is_small and not self._calls else []
            if pieces:
                self._compute(pieces)
        finally:
            self._computing.release()
            with self._condition:
                if self._waiting:
                    self._condition.notify()

    def submit(self, texts: Sequence[str], role: RoleName = "text", *, wakes: bool = True) -> Future[Embedded]:
        """Put texts into the queue, and wake up the thread."""
        estimated = [1 + int(len(text) / self._characters_a_token) for text in texts]
        request = _Request(
            list(texts),
            role,
            Future(),
            np.zeros((len(texts), self.model.encoder.dim), dtype=np.float32),
            estimated,
            n_left=len(texts),
        )
        if not texts:
            request.future.set_result(Embedded(np.zeros((0, self.model.dim), np.float32), request.vectors, 0, 0))
            return request.future
        with self._condition:
            self._check_open()
            self._waiting.append(request)
            self._count(sum(estimated))
            if wakes:
                self._condition.notify()
        return request.future

    async def call(self, function: Callable[[], Any], *, n_characters: int) -> Any:
        """Run a function on texts in the thread of the model, between two batches."""
        future: Future[Any] = Future()
        n_tokens = 1 + int(n_characters / self._characters_a_token)
        with self._condition:
            self._check_open()
            self._calls.append((function, future, n_tokens))
            self._count(n_tokens)
            self._condition.notify()
        return await asyncio.wrap_future(future)

    def _check_open(self) -> None:
        if self._is_retired:
            raise RetiredError
        # What waits is counted, and not this request: else long ones would be refused while short ones pass.
        if self.n_queued_tokens >= self._limits.max_queued_tokens:
            raise self._limits.queue_is_full(self.n_queued_tokens, self.tokens_per_s)

    def retire(self) -> None:
        """Take no more requests; those in the queue are still answered."""
        with self._condition:
            self._is_retired = True
            self._condition.notify_all()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the queue of a retired worker is empty."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))

    def _count(self, n_tokens: int) -> None:
        self.n_queued_tokens += n_tokens
        self._queue_size.set(len(self._waiting))
        self._queued_tokens.set(self.n_queued_tokens)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._condition:
                while not (self._waiting or self._calls or self._is_retired):
                    self._condition.wait()
                if not (self._waiting or self._calls):
                    return
                call = self._calls.popleft() if self._calls else None
                if call is not None:
                    self._count(-call[2])
                pieces = self._next_pieces()
                if self._waiting or self._calls:  # for another thread
                    self._condition.notify()
            with self._computing:
                if call is not None:
                    _settle(*call[:2])
                if pieces:
                    self._compute(pieces)

    def _next_pieces(self) -> list[_Piece]:
        """Take pieces of the waiting requests in turn, until they fill a batch; all have the same role."""
        pieces: list[_Piece] = []
        n_tokens, role, skipped = 0, None, []
        while self._waiting and n_tokens < self._limits.max_batch_tokens:
            request = self._waiting.popleft()
            if request.future.cancelled():  # the client has gone
                self._count(-sum(request.n_estimated[request.n_taken :]))
                continue
            if role not in (None, request.role):
                skipped.append(request)
                continue
            role = request.role
            piece = self._piece(request, self._limits.max_batch_tokens - n_tokens)
            n_piece = sum(piece.n_estimated)
            n_tokens += n_piece
            self._count(-n_piece)
            pieces.append(piece)
            if request.n_taken < len(request.texts):
                self._waiting.append(request)
        self._waiting.extendleft(reversed(skipped))
        return pieces

    def _piece(self, request: _Request, n_tokens: int) -> _Piece:
        """The next texts of a request: as many as there is room for, and one at least."""
        start = stop = request.n_taken
        while stop < min(len(request.texts), start + _PIECE_TEXTS):
            n_tokens -= request.n_estimated[stop]
            if n_tokens < 0 and stop > start:
                break
            stop += 1
        request.n_taken = stop
        return _Piece(request, start, stop)

    def _compute(self, pieces: list[_Piece]) -> None:
        started = time.perf_counter()
        for piece in pieces:
            if not piece.start:
                self._queue_duration.observe(started - piece.request.queued_at)
        try:
            self._embed(pieces)
        except Exception as error:
            if len(pieces) == 1:
                self._fail(pieces[0].request, error)
                return
            for piece in pieces:  # only those that fail by themselves fail
                if not piece.request.future.done():
                    self._compute([piece])

    def _embed(self, pieces: list[_Piece]) -> None:
        started = time.perf_counter()
        encoder = self._encoders[pieces[0].request.role]
        texts = [text for piece in pieces for text in piece.texts]
        was_cut = np.zeros(len(texts), dtype=np.bool_)
        if encoder.has_tokens:
            tokens = encoder.tokenize(texts)
            tokenized, lengths = time.perf_counter(), tokens.lengths
            was_cut[tokens.truncated_rows] = True
            vectors = np.concatenate([encoder.embed(part) for part in _batches(tokens, self._limits.max_batch_tokens)])
        else:
            tokenized, lengths = started, np.array([n for piece in pieces for n in piece.n_estimated], dtype=np.int64)
            vectors = encoder.encode(texts)
        computed, start, complete = time.perf_counter(), 0, []
        with self._condition:  # another thread may have the other pieces
            for piece in pieces:
                request, rows = piece.request, slice(start, start + piece.stop - piece.start)
                start = rows.stop
                request.vectors[piece.start : piece.stop] = vectors[rows]
                request.n_tokens += int(lengths[rows].sum())
                request.n_truncated += int(was_cut[rows].sum())
                request.n_left -= piece.stop - piece.start
                if not request.n_left:
                    complete.append(request)
        for request in complete:
            self._finish(request)
        n_tokens = max(1, int(lengths.sum()))
        self._metrics.batch(
            self._name, len(texts), n_tokens, int(was_cut.sum()), tokenized - started, computed - tokenized
        )
        rate = n_tokens / max(time.perf_counter() - started, 1e-6)
        self.tokens_per_s += (rate - self.tokens_per_s) * (_SMOOTHING if self.tokens_per_s else 1)
        measured = max(0.5, sum(map(len, texts)) / n_tokens)
        self._characters_a_token += _SMOOTHING * (measured - self._characters_a_token)

    def _finish(self, request: _Request) -> None:
        try:
            vectors = self.model.transform(request.vectors, queries=request.role == "query")
        except Exception as error:
            self._fail(request, error)
            return
        if request.future.set_running_or_notify_cancel():
            request.future.set_result(Embedded(vectors, request.vectors, request.n_tokens, request.n_truncated))

    def _fail(self, request: _Request, error: Exception) -> None:
        with self._condition:  # the rest of it is not computed
            if request in self._waiting:
                self._waiting.remove(request)
                self._count(-sum(request.n_estimated[request.n_taken :]))
            is_open = not (request.future.done() or request.future.running())  # another piece may have failed, too
            is_awaited = is_open and request.future.set_running_or_notify_cancel()
        if is_awaited:
            request.future.set_exception(error)


def _batches(tokens: TokenIds, most: int) -> list[TokenIds]:
    """Texts in parts of at most so many tokens; a longer text is a part by itself."""
    if len(tokens.ids) <= most:
        return [tokens]
    parts, rows, n_tokens = [], list[int](), 0
    for row, length in enumerate(tokens.lengths.tolist()):
        if rows and n_tokens + length > most:
            parts.append(tokens.take(np.array(rows, dtype=np.intp)))
            rows, n_tokens = [], 0
        rows.append(row)
        n_tokens += length
    return [*parts, tokens.take(np.array(rows, dtype=np.intp))]


def _end_wait(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _settle(function: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


# -- long work ---------------------------------------------------------------------------------------------------------


class HeavyWork:
    """A few threads with a queue before them; what a client that has gone waits for is not begun.

    Handlers give it what computes longer than a request should hold one of the threads that all requests share. What
    has begun goes on to its end, so each piece of work should take a few seconds at most. The event loop and these
    threads share it; the counter is behind a lock.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_HEAVY_THREADS, thread_name_prefix="isosent heavy work")
        self._lock, self.n_waiting = threading.Lock(), 0  # or in a thread

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function when its turn comes; a caller that is cancelled leaves the queue."""
        with self._lock:
            if self.n_waiting >= _MOST_WAITING:
                message = f"{self.n_waiting} requests of this kind wait; at most {_MOST_WAITING} may. Try again in 1 s."
                raise RequestError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "1"})
            self.n_waiting += 1
        future = self._threads.submit(function, *arguments)
        future.add_done_callback(self._is_over)  # at once, if it is cancelled in the queue
        return await asyncio.wrap_future(future)

    def _is_over(self, future: Future[Any]) -> None:
        with self._lock:
            self.n_waiting -= 1

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


# -- models by name ----------------------------------------------------------------------------------------------------

ModelPair = tuple[SentenceEncoder, SentenceEncoder]  # a model, and the static model that answers its queries
ModelLoader = Callable[[], SentenceEncoder | Index | ModelPair]
_log = logging.getLogger("isosent.server")


class ModelService(Service):
    """A running server of models: them by name, and the threads for long work."""

    def __init__(self, sources: Mapping[str, ModelLoader], limits: Limits, *, has_keys: bool = False) -> None:
        super().__init__(limits, has_keys=has_keys)
        self.registry = Registry(sources, limits=limits, metrics=self.metrics)
        self.heavy = HeavyWork()
        self._checked: dict[str, tuple[Served, float]] = {}  # when the fixed texts were encoded again
        self._changed: set[str] = set()

    def reload(self) -> None:
        """Load all models again."""
        with suppress(RequestError):  # one is running
            self.registry.reload()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Check now and then whether a model has changed; end the threads after the last request."""
        watch = asyncio.create_task(self._watch())
        yield
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        self.heavy.close()
        await asyncio.to_thread(self.registry.close)

    def references(self) -> Mapping[str, str]:
        """The names of the models, by the folders that they were loaded from; several may share one."""
        names: dict[str, str] = {}
        for served in self.registry:
            for reference, name in served.references.items():
                names[reference] = "the model" if names.get(reference, name) != name else name
        return names

    async def obstacle(self) -> tuple[str, Mapping[str, str]] | None:
        """Why no request should be sent here: as any service, or because a model has changed."""
        if (obstacle := await super().obstacle()) is None and self._changed:
            return "a model has changed; the log says which", {}
        return obstacle

    async def _watch(self) -> None:
        """Check each model at the start, after a reload, and every hour."""
        while True:
            for served in self.registry:
                before, checked_at = self._checked.get(served.name, (None, 0.0))
                if served is not before or time.monotonic() > checked_at + CANARY_EVERY_S:
                    try:
                        await self.check(served)
                    except (RetiredError, RequestError):  # replaced, or too busy; it is checked in the next round
                        continue
                    except Exception as error:
                        _log.warning("canary not checked", extra={"facts": failure_facts(served.name, error)})
                    self._checked[served.name] = served, time.monotonic()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def check(self, served: Served) -> None:
        """Encode fixed texts again, in the queue of the model, and compare them with what its folder holds."""
        lowest = None
        if (canary := served.model.canary) is not None:
            documents, queries = [await served.worker.embed(FIXED_TEXTS, role) for role in _CANARY_ROLES]
            lowest = canary.lowest_cosine(Canary.of(documents.raw, queries.raw))
            self.metrics.canary.labels(served.name).set(lowest)
        self._changed.discard(served.name)
        if lowest is not None and lowest < LEAST_COSINE:
            self._changed.add(served.name)
            facts = {"model": served.name, "lowest_cosine": round(lowest, 4)}
            _log.error("the model has changed; load the one that was saved", extra={"facts": facts})


@dataclass(frozen=True, eq=False)
class Served:
    """A model or an index under its name. Requests and threads share it: it is not changed, but replaced."""

    name: str
    model: SentenceEncoder
    index: Index | None
    worker: Worker
    query_worker: Worker | None = None  # of a static model of the same space

    @property
    def has_texts(self) -> bool:
        """Whether the model can encode texts."""
        return not isinstance(self.model.encoder, PrecomputedVectors)

    @property
    def workers(self) -> list[Worker]:
        """That of the model and that of the static model, if there is one."""
        return [self.worker] if self.query_worker is None else [self.worker, self.query_worker]

    @property
    def references(self) -> dict[str, str]:
        """The name, by each reference to a folder of this machine that a message may hold in its place."""
        models = [worker.model for worker in self.workers]
        references = {text for model in models for text in (model.encoder.reference, model.record.reference)}
        folders = {text.partition(":")[2] for text in references}
        return {text: self.name for text in references | folders if "/" in text or "\\" in text}

    async def embed(self, texts: Sequence[str], role: RoleName) -> Embedded:
        """Vectors of texts: those of queries by the static model, and by the model where that one knows no token."""
        if role != "query" or self.query_worker is None:
            return await self.worker.embed(texts, role)
        embedded = await self.query_worker.embed(texts, role)
        unknown = np.flatnonzero(~nonzero_rows(embedded.vectors))
        if not len(unknown):
            return embedded
        others = await self.worker.embed([texts[row] for row in unknown.tolist()], role)
        vectors = embedded.vectors.copy()
        vectors[unknown] = others.vectors
        n_tokens, n_truncated = embedded.n_tokens + others.n_tokens, embedded.n_truncated + others.n_truncated
        return Embedded(vectors, embedded.raw, n_tokens, n_truncated)


class Registry:
    """Models by name. A reload loads all of them again, next to those in use, and then exchanges them.

    The event loop and the thread of a reload share it: an entry is exchanged in one step, by one reload at a time.
    """

    def __init__(self, sources: Mapping[str, ModelLoader], *, limits: Limits, metrics: Metrics) -> None:
        self._sources, self._limits, self._metrics = dict(sources), limits, metrics
        self._reloading = threading.Lock()
        self._served = {name: self._load(name) for name in self._sources}

    def __iter__(self) -> Iterator[Served]:
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
        """Load all models again; what each failed with, or None. Those that fail stay unchanged."""
        outcomes: dict[str, str | None] = {}
        if not self._reloading.acquire(blocking=False):
            raise RequestError(409, "a reload is running.")
        try:
            for name in self._sources:
                try:
                    new = self._load(name)
                except Exception as error:  # whatever it is, the others are loaded
                    outcomes[name] = type(error).__name__
                    _log.error("reload failed", extra={"facts": failure_facts(name, error)})
                    continue
                old, self._served[name] = self._served[name], new
                for worker in old.workers:
                    worker.retire()  # it still answers what is in its queue
                outcomes[name] = None
                _log.info("reloaded", extra={"facts": {"model": name, "space": new.model.fingerprint}})
            freeze_memory()
        finally:
            self._reloading.release()
        return outcomes

    def close(self) -> None:
        """End all threads, after what is in the queues."""
        workers = [worker for served in self._served.values() for worker in served.workers]
        for worker in workers:
            worker.retire()
        for worker in workers:
            worker.join(timeout_s=60)

    def _load(self, name: str) -> Served:
        loaded, query_model = self._sources[name](), None
        if isinstance(loaded, tuple):
            loaded, query_model = loaded
        index = loaded if isinstance(loaded, Index) else None
        model = loaded.model if isinstance(loaded, Index) else loaded
        if index is None and isinstance(model.encoder, PrecomputedVectors):
            raise InputError(f"{name} was fitted on vectors and cannot encode texts. Use isosent proxy.")
        model.encoder.require_fitted("serve")
        space = model.space  # takes long for large models; not in the first request
        if query_model is not None:
            check_query_model(query_model, space, name)
        elif index is not None and not isinstance(model.encoder, PrecomputedVectors):
            query_model = None if index.query_model is model else index.query_model
        make = partial(Worker, limits=self._limits, metrics=self._metrics)
        query_worker = None if query_model is None else make(query_model, f"{name} queries")
        return Served(name, model, index, make(model, name), query_worker)
