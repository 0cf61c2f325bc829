"""How good the choices of auto are, compared with fixed rules and the best choice in hindsight."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from isosent.encoders.base import Progress
from isosent.evaluation.run import TARGET, encode_tasks
from isosent.evaluation.sts import Lookup, STSSet, read_sts, sts_task
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows
from isosent.research.study import (
    AUTO_ROW,
    BEST,
    HALF,
    PROJECTION,
    RAW,
    ROWS,
    SPECTRUM,
    WHITENING,
    AutoCell,
    pivot,
    spearman_of,
)
from isosent.transforms.auto import Candidate


def study_auto(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    tasks: Sequence[str] | None = None,
    progress: Callable[[int], Progress] | None = None,
) -> list[AutoCell]:
    """Score a model on STS tasks with each of `ROWS` fitted on the sentences of the task."""
    listed = read_sts(folder, tasks=tasks)
    encoded = encode_tasks(model, list(map(sts_task, listed)), with_targets=True, progress=progress)
    return [_study_task(fitted, name, task, lookup) for task, (fitted, lookup) in zip(listed, encoded, strict=True)]


def _study_task(model: SentenceEncoder, name: str, task: STSSet, encoded: Lookup) -> AutoCell:
    targets = task.target_texts
    vectors = encoded(targets)
    moments = Moments.from_rows(vectors[nonzero_rows(vectors)])

    @cache
    def score(candidate: Candidate) -> float:
        transform = candidate.transform()
        fitted = model if transform is None else model.fitted_on_moments(moments, transform=transform)
        return spearman_of(task, fitted, encoded)

    with_auto = model.fitted(targets, transform="auto", encoded=vectors, source=TARGET)
    choice: Mapping[str, Any] = with_auto.fits[-1].choice or {}
    weighed = [Candidate(seen["name"], seen["strength"], seen["n_components"]) for seen in choice["candidates"]]
    widest = max(candidate.n_components or 0 for candidate in weighed) if len(weighed) > 2 else None
    rows = {
        RAW: Candidate(),
        WHITENING: Candidate("whitening", 1.0, widest),
        HALF: Candidate("whitening", 1.0, max(1, model.dim // 2)),
        PROJECTION: Candidate("mean_projection"),
    }
    scores = {row: score(candidate) for row, candidate in rows.items()}
    # The best of all candidates of auto and of the rows above. It looks at the labels, and so bounds any choice.
    all_scores = {str(candidate): score(candidate) for candidate in (*weighed, *rows.values())}
    best = max(all_scores, key=all_scores.__getitem__)
    without_texts = model.fitted_on_moments(moments, transform="auto")
    for row, fitted in ((SPECTRUM, without_texts), (AUTO_ROW, with_auto)):
        scores[row] = spearman_of(task, fitted, encoded)
    scores[BEST] = all_scores[best]
    return AutoCell(name, task.name, scores, str(choice["chosen"]), best)


class AutoVerdict(NamedTuple):
    """A study of auto in a few numbers."""

    averages: Mapping[str, Mapping[str, float]]  # by model and row: mean over its tasks
    below_average: tuple[str, ...]  # models for which a fixed rule (raw, whitening, half) is better on average
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
        tuple(model for model, row in averages.items() if row[AUTO_ROW] < max(row[RAW], row[WHITENING], row[HALF])),
        float(np.mean([cell.scores[BEST] - cell.scores[AUTO_ROW] for cell in cells])),
        float(max(cell.scores[RAW] - cell.scores[AUTO_ROW] for cell in cells)),
    )
