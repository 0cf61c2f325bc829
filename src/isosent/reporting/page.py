"""A report: results and studies as one HTML page that needs nothing else, and no network."""

from __future__ import annotations

import re
from html import escape
from importlib.metadata import version
from importlib.resources import files

from isosent.pages.document import html_document
from isosent.reporting.dot_plot import DotPlot
from isosent.reporting.html_parts import figure, key, lead, listed, section
from isosent.reporting.leaderboard import Leaderboard
from isosent.reporting.palette import colour_rules, dot
from isosent.reporting.reading import ReportData
from isosent.reporting.run_sections import choices_section, cost_section, small_print_section
from isosent.reporting.score_table import kind_title, score_table
from isosent.reporting.study_sections import auto_section, dims_section, layers_section, pooling_section

_CONTENTS = re.compile(r'<section id="([\w-]+)"><h2>(.*?)</h2>')


def html_report(data: ReportData, board: Leaderboard) -> str:
    """Write the page.

    Parameters
    ----------
    data : ReportData
        What was read.
    board : Leaderboard
        What `make_leaderboard` made of its results.

    Returns
    -------
    str
        A whole HTML document: leaderboard, figures, choices of "auto", time and memory, studies, small print.
    """
    sections = [
        *([_leaderboard(board), _by_task(board)] if board.rows else []),
        dims_section(data.dims),
        layers_section(data.layers),
        pooling_section(data.pooling),
        choices_section(board),
        auto_section(data.auto),
        *([cost_section(board), small_print_section(board)] if board.rows else []),
    ]
    title = report_title(data, board)
    contents = (_CONTENTS.findall(part)[:1] for part in sections)
    nav = "".join(f'<a href="#{name}">{heading}</a>' for found in contents for name, heading in found)
    css, script = ((files("isosent.reporting") / name).read_text("utf-8") for name in ("page.css", "page.js"))
    header = (
        f'<header><p class="made">isosent report<button type="button" id="theme" hidden>Dark</button></p>'
        f"<h1>{escape(title)}</h1><nav>{nav}</nav></header>"
    )
    footer = f"<footer>isosent {escape(version('isosent'))}</footer>"
    body = "".join([header, *sections, footer])
    return html_document(f"isosent report: {title}", body, css=css + colour_rules(), script=script)


def report_title(data: ReportData, board: Leaderboard) -> str:
    """Say in a few words what a report is of."""
    if not board.rows:
        shown = ("dims", data.dims), ("layers", data.layers), ("pooling", data.pooling), ("auto", data.auto)
        return f"Studies of {', '.join(name for name, study in shown if study)}"
    n_models = len(board.rows)
    n_tasks = len({(column.kind, column.title) for column in board.columns if not column.is_average})
    return f"{n_models} model{'s' * (n_models > 1)} on {n_tasks} task{'s' * (n_tasks > 1)}"


def _leaderboard(board: Leaderboard) -> str:
    return section(
        "leaderboard",
        "Leaderboard",
        lead(
            "Scores times 100, with 95 % intervals. A star marks the best of a column only where it beats the second "
            "beyond chance, in a paired test on the same items (p < 0.05, for tasks after Holm's correction)."
        ),
        listed(board.notes),
        score_table(board),
        '<p id="sorted" class="unseen" role="status"></p>',
    )


def _by_task(board: Leaderboard) -> str:
    labels = [row.label for row in board.rows]
    plots = (
        figure(
            kind_title(kind),
            "",
            DotPlot(columns, labels).drawing(f"dots-{number}", f"{kind_title(kind)}: scores by task"),
        )
        for number, (kind, columns) in enumerate(board.kinds.items())
    )
    return section(
        "tasks",
        "Task by task",
        lead("Dots are scores, lines their 95 % intervals."),
        key((dot(number, 12, 7), label) for number, label in enumerate(labels)),
        f'<div class="figures">{"".join(plots)}</div>',
    )
