"""Result files: what one may hold, and how it becomes a result.

`read_result` reads those of isosent and those of MTEB, of which a folder holds one for each task. A schema checks the
shape of ours (`_Result` and the structs it is made of), and `_wrong_fields` what a schema cannot say.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from isosent import _check
from isosent.errors import FileFormatError
from isosent.evaluation.mteb import BENCHMARK, is_mteb, mteb_score, scores_of_file
from isosent.evaluation.result import ERRORS, FORMAT, EvaluationResult, Items, TaskResult
from isosent.evaluation.sizes import known_items, size_deviations
from isosent.io.json import check_schema, nan_where_none, read_json
from isosent.io.schemas import Fields, Finite, Score, SealedFile, Seconds, Text, Whole
from isosent.numeric.statistics import N_RESAMPLES, bootstrap_interval

_META = "model_meta.json"  # next to the files of MTEB, of their model


# What a file of isosent may hold. None is an undefined score.


class _Fit(Struct, kw_only=True):
    transform: str
    parameters: dict[str, Any]
    source: str
    n_texts: Whole = 0
    n_zero_rows: Whole = 0
    fitted_at: str = ""


class _Model(Struct, kw_only=True):  # open, as the two below: newer releases may say more, which is shown and no more
    reference: Text
    options: dict[str, str]
    fits: list[_Fit]
    fingerprint: str


class _Fitting(Struct, kw_only=True):
    transform: str | None
    parameters: dict[str, Any]
    fit: str | None
    transductive: bool
    overlap: dict[str, dict[str, Whole]] = {}
    distilled_from: dict[str, dict[str, Whole]] = {}


class _Environment(Struct, kw_only=True):
    versions: dict[str, str]
    machine: str
    system: str
    n_cpus: Whole | None


class _Choice(Struct, kw_only=True):
    chosen: str
    reason: str


class _Task(Fields):
    kind: str
    metric: str
    scores: dict[str, Finite | None]
    intervals: dict[str, tuple[Score, Score]]
    protocol: dict[str, Any]
    data: dict[str, str]
    n_items: Whole
    dim: Whole
    n_zero_rows: Whole
    n_tokens: Whole
    n_unknown: Whole
    elapsed_s: Seconds
    details: dict[str, Any] = msgspec.field(default_factory=dict)
    choice: _Choice | None = None
    n_known: Whole | None = None
    deviations: list[str] | None = None  # None in files of earlier versions
    is_comparable: bool | None = None
    mteb: dict[str, str] | None = None


class _Items(Fields):
    values: list[Finite | None]
    gold: list[Finite | None] | None


class _Result(SealedFile, kw_only=True):
    """What ``isosent evaluate ... --json`` writes."""

    model: _Model
    fitting: _Fitting
    environment: _Environment
    seed: Annotated[int, Meta(ge=0)]
    n_resamples: Whole
    n_texts: Whole
    n_cut: Whole
    encode_s: Seconds
    elapsed_s: Seconds
    tasks: Annotated[dict[str, _Task], Meta(min_length=1)]
    items: dict[str, _Items] = msgspec.field(default_factory=dict)
    variants: list[_Result] = msgspec.field(default_factory=list)  # the same under further transforms


def is_result(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a result, and no study; a folder can be nothing else."""
    if Path(path).is_dir():
        return True
    document = read_json(_check.input_file(path))
    return document.get("format") == FORMAT or is_mteb(document)


def read_result(path: str | os.PathLike[str]) -> EvaluationResult:
    """Read a result: a file of isosent or of MTEB, or a folder with the files that MTEB wrote of one model.

    Parameters
    ----------
    path : path-like
        A file that ``isosent evaluate ... --json`` wrote, or that holds the text of `EvaluationResult.to_text`; or a
        file of MTEB, in either of its two forms; or a folder of these, such as
        ``results/sentence-transformers__all-MiniLM-L6-v2/8b3219a92973c328a8e22fadcfa821b5dc75636a`` in MTEB's public
        results.

    Returns
    -------
    EvaluationResult
        The result; tasks of a file without items have none. A file of MTEB has no scores of single items, and so no
        intervals, except of the ten draws of a clustering. Tasks that isosent has too have the name they have here.

    Raises
    ------
    InputFileError
        If there is no such file.
    FileFormatError
        If it is not a result file of this format, or was changed since it was written.
    """
    if Path(path).is_dir():
        return _read_mteb(sorted(file for file in Path(path).glob("*.json") if file.name != _META), Path(path))
    path = _check.input_file(path)
    document = read_json(path)
    if is_mteb(document):
        return _read_mteb([path], path)
    if document.get("format") != FORMAT:
        raise FileFormatError(
            f"{path} is not a result file, which isosent evaluate ... -o OUT.json writes: its format is "
            f"{_check.brief(document.get('format', 'unknown'), 60)!r}, not {FORMAT!r}."
        )
    check_schema(document, str(path), _Result)
    variants = tuple(_result_of_json(variant, path) for variant in document.pop("variants", []))
    return replace(_result_of_json(document, path), variants=variants)


def _read_mteb(files: list[Path], path: Path) -> EvaluationResult:
    """All tasks that MTEB's files of one model hold."""
    if not files:
        raise FileFormatError(f"{path} is a folder without result files of MTEB. Name the folder that holds TASK.json.")
    tasks: dict[str, TaskResult] = {}
    versions: set[str] = set()
    for file in files:
        document = read_json(_check.input_file(file))
        if not is_mteb(document):
            raise FileFormatError(f"{file} is not a result file of MTEB. A folder may hold nothing else.")
        versions.add(str(document.get("mteb_version") or "unknown"))
        for each in scores_of_file(document, str(file)):
            if each.name in tasks:
                raise FileFormatError(f"{file}: {each.name} occurs twice.")
            is_ours = mteb_score(each.kind, each.name, {}) is not None
            known = known_items(each.kind, each.name, {}) if is_ours else None
            items = Items(np.array(each.draws, dtype=np.float64))
            tasks[each.name] = TaskResult(
                kind=each.kind,
                metric=each.metric,
                scores=each.scores,
                intervals={each.metric: bootstrap_interval("mean", items.values, n_resamples=N_RESAMPLES)},
                protocol=each.protocol,
                data={},
                n_items=len(each.draws) or known or 0,
                dim=0,
                n_zero_rows=0,
                n_tokens=0,
                n_unknown=0,
                elapsed_s=0.0,
                items=items,
                n_known=known,
            )
    return EvaluationResult(
        model=_model_of_mteb(files[0]),
        fitting={"transform": None, "parameters": {}, "fit": None, "transductive": False},
        tasks=tasks,
        environment={"versions": {"mteb": ", ".join(sorted(versions))}, "machine": "", "system": "", "n_cpus": None},
        seed=0,
        n_resamples=N_RESAMPLES,
        n_texts=0,
        n_cut=0,
        encode_s=0.0,
        elapsed_s=0.0,
    )


def _model_of_mteb(file: Path) -> dict[str, Any]:
    """The model, which a file does not name: by the file next to it, or by the folders ``ORG__MODEL/REVISION``."""
    folder = file.absolute().parent
    meta = read_json(folder / _META) if (folder / _META).is_file() else {}
    name, fingerprint = meta.get("name"), ""
    if not isinstance(name, str):
        fingerprint = "" if "__" in folder.parent.name else str(folder)  # files of two folders may be of two models
        name = folder.parent.name.replace("__", "/", 1) if "__" in folder.parent.name else file.stem
    revision = {"revision": folder.name} if "__" in folder.parent.name else {}
    return {"reference": f"{BENCHMARK}:{name}", "options": revision, "fits": [], "fingerprint": fingerprint}


def _result_of_json(document: dict[str, Any], path: Path) -> EvaluationResult:
    items = document.pop("items", {})
    document.pop("variants", None)
    tasks = {name: _task_of_json(name, task, items.get(name)) for name, task in document.pop("tasks").items()}
    facts = {name: value for name, value in document.items() if name not in ("format", "checksum")}
    result = EvaluationResult(tasks=tasks, **facts)
    if wrong := next(_wrong_fields(result, items), None):
        wrong = _check.brief(wrong)  # it holds names of the file
        raise FileFormatError(f"{path} is not as isosent evaluate wrote it: {wrong}. Evaluate again.")
    return result


def _task_of_json(name: str, document: dict[str, Any], items: Mapping[str, Any] | None) -> TaskResult:
    intervals = {metric: tuple(_floats(ends)) for metric, ends in document["intervals"].items()}
    read = {"scores": nan_where_none(document["scores"]), "intervals": intervals, "items": Items(np.zeros(0))}
    differing = document.pop("deviations", None)
    for derived in ("is_comparable", "mteb"):
        document.pop(derived, None)
    if differing is None:  # an earlier version wrote it
        document["n_known"] = known_items(document["kind"], name, document["protocol"])
        differing = size_deviations({"": document["n_items"]}, {"": document["n_known"]})
    document["deviations"] = tuple(differing)
    if items is not None:
        read["items"] = Items(_floats(items["values"]), None if items["gold"] is None else _floats(items["gold"]))
    return TaskResult(**document | read)


def _floats(values: list[float | None]) -> Any:
    """Numbers as an array, an undefined one NaN."""
    return np.array(values, dtype=np.float64)


def _wrong_fields(result: EvaluationResult, items: Mapping[str, Any]) -> Iterator[str]:
    """What a schema cannot say."""
    fitted = result.fitting["transform"] is not None and not result.fitting["transductive"]
    if fitted and not result.model["fits"]:
        yield "model, fits: none, and a transform was fitted"
    for name, task in result.tasks.items():
        if not {task.metric} <= task.scores.keys() & task.intervals.keys():
            yield f"{name}, scores: none of its metric {task.metric}"
        if worst := [score for metric, score in task.scores.items() if metric not in ERRORS and abs(score) > 1]:
            yield f"{name}, scores: {worst[0]} is not from -1 to 1"
        arrays = (task.items.values, task.items.gold) if name in items else ()
        if any(array is not None and len(array) != task.n_items for array in arrays):
            yield f"{name}, items: not {task.n_items} numbers"
