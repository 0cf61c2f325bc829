"""The commands ``inspect``, ``drift``, ``calibrate`` and ``quantize``.

`inspect` asks `jobs.inspect` about texts, vectors or moments, prints the recommendation and then the tables of
`report.inspect_page`. `drift` compares two sets; texts are encoded into temporary files first. `calibrate` and
`quantize` fit on a sample (`_model_and_sample`), and write the model folder that ``-m`` or ``-o`` names.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.cli.options import (
    column_option,
    details_option,
    either_column_option,
    json_option,
    model_option,
    open_model,
    output_option,
    outputs_option,
    purpose_option,
    split_names,
    vector_texts_option,
)
from isosent.cli.printing import GAIN, check_outputs, deliver, shortened, show
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError, MissingExtraError
from isosent.evaluation.sts import read_scored_pairs
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.pairs import TRAIN
from isosent.io.source import MomentsSource, open_source
from isosent.io.texts import TextSource
from isosent.io.vector_source import VectorSource
from isosent.jobs.calibrate import (
    calibrated,
    calibrated_on_pairs,
    quantized,
    sample_of_texts,
    sample_of_vectors,
)
from isosent.jobs.encode import texts_encoded
from isosent.jobs.inspect import Inspection, inspect_moments, inspect_texts, inspect_vectors
from isosent.jobs.moments import drift_of, model_statistics, moments_in
from isosent.model import SentenceEncoder
from isosent.numeric.drift import LEVEL, Drift
from isosent.pages.progress import progress_bar
from isosent.pages.report import Part, Report, ReportTable
from isosent.persistence import check_model_folder
from isosent.report.inspect_page import html_page, inspection_tables
from isosent.search.rows import texts_of_vectors
from isosent.search.smaller import FEWEST_ROWS
from isosent.transforms.base import NO_TRANSFORM


@click.command()
@click.argument("path", metavar="TEXTS|VECTORS|MOMENTS|URL")
@model_option
@column_option
@vector_texts_option
@purpose_option
@outputs_option(".html", ".json")
@json_option
@details_option
def inspect(
    path: str,
    model: str | None,
    column: str | None,
    texts: str | None,
    purpose: str | None,
    outputs: tuple[Path, ...],
    as_json: bool,
    details: bool,
) -> None:
    """Is whitening worth it? Print statistics of the vectors and a recommendation.

    The input is a file of texts, or a file of vectors (.npy, .fvecs, .bvecs, .safetensors, .parquet, lists in .json or
    .jsonl). Counts unusable rows, measures how the vectors fill their space, and says what "isosent fit" would choose:
    for vectors, name their texts with --texts. It measures how many neighbors are kept in fewer bytes: with fewer
    dimensions and other dtypes. Of moments, or of a proxy that learns, it shows what whitening would do.

    \b
    isosent inspect texts.txt -m wordllama -o report.html
    isosent inspect vectors.npy --texts texts.txt
    """  # noqa: D301
    check_outputs(outputs, reads=(path,))
    source = open_source(path, column=column, moments=True)
    if source.kind == "moments":
        if (texts, purpose) != (None, None) or any(output.suffix.lower() == ".html" for output in outputs):
            raise InputError(f"inspect: a page, --texts and --for need vectors, and {path} holds moments only.")
        deliver(_moments_report(source), outputs, as_json=as_json)
        return
    inspection = _inspect(source, model, texts, purpose=purpose, codecs=details)
    parts = _inspection_parts(inspection, details=details)
    page = {".html": lambda: html_page(inspection)}
    deliver(Report(inspection.to_json(), parts, page), outputs, as_json=as_json)


def _inspection_parts(inspection: Inspection, *, details: bool) -> Iterator[Part]:
    """The recommendation, tables, and how small the vectors can be; this is first where texts are missing."""
    choice, sizes = inspection.choice, inspection.sizes
    if sizes is not None:
        smaller = sizes.sentence(sizes.smallest(0.01))
    else:
        smaller = f"How small the vectors can be was not measured: give {FEWEST_ROWS} different ones or more."
        try:
            _extras.require("faiss")
        except MissingExtraError as error:
            smaller = f"How small the vectors can be was not measured. {error}"
    lacks_texts = inspection.model is None and choice is not None and not choice.candidates
    if lacks_texts and sizes is not None:
        smaller += f" Save it: isosent fit {inspection.source} --loss 0.01 -o FOLDER"
    yield f"{smaller}\n{inspection.advice}" if lacks_texts else inspection.advice
    if choice is not None and choice.candidates:
        yield GAIN
    yield from inspection_tables(inspection, details=details)
    if not lacks_texts:
        yield smaller
    if sizes is not None and choice is not None and choice.chosen.name != NO_TRANSFORM:
        yield "Neighbors are those of the original vectors; auto changes who is near, because that ranks better."


def _moments_report(source: MomentsSource) -> Report:
    measured = moments_in(source)
    inspection = inspect_moments(measured.moments)
    table = ReportTable("", "original", "whitened", title=f"{measured.moments.weight:,.0f} vectors of {source.name}")
    for label, before, after in inspection.rows():
        table.add_row(label, before, after)
    shares = [
        f"{share:.0%} of the variance: {n_components} of {inspection.dim} dimensions"
        for share, n_components in inspection.n_components.items()
    ]
    return Report(inspection.to_json(), [inspection.advice, table, *shares])


def _inspect(
    source: TextSource | VectorSource, model: str | None, texts: str | None, *, purpose: str | None, codecs: bool
) -> Inspection:
    name = Path(source.name).name
    if source.kind == "vectors":
        if model is not None:
            raise InputError(
                f"inspect: --model is for texts; {source.name} holds vectors. Leave it out, or name a column of texts: "
                "--column NAME."
            )
        with progress_bar("reading", unit="vectors") as bar:
            listed = None if texts is None else texts_of_vectors(TextSource(texts), [source])
            return inspect_vectors(source, texts=listed, purpose=purpose, source=name, codecs=codecs, progress=bar)
    if texts is not None:
        raise InputError(f"inspect: --texts are for vectors; {source.name} holds texts.")
    listed = source.texts()
    loaded = open_model(model)
    with progress_bar("encoding") as bar:
        return inspect_texts(loaded, listed, purpose=purpose, source=name, codecs=codecs, progress=bar)


_MOST_AXES_SHOWN = 10


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@model_option
@either_column_option
@json_option
def drift(old: str, new: str, model: str | None, column: str | None, as_json: bool) -> None:
    """Test whether vectors have changed beyond chance, and whether a whitening should be fitted again.

    OLD and NEW are files of texts, which the model encodes, files of vectors (.npy, .fvecs, .bvecs, .safetensors,
    .parquet, lists in .json or .jsonl) or of moments, or URLs of proxies that learn. OLD may be a model that was fitted
    on vectors: it holds their statistics. Tests the mean and the variances along the principal axes, measures how well
    the whitening of OLD fits NEW, and names what is least like OLD. Vectors say more than moments: the variances of
    single axes are tested only if OLD or NEW is a file of vectors or texts. Rows count as independent: repeated and
    related texts make false positives more frequent.

    \b
    isosent drift last_month.txt this_month.txt -m model
    isosent drift last_month.npy this_month.npy
    """  # noqa: D301
    if STANDARD_INPUT in (old, new):
        raise InputError("drift: texts are read twice, so they cannot come from standard input. Name a file.")
    load_model = partial(open_model, model) if model else None
    sides = [model_statistics(path) or open_source(path, column=column, moments=True) for path in (old, new)]
    with progress_bar("drift", "rows") as bar, texts_encoded(sides, load_model, progress=bar) as measured:
        found = drift_of(*measured, progress=bar)
    texts = sides[1].texts() if sides[1].kind == "texts" else None
    unusual = [each._asdict() | ({} if texts is None else {"text": texts[each.row]}) for each in found.unusual]
    deliver(Report(asdict(found) | {"unusual": unusual}, _drift_parts(found, old, new, texts)), as_json=as_json)


def _drift_parts(found: Drift, old: str, new: str, texts: list[str] | None) -> Iterator[Part]:
    yield found.advice
    table = ReportTable("", "", has_header=False, title=f"{found.n_old:,} vectors of {old}, {found.n_new:,} of {new}")
    for label, p_value in (("mean", found.mean_p_value), ("covariance", found.covariance_p_value)):
        table.add_row(f"{label}: p-value of no change", _p_value(p_value))
    for label, figure in (
        ("mean cosine of random new vectors, whitened as the old ones", found.mean_shift),
        ("its root mean square", found.spread),
        ("the same if nothing had changed", found.spread_expected),
    ):
        if not math.isnan(figure):  # the old vectors may be too few for a whitening
            table.add_row(label, f"{figure:.4f}")
    yield table
    if found.axes:
        caption = f"{len(found.axes):,} of {found.n_axes:,} axes have changed (p < {LEVEL}, corrected for their number)"
        names = ["axis", "largest entry", "mean moved by", "p", "variance times", *["p"] * found.knows_kurtosis]
        axes = ReportTable(*names, left=range(2), caption=caption)
        for each in found.axes[:_MOST_AXES_SHOWN]:
            axes.add_row(
                f"{each.axis}",
                f"dimension {each.dimension}: {each.entry:+.2f}",
                f"{each.shift:+.2f} sd",
                _p_value(each.mean_p_value),
                f"{each.variance_ratio:.2f}",
                *[_p_value(each.variance_p_value)] * found.knows_kurtosis,
            )
        yield axes
    if not found.knows_kurtosis:
        yield "mean and covariance alone: the variances of single axes were not tested"
    if texts is not None:
        yield "\nleast like the old texts, with the distance in standard deviations (about 1 for the old texts):"
        yield from (f"  {each.distance:.2f}  {shortened(texts[each.row])}" for each in found.unusual)


def _p_value(value: float) -> str:
    return "" if value != value else "< 0.0001" if value < 0.0001 else f"{value:.4f}"


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
    check_model_folder(folder)
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
