"""A training from its job to the saved model."""

from __future__ import annotations

import json
import os
import platform
import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from heapq import nlargest
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from isosent import _extras
from isosent.encoders.reference import escape
from isosent.errors import FileFormatError, InputError, OutputError
from isosent.exports.sentence_transformers import quiet_library
from isosent.io.atomic import Replaceable, check_parent, fsync, locked, remove_folder, replacing_folder, sweep
from isosent.io.json import document_bytes, read_document, read_json, without_nan
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.persistence import RECORD_FILE
from isosent.training.base_models import SCRATCH, Base, is_scratch, open_base
from isosent.training.batching import token_lengths
from isosent.training.curve import curve_page
from isosent.training.development import DevScore, score_pairs, score_trained
from isosent.training.memory import TrainingBatch, estimate_memory, size_of_network
from isosent.training.metrics import Metrics, MetricsLog, StepRecorder, TrainingProgress, read_metrics
from isosent.training.objectives import make_loss
from isosent.training.saving import check_training_folder, save_trained
from isosent.training.schemas import EvaluationSettings, Record
from isosent.training.settings import LEARNING_RATES, Scores, TrainingJob, TrainingResult
from isosent.training.trainer import Checkpoint, make_arguments, make_trainer, newest_checkpoint, step_of, trainer_class
from isosent.transforms.base import is_flow

_FORMAT: Final = "isosent-run"
_RUN_FILE: Final = "run.json"
_METRICS_FILE: Final = "metrics.jsonl"
_RUN: Final = Replaceable("the checkpoints of a run", lambda folder: (folder / _RUN_FILE).exists())


class RunFolder:
    """Settings, metrics and the newest checkpoint of a run that is not done yet."""

    def __init__(self, output: Path) -> None:
        self._output = output.absolute()
        self.path = self._output.with_name(f"{self._output.name}.training")

    @property
    def metrics(self) -> Path:
        """File of the metrics."""
        return self.path / _METRICS_FILE

    @property
    def is_finished(self) -> bool:
        """Whether its model is in place: the run was killed before it could remove this folder."""
        try:
            run = read_json(self.path / _RUN_FILE).get("run")
            return run is not None and run == read_json(self._output / RECORD_FILE).get("run")
        except (FileNotFoundError, InputError):
            return False

    @property
    def is_begun(self) -> bool:
        """Whether there is a run that goes on, or can."""
        return not self.is_finished and self.path.exists()  # in this order, for another process may remove it

    def tidy(self) -> None:
        """Remove what killed runs left: temporary files, and this folder if its model is in place."""
        sweep(self.path.parent)
        if self.is_finished:
            with locked(self.path, wait=False):
                self.remove()
        elif self.path.is_dir():
            sweep(self.path)

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Start a new run."""
        if self.path.is_dir():
            with locked(self.path, wait=False):  # another run that has no checkpoint yet
                pass
        checkpoint = newest_checkpoint(self.path)
        if checkpoint is not None:
            raise OutputError(
                f"{self.path} holds a run that was stopped after step {step_of(checkpoint)}. Go on with --resume, or "
                "remove that folder to begin again."
            )
        with replacing_folder(self.path, _RUN) as temporary:
            document = {"format": _FORMAT, "format_version": 1, "run": secrets.token_hex(8), **facts}
            (temporary / _RUN_FILE).write_bytes(document_bytes(document))

    def resume(self, facts: Mapping[str, Any]) -> Path | None:
        """Find where to go on."""
        try:
            before = read_json(self.path / _RUN_FILE, EvaluationSettings)
        except FileNotFoundError:
            raise InputError(
                f"train: --resume needs a run that was stopped; {self.path} holds none. Leave it out."
            ) from None
        except FileFormatError as error:
            raise FileFormatError(f"{error} Remove {self.path} to train from the beginning.") from None
        check_same(self.path, before, facts)
        checkpoint = newest_checkpoint(self.path)
        return None if checkpoint is None else Checkpoint(checkpoint).path

    @property
    def run(self) -> str | None:
        """What tells this run from others; None for one that an older version began."""
        run: str | None = read_json(self.path / _RUN_FILE, EvaluationSettings).get("run")
        return run

    def remove(self) -> None:
        """Remove it, after the model was saved: at once, so that a kill leaves all of it or nothing."""
        fsync(self.path.parent)  # the name of the model must be on the disk before its checkpoints go
        remove_folder(self.path)


def check_same(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with other data or settings."""
    plain = json.loads(json.dumps(now))
    differences = [
        f"{name}: {before.get(name)!r} then, {value!r} now"
        for name, value in plain.items()
        if before.get(name) != value
    ]
    if differences:
        raise InputError(
            f"train: --resume must go on with the data and settings in {folder}; they differ: "
            f"{'; '.join(differences)}. Give the old ones, or remove that folder to begin again."
        )


@dataclass(frozen=True, slots=True)
class Spread:
    """A score over several seeds."""

    mean: float  # its mean
    deviation: float  # standard deviation of a sample (divisor n - 1); NaN for one seed
    n_seeds: int  # seeds


def plan(stages: Sequence[TrainingJob], *, n_seeds: int | None = None) -> list[TrainingJob]:
    """Lay out trainings: each stage goes on with the model of the one before, and all of them are done for every seed."""  # noqa: E501
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
    """Train one job after another."""
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
    """Open a trained model with the record of its training."""
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
    """Mean and standard deviation of a score over seeds."""
    values = np.array(list(scores))
    deviation = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    return Spread(float(values.mean()), deviation, len(values))


FORMAT = "isosent-training"
FORMAT_VERSION = 1
CURVE_FILE = "curve.html"
_LONGEST = 64
_PACKAGES = ("isosent", "torch", "transformers", "sentence-transformers", "accelerate")


def train(job: TrainingJob, *, resume: bool = False, progress: TrainingProgress | None = None) -> TrainingResult:
    """Train a model.

    Parameters
    ----------
    job : TrainingJob
        What, on what, and what becomes of it.
    resume : bool, default False
        Whether to go on with the run that was stopped, from its newest checkpoint.
    progress : TrainingProgress, optional
        Shown how it goes.

    Returns
    -------
    TrainingResult
        The saved model, and its scores before and after.

    Raises
    ------
    InputError
        If the base, the data, the settings or what is to be fitted cannot be used; or there is no run to go on with, or
        one with other data or settings.
    OutputError
        If a checkpoint or the model cannot be written, or an unfinished run is in the way. What was there is intact.
    NonFiniteLossError
        If the loss or the gradient is no finite number; the rows of the batch are named, the last checkpoint is kept.
    MissingExtraError
        If the extra ``train`` is not installed.

    Notes
    -----
    AdamW with a learning rate that rises linearly and falls linearly to 0 (Reimers & Gurevych 2019, section 3.1), by
    the trainer of sentence-transformers. While it runs, checkpoints and metrics lie in ``OUTPUT.training``, which is
    removed when the model is saved. On a CPU, a run that was stopped and goes on ends with the weights of one that was
    not.

    Under ``torchrun`` every process calls this. All train, and the first one scores, shows and writes.
    """
    trainer_class()
    check_training_folder(job.output)
    with quiet_library(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # those of transformers and torch, about each other
        base = open_base(job.base, job.examples.texts(), **job.reading, seed=job.settings.seed)
        _check_ending(job, base)
        _extras.require("transformers").set_seed(job.settings.seed)  # whatever opening the base has drawn
        loss = make_loss(base.model, job.settings.objective, n_classes=len(job.examples.label_names) or None)
        folder = RunFolder(job.output)
        arguments = make_arguments(job, base, folder.path)
        checkpoint = _prepare(folder, arguments, _facts(job, base, arguments.world_size), resume=resume)
        first = arguments.process_index == 0
        with locked(folder.path, wait=False) if first else nullcontext():
            return _run(job, base, loss, arguments, checkpoint, shown=progress if first else None, resume=resume)


def _run(
    job: TrainingJob,
    base: Base,
    loss: Any,
    arguments: Any,
    checkpoint: Path | None,
    *,
    shown: TrainingProgress | None,
    resume: bool,
) -> TrainingResult:
    """Score, train, score and save, while nobody else does so in this folder."""
    first, folder = arguments.process_index == 0, RunFolder(job.output)
    run = folder.run if first else None
    before = {devset.name: score_trained(base.model, devset) for devset in job.scored if first}
    log = MetricsLog(folder.metrics, after_step=0 if checkpoint is None else step_of(checkpoint)) if first else None
    recorder = StepRecorder(log, shown, n_processes=arguments.world_size)
    if shown is not None:
        shown.message(_announcement(job, base, arguments))
        if resume:
            reached = "the beginning, without a checkpoint" if checkpoint is None else f"step {step_of(checkpoint)}"
            shown.message(f"going on from {reached}")
    if first and job.development is not None and checkpoint is None:
        recorder.evaluated(0, before[job.development.name])
    trainer = make_trainer(job, base, loss, arguments, recorder)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    if job.settings.keep == "best" and trainer.best is not None:
        trainer.load_parts(trainer.best)
    return _finish(job, base, trainer, before, run)


def _check_ending(job: TrainingJob, base: Base) -> None:
    """Refuse what could not be fitted after the training."""
    transform = job.ending.transform
    if is_flow(transform):
        raise InputError(
            "train: transform must be a linear one, which sentence-transformers can load; got a flow. "
            "Fit it on the trained model: isosent fit TEXTS -m FOLDER --transform glow_flow."
        )
    if transform is not None and not isinstance(transform, str):
        transform._check_settings(int(base.facts["dim"]))


def _announcement(job: TrainingJob, base: Base, arguments: Any) -> str:
    """What is about to be trained, and the memory that the longest texts take."""
    settings, columns = job.settings, job.examples.text_columns
    longest = nlargest(_LONGEST, (text for column in columns.values() for text in column), key=len)
    n_tokens = int(token_lengths(base.model.preprocess, longest).max(initial=1))
    n_examples = settings.objective.mini_batch or settings.batch_size
    if settings.token_budget is not None:
        n_examples = max(1, settings.token_budget // (n_tokens * len(columns)))
    memory = estimate_memory(
        size_of_network(base.model),
        TrainingBatch(n_examples, len(columns), n_tokens),
        precision=settings.precision,
        recompute=settings.recompute,
        on_gpu=arguments.device.type == "cuda",
    )
    return (
        f"training {job.base} ({base.facts['n_parameters']:,} numbers) to {job.output}, seed {settings.seed}, on "
        f"{arguments.world_size} x {arguments.device.type}; memory of a step, at the longest texts: {memory}"
        f"{' (on a CPU, the process may take twice that)' if arguments.device.type == 'cpu' else ''}"
    )


def _facts(job: TrainingJob, base: Base, n_processes: int) -> dict[str, Any]:
    """All that the weights depend on, as plain values."""
    facts: dict[str, Any] = without_nan({**job.facts(), "base": dict(base.facts), "n_processes": n_processes})
    return facts


def _prepare(folder: RunFolder, arguments: Any, facts: Mapping[str, Any], *, resume: bool) -> Path | None:
    """Begin the run or find where it goes on, the first process ahead of the others."""
    with arguments.main_process_first(desc="folder of the run"):
        if arguments.process_index == 0:
            folder.tidy()
        if resume:
            return folder.resume(facts)
        if arguments.process_index == 0:
            folder.begin(facts)
    return None


def _finish(
    job: TrainingJob, base: Base, trainer: Any, before: Mapping[str, DevScore], run: str | None
) -> TrainingResult:
    """Score and save, the first process ahead of the others, which open what it saved."""
    state = trainer.state
    has_best = job.settings.keep == "best" and trainer.best is not None
    kept_step = state.best_global_step if has_best else state.global_step
    scores: dict[str, Scores] = {}
    with trainer.args.main_process_first(desc="the model"):
        if trainer.args.process_index:
            model, elapsed_s = load(job.output), 0.0
        else:
            base.model.to("cpu")
            folder = RunFolder(job.output)
            metrics = read_metrics(folder.metrics)
            elapsed_s = metrics.elapsed_s
            after = {devset.name: score_trained(base.model, devset) for devset in job.scored}

            def record(model: SentenceEncoder) -> dict[str, Any]:
                for devset in job.scored:
                    ended = None if job.ending.transform is None else score_pairs(model.encode, devset)
                    scores[devset.name] = Scores(before[devset.name], after[devset.name], ended)
                result = TrainingResult(model, job.output, scores, state.global_step, kept_step, elapsed_s)
                return _record(job, _facts(job, base, trainer.args.world_size), base.kind, result) | {"run": run}

            model = _save(job, base, folder, metrics, record)
            folder.remove()
    return TrainingResult(model, job.output, scores, state.global_step, kept_step, elapsed_s)


def _save(
    job: TrainingJob,
    base: Base,
    folder: RunFolder,
    metrics: Metrics,
    record: Callable[[SentenceEncoder], Mapping[str, Any]],
) -> SentenceEncoder:
    ending = job.ending
    events = {path.name: path.read_bytes() for path in folder.path.glob("events.out.tfevents.*")}
    return save_trained(
        base.model,
        job.output,
        transform=ending.transform,
        fit_texts=job.examples.texts() if ending.texts is None else ending.texts,
        source=ending.source,
        extra_files={
            folder.metrics.name: folder.metrics.read_bytes(),
            CURVE_FILE: curve_page(metrics).encode(),
            **events,
        },
        record=record,
    )


def _record(job: TrainingJob, facts: Mapping[str, Any], kind: str, result: TrainingResult) -> dict[str, Any]:
    """What ``training.json`` says."""
    document: dict[str, Any] = without_nan(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **facts,
            **job.ending_facts(),
            "peak_learning_rate": job.settings.learning_rate_for(kind),
            "examples": job.examples.describe(),
            "n_steps": result.n_steps,
            "kept_step": result.kept_step,
            "elapsed_s": result.elapsed_s,
            "scores": {name: asdict(scores) for name, scores in result.scores.items()},
            "fingerprint": result.model.fingerprint,
            "python": platform.python_version(),
            "packages": {package: version(package) for package in _PACKAGES},
        }
    )
    return document
