"""Kernels that numba compiles when they first run: importing numba takes longer than encoding a few texts."""

from collections.abc import Callable
from functools import update_wrapper
from importlib.util import find_spec
from typing import Any, TypeVar

from isosent import _extras
from isosent._locks import Lock

Function = TypeVar("Function", bound=Callable[..., Any])

_lock = Lock()


def has_compiler() -> bool:
    """Whether numba is installed; without it, kernels cannot run."""
    return find_spec("numba") is not None


def njit(**options: Any) -> Callable[[Function], Function]:
    """Compile a function as ``numba.njit`` does, at its first call instead of at import."""

    def defer(function: Function) -> Function:
        return _Kernel(function, options)  # type: ignore[return-value]

    return defer


class _Kernel:
    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._options, self._dispatcher = function, options, None
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        return (self._dispatcher or self._compiled())(*args)

    @property
    def _numba_type_(self) -> Any:
        # numba reads this attribute of every global, so one kernel can call another
        return self._compiled()._numba_type_

    def _compiled(self) -> Any:
        with _lock:  # several threads may run the first call
            if self._dispatcher is None:
                numba = _extras.require("numba")
                self._dispatcher = numba.njit(**self._options)(self._function)
        return self._dispatcher
