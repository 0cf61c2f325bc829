"""Run an application with uvicorn: signals, draining, reload, clients that are slow, and the log.

`serve` binds the address and runs `Server`: uvicorn, with a pause between "not ready" and the end. A client that
neither sends nor reads holds memory: the half of a request, or an answer that waits. `Connection` notes since when, and
`Server` looks every second and ends those that take too long. There are three limits: the number of connections, the
time of each, and the bytes of all answers that wait. All of this runs in the event loop; a reload runs in a thread. The
log is written as lines of JSON (`JsonLines`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import Any, Final

import orjson
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from isosent import _check
from isosent.errors import InputError, option
from isosent.io.bounds import decode_utf8
from isosent.server.limits import KEYS_VARIABLE, Limits, flag_of
from isosent.server.service import MOST_UNREAD, Service, freeze_memory

_LARGEST_HEADERS = 1 << 14
_SHORTEST_KEY = 16
_BACKLOG = 2048
_SPARE_FILES = 32  # for models, indexes and bodies, beside those that are open at the start
_SAID_EVERY_S = 60.0
_log = logging.getLogger("isosent.server")
_SWEEP_S: Final = 1.0
_LARGEST_JOINED: Final = 1 << 16
_LEAST_READ: Final = 1 << 20  # bytes of an answer, in the time of a request
_FULL: Final = orjson.dumps({"error": {"message": "too many connections. Try again in 1 s.", "type": "server_error"}})
_REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, *, has_keys: bool) -> None:
    """Refuse to serve other machines without keys."""
    if not is_loopback(host) and not has_keys:
        raise InputError(
            f"{option('host', host)}: without keys, only this machine may be served (127.0.0.1). Add "
            f"{option('api_key_file')}, or set {KEYS_VARIABLE}."
        )


def read_keys(file: Path | None) -> list[str]:
    """Keys of clients: the lines of a file, or of an environment variable."""
    if file is None:
        name, content = KEYS_VARIABLE, os.environ.get(KEYS_VARIABLE, "").replace(",", "\n")
        if not content.strip():
            return []
    else:
        name = str(file)
        content = decode_utf8(name, _check.input_file(file).read_bytes())
    keys = [line.strip() for line in content.splitlines() if line.strip() and not line.startswith("#")]
    if not keys:
        raise InputError(f"{name} holds no key.")
    if any(len(key) < _SHORTEST_KEY or not key.isascii() or " " in key for key in keys):
        raise InputError(f"{name}: a key needs at least {_SHORTEST_KEY} ASCII characters and no whitespace.")
    return keys


class _JoinedWrites:
    """A transport that sends the head and the body of a small answer in one step of the event loop with one call."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._parts = transport, loop, list[bytes]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Keep a part until the loop comes round, or send all if it is large."""
        if not self._parts and len(data) <= _LARGEST_JOINED:
            self._loop.call_soon(self.flush)
        self._parts.append(data)
        if len(data) > _LARGEST_JOINED:
            self.flush()

    def flush(self) -> None:
        """Send what is kept."""
        if self._parts:
            content, self._parts = b"".join(self._parts), []
            self._transport.write(content)

    def close(self) -> None:
        """Send what is kept, and close the connection."""
        self.flush()
        self._transport.close()


class Connection(H11Protocol):  # type: ignore[misc, unused-ignore]
    """A connection that knows since when it waits for its client."""

    limits: Limits
    waiting_since: float | None = None  # for a request, or the rest of one
    idle_since: float | None = None  # between two requests
    unread_since: float | None = None  # an answer, or the last part of it
    _unread_then = 0
    _unread_at_sweep: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take one of the places, or that of a client who has sent nothing for a while."""
        super().connection_made(_JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        now = self.waiting_since = self.loop.time()
        others: set[Connection] = self.connections  # type: ignore[assignment]
        present = [each for each in others if not each.transport.is_closing()]
        if len(present) > self.limits.max_connections:
            quiet = [(each.quiet_since or now, id(each), each) for each in present]
            idle = [entry for entry in quiet if now - entry[0] >= _SWEEP_S]
            if idle:
                min(idle)[-1].end()
            else:
                transport.write(_REFUSAL)
                transport.close()

    def data_received(self, data: bytes) -> None:
        """Note when a request begins, and when it is there."""
        if self.waiting_since is None and not self._is_answering:
            self.waiting_since = self.loop.time()
        self.idle_since = None
        super().data_received(data)
        if self._is_answering:
            self.waiting_since = None

    def on_response_complete(self) -> None:
        """Note that the client may send another request."""
        super().on_response_complete()
        if not self._is_answering:
            self.idle_since = self.loop.time()

    @property
    def quiet_since(self) -> float | None:
        """Since when nothing has come from the client, or only a part of a request."""
        return self.waiting_since or self.idle_since

    def pause_writing(self) -> None:
        """Note that an answer waits for the client to read it."""
        super().pause_writing()
        self.unread_since, self._unread_then, self._unread_at_sweep = self.loop.time(), self.n_unread, None

    def resume_writing(self) -> None:
        """Note that it has been read."""
        super().resume_writing()
        self.unread_since = None

    @property
    def n_unread(self) -> int:
        """Bytes that wait for the client to read them."""
        return self.transport.get_write_buffer_size()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def waits(self, now: float, seconds: float) -> bool:
        """Whether the client has sent no whole request for so long."""
        return self.waiting_since is not None and now - self.waiting_since >= seconds

    def is_read_too_slowly(self, now: float) -> bool:
        """Whether too little of an answer was read since the last look."""
        if self.unread_since is None or now - self.unread_since < self.limits.request_timeout_s:
            return False
        n_read, self._unread_then, self.unread_since = self._unread_then - self.n_unread, self.n_unread, now
        return n_read < _LEAST_READ

    def is_stalled(self) -> bool:
        """Whether next to nothing of an answer was read since the last sweep."""
        before, self._unread_at_sweep = self._unread_at_sweep, self.n_unread
        return before is not None and before - self.n_unread < _LEAST_READ * _SWEEP_S / self.limits.request_timeout_s

    def end(self) -> None:
        """Close the connection, and drop what the client has not read: it may never read it."""
        if self.n_unread:
            self.transport.abort()
        else:
            self.transport.close()


def _close_slow(connections: Iterable[Connection], now: float) -> None:
    """End the connections of clients that send or read too slowly."""
    unread = []
    for connection in connections:
        if connection.waits(now, connection.limits.request_timeout_s) or connection.is_read_too_slowly(now):
            connection.end()
        elif connection.unread_since is not None:
            unread.append(connection)
    n_bytes = sum(connection.n_unread for connection in unread)
    stalled = [connection for connection in unread if connection.is_stalled()]
    for connection in sorted(stalled, key=lambda each: each.unread_since or now):
        if n_bytes <= MOST_UNREAD:
            return
        n_bytes -= connection.n_unread
        connection.end()


class Server(uvicorn.Server):
    """uvicorn, with a pause between "not ready" and the end.

    On the first SIGTERM or SIGINT, ``/ready`` answers 503. After `drain_delay_s`, in which load balancers notice, no
    connection is accepted; after `drain_timeout_s` at most, requests in flight have been answered. A second signal ends
    the process at once. SIGHUP loads all models again.
    """

    def __init__(
        self,
        app: Starlette,
        config: uvicorn.Config,
        *,
        drain_delay_s: float,
        on_started: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._service: Service = app.state.service
        self._service.n_unread = self._n_unread
        self._full_said_at = -math.inf
        self._drain_delay_s = drain_delay_s
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: Any = None) -> None:
        """Serve until a signal."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_error)
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            self._loop.add_signal_handler(signal.SIGHUP, self._reload)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # one that came earlier is delivered now
        sweeping = asyncio.create_task(self._close_slow())
        try:
            await super().serve(sockets)
        finally:
            sweeping.cancel()

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and say so: from here on, signals have their handlers."""
        await super().startup(sockets)
        if self.started:
            self._on_started()

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what no request failed by; once a minute that there are no files for connections."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)):
            loop.default_exception_handler(context)
        elif loop.time() - self._full_said_at >= _SAID_EVERY_S:
            self._full_said_at = loop.time()
            advice = f"raise the limit (ulimit -n), or lower {flag_of('max_connections')}"
            _log.error("too many open files", extra={"facts": {"advice": advice}})

    def _n_unread(self) -> int:
        connections: list[Any] = [*self.server_state.connections]
        return sum(connection.n_unread for connection in connections)

    async def _close_slow(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            connections: list[Any] = [*self.server_state.connections]
            _close_slow(connections, asyncio.get_running_loop().time())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; at once the second time."""
        if self._service.is_draining:
            # uvicorn calls what is interrupted a failure of the application
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            _log.warning("stopped at once", extra={"facts": {"signal": sig, "requests": len(self.server_state.tasks)}})
            self.should_exit = self.force_exit = True
            return
        self._service.is_draining = True
        _log.info("draining", extra={"facts": {"signal": sig}})
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, self._drain_delay_s, self._stop)

    def _stop(self) -> None:
        self.should_exit = True

    def _reload(self) -> None:
        threading.Thread(target=self._service.reload, daemon=True).start()


def serve(
    app: Starlette,
    *,
    host: str,
    port: int,
    drain_delay_s: float = 0,
    drain_timeout_s: float = 30,
    sockets: Sequence[Any] | None = None,
    on_started: Callable[[], None] | None = None,
) -> None:
    """Serve an application until a signal. `on_started` is called instead of a line in the log.

    Raises
    ------
    InputError
        If the address is not of this machine alone and there are no keys, or it is in use.
    """
    service: Service = app.state.service
    check_address(host, has_keys=service.has_keys)
    log_to_stderr()
    service.limits = _within_open_files(service.limits)

    class Limited(Connection):
        limits = service.limits

    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Limited,
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        h11_max_incomplete_event_size=_LARGEST_HEADERS,
        timeout_graceful_shutdown=math.ceil(drain_timeout_s),
        lifespan="on",
        backlog=min(_BACKLOG, service.limits.max_connections),  # asyncio accepts so many at once
    )
    bound = [bound_socket(host, port)] if sockets is None else list(sockets)
    if sockets is None:
        bound[0].listen(_BACKLOG)  # from here on connections wait, and are not refused
    address = bound[0].getsockname()
    facts = {"host": address[0], "port": address[1]}
    announce = partial(_log.info, "listening", extra={"facts": facts})
    freeze_memory()
    Server(app, config, drain_delay_s=drain_delay_s, on_started=on_started or announce).run(sockets=bound)


def _within_open_files(limits: Limits) -> Limits:
    """Raise the limit of open files to what the connections need, or take fewer connections."""
    if sys.platform == "win32":
        return limits
    import resource  # Windows has none

    n_open = len(os.listdir("/dev/fd")) + _SPARE_FILES  # noqa: PTH208
    needed = n_open + 2 * limits.max_connections  # all that wait are accepted before one is refused
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limits
    n_connections = max(1, (soft - n_open) // 2)
    facts = {
        "max_connections": n_connections,
        "open_files": soft,
        "advice": "raise the limit of open files (ulimit -n)",
    }
    _log.warning("fewer connections than requested", extra={"facts": facts})
    return replace(limits, max_connections=n_connections)


def bound_socket(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A socket for an address; one that is shared by others of this user, if they say so too."""
    # The protocol is named, or asyncio would not set TCP_NODELAY, and every answer would wait 40 ms for the client.
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        place = f"{option('host', host)} {option('port', port)}"
        raise InputError(f"{place}: {error.strerror}. Name another address or port.") from None
    return sock


# -- the log -----------------------------------------------------------------------------------------------------------


class JsonLines(logging.Formatter):
    """A line of JSON for every message. Texts of clients and keys are in none."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = _time_of(int(record.created))
        # of other libraries only the template, if it is a sentence: what they fill in may be a text
        event = record.msg if isinstance(record.msg, str) and "\n" not in record.msg else f"{record.name} failed"
        facts = {"time": f"{when}.{int(record.msecs):03d}Z", "level": record.levelname.lower(), "event": event}
        return orjson.dumps(facts | getattr(record, "facts", {})).decode()


@lru_cache(maxsize=1)
def _time_of(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


class _StandardError(logging.StreamHandler[Any]):
    """Writes to what standard error is now, not to what it was: who replaced it may have closed that."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def log_to_stderr() -> None:
    """Write the log to standard error, a line of JSON for every message or warning."""
    handler = _StandardError()
    handler.setFormatter(JsonLines())
    for name, level in (("isosent.server", logging.INFO), ("uvicorn", logging.WARNING), ("asyncio", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)

    def log_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        _log.warning("warning", extra={"facts": {"kind": category.__name__}})

    warnings.showwarning = log_warning
