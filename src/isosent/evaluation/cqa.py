"""Community question answering: which related questions ask the same as a new one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from isosent.evaluation.cqa_files import TEXT_PARTS, CQATask, Question, read_cqa
from isosent.evaluation.protocol import TARGET, FittedTask
from isosent.evaluation.result import EvaluationResult, Items, Measured
from isosent.evaluation.rte import FIXED_THRESHOLD
from isosent.evaluation.running import Job, Run, run_jobs
from isosent.model import SentenceEncoder
from isosent.numeric.ranking import (
    Ranks,
    average_precision,
    expected_average_precision,
    ranks_by_score,
    reciprocal_rank,
)
from isosent.numeric.similarity import pairwise_cosine
from isosent.transforms.base import Transform

KIND = "cqa"
GEM_OPTIONS: Mapping[str, str] = {"weighting": "gem", "window": "6", "n_removed": "15", "ranking": "unweighted"}
"""Options of `isosent.load` for GEM as its paper (Yang, Zhu & Chen 2019) sets it for this task."""


def evaluate_cqa(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    text: str = TEXT_PARTS[0],
    transform: Transform | Literal["auto"] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    run: Run | None = None,
) -> EvaluationResult:
    """Rank related questions by their cosine with a new one, on subtask B of SemEval's task 3.

    Parameters
    ----------
    model : SentenceEncoder
        The model; ``isosent.load(reference, options=GEM_OPTIONS)`` is GEM as its paper sets it for this task.
    folder : path-like
        Where the original files lie, see `read_cqa`.
    text : {"subject+body", "subject", "body"}, default "subject+body"
        What the text of a question is.
    transform : Transform or "auto", optional
        Fitted behind the model before scoring, such as ``Whitening(n_components=128)``.
    fit : path-like or "target", default "target"
        What the transform, and an encoder that needs a corpus, is fitted on: all questions of the part under
        evaluation, without its labels, or the texts of a file.
    run : Run, optional
        Seed, bootstrap, progress.

    Returns
    -------
    EvaluationResult
        For each part that is found, ``map``; ``mrr``; ``accuracy`` of calling a candidate relevant where its cosine
        lies above 0.5, and ``accuracy_majority`` of always naming the more frequent label. Under ``details`` what the
        order of the search engine, a random order (in expectation) and the best order would score.

    Raises
    ------
    InputError
        If the files are not there or malformed.

    Notes
    -----
    A candidate is relevant if it is labelled PerfectMatch or Relevant. Candidates of equal cosine are ranked as by the
    search engine. ``map`` and ``mrr`` are means over all new questions; one without a relevant candidate counts as 0,
    as for the scorer of the task. ``accuracy`` says as much about where a model's cosines lie as about what they tell
    apart.

    References
    ----------
    Nakov et al. 2016, *SemEval-2016 Task 3: Community Question Answering*.
    """
    return run_jobs("evaluate_cqa", model, cqa_jobs(folder, text=text), folder, transform=transform, fit=fit, run=run)


def cqa_jobs(folder: str | os.PathLike[str], *, text: str = TEXT_PARTS[0]) -> list[Job]:
    """Read the parts of subtask B and say how they are scored; parameters as for `evaluate_cqa`."""
    protocol = {
        "similarity": "cosine",
        "text": text,
        "no_relevant_candidate": "counts as 0",
        "threshold": FIXED_THRESHOLD,
    }
    return [
        Job(task.name, KIND, task, partial(_measure, task), protocol, task.files)
        for task in read_cqa(folder, text=text)
    ]


def _measure(task: CQATask, done: FittedTask, seed: int) -> Measured:
    cosines = [_cosines(question, done) for question in task.questions]
    relevant = [question.relevant for question in task.questions]
    found = [ranks_by_score(scores)[labels] for scores, labels in zip(cosines, relevant, strict=True)]
    precisions, all_relevant = _precisions(found), np.concatenate(relevant)
    share = float(all_relevant.mean())
    return Measured(
        "map",
        {
            "map": float(precisions.mean()),
            "mrr": _mean_reciprocal_rank(found),
            "accuracy": float(np.mean((np.concatenate(cosines) > FIXED_THRESHOLD) == all_relevant)),
            "accuracy_majority": max(share, 1 - share),
        },
        Items(precisions),
        _anchors(relevant),
    )


def _anchors(relevant: Sequence[NDArray[np.bool_]]) -> dict[str, object]:
    searched = [1 + np.flatnonzero(labels) for labels in relevant]
    expected = [
        expected_average_precision(len(ranks), len(labels)) for ranks, labels in zip(searched, relevant, strict=True)
    ]
    return {
        "search_engine": {"map": float(_precisions(searched).mean()), "mrr": _mean_reciprocal_rank(searched)},
        "random": {"map": float(np.mean(expected))},
        "best": {"map": float(np.mean([labels.any() for labels in relevant]))},
        "n_candidates": sum(map(len, relevant)),
        "n_relevant": int(sum(labels.sum() for labels in relevant)),
        "n_without_relevant": sum(not labels.any() for labels in relevant),
    }


def _precisions(found: Sequence[Ranks]) -> NDArray[np.float64]:
    return np.array([average_precision(ranks) for ranks in found])


def _mean_reciprocal_rank(found: Sequence[Ranks]) -> float:
    return float(np.mean([reciprocal_rank(ranks) for ranks in found]))


def _cosines(question: Question, done: FittedTask) -> NDArray[np.float64]:
    candidates = done.encode(question.candidates)
    return pairwise_cosine(np.broadcast_to(done.encode([question.text]), candidates.shape), candidates)
