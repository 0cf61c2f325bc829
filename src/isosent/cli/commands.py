"""The commands ``demo``, ``encode``, ``fit`` and ``info``."""

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.model_options import ModelChoice, with_model_flags
from isosent.cli.printing import change_table, facts_table, print_demo
from isosent.cli.terminal import out, progress_bar
from isosent.demo.run import run_demo
from isosent.files.texts import read_texts
from isosent.files.vectors import check_vector_file, write_vectors
from isosent.model_folder import check_model_folder
from isosent.numeric.isotropy import describe_space
from isosent.transforms.choice import make_transform

Texts = Annotated[
    str,
    typer.Argument(
        metavar="TEXTS", help=".txt (a line a text), .csv, .tsv, .jsonl, .parquet, or - for standard input."
    ),
]
Column = Annotated[str | None, typer.Option(metavar="NAME", help="Column that holds the texts of a table.")]
TransformName = Annotated[str, typer.Option("--transform", metavar="NAME", help="Transform to fit: whitening.")]
Dims = Annotated[int | None, typer.Option("--dims", metavar="K", help="Dimensions kept. [default: all]")]
Strength = Annotated[
    float | None,
    typer.Option(metavar="G", help="0 only rotates (PCA), 1 whitens fully. [default: 1]", show_default=False),
]


def demo(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Keep the model here. [default: a temporary folder]"),
    ] = None,
) -> None:
    """Do the main job once, offline, on a shipped sample.

    Encodes, whitens, saves, loads, and shows what changed: mean cosine of random pairs, effective rank, dimensions,
    bytes, neighbours. Takes seconds.
    """
    with tempfile.TemporaryDirectory() as temporary:
        print_demo(run_demo(output or Path(temporary) / "model"))
    if output:
        out.print(f"The model is in {output}. Use it: isosent encode TEXTS -m {output} -o vectors.npy")


@with_model_flags()
def encode(
    texts: Texts,
    model: ModelChoice,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="File to write: .npy or .parquet.")],
    column: Column = None,
) -> None:
    """Turn texts into vectors, row i for text i.

    A .npy file holds the float32 array; a .parquet file holds the texts beside their vectors, and the fingerprint of
    the vector space. The file appears when it is whole; an older one stays until then.
    """
    check_vector_file(output)
    listed = read_texts(texts, column=column)
    encoder = model.open()
    with progress_bar("encoding") as bar:
        vectors = encoder.encode(listed, progress=bar(len(listed)))
    metadata = {"isosent.reference": encoder.encoder.reference, "isosent.fingerprint": encoder.fingerprint}
    write_vectors(output, vectors, listed, metadata)
    n_zero_rows = int((~vectors.any(axis=1)).sum())
    out.print(f"{output}: {len(vectors)} x {vectors.shape[1]} {vectors.dtype}; texts without a vector: {n_zero_rows}")


@with_model_flags()
def fit(
    texts: Texts,
    model: ModelChoice,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Model folder to write.")],
    column: Column = None,
    transform: TransformName = "whitening",
    dims: Dims = None,
    strength: Strength = None,
) -> None:
    """Fit a transform on texts, without labels, and save the model.

    Fit on texts like those you will compare, more of them than dimensions. Whitening often hurts encoders that were
    trained on pairs (sentence-transformers models): compare with "isosent evaluate sts" before you ship.
    """
    check_model_folder(output)
    listed = read_texts(texts, column=column)
    before = model.open()
    chosen = make_transform(transform, dim=before.dim, n_components=dims, strength=strength)
    with progress_bar("encoding") as bar:
        encoded = before.encoder.encode(listed, progress=bar(len(listed)))
    after = before.fit_encoded(encoded, transform=chosen, source=texts)
    after.save(output)
    out.print(change_table(describe_space(before.map_encoded(encoded)), describe_space(after.map_encoded(encoded))))
    record = after.fits[-1]
    out.print(f"{output}: texts fitted on: {record.n_texts}; left out for want of a vector: {record.n_zero_rows}")
    if len(after.fits) > 1:
        out.print(f"{model.reference} was fitted before; the new map stands behind the old one.")


@with_model_flags(argument=True)
def info(model: ModelChoice, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Tell what a model is.

    Encoder, options, dimensions, what it was fitted on, and the fingerprint of its vector space.
    """
    facts = model.read_record().facts()
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        out.print(facts_table(facts))
