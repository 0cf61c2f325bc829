"""What is trained, in which order: one model, stages of which each trains the model of the last, seeds.

`training_job` reads all data of a run, which `train` trains. `plan` repeats jobs for several seeds and
lets each stage train the model of the stage before; `train_all` runs such a list and passes over what is finished.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from isosent.encoders.reference import escape
from isosent.errors import InputError, OutputError, option, wrong_value
from isosent.io.atomic import check_parent
from isosent.io.pairs import DEV, TEST, ScoredPairs
from isosent.io.texts import read_texts
from isosent.pages.progress import Progress
from isosent.persistence import RECORD_FILE
from isosent.training.base_models import is_scratch
from isosent.training.data import Columns, Examples, read_dev_set, read_examples
from isosent.training.development import check_dev_set
from isosent.training.metrics import TrainingCallback
from isosent.training.record import (
    TRAINING_TEXTS,
    RunFolder,
    TrainingJob,
    TrainingResult,
    read_training,
)
from isosent.training.run import train_job
from isosent.training.settings import LEARNING_RATES, TrainingSettings
from isosent.transforms.base import AUTO, Auto, Transform, resolve_transform

File = str | os.PathLike[str]
NLI_STSB: Final = "nli-stsb"


def train(
    base: str | os.PathLike[str],
    data: Examples | File | Sequence[File],
    output: File,
    objective: str | None = None,
    *,
    columns: Columns | None = None,
    dev: ScoredPairs | File | None = None,
    dev_columns: Columns | None = None,
    tests: Sequence[ScoredPairs | File] = (),
    transform: Transform | str | None = None,
    fit_on: Sequence[str] | File | None = None,
    settings: TrainingSettings | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    report: TrainingCallback | None = None,
    **changes: Any,
) -> TrainingResult:
    """Train a sentence encoder on pairs or triplets, and save it.

    Parameters
    ----------
    base : str or path-like
        Model reference of the base, or ``scratch:`` for random weights; a path names a folder.
    data : Examples, path-like, or sequence of path-like
        Training data; files are read by `read_examples`.
    output : path-like
        Folder to write: the model, for isosent and sentence-transformers, with its metrics and ``training.json``.
    objective : {"classification", "regression", "triplet", "ranking"}, optional
        What is minimized, see `TrainingSettings`. The default is that of `data` if it is `Examples`, else that of the
        settings.
    columns : str, sequence of str, or mapping of str to str, optional
        Columns of the files in `data`, see `read_examples`; those of `dev` and `tests` too if the objective is
        regression or ranking.
    dev : ScoredPairs or path-like, optional
        Development set, scored before, during and after the training. It decides which weights are kept.
    dev_columns : str, sequence of str, or mapping of str to str, optional
        Columns of the files in `dev` and `tests`, see `read_dev_set`.
    tests : sequence of ScoredPairs or path-like, optional
        Sets that are scored before and after.
    transform : Transform or str, optional
        Transform to fit on the trained model and save with it, as for `SentenceEncoder.fitted`. Not a flow, which
        sentence-transformers cannot load.
    fit_on : sequence of str, or path-like, optional
        Texts for `transform`, or a file of them. The default is the training texts.
    settings : TrainingSettings, optional
        Settings to start from.
    resume : bool, default False
        Resume the interrupted run of this folder from its newest checkpoint.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in steps.
    report : callable, optional
        Called with each step (``StepPoint``: loss, learning rate, speed), each score of the development set
        (``DevPoint``) and each message (str).
    **changes
        Fields of `TrainingSettings`, such as ``batch_size=32``, in place of those of `settings`.

    Returns
    -------
    TrainingResult
        The saved model, and its scores before and after.

    Raises
    ------
    InputError
        If the base, the data or the settings cannot be used; or there is no run to resume, or one with other data or
        settings.
    OutputError
        If a checkpoint or the model cannot be written, or an unfinished run is in the way. Existing files are intact.
    NonFiniteLossError
        If the loss or the gradient is not finite. The message names the rows of the batch; the last checkpoint is kept.
    MissingExtraError
        If the extra ``train`` is not installed.

    Notes
    -----
    AdamW with a learning rate that rises linearly and then falls linearly to 0 (Reimers & Gurevych 2019, section
    3.1), by the trainer of sentence-transformers. During the run, checkpoints and metrics are in ``OUTPUT.training``,
    which is removed when the model has been saved. On a CPU, a resumed run ends with the same weights as an
    uninterrupted one.

    Under ``torchrun``, every process calls this function. All of them train; the first one scores and writes.

    Examples
    --------
    >>> from isosent.training import train
    >>> result = train("hf:bert-base-uncased", "train.tsv", "model", "regression", dev="dev.tsv")  # doctest: +SKIP
    >>> result.scores["dev"].after.spearman  # doctest: +SKIP
    0.846
    """
    if objective is None:
        objective = data.objective if isinstance(data, Examples) else (settings or TrainingSettings()).objective
    # All at once, because some settings are valid for one objective only.
    settings = replace(settings or TrainingSettings(), objective=objective, **changes)
    job = training_job(
        escape(str(Path(base).absolute())) if isinstance(base, os.PathLike) else base,
        data,
        output,
        settings,
        columns=columns,
        dev=dev,
        dev_columns=dev_columns,
        tests=tests,
        transform=resolve_transform(transform),
        fit_on=fit_on,
    )
    return train_job(job, resume=resume, progress=progress, report=report)


def training_job(
    base: str,
    data: Examples | File | Sequence[File],
    output: File,
    settings: TrainingSettings,
    *,
    columns: Columns | None = None,
    class_names: Sequence[str] | None = None,
    score_range: tuple[float, float] | None = None,
    dev: ScoredPairs | File | None = None,
    dev_columns: Columns | None = None,
    tests: Sequence[ScoredPairs | File] = (),
    transform: Transform | Auto | None = None,
    fit_on: Sequence[str] | File | None = None,
) -> TrainingJob:
    """Read what a run needs, see `train`."""
    if transform is None and fit_on is not None:
        raise InputError(f"train: {option('fit_on')} needs a transform to fit. Add {option('transform', AUTO)}.")
    if isinstance(data, Examples):
        examples = data
    else:
        files = [data] if isinstance(data, (str, os.PathLike)) else data
        named: dict[str, Any] = {"columns": columns, "class_names": class_names, "score_range": score_range}
        examples = read_examples(settings.objective, files, **named)
    scored = "ranking" if examples.objective == "ranking" else "regression"
    inherited = columns if examples.objective == scored else None

    def dev_set(pairs: ScoredPairs | File, part: str) -> ScoredPairs:
        if isinstance(pairs, ScoredPairs):
            return check_dev_set(pairs)
        return read_dev_set(pairs, columns=dev_columns, data_columns=inherited, objective=scored, part=part)

    if isinstance(fit_on, (str, os.PathLike)):
        fit_on, fit_source = read_texts(fit_on), str(fit_on)
    else:
        fit_source = TRAINING_TEXTS if fit_on is None else "texts"
    return TrainingJob(
        base,
        examples,
        Path(output),
        settings,
        dev=None if dev is None else dev_set(dev, DEV),
        tests=[dev_set(pairs, TEST) for pairs in tests],
        transform=transform,
        fit_texts=fit_on,
        fit_source=fit_source,
    )


def nli_stsb_stages(first: TrainingJob, sts: Examples, *, n_epochs: float = 4.0) -> list[TrainingJob]:
    """Classification on NLI in OUTPUT/nli, then regression on STS in OUTPUT/nli-stsb."""
    # Reimers & Gurevych 2019, section 4.2. The second stage keeps the pooling and the length of the first.
    settings = replace(first.settings, objective="regression", n_epochs=n_epochs, pooling=None, max_length=None)
    return [
        replace(first, output=first.output / "nli"),
        replace(first, examples=sts, output=first.output / NLI_STSB, settings=settings),
    ]


def plan(stages: Sequence[TrainingJob], *, n_seeds: int | None = None) -> list[TrainingJob]:
    """Jobs in order: each stage trains the model of the stage before it, and all stages are repeated for every seed."""
    if n_seeds is not None and n_seeds < 1:
        raise wrong_value("train", "seeds", "be at least 1", n_seeds)
    jobs: list[TrainingJob] = []
    for seed in [None] if n_seeds is None else range(n_seeds):
        base = stages[0].base
        for stage in stages:
            settings, output = stage.settings, stage.output
            if seed is not None:
                settings, output = replace(settings, seed=seed), output / f"seed-{seed}"
            if stage is not stages[0] and is_scratch(stages[0].base) and settings.learning_rate is None:
                settings = replace(settings, learning_rate=LEARNING_RATES["scratch"])
            jobs.append(replace(stage, settings=settings, output=output, base=base))
            base = escape(str(output.absolute()))
    return jobs


def train_all(
    jobs: Sequence[TrainingJob],
    *,
    resume: bool = False,
    progress: Progress | None = None,
    report: TrainingCallback | None = None,
) -> list[TrainingResult]:
    """Train one job after another; with `resume`, those that are finished are loaded instead."""
    is_done = {job.output: not RunFolder(job.output).is_begun and (job.output / RECORD_FILE).exists() for job in jobs}
    if resume and not any(is_done[job.output] or RunFolder(job.output).is_begun for job in jobs):
        raise InputError(
            f"train: {option('resume', True)} needs a run that was stopped; {RunFolder(jobs[0].output).path} has none."
        )
    results = []
    for job in jobs:
        if resume and is_done[job.output]:
            result = read_training(job.output, job)
            if is_first_process():
                RunFolder(job.output).tidy()
                if report:
                    report(f"{job.output}: this run is finished, its model is loaded")
            results.append(result)
            continue
        try:
            job.output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{job.output.parent} could not be created: {error.strerror}.") from error
        check_parent(job.output)
        is_begun = resume and RunFolder(job.output).is_begun
        results.append(train_job(job, resume=is_begun, progress=progress, report=report))
    return results


def is_first_process() -> bool:
    """Whether this process is the only one, or the first of several that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0
