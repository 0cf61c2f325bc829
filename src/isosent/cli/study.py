"""The commands ``research study`` and ``research reproduce``.

`study` is a command whose first argument says what varies; ``_run_...`` calls the study of `research` and gives its
records and the tables to print (``_..._tables``), all x100 and with published numbers where there are some. The records
can be written as JSON, and pictures drawn by `report.figures`. `reproduce` measures the tables of a paper again.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import click

from isosent._check import split_options
from isosent.cli.options import (
    PATH,
    data_option,
    json_option,
    models_option,
    outputs_option,
    split_names,
    tasks_option,
    whole_numbers,
)
from isosent.cli.printing import check_outputs, say, show, show_json, write_outputs
from isosent.errors import InputError
from isosent.evaluation.run import TARGET
from isosent.evaluation.sts import AGGREGATIONS, SICKR_PARTS
from isosent.evaluation.tables import x100
from isosent.io.json import document_bytes
from isosent.io.texts import TextSource
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.pages.figures import FORMATS
from isosent.pages.progress import progress_bar
from isosent.pages.tables import make_table
from isosent.report.figures import (
    check_figure,
    dims_figure,
    gem_figure,
    layer_figure,
    pooling_figure,
    write_figure,
)
from isosent.research.auto import judge, study_auto
from isosent.research.dims import LEADING, N_DOCS, study_dims
from isosent.research.flow import study_flow
from isosent.research.gem import study_gem
from isosent.research.layers import (
    AUTO,
    EXHAUSTIVE,
    NONE,
    STUDIED_POOLINGS,
    TRANSFORMS,
    WHITENING,
    averages,
    best_of_sizes,
    pair_grid,
    published_average,
    study_layers,
    study_pooling,
)
from isosent.research.reproduce import reproduce as reproduce_paper
from isosent.research.reproduction import LEGEND
from isosent.research.retrieval import study_retrieval
from isosent.research.study import (
    ALL,
    ROWS,
    AutoCell,
    DimsStudy,
    FlowCell,
    GemCell,
    LayerCell,
    RetrievalCell,
    bytes_of_a_million,
    layers_label,
    study_csv,
    study_notes,
    study_to_json,
    task_titles,
)
from isosent.transforms.base import Auto, is_flow, resolve_transform, settings_of

if TYPE_CHECKING:
    from rich.table import Table

KINDS = ("layers", "pooling", "dims", "auto", "flow", "gem", "retrieval")
_FIGURES: Mapping[str, Callable[..., Any]] = {"layers": layer_figure, "pooling": pooling_figure, "dims": dims_figure}
# options that only some kinds have
_OWN_OPTIONS = {
    "pooling": ("layers", "pooling"),
    "transform": ("dims", "flow"),
    "fit_on": ("dims",),
}
# settings after the question mark
_SETTINGS = dict.fromkeys(KINDS, ()) | {"dims": ("widths", "docs"), "flow": ("nli", "columns", "seeds")}
_TITLES = {NONE: "original", WHITENING: "whitening", AUTO: "auto"}


@click.group()
def research() -> None:
    """Study settings of the methods, and measure the tables of the papers again."""


@research.command()
@click.argument("what", metavar="KIND[?NAME=VALUE]")
@data_option
@models_option
@tasks_option
@click.option("--sickr", type=click.Choice(SICKR_PARTS), default=SICKR_PARTS[0], help="All of SICK-R, or its test set.")
@click.option("--aggregation", type=click.Choice(AGGREGATIONS), default=AGGREGATIONS[0], help="How to combine subsets.")
@click.option("--pooling", metavar="NAMES", help="layers: the pooling.  [default: mean]  pooling: those to compare.")
@click.option(
    "--transform", metavar="NAME", help="dims: [default: whitening]  flow: settings, as in glow_flow?depth=2."
)
@click.option("--fit-on", metavar="target|FILE", help="dims: fit on the texts of each task, or on a file.")
@outputs_option(".json", ".csv", *FORMATS)
@json_option
def study(
    what: str,
    data: Path,
    models: tuple[str, ...],
    tasks: str | None,
    sickr: str,
    aggregation: str,
    outputs: tuple[Path, ...],
    as_json: bool,
    **own: Any,
) -> None:
    """Measure choices on STS tasks. Transforms are fitted on the sentences of each task, without labels.

    \b
    layers   every layer of a transformer, every pair, the best sets (WhiteningBERT, figures 1, 2)
    pooling  poolings of the last layers of a transformer (WhiteningBERT, table 1)
    dims     score, memory and search time at each width (BERT-whitening, figure 1)
    auto     what auto chooses against fixed rules and the best choice in hindsight
    flow     BERT-flow against whitening and standardization; needs torch
    gem      what each part and each setting of GEM is worth (GEM, table 4 and figure 2)
    retrieval  bytes, speed and recall of every index type and dtype; needs the extra search

    \b
    isosent research study layers --data DIR -m hf:DIR -o layers.json -o layers.svg
    isosent research study 'dims?widths=64,128,256&docs=0' --data DIR
    isosent research study 'flow?nli=snli.jsonl,mnli.jsonl&columns=premise,hypothesis&seeds=0,1,2' --data DIR
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with a backspace
    kind, settings = split_options(what)
    if kind not in KINDS:
        raise InputError(f"study {kind}: the kinds are {', '.join(KINDS)}.")
    if unknown := settings.keys() - set(_SETTINGS[kind]):
        listed = ", ".join(_SETTINGS[kind]) or "none"
        raise InputError(f"study {kind}: no setting {', '.join(sorted(unknown))}. It has: {listed}.")
    own |= settings
    for name, kinds in _OWN_OPTIONS.items():
        if own[name] is not None and kind not in kinds:
            raise InputError(f"study {kind}: --{name.replace('_', '-')} is for study {' and study '.join(kinds)}.")
    check_outputs(outputs)
    figures = [path for path in outputs if path.suffix.lower() in FORMATS]
    for figure in figures:
        if kind not in (*_FIGURES, "gem"):
            raise InputError(f"study {kind}: --output {figure}: there is no figure of this study.")
        check_figure(figure)
    common = {"tasks": split_names(tasks)}
    if kind in ("layers", "pooling", "dims"):
        common["sickr"] = sickr  # type: ignore[assignment]
    run, tables_of = _KINDS[kind]
    own["aggregation"] = aggregation
    records: list[Any] = []
    for reference in models:
        with progress_bar(reference) as bar:
            new_records = run(load(reference), data, own, name=reference, progress=bar, **common)
        say(f"done: {reference}")
        records += new_records
        if kind != "auto" and not as_json:
            for table in tables_of(new_records, aggregation):
                show(table)
    if kind == "auto" and not as_json:
        for table in tables_of(records, aggregation):
            show(table)
    document = study_to_json(kind, records)
    contents = {".json": lambda: document_bytes(document).decode(), ".csv": lambda: study_csv(records)}
    write_outputs([path for path in outputs if path not in figures], contents)
    if as_json:
        show_json(document)
    for figure in figures:
        drawn = gem_figure(records) if kind == "gem" else _FIGURES[kind](records, aggregation)
        write_figure(figure, drawn)


def _run_layers(model: SentenceEncoder, data: Path, own: Mapping[str, Any], **common: Any) -> list[LayerCell]:
    return study_layers(model, data, pooling=own["pooling"] or "mean", aggregation=own["aggregation"], **common)


def _run_pooling(model: SentenceEncoder, data: Path, own: Mapping[str, Any], **common: Any) -> list[LayerCell]:
    return study_pooling(model, data, poolings=split_names(own["pooling"]) or STUDIED_POOLINGS, **common)


def _run_dims(model: SentenceEncoder, data: Path, own: Mapping[str, Any], **common: Any) -> list[DimsStudy]:
    transform = resolve_transform(own["transform"] or LEADING[0], dim=model.dim)
    if transform is None or isinstance(transform, Auto) or is_flow(transform):
        raise InputError(
            f"--transform {own['transform']}: the study of dimensions needs {' or '.join(LEADING)} at the end."
        )
    widths = whole_numbers("dims?widths=", own["widths"]) if "widths" in own else None
    n_docs, *others = whole_numbers("dims?docs=", own.get("docs", f"{N_DOCS}"))
    if others or n_docs < 0:
        raise InputError(f"dims?docs={own['docs']}: choose a whole number, 0 or more.")
    fit = own["fit_on"] or TARGET
    return [study_dims(model, data, transform=transform, widths=widths, fit=fit, n_docs=n_docs, **common)]


def _run_auto(model: SentenceEncoder, data: Path, own: Mapping[str, Any], **common: Any) -> list[AutoCell]:
    return study_auto(model, data, **common)


def _run_gem(model: SentenceEncoder, data: Path, own: Mapping[str, Any], **common: Any) -> list[GemCell]:
    return study_gem(model, data, **common)


def _run_flow(model: SentenceEncoder, data: Path, own: Mapping[str, Any], **common: Any) -> list[FlowCell]:
    seeds = whole_numbers("flow?seeds=", own.get("seeds", "0,1,2"))
    flow = resolve_transform(own["transform"] or "glow_flow", dim=model.dim)
    if not is_flow(flow):
        raise InputError(f"--transform {own['transform']}: the study of flows needs glow_flow.")
    settings = {name: value for name, value in settings_of(flow).items() if name != "seed"}
    nli = []
    for path in split_names(own.get("nli")) or []:
        columns: Sequence[str | None] = split_names(own.get("columns", "premise,hypothesis")) or []
        in_columns = columns if TextSource(path).is_table else [None]
        nli += [text for column in in_columns for text in TextSource(path, column).texts()]
    return study_flow(model, data, nli=nli, seeds=seeds, settings=settings, **common)


_Row = tuple[str, tuple[int, ...], str]  # pooling, layers, transform


def _layer_tables(cells: Sequence[LayerCell], how: str) -> "Iterator[Table]":
    """Single layers and usual pairs by task; every pair; the best set of every size. All x100."""
    rows = _layer_rows(cells)
    last = max(layers[-1] for _, layers, _ in rows)
    shown = dict.fromkeys([*((layer,) for layer in range(last + 1)), (1, last), (0, last), (last - 1, last)])
    order = [(cells[0].pooling, layers, transform) for transform in TRANSFORMS for layers in shown]
    title = f"{cells[0].model}: layers, {cells[0].pooling} pooling"
    yield _scores_table({row: rows[row] for row in order if row in rows}, how, title)
    for transform in TRANSFORMS:
        grid = pair_grid(cells, transform, how)
        names = [f"L{layer}" for layer in range(len(grid))]
        table = make_table("", *names, title=f"pairs of layers, {_TITLES[transform]}: average over the tasks")
        for row, name in enumerate(names):
            table.add_row(name, *(x100(score) for score in grid[row, : row + 1]))
        yield table
    best = best_of_sizes(cells, how)
    caption = (
        f"all sets of up to {EXHAUSTIVE[NONE]} layers were tried ({EXHAUSTIVE[AUTO]} with auto), then the best one grew"
        " layer by layer;\nchosen by the labels: an upper bound, not a recipe"
    )
    columns = [name for transform in TRANSFORMS for name in (_TITLES[transform], "")]
    table = make_table("layers", *columns, title="best set of every size: average over the tasks", caption=caption)
    for size in best[NONE]:
        sets = [best[transform][size] for transform in TRANSFORMS]
        table.add_row(str(size), *(text for one in sets for text in (layers_label(one.layers), x100(one.average))))
    yield table


def _pooling_tables(cells: Sequence[LayerCell], how: str) -> "Iterator[Table]":
    """A row per pooling, set of layers and transform, then what the paper concluded. All x100."""
    yield _scores_table(_layer_rows(cells), how, f"{cells[0].model}: poolings")
    scores = averages(cells, how)
    last = max(layers[-1] for _, layers, _ in scores)
    sets = {"last layer": (last,), "L1+last": (1, last), "last two": (last - 1, last)}

    def change(high: _Row, low: _Row) -> str:
        return f"{100 * (scores[high] - scores[low]):+.2f}" if high in scores and low in scores else ""

    rows = [
        (f"mean minus cls, {name}", *(change(("mean", layers, t), ("cls", layers, t)) for t in TRANSFORMS))
        for name, layers in sets.items()
    ]
    for name in ("last layer", "last two"):
        changes = (change(("mean", sets["L1+last"], t), ("mean", sets[name], t)) for t in TRANSFORMS)
        rows.append((f"L1+last minus {name}, mean", *changes))
    for name, layers in sets.items():
        changes = (change(("mean", layers, t), ("mean", layers, NONE)) for t in (WHITENING, AUTO))
        rows.append((f"gain over the original vectors, mean, {name}", "", *changes))
    table = make_table("points of the average", *_TITLES.values(), title="conclusions of WhiteningBERT, here")
    for row in rows:
        if any(row[1:]):
            table.add_row(*row)
    yield table


def _layer_rows(cells: Iterable[LayerCell]) -> dict[_Row, list[LayerCell]]:
    rows: dict[_Row, list[LayerCell]] = {}
    for cell in cells:
        rows.setdefault((cell.pooling, cell.layers, cell.transform), []).append(cell)
    return rows


def _scores_table(rows: Mapping[_Row, Sequence[LayerCell]], how: str, title: str) -> "Table":
    """One row per layer pooling, one column per task and one for its published scores, and their average."""
    tasks = list(task_titles(next(iter(rows.values()))).values())
    measured = {row: [cell.spearman[how] for cell in cells] for row, cells in rows.items()}
    published = {
        row: [cell.published[how].spearman if how in cell.published else math.nan for cell in cells]
        for row, cells in rows.items()
    }
    if len(tasks) > 1:
        tasks.append("average")
        for row, cells in rows.items():
            measured[row].append(fmean(measured[row]))
            published[row].append(published_average(cells, how))
    has_published = [any(not math.isnan(scores[place]) for scores in published.values()) for place in range(len(tasks))]
    has_poolings = len({pooling for pooling, _, _ in rows}) > 1
    left = [*(["pooling"] if has_poolings else []), "layers", "transform"]
    columns = [
        name for task, has in zip(tasks, has_published, strict=True) for name in (task, *(["published"] if has else []))
    ]
    sources = {cell.published[how].source for cells in rows.values() for cell in cells if how in cell.published}
    caption = [f"Spearman x100, {how}; transforms fitted on the sentences of the task"]
    caption += [f"published: {source}" for source in sorted(sources)]
    caption += study_notes(next(iter(rows.values())))
    table = make_table(*left, *columns, left=len(left), title=title, caption="\n".join(caption))
    previous = None
    for row in rows:
        pooling, layers, transform = row
        section = pooling if has_poolings else transform
        if previous not in (None, section):
            table.add_section()
        previous = section
        texts = []
        for score, score_published, has in zip(measured[row], published[row], has_published, strict=True):
            shown = "" if math.isnan(score_published) else f"{100 * score_published:.2f}"
            texts += [x100(score), *([shown] if has else [])]
        table.add_row(*([pooling] if has_poolings else []), layers_label(layers), _TITLES[transform], *texts)
    return table


def _dims_tables(studies: Sequence[DimsStudy], how: str) -> "Iterator[Table]":
    """A row per width, with memory and search time; published rows below. All x100."""
    for result in studies:
        columns: list[str | None] = [*result.tasks, *([None] if len(result.tasks) > 1 else [])]
        times = {time.k: f"{1000 * time.elapsed_s:.2f}" for time in result.search}
        intervals = {k: result.interval(k) for k in result.widths} if how == ALL else {}
        has_intervals = not all(math.isnan(low) for low, _ in intervals.values())
        titles = task_titles(result.cells)
        names = [
            *(titles[column] if column else "average" for column in columns),
            *(["95% interval"] if has_intervals else []),
        ]
        names += ["MB per million", *(["ms per query"] if times else [])]
        table = make_table("dimensions", *names, title=result.name, caption=_dims_caption(result, how))
        best = {column: result.best(column, how) for column in columns}
        curves = {column: result.curve(column, how) for column in columns}

        def cost(
            k: int,
            interval: tuple[float, float] | None = None,
            times: Mapping[int, str] = times,
            has_intervals: bool = has_intervals,
        ) -> list[str]:
            shown = "" if interval is None else ", ".join(f"{100 * end:.1f}" for end in interval)
            columns = [shown] if has_intervals else []
            return [*columns, f"{bytes_of_a_million(k) / 1e6:,.0f}", *([times.get(k, "")] if times else [])]

        whole = [x100(result.whole(column, how)) + " " for column in columns]
        table.add_row(f"{result.dim}, original", *whole, *cost(result.dim))
        table.add_section()
        for k in result.widths:
            marked = (x100(curves[column][k]) + ("*" if best[column] == k else " ") for column in columns)
            table.add_row(str(k), *marked, *cost(k, intervals.get(k)))
        drawn = {column: result.curve(column, how, of_random=True) for column in columns}
        if result.random:
            table.add_section()
        for k in sorted({cell.k for cell in result.random}):
            table.add_row(f"random {k}", *(x100(drawn[column].get(k, math.nan)) + " " for column in columns), *cost(k))
        for row in result.published:
            table.add_section()
            cells = result.cells if row.transformed else result.untransformed
            scores = {cell.task: cell.spearman[row.aggregation] for cell in cells if cell.k == row.k}
            label = row.aggregation if row.transformed else f"original, {row.aggregation}"
            table.add_row(f"{row.k}, {label}", *(x100(scores[task]) + " " if task else "" for task in columns))
            published = (f"{row.scores[task]:.2f} " if task in row.scores else "" for task in columns if task)
            table.add_row(f"  published: {row.label}", *published)
        yield table


def _dims_caption(result: DimsStudy, how: str) -> str:
    protocol = result.protocol
    settings = {name: value for name, value in protocol["parameters"].items() if name != "n_components"}
    lines = [
        f"Spearman x100, {how}; * best of its column",
        f"{protocol['transform']}({', '.join(f'{name}={value}' for name, value in settings.items())}) fitted on "
        f"{protocol['fit']}",
    ]
    lines += [
        f"SICKR: {cell.n_pairs} pairs ({protocol['sickr']})" for cell in result.untransformed if cell.task == "SICKR"
    ]
    lines += study_notes(result.cells)
    if result.random:
        lines.append("random: so many of the original dimensions, mean of ten draws; interval: of resampled pairs")
    lines.append(f"sentences without a vector: {sum(cell.n_zero_rows for cell in result.untransformed)}")
    ranks = {cell.task: cell.n_components for cell in result.cells if cell.n_components < cell.k}
    for rank in sorted(set(ranks.values())):
        tasks = ", ".join(task for task, n_components in ranks.items() if n_components == rank)
        lines.append(f"rank of {tasks}: {rank}; wider rows have so many dimensions")
    for time in result.search[:1]:
        lines.append(
            f"search: exact, ten nearest of {time.n_docs:,} float32 vectors, {time.n_queries} queries at once, one "
            f"thread, median of {time.n_repeats}"
        )
    return "\n".join(lines)


def _auto_tables(cells: Sequence[AutoCell], how: str) -> "Iterator[Table | str]":
    """Every row on every task, x100, and what auto gains and loses."""
    verdict = judge(cells)
    for model, means in verdict.averages.items():
        of_model = [cell for cell in cells if cell.model == model]
        choices = [f"{cell.task}: {cell.chosen} Best in hindsight: {cell.best}." for cell in of_model]
        tasks = task_titles(of_model).values()
        caption = "\n".join([*choices, *study_notes(of_model)])
        table = make_table("x100", *tasks, "average", title=model, caption=caption)
        for row in ROWS:
            table.add_row(row, *(x100(cell.scores[row]) for cell in of_model), x100(means[row]))
        yield table
    yield f"models for which a fixed rule has a higher average than auto: {', '.join(verdict.below_average) or 'none'}"
    yield f"best in hindsight minus auto, mean over encoders and tasks ({len(cells)}): {100 * verdict.mean_regret:.2f}"
    yield f"largest loss against the original vectors: {100 * max(0.0, verdict.worst_loss):.2f}"


def _retrieval_tables(cells: Sequence[RetrievalCell], how: str) -> "Iterator[Table]":
    """A row per index. The last columns are percentages."""
    columns = ("kind", "store", "bytes", "on disk", "build s", "queries/s", "of FAISS", "recall@10", "labeled")
    caption = (
        "bytes per vector; queries/s in batches of 100, and as a multiple of plain FAISS with the same codes;\n"
        "recall@10 against exact search, and of labeled paraphrases"
    )
    for vectors in dict.fromkeys(cell.vectors for cell in cells):
        of_vectors = [cell for cell in cells if cell.vectors == vectors]
        title = f"{cells[0].model}: {cells[0].n_rows} sentences, {of_vectors[0].dim} dimensions, {vectors}"
        table = make_table(*columns, title=title, caption=caption)
        for cell in of_vectors:
            speed = f"{cell.queries_per_s:,.0f}", f"{cell.queries_per_s / cell.plain_queries_per_s:.2f}"
            sizes = f"{cell.bytes_searched:.0f}", f"{cell.bytes_on_disk:.0f}", f"{cell.build_s:.1f}"
            table.add_row(cell.kind, cell.store, *sizes, *speed, x100(cell.recall), x100(cell.labelled_recall))
        yield table


def _run_retrieval(model: SentenceEncoder, data: Path, _: Mapping[str, Any], **common: Any) -> list[RetrievalCell]:
    return study_retrieval(model, data, **common)


def _flow_tables(cells: Sequence[FlowCell], how: str) -> "Iterator[Table]":
    """What was fitted, x100, with bits per dimension and time."""
    n_seeds = max(len(cell.scores) for cell in cells)
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    columns = [
        *task_titles(cells).values(),
        *(["average"] if len(tasks) > 1 else []),
        "bits per dimension",
        "s per fit",
    ]
    caption = f"Spearman x100 (all); flow: mean ± standard deviation of {n_seeds} seeds; bits: of held-out rows"
    table = make_table("fitted", *columns, title=cells[0].model, caption="\n".join([caption, *study_notes(cells)]))
    for row in dict.fromkeys(cell.row for cell in cells):
        of_row = [cell for cell in cells if cell.row == row]
        scores = [list(cell.scores) for cell in of_row]
        if len(tasks) > 1:
            scores.append([fmean(of_seed) for of_seed in zip(*scores, strict=True)])
        bits = [pair for cell in of_row for pair in cell.held_out_bits if None not in pair]
        change = " to ".join(f"{fmean(side):.2f}" for side in zip(*bits, strict=True))
        seconds = fmean(cell.fit_s for cell in of_row)
        table.add_row(row, *map(_spread, scores), change, f"{seconds:.1f}" if seconds else "")
    yield table


def _spread(scores: Sequence[float]) -> str:
    mean = x100(fmean(scores))
    return mean if len(scores) == 1 else f"{mean} ± {100 * stdev(scores):.2f}"


def _gem_tables(cells: Sequence[GemCell], how: str) -> "Iterator[Table]":
    """Pearson, then Spearman, x100 of every setting on every task."""
    by_place = {(cell.study, cell.condition, cell.task): cell for cell in cells}
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    n_zero_rows = max(cell.n_zero_rows for cell in cells)
    caption = f"sentences without a vector: at most {n_zero_rows} of a task and setting; their cosine counts as 0"
    caption, titles = "\n".join([caption, *study_notes(cells)]), task_titles(cells)
    for metric in ("pearson", "spearman"):
        title = f"{cells[0].model}: {metric}"
        table = make_table("study", "condition", *titles.values(), left=2, title=title, caption=caption)
        previous = ""
        for name, condition in dict.fromkeys((cell.study, cell.condition) for cell in cells):
            if name != previous:
                table.add_section()
            scores = (x100(getattr(by_place[name, condition, task], metric)) for task in tasks)
            table.add_row("" if name == previous else name, condition, *scores)
            previous = name
        yield table


_KINDS: Mapping[str, tuple[Callable[..., list[Any]], Callable[..., Any]]] = {
    "layers": (_run_layers, _layer_tables),
    "pooling": (_run_pooling, _pooling_tables),
    "dims": (_run_dims, _dims_tables),
    "auto": (_run_auto, _auto_tables),
    "flow": (_run_flow, _flow_tables),
    "gem": (_run_gem, _gem_tables),
    "retrieval": (_run_retrieval, _retrieval_tables),
}


@research.command()
@click.argument("paper")
@data_option
@click.option("--models", type=PATH, metavar="FILE", help="YAML: where the models of the tables are.")
@click.option(
    "--table", metavar="NAME", multiple=True, help='Such as 1 or "figure 1"; may be repeated.  [default: all]'
)
@outputs_option(".json", ".md")
@json_option
def reproduce(
    paper: str,
    data: Path,
    models: Path | None,
    table: tuple[str, ...],
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Measure the tables of PAPER again, next to the published numbers.

    PAPER is bert-whitening, whitening-bert, gem, sentence-bert, others (published scores of other models), or a YAML
    file of that form. A condition whose model is not available says what it needs.

    \b
    isosent research reproduce bert-whitening --data DIR -o tables.md
    """  # noqa: D301
    check_outputs(outputs, reads=(models,))
    with progress_bar("encoding") as bar:
        reproduction = reproduce_paper(
            paper,
            data,
            models=models,
            tables=list(table) or None,
            progress=bar,
            tell=lambda command: say(f"done: {command}"),
        )
    contents = {
        ".json": lambda: document_bytes(reproduction.to_json()).decode(),
        ".md": lambda: reproduction.to_markdown(with_commands=True),
    }
    write_outputs(outputs, contents)
    if as_json:
        show_json(reproduction.to_json())
        return
    for outcome in reproduction.tables:
        title = f"{reproduction.paper.name}, {outcome.table.name}: {outcome.table.title}"
        printed = make_table(*outcome.header, title=title, caption="\n".join(outcome.caption))
        printed.columns[-1].justify = "left"
        for row in outcome.rows():
            printed.add_row(*row)
        show(printed)
    show(LEGEND)
