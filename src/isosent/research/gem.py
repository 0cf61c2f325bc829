"""What each part of GEM is worth, and how much its settings matter: table 4 and figure 2 of its paper."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from isosent.encoders.reference import options_of, write_options
from isosent.encoders.static import StaticEncoder
from isosent.encoders.word_average import GEM, Average, Weighting
from isosent.errors import InputError
from isosent.evaluation.sts import STSSet, score_task
from isosent.evaluation.tables import x100
from isosent.model import SentenceEncoder
from isosent.numeric.gem import SCORES
from isosent.numeric.moments import Moments
from isosent.pages.figures import Axis, Figure, Key, Panel, color_of, dash_of
from isosent.pages.progress import Progress, counted, part_of
from isosent.pages.report import ReportTable
from isosent.research.study import GemCell, StudyKind, deviations_of, read_sets, study_notes, task_titles

ABLATION = "ablation"
_PARTS: Mapping[str, Mapping[str, Any]] = {
    "all scores, sdr": {},
    "all scores, sir": {"removal": "sir"},
    "all scores, none": {"removal": "none"},
    **{f"{score} alone": {"scores": (score,)} for score in SCORES},
    **{" + ".join(pair): {"scores": pair} for pair in combinations(SCORES, 2)},
    "uniqueness=scaled": {"uniqueness": "scaled"},
    "uniqueness alone, scaled": {"scores": ("uniqueness",), "uniqueness": "scaled"},
    "significance=window": {"significance": "window"},
    "ranking=unweighted": {"ranking": "unweighted"},
}
SENSITIVITY: Mapping[str, tuple[str, Sequence[int]]] = {
    "window": ("window", range(2, 13)),
    "candidates": ("n_candidates", range(25, 66, 5)),
    "removed": ("n_removed", range(5, 26, 2)),
    "power": ("power", range(6)),
}
_LABELS = {
    "window": "words on each side (window, m)",
    "candidates": "principal vectors of the corpus (n_candidates, K)",
    "removed": "principal vectors removed (n_removed, h)",
    "power": "power of the singular values (power, t)",
}


class Condition(NamedTuple):
    """One setting to measure; `study` and `name` as in `GemCell`."""

    study: str
    name: str
    weighting: Weighting


def conditions(base: GEM, word_dim: int) -> list[Condition]:
    """The parts left out one by one, then each setting varied alone."""
    base.check(word_dim)
    listed = [Condition(ABLATION, name, replace(base, **changes)) for name, changes in _PARTS.items()]
    listed.append(Condition(ABLATION, "mean of words", Average()))
    for study, (setting, values) in SENSITIVITY.items():
        for value in sorted({*values, getattr(base, setting)}):
            n_removed = value if setting == "n_removed" else base.n_removed
            n_candidates = value if setting == "n_candidates" else base.n_candidates
            if n_removed <= n_candidates <= word_dim:
                listed.append(Condition(study, f"{value:g}", replace(base, **{setting: value})))
    return listed


def study_gem(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    tasks: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> list[GemCell]:
    """Score all `conditions` on STS tasks. Sentences are split once, and coarse vectors are taken once per power."""
    encoder = model.encoder
    if not isinstance(encoder, StaticEncoder) or not isinstance(encoder.weighting, Average | GEM) or model.fits:
        raise InputError(
            f"study gem: {name} is not word vectors with weighting=mean or gem, without a fitted transform. Name such "
            "a model, as words:FILE."
        )
    base = encoder.weighting if isinstance(encoder.weighting, GEM) else GEM()
    listed, read = conditions(base, encoder.dim), read_sets(folder, tasks=tasks)
    cells: list[GemCell] = []
    for task in read:
        measure, part = _measure_on(encoder, task), part_of(progress, len(cells), len(read) * len(listed))
        cells += [
            GemCell(
                name,
                task.name,
                condition.study,
                condition.name,
                *measure(condition.weighting),
                deviations_of(task),
            )
            for condition in counted(listed, part, len(listed), lambda _: 1)
        ]
    return cells


def _measure_on(encoder: StaticEncoder, task: STSSet) -> Callable[[Weighting], tuple[float, float, int]]:
    """From a weighting to Pearson, Spearman and zero rows on a task; equal weightings are measured once."""
    row_of = {text: row for row, text in enumerate(dict.fromkeys(task.texts))}
    tokens = encoder.tokenize(list(row_of))

    def weighted_by(weighting: Weighting) -> StaticEncoder:
        return StaticEncoder(
            encoder.reference,
            encoder.options | write_options(options_of(weighting)),
            encoder.tokenizer,
            encoder.vectors,
            weighting=weighting,
            modules=encoder.modules,
            normalize=encoder.normalize,
        )

    @cache
    def coarse_moments(power: float) -> Moments:
        return weighted_by(GEM(n_candidates=1, n_removed=1, power=power)).corpus_moments(task.target_texts)

    @cache
    def measure(weighting: Weighting) -> tuple[float, float, int]:
        weighted = weighted_by(weighting)
        if isinstance(weighting, GEM) and weighting.learns:
            weighted = weighted.on_moments(coarse_moments(weighting.power))
        vectors = weighted.embed(tokens)
        scores = score_task(task, lambda texts: vectors[[row_of[text] for text in texts]])
        return scores.pearson["all"], scores.spearman["all"], scores.n_zero_rows

    return measure


def _run(model: SentenceEncoder, data: Path, _: Mapping[str, Any], **common: Any) -> list[GemCell]:
    return study_gem(model, data, **common)


def _tables(cells: Sequence[GemCell], _: str) -> Iterator[ReportTable]:
    """Pearson, then Spearman, x100 of every setting on every task."""
    by_place = {(cell.study, cell.condition, cell.task): cell for cell in cells}
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    n_zero_rows = max(cell.n_zero_rows for cell in cells)
    caption = f"sentences without a vector: at most {n_zero_rows} of a task and setting; their cosine counts as 0"
    caption, titles = "\n".join([caption, *study_notes(cells)]), task_titles(cells)
    for metric in ("pearson", "spearman"):
        title = f"{cells[0].model}: {metric}"
        table = ReportTable("study", "condition", *titles.values(), left=range(2), title=title, caption=caption)
        previous = ""
        for name, condition in dict.fromkeys((cell.study, cell.condition) for cell in cells):
            if name != previous:
                table.add_section()
            scores = (x100(getattr(by_place[name, condition, task], metric)) for task in tasks)
            table.add_row("" if name == previous else name, condition, *scores)
            previous = name
        yield table


def gem_figure(cells: Sequence[GemCell]) -> Figure:
    """The change of Pearson (left) and Spearman (right) when one setting of GEM varies, a row per setting."""

    def name(cell: GemCell) -> str:
        return f"{cell.model.rpartition('/')[2]}, {cell.task}"

    names = list(dict.fromkeys(map(name, cells)))
    panels: dict[str, list[Panel]] = {study: [] for study in SENSITIVITY}
    for metric in ("pearson", "spearman"):
        start: dict[str, float] = {}  # scores of the model as it is: the first cell of the ablation
        changes: dict[str, dict[str, list[tuple[float, float]]]] = {
            study: {name: [] for name in names} for study in SENSITIVITY
        }
        for cell in cells:
            score = 100 * getattr(cell, metric)
            if cell.study == ABLATION:
                start.setdefault(name(cell), score)
            elif not math.isnan(score - start[name(cell)]):
                changes[cell.study][name(cell)].append((float(cell.condition), score - start[name(cell)]))
        heights = [y for lines in changes.values() for points in lines.values() for _, y in points]
        y_axis = Axis(f"{metric.capitalize()} x100, change", min([*heights, -0.5]), max([*heights, 0.5]))
        for study, lines in changes.items():
            values = sorted({x for points in lines.values() for x, _ in points}) or [0.0]
            x_axis = Axis(_LABELS[study], values[0], max(values[-1], values[0] + 1), at=values)
            panel = Panel(x_axis, y_axis)
            panel.level(0)
            for number, points in enumerate(lines.values()):
                panel.line(points, color_of(number), dash=dash_of(number))
            panels[study].append(panel)
    legend = [Key(name, color_of(number), dash=dash_of(number)) for number, name in enumerate(names)]
    title = "Scores of GEM when one of its settings varies"
    return Figure(title, f"Of {', '.join(names)}.", [("", row) for row in panels.values()], legend)


STUDY = StudyKind(_run, _tables, lambda cells, _: gem_figure(cells))
