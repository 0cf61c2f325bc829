"""Train a model: score the base, train, score the result, save it. An interrupted run can be resumed.

`train` reads all data into a `TrainingJob`; the command line makes it itself. `train_job` opens the base, makes the
loss, begins or resumes the folder of the run, and trains. What `saving_trained` writes is loaded again and compared
with the model in memory; then it is scored, its record is added, and the folder takes its name in one step. `plan`
repeats jobs for several seeds and lets each stage train the model of the stage before; `train_all` runs such a list
and passes over what is finished.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from safetensors import SafetensorError

from isosent import _extras
from isosent.encoders.reference import ENCODER_FOLDER, escape
from isosent.errors import InputError, OutputError, option, wrong_value
from isosent.exports.check import compare_on_texts, exportable, require_agreement
from isosent.exports.sentence_transformers import (
    TARGET,
    InexpressibleError,
    check_vectors,
    postprocessing_modules,
    quiet_library,
)
from isosent.io.atomic import Replaceable, check_folder, check_parent, locked, replacing_folder
from isosent.io.json import without_nan
from isosent.io.pairs import DEV, TEST, ScoredPairs
from isosent.io.system import read_bytes
from isosent.io.texts import read_texts
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.pages.progress import Progress
from isosent.persistence import RECORD_FILE, holds_its_encoder, model_files
from isosent.training.base_models import is_scratch, open_base
from isosent.training.curve import curve_page
from isosent.training.data import Columns, Examples, read_dev_set, read_examples
from isosent.training.development import DevScore, check_dev_set, score_pairs, score_trained
from isosent.training.metrics import MetricsLog, StepRecorder, TrainingCallback, read_metrics
from isosent.training.objectives import make_loss
from isosent.training.record import (
    TRAINING_TEXTS,
    RunFolder,
    Scores,
    TrainingJob,
    TrainingResult,
    read_training,
    write_record,
)
from isosent.training.settings import LEARNING_RATES, TrainingSettings
from isosent.training.trainer import make_arguments, make_trainer, trainer_class
from isosent.transforms.base import Auto, Transform, needs_vectors, resolve_transform, transform_name

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

NLI_STSB: Final = "nli-stsb"
CURVE_FILE: Final = "curve.html"
_MODULES, _CONFIG = "modules.json", "config_sentence_transformers.json"
_FILES: Final = re.compile(
    r"encoder|\d+_(Dense|Normalize)|(modules|config_sentence_transformers|model|training)\.json|metrics\.jsonl|curve\.html"
    r"|(linear_map|canary)-[0-9a-f]{16}\.safetensors|events\.out\.tfevents\..*"
)
_TRAINED: Final = Replaceable(
    "an older trained model",
    lambda folder: holds_its_encoder(folder) and all(_FILES.fullmatch(path.name) for path in folder.iterdir()),
)


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
        Texts for `transform`, or a `pathlib.Path` of them. The default is the training texts.
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
    scored = "ranking" if examples.objective == "ranking" else "regression"
    inherited = columns if examples.objective == scored else None

    def dev_set(pairs: ScoredPairs | str | os.PathLike[str], part: str) -> ScoredPairs:
        if isinstance(pairs, ScoredPairs):
            return check_dev_set(pairs)
        return read_dev_set(pairs, columns=dev_columns, data_columns=inherited, objective=scored, part=part)

    fit_texts: Sequence[str] | None = None
    fit_source = TRAINING_TEXTS
    if isinstance(fit_on, os.PathLike):
        fit_texts, fit_source = read_texts(fit_on), str(fit_on)
    elif fit_on is not None:
        fit_texts, fit_source = fit_on, "texts"
    job = TrainingJob(
        escape(str(Path(base).absolute())) if isinstance(base, os.PathLike) else base,
        examples,
        Path(output),
        settings,
        dev=None if dev is None else dev_set(dev, DEV),
        tests=[dev_set(pairs, TEST) for pairs in tests],
        transform=chosen,
        fit_texts=fit_texts,
        fit_source=fit_source,
    )
    return train_job(job, resume=resume, progress=progress, report=report)


def train_job(
    job: TrainingJob, *, resume: bool = False, progress: Progress | None = None, report: TrainingCallback | None = None
) -> TrainingResult:
    """Train a job, see `train`."""
    trainer_class()
    check_training_folder(job.output)
    if needs_vectors(job.transform):
        raise InputError(
            f"train: sentence-transformers cannot load a {job.transform.kind}. Choose a linear transform, or fit the "
            f"{job.transform.kind} on the trained model: isosent fit TEXTS -m FOLDER --transform "
            f"{transform_name(job.transform)}."
        )
    with quiet_library(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # those of transformers and torch, about each other
        settings, folder = job.settings, RunFolder(job.output)
        model, base = open_base(
            job.base,
            job.examples.texts(),
            pooling=settings.pooling,
            max_length=settings.max_length,
            seed=settings.seed,
        )
        if job.transform is not None:
            job.transform.check_settings(int(base["dim"]))
        _extras.require("transformers").set_seed(settings.seed)  # whatever opening the base has drawn
        loss = make_loss(model, settings, n_classes=len(job.examples.label_names) or None)
        arguments = make_arguments(job, base["kind"], folder.path)
        facts = without_nan({**job.weight_facts(), "base": base, "n_processes": arguments.world_size})
        is_first, checkpoint = arguments.process_index == 0, None
        with arguments.main_process_first(desc="folder of the run"):
            if is_first:
                folder.tidy()
            if resume:
                checkpoint = folder.resume(facts)
            elif is_first:
                folder.begin(facts)
        with locked(folder.path, wait=False) if is_first else nullcontext():
            before = {devset.name: score_trained(model, devset) for devset in job.scored if is_first}
            log = MetricsLog(folder.metrics, after_step=checkpoint.step if checkpoint else 0) if is_first else None
            shown = (progress, report) if is_first else ()
            recorder = StepRecorder(log, *shown, n_processes=arguments.world_size)
            recorder.message(
                f"training {job.base} ({base['n_parameters']:,} parameters) to {job.output}, seed "
                f"{settings.seed}, on {arguments.world_size} x {arguments.device.type}"
            )
            if resume:
                start = f"after step {checkpoint.step}" if checkpoint else "from the beginning, there is no checkpoint"
                recorder.message(f"resuming {start}")
            if job.dev is not None and checkpoint is None and is_first:
                recorder.evaluated(0, before[job.dev.name])
            trainer = make_trainer(job, model, loss, arguments, recorder, checkpoint)
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint.path))
            steps = trainer.state.global_step, trainer.load_kept(settings.keep)
            # The others wait and then load what the first process saves.
            with arguments.main_process_first(desc="the model"):
                if not is_first:
                    return TrainingResult(load(job.output), job.output, {}, *steps, 0.0)
                return _save(job, model, facts, before, steps)


def _save(
    job: TrainingJob,
    model: SentenceTransformer,
    facts: Mapping[str, Any],
    before: Mapping[str, DevScore],
    steps: tuple[int, int],
) -> TrainingResult:
    """Save a trained model with its scores and its record, and remove the folder of the run."""
    model.to("cpu")
    folder = RunFolder(job.output)
    metrics = read_metrics(folder.metrics)
    after = {devset.name: score_trained(model, devset) for devset in job.scored}
    fit_texts = job.examples.texts() if job.fit_texts is None else job.fit_texts
    saving = saving_trained(model, job.output, transform=job.transform, fit_texts=fit_texts, source=job.fit_source)
    with saving as (saved, temporary):
        scores = {
            devset.name: Scores(
                before[devset.name],
                after[devset.name],
                None if job.transform is None else score_pairs(saved.encode, devset),
            )
            for devset in job.scored
        }
        result = TrainingResult(saved, job.output, scores, *steps, metrics.elapsed_s)
        write_record(temporary, job, facts, result)
        # for people, who may edit or remove these: the record has no checksums of them
        for path in [folder.metrics, *folder.path.glob("events.out.tfevents.*")]:
            (temporary / path.name).write_bytes(read_bytes(path))
        # a run that was stopped when all steps were done, and whose metrics were lost, has none
        if metrics.losses or metrics.devs:
            (temporary / CURVE_FILE).write_bytes(curve_page(metrics).encode())
    result = replace(result, model=load(job.output))
    folder.remove()
    return result


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


# -- the folder of a trained model ------------------------------------------------------------------------------------


def check_training_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a place where no trained model can be written, before any work is done."""
    if holds_its_encoder(parent := Path(folder).absolute().parent):
        raise OutputError(f"{folder} lies in a trained model, {parent}. Choose another folder.")
    check_folder(folder, _TRAINED)


@contextmanager
def saving_trained(
    model: SentenceTransformer,
    folder: str | os.PathLike[str],
    *,
    transform: Transform | Auto | None = None,
    fit_texts: Sequence[str] = (),
    source: str = TRAINING_TEXTS,
) -> Iterator[tuple[SentenceEncoder, Path]]:
    """Fit a transform if there is one, and write one folder that isosent and sentence-transformers load.

    Yields the model as it was written, and the temporary folder, which takes its name at the end of the block.
    """
    with replacing_folder(folder, _TRAINED) as temporary, quiet_library():
        try:
            saved = _write_encoder(model, temporary / ENCODER_FOLDER)
            if transform is not None:
                saved = saved.fitted(fit_texts, transform=transform, source=source)
            _write_model(saved, temporary)
        except SafetensorError as error:
            raise OutputError(f"{folder} could not be written: {error}.") from error
        check_vectors(TARGET, exportable(saved), temporary)
        yield saved, temporary


def _write_encoder(model: SentenceTransformer, folder: Path) -> SentenceEncoder:
    """Write the trained encoder alone, and load it: the vectors must be those of the model in memory."""
    was_training = model.training
    # A tokenizer saves the padding and truncation of its last call; a run that is resumed after its last step had none.
    model.preprocess(["text"])
    model.save_pretrained(str(folder), create_model_card=False)
    kind = "static" if type(model[0]).__name__ == "StaticEmbedding" else "hf"
    encoder = load(f"{kind}:{escape(str(folder))}")
    encode = partial(model.encode, show_progress_bar=False)
    require_agreement("isosent", compare_on_texts(exportable(encoder), encode, has_zero_rows=False))
    model.train(was_training)
    return encoder


def _write_model(model: SentenceEncoder, folder: Path) -> None:
    """Write the files of both libraries; the weights of the encoder stay in its folder."""
    for name, content in model_files(folder, model.saved_record).items():
        (folder / name).write_bytes(content)
    listed = json.loads(read_bytes(folder / ENCODER_FOLDER / _MODULES))
    for entry in listed:
        entry["path"] = "/".join(part for part in (ENCODER_FOLDER, entry["path"]) if part)
    try:
        postprocessing = postprocessing_modules(model)
    except InexpressibleError as error:
        raise InputError(f"train: {error}") from error
    for place, module in enumerate(postprocessing, start=len(listed)):
        kind = type(module)
        path = f"{place}_{kind.__name__}"
        (folder / path).mkdir()
        module.save(str(folder / path))
        listed.append({"idx": place, "name": str(place), "path": path, "type": f"{kind.__module__}.{kind.__name__}"})
    (folder / _MODULES).write_text(json.dumps(listed, indent=2) + "\n", "utf-8")
    shutil.copy(folder / ENCODER_FOLDER / _CONFIG, folder / _CONFIG)
