"""The command ``inspect``: the recommendation of `jobs.inspect`, and then the tables of `report.inspect_page`."""

from collections.abc import Iterator
from pathlib import Path

import click

from isosent import _extras
from isosent.cli.options import (
    column_option,
    details_option,
    json_option,
    model_option,
    open_model,
    outputs_option,
    purpose_option,
    vector_texts_option,
)
from isosent.cli.printing import GAIN, check_outputs, deliver
from isosent.errors import InputError, MissingExtraError
from isosent.io.source import MomentsSource, open_source
from isosent.io.texts import TextSource
from isosent.io.vector_source import VectorSource
from isosent.jobs.inspect import Inspection, inspect_moments, inspect_texts, inspect_vectors
from isosent.jobs.moments import moments_in
from isosent.pages.progress import progress_bar
from isosent.pages.report import Part, Report, ReportTable
from isosent.report.inspect_page import html_page, inspection_tables
from isosent.search.inputs import opened_with_texts, texts_of_vectors
from isosent.search.smaller import FEWEST_ROWS, LOSS
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

    The input is a file of texts, or a file of vectors (.npy, .parquet, .arrow, .hdf5 and others).
    Counts unusable rows, measures how the vectors fill their space, and says what "isosent fit" would choose:
    for vectors, name their texts with --texts. It measures how many neighbors are kept in fewer bytes: with fewer
    dimensions and other dtypes. Of moments, or of a proxy that learns, it shows what whitening would do.

    \b
    isosent inspect texts.txt -m wordllama -o report.html
    isosent inspect vectors.npy --texts texts.txt
    """  # noqa: D301
    check_outputs(outputs, reads=(path,))
    [source], of_texts = opened_with_texts(lambda named: [open_source(path, column=named, moments=True)], column, texts)
    if source.kind == "moments":
        if (texts, purpose) != (None, None) or any(output.suffix.lower() == ".html" for output in outputs):
            raise InputError(f"inspect: a page, --texts and --for need vectors, and {path} holds moments only.")
        deliver(_moments_report(source), outputs, as_json=as_json)
        return
    beside = None if texts is None else TextSource(texts, of_texts)
    inspection = _inspect(source, model, beside, purpose=purpose, codecs=details)
    parts = _inspection_parts(inspection, details=details)
    page = {".html": lambda: html_page(inspection)}
    deliver(Report(inspection.to_json(), parts, page), outputs, as_json=as_json)


def _inspection_parts(inspection: Inspection, *, details: bool) -> Iterator[Part]:
    """The recommendation, tables, and how small the vectors can be; this is first where texts are missing."""
    choice, sizes = inspection.choice, inspection.sizes
    if sizes is not None:
        smaller = sizes.sentence(sizes.smallest())
    else:
        smaller = f"How small the vectors can be was not measured: give {FEWEST_ROWS} different ones or more."
        try:
            _extras.require("faiss")
        except MissingExtraError as error:
            smaller = f"How small the vectors can be was not measured. {error}"
    lacks_texts = inspection.model is None and choice is not None and not choice.candidates
    if lacks_texts and sizes is not None:
        if n_refused := inspection.counts.n_non_finite:
            smaller += f" First remove the rows that hold NaN or infinity ({n_refused}): fit refuses them."
        smaller += f" Save it: isosent fit {inspection.source} --loss {LOSS} -o FOLDER"
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
    source: TextSource | VectorSource, model: str | None, texts: TextSource | None, *, purpose: str | None, codecs: bool
) -> Inspection:
    name = Path(source.name).name
    if source.kind == "vectors":
        if model is not None:
            raise InputError(
                f"inspect: --model is for texts; {source.name} holds vectors. Leave it out, or name a column of texts: "
                "--column NAME."
            )
        with progress_bar("reading", unit="vectors") as bar:
            listed = None if texts is None else texts_of_vectors(texts, [source])
            return inspect_vectors(source, texts=listed, purpose=purpose, source=name, codecs=codecs, progress=bar)
    if texts is not None:
        raise InputError(f"inspect: --texts are for vectors; {source.name} holds texts.")
    listed = source.texts()
    loaded = open_model(model)
    with progress_bar("encoding") as bar:
        return inspect_texts(loaded, listed, purpose=purpose, source=name, codecs=codecs, progress=bar)
