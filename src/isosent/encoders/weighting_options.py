"""Weightings as options of a model reference, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from isosent.encoders.gem_weighting import GEM
from isosent.encoders.option_rules import written_number
from isosent.encoders.weighting import SIF, USIF, Average, PowerMean, Weighting
from isosent.encoders.zipfian_weighting import ZipfianWhitening
from isosent.errors import InputError

WEIGHTINGS: Mapping[str, type[Weighting]] = {kind.name: kind for kind in (Average, SIF, USIF, PowerMean, GEM)}
SETTINGS: Mapping[str, Mapping[str, Any]] = {  # with their defaults
    name: {each.name: each.default for each in fields(kind) if each.init}  # type: ignore[arg-type]
    for name, kind in WEIGHTINGS.items()
}


def weighting_of(options: Mapping[str, str]) -> Weighting:
    """Make the weighting that options name.

    Parameters
    ----------
    options : mapping of str to str
        ``weighting``, ``zipfian`` and settings, as a model reference writes them; others are left aside.

    Returns
    -------
    Weighting
        The mean of the words where none is named.

    Raises
    ------
    InputError
        If a setting belongs to another weighting, or is out of range.
    """
    name = options.get("weighting", Average.name)
    foreign = {setting: other for other, owned in SETTINGS.items() for setting in owned if setting in options}
    for setting in SETTINGS[name]:
        foreign.pop(setting, None)
    for setting, other in foreign.items():
        raise InputError(f"{setting} must come with weighting={other}; got weighting={name}.")
    kind = WEIGHTINGS[name]
    written = {setting: default for setting, default in SETTINGS[name].items() if setting in options}
    chosen = kind(**{setting: _read(options[setting], default) for setting, default in written.items()})
    return ZipfianWhitening(chosen) if options.get("zipfian") == "true" else chosen


def options_of(weighting: Weighting) -> dict[str, str]:
    """Write a weighting as options of a model reference, the inverse of `weighting_of`.

    Parameters
    ----------
    weighting : Weighting
        Any.

    Returns
    -------
    dict of str to str
        ``weighting``, ``zipfian`` where words are whitened, and every setting.

    Examples
    --------
    >>> options_of(ZipfianWhitening(SIF(a=1e-4)))
    {'zipfian': 'true', 'weighting': 'sif', 'a': '0.0001', 'n_components': '1'}
    """
    if isinstance(weighting, ZipfianWhitening):
        return {"zipfian": "true"} | options_of(weighting.then)
    settings = {setting: _written(getattr(weighting, setting)) for setting in SETTINGS[weighting.name]}
    return {"weighting": weighting.name} | settings


def _written(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(value).lower()
    if isinstance(value, str):
        return value
    return ",".join(map(_written, value)) if isinstance(value, Iterable) else written_number(value)


def _read(text: str, like: Any) -> Any:
    """What was written, of the type of a default."""
    if isinstance(like, tuple):
        return tuple(_read(part, like[0]) for part in text.split(","))
    return text == "true" if isinstance(like, bool) else type(like)(text)
