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
_SIGN = re.compile(r"(?<![^ ])[-+](?=\d)")  # in text mode, a minus would be a hyphen
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


def csv_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def latex_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """A table for the package booktabs: the first column aligned left, the others right."""

    def line(cells: Sequence[str]) -> str:
        escaped = (_SPECIAL.sub(lambda match: _LATEX[match[0]], cell) for cell in cells)
        return " & ".join(_SIGN.sub(r"$\g<0>$", cell) for cell in escaped) + r" \\"

    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"]
    lines += [r"\toprule", line(columns), r"\midrule", *map(line, rows), r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\caption{{{line([caption])[:-3]}}}"] if caption else []
    return "\n".join([*lines, r"\end{table}", ""])
