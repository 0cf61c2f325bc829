"""The command ``reproduce``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from isosent.cli.evaluation_options import Data
from isosent.cli.outputs import check_output, write_output
from isosent.cli.terminal import err, out, progress_bar
from isosent.evaluation.running import Run
from isosent.files.documents import document_bytes
from isosent.papers.reading import PAPERS
from isosent.reproduction.layout import LEGEND, caption, commands, header, rows, to_markdown
from isosent.reproduction.reproducing import reproduce as reproduce_paper
from isosent.reproduction.result import TableOutcome


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
            run=Run(progress=bar),
            tell=lambda command: err.print(f"done: {command}"),
        )
    if write_output(json_output, document_bytes(found.to_json()).decode()):
        return
    if markdown:
        typer.echo(to_markdown(found, with_commands=show_commands), nl=False)
        return
    for done in found.tables:
        out.print(_table(found.paper.name, done))
        if show_commands:
            for label, command in commands(done).items():
                out.print(f"{label}:\n  {command}")
    out.print(LEGEND)


def _table(paper: str, done: TableOutcome) -> Table:
    title = f"{paper}, {done.table.name}: {done.table.title}"
    table = Table(title=title, title_justify="left", caption="\n".join(caption(done)), caption_justify="left")
    first, *numbers, last = header(done)
    table.add_column(first)
    for name in numbers:
        table.add_column(name, justify="right")
    table.add_column(last)
    for row in rows(done):
        table.add_row(*row)
    return table
