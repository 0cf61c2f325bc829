"""Transforms by name; a module is imported when its transform is asked for, because scikit-learn takes its time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, validate_data

from isosent import _check
from isosent.errors import InputError, InputTypeError
from isosent.numeric.glow import Glow
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def as_rows(where: str, X: ArrayLike, *, at_least: int) -> NDArray[Any]:
    """Return whatever scikit-learn takes as rows, a data frame for one, as an array; values are not looked at."""
    _check.not_masked(where, "X", X)
    try:
        array: NDArray[Any] = check_array(
            X, dtype="numeric", ensure_all_finite=False, ensure_min_samples=at_least, input_name="X"
        )
    except TypeError as error:
        raise InputTypeError(f"{where}: {error}") from None
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    return _check.matrix(where, "X", array)


class RowEstimator:
    """What scikit-learn is told of every transform: its columns are compared, float32 and float64 are kept."""

    def _check_features(self, X: ArrayLike, *, reset: bool) -> None:
        """Let scikit-learn compare number and names of the columns with those of the fit, or note them."""
        try:
            validate_data(self, X, reset=reset, skip_check_array=True)
        except (ValueError, TypeError) as error:
            raise InputError(f"{type(self).__name__}: {error}") from None

    def __sklearn_tags__(self) -> Tags:
        """Tell scikit-learn which dtypes are kept."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


AUTO: Final = "auto"
NO_TRANSFORM: Final = "none"


class LinearTransform(Protocol):
    """The contract of every linear transform: fitted without labels, from vectors or from their moments alone."""

    @property
    def linear_map_(self) -> LinearMap:
        """The fitted map."""
        ...

    @property
    def normalize_(self) -> bool:
        """Whether rows are scaled to length 1 behind the map."""
        ...

    @property
    def uses_radial_moments(self) -> bool:
        """Whether `fit_moments` needs moments with their radial part."""
        ...

    def fit_moments(self, moments: Moments) -> Self:
        """Fit on the moments of vectors."""
        ...

    def _check_settings(self, dim: int) -> None:
        """Refuse settings that are out of range for vectors of so many dimensions."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings, by name."""
        ...


@dataclass(frozen=True, slots=True)
class FitProgress:
    """How likely a flow finds vectors that it is not fitted on, on the way."""

    n_rows: int  # rows fitted on so far, each epoch counted
    n_total: int  # rows to fit on
    held_out_bits: float  # negative log-likelihood of the held-out rows, in bits per dimension


Report = Callable[[FitProgress], None]


class FlowTransform(Protocol):
    """The contract of a transform that is not linear: fitted on the vectors themselves."""

    glow_: Glow
    history_: tuple[FitProgress, ...]

    def fit(self, X: ArrayLike, y: object = None, *, report: Report | None = None) -> Self:
        """Fit on vectors."""
        ...

    def log_likelihood(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithm of the density of each row."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings, by name."""
        ...


Transform = LinearTransform | FlowTransform


def is_flow(transform: object) -> TypeIs[FlowTransform]:
    """Tell a flow from a linear transform."""
    return hasattr(transform, "log_likelihood")


def known_rows(vectors: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Tell the vectors of texts from the zero rows that stand for "no vector"."""
    known = np.asarray(vectors[:, 0] != 0)
    doubtful = np.flatnonzero(~known)  # few: a whole pass over the vectors would cost as much as mapping them
    known[doubtful] = vectors[doubtful].any(axis=1)
    return known


def check_transform(transform: object) -> None:
    """Refuse what is neither a transform nor "auto"."""
    is_transform = hasattr(transform, "fit_moments") or is_flow(transform)
    if not is_transform and not (isinstance(transform, str) and transform == AUTO):
        raise InputTypeError(f'fit: transform must be an object such as Whitening(128), or "auto"; got {transform!r}.')


def transform_name(transform: object) -> str:
    """Name of a transform in snake case, as the command line writes it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(transform).__name__).lower()


def settings_of(transform: Transform) -> dict[str, Any]:
    """The settings of a transform as plain values that JSON can hold."""
    settings = transform.get_params(deep=False)
    if "steps" in settings:
        return {"steps": [{"transform": transform_name(step)} | settings_of(step) for _, step in settings["steps"]]}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}


@dataclass(frozen=True, slots=True)
class TransformKind:
    """Where a transform lives and what can be set."""

    module: str  # where it lives
    class_name: str  # where it lives
    settings: tuple[str, ...]  # names of its settings
    summary: str  # what it does


_WHITENING = "isosent.transforms.whitening"
_COMPONENTS = "isosent.transforms.linear"
_FLOW = ("n_levels", "depth", "width", "mixing", "learning_rate", "n_epochs", "batch_size", "held_out", "seed")
_SHAPES = ("n_components", "method", "strength", "shrinkage", "eps")
TRANSFORMS = {
    "whitening": TransformKind(_WHITENING, "Whitening", _SHAPES, "centre, rotate, even out variances"),
    "principal_components": TransformKind(_WHITENING, "PrincipalComponents", ("n_components",), "centre and rotate"),
    "mean_centering": TransformKind(_COMPONENTS, "MeanCentering", (), "subtract the mean"),
    "mean_projection": TransformKind(_COMPONENTS, "MeanProjection", (), "remove the component along the mean"),
    "all_but_the_top": TransformKind(
        _COMPONENTS, "AllButTheTop", ("n_components",), "subtract the mean, remove the top components"
    ),
    "common_component_removal": TransformKind(
        _COMPONENTS,
        "CommonComponentRemoval",
        ("n_components", "by_share"),
        "remove the top components, uncentred (SIF)",
    ),
    "standardize": TransformKind(_COMPONENTS, "Standardize", (), "centre and scale each dimension"),
    "truncate": TransformKind(_COMPONENTS, "Truncate", ("n_components",), "keep the first dimensions"),
    "glow_flow": TransformKind(
        "isosent.transforms.flow", "GlowFlow", _FLOW, "learn an invertible map to a Gaussian (BERT-flow); alone"
    ),
    "l2_normalize": TransformKind("isosent.transforms.chain", "L2Normalize", (), "scale to length 1; the last one"),
}


def make_transform(names: str, *, dim: int | None = None, settings: Mapping[str, Any] | None = None) -> Transform:
    """Make an unfitted transform of ``NAME[?option=value&...][,NAME...]``; `settings` win over the options."""
    parsed = [_check.split_options(name.strip()) for name in names.split(",")]
    kinds = [_kind(name) for name, _ in parsed]
    given: list[dict[str, Any]] = []
    for (name, written), kind in zip(parsed, kinds, strict=True):
        options = {"n_components" if option == "dims" else option: text for option, text in written.items()}
        for option in options:
            if option not in kind.settings:
                nearest = get_close_matches(option, kind.settings, n=1, cutoff=0)
                advice = f"The nearest is {nearest[0]}." if nearest else "It has none."
                raise InputError(f"transform: {name} has no option {option}. {advice}")
        given.append({option: _value(text) for option, text in options.items()})
    for setting, value in (settings or {}).items():
        takers = [position for position, kind in enumerate(kinds) if setting in kind.settings]
        if not takers:
            raise InputError(f"{names} has no setting {setting}; leave it out or choose another transform.")
        given[takers[-1]][setting] = value
    steps = [
        getattr(import_module(kind.module), kind.class_name)(**own) for kind, own in zip(kinds, given, strict=True)
    ]
    is_plain = len(steps) == 1 and kinds[0].class_name != "L2Normalize"
    made = steps[0] if is_plain else import_module("isosent.transforms.chain").chain(*steps)
    if dim is not None:
        made._check_settings(dim)
    transform: Transform = made
    return transform


def _value(text: str) -> bool | int | float | str:
    """The number or truth value that a text says, or the text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def resolve_transform(
    transform: object, settings: Mapping[str, Any] | None = None, *, dim: int | None = None
) -> Transform | Literal["auto"] | None:
    """Make the transform that a user named, or passed as an object; None for "none" and None."""
    if isinstance(transform, str) and transform not in (AUTO, NO_TRANSFORM):
        return make_transform(transform, dim=dim, settings=settings)
    if settings:
        advice = (
            " For a width of your own, name it: whitening with n_components=K and strength='auto'."
            if transform == AUTO
            else ""
        )
        raise InputError(f"fit: {', '.join(settings)} cannot be set for transform={transform!r}.{advice}")
    if transform is None or transform == NO_TRANSFORM:
        return None
    check_transform(transform)
    return cast("Transform | Literal['auto']", transform)


def make_linear(names: str, *, dim: int | None = None, settings: Mapping[str, Any] | None = None) -> LinearTransform:
    """Make an unfitted linear transform: as `make_transform`, but a flow is refused, too."""
    transform = make_transform(names, dim=dim, settings=settings)
    if is_flow(transform):
        raise InputError(f"fit: the transform must be linear here; {names} is not.")
    return transform


def _kind(name: str) -> TransformKind:
    if name not in TRANSFORMS:
        raise InputError(f"fit: transform must be auto, alone, or among {', '.join(TRANSFORMS)}; got {name!r}.")
    return TRANSFORMS[name]
