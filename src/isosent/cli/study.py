"""The commands ``study ...``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.printing import print_study
from isosent.cli.terminal import err, progress_bar
from isosent.evaluation.auto_study import judge, study_auto
from isosent.files.atomic import check_destination, replacing
from isosent.loading import load

app = typer.Typer(no_args_is_help=True, help="Measure isosent itself, as its documentation does.")


@app.callback()
def _of_several() -> None:
    """Keep ``auto`` a command of its own."""


@app.command()
def auto(
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder with the original STS files, anywhere below it.")],
    models: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="REFERENCE", help="Model; may be repeated. [default: wordllama]"),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Some tasks, with commas between. [default: all that are found]")
    ] = None,
    json_output: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write all numbers as JSON.")
    ] = None,
) -> None:
    """Compare what "auto" chooses, without labels, with fixed rules and with the best in hindsight.

    Each map is fitted on the sentences of the task (target); scores are Spearman x100, one correlation over all pairs.
    """
    if json_output is not None:
        check_destination(json_output)
    cells = []
    for reference in models or ["wordllama"]:
        with progress_bar(reference) as bar:
            cells += study_auto(
                load(reference), data, name=reference, tasks=None if tasks is None else tasks.split(","), progress=bar
            )
        err.print(f"done: {reference}")
    print_study(cells, judge(cells))
    if json_output is not None:
        with replacing(json_output) as temporary:
            document = [cell.to_json() for cell in cells]
            temporary.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
