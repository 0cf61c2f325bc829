"""The commands ``demo``, ``fit`` and ``info``."""

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.model_options import ModelChoice, with_model_flags
from isosent.cli.printing import (
    change_table,
    choice_table,
    facts_table,
    likelihood_change,
    print_demo,
    print_likelihood,
    print_unknown,
)
from isosent.cli.terminal import out, progress_bar
from isosent.cli.transform_options import NO_TRANSFORM, TransformChoice, with_transform_flags
from isosent.cli.vectors import CheckpointFile, VectorFit, are_vectors, fit_on_vectors
from isosent.demo.run import run_demo
from isosent.errors import InputError
from isosent.files.texts import is_table, read_texts
from isosent.model_folder import check_model_folder
from isosent.numeric.isotropy import describe_space
from isosent.transforms.base import is_flow

Inputs = Annotated[
    list[str], typer.Argument(metavar="TEXTS|VECTORS...", help="Files of texts (- for standard input), or of vectors.")
]
InputColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column of a table that holds the texts or the vectors.")
]
Queries = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Texts, or vectors, to search with, for a mean of their own."),
]
SpaceName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Vectors: what made them, as text-embedding-3-small, to tell spaces apart."),
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
@with_transform_flags("whitening")
def fit(
    inputs: Inputs,
    model: ModelChoice,
    transform: TransformChoice,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Model folder to write.")],
    column: InputColumn = None,
    queries: Queries = None,
    space: SpaceName = None,
    checkpoint: CheckpointFile = None,
) -> None:
    """Fit a transform on texts or vectors, without labels, and save the model.

    Encoders that learn from a corpus (--weighting sif, usif, p_mean or gem) are fitted on the texts first. Behind these
    and --zipfian there is no transform unless one is named; --transform none leaves any encoder as it is.

    Vectors (.npy, .fvecs, .bvecs, .safetensors, .parquet) and moments (see "isosent moments") may come from anywhere;
    the model then takes vectors with "isosent transform". With -m, they come from the encoder of that model.

    Fit on texts like those you will compare, more of them than dimensions. Whitening often hurts encoders that were
    trained on pairs (sentence-transformers models): "isosent inspect" and --transform auto tell, without labels.
    """
    check_model_folder(output)
    if are_vectors(inputs, column):
        fit_on_vectors(VectorFit(inputs, output, column, queries, space, checkpoint), model, transform)
        return
    if space is not None or checkpoint is not None:
        raise InputError(f"--space and --checkpoint go with vectors; {', '.join(inputs)} holds texts. Leave them out.")
    listed = [text for path in inputs for text in read_texts(path, column=column)]
    listed_queries = None if queries is None else read_texts(queries, column=column if is_table(queries) else None)
    before, source = model.open(), ", ".join(inputs)
    learns = before.encoder.needs_corpus
    is_wanted = transform.is_named or before.encoder.is_plain
    if listed_queries is not None and not is_wanted:
        raise InputError(
            "--queries goes with --transform, where the encoder itself is fitted. Name one, or leave it out."
        )
    chosen = transform.make(before.dim) if is_wanted and transform.names != NO_TRANSFORM else None
    with progress_bar("encoding") as bar:
        if learns:
            before = before.fit(listed, transform=None, source=source, progress=bar(len(listed)))
        after = before
        if chosen is not None:
            of_texts = before.encoder if listed_queries is None else before.encoder.for_documents()
            encoded = of_texts.encode(listed, progress=bar(len(listed)))
            if is_flow(chosen) and listed_queries is None:
                after = before.fit_vectors(encoded, transform=chosen, source=source, report=print_likelihood)
            else:
                after = before.fit(listed, transform=chosen, queries=listed_queries, encoded=encoded, source=source)
    after.save(output)
    if chosen is not None and after.fits[-1].choice:
        out.print(choice_table(after.fits[-1].choice))
    if chosen is not None and after.fits[-1].history:
        out.print(likelihood_change(after.fits[-1].history))
    if chosen is not None:
        out.print(change_table(describe_space(before.transform(encoded)), describe_space(after.transform(encoded))))
    if learns or chosen is not None:
        record = after.fits[-1]
        out.print(f"{output}: texts fitted on: {record.n_texts}; left out for want of a vector: {record.n_zero_rows}")
    else:
        out.print(f"{output}: nothing was to be fitted; the encoder is saved as it is")
    print_unknown(before.encoder.coverage(listed))
    if len(after.fits) > 1 and not learns:
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
