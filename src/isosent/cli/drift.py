"""The command ``drift``: what has changed between two sets of vectors, or of texts, which are encoded first."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

import click

from isosent.cli.options import either_column_option, json_option, model_option, open_model
from isosent.cli.printing import deliver, p_value, shortened
from isosent.errors import InputError
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.source import open_source
from isosent.jobs.encode import texts_encoded
from isosent.jobs.moments import drift_of, model_statistics
from isosent.numeric.drift import LEVEL, Drift
from isosent.pages.progress import progress_bar
from isosent.pages.report import Part, Report, ReportTable

_MOST_AXES_SHOWN = 10


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@model_option
@either_column_option
@json_option
def drift(old: str, new: str, model: str | None, column: str | None, as_json: bool) -> None:
    """Test whether vectors have changed beyond chance, and whether a whitening should be fitted again.

    OLD and NEW are files of texts, which the model encodes, files of vectors (.npy, .parquet, .arrow, .hdf5
    and others) or of moments, or URLs of proxies that learn. OLD may be a model that was fitted
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
        # two that are known to differ are refused
        is_one_model = all(each.kind == "vectors" and each.space is not None for each in measured)
    texts = sides[1].texts() if sides[1].kind == "texts" else None
    unusual = [each._asdict() | ({} if texts is None else {"text": texts[each.row]}) for each in found.unusual]
    document = asdict(found) | {"unusual": unusual}
    parts = _drift_parts(found, old, new, texts, is_one_model=is_one_model)
    deliver(Report(document, parts), as_json=as_json)


def _drift_parts(found: Drift, old: str, new: str, texts: list[str] | None, *, is_one_model: bool) -> Iterator[Part]:
    yield found.advice
    if found.refit != "no" and not is_one_model:  # by axes and covariances, other topics look like another model
        yield "Other texts change vectors as much as another model does. Check that one model made both files."
    table = ReportTable("", "", has_header=False, title=f"{found.n_old:,} vectors of {old}, {found.n_new:,} of {new}")
    for label, value in (("mean", found.mean_p_value), ("covariance", found.covariance_p_value)):
        table.add_row(f"{label}: p-value of no change", p_value(value))
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
                p_value(each.mean_p_value),
                f"{each.variance_ratio:.2f}",
                *[p_value(each.variance_p_value)] * found.knows_kurtosis,
            )
        yield axes
    if not found.knows_kurtosis:
        yield "mean and covariance alone: the variances of single axes were not tested"
    if texts is not None:
        yield "\nleast like the old texts, with the distance in standard deviations (about 1 for the old texts):"
        yield from (f"  {each.distance:.2f}  {shortened(texts[each.row])}" for each in found.unusual)
