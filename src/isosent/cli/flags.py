"""Commands that take one value made of many flags."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from isosent.errors import InputError


def flag(name: str, annotation: Any, default: object = None) -> inspect.Parameter:
    """A flag of a command.

    Parameters
    ----------
    name : str
        Name of the parameter.
    annotation : type
        With the typer option in it.
    default : object, optional
        Its value where it is left out.

    Returns
    -------
    inspect.Parameter
        The parameter, keyword only.
    """
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_flags(
    parameter: str,
    flags: Sequence[inspect.Parameter],
    build: Callable[[Mapping[str, Any]], object],
    *,
    first: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put flags in the place of one parameter of a command.

    Parameters
    ----------
    parameter : str
        Name of the parameter that goes.
    flags : sequence of inspect.Parameter
        What comes.
    build : callable
        From the values of the flags to the value of the parameter.
    first : bool, default False
        Whether the flags stand in front of the others.

    Returns
    -------
    callable
        A decorator.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [
            other.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, other in signature.parameters.items()
            if name != parameter
        ]
        parameters = [*flags, *own] if first else [*own, *flags]

        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            built = build({flag.name: values.pop(flag.name) for flag in flags})
            command(**{parameter: built}, **values)

        wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {other.name: other.annotation for other in parameters}
        return wrapped

    return decorate


def split_names(written: str | None) -> list[str] | None:
    """Split names at their commas; None where there is nothing."""
    return None if written is None else written.split(",")


def whole_numbers(name: str, written: str) -> list[int]:
    """Read whole numbers with commas between; `name` is the flag that they belong to."""
    try:
        return [int(number) for number in written.split(",")]
    except ValueError:
        raise InputError(f"{name} must be whole numbers with commas between; got {written!r}.") from None
