"""Tables of texts as CSV and LaTeX."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from io import StringIO

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "…": r"\ldots{}",
    "<": r"\textless{}",  # in the default encoding of fonts, these three are other signs
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # at the start of a row, an option of the row before
    "]": "{]}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_LONG_NAME, _FEW_COLUMNS = 24, 5  # characters, and columns: beyond both, names are broken to fit a page
_SIGN = re.compile(r"(?<![^ ])[-+](?=\d)")  # in text mode, a minus would be a hyphen
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


def csv_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def latex_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """A table for the package booktabs: the first column aligned left, the others right.

    A row whose first cell is indented has details of the row above it, and is written small.
    """
    has_details = any(row[0].startswith(" ") for row in rows)
    is_wide = max((len(row[0]) for row in rows), default=0) > _LONG_NAME and len(columns) > _FEW_COLUMNS
    name = r"p{0.26\linewidth}" if is_wide else "l"

    def line(cells: Sequence[str]) -> str:
        first, *others = map(_escaped, cells)
        if first.startswith(" "):
            first, *others = rf"\quad\scriptsize {first.strip()}", *(rf"\scriptsize {cell}" for cell in others)
        elif is_wide:
            first = rf"\raggedright {first}"
        return " & ".join([first, *others]) + r" \\"

    heads = [line(columns)]
    if is_wide and any(column.endswith(")") for column in columns):  # what is in brackets goes into a second line
        parts = [column.partition(" (") for column in columns]
        heads = [line([name for name, *_ in parts]), line([f"{sign.strip()}{rest}" for _, sign, rest in parts])]
    body: list[str] = []
    for row in rows:
        if has_details and body and not row[0].startswith(" "):
            body.append(r"\addlinespace")
        body.append(line(row))
    lines = [r"\begin{table}", r"\centering", r"\small", r"\setlength{\tabcolsep}{4pt}"]
    lines += [rf"\begin{{tabular}}{{{name}{'r' * (len(columns) - 1)}}}", r"\toprule", *heads, r"\midrule"]
    lines += [*body, r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\caption{{{_escaped(caption)}}}"] if caption else []
    return "\n".join([*lines, r"\end{table}", ""])


def _escaped(text: str) -> str:
    """A text for LaTeX."""
    return _SIGN.sub(r"$\g<0>$", _SPECIAL.sub(lambda match: _LATEX[match[0]], text))
