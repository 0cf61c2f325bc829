"""The commands ``demo``, ``fit`` and ``info``."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from isosent.cli.encode import checkpoint_option, measure, open_vector_files, say_resumed, shard_size_option
from isosent.cli.options import PATH, Model, details_option, json_option, model_options, transform_options
from isosent.cli.printing import (
    change_table,
    choice_table,
    likelihood_change,
    progress_bar,
    say,
    show,
    show_tokens,
    write_output,
)
from isosent.cli.workers import worker_options
from isosent.demo import DEMO_COMPONENTS, run_demo
from isosent.encoders.precomputed import PRECOMPUTED, PrecomputedVectors
from isosent.errors import InputError
from isosent.io.remote import copied, expanded, remove
from isosent.io.texts import TEXT_ENDINGS, is_table, read_texts
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import SHARD_SIZE, VECTOR_ENDINGS, holds_vectors
from isosent.jobs.shards import Engine, measure_folder, sample_texts
from isosent.jobs.vectors import FileMoments, check_encoder_space, is_url
from isosent.loading import read_record
from isosent.model import SentenceEncoder
from isosent.numeric.isotropy import describe_space
from isosent.persistence import check_model_folder
from isosent.report.inspect import find_groups, groups_warning, held_out_recall
from isosent.transforms.base import (
    NO_TRANSFORM,
    Auto,
    FitProgress,
    LinearTransform,
    is_flow,
    make_linear,
    resolve_transform,
    transform_name,
)

_DESCRIBED_ROWS = 10_000
_SAMPLED_TEXTS = 20_000  # for auto


@click.command()
@click.option("--output", "-o", type=PATH, metavar="FOLDER", help="Keep the model here.")
def demo(output: Path | None) -> None:
    """Encode a bundled sample, shorten its vectors, save and reload, offline, and show what changed. Takes seconds."""
    with tempfile.TemporaryDirectory() as temporary:
        report = run_demo(output or Path(temporary) / "model")
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
    if output:
        show(f"The model is in {output}. Use it: isosent encode TEXTS -m {output} -o vectors.npy")


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@model_options
@transform_options()
@click.option("--output", "-o", type=PATH, metavar="FOLDER", required=True, help="Model folder to write.")
@click.option("--column", metavar="NAME", help="Column of a table with the texts or the vectors.")
@click.option("--queries", metavar="FILE", help="Queries like those to come, if they differ from the documents.")
@click.option("--space", metavar="NAME", help="Vectors: what made them, such as text-embedding-3-small.")
@checkpoint_option
@details_option
@shard_size_option
@worker_options
def fit(
    inputs: tuple[str, ...],
    model: Model,
    transform: str,
    settings: dict[str, Any],
    output: Path,
    column: str | None,
    queries: str | None,
    space: str | None,
    checkpoint: Path | None,
    details: bool,
    shard_size: int | None,
    engine: Engine | None,
) -> None:
    """Fit a transform on texts or vectors, without labels, and save the model.

    INPUTS are files of texts (- for standard input), of vectors (.npy, .fvecs, .bvecs, .safetensors, .parquet), or of
    moments (see "isosent moments"), or the URL of a proxy that learns (see "isosent proxy"). Use texts like those you
    will compare, more of them than dimensions.

    The default, --transform auto, chooses a strength of whitening or no transform; with --dims or --bytes, the strength
    for that width. It needs texts: for vectors, it keeps the principal components. A weighting that learns from texts
    (sif, usif, p_mean, gem) is fitted first. A model of vectors is used with "isosent transform".
    """
    check_model_folder(output)
    if engine is not None:
        if (queries, space, checkpoint) != (None, None, None):
            raise InputError("fit: --queries, --space and --checkpoint do not go with --workers.")
        _fit_by_workers(inputs, model, transform, settings, output, column, engine, shard_size, details)
        return
    if shard_size is not None:
        raise InputError("fit: --shard-size is for --workers.")
    with copied(expanded(inputs, (*TEXT_ENDINGS, *VECTOR_ENDINGS), as_parts=False)) as (paths, named):
        kinds = {path: is_url(path) or holds_vectors(path, column=column) for path in paths}
        if len(set(kinds.values())) > 1:
            vectors, texts = (next(path for path in paths if kinds[path] is kind) for kind in (True, False))
            raise InputError(
                f"fit: inputs must be all texts or all vectors; got texts, {texts}, and vectors, {vectors}."
            )
        if all(kinds.values()):
            _fit_vectors(paths, named, model, transform, settings, output, column, queries, space, checkpoint)
        elif (space, checkpoint) != (None, None):
            raise InputError(f"fit: --space and --checkpoint are for vectors; {', '.join(paths)} holds texts.")
        else:
            _fit_texts(paths, named, model, transform, settings, output, column, queries, details)


def _fit_texts(
    inputs: Sequence[str],
    named: Callable[[str], str],
    model: Model,
    transform: str,
    settings: Mapping[str, Any],
    output: Path,
    column: str | None,
    queries_file: str | None,
    details: bool,
) -> None:
    texts = [text for path in inputs for text in read_texts(path, column=column)]
    queries = (
        None if queries_file is None else read_texts(queries_file, column=column if is_table(queries_file) else None)
    )
    before, source = model.open(), named(", ".join(inputs))
    n_fits = len(before.fits)
    chosen = resolve_transform(transform, settings, dim=before.dim)
    if chosen is None and queries is not None:
        raise InputError("fit: --queries needs a transform; got none.")
    learns = before.encoder.needs_corpus
    with progress_bar("encoding") as bar:
        before = after = before.fitted(texts, None, source=source, progress=bar(len(texts)) if learns else None)
        if chosen is not None:
            encoder = before.encoder if queries is None else before.encoder.for_documents()
            encoded = encoder.encode(texts, progress=bar(len(texts)))
            after = before.fitted(
                texts, chosen, queries=queries, encoded=encoded, source=source, report=_show_likelihood
            )
    after.save(output)
    if chosen is not None:
        _show_fit(after, details=details)
        vectors = before.transform(encoded)
        show(change_table(describe_space(vectors), describe_space(after.transform(encoded))))
        _warn_of_groups(vectors)
    if len(after.fits) == n_fits:
        show(f"{output}: nothing to fit; saved the encoder as it is")
    else:
        record = after.fits[-1]
        texts_used = f"{record.n_texts} distinct texts" if record.choice else f"{record.n_texts} texts"
        show(f"{output}: fitted on {texts_used}; texts without a vector: {record.n_zero_rows}")
    show_tokens(*before.encoder.coverage(texts), before.encoder.languages)
    if n_fits and chosen is not None and after.fits[-1].transform != NO_TRANSFORM:
        show(f"{model.reference} was fitted before; the new transform follows the old one.")


def _fit_by_workers(
    inputs: Sequence[str],
    model: Model,
    transform: str,
    settings: Mapping[str, Any],
    output: Path,
    column: str | None,
    engine: Engine,
    shard_size: int | None,
    details: bool,
) -> None:
    before, paths = model.open(), expanded(inputs, TEXT_ENDINGS)
    chosen = resolve_transform(transform, settings, dim=before.dim)
    if chosen is None or is_flow(chosen):
        raise InputError(f"fit: --workers are for a linear transform; got {transform}.")
    if before.encoder.needs_corpus:
        raise InputError(
            "fit: a weighting is fitted in one process. Fit it on a part of the texts with --transform none, and name "
            "its folder with -m."
        )
    folder = f"{output}.shards"
    with progress_bar("encoding") as bar:
        measured, index = measure_folder(
            *(before, paths, folder),
            column=column,
            shard_size=SHARD_SIZE if shard_size is None else shard_size,
            engine=engine,
            reference=model.reference,
            options=model.options,
            resumed=partial(say_resumed, folder, "encode"),
            progress=bar,
        )
    texts = sample_texts(index, _SAMPLED_TEXTS, column=column)
    after = before.fitted_on_moments(
        measured.moments, chosen, texts=texts, n_zero_rows=measured.n_zero_rows, source=", ".join(inputs)
    )
    after.save(output)
    remove(folder)
    _show_fit(after, details=details)
    encoded = before.encoder.encode(texts[:_DESCRIBED_ROWS])
    show(change_table(describe_space(before.transform(encoded)), describe_space(after.transform(encoded))))
    record = after.fits[-1]
    show(f"{output}: fitted on {record.n_texts} texts; texts without a vector: {record.n_zero_rows}")


def _fit_vectors(
    inputs: Sequence[str],
    named: Callable[[str], str],
    model: Model,
    transform: str,
    settings: Mapping[str, Any],
    output: Path,
    column: str | None,
    queries: str | None,
    space: str | None,
    checkpoint: Path | None,
) -> None:
    sources, merged = open_vector_files(inputs, column)
    empty = reduce(add, [*merged, *map(FileMoments.empty_for, sources)])
    dim = empty.moments.dim
    if not model.is_named:
        before = SentenceEncoder(PrecomputedVectors.of_space(dim, empty.space, space))
    elif space is not None:
        raise InputError("fit: --space and --model both name what made the vectors. Leave one out.")
    else:
        before = model.open()
        if before.encoder.dim != dim:
            raise InputError(
                f"{inputs[0]}: the vectors have {dim} dimensions; those of {model.reference} have {before.encoder.dim}."
            )
        check_encoder_space(before.record, " + ".join(inputs), empty.space)
    chosen = resolve_transform(transform, settings, dim=before.dim)
    if chosen is None:
        raise InputError("fit: vectors need a transform to fit; got none.")
    if is_flow(chosen) and (merged or queries is not None or checkpoint is not None):
        raise InputError("fit: a flow needs vectors; moments, --queries and --checkpoint do not go with it.")
    if is_flow(chosen):
        vectors = np.concatenate([block for source in sources for block in source.blocks()])
        names = named(", ".join(str(source.path) for source in sources))
        after = before.fitted_on_vectors(vectors, chosen, source=names, report=_show_likelihood)
    else:
        query_files = None if queries is None else open_vector_files([queries], column)
        if query_files:
            # refused before anything is read
            reduce(add, [empty, *query_files[1], *map(FileMoments.empty_for, query_files[0])])
        measured = measure(sources, merged, checkpoint=checkpoint)
        query_moments = measure(*query_files).moments if query_files else None
        after = before.fitted_on_moments(
            measured.moments,
            chosen,
            query_moments=query_moments,
            n_zero_rows=measured.n_zero_rows,
            source=named(", ".join(measured.sources)),
        )
    after.save(output)
    _show_fit(after)
    if sources:
        sample = _sampled_rows(sources[0])
        vectors, title = before.transform(sample), f"{len(sample):,} vectors of {named(str(sources[0].path))}"
        show(change_table(describe_space(vectors), describe_space(after.transform(sample)), title))
        if after.fits[-1].transform != NO_TRANSFORM and not is_flow(chosen):
            _show_recall(vectors, chosen, after.dim)
        _warn_of_groups(vectors)
    record = after.fits[-1]
    show(f"{output}: fitted on {record.n_texts} vectors; zero rows left out: {record.n_zero_rows}")


def _sampled_rows(source: VectorSource) -> NDArray[np.floating]:
    """Random nonzero rows from the beginning of a file."""
    # A second pass over all of a large file would take too long for a report.
    picked = np.random.default_rng(0).permutation(min(source.n_rows, 10 * _DESCRIBED_ROWS))[:_DESCRIBED_ROWS]
    start, rows = 0, []
    for block in source.blocks():
        here = picked[(picked >= start) & (picked < start + len(block))]
        rows.append(block[here - start])
        start += len(block)
        if start > picked.max():
            break
    sample = np.concatenate(rows)
    return sample[sample.any(axis=1)]


def _warn_of_groups(vectors: NDArray[np.floating]) -> None:
    if groups := find_groups(vectors):
        say(f"warning: {groups_warning(groups)}")


def _show_likelihood(progress: FitProgress) -> None:
    bits = f"{progress.held_out_bits:.4f} bits per dimension, held-out rows"
    say(f"{progress.n_rows:,} of {progress.n_total:,} rows: {bits}")


def _show_fit(model: SentenceEncoder, *, details: bool = False) -> None:
    record = model.fits[-1]
    if record.choice:
        if details and record.choice["candidates"]:
            show(choice_table(record.choice))
        show(record.choice["reason"])
    if record.history:
        show(likelihood_change(record.history))


def _show_recall(sample: NDArray[np.floating], chosen: LinearTransform | Auto, width: int) -> None:
    """Neighbour recall of the map, next to principal components of the same size."""
    components = make_linear("principal_components", settings={"n_components": min(width, sample.shape[1])})
    transforms = {"principal components": components}
    if not isinstance(chosen, Auto):
        transforms = {transform_name(chosen).replace("_", " "): chosen} | transforms
    recalls = {name: held_out_recall(sample, transform) for name, transform in transforms.items()}
    if measured := [f"{name} {recall:.3f}" for name, recall in recalls.items() if recall is not None]:
        show(f"recall@10 of the original neighbors with {width} dimensions, held-out rows: {', '.join(measured)}")


@click.command()
@click.argument("model")
@json_option
def info(model: str, json_output: Path | None) -> None:
    """Describe a model: encoder, options, dimensions, fits and the fingerprint of its vectors."""
    facts = read_record(model).facts()
    if write_output(json_output, json.dumps(facts, indent=2, ensure_ascii=False) + "\n"):
        return
    lines = [(name.replace("_", " "), _plain(value)) for name, value in facts.items() if name != "fits"]
    unit = "vectors" if facts["reference"] == PRECOMPUTED else "texts"
    for step, record in enumerate(facts["fits"], start=1):
        steps = record["parameters"].get("steps") if record["transform"] == "chain" else None
        if not (isinstance(steps, list) and all(isinstance(each, dict) for each in steps) and steps):
            steps = [{"transform": record["transform"], **record["parameters"]}]
        calls = []
        for each in steps:
            settings = {name: value for name, value in each.items() if name != "transform"}
            calls.append(f"{each.get('transform')}({_plain(settings) if settings else ''})")
        lines.append((f"fit {step}", "none, chosen by auto" if record["transform"] == "none" else calls[0]))
        lines += [("", f"then {call}") for call in calls[1:]]
        lines.append(("", f"on {record['n_texts']} {unit} of {record['source']}, {record['fitted_at']}"))
        counted = "zero rows left out" if unit == "vectors" else "texts without a vector"
        lines.append(("", f"{counted}: {record['n_zero_rows']}"))
        if record.get("choice"):
            lines.append(("", f"auto: {record['choice']['reason']}"))
        if record.get("history"):
            lines.append(("", likelihood_change(record["history"])))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        show(f"{name:<{width}}  {value}")


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_plain(inner)}" for name, inner in value.items()) or "none"
    return str(value)
