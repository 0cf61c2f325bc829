"""The course of a training run: loss, score of the development set, learning rate and gradient, as a page or PNG."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from isosent import _extras
from isosent.errors import InputError
from isosent.io.atomic import check_destination, replacing
from isosent.pages.figures import COLOURS, Axis, Frame, colour_class, colour_rules
from isosent.pages.html import NONE, figure, html_document, lead, section, table
from isosent.training.metrics import Metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes


ENDINGS = (".html", ".png")
_LOSS, _DEV, _RATE, _NORM = range(4)  # colours
_N_DRAWN = 400
_SMOOTHED_SHARE, _SMOOTHED_FROM = 0.05, 40
_LOG_FROM = 30.0
_FROM_ZERO, _ROOM = 0.4, 0.1
_LABELLED = 6
_DPI = 200
_ABOVE, _BELOW = (0, -11), (0, 20)

Series = Sequence[tuple[float, float]]


def check_curve_output(path: str | os.PathLike[str]) -> None:
    """Refuse, before any work is done, a file that the curves cannot be written to."""
    if Path(path).suffix not in ENDINGS:
        raise InputError(f"curve: the output must end in {' or '.join(ENDINGS)}; got {path}. Choose another name.")
    if Path(path).suffix == ".png":
        _extras.require("matplotlib")
    check_destination(path)


def write_curve(path: str | os.PathLike[str], metrics: Metrics) -> None:
    """Draw a training run into a file."""
    check_curve_output(path)
    _check_measured(metrics)
    with replacing(path) as temporary:
        if temporary.suffix == ".png":
            _draw_image(temporary, metrics)
        else:
            temporary.write_text(curve_page(metrics), "utf-8")


def curve_page(metrics: Metrics) -> str:
    """Write the page of a training run."""
    # Of more than 400 points, runs of neighbours are drawn as their mean. From 40 on, a running mean over a twentieth
    # of them is drawn in front. The axis of the loss is logarithmic where the largest is more than 30 times the
    # smallest.
    _check_measured(metrics)
    devs = _devs(metrics)
    is_smoothed = len(metrics.losses) >= _SMOOTHED_FROM
    smoothed = "Strong line: running mean." if is_smoothed else ""
    shown = [
        ("Loss", smoothed or "Mean of the steps since the last point.", _line_figure(metrics, "loss", _LOSS)),
        ("Development set", "Cosine against human score.", _dev_figure(metrics) if devs else ""),
        ("Learning rate", "It rises while the run warms up.", _line_figure(metrics, "learning_rate", _RATE)),
        ("Gradient norm", f"Before clipping. {smoothed}", _line_figure(metrics, "gradient_norm", _NORM)),
    ]
    body = (
        f"<header><h1>{escape(_headline(metrics))}</h1>{lead(*_facts(metrics))}</header>"
        f'<div class="figures">{"".join(figure(*of) for of in shown if of[-1])}</div>'
        f"{_dev_table(metrics) if metrics.devs else ''}"
        f"<footer>isosent {escape(version('isosent'))}. Seconds are those spent in steps, not in evaluations and "
        "checkpoints.</footer>"
    )
    css = (files("isosent.training") / "curve.css").read_text("utf-8") + colour_rules()
    return html_document(f"isosent train: {_headline(metrics)}", body, css=css)


def _check_measured(metrics: Metrics) -> None:
    if not (_losses(metrics, "loss") or _devs(metrics)):
        raise InputError(
            "curve: the metrics must hold a loss or a score that is defined; got none. Wait for the first steps."
        )


def _headline(metrics: Metrics) -> str:
    devs, losses = _devs(metrics), _losses(metrics, "loss")
    if len(devs) > 1:
        (first, before), (best, highest) = devs[0], max(devs, key=lambda point: point[1])
        if highest <= before:
            return f"Development Spearman {before:.2f} at step {first:,}, and not higher since"
        return f"Development Spearman {before:.2f}\u00a0→\u00a0{highest:.2f}, best at step {best:,}"
    if len(losses) > 1:
        return f"Loss {losses[0][1]:.4g} → {losses[-1][1]:.4g}"
    return "The first steps"


def _facts(metrics: Metrics) -> Iterator[str]:
    """Sentences on the run as a whole."""
    planned = next((m.facts["n_steps"] for m in reversed(metrics.milestones) if "n_steps" in m.facts), None)
    if metrics.losses:
        last = metrics.losses[-1]
        of = "" if planned is None else f" of {planned:,}"
        rate = median(point.examples_per_s for point in metrics.losses)
        elapsed = timedelta(seconds=round(metrics.elapsed_s))
        yield f"{last.step:,}{of} steps, {last.epoch:.2f} epochs, in {elapsed}; {rate:,.0f} examples a second (median)."
    if resumed := _resumed(metrics):
        yield f"Resumed after step {', '.join(f'{step:,}' for step in resumed)}."
    yield from (f"Stopped: {m.facts['reason']}" for m in metrics.milestones[-1:] if "reason" in m.facts)


def _losses(metrics: Metrics, field: str) -> list[tuple[int, float]]:
    return [(p.step, getattr(p, field)) for p in metrics.losses if math.isfinite(getattr(p, field))]


def _devs(metrics: Metrics) -> list[tuple[int, float]]:
    """Step and Spearman x100 of the defined scores."""
    return [(point.step, 100 * point.spearman) for point in metrics.devs if not math.isnan(point.spearman)]


def _resumed(metrics: Metrics) -> list[int]:
    return sorted({milestone.step for milestone in metrics.milestones if milestone.event == "resumed"})


def _thinned(series: Series) -> Series:
    """Means of neighbours, where there are more points than can be seen."""
    if len(series) <= _N_DRAWN:
        return series
    x, y = (np.array_split(column, _N_DRAWN) for column in np.array(series).T)
    return [(float(a.mean()), float(b.mean())) for a, b in zip(x, y, strict=True)]


def _smoothed(series: Series) -> Series:
    """Running mean, of fewer points at both ends."""
    x, y = np.array(series).T
    reach = max(1, round(_SMOOTHED_SHARE * len(series) / 2))
    sums = np.concatenate([[0.0], np.cumsum(y)])
    rows = np.arange(len(y))
    low, high = np.maximum(rows - reach, 0), np.minimum(rows + reach + 1, len(y))
    return list(zip(x.tolist(), ((sums[high] - sums[low]) / (high - low)).tolist(), strict=True))


def _is_log(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) > _LOG_FROM * min(values)


def _labelled(devs: Series) -> Series:
    """Scores whose number is written beside them: the best one's always is."""
    return devs if len(devs) <= _LABELLED else [devs[0], devs[-1]]


def _step_axis(metrics: Metrics) -> Axis:
    steps = [p.step for p in metrics.losses] + [p.step for p in metrics.devs]
    return Axis("step", 0, max([1, *steps]))


def _value_axis(label: str, values: Sequence[float], *, may_be_log: bool = False, below: float = _ROOM) -> Axis:
    """An axis with some room at both ends; from 0 where the values come near it."""
    low, high = min(values), max(values)
    if may_be_log and _is_log(values):
        return Axis(f"{label} (log scale)", low * (1 - _ROOM), high * (1 + _ROOM), log=True, write=_short)
    span = high - low or abs(high) or 1.0
    return Axis(label, 0 if 0 <= low <= _FROM_ZERO * high else low - below * span, high + _ROOM * span, write=_short)


def _short(value: float) -> str:
    return f"{value:.3g}"


def _line_figure(metrics: Metrics, field: str, colour: int) -> str:
    """The course of one field of the losses; nothing where there is none."""
    series = _losses(metrics, field)
    if not series:
        return ""
    drawn, style, label = _thinned(series), colour_class(colour), field.replace("_", " ")
    frame = Frame(_step_axis(metrics), _value_axis(label, [y for _, y in drawn], may_be_log=field == "loss"))
    marks = _resume_marks(frame, metrics, "resumed" if field == "loss" else "")
    if len(series) >= _SMOOTHED_FROM and field != "learning_rate":
        marks += [frame.line(drawn, f"single {style}"), frame.line(_smoothed(drawn), style)]
    else:
        marks.append(frame.line(drawn, style))
    if len(series) == 1:
        marks.append(frame.dot(*series[0], style, f"step {series[0][0]}: {series[0][1]:.4g}"))
    description = f"From {series[0][1]:.4g} at step {series[0][0]} to {series[-1][1]:.4g} at step {series[-1][0]}."
    return frame.drawing(field, label.capitalize(), description, marks)


def _dev_figure(metrics: Metrics) -> str:
    devs = _devs(metrics)
    best, style = max(devs, key=lambda point: point[1]), colour_class(_DEV)
    frame = Frame(_step_axis(metrics), _value_axis("Spearman x100", [y for _, y in devs], below=2 * _ROOM))
    marks = [*_resume_marks(frame, metrics), frame.line(devs, style)]
    marks += [frame.dot(step, score, style, f"step {step}: {score:.2f}") for step, score in devs]
    marks += [frame.text(*point, f"{point[1]:.2f}", "note", shift=_BELOW) for point in _labelled(devs) if point != best]
    marks.append(frame.dot(*best, f"{style} best", f"best, step {best[0]}: {best[1]:.2f}"))
    marks.append(frame.text(*best, f"best {best[1]:.2f}", "note best", shift=_ABOVE))
    return frame.drawing("dev", "Score of the development set", f"Best: {best[1]:.2f} at step {best[0]}.", marks)


def _resume_marks(frame: Frame, metrics: Metrics, word: str = "") -> list[str]:
    """Faint lines, the first of them with a word."""
    return [frame.upright(step, "" if row else word, "resumed") for row, step in enumerate(_resumed(metrics))]


def _dev_table(metrics: Metrics) -> str:
    best = metrics.best
    rows = [
        (
            f"step {point.step:,}" + (" (best)" if point == best else ""),
            *(NONE if math.isnan(score) else f"{100 * score:.2f}" for score in (point.spearman, point.pearson)),
        )
        for point in metrics.devs
    ]
    about = lead(f"Correlations x100, of {metrics.devs[0].n_pairs:,} pairs. {NONE}: undefined.")
    columns = ("after", "Spearman", "Pearson")
    return section("scores", "Scores", about, table("Scores of the development set", columns, rows, numbers=(1, 2)))


def _draw_image(path: Path, metrics: Metrics) -> None:
    """Loss and development set, side by side."""
    devs, losses = _devs(metrics), _losses(metrics, "loss")
    figures = _extras.require("matplotlib.figure")
    n_panels = bool(losses) + bool(devs)
    drawing = figures.Figure(figsize=(5.2 * n_panels, 3.6), layout="constrained")
    panels = iter(drawing.subplots(1, n_panels, squeeze=False)[0])
    if losses:
        _plot_losses(next(panels), _thinned(losses), is_smoothed=len(losses) >= _SMOOTHED_FROM)
    if devs:
        _plot_devs(next(panels), devs)
    for axes in drawing.axes:
        for step in _resumed(metrics):
            axes.axvline(step, color="#d8d5cd", linewidth=0.8, zorder=0)
        axes.set_xlabel("step")
        axes.set_xlim(0, _step_axis(metrics).high * 1.02)
        axes.grid(visible=True, axis="y", color="#e4e2dc")
        axes.spines[["right", "top"]].set_visible(False)
    drawing.savefig(path, dpi=_DPI)


def _plot_losses(axes: Axes, losses: Series, *, is_smoothed: bool) -> None:
    colour = COLOURS[_LOSS][0]
    width, alpha = (0.8, 0.45) if is_smoothed else (1.5, 1.0)
    axes.plot(*zip(*losses, strict=True), color=colour, linewidth=width, alpha=alpha)
    if is_smoothed:
        axes.plot(*zip(*_smoothed(losses), strict=True), color=colour)
    if _is_log([loss for _, loss in losses]):
        axes.set_yscale("log")
    axes.set_title("Loss", loc="left", fontweight="bold")


def _plot_devs(axes: Axes, devs: Series) -> None:
    colour, best = COLOURS[_DEV][0], max(devs, key=lambda point: point[1])
    axes.plot(*zip(*devs, strict=True), "o-", color=colour, markersize=4.5, clip_on=False)
    axes.plot(*best, "o", color=colour, markerfacecolor="white", markersize=8, markeredgewidth=2, clip_on=False)
    for point in {*_labelled(devs), best}:
        words, down, weight = (
            (f"best {best[1]:.2f}", 9, "bold") if point == best else (f"{point[1]:.2f}", -14, "normal")
        )
        side = "right" if point[0] > 0.6 * devs[-1][0] else "left"
        axes.annotate(words, point, (0, down), textcoords="offset points", ha=side, fontweight=weight)
    axes.margins(y=0.15)
    axes.set_title("Development set, Spearman x100", loc="left", fontweight="bold")
