"""The commands ``evaluate ...``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.model_options import ModelChoice, with_model_flags
from isosent.cli.terminal import out, progress_bar
from isosent.cli.transform_options import TransformChoice, with_transform_flags
from isosent.errors import InputError
from isosent.evaluation.report import sts_table, subset_table
from isosent.evaluation.sts import TARGET, evaluate_sts
from isosent.evaluation.sts_files import SICKR_PARTS, TASKS
from isosent.files.atomic import check_destination, replacing

app = typer.Typer(no_args_is_help=True, help="Measure a model against human judgement.")


@app.command()
@with_model_flags()
@with_transform_flags(None)
def sts(
    model: ModelChoice,
    transform: TransformChoice | None,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder with the original STS files, anywhere below it.")],
    tasks: Annotated[
        str | None, typer.Option(metavar="NAMES", help=f"Some of {','.join(TASKS)}. [default: all that are found]")
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="target|FILE", help="What to fit on: all sentences of the task, or texts. [default: target]"
        ),
    ] = None,
    sickr: Annotated[
        str,
        typer.Option(metavar="|".join(SICKR_PARTS), help="Pairs of SICK-R: all 9,927, or the 4,927 of the test part."),
    ] = SICKR_PARTS[0],
    subsets: Annotated[bool, typer.Option("--subsets", help="Print every subset, too.")] = False,
    json_output: Annotated[
        Path | None,
        typer.Option("--json", metavar="OUT", help="Write all numbers as JSON; - prints them in place of the table."),
    ] = None,
) -> None:
    """Correlate cosines with human scores on STS12 ... STS16, STS-B and SICK-R.

    Spearman and Pearson of every subset, and three ways to put subsets together: "all" is one correlation over all
    pairs (Sentence-BERT, SimCSE, MTEB), "mean" the mean over subsets (WhiteningBERT), "wmean" the same weighted by
    pairs (BERT-whitening). Published scores of the same model stand beside the measured ones.
    """
    to_standard_output = json_output == Path("-")
    if json_output is not None and not to_standard_output:
        check_destination(json_output)
    opened = model.open()
    if transform is None and fit is not None and not opened.encoder.needs_corpus:
        raise InputError("--fit must come with a transform to fit. Add --transform whitening.")
    chosen = None if transform is None else transform.make(opened.dim)
    with progress_bar("encoding") as bar:
        result = evaluate_sts(
            opened,
            data,
            tasks=None if tasks is None else tasks.split(","),
            transform=chosen,
            fit=fit or TARGET,
            sickr=sickr,
            progress=bar,
        )
    document = json.dumps(result.to_json(), indent=2, ensure_ascii=False)
    if to_standard_output:
        typer.echo(document)
        return
    if json_output is not None:
        with replacing(json_output) as temporary:
            temporary.write_text(document + "\n", "utf-8")
    if subsets:
        out.print(subset_table(result))
    out.print(sts_table(result))
