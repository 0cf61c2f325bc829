"""What each part of GEM is worth, and how much its settings matter."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any

from isosent.encoders.base import Progress
from isosent.encoders.reference import options_of, write_options
from isosent.encoders.static import StaticEncoder
from isosent.encoders.word_average import GEM, Average, Weighting
from isosent.errors import InputError
from isosent.evaluation.sts import score_task
from isosent.evaluation.sts_files import STSTask, read_sts
from isosent.io.json import nan_where_none, without_nan
from isosent.io.tables import write_csv
from isosent.model import SentenceEncoder
from isosent.numeric.gem import SCORES
from isosent.numeric.moments import Moments

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


@dataclass(frozen=True, slots=True)
class GemCell:
    """One setting of GEM on one task, its principal vectors fitted on the sentences of the task."""

    model: str  # model reference
    task: str  # the task
    study: str  # "ablation", or a key of `SENSITIVITY`
    condition: str  # what is not as in the defaults; the value of the setting in a study of sensitivity
    pearson: float  # one correlation over all pairs, in [-1, 1]; NaN where undefined
    spearman: float  # one correlation over all pairs, in [-1, 1]; NaN where undefined
    n_zero_rows: int  # sentences of the pairs without a vector; their cosine counts as 0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; an undefined score is None."""
        plain: dict[str, Any] = without_nan(asdict(self))
        return plain

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> GemCell:
        """Make it of what `to_json` returned."""
        scores = nan_where_none({metric: document[metric] for metric in ("pearson", "spearman")})
        return cls(**{**document, **scores})


@dataclass(frozen=True, slots=True)
class Condition:
    """One setting to measure."""

    study: str  # as in `GemCell`
    name: str  # as in `GemCell`
    weighting: Weighting  # what is measured


def conditions(base: GEM, word_dim: int) -> list[Condition]:
    """List what a study measures: every part left out, then every setting moved alone."""
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
    progress: Callable[[int], Progress] | None = None,
) -> list[GemCell]:
    """Measure every setting of `conditions` on STS tasks."""
    # Sentences are split once, coarse vectors taken once for each power, and each setting is encoded once.
    encoder = model.encoder
    if not isinstance(encoder, StaticEncoder) or not isinstance(encoder.weighting, Average | GEM) or model.fits:
        raise InputError(
            f"study gem: model must be word vectors with weighting=mean or gem, and nothing behind them; got {name}."
        )
    base = encoder.weighting if isinstance(encoder.weighting, GEM) else GEM()
    found = read_sts(folder, tasks=tasks)
    listed = conditions(base, encoder.dim)
    tell = None if progress is None else progress(len(found) * len(listed))
    return [cell for task in found for cell in _study_task(encoder, name, task, listed, tell)]


def _study_task(
    encoder: StaticEncoder, name: str, task: STSTask, listed: Sequence[Condition], tell: Progress | None
) -> list[GemCell]:
    texts = dict.fromkeys(task.texts)
    rows = {text: row for row, text in enumerate(texts)}
    tokens = encoder.tokenize(list(texts))

    @cache
    def coarse_moments(power: float) -> Moments:
        return _with_weighting(encoder, GEM(n_candidates=1, n_removed=1, power=power)).corpus_moments(task.target_texts)

    @cache
    def measure(weighting: Weighting) -> tuple[float, float, int]:
        weighted = _with_weighting(encoder, weighting)
        if isinstance(weighting, GEM) and weighting.learns:
            weighted = weighted.on_moments(coarse_moments(weighting.power))
        vectors = weighted.embed(tokens)
        scores = score_task(task, SentenceEncoder(weighted), lambda some: vectors[[rows[text] for text in some]])
        return scores.pearson["all"], scores.spearman["all"], scores.n_zero_rows

    cells = []
    for condition in listed:
        cells.append(GemCell(name, task.name, condition.study, condition.name, *measure(condition.weighting)))
        if tell:
            tell(1)
    return cells


def _with_weighting(encoder: StaticEncoder, weighting: Weighting) -> StaticEncoder:
    """The same word vectors under another weighting."""
    return StaticEncoder(
        encoder.reference,
        encoder.options | write_options(options_of(weighting)),
        encoder.tokenizer,
        encoder.vectors,
        weighting=weighting,
        normalize=encoder.normalize,
    )


def write_gem_csv(path: str | os.PathLike[str], cells: Sequence[GemCell]) -> None:
    """Write a study as CSV, a line a cell under the names of its fields."""
    write_csv(path, [cell.to_json() for cell in cells])
