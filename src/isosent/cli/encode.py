"""The commands ``encode``, ``transform`` and ``moments``.

The first two write one file, or a folder of shards, which workers make (`_sharding` says which). ``--dry-run`` of
encode asks the encoder for an estimate. All open their inputs before a model is loaded, so that a wrong name is said
at once.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath

import click

from isosent.cli.options import (
    Command,
    checkpoint_option,
    column_option,
    either_column_option,
    model_option,
    open_model,
    output_option,
    shard_size_option,
    vector_column_option,
    worker_options,
)
from isosent.cli.printing import say, say_unused_vectors, show, show_tokens
from isosent.encoders.base import EncodingStats
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.io.remote import is_remote
from isosent.io.shards import SHARD_FORMATS, SHARD_SIZE, Sharding, check_shard_folder, input_paths
from isosent.io.source import open_source
from isosent.io.texts import TextSource, open_texts
from isosent.io.vectors import check_vector_file, open_vectors
from isosent.jobs.encode import encode_file, estimate_files, texts_encoded
from isosent.jobs.moments import check_moments_file, sum_of_files, vectors_and_moments, write_moments
from isosent.jobs.shards import Engine, encode_folder, how_resumed, transform_folder
from isosent.jobs.vectors import transform_file
from isosent.loading import read_record
from isosent.model import SentenceEncoder
from isosent.pages.progress import progress_bar
from isosent.role import RoleName
from isosent.storage import CODES, INDEXED, WRITTEN, Storage
from isosent.transforms.maps import GroupMaps

dtype_option = click.option("--dtype", type=click.Choice(WRITTEN), default=WRITTEN[0], help="Dtype of the output.")
vectors_output_option = output_option("OUT", "A .npy, .fvecs or .parquet file, or a folder.", kind=str)
_format_option = click.option(
    "--format", "file_format", metavar="|".join(SHARD_FORMATS), help="Folder: file format.  [default: npy]"
)


def shard_options(command: Command) -> Command:
    """Pass ``--format`` as ``file_format``, and ``--shard-size``."""
    return _format_option(shard_size_option(command))


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@model_option
@vectors_output_option
@column_option
@click.option("--queries", is_flag=True, help="Encode as queries, if the model treats them differently.")
@click.option("--documents", is_flag=True, help="Encode as documents, if the model treats them differently.")
@click.option("--dry-run", is_flag=True, help="Say what an API would be sent, and send nothing.")
@dtype_option
@shard_options
@worker_options
def encode(
    inputs: tuple[str, ...],
    model: str | None,
    output: str,
    column: str | None,
    queries: bool,
    documents: bool,
    dry_run: bool,
    dtype: str,
    file_format: str | None,
    shard_size: int | None,
    engine: Engine | None,
) -> None:
    """Turn texts into vectors, one row per text.

    INPUTS are .txt files (one text per line), .csv, .tsv, .jsonl, .parquet or .arrow tables, folders of such files, or
    - for standard input.

    A .parquet output keeps the other columns of a table. If OUT is a folder (a name without an ending, or with a
    trailing slash), it gets part-00000.npy, part-00001.npy and so on; run the same command again to resume. Workers
    need a folder. Inputs and the folder may lie elsewhere (s3://, gs://, hdfs://).

    \b
    isosent encode texts.txt -m model -o vectors.npy
    isosent encode tables/ --column text -o vectors/ --workers 4
    """  # noqa: D301
    if queries and documents:
        raise InputError("--queries and --documents exclude each other.")
    role: RoleName = "query" if queries else "document" if documents else "text"
    paths = input_paths(inputs, "texts")
    sharding = _sharding(output, paths, dtype, file_format, shard_size, engine)
    if dry_run:
        _show_estimate(model, paths, column, role)
        return
    if sharding is None:
        _encode_file(model, paths[0], output, column, role, dtype)
        return
    loaded = open_model(model)
    for path in paths:
        _say_reference(path, loaded.groups)
        say_unused_vectors(path, column)
    with progress_bar("encoding") as bar:
        index = encode_folder(
            loaded,
            paths,
            output,
            column=column,
            sharding=sharding,
            role=role,
            engine=engine,
            reference=model or DEFAULT_REFERENCE,
            resumed=lambda index: say(how_resumed(output, "encode", index)),
            progress=bar,
        )
    _show_encoded(output, loaded, EncodingStats(**index.counts), f"{index.dim} {dtype}, shards: {index.n_shards}")


def _encode_file(model: str | None, path: str, output: str, column: str | None, role: RoleName, dtype: str) -> None:
    with open_texts(path, column=column) as source:
        loaded = open_model(model)
        say_unused_vectors(path, column)
        _say_reference(path, loaded.groups)
        with progress_bar("encoding") as bar:
            dim, stats = encode_file(loaded, source, output, dtype=dtype, role=role, progress=bar)
    _show_encoded(output, loaded, stats, f"{dim} {dtype}")


def _show_estimate(model: str | None, paths: Sequence[str], column: str | None, role: RoleName) -> None:
    """Say what an API would be sent; nothing is, and nothing is written."""
    loaded = open_model(model)
    with progress_bar("reading") as bar:
        estimate = estimate_files(loaded, paths, column=column, role=role, progress=bar)
    n_sent = estimate.n_texts - estimate.n_cached
    show(
        f"{loaded.encoder.reference}: {n_sent:,} texts would be sent, about {estimate.n_tokens:,} tokens; "
        f"in the cache: {estimate.n_cached:,} texts"
    )


def _say_reference(path: str, groups: GroupMaps | None) -> None:
    """Say which group texts or vectors are taken for that are in no table."""
    if groups is not None and not TextSource(path).is_table:  # by its name: a worker may open it elsewhere
        say(f"note: {path} has no column {groups.column}, so all of it counts as {groups.reference}.")


def _show_encoded(output: str, model: SentenceEncoder, stats: EncodingStats, shape: str) -> None:
    show(f"{output}: {stats.n_texts} x {shape}; texts without a vector: {stats.n_zero_rows}")
    if model.encoder.skips_unknown:
        show_tokens(stats.n_tokens, stats.n_unknown, model.encoder.languages)


def _sharding(
    output: str,
    inputs: Sequence[str],
    dtype: str,
    file_format: str | None,
    shard_size: int | None,
    engine: Engine | None,
) -> Sharding | None:
    """How a result is cut into shards if it is a folder; None for one file."""
    if output == "-":
        raise InputError("--output -: vectors are not written to standard output. Name a file, such as vectors.npy.")
    is_folder = output.endswith(("/", os.sep)) or not PurePath(output).suffix
    if is_folder or (not is_remote(output) and Path(output).is_dir()):
        check_shard_folder(output)
        return Sharding(SHARD_SIZE if shard_size is None else shard_size, file_format or SHARD_FORMATS[0], dtype)
    check_vector_file(output, dtype)
    if engine is not None or file_format is not None or shard_size is not None:
        raise InputError(f"--workers, --on, --format and --shard-size are for a folder; {output} is one file.")
    if len(inputs) > 1:
        raise InputError(f"{len(inputs)} inputs need a folder for their vectors; {output} is one file.")
    if is_remote(output) or is_remote(inputs[0]):
        raise InputError(f"files elsewhere need a folder for the vectors; {output} is one file.")
    return None


@click.command()
@click.argument("vectors", nargs=-1, required=True)
@click.option("--model", "-m", metavar="FOLDER", required=True, help="Model that was fitted on such vectors.")
@vectors_output_option
@vector_column_option
@click.option("--queries", is_flag=True, help="They are vectors of queries, if the model treats them differently.")
@click.option(
    "--dtype",
    type=click.Choice([*WRITTEN, *CODES]),
    default=WRITTEN[0],
    help="Dtype of the output, or codes of a quantized model: int8, ubinary.",
)
@shard_options
@worker_options
def transform(
    vectors: tuple[str, ...],
    model: str,
    output: str,
    column: str | None,
    queries: bool,
    dtype: str,
    file_format: str | None,
    shard_size: int | None,
    engine: Engine | None,
) -> None:
    """Apply a fitted model to VECTORS, one output row per input row.

    The vectors must come from the encoder that the model was fitted on; the encoder itself is not loaded. Files may be
    larger than memory. A zero row stays zero. From .parquet to .parquet, the other columns are kept.

    With --dtype int8 or ubinary, an .npy file gets a byte or a bit per dimension, of vectors scaled to length 1, after
    "isosent quantize VECTORS -m MODEL". Python reads them back: model.quantization.decode(numpy.load(OUT), "int8").

    VECTORS and OUT may be folders, as for "isosent encode".

    \b
    isosent transform vectors.npy -m model -o smaller.npy
    """  # noqa: D301
    paths = input_paths(vectors, "vectors")
    sharding = _sharding(output, paths, WRITTEN[0] if dtype in CODES else dtype, file_format, shard_size, engine)
    if sharding is not None and dtype in CODES:
        raise InputError(f"transform: --dtype {dtype} is for one .npy file; {output} is a folder.")
    source = None if sharding else open_vectors(paths[0], column=column, are_queries=queries)
    record = read_record(model)
    for path in paths:
        _say_reference(path, record.postprocessing.groups)
    if source is None:
        with progress_bar("transforming", "vectors") as bar:
            index = transform_folder(
                record,
                paths,
                output,
                column=column,
                sharding=sharding,
                queries=queries,
                engine=engine,
                reference=model,
                resumed=lambda index: say(how_resumed(output, "transform", index)),
                progress=bar,
            )
        shape = f"{index.dim} {dtype}, shards: {index.n_shards}"
        show(f"{output}: {index.counts['n_texts']} x {shape}; zero rows: {index.counts['n_zero_rows']}")
        return
    with progress_bar("transforming", "vectors") as bar:
        n_zero_rows = transform_file(source, record, output, dtype=dtype, queries=queries, progress=bar)
    show(f"{output}: {source.n_rows} x {record.dim} {dtype}; zero rows: {n_zero_rows}")
    stored = "" if record.storage is None else record.storage.dtype
    if stored in INDEXED and (codes := Storage(stored).codes) in CODES and dtype not in CODES:
        show(f"The model was fitted for {codes}: isosent index stores it, and here --dtype {codes} does.")


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@output_option("FILE", "A .safetensors file.")
@model_option
@either_column_option
@checkpoint_option
def moments(
    inputs: tuple[str, ...], output: Path, model: str | None, column: str | None, checkpoint: Path | None
) -> None:
    """Compute the mean and covariance of vectors, and merge those computed before.

    INPUTS are files of texts, which the model encodes, of vectors (.npy, .parquet, .arrow, .hdf5 and others),
    or of moments: number, mean and covariance of vectors, which add up. "isosent fit MOMENTS -o FOLDER" gives the same
    model as a fit on all the vectors at once. Files may be larger than memory.

    \b
    isosent moments first.txt -m model -o first.safetensors
    isosent moments first.safetensors second.npy -o both.safetensors
    """  # noqa: D301
    check_moments_file(output)
    load_model = partial(open_model, model) if model else None
    opened = [open_source(path, column=column, moments=True) for path in inputs]
    if checkpoint is not None and any(source.kind == "texts" for source in opened):
        raise InputError("moments: --checkpoint is for vectors. Encode the texts first: isosent encode.")
    with progress_bar("reading", "rows") as bar, texts_encoded(opened, load_model, progress=bar) as sources:
        measured = sum_of_files(
            *vectors_and_moments(sources),
            checkpoint=checkpoint,
            resumed=lambda n_rows: say(f"resuming from row {n_rows:,}, as saved in {checkpoint}"),
            progress=bar,
        )
    write_moments(output, replace(measured, sources=inputs))
    show(
        f"{output}: {measured.moments.weight:.0f} vectors of {measured.moments.dim} dimensions; "
        f"zero rows left out: {measured.n_zero_rows}"
    )
