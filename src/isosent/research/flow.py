"""BERT-flow compared with whitening, standardizing and auto, each fitted on the target and on other sentences."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.cli.options import split_names, whole_numbers
from isosent.errors import InputError
from isosent.evaluation.run import TARGET, TextVectors, encode_tasks
from isosent.evaluation.sts import sts_task
from isosent.evaluation.tables import x100
from isosent.io.texts import TextSource
from isosent.model import SentenceEncoder
from isosent.pages.progress import Progress
from isosent.pages.report import ReportTable
from isosent.research.study import (
    RAW,
    FlowCell,
    StudyKind,
    deviations_of,
    read_sets,
    spearman_of,
    study_notes,
    task_titles,
)
from isosent.transforms.base import AUTO, make_transform, needs_vectors, resolve_transform, settings_of

NLI, FLOW = "NLI", "flow"
_FIXED = ("standardize", "whitening")

Fits = tuple[Sequence[SentenceEncoder], float]  # one model per seed, and the mean seconds of a fit


def study_flow(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    nli: Sequence[str] = (),
    seeds: Sequence[int] = (0, 1, 2),
    settings: Mapping[str, Any] | None = None,
    tasks: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> list[FlowCell]:
    """Score a model on STS tasks: unchanged, with auto, standardized, whitened, and with a flow for each seed.

    `settings` are those of `GlowFlow`. A sentence is fitted on as often as it occurs. `nli` are further sentences to
    fit on; without them there are no such rows. The flow starts from standardized dimensions, so the row
    ``standardize`` tells what its training adds.
    """
    if model.encoder.needs_corpus:
        raise InputError(f"study flow: {name} learns from texts. Leave its weighting out.")
    settings = dict(settings or {})
    make_transform("glow_flow", dim=model.dim, settings=settings)
    listed = read_sets(folder, tasks=tasks)

    def fit_all(vectors: NDArray[np.float32], source: str) -> dict[str, Fits]:
        flows = [make_transform("glow_flow", settings={**settings, "seed": seed}) for seed in seeds]
        fits: dict[str, Fits] = {}
        for row, transforms in ({row: [make_transform(row)] for row in _FIXED} | {FLOW: flows}).items():
            started = perf_counter()
            models = [model.fitted_on_vectors(vectors, transform=transform) for transform in transforms]
            fits[f"{row}({source})"] = (models, (perf_counter() - started) / len(models))
        return fits

    on_nli: dict[str, Fits] = {}
    if nli:
        on_nli = fit_all(TextVectors(model.encoder, {"text": nli}, progress)(nli), NLI)
    cells = []
    encoded_tasks = encode_tasks(model, list(map(sts_task, listed)), with_targets=True, progress=progress)
    for task, (_, encoded) in zip(listed, encoded_tasks, strict=True):
        vectors = encoded(task.target_texts)
        with_auto = model.fitted(task.target_texts, transform=AUTO, encoded=vectors, source=TARGET)
        rows: dict[str, Fits] = {RAW: ([model], 0.0), f"{AUTO}({TARGET})": ([with_auto], 0.0)}
        for row, (models, fit_s) in (rows | fit_all(vectors, TARGET) | on_nli).items():
            records = [each.fits[-1] for each in models if each.fits]
            bits = [(r.history[0]["held_out_bits"], r.history[-1]["held_out_bits"]) for r in records if r.history]
            scores = [spearman_of(task, each, encoded) for each in models]
            n_rows = records[0].n_texts if records else 0
            cells.append(FlowCell(name, task.name, row, scores, bits, fit_s, n_rows, deviations_of(task)))
    return cells


def _run(model: SentenceEncoder, data: Path, own: Mapping[str, Any], **common: Any) -> list[FlowCell]:
    seeds = whole_numbers("flow?seeds=", own.get("seeds", "0,1,2"))
    flow = resolve_transform(own["transform"] or "glow_flow", dim=model.dim)
    if not needs_vectors(flow):
        raise InputError(f"--transform {own['transform']}: the study of flows needs glow_flow.")
    settings = {name: value for name, value in settings_of(flow).items() if name != "seed"}
    nli = []
    for path in split_names(own.get("nli")) or []:
        columns: Sequence[str | None] = split_names(own.get("columns", "premise,hypothesis")) or []
        in_columns = columns if TextSource(path).is_table else [None]
        nli += [text for column in in_columns for text in TextSource(path, column).texts()]
    return study_flow(model, data, nli=nli, seeds=seeds, settings=settings, **common)


def _tables(cells: Sequence[FlowCell], _: str) -> Iterator[ReportTable]:
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
    table = ReportTable("fitted", *columns, title=cells[0].model, caption="\n".join([caption, *study_notes(cells)]))
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


STUDY = StudyKind(_run, _tables, options=("transform",), settings=("nli", "columns", "seeds"))
