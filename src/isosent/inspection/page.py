"""An inspection as one HTML page that needs nothing else: no network, no script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files

from isosent.inspection.figures import (
    cosine_figure,
    cumulative_figure,
    percentile_figure,
    score_figure,
    spectrum_figure,
)
from isosent.inspection.result import Inspection
from isosent.inspection.rows import (
    CANDIDATE_COLUMNS,
    CHOSEN,
    Row,
    candidate_rows,
    count_rows,
    effect_rows,
    figure_rows,
    percentile_rows,
)
from isosent.inspection.survey import COSINE_PAIRS, SAMPLE_ROWS
from isosent.pages.document import html_document
from isosent.selection.candidates import LEAVE

_CANDIDATES = 12
_SCORES = (
    ("separation", "Whether to whiten: telling related texts from unrelated ones", "What auto decides by."),
    ("score", "How to whiten: keeping meaning", "What auto chooses strength and width by."),
)


def html_page(inspection: Inspection) -> str:
    """Write the page.

    Parameters
    ----------
    inspection : Inspection
        What was found.

    Returns
    -------
    str
        A whole HTML document: the advice, figures, tables. It follows the reader's light or dark scheme and prints.
    """
    css = (files("isosent.inspection") / "page.css").read_text("utf-8")
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
