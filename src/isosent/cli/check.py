"""The command ``check``: whether an embedding API gives the vectors of a model."""

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from isosent.cli.options import json_option, open_model
from isosent.cli.printing import deliver, shortened
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.encoders.reference import with_options
from isosent.evaluation.endpoint import EndpointCheck, RoleCheck, check_endpoint
from isosent.evaluation.served import THE_MODEL
from isosent.model import SentenceEncoder
from isosent.pages.progress import progress_bar
from isosent.pages.report import Note, Part, Report, ReportTable
from isosent.persistence import read_canary

_EXIT_DIFFERENT = 1
_MOST_FITS = 4
_NEARER = 0.5  # of the difference of the unchanged model


@click.command()
@click.argument("endpoint", metavar="ENDPOINT")
@click.argument("model", metavar="MODEL")
@json_option
def check(endpoint: str, model: str, as_json: bool) -> None:
    """Does an API give the vectors of a model? If not, the cause.

    ENDPOINT is api:URL?model=NAME, or the URL alone; MODEL is a model reference, a folder, another API, or the canary
    of a model folder (canary-....safetensors): vectors of eight texts, which tell fewer causes apart. About 60 texts
    are sent, and some more if long ones differ: mixed case, accents, emoji, line breaks, in one request and one by one,
    and up to 2,100 tokens. Nothing is read from or written to a cache. Exit codes: 0 equal, but for the precision;
    1 different; 2 bad input.

    \b
    isosent check "http://127.0.0.1:8000/v1?model=all-MiniLM-L6-v2" hf:FOLDER
    """  # noqa: D301
    served, local = open_model(_uncached(endpoint)), _opened(model)
    with progress_bar("check", "roles") as bar:
        found = check_endpoint(served, local, progress=bar)
    deliver(Report(found.to_json(), _parts(found)), as_json=as_json)
    sys.exit(0 if found.is_equal else _EXIT_DIFFERENT)


def _opened(model: str) -> SentenceEncoder:
    """What the API should give: a model, or the vectors that a canary kept."""
    if not Path(model).is_file():
        return open_model(_uncached(model))
    canary = read_canary(Path(model))
    return SentenceEncoder(PrecomputedVectors(canary.queries.shape[1], {"space": model}, canary=canary))


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
        yield from _nearer(each)
        yield from map(Note, each.notes)


def _figures(each: RoleCheck) -> ReportTable:
    table = ReportTable("", "", has_header=False, left=range(2))
    if not math.isnan(each.lowest_cosine):
        table.add_row("lowest cosine, as it answers", f"{each.lowest_cosine:.6f}, of {shortened(each.text, 40)!r}")
    if each.undone_cosine is not None:
        table.add_row("lowest cosine, with the causes undone", f"{each.undone_cosine:.6f}")
    if not math.isnan(each.lengths[0]):
        table.add_row("lengths, as parts of those of the model", f"{each.lengths[0]:.4g} to {each.lengths[1]:.4g}")
    if each.dims[0] != each.dims[1]:
        table.add_row("dimensions", f"{each.dims[0]:,}; of the model {each.dims[1]:,}")
    if each.precision:
        table.add_row("precision", each.precision)
    return table


def _nearer(each: RoleCheck) -> Iterator[ReportTable]:
    """Ways to serve the model that are clearly nearer than the unchanged model; most differ from it by little."""
    usual = next((fit for fit in each.fits if fit.variant == THE_MODEL.detail), None)
    if usual is None:
        return
    nearer = [fit for fit in each.fits if 1 - fit.mean_cosine <= _NEARER * (1 - usual.mean_cosine)]
    if nearer and each.causes:
        table = ReportTable(
            "the model, served with", "mean cosine", "lowest cosine", title="Cosines of the vectors of the API with"
        )
        for fit in [*nearer[:_MOST_FITS], usual]:
            table.add_row(shortened(fit.variant), f"{fit.mean_cosine:.6f}", f"{fit.lowest_cosine:.6f}")
        yield table
