"""What the number of dimensions is worth: scores, memory and search time against the axes that a transform keeps."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Progress
from isosent.errors import InputError
from isosent.evaluation.protocol import TARGET, describe_fitting, fit_tasks
from isosent.evaluation.published import published_rows
from isosent.evaluation.sts import score_task
from isosent.evaluation.sts_files import STSTask, read_sts
from isosent.model import SentenceEncoder
from isosent.studies.dims_result import DimsCell, DimsStudy, PublishedWidth
from isosent.studies.search_time import N_DOCS, measure_search
from isosent.transforms.base import LinearTransform, transform_name
from isosent.transforms.choice import make_linear

LEADING = ("whitening", "principal_components", "truncate")
_METHODS = ("pca", "pca_cor")


@dataclass(frozen=True, slots=True)
class DimsPlan:
    """What is studied.

    Parameters
    ----------
    transform : LinearTransform
        What keeps the leading axes: one of `LEADING`, or a chain that ends with one, at full width.
    widths : sequence of int, optional
        Dimensions kept; `width_grid` where left out.
    fit : path-like or "target", default "target"
        As for `evaluate_sts`.
    sickr : {"full", "test"}, default "full"
        As for `evaluate_sts`.
    n_docs : int, default 100,000
        Vectors that are searched; 0 measures no search.
    """

    transform: LinearTransform = field(default_factory=lambda: make_linear(LEADING[0]))
    widths: Sequence[int] | None = None
    fit: str | os.PathLike[str] = TARGET
    sickr: str = "full"
    n_docs: int = N_DOCS


class _Rows:
    """Vectors of texts, found by text."""

    def __init__(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        self.vectors = vectors
        self._row_of = {text: row for row, text in enumerate(texts)}

    def of(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.vectors[[self._row_of[text] for text in texts]]


def width_grid(dim: int) -> list[int]:
    """Widths to look at: powers of two from 8 on, with steps between them that narrow, and the full width.

    Parameters
    ----------
    dim : int
        Dimensions of the vectors.

    Returns
    -------
    list of int
        Ascending.

    Examples
    --------
    >>> width_grid(300)
    [8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 300]
    """
    octaves = [8 << octave for octave in range(dim.bit_length())]
    parts = {start: 1 if start < 32 else 2 if start < 128 else 4 for start in octaves}
    steps = (start + part * start // n_parts for start, n_parts in parts.items() for part in range(n_parts))
    return sorted({*(step for step in steps if step < dim), dim})


def study_dims(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    plan: DimsPlan | None = None,
    tasks: Sequence[str] | None = None,
    progress: Callable[[int], Progress] | None = None,
) -> DimsStudy:
    """Score a model on STS tasks at several widths, and time a search at each.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    folder : path-like
        Where the original files lie, see `read_sts`.
    name : str
        What the model is called in the results.
    plan : DimsPlan, optional
        Transform, widths and what is fitted on; whitening at `width_grid` on the target where left out.
    tasks : sequence of str, optional
        As for `evaluate_sts`.
    progress : callable, optional
        As for `evaluate_sts`.

    Returns
    -------
    DimsStudy
        Scores of every task at every width.

    Raises
    ------
    InputError
        If the transform does not keep leading axes, a width is out of range, the model ends with scaling to length 1,
        or as `evaluate_sts` does.

    Warns
    -----
    RankWarning
        If the sentences of a task vary along fewer axes than the full width.

    Notes
    -----
    Each sentence is encoded once, and the transform is fitted once for each task, at full width: its first k columns
    are the transform of width k.

    References
    ----------
    Su, Cao, Liu & Ou 2021, *Whitening Sentence Representations for Better Semantics and Faster Retrieval*,
    arXiv 2103.15316, figure 1.
    """
    plan = DimsPlan() if plan is None else plan
    widths = _check_plan(plan, model)
    found = read_sts(folder, tasks=tasks, sickr=plan.sickr)
    untransformed, cells = [], []
    ready = fit_tasks(model, found, transform=plan.transform, fit=plan.fit, progress=progress)
    for task, done in zip(found, ready, strict=True):
        texts = list(dict.fromkeys(task.texts))
        vectors = done.vectors(texts)
        plain, transformed = (_Rows(texts, model.transform(vectors)) for model in (done.bare, done.fitted))
        untransformed.append(_measure(task, done.bare, plain, model.dim))
        cells += [_measure(task, done.bare, transformed, k) for k in widths]
    missing = {task.name: list(task.missing_subsets) for task in found if task.missing_subsets}
    protocol = describe_fitting(plan.transform, plan.fit) | {"sickr": plan.sickr, "missing_subsets": missing}
    facts = model.record.facts()
    search = measure_search(widths, n_docs=plan.n_docs) if plan.n_docs else []
    published = _published(facts, protocol, [task.name for task in found], [*widths], model.dim)
    return DimsStudy(name, facts, protocol, tuple(untransformed), tuple(cells), tuple(search), published)


def _check_plan(plan: DimsPlan, model: SentenceEncoder) -> list[int]:
    """Refuse what cannot be studied; return the widths, ascending."""
    settings = plan.transform.get_params(deep=False)
    steps = [step for _, step in settings["steps"]] if "steps" in settings else [plan.transform]
    linear = [step for step in steps if transform_name(step) != "l2_normalize"]
    last = linear[-1] if linear else steps[-1]
    own = last.get_params(deep=False)
    if transform_name(last) not in LEADING or own.get("method", _METHODS[0]) not in _METHODS:
        raise InputError(
            f"study dims: transform must end with {', '.join(LEADING)} (whitening by method {' or '.join(_METHODS)}), "
            f"whose first axes are the best of their number; got {last!r}."
        )
    if own["n_components"] is not None:
        raise InputError(
            f"study dims: transform must be of full width, for its first axes are taken from it; got {last!r}. Name "
            "widths instead."
        )
    if model.normalize:
        raise InputError(
            "study dims: the model must not end with scaling to length 1, because nothing folds behind that; it does. "
            "Study its encoder."
        )
    if plan.widths is None:
        return width_grid(model.dim)
    if not len(plan.widths):
        raise InputError("study dims: widths must hold at least one number; got none. Leave them out for a grid.")
    return sorted({_check.component_count("study dims", k, model.dim) for k in plan.widths})


def _measure(task: STSTask, model: SentenceEncoder, rows: _Rows, k: int) -> DimsCell:
    scores = score_task(task, SentenceEncoder(model.encoder), lambda texts: rows.of(texts)[:, :k])
    return DimsCell(task.name, k, min(k, rows.vectors.shape[1]), scores.n_pairs, scores.n_zero_rows, scores.spearman)


def _published(
    model: Mapping[str, Any], protocol: Mapping[str, Any], tasks: Sequence[str], widths: Sequence[int], dim: int
) -> tuple[PublishedWidth, ...]:
    """What was published for the model, as it is and at each width."""
    found = []
    for k, transformed in [(dim, False), *((k, True) for k in widths)]:
        wanted: dict[str, Any] = dict(protocol)
        if transformed:
            wanted["parameters"] = protocol["parameters"] | {"n_components": None if k == dim else k}
        else:
            wanted |= {"transform": None, "parameters": {}}
        for row in published_rows(model, wanted):
            scores = row.scores_of(tasks, protocol["sickr"])
            if scores:
                found.append(PublishedWidth(row.label, k, transformed, row.aggregation, scores))
    return tuple(found)
