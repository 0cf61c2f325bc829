"""What every command prints: results, messages, progress bars and tables."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isosent.io.atomic import check_destination, replacing
from isosent.pages.tables import make_table

if TYPE_CHECKING:  # rich takes 0.1 s, and is needed for tables and bars only
    from rich.console import Console
    from rich.table import Table

STANDARD_OUTPUT = Path("-")
_WIDTH_OF_A_FILE = 100  # whatever the width of the terminal is
Advance = Callable[[int], None]


def show(item: "str | Table") -> None:
    """Print a line or a table on standard output."""
    if isinstance(item, str):
        click.echo(item)
    else:
        make_console(sys.stdout).print(item)


def say(item: "str | Table") -> None:
    """Print a line or a table on standard error."""
    if isinstance(item, str):
        click.echo(item, err=True)
    else:
        make_console(sys.stderr).print(item)


def make_console(stream: Any) -> "Console":
    """A console of rich that prints texts as they are, without markup or emoji."""
    from rich.console import Console

    width = None if stream.isatty() else _WIDTH_OF_A_FILE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)


@contextmanager
def progress_bar(label: str, unit: str = "texts") -> Iterator[Callable[[int], Advance]]:
    """Show a progress bar while the block runs, if standard error is a terminal.

    Yields a function from the total to a function that takes the number finished since its last call.
    """
    if not sys.stderr.isatty():
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
    with Progress(*columns, console=make_console(sys.stderr), transient=True) as progress:

        def start(total: int) -> Advance:
            task = progress.add_task("", total=total)
            return lambda done: progress.advance(task, done)

        yield start


def check_output(path: Path | None, *, reads: Sequence[str | Path | None] = ()) -> None:
    """Refuse, before any work, a file that cannot be written, or that is also read."""
    if path is not None and path != STANDARD_OUTPUT:
        check_destination(path, reads=reads)


def write_output(path: Path | None, content: str) -> bool:
    """Write a text to a file, or to standard output for ``-``; return whether standard output is taken."""
    if path == STANDARD_OUTPUT:
        click.echo(content, nl=False)
        return True
    if path is not None:
        with replacing(path) as temporary:
            temporary.write_text(content, "utf-8")
    return False


def show_tokens(n_tokens: int, n_unknown: int, languages: str | None = None) -> None:
    """Print how many tokens an encoder did not know, if it can tell."""
    if n_tokens:
        meant_for = f"; the model is for {languages} texts" if languages else ""
        show(f"tokens: {n_tokens:,}; unknown: {n_unknown:,} ({n_unknown / n_tokens:.1%}){meant_for}")


def change_table(before: Any, after: Any, title: str | None = None) -> "Table":
    """Two vector spaces (`SpaceReport`) side by side."""
    table = make_table("", "before", "after", title=title)
    for name, field, form in (
        ("mean cosine of random pairs", "mean_cosine", ".4f"),
        ("effective rank", "effective_rank", ".1f"),
        ("dimensions", "dim", ""),
        ("bytes per vector", "size_bytes", ""),
    ):
        table.add_row(name, *(format(getattr(space, field), form) for space in (before, after)))
    return table


def choice_table(choice: Mapping[str, Any]) -> "Table":
    """What "auto" compared; `choice` is ``AutoChoice.to_json()``."""
    caption = "agreement: rank correlation of cosines with word overlap, on held-out texts"
    table = make_table("candidate", "agreement", "gain", "95% interval", "", caption=caption)
    for each in choice["candidates"]:
        mark = "chosen" if each["candidate"] == choice["chosen"] else ""
        interval = f"{each['low']:+.3f} to {each['high']:+.3f}"
        table.add_row(each["candidate"], f"{each['agreement']:.3f}", f"{each['gain']:+.3f}", interval, mark)
    return table


def likelihood_change(history: Sequence[Mapping[str, Any]]) -> str:
    """How much likelier a flow makes held-out vectors; `history` is that of a `FitRecord`."""
    ends = (history[place]["held_out_bits"] for place in (0, -1))
    before, after = ("undefined" if bits is None else f"{bits:.4f}" for bits in ends)
    return f"held-out rows: {before} bits per dimension before, {after} after (lower is better)"
