"""From a job to the trainer of sentence-transformers, with every argument named."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from isosent import _extras
from isosent.training.bases import Base
from isosent.training.batching import batch_sampler, example_lengths
from isosent.training.checkpoint import first_checkpoint_callback
from isosent.training.development import dev_evaluator
from isosent.training.job import TrainingJob
from isosent.training.progress import StepRecorder, recording_callback, tensorboard_available
from isosent.training.trainer import ROW, trainer_class

LOG_EVERY = 10
_NEVER = 1 << 40


def make_arguments(job: TrainingJob, base: Base, folder: Path) -> Any:
    """Make the arguments of the trainer; the devices and processes are found here.

    Parameters
    ----------
    job : TrainingJob
        What is trained.
    base : Base
        The opened base.
    folder : Path
        Where checkpoints go.

    Returns
    -------
    SentenceTransformerTrainingArguments
        The arguments.
    """
    library, torch, settings = _extras.require("sentence_transformers"), _extras.require("torch"), job.settings
    has_gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    evaluations = settings.n_evaluations
    arguments = library.SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        num_train_epochs=settings.n_epochs,
        learning_rate=settings.learning_rate_for(base.kind),
        lr_scheduler_type="linear",
        warmup_steps=settings.warmup,
        weight_decay=0.0 if base.is_static else settings.weight_decay,  # it would wear off words that are never met
        max_grad_norm=settings.max_gradient_norm,
        bf16=settings.precision == "bfloat16",
        activation_checkpointing=settings.recompute,
        use_cpu=base.is_static or not has_gpu,  # said aloud, so that several processes are seen on a CPU too
        seed=settings.seed,
        eval_strategy="no" if job.development is None else "steps",
        eval_steps=1 / evaluations if evaluations > 1 else _NEVER,  # the last step is evaluated in any case
        save_strategy="steps",
        save_steps=settings.checkpoint_every,
        logging_steps=LOG_EVERY,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available() and not base.is_static,
        report_to=[],
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # a GPU a process, so that the batch is what was asked for
    return arguments


def make_trainer(job: TrainingJob, base: Base, loss: Any, arguments: Any, recorder: StepRecorder) -> Any:
    """Make the trainer.

    Parameters
    ----------
    job : TrainingJob
        What is trained.
    base : Base
        The opened base.
    loss : torch.nn.Module
        The objective.
    arguments : SentenceTransformerTrainingArguments
        From `make_arguments`.
    recorder : StepRecorder
        Told how it goes.

    Returns
    -------
    Trainer
        Ready to train.
    """
    examples = job.examples
    arguments.batch_sampler = _sampler(job, base, arguments.world_size)
    dataset = examples.to_dataset().add_column(ROW, list(range(len(examples))))
    trainer = trainer_class()(
        model=base.model,
        args=arguments,
        train_dataset=dataset,
        loss=loss,
        evaluator=None if job.development is None else dev_evaluator(job.development, told=recorder.evaluated),
        callbacks=[recording_callback(recorder), first_checkpoint_callback(), *_tensorboard(arguments)],
    )
    trainer.remove_callback(_extras.require("transformers").PrinterCallback)
    trainer.recorder = recorder
    return trainer


def _tensorboard(arguments: Any) -> list[Any]:
    """The callback of TensorBoard where it is installed; its files go beside the checkpoints."""
    if not tensorboard_available() or arguments.process_index:
        return []
    writer = import_module("torch.utils.tensorboard").SummaryWriter(log_dir=arguments.output_dir)
    return [_extras.require("transformers").integrations.TensorBoardCallback(writer)]


def _sampler(job: TrainingJob, base: Base, n_processes: int) -> Any:
    settings, texts = job.settings, list(job.examples.text_columns.values())
    return batch_sampler(
        settings.batching,
        lengths=None if settings.batching == "random" else example_lengths(base.model.preprocess, texts),
        token_budget=settings.token_budget,
        distinct=texts if settings.objective.objective == "ranking" else None,
        n_processes=n_processes,
    )
