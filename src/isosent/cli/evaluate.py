"""The commands ``evaluate``, ``compare``, ``report`` and ``overlap``.

`evaluate` reads options and calls `evaluation.run`; `_table` prints one transform, `_variants_table` several side by
side. `compare` prints the test of each task of two result files, `report` writes the page of many, and `overlap` counts
evaluation texts in a corpus, which `overlap_table` prints; the command ``train`` prints with it too.
"""

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isosent.cli.options import (
    PATH,
    column_option,
    columns_option,
    csv_option,
    data_option,
    json_option,
    latex_option,
    model_options,
    open_model,
    seed_option,
    split_names,
    tasks_option,
    transform_options,
)
from isosent.cli.printing import check_output, say, show, write_output
from isosent.encoders.base import Progress
from isosent.errors import EvaluationWarning, InputError
from isosent.evaluation.compare import CORRELATIONS, N_RESAMPLES, Comparison, Difference, compare_results
from isosent.evaluation.cqa import TEXT_PARTS
from isosent.evaluation.overlap import NEAR_SHARE, NEAR_WORDS, count_overlap
from isosent.evaluation.result import EvaluationResult, read_result
from isosent.evaluation.run import TARGET, read_tasks
from isosent.evaluation.run import evaluate as evaluate_model
from isosent.evaluation.sts import SICKR_PARTS
from isosent.evaluation.tables import model_lines, rte_table, sts_table, task_table, x100
from isosent.evaluation.unlabelled import compare_models
from isosent.io.texts import TextSource, open_texts, read_texts, text_blocks
from isosent.numeric.statistics import LEVEL
from isosent.pages.progress import progress_bar
from isosent.pages.tables import csv_table, latex_table, make_table
from isosent.report.figures import check_figures, write_figures
from isosent.report.leaderboard import make_leaderboard, read_report
from isosent.report.results_page import html_report, report_title
from isosent.training.curve import check_curve_output, write_curve
from isosent.training.metrics import read_metrics
from isosent.transforms.base import AUTO, TRANSFORMS, resolve_transform

if TYPE_CHECKING:
    from rich.table import Table

_BLOCK_TEXTS = 8192
_SMALLEST_P = 0.0001
resamples_option = click.option(
    "--resamples", type=click.IntRange(1), default=N_RESAMPLES, metavar="N", help="Bootstrap resamples."
)


@click.command()
@click.argument("tasks", nargs=-1, required=True)
@click.option(
    "--data",
    "data",
    metavar="DIR|FILE",
    required=True,
    type=PATH,
    help="Folder with the original files, at any depth; or a table of pairs.",
)
@model_options
@transform_options(default="none", multiple=True)
@click.option("--fit-on", metavar="target|FILE", help="Fit on the texts of each task, or on a file.  [default: target]")
@columns_option
@click.option(
    "--sickr", type=click.Choice(SICKR_PARTS), default=SICKR_PARTS[0], help="All pairs of SICK-R, or its test set."
)
@click.option("--text", type=click.Choice(TEXT_PARTS), default=TEXT_PARTS[0], help="cqa: part of a question to encode.")
@click.option("--split", default="test", metavar="NAME", help="retrieval: queries of qrels/NAME.tsv.")
@seed_option
@resamples_option
@json_option
@csv_option
@latex_option
def evaluate(
    tasks: tuple[str, ...],
    data: Path,
    model: str | None,
    transform: tuple[str, ...],
    settings: dict[str, Any],
    fit_on: str | None,
    columns: str | None,
    sickr: str,
    text: str,
    split: str,
    seed: int,
    resamples: int,
    json_output: Path | None,
    csv_output: Path | None,
    latex_output: Path | None,
) -> None:
    """Score a model on TASKS: kinds (sts, transfer, retrieval, cqa, rte, all) or single sets such as STS12 or MR.

    \b
    isosent evaluate sts --data DIR -m model
    isosent evaluate STS-B SICK-R --data DIR --transform none --transform whitening --transform auto
    isosent evaluate pairs --data pairs.csv --columns a,b,score

    Correlations are given over all pairs ("all", as in Sentence-BERT and MTEB), and as the mean over subsets ("mean",
    as in WhiteningBERT; "wmean", weighted by pairs). "isosent compare" tests two JSON results against each other.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with a backspace
    for output in (json_output, csv_output, latex_output):
        check_output(output, reads=(data, fit_on))
    loaded = open_model(model)
    has_several = len(transform) > 1
    if has_several and (
        unused := settings.keys() - {name for each in transform for name in _settings_for(each, settings)}
    ):
        raise InputError(f"None of {', '.join(transform)} has the setting {', '.join(sorted(unused))}. Leave it out.")
    transforms = [
        resolve_transform(name, _settings_for(name, settings) if has_several else settings, dim=loaded.dim)
        for name in transform
    ]
    with progress_bar("encoding") as bar:
        result = evaluate_model(
            loaded,
            data,
            [name for argument in tasks for name in argument.split(",")],
            transform=transforms,
            fit_on=fit_on or TARGET,
            sickr=sickr,
            text=text,
            split=split,
            columns=columns,
            seed=seed,
            n_resamples=resamples,
            progress=bar,
        )
    results = (result, *result.variants)
    contents = ((csv_output, result.to_csv()), (latex_output, result.to_latex()), (json_output, result.to_text()))
    is_printed = [write_output(*each) for each in contents]
    if any(is_printed):
        return
    for one in results:
        show(_table(one))
    if has_several:
        show(_variants_table(dict(zip(transform, results, strict=True))))


def _settings_for(transform: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that one of several transforms has."""
    names = [step.partition("?")[0].strip() for step in transform.split(",")]
    available = {setting for name in names if name in TRANSFORMS for setting in TRANSFORMS[name].settings}
    if AUTO in names:
        available.add("n_components")
    return {setting: value for setting, value in settings.items() if setting in available}


def _table(result: EvaluationResult) -> "Table":
    tasks = list(result.tasks.values())
    if all(task.kind == "sts" for task in tasks):
        return sts_table(result)
    return rte_table(result) if [task.kind for task in tasks] == ["rte"] else task_table(result)


def _variants_table(results: Mapping[str, EvaluationResult]) -> "Table":
    """The main score of every task under every transform, x100."""
    table = make_table("task", "metric", *results, left=2)
    tasks = next(iter(results.values())).tasks
    for name, task in tasks.items():
        table.add_row(name, task.metric, *(x100(result.tasks[name].score) for result in results.values()))
    kinds = [(task.kind, task.metric) for task in tasks.values()]
    for kind, metric in dict.fromkeys(kinds):
        if kinds.count((kind, metric)) > 1:
            averages = (x100(result.average_of(kind, metric)) for result in results.values())
            table.add_row(f"average, {kind}", metric, *averages)
    return table


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="A.json B.json | TEXTS")
@click.option("--model", "-m", "models", metavar="REFERENCE", multiple=True, help="TEXTS: a model; repeat it.")
@column_option
@tasks_option
@click.option(
    "--correlation", type=click.Choice(CORRELATIONS), help="Compare correlations by this.  [default: the main metric]"
)
@click.option("--level", type=float, default=LEVEL, metavar="P", help="Confidence level.")
@seed_option
@resamples_option
@click.option("--tests", is_flag=True, help="Also print the test and the p-values of every task.")
@json_option
@csv_option
@latex_option
def compare(
    inputs: tuple[str, ...],
    models: tuple[str, ...],
    column: str | None,
    tasks: str | None,
    correlation: str | None,
    level: float,
    seed: int,
    resamples: int,
    tests: bool,
    json_output: Path | None,
    csv_output: Path | None,
    latex_output: Path | None,
) -> None:
    """Test, task by task, whether B is better or worse than A.

    Both are results of "isosent evaluate ... --json" on the same data. Items are compared in pairs: Pearson
    correlations by Williams's test, accuracies by the exact McNemar test, all others by the paired bootstrap.
    P-values are corrected for the number of tasks (Holm).

    With -m, two models or more are compared on TEXTS, without labels: each finds the second half of a text by the first
    one. A clear answer needs an interval without zero, and word overlap that does not point the other way.
    """
    for output in (json_output, csv_output, latex_output):
        check_output(output, reads=inputs)
    if models:
        if len(inputs) != 1 or (tasks, correlation, csv_output, latex_output, tests) != (None, None, None, None, False):
            raise InputError("compare: models need one file of texts, and no options but --column, --seed and --json.")
        _compare_models(inputs[0], models, column, seed, json_output)
        return
    if len(inputs) != 2 or column is not None:
        raise InputError("compare: name two results, or one file of texts and its models: -m MODEL -m MODEL.")
    first, second = map(Path, inputs)
    results = read_result(first), read_result(second)
    with progress_bar("comparing", "items") as bar:
        comparison = compare_results(
            *results,
            names=(str(first), str(second)),
            tasks=split_names(tasks),
            correlation=correlation,
            level=level,
            seed=seed,
            n_resamples=resamples,
            progress=bar,
        )
    document = json.dumps(comparison.to_json(), indent=2, ensure_ascii=False) + "\n"
    contents = ((csv_output, comparison.to_csv()), (latex_output, comparison.to_latex()), (json_output, document))
    is_printed = [write_output(*each) for each in contents]
    if any(is_printed):
        return
    if tests:
        show(_test_table(comparison))
    header = ("x100", "A", "B", "B - A", f"{100 * comparison.level:g}% interval", "B is")
    table = make_table(*header, caption="\n".join(_comparison_notes(comparison)))
    table.columns[-1].justify = "left"
    for name, difference in comparison.tasks.items():
        table.add_row(name, *_difference_cells(difference))
    table.add_section()
    for kind, mean in comparison.averages.items():
        table.add_row(f"average, {kind}", *_difference_cells(mean))
    show(table)


def _compare_models(path: str, names: Sequence[str], column: str | None, seed: int, json_output: Path | None) -> None:
    """Compare models on texts: what each costs, which is better, and how much of it the others contain."""
    texts = read_texts(path, column=column)
    models = {name: open_model(name) for name in dict.fromkeys(names)}
    with progress_bar("encoding") as bar:
        report = compare_models(models, texts, seed=seed, progress=bar(0))
    if write_output(json_output, json.dumps(report, indent=2, ensure_ascii=False) + "\n"):
        return
    caption = f"score: mean reciprocal rank of the second half of a text for the first, {report['n_texts']:,} texts"
    table = make_table("model", "score", "dimensions", "bytes", "ms a half text", caption=caption)
    for name, fact in report["models"].items():
        table.add_row(name, f"{fact['score']:.3f}", f"{fact['dimensions']}", f"{fact['bytes']}", f"{fact['ms']:.2f}")
    show(table)
    for pair in report["pairs"]:
        interval = f"{pair['difference']:+.3f}, 95% interval {pair['low']:+.3f} to {pair['high']:+.3f}"
        if pair["verdict"] == "cannot tell":
            show(f"cannot tell which is better: {pair['b']} or {pair['a']} ({interval})")
        else:
            show(f"{pair['b']} is {pair['verdict']} than {pair['a']} ({interval})")
    for each in report["contains"]:
        show(f"{each['within']} contains {max(each['r2'], 0):.0%} of {each['of']} (R2 of a linear map, on folds)")


def _difference_cells(difference: Difference) -> list[str]:
    ends = [_signed(end) for end in difference.interval]
    interval = ends[0] if ends[0] == "undefined" else " to ".join(ends)
    change = _signed(difference.difference)
    return [x100(difference.first), x100(difference.second), change, interval, difference.verdict]


def _signed(difference: float) -> str:
    return "undefined" if math.isnan(difference) else f"{100 * difference:+.2f}"


def _test_table(comparison: Comparison) -> "Table":
    """The test of every task, its p-values, and that of Williams's test of the ranks for Spearman."""
    table = make_table("task", "metric", "test", "items", "p", "corrected", "Williams on ranks", left=3)
    for name, task in comparison.tasks.items():
        p_values = map(_p_value, (task.p_value, task.p_corrected, task.p_williams_on_ranks))
        table.add_row(name, task.metric, task.test, f"{task.n_items:,}", *p_values)
    table.add_section()
    for kind, mean in comparison.averages.items():
        table.add_row(f"average, {kind}", mean.metric, mean.test, f"{mean.n_items:,}", _p_value(mean.p_value), "", "")
    return table


def _p_value(p_value: float) -> str:
    if math.isnan(p_value):
        return ""
    return f"< {_SMALLEST_P}" if p_value < _SMALLEST_P else f"{p_value:.4f}"


def _comparison_notes(comparison: Comparison) -> Iterator[str]:
    for letter, side in (("A", comparison.first), ("B", comparison.second)):
        yield f"{letter}: {side.name}"
        yield from (f"   {line}" for line in model_lines(side.model, side.fitting))
    for metric, test in dict.fromkeys((task.metric, task.test) for task in comparison.tasks.values()):
        names = (name for name, task in comparison.tasks.items() if (task.metric, task.test) == (metric, test))
        yield f"{metric}, {test}: {', '.join(names)}"
    if len(comparison.tasks) > 1:
        yield f"p-values of tasks are corrected for {len(comparison.tasks)} tasks (Holm); intervals are not."
    yield f'"better" and "worse" need p < {1 - comparison.level:g}; "cannot tell" does not mean equal.'
    for side in (comparison.first, comparison.second):
        if side.only:
            yield f"only in {side.name}: {', '.join(side.only)}"
    yield from comparison.notes


@click.command()
@click.argument("results", nargs=-1, required=True, type=PATH)
@click.option("--output", "-o", type=PATH, metavar="FILE", required=True, help="The page, such as report.html.")
@click.option("--figures", type=PATH, metavar="DIR", help="Also write the figures, as PNG, PDF and SVG.")
@csv_option
@latex_option
def report(
    results: tuple[Path, ...],
    output: Path,
    figures: Path | None,
    csv_output: Path | None,
    latex_output: Path | None,
) -> None:
    """Write an HTML page: leaderboard, figures, what auto chose, speed and memory, and every setting.

    RESULTS are files of "isosent evaluate --json" and "isosent study --json". Files of one model and the same settings
    share a row. The best score of a column is marked only if it is significantly better than the second.

    For the metrics.jsonl of a training run, also one that is still running, the page shows its loss and scores.
    """
    for path in (output, csv_output, latex_output):
        check_output(path, reads=results)
    if [path.suffix for path in results] == [".jsonl"]:
        check_curve_output(output)
        write_curve(output, read_metrics(results[0]))
        return
    if figures is not None:
        check_figures(figures)
    data = read_report(results)
    with progress_bar("testing the best", "columns") as bar:
        board = make_leaderboard(data.results, progress=bar)
    for note in board.notes:
        say(f"note: {note}")
    write_output(output, html_report(data, board))
    if csv_output is not None:
        write_output(csv_output, csv_table(*board.table()))
    if latex_output is not None:
        write_output(latex_output, latex_table(*board.table()))
    show(f"{output}: {report_title(data, board)}")
    if figures is not None:
        for path in write_figures(figures, data, board):
            show(f"{path}")


@click.command()
@click.argument("corpus")
@data_option
@column_option
@tasks_option
@json_option
def overlap(corpus: str, data: Path, column: str | None, tasks: str | None, json_output: Path | None) -> None:
    """Count evaluation texts that occur in CORPUS, texts that a model is fitted or trained on.

    Three ways of counting: exact; the same up to case, punctuation, white space and Unicode form; and near duplicates,
    with four fifths of their word trigrams in one text of the corpus. The corpus may be larger than memory.
    """
    check_output(json_output, reads=(corpus,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvaluationWarning)  # about tasks and subsets that are missing
        items = {task.name: task.items for task in read_tasks(data, tasks or "all")}
    with open_texts(corpus, column=column) as source, progress_bar("comparing") as bar:
        counts = count_overlap(_texts(source, bar(source.n_texts)), items)
    document = {"corpus": source.name, "n_texts": source.n_texts, "tasks": counts}
    if not write_output(json_output, json.dumps(document, indent=2) + "\n"):
        show(overlap_table(counts, f"{source.name}: {source.n_texts:,} texts"))


def _texts(source: TextSource, advance: Progress) -> Iterator[str]:
    for block in text_blocks(source.read(), _BLOCK_TEXTS):
        yield from block
        advance(len(block))


def overlap_table(counts: Mapping[str, Mapping[str, int]], corpus: str) -> "Table":
    """What `count_overlap` counted, one row per task."""
    caption = (
        f"in {corpus}\n"
        "exact: same characters; same: or up to case, punctuation and white space\n"
        f"near: or {NEAR_SHARE:.0%} of the word trigrams, for texts of {NEAR_WORDS} words or more\n"
        "items: pairs or other scored units; complete: all texts of the item are in the corpus"
    )
    table = make_table("task", "texts", "exact", "same", "near", "items", "complete", caption=caption)
    for task, count in counts.items():
        texts = [_share(count[name], count["n_texts"]) for name in ("n_exact", "n_same", "n_near")]
        complete = _share(count["n_items_same"], count["n_items"])
        table.add_row(task, f"{count['n_texts']:,}", *texts, f"{count['n_items']:,}", complete)
    return table


def _share(n: int, total: int) -> str:
    return f"{n:,} ({n / total:.1%})" if n else "0"
