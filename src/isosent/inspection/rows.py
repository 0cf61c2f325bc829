"""The lines of the tables, for the terminal and for the page: name, value before, value after, and what it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from isosent.inspection.effect import Change
from isosent.inspection.result import Inspection
from isosent.inspection.survey import RowCounts, SpaceFigures
from isosent.selection.candidates import LEAVE


@dataclass(frozen=True, slots=True)
class Row:
    """One line.

    Parameters
    ----------
    name : str
        What is counted or measured, with its unit.
    before, after : str
        The value; empty where there is none.
    meaning : str
        What it says.
    """

    name: str
    before: str
    after: str
    meaning: str


CHOSEN = "chosen"
CANDIDATE_COLUMNS = ("candidate", "keeps meaning", "separates", "")
_FIGURES: tuple[tuple[str, Callable[[SpaceFigures], float], str, str], ...] = (
    ("dimensions", lambda f: f.dim, ".0f", ""),
    (
        "norm of the mean / mean norm",
        lambda f: f.relative_mean_norm,
        ".3f",
        "0: centred; near 1: all vectors point one way",
    ),
    (
        "mean cosine of random pairs",
        lambda f: f.mean_cosine,
        ".4f",
        "what unrelated texts score; no measure of isotropy",
    ),
    ("  standard deviation", lambda f: f.cosine_sd, ".4f", "how far random pairs differ"),
    ("  5th percentile", lambda f: f.cosine_p05, ".4f", ""),
    ("  50th percentile", lambda f: f.cosine_p50, ".4f", ""),
    ("  95th percentile", lambda f: f.cosine_p95, ".4f", "1 random pair in 20 scores more"),
    ("IsoScore", lambda f: f.isoscore, ".4f", "1: variance the same in every direction; 0: all in one"),
    ("effective rank (dimensions)", lambda f: f.effective_rank, ".1f", "dimensions the variance is spread over"),
    ("participation ratio (dimensions)", lambda f: f.participation_ratio, ".1f", "the same, ruled by the large ones"),
    ("uniformity", lambda f: f.uniformity, ".3f", "lower: directions cover the sphere more evenly; at best about -4"),
    ("top dimension, share of variance", lambda f: f.top_dimension_share, "share", "one outlying coordinate?"),
    ("top axis, share of variance", lambda f: f.top_axis_share, "share", "one dominating direction?"),
)


def count_rows(counts: RowCounts) -> list[Row]:
    """Lay out the counts.

    Parameters
    ----------
    counts : RowCounts
        Rows, good and bad.

    Returns
    -------
    list of Row
        With the value in `before`.
    """
    listed = [
        Row("rows (N)", f"{counts.n_rows:,}", "", ""),
        Row("rows used", f"{counts.n_used:,}", "", "all figures below are theirs"),
        Row("rows used per dimension", f"{counts.rows_per_dim:.1f}", "", _sampling(counts)),
        Row("zero rows", f"{counts.n_zero:,}", "", "no vector; left out"),
        Row("non-finite rows", f"{counts.n_non_finite:,}", "", "NaN or infinity; left out here, refused by a fit"),
        Row("exact duplicates", f"{counts.n_duplicates:,}", "", "rows that equal an earlier one; they stay in"),
        Row("number type", counts.dtype, "", ""),
    ]
    if counts.n_duplicate_texts is not None:
        listed.insert(6, Row("duplicate texts", f"{counts.n_duplicate_texts:,}", "", "texts that equal an earlier one"))
    return listed


def _sampling(counts: RowCounts) -> str:
    """What so many rows can tell of the variances: the edges of the Marchenko-Pastur law."""
    if counts.rows_per_dim <= 1:
        return "too few to tell the variance along every axis"
    spread = counts.rows_per_dim**-0.5
    return f"chance alone spreads equal variances from {(1 - spread) ** 2:.2f} to {(1 + spread) ** 2:.2f} of themselves"


def figure_rows(inspection: Inspection) -> list[Row]:
    """Lay out the figures of the space.

    Parameters
    ----------
    inspection : Inspection
        What was found.

    Returns
    -------
    list of Row
        One a figure.
    """
    after = inspection.after
    return [
        Row(
            name,
            _written(of(inspection.before.figures), form),
            "" if after is None else _written(of(after.figures), form),
            meaning,
        )
        for name, of, form, meaning in _FIGURES
    ]


def percentile_rows(inspection: Inspection) -> list[Row]:
    """Lay out what a cosine means.

    Parameters
    ----------
    inspection : Inspection
        What was found.

    Returns
    -------
    list of Row
        One a cosine, with the share of random pairs below it; none where there are too few.
    """
    if inspection.after is None:
        return []
    columns = zip(inspection.marks, inspection.before.percentiles, inspection.after.percentiles, strict=True)
    return [Row(f"{mark:.1f}", _share(one), _share(two), "") for mark, one, two in columns]


def effect_rows(inspection: Inspection) -> list[Row]:
    """Lay out the effect on held-out pairs.

    Parameters
    ----------
    inspection : Inspection
        What was found.

    Returns
    -------
    list of Row
        No row where nothing was measured.
    """
    effect = inspection.effect
    if effect is None:
        return []
    return [
        _effect_row("right copy found first", effect.found),
        _effect_row("copies told from unrelated pairs (AUC)", effect.ranked),
    ]


def candidate_rows(inspection: Inspection, at_most: int) -> list[Row]:
    """Lay out the best candidates, and what leaving the vectors alone scores.

    Parameters
    ----------
    inspection : Inspection
        What was found.
    at_most : int
        Lines.

    Returns
    -------
    list of Row
        The chosen one, then the others by falling score; the scores under `CANDIDATE_COLUMNS`.
    """
    if inspection.choice is None:
        return []
    chosen = inspection.choice.chosen
    ranked = sorted(inspection.choice.candidates, key=lambda one: (one.candidate != chosen, -(one.score or 0.0)))
    kept = ranked[:at_most] + [one for one in ranked[at_most:] if one.candidate.name == LEAVE]
    return [
        Row(
            str(one.candidate),
            _figure(one.score),
            _figure(one.separation),
            CHOSEN if one.candidate == chosen else "",
        )
        for one in kept
    ]


def _effect_row(name: str, change: Change) -> Row:
    interval = (
        f"{100 * change.difference:+.2f} points, 95 % interval {100 * change.low:+.2f} to {100 * change.high:+.2f}"
    )
    return Row(name, f"{100 * change.before:.2f} %", f"{100 * change.after:.2f} %", interval)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _written(value: float, form: str) -> str:
    if math.isnan(value):
        return "undefined"
    return f"{100 * value:.1f} %" if form == "share" else f"{value:z{form}}"


def _share(value: float) -> str:
    """A share of pairs as a percentage, with more digits near the top, where they count."""
    if math.isnan(value):
        return "undefined"
    return f"{100 * value:.1f} %" if value < 0.99 else "> 99.99 %" if value > 0.9999 else f"{100 * value:.2f} %"
