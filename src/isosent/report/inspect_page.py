"""An inspection as tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from importlib.resources import files
from itertools import pairwise

import numpy as np
from rich.table import Table

from isosent.pages.figures import Axis, Frame, percent, plain
from isosent.pages.html import html_document
from isosent.report.inspect import COSINE_PAIRS, SAMPLE_ROWS, Change, Inspection, RowCounts, SpaceFigures, Stage
from isosent.transforms.auto import LEAVE, AutoChoice, Candidate


@dataclass(frozen=True, slots=True)
class Row:
    """One line."""

    name: str  # what is counted or measured, with its unit
    before: str  # the value; empty where there is none
    after: str  # the value; empty where there is none
    meaning: str  # what it says


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
    """Lay out the counts."""
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
    """Lay out the figures of the space."""
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
    """Lay out what a cosine means."""
    if inspection.after is None:
        return []
    columns = zip(inspection.marks, inspection.before.percentiles, inspection.after.percentiles, strict=True)
    return [Row(f"{mark:.1f}", _share(one), _share(two), "") for mark, one, two in columns]


def effect_rows(inspection: Inspection) -> list[Row]:
    """Lay out the effect on held-out pairs."""
    effect = inspection.effect
    if effect is None:
        return []
    return [
        _effect_row("right copy found first", effect.found),
        _effect_row("copies told from unrelated pairs (AUC)", effect.ranked),
    ]


def candidate_rows(inspection: Inspection, at_most: int) -> list[Row]:
    """Lay out the best candidates, and what leaving the vectors alone scores."""
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


N_SHADES = 5
_POINTS = 300
_SHARE = 0.9
_DESCRIBED_COSINE = 0.5


def spectrum_figure(inspection: Inspection) -> str:
    """Draw the variance along each principal axis, on a logarithmic scale."""
    values = [value for value in inspection.eigenvalues if value > 0]
    frame = Frame(
        _axes_axis(inspection),
        Axis("variance along the axis (log scale)", values[-1] * 0.6, values[0] * 1.7, log=True),
    )
    points = [(index + 1, values[index]) for index in _some(len(values))]
    description = (
        f"The first axis has a variance of {values[0]:.3g}, number {len(values)} has {values[-1]:.3g}; "
        f"{len(values)} of {len(inspection.eigenvalues)} axes are more than rounding noise."
    )
    marks = [frame.line(points, "line before"), *_chosen_mark(frame, inspection)]
    return frame.drawing("spectrum", "Spectrum of the vectors as they are", description, marks)


def cumulative_figure(inspection: Inspection) -> str:
    """Draw the share of the variance that the first axes have together."""
    values = np.array(inspection.eigenvalues)
    shares = values.cumsum() / values.sum()
    enough = int(np.searchsorted(shares, _SHARE)) + 1
    frame = Frame(_axes_axis(inspection), Axis("variance kept, all axes up to here", 0, 1, write=percent))
    points = [(0.0, 0.0), *((index + 1.0, float(shares[index])) for index in _some(len(shares)))]
    words = f"{enough} axes: {percent(_SHARE)}"
    aside = (9, -9) if enough > 0.57 * len(values) else (9, 18)
    marks = [
        frame.area(points, "fill before"),
        frame.line(points, "line before"),
        frame.dot(enough, shares[enough - 1], "before", words),
        frame.text(enough, shares[enough - 1], words, "note", shift=aside),
        *_chosen_mark(frame, inspection, row=13),
    ]
    title = f"{enough} of {len(values)} axes have {percent(_SHARE)} of the variance"
    return frame.drawing("cumulative", "Cumulative variance", title, marks)


def cosine_figure(inspection: Inspection) -> str:
    """Draw the cosines of random pairs before and after."""
    edges = inspection.cosine_edges
    stages = _stages(inspection)
    highest = max(max(stage.cosine_shares) for _, stage in stages)
    frame = Frame(
        Axis("cosine of a random pair", edges[0], edges[-1]),
        Axis(f"share of the pairs, bins of {edges[1] - edges[0]:.3f}", 0, highest * 1.12, write=percent),
    )
    bins = list(pairwise(edges))
    marks = []
    for style, stage in stages:
        outline = [(x, y) for ends, y in zip(bins, stage.cosine_shares, strict=True) for x in ends]
        marks.append(frame.area(outline, f"fill line {style}"))
    for row, (style, stage) in enumerate(stages):
        marks.append(frame.upright(stage.figures.mean_cosine, f"mean {stage.figures.mean_cosine:z.2f}", style, row=row))
    description = "; ".join(
        f"{stage.label}: mean {stage.figures.mean_cosine:.3f}, standard deviation {stage.figures.cosine_sd:.3f}"
        for _, stage in stages
    )
    return frame.drawing("cosines", "Cosines of random pairs", description, marks)


def percentile_figure(inspection: Inspection) -> str:
    """Draw the share of random pairs below each cosine, before and after."""
    edges = inspection.cosine_edges
    frame = Frame(Axis("cosine", edges[0], edges[-1]), Axis("random pairs that score less", 0, 1, write=percent))
    marks = []
    for style, stage in _stages(inspection):
        below = np.concatenate([[0.0], np.cumsum(stage.cosine_shares)])
        marks.append(frame.line(zip(edges, np.minimum(below, 1.0), strict=True), f"line {style}"))
    description = "; ".join(
        f"{stage.label}: {percent(share)} of the random pairs score below {mark:g}"
        for _, stage in _stages(inspection)
        for mark, share in zip(inspection.marks, stage.percentiles, strict=True)
        if mark == _DESCRIBED_COSINE
    )
    return frame.drawing("percentiles", "What a cosine means", description, marks)


def score_figure(choice: AutoChoice, score: str) -> str:
    """Draw a score of the candidates against strength, one line for each number of dimensions."""
    scored = {c.candidate: (getattr(c, score), f"{c.candidate}: {getattr(c, score):.4g}") for c in choice.candidates}
    lines = _lines(scored)
    flat = [
        (scored[c][0], f"{'chosen: ' if c == choice.chosen else ''}{c}")
        for c in scored
        if c.strength is None and (c == choice.chosen or c.name == LEAVE)
    ]
    heights = [height for height, _ in flat] + [height for line in lines.values() for _, height, _ in line]
    room = 0.08 * (max(heights) - min(heights)) or 1.0
    at = sorted({strength for line in lines.values() for strength, _, _ in line})
    frame = Frame(
        Axis("strength: 0 only rotates, 1 whitens fully", at[0] - 0.02, at[-1] + 0.55 * (at[-1] - at[0]), at=at),
        Axis("log-odds, higher is better", min(heights) - room, max(heights) + room),
    )
    marks, words = [frame.level(height) for height, _ in flat], flat
    for place, (width, line) in enumerate(lines.items(), start=1):
        shade = f"after k{round(place / len(lines) * (N_SHADES - 1))}"
        marks.append(frame.line([(strength, height) for strength, height, _ in line], f"line {shade}"))
        marks += [frame.dot(strength, height, shade, tip) for strength, height, tip in line]
        words.append((line[-1][1], "all dimensions" if width is None else f"k = {width}"))
    marks.append(frame.list_at(at[-1] + 0.04 * (at[-1] - at[0]), words))
    height, tip = scored[choice.chosen]
    if choice.chosen.strength is not None:
        marks.append(frame.dot(choice.chosen.strength, height, "chosen", tip))
        marks.append(frame.text(choice.chosen.strength, height, "chosen", "note strong", shift=(0, -11)))
    return frame.drawing(score, f"{score.capitalize()} of the candidates", f"Chosen: {tip}", marks)


def _lines(scored: Mapping[Candidate, tuple[float, str]]) -> dict[int | None, list[tuple[float, float, str]]]:
    """Strength, score and words of the candidates that have a strength, by dimensions kept; None, for all, last."""
    lines: dict[int | None, list[tuple[float, float, str]]] = {}
    for candidate in sorted(scored, key=lambda c: c.n_components or float("inf")):
        if candidate.strength is not None:
            lines.setdefault(candidate.n_components, []).append((candidate.strength, *scored[candidate]))
    return {width: sorted(points) for width, points in lines.items()}


def _axes_axis(inspection: Inspection) -> Axis:
    return Axis("principal axis", 0, max(2, len(inspection.eigenvalues)), write=plain)


def _chosen_mark(frame: Frame, inspection: Inspection, row: int = 0) -> list[str]:
    choice = inspection.choice
    if choice is None or choice.chosen.n_components is None:
        return []
    k = choice.chosen.n_components
    return [frame.upright(k, f"chosen: k = {k}", row=row)]


def _stages(inspection: Inspection) -> list[tuple[str, Stage]]:
    after = [] if inspection.after is None else [("after", inspection.after)]
    return [("before", inspection.before), *after]


def _some(n: int) -> list[int]:
    """Return indices below n, all or an even choice, the first and the last among them."""
    return [int(index) for index in np.unique(np.linspace(0, n - 1, min(n, _POINTS)).round())]


_CANDIDATES = 12
_SCORES = (
    ("separation", "Whether to whiten: telling related texts from unrelated ones", "What auto decides by."),
    ("score", "How to whiten: keeping meaning", "What auto chooses strength and width by."),
)


def html_page(inspection: Inspection) -> str:
    """Write the page."""
    css = (files("isosent.report") / "inspect_page.css").read_text("utf-8")
    parts = [
        _header(inspection),
        _figures(inspection),
        f'<div class="two"><section>{_candidates(inspection)}</section><section>{_meaning(inspection)}</section></div>',
        _effect(inspection),
        f"<h2>All figures</h2><p class='lead'>Before: the vectors as they are. {_after_note(inspection)}</p>",
        _table(("figure", "before", "after", "what it says"), figure_rows(inspection), wide=True),
        "<h2>Rows</h2>",
        _table(("", "count", "", "what it says"), count_rows(inspection.counts), wide=True),
        _footer(inspection),
    ]
    return html_document(f"isosent inspect: {inspection.source}", "".join(parts), css=css)


def _header(inspection: Inspection) -> str:
    counts, figures = inspection.counts, inspection.before.figures
    made_by = "bare vectors" if inspection.model is None else f"vectors of <b>{escape(inspection.model)}</b>"
    unusable = f"{counts.n_zero:,} zero, {counts.n_non_finite:,} non-finite; {counts.n_duplicates:,} duplicates"
    tiles = (
        ("rows per dimension", f"{counts.rows_per_dim:,.1f}", f"{counts.n_used:,} rows, {counts.dim} dimensions"),
        ("mean cosine of random pairs", f"{figures.mean_cosine:z.2f}", f"± {figures.cosine_sd:.2f} (sd)"),
        ("effective rank", f"{figures.effective_rank:.0f}", f"of {counts.dim} dimensions"),
        ("IsoScore", f"{figures.isoscore:.3f}", "0 one direction, 1 all alike"),
        ("top axis", f"{100 * figures.top_axis_share:.1f} %", "of the variance"),
        ("unusable rows", f"{counts.n_rows - counts.n_used:,}", unusable),
    )
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>" for name, value, note in tiles)
    return (
        f'<header><p class="source"><b>{escape(inspection.source)}</b>: {made_by}</p>'
        f'<h1>{escape(inspection.advice)}</h1>{_effect_line(inspection)}</header><dl class="tiles">{cells}</dl>'
    )


def _effect_line(inspection: Inspection) -> str:
    effect = inspection.effect
    if effect is None:
        return ""
    rows = effect_rows(inspection)
    told = "".join(f"<li>{escape(row.name)}: {row.before} → {row.after} ({row.meaning})</li>" for row in rows)
    about = f"{escape(effect.label)}, on {effect.n_texts:,} held-out texts:"
    return f'<div class="effect"><p>{about}</p><ul>{told}</ul></div>'


def _figures(inspection: Inspection) -> str:
    if inspection.choice is None or inspection.after is None:
        return ""
    choice, after = inspection.choice, escape(inspection.after.label)
    both = f'<span><i class="key before"></i>before</span> <span><i class="key after"></i>after: {after}</span>'
    shown = [
        ("Cosines of random pairs", f'<span class="keys">{both}</span>', cosine_figure(inspection)),
        ("What a cosine means", f'<span class="keys">{both}</span>', percentile_figure(inspection)),
        ("Spectrum", "Variance along each principal axis, largest first.", spectrum_figure(inspection)),
        ("Cumulative variance", "What the first axes hold together.", cumulative_figure(inspection)),
    ]
    if len({scored.candidate.strength for scored in choice.candidates} - {None}) > 1:
        shown += [
            (title, f"{caption} k: dimensions kept.", score_figure(choice, score))
            for score, title, caption in _SCORES
            if all(getattr(scored, score) is not None for scored in choice.candidates)
        ]
    drawn = (f"<figure><figcaption><b>{title}</b>{caption}</figcaption>{svg}</figure>" for title, caption, svg in shown)
    return f'<div class="figures">{"".join(drawn)}</div>'


def _candidates(inspection: Inspection) -> str:
    if inspection.choice is None:
        return ""
    table = _table(CANDIDATE_COLUMNS, candidate_rows(inspection, _CANDIDATES))
    return f'<h2>What auto would choose</h2><p class="lead">{escape(inspection.choice.reason)}</p>{table}'


def _effect(inspection: Inspection) -> str:
    return f'<h2>How the effect on held-out pairs is measured</h2><p class="lead">{escape(inspection.effect_note)}</p>'


def _meaning(inspection: Inspection) -> str:
    if inspection.choice is None:
        return ""
    lead = (
        "The share of random pairs of these rows that score less. A cosine that most random pairs reach tells little; "
        "the same number means something else in every space."
    )
    table = _table(("cosine", "before", "after", ""), percentile_rows(inspection))
    return f'<h2>What a cosine means here</h2><p class="lead">{lead}</p>{table}'


def _after_note(inspection: Inspection) -> str:
    if inspection.choice is None:
        return ""
    if inspection.choice.chosen.name == LEAVE:
        return "After: behind a full whitening, for comparison; auto would leave the vectors alone."
    return f"After: behind what auto would choose, {escape(str(inspection.choice.chosen))}."


def _table(columns: Sequence[str], rows: Iterable[Row], *, wide: bool = False) -> str:
    """A table; columns that have no value in any row are left out."""
    listed = list(rows)
    fields = ("name", "before", "after", "meaning")
    used = [i for i, field in enumerate(fields) if any(getattr(row, field) for row in listed)]
    classes = ("", "number", "number", "meaning")
    head = "".join(f'<th scope="col" class="{classes[i]}">{escape(columns[i])}</th>' for i in used)
    body = "".join(_line(row, [i for i in used if i], classes) for row in listed)
    kind = "figures-table" if wide else ""
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _line(row: Row, used: Sequence[int], classes: Sequence[str]) -> str:
    cells = "".join(
        f'<td class="{classes[i]}">{escape((row.name, row.before, row.after, row.meaning)[i])}</td>' for i in used
    )
    indented = ' class="sub"' if row.name.startswith(" ") else ""
    chosen = ' class="chosen"' if row.meaning == CHOSEN else ""
    return f'<tr{chosen}><th scope="row"{indented}>{escape(row.name.strip())}</th>{cells}</tr>'


def _footer(inspection: Inspection) -> str:
    return (
        f"<footer>isosent {version('isosent')}, seed {inspection.seed}. Counts, moments and the mean cosine before are "
        f"those of all rows; the spread of the cosines and everything after are from at most {SAMPLE_ROWS:,} sampled "
        f"rows and {COSINE_PAIRS:,} random pairs of them.</footer>"
    )


_CANDIDATES_report = 8


def inspection_tables(inspection: Inspection) -> list[Table]:
    """Lay out an inspection, the advice left to the caller."""
    after = "" if inspection.after is None else inspection.after.label
    tables = [
        _table_report("rows", ("", "", "", ""), count_rows(inspection.counts)),
        _table_report(
            "space", ("", "before", "after", ""), figure_rows(inspection), f"after: {after}" if after else None
        ),
    ]
    if inspection.choice is not None:
        columns = ("cosine", "before", "after", "")
        tables.append(_table_report("share of random pairs below a cosine", columns, percentile_rows(inspection)))
        title = f"auto would choose: {inspection.choice.chosen}"
        rows = candidate_rows(inspection, _CANDIDATES_report)
        tables.append(_table_report(title, CANDIDATE_COLUMNS, rows, inspection.choice.reason))
    if inspection.effect is not None:
        columns = (f"{inspection.effect.n_texts:,} held-out texts", "before", "after", "difference")
        title = f"effect of {inspection.effect.label}"
        tables.append(_table_report(title, columns, effect_rows(inspection), inspection.effect_note))
    return tables


def _table_report(title: str, columns: Sequence[str], rows: Iterable[Row], caption: str | None = None) -> Table:
    """A table; columns that have no value in any row are left out."""
    listed = list(rows)
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left", show_header=any(columns))
    used = [
        i for i, field in enumerate(("name", "before", "after", "meaning")) if any(getattr(r, field) for r in listed)
    ]
    for i in used:
        table.add_column(columns[i], justify="right" if i in (1, 2) else "left")
    for row in listed:
        values = (row.name, row.before, row.after, row.meaning)
        table.add_row(*(values[i] for i in used))
    return table
