"""Scores as tables of a report, x100, next to published scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from isosent.evaluation.overlap import NEAR_SHARE, NEAR_WORDS
from isosent.evaluation.published import published_rows
from isosent.evaluation.result import ERRORS, INTERVAL_LABELS, EvaluationResult, TaskResult, interval_x100
from isosent.evaluation.rte import ENTAILMENT
from isosent.evaluation.sts import AGGREGATIONS, METRICS
from isosent.pages.report import ReportTable
from isosent.transforms.base import AUTO

BASELINES = ("majority", "search_engine", "random")  # details of a task with scores that need no vectors


def x100(score: float) -> str:
    """Format a score for a table."""
    return "undefined" if math.isnan(score) else f"{100 * score:.2f}"


def result_tables(results: Sequence[EvaluationResult], transforms: Sequence[str]) -> Iterator[ReportTable]:
    """A table of the result of each transform, and one of all side by side."""
    for result in results:
        yield from _tables(result)
    if len(transforms) > 1:
        yield _variants_table(dict(zip(transforms, results, strict=True)))


def _tables(result: EvaluationResult) -> Iterator[ReportTable]:
    """The table of STS, with its aggregations and published rows, and that of all other tasks."""
    of_sts = {name: task for name, task in result.tasks.items() if task.kind == "sts"}
    others = {name: task for name, task in result.tasks.items() if name not in of_sts}
    if of_sts:
        yield sts_table(replace(result, tasks=of_sts))
    if others:
        is_rte = [task.kind for task in others.values()] == ["rte"]
        yield (rte_table if is_rte else task_table)(replace(result, tasks=others))


def _variants_table(results: Mapping[str, EvaluationResult]) -> ReportTable:
    """The main score of every task under every transform, x100."""
    table = ReportTable("task", "metric", *results, left=range(2))
    first = next(iter(results.values()))
    tasks = first.tasks
    for name, task in tasks.items():
        scores = (x100(result.tasks[name].score) for result in results.values())
        table.add_row(name + task.mark, task.metric, *scores)
    kinds = [(task.kind, task.metric) for task in tasks.values()]
    for kind, metric in dict.fromkeys(kinds):
        if kinds.count((kind, metric)) > 1:
            averages = (x100(result.average_of(kind, metric)) for result in results.values())
            table.add_row(f"average, {kind}{first.average_mark(kind, metric)}", metric, *averages)
    return table


def sts_table(result: EvaluationResult) -> ReportTable:
    """Lay out the aggregations of every task, and the published rows for the same model, in 100 columns."""
    tasks = result.tasks.values()
    columns = [name + task.mark for name, task in result.tasks.items()]
    columns += [f"average{result.average_mark()}"] if len(columns) > 1 else []
    sickr = result.tasks["SICKR"].protocol["sickr"] if "SICKR" in result.tasks else ""
    counts = ", ".join(f"{name} {task.n_items:,}" for name, task in result.tasks.items())
    caption = [*_caption(result), f"pairs: {counts}{f' ({sickr})' if sickr else ''}"]
    published = []
    comparable = [name for name, task in result.tasks.items() if task.is_comparable]
    for row in published_rows(result.model, result.fitting):
        if known := row.scores_of(comparable, sickr):  # without a score that is over other pairs than ours
            published.append((row, [f"{known[task]:.2f}" if task in known else "-" for task in result.tasks]))
            caption.append(f"[{len(published)}] {row.label}")
    table = ReportTable("x100", *columns, caption="\n".join(caption))
    aggregations = AGGREGATIONS if any(len(task.details["subsets"]) > 1 for task in tasks) else AGGREGATIONS[:1]
    for metric in METRICS:
        for how in aggregations:
            name = metric if how == "all" else f"{metric}_{how}"
            scores = [*(task.scores[name] for task in tasks), result.average(name)]
            table.add_row(f"{metric} {how}", *map(x100, scores[: len(columns)]))
            if how == "all":
                intervals = [task.intervals[name] for task in tasks]
                intervals += [result.average_interval(result.tasks, name)] if len(tasks) > 1 else []
                for end, label in enumerate(INTERVAL_LABELS):
                    table.add_row(f"  {label}", *(x100(interval[end]) for interval in intervals), is_dim=True)
            for number, (row, cells) in enumerate(published, start=1):
                if metric == "spearman" and row.aggregation == how:
                    table.add_row(f"  published [{number}]", *cells, is_dim=True)
        table.add_section()
    return table


def rte_table(result: EvaluationResult) -> ReportTable:
    """Lay out the accuracy on RTE."""
    (task,) = result.tasks.values()
    details = task.details
    caption = [
        *_caption(result),
        f"pairs: {details['n_train']} of train, {task.n_items} of dev; 95% interval of the first accuracy: "
        f"{interval_x100(task.interval)}",
    ]
    columns = ("accuracy on dev, x100", "entailed", "on train, x100")
    table = ReportTable(f"RTE{task.mark}, entailment if", *columns, caption="\n".join(caption))
    for label, threshold in (("", details["fixed"]), (", best on train", details["tuned"])):
        dev, train = x100(threshold["dev_accuracy"]), x100(threshold["train_accuracy"])
        table.add_row(f"cosine > {threshold['threshold']:.3g}{label}", dev, str(threshold["dev_entailed"]), train)
    n_entailed = task.n_items if details["majority"] == ENTAILMENT else 0
    majority = x100(task.scores["accuracy_majority"])
    table.add_row(f"always {details['majority']}", majority, str(n_entailed), is_dim=True)
    return table


def task_table(result: EvaluationResult) -> ReportTable:
    """Lay out tasks of any kind."""
    columns = ("task", "items", "metric", "x100", "95% interval", "other scores")
    # so that the table fits in 100 columns
    table = ReportTable(*columns, left=(0, 2, -1), last_width=32, caption="\n".join(_caption(result)))
    for kind in dict.fromkeys(task.kind for task in result.tasks.values()):
        of_kind = {name: task for name, task in result.tasks.items() if task.kind == kind}
        for name, task in of_kind.items():
            interval = interval_x100(task.interval)
            score = x100(task.score) + task.mark
            table.add_row(name, f"{task.n_items:,}", task.metric, score, interval, _other_scores(task))
        for metric, n_tasks in Counter(task.metric for task in of_kind.values()).items():
            if n_tasks > 1:
                average = x100(result.average_of(kind, metric)) + result.average_mark(kind, metric)
                names = [name for name, task in of_kind.items() if task.metric == metric]
                interval = interval_x100(result.average_interval(names, metric))
                table.add_row(f"average of {n_tasks}", "", metric, average, interval, kind, is_dim=True)
        table.add_section()
    return table


def _other_scores(task: TaskResult) -> str:
    """The other metrics of a task, and its baselines."""
    others = {
        name: f"{score:.3f}" if name in ERRORS else x100(score)
        for name, score in task.scores.items()
        if name != task.metric and not name.endswith(("_mean", "_wmean"))
    }
    baselines = {
        name: x100(scores[task.metric])
        for name, scores in task.details.items()
        if name in BASELINES and task.metric in scores
    }
    return ", ".join(f"{name.replace('_', ' ')} {score}" for name, score in (others | baselines).items())


def _caption(result: EvaluationResult) -> list[str]:
    """What was measured, and how."""
    tasks = list(result.tasks.values())
    lines = model_lines(result.model, result.fitting)
    lines += [f"  {name}: {task.choice['reason']}" for name, task in result.tasks.items() if task.choice]
    lines.append(f"dimensions: {', '.join(map(str, sorted({task.dim for task in tasks})))}")
    cut = f"; cut: {result.n_cut}" if result.n_cut else ""
    lines.append(f"texts without a vector: {sum(task.n_zero_rows for task in tasks)}{cut}")
    lines += [
        f"{name}: {counts['n_items_same']:,} of {counts['n_items']:,} items occur in {result.fitting['fit']}"
        for name, counts in result.fitting.get("overlap", {}).items()
        if name in result.tasks and counts["n_items_same"]
    ]
    lines += [
        f"{name}: {counts['n_same']:,} of {counts['n_texts']:,} texts are among those that the model was distilled from"
        for name, counts in result.fitting.get("distilled_from", {}).items()
        if name in result.tasks and counts["n_same"]
    ]
    lines += [
        f"{name}: {task.details['n_unscored']:,} rows without a score were left out"
        for name, task in result.tasks.items()
        if task.details.get("n_unscored")
    ]
    lines += result.deviation_notes
    lines += list(_published_lines(result))
    n_tokens, n_unknown = sum(task.n_tokens for task in tasks), sum(task.n_unknown for task in tasks)
    if n_tokens:
        lines.append(f"unknown tokens: {n_unknown:,} of {n_tokens:,} ({n_unknown / n_tokens:.1%})")
    return lines


def _published_lines(result: EvaluationResult) -> Iterator[str]:
    """Which scores of MTEB these can be compared with, and which have none there."""
    scores = {name: task.mteb(name) for name, task in result.tasks.items()}
    ways: dict[str, list[str]] = {}
    for name, score in scores.items():
        if score is not None:
            called = score.task if score.task == name else f"{score.task} ({name})"
            ways.setdefault(f"{score.split}, {score.metric}", []).append(called)
    yield from (f"compare with MTEB: {', '.join(names)}; {way}" for way, names in ways.items())
    if ways and result.fitting["transductive"]:
        yield "  with care: fitted on the texts of each task, which no model of MTEB is"
    if others := [name for name, score in scores.items() if score is None]:
        yield f"no score of MTEB to compare with: {', '.join(others)}"


def model_lines(model: Mapping[str, Any], fitting: Mapping[str, Any]) -> list[str]:
    """Describe a model, and what was fitted after its encoder."""
    options = "&".join(f"{name}={value}" for name, value in model["options"].items())
    lines = [f"model: {model['reference']}{'?' if options else ''}{options}"]
    lines += [
        f"  -> left as it is by auto, on {fit['source']}"
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


def overlap_table(counts: Mapping[str, Mapping[str, int]], corpus: str) -> ReportTable:
    """What `count_overlap` counted, one row per task; or `count_hashed`, without exact and near."""
    caption = (
        f"in {corpus}\n"
        "exact: same characters; same: or up to case, punctuation and white space\n"
        f"near: or {NEAR_SHARE:.0%} of the word trigrams, for texts of {NEAR_WORDS} words or more\n"
        "items: pairs or other scored units; complete: all texts of the item are in the corpus"
    )
    table = ReportTable("task", "texts", "exact", "same", "near", "items", "complete", caption=caption)
    for task, count in counts.items():
        names = ("n_exact", "n_same", "n_near")
        texts = [_count_and_share(count[name], count["n_texts"]) if name in count else "not known" for name in names]
        complete = _count_and_share(count["n_items_same"], count["n_items"])
        table.add_row(task, f"{count['n_texts']:,}", *texts, f"{count['n_items']:,}", complete)
    return table


def _count_and_share(n: int, total: int) -> str:
    return f"{n:,} ({n / total:.1%})" if n else "0"
