"""Scores as tables for people, x100, with published scores beside them."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from isosent.evaluation.published import PublishedRow, published_rows
from isosent.evaluation.rte import RTEResult
from isosent.evaluation.rte_files import ENTAILMENT
from isosent.evaluation.sts import AGGREGATIONS, METRICS, STSResult
from isosent.transforms.base import AUTO


def x100(score: float) -> str:
    """Write a score as tables show it.

    Parameters
    ----------
    score : float
        In [-1, 1], or NaN.

    Returns
    -------
    str
        Times 100, with two decimals.

    Examples
    --------
    >>> x100(0.5), x100(float("nan"))
    ('50.00', 'undefined')
    """
    return "undefined" if math.isnan(score) else f"{100 * score:.2f}"


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
    columns = [*result.tasks, "average"] if len(result.tasks) > 1 else list(result.tasks)
    for column in columns:
        table.add_column(column, justify="right")
    aggregations = AGGREGATIONS if any(len(task.subsets) > 1 for task in result.tasks.values()) else AGGREGATIONS[:1]
    published = published_rows(result.model, result.protocol)
    for metric in METRICS:
        for how in aggregations:
            scores = [getattr(task, metric)[how] for task in result.tasks.values()]
            table.add_row(f"{metric} {how}", *_cells([*scores, result.average[metric][how]][: len(columns)]))
            for row in published if metric == "spearman" else ():
                cells = _published_cells(row, result)
                if row.aggregation == how and set(cells) != {"-"}:
                    table.add_row(f"  published: {row.label}", *cells, style="dim")
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


def rte_table(result: RTEResult) -> Table:
    """Lay out the accuracy on RTE.

    Parameters
    ----------
    result : RTEResult
        Scores.

    Returns
    -------
    Table
        One row a way to decide.
    """
    caption = [
        *_model_lines(result.model, result.protocol),
        *([f"  auto chose: {result.choice['chosen']}"] if result.choice else []),
        f"dimensions: {result.dim}",
        f"pairs: {result.n_train} of train, {result.n_dev} of dev; 95 % interval of an accuracy on dev: "
        f"+-{100 * result.interval:.1f}",
        f"sentences without a vector: {result.n_zero_rows}; cut: {result.n_cut}",
        *_unknown_lines(result.n_tokens, result.n_unknown),
    ]
    table = Table(caption="\n".join(caption), caption_justify="left")
    table.add_column("RTE, entailment where")
    for name in ("accuracy on dev, x100", "called entailment", "accuracy on train, x100"):
        table.add_column(name, justify="right")
    for how, of in (("", result.fixed), (", best on train", result.tuned)):
        accuracies = _cells([of.dev_accuracy, of.train_accuracy])
        table.add_row(f"cosine > {of.threshold:.3g}{how}", accuracies[0], str(of.dev_entailed), accuracies[1])
    n_entailed = result.n_dev if result.majority == ENTAILMENT else 0
    table.add_row(f"always {result.majority}", *_cells([result.majority_accuracy]), str(n_entailed), style="dim")
    return table


def _cells(scores: Iterable[float]) -> list[str]:
    return [x100(score) for score in scores]


def _published_cells(row: PublishedRow, result: STSResult) -> list[str]:
    """A published score for each task, a dash where it is over other pairs than ours."""
    scores = row.scores_of(result.tasks, result.protocol["sickr"])
    return [f"{scores[task]:.2f}" if task in scores else "-" for task in result.tasks]


def _caption(result: STSResult) -> str:
    """What was measured and how, in a few lines."""
    lines = _model_lines(result.model, result.protocol)
    lines += [f"  auto chose for {name}: {task.choice['chosen']}" for name, task in result.tasks.items() if task.choice]
    dims = sorted({task.dim for task in result.tasks.values()})
    lines.append(f"dimensions: {', '.join(map(str, dims))}")
    if "SICKR" in result.tasks:
        lines.append(f"SICKR: {result.tasks['SICKR'].n_pairs} pairs ({result.protocol['sickr']})")
    lines.append(f"sentences without a vector: {sum(task.n_zero_rows for task in result.tasks.values())}")
    scores = result.tasks.values()
    lines += _unknown_lines(sum(task.n_tokens for task in scores), sum(task.n_unknown for task in scores))
    return "\n".join(lines)


def _model_lines(model: Mapping[str, Any], protocol: Mapping[str, Any]) -> list[str]:
    """The model, and what was fitted behind it."""
    options = "&".join(f"{name}={value}" for name, value in model["options"].items())
    lines = [f"model: {model['reference']}{'?' if options else ''}{options}"]
    lines += [
        f"  -> left alone by auto, on {fit['source']}"
        if fit["transform"] == "none"
        else f"  -> {_call(fit['transform'], fit['parameters'])} fitted on {fit['source']}"
        for fit in model["fits"]
    ]
    if protocol["transform"] == AUTO:
        lines.append(f"  -> auto, on {protocol['fit']}")
    elif protocol["transform"]:
        lines.append(f"  -> {_call(protocol['transform'], protocol['parameters'])} fitted on {protocol['fit']}")
    elif protocol["fit"] and not model["fits"]:
        lines.append(f"  -> the encoder fitted on {protocol['fit']}")
    return lines


def _unknown_lines(n_tokens: int, n_unknown: int) -> list[str]:
    return [f"unknown tokens: {n_unknown:,} of {n_tokens:,} ({n_unknown / n_tokens:.1%})"] if n_tokens else []


def _call(name: str, parameters: Mapping[str, object]) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in parameters.items())})"
