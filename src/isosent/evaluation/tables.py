"""Scores as tables for people, x100, with published scores beside them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from isosent.evaluation.published import PublishedRow, published_rows
from isosent.evaluation.result import ERRORS, EvaluationResult, TaskResult
from isosent.evaluation.rte import ENTAILMENT
from isosent.evaluation.sts import AGGREGATIONS, METRICS
from isosent.transforms.base import AUTO

BASELINES = ("majority", "search_engine", "random")  # what needs no vectors, among the details of a task


def x100(score: float) -> str:
    """Write a score as tables show it."""
    return "undefined" if math.isnan(score) else f"{100 * score:.2f}"


def interval_x100(interval: tuple[float, float]) -> str:
    """Write an interval as tables show it."""
    return "undefined" if any(map(math.isnan, interval)) else " to ".join(f"{100 * end:.1f}" for end in interval)


def sts_table(result: EvaluationResult) -> Table:
    """Lay out the aggregations of every task, and the published rows for the same model, in 100 columns."""
    table = Table(caption_justify="left")
    table.add_column("x100")
    columns = [*result.tasks, "average"] if len(result.tasks) > 1 else list(result.tasks)
    for column in columns:
        table.add_column(column, justify="right")
    tasks = result.tasks.values()
    aggregations = AGGREGATIONS if any(len(task.details["subsets"]) > 1 for task in tasks) else AGGREGATIONS[:1]
    missing = [name for task in tasks for name in task.protocol.get("missing_subsets", ())]
    published = published_rows(result.model, {**result.fitting, "missing_subsets": missing})
    sources: list[str] = []
    for metric in METRICS:
        for how in aggregations:
            name = metric if how == "all" else f"{metric}_{how}"
            scores = [*(task.scores[name] for task in tasks), result.average(name)]
            table.add_row(f"{metric} {how}", *map(x100, scores[: len(columns)]))
            if how == "all":
                for end, label in enumerate(("  95% from", "  95% to")):
                    table.add_row(label, *(x100(task.intervals[name][end]) for task in tasks), style="dim")
            for row in published if metric == "spearman" else ():
                cells = _published_cells(row, result)
                if row.aggregation == how and set(cells) != {"-"}:
                    sources.append(row.label)
                    table.add_row(f"  published [{len(sources)}]", *cells, style="dim")
        table.add_section()
    footnotes = [f"[{number}] {source}" for number, source in enumerate(sources, start=1)]
    table.caption = "\n".join([_sts_caption(result), *footnotes])
    return table


def subset_table(result: EvaluationResult) -> Table:
    """Lay out every subset."""
    table = Table("task", "subset")
    for name in ("pairs", *METRICS):
        table.add_column(name, justify="right")
    for task, scores in result.tasks.items():
        for name, subset in scores.details["subsets"].items():
            table.add_row(task, name, str(subset["n_pairs"]), *(x100(subset[metric]) for metric in METRICS))
        table.add_section()
    return table


def rte_table(result: EvaluationResult) -> Table:
    """Lay out the accuracy on RTE."""
    (task,) = result.tasks.values()
    details = task.details
    caption = [
        *_caption(result),
        f"pairs: {details['n_train']} of train, {task.n_items} of dev; 95% interval of the first accuracy: "
        f"{interval_x100(task.interval)}",
    ]
    table = Table(caption="\n".join(caption), caption_justify="left")
    table.add_column("RTE, entailment if")
    for name in ("accuracy on dev, x100", "entailed", "on train, x100"):
        table.add_column(name, justify="right")
    for how, of in (("", details["fixed"]), (", best on train", details["tuned"])):
        dev, train = x100(of["dev_accuracy"]), x100(of["train_accuracy"])
        table.add_row(f"cosine > {of['threshold']:.3g}{how}", dev, str(of["dev_entailed"]), train)
    n_entailed = task.n_items if details["majority"] == ENTAILMENT else 0
    majority = x100(task.scores["accuracy_majority"])
    table.add_row(f"always {details['majority']}", majority, str(n_entailed), style="dim")
    return table


def task_table(result: EvaluationResult) -> Table:
    """Lay out tasks of any kind."""
    table = Table(caption="\n".join(_caption(result)), caption_justify="left")
    for name in ("task", "items", "judged by", "x100", "95% interval", "beside it"):
        table.add_column(name, justify="right" if name in ("items", "x100", "95% interval") else "left")
    for kind in dict.fromkeys(task.kind for task in result.tasks.values()):
        own = {name: task for name, task in result.tasks.items() if task.kind == kind}
        for name, task in own.items():
            interval = interval_x100(task.interval)
            table.add_row(name, f"{task.n_items:,}", task.metric, x100(task.score), interval, _beside(task))
        for metric, n_tasks in Counter(task.metric for task in own.values()).items():
            if n_tasks > 1:
                average = x100(result.average_of(kind, metric))
                table.add_row(f"average of {n_tasks}", "", metric, average, "", kind, style="dim")
        table.add_section()
    return table


def _beside(task: TaskResult) -> str:
    """The other metrics of a task, and what it takes to be better than nothing."""
    others = {
        name: f"{score:.3f}" if name in ERRORS else x100(score)
        for name, score in task.scores.items()
        if name != task.metric and not name.endswith(("_mean", "_wmean"))
    }
    baselines = {
        name: x100(of[task.metric]) for name, of in task.details.items() if name in BASELINES and task.metric in of
    }
    return ", ".join(f"{name.replace('_', ' ')} {written}" for name, written in (others | baselines).items())


def _published_cells(row: PublishedRow, result: EvaluationResult) -> list[str]:
    """A published score for each task, a dash where it is over other pairs than ours."""
    sickr = result.tasks["SICKR"].protocol["sickr"] if "SICKR" in result.tasks else ""
    scores = row.scores_of(result.tasks, sickr)
    return [f"{scores[task]:.2f}" if task in scores else "-" for task in result.tasks]


def _sts_caption(result: EvaluationResult) -> str:
    lines = _caption(result)
    counts = ", ".join(f"{name} {task.n_items:,}" for name, task in result.tasks.items())
    sickr = f" ({result.tasks['SICKR'].protocol['sickr']})" if "SICKR" in result.tasks else ""
    return "\n".join([*lines, f"pairs: {counts}{sickr}"])


def _caption(result: EvaluationResult) -> list[str]:
    """What was measured and how, in a few lines."""
    tasks: Sequence[TaskResult] = list(result.tasks.values())
    lines = model_lines(result.model, result.fitting)
    lines += [f"  auto chose for {name}: {task.choice['chosen']}" for name, task in result.tasks.items() if task.choice]
    lines.append(f"dimensions: {', '.join(map(str, sorted({task.dim for task in tasks})))}")
    cut = f"; cut: {result.n_cut}" if result.n_cut else ""
    lines.append(f"texts without a vector: {sum(task.n_zero_rows for task in tasks)}{cut}")
    lines += [
        f"{name}: {counts['n_items_same']:,} of {counts['n_items']:,} items occur in {result.fitting['fit']}"
        for name, counts in result.fitting.get("overlap", {}).items()
        if counts["n_items_same"]
    ]
    lines += [
        f"{name}: {task.details['n_unscored']:,} rows without a score were left out"
        for name, task in result.tasks.items()
        if task.details.get("n_unscored")
    ]
    n_tokens, n_unknown = sum(task.n_tokens for task in tasks), sum(task.n_unknown for task in tasks)
    if n_tokens:
        lines.append(f"unknown tokens: {n_unknown:,} of {n_tokens:,} ({n_unknown / n_tokens:.1%})")
    return lines


def model_lines(model: Mapping[str, Any], fitting: Mapping[str, Any]) -> list[str]:
    """Say what a model is, and what was fitted behind it."""
    options = "&".join(f"{name}={value}" for name, value in model["options"].items())
    lines = [f"model: {model['reference']}{'?' if options else ''}{options}"]
    lines += [
        f"  -> left alone by auto, on {fit['source']}"
        if fit["transform"] == "none"
        else f"  -> {_call(fit['transform'], fit['parameters'])} fitted on {fit['source']}"
        for fit in model["fits"]
    ]
    if fitting["transductive"] and fitting["transform"] == AUTO:
        lines.append(f"  -> auto, on {fitting['fit']}")
    elif fitting["transductive"] and fitting["transform"]:
        lines.append(f"  -> {_call(fitting['transform'], fitting['parameters'])} fitted on {fitting['fit']}")
    elif fitting["transductive"]:
        lines.append(f"  -> the encoder fitted on {fitting['fit']}")
    return lines


def _call(name: str, parameters: Mapping[str, object]) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in parameters.items())})"
