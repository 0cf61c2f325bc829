"""The command ``compare``."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from isosent.cli.flags import split_names
from isosent.cli.outputs import check_output, write_output
from isosent.cli.terminal import out, progress_bar
from isosent.evaluation.compare import CORRELATIONS, N_RESAMPLES, Comparison, Difference, compare_results
from isosent.evaluation.result_file import read_result
from isosent.evaluation.running import Run
from isosent.evaluation.tables import model_lines, x100
from isosent.numeric.resampling import LEVEL

_SMALLEST_P = 0.0001


def compare(
    first: Annotated[Path, typer.Argument(metavar="A.json", help="Result file to start from.")],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="Result file that is judged against it.")],
    tasks: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Some tasks, with commas between. [default: all that both have]")
    ] = None,
    correlation: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(CORRELATIONS),
            help="Compare tasks with human scores by this. [default: what each is judged by]",
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Level of the intervals; a verdict needs p below 1 - level.")] = LEVEL,
    seed: Annotated[int, typer.Option(min=0, help="Of all random numbers.")] = 0,
    resamples: Annotated[int, typer.Option(min=1, help="Draws of the bootstrap.")] = N_RESAMPLES,
    tests: Annotated[bool, typer.Option("--tests", help="Print the test of every task and its p-values, too.")] = False,
    json_output: Annotated[
        Path | None,
        typer.Option("--json", metavar="OUT", help="Write all numbers as JSON; - prints them in place of the table."),
    ] = None,
) -> None:
    """Tell whether B is better than A, worse, or whether that cannot be told.

    Both are result files of "isosent evaluate ... --json", of the same data by the same protocol. They are compared
    item by item: Pearson correlations by Williams's test, accuracies by the exact McNemar test, all else by the paired
    bootstrap. P-values are corrected for the number of tasks (Holm).
    """
    check_output(json_output, reads=(first, second))
    results = read_result(first), read_result(second)
    with progress_bar("comparing", "items") as bar:
        found = compare_results(
            *results,
            names=(str(first), str(second)),
            tasks=split_names(tasks),
            correlation=correlation,
            level=level,
            run=Run(seed=seed, n_resamples=resamples, progress=bar),
        )
    written = json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n"
    if write_output(json_output, written):
        return
    if tests:
        out.print(test_table(found))
    out.print(comparison_table(found))


def comparison_table(found: Comparison) -> Table:
    """Lay out a comparison, x100.

    Parameters
    ----------
    found : Comparison
        What was compared.

    Returns
    -------
    Table
        One row a task or average; below it what A and B are, and what to know of the verdicts.
    """
    table = Table(caption="\n".join(_caption(found)), caption_justify="left")
    for name in ("x100", "A", "B", "B - A", f"{100 * found.level:g} % interval", "B is"):
        table.add_column(name, justify="left" if name in ("x100", "B is") else "right")
    for name, of in found.tasks.items():
        table.add_row(name, *_cells(of))
    table.add_section()
    for alike, of in found.averages.items():
        table.add_row(f"average, {alike}", *_cells(of))
    return table


def test_table(found: Comparison) -> Table:
    """Lay out the tests behind the verdicts.

    Parameters
    ----------
    found : Comparison
        What was compared.

    Returns
    -------
    Table
        One row a task or average: metric, items, test, p-value, the corrected one, and for Spearman that of Williams's
        test of the ranks.
    """
    table = Table()
    for name in ("task", "metric", "items", "by", "p", "corrected", "Williams on ranks"):
        table.add_column(name, justify="left" if name in ("task", "metric", "by") else "right")
    for name, of in found.tasks.items():
        tested = of.test, _p_value(of.p_value), _p_value(of.p_corrected), _p_value(of.p_williams_on_ranks)
        table.add_row(name, of.metric, f"{of.n_items:,}", *tested)
    table.add_section()
    for alike, of in found.averages.items():
        table.add_row(f"average, {alike}", of.metric, f"{of.n_items:,}", of.test, _p_value(of.p_value), "", "")
    return table


def _cells(of: Difference) -> tuple[str, ...]:
    ends = [_signed(end) for end in of.interval]
    interval = ends[0] if ends[0] == "undefined" else " to ".join(ends)
    return x100(of.first), x100(of.second), _signed(of.difference), interval, of.verdict


def _signed(difference: float) -> str:
    return "undefined" if math.isnan(difference) else f"{100 * difference:+.2f}"


def _p_value(p_value: float) -> str:
    if math.isnan(p_value):
        return ""
    return f"< {_SMALLEST_P}" if p_value < _SMALLEST_P else f"{p_value:.4f}"


def _caption(found: Comparison) -> Iterator[str]:
    for letter, side in (("A", found.first), ("B", found.second)):
        yield f"{letter}: {side.name}"
        yield from (f"   {line}" for line in model_lines(side.model, side.fitting))
    for metric, test in dict.fromkeys((of.metric, of.test) for of in found.tasks.values()):
        own = (name for name, of in found.tasks.items() if (of.metric, of.test) == (metric, test))
        yield f"{metric}, {test}: {', '.join(own)}"
    if len(found.tasks) > 1:
        yield f"p-values are corrected for {len(found.tasks)} tasks (Holm), intervals are not; an average stands alone."
    yield f'A verdict needs p < {1 - found.level:g}; "cannot tell" is not "the same": see the interval.'
    for side in (found.first, found.second):
        if side.only:
            yield f"only in {side.name}: {', '.join(side.only)}"
    yield from found.notes
