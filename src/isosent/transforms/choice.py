"""Transforms by name; a module is imported when its transform is asked for, because scikit-learn takes its time."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from isosent.errors import InputError
from isosent.transforms.base import LinearTransform, Transform, is_flow


@dataclass(frozen=True, slots=True)
class TransformKind:
    """Where a transform lives and what can be set.

    Parameters
    ----------
    module, class_name : str
        Where it lives.
    settings : tuple of str
        Names of its settings.
    summary : str
        What it does.
    """

    module: str
    class_name: str
    settings: tuple[str, ...]
    summary: str


_WHITENING = "isosent.transforms.whitening"
_COMPONENTS = "isosent.transforms.components"
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
        "isosent.transforms.glow", "GlowFlow", _FLOW, "learn an invertible map to a Gaussian (BERT-flow); alone"
    ),
    "l2_normalize": TransformKind("isosent.transforms.chain", "L2Normalize", (), "scale to length 1; the last one"),
}


def make_transform(names: str, *, dim: int | None = None, settings: Mapping[str, Any] | None = None) -> Transform:
    """Make an unfitted transform.

    Parameters
    ----------
    names : str
        A key of `TRANSFORMS`, or several with commas between them: a chain.
    dim : int, optional
        Dimensions of the vectors that it will be fitted on; with them, settings are checked at once.
    settings : mapping of str to object, optional
        Settings; each goes to the last transform that has one of that name.

    Returns
    -------
    Transform
        The transform.

    Raises
    ------
    InputError
        If there is no transform of that name, or a setting is out of range or belongs to none of them: said before any
        text is encoded.
    """
    kinds = [_kind(name.strip()) for name in names.split(",")]
    given: list[dict[str, Any]] = [{} for _ in kinds]
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
