"""A training run as it goes: how fast, how long still, and what is written down of it."""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from isosent import _check, _extras
from isosent.errors import FileFormatError, OutputError
from isosent.io.atomic import check_destination, replacing
from isosent.io.checksum import UNSEALED, sealed
from isosent.io.json import check_schema, parse_json, without_nan
from isosent.training.development import DevScore
from isosent.training.schemas import DevLine, LossLine, MilestoneLine

_SEAL = "checksum"
MILESTONES = ("start", "resumed", "checkpoint", "best", "stopped", "end")


@dataclass(frozen=True, slots=True)
class LossPoint:
    """The loss of the steps since the last such point."""

    event: ClassVar[str] = "loss"
    step: int  # steps done
    epoch: float  # passes over the data done, 0.5 in the middle of the first
    loss: float  # mean of the steps since the last point
    learning_rate: float  # that of this step
    gradient_norm: float  # euclidean length of the gradient of this step, before it is clipped; NaN where it is unknown
    examples_per_s: float  # examples a second in the last steps, see `StepRecorder`
    elapsed_s: float  # seconds spent in steps since the start, those of earlier parts of a resumed run included


@dataclass(frozen=True, slots=True)
class DevPoint:
    """The score of the development set after a number of steps."""

    event: ClassVar[str] = "dev"
    step: int  # steps done; 0 is the model before training
    spearman: float  # in [-1, 1]; NaN where undefined
    pearson: float  # in [-1, 1]; NaN where undefined
    n_pairs: int  # pairs scored


@dataclass(frozen=True, slots=True)
class Milestone:
    """Something that happened."""

    event: str  # one of `MILESTONES`
    step: int  # steps done
    facts: Mapping[str, Any] = field(default_factory=dict)  # what else there is to say, as values that JSON can hold


Point = LossPoint | DevPoint | Milestone
_LINES: Mapping[str, tuple[type, type[LossPoint | DevPoint] | None]] = {
    LossPoint.event: (LossLine, LossPoint),
    DevPoint.event: (DevLine, DevPoint),
}


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a file of metrics holds, each in the order of the file."""

    losses: tuple[LossPoint, ...] = ()  # losses
    devs: tuple[DevPoint, ...] = ()  # scores of the development set
    milestones: tuple[Milestone, ...] = ()  # what happened

    @property
    def best(self) -> DevPoint | None:
        """The first point of the highest Spearman; None where there is no defined one."""
        defined = [point for point in self.devs if not math.isnan(point.spearman)]
        return max(defined, key=lambda point: point.spearman, default=None)

    @property
    def elapsed_s(self) -> float:
        """Seconds spent in steps."""
        told = [point.elapsed_s for point in self.losses] + [m.facts.get("elapsed_s", 0.0) for m in self.milestones]
        return max(told, default=0.0)


class MetricsLog:
    """A file of metrics that is written to while a model is trained."""

    # One line an event: ``{"event": "loss", "step": 10, ..., "checksum": ...}``. The fields are those of `LossPoint`
    # and `DevPoint`, or the facts of a `Milestone`. An undefined number is null. The checksum is that of the line.

    def __init__(self, path: str | os.PathLike[str], *, after_step: int = 0) -> None:
        check_destination(path)
        self._path = Path(path)
        points: list[Point] = []
        if after_step > 0 and self._path.is_file():
            try:
                points = [point for point in _points_of(self._path) if point.step <= after_step]
            except FileFormatError as error:
                raise FileFormatError(f"{error} Remove {self._path} to go on without the earlier metrics.") from None
        self.kept = _metrics_of(points)
        with replacing(self._path) as temporary:
            temporary.write_bytes(b"".join(map(_line_of, points)))

    def write(self, point: Point) -> None:
        """Add a line, at once."""
        try:
            with self._path.open("ab") as file:
                file.write(_line_of(point))
        except OSError as error:
            raise OutputError(f"{self._path} could not be written: {error.strerror or error}.") from error


def read_metrics(path: str | os.PathLike[str]) -> Metrics:
    """Read a file of metrics, of a run that still goes on, too."""
    return _metrics_of(_points_of(_check.input_file(path)))


def _metrics_of(points: Iterable[Point]) -> Metrics:
    listed = list(points)
    return Metrics(
        tuple(point for point in listed if isinstance(point, LossPoint)),
        tuple(point for point in listed if isinstance(point, DevPoint)),
        tuple(point for point in listed if isinstance(point, Milestone)),
    )


def _line_of(point: Point) -> bytes:
    fields = asdict(point)
    row = {"event": point.event, "step": fields.pop("step")} | fields.pop("facts", {}) | fields
    return sealed((json.dumps(without_nan(row) | {_SEAL: UNSEALED}, ensure_ascii=False) + "\n").encode())


def _points_of(path: Path) -> Iterator[Point]:
    """What the lines say, without one at the end that is not whole."""
    have_seals = None
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}: line {number}"
            if not line.endswith(b"\n"):
                if _is_json(line[:-1]):
                    raise FileFormatError(f"{where}: damaged. Its line feed has become another byte.")
                return  # the run was killed, or is about to go on writing
            row = parse_json(line, where)
            has_seal = row.get(_SEAL) is not None
            if have_seals not in (None, has_seal):  # files from before checksums have none at all
                raise FileFormatError(f"{where}: damaged. Its checksum is missing.")
            have_seals = has_seal
            yield _point_of(where, row)


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _point_of(where: str, row: dict[str, Any]) -> Point:
    event = row.get("event")
    if event not in (*_LINES, *MILESTONES):
        raise FileFormatError(f"{where}: no event of a training; got {event!r}. Name a metrics.jsonl of isosent train.")
    schema, kind = _LINES.get(event, (MilestoneLine, None))
    check_schema(row, where, schema)
    row.pop(_SEAL, None)
    del row["event"]
    if kind is None:
        return Milestone(event, row.pop("step"), row)
    numbers: dict[str, Any] = {name: math.nan if value is None else value for name, value in row.items()}
    return kind(**numbers)


WINDOW = 50


class TrainingProgress(Protocol):
    """What shows a run to people; the trainer calls it."""

    def started(self, n_steps: int, done: int) -> None:
        """Begin."""

    def stepped(self, step: int, loss: float, learning_rate: float, examples_per_s: float, remaining_s: float) -> None:
        """Take in a step."""

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
    """Measures the steps of a run, writes them down and shows them."""

    # A step lasts from the end of the step before it to its own end, so that making its batch counts; but an
    # evaluation or a checkpoint between the two does not count, nor what happens before the first step of a run,
    # where a run that goes on skips the batches it has seen.

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
        """Begin a run, or go on with one: its earlier scores are shown again."""
        self._n_steps = n_steps
        self.mark("resumed" if step else "start", step, {"n_steps": n_steps})
        if self._progress is not None:
            self._progress.started(n_steps, step)
            for point in () if self._log is None else self._log.kept.devs:
                self._progress.evaluated(point.step, point.spearman)

    def record(self, loss: float, n_examples: int) -> None:
        """Take in a batch; a step with gradient accumulation has several."""
        self._batches.append((loss, n_examples))

    def step_began(self) -> None:
        """Take in that the first batch of a step is about to go through the model."""
        if not self._n_taken:
            self._since = self._clock()

    def step_ended(self, step: int, learning_rate: float) -> None:
        """Take in that the weights were changed."""
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
        """Write a loss down."""
        if self._log is not None and "loss" in logs:
            norm = logs.get("grad_norm", math.nan)
            rate = logs["learning_rate"]
            self._log.write(LossPoint(step, epoch, logs["loss"], rate, norm, self.examples_per_s, self._elapsed_s))

    def evaluated(self, step: int, score: DevScore) -> None:
        """Write a score of the development set down, and show it."""
        if self._log is not None:
            self._log.write(DevPoint(step, score.spearman, score.pearson, score.n_pairs))
        if self._progress is not None:
            self._progress.evaluated(step, score.spearman)

    def mark(self, event: str, step: int, facts: Mapping[str, Any] | None = None) -> None:
        """Write down that something happened."""
        if self._log is not None:
            self._log.write(Milestone(event, step, {**(facts or {}), "elapsed_s": self._elapsed_s}))

    def ended(self, step: int) -> None:
        """End the run."""
        self.mark("end", step)
        if self._progress is not None:
            self._progress.finished()

    def _lap(self) -> float:
        """Seconds since the last call."""
        before, self._since = self._since, self._clock()
        return self._since - before


def recording_callback(recorder: StepRecorder) -> Any:
    """Make the callback that tells a recorder what the trainer does."""
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
    """Whether the run can be written for TensorBoard."""
    return find_spec("tensorboard") is not None
