"""Metrics of a training run: measured step by step, shown, and written to ``metrics.jsonl``."""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from isosent import _check
from isosent.errors import FileFormatError, OutputError
from isosent.io.atomic import check_destination, replacing
from isosent.io.checksum import UNSEALED, sealed
from isosent.io.json import check_schema, parse_json, without_nan
from isosent.io.schemas import Checksum, Count
from isosent.io.system import open_to_read
from isosent.pages.progress import Progress
from isosent.training.development import DevScore

MILESTONES: Final = ("start", "resumed", "checkpoint", "best", "stopped", "end")
WINDOW: Final = 50  # steps that the speed and the loss that are shown are averaged over
_SEAL: Final = "checksum"


class LossPoint(Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag="loss"):
    """Loss of the steps since the last such point."""

    step: Count  # steps taken
    epoch: float  # passes over the data
    loss: float  # mean
    learning_rate: float  # of this step
    gradient_norm: float  # of this step, before it is clipped; NaN where it is unknown
    examples_per_s: float  # in the last steps, see `StepRecorder`
    elapsed_s: float  # seconds spent in steps since the start, including those before an interruption


class DevPoint(Struct, frozen=True, forbid_unknown_fields=True, tag_field="event", tag="dev"):
    """Score of the development set."""

    step: Count  # 0 is the base
    spearman: float  # NaN where undefined
    pearson: float  # NaN where undefined
    n_pairs: Count


class Milestone(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Any other event."""

    event: str  # one of `MILESTONES`
    step: Count
    n_steps: Count | None = None  # of the whole run, at its start
    reason: str | None = None  # why it stopped
    spearman: float | None = None  # of the best step
    elapsed_s: float | None = None


Point = LossPoint | DevPoint | Milestone


@dataclass(frozen=True, slots=True)
class Metrics:
    """Content of a file of metrics, in the order of the file."""

    losses: tuple[LossPoint, ...] = ()
    devs: tuple[DevPoint, ...] = ()
    milestones: tuple[Milestone, ...] = ()

    @property
    def best(self) -> DevPoint | None:
        """The first point of the highest Spearman; None if none is defined."""
        defined = [point for point in self.devs if not math.isnan(point.spearman)]
        return max(defined, key=lambda point: point.spearman, default=None)

    @property
    def elapsed_s(self) -> float:
        """Seconds spent in steps."""
        seconds = [point.elapsed_s for point in self.losses] + [m.elapsed_s or 0.0 for m in self.milestones]
        return max(seconds, default=0.0)


def read_metrics(path: str | os.PathLike[str]) -> Metrics:
    """Read a file of metrics; the run may still be in progress."""
    return _as_metrics(_read_points(_check.input_file(path)))


def _as_metrics(points: Iterable[Point]) -> Metrics:
    points = list(points)
    return Metrics(
        tuple(point for point in points if isinstance(point, LossPoint)),
        tuple(point for point in points if isinstance(point, DevPoint)),
        tuple(point for point in points if isinstance(point, Milestone)),
    )


class MetricsLog:
    """A file of metrics to append to. Each line is an event with a checksum; undefined numbers are null."""

    def __init__(self, path: str | os.PathLike[str], *, after_step: int = 0) -> None:
        check_destination(path)
        self._path = Path(path)
        points: list[Point] = []
        if after_step > 0 and self._path.is_file():
            try:
                points = [point for point in _read_points(self._path) if point.step <= after_step]
            except FileFormatError as error:
                raise FileFormatError(f"{error} Remove {self._path} to resume without the earlier metrics.") from None
        self.earlier = _as_metrics(points)
        with replacing(self._path) as temporary:
            temporary.write_bytes(b"".join(map(_line, points)))

    def write(self, point: Point) -> None:
        """Append a line at once."""
        try:
            with self._path.open("ab") as file:
                file.write(_line(point))
        except OSError as error:
            raise OutputError(f"{self._path} could not be written: {error.strerror or error}.") from error


def _line(point: Point) -> bytes:
    values = without_nan(msgspec.to_builtins(point)) | {_SEAL: UNSEALED}
    return sealed((json.dumps(values, ensure_ascii=False) + "\n").encode())


def _read_points(path: Path) -> Iterator[Point]:
    with open_to_read(path) as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}: line {number}"
            if not line.endswith(b"\n"):
                if _is_json(line[:-1]):
                    raise FileFormatError(f"{where}: damaged. Its line feed has become another byte.")
                return  # the run was killed, or is about to write the rest
            values = parse_json(line, where)
            checksum = values.pop(_SEAL, None)
            point = _as_point(where, values)
            if checksum is None:
                raise FileFormatError(f"{where}: damaged. Its checksum is missing.")
            check_schema(checksum, where, Checksum)
            yield point


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _as_point(where: str, values: Mapping[str, Any]) -> Point:
    event = values.get("event")
    if event not in ("loss", "dev", *MILESTONES):
        raise FileFormatError(
            f"{where}: the event {event!r} does not occur in a training. Expected a metrics.jsonl of isosent train."
        )
    numbers = {name: math.nan if value is None else value for name, value in values.items()}
    return check_schema(numbers, where, Milestone if event in MILESTONES else LossPoint | DevPoint)


class StepPoint(NamedTuple):
    """A step that was taken, of `n_steps`, for people: the loss is the mean of the last `WINDOW` steps."""

    step: int
    n_steps: int
    loss: float
    learning_rate: float
    examples_per_s: float
    remaining_s: float


TrainingCallback = Callable[[StepPoint | DevPoint | str], object]  # called with each step, each score and each message


class _Step(NamedTuple):
    loss: float
    n_examples: int
    elapsed_s: float


class StepRecorder:
    """Measures the steps of a run, writes them to a log and shows them."""

    # A step lasts from the end of the step before to its own end, so that making its batch counts. Evaluations and
    # checkpoints do not count, nor does what happens before the first step, where a resumed run skips batches.

    def __init__(
        self,
        log: MetricsLog | None = None,
        progress: Progress | None = None,
        report: TrainingCallback | None = None,
        *,
        n_processes: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._log, self._progress, self._n_processes, self._clock = log, progress, n_processes, clock
        self._report: TrainingCallback = report or (lambda _: None)
        self._elapsed_s = 0.0 if log is None else log.earlier.elapsed_s
        self._batches: list[tuple[float, int]] = []  # losses and sizes of the step
        self._last: deque[_Step] = deque(maxlen=WINDOW)
        self._n_steps = self._n_taken = 0
        self._since = self._paused_s = 0.0

    @property
    def examples_per_s(self) -> float:
        """Examples per second in the last `WINDOW` steps; NaN before the first."""
        elapsed_s = sum(step.elapsed_s for step in self._last)
        return sum(step.n_examples for step in self._last) / elapsed_s if elapsed_s > 0 else math.nan

    def message(self, text: str) -> None:
        """Show a sentence."""
        self._report(text)

    def began(self, step: int, n_steps: int) -> None:
        """Begin or resume a run; its earlier scores are shown again."""
        self._n_steps = n_steps
        self.mark("resumed" if step else "start", step, n_steps=n_steps)
        if self._progress:
            self._progress(step, n_steps)
        for point in () if self._log is None else self._log.earlier.devs:
            self._report(point)

    def record(self, loss: float, n_examples: int) -> None:
        """Add a batch; a step with gradient accumulation has several."""
        self._batches.append((loss, n_examples))

    def step_began(self) -> None:
        """Start the clock at the first step."""
        if not self._n_taken:
            self._since = self._clock()

    def step_ended(self, step: int, learning_rate: float) -> None:
        """Measure and show a step whose weights were updated."""
        step_s = self._lap()
        losses, sizes = zip(*self._batches, strict=True) if self._batches else ((math.nan,), (0,))
        self._batches.clear()
        self._last.append(_Step(sum(losses) / len(losses), sum(sizes) * self._n_processes, step_s))
        self._elapsed_s += step_s
        self._n_taken += 1
        loss = sum(step.loss for step in self._last) / len(self._last)
        pace_s = sum(step.elapsed_s for step in self._last) / len(self._last) + self._paused_s / self._n_taken
        remaining_s = (self._n_steps - step) * pace_s
        self._report(StepPoint(step, self._n_steps, loss, learning_rate, self.examples_per_s, remaining_s))
        if self._progress:
            self._progress(step, self._n_steps)

    def pause_ended(self) -> None:
        """Leave an evaluation or a checkpoint out of the next step."""
        pause_s = self._lap()
        if self._n_taken:
            self._paused_s += pause_s

    def logged(self, step: int, epoch: float, logs: Mapping[str, float]) -> None:
        """Write what the trainer logs, if it is a loss."""
        if self._log is not None and "loss" in logs:
            norm = float(logs.get("grad_norm", math.nan))
            rate = logs["learning_rate"]
            self._log.write(LossPoint(step, epoch, logs["loss"], rate, norm, self.examples_per_s, self._elapsed_s))

    def evaluated(self, step: int, score: DevScore) -> None:
        """Write and show a score of the development set."""
        point = DevPoint(step, score.spearman, score.pearson, score.n_pairs)
        if self._log is not None:
            self._log.write(point)
        self._report(point)

    def mark(self, event: str, step: int, **facts: Any) -> None:
        """Write another event, with fields of `Milestone`."""
        if self._log is not None:
            self._log.write(Milestone(event, step, **facts, elapsed_s=self._elapsed_s))

    def mark_end(self, step: int) -> None:
        """End the run."""
        self.mark("end", step)

    def _lap(self) -> float:
        """Seconds since the last call."""
        before, self._since = self._since, self._clock()
        return self._since - before
