"""Moments of the vectors in files, and the file they are kept in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isosent import _check
from isosent.errors import FileFormatError, InputError
from isosent.files.atomic import check_destination, replacing
from isosent.files.documents import parse_json
from isosent.files.mapped_vectors import safetensors_metadata
from isosent.files.sealed_tensors import read_tensors, tensors_bytes
from isosent.files.space import SPACE_METADATA, Space, same_space, space_in
from isosent.numeric.moments import Moments, RadialMoments

FORMAT = "isosent-moments"
FORMAT_VERSION = 1
ENDING = ".safetensors"
_METADATA = ("format", "format_version", "sources", "n_zero_rows", "run", *SPACE_METADATA)


@dataclass(frozen=True, slots=True, eq=False)
class FileMoments:
    """Moments of the vectors in files; adding two gives those of all the files.

    Parameters
    ----------
    moments : Moments
        Of all rows but zero rows.
    n_zero_rows : int
        Rows left out, which stand for "no vector".
    space : Space or None
        Where the vectors belong, if a file says so.
    sources : tuple of str
        The files.
    """

    moments: Moments
    n_zero_rows: int
    space: Space | None
    sources: tuple[str, ...]

    def __add__(self, other: FileMoments) -> FileMoments:
        """Return the moments of the rows of both."""
        here, there = " + ".join(self.sources), " + ".join(other.sources)
        if self.moments.dim != other.moments.dim:
            raise InputError(
                f"{there}: vectors must have {self.moments.dim} dimensions, those of {here}; got {other.moments.dim}."
            )
        return FileMoments(
            self.moments + other.moments,
            self.n_zero_rows + other.n_zero_rows,
            same_space(here, self.space, there, other.space),
            self.sources + other.sources,
        )


def write_moments(path: str | os.PathLike[str], measured: FileMoments) -> None:
    """Write moments, with what is known of the vectors, to one file.

    Parameters
    ----------
    path : path-like
        A .safetensors file.
    measured : FileMoments
        The moments.

    Raises
    ------
    InputError
        If the name has another ending.
    OutputError
        If the file cannot be written; what was there is intact.
    """
    check_moments_file(path)
    with replacing(path) as temporary:
        temporary.write_bytes(moments_bytes(measured, {"format": FORMAT, "format_version": str(FORMAT_VERSION)}))


def check_moments_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file that `write_moments` cannot write, before any work is done.

    Parameters
    ----------
    path : path-like
        The file to write.

    Raises
    ------
    InputError
        If the name does not end in ``.safetensors``.
    OutputError
        If it is a directory, or its folder does not exist.
    """
    if Path(path).suffix.lower() != ENDING:
        raise InputError(f"{path} must end in {ENDING}; got {Path(path).suffix or 'no ending'}.")
    check_destination(path)


def holds_moments(path: str | os.PathLike[str]) -> bool:
    """Tell a file of moments from a file of vectors.

    Parameters
    ----------
    path : path-like
        A file.

    Returns
    -------
    bool
        Whether `read_moments` should read it.
    """
    if Path(path).suffix.lower() != ENDING:
        return False
    return safetensors_metadata(_check.input_file(path)).get("format") == FORMAT


def read_moments(path: str | os.PathLike[str]) -> FileMoments:
    """Read what `write_moments` wrote.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    FileMoments
        Exactly what was written.

    Raises
    ------
    FileFormatError
        If the file is damaged, or something else.
    """
    file = _check.input_file(path)
    metadata = safetensors_metadata(file)
    if (metadata.get("format"), metadata.get("format_version")) != (FORMAT, str(FORMAT_VERSION)):
        raise FileFormatError(
            f"{file} must be a file of moments, {FORMAT} version {FORMAT_VERSION}; "
            f"its format is {metadata.get('format')} {metadata.get('format_version', '')}."
        )
    return moments_in(file)


def moments_bytes(measured: FileMoments, metadata: Mapping[str, str]) -> bytes:
    """Moments in the format of safetensors.

    Parameters
    ----------
    measured : FileMoments
        The moments.
    metadata : mapping of str to str
        What else to keep.

    Returns
    -------
    bytes
        Tensors ``weight``, ``mean``, ``scatter``, ``rounding`` and, where there are radial moments, ``third`` and
        ``fourth``, in float64.
    """
    moments = measured.moments
    tensors: dict[str, Any] = {"weight": [moments.weight], "mean": moments.mean, "scatter": moments.scatter}
    if moments.rounding is not None:
        tensors["rounding"] = moments.rounding
    if moments.radial is not None:
        tensors |= {"third": moments.radial.third, "fourth": [moments.radial.fourth]}
    facts = {"sources": json.dumps(measured.sources, ensure_ascii=False), "n_zero_rows": str(measured.n_zero_rows)}
    space = {} if measured.space is None else measured.space.metadata
    arrays = {name: np.asarray(array, np.float64) for name, array in tensors.items()}
    return tensors_bytes(arrays, {**metadata, **facts, **space})


def moments_in(path: Path) -> FileMoments:
    """Read the moments in a file that `moments_bytes` made.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    FileMoments
        The moments.

    Raises
    ------
    FileFormatError
        If it is damaged.
    """
    metadata = safetensors_metadata(path)
    tensors = read_tensors(path, metadata, _METADATA)
    try:
        radial = None
        if "third" in tensors:
            radial = RadialMoments(tensors["third"], float(tensors["fourth"][0]))
        moments = Moments(
            float(tensors["weight"][0]), tensors["mean"], tensors["scatter"], tensors.get("rounding"), radial
        )
        if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            raise ValueError("a number is not finite")
        sources = parse_json(metadata["sources"], "sources", list[str])
        return FileMoments(moments, int(metadata["n_zero_rows"]), space_in(metadata), tuple(sources))
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise FileFormatError(f"{path} must hold moments as isosent writes them; it is damaged: {error}.") from None
