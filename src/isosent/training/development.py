"""Development and test sets: scored before, during and after a training, and compared with its data."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike

from isosent import _check, _extras
from isosent.errors import EvaluationWarning, InputError
from isosent.evaluation.evaluate import read_tasks
from isosent.evaluation.overlap import count_overlap, plain_form
from isosent.evaluation.sts import pair_scores
from isosent.io.pairs import ScoredPairs
from isosent.io.schemas import Count
from isosent.numeric.similarity import pearson, spearman
from isosent.training.data import Examples

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SPEARMAN = "spearman"
_BATCH_SIZE = 64
_MOSTLY_SEEN = 0.5


class DevScore(Struct, frozen=True, forbid_unknown_fields=True):
    """Correlation of the cosines of a model with the human scores of a development set."""

    spearman: float  # in [-1, 1]; NaN where undefined
    pearson: float  # in [-1, 1]; NaN where undefined
    n_pairs: Count


def check_dev_set(pairs: ScoredPairs) -> ScoredPairs:
    """Check pairs that were made in memory: at least two, with finite scores. Warns if all scores are the same."""
    where = f"development set {pairs.name}"
    first, second = (tuple(_check.text_list(where, texts)) for texts in (pairs.first, pairs.second))
    scores = np.asarray(pairs.scores, dtype=np.float64)
    if scores.shape != (len(first),) or len(second) != len(first) or len(first) < 2:
        raise InputError(
            "first, second and scores must have one entry per pair, for at least two pairs; got "
            f"{len(first)}, {len(second)} and shape {scores.shape}.",
            where=where,
        )
    _check.finite_rows(where, "scores", scores[:, None])
    if np.ptp(scores) == 0:
        _warn(f"{where}: every score is {scores[0]:g}; no correlation with them is defined.")
    return replace(pairs, first=first, second=second, scores=scores)


def fingerprint(pairs: ScoredPairs) -> str:
    """SHA-256 of the pairs and their scores."""
    content = json.dumps([list(pairs.first), list(pairs.second), pairs.scores.tolist()])
    return hashlib.sha256(content.encode()).hexdigest()


def score_pairs(encode: Callable[[list[str]], ArrayLike], pairs: ScoredPairs) -> DevScore:
    """Score what encodes n texts as an array of shape (n_texts, dim)."""
    where = f"development set {pairs.name}"
    row_of = {text: row for row, text in enumerate(dict.fromkeys([*pairs.first, *pairs.second]))}
    vectors = _check.matrix(where, "vectors", encode(list(row_of)))
    _check.same_count(where, "vectors", len(vectors), len(row_of))
    n_pairs = len(pairs.scores)
    if not np.isfinite(vectors).all():
        _warn(f"{where}: some vectors are not finite; the correlation is undefined.")
        return DevScore(float("nan"), float("nan"), n_pairs)
    first, second = (vectors[[row_of[text] for text in texts]] for texts in (pairs.first, pairs.second))
    cosines = pair_scores(first, second)
    if np.ptp(cosines) == 0:
        _warn(f"{where}: every cosine is the same; the correlation is undefined.")
    return DevScore(spearman(cosines, pairs.scores), pearson(cosines, pairs.scores), n_pairs)


def score_trained(model: SentenceTransformer, pairs: ScoredPairs) -> DevScore:
    """Score a model during its training, which is not affected."""
    with _undisturbed(model):
        return score_pairs(lambda texts: model.encode(texts, batch_size=_BATCH_SIZE, show_progress_bar=False), pairs)


@contextmanager
def _undisturbed(model: SentenceTransformer) -> Iterator[None]:
    """Restore the modes of the modules and the random numbers of torch."""
    torch = _extras.require("torch")
    modes = {module: module.training for module in model.modules()}
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


def dev_evaluator(pairs: ScoredPairs, *, report: Callable[[int, DevScore], None] | None = None) -> Any:
    """The evaluator that the trainer of sentence-transformers calls; `report` receives the step and the score."""
    return _evaluator_class()(pairs, report)


@cache
def _evaluator_class() -> Any:
    base: Any = _extras.require("sentence_transformers").base.evaluation.SentenceEvaluator

    class DevEvaluator(base):  # type: ignore[misc]
        def __init__(self, pairs: ScoredPairs, report: Callable[[int, DevScore], None] | None) -> None:
            super().__init__()
            self.primary_metric = SPEARMAN
            self._pairs, self._report = pairs, report

        def __call__(
            self, model: SentenceTransformer, output_path: str | None = None, epoch: float = -1, steps: int = -1
        ) -> dict[str, float]:
            score = score_trained(model, self._pairs)
            if self._report is not None:
                self._report(steps, score)
            return {SPEARMAN: score.spearman, "pearson": score.pearson}

    return DevEvaluator


def count_seen_texts(
    examples: Examples, sets: Iterable[ScoredPairs] = (), *, folder: str | os.PathLike[str] | None = None
) -> dict[str, dict[str, int]]:
    """Count the texts of evaluation sets that are training texts, see `isosent.evaluation.overlap.count_overlap`."""
    tasks: dict[str, Sequence[tuple[str, ...]]] = {}
    if folder is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvaluationWarning)  # of kinds and subsets that are not there
            tasks = {task.name: task.items for task in read_tasks(folder)}
    for pairs in sets:
        tasks[pairs.name] = list(zip(pairs.first, pairs.second, strict=True))
    return count_overlap(examples.texts(), tasks)


def warn_if_seen(examples: Examples, pairs: ScoredPairs) -> int:
    """Count the pairs of a set that are pairs of a training example, and warn if most of them are."""
    items = [frozenset(map(plain_form, pair)) for pair in zip(pairs.first, pairs.second, strict=True)]
    wanted = {form for item in items for form in item}
    form_of = {text: form for text in examples.texts() if (form := plain_form(text)) in wanted}
    anchors, *others = examples.text_columns.values()
    seen = {
        frozenset((form_of[anchor], form_of[other]))
        for column in others
        for anchor, other in zip(anchors, column, strict=True)
        if anchor in form_of and other in form_of
    }
    n_seen = sum(item in seen for item in items)
    if n_seen > _MOSTLY_SEEN * len(items):
        _warn(
            f"{pairs.name}: {n_seen} of its {len(items)} pairs are pairs of the training data; its scores do not "
            "say how good the model is on new pairs. Score on another set."
        )
    return n_seen


def _warn(sentence: str) -> None:
    warnings.warn(sentence, EvaluationWarning, stacklevel=3)
