"""Tables for the terminal, and of texts as CSV and LaTeX."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rich takes 0.1 s to import
    from rich.table import Table

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "…": r"\ldots{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


def make_table(
    *columns: str, left: int = 1, title: str | None = None, caption: str | None = None, header: bool = True
) -> Table:
    """An empty table of rich. The first `left` columns hold texts; the others hold numbers, and align to the right."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left", show_header=header)
    for position, name in enumerate(columns):
        table.add_column(name, justify="left" if position < left else "right")
    return table


def csv_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def latex_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """A table for the package booktabs: the first column aligned left, the others right."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(_SPECIAL.sub(lambda match: _LATEX[match[0]], cell) for cell in cells) + r" \\"

    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"]
    lines += [r"\toprule", line(columns), r"\midrule", *map(line, rows), r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\caption{{{line([caption])[:-3]}}}"] if caption else []
    return "\n".join([*lines, r"\end{table}", ""])
