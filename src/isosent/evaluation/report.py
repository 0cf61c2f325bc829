"""STS scores as a table for people, x100, with published scores beside them."""

import math
from collections.abc import Iterable

from rich.table import Table

from isosent.evaluation.published import PublishedRow, published_rows
from isosent.evaluation.sts import AGGREGATIONS, METRICS, STSResult
from isosent.evaluation.sts_files import TASKS


def sts_table(result: STSResult) -> Table:
    """Lay out the aggregations of every task, and the published rows for the same model.

    Parameters
    ----------
    result : STSResult
        Scores.

    Returns
    -------
    Table
        One column a task, one row an aggregation.
    """
    table = Table(caption=_caption(result), caption_justify="left")
    table.add_column("x100")
    for task in (*result.tasks, "average"):
        table.add_column(task, justify="right")
    published = published_rows(result.model, result.protocol)
    for metric in METRICS:
        for how in AGGREGATIONS:
            scores = [getattr(task, metric)[how] for task in result.tasks.values()]
            table.add_row(f"{metric} {how}", *_cells([*scores, result.average[metric][how]]))
            if metric == "spearman":
                for row in published:
                    if row.aggregation == how:
                        table.add_row(f"  published: {row.label}", *_published_cells(row, result), style="dim")
        table.add_section()
    return table


def subset_table(result: STSResult) -> Table:
    """Lay out every subset.

    Parameters
    ----------
    result : STSResult
        Scores.

    Returns
    -------
    Table
        One row a subset.
    """
    table = Table()
    for name, justify in (("task", "left"), ("subset", "left"), ("pairs", "right"), *((m, "right") for m in METRICS)):
        table.add_column(name, justify="right" if justify == "right" else "left")
    for task, scores in result.tasks.items():
        for name, subset in scores.subsets.items():
            table.add_row(task, name, str(subset.n_pairs), *_cells([subset.spearman, subset.pearson]))
        table.add_section()
    return table


def _cells(scores: Iterable[float]) -> list[str]:
    return ["undefined" if math.isnan(score) else f"{100 * score:.2f}" for score in scores]


def _published_cells(row: PublishedRow, result: STSResult) -> list[str]:
    """A published score for each task, a dash where it is over other pairs than ours."""
    scores = dict(zip(TASKS, row.scores, strict=True))
    if row.sickr != result.protocol["sickr"]:
        scores.pop("SICKR")
    return [f"{scores[task]:.2f}" if task in scores else "-" for task in result.tasks] + [""]


def _caption(result: STSResult) -> str:
    protocol, zero_rows = result.protocol, sum(task.n_zero_rows for task in result.tasks.values())
    fitted = "no transform fitted"
    if protocol["transform"]:
        settings = ", ".join(f"{name}={value}" for name, value in protocol["parameters"].items())
        fitted = f"{protocol['transform']}({settings}) fitted on {protocol['fit']}"
    return f"{result.model['reference']}; {fitted}; SICK-R {protocol['sickr']}; sentences without a vector: {zero_rows}"
