"""Connections: how many there may be, and how long a client may take to send a request and to read an answer.

A client that neither sends nor reads holds memory: the half of a request, or an answer that waits. `Connection` notes
since when; `close_slow` is called every second and ends those that take too long. There are three limits: the number
of connections, the time of each, and the bytes of all answers that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol

from isosent.server.limits import Limits

SWEEP_S: Final = 1.0
_LEAST_READ: Final = 1 << 20  # bytes of an answer, in the time of a request
_MOST_UNREAD: Final = 64 << 20  # bytes of several answers, for longer than a sweep
_FULL: Final = orjson.dumps({"error": {"message": "too many connections. Try again in 1 s.", "type": "server_error"}})
_REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


class Connection(H11Protocol):  # type: ignore[misc, unused-ignore]
    """A connection that knows since when it waits for its client."""

    limits: Limits
    waiting_since: float | None = None  # for a request, or the rest of one
    unread_since: float | None = None  # an answer, or the last part of it
    _unread_then = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take one of the places, or that of a client who has sent nothing for a while."""
        super().connection_made(transport)
        now = self.waiting_since = self.loop.time()
        if len(self.connections) > self.limits.max_connections:
            others: set[Connection] = self.connections  # type: ignore[assignment]
            idle = [(each.waiting_since, id(each), each) for each in others if each.waits(now, SWEEP_S)]
            if idle:
                min(idle)[-1].end()
            else:
                transport.write(_REFUSAL)
                transport.close()

    def data_received(self, data: bytes) -> None:
        """Note when a request begins, and when it is there."""
        if self.waiting_since is None and not self._is_answering:
            self.waiting_since = self.loop.time()
        super().data_received(data)
        if self._is_answering:
            self.waiting_since = None

    def pause_writing(self) -> None:
        """Note that an answer waits for the client to read it."""
        super().pause_writing()
        self.unread_since, self._unread_then = self.loop.time(), self.n_unread

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

    def end(self) -> None:
        """Close the connection, and drop what the client has not read: it may never read it."""
        if self.n_unread:
            self.transport.abort()
        else:
            self.transport.close()


def close_slow(connections: Iterable[Connection], now: float) -> None:
    """End the connections of clients that send or read too slowly."""
    unread = []
    for connection in connections:
        if connection.waits(now, connection.limits.request_timeout_s) or connection.is_read_too_slowly(now):
            connection.end()
        elif connection.unread_since is not None:
            unread.append(connection)
    n_bytes = sum(connection.n_unread for connection in unread)
    for connection in sorted(unread, key=lambda each: each.unread_since or now)[:-1]:  # one may be as long as it is
        if n_bytes <= _MOST_UNREAD or now - (connection.unread_since or now) < SWEEP_S:
            return
        n_bytes -= connection.n_unread
        connection.end()
