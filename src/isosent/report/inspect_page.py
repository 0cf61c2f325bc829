"""An inspection as an HTML page with figures, and as tables for the terminal.

An `Inspection` has the numbers; here they become rows (`_count_rows`, `_figure_rows`, `_percentile_rows`,
`_recall_rows`, `_candidate_rows`). `inspection_tables` prints them on the terminal. `html_page` writes the page: the
recommendation first (`_lead`), the tables, and figures of cosines, percentiles, spectrum, principal axes, and agreement
with the texts (`_figures`). Tables leave out columns without a value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from isosent.jobs.inspect import COSINE_PAIRS, Inspection, Stage
from isosent.numeric.similarity import MOST_SAMPLED
from isosent.pages.figures import Axis, Figure, Key, Panel, percent
from isosent.pages.html import figure_box, html_document
from isosent.pages.report import ReportTable
from isosent.search.smaller import Size, Sizes
from isosent.storage import Storage
from isosent.transforms.auto import AutoChoice, ScoredCandidate, TopicalGain
from isosent.transforms.base import NO_TRANSFORM

CHOSEN = "chosen"
_CANDIDATE_COLUMNS = ("candidate", "pairs, gain [95% interval]", "topics, gain [95% interval]", "")
_AGREEMENT = (
    "Pairs: rank correlation of cosines with the word overlap (tf-idf) of pairs of texts. Topics: cosine of the topics "
    "of a text and its ten nearest neighbors. Each candidate was fitted on one half of the texts and measured on the "
    "other."
)
_SIZE_COLUMNS = ("stored as", "dimensions", "bytes", "disk", "recall@10", "queries/s", "agreement")
_MOST_POINTS = 300
_SHARE = 0.9  # of the variance, marked in the cumulative figure
_DESCRIBED_COSINE = 0.5
_FIGURES = (  # name, field of `SpaceFigures`, format, meaning
    ("dimensions", "dim", ".0f", ""),
    ("norm of the mean / mean norm", "relative_mean_norm", ".3f", "0: centered; near 1: all point one way"),
    ("mean cosine of random pairs", "mean_cosine", ".4f", "of unrelated texts; no measure of isotropy"),
    ("  standard deviation", "cosine_sd", ".4f", "how far random pairs differ"),
    ("  5th percentile", "cosine_p05", ".4f", ""),
    ("  50th percentile", "cosine_p50", ".4f", ""),
    ("  95th percentile", "cosine_p95", ".4f", "1 random pair in 20 scores more"),
    ("IsoScore", "isoscore", ".4f", "1: equal variance in all directions; 0: in one"),
    ("effective rank (dimensions)", "effective_rank", ".1f", "dimensions the variance is spread over"),
    ("participation ratio (dimensions)", "participation_ratio", ".1f", "the same, dominated by the large ones"),
    ("uniformity", "uniformity", ".3f", "lower: more even on the sphere; at best about -4"),
    ("top dimension, share of variance", "top_dimension_share", "share", "is there an outlying coordinate?"),
    ("top axis, share of variance", "top_axis_share", "share", "is there a dominating direction?"),
)


class Row(NamedTuple):
    name: str
    before: str = ""
    after: str = ""
    meaning: str = ""


def inspection_tables(inspection: Inspection, *, details: bool = False) -> list[ReportTable]:
    """Tables for the terminal; the recommendation is left to the caller."""
    after = "" if inspection.after is None else f"after: {inspection.after.label}"
    tables = [
        _terminal_table("rows", ("", "", "", ""), _count_rows(inspection)),
        _terminal_table("space", ("", "before", "after", ""), _figure_rows(inspection), after),
    ]
    if inspection.sizes is not None:
        tables.append(sizes_table(inspection.sizes, details=details))
    if details and inspection.choice is not None:
        columns = ("cosine", "before", "after", "")
        tables.append(_terminal_table("share of random pairs below a cosine", columns, _percentile_rows(inspection)))
        if inspection.choice.candidates:
            rows = _candidate_rows(inspection.choice)
            tables.append(_terminal_table("what auto compared", _CANDIDATE_COLUMNS, rows, _AGREEMENT))
    return tables


def sizes_table(sizes: Sizes, *, selected: Size | None = None, details: bool = False) -> ReportTable:
    """What smaller vectors keep: the front, the size that was chosen, and dropped dimensions; with details, all."""
    listed = _listed_sizes(sizes, selected, details=details)
    n_columns = 7 if any(each.agreement is not None for each in listed) else 6
    table = ReportTable(*_SIZE_COLUMNS[:n_columns], "mark", title="smaller", caption=_sizes_caption(sizes))
    for each in listed:
        mark = CHOSEN if each == selected else "front" if each in sizes.front else ""
        table.add_row(*_size_cells(each)[:n_columns], mark)
    return table


def _listed_sizes(sizes: Sizes, selected: Size | None, *, details: bool) -> list[Size]:
    """The front, and next to it what is often tried: half the dimensions, and codes alone."""
    front = sizes.front
    half = max((each.n_components for each in sizes.rows if each.n_components <= sizes.dim // 2), default=0)
    return [
        each
        for each in sorted(sizes.rows, key=lambda each: (-each.n_bytes, -each.recall))
        if details
        or each in front
        or each == selected
        or (each.dtype == Storage.float32 and each.n_components in (half, sizes.dim))
        or (each.transform == NO_TRANSFORM and each.oversampling != 10 and each.dtype != Storage.product)
    ]


def _size_cells(size: Size) -> tuple[str, ...]:
    return (
        f"{size.dtype_label} x {size.oversampling}" if size.oversampling else size.dtype_label,
        f"{size.n_components} {size.map_label}",
        f"{size.n_bytes:,.0f}",
        f"{size.n_bytes_on_disk:,.0f}" if size.n_bytes_on_disk else "",
        f"{size.recall:.4f} ± {(size.high - size.low) / 2:.4f}" if size.low < size.high else f"{size.recall:.4f}",
        f"{size.queries_per_s:,.0f}",
        "" if size.agreement is None else f"{size.agreement:.3f}",
    )


def _sizes_caption(sizes: Sizes) -> str:
    kind = "original" if sizes.rows[0].original_recall is None else "transformed"
    return (
        f"Recall@10: the share of the ten nearest {kind} vectors that are found, for {sizes.n_queries:,} held-out "
        f"queries among {sizes.n_texts:,} texts, with the 95% interval; among more texts, often fewer are found. Bytes "
        "are those in memory. Product: each half byte names the nearest of 16 vectors of its part of the dimensions, "
        "the codebooks, which take a few megabytes at most in all. "
        "Rescored x 40: 40 candidates per result are reranked with a float16 copy on disk. Rows "
        "marked front are the best of their size: nothing smaller keeps as many. Recall is about search: a "
        "classifier on binary codes, which has no copy to rerank with, loses 2 to 7 points of accuracy; on int8, "
        "hardly any."
    )


def _terminal_table(title: str, columns: Sequence[str], rows: Iterable[Row], caption: str = "") -> ReportTable:
    """A table without the columns that have no value in any row."""
    listed = list(rows)
    used = [i for i in range(len(Row._fields)) if any(row[i] for row in listed)]
    left = [place for place, i in enumerate(used) if i not in (1, 2)]
    table = ReportTable(
        *(columns[i] for i in used), left=left, title=title, caption=caption or None, has_header=any(columns)
    )
    for row in listed:
        table.add_row(*(row[i] for i in used))
    return table


def html_page(inspection: Inspection) -> str:
    """The page of an inspection."""
    css = (files("isosent.report") / "inspect_page.css").read_text("utf-8")
    after = ""
    if inspection.choice is not None:
        chosen = inspection.choice.chosen
        after = f"After: transformed as auto would choose, {chosen}."
        if chosen.name == NO_TRANSFORM:
            after = "After: with full whitening, for comparison; auto would apply no transform."
    columns = ("statistic", "before", "after", "meaning")
    parts = [
        _header(inspection),
        _figures(inspection),
        f'<div class="two"><section>{_candidates(inspection)}</section><section>{_meaning(inspection)}</section></div>',
        _sizes_section(inspection.sizes),
        f"<h2>All statistics</h2>{_lead(f'Before: the original vectors. {after}')}",
        _page_table(columns, _figure_rows(inspection), wide=True),
        "<h2>Rows</h2>",
        _page_table(("", "count", "", "meaning"), _count_rows(inspection), wide=True),
        f"<footer>isosent {version('isosent')}, seed {inspection.seed}. Counts, moments and the mean cosine before are "
        f"those of all rows. The spread of the cosines and all values after are from up to {MOST_SAMPLED:,} sampled "
        f"rows and {COSINE_PAIRS:,} random pairs of them.</footer>",
    ]
    return html_document(f"isosent inspect: {inspection.source}", "".join(parts), css=css)


def _lead(text: str) -> str:
    return f'<p class="lead">{escape(text)}</p>'


def _number(value: float, form: str) -> str:
    return "undefined" if math.isnan(value) else format(value, form)


def _header(inspection: Inspection) -> str:
    counts, figures = inspection.counts, inspection.before.figures
    made_by = "vectors" if inspection.model is None else f"vectors of <b>{escape(inspection.model)}</b>"
    unusable = f"{counts.n_zero:,} zero, {counts.n_non_finite:,} non-finite; {counts.n_duplicates:,} duplicates"
    tiles = (
        ("rows per dimension", f"{counts.rows_per_dim:,.1f}", f"{counts.n_used:,} rows, {counts.dim} dimensions"),
        (
            "mean cosine of random pairs",
            _number(figures.mean_cosine, "z.2f"),
            f"± {_number(figures.cosine_sd, '.2f')} (sd)",
        ),
        ("effective rank", _number(figures.effective_rank, ".0f"), f"of {counts.dim} dimensions"),
        ("IsoScore", _number(figures.isoscore, ".3f"), "0: one direction; 1: all alike"),
        ("top axis", _number(figures.top_axis_share, ".1%"), "of the variance"),
        ("unusable rows", f"{counts.n_rows - counts.n_used:,}", unusable),
    )
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>" for name, value, note in tiles)
    return (
        f'<header><p class="source"><b>{escape(inspection.source)}</b>: {made_by}</p>'
        f'<h1>{escape(inspection.advice)}</h1></header><dl class="tiles">{cells}</dl>'
    )


def _candidates(inspection: Inspection) -> str:
    if inspection.choice is None or not inspection.choice.candidates:
        return ""
    table = _page_table(_CANDIDATE_COLUMNS, _candidate_rows(inspection.choice))
    return f"<h2>What auto compared</h2>{_lead(_AGREEMENT)}{table}"


def _sizes_section(sizes: Sizes | None) -> str:
    if sizes is None:
        return ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in _SIZE_COLUMNS)
    body = []
    for each in _listed_sizes(sizes, None, details=True):
        first, *cells = map(escape, _size_cells(each))
        style = ' class="chosen"' if each in sizes.front else ""
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        body.append(f'<tr{style}><th scope="row">{first}</th>{numbers}</tr>')
    figure = figure_box("sizes", _sizes_figure(sizes), "Bytes against neighbors kept", "The line is the front.")
    return (
        f"<h2>Will search get worse?</h2>{_lead(_sizes_caption(sizes))}"
        f'<div class="figures">{figure}</div><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _sizes_figure(sizes: Sizes) -> Figure:
    """Bytes in memory against recall; larger dots are those of the front."""
    values = [each.n_bytes for each in sizes.rows]
    panel = Panel(
        Axis("bytes in memory per vector (log scale)", min(values) * 0.8, max(values) * 1.25, log=True),
        Axis("original neighbors kept", 0, 1.04, write=percent),
    )
    front = sizes.front
    panel.line([(each.n_bytes, each.recall) for each in front], "after")
    for each in sizes.rows:
        tip = f"{each}: {each.n_bytes:,.0f} bytes, recall {each.recall:.4f}, {each.queries_per_s:,.0f} queries/s"
        panel.dot(each.n_bytes, each.recall, "after" if each in front else "before", tip=tip)
    best = sizes.smallest(0.01)
    return _single_panel("Bytes against neighbors kept", sizes.sentence(best), panel)


def _meaning(inspection: Inspection) -> str:
    if inspection.choice is None:
        return ""
    lead = (
        "The share of random pairs of these rows below each cosine. A cosine that most random pairs exceed means "
        "little, and the same cosine means something else in every space."
    )
    table = _page_table(("cosine", "before", "after", ""), _percentile_rows(inspection))
    return f"<h2>What a cosine means here</h2>{_lead(lead)}{table}"


def _page_table(columns: Sequence[str], rows: Iterable[Row], *, wide: bool = False) -> str:
    """A table without the columns that have no value in any row."""
    listed = list(rows)
    used = [i for i in range(len(Row._fields)) if any(row[i] for row in listed)]
    classes = ("", "number", "number", "meaning")
    head = "".join(f'<th scope="col" class="{classes[i]}">{escape(columns[i])}</th>' for i in used)
    body = []
    for row in listed:
        cells = "".join(f'<td class="{classes[i]}">{escape(row[i])}</td>' for i in used if i)
        indented = ' class="sub"' if row.name.startswith(" ") else ""
        chosen = ' class="chosen"' if row.meaning == CHOSEN else ""
        body.append(f'<tr{chosen}><th scope="row"{indented}>{escape(row.name.strip())}</th>{cells}</tr>')
    style = "statistics" if wide else ""
    return (
        f'<div class="scroll"><table class="{style}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _count_rows(inspection: Inspection) -> list[Row]:
    counts = inspection.counts
    sampling = "too few to estimate the variance along every axis"
    if counts.rows_per_dim > 1:
        # The edges of the Marchenko-Pastur law: how far estimates of equal variances spread by chance.
        spread = counts.rows_per_dim**-0.5
        sampling = f"chance spreads equal variances from {(1 - spread) ** 2:.2f} to {(1 + spread) ** 2:.2f} times"
    rows = [
        Row("rows (N)", f"{counts.n_rows:,}"),
        Row("rows used", f"{counts.n_used:,}", "", "all statistics below are of these"),
        Row("rows used per dimension", f"{counts.rows_per_dim:.1f}", "", sampling),
        Row("zero rows", f"{counts.n_zero:,}", "", "no vector; left out"),
        Row("non-finite rows", f"{counts.n_non_finite:,}", "", "NaN or infinity; left out here, refused by fit"),
        Row("exact duplicates", f"{counts.n_duplicates:,}", "", "rows that equal an earlier one; not left out"),
    ]
    if counts.n_duplicate_texts is not None:
        rows.append(Row("duplicate texts", f"{counts.n_duplicate_texts:,}", "", "texts that equal an earlier one"))
    return [*rows, Row("dtype", counts.dtype)]


def _figure_rows(inspection: Inspection) -> list[Row]:
    def value(stage: Stage | None, field: str, form: str) -> str:
        if stage is None:
            return ""
        number = getattr(stage.figures, field)
        return _number(number, ".1%" if form == "share" else f"z{form}")

    return [
        Row(name, value(inspection.before, field, form), value(inspection.after, field, form), note)
        for name, field, form, note in _FIGURES
    ]


def _percentile_rows(inspection: Inspection) -> list[Row]:
    def share(value: float) -> str:
        """With more digits near the top, where they count."""
        if math.isnan(value):
            return "undefined"
        return f"{100 * value:.1f}%" if value < 0.99 else "> 99.99%" if value > 0.9999 else f"{100 * value:.2f}%"

    if inspection.after is None:
        return []
    columns = zip(inspection.marks, inspection.before.percentiles, inspection.after.percentiles, strict=True)
    return [Row(f"{mark:.1f}", share(before), share(after)) for mark, before, after in columns]


def _candidate_rows(choice: AutoChoice) -> list[Row]:
    def measured(signal: ScoredCandidate | TopicalGain | None) -> str:
        if signal is None:
            return ""
        return f"{signal.agreement:.3f}, {signal.gain:+.3f} [{signal.low:+.3f}, {signal.high:+.3f}]"

    return [
        Row(
            str(each.candidate),
            measured(each),
            measured(each.topics),
            CHOSEN if each.candidate == choice.chosen else "",
        )
        for each in choice.candidates
    ]


def _figures(inspection: Inspection) -> str:
    choice, after = inspection.choice, inspection.after
    if choice is None or after is None:
        return ""
    both = [Key("before", "before", 4), Key(f"after: {after.label}", "after", 4)]
    boxes = [
        figure_box("cosines", _cosine_figure(inspection, both), "Cosines of random pairs"),
        figure_box("percentiles", _percentile_figure(inspection, both), "What a cosine means"),
        figure_box("spectrum", _spectrum(inspection), "Spectrum", "Variance along each principal axis, largest first."),
        figure_box("cumulative", _cumulative(inspection), "Cumulative variance", "What the first axes hold together."),
    ]
    if choice.candidates:
        boxes.append(figure_box("agreement", _agreement_figure(choice), "Agreement with word overlap", _AGREEMENT))
    return f'<div class="figures">{"".join(boxes)}</div>'


def _single_panel(title: str, description: str, panel: Panel, legend: Sequence[Key] = ()) -> Figure:
    return Figure(title, description, [("", [panel])], legend)


def _stages(inspection: Inspection) -> list[tuple[str, Stage]]:
    after = [] if inspection.after is None else [("after", inspection.after)]
    return [("before", inspection.before), *after]


def _cosine_figure(inspection: Inspection, legend: Sequence[Key]) -> Figure:
    edges, stages = inspection.cosine_edges, _stages(inspection)
    highest = max(max(stage.cosine_shares) for _, stage in stages)
    y_axis = Axis(f"share of the pairs, bins of {edges[1] - edges[0]:.3f}", 0, highest * 1.12, write=percent)
    panel = Panel(Axis("cosine of a random pair", edges[0], edges[-1]), y_axis)
    for color, stage in stages:
        bins = zip(pairwise(edges), stage.cosine_shares, strict=True)
        outline = [(x, y) for ends, y in bins for x in ends]
        panel.area(outline, color)
        panel.line(outline, color)
    for row, (color, stage) in enumerate(stages):
        mean = stage.figures.mean_cosine
        panel.upright(mean, f"mean {mean:z.2f}", color=color, row=row)
    description = "; ".join(
        f"{stage.label}: mean {stage.figures.mean_cosine:.3f}, standard deviation {stage.figures.cosine_sd:.3f}"
        for _, stage in stages
    )
    return _single_panel("Cosines of random pairs", description, panel, legend)


def _percentile_figure(inspection: Inspection, legend: Sequence[Key]) -> Figure:
    edges = inspection.cosine_edges
    panel = Panel(Axis("cosine", edges[0], edges[-1]), Axis("random pairs that score less", 0, 1, write=percent))
    for color, stage in _stages(inspection):
        below = np.minimum(np.concatenate([[0.0], np.cumsum(stage.cosine_shares)]), 1.0)
        panel.line(zip(edges, below.tolist(), strict=True), color)
    description = "; ".join(
        f"{stage.label}: {percent(share)} of the random pairs score below {mark:g}"
        for _, stage in _stages(inspection)
        for mark, share in zip(inspection.marks, stage.percentiles, strict=True)
        if mark == _DESCRIBED_COSINE
    )
    return _single_panel("What a cosine means", description, panel, legend)


def _spectrum(inspection: Inspection) -> Figure:
    values = [value for value in inspection.eigenvalues if value > 0]
    y_axis = Axis("variance along the axis (log scale)", values[-1] * 0.6, values[0] * 1.7, log=True)
    panel = Panel(_principal_axes(inspection), y_axis)
    panel.line([(index + 1, values[index]) for index in _spread_indices(len(values))], "before")
    _mark_chosen(panel, inspection)
    description = (
        f"The first axis has a variance of {values[0]:.3g}, number {len(values)} has {values[-1]:.3g}; "
        f"{len(values)} of {len(inspection.eigenvalues)} axes are more than rounding noise."
    )
    return _single_panel("Spectrum of the original vectors", description, panel)


def _cumulative(inspection: Inspection) -> Figure:
    values = np.array(inspection.eigenvalues)
    shares = values.cumsum() / values.sum()
    enough = int(np.searchsorted(shares, _SHARE)) + 1
    panel = Panel(_principal_axes(inspection), Axis("variance kept by the axes up to here", 0, 1, write=percent))
    points = [(0.0, 0.0), *((index + 1.0, float(shares[index])) for index in _spread_indices(len(shares)))]
    words = f"{enough} axes: {percent(_SHARE)}"
    panel.area(points, "before")
    panel.line(points, "before")
    panel.dot(enough, shares[enough - 1], "before", tip=words)
    panel.text(enough, shares[enough - 1], words, shift=(9, -9) if enough > 0.57 * len(values) else (9, 18))
    _mark_chosen(panel, inspection, row=13)
    description = f"{enough} of {len(values)} axes have {percent(_SHARE)} of the variance."
    return _single_panel("Cumulative variance", description, panel)


def _principal_axes(inspection: Inspection) -> Axis:
    return Axis("principal axis", 0, max(2, len(inspection.eigenvalues)))


def _mark_chosen(panel: Panel, inspection: Inspection, row: int = 0) -> None:
    if inspection.choice is not None and (k := inspection.choice.chosen.n_components) is not None:
        panel.upright(k, f"chosen: k = {k}", row=row)


def _spread_indices(n: int) -> list[int]:
    """Indices below n: all, or evenly spread ones that include the first and the last."""
    return [int(index) for index in np.unique(np.linspace(0, n - 1, min(n, _MOST_POINTS)).round())]


def _agreement_figure(choice: AutoChoice) -> Figure:
    """Agreement against the strength of whitening, without whitening at the left."""
    first, *others = choice.candidates
    whitenings = [each for each in others if each.candidate.strength is not None]
    heights = [each.agreement for each in (first, *whitenings)]
    ends = [first.agreement + end for each in whitenings for end in (each.low, each.high)]
    room = 0.08 * (max(heights + ends) - min(heights + ends)) or 0.01
    strengths = [each.candidate.strength or 0.0 for each in whitenings]
    panel = Panel(
        Axis("strength of whitening", 0, 1.02, at=strengths),
        Axis("rank correlation with tf-idf", min(heights + ends) - room, max(heights + ends) + room),
    )
    panel.level(first.agreement)
    panel.text(0, first.agreement, str(first.candidate), shift=(4, -6))
    panel.line([(strength, each.agreement) for strength, each in zip(strengths, whitenings, strict=True)], "after")
    for strength, each in zip(strengths, whitenings, strict=True):
        panel.line([(strength, first.agreement + each.low), (strength, first.agreement + each.high)], "after")
        tip = f"{each.candidate}: {each.agreement:.3f} ({each.low:+.3f} to {each.high:+.3f})"
        panel.dot(strength, each.agreement, "after", tip=tip)
        if each.candidate == choice.chosen:
            panel.dot(strength, each.agreement, "ink", is_open=True, radius=6, tip=tip)
            panel.text(strength, each.agreement, "chosen", shift=(0, -11), bold=True)
    return _single_panel("Agreement with word overlap", f"Chosen: {choice.chosen}", panel)
