"""Serve models and indexes over HTTP, and apply a map to the answers of an embedding API."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isosent.server.app import create_app
    from isosent.server.service import Limits

_MODULE_OF = {"Limits": "service", "create_app": "app"}

__all__ = ["Limits", "create_app"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'isosent.server' has no attribute {name!r}")
    return getattr(import_module(f"isosent.server.{_MODULE_OF[name]}"), name)
