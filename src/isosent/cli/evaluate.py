"""The command ``evaluate``: the scores of a model on tasks, under one transform or several."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from isosent.cli.options import (
    PATH,
    columns_option,
    json_option,
    model_option,
    no_column_option,
    open_model,
    outputs_option,
    resamples_option,
    seed_option,
    transform_options,
)
from isosent.cli.printing import check_outputs, deliver, say
from isosent.errors import InputError, option
from isosent.evaluation.cqa import TEXT_PARTS
from isosent.evaluation.evaluate import evaluate as evaluate_model
from isosent.evaluation.run import TARGET
from isosent.evaluation.sts import SICKR_PARTS
from isosent.evaluation.tables import result_tables
from isosent.io.source import open_source
from isosent.loading import wrap_tables
from isosent.model import SentenceEncoder
from isosent.pages.progress import progress_bar
from isosent.pages.report import Report
from isosent.search.index import Index
from isosent.search.stores import find_index
from isosent.transforms.base import AUTO, TRANSFORMS, resolve_transform, setting_names


@click.command()
@click.argument("tasks", nargs=-1, required=True)
@click.option(
    "--data",
    "data",
    metavar="DIR|FILE",
    required=True,
    type=PATH,
    help="Folder with the original files, at any depth; or a table of pairs, or of texts and labels.",
)
@model_option
@transform_options(default="none", multiple=True)
@click.option("--fit-on", metavar="target|FILE", help="Fit on the texts of each task, or on a file.  [default: target]")
@columns_option
@click.option(
    "--sickr", type=click.Choice(SICKR_PARTS), default=SICKR_PARTS[0], help="All pairs of SICK-R, or its test set."
)
@click.option("--text", type=click.Choice(TEXT_PARTS), default=TEXT_PARTS[0], help="cqa: part of a question to encode.")
@click.option("--split", default="test", metavar="NAME", help="retrieval: queries of qrels/NAME.tsv.")
@seed_option
@resamples_option
@outputs_option(".json", ".csv", ".tex")
@json_option
@no_column_option()
def evaluate(
    tasks: tuple[str, ...],
    data: Path,
    model: str | None,
    transform: tuple[str, ...],
    settings: dict[str, Any],
    fit_on: str | None,
    columns: str | None,
    sickr: str,
    text: str,
    split: str,
    seed: int,
    resamples: int,
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Score a model on TASKS: kinds, or single sets such as STS12 or MR.

    Kinds: sts, transfer, classification, clustering, retrieval, cqa, rte, all.

    \b
    isosent evaluate sts --data DIR -m model -o scores.json
    isosent evaluate STS-B SICK-R --data DIR --transform none --transform whitening --transform auto
    isosent evaluate pairs --data pairs.csv --columns a,b,score
    isosent evaluate retrieval --data DIR -m index

    The model may also be an index, for retrieval, or .parquet files with the texts of the tasks and their vectors:
    -m documents.parquet,queries.parquet

    Correlations are given over all pairs ("all", as in Sentence-BERT and MTEB), and as the mean over subsets ("mean",
    as in WhiteningBERT; "wmean", weighted by pairs). "isosent compare" tests two JSON results against each other.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with a backspace
    check_outputs(outputs, reads=(data, fit_on))
    loaded = _evaluated(model)
    has_several = len(transform) > 1
    if has_several and (
        unused := settings.keys() - {name for each in transform for name in _settings_for(each, settings)}
    ):
        names = ", ".join(map(option, sorted(unused)))
        raise InputError(f"No transform of {', '.join(transform)} takes {names}. Leave it out.")
    transforms = [
        resolve_transform(name, _settings_for(name, settings) if has_several else settings, dim=loaded.dim)
        for name in transform
    ]
    with progress_bar("evaluating", say=say) as bar:
        result = evaluate_model(
            loaded,
            data,
            [name for argument in tasks for name in argument.split(",")],
            transform=transforms,
            fit_on=fit_on or TARGET,
            sickr=sickr,
            text=text,
            split=split,
            columns=columns,
            seed=seed,
            n_resamples=resamples,
            progress=bar,
        )
    results = (result, *result.variants)
    files = {".csv": result.to_csv, ".tex": result.to_latex}
    deliver(Report(result.to_text, result_tables(results, transform), files), outputs, as_json=as_json)


def _evaluated(model: str | None) -> SentenceEncoder | Index:
    """What is named: a model, an index, or files with the texts of the tasks and their vectors."""
    if model is not None and (index := find_index(model, "evaluate")) is not None:
        return index
    paths = (model or "").split(",")
    sources = [open_source(path) for path in paths if Path(path).is_file()]
    tables = [source for source in sources if source.kind == "vectors"]
    return wrap_tables(tables) if len(tables) == len(paths) else open_model(model)


def _settings_for(transform: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that one of several transforms has."""
    names = [step.partition("?")[0].strip() for step in transform.split(",")]
    available = {setting for name in names if name in TRANSFORMS for setting in setting_names(name)}
    if AUTO in names:
        available |= {"n_components", "purpose"}
    return {setting: value for setting, value in settings.items() if setting in available}
