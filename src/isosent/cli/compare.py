"""The command ``compare``: two result files task by task, or models on texts without labels.

`_comparison_table` shows the differences of two results, `_models_report` which of several models is better, and what
each costs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from isosent._check import split_options
from isosent.cli.options import (
    column_option,
    json_option,
    open_model,
    outputs_option,
    resamples_option,
    seed_option,
    split_names,
    tasks_option,
)
from isosent.cli.printing import check_outputs, deliver, p_value, say, say_unused_vectors
from isosent.errors import InputError
from isosent.evaluation.compare import CORRELATIONS, NO_TEST, Comparison, Difference, compare_results, listed
from isosent.evaluation.overlap import count_distilled
from isosent.evaluation.result import EvaluationResult
from isosent.evaluation.result_file import read_result
from isosent.evaluation.tables import model_lines, x100
from isosent.evaluation.unlabelled import ModelsComparison, compare_models
from isosent.io.source import kind_of_input
from isosent.io.texts import read_texts
from isosent.numeric.statistics import LEVEL, smallest_p_value
from isosent.pages.progress import progress_bar
from isosent.pages.report import Note, Part, Report, ReportTable
from isosent.transforms.base import parse_option, resolve_transform, settings_of


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="A.json[?transform=NAME] B.json | TEXTS")
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
@outputs_option(".json", ".csv", ".tex")
@json_option
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
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Test, task by task, whether B is better or worse than A.

    Both are results of "isosent evaluate ... -o FILE.json" on the same data. Items are compared in pairs: Pearson
    correlations by Williams's test, accuracies by the exact McNemar test, all others by the paired bootstrap.
    P-values are corrected for the number of tasks (Holm). Of a result with several transforms, the first is compared,
    or the one that follows a question mark. A result may also be a file of MTEB, or the folder of a
    model in its public results; it has no scores of single items, and so no intervals.

    With -m, models are compared on TEXTS, without labels: which finds the second half of a text by the first one, and
    whose cosines agree with word overlap. A model is better only if it is better at both, and does
    not work more by words than the other.

    \b
    isosent compare first.json second.json
    isosent compare scores.json 'scores.json?transform=whitening'
    isosent compare corpus.txt -m wordllama -m model
    """  # noqa: D301
    check_outputs(outputs, reads=[_split(name)[0] for name in inputs])
    if models:
        deliver(_models_report(inputs, models, column, seed, outputs), outputs, as_json=as_json)
        return
    if len(inputs) != 2 or column is not None:
        raise InputError("compare: name two results, or one file of texts and its models: -m MODEL -m MODEL.")
    first, second = inputs
    results = _result_of(first), _result_of(second)
    with progress_bar("comparing", "items") as bar:
        comparison = compare_results(
            *results,
            names=(first, second),
            tasks=split_names(tasks),
            correlation=correlation,
            level=level,
            seed=seed,
            n_resamples=resamples,
            progress=bar,
        )
    files = {".csv": comparison.to_csv, ".tex": comparison.to_latex}
    tables = [_comparison_table(comparison)]
    if tests:
        tables.insert(0, _test_table(comparison))
    deliver(Report(comparison.to_json(), tables, files), outputs, as_json=as_json)


def _split(name: str) -> tuple[str, dict[str, str]]:
    """An input and its options; the name of a file may hold a question mark."""
    return (name, {}) if Path(name).exists() else split_options(name)


def _result_of(name: str) -> EvaluationResult:
    """Read FILE, or of ``FILE?transform=NAME`` the result under that transform."""
    file, options = _split(name)
    result = read_result(_result_file(file))
    if not options:
        return result
    label, by_transform = options.pop("transform", ""), result.by_transform()
    if "?" in label:  # transform=whitening?strength=0.5&method=zca
        label, options = "&".join([label, *(f"{key}={value}" for key, value in options.items())]), {}
    if label not in by_transform:
        label = _name_of_transform(label, by_transform)
    if options or label not in by_transform:
        raise InputError(f"compare: {name}: write {file}?transform=NAME, with one of {', '.join(by_transform)}.")
    return replace(by_transform[label], variants=())


def _name_of_transform(wanted: str, by_transform: Mapping[str, EvaluationResult]) -> str:
    """The full name of what is written as --transform takes it; some settings do where they tell it from the others."""
    fittings = {full: result.fitting for full, result in by_transform.items()}
    transform, settings = split_options(wanted)
    alike = [
        full
        for full, fitting in fittings.items()
        if full.partition("(")[0] == transform
        and all(
            key in fitting["parameters"] and fitting["parameters"][key] == parse_option(value)
            for key, value in settings.items()
        )
    ]
    if len(alike) > 1 and (meant := resolve_transform(wanted)) is not None:
        alike = [full for full in alike if fittings[full]["parameters"] == settings_of(meant)]
    return alike[0] if len(alike) == 1 else wanted


def _result_file(name: str) -> Path:
    path = Path(name)
    if path.suffix.lower() == ".json" or (path.is_dir() and any(path.glob("*.json"))):
        return path
    if path.is_file() and kind_of_input(path) == "vectors":
        raise InputError(
            f"compare: {path} holds vectors. Compare two files of vectors of the same texts: isosent migrate A B TEXTS"
        )
    raise InputError(
        f"compare: {path} is not a result, as isosent evaluate ... -o FILE.json writes it. Models are compared on "
        "texts: isosent compare TEXTS -m MODEL -m MODEL"
    )


def _comparison_table(comparison: Comparison) -> ReportTable:
    header = ("x100", "A", "B", "B - A", f"{100 * comparison.level:g}% interval", "B is")
    table = ReportTable(*header, left=(0, -1), caption="\n".join(_comparison_notes(comparison)))
    for name, difference in comparison.tasks.items():
        table.add_row(name + difference.mark, *_difference_cells(difference))
    table.add_section()
    for kind, mean in comparison.averages.items():
        table.add_row(f"average, {kind}{mean.mark}", *_difference_cells(mean))
    return table


def _models_report(
    inputs: Sequence[str], names: Sequence[str], column: str | None, seed: int, outputs: Sequence[Path]
) -> Report:
    """Compare models on texts: which is better, what each costs, and how much of it the others contain."""
    if len(inputs) != 1:
        raise InputError(f"compare: models are compared on one file of texts, not on {len(inputs)}.")
    context = click.get_current_context()
    for name in ("tasks", "correlation", "level", "resamples", "tests"):
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise InputError(f"compare: --{name} is for two results, not for models. Leave it out.")
    if unused := [path for path in outputs if path.suffix.lower() != ".json"]:
        raise InputError(f"compare: {unused[0]}: a comparison of models is written as .json.")
    texts = read_texts(inputs[0], column=column)
    say_unused_vectors(inputs[0], column)
    models = {name: open_model(name) for name in dict.fromkeys(names)}
    for name, model in models.items():
        if n_seen := count_distilled(model.encoder, texts):
            say(f"note: {name} was distilled from {n_seen:,} of these texts, and looks better on them than on others.")
    with progress_bar("encoding") as bar:
        compared = compare_models(models, texts, seed=seed, progress=bar)
    return Report(compared.to_json(), _models_parts(compared, inputs[0]))


def _models_parts(compared: ModelsComparison, texts: str) -> Iterator[Part]:
    number = {name: str(place) for place, name in enumerate(compared.models, 1)}
    caption = f"score: mean reciprocal rank of the second half of a text for the first, {compared.n_texts:,} texts"
    header = ("", "model", "better than", "score", "dimensions", "bytes", "ms a text")
    table = ReportTable(*header, left=range(3), caption=caption)
    for name, model in sorted(compared.models.items(), key=lambda item: -item[1].score):
        cost = (f"{model.dim:,}", f"{model.n_bytes:,}", f"{model.ms:.2f}")
        better_than = ", ".join(sorted(number[other] for other in model.better_than))
        table.add_row(number[name], name, better_than, f"{model.score:.3f}", *cost)
    yield table
    caption = (
        'B is "better" or "worse" if both intervals are on one side of zero, and the better model does not work more '
        'by words, as averages of word vectors do; "cannot tell" does not mean equal.\n'
        "of B in A: R2 of a linear map from A to B, on texts that it is not fitted on"
    )
    columns = ("A", "B", "B is", "score, B - A", "word overlap, B - A", "of B in A", "of A in B")
    table = ReportTable(*columns, left=range(3), caption=caption)
    for (a, b), pair in compared.pairs.items():
        intervals = (_interval(pair.low, pair.high), _interval(pair.overlap_low, pair.overlap_high))
        shares = (f"{max(compared.r2[names], 0):.0%}" for names in ((b, a), (a, b)))
        table.add_row(number[a], number[b], pair.verdict, *intervals, *shares)
    yield table
    if compared.caution:
        yield Note(f"note: {compared.caution} See: isosent migrate A B {texts} --queries FILE")


def _interval(low: float, high: float) -> str:
    return "not measured" if math.isnan(low) else f"{low:+.3f} to {high:+.3f}"


def _difference_cells(difference: Difference) -> list[str]:
    ends = [_signed(end) for end in difference.interval]
    interval = "none" if difference.test == NO_TEST else ends[0] if ends[0] == "undefined" else " to ".join(ends)
    change = _signed(difference.difference)
    return [x100(difference.first), x100(difference.second), change, interval, difference.verdict]


def _signed(difference: float) -> str:
    return "undefined" if math.isnan(difference) else f"{100 * difference:+.2f}"


def _test_table(comparison: Comparison) -> ReportTable:
    """The test of every task, its p-values, and that of Williams's test of the ranks for Spearman."""
    table = ReportTable("task", "metric", "test", "items", "p", "corrected", "Williams on ranks", left=range(3))
    for name, task in comparison.tasks.items():
        p_values = (p_value(each, is_bound=task.is_bound) for each in (task.p_value, task.p_corrected))
        cells = (task.metric, task.test, f"{task.n_items:,}", *p_values, p_value(task.p_williams_on_ranks))
        table.add_row(name + task.mark, *cells)
    table.add_section()
    for kind, mean in comparison.averages.items():
        p_of_mean = p_value(mean.p_value, is_bound=mean.is_bound)
        table.add_row(f"average, {kind}", mean.metric, mean.test, f"{mean.n_items:,}", p_of_mean, "", "")
    return table


def _comparison_notes(comparison: Comparison) -> Iterator[str]:
    for letter, side in (("A", comparison.first), ("B", comparison.second)):
        yield f"{letter}: {side.name}"
        yield from (f"   {line}" for line in model_lines(side.model, side.fitting))
    for metric, test in dict.fromkeys((task.metric, task.test) for task in comparison.tasks.values()):
        if test == NO_TEST:
            continue
        names = (name for name, task in comparison.tasks.items() if (task.metric, task.test) == (metric, test))
        yield f"{metric}, {test}: {', '.join(names)}"
    if len(comparison.tasks) > 1:
        n_tested = sum(task.test != NO_TEST for task in comparison.tasks.values())
        yield f"p-values of tasks are corrected for {n_tested} tasks (Holm); intervals are not."
    if comparison.averages:
        yield "An average is a single, separate test: its p-value is not corrected."
    differences = (*comparison.tasks.values(), *comparison.averages.values())
    if any(each.is_bound for each in differences):
        smallest = p_value(smallest_p_value(comparison.n_resamples), is_bound=True)
        yield f"p {smallest}: no smaller p-value comes of {comparison.n_resamples:,} draws. Draw more: --resamples N"
    yield (
        f'"better" and "worse" need p < {1 - comparison.level:g} and an interval on one side of zero; "cannot tell" '
        "does not mean equal."
    )
    for side in (comparison.first, comparison.second):
        if side.only:
            yield f"only in {side.name}: {listed(side.only)}"
    yield from comparison.notes
