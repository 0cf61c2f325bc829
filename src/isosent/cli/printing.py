"""What the commands ``train ...`` print: the data before the first step, and the scores after the last."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress import Task as ProgressTask
from rich.table import Table
from rich.text import Text

from isosent.demo import DEMO_STRENGTH, DemoReport
from isosent.encoders.base import Progress as Advance
from isosent.encoders.precomputed import PRECOMPUTED
from isosent.evaluation.tables import x100
from isosent.numeric.isotropy import SpaceReport
from isosent.report.figures import transform_title as title
from isosent.research.auto import AutoVerdict
from isosent.research.layers import (
    AUTO,
    EXHAUSTIVE,
    NONE,
    TRANSFORMS,
    WHITENING,
    averages,
    best_of_sizes,
    pair_grid,
    published_average,
)
from isosent.research.study import ROWS, AutoCell, GemCell, LayerCell, layers_label
from isosent.training.data import Examples
from isosent.training.run import Scores, TrainingResult, spread
from isosent.transforms.base import FitProgress

_WIDTH_OF_A_FILE = 200


def _console(stream: TextIO | None, *, stderr: bool = False) -> Console:
    """Plain text, as it is: no markup, no emoji; in a file, rows wide enough to be searched."""
    width = None if stream is not None and stream.isatty() else _WIDTH_OF_A_FILE
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)


out = _console(sys.stdout)
err = _console(sys.stderr, stderr=True)


class _Rate(TextColumn):
    def __init__(self, unit: str) -> None:
        super().__init__("")
        self._unit = unit

    def render(self, task: ProgressTask) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self._unit}/s")


EXIT_INTERRUPTED = 130


class Interrupted(SystemExit):
    """Ctrl-C in a command that has said itself what is kept."""

    def __init__(self) -> None:
        super().__init__(EXIT_INTERRUPTED)


@contextmanager
def progress_bar(label: str, unit: str = "texts") -> Iterator["ProgressBar"]:
    """Show a bar with rate and remaining time while the block runs; nothing where standard error is no terminal.

    Parameters
    ----------
    label : str
        What is being done.
    unit : str, default "texts"
        What is counted.

    Yields
    ------
    ProgressBar
        Told how much there is, it gives what is told how much is done.
    """
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), _Rate(unit), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        yield ProgressBar(progress)


class ProgressBar:
    """A bar that is started once the amount of work is known.

    Parameters
    ----------
    progress : Progress
        The bars of rich.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __call__(self, total: int) -> Advance:
        """Start the bar.

        Parameters
        ----------
        total : int
            How many there are.

        Returns
        -------
        callable
            Takes the number of those done since the last call.
        """
        task = self._progress.add_task("", total=total)
        return lambda done: self._progress.advance(task, done)


_SPACE_ROWS: tuple[tuple[str, Callable[[SpaceReport], str]], ...] = (
    ("mean cosine of random pairs", lambda space: f"{space.mean_cosine:.4f}"),
    ("effective rank", lambda space: f"{space.effective_rank:.1f}"),
    ("dimensions", lambda space: f"{space.dim}"),
    ("bytes per vector", lambda space: f"{space.size_bytes}"),
)


def change_table(before: SpaceReport, after: SpaceReport) -> Table:
    """Lay two vector spaces side by side.

    Parameters
    ----------
    before, after : SpaceReport
        The spaces.

    Returns
    -------
    Table
        One row a figure.
    """
    table = Table("", "before", "after")
    for name, of in _SPACE_ROWS:
        table.add_row(name, of(before), of(after))
    return table


def choice_table(choice: Mapping[str, Any]) -> Table:
    """Lay out what "auto" weighed, what it chose, and why.

    Parameters
    ----------
    choice : mapping
        What `AutoChoice.to_json` gives.

    Returns
    -------
    Table
        One row a candidate.
    """
    measured = any(scored["score"] is not None for scored in choice["candidates"])
    table = Table("candidate", *(("keeps meaning", "separates") if measured else ()), "", caption_justify="left")
    for scored in choice["candidates"]:
        figures = [scored["score"], scored["separation"]] if measured else []
        mark = "chosen" if scored["candidate"] == choice["chosen"] else ""
        table.add_row(scored["candidate"], *("" if figure is None else f"{figure:.2f}" for figure in figures), mark)
    table.caption = f"auto chose: {choice['chosen']}\nbecause {choice['reason']}"
    return table


def print_likelihood(seen: FitProgress) -> None:
    """Print how far the fit of a flow is.

    Parameters
    ----------
    seen : FitProgress
        What it reports.
    """
    err.print(f"{seen.n_rows:,} of {seen.n_total:,} rows: {seen.held_out_bits:.4f} bits per dimension, held-out rows")


def likelihood_change(history: Sequence[Mapping[str, Any]]) -> str:
    """Tell what the fit of a flow changed.

    Parameters
    ----------
    history : sequence of mapping
        That of a `FitRecord`.

    Returns
    -------
    str
        A line.
    """
    before, after = (f"{history[place]['held_out_bits']:.4f}" for place in (0, -1))
    return f"held-out rows: {before} bits per dimension before, {after} after (lower is likelier)"


def facts_table(facts: Mapping[str, Any]) -> Table:
    """Lay out what a model is.

    Parameters
    ----------
    facts : mapping
        Those of a `ModelRecord`.

    Returns
    -------
    Table
        One row a fact, and one a fit.
    """
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        if name != "fits":
            table.add_row(name.replace("_", " "), _plain(value))
    fitted_on = "vectors" if facts["reference"] == PRECOMPUTED else "texts"
    for step, record in enumerate(facts["fits"], start=1):
        done = f"{record['transform']}({_plain(record['parameters'])})"
        table.add_row(f"fit {step}", "left alone by auto" if record["transform"] == "none" else done)
        table.add_row("", f"on {record['n_texts']} {fitted_on} of {record['source']}, {record['fitted_at']}")
        table.add_row("", f"left out for want of a vector: {record['n_zero_rows']}")
        if record.get("choice"):
            table.add_row("", f"auto, because {record['choice']['reason']}")
        if record.get("history"):
            table.add_row("", likelihood_change(record["history"]))
    return table


def print_study(cells: Sequence[AutoCell], verdict: AutoVerdict) -> None:
    """Print a study of "auto", x100: a table a model, and what all come to.

    Parameters
    ----------
    cells : sequence of AutoCell
        Its cells.
    verdict : AutoVerdict
        What they come to.
    """
    for model, means in verdict.averages.items():
        table = Table("task", *ROWS, "auto chose", "best was", title=model, title_justify="left")
        for cell in (cell for cell in cells if cell.model == model):
            table.add_row(cell.task, *(f"{100 * cell.scores[row]:.2f}" for row in ROWS), cell.chosen, cell.best)
        table.add_section()
        table.add_row("average", *(f"{100 * means[row]:.2f}" for row in ROWS))
        out.print(table)
    out.print(
        f"models that do better on average under a fixed rule: {', '.join(verdict.below_average) or 'none'}\n"
        f"best in hindsight minus auto, mean over {len(cells)} cells: {100 * verdict.mean_regret:.2f}\n"
        f"most lost against leaving the vectors alone: {100 * max(0.0, verdict.worst_loss):.2f}"
    )


def print_gem_study(cells: Sequence[GemCell]) -> None:
    """Print a study of GEM: a table a model, Pearson and Spearman x100 of each task side by side.

    Parameters
    ----------
    cells : sequence of GemCell
        Its cells.
    """
    by_place = {(cell.model, cell.study, cell.condition, cell.task): cell for cell in cells}
    for model in dict.fromkeys(cell.model for cell in cells):
        rows = dict.fromkeys((cell.study, cell.condition) for cell in cells if cell.model == model)
        tasks = dict.fromkeys(cell.task for cell in cells if cell.model == model)
        table = Table(title=model, title_justify="left", caption="r: Pearson, rho: Spearman", caption_justify="left")
        for name in ("study", "condition"):
            table.add_column(name)
        for task in tasks:
            for name in (f"{task} r", "rho", "zero rows"):
                table.add_column(name, justify="right")
        last = ""
        for study, condition in rows:
            if study != last:
                table.add_section()
            found = [by_place[model, study, condition, task] for task in tasks]
            figures = [[x100(cell.pearson), x100(cell.spearman), str(cell.n_zero_rows)] for cell in found]
            table.add_row("" if study == last else study, condition, *(text for three in figures for text in three))
            last = study
        out.print(table)


def print_demo(report: DemoReport) -> None:
    """Print what the demo saw.

    Parameters
    ----------
    report : DemoReport
        Before and after.
    """
    before, after = report.before, report.after
    table = change_table(before.space, after.space)
    table.title = f"wordllama, {report.n_texts} sentences, whitening with strength {DEMO_STRENGTH}"
    table.add_row(f"paraphrases found, of {report.n_paraphrased}", f"{before.n_found}", f"{after.n_found}")
    out.print(table)
    for query, *found in zip(report.queries, before.neighbours, after.neighbours, strict=True):
        out.print(f"\nnearest to: {query}")
        for label, neighbour in zip(("before", "after"), found, strict=True):
            note = "  (same meaning)" if neighbour.same_meaning else ""
            out.print(f"  {label:<6} {neighbour.score:5.2f}  {neighbour.text}{note}")
    out.print(
        f"\nWhitening fully (strength 1) would find {report.n_found_at_full_strength}: this encoder was trained on "
        "pairs, and the sample is small.\nMeasure on your own task."
    )
    identical = "bit-identical vectors" if report.reloaded_identical else "DIFFERENT vectors"
    out.print(f"Saved and loaded: {identical}. {report.elapsed_s:.1f} s in all.")


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_plain(inner)}" for name, inner in value.items()) or "none"
    return str(value)


def print_unknown(coverage: tuple[int, int]) -> None:
    """Print how many tokens an encoder did not know, if any could be.

    Parameters
    ----------
    coverage : tuple of two int
        Tokens, and unknown ones among them, see `Encoder.coverage`.
    """
    n_tokens, n_unknown = coverage
    if n_tokens:
        out.print(f"tokens: {n_tokens:,}; unknown: {n_unknown:,} ({n_unknown / n_tokens:.1%})")


_Row = tuple[str, tuple[int, ...], str]
_Rows = Mapping[_Row, Sequence[LayerCell]]


def print_layer_study(cells: Sequence[LayerCell], aggregation: str) -> None:
    """Print a study of layers, x100: single layers by task, every pair, and the best set of every size.

    Parameters
    ----------
    cells : sequence of ReadingCell
        What `study_layers` returned for one model.
    aggregation : str
        Which of the aggregations.
    """
    rows = _by_row(cells)
    last = max(layers[-1] for _, layers, _ in rows)
    shown = dict.fromkeys([*((layer,) for layer in range(last + 1)), (1, last), (0, last), (last - 1, last)])
    order = [(cells[0].pooling, layers, transform) for transform in TRANSFORMS for layers in shown]
    table = reading_table({row: rows[row] for row in order if row in rows}, aggregation)
    table.title, table.title_justify = f"{cells[0].model}: layers, pooled by {cells[0].pooling}", "left"
    out.print(table)
    for transform in TRANSFORMS:
        out.print(_pair_table(cells, transform, aggregation))
    out.print(_best_table(cells, aggregation))


def print_pooling_study(cells: Sequence[LayerCell], aggregation: str) -> None:
    """Print a study of poolings, x100: a row a pooling, set of layers and transform, and what the paper found.

    Parameters
    ----------
    cells : sequence of ReadingCell
        What `study_pooling` returned for one model.
    aggregation : str
        Which of the aggregations.
    """
    table = reading_table(_by_row(cells), aggregation)
    table.title, table.title_justify = f"{cells[0].model}: poolings", "left"
    out.print(table)
    out.print(_conclusions(averages(cells, aggregation)))


def reading_table(rows: _Rows, aggregation: str) -> Table:
    """Lay out readings, with a column of published numbers next to each that has any.

    Parameters
    ----------
    rows : mapping of (pooling, layers, transform) to sequence of ReadingCell
        The cells of each reading under one transform, one a task, all in one order.
    aggregation : str
        Which of the aggregations.

    Returns
    -------
    Table
        One row a reading, one column a task, and their average.
    """
    tasks = [cell.task for cell in next(iter(rows.values()))]
    measured = {row: [cell.spearman[aggregation] for cell in cells] for row, cells in rows.items()}
    published = {row: [_published(cell, aggregation) for cell in cells] for row, cells in rows.items()}
    if len(tasks) > 1:
        tasks.append("average")
        for row, cells in rows.items():
            measured[row].append(sum(measured[row]) / len(cells))
            published[row].append(published_average(cells, aggregation))
    has_published = [
        any(not math.isnan(numbers[place]) for numbers in published.values()) for place in range(len(tasks))
    ]
    several = len({pooling for pooling, _, _ in rows}) > 1
    table = Table(
        *(["pooling"] if several else []),
        "layers",
        "transform",
        caption=_caption(rows, aggregation),
        caption_justify="left",
    )
    for task, beside in zip(tasks, has_published, strict=True):
        table.add_column(task, justify="right")
        if beside:
            table.add_column("published", justify="right", style="dim")
    group = None
    for row in rows:
        pooling, layers, transform = row
        begun, group = group, pooling if several else transform
        if begun not in (None, group):
            table.add_section()
        texts = []
        for score, there, beside in zip(measured[row], published[row], has_published, strict=True):
            texts += [x100(score), *(["" if math.isnan(there) else f"{100 * there:.2f}"] if beside else [])]
        table.add_row(*([pooling] if several else []), layers_label(layers), title(transform), *texts)
    return table


def _by_row(cells: Iterable[LayerCell]) -> dict[_Row, list[LayerCell]]:
    rows: dict[_Row, list[LayerCell]] = {}
    for cell in cells:
        rows.setdefault((cell.pooling, cell.layers, cell.transform), []).append(cell)
    return rows


def _published(cell: LayerCell, aggregation: str) -> float:
    there = cell.published.get(aggregation)
    return math.nan if there is None else there.spearman


def _caption(rows: _Rows, aggregation: str) -> str:
    sources = {
        cell.published[aggregation].source for cells in rows.values() for cell in cells if aggregation in cell.published
    }
    lines = [f"Spearman x100, aggregation {aggregation}; maps fitted on the sentences of the task (target)"]
    return "\n".join([*lines, *(f"published: {source}" for source in sorted(sources))])


def _pair_table(cells: Sequence[LayerCell], transform: str, aggregation: str) -> Table:
    grid = pair_grid(cells, transform, aggregation)
    names = [f"L{layer}" for layer in range(len(grid))]
    table = Table(
        "", title=f"pairs of layers, {title(transform)}: average over the tasks", title_justify="left", box=None
    )
    for name in names:
        table.add_column(name, justify="right")
    for row, name in enumerate(names):
        table.add_row(name, *(x100(score) for score in grid[row, : row + 1]))
    return table


def _best_table(cells: Sequence[LayerCell], aggregation: str) -> Table:
    best = best_of_sizes(cells, aggregation)
    up_to = EXHAUSTIVE[NONE]
    caption = (
        f"all sets of up to {up_to} layers were tried ({EXHAUSTIVE[AUTO]} with auto), then the best one grew layer by "
        "layer;\nlabels say which set is best: a bound, not a recipe"
    )
    table = Table("layers", title="best set of every size: average over the tasks", title_justify="left")
    table.caption, table.caption_justify = caption, "left"
    for transform in TRANSFORMS:
        table.add_column(title(transform))
        table.add_column("", justify="right")
    for size in best[NONE]:
        sets = [best[transform][size] for transform in TRANSFORMS]
        table.add_row(str(size), *(text for each in sets for text in (layers_label(each.layers), x100(each.average))))
    return table


def _conclusions(scores: Mapping[_Row, float]) -> Table:
    """How far what WhiteningBERT found of raw transformers holds here: differences of averages, in points."""
    last = max(layers[-1] for _, layers, _ in scores)
    sets = {"last layer": (last,), "L1+last": (1, last), "last two": (last - 1, last)}
    contrasts = [(f"mean minus cls, {name}", ("mean", layers), ("cls", layers)) for name, layers in sets.items()]
    contrasts += [
        (f"L1+last minus {name}, mean", ("mean", sets["L1+last"]), ("mean", sets[name]))
        for name in ("last layer", "last two")
    ]

    def change(high: _Row, low: _Row) -> str:
        return f"{100 * (scores[high] - scores[low]):+.2f}" if high in scores and low in scores else ""

    rows = [
        (name, *(change((*high, transform), (*low, transform)) for transform in TRANSFORMS))
        for name, high, low in contrasts
    ]
    rows += [
        (
            f"gain over the vectors as they are, mean, {name}",
            "",
            *(change(("mean", layers, transform), ("mean", layers, NONE)) for transform in (WHITENING, AUTO)),
        )
        for name, layers in sets.items()
    ]
    table = Table("points of the average", title="what WhiteningBERT found, here", title_justify="left")
    for transform in TRANSFORMS:
        table.add_column(title(transform), justify="right")
    for name, *changes in rows:
        if any(changes):
            table.add_row(name, *changes)
    return table


_SHOWN_CHARACTERS = 60


def examples_tables(examples: Examples) -> Iterator[Table]:
    """Lay out what the data hold, and their first rows.

    Parameters
    ----------
    examples : Examples
        The data.

    Yields
    ------
    Table
        Files, numbers and classes; then three rows under the columns that they were read from.
    """
    facts = Table(show_header=False, title=f"{examples.objective}: {len(examples):,} examples", title_justify="left")
    for source in examples.sources:
        facts.add_row(str(source.path), f"{source.n_rows:,} rows, {source.encoding}")
    for reason, count in examples.dropped.items():
        facts.add_row(f"dropped: {reason}", f"{count:,}")
    for name, count in examples.label_counts.items():
        facts.add_row(name, f"{count:,} ({count / len(examples):.1%})")
    for name, value in examples.score_summary.items():
        facts.add_row(f"score, {name}", f"{value:.3f}")
    yield facts
    rows = Table(title="first rows", title_justify="left")
    for name, source_name in examples.source_columns.items():
        rows.add_column(name if source_name == name else f"{name} (from {source_name})")
    for row in examples.sample():
        rows.add_row(*(_shortened(str(value)) for value in row.values()))
    yield rows


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def scores_table(results: Sequence[TrainingResult], *, seeded: bool) -> Table:
    """Lay out scores before and after.

    Parameters
    ----------
    results : sequence of TrainingResult
        Trainings.
    seeded : bool
        Whether they lie in folders of their seeds, and are one row together.

    Returns
    -------
    Table
        Spearman x100, a row a model and set.
    """
    groups: dict[str, list[TrainingResult]] = {}
    for result in results:
        groups.setdefault(str(result.folder.parent if seeded else result.folder), []).append(result)
    with_transform = any(s.with_transform for result in results for s in result.scores.values())
    seeds = max(map(len, groups.values()))
    caption = "Spearman x100" + (f"; mean and standard deviation of {seeds} seeds" if seeds > 1 else "")
    table = Table(caption=caption, caption_justify="left")
    for name in ("model", "set"):
        table.add_column(name)
    for name in ("before", "after", *(["with transform"] if with_transform else []), "step kept", "seconds"):
        table.add_column(name, justify="right")
    for name, group in groups.items():
        steps = ", ".join(str(result.kept_step) for result in group) + f" of {group[0].n_steps}"
        seconds = f"{sum(result.elapsed_s for result in group):,.0f}"
        for of in group[0].scores or ["-"]:
            scores = [result.scores[of] for result in group if of in result.scores]
            cells = _cells(scores, with_transform=with_transform)
            table.add_row(name, of, *cells, steps, seconds)
    return table


def notes(results: Sequence[TrainingResult]) -> Iterator[str]:
    """Say what a table of scores does not say aloud.

    Parameters
    ----------
    results : sequence of TrainingResult
        Trainings.

    Yields
    ------
    str
        What a fit at the end chose; where training, or that fit, made a score worse; that nothing was scored.
    """
    for result in results:
        if result.model.fits and result.model.fits[-1].choice:
            yield f"{result.folder}: auto chose {result.model.fits[-1].choice['reason']}"
        for name, of in result.scores.items():
            if of.after.spearman < of.before.spearman:
                loss = x100(of.before.spearman - of.after.spearman)
                yield f"warning: {result.folder}: training made the score on {name} worse, by {loss}"
            if of.with_transform is not None and of.with_transform.spearman < of.after.spearman:
                loss = x100(of.after.spearman - of.with_transform.spearman)
                yield f"warning: {result.folder}: the transform made the score on {name} worse, by {loss}"
    if not any(result.scores for result in results):
        yield "nothing was scored; --dev or --test names scored pairs"


def _cells(scores: Sequence[Scores], *, with_transform: bool) -> list[str]:
    """Scores before, after, and with what was fitted, over the seeds."""
    columns = [[s.before for s in scores], [s.after for s in scores]]
    if with_transform:
        columns.append([s.with_transform for s in scores if s.with_transform])
    return [_over_seeds([score.spearman for score in column]) for column in columns]


def _over_seeds(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean, deviation = spread(values)
    return x100(mean) if len(values) == 1 else f"{x100(mean)} ± {x100(deviation)}"
