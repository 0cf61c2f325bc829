"""The trainer of sentence-transformers, with what it lacks: exact resuming, safe checkpoints, and a stop at NaN."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from msgspec import Struct
from safetensors import SafetensorError

from isosent import _extras
from isosent.errors import FileFormatError, NonFiniteLossError, OutputError
from isosent.io.atomic import Replaceable, fsync, remove_folder, replacing_folder
from isosent.io.checksum import folder_checksums, verify_folder
from isosent.io.json import document_bytes, read_json
from isosent.io.schemas import Checksum, Count, Document, RelativePath
from isosent.io.system import disk_error, system_error
from isosent.io.tensors import open_tensors
from isosent.training.base_models import Base
from isosent.training.batching import batch_sampler, example_lengths
from isosent.training.development import SPEARMAN, dev_evaluator
from isosent.training.metrics import StepRecorder

if TYPE_CHECKING:
    from isosent.training.run import TrainingJob

LOG_EVERY: Final = 10  # steps
FIRST_CHECKPOINT_S: Final = 60.0  # the first checkpoint is written by then, if `checkpoint_every` takes longer
_NEVER: Final = 1 << 40
_ROW, _ROWS = "row", "rows_of_batch"
_SHOWN_ROWS: Final = 16


def make_arguments(job: TrainingJob, base: Base, folder: Path) -> Any:
    """Arguments of the trainer; devices and processes are detected here."""
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
        weight_decay=0.0 if base.is_static else settings.weight_decay,  # it would shrink words that never occur
        max_grad_norm=settings.max_gradient_norm,
        bf16=settings.precision == "bfloat16",
        activation_checkpointing=settings.recompute,
        use_cpu=base.is_static or not has_gpu,  # explicit, so that several processes are detected on a CPU too
        seed=settings.seed,
        eval_strategy="no" if job.dev is None else "steps",
        eval_steps=1 / evaluations if evaluations > 1 else _NEVER,  # the last step is evaluated in any case
        save_strategy="no",  # the trainer's own checkpoints are pickles; `RunCallback` writes safe ones
        logging_steps=LOG_EVERY,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available() and not base.is_static,
        report_to=[],
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # one GPU per process, so that the batch has the size asked for
    return arguments


def make_trainer(
    job: TrainingJob, base: Base, loss: Any, arguments: Any, recorder: StepRecorder, checkpoint: Path | None = None
) -> Any:
    """The trainer of a job; `checkpoint` is the one that its ``train`` is going to resume from."""
    settings, texts = job.settings, list(job.examples.text_columns.values())
    arguments.batch_sampler = batch_sampler(
        lengths=None if settings.batching == "random" else example_lengths(base.model.preprocess, texts),
        distinct=texts if settings.objective == "ranking" else None,
        n_processes=arguments.world_size,
    )
    trainer = trainer_class()(
        model=base.model,
        args=arguments,
        train_dataset=job.examples.to_dataset().add_column(_ROW, list(range(len(job.examples)))),
        loss=loss,
        evaluator=None if job.dev is None else dev_evaluator(job.dev, report=recorder.evaluated),
    )
    trainer.recorder = recorder
    transformers = _extras.require("transformers")
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.add_callback(_callback_class()(trainer, recorder, checkpoint, settings.checkpoint_every))
    if find_spec("tensorboard") is not None and arguments.process_index == 0:
        # its files lie beside the checkpoints until the model is saved
        writer = import_module("torch.utils.tensorboard").SummaryWriter(log_dir=arguments.output_dir)
        trainer.add_callback(transformers.integrations.TensorBoardCallback(writer))
    return trainer


class _NumberedRows:
    """A collator whose batches also say which rows of the data they hold."""

    def __init__(self, collator: Any) -> None:
        self._collator = collator
        self.valid_label_columns = collator.valid_label_columns

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        rows = _extras.require("torch").tensor([example[_ROW] for example in examples])
        columns = [{name: value for name, value in example.items() if name != _ROW} for example in examples]
        return {**self._collator(columns), _ROWS: rows}


class _CheckedTraining:
    """Overrides for the trainer of sentence-transformers; `trainer_class` combines the two."""

    recorder: StepRecorder
    best: dict[str, Any] | None = None  # the weights of the best step so far, on the CPU

    def get_data_collator(self, *args: Any, **kwargs: Any) -> _NumberedRows:
        return _NumberedRows(super().get_data_collator(*args, **kwargs))  # type: ignore[misc]

    def get_batch_sampler(self, *args: Any, **kwargs: Any) -> Any:
        self.batches = super().get_batch_sampler(*args, **kwargs)  # type: ignore[misc]
        return self.batches

    def add_model_card_callback(self, *args: Any, **kwargs: Any) -> None:
        """Leave it out: it sends requests to the hub."""

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        """Compute a batch, and stop if its loss is not finite."""
        self.rows = inputs.pop(_ROWS).tolist()
        scaled = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        loss = float(scaled) * self.current_gradient_accumulation_steps  # type: ignore[attr-defined]
        if not math.isfinite(loss):
            raise self.stop(f"the loss is {loss}")
        self.recorder.record(loss, len(self.rows))
        return scaled

    # The next two are private methods of transformers, whose major version is bounded; `trainer_class` checks that
    # they exist. Public hooks cannot replace them: `on_pre_optimizer_step` comes after the norm was computed.

    def _clip_grad_norm(self, model: Any) -> Any:
        """Clip the gradients of the classifier together with those of the model."""
        trainer: Any = self
        norm = trainer.accelerator.clip_grad_norm_(trainer.loss.parameters(), trainer.args.max_grad_norm)
        if norm is not None and not math.isfinite(float(norm)):
            raise self.stop(f"the gradient's norm is {float(norm)}")
        return norm

    def _load_from_checkpoint(self, path: str, model: Any = None) -> None:
        """Load the weights of the model and of the classifier."""
        checkpoint = Checkpoint(path)
        self.load_weights(checkpoint.weights())
        self.best = checkpoint.best()

    def weights(self) -> dict[str, Any]:
        """Every tensor of the model and of the loss, by name."""
        trainer: Any = self
        tensors, addresses = {}, set()
        for part, module in (("model", trainer.accelerator.unwrap_model(trainer.model)), ("loss", trainer.loss)):
            for name, tensor in module.state_dict().items():
                if tensor.data_ptr() not in addresses:  # tied weights, and the model inside the loss, are kept once
                    addresses.add(tensor.data_ptr())
                    tensors[f"{part}.{name}"] = tensor
        return tensors

    def load_weights(self, tensors: Mapping[str, Any]) -> None:
        """Copy into the model and the loss what `weights` returned."""
        weights = self.weights()
        if {name: tensor.shape for name, tensor in weights.items()} != {name: t.shape for name, t in tensors.items()}:
            raise FileFormatError("train: the checkpoint has the weights of another model.")
        with _extras.require("torch").no_grad():
            for name, tensor in tensors.items():
                weights[name].copy_(tensor)

    def stop(self, what: str) -> NonFiniteLossError:
        """Record that the run stops; returns the error to raise."""
        trainer: Any = self
        step, folder = trainer.state.global_step, Path(trainer.args.output_dir)
        last = newest_checkpoint(folder)
        self.recorder.mark("stopped", step, {"reason": what})
        rows = ", ".join(map(str, self.rows[:_SHOWN_ROWS])) + (", ..." if len(self.rows) > _SHOWN_ROWS else "")
        kept = "There is no checkpoint" if last is None else f"The checkpoint of step {step_of(last)} is kept"
        return NonFiniteLossError(
            f"train: after {step} steps {what}, in the batch of the rows {rows} of the data (counted from 0). {kept}. "
            f"Look at these rows, or remove {folder} and train with a lower learning rate."
        )


@cache
def trainer_class() -> Any:
    """The trainer of sentence-transformers with the overrides of `_CheckedTraining`."""
    for package in ("accelerate", "datasets"):
        _extras.require(package)
    base = _extras.require("sentence_transformers").SentenceTransformerTrainer
    for name in ("_clip_grad_norm", "_load_from_checkpoint"):
        if not hasattr(base, name):
            raise RuntimeError(f"This version of transformers has no Trainer.{name}. Install isosent[train] again.")
    return type("Trainer", (_CheckedTraining, base), {})


@cache
def _callback_class() -> Any:
    base: Any = _extras.require("transformers").TrainerCallback

    class RunCallback(base):  # type: ignore[misc]
        """Restores a run, records its steps, keeps the best weights, and writes checkpoints."""

        def __init__(self, trainer: Any, recorder: StepRecorder, checkpoint: Path | None, every: int) -> None:
            self._trainer, self._recorder, self._every = trainer, recorder, every
            self._checkpoint = None if checkpoint is None else Checkpoint(checkpoint)
            self._awaits_first = checkpoint is None
            self._is_due = False

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self._checkpoint is not None:
                kwargs["optimizer"].load_state_dict(self._checkpoint.optimizer())
                kwargs["lr_scheduler"].load_state_dict(self._checkpoint.scheduler())
            self._start_s = time.monotonic()
            self._recorder.began(state.global_step, state.max_steps)

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            # The trainer does not set the epoch of a resumed run in a sampler that several processes share.
            self._trainer.batches.set_epoch(int(state.epoch or 0))
            if self._checkpoint is not None:  # the loader of an epoch draws a random number, which must be the same
                self._checkpoint.restore_random_state(args.process_index)

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self._checkpoint is not None:
                if state.epoch % 1:  # the loader of an epoch that was begun before has drawn once too often
                    self._checkpoint.restore_random_state(args.process_index)
                self._checkpoint = None
            self._recorder.step_began()

        def on_optimizer_step(self, args: Any, state: Any, control: Any, *, optimizer: Any, **kwargs: Any) -> None:
            self._learning_rate = float(optimizer.param_groups[0]["lr"])  # before the schedule advances

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            step, is_last = state.global_step, state.global_step >= state.max_steps
            self._recorder.step_ended(step, self._learning_rate)
            control.should_log |= is_last
            self._is_due = step % self._every == 0 or is_last
            if self._awaits_first:
                is_late = [time.monotonic() - self._start_s >= FIRST_CHECKPOINT_S]
                if args.world_size > 1:  # clocks differ, and all processes must write a checkpoint together
                    _extras.require("accelerate").utils.broadcast_object_list(is_late)
                self._is_due |= is_late[0]
            # A checkpoint comes after the loss and the score of its step.
            if self._is_due and not control.should_log and not control.should_evaluate:
                self._write_checkpoint(args, state, **kwargs)
            return control

        def on_log(self, args: Any, state: Any, control: Any, *, logs: Any, **kwargs: Any) -> None:
            self._recorder.logged(state.global_step, state.epoch, logs)
            if self._is_due and not control.should_evaluate and "loss" in logs:
                self._write_checkpoint(args, state, **kwargs)

        def on_evaluate(self, args: Any, state: Any, control: Any, *, metrics: Any, **kwargs: Any) -> None:
            score = metrics.get(f"eval_{SPEARMAN}", math.nan)
            if score > (-math.inf if state.best_metric is None else state.best_metric):
                state.best_metric, state.best_global_step = score, state.global_step
                self._recorder.mark("best", state.global_step, {"spearman": score})
                weights = self._trainer.weights()
                self._trainer.best = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}
            self._recorder.pause_ended()
            if self._is_due:
                self._write_checkpoint(args, state, **kwargs)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._recorder.ended(state.global_step)

        def _write_checkpoint(self, args: Any, state: Any, *, optimizer: Any, lr_scheduler: Any, **kwargs: Any) -> None:
            weights = self._trainer.weights()
            if not all(tensor.isfinite().all() for tensor in weights.values()):
                raise self._trainer.stop("a weight is not finite")
            random_states = _extras.require("accelerate").utils.gather_object([_random_state()])
            if state.is_world_process_zero:
                write_checkpoint(
                    Path(args.output_dir),
                    state,
                    {_WEIGHTS: weights} | ({} if self._trainer.best is None else {_BEST: self._trainer.best}),
                    optimizer.state_dict(),
                    lr_scheduler.state_dict(),
                    random_states,
                )
            self._is_due = self._awaits_first = False
            self._recorder.pause_ended()
            self._recorder.mark("checkpoint", state.global_step)

    return RunCallback


def _random_state() -> dict[str, Any]:
    """State of every random generator of this process."""
    torch = _extras.require("torch")
    devices = {"cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        devices["cuda"] = torch.cuda.random.get_rng_state()
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {"python": random.getstate(), "numpy": [kind, np.asarray(keys).tolist(), *rest], "torch": devices}


# Checkpoints: tensors as safetensors, everything else as JSON, no pickle.
_FORMAT: Final = "isosent-training-checkpoint"
_STATE_FILE: Final = "trainer_state.json"
_PREFIX: Final = "checkpoint-"
_WEIGHTS: Final = "weights.safetensors"
_BEST: Final = "best.safetensors"
_OPTIMIZER: Final = "optimizer.safetensors"
_RANDOM: Final = "random.safetensors"
_REST: Final = "rest.json"
_CHECKPOINT: Final = Replaceable("an older checkpoint", lambda folder: True)


class _OptimizerFields(Struct, forbid_unknown_fields=True):
    values: dict[str, Any]
    param_groups: list[dict[str, Any]]


class _RandomFields(Struct, forbid_unknown_fields=True):
    python: tuple[int, list[int], float | None]  # for random.setstate
    numpy: tuple[str, list[int], int, int, float]  # for numpy.random.set_state


class _RestFile(Document, kw_only=True):
    n_tensors: dict[str, Count]
    optimizer: _OptimizerFields
    scheduler: dict[str, Any]
    random: list[_RandomFields]  # by process
    format: Literal["isosent-training-checkpoint"] = "isosent-training-checkpoint"
    format_version: Literal[1] = 1
    checksums: dict[RelativePath, Checksum] | None = None


class _StateFile(Struct):
    global_step: Count  # the file is the library's: only what is needed here is checked


def newest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint of most steps."""
    return max(_checkpoints(folder), key=step_of, default=None)


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{_PREFIX}*") if re.fullmatch(rf"{_PREFIX}\d+", path.name)]


def step_of(checkpoint: Path) -> int:
    """Steps taken before a checkpoint."""
    return int(checkpoint.name.removeprefix(_PREFIX))


def write_checkpoint(
    folder: Path,
    state: Any,
    tensors: Mapping[str, Mapping[str, Any]],
    optimizer: Mapping[str, Any],
    scheduler: Mapping[str, Any],
    random_states: list[dict[str, Any]],
) -> None:
    """Write a checkpoint, and remove older ones once it is complete."""
    older = newest_checkpoint(folder)
    path = folder / f"{_PREFIX}{state.global_step}"
    try:
        with replacing_folder(path, _CHECKPOINT) as temporary:
            _write_files(temporary, state, tensors, optimizer, scheduler, random_states)
        fsync(folder)  # the name of the new checkpoint must be on the disk before older ones go
    except OutputError as error:
        kept = f"The checkpoint of step {step_of(older)} is intact." if older else "There is no checkpoint before it."
        advice = " Free some space, then use --resume." if disk_error(error) else ""
        raise OutputError(f"{error} {kept}{advice}") from error
    for other in _checkpoints(folder):
        if other != path:
            with suppress(OSError):
                remove_folder(other)


def _write_files(
    folder: Path,
    state: Any,
    tensors: Mapping[str, Mapping[str, Any]],
    optimizer: Mapping[str, Any],
    scheduler: Mapping[str, Any],
    random_states: list[dict[str, Any]],
) -> None:
    torch = _extras.require("torch")
    moments: dict[str, Any] = {}
    values: dict[str, Any] = {}  # of the optimizer: what is not a tensor
    for index, parameter_state in optimizer["state"].items():
        for name, value in parameter_state.items():
            (moments if torch.is_tensor(value) else values)[f"{index}.{name}"] = value
    generators = {
        f"{rank}.{name}": generator
        for rank, random_state in enumerate(random_states)
        for name, generator in random_state["torch"].items()
    }
    contents = {**tensors, _OPTIMIZER: moments, _RANDOM: generators}
    for name, content in contents.items():
        _save(folder / name, content)
    state.save_to_json(str(folder / _STATE_FILE))
    document = {
        "format": _FORMAT,
        "format_version": 1,
        "n_tensors": {name: len(content) for name, content in contents.items()},
        "optimizer": {"values": values, "param_groups": optimizer["param_groups"]},
        "scheduler": scheduler,
        "random": [{name: random_state[name] for name in ("python", "numpy")} for random_state in random_states],
        "checksums": folder_checksums(folder),
    }
    (folder / _REST).write_bytes(document_bytes(document))


def _save(path: Path, tensors: Mapping[str, Any]) -> None:
    safetensors = _extras.require("safetensors.torch")
    safetensors.save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, str(path))


class Checkpoint:
    """A checkpoint to resume from; its files are verified when it is opened."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self._rest: dict[str, Any] = read_json(self.path / _REST, _RestFile)
            verify_folder(self.path, self._rest.get("checksums") or {})
            read_json(self.path / _STATE_FILE, _StateFile)
        except (FileFormatError, FileNotFoundError) as error:
            raise self._damaged(error) from None

    def weights(self) -> dict[str, Any]:
        """Tensors of the model and of the loss, by name."""
        return self._tensors(_WEIGHTS)

    def best(self) -> dict[str, Any] | None:
        """The same of the best step, if a development set was scored."""
        return self._tensors(_BEST) if _BEST in self._rest["n_tensors"] else None

    def optimizer(self) -> dict[str, Any]:
        """State of the optimizer, for its ``load_state_dict``."""
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
        """Set every random generator of a process to its state at the checkpoint."""
        torch = _extras.require("torch")
        states = self._rest["random"]
        if rank >= len(states):
            return
        version, internal, gauss = states[rank]["python"]
        random.setstate((version, tuple(internal), gauss))
        kind, keys, *rest = states[rank]["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
        prefix = f"{rank}."
        generators = {
            name.removeprefix(prefix): t for name, t in self._tensors(_RANDOM).items() if name.startswith(prefix)
        }
        torch.random.set_rng_state(generators["cpu"])
        if "cuda" in generators and torch.cuda.is_available():
            torch.cuda.random.set_rng_state(generators["cuda"])

    def _tensors(self, name: str) -> dict[str, Any]:
        n_tensors = self._rest["n_tensors"].get(name)
        try:
            with open_tensors(self.path / name, "pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            if unreadable := system_error(error, self.path / name):
                raise unreadable from error
            raise self._damaged(f"{self.path / name}: {error}.") from error
        if len(tensors) != n_tensors:
            raise self._damaged(f"{self.path / name}: expected {n_tensors} tensors, found {len(tensors)}.")
        return tensors

    def _damaged(self, what: object) -> FileFormatError:
        folder = self.path.parent
        older = max((step_of(other) for other in _checkpoints(folder) if other != self.path), default=None)
        advice = (
            f"Remove {folder} to train from the beginning"
            if older is None
            else f"Remove {self.path} to resume from step {older}"
        )
        return FileFormatError(f"the checkpoint of step {step_of(self.path)} is damaged: {what} {advice}.")
