"""Transforms by name; a module is imported when its transform is asked for, because scikit-learn takes its time."""

from importlib import import_module

from isosent import _check
from isosent.errors import InputError
from isosent.transforms.base import LinearTransform

TRANSFORMS = {"whitening": ("isosent.transforms.whitening", "Whitening")}


def make_transform(
    name: str, *, dim: int, n_components: int | None = None, strength: float | None = None
) -> LinearTransform:
    """Make an unfitted transform.

    Parameters
    ----------
    name : str
        A key of `TRANSFORMS`.
    dim : int
        Dimensions of the vectors that it will be fitted on.
    n_components : int, optional
        Dimensions kept; all where left out.
    strength : float, optional
        How far variances are evened out, in [0, 1]; the transform's default where left out.

    Returns
    -------
    LinearTransform
        The transform.

    Raises
    ------
    InputError
        If there is no transform of that name, or a setting is out of range: said before any text is encoded.
    """
    if name not in TRANSFORMS:
        raise InputError(f"transform must be one of {', '.join(TRANSFORMS)}; got {name!r}.")
    _check.component_count(name, n_components, dim)
    _check.fraction(name, "strength", 1.0 if strength is None else strength)
    module, class_name = TRANSFORMS[name]
    settings = {"n_components": n_components} | ({} if strength is None else {"strength": strength})
    transform: LinearTransform = getattr(import_module(module), class_name)(**settings)
    return transform
