"""Records of layers and poolings as tables and figures.

`averages`, `best_of_sizes` and `pair_grid` arrange the records, `layer_tables` and `pooling_tables` lay them out for
the terminal, `layer_figure` and `pooling_figure` draw them. Pages use the panels (`best_panel`, `pair_maps`,
`pooling_maps`) with their own legends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.evaluation.result import short_reference
from isosent.evaluation.tables import x100
from isosent.pages.figures import Axis, Figure, Key, Panel, color_of, heat_map
from isosent.pages.report import ReportTable
from isosent.research.study import ALL, LayerCell, layers_label, pivot, study_notes, task_titles

NONE, WHITENING, AUTO = TRANSFORMS = ("none", "whitening", "auto")
EXHAUSTIVE = {NONE: 3, WHITENING: 3, AUTO: 2}  # up to this size all sets of layers are scored
_TITLES = {NONE: "original", WHITENING: "whitening", AUTO: "auto"}

Layers = tuple[int, ...]
_Row = tuple[str, Layers, str]  # pooling, layers, transform


class BestSet(NamedTuple):
    layers: Layers
    average: float  # over the tasks; NaN where no set of that size has one


def best_of_sizes(cells: Iterable[LayerCell], aggregation: str) -> dict[str, dict[int, BestSet]]:
    """The best set of layers of every size among those scored, by transform."""
    best: dict[str, dict[int, BestSet]] = {}
    for (_, layers, transform), average in averages(cells, aggregation).items():
        sizes = best.setdefault(transform, {})
        current = sizes.get(len(layers))
        if current is None or average > current.average or (math.isnan(current.average) and not math.isnan(average)):
            sizes[len(layers)] = BestSet(layers, average)
    return best


def averages(cells: Iterable[LayerCell], aggregation: str) -> dict[tuple[str, Layers, str], float]:
    """Mean over the tasks, by pooling, layers and transform."""
    return pivot(
        cells, lambda cell: (cell.pooling, cell.layers, cell.transform), lambda cell: cell.spearman[aggregation]
    )


def published_average(cells: Sequence[LayerCell], aggregation: str) -> float:
    """Mean of the published numbers over the tasks; NaN if a task has none."""
    scores = [cell.published[aggregation].spearman for cell in cells if aggregation in cell.published]
    return float(np.mean(scores)) if scores and len(scores) == len(cells) else float("nan")


def pair_grid(cells: Sequence[LayerCell], transform: str, aggregation: str) -> NDArray[np.float64]:
    """Averages of single layers (the diagonal) and of pairs (below it): figure 1 of the paper."""
    n_layers = 1 + max(layer for cell in cells for layer in cell.layers)
    grid = np.full((n_layers, n_layers), np.nan)
    for (_, layers, name), average in averages(cells, aggregation).items():
        if name == transform and len(layers) <= 2:
            grid[layers[-1], layers[0]] = average
    return grid


def layer_tables(cells: Sequence[LayerCell], how: str) -> Iterator[ReportTable]:
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
        table = ReportTable("", *names, title=f"pairs of layers, {_TITLES[transform]}: average over the tasks")
        for row, name in enumerate(names):
            table.add_row(name, *(x100(score) for score in grid[row, : row + 1]))
        yield table
    best = best_of_sizes(cells, how)
    caption = (
        f"all sets of up to {EXHAUSTIVE[NONE]} layers were tried ({EXHAUSTIVE[AUTO]} with auto), then the best one grew"
        " layer by layer;\nchosen by the labels: an upper bound, not a recipe"
    )
    columns = [name for transform in TRANSFORMS for name in (_TITLES[transform], "")]
    table = ReportTable("layers", *columns, title="best set of every size: average over the tasks", caption=caption)
    for size in best[NONE]:
        sets = [best[transform][size] for transform in TRANSFORMS]
        table.add_row(str(size), *(text for one in sets for text in (layers_label(one.layers), x100(one.average))))
    yield table


def pooling_tables(cells: Sequence[LayerCell], how: str) -> Iterator[ReportTable]:
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
    table = ReportTable("points of the average", *_TITLES.values(), title="conclusions of WhiteningBERT, here")
    for row in rows:
        if any(row[1:]):
            table.add_row(*row)
    yield table


def _layer_rows(cells: Iterable[LayerCell]) -> dict[_Row, list[LayerCell]]:
    rows: dict[_Row, list[LayerCell]] = {}
    for cell in cells:
        rows.setdefault((cell.pooling, cell.layers, cell.transform), []).append(cell)
    return rows


def _scores_table(rows: Mapping[_Row, Sequence[LayerCell]], how: str, title: str) -> ReportTable:
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
    table = ReportTable(*left, *columns, left=range(len(left)), title=title, caption="\n".join(caption))
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


def layer_figure(cells: Sequence[LayerCell], how: str = ALL) -> Figure:
    """For each model a heat map of single layers and pairs per transform, and the best set of every size."""
    rows: list[tuple[str, Sequence[Panel]]] = []
    for model, of_model in by_model(cells):
        heading = f"{short_reference(model)}, average over the tasks, Spearman x100"
        rows += [(heading, pair_maps(of_model, how)), ("", [best_panel(of_model, how)])]
    return Figure("Scores of layers and their means", _ABOUT_PAIRS, rows, transform_legend())


def pooling_figure(cells: Sequence[LayerCell], how: str = ALL) -> Figure:
    """For each model a heat map of poolings by layers per transform."""
    rows = [
        (f"{short_reference(model)}, average over the tasks, Spearman x100", pooling_maps(of_model, how))
        for model, of_model in by_model(cells)
    ]
    return Figure("Scores of poolings of layers", "A row per pooling, a column per set of layers.", rows)


_ABOUT_PAIRS = "Single layers are on the diagonal, means of two layers below it; the best cell is framed."


def transform_legend() -> list[Key]:
    return [Key(transform_title(transform), color_of(number)) for number, transform in enumerate(TRANSFORMS)]


def transform_title(transform: str) -> str:
    return "as they are" if transform == NONE else transform


def by_model(cells: Sequence[LayerCell]) -> list[tuple[str, list[LayerCell]]]:
    names = dict.fromkeys(cell.model for cell in cells)
    return [(name, [cell for cell in cells if cell.model == name]) for name in names]


def pair_maps(cells: Sequence[LayerCell], how: str = ALL) -> list[Panel]:
    """A heat map per transform, in the same colors: single layers on the diagonal, pairs below it."""
    grids = {transform: 100 * pair_grid(cells, transform, how) for transform in TRANSFORMS}
    span = _span(value for grid in grids.values() for value in grid.flat)
    names = [f"L{layer}" for layer in range(len(grids[NONE]))]
    return [
        heat_map(
            f"{transform_title(transform)}: pairs of layers",
            names,
            names,
            grid.tolist(),
            label="layer; alone on the diagonal",
            span=span,
        )
        for transform, grid in grids.items()
    ]


def pooling_maps(cells: Sequence[LayerCell], how: str = ALL) -> list[Panel]:
    """A heat map per transform, in the same colors: poolings by sets of layers."""
    scores = {key: 100 * score for key, score in averages(cells, how).items()}
    poolings = list(dict.fromkeys(cell.pooling for cell in cells))
    sets = list(dict.fromkeys(cell.layers for cell in cells))
    span = _span(scores.values())
    return [
        heat_map(
            transform_title(transform),
            poolings,
            [layers_label(layers) for layers in sets],
            [[scores.get((pooling, layers, transform), math.nan) for layers in sets] for pooling in poolings],
            label="layers",
            span=span,
        )
        for transform in TRANSFORMS
    ]


def best_panel(cells: Sequence[LayerCell], how: str = ALL) -> Panel:
    """The best set of layers of every size, a line per transform."""
    lines = {
        transform: [(size, 100 * best.average, best.layers) for size, best in sizes.items()]
        for transform, sizes in best_of_sizes(cells, how).items()
    }
    lines = {name: [point for point in line if not math.isnan(point[1])] for name, line in lines.items()}
    low, high = _span(y for line in lines.values() for _, y, _ in line)
    most = max(2, max((size for line in lines.values() for size, *_ in line), default=2))
    panel = Panel(
        Axis("layers averaged, the best set of that size", 1, most, at=range(1, most + 1)),
        Axis("Spearman x100", low - 0.5, high + 0.5),
    )
    for number, line in enumerate(lines.values()):
        panel.line([(size, score) for size, score, _ in line], color_of(number))
        for size, score, layers in line:
            panel.dot(size, score, color_of(number), tip=f"{layers_label(layers)}: {score:.2f}")
    return panel


def _span(values: Iterable[float]) -> tuple[float, float]:
    defined = [value for value in values if not math.isnan(value)] or [0.0]
    return min(defined), max(defined)
