"""Reproduced tables as rows of text, and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from isosent.papers.tables import SCORE
from isosent.reproduction.request import needs
from isosent.reproduction.result import MANY_UNKNOWN, Cell, Number, Outcome, Reproduction, TableOutcome

UNKNOWN = "unknown"
_DAGGER = "\u2020"
LEGEND = (
    f"A cell: the published number, or {UNKNOWN}; where it was measured, first the measured one, then (published) and "
    f"their difference. {_DAGGER}: more than {MANY_UNKNOWN:.0%} of the tokens have no vector; not to be compared."
)


def header(done: TableOutcome) -> list[str]:
    """Headings of the columns of a table."""
    return ["condition", *(column.name for column in done.table.columns), "measured"]


def rows(done: TableOutcome, *, line_end: str = "\n", emphasis: str = "") -> list[list[str]]:
    """Lay out a table.

    Parameters
    ----------
    done : TableOutcome
        The table.
    line_end : str, default a line feed
        What parts the numbers of a cell.
    emphasis : str, default none
        What stands on both sides of a measured number.

    Returns
    -------
    list of list of str
        One row a condition and one a stand-in: its label, a cell a column, and whether it was measured.
    """
    laid_out = []
    for outcome in done.outcomes:
        label = f"{outcome.label} ({outcome.note})" if outcome.note else outcome.label
        cells = [_cell(done, outcome.cells[column.name], line_end, emphasis) for column in done.table.columns]
        laid_out.append([label, *cells, _state(outcome)])
        for other in outcome.stand_ins:
            numbers = (other.measured.get(column.name) for column in done.table.columns)
            written = [_measured(done, number, line_end, emphasis) if number else "missing" for number in numbers]
            laid_out.append([f"  {other.model} in its place", *written, "another model"])
    return laid_out


def _state(outcome: Outcome) -> str:
    if not outcome.missing:
        return "yes"
    return needs(outcome.missing)


def _cell(done: TableOutcome, cell: Cell, line_end: str, emphasis: str) -> str:
    published = UNKNOWN if cell.published is None else _written(done, cell.published)
    if cell.measured is None:
        return published
    parts = [_measured(done, cell.measured, line_end, emphasis), f"({published})"]
    if cell.difference is not None and done.table.unit == SCORE:
        parts.append(f"{round(done.scale * cell.difference, 2) + 0.0:+.2f}")  # + 0.0: no minus before zero
    return line_end.join(parts)


def _measured(done: TableOutcome, number: Number, line_end: str, emphasis: str) -> str:
    mark = "" if number.is_comparable else f" {_DAGGER}"
    written = f"{emphasis}{_written(done, number.value)}{emphasis}{mark}"
    return f"{written}{line_end}{number.at}" if number.at else written


def _written(done: TableOutcome, value: float) -> str:
    if math.isnan(value):
        return "undefined"
    return f"{done.scale * value:.2f}" if done.table.unit == SCORE else f"{value:,.0f}"


def caption(done: TableOutcome) -> list[str]:
    """What to know when reading a table: unit, source, notes."""
    metric = f"{done.table.metric} " if done.table.metric else ""
    how = f", {done.table.aggregation}" if done.table.aggregation else ""
    return [f"{metric}{done.table.unit}{how}. Published numbers: {done.table.source}.", *done.table.notes]


def commands(done: TableOutcome) -> Mapping[str, str]:
    """The command of every condition that has one, and of every stand-in, by label."""
    found = {}
    for outcome in done.outcomes:
        if outcome.command is not None:
            found[outcome.label] = outcome.command
        found |= {f"{outcome.label}, {other.model} in its place": other.command for other in outcome.stand_ins}
    return found


def to_markdown(reproduction: Reproduction, *, with_commands: bool = False) -> str:
    """Write a reproduction as Markdown.

    Parameters
    ----------
    reproduction : Reproduction
        What was found.
    with_commands : bool, default False
        Whether the commands follow each table.

    Returns
    -------
    str
        A heading for the paper, and below it one for each table.
    """
    paper = reproduction.paper
    arxiv = f", arXiv {paper.arxiv}" if paper.arxiv else ""
    lines = [f"## {paper.name}: {paper.title}", "", f"{paper.citation}{arxiv}."]
    for done in reproduction.tables:
        lines += ["", f"### {paper.name}, {done.table.name}: {done.table.title}", "", *_sentences(caption(done)), ""]
        lines += _markdown_table(header(done), rows(done, line_end=" ", emphasis="**"))
        if with_commands and (listed := commands(done)):
            lines += ["", "```bash", *(f"{command}  # {label}" for label, command in listed.items()), "```"]
    return "\n".join(lines) + "\n"


def _sentences(captions: Iterable[str]) -> list[str]:
    return [f"- {_escaped(sentence)}" for sentence in captions]


def _markdown_table(head: list[str], body: list[list[str]]) -> list[str]:
    lines = [" | ".join(map(_escaped, row)) for row in (head, *body)]
    return [f"| {lines[0]} |", f"|{'---|' * len(head)}", *(f"| {line} |" for line in lines[1:])]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("[", "\\[").strip()
