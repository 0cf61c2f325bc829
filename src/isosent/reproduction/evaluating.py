"""Tasks of a data folder, and the numbers that a model has on them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from isosent.encoders.reference import parse_reference
from isosent.errors import InputError, TaskNotFoundError
from isosent.evaluation.everything import KINDS
from isosent.evaluation.result import TaskResult
from isosent.evaluation.running import Job, Run, run_jobs
from isosent.evaluation.sts import sts_jobs
from isosent.evaluation.sts_files import STSTask
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.papers.tables import EVALUATED, TARGET
from isosent.reproduction.request import DEV, STSB, Request
from isosent.reproduction.result import Number
from isosent.transforms.base import Transform
from isosent.transforms.choice import make_transform

STS = "sts"
CPU = "CPU"
_TEST_FILE, _DEV_FILE = "sts-test.csv", "sts-dev.csv"
_WARM_UP, _LONG_ENOUGH_S = 64, 1.0

Numbers = Mapping[tuple[str, str | None], Number]


class Folder:
    """The tasks of a data folder, each read once.

    Parameters
    ----------
    path : Path
        The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._jobs: dict[tuple[str, str], dict[str, Job]] = {}

    def jobs(self, family: str, sickr: str) -> Mapping[str, Job]:
        """Return the tasks of a family that the folder holds, by name; possibly none.

        Parameters
        ----------
        family : str
            A key of `KINDS`.
        sickr : {"full", "test"}
            Pairs of SICK-R.

        Returns
        -------
        mapping of str to Job
            The tasks; among those of STS ``STSB-dev``, the dev part of the STS benchmark.

        Raises
        ------
        FileFormatError
            If a file is malformed.
        """
        key = (family, sickr)
        if key not in self._jobs:
            try:
                jobs = sts_jobs(self.path, sickr=sickr) if family == STS else KINDS[family](self.path)
            except TaskNotFoundError:
                jobs = []
            dev = [_dev_part(job) for job in jobs if job.name == STSB]
            self._jobs[key] = {job.name: job for job in [*jobs, *filter(None, dev)]}
        return self._jobs[key]


def _dev_part(stsb: Job) -> Job | None:
    """The dev part of the STS benchmark as a task of its own, where it is there: read as if it were the test part."""
    dev = next((path for path in stsb.files if path.name == _DEV_FILE), None)
    if dev is None:
        return None
    with TemporaryDirectory() as folder:
        shutil.copyfile(dev, Path(folder, _TEST_FILE))
        (job,) = sts_jobs(folder)
    return replace(job, name=DEV, files=[dev])


def _on_evaluated_pairs(job: Job) -> Job:
    """The same task, with what is fitted on it fitted on the sentences of its evaluated pairs."""
    if not isinstance(job.task, STSTask):
        raise InputError(f"reproduce: fit: {EVALUATED} must stand with tasks of STS; got {job.name}.")
    return replace(job, task=replace(job.task, target_texts=job.task.texts))


def open_model(request: Request, **options: str) -> SentenceEncoder:
    """Open the model of a request, with further options."""
    return load(request.reference, options=dict(request.options) | options)


def transform_of(request: Request, dim: int) -> Transform | None:
    """Make the transform of a request, for vectors of `dim` dimensions."""
    if request.transform is None:
        return None
    return make_transform(request.transform, dim=dim, settings=dict(request.settings))


def evaluate(request: Request, tasks: Sequence[str], folder: Folder, run: Run) -> Numbers:
    """Score a model on tasks of one family.

    Parameters
    ----------
    request : Request
        Model, transform, family.
    tasks : sequence of str
        Names of tasks.
    folder : Folder
        The data.
    run : Run
        Seed, bootstrap, progress.

    Returns
    -------
    mapping of (str, str or None) to Number
        By task and metric, None being the metric that the task is judged by; only tasks that the folder holds.
    """
    jobs = [job for name, job in folder.jobs(request.family, request.sickr).items() if name in tasks]
    fit = request.fit
    if fit == EVALUATED:
        jobs, fit = [_on_evaluated_pairs(job) for job in jobs], TARGET
    if not jobs:
        return {}
    model = open_model(request)
    transform = transform_of(request, model.dim)
    result = run_jobs("reproduce", model, jobs, folder.path, transform=transform, fit=fit, run=run)
    return {(name, metric): number for name, task in result.tasks.items() for metric, number in _numbers(task)}


def _numbers(task: TaskResult) -> Iterator[tuple[str | None, Number]]:
    unknown = task.n_unknown / task.n_tokens if task.n_tokens else 0.0
    for metric, score in task.scores.items():
        yield metric, Number(score, task.intervals.get(metric), unknown)
    yield None, Number(task.score, task.interval, unknown)


def measure_speed(request: Request, tasks: Sequence[str], folder: Folder, run: Run) -> Numbers:
    """Count the sentences of the STS benchmark's test part that a model encodes in a second, on the CPU.

    Parameters
    ----------
    request : Request
        The model.
    tasks : sequence of str
        ``CPU``; anything else is not measured.
    folder : Folder
        The data.
    run : Run
        Not needed.

    Returns
    -------
    mapping of (str, None) to Number
        Under ``CPU``, where it was asked for and the sentences are there. Sentences that occur twice count twice; the
        time of fitting on them counts, where the model needs that. Measured once, whatever else the machine does.
    """
    stsb = folder.jobs(STS, request.sickr).get(STSB)
    if stsb is None or CPU not in tasks:
        return {}
    parsed = parse_reference(request.model)
    is_network = parsed.scheme == "hf" and parsed.options.get("static") != "true"
    model = open_model(request, **({"devices": "cpu"} if is_network else {}))
    texts = list(stsb.task.texts)
    if model.encoder.needs_corpus:
        model = model.fit(texts, transform=None, source=TARGET)
    model.encode(texts[:_WARM_UP])
    n_encoded, elapsed_s, started = 0, 0.0, perf_counter()
    while elapsed_s < _LONG_ENOUGH_S:
        model.encode(texts)
        n_encoded, elapsed_s = n_encoded + len(texts), perf_counter() - started
    n_tokens, n_unknown = model.encoder.coverage(texts)
    return {(CPU, None): Number(n_encoded / elapsed_s, unknown=n_unknown / n_tokens if n_tokens else 0.0)}
