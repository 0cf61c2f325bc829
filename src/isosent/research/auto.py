"""How good the choices of auto are, compared with fixed rules and the best choice in hindsight."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isosent.evaluation.run import TARGET, encode_tasks
from isosent.evaluation.sts import Lookup, STSSet, sts_task
from isosent.evaluation.tables import x100
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows
from isosent.numeric.spectrum import spectrum
from isosent.pages.progress import Progress
from isosent.pages.report import ReportTable
from isosent.research.study import (
    AUTO_ROW,
    BEST,
    HALF,
    PROJECTION,
    RAW,
    ROWS,
    WHITENING,
    AutoCell,
    StudyKind,
    deviations_of,
    pivot,
    read_sets,
    spearman_of,
    study_notes,
    task_titles,
)
from isosent.transforms.agreement import distinct_rows
from isosent.transforms.auto import STRENGTHS
from isosent.transforms.base import make_linear


def study_auto(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    tasks: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> list[AutoCell]:
    """Score a model on STS tasks with each of `ROWS` fitted on the sentences of the task."""
    listed = read_sets(folder, tasks=tasks)
    encoded = encode_tasks(model, list(map(sts_task, listed)), with_targets=True, progress=progress)
    return [_study_task(fitted, name, task, lookup) for task, (fitted, lookup) in zip(listed, encoded, strict=True)]


def _study_task(model: SentenceEncoder, name: str, task: STSSet, encoded: Lookup) -> AutoCell:
    targets = task.target_texts
    vectors = encoded(targets)
    distinct = vectors[distinct_rows(targets)]
    moments = Moments.from_rows(distinct[nonzero_rows(distinct)])

    def score(name: str, **settings: Any) -> float:
        transform = make_linear(name, settings=settings)
        return spearman_of(task, model.fitted_on_moments(moments, transform=transform), encoded)

    with_auto = model.fitted(targets, transform="auto", encoded=vectors, source=TARGET)
    choice: Mapping[str, Any] = with_auto.fits[-1].choice or {}
    rank = max(1, spectrum(moments.covariance, noise=moments.rounding_variance).rank)
    half = min(rank, max(1, model.dim // 2))
    quarter = min(rank, max(1, model.dim // 4))
    # The best of all strengths at three widths, mean projection and none, by the labels: a bound for any choice.
    whitenings = {
        (strength, k): score("whitening", strength=strength, n_components=k)
        for k in dict.fromkeys((rank, half, quarter))
        for strength in STRENGTHS
    }
    scores = {
        RAW: spearman_of(task, model, encoded),
        WHITENING: whitenings[1.0, rank],
        HALF: whitenings[1.0, half],
        PROJECTION: score("mean_projection"),
        AUTO_ROW: spearman_of(task, with_auto, encoded),
    }
    named = {f"whitening (strength {strength:g}, {k} dimensions)": each for (strength, k), each in whitenings.items()}
    named |= {"no transform": scores[RAW], "mean projection": scores[PROJECTION]}
    chosen = str(choice["chosen"])  # with shrinkage, which the others do not have
    named[chosen] = max(named.get(chosen, -1.0), scores[AUTO_ROW])
    best = max(named, key=named.__getitem__)
    scores[BEST] = named[best]
    return AutoCell(name, task.name, scores, str(choice["reason"]), best, deviations_of(task))


_FIXED = (RAW, WHITENING, HALF, PROJECTION)


class AutoVerdict(NamedTuple):
    """A study of auto in a few numbers."""

    averages: Mapping[str, Mapping[str, float]]  # by model and row: mean over its tasks
    below_average: tuple[str, ...]  # models for which one of `_FIXED` is better on average
    mean_regret: float  # best in hindsight minus auto, mean over all cells
    worst_loss: float  # most that auto lost against the vectors as they are; negative if it never lost


def judge(cells: Sequence[AutoCell]) -> AutoVerdict:
    """Sum up a study."""
    scores = [(cell.model, row, cell.scores[row]) for cell in cells for row in ROWS]
    averages: dict[str, dict[str, float]] = {}
    for (model, row), mean in pivot(scores, lambda each: each[:2], lambda each: each[2]).items():
        averages.setdefault(model, {})[row] = mean
    return AutoVerdict(
        averages,
        tuple(model for model, row in averages.items() if row[AUTO_ROW] < max(row[fixed] for fixed in _FIXED)),
        float(np.mean([cell.scores[BEST] - cell.scores[AUTO_ROW] for cell in cells])),
        float(max(cell.scores[RAW] - cell.scores[AUTO_ROW] for cell in cells)),
    )


def _run(model: SentenceEncoder, data: Path, _: Mapping[str, Any], **common: Any) -> list[AutoCell]:
    return study_auto(model, data, **common)


def _tables(cells: Sequence[AutoCell], _: str) -> Iterator[ReportTable | str]:
    """Every row on every task, x100, and what auto gains and loses."""
    verdict = judge(cells)
    for model, means in verdict.averages.items():
        of_model = [cell for cell in cells if cell.model == model]
        choices = [f"{cell.task}: {cell.chosen} Best in hindsight: {cell.best}." for cell in of_model]
        tasks = task_titles(of_model).values()
        caption = "\n".join([*choices, *study_notes(of_model)])
        table = ReportTable("x100", *tasks, "average", title=model, caption=caption)
        for row in ROWS:
            table.add_row(row, *(x100(cell.scores[row]) for cell in of_model), x100(means[row]))
        yield table
    yield f"models for which a fixed rule has a higher average than auto: {', '.join(verdict.below_average) or 'none'}"
    yield f"best in hindsight minus auto, mean over encoders and tasks ({len(cells)}): {100 * verdict.mean_regret:.2f}"
    yield f"largest loss against the original vectors: {100 * max(0.0, verdict.worst_loss):.2f}"


STUDY = StudyKind(_run, _tables, has_joint_tables=True)
