"""A training run as it goes: how fast, how long still, and what is written down of it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

from isosent import _extras
from isosent.training.development import DevScore
from isosent.training.metrics import DevPoint, LossPoint, MetricsLog, Milestone

WINDOW = 50


class TrainingProgress(Protocol):
    """What shows a run to people; the trainer calls it."""

    def started(self, n_steps: int, done: int) -> None:
        """Begin.

        Parameters
        ----------
        n_steps : int
            Steps of the whole run.
        done : int
            Those done before; above 0 in a run that goes on.
        """

    def stepped(self, step: int, loss: float, learning_rate: float, examples_per_s: float, remaining_s: float) -> None:
        """Take in a step.

        Parameters
        ----------
        step : int
            Steps done.
        loss : float
            Mean of the last `WINDOW` steps.
        learning_rate : float
            That of this step.
        examples_per_s : float
            Examples a second in the last `WINDOW` steps; the time of evaluations and checkpoints does not count.
        remaining_s : float
            Seconds to the last step, at the pace of the last `WINDOW` steps, with the share of evaluations and
            checkpoints there was so far.
        """

    def evaluated(self, step: int, spearman: float) -> None:
        """Take in a score of the development set, in [-1, 1] or NaN, after so many steps."""

    def message(self, text: str) -> None:
        """Take in a sentence."""

    def finished(self) -> None:
        """End: the last step is done."""


class _Step(NamedTuple):
    loss: float
    n_examples: int
    elapsed_s: float


class StepRecorder:
    """Measures the steps of a run, writes them down and shows them.

    Parameters
    ----------
    log : MetricsLog, optional
        Where to write. None in all processes but the first.
    progress : TrainingProgress, optional
        What to tell. None in all processes but the first.
    n_processes : int, default 1
        Processes that take each step together, all with as many examples as this one.
    clock : callable, default `time.perf_counter`
        Seconds.

    Notes
    -----
    A step lasts from the end of the step before it to its own end, so that making its batch counts; but an evaluation
    or a checkpoint between the two does not count, nor what happens before the first step of a run, where a run that
    goes on skips the batches it has seen.
    """

    def __init__(
        self,
        log: MetricsLog | None = None,
        progress: TrainingProgress | None = None,
        *,
        n_processes: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._log, self._progress, self._n_processes, self._clock = log, progress, n_processes, clock
        self._elapsed_s = 0.0 if log is None else log.kept.elapsed_s
        self._batches: list[tuple[float, int]] = []
        self._last: deque[_Step] = deque(maxlen=WINDOW)
        self._n_steps = self._n_taken = 0
        self._since = self._paused_s = 0.0

    @property
    def examples_per_s(self) -> float:
        """Examples a second in the last `WINDOW` steps; NaN before the first."""
        elapsed_s = sum(step.elapsed_s for step in self._last)
        return sum(step.n_examples for step in self._last) / elapsed_s if elapsed_s > 0 else math.nan

    def began(self, step: int, n_steps: int) -> None:
        """Begin a run, or go on with one: its earlier scores are shown again.

        Parameters
        ----------
        step : int
            Steps done before.
        n_steps : int
            Steps of the whole run.
        """
        self._n_steps = n_steps
        self.mark("resumed" if step else "start", step, {"n_steps": n_steps})
        if self._progress is not None:
            self._progress.started(n_steps, step)
            for point in () if self._log is None else self._log.kept.devs:
                self._progress.evaluated(point.step, point.spearman)

    def record(self, loss: float, n_examples: int) -> None:
        """Take in a batch; a step with gradient accumulation has several.

        Parameters
        ----------
        loss : float
            Mean over the examples of the batch.
        n_examples : int
            Rows of the data in it.
        """
        self._batches.append((loss, n_examples))

    def step_began(self) -> None:
        """Take in that the first batch of a step is about to go through the model."""
        if not self._n_taken:
            self._since = self._clock()

    def step_ended(self, step: int, learning_rate: float) -> None:
        """Take in that the weights were changed.

        Parameters
        ----------
        step : int
            Steps done.
        learning_rate : float
            That of this step.
        """
        step_s = self._lap()
        losses, sizes = zip(*self._batches, strict=True) if self._batches else ((math.nan,), (0,))
        self._batches.clear()
        self._last.append(_Step(sum(losses) / len(losses), sum(sizes) * self._n_processes, step_s))
        self._elapsed_s += step_s
        self._n_taken += 1
        if self._progress is not None:
            loss = sum(step.loss for step in self._last) / len(self._last)
            pace_s = sum(step.elapsed_s for step in self._last) / len(self._last) + self._paused_s / self._n_taken
            remaining_s = (self._n_steps - step) * pace_s
            self._progress.stepped(step, loss, learning_rate, self.examples_per_s, remaining_s)

    def pause_ended(self) -> None:
        """Take in that an evaluation or a checkpoint is done."""
        pause_s = self._lap()
        if self._n_taken:
            self._paused_s += pause_s

    def logged(self, step: int, epoch: float, logs: Mapping[str, float]) -> None:
        """Write a loss down.

        Parameters
        ----------
        step : int
            Steps done.
        epoch : float
            Passes over the data done.
        logs : mapping of str to float
            What the trainer logs: ``loss``, ``learning_rate`` and, where it was computed, ``grad_norm``; logs without
            ``loss`` are passed over.
        """
        if self._log is not None and "loss" in logs:
            norm = logs.get("grad_norm", math.nan)
            rate = logs["learning_rate"]
            self._log.write(LossPoint(step, epoch, logs["loss"], rate, norm, self.examples_per_s, self._elapsed_s))

    def evaluated(self, step: int, score: DevScore) -> None:
        """Write a score of the development set down, and show it.

        Parameters
        ----------
        step : int
            Steps done.
        score : DevScore
            The score.
        """
        if self._log is not None:
            self._log.write(DevPoint(step, score.spearman, score.pearson, score.n_pairs))
        if self._progress is not None:
            self._progress.evaluated(step, score.spearman)

    def mark(self, event: str, step: int, facts: Mapping[str, Any] | None = None) -> None:
        """Write down that something happened.

        Parameters
        ----------
        event : str
            One of `MILESTONES`.
        step : int
            Steps done.
        facts : mapping of str to object, optional
            What else there is to say; the seconds spent in steps are added.
        """
        if self._log is not None:
            self._log.write(Milestone(event, step, {**(facts or {}), "elapsed_s": self._elapsed_s}))

    def ended(self, step: int) -> None:
        """End the run.

        Parameters
        ----------
        step : int
            Steps done.
        """
        self.mark("end", step)
        if self._progress is not None:
            self._progress.finished()

    def _lap(self) -> float:
        """Seconds since the last call."""
        before, self._since = self._since, self._clock()
        return self._since - before


def recording_callback(recorder: StepRecorder) -> Any:
    """Make the callback that tells a recorder what the trainer does.

    Parameters
    ----------
    recorder : StepRecorder
        The recorder. The trainer itself calls its `record` for every batch; a development set's evaluator calls
        `evaluated`.

    Returns
    -------
    TrainerCallback
        It stands in place of the progress bar and the printer of transformers. How often a loss is written down is the
        trainer's ``logging_steps``; the last step always is.

    Raises
    ------
    MissingExtraError
        If transformers is not installed.
    """
    return _callback_class()(recorder)


@cache
def _callback_class() -> Any:
    base: Any = _extras.require("transformers").TrainerCallback

    class RecordingCallback(base):  # type: ignore[misc]
        def __init__(self, recorder: StepRecorder) -> None:
            self._recorder = recorder

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._recorder.began(state.global_step, state.max_steps)

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._recorder.step_began()

        def on_optimizer_step(self, args: Any, state: Any, control: Any, *, optimizer: Any, **kwargs: Any) -> None:
            self._learning_rate = float(optimizer.param_groups[0]["lr"])  # before the schedule goes on

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            self._recorder.step_ended(state.global_step, self._learning_rate)
            control.should_log |= state.global_step >= state.max_steps
            return control

        def on_log(self, args: Any, state: Any, control: Any, *, logs: Any, **kwargs: Any) -> None:
            self._recorder.logged(state.global_step, state.epoch, logs)

        def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._recorder.pause_ended()

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._recorder.pause_ended()
            self._recorder.mark("checkpoint", state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._recorder.ended(state.global_step)

    return RecordingCallback


def tensorboard_available() -> bool:
    """Whether the run can be written for TensorBoard.

    Returns
    -------
    bool
        Whether ``tensorboard`` is installed; nothing is imported to find out.
    """
    return find_spec("tensorboard") is not None
