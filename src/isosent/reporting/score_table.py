"""The leaderboard as an HTML table that can be sorted."""

from __future__ import annotations

import math
from html import escape

from isosent.evaluation.protocol import TARGET
from isosent.evaluation.tables import interval_x100, x100
from isosent.reporting.html_parts import NONE, breakable, scrolling
from isosent.reporting.leaderboard import Column, Leaderboard
from isosent.reporting.rows import Row

_SHORT_KIND = 3


def kind_title(kind: str) -> str:
    """Write a kind of task as a heading."""
    return kind.upper() if len(kind) <= _SHORT_KIND else kind.capitalize()


def score_table(board: Leaderboard) -> str:
    """Return the table: a row a model, a column a task, averages before the tasks of a kind.

    Parameters
    ----------
    board : Leaderboard
        The leaderboard.

    Returns
    -------
    str
        HTML; the script of the page sorts it by its headings.
    """
    kinds = "".join(
        f'<th scope="colgroup" colspan="{len(columns)}">{escape(kind_title(kind))}</th>'
        for kind, columns in board.kinds.items()
    )
    heads = "".join(_head(column, is_sorted=column is board.columns[0]) for column in board.columns)
    rows = "".join(f"<tr>{_model(row)}{''.join(_cell(c, row) for c in board.columns)}</tr>" for row in board.rows)
    model = '<th scope="col" class="model" rowspan="2" aria-sort="none"><button type="button">Model</button></th>'
    caption = "Scores times 100 with 95 % intervals. Press a heading to sort."
    return scrolling(
        "Leaderboard",
        f'<table class="scores"><caption>{caption}</caption><thead><tr>{model}{kinds}</tr><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table>",
    )


def _head(column: Column, *, is_sorted: bool) -> str:
    order = "descending" if is_sorted else "none"
    notes = [column.metric.replace("_", " "), *([column.apart] if column.apart else [])]
    told = "".join(f"<small>{escape(note)}</small>" for note in notes)
    title = f"average of {len(column.tasks)}" if column.is_average else column.title
    style = ' class="average"' if column.is_average else ""
    return f'<th scope="col"{style} aria-sort="{order}"><button type="button">{escape(title)}</button>{told}</th>'


def _model(row: Row) -> str:
    dims = sorted({task.dim for task in row.tasks.values()})
    told = [_fitted_on(row), f"{dims[0]} to {dims[-1]} dimensions" if len(dims) > 1 else f"{dims[0]} dimensions"]
    return f'<th scope="row">{breakable(row.label)}<small>{escape("; ".join(told))}</small></th>'


def _fitted_on(row: Row) -> str:
    source = row.files[0].result.fitting["fit"]
    if source is None:
        return "nothing fitted"
    return "fitted on the texts of each task" if source == TARGET else f"fitted on {source}"


def _cell(column: Column, row: Row) -> str:
    if row.label not in column.cells:
        return f'<td class="none">{NONE}<span class="unseen">not measured</span></td>'
    cell = column.cells[row.label]
    if math.isnan(cell.score):
        return '<td class="none">undefined</td>'
    interval = "" if cell.interval is None else f"<small>{interval_x100(cell.interval)}</small>"
    if column.best != row.label:
        return f'<td data-score="{cell.score:.9f}">{x100(cell.score)}{interval}</td>'
    mark = '<span class="star" aria-hidden="true">★</span><span class="unseen">best</span>'
    return f'<td class="best" data-score="{cell.score:.9f}">{mark} {x100(cell.score)}{interval}</td>'
