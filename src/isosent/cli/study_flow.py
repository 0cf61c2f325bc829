"""The command ``study flow``."""

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Annotated

import typer
from rich.table import Table

from isosent.cli.flags import split_names, whole_numbers
from isosent.cli.study_options import Data, JsonOutput, Models, Tasks, check_outputs, write_json
from isosent.cli.terminal import err, out, progress_bar
from isosent.cli.transform_options import flow_settings
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.evaluation.tables import x100
from isosent.files.texts import is_table, read_texts
from isosent.loading import load
from isosent.studies.flow import NLI, FlowCell, FlowPlan, study_flow

_COLUMNS = "premise,hypothesis"


def flow(
    data: Data,
    models: Models = None,
    tasks: Tasks = None,
    nli: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help=f"Sentences for the rows fitted on {NLI}; may be repeated. [default: none]"),
    ] = None,
    columns: Annotated[
        str, typer.Option(metavar="NAMES", help="Columns of a table that hold the sentences, with commas between.")
    ] = _COLUMNS,
    seeds: Annotated[str, typer.Option(metavar="N,N", help="The flow is fitted once with each.")] = "0,1,2",
    settings: Annotated[
        str | None, typer.Option("--flow", metavar="SETTINGS", help="Of the flow, as in depth=2,n_epochs=3.")
    ] = None,
    json_output: JsonOutput = None,
) -> None:
    """Compare BERT-flow with whitening, standardising and auto, fitted on the target and on NLI sentences.

    Scores are Spearman x100, one correlation over all pairs; those of the flow are mean and standard deviation over the
    seeds. Needs torch.
    """
    check_outputs(json_output)
    plan = FlowPlan(
        [text for path in nli or [] for text in _sentences(path, columns)],
        whole_numbers("--seeds", seeds),
        {} if settings is None else flow_settings(settings),
    )
    cells: list[FlowCell] = []
    for reference in models or [DEFAULT_REFERENCE]:
        with progress_bar(reference) as bar:
            own = study_flow(load(reference), data, name=reference, plan=plan, tasks=split_names(tasks), progress=bar)
        err.print(f"done: {reference}")
        out.print(_table(own, plan))
        cells += own
    write_json(json_output, "flow", cells)


def _sentences(path: str, columns: str) -> list[str]:
    names: list[str] | list[None] = columns.split(",") if is_table(path) else [None]
    return [text for column in names for text in read_texts(path, column=column)]


def _table(cells: Sequence[FlowCell], plan: FlowPlan) -> Table:
    seeds = ", ".join(map(str, plan.seeds))
    caption = (
        f"Spearman x100 (all); flow: mean ± standard deviation of seeds {seeds}; bits per dimension: held-out rows"
    )
    table = Table(title=cells[0].model, title_justify="left", caption=caption, caption_justify="left")
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    table.add_column("fitted")
    for name in [*tasks, *(["average"] if len(tasks) > 1 else []), "bits per dimension", "s a fit"]:
        table.add_column(name, justify="right")
    for row in dict.fromkeys(cell.row for cell in cells):
        own = [cell for cell in cells if cell.row == row]
        scores = [cell.scores for cell in own]
        averages = [[fmean(of_seed) for of_seed in zip(*scores, strict=True)]] if len(tasks) > 1 else []
        bits = [pair for cell in own for pair in cell.held_out_bits]
        change = " to ".join(f"{fmean(side):.2f}" for side in zip(*bits, strict=True))
        seconds = fmean(cell.fit_s for cell in own)
        table.add_row(row, *map(_spread, [*scores, *averages]), change, f"{seconds:.1f}" if seconds else "")
    return table


def _spread(scores: Sequence[float]) -> str:
    mean = x100(fmean(scores))
    return mean if len(scores) == 1 else f"{mean} ± {100 * stdev(scores):.2f}"
