"""The commands ``evaluate ...``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from isosent.cli.model_options import ModelChoice, with_model_flags
from isosent.cli.terminal import out, progress_bar
from isosent.cli.transform_options import TransformChoice, with_transform_flags
from isosent.errors import InputError
from isosent.evaluation.protocol import TARGET
from isosent.evaluation.report import rte_table, sts_table, subset_table
from isosent.evaluation.rte import evaluate_rte
from isosent.evaluation.sts import evaluate_sts
from isosent.evaluation.sts_files import SICKR_PARTS, TASKS
from isosent.files.atomic import check_destination, replacing
from isosent.model import SentenceEncoder
from isosent.transforms.base import LinearTransform

STANDARD_OUTPUT = Path("-")

app = typer.Typer(no_args_is_help=True, help="Measure a model against human judgement.")

Fit = Annotated[
    str | None,
    typer.Option(metavar="target|FILE", help="What to fit on: all sentences of the task, or texts. [default: target]"),
]
JsonOutput = Annotated[
    Path | None,
    typer.Option("--json", metavar="OUT", help="Write all numbers as JSON; - prints them in place of the table."),
]


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
    fit: Fit = None,
    sickr: Annotated[
        str,
        typer.Option(metavar="|".join(SICKR_PARTS), help="Pairs of SICK-R: all 9,927, or the 4,927 of the test part."),
    ] = SICKR_PARTS[0],
    subsets: Annotated[bool, typer.Option("--subsets", help="Print every subset, too.")] = False,
    json_output: JsonOutput = None,
) -> None:
    """Correlate cosines with human scores on STS12 ... STS16, STS-B and SICK-R.

    Spearman and Pearson of every subset, and three ways to put subsets together: "all" is one correlation over all
    pairs (Sentence-BERT, SimCSE, MTEB), "mean" the mean over subsets (WhiteningBERT), "wmean" the same weighted by
    pairs (BERT-whitening). Published scores of the same model stand beside the measured ones.
    """
    opened, chosen = _prepare(model, transform, fit, json_output)
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
    if _write_json(json_output, result.to_json()):
        return
    if subsets:
        out.print(subset_table(result))
    out.print(sts_table(result))


@app.command()
@with_model_flags()
@with_transform_flags(None)
def rte(
    model: ModelChoice,
    transform: TransformChoice | None,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder with train.tsv and dev.tsv of GLUE's RTE, anywhere below it.")
    ],
    fit: Fit = None,
    json_output: JsonOutput = None,
) -> None:
    """Tell entailment by the cosine of premise and hypothesis, on the 277 dev pairs of RTE.

    Accuracy where a cosine above 0.5 counts as entailment (WhiteningBERT), where one above the threshold best on train
    does, and of always naming the more frequent label.
    """
    opened, chosen = _prepare(model, transform, fit, json_output)
    with progress_bar("encoding") as bar:
        result = evaluate_rte(opened, data, transform=chosen, fit=fit or TARGET, progress=bar)
    if not _write_json(json_output, result.to_json()):
        out.print(rte_table(result))


def _prepare(
    model: ModelChoice, transform: TransformChoice | None, fit: str | None, json_output: Path | None
) -> tuple[SentenceEncoder, LinearTransform | Literal["auto"] | None]:
    """Open the model and make the transform, once it is known that the result can be written."""
    if json_output is not None and json_output != STANDARD_OUTPUT:
        check_destination(json_output)
    opened = model.open()
    if transform is None and fit is not None and not opened.encoder.needs_corpus:
        raise InputError("--fit must come with a transform to fit. Add --transform whitening.")
    return opened, None if transform is None else transform.make(opened.dim)


def _write_json(path: Path | None, document: Mapping[str, Any]) -> bool:
    """Write a result as JSON where it was asked for; tell whether it went to standard output."""
    written = json.dumps(document, indent=2, ensure_ascii=False)
    if path == STANDARD_OUTPUT:
        typer.echo(written)
        return True
    if path is not None:
        with replacing(path) as temporary:
            temporary.write_text(written + "\n", "utf-8")
    return False
