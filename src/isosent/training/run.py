"""A training from its job to the saved model."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from heapq import nlargest
from importlib.metadata import version
from pathlib import Path
from typing import Any

from isosent import _extras
from isosent.errors import InputError
from isosent.exports.sentence_transformers_folder import quiet_library
from isosent.files.atomic import locked
from isosent.files.plain import without_nan
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.training.arguments import make_arguments, make_trainer
from isosent.training.bases import Base, open_base
from isosent.training.batching import token_lengths
from isosent.training.checkpoint import step_of
from isosent.training.curve import curve_page
from isosent.training.development import DevScore, score_pairs, score_trained
from isosent.training.job import Scores, TrainingJob, TrainingResult
from isosent.training.memory import TrainingBatch, estimate_memory, size_of_network
from isosent.training.metrics import Metrics, MetricsLog, read_metrics
from isosent.training.objectives import make_loss
from isosent.training.progress import StepRecorder, TrainingProgress
from isosent.training.run_folder import RunFolder
from isosent.training.saving import check_training_folder, save_trained
from isosent.training.trainer import trainer_class
from isosent.transforms.base import is_flow

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
