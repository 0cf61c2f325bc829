"""The figures of an inspection as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from isosent.drawing import Axis, Frame, percent, plain
from isosent.inspection.result import Inspection, Stage
from isosent.selection.candidates import LEAVE, AutoChoice, Candidate

N_SHADES = 5
_POINTS = 300
_SHARE = 0.9
_DESCRIBED_COSINE = 0.5


def spectrum_figure(inspection: Inspection) -> str:
    """Draw the variance along each principal axis, on a logarithmic scale.

    Parameters
    ----------
    inspection : Inspection
        With an eigenvalue above 0.

    Returns
    -------
    str
        An ``svg`` element.
    """
    values = [value for value in inspection.eigenvalues if value > 0]
    frame = Frame(
        _axes_axis(inspection),
        Axis("variance along the axis (log scale)", values[-1] * 0.6, values[0] * 1.7, log=True),
    )
    points = [(index + 1, values[index]) for index in _some(len(values))]
    description = (
        f"The first axis has a variance of {values[0]:.3g}, number {len(values)} has {values[-1]:.3g}; "
        f"{len(values)} of {len(inspection.eigenvalues)} axes are more than rounding noise."
    )
    marks = [frame.line(points, "line before"), *_chosen_mark(frame, inspection)]
    return frame.drawing("spectrum", "Spectrum of the vectors as they are", description, marks)


def cumulative_figure(inspection: Inspection) -> str:
    """Draw the share of the variance that the first axes have together.

    Parameters
    ----------
    inspection : Inspection
        With an eigenvalue above 0.

    Returns
    -------
    str
        An ``svg`` element.
    """
    values = np.array(inspection.eigenvalues)
    shares = values.cumsum() / values.sum()
    enough = int(np.searchsorted(shares, _SHARE)) + 1
    frame = Frame(_axes_axis(inspection), Axis("variance kept, all axes up to here", 0, 1, write=percent))
    points = [(0.0, 0.0), *((index + 1.0, float(shares[index])) for index in _some(len(shares)))]
    words = f"{enough} axes: {percent(_SHARE)}"
    aside = (9, -9) if enough > 0.57 * len(values) else (9, 18)
    marks = [
        frame.area(points, "fill before"),
        frame.line(points, "line before"),
        frame.dot(enough, shares[enough - 1], "before", words),
        frame.text(enough, shares[enough - 1], words, "note", shift=aside),
        *_chosen_mark(frame, inspection, row=13),
    ]
    title = f"{enough} of {len(values)} axes have {percent(_SHARE)} of the variance"
    return frame.drawing("cumulative", "Cumulative variance", title, marks)


def cosine_figure(inspection: Inspection) -> str:
    """Draw the cosines of random pairs before and after.

    Parameters
    ----------
    inspection : Inspection
        What was found.

    Returns
    -------
    str
        An ``svg`` element.
    """
    edges = inspection.cosine_edges
    stages = _stages(inspection)
    highest = max(max(stage.cosine_shares) for _, stage in stages)
    frame = Frame(
        Axis("cosine of a random pair", edges[0], edges[-1]),
        Axis(f"share of the pairs, bins of {edges[1] - edges[0]:.3f}", 0, highest * 1.12, write=percent),
    )
    bins = list(pairwise(edges))
    marks = []
    for style, stage in stages:
        outline = [(x, y) for ends, y in zip(bins, stage.cosine_shares, strict=True) for x in ends]
        marks.append(frame.area(outline, f"fill line {style}"))
    for row, (style, stage) in enumerate(stages):
        marks.append(frame.upright(stage.figures.mean_cosine, f"mean {stage.figures.mean_cosine:z.2f}", style, row=row))
    description = "; ".join(
        f"{stage.label}: mean {stage.figures.mean_cosine:.3f}, standard deviation {stage.figures.cosine_sd:.3f}"
        for _, stage in stages
    )
    return frame.drawing("cosines", "Cosines of random pairs", description, marks)


def percentile_figure(inspection: Inspection) -> str:
    """Draw the share of random pairs below each cosine, before and after.

    Parameters
    ----------
    inspection : Inspection
        What was found.

    Returns
    -------
    str
        An ``svg`` element.
    """
    edges = inspection.cosine_edges
    frame = Frame(Axis("cosine", edges[0], edges[-1]), Axis("random pairs that score less", 0, 1, write=percent))
    marks = []
    for style, stage in _stages(inspection):
        below = np.concatenate([[0.0], np.cumsum(stage.cosine_shares)])
        marks.append(frame.line(zip(edges, np.minimum(below, 1.0), strict=True), f"line {style}"))
    description = "; ".join(
        f"{stage.label}: {percent(share)} of the random pairs score below {mark:g}"
        for _, stage in _stages(inspection)
        for mark, share in zip(inspection.marks, stage.percentiles, strict=True)
        if mark == _DESCRIBED_COSINE
    )
    return frame.drawing("percentiles", "What a cosine means", description, marks)


def score_figure(choice: AutoChoice, score: str) -> str:
    """Draw a score of the candidates against strength, one line for each number of dimensions.

    Parameters
    ----------
    choice : AutoChoice
        With candidates of two strengths or more.
    score : {"score", "separation"}
        Which score.

    Returns
    -------
    str
        An ``svg`` element.
    """
    scored = {c.candidate: (getattr(c, score), f"{c.candidate}: {getattr(c, score):.4g}") for c in choice.candidates}
    lines = _lines(scored)
    flat = [
        (scored[c][0], f"{'chosen: ' if c == choice.chosen else ''}{c}")
        for c in scored
        if c.strength is None and (c == choice.chosen or c.name == LEAVE)
    ]
    heights = [height for height, _ in flat] + [height for line in lines.values() for _, height, _ in line]
    room = 0.08 * (max(heights) - min(heights)) or 1.0
    at = sorted({strength for line in lines.values() for strength, _, _ in line})
    frame = Frame(
        Axis("strength: 0 only rotates, 1 whitens fully", at[0] - 0.02, at[-1] + 0.55 * (at[-1] - at[0]), at=at),
        Axis("log-odds, higher is better", min(heights) - room, max(heights) + room),
    )
    marks, words = [frame.level(height) for height, _ in flat], flat
    for place, (width, line) in enumerate(lines.items(), start=1):
        shade = f"after k{round(place / len(lines) * (N_SHADES - 1))}"
        marks.append(frame.line([(strength, height) for strength, height, _ in line], f"line {shade}"))
        marks += [frame.dot(strength, height, shade, tip) for strength, height, tip in line]
        words.append((line[-1][1], "all dimensions" if width is None else f"k = {width}"))
    marks.append(frame.list_at(at[-1] + 0.04 * (at[-1] - at[0]), words))
    height, tip = scored[choice.chosen]
    if choice.chosen.strength is not None:
        marks.append(frame.dot(choice.chosen.strength, height, "chosen", tip))
        marks.append(frame.text(choice.chosen.strength, height, "chosen", "note strong", shift=(0, -11)))
    return frame.drawing(score, f"{score.capitalize()} of the candidates", f"Chosen: {tip}", marks)


def _lines(scored: Mapping[Candidate, tuple[float, str]]) -> dict[int | None, list[tuple[float, float, str]]]:
    """Strength, score and words of the candidates that have a strength, by dimensions kept; None, for all, last."""
    lines: dict[int | None, list[tuple[float, float, str]]] = {}
    for candidate in sorted(scored, key=lambda c: c.n_components or float("inf")):
        if candidate.strength is not None:
            lines.setdefault(candidate.n_components, []).append((candidate.strength, *scored[candidate]))
    return {width: sorted(points) for width, points in lines.items()}


def _axes_axis(inspection: Inspection) -> Axis:
    return Axis("principal axis", 0, max(2, len(inspection.eigenvalues)), write=plain)


def _chosen_mark(frame: Frame, inspection: Inspection, row: int = 0) -> list[str]:
    choice = inspection.choice
    if choice is None or choice.chosen.n_components is None:
        return []
    k = choice.chosen.n_components
    return [frame.upright(k, f"chosen: k = {k}", row=row)]


def _stages(inspection: Inspection) -> list[tuple[str, Stage]]:
    after = [] if inspection.after is None else [("after", inspection.after)]
    return [("before", inspection.before), *after]


def _some(n: int) -> list[int]:
    """Return indices below n, all or an even choice, the first and the last among them."""
    return [int(index) for index in np.unique(np.linspace(0, n - 1, min(n, _POINTS)).round())]
