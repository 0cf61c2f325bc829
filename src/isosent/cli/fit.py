"""The commands ``demo`` and ``fit``."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from isosent.cli.options import (
    PATH,
    checkpoint_option,
    details_option,
    either_column_option,
    model_options,
    shard_size_option,
    transform_options,
    vector_texts_option,
    worker_options,
)
from isosent.cli.printing import (
    GAIN,
    change_table,
    choice_table,
    erasure_table,
    likelihood_change,
    say,
    show,
    show_tokens,
)
from isosent.demo import DEMO_COMPONENTS, run_demo
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.jobs.fit import FitResult, Goal, fit_files
from isosent.jobs.inspect import groups_warning
from isosent.jobs.shards import Engine
from isosent.pages.progress import progress_bar
from isosent.persistence import check_model_folder
from isosent.report.inspect_page import sizes_table
from isosent.transforms.base import resolve_transform

# how a fit is called for people; a fit that changes nothing has no name
_FIT_NAMES = {"none": "", "principal_components": "PCA", "mean_centering": "centering", "erasure": "erasure"}


@click.command()
def demo() -> None:
    """Encode a bundled sample, shorten its vectors, save and reload, offline, and show what changed. Takes seconds.

    \b
    isosent demo
    """  # noqa: D301
    with tempfile.TemporaryDirectory() as temporary:
        report = run_demo(Path(temporary) / "model")
    before, after = report.before, report.after
    title = f"wordllama, {report.n_texts} sentences, --dims {DEMO_COMPONENTS}"
    table = change_table(before.space, after.space, title)
    table.add_row(f"paraphrases found, of {report.n_paraphrased}", f"{before.n_found}", f"{after.n_found}")
    show(table)
    for query, *neighbours in zip(report.queries, before.neighbours, after.neighbours, strict=True):
        show(f"\nnearest to: {query}")
        for label, neighbour in zip(("before", "after"), neighbours, strict=True):
            note = "  (same meaning)" if neighbour.same_meaning else ""
            show(f"  {label:<6} {neighbour.score:5.2f}  {neighbour.text}{note}")
    show(f"\n{report.verdict}")
    show(f"Full whitening (strength 1) to the same dimensions finds {report.n_found_at_full_strength} paraphrases.")
    identical = "bit-identical vectors" if report.reloaded_identical else "DIFFERENT vectors"
    show(f"Saved and loaded: {identical}. {report.elapsed_s:.1f} s in total.")
    show("Do the same with your texts: isosent fit TEXTS -o my-model")


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@model_options
@transform_options()
@click.option("--output", "-o", type=PATH, metavar="FOLDER", required=True, help="Model folder to write.")
@either_column_option
@click.option("--erase", metavar="COLUMN", help="Erase what this column tells, such as the language of each text.")
@click.option("--queries", metavar="FILE", help="Queries like those to come, if they differ from the documents.")
@vector_texts_option
@click.option("--space", metavar="NAME", help="Vectors: what made them, such as text-embedding-3-small.")
@checkpoint_option
@click.option(
    "--bytes",
    "n_bytes",
    type=click.FloatRange(1),
    metavar="N",
    help="Keep the most neighbors within N bytes of memory a vector.",
)
@click.option(
    "--loss",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="SHARE",
    help="Take the least memory that loses at most this share of the neighbors, as 0.01.",
)
@details_option
@shard_size_option
@worker_options
def fit(
    inputs: tuple[str, ...],
    model: str | None,
    transform: str,
    settings: dict[str, Any],
    output: Path,
    column: str | None,
    erase: str | None,
    queries: str | None,
    texts: str | None,
    space: str | None,
    checkpoint: Path | None,
    n_bytes: float | None,
    loss: float | None,
    details: bool,
    shard_size: int | None,
    engine: Engine | None,
) -> None:
    """Fit a transform on texts or vectors, without labels, and save the model.

    INPUTS are files of texts (- for standard input), of vectors (.npy, .fvecs, .bvecs, .safetensors, .parquet, lists in
    .json or .jsonl), or of moments (see "isosent moments"), or the URL of a proxy that learns (see "isosent proxy").
    Use texts like those you will compare, more of them than dimensions.

    The default, --transform auto, chooses a strength of whitening or no transform; with --dims, the strength for that
    width. It needs texts: name those of vectors with --texts, or it keeps the principal components. A weighting that
    learns from texts (sif, usif, p_mean, gem) is fitted first. A model of vectors is used with "isosent transform".
    With --transform none, it leaves vectors as they are: for int8 codes and bits, and to see drift.

    With --bytes or --loss, dimensions and dtype are chosen by measuring how many of the nearest neighbors are kept. The
    model holds both, and "isosent index -m FOLDER" stores vectors so.

    \b
    isosent fit texts.txt -m wordllama --dims 128 -o model
    isosent fit vectors.npy --texts texts.txt --bytes 200 -o model
    isosent fit pool.csv --column text --erase lang -o model
    """  # noqa: D301
    check_model_folder(output)
    if None not in (n_bytes, loss):
        raise InputError("fit: --bytes and --loss both set the size. Leave one out.")
    result = fit_files(
        inputs,
        output,
        model,
        resolve_transform(transform, settings),
        column=column,
        erase=erase,
        queries=queries,
        texts=texts,
        space=space,
        checkpoint=checkpoint,
        engine=engine,
        shard_size=shard_size,
        goal=None if n_bytes is loss is None else Goal(n_bytes, loss),
        codecs=details,
        bars=progress_bar,
        say=say,
    )
    _show_fit(result, output, details=details)
    if result.follows_fit:
        show(f"{model or DEFAULT_REFERENCE} was fitted before; the new transform follows the old one.")


def _show_fit(result: FitResult, output: Path, *, details: bool) -> None:
    """The recommendation, then what was measured, then what was saved."""
    record = result.record
    choices = [fit.choice for fit in result.model.fits if fit.choice and fit.transform != "erasure"]
    if choices and (result.size is not None or (record is not None and record.choice)):
        show(choices[-1]["reason"])
        if choices[-1]["candidates"]:
            show(GAIN)
    for erased in [fit for fit in result.model.fits[-2:] if fit.transform == "erasure"]:
        show(erasure_table(erased))
    if result.sizes is not None and result.size is not None:
        _show_size(result, details=details)
    elif details and record is not None and record.choice and record.choice.get("candidates"):
        show(choice_table(record.choice))
    if record is not None and record.history:
        show(likelihood_change(record.history))
    if result.spaces is not None and (result.size is not None or result.spaces[0] != result.spaces[1]):
        before, after = result.spaces
        if result.size is not None:  # of the codes that the model stores
            after = replace(after, size_bytes=round(result.size.n_bytes))
        show(change_table(before, after, result.described))
    if result.recalls:
        recalls = ", ".join(f"{each.label} {each.recall:.3f}" for each in result.recalls)
        first = result.recalls[0]
        show(
            f"recall@10 of the original neighbors with {first.n_components} dimensions, held-out queries among "
            f"{first.n_texts:,} vectors: {recalls}"
        )
    if result.groups is not None and not any(fit.transform == "erasure" for fit in result.model.fits):
        say(f"warning: {groups_warning(result.groups)}")
    show_tokens(result.n_tokens, result.n_unknown, result.model.encoder.languages)
    show(f"Saved {output}: {_saved(result)}")


def _saved(result: FitResult) -> str:
    """What the folder holds, such as "wordllama + PCA, 128 dimensions, fitted on 480 texts"."""
    model, record = result.model, result.record
    fits = [_FIT_NAMES.get(fit.transform, fit.transform.replace("_", " ")) for fit in model.fits]
    parts = [" + ".join([model.record.name.partition(" -> ")[0], *(name for name in fits if name)])]
    if record is None or not any(fits):
        return f"{parts[0]}, unchanged"
    parts.append(f"{model.dim} dimension{'s' * (model.dim != 1)}")
    parts.append(
        f"fitted on {record.n_texts:,} {result.unit.removesuffix('s') if record.n_texts == 1 else result.unit}"
    )
    if record.n_zero_rows:
        zero = "zero rows left out" if result.unit == "vectors" else "texts without a vector"
        parts.append(f"{zero}: {record.n_zero_rows}")
    return ", ".join(parts)


def _show_size(result: FitResult, *, details: bool) -> None:
    """The front, the size that was chosen, and whose neighbors were counted."""
    measured, size = result.sizes, result.size
    assert measured is not None
    assert size is not None
    show(sizes_table(measured, chosen=size, details=details))
    if size.original_recall is None:
        show("Neighbors are those of the original vectors.")
    else:
        show(
            "Two goals differ here: the transform ranks texts better than the original vectors do, and so changes who "
            "is near. Neighbors are those of the transformed vectors; of the original neighbors, "
            f"{size.original_recall:.3f} are kept. To keep these, leave the transform out: --transform "
            "principal_components?center=false"
        )
    show(measured.sentence(size))
