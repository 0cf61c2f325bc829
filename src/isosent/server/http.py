"""Requests and responses: what every request passes, and the paths that every service has.

`application` makes an ASGI application of a service and its routes. `Gate` stands before all of them: it names each
request, checks key, host and origin, turns errors into answers in the dialect of the path, and logs and counts what was
answered. `reading` gives a handler the body of its request, decoded and checked, and ends it if the client hangs up;
`on_model` gives it the model that the body names, and calls it again if a reload replaced that model meanwhile.
`json_response` and `vectors_response` make answers. All of it runs in the event loop; large bodies and answers are
decoded and encoded in threads.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, partial
from typing import Any, Final, TypeVar, get_args
from urllib.parse import urlsplit

import msgspec
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from isosent.api.refusals import HttpError
from isosent.errors import ApiError, InputError, InputTypeError, IsosentError, option
from isosent.io.json import decode
from isosent.server.fields import refuse_if_ignored, refuse_too_many
from isosent.server.limits import Limits, RequestError
from isosent.server.registry import Registry, RetiredError, Served
from isosent.server.service import CONTENT_TYPE, Metrics, Service, named_for_clients, reason_of

T = TypeVar("T")
Body = TypeVar("Body", bound=msgspec.Struct)
Handler = Callable[[Request], Awaitable[Response]]
_log = logging.getLogger("isosent.server")
_REQUEST_ID = re.compile(r"[\w.:-]{1,100}")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_IN_A_THREAD = 1 << 16  # bytes of a body, or numbers of an answer, that would hold up the event loop
_MOST_ATTEMPTS = 100
_MOST_ARRIVING = 256 << 20  # bytes of all bodies of which a part is here
_WATCHED_AFTER_S = 0.02
_CLIENT_GONE = 499  # nginx's status, for the log alone
_PROBES = ("/health", "/ready", "/metrics")  # asked every few seconds
_SECURITY: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# Text Embeddings Inference: status -> error_type
TEI_PATHS = frozenset({"/", "/embed", "/embed_all", "/similarity", "/tokenize", "/info", "/health"})
_TEI_TYPES = {413: "Validation", 422: "Validation", 424: "Backend", 429: "Overloaded", 503: "Unhealthy"}
_OPENAI_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_MOST_UNKNOWN: Final = 100  # names that are logged; a client may make up any number
_NAME: Final = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)
# An escape of the first half of a character without one of the second half behind it, or the other way round.
_HALF_CHARACTER: Final = re.compile(
    rb"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F])"
)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])  # values are skipped, not read

# Of all services of this process, whose event loops may run in several threads.
_arriving: dict[int, int] = {}  # bytes of each body of which a part is here; set, removed and summed in one step each
_unknown: set[tuple[str, str]] = set()  # fields that were logged; behind the lock
_lock = threading.Lock()


# -- the application ---------------------------------------------------------------------------------------------------


def application(
    service: Service,
    routes: Sequence[Route],
    *,
    open_paths: Iterable[str],
    keys: Iterable[str] = (),
    hosts: Sequence[str] | None = None,
) -> Starlette:
    """Make an ASGI application of a service; the parameters are those of `Gate`."""
    gate = Middleware(
        Gate,
        keys=tuple(keys),
        paths=frozenset(route.path for route in routes),
        open_paths=frozenset(open_paths),
        hosts=hosts,
        metrics=service.metrics,
        references=service.references,
    )
    handlers = {HTTPException: _raise_error}
    app = Starlette(routes=routes, middleware=[gate], exception_handlers=handlers, lifespan=lambda _: service.running())
    app.router.redirect_slashes = False  # to http://, where TLS ends before this server; `Gate` takes the slash
    app.state.service = service
    return app


async def _raise_error(request: Request, error: Exception) -> Response:
    """Leave an error to the gate, which knows the dialect of the path."""
    raise error


async def health(request: Request) -> Response:
    """Say that the process lives."""
    return Response()


async def ready(request: Request) -> Response:
    """Say whether requests should be sent here."""
    service: Service = request.app.state.service
    if (obstacle := await service.obstacle()) is None:
        return json_response({"status": "ready"})
    status, headers = obstacle
    return json_response({"status": status}, 503, headers)


async def metrics(request: Request) -> Response:
    """Return metrics for Prometheus."""
    service: Service = request.app.state.service
    return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


# -- answers -----------------------------------------------------------------------------------------------------------


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Make a response of JSON values; arrays become lists."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, status, dict(headers or {}), media_type="application/json")


async def vectors_response(
    request: Request, make: Callable[[], Any], n_numbers: int, headers: Mapping[str, str] | None = None
) -> Response:
    """Make a response with many numbers; in a thread if there are so many that other requests would wait."""
    if n_numbers <= _IN_A_THREAD:
        return json_response(make(), headers=headers)
    service: Service = request.app.state.service
    async with service.room_for_answer():
        return await asyncio.to_thread(lambda: json_response(make(), headers=headers))


def error_response(path: str, error: HttpError) -> Response:
    """Make the response to a refused request, as the clients of a path expect it."""
    if path in TEI_PATHS:
        kind = _TEI_TYPES.get(error.status, "Validation" if error.status < 500 else "Backend")
        return json_response({"error": error.message, "error_type": kind}, error.status, error.headers)
    kind = _OPENAI_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    body = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    return json_response({"error": body}, error.status, error.headers)


# -- bodies ------------------------------------------------------------------------------------------------------------


def reading(
    handler: Callable[[Request, Any], Awaitable[Response]],
    kind: type[Body] | type[bytes],
    *,
    wrong: int = 422,
    keeps_others: bool = False,
) -> Handler:
    """Give a handler the body of its request, and end it if the client hangs up.

    `wrong` is the status for a body that is JSON, but not as it should be. Fields that the body does not have are
    ignored if that changes no vector, or kept for the handler in ``request.state.others``.
    """

    async def handle(request: Request) -> Response:
        service: Service = request.app.state.service
        if issubclass(kind, bytes):
            body: Any = await read_bytes(request, service.limits)
        else:
            body = await read_body(request, service.limits, kind, wrong=wrong)
            if not keeps_others:
                _ignore(request.state.others, kind, wrong=wrong)
        return await unless_gone(request, handler(request, body))

    return handle


async def with_served(find: Callable[[], Served], work: Callable[[Served], Awaitable[T]]) -> T:
    """Use a model; again if it was replaced between the two steps, so that a reload loses no request."""
    for _ in range(_MOST_ATTEMPTS):
        try:
            return await work(find())
        except RetiredError:
            await asyncio.sleep(0.01)
    raise RequestError(503, "the server is about to stop.")


def on_model(
    handler: Callable[[Request, Any, Served], Awaitable[Response]],
) -> Callable[[Request, Any], Awaitable[Response]]:
    """Give a handler the text model that the body of its request names."""

    async def handle(request: Request, body: Any) -> Response:
        registry: Registry = request.app.state.service.registry
        return await with_served(partial(registry.text_model, body.model), partial(handler, request, body))

    return handle


async def read_body(request: Request, limits: Limits, kind: type[Body], *, wrong: int = 422) -> Body:
    """Read and check the body of a request; the fields that it does not have are in ``request.state.others``."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(415, "the request is not JSON. Send the header Content-Type: application/json.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError(415, "a compressed body is not read; send it without Content-Encoding.")
    content = await read_bytes(request, limits)
    if len(content) <= _IN_A_THREAD:
        body, others = _decoded(content, kind, wrong=wrong)
    else:
        body, others = await asyncio.to_thread(_decoded, content, kind, wrong=wrong)
    request.state.others = others
    return body


async def read_bytes(request: Request, limits: Limits) -> bytes:
    """Read the body of a request, if it is not too large and does not take too long."""
    if int(request.headers.get("content-length") or 0) > limits.max_body_bytes:
        raise limits.body_too_large()
    content = bytearray()
    try:
        async with asyncio.timeout(limits.request_timeout_s):
            async for chunk in request.stream():
                content += chunk
                _arriving[id(content)] = len(content)
                if len(content) > limits.max_body_bytes:
                    raise limits.body_too_large()
                is_large = len(content) > _IN_A_THREAD and len(_arriving) > 1  # small ones do no harm
                if is_large and sum(_arriving.values()) > _MOST_ARRIVING:
                    message = "too many large requests arrive at once. Try again in 1 s."
                    raise RequestError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "1"})
    except TimeoutError:
        message = f"the request did not arrive within {limits.request_timeout_s:g} s ({option('request_timeout_s')})."
        raise RequestError(408, message, headers={"Connection": "close"}) from None
    finally:
        _arriving.pop(id(content), None)
    return bytes(content)


def _decoded(content: bytes, kind: type[Body], *, wrong: int = 422) -> tuple[Body, dict[str, Any]]:
    """Decode the body of a request, and the fields that are unknown: a newer client may send more than is known here.

    `wrong` is the status for a body that is JSON, but not as it should be, such as one whose struct forbids them.
    """
    others: dict[str, Any] = {}
    try:
        body = decode(content, kind)
        if not kind.__struct_config__.forbid_unknown_fields:
            others = {name: msgspec.json.decode(value) for name, value in _unknown_fields(content, kind)}
            refuse_too_many(others, status=wrong)
    except msgspec.ValidationError as error:
        place = re.search(r"`\$\.(\w+)", str(error)) or re.search(r"field `(\w+)`", str(error))
        names = ", ".join(field.name for field in msgspec.structs.fields(kind))
        message = f"the body has other fields or values than expected: {_short(str(error))}. Its fields are {names}."
        raise RequestError(wrong, message, param=place and place[1]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = _short(str(error))
        if _HALF_CHARACTER.search(content):
            reason = "a text has one half of a surrogate pair, such as \\ud83d without \\ude00, which is no character"
        elif isinstance(error, UnicodeDecodeError):
            reason = "it is not UTF-8"
        raise RequestError(400, f"the body is no valid JSON: {reason}.") from None
    return body, others


def _short(message: str) -> str:
    return message.rstrip(".").replace("\n", " ")[:300]


def _ignore(others: Mapping[str, Any], kind: type, *, wrong: int) -> None:
    """Ignore fields, and log each name once; refuse those without which the vectors would be others."""
    for name, value in others.items():
        refuse_if_ignored(name, value, status=wrong)
        with _lock:
            is_new = (kind.__name__, name) not in _unknown and len(_unknown) < _MOST_UNKNOWN
            if is_new:
                _unknown.add((kind.__name__, name))
        if is_new:
            shown = name if _NAME.fullmatch(name) else "(not a name)"  # which could be a text
            _log.warning("unknown field ignored", extra={"facts": {"body": kind.__name__, "field": shown}})


def _unknown_fields(content: bytes | msgspec.Raw, kind: type[msgspec.Struct]) -> Iterator[tuple[str, msgspec.Raw]]:
    """Names that a struct, or one in it, does not have, and their values."""
    fields = _types_of(kind)
    for name, value in _MEMBERS.decode(content).items():
        if name not in fields:
            yield name, value
            continue
        for nested in (fields[name], *get_args(fields[name])):  # a struct, or a union with one
            if isinstance(nested, type) and issubclass(nested, msgspec.Struct) and bytes(memoryview(value)[:1]) == b"{":
                yield from ((f"{name}.{inner}", more) for inner, more in _unknown_fields(value, nested))


@cache
def _types_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Type of each field; msgspec evaluates the annotations whenever it is asked."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


class ClientGoneError(Exception):
    """The client has closed the connection."""


async def unless_gone(request: Request, answer: Awaitable[T]) -> T:
    """Wait for an answer; give up if it takes longer and the client closes the connection."""
    task, loop, is_gone = asyncio.current_task(), asyncio.get_running_loop(), False
    assert task is not None
    watching: asyncio.Task[None] | None = None

    def give_up(_: asyncio.Task[None]) -> None:
        nonlocal is_gone
        is_gone = True
        task.cancel()

    def watch() -> None:
        nonlocal watching
        watching = loop.create_task(_until_gone(request))
        watching.add_done_callback(give_up)

    timer = loop.call_later(_WATCHED_AFTER_S, watch)  # most answers are made before, without a second task
    try:
        return await answer
    except asyncio.CancelledError:
        if is_gone and not task.uncancel():
            raise ClientGoneError from None
        raise
    finally:
        timer.cancel()
        if watching is not None:
            watching.remove_done_callback(give_up)
            watching.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# -- the gate ----------------------------------------------------------------------------------------------------------


class Gate:
    """What every request passes: request id, key, origin, errors, logs, metrics. It holds no state of a request.

    Parameters
    ----------
    app : ASGI application
        What answers the requests that pass.
    keys : sequence of str
        Keys of clients; without keys, everybody may ask.
    paths : set of str
        All paths; others are logged and counted as one.
    open_paths : set of str
        Paths that need no key.
    hosts : sequence of str or None
        Names that a browser may call this server by; None for any. Without keys, a page on the web could otherwise give
        its own name the address of this machine, and ask.
    references : function
        Gives the names of models by the folders that no client should read.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Sequence[str] = (),
        paths: frozenset[str] = frozenset(),
        open_paths: frozenset[str] = frozenset(),
        open_prefix: str = "/page/",
        hosts: Sequence[str] | None = None,
        metrics: Metrics,
        references: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._app, self._keys, self._metrics = app, tuple(key.encode() for key in keys), metrics
        self._references = references
        self._paths, self._open_paths, self._open_prefix = paths, open_paths, open_prefix
        self._hosts = None if hosts is None else {*hosts, *_LOOPBACK}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        started, status, headers = time.perf_counter(), _CLIENT_GONE, dict(scope["headers"])
        scope["path"] = scope["path"].rstrip("/") or "/"
        request_id = headers.get(b"x-request-id", b"").decode("latin-1")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = secrets.token_hex(8)
        facts: dict[str, Any] = {}
        scope["isosent"] = facts
        added = [(b"x-request-id", request_id.encode())]
        added += _SECURITY

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        try:
            refusal = await self._answered(scope, receive, tagged, headers)
            if refusal is not None:
                if status != _CLIENT_GONE:  # the answer has begun
                    raise refusal
                refusal.message = named_for_clients(refusal.message, self._references())
                await error_response(scope["path"], refusal)(scope, receive, tagged)
        except (ClientGoneError, ClientDisconnect):
            pass
        finally:
            seconds = time.perf_counter() - started
            path = scope["path"] if scope["path"] in self._paths else "other"  # never what a client has made up
            self._metrics.request(path, status, seconds)
            level = logging.DEBUG if path in _PROBES and status < 400 else logging.INFO
            if _log.isEnabledFor(level):
                shown = {"request_id": request_id, "method": scope["method"], "path": path, "status": status}
                shown |= {"ms": round(1e3 * seconds, 2), **facts}
                # `Logger.log` would look for the place of this call in the stack, which no line shows
                record = _log.makeRecord(_log.name, level, __file__, 0, "request", (), None, extra={"facts": shown})
                _log.handle(record)

    async def _answered(
        self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes]
    ) -> HttpError | None:
        """Answer a request, or return why it is refused."""
        try:
            self._check(scope, headers)
            await self._app(scope, receive, send)
        except HttpError as error:
            return error
        except HTTPException as error:  # no such path or method
            methods = (error.headers or {}).get("Allow", "another method")
            message = self._no_such_path(scope["path"]) if error.status_code == 404 else f"this path takes {methods}."
            return RequestError(error.status_code, message, headers=error.headers)
        except ApiError as error:  # of a model that is an API
            return RequestError(502, reason_of(error, self._references()))
        except (InputError, InputTypeError) as error:
            return RequestError(422, reason_of(error, self._references()))
        except (ClientGoneError, ClientDisconnect):
            raise
        except Exception as error:  # not its text, which may hold paths, or texts of the client
            _log.error("failed", extra={"facts": {"error": type(error).__name__, "at": _place_of(error)}})
            if isinstance(error, IsosentError) or scope["path"] not in TEI_PATHS:
                return RequestError(500, "the server failed; its log has the reason under the request id.")
            return RequestError(424, "the model failed; the log of the server has the reason under the request id.")
        return None

    def _no_such_path(self, path: str) -> str:
        """The message for a path that is not there, with the one that was meant."""
        last = path.rpartition("/")[2]
        names = sorted(known.partition("{")[0] for known in self._paths)
        similar = [known for known in names if known.endswith(f"/{last}") and last]
        similar += [known for known in names if known.count("/") > 2 and known.partition("/v1")[2] in path]
        meant = next(iter([*similar, *get_close_matches(path, names, 1)]), "/v1/embeddings")
        base = " A client whose base URL ends with /v1 finds it." if meant.startswith("/v1/") else ""
        return f"there is no such path here. Use {meant}.{base}"

    def _check(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        if b"transfer-encoding" in headers and b"content-length" in headers:  # two ideas of where the request ends
            message = "the request has both Content-Length and Transfer-Encoding. Send one of them."
            raise RequestError(400, message, headers={"Connection": "close"})
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18:
            raise RequestError(400, "Content-Length is not a whole number.", headers={"Connection": "close"})
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts is not None and _host_name(f"//{host}") not in self._hosts:
            raise RequestError(421, f"this server is called by another name. See {option('host')}.")
        origin = headers.get(b"origin")
        if origin is not None and not origin.decode("latin-1").endswith(f"://{host}"):
            raise RequestError(403, "pages of other sites may not ask this server.")
        path = scope["path"]
        is_open = path in self._open_paths or path.startswith(self._open_prefix)
        if self._keys and not (is_open and scope["method"] in ("GET", "HEAD")):
            scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
            given = key.strip() if scheme.lower() == b"bearer" else headers.get(b"api-key", b"")
            # every key is compared, in constant time, so that the time tells nothing
            if not sum([hmac.compare_digest(given, key) for key in self._keys]):
                said = "this key is not right" if given else "a key is needed"
                message = f"{said}: send the header Authorization: Bearer KEY, or api-key: KEY."
                raise RequestError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _place_of(error: BaseException) -> str:
    """File and line where an error was raised."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return ""
    return f"{traceback.tb_frame.f_code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno}"
