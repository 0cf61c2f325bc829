"""``-m`` and one flag for every option of a model reference, generated from the grammar."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from isosent.cli.flags import flag, with_flags
from isosent.cli.terminal import progress_bar
from isosent.encoders.options import OPTIONS, RUNTIME_OPTIONS
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.loading import load, read_record
from isosent.model import SentenceEncoder
from isosent.model_record import ModelRecord


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that the command line names; it is opened when a command asks for it.

    Parameters
    ----------
    reference : str
        Model reference.
    options : dict of str to str
        What the flags say.
    is_named : bool
        Whether the command line says anything of it.
    """

    reference: str
    options: dict[str, str]
    is_named: bool

    def open(self) -> SentenceEncoder:
        """Open the model.

        Returns
        -------
        SentenceEncoder
            The model.
        """
        with progress_bar("reading word vectors", "bytes") as bar:
            return load(self.reference, options=self.options, progress=bar)

    def read_record(self) -> ModelRecord:
        """Read what the model is, without opening the encoder of a saved folder.

        Returns
        -------
        ModelRecord
            The record.
        """
        return read_record(self.reference, options=self.options)


def with_model_flags(
    *, argument: bool = False, computes: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of a model reference in place of its parameter ``model``.

    Parameters
    ----------
    argument : bool, default False
        Whether the reference is the command's argument and not ``-m``.
    computes : bool, default True
        Whether the command opens the encoder, and so takes the options of how to compute.

    Returns
    -------
    callable
        A decorator for a command with a parameter ``model`` of type ModelChoice.
    """
    names = [name for name in OPTIONS if computes or name not in RUNTIME_OPTIONS]

    def build(values: Mapping[str, Any]) -> ModelChoice:
        flags = {name: _written(values[name]) for name in names if values[name] is not None}
        reference = DEFAULT_REFERENCE if values["model"] is None else values["model"]
        return ModelChoice(reference, flags, is_named=values["model"] is not None or bool(flags))

    return with_flags("model", [_reference(argument), *map(_flag, names)], build, first=argument)


def _reference(argument: bool) -> inspect.Parameter:
    help_text = (
        "Model reference: wordllama, words:FILE, static:DIR, hf:ID-OR-DIR or a saved folder. "
        f"[default: {DEFAULT_REFERENCE}]"
    )
    option = typer.Option("--model", "-m", metavar="REFERENCE", help=help_text)
    kind = typer.Argument(help=help_text) if argument else option
    return flag("model", Annotated[str | None, kind])


def _flag(name: str) -> inspect.Parameter:
    option, dashed = OPTIONS[name], name.replace("_", "-")
    is_switch = option.values == "true|false"
    names = f"--{dashed}/--no-{dashed}" if is_switch else f"--{dashed}"
    metavar = None if is_switch else option.values.upper() if option.values.isalpha() else option.values
    info = typer.Option(names, help=option.summary, metavar=metavar, show_default=False, rich_help_panel=option.panel)
    return flag(name, Annotated[(bool if is_switch else str) | None, info], None)


def _written(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value
