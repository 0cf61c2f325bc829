"""Several trainings one after another: over seeds, or one on top of the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from isosent.encoders.reference import escape
from isosent.errors import FileFormatError, InputError, OutputError
from isosent.files.atomic import check_parent
from isosent.files.documents import read_document
from isosent.loading import load
from isosent.model_folder import RECORD_FILE
from isosent.training.bases import SCRATCH, is_scratch
from isosent.training.development import DevScore
from isosent.training.job import Scores, TrainingJob, TrainingResult
from isosent.training.progress import TrainingProgress
from isosent.training.run import FORMAT, FORMAT_VERSION, train
from isosent.training.run_folder import RunFolder, check_same
from isosent.training.schemas import Record
from isosent.training.settings import LEARNING_RATES


@dataclass(frozen=True, slots=True)
class Spread:
    """A score over several seeds.

    Parameters
    ----------
    mean : float
        Its mean.
    deviation : float
        Standard deviation of a sample (divisor n - 1); NaN for one seed.
    n_seeds : int
        Seeds.
    """

    mean: float
    deviation: float
    n_seeds: int


def plan(stages: Sequence[TrainingJob], *, n_seeds: int | None = None) -> list[TrainingJob]:
    """Lay out trainings: each stage goes on with the model of the one before, and all of them are done for every seed.

    Parameters
    ----------
    stages : sequence of TrainingJob
        The base is that of the first.
    n_seeds : int, optional
        Repeat them with the seeds 0, 1, ..., each in a folder ``seed-S`` of the output of its stage. None is one
        training with the seed of the settings.

    Returns
    -------
    list of TrainingJob
        In the order in which they are to be trained. What began from scratch goes on with the learning rate of that.

    Raises
    ------
    InputError
        If there are no seeds.
    """
    if n_seeds is not None and n_seeds < 1:
        raise InputError(f"train: seeds must be at least 1; got {n_seeds}.")
    jobs: list[TrainingJob] = []
    for seed in [None] if n_seeds is None else range(n_seeds):
        base = stages[0].base
        for stage in stages:
            job = replace(stage if seed is None else _with_seed(stage, seed), base=base)
            if stage is not stages[0] and is_scratch(stages[0].base) and job.settings.learning_rate is None:
                job = replace(job, settings=replace(job.settings, learning_rate=LEARNING_RATES[SCRATCH]))
            base = escape(str(job.output.absolute()))
            jobs.append(job)
    return jobs


def _with_seed(job: TrainingJob, seed: int) -> TrainingJob:
    return replace(job, settings=replace(job.settings, seed=seed), output=job.output / f"seed-{seed}")


def train_all(
    jobs: Sequence[TrainingJob],
    *,
    resume: bool = False,
    progress: Callable[[TrainingJob], AbstractContextManager[TrainingProgress | None]] = lambda job: nullcontext(),
) -> list[TrainingResult]:
    """Train one job after another.

    Parameters
    ----------
    jobs : sequence of TrainingJob
        The jobs. Folders that their outputs lie in are made.
    resume : bool, default False
        Whether to go on: what is done is opened, what was stopped goes on, the rest begins.
    progress : callable, optional
        From a job to what is shown how it goes, opened around the training.

    Returns
    -------
    list of TrainingResult
        One a job.

    Raises
    ------
    InputError, OutputError, NonFiniteLossError
        As `train` does.
    """
    if resume and not any(_is_begun(job) or _is_done(job) for job in jobs):
        raise InputError(
            f"train: --resume needs a run that was stopped; {RunFolder(jobs[0].output).path} holds none. Leave it out."
        )
    return [_train(job, resume=resume, progress=progress(job)) for job in jobs]


def _is_begun(job: TrainingJob) -> bool:
    return RunFolder(job.output).is_begun


def _is_done(job: TrainingJob) -> bool:
    return not _is_begun(job) and (job.output / RECORD_FILE).exists()


def is_first_process() -> bool:
    """Whether this process is the only one, or the first of several that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


def _train(
    job: TrainingJob, *, resume: bool, progress: AbstractContextManager[TrainingProgress | None]
) -> TrainingResult:
    if resume and _is_done(job):
        check_same(job.output, _read_record(job.output), job.facts() | job.ending_facts())
        if is_first_process():
            RunFolder(job.output).tidy()
            with progress as shown:
                if shown is not None:
                    shown.message(f"{job.output}: this run is finished; its model is opened")
        return read_training(job.output)
    try:
        job.output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{job.output.parent} could not be made: {error.strerror}.") from error
    check_parent(job.output)
    with progress as shown:
        return train(job, resume=resume and _is_begun(job), progress=shown)


def read_training(folder: Path) -> TrainingResult:
    """Open a trained model with the record of its training.

    Parameters
    ----------
    folder : Path
        What `train` wrote.

    Returns
    -------
    TrainingResult
        As `train` returned it.

    Raises
    ------
    FileFormatError
        If the record is damaged.
    ModelFolderError
        If the model is.
    """
    record = _read_record(folder)
    scores = {
        name: Scores(**{when: of and _score(of) for when, of in fields.items()})
        for name, fields in record["scores"].items()
    }
    counts = {name: record[name] for name in ("n_steps", "kept_step", "elapsed_s")}
    return TrainingResult(load(folder), folder, scores, **counts)


def _read_record(folder: Path) -> dict[str, Any]:
    try:
        return read_document(folder / RECORD_FILE, FORMAT, FORMAT_VERSION, Record)
    except FileFormatError as error:
        raise FileFormatError(f"{error} Remove {folder} to train again.") from None


def _score(of: Mapping[str, float | None]) -> DevScore:
    return DevScore(**{name: float("nan") if value is None else value for name, value in of.items()})  # type: ignore[arg-type]


def spread(scores: Iterable[float]) -> Spread:
    """Mean and standard deviation of a score over seeds.

    Parameters
    ----------
    scores : iterable of float
        One a seed.

    Returns
    -------
    Spread
        Both.
    """
    values = np.array(list(scores))
    deviation = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    return Spread(float(values.mean()), deviation, len(values))
