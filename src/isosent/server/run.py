"""Run an application with uvicorn: signals, draining, reload."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from isosent.errors import InputError, InputFileError
from isosent.server.connections import SWEEP_S, Connection, close_slow
from isosent.server.http import log_to_stderr
from isosent.server.service import Service

KEYS_VARIABLE = "ISOSENT_API_KEYS"
_LARGEST_HEADERS = 1 << 14
_SHORTEST_KEY = 16
_BACKLOG = 2048
_log = logging.getLogger("isosent.server")


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
            f"--host {host}: without keys, only this machine may be served (127.0.0.1). Add --api-key-file, or set "
            f"{KEYS_VARIABLE}."
        )


def read_keys(file: Path | None) -> list[str]:
    """Keys of clients: the lines of a file, or of an environment variable."""
    if file is None:
        name, content = KEYS_VARIABLE, os.environ.get(KEYS_VARIABLE, "").replace(",", "\n")
        if not content.strip():
            return []
    else:
        try:
            name, content = str(file), file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputFileError(f"{file} must be a text file of keys; {error}.") from None
    keys = [line.strip() for line in content.splitlines() if line.strip() and not line.startswith("#")]
    if not keys:
        raise InputError(f"{name} holds no key.")
    if any(len(key) < _SHORTEST_KEY or not key.isascii() or " " in key for key in keys):
        raise InputError(f"{name}: a key must have at least {_SHORTEST_KEY} ASCII characters and no blank.")
    return keys


class Server(uvicorn.Server):
    """uvicorn, with a pause between "not ready" and the end.

    On the first SIGTERM or SIGINT, ``/ready`` answers 503. After `drain_delay_s`, in which load balancers notice, no
    connection is accepted; after `drain_timeout_s` at most, requests in flight have been answered. A second signal ends
    the process at once. SIGHUP loads all models again.
    """

    def __init__(self, app: Starlette, config: uvicorn.Config, *, drain_delay_s: float) -> None:
        super().__init__(config)
        self._service: Service = app.state.service
        self._drain_delay_s = drain_delay_s
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: Any = None) -> None:
        """Serve until a signal."""
        self._loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        sweeping = asyncio.create_task(self._close_slow())
        try:
            await super().serve(sockets)
        finally:
            sweeping.cancel()

    async def _close_slow(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            connections: list[Any] = [*self.server_state.connections]
            close_slow(connections, asyncio.get_running_loop().time())

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
) -> None:
    """Serve an application until a signal.

    Raises
    ------
    InputError
        If the address is not of this machine alone and there are no keys, or it is in use.
    """
    service: Service = app.state.service
    check_address(host, has_keys=service.has_keys)

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
    )
    log_to_stderr()
    bound = [_listening(host, port)] if sockets is None else list(sockets)
    address = bound[0].getsockname()
    _log.info("listening", extra={"facts": {"host": address[0], "port": address[1]}})
    Server(app, config, drain_delay_s=drain_delay_s).run(sockets=bound)


def _listening(host: str, port: int) -> socket.socket:
    # The protocol is named, or asyncio would not set TCP_NODELAY, and every answer would wait 40 ms for the client.
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)  # from here on connections wait, and are not refused
    except OSError as error:
        sock.close()
        raise InputError(f"--host {host} --port {port}: {error.strerror}. Name another address or port.") from None
    return sock
