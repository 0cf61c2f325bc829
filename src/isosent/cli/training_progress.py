"""A training run on standard error: a bar in a terminal, a line now and then elsewhere."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from isosent.cli.terminal import err
from isosent.training.progress import TrainingProgress

_PAUSE_S = 60.0


@contextmanager
def training_progress(console: Console = err) -> Iterator[TrainingProgress]:
    """Show a training run while the block runs.

    Parameters
    ----------
    console : Console, default `err`
        Where.

    Yields
    ------
    TrainingProgress
        A bar where it is a terminal, see `TrainingBar`; else lines, see `TrainingLines`.
    """
    if not console.is_terminal:
        yield TrainingLines(console.print)
        return
    columns = TextColumn("training"), BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("{task.fields[told]}")
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        yield TrainingBar(bar)


class TrainingLines:
    """Lines: the first step, then one at most a minute, the last step; and every score of the development set.

    Parameters
    ----------
    write : callable
        Takes a line.
    clock : callable, default `time.monotonic`
        Seconds.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._n_steps = 0
        self._next_s = -math.inf
        self._waiting = ""
        self._first = math.nan

    def started(self, n_steps: int, done: int) -> None:
        """Begin."""
        self._n_steps = n_steps

    def stepped(self, step: int, loss: float, learning_rate: float, examples_per_s: float, remaining_s: float) -> None:
        """Write a line, unless the last one is not a minute old."""
        told = _told(loss, learning_rate, examples_per_s, remaining_s)
        self._waiting = f"step {step:,} of {self._n_steps:,}: {', '.join(told)}"
        if self._clock() >= self._next_s:
            self._write_waiting()

    def evaluated(self, step: int, spearman: float) -> None:
        """Write a line."""
        self._write(self._of_score(step, spearman))

    def message(self, text: str) -> None:
        """Write a line."""
        self._write(text)

    def finished(self) -> None:
        """Write the line of the last step, unless it is written."""
        self._write_waiting()

    def _write_waiting(self) -> None:
        if self._waiting:
            self._write(self._waiting)
            self._waiting, self._next_s = "", self._clock() + _PAUSE_S

    def _of_score(self, step: int, spearman: float) -> str:
        if math.isnan(spearman):
            return f"step {step:,}: development Spearman undefined"
        gain = 100 * (spearman - self._first)
        since = "" if math.isnan(gain) else f" ({gain:+.2f} since the first)"
        self._first = spearman if math.isnan(self._first) else self._first
        return f"step {step:,}: development Spearman {100 * spearman:.2f}{since}"


class TrainingBar(TrainingLines):
    """A bar with loss, learning rate, examples a second and remaining time; scores and messages stand above it.

    Parameters
    ----------
    bar : Progress
        Of rich, with a column for the field ``told``.
    """

    def __init__(self, bar: Progress) -> None:
        super().__init__(bar.console.print)
        self._bar = bar

    def started(self, n_steps: int, done: int) -> None:
        """Begin."""
        super().started(n_steps, done)
        self._task = self._bar.add_task("", total=n_steps, completed=done, told="")

    def stepped(self, step: int, loss: float, learning_rate: float, examples_per_s: float, remaining_s: float) -> None:
        """Move the bar on."""
        told = _told(loss, learning_rate, examples_per_s, remaining_s)
        self._bar.update(self._task, completed=step, told="  ".join(told))
        self._waiting = f"{step:,} steps: {', '.join(told[:-1])}"


def _told(loss: float, learning_rate: float, examples_per_s: float, remaining_s: float) -> tuple[str, ...]:
    remaining = "" if math.isnan(remaining_s) else f"{timedelta(seconds=round(remaining_s))} left"
    return f"loss {loss:.4f}", f"lr {learning_rate:.2g}", f"{examples_per_s:,.0f} examples/s", remaining
