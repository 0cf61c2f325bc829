"""The trainer of sentence-transformers, with what it leaves out: a saved head, exact resuming, and a stop at NaN."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError

from isosent import _extras
from isosent.errors import FileFormatError, NonFiniteLossError, OutputError
from isosent.io.atomic import Replaceable, disk_error, fsync, remove_folder, replacing_folder
from isosent.io.checksum import folder_checksums, verify_folder
from isosent.io.json import document_bytes, read_json
from isosent.training.base_models import Base
from isosent.training.batching import batch_sampler, example_lengths
from isosent.training.development import SPEARMAN, dev_evaluator
from isosent.training.metrics import StepRecorder, recording_callback, tensorboard_available
from isosent.training.schemas import CheckpointFields, TrainerState
from isosent.training.settings import TrainingJob

LOG_EVERY = 10
_NEVER = 1 << 40


def make_arguments(job: TrainingJob, base: Base, folder: Path) -> Any:
    """Make the arguments of the trainer; the devices and processes are found here."""
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
    """Make the trainer."""
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


FORMAT: Final = "isosent-training-checkpoint"
FIRST_CHECKPOINT_S = 60.0
STATE_FILE: Final = "trainer_state.json"
_PREFIX = "checkpoint-"
_NAME = re.compile(rf"{_PREFIX}(\d+)")
_WEIGHTS, _BEST, _OPTIMIZER, _RANDOM, _REST = (
    "weights.safetensors",
    "best.safetensors",
    "optimizer.safetensors",
    "random.safetensors",
    "rest.json",
)
_CHECKPOINT: Final = Replaceable("an older checkpoint", lambda folder: True)


def newest_checkpoint(folder: Path) -> Path | None:
    """Find the checkpoint of most steps."""
    return max(_checkpoints(folder), key=step_of, default=None)


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{_PREFIX}*") if _NAME.fullmatch(path.name)]


def step_of(checkpoint: Path) -> int:
    """Steps taken before a checkpoint."""
    return int(checkpoint.name.removeprefix(_PREFIX))


def write_checkpoint(folder: Path, trainer: Any, random_states: list[dict[str, Any]]) -> Path:
    """Write a checkpoint, and remove older ones once it is whole."""
    older = newest_checkpoint(folder)
    path = folder / f"{_PREFIX}{trainer.state.global_step}"
    try:
        with replacing_folder(path, _CHECKPOINT) as temporary:
            _write_files(temporary, trainer, random_states)
        fsync(folder)  # the name of the new checkpoint must be on the disk before older ones go
    except OutputError as error:
        kept = f"The checkpoint of step {step_of(older)} is intact." if older else "There is no checkpoint before it."
        advice = " Free some space, and go on with --resume." if disk_error(error) else ""
        raise OutputError(f"{error} {kept}{advice}") from error
    for other in _checkpoints(folder):
        if other != path:
            with suppress(OSError):
                remove_folder(other)
    return path


def _write_files(folder: Path, trainer: Any, random_states: list[dict[str, Any]]) -> None:
    optimizer, rest = _flattened(trainer.optimizer.state_dict())
    states = {f"{rank}.{name}": state for rank, of in enumerate(random_states) for name, state in of["torch"].items()}
    contents = {_WEIGHTS: trainer.parts(), _OPTIMIZER: optimizer, _RANDOM: states}
    if trainer.best is not None:
        contents[_BEST] = trainer.best
    for name, tensors in contents.items():
        _save(folder / name, tensors)
    trainer.state.save_to_json(str(folder / STATE_FILE))
    document = {
        "format": FORMAT,
        "format_version": 1,
        "n_tensors": {name: len(tensors) for name, tensors in contents.items()},
        "optimizer": rest,
        "scheduler": trainer.lr_scheduler.state_dict(),
        "random": [{name: state for name, state in of.items() if name != "torch"} for of in random_states],
        "checksums": folder_checksums(folder),
    }
    (folder / _REST).write_bytes(document_bytes(document))


def _save(path: Path, tensors: Mapping[str, Any]) -> None:
    safetensors = _extras.require("safetensors.torch")
    safetensors.save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, str(path))


def _flattened(optimizer: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of an optimizer as tensors by name, and the rest as plain values."""
    torch = _extras.require("torch")
    tensors: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for index, state in optimizer["state"].items():
        for name, value in state.items():
            (tensors if torch.is_tensor(value) else plain)[f"{index}.{name}"] = value
    return tensors, {"values": plain, "param_groups": optimizer["param_groups"]}


class Checkpoint:
    """A checkpoint to go on from."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self._rest: dict[str, Any] = read_json(self.path / _REST, CheckpointFields)
            verify_folder(self.path, self._rest.get("checksums") or {})
            read_json(self.path / STATE_FILE, TrainerState)
        except (FileFormatError, FileNotFoundError) as error:
            raise self._damaged(error) from None

    def weights(self) -> dict[str, Any]:
        """Tensors of the model and of the loss, by name."""
        return self._tensors(_WEIGHTS)

    def best(self) -> dict[str, Any] | None:
        """The same of the best step, where a development set told one."""
        return self._tensors(_BEST) if _BEST in self._rest["n_tensors"] else None

    def optimizer(self) -> dict[str, Any]:
        """State of the optimizer, as its ``load_state_dict`` takes it."""
        rest = self._rest["optimizer"]
        state: dict[int, dict[str, Any]] = {}
        for key, value in {**self._tensors(_OPTIMIZER), **rest["values"]}.items():
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = value
        return {"state": state, "param_groups": rest["param_groups"]}

    def scheduler(self) -> dict[str, Any]:
        """State of the learning rate's schedule."""
        state: dict[str, Any] = self._rest["scheduler"]
        return state

    def restore_random_state(self, rank: int = 0) -> None:
        """Set every random generator to where it stood."""
        torch = _extras.require("torch")
        states = self._rest["random"]
        if rank >= len(states):
            return
        version, internal, gauss = states[rank]["python"]
        random.setstate((version, tuple(internal), gauss))
        kind, keys, *rest = states[rank]["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
        own = {
            name.partition(".")[2]: tensor
            for name, tensor in self._tensors(_RANDOM).items()
            if name.startswith(f"{rank}.")
        }
        torch.random.set_rng_state(own.pop("cpu"))
        if own and torch.cuda.is_available():
            torch.cuda.random.set_rng_state(own["cuda"])

    def _tensors(self, name: str) -> dict[str, Any]:
        n_tensors = self._rest["n_tensors"].get(name)
        try:
            tensors: dict[str, Any] = _extras.require("safetensors.torch").load_file(str(self.path / name))
        except (OSError, SafetensorError) as error:
            raise self._damaged(f"{self.path / name}: {error}.") from error
        if len(tensors) != n_tensors:
            raise self._damaged(f"{self.path / name}: {len(tensors)} tensors in place of {n_tensors}.")
        return tensors

    def _damaged(self, what: object) -> FileFormatError:
        folder = self.path.parent
        older = max((step_of(other) for other in _checkpoints(folder) if other != self.path), default=None)
        advice = (
            f"Remove {folder} to train from the beginning"
            if older is None
            else f"Remove {self.path} to go on from step {older}"
        )
        return FileFormatError(f"the checkpoint of step {step_of(self.path)} is damaged: {what} {advice}.")


def first_checkpoint_callback() -> Any:
    """Make the callback that has the first checkpoint written after `FIRST_CHECKPOINT_S`, if none was before."""
    return _callback_class()()


@cache
def _callback_class() -> Any:
    base: Any = _extras.require("transformers").TrainerCallback

    class FirstCheckpoint(base):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._is_awaited, self._start_s = state.global_step == 0, time.monotonic()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            if self._is_awaited:
                is_due = [time.monotonic() - self._start_s >= FIRST_CHECKPOINT_S]
                if args.world_size > 1:  # clocks differ, and a checkpoint is written by all processes together
                    _extras.require("accelerate").utils.broadcast_object_list(is_due)
                control.should_save |= is_due[0]
            return control

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._is_awaited = False

    return FirstCheckpoint


def random_state() -> dict[str, Any]:
    """Where every random generator of this process stands."""
    torch = _extras.require("torch")
    devices = {"cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        devices["cuda"] = torch.cuda.random.get_rng_state()
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {"python": random.getstate(), "numpy": [kind, np.asarray(keys).tolist(), *rest], "torch": devices}


ROW = "row"
_ROWS = "rows_of_batch"
_SHOWN_ROWS = 16


class NumberedRows:
    """A collator that also tells which rows of the data a batch holds."""

    def __init__(self, collator: Any) -> None:
        self._collator = collator
        self.valid_label_columns = collator.valid_label_columns

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Make a batch."""
        rows = _extras.require("torch").tensor([example[ROW] for example in examples])
        columns = [{name: value for name, value in example.items() if name != ROW} for example in examples]
        return {**self._collator(columns), _ROWS: rows}


class CheckedTraining:
    """What is put in front of the trainer of sentence-transformers; `trainer_class` joins both."""

    # What is replaced here: checkpoints that are pickles in part, and hold neither the head of the softmax objective
    # nor the best weights; gradients of that head that are not clipped with the others; a loss that shows NaN as the
    # mean of earlier losses; and, where several processes go on with a run, batches of the first epoch for those of
    # the current.

    recorder: StepRecorder
    best: dict[str, Any] | None = None

    def get_data_collator(self, *args: Any, **kwargs: Any) -> NumberedRows:
        """Let batches tell their rows."""
        return NumberedRows(super().get_data_collator(*args, **kwargs))  # type: ignore[misc]

    def get_batch_sampler(self, *args: Any, **kwargs: Any) -> Any:
        """Keep the batches, to tell them the epoch."""
        self._batches = super().get_batch_sampler(*args, **kwargs)  # type: ignore[misc]
        return self._batches

    def _run_epoch(self, *, epoch: int, **kwargs: Any) -> None:
        self._batches.set_epoch(epoch)
        super()._run_epoch(epoch=epoch, **kwargs)  # type: ignore[misc]

    def add_model_card_callback(self, *args: Any, **kwargs: Any) -> None:
        """Leave it out: it asks the hub."""

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        """Take a step, and stop where the loss is no number."""
        rows = inputs.pop(_ROWS)
        scaled = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        loss = float(scaled) * self._trainer.current_gradient_accumulation_steps
        self._rows = rows.tolist()
        if not math.isfinite(loss):
            raise self._stop(f"the loss is {loss}")
        self.recorder.record(loss, len(self._rows))
        return scaled

    def _clip_grad_norm(self, model: Any) -> Any:
        trainer = self._trainer
        norm = trainer.accelerator.clip_grad_norm_(trainer.loss.parameters(), trainer.args.max_grad_norm)
        if norm is not None and not math.isfinite(float(norm)):
            raise self._stop(f"the gradient's norm is {float(norm)}")
        return norm

    def _stop(self, what: str) -> NonFiniteLossError:
        done, folder = self._trainer.state.global_step, Path(self._trainer.args.output_dir)
        last = newest_checkpoint(folder)
        kept = "there is no checkpoint before it" if last is None else f"the checkpoint of step {step_of(last)} is kept"
        self.recorder.mark("stopped", done, {"reason": what})
        shown = ", ".join(map(str, self._rows[:_SHOWN_ROWS])) + (", ..." if len(self._rows) > _SHOWN_ROWS else "")
        return NonFiniteLossError(
            f"train: the loss must be a finite number; after {done} steps {what}, in the batch of the rows {shown} of "
            f"the data (counted from 0); {kept}. Look at these rows, or remove {folder} and lower --learning-rate."
        )

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Score the development set, and keep the weights if they are the best so far."""
        metrics: dict[str, float] = super().evaluate(*args, **kwargs)  # type: ignore[misc]
        state, score = self._trainer.state, metrics.get(f"eval_{SPEARMAN}", math.nan)
        best = -math.inf if state.best_metric is None else state.best_metric
        if state.global_step > 0 and score > best:
            state.best_metric, state.best_global_step = score, state.global_step
            self.recorder.mark("best", state.global_step, {"spearman": score})
            self.best = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.parts().items()}
        return metrics

    def parts(self) -> dict[str, Any]:
        """Every tensor that is trained or goes with it: of the model, and of the loss beside it."""
        trainer, parts, known = self._trainer, {}, set()
        model = trainer.accelerator.unwrap_model(trainer.model)
        for part, module in (("model", model), ("loss", trainer.loss)):
            for name, tensor in module.state_dict().items():
                if tensor.data_ptr() not in known:  # one name for tied weights, and for the model inside the loss
                    known.add(tensor.data_ptr())
                    parts[f"{part}.{name}"] = tensor
        return parts

    def load_parts(self, parts: Mapping[str, Any]) -> None:
        """Put back what `parts` returned."""
        torch, own = _extras.require("torch"), self.parts()
        if {name: tensor.shape for name, tensor in own.items()} != {name: t.shape for name, t in parts.items()}:
            raise FileFormatError("train: the checkpoint must hold the weights of this model; it holds others.")
        with torch.no_grad():
            for name, tensor in parts.items():
                own[name].copy_(tensor)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if not all(tensor.isfinite().all() for tensor in self.parts().values()):
            raise self._stop("a weight is not finite")
        states = _extras.require("accelerate").utils.gather_object([random_state()])
        if self._trainer.is_world_process_zero():
            write_checkpoint(Path(self._trainer.args.output_dir), self, states)

    def _load_from_checkpoint(self, path: str, model: Any = None) -> None:
        checkpoint = Checkpoint(path)
        self.load_parts(checkpoint.weights())
        self.best = checkpoint.best()

    def _load_optimizer_and_scheduler(self, path: str | None) -> None:
        if path is not None:
            checkpoint = Checkpoint(path)
            self._trainer.optimizer.load_state_dict(checkpoint.optimizer())
            self._trainer.lr_scheduler.load_state_dict(checkpoint.scheduler())

    def _load_rng_state(self, path: str | None) -> None:
        if path is not None:
            Checkpoint(path).restore_random_state(self._trainer.args.process_index)

    @property
    def _trainer(self) -> Any:
        """Itself, as the trainer it is joined with."""
        return self


@cache
def trainer_class() -> Any:
    """Join `CheckedTraining` with the trainer of sentence-transformers."""
    for package in ("accelerate", "datasets"):
        _extras.require(package)
    return type("Trainer", (CheckedTraining, _extras.require("sentence_transformers").SentenceTransformerTrainer), {})
