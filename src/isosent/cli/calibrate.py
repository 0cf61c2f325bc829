"""The commands ``calibrate`` and ``quantize``, which are fitted on a sample of a model's vectors.

Both write the model folder that ``-m`` or ``-o`` names.
"""

from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from isosent.cli.options import column_option, model_option, open_model, output_option, split_names
from isosent.cli.printing import deliver, say_replaced, show
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.evaluation.sts import read_scored_pairs
from isosent.io.pairs import TRAIN
from isosent.io.source import open_source
from isosent.jobs.calibrate import (
    calibrated,
    calibrated_on_pairs,
    quantized,
    sample_of_texts,
    sample_of_vectors,
)
from isosent.model import SentenceEncoder
from isosent.pages.progress import progress_bar
from isosent.pages.report import Report
from isosent.persistence import check_model_folder

_folder_option = output_option("FOLDER", "Model folder.  [default: that of -m]", required=False)


@click.command()
@click.argument("source", metavar="TEXTS|PAIRS|VECTORS")
@model_option
@column_option
@click.option("--columns", metavar="A,B,SCORE", help="Of a table of PAIRS, in this order.")
@_folder_option
def calibrate(
    source: str,
    model: str | None,
    column: str | None,
    columns: str | None,
    output: Path | None,
) -> None:
    """Give the cosines of a model a meaning, and save it in the model folder.

    With TEXTS, a cosine becomes its percentile: the share of random pairs with a lower one; with VECTORS of the
    encoder, too. With PAIRS, a table of texts with scores, and --columns, it becomes the expected score, scaled to
    0 ... 1. Use it in Python: model.similarity(a, b, calibrated=True).

    \b
    isosent calibrate texts.txt -m model
    isosent calibrate pairs.csv --columns a,b,score -m model
    """  # noqa: D301
    if columns is not None and column is not None:
        raise InputError("calibrate: --column is for TEXTS or VECTORS; --columns A,B,SCORE names those of pairs.")
    folder = _folder_to_write("calibrate", model, output)
    if columns is not None:
        names = split_names(columns) or []
        if len(names) != 3:
            raise InputError(f"--columns {columns}: name three columns, A,B,SCORE.")
        pairs = read_scored_pairs(source, columns=names, part=TRAIN).require_scores(source)
        loaded = open_model(model)
        with progress_bar("encoding") as bar:
            loaded = calibrated_on_pairs(loaded, pairs.first, pairs.second, pairs.scores.tolist(), progress=bar)
    else:
        loaded = calibrated(*_model_and_sample(model, source, column))
    loaded.save(folder)
    calibration = loaded.calibration
    assert calibration is not None
    meaning = "percentile" if columns is None else "expected score"
    examples = [
        f"  cosine {cosine:.1f} -> {meaning} {float(calibration(cosine)):.4f}" for cosine in (0.2, 0.4, 0.6, 0.8)
    ]
    deliver(Report(parts=[f"{folder}: calibrated on {calibration.n_pairs:,} {calibration.kind}", *examples]))


@click.command()
@click.argument("source", metavar="TEXTS|VECTORS")
@model_option
@column_option
@_folder_option
def quantize(source: str, model: str | None, column: str | None, output: Path | None) -> None:
    """Fit int8 codes and bits of a model's vectors, and save them in the model folder.

    The ranges of int8 and the rotation of bits are fitted on TEXTS, or on VECTORS of the encoder. They are used by
    "isosent transform --dtype int8", and in Python by model.encode(texts, precision="int8").

    \b
    isosent quantize texts.txt -m model
    """  # noqa: D301
    folder = _folder_to_write("quantize", model, output)
    loaded, sample = _model_and_sample(model, source, column)
    quantized(loaded, sample).save(folder)
    show(f"{folder}: int8 and bits fitted on {len(sample):,} vectors")


def _folder_to_write(command: str, model: str | None, output: Path | None) -> Path:
    folder = Path(model or DEFAULT_REFERENCE) if output is None else output
    if output is None and not folder.is_dir():
        problem = "no model is named (-m FOLDER), and " if model is None else ""
        raise InputError(f"{command}: {problem}{folder} is not a model folder. Name one to write: -o FOLDER.")
    say_replaced("a model", folder, check_model_folder(folder) and Path(model or "") != folder)
    return folder


def _model_and_sample(model: str | None, path: str, column: str | None) -> tuple[SentenceEncoder, NDArray[np.float32]]:
    """The model that the command line names, and its vectors of some of the texts or vectors."""
    source = open_source(path, column=column)
    if source.kind == "vectors":
        loaded = open_model(model)
        return loaded, sample_of_vectors(loaded, source)
    texts = source.texts()
    loaded = open_model(model)
    with progress_bar("encoding") as bar:
        return loaded, sample_of_texts(loaded, texts, progress=bar)
