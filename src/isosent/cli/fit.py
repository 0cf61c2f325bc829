"""The commands ``inspect`` and ``calibrate``."""

import json
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from isosent.cli.encode import Column
from isosent.cli.options import NO_TRANSFORM, ModelChoice, TransformChoice, with_model_flags, with_transform_flags
from isosent.cli.printing import (
    change_table,
    choice_table,
    facts_table,
    likelihood_change,
    out,
    print_demo,
    print_likelihood,
    print_unknown,
    progress_bar,
)
from isosent.cli.vectors import CheckpointFile, VectorFit, are_vectors, fit_on_vectors
from isosent.demo import run_demo
from isosent.errors import InputError
from isosent.io.atomic import check_destination, replacing
from isosent.io.tables import read_numbers
from isosent.io.texts import STANDARD_INPUT, is_table, read_texts
from isosent.io.vectors import holds_vectors, open_vectors
from isosent.model import SentenceEncoder
from isosent.numeric.isotropy import describe_space
from isosent.numeric.similarity import pairwise_cosine
from isosent.persistence import check_model_folder
from isosent.report.inspect import Inspection, inspect_texts, inspect_vectors
from isosent.report.inspect_page import html_page, inspection_tables
from isosent.transforms.calibration import Calibration

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
        before = after = before.fitted(listed, None, source=source, progress=bar(len(listed)) if learns else None)
        if chosen is not None:
            encoder = before.encoder if listed_queries is None else before.encoder.for_documents()
            encoded = encoder.encode(listed, progress=bar(len(listed)))
            after = before.fitted(
                listed, chosen, queries=listed_queries, encoded=encoded, source=source, report=print_likelihood
            )
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


_NULL_TEXTS = 20_000

Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Of every random draw.")]


@with_model_flags()
def inspect(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TEXTS|VECTORS",
            help="Texts: .txt, .csv, .tsv, .jsonl, .parquet, or - for standard input. "
            "Vectors: .npy, .fvecs, .bvecs, .safetensors, or a .parquet with a column of lists.",
        ),
    ],
    model: ModelChoice,
    column: Column = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of the tables.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with figures, too.")] = None,
    seed: Seed = 0,
) -> None:
    """Should these vectors be transformed? Look at them, and say so in one sentence.

    Counts what is wrong with the rows, measures how the vectors fill their space, tells what a cosine means among
    them, what "auto" would choose, and, for texts, what that does to held-out pairs made without labels. With texts,
    -m names the model; vectors are taken as they are.
    """
    if html is not None:
        check_destination(html)
        if html.exists() and Path(source).exists() and html.samefile(source):
            raise InputError(f"inspect: --html must name another file than {source}, which it would replace.")
    found = _inspect(source, model, column, seed)
    if html is not None:
        with replacing(html) as temporary:
            temporary.write_text(html_page(found), "utf-8")
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
        return
    for table in inspection_tables(found):
        out.print(table)
    out.print(f"\n{found.advice}")


def _inspect(source: str, model: ModelChoice, column: str | None, seed: int) -> Inspection:
    if source != STANDARD_INPUT and holds_vectors(source, column=column):
        if model.is_named:
            raise InputError(
                f"inspect: -m must go with texts; {source} holds vectors. Leave it out, "
                "or name a column of texts: --column NAME."
            )
        vectors = open_vectors(source, column=column)
        with progress_bar("reading", unit="vectors") as bar:
            return inspect_vectors(vectors, seed=seed, source=Path(source).name, progress=bar)
    texts = read_texts(source, column=column)
    opened = model.open()
    with progress_bar("encoding") as bar:
        return inspect_texts(opened, texts, seed=seed, source=Path(source).name, progress=bar)


@with_model_flags()
def calibrate(
    model: ModelChoice,
    texts: Annotated[
        str | None,
        typer.Argument(metavar="[TEXTS]", help="Texts like those to be compared: percentiles of random pairs."),
    ] = None,
    column: Column = None,
    pairs: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="In place of TEXTS, a table of labelled pairs: expected labels."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns of the pairs that hold the two texts.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of the pairs that holds the label, higher for more alike."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Model folder to write. [default: the model's own]"),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Say what a cosine of this model means, and keep it in the model folder.

    From TEXTS, without labels: the share of random pairs that score less. From --pairs, with labels: the label that a
    pair of this cosine gets on average, between the lowest (0) and the highest (1) that was given. Both only rise with
    the cosine. model.similarity(a, b, calibrated=True) gives them.
    """
    if (texts is None) == (pairs is None):
        raise InputError("calibrate: give either TEXTS or --pairs FILE; got both or neither.")
    if (pairs is None) != (columns is None) or (pairs is None) != (label is None):
        raise InputError(
            "calibrate: --pairs, --columns A,B and --label COLUMN must come together; one of them is missing."
        )
    if pairs is not None and column is not None:
        raise InputError("calibrate: --column must go with TEXTS; the columns of --pairs are named by --columns A,B.")
    folder = _folder(model, output)
    if texts is not None:
        listed = read_texts(texts, column=column)
        opened = model.open()
        made = _from_texts(opened, listed, seed)
    else:
        first, second, labels = _read_pairs(str(pairs), str(columns), str(label))
        opened = model.open()
        made = _from_pairs(opened, first, second, labels)
    opened.with_calibration(made).save(folder)
    out.print(f"{folder}: calibrated on {made.n_pairs:,} {made.kind}")
    for cosine in (0.2, 0.4, 0.6, 0.8):
        out.print(f"  cosine {cosine:.1f} -> {float(made(cosine)):.4f}")


def _folder(model: ModelChoice, output: Path | None) -> Path:
    folder = Path(model.reference) if output is None else output
    if output is None and not folder.is_dir():
        raise InputError(
            f"calibrate: the calibration must have a model folder to lie in; {model.reference} is none. "
            "Name a new one with -o FOLDER."
        )
    check_model_folder(folder)
    return folder


def _from_texts(model: SentenceEncoder, texts: list[str], seed: int) -> Calibration:
    rows = np.random.default_rng(seed).permutation(len(texts))[:_NULL_TEXTS]
    with progress_bar("encoding") as bar:
        vectors = model.encode([texts[row] for row in np.sort(rows)], progress=bar(len(rows)))
    return Calibration.from_random_pairs(vectors, seed=seed)


def _from_pairs(model: SentenceEncoder, first: list[str], second: list[str], labels: list[float]) -> Calibration:
    with progress_bar("encoding") as bar:
        vectors = model.encode([*first, *second], progress=bar(2 * len(first)))
    return Calibration.from_labels(pairwise_cosine(vectors[: len(first)], vectors[len(first) :]), labels)


def _read_pairs(path: str, columns: str, label: str) -> tuple[list[str], list[str], list[float]]:
    names = columns.split(",")
    if len(names) != 2:
        raise InputError(f"calibrate: --columns must name two columns with a comma between them; got {columns!r}.")
    first, second = (read_texts(path, column=name) for name in names)
    return first, second, read_numbers(path, column=label)
