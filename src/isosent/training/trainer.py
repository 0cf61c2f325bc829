"""The trainer of sentence-transformers, with what it leaves out: a saved head, exact resuming, and a stop at NaN."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from isosent import _extras
from isosent.errors import FileFormatError, NonFiniteLossError
from isosent.training.checkpoint import Checkpoint, newest_checkpoint, random_state, step_of, write_checkpoint
from isosent.training.development import SPEARMAN
from isosent.training.progress import StepRecorder

ROW = "row"
_ROWS = "rows_of_batch"
_SHOWN_ROWS = 16


class NumberedRows:
    """A collator that also tells which rows of the data a batch holds.

    Parameters
    ----------
    collator : callable
        The collator of sentence-transformers.
    """

    def __init__(self, collator: Any) -> None:
        self._collator = collator
        self.valid_label_columns = collator.valid_label_columns

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Make a batch.

        Parameters
        ----------
        examples : list of dict
            Rows of the data, each with its number.

        Returns
        -------
        dict
            Tensors.
        """
        rows = _extras.require("torch").tensor([example[ROW] for example in examples])
        columns = [{name: value for name, value in example.items() if name != ROW} for example in examples]
        return {**self._collator(columns), _ROWS: rows}


class CheckedTraining:
    """What is put in front of the trainer of sentence-transformers; `trainer_class` joins both.

    Attributes
    ----------
    recorder : StepRecorder
        Told the loss and the number of examples of every batch.
    best : dict of str to Tensor or None
        What `parts` was after the step of the highest Spearman on the development set.

    Notes
    -----
    What is replaced here: checkpoints that are pickles in part, and hold neither the head of the softmax objective nor
    the best weights; gradients of that head that are not clipped with the others; a loss that shows NaN as the mean of
    earlier losses; and, where several processes go on with a run, batches of the first epoch for those of the current.
    """

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
        """Every tensor that is trained or goes with it: of the model, and of the loss beside it.

        Returns
        -------
        dict of str to Tensor
            By name.
        """
        trainer, parts, known = self._trainer, {}, set()
        model = trainer.accelerator.unwrap_model(trainer.model)
        for part, module in (("model", model), ("loss", trainer.loss)):
            for name, tensor in module.state_dict().items():
                if tensor.data_ptr() not in known:  # one name for tied weights, and for the model inside the loss
                    known.add(tensor.data_ptr())
                    parts[f"{part}.{name}"] = tensor
        return parts

    def load_parts(self, parts: Mapping[str, Any]) -> None:
        """Put back what `parts` returned.

        Parameters
        ----------
        parts : mapping of str to Tensor
            By name.
        """
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
    """Join `CheckedTraining` with the trainer of sentence-transformers.

    Returns
    -------
    type
        A trainer.

    Raises
    ------
    MissingExtraError
        If the extra ``train`` is not installed.
    """
    for package in ("accelerate", "datasets"):
        _extras.require(package)
    return type("Trainer", (CheckedTraining, _extras.require("sentence_transformers").SentenceTransformerTrainer), {})
