"""The command ``reproduce``."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

import typer
from rich.table import Table

from isosent.cli.options import (
    Aggregation,
    CsvOutput,
    Data,
    JsonOutput,
    Models,
    SickR,
    Tasks,
    TransformChoice,
    check_output,
    check_outputs,
    flow_settings,
    split_names,
    whole_numbers,
    with_transform_flags,
    write_json,
    write_output,
)
from isosent.cli.printing import (
    err,
    out,
    print_gem_study,
    print_layer_study,
    print_pooling_study,
    print_study,
    progress_bar,
)
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.evaluation.published import PAPERS
from isosent.evaluation.run import TARGET, EvaluationSettings
from isosent.evaluation.sts import AGGREGATIONS, SICKR_PARTS
from isosent.evaluation.tables import x100
from isosent.io.json import document_bytes
from isosent.io.texts import is_table, read_texts
from isosent.loading import load
from isosent.report.figures import check_figure, dims_figure, gem_figure, layer_figure, pooling_figure, write_figure
from isosent.research.auto import judge, study_auto
from isosent.research.dims import LEADING, N_DOCS, study_dims
from isosent.research.flow import NLI, study_flow
from isosent.research.gem import study_gem
from isosent.research.layers import STUDIED_POOLINGS as STUDIED
from isosent.research.layers import study_layers, study_pooling
from isosent.research.reproduce import LEGEND, TableOutcome
from isosent.research.reproduce import reproduce as reproduce_paper
from isosent.research.study import (
    AutoCell,
    DimsCell,
    DimsStudy,
    FlowCell,
    GemCell,
    LayerCell,
    write_study_csv,
)
from isosent.research.study import bytes_of_a_million as size_of_a_million
from isosent.transforms.base import is_flow

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
    check_outputs(csv_output, json_output)
    if figure is not None:
        check_figure(figure)
    cells: list[LayerCell] = []
    for reference in models:
        with progress_bar(reference) as bar:
            own = study_layers(
                load(reference),
                data,
                name=reference,
                tasks=split_names(tasks),
                sickr=sickr,
                pooling=pooling,
                aggregation=aggregation,
                progress=bar,
            )
        err.print(f"done: {reference}")
        print_layer_study(own, aggregation)
        cells += own
    _write_readings("layers", cells, csv_output, json_output)
    if figure is not None:
        write_figure(figure, layer_figure(cells, aggregation))


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
    check_outputs(csv_output, json_output)
    if figure is not None:
        check_figure(figure)
    cells: list[LayerCell] = []
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
        write_figure(figure, pooling_figure(cells, aggregation))


def _check(aggregation: str) -> None:
    if aggregation not in AGGREGATIONS:
        raise InputError(f"--aggregation must be one of {', '.join(AGGREGATIONS)}; got {aggregation!r}.")


def _write_readings(study: str, cells: list[LayerCell], csv_output: Path | None, json_output: Path | None) -> None:
    if csv_output is not None:
        write_study_csv(csv_output, cells)
    write_json(json_output, study, cells)


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
    check_outputs(csv_output, json_output)
    if figure is not None:
        check_figure(figure)
    if aggregation not in AGGREGATIONS:
        raise InputError(f"--aggregation must be one of {', '.join(AGGREGATIONS)}; got {aggregation!r}.")
    numbers = None if widths is None else whole_numbers("--dims", widths)
    studies = []
    for reference in models or [DEFAULT_REFERENCE]:
        model = load(reference)
        made = transform.make(model.dim)
        if isinstance(made, str) or is_flow(made):
            raise InputError(f"study dims: transform must end with {', '.join(LEADING)}; got {made!r}.")
        with progress_bar(reference) as bar:
            studies.append(
                study_dims(
                    model,
                    data,
                    name=reference,
                    transform=made,
                    widths=numbers,
                    fit=fit,
                    sickr=sickr,
                    n_docs=docs,
                    tasks=split_names(tasks),
                    progress=bar,
                )
            )
        err.print(f"done: {reference}")
    for study in studies:
        out.print(_table(study, aggregation))
    if csv_output is not None:
        write_study_csv(csv_output, studies)
    write_json(json_output, "dims", studies)
    if figure is not None:
        write_figure(figure, dims_figure(studies, aggregation))


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
    sentences = [text for path in nli or [] for text in _sentences(path, columns)]
    numbers = whole_numbers("--seeds", seeds)
    chosen = {} if settings is None else flow_settings(settings)
    cells: list[FlowCell] = []
    for reference in models or [DEFAULT_REFERENCE]:
        with progress_bar(reference) as bar:
            own = study_flow(
                load(reference),
                data,
                name=reference,
                nli=sentences,
                seeds=numbers,
                settings=chosen,
                tasks=split_names(tasks),
                progress=bar,
            )
        err.print(f"done: {reference}")
        out.print(_table_study_flow(own, numbers))
        cells += own
    write_json(json_output, "flow", cells)


def _sentences(path: str, columns: str) -> list[str]:
    names: list[str] | list[None] = columns.split(",") if is_table(path) else [None]
    return [text for column in names for text in read_texts(path, column=column)]


def _table_study_flow(cells: Sequence[FlowCell], seeds_of_flow: Sequence[int]) -> Table:
    seeds = ", ".join(map(str, seeds_of_flow))
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
    check_outputs(csv_output, json_output)
    if figure is not None:
        check_figure(figure)
    cells: list[GemCell] = []
    for reference in models or [DEFAULT_REFERENCE]:
        with progress_bar(reference, "settings") as bar:
            cells += study_gem(load(reference), data, name=reference, tasks=split_names(tasks), progress=bar)
        err.print(f"done: {reference}")
    print_gem_study(cells)
    if csv_output is not None:
        write_study_csv(csv_output, cells)
    write_json(json_output, "gem", cells)
    if figure is not None:
        write_figure(figure, gem_figure(cells))


def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help=f"{', '.join(PAPERS)}, or a YAML file of that form.")],
    data: Data,
    models: Annotated[
        Path | None,
        typer.Option(
            metavar="MAP",
            help="YAML: where the models and files are that the tables name. [default: what the data folder holds]",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help='Such as 1, "figure 1"; may be repeated. [default: all]'),
    ] = None,
    show_commands: Annotated[bool, typer.Option("--commands", help="Print the command of every condition.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    json_output: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write all numbers as JSON; - prints them alone.")
    ] = None,
) -> None:
    """Measure the tables of a paper again, beside what was published.

    S1 is BERT-whitening, S2 WhiteningBERT, S3 GEM, S4 Sentence-BERT. Every table and figure has its entry, every
    condition its command; where a model is not at hand the condition says what it needs. "others" are numbers from
    elsewhere, which evaluate sts prints beside measured ones.
    """
    check_output(json_output, reads=(models,))
    with progress_bar("encoding") as bar:
        found = reproduce_paper(
            paper,
            data,
            models=models,
            tables=table,
            run=EvaluationSettings(progress=bar),
            tell=lambda command: err.print(f"done: {command}"),
        )
    if write_output(json_output, document_bytes(found.to_json()).decode()):
        return
    if markdown:
        typer.echo(found.to_markdown(with_commands=show_commands), nl=False)
        return
    for done in found.tables:
        out.print(_table_reproduce(found.paper.name, done))
        if show_commands:
            for label, command in done.commands.items():
                out.print(f"{label}:\n  {command}")
    out.print(LEGEND)


def _table_reproduce(paper: str, done: TableOutcome) -> Table:
    title = f"{paper}, {done.table.name}: {done.table.title}"
    table = Table(title=title, title_justify="left", caption="\n".join(done.caption), caption_justify="left")
    first, *numbers, last = done.header
    table.add_column(first)
    for name in numbers:
        table.add_column(name, justify="right")
    table.add_column(last)
    for row in done.rows():
        table.add_row(*row)
    return table
