"""The commands ``research study`` and ``research reproduce``: the edge, which `cli.main` finds by its name.

`study` is a command whose first argument names a kind (`KINDS`): its `StudyKind` measures, and gives tables and a
figure of the records, all x100 and with published numbers where there are some. `reproduce` measures the tables of a
paper again.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from isosent._check import split_options
from isosent.cli.options import (
    PATH,
    data_option,
    json_option,
    models_option,
    no_column_option,
    outputs_option,
    split_names,
    tasks_option,
)
from isosent.cli.printing import check_outputs, deliver, say
from isosent.errors import InputError
from isosent.evaluation.sts import AGGREGATIONS, SICKR_PARTS
from isosent.io.json import document_bytes
from isosent.loading import load
from isosent.pages.figures import FORMATS, render
from isosent.pages.progress import progress_bar
from isosent.pages.report import Content, Part, Report, ReportTable
from isosent.report.figures import check_figure
from isosent.research import auto, dims, flow, gem, layers, retrieval
from isosent.research.reproduce import reproduce as reproduce_paper
from isosent.research.reproduction import LEGEND, Reproduction
from isosent.research.study import study_csv, study_to_json

KINDS = {
    "layers": layers.LAYERS,
    "pooling": layers.POOLING,
    "dims": dims.STUDY,
    "auto": auto.STUDY,
    "flow": flow.STUDY,
    "gem": gem.STUDY,
    "retrieval": retrieval.STUDY,
}


@click.group()
def research() -> None:
    """Study settings of the methods, and measure the tables of the papers again."""


@research.command()
@click.argument("what", metavar="KIND[?NAME=VALUE]")
@data_option
@models_option
@tasks_option
@click.option("--sickr", type=click.Choice(SICKR_PARTS), default=SICKR_PARTS[0], help="All of SICK-R, or its test set.")
@click.option("--aggregation", type=click.Choice(AGGREGATIONS), default=AGGREGATIONS[0], help="How to combine subsets.")
@click.option("--pooling", metavar="NAMES", help="layers: the pooling.  [default: mean]  pooling: those to compare.")
@click.option(
    "--transform", metavar="NAME", help="dims: [default: whitening]  flow: settings, as in glow_flow?depth=2."
)
@click.option("--fit-on", metavar="target|FILE", help="dims: fit on the texts of each task, or on a file.")
@outputs_option(".json", ".csv", *FORMATS)
@json_option
@no_column_option()
def study(
    what: str,
    data: Path,
    models: tuple[str, ...],
    tasks: str | None,
    sickr: str,
    aggregation: str,
    outputs: tuple[Path, ...],
    as_json: bool,
    **own: Any,
) -> None:
    """Measure choices on STS tasks. Transforms are fitted on the sentences of each task, without labels.

    \b
    layers   every layer of a transformer, every pair, the best sets (WhiteningBERT, figures 1, 2)
    pooling  poolings of the last layers of a transformer (WhiteningBERT, table 1)
    dims     score, memory and search time at each width (BERT-whitening, figure 1)
    auto     what auto chooses against fixed rules and the best choice in hindsight
    flow     BERT-flow against whitening and standardization; needs torch
    gem      what each part and each setting of GEM is worth (GEM, table 4 and figure 2)
    retrieval  bytes, speed and recall of every index type and dtype; needs the extra search

    \b
    isosent research study layers --data DIR -m hf:DIR -o layers.json -o layers.svg
    isosent research study 'dims?widths=64,128,256&docs=0' --data DIR
    isosent research study 'flow?nli=snli.jsonl,mnli.jsonl&columns=premise,hypothesis&seeds=0,1,2' --data DIR
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with a backspace
    kind, settings = split_options(what)
    if kind not in KINDS:
        raise InputError(f"study {kind}: the kinds are {', '.join(KINDS)}.")
    study_kind = KINDS[kind]
    if unknown := settings.keys() - set(study_kind.settings):
        listed = ", ".join(study_kind.settings) or "none"
        raise InputError(f"study {kind}: no setting {', '.join(sorted(unknown))}. It has: {listed}.")
    for name, value in own.items():
        if value is not None and name not in study_kind.options:
            kinds = " and ".join(f"study {other}" for other, each in KINDS.items() if name in each.options)
            raise InputError(f"study {kind}: --{name.replace('_', '-')} is for {kinds}.")
    check_outputs(outputs)
    for path in outputs:
        if path.suffix.lower() not in FORMATS:
            continue
        if study_kind.figure is None:
            raise InputError(f"study {kind}: --output {path}: there is no figure of this study.")
        check_figure(path)
    own |= settings | {"sickr": sickr, "aggregation": aggregation}
    records: list[Any] = []
    for number, reference in enumerate(models, start=1):
        with progress_bar(reference) as bar:
            measured = study_kind.run(
                load(reference), data, own, name=reference, tasks=split_names(tasks), progress=bar
            )
        say(f"done: {reference}")
        records += measured
        if study_kind.has_joint_tables:
            measured = records if number == len(models) else []
        if measured:
            deliver(Report(parts=study_kind.tables(measured, aggregation)), as_json=as_json)
    document = study_to_json(kind, records)
    files: dict[str, Content] = {".json": lambda: document_bytes(document), ".csv": lambda: study_csv(records)}
    if (draw := study_kind.figure) is not None:
        files |= {
            ending: partial(lambda ending: render(draw(records, aggregation), ending), ending) for ending in FORMATS
        }
    deliver(Report(document, files=files), outputs, as_json=as_json)


@research.command()
@click.argument("paper")
@data_option
@click.option("--models", type=PATH, metavar="FILE", help="YAML: where the models of the tables are.")
@click.option(
    "--table", metavar="NAME", multiple=True, help='Such as 1 or "figure 1"; may be repeated.  [default: all]'
)
@outputs_option(".json", ".md")
@json_option
def reproduce(
    paper: str,
    data: Path,
    models: Path | None,
    table: tuple[str, ...],
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Measure the tables of PAPER again, next to the published numbers.

    PAPER is bert-whitening, whitening-bert, gem, sentence-bert, others (published scores of other models), or a YAML
    file of that form. A condition whose model is not available says what it needs.

    \b
    isosent research reproduce bert-whitening --data DIR -o tables.md
    """  # noqa: D301
    check_outputs(outputs, reads=(models,))
    with progress_bar("encoding") as bar:
        reproduction = reproduce_paper(
            paper,
            data,
            models=models,
            tables=list(table) or None,
            progress=bar,
            tell=lambda command: say(f"done: {command}"),
        )
    files: dict[str, Content] = {
        ".json": lambda: document_bytes(reproduction.to_json()),
        ".md": lambda: reproduction.to_markdown(with_commands=True),
    }
    deliver(Report(reproduction.to_json(), _paper_parts(reproduction), files), outputs, as_json=as_json)


def _paper_parts(reproduction: Reproduction) -> Iterator[Part]:
    for outcome in reproduction.tables:
        title = f"{reproduction.paper.name}, {outcome.table.name}: {outcome.table.title}"
        table = ReportTable(*outcome.header, left=(0, -1), title=title, caption="\n".join(outcome.caption))
        for row in outcome.rows():
            table.add_row(*row)
        yield table
    yield LEGEND
