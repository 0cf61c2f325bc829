"""Progress bars on standard error: those of commands, and the one that an encoder shows while it encodes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # rich takes 0.1 s to import
    from rich.console import Console

Advance = Callable[[int], None]  # called with what was finished since its last call
Start = Callable[[int], Advance]  # called with the total
Bars = Callable[[str, str], AbstractContextManager[Start]]  # called with what is done and the unit, as `progress_bar`

_WIDTH_OF_A_FILE = 100  # whatever the width of the terminal is
_PATIENCE_S = 2.0

bars_by_encoders = True  # the command line, whose commands draw their own bars, sets it to False


def make_console(stream: Any) -> Console:
    """A console of rich that prints texts unchanged, without markup or emoji."""
    from rich.console import Console

    width = None if stream.isatty() else _WIDTH_OF_A_FILE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)


@contextmanager
def no_bar(label: str, unit: str = "texts") -> Iterator[Start]:
    """Take the place of `progress_bar` where nobody looks."""
    yield lambda total: lambda done: None


@contextmanager
def progress_bar(
    label: str, unit: str = "texts", *, is_wanted: bool | None = None, patience_s: float = 0.0
) -> Iterator[Start]:
    """Show a bar while the block runs, or after some seconds of it, if a person looks at standard error.

    Yields a function from the total to a function that takes the number finished since its last call. A bar that is
    wanted is shown wherever standard error goes, and stays when it is complete.
    """
    is_seen = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if not (is_wanted or (is_seen and is_wanted is None)):
        yield lambda total: lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import Task as ProgressTask
    from rich.text import Text

    class Rate(TextColumn):
        def render(self, task: ProgressTask) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f} {unit}/s")

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), Rate(""), TimeRemainingColumn())
    console, start_s = make_console(sys.stderr), time.monotonic()
    with Progress(*columns, console=console, transient=not is_wanted, disable=patience_s > 0) as bar:

        def start(total: int) -> Advance:
            task = bar.add_task("", total=total)

            def advance(done: int) -> None:
                bar.advance(task, done)
                if bar.disable and time.monotonic() - start_s > patience_s:
                    bar.disable = False
                    bar.start()

            return advance

        yield start


@contextmanager
def encoding_bar(n_texts: int, progress: Advance | None, *, is_wanted: bool | None = None) -> Iterator[Advance]:
    """Yield `progress`, or what advances a bar; one that nobody asked for appears after two seconds."""
    if progress is not None:
        yield progress
        return
    is_wanted = False if is_wanted is None and not bars_by_encoders else is_wanted
    with progress_bar("encoding", is_wanted=is_wanted, patience_s=0 if is_wanted else _PATIENCE_S) as start:
        yield start(n_texts)
