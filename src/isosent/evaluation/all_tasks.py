"""Every task that a folder holds, in one run."""

from __future__ import annotations  # noqa: I001

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from isosent.errors import EvaluationWarning, InputError, TaskNotFoundError
from isosent.evaluation import cqa
from isosent.evaluation import retrieval
from isosent.evaluation import rte
from isosent.evaluation import sts
from isosent.evaluation import transfer
from isosent.evaluation.result import EvaluationResult
from isosent.evaluation.run import TARGET, Job, EvaluationSettings, run_jobs
from isosent.model import SentenceEncoder
from isosent.transforms.base import Transform

KINDS: Mapping[str, Callable[[str | os.PathLike[str]], list[Job]]] = {
    sts.KIND: sts.sts_jobs,
    transfer.KIND: transfer.transfer_jobs,
    cqa.KIND: cqa.cqa_jobs,
    rte.KIND: rte.rte_jobs,
    retrieval.KIND: retrieval.retrieval_jobs,
}


def evaluate_all(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    kinds: Sequence[str] | None = None,
    transform: Transform | Literal["auto"] | None = None,
    fit: str | os.PathLike[str] = TARGET,
    run: EvaluationSettings | None = None,
) -> EvaluationResult:
    """Score a model on every task below a folder; a text that occurs in several tasks is encoded once.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    folder : path-like
        Where the original files lie, as for `evaluate_sts`, `evaluate_transfer`, `evaluate_cqa`, `evaluate_rte` and
        `evaluate_retrieval`.
    kinds : sequence of str, optional
        Some of `KINDS`; all where left out.
    transform : Transform or "auto", optional
        Fitted behind the model before scoring, for each task anew under "target".
    fit : path-like or "target", default "target"
        What the transform, and an encoder that needs a corpus, is fitted on.
    run : Run, optional
        Seed, bootstrap, progress.

    Returns
    -------
    EvaluationResult
        Scores of every task that was found, with the defaults of each kind.

    Raises
    ------
    InputError
        If a kind is unknown, or a file is malformed.
    TaskNotFoundError
        If no task is found at all, or none of a kind that was asked for.

    Warns
    -----
    EvaluationWarning
        If a kind has no files in the folder, where all were asked for.
    """
    jobs = jobs_of_kinds(folder, kinds)
    return run_jobs("evaluate_all", model, jobs, folder, transform=transform, fit=fit, run=run)


def jobs_of_kinds(folder: str | os.PathLike[str], kinds: Sequence[str] | None = None) -> list[Job]:
    """Read every task below a folder; parameters, errors and warnings as for `evaluate_all`."""
    if unknown := [kind for kind in kinds or () if kind not in KINDS]:
        raise InputError(f"evaluate: kinds must be among {', '.join(KINDS)}; got {', '.join(unknown)}.")
    jobs: list[Job] = []
    absent: list[TaskNotFoundError] = []
    for kind in KINDS if kinds is None else kinds:
        try:
            jobs += KINDS[kind](folder)
        except TaskNotFoundError as error:
            if kinds is not None:
                raise
            absent.append(error)
    if not jobs:
        raise TaskNotFoundError(" ".join(map(str, absent)))
    for reason in absent:
        warnings.warn(f"left out: {reason}", EvaluationWarning, stacklevel=3)
    return jobs
