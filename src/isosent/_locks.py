"""A lock that a forked child finds free."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from types import TracebackType
from weakref import WeakSet


class Lock:
    """Let one thread in at a time. A forked child finds it free, whichever thread of its parent had it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(RuntimeError):  # in a child that was forked within the block, it is free already
            self._lock.release()


_LOCKS: WeakSet[Lock] = WeakSet()


def _free_all() -> None:
    for lock in _LOCKS:
        lock._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
