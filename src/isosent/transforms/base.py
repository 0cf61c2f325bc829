"""The interface of transforms, and transforms by name. Making the first transform imports scikit-learn."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from isosent import _check
from isosent.errors import InputError, InputTypeError, option, wrong_value
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.transforms.step import Step

if TYPE_CHECKING:
    from typing_extensions import TypeIs

AUTO: Final = "auto"
NO_TRANSFORM: Final = "none"
PURPOSES: Final = ("pairs", "topics", "search")


class LinearTransform(Protocol):
    """A transform that becomes one linear map. It is fitted without labels, on vectors or on their moments."""

    @property
    def linear_map_(self) -> LinearMap:
        """The fitted map."""
        ...

    @property
    def normalize_(self) -> bool:
        """Whether rows are scaled to length 1 after the map."""
        ...

    def fit_moments(self, moments: Moments) -> Self:
        """Fit on the moments of vectors."""
        ...

    def check_settings(self, dim: int) -> None:
        """Refuse settings that are out of range for vectors of `dim` dimensions."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name."""
        ...


@dataclass(frozen=True, slots=True)
class FitProgress:
    """Progress of a fit on vectors, and the likelihood of the rows that are held out."""

    n_rows: int  # rows trained on so far, each epoch counted
    n_total: int  # rows to train on
    held_out_bits: float  # negative log-likelihood of the held-out rows, in bits per dimension; lower is better


FitCallback = Callable[[FitProgress], None]


class VectorTransform(Protocol):
    """A transform that is fitted on the vectors themselves, not on their moments; it is not linear."""

    kind: str  # what it is called: "flow"
    history_: tuple[FitProgress, ...] = ()  # if it is fitted step by step

    @property
    def step_(self) -> Step:
        """The fitted step of a model."""
        ...

    def fit(self, X: ArrayLike, y: object = None, *, report: FitCallback | None = None) -> Self:
        """Fit on vectors."""
        ...

    def check_settings(self, dim: int) -> None:
        """Refuse settings that are out of range for vectors of `dim` dimensions."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name."""
        ...


Transform = LinearTransform | VectorTransform


@dataclass(frozen=True, slots=True)
class Auto:
    """The request to choose a transform, or none, by the texts; see `isosent.transforms.auto`."""

    n_components: int | float | str | None = None  # as for `Whitening`; None lets the vectors keep their width
    purpose: str | None = None  # of `PURPOSES`: what the vectors are for; None harms none of them

    def __post_init__(self) -> None:
        if self.purpose is not None:
            _check.one_of(AUTO, "purpose", self.purpose, PURPOSES)

    def check_settings(self, dim: int) -> None:
        """Refuse a width that is out of range for vectors of `dim` dimensions."""
        if self.n_components != AUTO:
            _check.component_count_or_share(AUTO, self.n_components, dim)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings that are set, by name."""
        settings = {"n_components": self.n_components, "purpose": self.purpose}
        return {name: value for name, value in settings.items() if value is not None}


def needs_vectors(transform: object) -> TypeIs[VectorTransform]:
    """Whether a transform is fitted on vectors, and so not linear."""
    return hasattr(type(transform), "step_")


def check_transform(transform: object) -> None:
    """Refuse anything but a transform or "auto"."""
    if isinstance(transform, type) and (hasattr(transform, "fit_moments") or hasattr(transform, "step_")):
        name = transform.__name__
        raise wrong_value(
            "fit", "transform", "be an object", f"the class {name}", f"Write {name}().", error=InputTypeError
        )
    if not (hasattr(transform, "fit_moments") or needs_vectors(transform) or isinstance(transform, Auto)):
        raise wrong_value(
            "fit", "transform", 'be an object such as Whitening(128), or "auto"', repr(transform), error=InputTypeError
        )


def transform_name(transform: object) -> str:
    """Name of a transform in snake case, as on the command line."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(transform).__name__).lower()


def settings_of(transform: Transform | Auto) -> dict[str, Any]:
    """Settings of a transform as JSON values."""
    settings = transform.get_params(deep=False)
    if "steps" in settings:
        return {"steps": [{"transform": transform_name(step)} | settings_of(step) for _, step in settings["steps"]]}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}


def resolved_settings(transform: Transform) -> dict[str, Any]:
    """Settings of a fitted transform, with the values that "auto" and a share of the variance resolved to."""
    settings = settings_of(transform)
    if "steps" in settings:
        return {"steps": transform.resolved_steps_}  # type: ignore[union-attr]
    for name, value in settings.items():
        resolved = getattr(transform, f"{name}_", None)
        if resolved is not None and (value == AUTO or (name == "n_components" and isinstance(value, float))):
            settings[name] = resolved.item() if isinstance(resolved, np.generic) else resolved
    return settings


# names, and the modules of their classes, which are imported when a transform is made
TRANSFORMS: Final = {
    "whitening": "whitening",
    "principal_components": "whitening",
    "mean_centering": "linear",
    "mean_projection": "linear",
    "all_but_the_top": "linear",
    "common_component_removal": "linear",
    "standardize": "linear",
    "truncate": "linear",
    "glow_flow": "flow",  # not in a chain, because it is not linear
    "l2_normalize": "chain",  # only as the last step
}


def transform_class(name: str) -> type[Any]:
    """The class of a transform: ``MeanCentering`` of "mean_centering"."""
    module = import_module(f"isosent.transforms.{TRANSFORMS[name]}")
    return cast("type[Any]", getattr(module, "".join(word.capitalize() for word in name.split("_"))))


def setting_names(name: str) -> tuple[str, ...]:
    """Settings of a transform: the arguments of its class."""
    return tuple(signature(transform_class(name)).parameters)


def make_transform(names: str, *, dim: int | None = None, settings: Mapping[str, Any] | None = None) -> Transform:
    """Make an unfitted transform of ``NAME[?option=value&...][,NAME...]``; `settings` take precedence over options."""
    kinds: list[str] = []
    settings_of_steps: list[dict[str, Any]] = []
    for step in names.split(","):
        name, options = _check.split_options(step.strip())
        if name == AUTO:
            raise InputError("fit: auto cannot be one of several transforms.")
        if name == NO_TRANSFORM:
            raise InputError("fit: none cannot be one of several transforms. Name each alone, or leave it out.")
        if name not in TRANSFORMS:
            nearest = get_close_matches(name, (AUTO, NO_TRANSFORM, *TRANSFORMS), n=1)
            advice = f" Did you mean {nearest[0]}?" if nearest else ""
            raise InputError(f"there is no transform {name!r}.{advice} There are auto, none, {', '.join(TRANSFORMS)}.")
        kinds.append(name)
        settings_of_steps.append(_option_values(name, options))
    for setting, value in (settings or {}).items():
        steps_with_setting = [step for step, kind in enumerate(kinds) if setting in setting_names(kind)]
        if not steps_with_setting:
            available = dict.fromkeys(name for kind in kinds for name in setting_names(kind))
            raise InputError(f"{names} has no setting {option(setting)}. Available: {', '.join(available) or 'none'}.")
        settings_of_steps[steps_with_setting[-1]][setting] = value
    steps = [transform_class(kind)(**settings) for kind, settings in zip(kinds, settings_of_steps, strict=True)]
    is_single = len(steps) == 1 and kinds[0] != "l2_normalize"
    transform: Transform = steps[0] if is_single else import_module("isosent.transforms.chain").chain(*steps)
    if dim is not None:
        transform.check_settings(dim)
    return transform


def resolve_transform(
    transform: object, settings: Mapping[str, Any] | None = None, *, dim: int | None = None
) -> Transform | Auto | None:
    """Make the transform that a user named, or passed as an object; None for "none" and None."""
    name, options = _check.split_options(transform) if isinstance(transform, str) else ("", {})
    if name == AUTO:
        named = [parse_option(options.pop(each)) for each in ("dims", "n_components") if each in options]
        if len(named) > 1:
            raise InputError("fit: dims and n_components both set the dimensions. Leave one out.")
        named_settings = {"n_components": named[0]} if named else {}
        if "purpose" in options:
            named_settings["purpose"] = options.pop("purpose")
        if unknown := ", ".join([*options, *(settings or {}).keys() - {"n_components", "purpose"}]):
            raise InputError(
                f"auto has no option {unknown}. It chooses all but the dimensions and the purpose: "
                f"{option('n_components')}, {option('purpose')}. Name a transform that has it, such as whitening."
            )
        transform = Auto(**named_settings | dict(settings or {}))
        if dim is not None:
            transform.check_settings(dim)
        return transform
    if isinstance(transform, str) and transform != NO_TRANSFORM:
        return make_transform(transform, dim=dim, settings=settings)
    if settings:
        raise InputError(
            f"fit: {', '.join(map(option, settings))} cannot be set for the transform {transform}. Leave it out."
        )
    if transform is None or transform == NO_TRANSFORM:
        return None
    check_transform(transform)
    if isinstance(transform, Auto) and dim is not None:
        transform.check_settings(dim)
    return cast("Transform | Auto", transform)


def make_linear(names: str, *, settings: Mapping[str, Any] | None = None) -> LinearTransform:
    """Make an unfitted linear transform; any other is refused."""
    transform = make_transform(names, settings=settings)
    if needs_vectors(transform):
        raise InputError(f"fit: {names} is not linear. A linear transform is needed here.")
    return transform


def _option_values(name: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Typed settings from the options of one transform; ``dims`` is short for ``n_components``."""
    settings = {"n_components" if option == "dims" else option: parse_option(text) for option, text in options.items()}
    names = setting_names(name)
    for setting in settings.keys() - set(names):
        available = [*names, *(["dims"] if "n_components" in names else [])]
        nearest = get_close_matches(setting, available, n=1)
        listed = f"There are {', '.join(available)}." if available else "It has none."
        advice = f"Did you mean {nearest[0]}?" if nearest else listed
        raise InputError(f"transform: {name} has no option {setting}. {advice}")
    return settings


def parse_option(text: str) -> bool | int | float | str:
    """Convert the value of an option to a number or a bool if it is one."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
