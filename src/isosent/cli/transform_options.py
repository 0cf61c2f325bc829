"""``--transform`` and the flags of its settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from isosent.cli.flags import flag, with_flags
from isosent.errors import InputError
from isosent.transforms.base import AUTO, Transform
from isosent.transforms.choice import TRANSFORMS, make_transform

_PANEL = "Transform"
_FLOW = "flow"
NO_TRANSFORM = "none"
_NAMES = f"auto, or one or more, with commas between them, of {', '.join(TRANSFORMS)}."


@dataclass(frozen=True, slots=True)
class TransformChoice:
    """The transform that the command line names.

    Parameters
    ----------
    names : str
        "auto", or names of `TRANSFORMS` with commas between them.
    settings : dict of str to object
        What the flags say.
    is_named : bool
        Whether the command line says anything of it.
    """

    names: str
    settings: dict[str, Any]
    is_named: bool

    def make(self, dim: int | None) -> Transform | Literal["auto"]:
        """Make the transform.

        Parameters
        ----------
        dim : int or None
            Dimensions of the vectors that it will be fitted on; with them, settings are checked at once.

        Returns
        -------
        Transform or "auto"
            What a model's `fit` takes.

        Raises
        ------
        InputError
            If a setting is out of range, or belongs to none of the transforms.
        """
        if self.names != AUTO:
            return make_transform(self.names, dim=dim, settings=self.settings)
        if self.settings:
            raise InputError(
                f"auto chooses {_flags(self.settings)} itself. "
                "For a width of your own: --transform whitening --dims K --strength auto."
            )
        return AUTO


def with_transform_flags(
    default: str | None, *, dims: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command ``--transform`` and the flags of its settings in place of its parameter ``transform``.

    Parameters
    ----------
    default : str or None
        The transform where none is named.
    dims : bool, default True
        Whether ``--dims`` is among the flags; a command that looks at several widths has its own.

    Returns
    -------
    callable
        A decorator for a command with a parameter ``transform`` of type TransformChoice; None where there is no default
        and none is named.
    """

    def build(values: Mapping[str, Any]) -> TransformChoice | None:
        given = {setting: _number(values[name]) for setting, name in _FLAG_OF.items() if values.get(name) is not None}
        given |= {} if values[_FLOW] is None else flow_settings(values[_FLOW])
        names = values["transform"] or default
        if names is not None:
            return TransformChoice(names, given, is_named=values["transform"] is not None or bool(given))
        if given:
            suited = "whitening" if values[_FLOW] is None else "glow_flow"
            raise InputError(f"{_flags(given)} must come with a transform to set. Add --transform {suited}.")
        return None

    settings = [setting for setting in _SETTINGS if dims or setting.name != "dims"]
    flags = [_flag("transform", "NAMES", f"{_NAMES} [default: {default or 'none'}]"), *settings]
    return with_flags("transform", flags, build)


def _flag(name: str, metavar: str, summary: str) -> Any:
    option = typer.Option(f"--{name}", metavar=metavar, help=summary, show_default=False, rich_help_panel=_PANEL)
    return flag(name, Annotated[str | None, option], None)


_SETTINGS = [
    _flag(
        "dims",
        "K|SHARE|auto",
        "Dimensions kept (for all_but_the_top and common_component_removal: removed), the share of variance that they "
        "must hold, as in 0.95, or auto. [default: all]",
    ),
    _flag("strength", "G|auto", "Whitening: 0 only rotates (PCA), 1 whitens fully. [default: 1]"),
    _flag("method", "NAME", "Whitening: pca, zca, pca_cor, zca_cor or cholesky. [default: pca]"),
    _flag("shrinkage", "A|NAME", "Whitening: pull of the covariance to the identity, ledoit_wolf or oas."),
    _flag("eps", "E", "Whitening: added to the variances (Soft-ZCA). [default: 0]"),
    _flag(_FLOW, "SETTINGS", "glow_flow: as in depth=2,n_epochs=3,seed=1."),
]
_FLAG_OF = {"n_components": "dims", "strength": "strength", "method": "method", "shrinkage": "shrinkage", "eps": "eps"}


def _flags(settings: Mapping[str, Any]) -> str:
    return ", ".join(dict.fromkeys(f"--{_FLAG_OF.get(name, _FLOW)}" for name in settings))


def flow_settings(written: str) -> dict[str, Any]:
    """Read settings of a flow from the command line.

    Parameters
    ----------
    written : str
        As in ``depth=2,seed=1``.

    Returns
    -------
    dict of str to object
        Value by name.

    Raises
    ------
    InputError
        If it is written otherwise.
    """
    pairs = [setting.partition("=") for setting in written.split(",")]
    if not all(name and value for name, _, value in pairs):
        raise InputError(f"--flow must be NAME=VALUE with commas between, as in depth=2,seed=1; got {written!r}.")
    return {name.strip(): _number(value) for name, _, value in pairs}


def _number(text: str) -> int | float | str:
    """A whole number, a number, or the word that it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
