"""Where the results of commands go: a file, standard output, or nowhere."""

from collections.abc import Iterable
from pathlib import Path

import typer

from isosent.files.atomic import check_destination, replacing

STANDARD_OUTPUT = Path("-")


def check_output(path: Path | None, *, reads: Iterable[str | Path | None] = ()) -> None:
    """Refuse, before any work is done, a file that cannot be written, or that the work reads."""
    if path is not None and path != STANDARD_OUTPUT:
        check_destination(path, reads=reads)


def write_output(path: Path | None, content: str) -> bool:
    """Write a text where it was asked for; tell whether it went to standard output, in place of a table."""
    if path == STANDARD_OUTPUT:
        typer.echo(content, nl=False)
        return True
    if path is not None:
        write_text(path, content)
    return False


def write_text(path: Path, content: str) -> None:
    """Write a text."""
    with replacing(path) as temporary:
        temporary.write_text(content, "utf-8")
