"""Scores, memory and search time against the number of dimensions, as a figure: SVG that stands alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from isosent.drawing import HEIGHT, SECOND_AXIS, WIDTH, Axis, Frame
from isosent.evaluation.sts import AGGREGATIONS
from isosent.studies.dims_result import DimsStudy, size_of_a_million
from isosent.studies.study_figure import COLOURS, MARGIN, key_height, line_key, line_style, study_document

_AVERAGE = "average"
_TITLE_HEIGHT, _KEY_WIDTH, _BESIDE = 24, 160, 14
_TICKS_APART = 1.9
_FILLS = {f"c{number}": colour for number, colour in enumerate(COLOURS)} | {_AVERAGE: "#16191d"}
_STYLE = (
    " .search { stroke: #8a929c; stroke-dasharray: 2 4 } .average { stroke: #16191d; stroke-width: 3 } "
    ".title { font-weight: 600 } "
    + " ".join(
        f"circle.{name} {{ fill: {fill}; stroke: #ffffff; stroke-width: 1.5 }} "
        f"circle.{name}.open {{ fill: #ffffff; stroke: {fill} }}"
        for name, fill in _FILLS.items()
    )
)


def dims_figure(studies: Sequence[DimsStudy], how: str = AGGREGATIONS[0]) -> str:
    """Draw studies of dimensions: a panel a model, the best width of each line marked.

    Parameters
    ----------
    studies : sequence of DimsStudy
        What `study_dims` returned, at least one.
    how : str, default "all"
        One of `AGGREGATIONS`.

    Returns
    -------
    str
        An ``svg`` document: Spearman x100 on the left, the time of an exact search on the right, dimensions
        below, the memory of a million float32 vectors above. Open circles are the vectors without the transform.
    """
    styles = curve_styles(studies)
    keys = styles | {
        f"search of {n:,} (right)": "search" for n in sorted({t.n_docs for s in studies for t in s.search})
    }
    panel_width = WIDTH + SECOND_AXIS
    width = panel_width * min(2, len(studies))
    top = key_height(len(keys), width, key_width=_KEY_WIDTH)
    parts = line_key(list(keys), width, list(keys.values()), key_width=_KEY_WIDTH)
    for number, study in enumerate(studies):
        left, up = number % 2 * panel_width, top + number // 2 * (HEIGHT + _TITLE_HEIGHT)
        parts.append(f'<text class="title" x="{left + MARGIN}" y="{up + 10}">{escape(dims_title(study))}</text>')
        parts.append(dims_panel(study, how, styles, (left, up + _TITLE_HEIGHT)))
    height = top + math.ceil(len(studies) / 2) * (HEIGHT + _TITLE_HEIGHT) + MARGIN
    return study_document(width, height, "Scores, memory and search time by dimensions", parts, style=_STYLE)


def curve_styles(studies: Sequence[DimsStudy]) -> dict[str, str]:
    """Class of the line of every task, and of their average where there are several."""
    tasks = list(dict.fromkeys(task for study in studies for task in study.tasks))
    styles = {task: line_style(number) for number, task in enumerate(tasks)}
    return styles | {_AVERAGE: _AVERAGE} if len(tasks) > 1 else styles


def dims_title(study: DimsStudy) -> str:
    """Name a study for people."""
    return f"{study.name.rpartition('/')[2]}, {study.protocol['transform']} fitted on {study.protocol['fit']}"


def dims_panel(study: DimsStudy, how: str, styles: Mapping[str, str], corner: tuple[float, float]) -> str:
    """Draw one study, for one of several figures in one drawing.

    Parameters
    ----------
    study : DimsStudy
        The study.
    how : str
        One of `AGGREGATIONS`.
    styles : mapping of str to str
        What `curve_styles` gave.
    corner : pair of float
        Where it stands, in pixels.

    Returns
    -------
    str
        A ``g`` element, `WIDTH` by `HEIGHT` pixels, with `SECOND_AXIS` more on the right where a search was timed.
    """
    curves = {name: _points(study, how, name) for name in styles if name == _AVERAGE or name in study.tasks}
    dim = study.untransformed[0].k
    whole = {name: 100 * study.whole(None if name == _AVERAGE else name, how) for name in curves}
    whole = {name: score for name, score in whole.items() if not math.isnan(score)}
    scores = [*whole.values(), *(score for points in curves.values() for _, score in points)] or [0.0]
    widths = sorted({*study.widths, dim})
    x_axis = _width_axis("dimensions kept (open circles: without the transform)", widths)
    frame = Frame(x_axis, Axis("", min(scores) - 1, max(scores) + 1))
    marks = [_memory_above(frame), _beside("Spearman x100", _BESIDE)]
    if study.search:
        slowest = max(time.elapsed_s for time in study.search)
        second = Frame(x_axis, Axis("", 0.0, 1000 * slowest))
        marks += [
            second.right_axis(),
            _beside("ms a query", WIDTH + SECOND_AXIS - _BESIDE),
            second.line([(t.k, 1000 * t.elapsed_s) for t in study.search], "search"),
        ]
    marks += [frame.line(points, styles[name]) for name, points in curves.items()]
    for name, points in curves.items():
        best = study.best(None if name == _AVERAGE else name, how)
        marks += [frame.dot(k, y, styles[name], f"{name}: {y:.2f} at {k}") for k, y in points if k == best]
    marks += [
        frame.dot(dim, score, f"{styles[name]} open", f"{name}, without the transform: {score:.2f}")
        for name, score in whole.items()
    ]
    return frame.panel(*corner, marks)


def _points(study: DimsStudy, how: str, name: str) -> list[tuple[float, float]]:
    curve = study.curve(None if name == _AVERAGE else name, how)
    return [(k, 100 * score) for k, score in curve.items() if not math.isnan(score)]


def _width_axis(label: str, widths: Sequence[int]) -> Axis:
    """Logarithmic, with ticks at widths that leave room for their numbers."""
    low, high = widths[0], max(widths[-1], widths[0] + 1)
    ticks = [high]
    for k in reversed(widths):
        if k * _TICKS_APART <= ticks[-1]:
            ticks.append(k)
    return Axis(label, low, high, log=True, at=ticks[::-1])


def _memory_above(frame: Frame) -> str:
    """The same axis in memory."""
    low, high, *ticks = (size_of_a_million(int(k)) for k in (frame.x.low, frame.x.high, *frame.x.ticks))
    return Frame(Axis("memory of a million", low, high, log=True, write=_bytes, at=ticks), frame.y).top_axis()


def _beside(words: str, x: float) -> str:
    """Label an axis along its side: above it stand the ticks of the memory."""
    return (
        f'<text class="label" transform="translate({x} {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{words}</text>'
    )


def _bytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.3g} GB"
