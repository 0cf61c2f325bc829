"""How good the choices of "auto" are: against leaving vectors alone, whitening them, and the best in hindsight."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

from isosent.encoders.base import Progress
from isosent.evaluation.run import TARGET, encode_tasks
from isosent.evaluation.sts import Lookup, score_task, sts_task
from isosent.evaluation.sts_files import STSTask, read_sts
from isosent.io.json import nan_where_none, without_nan
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.transforms.auto import Candidate
from isosent.transforms.base import known_rows

RAW, WHITENING, HALF, PROJECTION, SPECTRUM, AUTO_ROW, BEST = (
    "as they are",
    "whitening",
    "whitening to half",
    "mean projection",
    "auto without texts",
    "auto",
    "best in hindsight",
)
ROWS = (RAW, WHITENING, HALF, PROJECTION, SPECTRUM, AUTO_ROW, BEST)


@dataclass(frozen=True, slots=True)
class AutoCell:
    """One encoder on one task, fitted on its sentences."""

    model: str  # model reference
    task: str  # the task
    # Spearman (``all``) of each of `ROWS`; "auto without texts" looks at the spectrum alone
    scores: Mapping[str, float]
    chosen: str  # what "auto" chose, and the candidate that the labels would have chosen
    best: str  # what "auto" chose, and the candidate that the labels would have chosen

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; an undefined score is None."""
        plain: dict[str, Any] = without_nan(asdict(self))
        return plain

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> AutoCell:
        """Make it of what `to_json` returned."""
        return cls(**{**document, "scores": nan_where_none(document["scores"])})


def study_auto(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    tasks: Sequence[str] | None = None,
    progress: Callable[[int], Progress] | None = None,
) -> list[AutoCell]:
    """Score a model on STS tasks: as it is, whitened, and as "auto" chooses, each fitted on the task's sentences."""
    # The best in hindsight is the highest of all candidates that "auto" weighs and of the rows of the table: it looks
    # at the labels, and so bounds what any choice among these can reach.
    found = read_sts(folder, tasks=tasks)
    encoded = encode_tasks(model, list(map(sts_task, found)), with_targets=True, progress=progress)
    return [_study_task(fitted, name, task, lookup) for task, (fitted, lookup) in zip(found, encoded, strict=True)]


def _study_task(model: SentenceEncoder, name: str, task: STSTask, encoded: Lookup) -> AutoCell:
    targets = task.target_texts
    vectors = encoded(targets)
    moments = Moments.from_rows(vectors[known_rows(vectors)])

    @cache
    def score(candidate: Candidate) -> float:
        transform = candidate.transform()
        fitted = model if transform is None else model.fitted_on_moments(moments, transform=transform)
        return score_task(task, fitted, encoded).spearman["all"]

    automatic = model.fitted(targets, transform="auto", encoded=vectors, source=TARGET)
    choice: Mapping[str, Any] = automatic.fits[-1].choice or {}
    by_auto = [Candidate(seen["name"], seen["strength"], seen["n_components"]) for seen in choice["candidates"]]
    widest = max(candidate.n_components or 0 for candidate in by_auto) if len(by_auto) > 2 else None
    rows = {
        RAW: Candidate(),
        WHITENING: Candidate("whitening", 1.0, widest),
        HALF: Candidate("whitening", 1.0, max(1, model.dim // 2)),
        PROJECTION: Candidate("mean_projection"),
    }
    scores = {row: score(candidate) for row, candidate in rows.items()}
    weighed = {str(candidate): score(candidate) for candidate in (*by_auto, *rows.values())}
    best = max(weighed, key=weighed.__getitem__)
    without_texts = model.fitted_on_moments(moments, transform="auto")
    for row, fitted in ((SPECTRUM, without_texts), (AUTO_ROW, automatic)):
        scores[row] = score_task(task, fitted, encoded).spearman["all"]
    scores[BEST] = weighed[best]
    return AutoCell(name, task.name, scores, str(choice["chosen"]), best)


@dataclass(frozen=True, slots=True)
class AutoVerdict:
    """Whether the choices kept their promises."""

    averages: Mapping[str, Mapping[str, float]]  # model, row, mean over its tasks
    # Models for which a fixed rule (raw, whitening, half) does better on average than "auto"
    below_average: tuple[str, ...]
    mean_regret: float  # mean over all cells of best in hindsight minus "auto"
    # Most that "auto" lost against leaving the vectors alone, in any cell; below 0 where it never lost
    worst_loss: float


def judge(cells: Sequence[AutoCell]) -> AutoVerdict:
    """Sum up a study."""
    models = list(dict.fromkeys(cell.model for cell in cells))
    averages = {
        model: {row: float(np.mean([cell.scores[row] for cell in cells if cell.model == model])) for row in ROWS}
        for model in models
    }
    return AutoVerdict(
        averages,
        tuple(
            model
            for model, means in averages.items()
            if means[AUTO_ROW] < max(means[RAW], means[WHITENING], means[HALF])
        ),
        float(np.mean([cell.scores[BEST] - cell.scores[AUTO_ROW] for cell in cells])),
        float(max(cell.scores[RAW] - cell.scores[AUTO_ROW] for cell in cells)),
    )
