"""Vectors in the types that they are stored in: float32, float16, and int8 with a scale a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError

STORED_TYPES = ("float32", "float16", "int8")

Numbers = NDArray[Any]
Scales = NDArray[np.float32]


def encoded(where: str, vectors: NDArray[np.float32], dtype: str) -> tuple[Numbers, Scales | None]:
    """Make vectors smaller."""
    # int8 is symmetric: the scale of a row is its largest magnitude / 127. A zero row has the scale 0.
    _check.one_of(where, "dtype", dtype, STORED_TYPES)
    if dtype == "float32":
        return vectors, None
    if dtype == "float16":
        with np.errstate(over="ignore"):
            halves = vectors.astype(np.float16)
        if not np.isfinite(halves).all():
            largest = np.abs(vectors).max()
            raise InputError(f"{where}: numbers must be at most 65504 for float16; got {largest:g}. Choose float32.")
        return halves, None
    scales = np.abs(vectors).max(axis=1, initial=0) / np.float32(127)
    steps = np.rint(vectors / np.where(scales > 0, scales, 1)[:, None])
    return np.clip(steps, -127, 127).astype(np.int8), scales


def decoded(numbers: Numbers, scales: Scales | None, rows: NDArray[np.integer[Any]] | slice) -> NDArray[np.float32]:
    """Take stored rows out."""
    vectors: NDArray[np.float32] = numbers[rows].astype(np.float32, copy=False)
    return vectors if scales is None else vectors * scales[rows, None]
