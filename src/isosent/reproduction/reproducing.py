"""Running the conditions of a paper where their models are at hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from isosent import _check
from isosent.encoders.reference import without_permissions
from isosent.errors import InputError
from isosent.evaluation.running import Run, environment
from isosent.papers.reading import PAPERS, known_paper, read_paper
from isosent.papers.tables import SCORE, Condition, Paper, PaperTable
from isosent.reproduction.at_hand import find_at_hand
from isosent.reproduction.evaluating import Folder, Numbers, evaluate, measure_speed
from isosent.reproduction.request import Plan, Request, plan
from isosent.reproduction.result import Cell, Number, Outcome, Reproduction, StandIn, TableOutcome
from isosent.reproduction.studying import best_layers, best_settings, best_widths

Measure = Callable[[Request, Sequence[str], Folder, Run], Numbers]

_STUDIES: Mapping[str, Measure] = {
    "dims": best_widths,
    "layers": best_layers,
    "gem": best_settings,
    "speed": measure_speed,
}


def reproduce(
    paper: str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    models: str | os.PathLike[str] | None = None,
    tables: Sequence[str] | None = None,
    run: Run | None = None,
    tell: Callable[[str], None] | None = None,
) -> Reproduction:
    """Measure the conditions of a paper's tables, as far as their models are at hand, beside what was published.

    Parameters
    ----------
    paper : str or path-like
        One of `PAPERS`, or a YAML file of that form, see `read_paper`.
    data : path-like
        Folder with the original files of the tasks, anywhere below it. Files of word vectors that the tables name are
        found there, too.
    models : path-like, optional
        Where models and files are, see `find_at_hand`.
    tables : sequence of str, optional
        Names of tables, such as "table 1" or "figure 1"; a number alone is that of a table. All where left out.
    run : Run, optional
        Seed, bootstrap, progress.
    tell : callable, optional
        Told what has been measured.

    Returns
    -------
    Reproduction
        Every condition of these tables: command, published and measured numbers, and what is missing.

    Raises
    ------
    InputError
        If there is no such paper or table, or a model that is named cannot be opened.

    Warns
    -----
    PermissionIgnoredWarning
        If a map or a paper's file holds a permission, which no file can grant.

    Notes
    -----
    What several conditions have in common is run once.
    """
    folder = Folder(_check.input_folder(data).resolve())
    chosen = _paper(paper)
    at_hand = find_at_hand(Path(data), models, more=[chosen])
    planned = [(table, [plan(table, each, at_hand) for each in table.conditions]) for table in _select(chosen, tables)]
    wanted: dict[Request, dict[str, None]] = {}
    for table, plans in planned:
        for request in (request for how in plans for request in how.runs):
            wanted.setdefault(request, {}).update(dict.fromkeys(table.tasks))
    measured = {}
    for request, tasks in wanted.items():
        measure = _STUDIES.get(request.family, evaluate)
        measured[request] = measure(request, list(tasks), folder, run or Run())
        if tell:
            tell(request.command(str(data), list(tasks)))
    outcomes = (
        TableOutcome(
            table,
            tuple(
                _outcome(table, condition, how, measured, str(data))
                for condition, how in zip(table.conditions, plans, strict=True)
            ),
        )
        for table, plans in planned
    )
    return Reproduction(chosen, tuple(outcomes), environment())


def _paper(paper: str | os.PathLike[str]) -> Paper:
    if paper not in PAPERS and not Path(paper).exists():
        raise InputError(f"reproduce: paper must be one of {', '.join(PAPERS)}, or a YAML file; got {str(paper)!r}.")
    if paper in PAPERS:
        return known_paper(str(paper))
    stored = read_paper(paper)
    return replace(stored, tables=tuple(_untrusted(table, paper) for table in stored.tables))


def _untrusted(table: PaperTable, paper: str | os.PathLike[str]) -> PaperTable:
    """A table out of a file, without permissions among the options of its models."""
    conditions = (
        replace(condition, options=without_permissions("", condition.options, file=paper)[1])
        for condition in table.conditions
    )
    return replace(table, conditions=tuple(conditions))


def _select(paper: Paper, names: Sequence[str] | None) -> list[PaperTable]:
    known = {table.name: table for table in paper.tables}
    chosen = known if names is None else [name if name in known else f"table {name}" for name in names]
    if absent := [name for name in chosen if name not in known]:
        raise InputError(f"reproduce: table must be among {'; '.join(known)}; got {absent[0]!r}.")
    return [known[name] for name in dict.fromkeys(chosen)]


def _outcome(
    table: PaperTable, condition: Condition, how: Plan, measured: Mapping[Request, Numbers], data: str
) -> Outcome:
    def numbers_and_command(request: Request) -> tuple[dict[str, Number], str]:
        """What was measured, and the command for these tasks; for all where there are none."""
        numbers = _by_column(table, condition, measured[request]) if request in how.runs else {}
        held = dict.fromkeys(column.task for column in table.columns if column.name in numbers)
        return numbers, request.command(data, list(held) or table.tasks)

    own, command = ({}, None) if how.request is None else numbers_and_command(how.request)
    scale = 100 if table.unit == SCORE else 1
    published = {name: number / scale for name, number in condition.published.items()}
    absent = dict.fromkeys(column.task for column in table.columns if column.name not in own)
    others = ((each.model, *numbers_and_command(each)) for each in how.stand_ins)
    return Outcome(
        condition.label,
        command,
        {column.name: Cell(published.get(column.name), own.get(column.name)) for column in table.columns},
        how.missing or ((_ABSENT.get(table.family or "", "files of {}").format(", ".join(absent)),) if absent else ()),
        tuple(StandIn(model, command, numbers) for model, numbers, command in others),
        condition.note,
    )


_ABSENT = {"speed": "a run on the {}", "layers": "as many as {} layers"}


def _by_column(table: PaperTable, condition: Condition, numbers: Numbers) -> dict[str, Number]:
    """Take the numbers of the columns whose tasks were measured."""
    found = {}
    for column in table.columns:
        metric = table.metric_of(column, condition)
        known = [name for task, name in numbers if task == column.task]
        if known and metric not in known:
            listed = ", ".join(name for name in known if name)
            raise InputError(f"reproduce: {table.name}: metric of {column.task} must be one of {listed}; got {metric}.")
        if known:
            found[column.name] = numbers[column.task, metric]
    return found
