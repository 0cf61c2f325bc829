"""Train a model: score the base, train, score the result, save it. An interrupted run can be resumed.

`train_job` opens the base, makes the loss, begins or resumes the folder of the run, and trains. What `saving_trained`
writes is loaded again and compared with the model in memory; then it is scored, its record is added, and the folder
takes its name in one step. Which jobs there are is `plan`'s to say.
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
from isosent.errors import InputError, OutputError, next_step, option
from isosent.exports.check import compare_on_texts, exportable, require_agreement
from isosent.exports.sentence_transformers import (
    TARGET,
    InexpressibleError,
    check_vectors,
    postprocessing_modules,
    quiet_library,
)
from isosent.io.atomic import Replaceable, check_folder, locked, replacing_folder
from isosent.io.json import without_nan
from isosent.io.system import read_bytes
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.pages.progress import Progress
from isosent.persistence import holds_its_encoder, model_files
from isosent.training.base_models import open_base
from isosent.training.curve import curve_page
from isosent.training.development import DevScore, score_pairs, score_trained
from isosent.training.metrics import MetricsLog, StepRecorder, TrainingCallback, read_metrics
from isosent.training.objectives import make_loss
from isosent.training.record import (
    TRAINING_TEXTS,
    RunFolder,
    Scores,
    TrainingJob,
    TrainingResult,
    write_record,
)
from isosent.training.trainer import make_arguments, make_trainer, trainer_class
from isosent.transforms.base import Auto, Transform, needs_vectors, transform_name

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

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


def train_job(
    job: TrainingJob, *, resume: bool = False, progress: Progress | None = None, report: TrainingCallback | None = None
) -> TrainingResult:
    """Train a job, see `plan.train`."""
    trainer_class()
    check_training_folder(job.output)
    if needs_vectors(job.transform):
        name = transform_name(job.transform)
        named = option("transform", name)
        raise InputError(
            f"train: sentence-transformers cannot load a {job.transform.kind}. Choose a linear transform, or fit the "
            f"{job.transform.kind} on the trained model: "
            f"{next_step(f'isosent fit TEXTS -m FOLDER {named}', f'model.fitted(texts, {name!r})')}."
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


# -- the folder of a trained model ------------------------------------------------------------------------------------


def check_training_folder(folder: str | os.PathLike[str]) -> bool:
    """Refuse a place where no trained model can be written, before any work is done; say whether one is replaced."""
    if holds_its_encoder(parent := Path(folder).absolute().parent):
        raise OutputError(f"{folder} lies in a trained model, {parent}. Choose another folder.")
    return check_folder(folder, _TRAINED)


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
