"""The command ``check``: whether an embedding API gives the vectors of a model."""

import math
import re
import sys
from collections.abc import Iterator

import click

from isosent.cli.options import json_option, open_model
from isosent.cli.printing import deliver, shortened
from isosent.encoders.reference import with_options
from isosent.evaluation.endpoint import EndpointCheck, RoleCheck, check_endpoint
from isosent.pages.progress import progress_bar
from isosent.pages.report import Note, Part, Report, ReportTable

_EXIT_DIFFERENT = 1
_MOST_FITS = 8


@click.command()
@click.argument("endpoint", metavar="ENDPOINT")
@click.argument("model", metavar="MODEL")
@json_option
def check(endpoint: str, model: str, as_json: bool) -> None:
    """Does an API give the vectors of a model? If not, the cause.

    ENDPOINT is api:URL?model=NAME, or the URL alone; MODEL is a model reference, a folder, or another API. About 60
    texts are sent, and some more if long ones differ: mixed case, accents, emoji, line breaks, in one request and one
    by one, and up to 2,100 tokens. Nothing is read from or written to a cache. Exit codes: 0 equal, but for the
    precision; 1 different; 2 bad input.

    \b
    isosent check "http://127.0.0.1:8000/v1?model=all-MiniLM-L6-v2" hf:FOLDER
    """  # noqa: D301
    served, local = (open_model(_uncached(reference)) for reference in (endpoint, model))
    with progress_bar("check", "roles") as bar:
        found = check_endpoint(served, local, progress=bar)
    deliver(Report(found.to_json(), _parts(found)), as_json=as_json)
    sys.exit(0 if found.is_equal else _EXIT_DIFFERENT)


def _uncached(reference: str) -> str:
    """A reference that asks its API now; a URL is one, too."""
    if re.match("https?://", reference):
        reference = f"api:{reference}"
    return with_options(reference, {"cache": "none"}) if reference.startswith("api:") else reference


def _parts(found: EndpointCheck) -> Iterator[Part]:
    for each in found.roles:
        of_role = "" if each.role == "text" else f" ({each.role})"
        yield f"{'different' if each.causes else 'equal'}{of_role}: {found.endpoint} and {found.model}"
        yield from (f"cause: {cause.name}: {cause.explanation}" for cause in each.causes)
        yield _figures(each)
        if each.causes and each.fits:
            yield _fits(each)
        yield from map(Note, each.notes)


def _figures(each: RoleCheck) -> ReportTable:
    table = ReportTable("", "", has_header=False, left=range(2))
    if not math.isnan(each.lowest_cosine):
        table.add_row("lowest cosine", f"{each.lowest_cosine:.6f}, of {shortened(each.text)!r}")
    table.add_row("lengths, as parts of those of the model", f"{each.lengths[0]:.4g} to {each.lengths[1]:.4g}")
    if each.dims[0] != each.dims[1]:
        table.add_row("dimensions", f"{each.dims[0]:,}; of the model {each.dims[1]:,}")
    if each.precision:
        table.add_row("precision", each.precision)
    return table


def _fits(each: RoleCheck) -> ReportTable:
    table = ReportTable("served as", "mean cosine", "lowest cosine", title="Which vectors they are nearest to")
    for fit in each.fits[:_MOST_FITS]:
        table.add_row(shortened(fit.variant), f"{fit.mean_cosine:.6f}", f"{fit.lowest_cosine:.6f}")
    return table
