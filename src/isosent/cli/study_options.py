"""What the commands ``study ...`` share: their options, and how results are written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.evaluation.sts import AGGREGATIONS
from isosent.evaluation.sts_files import SICKR_PARTS
from isosent.files.atomic import check_destination
from isosent.files.documents import write_document
from isosent.studies.study_file import StudyResult, study_to_json

Data = Annotated[Path, typer.Option(metavar="DIR", help="Folder with the original STS files, anywhere below it.")]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="REFERENCE", help=f"Model; may be repeated. [default: {DEFAULT_REFERENCE}]"),
]
Tasks = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Some tasks, with commas between. [default: all that are found]")
]
SickR = Annotated[
    str, typer.Option(metavar="|".join(SICKR_PARTS), help="Pairs of SICK-R: all 9,927, or the 4,927 of the test part.")
]
Aggregation = Annotated[
    str,
    typer.Option(
        metavar="|".join(AGGREGATIONS),
        help="How subsets are put together in what is printed and drawn; files hold all three.",
    ),
]
CsvOutput = Annotated[
    Path | None, typer.Option("--csv", metavar="OUT", help="Write all numbers as CSV, a line a measurement.")
]
JsonOutput = Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Write all numbers as JSON.")]


def check_outputs(*paths: Path | None, figure: Path | None = None) -> None:
    """Refuse, before any work is done, what could not be written.

    Parameters
    ----------
    *paths : Path or None
        Files to write; None for those not asked for.
    figure : Path, optional
        A drawing to write.

    Raises
    ------
    InputError
        If the figure is no ``.svg``.
    OutputError
        If a file cannot be written.
    """
    if figure is not None and figure.suffix != ".svg":
        raise InputError(f"--figure must end in .svg; got {figure}.")
    for path in (*paths, figure):
        if path is not None:
            check_destination(path)


def write_json(path: Path | None, study: str, results: Sequence[StudyResult]) -> None:
    """Write a study as JSON, where a file was asked for."""
    if path is not None:
        write_document(path, study_to_json(study, results))
