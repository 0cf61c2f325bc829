"""What the handlers of a server share: models, limits, state."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.requests import Request

from isosent.server.heavy import HeavyWork
from isosent.server.limits import Limits, RequestError
from isosent.server.metrics import Metrics
from isosent.server.registry import Registry
from isosent.server.tried import TextSets


@dataclass(eq=False)
class Service:
    """A running server."""

    registry: Registry
    limits: Limits
    metrics: Metrics
    has_keys: bool = False
    is_draining: bool = False
    text_sets: TextSets = field(default_factory=TextSets)
    heavy: HeavyWork = field(default_factory=HeavyWork)
    started_at: int = field(default_factory=lambda: int(time.time()))

    def reload(self) -> None:
        """Load all models again."""
        with suppress(RequestError):  # one is running
            self.registry.reload()


def check_space(request: Request, space: str) -> None:
    """Refuse a request whose vectors are to be compared with those of another space."""
    wanted = request.headers.get("if-space")
    if wanted is not None and wanted.strip('"') != space:
        raise RequestError(409, f"If-Space names another vector space; that of this model is {space}.")


def space_headers(space: str, n_truncated: int | None) -> dict[str, str]:
    """Headers of every response with vectors; it is not known of all how many texts were cut."""
    truncated = {} if n_truncated is None else {"X-Isosent-Truncated": str(n_truncated)}
    return {"X-Isosent-Space": space, **truncated}
