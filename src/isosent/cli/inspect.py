"""The commands ``inspect`` and ``calibrate``."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from isosent.calibration import Calibration
from isosent.cli.encode import Column
from isosent.cli.model_options import ModelChoice, with_model_flags
from isosent.cli.terminal import out, progress_bar
from isosent.errors import InputError
from isosent.files.atomic import check_destination, replacing
from isosent.files.content import STANDARD_INPUT
from isosent.files.numbers import read_numbers
from isosent.files.texts import read_texts
from isosent.files.vector_reading import holds_vectors, open_vectors
from isosent.inspection.inspecting import inspect_texts, inspect_vectors
from isosent.inspection.page import html_page
from isosent.inspection.report import inspection_tables
from isosent.inspection.result import Inspection
from isosent.model import SentenceEncoder
from isosent.model_folder import check_model_folder
from isosent.numeric.similarity import pairwise_cosine

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
