"""What embedding APIs were asked in this process, for whoever says so at the end of a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from isosent._locks import Lock


class Usage(NamedTuple):
    """What an API was asked."""

    n_texts: int = 0
    n_tokens: int = 0  # that it charged for, as far as it says
    n_cached: int = 0  # texts whose vectors were in the cache
    folder: Path | None = None  # where its answers are kept

    def plus(self, n_texts: int, n_tokens: int, n_cached: int) -> Usage:
        """The same with more texts and tokens."""
        return Usage(self.n_texts + n_texts, self.n_tokens + n_tokens, self.n_cached + n_cached, self.folder)


used: dict[str, Usage] = {}  # by the references of the APIs
_lock = Lock()


def _nothing() -> None:
    """What is done before texts are sent, unless somebody wants to know."""


before_sending: Callable[[], object] = _nothing  # called in the thread that has texts to be sent


def count(reference: str, folder: Path | None, n_texts: int, n_tokens: int, n_cached: int) -> None:
    """Add to what an API was asked."""
    with _lock:
        before = used.get(reference, Usage())._replace(folder=folder)
        used[reference] = before.plus(n_texts, n_tokens, n_cached)


def take() -> dict[str, Usage]:
    """What was counted in this process since the last call, to be added in another one."""
    with _lock:
        taken = dict(used)
        used.clear()
    return taken


def add(taken: Mapping[str, Usage]) -> None:
    """Count what another process was asked for this one."""
    for reference, each in taken.items():
        count(reference, each.folder, each.n_texts, each.n_tokens, each.n_cached)
