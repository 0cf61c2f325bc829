"""What people see: results on standard output, everything else on standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress import Task as ProgressTask
from rich.text import Text

from isosent.encoders.base import Progress as Advance

_WIDTH_OF_A_FILE = 200


def _console(stream: TextIO | None, *, stderr: bool = False) -> Console:
    """Plain text, as it is: no markup, no emoji; in a file, rows wide enough to be searched."""
    width = None if stream is not None and stream.isatty() else _WIDTH_OF_A_FILE
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)


out = _console(sys.stdout)
err = _console(sys.stderr, stderr=True)


class _Rate(TextColumn):
    def __init__(self, unit: str) -> None:
        super().__init__("")
        self._unit = unit

    def render(self, task: ProgressTask) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self._unit}/s")


EXIT_INTERRUPTED = 130


class Interrupted(SystemExit):
    """Ctrl-C in a command that has said itself what is kept."""

    def __init__(self) -> None:
        super().__init__(EXIT_INTERRUPTED)


@contextmanager
def progress_bar(label: str, unit: str = "texts") -> Iterator["ProgressBar"]:
    """Show a bar with rate and remaining time while the block runs; nothing where standard error is no terminal.

    Parameters
    ----------
    label : str
        What is being done.
    unit : str, default "texts"
        What is counted.

    Yields
    ------
    ProgressBar
        Told how much there is, it gives what is told how much is done.
    """
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), _Rate(unit), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        yield ProgressBar(progress)


class ProgressBar:
    """A bar that is started once the amount of work is known.

    Parameters
    ----------
    progress : Progress
        The bars of rich.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __call__(self, total: int) -> Advance:
        """Start the bar.

        Parameters
        ----------
        total : int
            How many there are.

        Returns
        -------
        callable
            Takes the number of those done since the last call.
        """
        task = self._progress.add_task("", total=total)
        return lambda done: self._progress.advance(task, done)
