"""The command ``report``."""

from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.outputs import write_text
from isosent.cli.terminal import err, out, progress_bar
from isosent.files.atomic import check_destination
from isosent.reporting.leaderboard import make_leaderboard
from isosent.reporting.page import html_report, report_title
from isosent.reporting.plots import check_figures, write_figures
from isosent.reporting.reading import read_report


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS...", help="What isosent evaluate ... --json and isosent study ... --json wrote."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write, as report.html.")],
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the figures as PNG and SVG, too; needs the extra plots."),
    ] = None,
) -> None:
    """Make a page of results: leaderboard, figures, what auto chose, speed and memory, and the small print.

    One HTML file that needs no network. Files of one model and the same settings share a row. Scores of other data or
    another protocol get columns of their own. The best of a column is marked only where it beats the second beyond
    chance. Studies of dimensions, layers, poolings and auto are shown, too.
    """
    check_destination(output, reads=results)
    if figures is not None:
        check_figures(figures)
    data = read_report(results)
    with progress_bar("testing the best", "columns") as bar:
        board = make_leaderboard(data.results, progress=bar)
    for note in board.notes:
        err.print(f"note: {note}")
    write_text(output, html_report(data, board))
    out.print(f"{output}: {report_title(data, board)}")
    if figures is not None:
        for path in write_figures(figures, data, board):
            out.print(f"{path}")
