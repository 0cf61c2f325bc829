"""The command ``encode``."""

import os
from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.options import ModelChoice, with_model_flags
from isosent.cli.printing import err, out, print_unknown, progress_bar
from isosent.errors import InputError
from isosent.io.shards import DTYPES, SHARD_FORMATS, SHARD_SIZE, ShardIndex, Sharding, check_shard_folder
from isosent.io.texts import TextSource, open_texts
from isosent.io.vectors import check_vector_file
from isosent.jobs.encode import Encoded, encode_file, encode_folder
from isosent.model import SentenceEncoder

Texts = Annotated[
    str,
    typer.Argument(
        metavar="TEXTS", help=".txt (a line a text), .csv, .tsv, .jsonl, .parquet, or - for standard input."
    ),
]
Column = Annotated[str | None, typer.Option(metavar="NAME", help="Column that holds the texts of a table.")]


@with_model_flags()
def encode(
    texts: Texts,
    model: ModelChoice,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="OUT", help="File to write, .npy, .fvecs or .parquet; or a folder."),
    ],
    column: Column = None,
    queries: Annotated[
        bool,
        typer.Option("--queries", help="They are queries, which have a prompt or a mean of their own in some models."),
    ] = False,
    documents: Annotated[
        bool, typer.Option("--documents", help="They are documents, which have a prompt of their own in some models.")
    ] = False,
    store: Annotated[str, typer.Option(metavar="|".join(DTYPES), help="Type of the numbers written.")] = DTYPES[0],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(SHARD_FORMATS),
            show_default=False,
            help=f"A folder: format of its files. [default: {SHARD_FORMATS[0]}]",
        ),
    ] = None,
    shard_size: Annotated[
        int | None,
        typer.Option(metavar="N", show_default=False, help=f"A folder: texts a file. [default: {SHARD_SIZE}]"),
    ] = None,
) -> None:
    """Turn texts into vectors, row i for text i.

    A .npy or .fvecs file holds the vectors, a .parquet file the texts beside them. The fingerprint of the vector space
    is in the metadata of the .parquet file; beside the others lies OUT.isosent.json with it. The file appears when it
    is whole; an older one stays until then.

    A folder (a name without an ending, or with a / behind it) gets part-00000.npy, part-00001.npy and so on, and
    shards.json, which says what they are. Where a run was killed, the same command goes on behind the last whole one.

    Texts are read block by block, whatever their number.
    """
    if queries and documents:
        raise InputError("Texts are --queries or --documents; got both. Leave one out.")
    role = "query" if queries else "document" if documents else "text"
    sharding = None
    if Path(output).is_dir() or not Path(output).suffix or output.endswith(("/", os.sep)):
        sharding = Sharding(SHARD_SIZE if shard_size is None else shard_size, file_format or SHARD_FORMATS[0], store)
        check_shard_folder(Path(output))
    else:
        check_vector_file(output, store)
        if file_format is not None or shard_size is not None:
            raise InputError(f"--format and --shard-size go with a folder; {output} is one file. Leave them out.")
    with open_texts(texts, column=column) as source:
        opened = model.open()
        if sharding:
            encoded = _into_folder(opened, source, output, sharding, role)
        else:
            with progress_bar("encoding") as bar:
                encoded = encode_file(opened, source, output, dtype=store, role=role, progress=bar(source.n_texts))
    encoding_stats = encoded.encoding_stats
    shards = f", shards: {encoded.n_shards}" if sharding else ""
    out.print(
        f"{output}: {source.n_texts} x {encoded.dim} {store}{shards}; "
        f"texts without a vector: {encoding_stats.n_zero_rows}"
    )
    print_unknown((encoding_stats.n_tokens, encoding_stats.n_unknown) if opened.encoder.skips_unknown else (0, 0))


def _into_folder(model: SentenceEncoder, source: TextSource, output: str, sharding: Sharding, role: str) -> Encoded:
    def resumed(index: ShardIndex) -> None:
        going_on = "nothing is left to encode" if index.is_complete else "going on with the next"
        err.print(f"{output}: {index.n_written} of {index.n_shards} shards are there; {going_on}")

    with progress_bar("encoding") as bar:
        return encode_folder(
            model,
            source,
            output,
            sharding=sharding,
            role=role,
            resumed=resumed,
            progress=bar(source.n_texts),
        )
