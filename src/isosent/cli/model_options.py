"""``-m`` and one flag for every option of a model reference, generated from the grammar."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from isosent.encoders.reference import DEFAULT_REFERENCE, OPTIONS
from isosent.model import SentenceEncoder, load, read_record
from isosent.model_record import ModelRecord

_PANEL = "Model"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that the command line names; it is opened when a command asks for it.

    Parameters
    ----------
    reference : str
        Model reference.
    options : dict of str to str
        What the flags say.
    """

    reference: str
    options: dict[str, str]

    def open(self) -> SentenceEncoder:
        """Open the model.

        Returns
        -------
        SentenceEncoder
            The model.
        """
        return load(self.reference, options=self.options)

    def read_record(self) -> ModelRecord:
        """Read what the model is, without opening the encoder of a saved folder.

        Returns
        -------
        ModelRecord
            The record.
        """
        return read_record(self.reference, options=self.options)


def with_model_flags(*, argument: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of a model reference in place of its parameter ``model``.

    Parameters
    ----------
    argument : bool, default False
        Whether the reference is the command's argument and not ``-m``.

    Returns
    -------
    callable
        A decorator for a command with a parameter ``model`` of type ModelChoice.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in signature.parameters.items()
            if name != "model"
        ]
        parameters = [_reference(argument), *own] if argument else [*own, _reference(argument)]
        parameters += [_flag(name) for name in OPTIONS]

        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            reference = values.pop("model")
            flags = {name: values.pop(name) for name in OPTIONS}
            options = {name: _written(value) for name, value in flags.items() if value is not None}
            command(model=ModelChoice(reference, options), **values)

        wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapped

    return decorate


def _reference(argument: bool) -> inspect.Parameter:
    help_text = "Model reference: wordllama, words:FILE, static:DIR, hf:ID-OR-DIR or a saved folder."
    option = typer.Option("--model", "-m", metavar="REFERENCE", help=help_text)
    kind = typer.Argument(help=help_text) if argument else option
    return _parameter("model", Annotated[str, kind], DEFAULT_REFERENCE)


def _flag(name: str) -> inspect.Parameter:
    option, dashed = OPTIONS[name], name.replace("_", "-")
    is_switch = option.values == "true|false"
    names = f"--{dashed}/--no-{dashed}" if is_switch else f"--{dashed}"
    metavar = None if is_switch else option.values.upper() if option.values.isalpha() else option.values
    info = typer.Option(names, help=option.summary, metavar=metavar, show_default=False, rich_help_panel=_PANEL)
    return _parameter(name, Annotated[(bool if is_switch else str) | None, info], None)


def _parameter(name: str, annotation: Any, default: str | None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _written(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value
