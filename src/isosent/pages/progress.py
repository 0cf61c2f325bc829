"""Progress, which all functions report in one way, and the bars of commands and encoders on standard error.

A `Progress` is called as ``progress(done, total)``: at the start with 0, or what an earlier run has finished, then with
what is finished so far, at the end with the total, which is None where it is not known. Each stage starts again. Loops
report with `counted`; who calls another function for a part of the work passes it `part_of` the progress.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # rich takes 0.1 s to import
    from rich.console import Console

Progress = Callable[[int, int | None], object]
T = TypeVar("T")

_WIDTH_OF_A_FILE = 100  # whatever the width of the terminal is
_PATIENCE_S = 2.0

bars_by_encoders = True  # the command line, whose commands draw their own bars, sets it to False


def make_console(stream: Any) -> Console:
    """A console of rich that prints texts unchanged, without markup or emoji."""
    from rich.console import Console

    width = None if stream.isatty() else _WIDTH_OF_A_FILE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)


def counted(
    items: Iterable[T], progress: Progress | None, total: int | None, size: Callable[[Any], int] = len
) -> Iterator[T]:
    """Yield the items, and report after each how much is done, of which an item is its length."""
    done = 0
    if progress:
        progress(0, total)
    for item in items:
        done += size(item)
        yield item
        del item  # before the next one is made
        if progress:
            progress(done, total)


def part_of(progress: Progress | None, before: int, total: int | None) -> Progress | None:
    """The progress of a part of the work, `before` of which was done."""
    return progress and (lambda done, _: progress(before + done, total))


@contextmanager
def progress_bar(
    label: str,
    unit: str = "texts",
    *,
    is_wanted: bool | None = None,
    patience_s: float = 0.0,
    say: Callable[[str], object] | None = None,
) -> Iterator[Progress]:
    """Show a bar for each stage while the block runs, or after some seconds of it, if a person looks at standard error.

    A bar that is wanted is shown wherever standard error goes, and stays when it is complete. Where no bar is shown,
    each stage is said in a line.
    """
    is_seen = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if not (is_wanted or (is_seen and is_wanted is None)):
        last: list[tuple[int, int | None]] = []

        def say_total(done: int, total: int | None) -> None:
            if say and (not last or total != last[0][1] or done < last[0][0]):  # the next stage
                say(label if total is None else f"{label}: {total:,} {unit}")
            last[:] = [(done, total)]

        yield say_total
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars
    from rich.progress import Task as Bar
    from rich.text import Text

    class Rate(TextColumn):
        def render(self, task: Bar) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f} {unit}/s")

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), Rate(""), TimeRemainingColumn())
    console, start_s = make_console(sys.stderr), time.monotonic()
    with Bars(*columns, console=console, transient=not is_wanted, disable=patience_s > 0) as bars:

        def show(done: int, total: int | None) -> None:
            bar = bars.tasks[-1] if bars.tasks else None
            if bar is None or total != bar.total or done < bar.completed:  # the next stage
                bars.add_task("", total=total, completed=done)
            else:
                bars.update(bar.id, completed=done)
            if bars.disable and time.monotonic() - start_s > patience_s:
                bars.disable = False
                bars.start()

        yield show


@contextmanager
def encoding_bar(progress: Progress | None, *, is_wanted: bool | None = None) -> Iterator[Progress]:
    """Yield `progress`, or what advances a bar; one that nobody asked for appears after two seconds."""
    if progress is not None:
        yield progress
        return
    is_wanted = False if is_wanted is None and not bars_by_encoders else is_wanted
    with progress_bar("encoding", is_wanted=is_wanted, patience_s=0 if is_wanted else _PATIENCE_S) as bar:
        yield bar
