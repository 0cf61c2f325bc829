"""The studies of layers and poolings as people read them."""

import math
from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from isosent.cli.terminal import out
from isosent.evaluation.tables import x100
from isosent.studies.layer_figures import title
from isosent.studies.layers import EXHAUSTIVE, best_of_sizes, pair_grid
from isosent.studies.reading_cells import ReadingCell, averages, layers_label, published_average
from isosent.studies.readings import AUTO, NONE, TRANSFORMS, WHITENING

_Row = tuple[str, tuple[int, ...], str]
_Rows = Mapping[_Row, Sequence[ReadingCell]]


def print_layer_study(cells: Sequence[ReadingCell], aggregation: str) -> None:
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


def print_pooling_study(cells: Sequence[ReadingCell], aggregation: str) -> None:
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


def _by_row(cells: Iterable[ReadingCell]) -> dict[_Row, list[ReadingCell]]:
    rows: dict[_Row, list[ReadingCell]] = {}
    for cell in cells:
        rows.setdefault((cell.pooling, cell.layers, cell.transform), []).append(cell)
    return rows


def _published(cell: ReadingCell, aggregation: str) -> float:
    there = cell.published.get(aggregation)
    return math.nan if there is None else there.spearman


def _caption(rows: _Rows, aggregation: str) -> str:
    sources = {
        cell.published[aggregation].source for cells in rows.values() for cell in cells if aggregation in cell.published
    }
    lines = [f"Spearman x100, aggregation {aggregation}; maps fitted on the sentences of the task (target)"]
    return "\n".join([*lines, *(f"published: {source}" for source in sorted(sources))])


def _pair_table(cells: Sequence[ReadingCell], transform: str, aggregation: str) -> Table:
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


def _best_table(cells: Sequence[ReadingCell], aggregation: str) -> Table:
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
