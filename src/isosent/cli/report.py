"""The command ``report``: a page, tables and figures of result files, or of a training run."""

from pathlib import Path

import click

from isosent.cli.options import PATH, outputs_option
from isosent.cli.printing import check_outputs, deliver, say, show
from isosent.errors import InputError
from isosent.evaluation.result import protocol_notes
from isosent.evaluation.sizes import MARK
from isosent.pages.figures import FORMATS
from isosent.pages.progress import progress_bar
from isosent.pages.report import Report
from isosent.pages.tables import csv_table, latex_table
from isosent.report.figures import check_figures, write_figures
from isosent.report.leaderboard import STAR, make_leaderboard, read_report
from isosent.report.results_page import html_report, report_title
from isosent.training.curve import check_curve_output, write_curve
from isosent.training.metrics import read_metrics


@click.command()
@click.argument("results", nargs=-1, required=True, type=PATH)
@outputs_option(".html", ".csv", ".tex", *FORMATS, required=True)
@click.option("--figures", type=PATH, metavar="DIR", help="Also write the figures, as PNG, PDF and SVG.")
def report(results: tuple[Path, ...], outputs: tuple[Path, ...], figures: Path | None) -> None:
    """Write an HTML page: leaderboard, figures, what auto chose, speed and memory, and every setting.

    RESULTS are files of "isosent evaluate -o FILE.json" and "isosent research study -o FILE.json". Files of one model
    and the same settings share a row. The best score of a column is marked only if it is significantly better than the
    second.

    For the metrics.jsonl of a training run, also one that is still running, the page shows its loss and scores.

    \b
    isosent report first.json second.json -o report.html -o table.csv
    """  # noqa: D301
    check_outputs(outputs, reads=results)
    if [path.suffix for path in results] == [".jsonl"]:
        for output in outputs:
            check_curve_output(output)
            write_curve(output, read_metrics(results[0]))
        return
    if pictures := [f"{path}" for path in outputs if path.suffix.lower() in FORMATS]:
        raise InputError(f"report: --output {pictures[0]}: figures of results are written by --figures DIR.")
    if figures is not None:
        check_figures(figures)
    data = read_report(results)
    with progress_bar("testing the best", "columns") as bar:
        board = make_leaderboard(data.results, progress=bar)
    for note in board.notes:
        say(f"note: {note}")
    captions = protocol_notes(file.result for file in data.results)
    captions += [note for note in board.notes if note.startswith(MARK)]
    if any(column.best for column in board.columns):
        captions.append(f"*: {STAR}.")
    files = {
        ".html": lambda: html_report(data, board),
        ".csv": lambda: csv_table(*board.table()),
        ".tex": lambda: latex_table(*board.table(has_intervals=True), caption=" ".join(["x100.", *captions])),
    }
    deliver(Report(parts=[f"{output}: {report_title(data, board)}" for output in outputs], files=files), outputs)
    if figures is not None:
        for path in write_figures(figures, data, board):
            show(f"{path}")
