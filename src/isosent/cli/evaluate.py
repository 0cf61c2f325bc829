"""The commands ``evaluate``, ``compare``, ``migrate`` and ``report``.

`evaluate` reads options and calls `evaluation.run`; `_table` shows one transform, `_variants_table` several side by
side. `compare` shows the test of each task of two result files, `migrate` whether a change of the model is worth it,
and `report` writes the page of many. Files to write are named by ``-o``, and their extension says what they get.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from isosent.cli.options import (
    PATH,
    column_option,
    columns_option,
    json_option,
    model_option,
    open_model,
    output_option,
    outputs_option,
    seed_option,
    split_names,
    tasks_option,
    transform_options,
)
from isosent.cli.printing import check_outputs, deliver, say, say_unused_vectors, show
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError, option
from isosent.evaluation.compare import CORRELATIONS, Comparison, Difference, compare_results
from isosent.evaluation.cqa import TEXT_PARTS
from isosent.evaluation.migration import Answers
from isosent.evaluation.migration import migrate as migrate_models
from isosent.evaluation.overlap import text_hashes
from isosent.evaluation.result import N_RESAMPLES, EvaluationResult, read_result
from isosent.evaluation.run import TARGET
from isosent.evaluation.run import evaluate as evaluate_model
from isosent.evaluation.sizes import MARK
from isosent.evaluation.sts import SICKR_PARTS
from isosent.evaluation.tables import model_lines, rte_table, sts_table, task_table, x100
from isosent.evaluation.unlabelled import compare_models
from isosent.io.pairs import SPLIT_COLUMNS, TEST, take_part
from isosent.io.source import open_source
from isosent.io.tables import open_table
from isosent.io.texts import TextSource, read_texts
from isosent.io.vector_source import VectorSource
from isosent.loading import wrap
from isosent.model import SentenceEncoder
from isosent.numeric.statistics import LEVEL
from isosent.pages.figures import FORMATS
from isosent.pages.progress import progress_bar
from isosent.pages.report import Note, Part, Report, ReportTable
from isosent.pages.tables import csv_table, latex_table
from isosent.persistence import check_model_folder
from isosent.report.figures import check_figures, write_figures
from isosent.report.leaderboard import make_leaderboard, read_report
from isosent.report.results_page import html_report, report_title
from isosent.search.index import Index
from isosent.search.rows import ID, TEXT, VECTOR
from isosent.search.stores import find_index
from isosent.search.units import units_of_lists
from isosent.space import same_space
from isosent.storage import Storage
from isosent.training.curve import check_curve_output, write_curve
from isosent.training.metrics import read_metrics
from isosent.transforms.base import AUTO, TRANSFORMS, resolve_transform, setting_names

_SMALLEST_P = 0.0001
_INTERVALS = (("low", "high"), ("overlap_low", "overlap_high"))  # of two models on texts
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
    help="Folder with the original files, at any depth; or a table of pairs, or of texts and labels.",
)
@model_option
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
@outputs_option(".json", ".csv", ".tex")
@json_option
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
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Score a model on TASKS: kinds, or single sets such as STS12 or MR.

    Kinds: sts, transfer, classification, clustering, retrieval, cqa, rte, all.

    \b
    isosent evaluate sts --data DIR -m model -o scores.json
    isosent evaluate STS-B SICK-R --data DIR --transform none --transform whitening --transform auto
    isosent evaluate pairs --data pairs.csv --columns a,b,score
    isosent evaluate retrieval --data DIR -m index

    The model may also be an index, for retrieval, or .parquet files with the texts of the tasks and their vectors:
    -m documents.parquet,queries.parquet

    Correlations are given over all pairs ("all", as in Sentence-BERT and MTEB), and as the mean over subsets ("mean",
    as in WhiteningBERT; "wmean", weighted by pairs). "isosent compare" tests two JSON results against each other.
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with a backspace
    check_outputs(outputs, reads=(data, fit_on))
    loaded = _evaluated(model)
    has_several = len(transform) > 1
    if has_several and (
        unused := settings.keys() - {name for each in transform for name in _settings_for(each, settings)}
    ):
        names = ", ".join(map(option, sorted(unused)))
        raise InputError(f"No transform of {', '.join(transform)} takes {names}. Leave it out.")
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
    files = {".csv": result.to_csv, ".tex": result.to_latex}
    deliver(Report(result.to_text, _result_tables(results, transform), files), outputs, as_json=as_json)


def _evaluated(model: str | None) -> SentenceEncoder | Index:
    """What is named: a model, an index, or files with the texts of the tasks and their vectors."""
    if model is not None and (index := find_index(model)) is not None:
        return index
    paths = (model or "").split(",")
    sources = [open_source(path) for path in paths if Path(path).is_file()]
    files = [source for source in sources if source.kind == "vectors"]
    if len(files) < len(paths):
        return open_model(model)
    vectors: dict[str, Any] = {}
    space = None
    for source in files:
        if not source.is_table:
            raise InputError(
                f"{source.name} holds no texts, by which tasks find their vectors. Write both: isosent encode TEXTS -o "
                "FILE.parquet."
            )
        space = same_space(paths[0], space, source.name, source.space)
        rows = np.concatenate(list(source.blocks()))
        # the first file wins: a query that equals a document does not replace its vector
        vectors = dict(zip(read_texts(source.name, column="text"), rows, strict=True)) | vectors
    return wrap(vectors)


def _settings_for(transform: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that one of several transforms has."""
    names = [step.partition("?")[0].strip() for step in transform.split(",")]
    available = {setting for name in names if name in TRANSFORMS for setting in setting_names(name)}
    if AUTO in names:
        available |= {"n_components", "purpose"}
    return {setting: value for setting, value in settings.items() if setting in available}


def _result_tables(results: Sequence[EvaluationResult], transforms: Sequence[str]) -> Iterator[ReportTable]:
    yield from map(_table, results)
    if len(transforms) > 1:
        yield _variants_table(dict(zip(transforms, results, strict=True)))


def _table(result: EvaluationResult) -> ReportTable:
    tasks = list(result.tasks.values())
    if all(task.kind == "sts" for task in tasks):
        return sts_table(result)
    return rte_table(result) if [task.kind for task in tasks] == ["rte"] else task_table(result)


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
    P-values are corrected for the number of tasks (Holm).

    With -m, models are compared on TEXTS, without labels: which finds the second half of a text by the first one, and
    whose cosines agree with word overlap. A model is better only if it is better at both, and does
    not work more by words than the other.

    \b
    isosent compare first.json second.json
    isosent compare corpus.txt -m wordllama -m model
    """  # noqa: D301
    check_outputs(outputs, reads=inputs)
    if models:
        deliver(_models_report(inputs, models, column, seed, outputs), outputs, as_json=as_json)
        return
    if len(inputs) != 2 or column is not None:
        raise InputError("compare: name two results, or one file of texts and its models: -m MODEL -m MODEL.")
    first, second = map(Path, inputs)
    for path in (first, second):
        if path.suffix.lower() != ".json":
            raise InputError(
                f"compare: {path} is not a result, as isosent evaluate ... -o FILE.json writes it. "
                "Models are compared on texts: isosent compare TEXTS -m MODEL -m MODEL"
            )
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
    files = {".csv": comparison.to_csv, ".tex": comparison.to_latex}
    tables = [_comparison_table(comparison)]
    if tests:
        tables.insert(0, _test_table(comparison))
    deliver(Report(comparison.to_json(), tables, files), outputs, as_json=as_json)


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
        seen = getattr(model.encoder, "fitted_texts", None)
        if seen is not None and (n_seen := int(np.isin(text_hashes(texts), seen).sum())):
            say(f"note: {name} was distilled from {n_seen:,} of these texts, and looks better on them than on others.")
    with progress_bar("encoding") as bar:
        compared = compare_models(models, texts, seed=seed, progress=bar)
    return Report(compared, _models_parts(compared, inputs[0]))


def _models_parts(report: Mapping[str, Any], texts: str) -> Iterator[Part]:
    number = {name: str(place) for place, name in enumerate(report["models"], 1)}
    caption = f"score: mean reciprocal rank of the second half of a text for the first, {report['n_texts']:,} texts"
    header = ("", "model", "better than", "score", "dimensions", "bytes", "ms a text")
    table = ReportTable(*header, left=range(3), caption=caption)
    for name, fact in sorted(report["models"].items(), key=lambda item: -item[1]["score"]):
        cost = (f"{fact['dimensions']:,}", f"{fact['bytes']:,}", f"{fact['ms']:.2f}")
        better_than = ", ".join(sorted(number[other] for other in fact["better_than"]))
        table.add_row(number[name], name, better_than, f"{fact['score']:.3f}", *cost)
    yield table
    caption = (
        'B is "better" or "worse" if both intervals are on one side of zero, and the better model does not work more '
        'by words, as averages of word vectors do; "cannot tell" does not mean equal.\n'
        "of B in A: R2 of a linear map from A to B, on texts that it is not fitted on"
    )
    columns = ("A", "B", "B is", "score, B - A", "word overlap, B - A", "of B in A", "of A in B")
    table = ReportTable(*columns, left=range(3), caption=caption)
    shares = {(each["of"], each["within"]): f"{max(each['r2'], 0):.0%}" for each in report["contains"]}
    for pair in report["pairs"]:
        intervals = (
            "not measured" if math.isnan(pair[low]) else f"{pair[low]:+.3f} to {pair[high]:+.3f}"
            for low, high in _INTERVALS
        )
        a, b = pair["a"], pair["b"]
        table.add_row(number[a], number[b], pair["verdict"], *intervals, shares[b, a], shares[a, b])
    yield table
    if report["caution"]:
        yield Note(f"note: {report['caution']} See: isosent migrate A B {texts} --queries FILE")


def _difference_cells(difference: Difference) -> list[str]:
    ends = [_signed(end) for end in difference.interval]
    interval = ends[0] if ends[0] == "undefined" else " to ".join(ends)
    change = _signed(difference.difference)
    return [x100(difference.first), x100(difference.second), change, interval, difference.verdict]


def _signed(difference: float) -> str:
    return "undefined" if math.isnan(difference) else f"{100 * difference:+.2f}"


def _test_table(comparison: Comparison) -> ReportTable:
    """The test of every task, its p-values, and that of Williams's test of the ranks for Spearman."""
    table = ReportTable("task", "metric", "test", "items", "p", "corrected", "Williams on ranks", left=range(3))
    for name, task in comparison.tasks.items():
        p_values = map(_p_value, (task.p_value, task.p_corrected, task.p_williams_on_ranks))
        table.add_row(name + task.mark, task.metric, task.test, f"{task.n_items:,}", *p_values)
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
@click.argument("old")
@click.argument("new")
@click.argument("texts", required=False)
@click.option(
    "--queries", metavar="FILE", help="Table of queries, each with the text that answers it: the first two columns."
)
@output_option("FOLDER", "Save the map of stored vectors as a model.", required=False)
@json_option
def migrate(old: str, new: str, texts: str | None, queries: str | None, output: Path | None, as_json: bool) -> None:
    """Say whether to stay with the model OLD, to map its stored vectors to NEW, or to embed the texts again.

    OLD and NEW are models, or files with the vectors that they gave TEXTS, in the same order. OLD may also be an index,
    whose texts and vectors are taken. Four ways of searching are compared on a fifth of TEXTS that no map is fitted on.
    Use 5,000 texts like the stored ones, or more; in a table of several columns, they are in the column "text".

    \b
    isosent migrate wordllama sentence-transformers/all-MiniLM-L6-v2 texts.txt -o map
    isosent migrate INDEX sentence-transformers/all-MiniLM-L6-v2 -o map
    """  # noqa: D301
    if output is not None:
        check_model_folder(output)
    answers = None if queries is None else _answers(queries)
    stored: VectorSource | None = None
    if (index := find_index(old)) is not None:
        if texts is not None:
            raise InputError(f"migrate: {old} is an index and has its own texts. Leave out {texts}.")
        first, listed, stored = _index_side(index)
        _require_same_ids(old, new)
    elif texts is None:
        raise InputError(
            f"migrate: {old} is no index. Name a file of texts like the stored ones: isosent migrate OLD NEW TEXTS."
        )
    else:
        first, listed = _opened(old), _texts(texts)
        _require_same_ids(texts, old, new)
    sides = [first, _opened(new)]
    with progress_bar("encoding", "texts") as bar:
        result = migrate_models(
            sides[0],
            sides[1],
            listed,
            answers=answers,
            stored=stored,
            reference=_absolute(new),
            source=texts or old,
            progress=bar,
        )
    if output is not None:
        result.model.save(output)
    parts: list[Part] = [_ways_table(result.report), result.report["reason"]]
    if result.report["caution"]:
        parts.append(Note(f"note: {result.report['caution']} See --queries."))
    if output is not None:
        parts.append(f"{output}: a map of vectors of {old}, for queries of {new}")
    deliver(Report(result.report, parts), as_json=as_json)


def _texts(path: str) -> list[str]:
    """Texts of a file; in a table of several columns, those of the column "text"."""
    source = TextSource(path)
    if source.is_table:
        with open_table(path) as table:
            if len(table.columns) > 1:
                table.require("text")
                source = TextSource(path, "text")
    return source.texts()


def _opened(side: str) -> SentenceEncoder | VectorSource:
    source = open_source(side)
    return source if source.kind == "vectors" else open_model(side)


def _index_side(opened: Index) -> tuple[SentenceEncoder | VectorSource, list[str], VectorSource | None]:
    """The model of an index, or its vectors if it has none, its texts, and the vectors that its model need not make."""
    folder = opened.folder
    if TEXT not in opened.schema.names:
        raise InputError(f"migrate: {folder} holds no texts. Give a file of them, and one of their vectors as OLD.")
    if (groups := opened.model.groups) is not None:
        raise InputError(f"migrate: {folder} has a map for each {groups.column}. Make an index with the new model.")
    if n_mapped := opened.stats().n_mapped:
        raise InputError(f"migrate: {folder} still has {n_mapped} mapped rows. Replace them: isosent index add.")
    texts = [text or "" for batch in opened.batches() for text in batch.column(TEXT).to_pylist()]

    def read(first_row: int, n_rows: int) -> Iterator[Any]:
        yield from (units_of_lists(batch.column(VECTOR), opened.dim) for batch in opened.batches(n_rows))

    source = VectorSource(folder, len(texts), opened.dim, Storage.float32, opened.space, read)
    has_model = not isinstance(opened.model.encoder, PrecomputedVectors)
    return (opened.model, texts, source) if has_model else (source, texts, None)


def _require_same_ids(*paths: str) -> None:
    """Refuse tables and an index whose ids differ."""
    ids = {}
    for path in paths:
        if (index := find_index(path)) is not None:
            ids[path] = [name for batch in index.batches() for name in batch.column(ID).to_pylist()]
        elif TextSource(path).is_table:
            with open_table(path) as table:
                if "id" in table.columns:
                    ids[path] = [value for _, (value,) in table.rows("id")]
    for path, listed in list(ids.items())[1:]:
        first = next(iter(ids))
        if list(map(str, listed)) != list(map(str, ids[first])):
            raise InputError(f"{path}: its ids are not those of {first}, in this order. Write both in one order.")


def _answers(path: str) -> Answers:
    """Queries and the texts that answer them: the first two columns of a table."""
    wanted = "Give a table of two columns, with a header: a query, and the text that answers it."
    if not TextSource(path).is_table:
        raise InputError(f"{path} is not a table. {wanted}")
    with open_table(path) as table:
        if len(table.columns) < 2:
            raise InputError(f"{path} has one column, {table.columns[0]}. {wanted}")
        columns = [name for name in table.columns if name.lower() not in SPLIT_COLUMNS][:2]
        take_part(table, TEST, columns)
        answers = [
            (table.text(number, columns[0], query), table.text(number, columns[1], answer))
            for number, (query, answer) in table.rows(*columns)
        ]
    if not answers:
        raise InputError(f"{path} holds no queries. {wanted}")
    return answers


def _ways_table(report: Mapping[str, Any]) -> ReportTable:
    caption = (
        f"score: {report['measure']}, over {report['n_held_out']:,}\n"
        f"maps are fitted on {report['n_fitted']:,} other texts"
    )
    header = ("", "score", "95% interval", "among ten", "over the old model", "95% interval")
    table = ReportTable(*header, caption=caption)
    methods = {"documents mapped": f" ({report['method']})", "queries mapped": " (Procrustes)"}
    for way, row in report["rows"].items():
        found = "" if row["found"] is None else f"{row['found']:.1%}"
        low, high = row["interval"]
        gain = ("", "") if way == "old model" else (f"{row['gain']:+.3f}", f"{row['low']:+.3f} to {row['high']:+.3f}")
        table.add_row(way + methods.get(way, ""), f"{row['score']:.3f}", f"{low:.3f} to {high:.3f}", found, *gain)
    return table


def _absolute(reference: str) -> str:
    """A reference that holds in other folders, too."""
    scheme, colon, rest = reference.partition(":") if not Path(reference).is_dir() else ("", "", reference)
    location, mark, options = rest.partition("?")
    path = Path(location)
    return f"{scheme}{colon}{path.absolute()}{mark}{options}" if location and path.exists() else reference


@click.command()
@click.argument("results", nargs=-1, required=True, type=PATH)
@outputs_option(".html", ".csv", ".tex", *FORMATS, required=True)
@click.option("--figures", type=PATH, metavar="DIR", help="Also write the figures, as PNG, PDF and SVG.")
def report(results: tuple[Path, ...], outputs: tuple[Path, ...], figures: Path | None) -> None:
    """Write an HTML page: leaderboard, figures, what auto chose, speed and memory, and every setting.

    RESULTS are files of "isosent evaluate -o FILE.json" and "isosent research study -o FILE.json". Files of one model
    and the same settings share a row. The best score of a column is marked only if it is significantly better than the
    second.

    For the metrics.jsonl of a training run, also one that is still running, the page shows its loss and scores.

    \b
    isosent report first.json second.json -o report.html -o table.csv
    """  # noqa: D301
    check_outputs(outputs, reads=results)
    if [path.suffix for path in results] == [".jsonl"]:
        for output in outputs:
            check_curve_output(output)
            write_curve(output, read_metrics(results[0]))
        return
    if pictures := [f"{path}" for path in outputs if path.suffix.lower() in FORMATS]:
        raise InputError(f"report: --output {pictures[0]}: figures of results are written by --figures DIR.")
    if figures is not None:
        check_figures(figures)
    data = read_report(results)
    with progress_bar("testing the best", "columns") as bar:
        board = make_leaderboard(data.results, progress=bar)
    for note in board.notes:
        say(f"note: {note}")
    files = {
        ".html": lambda: html_report(data, board),
        ".csv": lambda: csv_table(*board.table()),
        ".tex": lambda: latex_table(*board.table(), caption=" ".join(n for n in board.notes if n.startswith(MARK))),
    }
    deliver(Report(parts=[f"{output}: {report_title(data, board)}" for output in outputs], files=files), outputs)
    if figures is not None:
        for path in write_figures(figures, data, board):
            show(f"{path}")
