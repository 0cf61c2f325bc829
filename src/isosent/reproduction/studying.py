"""Figures of the papers, as the best of what a study measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from isosent.errors import InputError
from isosent.evaluation.running import Run
from isosent.reproduction.evaluating import STS, Folder, Numbers, open_model, transform_of
from isosent.reproduction.request import DEV, Request
from isosent.reproduction.result import Number
from isosent.studies.dims import DimsPlan, study_dims
from isosent.studies.gem import SENSITIVITY, GemCell, study_gem
from isosent.studies.layers import best_of_sizes, read_layers, study_layers
from isosent.studies.reading_cells import ReadingCell, layers_label
from isosent.studies.readings import NONE
from isosent.transforms.base import is_flow

_SPEARMAN, _PEARSON = "spearman", "pearson"
_ALL = "all"


def best_widths(request: Request, tasks: Sequence[str], folder: Folder, run: Run) -> Numbers:
    """Find the width at which each task has its highest score.

    Parameters
    ----------
    request : Request
        Model and transform.
    tasks : sequence of str
        Tasks of STS.
    folder : Folder
        The data.
    run : Run
        For its progress.

    Returns
    -------
    mapping of (str, str) to Number
        The score at that width, by task and metric; only tasks that the folder holds.
    """
    held = [task for task in tasks if task in folder.jobs(STS, request.sickr)]
    if not held:
        return {}
    model, how = open_model(request), request.aggregation or _ALL
    transform = transform_of(request, model.dim)
    if is_flow(transform):
        raise InputError(f"reproduce: {request.transform} must not be in a study of dimensions; a flow keeps them all.")
    plan = DimsPlan(fit=request.fit, sickr=request.sickr, n_docs=0)
    plan = plan if transform is None else replace(plan, transform=transform)
    study = study_dims(model, folder.path, name=request.model, plan=plan, tasks=held, progress=run.progress)
    widths = {task: study.best(task, how) for task in study.tasks}
    return {
        (task, _metric(_SPEARMAN, how)): Number(study.curve(task, how)[width], at=f"{width} dimensions")
        for task, width in widths.items()
        if width is not None
    }


def best_layers(request: Request, tasks: Sequence[str], folder: Folder, run: Run) -> Numbers:
    """Find the layers of each number that are the best on average over the tasks at hand.

    Parameters
    ----------
    request : Request
        Model, and the transform: none or whitening.
    tasks : sequence of str
        Numbers of layers.
    folder : Folder
        The data.
    run : Run
        For its progress.

    Returns
    -------
    mapping of (str, str) to Number
        The average, by number of layers and metric; none if the folder holds no task.
    """
    if not folder.jobs(STS, request.sickr):
        return {}
    how = request.aggregation or _ALL
    cells = _layer_cells(replace(request, transform=None, settings=()), folder, run)
    best = best_of_sizes(cells, how)[request.transform or NONE]
    return {
        (str(size), _metric(_SPEARMAN, how)): Number(found.average, at=layers_label(found.layers))
        for size, found in best.items()
        if str(size) in tasks
    }


@lru_cache(maxsize=16)
def _layer_cells(request: Request, folder: Folder, run: Run) -> list[ReadingCell]:
    vectors = read_layers(
        open_model(request),
        folder.path,
        name=request.model,
        tasks=[name for name in folder.jobs(STS, request.sickr) if name != DEV],
        sickr=request.sickr,
        pooling=dict(request.options).get("pooling", "mean"),
        progress=run.progress,
    )
    return study_layers(vectors, aggregation=request.aggregation or _ALL)


def best_settings(request: Request, tasks: Sequence[str], folder: Folder, run: Run) -> Numbers:
    """Find the best value of one setting of GEM, and how far the score moves with it.

    Parameters
    ----------
    request : Request
        Model, and which setting.
    tasks : sequence of str
        Tasks of STS.
    folder : Folder
        The data.
    run : Run
        For its progress.

    Returns
    -------
    mapping of (str, str) to Number
        By task and metric; only tasks that the folder holds.
    """
    held = tuple(task for task in tasks if task in folder.jobs(STS, request.sickr))
    if not held:
        return {}
    cells = _gem_cells(replace(request, study=None), held, folder, run)
    setting = SENSITIVITY[request.study or "window"][0]

    def scores(task: str, metric: str) -> dict[str, float]:
        moved = (cell for cell in cells if (cell.task, cell.study) == (task, request.study))
        return {cell.condition: getattr(cell, metric) for cell in moved}

    return {(task, metric): _best(setting, scores(task, metric)) for task in held for metric in (_PEARSON, _SPEARMAN)}


@lru_cache(maxsize=16)
def _gem_cells(request: Request, tasks: tuple[str, ...], folder: Folder, run: Run) -> list[GemCell]:
    return study_gem(open_model(request), folder.path, name=request.model, tasks=tasks, progress=run.progress)


def _best(setting: str, scores: Mapping[str, float]) -> Number:
    best = max(scores, key=lambda value: -np.inf if np.isnan(scores[value]) else scores[value])
    return Number(scores[best], at=f"{setting} = {best}; {100 * min(scores.values()):.2f} at the least")


def _metric(name: str, how: str) -> str:
    return name if how == _ALL else f"{name}_{how}"
