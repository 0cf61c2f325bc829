"""Results as plain values that JSON can hold."""

import math
from collections.abc import Mapping
from typing import Any


def without_nan(value: Any) -> Any:
    """Replace what JSON has no word for by None, at any depth.

    Parameters
    ----------
    value : object
        Mappings, lists, tuples and plain values.

    Returns
    -------
    object
        The same nesting with dicts and lists; NaN and infinity are None.

    Examples
    --------
    >>> without_nan({"spearman": (0.5, float("nan"))})
    {'spearman': [0.5, None]}
    """
    if isinstance(value, dict):
        return {name: without_nan(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def nan_where_none(scores: Mapping[str, float | None]) -> dict[str, float]:
    """Bring back undefined scores from JSON, the inverse of `without_nan` for a mapping of numbers.

    Parameters
    ----------
    scores : mapping of str to float or None
        Numbers by name.

    Returns
    -------
    dict of str to float
        The same with NaN in place of None.

    Examples
    --------
    >>> nan_where_none({"spearman": 0.5, "pearson": None})
    {'spearman': 0.5, 'pearson': nan}
    """
    return {name: math.nan if score is None else float(score) for name, score in scores.items()}
