"""Train a model: score the base, train, score the result, save it. An interrupted run can be resumed."""

from __future__ import annotations

import json
import os
import platform
import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, get_type_hints

import msgspec
import numpy as np

from isosent import _extras
from isosent.encoders.reference import escape
from isosent.errors import FileFormatError, InputError, OutputError
from isosent.exports.sentence_transformers import quiet_library
from isosent.io.atomic import Replaceable, check_parent, fsync, locked, remove_folder, replacing_folder, sweep
from isosent.io.json import document_bytes, read_document, read_json, without_nan
from isosent.io.pairs import ScoredPairs
from isosent.io.schemas import Checksum, Count, Document, RelativePath, Sha256
from isosent.io.system import read_bytes
from isosent.io.texts import read_texts
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.persistence import RECORD_FILE
from isosent.training.base_models import Base, is_scratch, open_base
from isosent.training.curve import curve_page
from isosent.training.data import Columns, Examples, read_dev_set, read_examples
from isosent.training.development import DevScore, check_dev_set, fingerprint, score_pairs, score_trained
from isosent.training.metrics import MetricsLog, StepRecorder, TrainingProgress, read_metrics
from isosent.training.objectives import make_loss
from isosent.training.saving import check_training_folder, save_trained
from isosent.training.settings import LEARNING_RATES, TrainingSettings
from isosent.training.trainer import Checkpoint, make_arguments, make_trainer, newest_checkpoint, step_of, trainer_class
from isosent.transforms.base import Auto, Transform, is_flow, resolve_transform, settings_of, transform_name

FORMAT: Final = "isosent-training"
FORMAT_VERSION: Final = 1
NLI_STSB: Final = "nli-stsb"
CURVE_FILE: Final = "curve.html"
_RUN_FORMAT: Final = "isosent-run"
_RUN_FILE: Final = "run.json"
_METRICS_FILE: Final = "metrics.jsonl"
_RUN: Final = Replaceable("the checkpoints of a run", lambda folder: (folder / _RUN_FILE).exists())
_PACKAGES: Final = ("isosent", "torch", "transformers", "sentence-transformers", "accelerate")


@dataclass(frozen=True, slots=True)
class Scores:
    """What a model scores on one set of pairs."""

    before: DevScore  # the base
    after: DevScore  # the trained model
    with_transform: DevScore | None = None  # the trained model with the transform fitted at the end


@dataclass(frozen=True, slots=True, eq=False)
class TrainingResult:
    """What a training returns.

    Parameters
    ----------
    model : SentenceEncoder
        The model as it was saved.
    folder : Path
        Folder it was saved to.
    scores : mapping of str to Scores
        Scores on the development set and the test sets, by name.
    n_steps : int
        Steps taken, including those before an interruption.
    kept_step : int
        Step whose weights were saved.
    elapsed_s : float
        Seconds spent in steps.
    """

    model: SentenceEncoder
    folder: Path
    scores: Mapping[str, Scores]
    n_steps: int
    kept_step: int
    elapsed_s: float


@dataclass(frozen=True, slots=True, eq=False)
class TrainingJob:
    """What `train` is asked for, with all data read."""

    base: str
    examples: Examples
    output: Path
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    dev: ScoredPairs | None = None
    tests: Sequence[ScoredPairs] = ()
    transform: Transform | Auto | None = None
    fit_texts: Sequence[str] | None = None  # None: the training texts
    fit_source: str = "training texts"  # where they come from, for the record

    def __post_init__(self) -> None:
        object.__setattr__(self, "output", Path(self.output))
        objective = self.settings.objective
        if self.examples.objective != objective:
            raise InputError(f"train: the objective is {objective}, but the data are for {self.examples.objective}.")
        if objective == "ranking" and self.settings.batch_size == 1 and "negative" not in self.examples.columns:
            raise InputError(
                "train: batch_size must be above 1 for ranking, because the other examples of a batch are the "
                "negatives; got 1."
            )
        names = [devset.name for devset in self.scored]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"train: two scored sets have the name {twice[0]}, so it occurs twice. Rename a file.")

    @property
    def scored(self) -> list[ScoredPairs]:
        """Every set that is scored before and after."""
        return [*([] if self.dev is None else [self.dev]), *self.tests]

    def weight_facts(self) -> dict[str, Any]:
        """What the weights depend on, apart from the base, as JSON values."""
        return {
            "base_reference": self.base,
            **asdict(self.settings),
            "data": self.examples.fingerprint,
            "development": None if self.dev is None else fingerprint(self.dev),
        }

    def result_facts(self) -> dict[str, Any]:
        """What is scored and fitted once the weights are there, as JSON values."""
        transform = self.transform
        if transform is None or isinstance(transform, str):
            name: str | None = transform
            settings: Any = transform
        else:
            name, settings = transform_name(transform), settings_of(transform)
        return {
            "tests": {devset.name: fingerprint(devset) for devset in self.tests},
            "transform": name,
            "transform_settings": settings,
            "fitted_on": None if transform is None else self.fit_source,
        }


def train(
    base: str | os.PathLike[str],
    data: Examples | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    objective: str | None = None,
    *,
    columns: Columns | None = None,
    dev: ScoredPairs | str | os.PathLike[str] | None = None,
    dev_columns: Columns | None = None,
    tests: Sequence[ScoredPairs | str | os.PathLike[str]] = (),
    transform: Transform | str | None = None,
    fit_on: Sequence[str] | os.PathLike[str] | None = None,
    settings: TrainingSettings | None = None,
    resume: bool = False,
    progress: TrainingProgress | None = None,
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
        regression.
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
        Texts for `transform`, or a `pathlib.Path` of them. The default is the training texts.
    settings : TrainingSettings, optional
        Settings to start from.
    resume : bool, default False
        Resume the interrupted run of this folder from its newest checkpoint.
    progress : TrainingProgress, optional
        Receives steps, scores and messages.
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
    chosen = resolve_transform(transform)
    if chosen is None and fit_on is not None:
        raise InputError("train: fit_on needs a transform to fit. Add transform='auto'.")
    # All at once, because some settings are valid for one objective only.
    settings = replace(settings or TrainingSettings(), objective=objective, **changes)
    if isinstance(data, Examples):
        examples = data
    else:
        files = [data] if isinstance(data, (str, os.PathLike)) else data
        examples = read_examples(objective, files, columns=columns)
    if dev_columns is None and examples.objective == "regression":
        dev_columns = columns

    def dev_set(pairs: ScoredPairs | str | os.PathLike[str]) -> ScoredPairs:
        return check_dev_set(pairs) if isinstance(pairs, ScoredPairs) else read_dev_set(pairs, columns=dev_columns)

    fit_texts, fit_source = fit_on, "training texts" if fit_on is None else "texts"
    if isinstance(fit_on, os.PathLike):
        fit_texts, fit_source = read_texts(fit_on), str(fit_on)
    job = TrainingJob(
        escape(str(Path(base).absolute())) if isinstance(base, os.PathLike) else base,
        examples,
        Path(output),
        settings,
        None if dev is None else dev_set(dev),
        [dev_set(pairs) for pairs in tests],
        chosen,
        fit_texts,  # type: ignore[arg-type]
        fit_source,
    )
    return train_job(job, resume=resume, progress=progress)


def train_job(job: TrainingJob, *, resume: bool = False, progress: TrainingProgress | None = None) -> TrainingResult:
    """Train a job, see `train`."""
    trainer_class()
    check_training_folder(job.output)
    if is_flow(job.transform):
        raise InputError(
            "train: transform must be linear, because sentence-transformers cannot load a flow. Fit the flow on the "
            "trained model: isosent fit TEXTS -m FOLDER --transform glow_flow."
        )
    with quiet_library(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # those of transformers and torch, about each other
        settings = job.settings
        base = open_base(
            job.base,
            job.examples.texts(),
            pooling=settings.pooling,
            max_length=settings.max_length,
            seed=settings.seed,
        )
        if job.transform is not None and not isinstance(job.transform, str):
            job.transform.check_settings(int(base.facts["dim"]))
        _extras.require("transformers").set_seed(settings.seed)  # whatever opening the base has drawn
        loss = make_loss(base.model, settings, n_classes=len(job.examples.label_names) or None)
        folder = RunFolder(job.output)
        arguments = make_arguments(job, base, folder.path)
        facts = without_nan({**job.weight_facts(), "base": dict(base.facts), "n_processes": arguments.world_size})
        is_first = arguments.process_index == 0
        checkpoint = None
        with arguments.main_process_first(desc="folder of the run"):
            if is_first:
                folder.tidy()
            if resume:
                checkpoint = folder.resume(facts)
            elif is_first:
                folder.begin(facts)
        with locked(folder.path, wait=False) if is_first else nullcontext():
            return _run(job, base, loss, arguments, facts, checkpoint, progress if is_first else None, resume=resume)


def _run(
    job: TrainingJob,
    base: Base,
    loss: Any,
    arguments: Any,
    facts: Mapping[str, Any],
    checkpoint: Path | None,
    progress: TrainingProgress | None,
    *,
    resume: bool,
) -> TrainingResult:
    """Score, train, score and save, with the run folder locked."""
    is_first, folder, settings = arguments.process_index == 0, RunFolder(job.output), job.settings
    after_step = 0 if checkpoint is None else step_of(checkpoint)
    before = {devset.name: score_trained(base.model, devset) for devset in job.scored if is_first}
    log = MetricsLog(folder.metrics, after_step=after_step) if is_first else None
    recorder = StepRecorder(log, progress, n_processes=arguments.world_size)
    if progress is not None:
        progress.message(
            f"training {job.base} ({base.facts['n_parameters']:,} parameters) to {job.output}, seed {settings.seed}, "
            f"on {arguments.world_size} x {arguments.device.type}"
        )
        if resume:
            start = "from the beginning, there is no checkpoint" if checkpoint is None else f"after step {after_step}"
            progress.message(f"resuming {start}")
    if is_first and job.dev is not None and checkpoint is None:
        recorder.evaluated(0, before[job.dev.name])
    trainer = make_trainer(job, base, loss, arguments, recorder, checkpoint)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))

    state = trainer.state
    kept_step = state.global_step
    if settings.keep == "best" and trainer.best is not None:
        trainer.load_weights(trainer.best)
        kept_step = state.best_global_step
    scores: dict[str, Scores] = {}
    # The others wait and then load what the first process saves.
    with arguments.main_process_first(desc="the model"):
        if not is_first:
            return TrainingResult(load(job.output), job.output, scores, state.global_step, kept_step, 0.0)
        base.model.to("cpu")
        metrics = read_metrics(folder.metrics)
        after = {devset.name: score_trained(base.model, devset) for devset in job.scored}

        def record(model: SentenceEncoder) -> dict[str, Any]:
            for devset in job.scored:
                transformed = None if job.transform is None else score_pairs(model.encode, devset)
                scores[devset.name] = Scores(before[devset.name], after[devset.name], transformed)
            result = TrainingResult(model, job.output, scores, state.global_step, kept_step, metrics.elapsed_s)
            return _record(job, facts, base.kind, result) | {"run": folder.run}

        model = save_trained(
            base.model,
            job.output,
            transform=job.transform,
            fit_texts=job.examples.texts() if job.fit_texts is None else job.fit_texts,
            source=job.fit_source,
            extra_files={
                folder.metrics.name: read_bytes(folder.metrics),
                # a run that was stopped when all steps were done, and whose metrics were lost, has none
                **({CURVE_FILE: curve_page(metrics).encode()} if metrics.losses or metrics.devs else {}),
                **{path.name: read_bytes(path) for path in folder.path.glob("events.out.tfevents.*")},
            },
            record=record,
        )
        folder.remove()
    return TrainingResult(model, job.output, scores, state.global_step, kept_step, metrics.elapsed_s)


def _record(job: TrainingJob, facts: Mapping[str, Any], kind: str, result: TrainingResult) -> dict[str, Any]:
    """Content of ``training.json``."""
    document: dict[str, Any] = without_nan(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **facts,
            **job.result_facts(),
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


# Schemas of the files. Their fields are flat: those of the settings, and what else the weights depend on. Fields with a
# default are younger than the format, or have gone: runs from before can still be resumed and opened.
_TYPES: Final = get_type_hints(TrainingSettings)
_Facts: Any = msgspec.defstruct(
    "_Facts",
    [
        *((field.name, _TYPES[field.name], field.default) for field in fields(TrainingSettings)),
        ("token_budget", int | None, None),
        ("data", Sha256, ""),
        ("development", Sha256 | None, None),
        ("base", dict[str, Any], msgspec.field(default_factory=dict)),
        ("base_reference", str | None, None),
        ("n_processes", int, 1),
        ("run", str | None, None),
    ],
    bases=(Document,),
    kw_only=True,
)


class _RunFile(_Facts, kw_only=True):  # type: ignore[misc, call-arg]
    format: Literal["isosent-run"] = "isosent-run"
    format_version: Literal[1] = 1


class _DevScoreFields(msgspec.Struct, forbid_unknown_fields=True):
    spearman: float | None
    pearson: float | None
    n_pairs: Count


class _ScoresFields(msgspec.Struct, forbid_unknown_fields=True):
    before: _DevScoreFields
    after: _DevScoreFields
    with_transform: _DevScoreFields | None = None


class _RecordFile(_Facts, kw_only=True):  # type: ignore[misc, call-arg]
    peak_learning_rate: float
    examples: dict[str, Any]
    n_steps: Count
    kept_step: Count
    elapsed_s: float
    scores: dict[str, _ScoresFields]
    fingerprint: str
    python: str
    packages: dict[str, str]
    tests: dict[str, Sha256] | None = None
    transform: str | None = None
    transform_settings: dict[str, Any] | str | None = None
    fitted_on: str | None = None
    checksums: dict[RelativePath, Checksum] | None = None


class RunFolder:
    """``OUTPUT.training``: settings, metrics and the newest checkpoint of a run that is not finished."""

    def __init__(self, output: Path) -> None:
        self._output = output.absolute()
        self.path = self._output.with_name(f"{self._output.name}.training")
        self.metrics = self.path / _METRICS_FILE

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
        """Whether a run is in progress, or can be resumed."""
        return not self.is_finished and self.path.exists()  # in this order: another process may remove it

    @property
    def run(self) -> str | None:
        """Random name of the run; None for one that an older version began."""
        run: str | None = read_json(self.path / _RUN_FILE, _RunFile).get("run")
        return run

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
            with locked(self.path, wait=False):  # refuse if another process trains, even if it has no checkpoint yet
                pass
        checkpoint = newest_checkpoint(self.path)
        if checkpoint is not None:
            raise OutputError(
                f"{self.path} holds a run that was stopped after step {step_of(checkpoint)}. Resume it with --resume, "
                "or remove that folder to start again."
            )
        with replacing_folder(self.path, _RUN) as temporary:
            document = {"format": _RUN_FORMAT, "format_version": 1, "run": secrets.token_hex(8), **facts}
            (temporary / _RUN_FILE).write_bytes(document_bytes(document))

    def resume(self, facts: Mapping[str, Any]) -> Path | None:
        """Return the checkpoint to resume from; None if the run was stopped before its first one."""
        try:
            before = read_json(self.path / _RUN_FILE, _RunFile)
        except FileNotFoundError:
            raise InputError(f"train: --resume needs a run that was stopped; {self.path} has none.") from None
        except FileFormatError as error:
            raise FileFormatError(f"{error} Remove {self.path} to train from the beginning.") from None
        _check_same(self.path, before, facts)
        checkpoint = newest_checkpoint(self.path)
        return None if checkpoint is None else Checkpoint(checkpoint).path

    def remove(self) -> None:
        """Remove the folder at once, after the model was saved: a kill leaves all of it or nothing."""
        fsync(self.path.parent)  # the name of the model must be on the disk before its checkpoints go
        remove_folder(self.path)


def _check_same(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume with other data or settings."""
    differences = [
        f"{name}: {before.get(name)!r} then, {value!r} now"
        for name, value in json.loads(json.dumps(now)).items()
        if before.get(name) != value
    ]
    if differences:
        raise InputError(
            f"train: --resume needs the data and settings of {folder}, but they differ: {'; '.join(differences)}. "
            "Use the same ones, or remove that folder to start again."
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
        raise InputError(f"train: seeds must be at least 1; got {n_seeds}.")
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
    progress: Callable[[TrainingJob], AbstractContextManager[TrainingProgress | None]] = lambda job: nullcontext(),
) -> list[TrainingResult]:
    """Train one job after another; with `resume`, those that are finished are loaded instead."""
    is_done = {job.output: not RunFolder(job.output).is_begun and (job.output / RECORD_FILE).exists() for job in jobs}
    if resume and not any(is_done[job.output] or RunFolder(job.output).is_begun for job in jobs):
        raise InputError(f"train: --resume needs a run that was stopped; {RunFolder(jobs[0].output).path} has none.")
    results = []
    for job in jobs:
        if resume and is_done[job.output]:
            _check_same(job.output, _read_record(job.output), job.weight_facts() | job.result_facts())
            if is_first_process():
                RunFolder(job.output).tidy()
                with progress(job) as shown:
                    if shown is not None:
                        shown.message(f"{job.output}: this run is finished, its model is loaded")
            results.append(read_training(job.output))
            continue
        try:
            job.output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{job.output.parent} could not be created: {error.strerror}.") from error
        check_parent(job.output)
        with progress(job) as shown:
            results.append(train_job(job, resume=resume and RunFolder(job.output).is_begun, progress=shown))
    return results


def is_first_process() -> bool:
    """Whether this process is the only one, or the first of several that torchrun started."""
    return int(os.environ.get("RANK", "0")) == 0


def read_training(folder: Path) -> TrainingResult:
    """Load a trained model with the record of its training."""

    def score(values: Mapping[str, float | None]) -> DevScore:
        return DevScore(**{name: float("nan") if value is None else value for name, value in values.items()})  # type: ignore[arg-type]

    record = _read_record(folder)
    scores = {
        name: Scores(**{when: values and score(values) for when, values in by_time.items()})
        for name, by_time in record["scores"].items()
    }
    counts = {name: record[name] for name in ("n_steps", "kept_step", "elapsed_s")}
    return TrainingResult(load(folder), folder, scores, **counts)


def _read_record(folder: Path) -> dict[str, Any]:
    try:
        return read_document(folder / RECORD_FILE, FORMAT, FORMAT_VERSION, _RecordFile)
    except FileFormatError as error:
        raise FileFormatError(f"{error} Remove {folder} to train again.") from None


def spread(scores: Iterable[float]) -> tuple[float, float]:
    """Mean and standard deviation (divisor n - 1; NaN for one score) over seeds."""
    values = np.array(list(scores))
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else float("nan")
