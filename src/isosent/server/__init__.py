"""Serve models and indexes over HTTP, and apply a map to the answers of an embedding API."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from isosent import _extras

if TYPE_CHECKING:
    from isosent.server.app import create_app
    from isosent.server.limits import Limits
    from isosent.server.maps import Learner as Learner
    from isosent.server.maps import Maps as Maps
    from isosent.server.proxy import Proxy as Proxy
    from isosent.server.proxy import create_proxy as create_proxy
    from isosent.server.run import check_address as check_address
    from isosent.server.run import is_loopback as is_loopback
    from isosent.server.run import read_keys as read_keys
    from isosent.server.run import serve as serve
    from isosent.server.workers import serve_workers as serve_workers

_MODULE_OF = {
    "Limits": "limits",
    "create_app": "app",
    **dict.fromkeys(("Learner", "Maps"), "maps"),
    **dict.fromkeys(("Proxy", "create_proxy"), "proxy"),
    **dict.fromkeys(("check_address", "is_loopback", "read_keys", "serve"), "run"),
    "serve_workers": "workers",
}
_WITHOUT_EXTRA = "Limits"  # which help shows

__all__ = ["Limits", "create_app"]  # the command line alone uses the others


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'isosent.server' has no attribute {name!r}")
    for package in ("starlette", "uvicorn", "orjson", "prometheus_client") if name != _WITHOUT_EXTRA else ():
        _extras.require(package)
    return getattr(import_module(f"isosent.server.{_MODULE_OF[name]}"), name)
