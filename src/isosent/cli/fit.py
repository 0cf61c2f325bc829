"""The commands ``demo`` and ``fit``.

``fit`` makes a `FitRequest` of its options; the request refuses those that do not go together. `fit_report` says what
came out: the recommendation, what was measured, and last what was saved.

``demo`` prints the lines of `_demo_steps`, each step with the commands that do it.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from isosent.cli.options import (
    PATH,
    Share,
    checkpoint_option,
    details_option,
    either_column_option,
    model_folder_option,
    model_option,
    shard_size_option,
    space_option,
    transform_options,
    vector_texts_option,
    worker_options,
)
from isosent.cli.printing import (
    GAIN,
    change_table,
    choice_table,
    deliver,
    erasure_table,
    folds_table,
    likelihood_change,
    pairs_table,
    say,
    say_replaced,
    say_unused_vectors,
    show,
    tokens_line,
)
from isosent.demo import (
    ERASE,
    FALSE_POSITIVES,
    FIT,
    QUERIES,
    SEARCH,
    SHORTEN,
    DemoReport,
    run_demo,
    write_texts,
)
from isosent.encoders.precomputed import PRECOMPUTED
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.jobs.fit import FitResult, run_fit
from isosent.jobs.fit_request import FitRequest
from isosent.jobs.inspect import groups_warning
from isosent.pages.report import Note, Part, Report
from isosent.persistence import check_model_folder
from isosent.report.inspect_page import sizes_table
from isosent.transforms.auto import saved_choice

_FEW_KEPT = 0.5  # of the neighbors

# how a fit is called for people; a fit that changes nothing has no name
_FIT_NAMES = {"none": "", "principal_components": "PCA", "mean_centering": "centering", "erasure": "erasure"}


@click.command()
@click.option(
    "--texts", type=PATH, metavar="DIR", help="Folder to write the texts to, for the commands that it prints."
)
def demo(texts: Path | None) -> None:
    """Show what isosent does in four steps on bundled sentences, offline: erase a language, whiten, shorten, search.

    Each step ends with the commands that do it. With --texts, they run as printed in that folder.

    \b
    isosent demo
    isosent demo --texts try
    """  # noqa: D301
    written = write_texts(texts) if texts else []
    show("On bundled sentences: erase a language, whiten, leave a good model alone, and search with an honest no.")
    report = run_demo()
    for number, lines in enumerate(_demo_steps(report), 1):
        show(f"\n{number}. " + "\n   ".join(lines))
    show(f"\nAll of this took {report.elapsed_s:.1f} s, offline.")
    if written:
        show(f"The commands above run in this folder: {texts} (with {' and '.join(path.name for path in written)}).")
    else:
        show("To run the commands above: isosent demo --texts try, then: cd try")
    show("Your own texts, one per line, begin with: isosent inspect YOUR.txt")


def _demo_steps(report: DemoReport) -> Iterator[list[str]]:
    """Lines of each step: a title, results, what they mean, and the commands."""
    pool, sample, searched = report.translations, report.shortened, report.searched
    yield [
        "One pool in four languages: most texts find only their own language. Erase it.",
        f"With their English translation among the 10 nearest: {pool.original:.0%} before, {pool.erased:.0%} after "
        f"({pool.n_queries} sentences held out of the fit, among {pool.n_texts}).",
        f"{pool.example}  before: {pool.example_original}",
        f"{'':{len(pool.example)}}  after:  {pool.example_erased}",
        "Even with wordllama, made for English. Erase what you know of your texts and do not search for.",
        f"  {ERASE}",
    ]
    yield [
        "The same pool without a label: is a transform worth it?",
        f"{pool.recommendation}",
        f"With their English translation among the 10 nearest: {pool.original:.0%} before, {pool.fitted:.0%} after.",
        "Both numbers: fitted on half of the pool, measured on the rest. The command below fits on all of it: with",
        "twice the texts, isosent sees that they are separate groups, advises to erase, and keeps the vectors.",
        "Centering evens out a space in which texts look alike for the wrong reason, such as their language.",
        f"  {FIT}",
    ]
    before, after = sample.n_bytes
    yield [
        f"A good model: wordllama on {sample.n_texts} English sentences.",
        sample.recommendation,
        f"As int8, {after} instead of {before:,} bytes per vector: {sample.recall:.0%} of the 10 nearest stay, and "
        f"{sample.n_found[1]} of {sample.n_paraphrased} sentences find their paraphrase (before: {sample.n_found[0]}).",
        "Leave a good model alone, and store its vectors in fewer bytes.",
        "  isosent inspect texts.txt",
        f"  {SHORTEN}",
    ]
    title = "Search that says no when nothing matches"
    if searched is None:
        yield [f"{title}. Needs: pip install 'isosent[search]'", *(f"  {command}" for command in SEARCH)]
        return
    width = max(map(len, QUERIES))
    yield [
        f"{title}, in {searched.n_bytes:.0f} bytes of memory per vector ({searched.recall:.0%} of the 10 nearest stay)",
        *(f"{query:<{width}}  {match or 'no match'}" for query, match in zip(QUERIES, searched.matches, strict=True)),
        f"Of the queries that nothing matches, about {FALSE_POSITIVES:.0%} get a result all the same.",
        *(f"  {command}" for command in SEARCH),
    ]


@click.command()
@click.argument("inputs", nargs=-1)
@model_option
@transform_options()
@model_folder_option
@either_column_option
@click.option("--erase", metavar="COLUMN", help="Erase what this column tells, such as the language of each text.")
@click.option(
    "--pairs",
    metavar="FILE",
    help="Fit on pairs: two columns of matching texts; or the queries of vectors. With --erase: count those found.",
)
@click.option(
    "--queries",
    metavar="[FILE]",
    is_flag=False,
    flag_value="",
    help="Queries like those to come, if they differ from the documents; with --pairs, transform queries only.",
)
@vector_texts_option
@space_option
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
    type=Share(0, 1, max_open=True),
    metavar="SHARE",
    help="Take the least memory that loses at most this share of the neighbors, such as 1%.",
)
@details_option
@shard_size_option
@worker_options
def fit(inputs: tuple[str, ...], output: Path, column: str | None, queries: str | None, **values: Any) -> None:
    """Fit a transform on texts or vectors, without labels, and save the model.

    INPUTS are files of texts (- for standard input), of vectors (.npy, .parquet, .arrow, .hdf5 and others), or of
    moments (see "isosent moments"), or the URL of a proxy that learns (see "isosent proxy"). Use texts like
    those you will compare, more of them than dimensions.

    The default, --transform auto, chooses a strength of whitening or no transform; with --dims, the strength for that
    width. It needs texts: name those of vectors with --texts, or it keeps the principal components. A weighting that
    learns from texts (sif, usif, p_mean, gem) is fitted first. A model of vectors is used with "isosent transform".
    With --transform none, it leaves vectors unchanged: for int8 codes and bits, and to see drift.

    With --pairs, the transform is fitted on matching texts, such as questions and answers. For vectors, --pairs holds
    the query of each vector of INPUTS. A fifth of the pairs is held out; unless these are ranked better beyond chance,
    the model is saved unchanged. If two columns such as query_lang and document_lang name the language or other group
    of each text, a transform for each group is tried, too. With --erase, nothing is fitted on the pairs, such as
    translations: how many find each other is counted before and after.

    With --bytes or --loss, dimensions and dtype are chosen by measuring how many of the nearest neighbors of the
    original vectors are kept; nothing is whitened, unless --strength, --transform or --for says so. The model holds
    both, and "isosent index -m FOLDER" stores vectors so.

    \b
    isosent fit texts.txt -m wordllama --dims 128 -o model
    isosent fit vectors.npy --texts texts.txt --bytes 200 -o model
    isosent fit pool.csv --column text --erase lang -o model
    isosent fit --pairs pairs.csv -o model
    """  # noqa: D301
    say_replaced("a model", output, check_model_folder(output) and Path(values["model"] or "") != output)
    if values["pairs"] is None and not inputs:
        raise click.UsageError("Missing argument 'INPUTS...'.")
    file = queries or None
    request = FitRequest(
        inputs=inputs, output=output, column=column, queries=file, queries_only=queries == "", **values
    )
    result = run_fit(request, say=say)
    for path in inputs if column is not None and result.unit.endswith("texts") else ():
        say_unused_vectors(path, column)
    deliver(Report(parts=[*fit_report(result, request)]))


def fit_report(result: FitResult, request: FitRequest) -> Iterator[Part]:
    """Lines and tables, in the order of reading."""
    yield from _recommendation(result)
    yield from _effects(result, details=request.details)
    yield from _measurements(result)
    if result.n_tokens:
        yield tokens_line(result.n_tokens, result.n_unknown, result.model.encoder.languages)
    yield f"Saved {request.output}: {_saved(result, request)}"
    if result.unit == "pairs" and (groups := result.model.groups) is not None:
        yield (
            f"From now on texts need their group: a column {groups.column} in tables, --group for a search. "
            f"Without one, they count as {groups.reference}."
        )
    if result.follows_fit:
        yield f"{request.model or DEFAULT_REFERENCE} was fitted before; the new transform follows the old one."
    if result.loses_storage:
        yield Note(
            f"note: the size chosen for {request.model} is not kept. Use --bytes in the last fit, or isosent index "
            "--store."
        )


def _recommendation(result: FitResult) -> Iterator[str]:
    """What auto says, if it was asked: for a size, that nothing was recommended without texts is no answer."""
    choices = [saved_choice(fit.choice) for fit in result.model.fits if fit.choice and fit.transform != "erasure"]
    if not choices:
        return
    is_new = result.record is not None and bool(result.record.choice)
    is_asked = is_new if result.size is None else any(choice and choice.candidates for choice in choices)
    if is_asked and (last := choices[-1]) is not None:
        is_erased = any(fit.transform == "erasure" for fit in result.model.fits[-2:])
        yield f"{'After erasing: ' * is_erased}{last.reason}"
        if last.candidates:
            yield GAIN


def _effects(result: FitResult, *, details: bool) -> Iterator[Part]:
    """What erasing has changed, and what was compared: sizes, candidates of auto, or maps on pairs."""
    record = result.record
    choice = None if record is None else record.choice
    for erased in [fit for fit in result.model.fits[-2:] if fit.transform == "erasure"]:
        yield erasure_table(erased)
    if (found := result.pairs_found) is not None:
        yield (
            f"Pairs of which one text is among the ten nearest of the other: {found.before:.1%} before, "
            f"{found.after:.1%} after ({found.n_pairs:,} pairs, searched among {found.n_texts:,} texts)."
        )
    if result.size is not None:
        yield from _sizes(result, details=details)
    elif details and (compared := saved_choice(choice)) is not None and compared.candidates:
        yield choice_table(compared)
    if result.unit == "pairs" and choice:
        yield pairs_table(choice)
        if details:
            yield folds_table(choice)
    if record is not None and record.history:
        yield likelihood_change(record.history)


def _sizes(result: FitResult, *, details: bool) -> Iterator[Part]:
    """The front, the size that was chosen, and whose neighbors were counted."""
    measured, size = result.sizes, result.size
    assert measured is not None
    assert size is not None
    yield sizes_table(measured, selected=size, details=details)
    if size.original_recall is None:
        yield "Neighbors are those of the original vectors."
    else:
        yield (
            "Two goals differ here: the requested transform changes who is near. Neighbors are those of the "
            f"transformed vectors; of the original neighbors, {size.original_recall:.3f} are kept. To keep these, "
            "leave the transform out."
        )
    yield measured.sentence(size)
    if result.n_vectors:
        yield (
            f"Among all {result.n_vectors:,} vectors another share is lost, often a larger one: isosent index measures "
            "it, and says so."
        )
    if size.recall < _FEW_KEPT:
        yield Note(
            f"warning: only {size.recall:.0%} of the neighbors are kept. Searches will miss most; allow more --bytes."
        )


def _measurements(result: FitResult) -> Iterator[Part]:
    """The space before and after, the neighbors that are kept, and groups."""
    if result.spaces is not None and (result.size is not None or result.spaces[0] != result.spaces[1]):
        before, after = result.spaces
        if result.size is not None:  # of the codes that the model stores
            after = replace(after, size_bytes=round(result.size.n_bytes))
        yield change_table(before, after, result.described)
    if result.recalls:
        recalls = ", ".join(f"{each.label} {each.recall:.3f}" for each in result.recalls)
        first = result.recalls[0]
        yield (
            f"recall@10 of the original neighbors with {first.n_components} dimensions, held-out queries among "
            f"{first.n_texts:,} vectors: {recalls}"
        )
    if result.groups is not None and not any(fit.transform == "erasure" for fit in result.model.fits):
        yield Note(f"warning: {groups_warning(result.groups)}")


def _saved(result: FitResult, request: FitRequest) -> str:
    """What the folder holds, such as "wordllama + PCA, 128 dimensions, fitted on 480 texts"."""
    model, record = result.model, result.record
    fits = [_FIT_NAMES.get(fit.transform, fit.transform.replace("_", " ")) for fit in model.fits]
    source = model.record.name.partition(" -> ")[0]
    if source == PRECOMPUTED:
        source = "vectors of an unnamed model"
    parts = [" + ".join([source, *(name for name in fits if name)])]
    stored = "" if result.size is None else f"; isosent index -m {request.output} stores {result.size.dtype_label}"
    if record is None or not any(fits):
        return f"{parts[0]}, {model.dim} dimension{'s' * (model.dim != 1)} unchanged{stored}"
    parts.append(f"{model.dim} dimension{'s' * (model.dim != 1)}")
    parts.append(
        f"fitted on {record.n_texts:,} {result.unit.removesuffix('s') if record.n_texts == 1 else result.unit}"
    )
    if record.n_zero_rows:
        counted = "pairs" if result.unit == "pairs" else "texts"
        zero = "zero rows left out" if result.unit == "vectors" else f"{counted} without a vector"
        parts.append(f"{zero}: {record.n_zero_rows}")
    return ", ".join(parts) + stored
