"""The course of a training run: loss, development score, learning rate and gradient norm, as a page or an image."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from html import escape
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np

from isosent.errors import InputError
from isosent.io.atomic import check_destination, replacing
from isosent.pages.figures import FORMATS, Axis, Figure, Panel, check_format, color_of, render
from isosent.pages.html import NONE, figure_box, html_document, lead, section, table
from isosent.training.metrics import Metrics

ENDINGS = (".html", *FORMATS)
_COLORS = {name: color_of(number) for number, name in enumerate(("loss", "dev", "learning_rate", "gradient_norm"))}
_MOST_POINTS = 400
_SMOOTHED_SHARE, _SMOOTHED_FROM = 0.05, 40  # a running mean over a twentieth of the points, from so many points on
_LOG_FROM = 30.0  # the axis of the loss is logarithmic where the largest is this many times the smallest
_MOST_LABELS = 6
_CSS = "section { max-width: 560px } caption { position: absolute; clip-path: inset(50%) }"

Series = Sequence[tuple[float, float]]


def check_curve_output(path: str | os.PathLike[str]) -> None:
    """Refuse a file that the curves cannot be written to, before any work is done."""
    ending = Path(path).suffix
    if ending not in ENDINGS:
        raise InputError(f"curve: {path}: the extension must be {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}.")
    if ending != ".html":
        check_format(ending)
    check_destination(path)


def write_curve(path: str | os.PathLike[str], metrics: Metrics) -> None:
    """Write a training run as a page, or its loss and development score as an image, by the ending of the path."""
    check_curve_output(path)
    if (ending := Path(path).suffix) == ".html":
        content = curve_page(metrics).encode()
    else:
        _check_measured(metrics)
        panels = [_course(metrics, "loss", "Loss"), _dev(metrics, "Development set")]
        title = _headline(metrics)
        content = render(Figure(title, title, [("", [panel for panel in panels if panel])]), ending)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def curve_page(metrics: Metrics) -> str:
    """The page of a training run."""
    _check_measured(metrics)
    smoothed = "Strong line: running mean." if len(metrics.losses) >= _SMOOTHED_FROM else ""
    shown = [
        ("loss", "Loss", smoothed or "Mean of the steps since the last point.", _course(metrics, "loss")),
        ("dev", "Development set", "Correlation of the cosine with the human score.", _dev(metrics)),
        ("learning_rate", "Learning rate", "It rises during the warm-up.", _course(metrics, "learning_rate")),
        ("gradient_norm", "Gradient norm", f"Before clipping. {smoothed}", _course(metrics, "gradient_norm")),
    ]
    boxes = "".join(
        figure_box(name, Figure(title, _description(metrics, name), [("", [panel])]), title, caption)
        for name, title, caption, panel in shown
        if panel is not None
    )
    body = (
        f"<header><h1>{escape(_headline(metrics))}</h1>{lead(*_facts(metrics))}</header>"
        f'<div class="figures">{boxes}</div>{_dev_table(metrics) if metrics.devs else ""}'
        f"<footer>isosent {escape(version('isosent'))}. Times are those of the steps, without evaluations and "
        "checkpoints.</footer>"
    )
    return html_document(f"isosent train: {_headline(metrics)}", body, css=_CSS)


def _check_measured(metrics: Metrics) -> None:
    if not (_series(metrics, "loss") or _dev_scores(metrics)):
        raise InputError("curve: the metrics hold no defined loss or development score yet. Wait for the first steps.")


def _headline(metrics: Metrics) -> str:
    devs, losses = _dev_scores(metrics), _series(metrics, "loss")
    if len(devs) > 1:
        (first, before), (best, highest) = devs[0], max(devs, key=lambda point: point[1])
        if highest <= before:
            return f"Development Spearman {before:.2f} at step {first:,}, and not higher since"
        return f"Development Spearman {before:.2f}\u00a0→\u00a0{highest:.2f}, best at step {best:,}"
    if len(losses) > 1:
        return f"Loss {losses[0][1]:.4g} → {losses[-1][1]:.4g}"
    return "The first steps"


def _facts(metrics: Metrics) -> Iterator[str]:
    planned = next((m.n_steps for m in reversed(metrics.milestones) if m.n_steps is not None), None)
    if metrics.losses:
        last = metrics.losses[-1]
        total = "" if planned is None else f" of {planned:,}"
        rate = median(point.examples_per_s for point in metrics.losses)
        elapsed = timedelta(seconds=round(metrics.elapsed_s))
        yield f"{last.step:,}{total} steps, {last.epoch:.2f} epochs, in {elapsed}; {rate:,.0f} examples/s (median)."
    if resumed := _resumed(metrics):
        yield f"Resumed after step {', '.join(f'{step:,}' for step in resumed)}."
    yield from (f"Stopped: {m.reason}" for m in metrics.milestones[-1:] if m.reason is not None)


def _series(metrics: Metrics, field: str) -> list[tuple[int, float]]:
    return [(p.step, getattr(p, field)) for p in metrics.losses if math.isfinite(getattr(p, field))]


def _dev_scores(metrics: Metrics) -> list[tuple[int, float]]:
    """Step and Spearman x100 of the defined scores."""
    return [(point.step, 100 * point.spearman) for point in metrics.devs if not math.isnan(point.spearman)]


def _resumed(metrics: Metrics) -> list[int]:
    return sorted({milestone.step for milestone in metrics.milestones if milestone.event == "resumed"})


def _course(metrics: Metrics, field: str, title: str = "") -> Panel | None:
    """One field of the losses over the steps; None where it has no value."""
    series = _series(metrics, field)
    if not series:
        return None
    drawn: Series = series
    if len(series) > _MOST_POINTS:  # means of neighbours: more points could not be seen
        x, y = (np.array_split(column, _MOST_POINTS) for column in np.array(series).T)
        drawn = [(float(a.mean()), float(b.mean())) for a, b in zip(x, y, strict=True)]
    values, label, color = [y for _, y in drawn], field.replace("_", " "), _COLORS[field]
    y_axis = _value_axis(label, values)
    if field == "loss" and min(values) > 0 and max(values) > _LOG_FROM * min(values):
        y_axis = Axis(f"{label} (log scale)", 0.9 * min(values), 1.1 * max(values), log=True, write=_short)
    panel = Panel(_step_axis(metrics), y_axis, title=title)
    _mark_resumed(panel, metrics, "resumed" if field == "loss" else "")
    if len(series) >= _SMOOTHED_FROM and field != "learning_rate":
        panel.line(drawn, color, width=1, opacity=0.45)
        panel.line(_running_mean(drawn), color)
    else:
        panel.line(drawn, color)
    if len(series) == 1:
        panel.dot(*series[0], color, tip=f"step {series[0][0]}: {series[0][1]:.4g}")
    return panel


def _dev(metrics: Metrics, title: str = "") -> Panel | None:
    devs, color = _dev_scores(metrics), _COLORS["dev"]
    if not devs:
        return None
    best = max(devs, key=lambda point: point[1])
    y_axis = _value_axis("Spearman x100", [y for _, y in devs], below=0.2)
    panel = Panel(_step_axis(metrics), y_axis, title=title)
    _mark_resumed(panel, metrics)
    panel.line(devs, color)
    for step, score in devs:
        panel.dot(step, score, color, tip=f"step {step}: {score:.2f}")
    for step, score in devs if len(devs) <= _MOST_LABELS else [devs[0], devs[-1]]:
        if (step, score) != best:
            panel.text(step, score, f"{score:.2f}", shift=(0, 20))
    panel.dot(*best, color, is_open=True, radius=6, tip=f"best, step {best[0]}: {best[1]:.2f}")
    panel.text(*best, f"best {best[1]:.2f}", shift=(0, -11), bold=True)
    return panel


def _description(metrics: Metrics, name: str) -> str:
    if name == "dev":
        best, highest = max(_dev_scores(metrics), key=lambda point: point[1])
        return f"Best: {highest:.2f} at step {best}."
    series = _series(metrics, name)
    (first, start), (last, end) = series[0], series[-1]
    return f"From {start:.4g} at step {first} to {end:.4g} at step {last}."


def _running_mean(series: Series) -> Series:
    """Of fewer points at both ends."""
    x, y = np.array(series).T
    reach = max(1, round(_SMOOTHED_SHARE * len(series) / 2))
    sums = np.concatenate([[0.0], np.cumsum(y)])
    rows = np.arange(len(y))
    low, high = np.maximum(rows - reach, 0), np.minimum(rows + reach + 1, len(y))
    return list(zip(x.tolist(), ((sums[high] - sums[low]) / (high - low)).tolist(), strict=True))


def _step_axis(metrics: Metrics) -> Axis:
    steps = [p.step for p in metrics.losses] + [p.step for p in metrics.devs]
    return Axis("step", 0, max([1, *steps]))


def _value_axis(label: str, values: Sequence[float], *, below: float = 0.1) -> Axis:
    """With some room at both ends; from 0 where the values come near it."""
    low, high = min(values), max(values)
    span = high - low or abs(high) or 1.0
    return Axis(label, 0 if 0 <= low <= 0.4 * high else low - below * span, high + 0.1 * span, write=_short)


def _short(value: float) -> str:
    return f"{value:.3g}"


def _mark_resumed(panel: Panel, metrics: Metrics, word: str = "") -> None:
    """Faint lines, the first of them with a word."""
    for number, step in enumerate(_resumed(metrics)):
        panel.upright(step, "", color="faint", dash="")
        if word and number == 0:
            panel.text(step, panel.y.high, word, shift=(6, 12), color="mark")


def _dev_table(metrics: Metrics) -> str:
    rows = [
        (
            f"step {point.step:,}" + (" (best)" if point == metrics.best else ""),
            *(NONE if math.isnan(score) else f"{100 * score:.2f}" for score in (point.spearman, point.pearson)),
        )
        for point in metrics.devs
    ]
    about = lead(f"Correlations x100, of {metrics.devs[0].n_pairs:,} pairs. {NONE}: undefined.")
    columns = ("after", "Spearman", "Pearson")
    return section("scores", "Scores", about, table("Scores of the development set", columns, rows, numbers=(1, 2)))
