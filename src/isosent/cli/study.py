"""The commands ``study ...``."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.printing import print_gem_study, print_study
from isosent.cli.terminal import err, progress_bar
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.evaluation.auto_study import AutoCell, judge, study_auto
from isosent.evaluation.gem_figure import gem_figure
from isosent.evaluation.gem_study import GemCell, study_gem, write_gem_csv
from isosent.files.atomic import check_destination, replacing
from isosent.loading import load

app = typer.Typer(no_args_is_help=True, help="Measure isosent itself, as its documentation does.")

Data = Annotated[Path, typer.Option(metavar="DIR", help="Folder with the original STS files, anywhere below it.")]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="REFERENCE", help=f"Model; may be repeated. [default: {DEFAULT_REFERENCE}]"),
]
Tasks = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Some tasks, with commas between. [default: all that are found]")
]
JsonOutput = Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Write all numbers as JSON.")]


@app.command()
def auto(data: Data, models: Models = None, tasks: Tasks = None, json_output: JsonOutput = None) -> None:
    """Compare what "auto" chooses, without labels, with fixed rules and with the best in hindsight.

    Each map is fitted on the sentences of the task (target); scores are Spearman x100, one correlation over all pairs.
    """
    _check_outputs(json_output)
    cells: list[AutoCell] = []
    for reference in models or [DEFAULT_REFERENCE]:
        with progress_bar(reference) as bar:
            cells += study_auto(load(reference), data, name=reference, tasks=_names(tasks), progress=bar)
        err.print(f"done: {reference}")
    print_study(cells, judge(cells))
    _write_json(json_output, cells)


@app.command()
def gem(
    data: Data,
    models: Models = None,
    tasks: Tasks = None,
    csv_output: Annotated[
        Path | None, typer.Option("--csv", metavar="OUT", help="Write all numbers as CSV, a line a measurement.")
    ] = None,
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
    if figure is not None and figure.suffix != ".svg":
        raise InputError(f"--figure must end in .svg; got {figure}.")
    _check_outputs(csv_output, json_output, figure)
    cells: list[GemCell] = []
    for reference in models or [DEFAULT_REFERENCE]:
        with progress_bar(reference, "settings") as bar:
            cells += study_gem(load(reference), data, name=reference, tasks=_names(tasks), progress=bar)
        err.print(f"done: {reference}")
    print_gem_study(cells)
    if csv_output is not None:
        write_gem_csv(csv_output, cells)
    _write_json(json_output, cells)
    if figure is not None:
        with replacing(figure) as temporary:
            temporary.write_text(gem_figure(cells), "utf-8")


def _names(tasks: str | None) -> list[str] | None:
    return None if tasks is None else tasks.split(",")


def _check_outputs(*paths: Path | None) -> None:
    for path in paths:
        if path is not None:
            check_destination(path)


def _write_json(path: Path | None, cells: Iterable[AutoCell | GemCell]) -> None:
    if path is not None:
        with replacing(path) as temporary:
            document = [cell.to_json() for cell in cells]
            temporary.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
