"""An embedding API as a function from texts to vectors, for any thread, with or without a running event loop.

A `Session` looks texts up in the cache and asks the API for the others, in blocks, as many at a time as the API
answers well (`Pace`). Each answer is kept as soon as it comes, so that a job that is killed or fails asks only for the
rest when it runs again. All requests run in one event loop per process, in a separate thread.

Which model it is, an API says only by its vectors. `Session.known` is what was seen of it before, by the cache or by
a saved model: the vectors of fixed texts and a fingerprint. Before the first texts of a run are sent, the fixed texts
are encoded again. A model that has changed is refused; without a saved model it is a new one from the next run on.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent._locks import Lock
from isosent.api import usage
from isosent.api.cache import CACHE_FILE, MEGABYTE, KnownApi, VectorCache
from isosent.api.client import Answer, Pace, Upstream, Wording
from isosent.api.dialects import DIALECTS, Item, is_local
from isosent.api.refusals import HttpError
from isosent.api.usage import Usage
from isosent.errors import ApiError, CacheWarning, InputError, OutputError, quoted
from isosent.io.atomic import locked
from isosent.io.texts import text_blocks
from isosent.numeric.canary import CHANGED, LEAST_COSINE, Canary
from isosent.numeric.similarity import unit_rows
from isosent.pages.progress import Progress
from isosent.role import TEXT_PLACE, RoleName, parts_of, prompted
from isosent.space import Sketch, are_same, hash_of

T = TypeVar("T")
Came = Mapping[bytes, NDArray[np.float32]]  # vectors by their keys
Kept = Callable[[Came], object]  # is told of vectors as they come

_MOST_REQUESTS: Final = 16
_MOST_TEXTS: Final = 256  # of a request: what is in flight is lost if the process is killed
_MOST_CHARACTERS: Final = 400_000
_TIMEOUT_S: Final = 120.0
_PATIENCE_S: Final = 600.0
_N_SIGNS: Final = 16  # of the hash of a fingerprint: noise of 1e-4 in the cosine turns one in 7 of 100 cases
_N_PROJECTIONS: Final = 64  # of its sketch; the first also give the signs
_LOOKED_UP: Final = 8192  # texts at once
_BYTES_PER_TOKEN: Final = 4.0  # until the API has said how many it charged for


class Endpoint(NamedTuple):
    """A model of an API: where it is, and how it is asked."""

    reference: str  # for messages
    url: str
    dialect: str  # one of `DIALECTS`
    model: str
    dimensions: int | None  # that are asked for
    prompts: Mapping[str, str]  # by role: "text", "query", "document"
    key_variable: str | None  # environment variable of the key
    may_ask_base64: bool = True

    @property
    def has_base64(self) -> bool:
        """Whether base64 is requested first."""
        return self.may_ask_base64 and DIALECTS[self.dialect].has_base64

    @property
    def identity(self) -> str:
        """What tells it from others in a cache."""
        prompts = [(role, _in_key(prompt)) for role, prompt in sorted(self.prompts.items())]
        facts = [self.url, self.dialect, self.model, self.dimensions, prompts]
        return json.dumps(facts)

    def facts(self, dim: int) -> dict[str, Any]:
        """What decides its vectors, wherever it is."""
        prompts = {role: prompt for role, prompt in sorted(self.prompts.items()) if prompt}
        return {"model": self.model, "dim": dim, "prompts": prompts}


class Estimate(NamedTuple):
    """What texts would cost."""

    n_texts: int  # that differ, and are not blank
    n_cached: int
    n_tokens: int  # of the others, about


class Session:
    """One model of an API, asked from any thread and process; a copy in another process has its own connection.

    Parameters
    ----------
    endpoint : Endpoint
        The API.
    folder : Path, optional
        Where vectors are kept; without it, each text is asked for again.
    max_mb : float
        Size of the cache above which vectors that were not used for long are removed.
    saved : KnownApi, optional
        What a saved model knows of the API. Another model is refused.
    """

    def __init__(self, endpoint: Endpoint, folder: Path | None, max_mb: float, saved: KnownApi | None = None) -> None:
        for prompt in endpoint.prompts.values():
            _check_prompt(prompt)
        self.endpoint, self.usage = endpoint, Usage(folder=folder)
        self._folder, self._max_mb, self._saved = folder, max_mb, saved
        self._known = saved
        self._measured: Canary | None = None  # in this process
        self._in_cache: KnownApi | None = None  # the saved model, as the cache knows it
        self._lock = Lock()
        self._connection: _Connection | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Session, (self.endpoint, self._folder, self._max_mb, self._known)

    def of_saved(self, fingerprint: str, dim: int, canary: Canary) -> Session:
        """The same for a saved model, which knows the API."""
        saved = KnownApi(self.endpoint.identity, fingerprint, self.endpoint.reference, canary.to_text(), dim, 0)
        return Session(self.endpoint, self._folder, self._max_mb, saved)

    def without_base64(self) -> Session:
        """The same without a cache, which requests numbers alone."""
        return Session(self.endpoint._replace(may_ask_base64=False), None, self._max_mb)

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def known(self) -> KnownApi:
        """What was seen of the API before; it is asked if that is nothing."""
        if self._known is None:
            stored = self._stored()
            self._known = stored[0] if stored else self._run(self._measure)
        return self._known

    def _stored(self) -> list[KnownApi]:
        if (cache := self._here.cache) is None:
            return []
        with self._reading():
            stored = cache.known(self.endpoint.identity)
            for each in stored:
                if not _is_canary(each):
                    raise sqlite3.DatabaseError("its vectors of fixed texts are damaged")
        return stored

    def canary(self, *, of_first_query: bool = False) -> Canary:
        """Vectors of the fixed texts now; of a first query, those that were compared in this process."""
        if of_first_query and self._measured is not None:
            return self._measured
        return self._run(self._canary_of, of_first_query)

    async def _canary_of(self, connection: _Connection, is_short: bool) -> Canary:
        prompts, upstream = self.endpoint.prompts, connection.upstream
        queries = await upstream.fixed_vectors("query", prompts["query"], is_short=is_short)
        if is_short:
            self._measured = Canary.of(None, queries)
            return self._measured
        has_roles = upstream.dialect.has_roles or prompts["query"] != prompts["document"]
        documents = await upstream.fixed_vectors("document", prompts["document"]) if has_roles else queries
        return Canary.of(documents, queries)

    async def _measure(self, connection: _Connection) -> KnownApi:
        """What the API is now, by the fingerprint that the cache has for it, if it has one."""
        before = await self._canary_of(connection, is_short=True)
        now = await self._canary_of(connection, is_short=True)
        return await asyncio.to_thread(self._remembered, connection.cache, now, before.mean_difference(now))

    def _remembered(self, cache: VectorCache | None, now: Canary, noise: float) -> KnownApi:
        new = self._new(now, noise, [])
        if cache is None or self._folder is None:
            return new
        with locked(self._folder):  # two processes that begin at once agree
            stored = self._stored()
            same = next((each for each in stored if _cosine(each, now) >= LEAST_COSINE), None)
            new = same or self._new(now, noise, [hash_of(each.fingerprint) for each in stored])
            with self._writing():
                cache.remember(new._replace(seen_at=time.time_ns()))
        return new

    def _new(self, now: Canary, noise: float, taken: Sequence[str]) -> KnownApi:
        dim, canary = now.queries.shape[1], now.to_text()
        facts = self.endpoint.facts(dim)
        values = _projected(now, _N_PROJECTIONS)
        signs = "".join("+" if value > 0 else "-" for value in values[:_N_SIGNS])
        if (digest := _digest(facts | {"signs": signs})) in taken:  # the signs are too few to tell the two apart
            digest = _digest(facts | {"signs": signs, "canary": canary})
        sketch = Sketch(_digest(facts)[:16], noise, (values / np.sqrt(len(values) * len(now.queries))).tolist())
        return KnownApi(
            self.endpoint.identity, sketch.fingerprint(digest), self.endpoint.reference, canary, dim, time.time_ns()
        )

    async def _verify(self, connection: _Connection) -> None:
        """Before the first texts are sent: whether it is the model that is known."""
        async with connection.verifying:
            if self._measured is None:
                await self._canary_of(connection, is_short=True)
            assert self._measured is not None  # `_canary_of` sets it
            known = self.known
            if (cosine := _cosine(known, self._measured)) >= LEAST_COSINE:
                return
        problem = (
            f"{self.endpoint.reference}: {CHANGED} lowest cosine of fixed texts {cosine:.4f} (unchanged: "
            f"{LEAST_COSINE} or more). No text was sent."
        )
        if self._saved is not None:
            raise ApiError(f"{problem} The model was fitted on other vectors: fit it again.")
        noise = self._measured.mean_difference(await self._canary_of(connection, is_short=True))
        await asyncio.to_thread(self._remembered, connection.cache, self._measured, noise)
        raise ApiError(
            f"{problem} Load it again, or run the command again, to use the model that answers now: its vectors cannot "
            "be compared with earlier ones."
        )

    # -- texts -----------------------------------------------------------------------------------------------------

    def vectors(
        self, texts: Sequence[str], role: RoleName, prompt: str = "", *, progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """Vectors of texts that differ and are not blank, shape (n_texts, dim)."""
        known = self._kept_as
        keys = self._keys(known, texts, role, prompt)
        rows = self._from_cache(known, keys)
        missing = {key: prompted(prompt, text) for key, text in zip(keys, texts, strict=True) if key not in rows}
        self._count(n_cached=len(rows))
        if progress:
            progress(len(rows), len(texts))
        if missing:
            usage.before_sending()
            came = SimpleQueue[Came | None]()  # read in this thread: what is told may raise, or encode

            def keep(vectors: Came) -> None:
                rows.update(vectors)
                if progress:
                    progress(len(rows), len(texts))

            self._run(self._fetch, missing, role, came.put, came=came, told=keep)
        return np.stack([rows[key] for key in keys]) if keys else np.empty((0, known.dim), np.float32)

    def _count(self, n_texts: int = 0, n_tokens: int = 0, n_cached: int = 0) -> None:
        self.usage = self.usage.plus(n_texts, n_tokens, n_cached)
        usage.count(self.endpoint.reference, self._folder, n_texts, n_tokens, n_cached)

    def estimate(self, texts: Iterable[str], role: RoleName, prompt: str = "") -> Estimate:
        """What texts would cost; nothing is sent."""
        stored = next(iter(self._stored()), None) if self._known is None else self._kept_as
        seen, n_cached, n_bytes = set[bytes](), 0, 0
        for block in text_blocks(texts, _LOOKED_UP):
            block = _check.text_list("estimate", block)
            digests = {hashlib.sha256(text.encode()).digest(): text for text in block if text.strip()}
            new = [text for digest, text in digests.items() if digest not in seen]
            seen.update(digests)
            keys = self._keys(stored, new, role, prompt) if stored is not None else [b""] * len(new)
            cached = self._from_cache(stored, keys) if stored is not None else {}
            n_cached += len(cached)
            n_bytes += sum(
                len(prompted(prompt, text).encode()) for text, key in zip(new, keys, strict=True) if key not in cached
            )
        paid = [api for api in self._stored() if api.n_tokens]
        return Estimate(
            len(seen),
            n_cached,
            round(n_bytes * paid[0].n_tokens / paid[0].n_bytes if paid else n_bytes / _BYTES_PER_TOKEN),
        )

    def _keys(self, known: KnownApi, texts: Sequence[str], role: RoleName, prompt: str) -> list[bytes]:
        """Hashes of texts and of the space of their vectors."""
        _check_prompt(prompt)
        # JSON has no zero byte, which ends it
        parts = [self.endpoint.identity, known.fingerprint, self._side(role), _in_key(prompt)]
        begin = hashlib.sha256(json.dumps(parts).encode())
        keys = []
        for text in texts:
            digest = begin.copy()
            digest.update(b"\0" + text.encode())
            keys.append(digest.digest())
        return keys

    def _side(self, role: RoleName) -> RoleName:
        """The first role that is sent as this one is."""
        body, model = DIALECTS[self.endpoint.dialect].body, self.endpoint.model
        roles: tuple[RoleName, ...] = ("text", "query", "document")
        return next(each for each in roles if body([""], model, each, None) == body([""], model, role, None))

    def _from_cache(self, known: KnownApi, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Vectors that are kept, if those of the fixed texts show that this model made them."""
        cache = self._here.cache
        if cache is None or not keys:
            return {}
        with self._reading():
            found = {key: row for key, row in cache.get(keys).items() if len(row) == known.dim}
        rows = np.stack(list(found.values())) if found else np.empty((0, known.dim), np.float32)
        # else the file is damaged
        is_right: NDArray[np.bool_] = np.logical_and(np.isfinite(rows).all(axis=1), rows.any(axis=1))
        return {key: row for (key, row), each in zip(found.items(), is_right, strict=True) if each}

    @property
    def _kept_as(self) -> KnownApi:
        """The API as the cache knows it: by another fingerprint than a saved model if it was seen with some noise."""
        known = self.known
        if known is not self._saved:  # it comes out of the cache, or was put there
            return known
        if self._in_cache is None:
            stored = sorted(self._stored(), key=lambda each: each.fingerprint != known.fingerprint)  # it is the first
            kept = next((each for each in stored if are_same(each.fingerprint, known.fingerprint)), known)
            now = Canary.from_text(known.name, known.canary)
            if (cosine := _cosine(kept, now)) < LEAST_COSINE:
                raise ApiError(
                    f"{self.endpoint.reference}: the cache {self._folder} has vectors of another model by this name: "
                    f"lowest cosine of fixed texts {cosine:.4f} (the same: {LEAST_COSINE} or more). {_OTHER_CACHE}"
                )
            self._in_cache = kept
        return self._in_cache

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise OutputError(f"{self._folder}: the cache cannot be read: {error}. {_OTHER_CACHE}") from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A full disk does not stop a job."""
        try:
            yield
        except sqlite3.Error as error:
            warnings.warn(f"{self._folder}: vectors are not kept: {error}.", CacheWarning, stacklevel=3)

    async def _fetch(self, connection: _Connection, texts: Mapping[bytes, str], role: RoleName, kept: Kept) -> None:
        """Ask for texts; those that another thread asks for are waited for, and asked for here if that fails."""
        await self._verify(connection)
        flights = connection.flights
        others = {key: flights[key] for key in texts if key in flights}
        own = {key: connection.loop.create_future() for key in texts if key not in flights}
        flights |= own
        try:
            await self._fetch_blocks(connection, {key: texts[key] for key in own}, role, kept)
        finally:
            for key, flight in own.items():
                del flights[key]
                if not flight.done():
                    flight.cancel()
        await asyncio.wait(others.values()) if others else None
        landed = {key: flight.result() for key, flight in others.items() if not flight.cancelled()}
        kept(landed)
        if len(landed) < len(others):
            await self._fetch(connection, {key: texts[key] for key in others if key not in landed}, role, kept)

    async def _fetch_blocks(
        self, connection: _Connection, texts: Mapping[bytes, str], role: RoleName, kept: Kept
    ) -> None:
        """Ask for texts in blocks. After an error no block is begun, and what is in flight is waited for and kept."""
        upstream, key_of = connection.upstream, {text: key for key, text in texts.items()}

        async def keep(items: Sequence[Item], answer: Answer) -> None:
            vectors = {key_of[str(item)]: row for item, row in zip(items, answer.vectors, strict=True)}
            kept(vectors)
            n_bytes = sum(len(str(item).encode()) for item in items)
            self._count(len(items), answer.n_tokens)
            await asyncio.to_thread(self._into_cache, connection.cache, vectors, n_bytes, answer.n_tokens)
            connection.land(vectors)

        async def ask(items: Sequence[Item]) -> None:
            """Ask for texts that are still not in the cache: another process may have asked."""
            found = await asyncio.to_thread(self._from_cache, self._kept_as, [key_of[str(item)] for item in items])
            if found:
                kept(found)
                self._count(n_cached=len(found))
                connection.land(found)
            missing = [item for item in items if key_of[str(item)] not in found]
            if missing and failure is None:
                for part in upstream.blocks(missing):  # one, unless the API has refused so many meanwhile
                    await upstream.embed(part, role, {}, keep=keep)

        waiting, running = deque(upstream.blocks(list(key_of))), set[asyncio.Task[None]]()
        failure: BaseException | None = None
        try:
            while running or (waiting and failure is None):
                while waiting and failure is None and len(running) < connection.pace.n_requests:
                    block, *rest = upstream.blocks(waiting.popleft())  # the API may take less than when they were made
                    waiting.extendleft(reversed(rest))
                    running.add(asyncio.create_task(ask(block)))
                finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                failure = failure or next(filter(None, (task.exception() for task in finished)), None)
        finally:
            for task in running:  # of a caller who was interrupted
                task.cancel()
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        if failure is not None:
            raise failure

    def _into_cache(
        self, cache: VectorCache | None, vectors: Mapping[bytes, NDArray[np.float32]], n_bytes: int, n_tokens: int
    ) -> None:
        if cache is None:
            return
        with self._writing():
            # first the model that made them: without it, they are of no use
            cache.count(self._kept_as, n_texts=len(vectors), n_bytes=n_bytes, n_tokens=n_tokens)
            cache.put(vectors)

    # -- the connection --------------------------------------------------------------------------------------------

    @property
    def _here(self) -> _Connection:
        with self._lock:
            if self._connection is None or self._connection.pid != os.getpid():
                if self._connection is not None:  # that of the parent: SQLite forbids a child to close it
                    _OF_PARENTS.append(self._connection)
                self._connection = _Connection(
                    self.endpoint, _opened_cache(self._folder, round(self._max_mb * MEGABYTE))
                )
            return self._connection

    def _run(
        self,
        work: Callable[..., Coroutine[Any, Any, T]],
        *arguments: Any,
        came: SimpleQueue[Came | None] | None = None,
        told: Kept | None = None,
    ) -> T:
        """Run work in the event loop of this process, and wait for it; `told` is called here with what comes."""
        connection = self._here
        connection.upstream.key = _key_of(self.endpoint)
        future = asyncio.run_coroutine_threadsafe(work(connection, *arguments), connection.loop)
        try:
            if came is not None and told is not None:
                future.add_done_callback(lambda _: came.put(None))
                for vectors in iter(came.get, None):
                    told(vectors)
            return future.result()
        except (HttpError, BaseExceptionGroup) as error:
            failure: BaseException = error
        finally:
            future.cancel()  # if this thread was interrupted
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        # not within `except`: what led to it has the headers of the request, with the key
        raise self._error(failure) if isinstance(failure, HttpError) else failure

    def _error(self, error: HttpError) -> ApiError:
        about = "" if error.item is None else f" The text is {str(error.item)!r:.80}: change it or leave it out."
        is_kept = self._folder is not None and self.usage.n_texts
        advice = " What was answered is in the cache: run it again to go on." if is_kept else ""
        return ApiError(f"{error.message}{about}{advice}")


class _Connection:
    """What a process has of a session: a client in its event loop, and the open cache."""

    def __init__(self, endpoint: Endpoint, cache: VectorCache | None) -> None:
        self.pid, self.cache, self.loop = os.getpid(), cache, _event_loop()
        is_secure = endpoint.url.startswith("https:")  # else certificates, which take long to read, are of no use
        limits = httpx.Limits(max_connections=_MOST_REQUESTS)
        try:
            client = httpx.AsyncClient(trust_env=not is_local(endpoint.url), limits=limits, verify=is_secure)
        except (ImportError, ValueError, httpx.InvalidURL):  # which may quote a password
            raise InputError(
                f"{endpoint.reference}: the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names cannot be used. "
                "Write http://HOST:PORT there; SOCKS needs: pip install socksio. Or name the API in NO_PROXY."
            ) from None
        self.pace = Pace(_MOST_REQUESTS, _PATIENCE_S)
        self.verifying = asyncio.Lock()
        # Texts that were asked for, by their keys, which differ between APIs: all that share a cache share them.
        self.flights: dict[bytes, asyncio.Future[NDArray[np.float32]]] = (
            {} if cache is None else _FLIGHTS.setdefault((self.pid, cache.path), {})
        )
        self.upstream = Upstream(
            endpoint.url,
            DIALECTS[endpoint.dialect],
            endpoint.model,
            client,
            timeout_s=_TIMEOUT_S,
            max_requests=_MOST_REQUESTS,
            max_texts=_MOST_TEXTS,
            max_characters=_MOST_CHARACTERS,
            dimensions=endpoint.dimensions,
            pace=self.pace,
            may_ask_base64=endpoint.may_ask_base64,
            wording=Wording(endpoint.reference, f"the key in {endpoint.key_variable}", ""),
        )
        weakref.finalize(self, _close, self.pid, self.loop, client, cache)

    def land(self, vectors: Came) -> None:
        """Give vectors to whoever waits for them; nobody does if the caller was interrupted."""
        for key, row in vectors.items():
            if (flight := self.flights.get(key)) is not None and not flight.done():
                flight.set_result(row)


def _close(pid: int, loop: asyncio.AbstractEventLoop, client: httpx.AsyncClient, cache: VectorCache | None) -> None:
    if pid == os.getpid():
        asyncio.run_coroutine_threadsafe(client.aclose(), loop)
        if cache is not None:
            cache.close()


_OF_PARENTS: list[_Connection] = []
_FLIGHTS: dict[tuple[int, Path], dict[bytes, asyncio.Future[NDArray[np.float32]]]] = {}  # by process and cache
_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}  # by process
_LOOPS_LOCK = Lock()


def _event_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process, in its own thread: the caller may have one that runs."""
    with _LOOPS_LOCK:
        if os.getpid() not in _LOOPS:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="isosent api", daemon=True).start()
            _LOOPS[os.getpid()] = loop
        return _LOOPS[os.getpid()]


_OTHER_CACHE: Final = "Name another folder: ?cache=DIR, or ?cache=none."


def _opened_cache(folder: Path | None, max_bytes: int) -> VectorCache | None:
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = folder / CACHE_FILE
        is_read_only = file.exists() and not (os.access(file, os.W_OK) and os.access(folder, os.W_OK))
        return VectorCache(file, max_bytes=max_bytes, is_read_only=is_read_only)
    except (OutputError, InputError) as error:
        raise type(error)(f"{quoted(error)} {_OTHER_CACHE}") from None
    except OSError as error:
        raise OutputError(f"{folder} cannot be used as a cache: {error}. {_OTHER_CACHE}") from None


def _key_of(endpoint: Endpoint) -> str | None:
    """The key of an API, from the environment alone."""
    if endpoint.key_variable is None:
        return None
    key = os.environ.get(endpoint.key_variable, "").strip()
    if not key:
        raise InputError(f"{endpoint.reference}: set the environment variable {endpoint.key_variable} to your key.")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InputError(f"{endpoint.reference}: {endpoint.key_variable} is no key: it has spaces or other characters.")
    return key


def _in_key(prompt: str) -> str | list[str]:
    """A prompt as the keys of a cache hold it: in parts if it has a place, which once stood before the text."""
    return parts_of(prompt) if TEXT_PLACE in prompt else prompt


def _check_prompt(prompt: str) -> None:
    if not _check.is_unicode(prompt):
        raise InputError(f"the prompt {prompt!r} is not valid Unicode: it holds a lone surrogate. Replace it.")


def _is_canary(known: KnownApi) -> bool:
    try:
        return Canary.from_text(known.name, known.canary).queries.shape[1] == known.dim
    except InputError:
        return False


def _cosine(known: KnownApi, now: Canary) -> float:
    return Canary.from_text(known.name, known.canary).lowest_cosine(now)


def _projected(canary: Canary, n_projections: int) -> NDArray[np.float64]:
    """How far the fixed texts, all together, are from random planes, which noise of a server moves little."""
    units = unit_rows(canary.queries.astype(np.float64)).ravel()
    random_bytes = hashlib.shake_256(b"isosent api").digest(n_projections * (-(-len(units) // 8)))
    bits = np.unpackbits(np.frombuffer(random_bytes, np.uint8).reshape(n_projections, -1), axis=1)[:, : len(units)]
    projected: NDArray[np.float64] = (2.0 * bits - 1) @ units
    return projected


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
