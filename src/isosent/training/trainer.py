"""The trainer of sentence-transformers, with what it lacks: exact resuming, safe checkpoints, and a stop at NaN.

`make_arguments` turns settings into the library's arguments and detects devices and processes. `make_trainer` puts
together a model, its loss and the data. Three parts make a run exact and safe. `trainer_class` stops at a loss or a
gradient that is not finite, clips the gradients of the classifier too, and loads and saves the weights of both. Its
`RunCallback` restores a checkpoint, tells the recorder of every step, remembers the best weights, and writes
checkpoints. `batch_sampler` makes the batches of an epoch from the seed and the number of the epoch alone, so that a
resumed run goes on with the same batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _extras
from isosent.errors import FileFormatError, InputError, NonFiniteLossError, wrong_value
from isosent.storage import Storage
from isosent.training.development import SPEARMAN, dev_evaluator
from isosent.training.metrics import StepRecorder
from isosent.training.record import (
    BEST,
    WEIGHTS,
    Checkpoint,
    TrainingJob,
    newest_checkpoint,
    random_state,
    step_of,
    write_checkpoint,
)

LOG_EVERY: Final = 10  # steps
FIRST_CHECKPOINT_S: Final = 60.0  # the first checkpoint is written by then, if `checkpoint_every` takes longer
_NEVER: Final = 1 << 40
_ROW, _ROWS = "row", "rows_of_batch"
_SHOWN_ROWS: Final = 16
_BUCKET: Final = 100  # batches that are sorted by length together
_LOOK: Final = 100  # batches searched for one that shares no text with a row
_CHUNK: Final = 1024  # texts tokenized at once

Rows = NDArray[np.int64]


def make_arguments(job: TrainingJob, kind: str, folder: Path) -> Any:
    """Arguments of the trainer for a kind of base model; devices and processes are detected here."""
    library, torch, settings = _extras.require("sentence_transformers"), _extras.require("torch"), job.settings
    has_gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    evaluations, is_static = settings.n_evaluations, kind == "static"
    arguments = library.SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        num_train_epochs=settings.n_epochs,
        learning_rate=settings.learning_rate_for(kind),
        lr_scheduler_type="linear",
        warmup_steps=settings.warmup,
        weight_decay=0.0 if is_static else settings.weight_decay,  # it would shrink words that never occur
        max_grad_norm=settings.max_gradient_norm,
        bf16=settings.precision == Storage.bfloat16,
        activation_checkpointing=settings.recompute,
        use_cpu=is_static or not has_gpu,  # explicit, so that several processes are detected on a CPU too
        seed=settings.seed,
        eval_strategy="no" if job.dev is None else "steps",
        eval_steps=1 / evaluations if evaluations > 1 else _NEVER,  # the last step is evaluated in any case
        save_strategy="no",  # the trainer's own checkpoints are pickles; `RunCallback` writes safe ones
        logging_steps=LOG_EVERY,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available() and not is_static,
        report_to=[],
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # one GPU per process, so that the batch has the size asked for
    return arguments


def make_trainer(
    job: TrainingJob,
    model: Any,
    loss: Any,
    arguments: Any,
    recorder: StepRecorder,
    checkpoint: Checkpoint | None = None,
) -> Any:
    """The trainer of a job; `checkpoint` is the one that its ``train`` is going to resume from."""
    settings, texts = job.settings, list(job.examples.text_columns.values())
    arguments.batch_sampler = batch_sampler(
        lengths=None if settings.batching == "random" else example_lengths(model.preprocess, texts),
        distinct=texts if settings.objective == "ranking" else None,
        n_processes=arguments.world_size,
    )
    trainer = trainer_class()(
        model=model,
        args=arguments,
        train_dataset=job.examples.to_dataset().add_column(_ROW, list(range(len(job.examples)))),
        loss=loss,
        evaluator=None if job.dev is None else dev_evaluator(job.dev, report=recorder.evaluated),
    )
    trainer.recorder, trainer.checkpoint = recorder, checkpoint
    transformers = _extras.require("transformers")
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.add_callback(_callback_class()(trainer, settings.checkpoint_every))
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


@cache
def trainer_class() -> Any:
    """The trainer of sentence-transformers with the overrides of isosent."""
    for package in ("accelerate", "datasets"):
        _extras.require(package)
    base: Any = _extras.require("sentence_transformers").SentenceTransformerTrainer
    for name in ("_clip_grad_norm", "_load_from_checkpoint"):
        if not hasattr(base, name):
            raise RuntimeError(f"This version of transformers has no Trainer.{name}. Install isosent[train] again.")

    class Trainer(base):  # type: ignore[misc]
        recorder: StepRecorder
        checkpoint: Checkpoint | None  # to resume from
        best: dict[str, Any] | None = None  # the weights of the best step so far, on the CPU

        def get_data_collator(self, *args: Any, **kwargs: Any) -> _NumberedRows:
            return _NumberedRows(super().get_data_collator(*args, **kwargs))

        def get_batch_sampler(self, *args: Any, **kwargs: Any) -> Any:
            self.batches = super().get_batch_sampler(*args, **kwargs)
            return self.batches

        def add_model_card_callback(self, *args: Any, **kwargs: Any) -> None:
            """Leave it out: it sends requests to the hub."""

        def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
            """Compute a batch, and stop if its loss is not finite."""
            self.rows = inputs.pop(_ROWS).tolist()
            scaled = super().training_step(model, inputs, num_items_in_batch)
            loss = float(scaled) * self.current_gradient_accumulation_steps
            if not math.isfinite(loss):
                raise self.stop(f"the loss is {loss}")
            self.recorder.record(loss, len(self.rows))
            return scaled

        # The next two are private methods of transformers, whose major version is bounded. Public hooks cannot replace
        # them: `on_pre_optimizer_step` comes after the norm was computed.

        def _clip_grad_norm(self, model: Any) -> Any:
            """Clip the gradients of the classifier together with those of the model."""
            norm = self.accelerator.clip_grad_norm_(self.loss.parameters(), self.args.max_grad_norm)
            if norm is not None and not math.isfinite(float(norm)):
                raise self.stop(f"the gradient's norm is {float(norm)}")
            return norm

        def _load_from_checkpoint(self, path: str, model: Any = None) -> None:
            """Load the weights of the model and of the classifier."""
            assert self.checkpoint is not None
            self.load_weights(self.checkpoint.weights())
            self.best = self.checkpoint.best()

        def weights(self) -> dict[str, Any]:
            """Every tensor of the model and of the loss, by name."""
            tensors, addresses = {}, set()
            for part, module in (("model", self.accelerator.unwrap_model(self.model)), ("loss", self.loss)):
                for name, tensor in module.state_dict().items():
                    if tensor.data_ptr() not in addresses:  # tied weights, and the model inside the loss, are kept once
                        addresses.add(tensor.data_ptr())
                        tensors[f"{part}.{name}"] = tensor
            return tensors

        def load_weights(self, tensors: Mapping[str, Any]) -> None:
            """Copy into the model and the loss what `weights` returned."""
            weights = self.weights()
            if {name: t.shape for name, t in weights.items()} != {name: t.shape for name, t in tensors.items()}:
                raise FileFormatError("train: the checkpoint has the weights of another model.")
            with _extras.require("torch").no_grad():
                for name, tensor in tensors.items():
                    weights[name].copy_(tensor)

        def load_kept(self, keep: str) -> int:
            """Leave the best or the last weights in the model; returns their step."""
            if keep == "last" or self.best is None:
                return int(self.state.global_step)
            self.load_weights(self.best)
            return int(self.state.best_global_step)

        def stop(self, what: str) -> NonFiniteLossError:
            """Record that the run stops; returns the error to raise."""
            step, folder = self.state.global_step, Path(self.args.output_dir)
            last = newest_checkpoint(folder)
            self.recorder.mark("stopped", step, reason=what)
            rows = ", ".join(map(str, self.rows[:_SHOWN_ROWS])) + (", ..." if len(self.rows) > _SHOWN_ROWS else "")
            kept = "There is no checkpoint" if last is None else f"The checkpoint of step {step_of(last)} is kept"
            return NonFiniteLossError(
                f"train: after {step} steps {what}, in the batch of the rows {rows} of the data (counted from 0). "
                f"{kept}. Look at these rows, or remove {folder} and train with a lower learning rate."
            )

    return Trainer


@cache
def _callback_class() -> Any:
    base: Any = _extras.require("transformers").TrainerCallback

    class RunCallback(base):  # type: ignore[misc]
        """Restores a run, records its steps, keeps the best weights, and writes checkpoints."""

        def __init__(self, trainer: Any, every: int) -> None:
            self._trainer, self._recorder, self._every = trainer, trainer.recorder, every
            self._checkpoint = trainer.checkpoint  # until it is restored
            self._awaits_first = trainer.checkpoint is None
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
                self._recorder.mark("best", state.global_step, spearman=score)
                weights = self._trainer.weights()
                self._trainer.best = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}
            self._recorder.pause_ended()
            if self._is_due:
                self._write_checkpoint(args, state, **kwargs)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._recorder.mark_end(state.global_step)

        def _write_checkpoint(self, args: Any, state: Any, *, optimizer: Any, lr_scheduler: Any, **kwargs: Any) -> None:
            weights = self._trainer.weights()
            if not all(tensor.isfinite().all() for tensor in weights.values()):
                raise self._trainer.stop("a weight is not finite")
            random_states = _extras.require("accelerate").utils.gather_object([random_state()])
            if state.is_world_process_zero:
                write_checkpoint(
                    Path(args.output_dir),
                    state,
                    {WEIGHTS: weights} | ({} if self._trainer.best is None else {BEST: self._trainer.best}),
                    optimizer=optimizer.state_dict(),
                    scheduler=lr_scheduler.state_dict(),
                    random_states=random_states,
                )
            self._is_due = self._awaits_first = False
            self._recorder.pause_ended()
            self._recorder.mark("checkpoint", state.global_step)

    return RunCallback


# -- batches ----------------------------------------------------------------------------------------------------------


class EpochBatches:
    """The batches of an epoch, which depend on the seed and the number of the epoch alone."""

    # It has what torch's DataLoader, accelerate and the trainers ask of a batch sampler. A resumed run takes the
    # batches of the same epoch and skips those that were used.

    batch_size = None
    drop_last = False

    def __init__(self, make: Callable[[np.random.Generator], list[Rows]], seed: int) -> None:
        self._make = make
        self._seed = seed
        self._made: tuple[int, list[list[int]]] | None = None
        self.epoch = 0

    @property
    def sampler(self) -> EpochBatches:
        """The sampler whose epoch the trainers set: this object."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Go to another epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches())

    def __len__(self) -> int:
        return len(self._batches())

    def _batches(self) -> list[list[int]]:
        if self._made is None or self._made[0] != self.epoch:
            batches = self._make(np.random.default_rng([self._seed, self.epoch]))
            self._made = self.epoch, [batch.tolist() for batch in batches]
        return self._made[1]


def batch_sampler(
    *, lengths: ArrayLike | None = None, distinct: Sequence[Sequence[str]] | None = None, n_processes: int = 1
) -> Callable[..., EpochBatches]:
    """A factory of batch samplers, as the trainer of sentence-transformers takes it.

    Every example is in exactly one batch of an epoch. With `lengths` of shape (n_examples, n_columns), examples of
    similar length share a batch. With `distinct`, the columns of texts, no batch has a text in two of its rows, unless
    more examples have it than there are batches.
    """
    # Random: a permutation, cut every `batch_size` examples, as in Reimers & Gurevych 2019. By length: the permutation
    # is cut into buckets of 100 batches, each bucket is sorted by length and cut into batches; these come in random
    # order. This is the smart batching of the paper's section 7, in training. Batches of a budget of tokens were not
    # faster: 1,600 NLI pairs, two layers of MiniLM, one thread of a CPU: 59 examples a second of processor time by
    # length, 54 and 65 with budgets of 16 and 32 mean examples.
    tokens = None if lengths is None else np.asarray(lengths, np.int64)
    texts_of: list[frozenset[int]] | None = None
    if distinct is not None:
        number: dict[str, int] = {}  # of each text
        rows_of_texts = zip(*distinct, strict=True)
        texts_of = [frozenset(number.setdefault(text, len(number)) for text in row) for row in rows_of_texts]

    def sampler(dataset: Any, batch_size: int = 16, seed: int = 0, **_: Any) -> EpochBatches:
        n_examples = len(dataset)
        for name, rows in (("lengths", tokens), ("distinct", texts_of)):
            if rows is not None and len(rows) != n_examples:
                raise wrong_value("train", name, f"have one row per example, {n_examples}", len(rows))

        def make(rng: np.random.Generator) -> list[Rows]:
            order = rng.permutation(n_examples)
            if tokens is not None:
                buckets = _chunks(order, _BUCKET * batch_size)
                order = np.concatenate([order[:0], *(_longest_first(bucket, tokens) for bucket in buckets)])
            batches = _chunks(order, batch_size) if texts_of is None else _without_shared(order, batch_size, texts_of)
            batches = _split_to_multiple(batches, n_processes)
            # shuffled in groups, because the processes take the batches of a group in one step
            groups = rng.permutation(len(batches) // n_processes)
            return [batches[group * n_processes + rank] for group in groups for rank in range(n_processes)]

        return EpochBatches(make, seed)

    return sampler


def _chunks(order: Rows, size: int) -> list[Rows]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def _longest_first(rows: Rows, tokens: NDArray[np.int64]) -> Rows:
    """Sort rows by the tokens of their texts; equal ones keep their order."""
    by_total = np.argsort(tokens.sum(axis=0), kind="stable")
    return rows[np.lexsort(-tokens[np.ix_(rows, by_total)].T)]


def _without_shared(order: Rows, size: int, texts_of: Sequence[frozenset[int]]) -> list[Rows]:
    """Cut rows into batches of one size in which no text is in two rows."""
    batches: list[list[int]] = []
    texts_in: list[set[int]] = []  # texts of each batch
    with_room: list[int] = []  # batches that are not full
    n_batches = -(-len(order) // size)
    for row in order.tolist():
        place = next((b for b in with_room[:_LOOK] if texts_in[b].isdisjoint(texts_of[row])), None)
        if place is None and len(batches) < n_batches:
            place = len(batches)
            batches.append([])
            texts_in.append(set())
            with_room.append(place)
        if place is None:
            place = with_room[0]
            row = _exchange(row, batches, place, texts_of)
            for b in with_room:
                texts_in[b] = {text for other in batches[b] for text in texts_of[other]}
        batches[place].append(row)
        texts_in[place] |= texts_of[row]
        if len(batches[place]) == size:
            with_room.remove(place)
    return [np.array(batch, np.int64) for batch in batches]


def _exchange(row: int, batches: list[list[int]], place: int, texts_of: Sequence[frozenset[int]]) -> int:
    """Put a row into a batch where it shares no text; returns the row that leaves it for the batch at `place`."""
    texts_here = {text for other in batches[place] for text in texts_of[other]}
    for batch in reversed(batches[-_LOOK:]):
        sharing = [other for other in batch if not texts_of[other].isdisjoint(texts_of[row])]
        if batch is batches[place] or len(sharing) > 1:
            continue
        for position, other in enumerate(batch):
            if sharing in ([], [other]) and texts_of[other].isdisjoint(texts_here):
                batch[position] = row
                return other
    return row


def _split_to_multiple(batches: list[Rows], n_processes: int) -> list[Rows]:
    """Halve the largest batches until all processes have the same number."""
    while len(batches) % n_processes:
        largest = max(range(len(batches)), key=lambda b: len(batches[b]))
        if len(batches[largest]) < 2:
            raise InputError(f"train: {n_processes} processes need as many examples, and there are {len(batches)}.")
        batches[largest : largest + 1] = np.array_split(batches[largest], 2)
    return batches


def example_lengths(
    tokenize: Callable[[list[str]], Mapping[str, Any]], columns: Sequence[Sequence[str]]
) -> NDArray[np.int64]:
    """Tokens of each text of each example, of shape (n_examples, n_columns)."""
    texts = list(dict.fromkeys(text for column in columns for text in column))
    counts: dict[str, int] = {}
    for start in range(0, len(texts), _CHUNK):
        chunk = texts[start : start + _CHUNK]
        features = tokenize(chunk)
        if "attention_mask" in features:
            lengths = np.asarray(features["attention_mask"]).sum(axis=1)
        else:  # of a table of token vectors: all ids in one row, and where each text starts
            lengths = np.diff(np.asarray(features["offsets"]), append=len(features["input_ids"]))
        counts.update(zip(chunk, lengths.tolist(), strict=True))
    return np.array([[counts[text] for text in row] for row in zip(*columns, strict=True)], np.int64).reshape(
        -1, len(columns)
    )
