"""Transforms by the name that the command line uses."""

from isosent.errors import InputError
from isosent.transforms.base import LinearTransform
from isosent.transforms.whitening import Whitening

TRANSFORMS = {"whitening": Whitening}


def make_transform(name: str, *, n_components: int | None = None, strength: float | None = None) -> LinearTransform:
    """Make an unfitted transform.

    Parameters
    ----------
    name : str
        A key of `TRANSFORMS`.
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
        If there is no transform of that name.
    """
    if name not in TRANSFORMS:
        raise InputError(f"transform must be one of {', '.join(TRANSFORMS)}; got {name!r}.")
    chosen = TRANSFORMS[name](n_components)
    return chosen if strength is None else chosen.set_params(strength=strength)
