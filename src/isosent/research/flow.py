"""BERT-flow beside whitening, standardising and auto, each fitted on the target and on other sentences."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import Progress
from isosent.errors import InputError
from isosent.evaluation.run import TARGET, TextVectors, encode_tasks
from isosent.evaluation.sts import Lookup, score_task, sts_task
from isosent.evaluation.sts_files import STSTask, read_sts
from isosent.io.json import without_nan
from isosent.model import SentenceEncoder
from isosent.transforms.base import AUTO, make_transform

NLI = "NLI"
RAW = "as they are"
FLOW = "flow"
_FIXED = ("standardize", "whitening")


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """What is studied."""

    # Sentences of the NLI corpora, each as often as it occurs; without any, there are no rows fitted on them
    nli: Sequence[str] = ()
    seeds: Sequence[int] = (0, 1, 2)  # the flow is fitted once with each
    settings: Mapping[str, Any] = field(default_factory=dict)  # further settings of `GlowFlow`


@dataclass(frozen=True, slots=True)
class FlowCell:
    """One row of the table on one task."""

    model: str  # model reference
    task: str  # the task
    row: str  # what was fitted, and on what, such as ``flow(target)``
    scores: Sequence[float]  # spearman (``all``), in [-1, 1]; for a flow, one a seed
    # For a flow, bits per dimension of held-out rows before and after the fit, a pair a seed
    held_out_bits: Sequence[Sequence[float]] = ()
    fit_s: float = 0.0  # mean time of a fit, in seconds; 0 where nothing was fitted
    n_rows: int = 0  # vectors it was fitted on

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; an undefined score is None."""
        plain: dict[str, Any] = without_nan(asdict(self))
        return plain

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FlowCell:
        """Make it of what `to_json` returned."""
        scores = [np.nan if score is None else score for score in document["scores"]]
        return cls(**{**document, "scores": scores})


@dataclass(frozen=True, slots=True, eq=False)
class _Fits:
    """Fits of one transform, a seed each."""

    models: Sequence[SentenceEncoder]
    fit_s: float = 0.0

    def cell(self, row: str, name: str, task: STSTask, encoded: Lookup) -> FlowCell:
        records = [model.fits[-1] for model in self.models if model.fits]
        bits = [(seen[0]["held_out_bits"], seen[-1]["held_out_bits"]) for r in records if (seen := r.history)]
        scores = [score_task(task, model, encoded).spearman["all"] for model in self.models]
        return FlowCell(name, task.name, row, scores, bits, self.fit_s, records[0].n_texts if records else 0)


def study_flow(
    model: SentenceEncoder,
    folder: str | os.PathLike[str],
    *,
    name: str,
    plan: FlowPlan | None = None,
    tasks: Sequence[str] | None = None,
    progress: Callable[[int], Progress] | None = None,
) -> list[FlowCell]:
    """Score a model on STS tasks: as it is, with auto, and standardised, whitened and behind a flow."""
    # A sentence is fitted on as often as it occurs. The flow starts from standardised dimensions, so the row
    # ``standardize`` tells what its training adds.
    if model.encoder.needs_corpus:
        raise InputError(f"study flow: the encoder must not learn from texts; {name} does. Leave its weighting out.")
    plan, found = plan or FlowPlan(), read_sts(folder, tasks=tasks)
    make_transform("glow_flow", dim=model.dim, settings=plan.settings)
    on_nli = {}
    if plan.nli:
        vectors = TextVectors(model.encoder, {"text": plan.nli}, progress)(plan.nli)
        on_nli = {f"{row}({NLI})": fits for row, fits in _fit_all(model, vectors, plan).items()}
    ready = encode_tasks(model, list(map(sts_task, found)), with_targets=True, progress=progress)
    cells = []
    for task, (_, encoded) in zip(found, ready, strict=True):
        texts = task.target_texts
        vectors = encoded(texts)
        chosen = model.fitted(texts, transform=AUTO, encoded=vectors, source=TARGET)
        rows = {RAW: _Fits([model]), f"{AUTO}({TARGET})": _Fits([chosen])}
        rows |= {f"{row}({TARGET})": fits for row, fits in _fit_all(model, vectors, plan).items()}
        cells += [fits.cell(row, name, task, encoded) for row, fits in (rows | on_nli).items()]
    return cells


def _fit_all(model: SentenceEncoder, vectors: NDArray[np.float32], plan: FlowPlan) -> dict[str, _Fits]:
    flows = [make_transform("glow_flow", settings={**plan.settings, "seed": seed}) for seed in plan.seeds]
    transforms = {row: [make_transform(row)] for row in _FIXED} | {FLOW: flows}
    found = {}
    for row, own in transforms.items():
        started = perf_counter()
        models = [model.fitted_on_vectors(vectors, transform=transform) for transform in own]
        found[row] = _Fits(models, (perf_counter() - started) / len(own))
    return found
