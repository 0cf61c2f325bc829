"""Studies as files: what ``isosent study ... --json`` writes, and the report reads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from isosent import _check
from isosent.errors import FileFormatError
from isosent.studies.auto import AutoCell
from isosent.studies.dims_result import DimsStudy
from isosent.studies.flow import FlowCell
from isosent.studies.gem import GemCell
from isosent.studies.reading_cells import ReadingCell

_FORMAT = "isosent study {} 1"
_READERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "auto": AutoCell.from_json,
    "dims": DimsStudy.from_json,
    "flow": FlowCell.from_json,
    "gem": GemCell.from_json,
    "layers": ReadingCell.from_json,
    "pooling": ReadingCell.from_json,
}
STUDY_FORMATS: Mapping[str, str] = {_FORMAT.format(name): name for name in _READERS}


class StudyResult(Protocol):
    """One of the results that a study is a list of."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""


@dataclass(frozen=True, slots=True)
class Study:
    """A study that was read from its file.

    Parameters
    ----------
    name : str
        Which: auto, dims, flow, gem, layers or pooling.
    results : tuple
        What the function of that name, such as ``study_auto``, found.
    """

    name: str
    results: tuple[Any, ...]


def study_to_json(name: str, results: Sequence[StudyResult]) -> dict[str, Any]:
    """Return a study as plain values.

    Parameters
    ----------
    name : str
        Which, as in `Study`.
    results : sequence
        What it found.

    Returns
    -------
    dict
        ``format``, which tells studies from each other and from results of evaluations, and ``results``.
    """
    return {"format": _FORMAT.format(name), "results": [result.to_json() for result in results]}


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read the file of a study.

    Parameters
    ----------
    path : path-like
        What ``isosent study ... --json`` wrote.

    Returns
    -------
    Study
        The study.

    Raises
    ------
    InputFileError
        If there is no such file.
    FileFormatError
        If it is not the file of a study.
    """
    path = _check.input_file(path)
    try:
        document = json.loads(path.read_bytes())
        name = STUDY_FORMATS[document["format"]]
        return Study(name, tuple(_READERS[name](result) for result in document["results"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"{path} must be a study, written by isosent study ... --json OUT; it cannot be read as one: "
            f"{type(error).__name__} {error}."
        ) from None
