"""Embedding APIs as clients see them: dialects, requests, what they refuse, and a cache of their vectors."""

from importlib import import_module
from typing import Any

_MODULE_OF = dict.fromkeys(("Endpoint", "Session"), "session")  # imported when used: httpx and asyncio take 0.3 s


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'isosent.api' has no attribute {name!r}")
    return getattr(import_module(f"isosent.api.{_MODULE_OF[name]}"), name)
