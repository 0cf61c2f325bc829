"""Result files and studies, told apart by what is in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isosent import _check
from isosent.errors import FileFormatError, InputError, InputTypeError
from isosent.evaluation.result import FORMAT, EvaluationResult, read_result
from isosent.io.json import read_json
from isosent.research.auto import AutoCell
from isosent.research.dims import DimsStudy
from isosent.research.study import STUDY_FORMATS, LayerCell, read_study

_SHOWN = ("auto", "dims", "layers", "pooling")


@dataclass(frozen=True, slots=True, eq=False)
class ResultFile:
    """A result and the file that it was read from."""

    path: str  # the file
    result: EvaluationResult  # what it holds


@dataclass(frozen=True, slots=True, eq=False)
class ReportData:
    """What a report is made of."""

    results: tuple[ResultFile, ...] = ()  # results of evaluations
    dims: tuple[DimsStudy, ...] = ()  # studies of dimensions
    layers: tuple[LayerCell, ...] = ()  # studies of layers and of poolings
    pooling: tuple[LayerCell, ...] = ()  # studies of layers and of poolings
    auto: tuple[AutoCell, ...] = ()  # studies of "auto"


def read_report(paths: Sequence[str | os.PathLike[str]]) -> ReportData:
    """Read what a report is made of."""
    if isinstance(paths, (str, os.PathLike)):
        raise InputTypeError("report: paths must be a sequence of files; got one path. Pass [path].")
    if not len(paths):
        raise InputError("report: paths must name at least one file; got none. isosent evaluate ... --json writes one.")
    listed = [os.fspath(path) for path in paths]
    if twice := [path for path in dict.fromkeys(listed) if listed.count(path) > 1]:
        raise InputError(f"report: each file must be named once; got {twice[0]} {listed.count(twice[0])} times.")
    results: list[ResultFile] = []
    studies: dict[str, list[Any]] = {name: [] for name in _SHOWN}
    for path in listed:
        form = _format_of(path)
        if form == FORMAT:
            results.append(ResultFile(path, read_result(path)))
            continue
        study = read_study(path)
        if study.name not in studies:
            raise FileFormatError(
                f"{path} must be a result or one of the studies {', '.join(_SHOWN)}; got a study of {study.name}. "
                "Leave it out; the study prints a table of its own."
            )
        studies[study.name] += study.results
    return ReportData(tuple(results), **{name: tuple(found) for name, found in studies.items()})


def _format_of(path: str) -> str:
    """What a file says it holds."""
    form = str(read_json(_check.input_file(path)).get("format"))
    if form != FORMAT and form not in STUDY_FORMATS:
        raise FileFormatError(
            f"{path} must be a file that isosent evaluate ... --json or isosent study ... --json wrote; it is none of "
            f"these formats: {', '.join([FORMAT, *STUDY_FORMATS])}."
        )
    return form
