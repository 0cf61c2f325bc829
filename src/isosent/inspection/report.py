"""An inspection as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from isosent.inspection.result import Inspection
from isosent.inspection.rows import (
    CANDIDATE_COLUMNS,
    Row,
    candidate_rows,
    count_rows,
    effect_rows,
    figure_rows,
    percentile_rows,
)

_CANDIDATES = 8


def inspection_tables(inspection: Inspection) -> list[Table]:
    """Lay out an inspection, the advice left to the caller.

    Parameters
    ----------
    inspection : Inspection
        What was found.

    Returns
    -------
    list of Table
        Rows, figures, candidates, effect and what a cosine means; those that there is something to say in.
    """
    after = "" if inspection.after is None else inspection.after.label
    tables = [
        _table("rows", ("", "", "", ""), count_rows(inspection.counts)),
        _table("space", ("", "before", "after", ""), figure_rows(inspection), f"after: {after}" if after else None),
    ]
    if inspection.choice is not None:
        columns = ("cosine", "before", "after", "")
        tables.append(_table("share of random pairs below a cosine", columns, percentile_rows(inspection)))
        title = f"auto would choose: {inspection.choice.chosen}"
        rows = candidate_rows(inspection, _CANDIDATES)
        tables.append(_table(title, CANDIDATE_COLUMNS, rows, inspection.choice.reason))
    if inspection.effect is not None:
        columns = (f"{inspection.effect.n_texts:,} held-out texts", "before", "after", "difference")
        title = f"effect of {inspection.effect.label}"
        tables.append(_table(title, columns, effect_rows(inspection), inspection.effect_note))
    return tables


def _table(title: str, columns: Sequence[str], rows: Iterable[Row], caption: str | None = None) -> Table:
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
