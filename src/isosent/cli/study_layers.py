"""The commands ``study layers`` and ``study pooling``."""

from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.flags import split_names
from isosent.cli.layer_tables import print_layer_study, print_pooling_study
from isosent.cli.outputs import write_text
from isosent.cli.study_options import (
    Aggregation,
    CsvOutput,
    Data,
    JsonOutput,
    SickR,
    Tasks,
    check_outputs,
    write_json,
)
from isosent.cli.terminal import err, progress_bar
from isosent.errors import InputError
from isosent.evaluation.sts import AGGREGATIONS
from isosent.evaluation.sts_files import SICKR_PARTS
from isosent.files.csv_table import write_csv
from isosent.loading import load
from isosent.studies.layer_figures import layer_figure, pooling_figure
from isosent.studies.layers import read_layers, study_layers
from isosent.studies.poolings import STUDIED, study_pooling
from isosent.studies.reading_cells import ReadingCell

Transformers = Annotated[
    list[str], typer.Option("--model", "-m", metavar="REFERENCE", help="A transformer, hf:ID-OR-DIR; may be repeated.")
]
HeatMaps = Annotated[Path | None, typer.Option("--figure", metavar="OUT", help="Draw the averages as heat maps: .svg.")]


def layers(
    data: Data,
    models: Transformers,
    tasks: Tasks = None,
    sickr: SickR = SICKR_PARTS[0],
    pooling: Annotated[str, typer.Option(metavar="NAME", help="How the tokens of each layer are pooled.")] = "mean",
    aggregation: Aggregation = AGGREGATIONS[0],
    csv_output: CsvOutput = None,
    json_output: JsonOutput = None,
    figure: HeatMaps = None,
) -> None:
    """Score every layer of a transformer, every pair, and the best of every size (figures 1 and 2 of WhiteningBERT).

    Each as it is, with whitening and with auto, fitted on the sentences of the task (target), without labels. The
    network runs once over the sentences. Layers, pooling and modules behind it that the model comes with are set aside.
    """
    _check(aggregation)
    check_outputs(csv_output, json_output, figure=figure)
    cells: list[ReadingCell] = []
    for reference in models:
        with progress_bar(reference) as bar:
            model = load(reference)
            vectors = read_layers(
                model, data, name=reference, tasks=split_names(tasks), sickr=sickr, pooling=pooling, progress=bar
            )
        with progress_bar("sets of layers", "scores") as bar:
            own = study_layers(vectors, aggregation=aggregation, progress=bar)
        err.print(f"done: {reference}")
        print_layer_study(own, aggregation)
        cells += own
    _write_readings("layers", cells, csv_output, json_output)
    if figure is not None:
        write_text(figure, layer_figure(cells, aggregation))


def pooling(
    data: Data,
    models: Transformers,
    tasks: Tasks = None,
    sickr: SickR = SICKR_PARTS[0],
    poolings: Annotated[
        str, typer.Option(metavar="NAMES", help="Poolings, with commas between.", show_default=True)
    ] = ",".join(STUDIED),
    aggregation: Aggregation = AGGREGATIONS[0],
    csv_output: CsvOutput = None,
    json_output: JsonOutput = None,
    figure: HeatMaps = None,
) -> None:
    """Score poolings of the last layer, of layers 1 and the last, and of the last two (table 1 of WhiteningBERT).

    Each as it is, with whitening and with auto, fitted on the sentences of the task (target), without labels. Published
    numbers of the same model, reading and protocol stand beside the measured ones. Layers, pooling and modules behind
    it that the model comes with are set aside.
    """
    _check(aggregation)
    check_outputs(csv_output, json_output, figure=figure)
    cells: list[ReadingCell] = []
    for reference in models:
        with progress_bar(reference) as bar:
            own = study_pooling(
                load(reference),
                data,
                name=reference,
                tasks=split_names(tasks),
                sickr=sickr,
                poolings=poolings.split(","),
                progress=bar,
            )
        err.print(f"done: {reference}")
        print_pooling_study(own, aggregation)
        cells += own
    _write_readings("pooling", cells, csv_output, json_output)
    if figure is not None:
        write_text(figure, pooling_figure(cells, aggregation))


def _check(aggregation: str) -> None:
    if aggregation not in AGGREGATIONS:
        raise InputError(f"--aggregation must be one of {', '.join(AGGREGATIONS)}; got {aggregation!r}.")


def _write_readings(study: str, cells: list[ReadingCell], csv_output: Path | None, json_output: Path | None) -> None:
    if csv_output is not None:
        write_csv(csv_output, [line for cell in cells for line in cell.lines()])
    write_json(json_output, study, cells)
