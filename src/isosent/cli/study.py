"""The commands ``study ...``."""

from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.flags import split_names
from isosent.cli.outputs import write_text
from isosent.cli.printing import print_gem_study, print_study
from isosent.cli.study_dims import dims
from isosent.cli.study_flow import flow
from isosent.cli.study_layers import layers, pooling
from isosent.cli.study_options import (
    CsvOutput,
    Data,
    JsonOutput,
    Models,
    Tasks,
    check_outputs,
    write_json,
)
from isosent.cli.terminal import err, progress_bar
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.loading import load
from isosent.studies.auto import AutoCell, judge, study_auto
from isosent.studies.gem import GemCell, study_gem, write_gem_csv
from isosent.studies.gem_figure import gem_figure

app = typer.Typer(no_args_is_help=True, help="Measure isosent itself, as its documentation does.")
app.command()(dims)
app.command()(flow)
app.command()(layers)
app.command()(pooling)


@app.command()
def auto(data: Data, models: Models = None, tasks: Tasks = None, json_output: JsonOutput = None) -> None:
    """Compare what "auto" chooses, without labels, with fixed rules and with the best in hindsight.

    Each map is fitted on the sentences of the task (target); scores are Spearman x100, one correlation over all pairs.
    """
    check_outputs(json_output)
    cells: list[AutoCell] = []
    for reference in models or [DEFAULT_REFERENCE]:
        with progress_bar(reference) as bar:
            cells += study_auto(load(reference), data, name=reference, tasks=split_names(tasks), progress=bar)
        err.print(f"done: {reference}")
    print_study(cells, judge(cells))
    write_json(json_output, "auto", cells)


@app.command()
def gem(
    data: Data,
    models: Models = None,
    tasks: Tasks = None,
    csv_output: CsvOutput = None,
    json_output: JsonOutput = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="OUT", help="Draw the scores over the settings: .svg.")
    ] = None,
) -> None:
    """Measure what each part of GEM is worth, and how much its settings matter (table 4 and figure 2 of its paper).

    Each model is word vectors, as in words:FILE, words:FILE?weighting=gem&n_removed=10 or wordllama. Parts are left out
    and settings moved one at a time, from those of the model. Principal vectors are fitted on the sentences of the task
    (target); scores are Pearson and Spearman x100, one correlation over all pairs.
    """
    check_outputs(csv_output, json_output, figure=figure)
    cells: list[GemCell] = []
    for reference in models or [DEFAULT_REFERENCE]:
        with progress_bar(reference, "settings") as bar:
            cells += study_gem(load(reference), data, name=reference, tasks=split_names(tasks), progress=bar)
        err.print(f"done: {reference}")
    print_gem_study(cells)
    if csv_output is not None:
        write_gem_csv(csv_output, cells)
    write_json(json_output, "gem", cells)
    if figure is not None:
        write_text(figure, gem_figure(cells))
