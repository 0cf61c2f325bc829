"""Studies as files: what ``isosent study ... --json`` writes, and the report reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

from isosent import _check
from isosent.errors import FileFormatError
from isosent.files.documents import check_schema, read_json
from isosent.files.result_schemas import AutoStudy, DimsStudies, FlowStudy, GemStudy, ReadingStudy
from isosent.studies.auto import ROWS, AutoCell
from isosent.studies.dims_result import DimsStudy
from isosent.studies.flow import FlowCell
from isosent.studies.gem import GemCell
from isosent.studies.reading_cells import ReadingCell

_FORMAT = "isosent study {} 1"
_READERS: Mapping[str, tuple[Any, Callable[[Mapping[str, Any]], Any]]] = {
    "auto": (AutoStudy, AutoCell.from_json),
    "dims": (DimsStudies, DimsStudy.from_json),
    "flow": (FlowStudy, FlowCell.from_json),
    "gem": (GemStudy, GemCell.from_json),
    "layers": (ReadingStudy, ReadingCell.from_json),
    "pooling": (ReadingStudy, ReadingCell.from_json),
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
        If it is not the file of a study, or was changed since it was written.
    """
    path = _check.input_file(path)
    document = read_json(path)
    name = STUDY_FORMATS.get(str(document.get("format")))
    if name is None:
        raise FileFormatError(
            f"{path} must be a study, written by isosent study ... --json OUT, of one of the formats "
            f"{', '.join(STUDY_FORMATS)}; got {document.get('format')!r}."
        )
    schema, read = _READERS[name]
    check_schema(document, str(path), schema)
    results = tuple(map(read, document["results"]))
    if missing := next((lacks for result in results if (lacks := _missing(result))), None):
        raise FileFormatError(f"{path} must hold a score of {missing}; it does not. Run the study again.")
    return Study(name, results)


def _missing(result: Any) -> str | None:
    """A score that a table of the study needs and a result does not have, which a schema cannot say."""
    if isinstance(result, AutoCell):
        return next((f"{result.task}, {row}" for row in ROWS if row not in result.scores), None)
    if isinstance(result, DimsStudy):
        scored: set[tuple[str, int | None]] = {(cell.task, cell.k) for cell in result.cells}
        scored |= {(cell.task, None) for cell in result.untransformed}
        wanted = product(result.tasks, (*result.widths, None))
        return next((f"{task} at {k or 'all'} dimensions" for task, k in wanted if (task, k) not in scored), None)
    return None
