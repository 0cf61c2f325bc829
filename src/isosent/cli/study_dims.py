"""The command ``study dims``."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from isosent.cli.flags import split_names, whole_numbers
from isosent.cli.outputs import write_text
from isosent.cli.study_options import (
    Aggregation,
    CsvOutput,
    Data,
    JsonOutput,
    Models,
    SickR,
    Tasks,
    check_outputs,
    write_json,
)
from isosent.cli.terminal import err, out, progress_bar
from isosent.cli.transform_options import TransformChoice, with_transform_flags
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.evaluation.protocol import TARGET
from isosent.evaluation.sts import AGGREGATIONS
from isosent.evaluation.sts_files import SICKR_PARTS
from isosent.evaluation.tables import x100
from isosent.files.csv_table import write_csv
from isosent.loading import load
from isosent.studies.dims import LEADING, DimsPlan, study_dims
from isosent.studies.dims_figure import dims_figure
from isosent.studies.dims_result import DimsCell, DimsStudy, size_of_a_million
from isosent.studies.search_time import N_DOCS
from isosent.transforms.base import is_flow

_BEST = "*"


@with_transform_flags(LEADING[0], dims=False)
def dims(
    transform: TransformChoice,
    data: Data,
    models: Models = None,
    tasks: Tasks = None,
    widths: Annotated[
        str | None,
        typer.Option("--dims", metavar="K,K", help="Dimensions to look at. [default: a grid from 8 to all]"),
    ] = None,
    fit: Annotated[
        str, typer.Option(metavar="target|FILE", help="What to fit on: all sentences of the task, or texts.")
    ] = TARGET,
    sickr: SickR = SICKR_PARTS[0],
    aggregation: Aggregation = AGGREGATIONS[0],
    docs: Annotated[
        int, typer.Option(metavar="N", min=0, help="Vectors that an exact search looks through; 0 times none.")
    ] = N_DOCS,
    csv_output: CsvOutput = None,
    json_output: JsonOutput = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="OUT", help="Draw the scores over the dimensions: .svg.")
    ] = None,
) -> None:
    """Measure what dimensions are worth: scores, memory and search time at each width (figure 1 of BERT-whitening).

    Sentences are encoded once and the transform is fitted once for each task; its first axes are the narrower ones.
    The best width of a task is marked. Search is exact, of the ten nearest, on one thread. Published scores of the same
    model stand beside the measured ones.
    """
    check_outputs(csv_output, json_output, figure=figure)
    if aggregation not in AGGREGATIONS:
        raise InputError(f"--aggregation must be one of {', '.join(AGGREGATIONS)}; got {aggregation!r}.")
    numbers = None if widths is None else whole_numbers("--dims", widths)
    studies = []
    for reference in models or [DEFAULT_REFERENCE]:
        model = load(reference)
        made = transform.make(model.dim)
        if isinstance(made, str) or is_flow(made):
            raise InputError(f"study dims: transform must end with {', '.join(LEADING)}; got {made!r}.")
        plan = DimsPlan(made, numbers, fit, sickr, docs)
        with progress_bar(reference) as bar:
            studies.append(study_dims(model, data, name=reference, plan=plan, tasks=split_names(tasks), progress=bar))
        err.print(f"done: {reference}")
    for study in studies:
        out.print(_table(study, aggregation))
    if csv_output is not None:
        write_csv(csv_output, [row for study in studies for row in study.rows()])
    write_json(json_output, "dims", studies)
    if figure is not None:
        write_text(figure, dims_figure(studies, aggregation))


def _table(study: DimsStudy, how: str) -> Table:
    """Lay out a study: a row a width, and the published rows behind them."""
    table = Table(title=study.name, title_justify="left", caption=_caption(study, how), caption_justify="left")
    columns: list[str | None] = [*study.tasks, *([None] if len(study.tasks) > 1 else [])]
    times = {time.k: f"{1000 * time.elapsed_s:.2f}" for time in study.search}
    table.add_column("dimensions")
    for name in [*(column or "average" for column in columns), "MB a million", *(["ms a query"] if times else [])]:
        table.add_column(name, justify="right")
    best = {column: study.best(column, how) for column in columns}
    curves = {column: study.curve(column, how) for column in columns}

    def add(label: str, k: int, figures: list[str]) -> None:
        cost = [f"{size_of_a_million(k) / 1e6:,.0f}", *([times.get(k, "")] if times else [])]
        table.add_row(label, *figures, *cost)

    whole = {cell.task: cell.spearman[how] for cell in study.untransformed}
    mean = math.fsum(whole.values()) / len(whole)
    dim = study.untransformed[0].k
    add(f"{dim}, as they are", dim, [x100(mean if column is None else whole[column]) + " " for column in columns])
    table.add_section()
    for k in study.widths:
        add(str(k), k, [x100(curves[c][k]) + (_BEST if best[c] == k else " ") for c in columns])
    _add_published(table, study, columns)
    return table


def _add_published(table: Table, study: DimsStudy, columns: list[str | None]) -> None:
    """Put each published row under the measured one of the same aggregation."""
    for row in study.published:
        table.add_section()
        cells = study.cells if row.transformed else study.untransformed
        ours = {cell.task: cell.spearman[row.aggregation] for cell in cells if cell.k == row.k}
        how = row.aggregation if row.transformed else f"as they are, {row.aggregation}"
        table.add_row(f"{row.k}, {how}", *(x100(ours[c]) + " " if c else "" for c in columns))
        published = [f"{row.scores[c]:.2f} " if c in row.scores else "" for c in columns if c]
        table.add_row(f"  published: {row.label}", *published, style="dim")


def _caption(study: DimsStudy, how: str) -> str:
    protocol = study.protocol
    parameters = ", ".join(
        f"{name}={value}" for name, value in protocol["parameters"].items() if name != "n_components"
    )
    lines = [
        f"Spearman x100, {how}; {_BEST} best of its column",
        f"{protocol['transform']}({parameters}) fitted on {protocol['fit']}",
    ]
    if "SICKR" in study.tasks:
        lines.append(f"SICKR: {_of('SICKR', study).n_pairs} pairs ({protocol['sickr']})")
    lines.append(f"sentences without a vector: {sum(cell.n_zero_rows for cell in study.untransformed)}")
    ranks = {cell.task: cell.n_components for cell in study.cells if cell.n_components < cell.k}
    for rank in sorted(set(ranks.values())):
        tasks = ", ".join(task for task, n_components in ranks.items() if n_components == rank)
        lines.append(f"rank of {tasks}: {rank}; more dimensions are these")
    if study.search:
        time = study.search[0]
        lines.append(
            f"search: exact, ten nearest of {time.n_docs:,} float32 vectors, {time.n_queries} queries at once, one "
            f"thread, median of {time.n_repeats}"
        )
    return "\n".join(lines)


def _of(task: str, study: DimsStudy) -> DimsCell:
    return next(cell for cell in study.untransformed if cell.task == task)
