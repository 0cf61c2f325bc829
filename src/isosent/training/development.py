"""The development set of a training run: sentence pairs with human scores, told after every so many steps."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check, _extras
from isosent.errors import EvaluationWarning, InputError
from isosent.evaluation.sts import pair_scores
from isosent.numeric.similarity import pearson, spearman

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


SPEARMAN = "spearman"
_BATCH_SIZE = 64


@dataclass(frozen=True, slots=True, eq=False)
class DevSet:
    """Sentence pairs with a human score.

    Parameters
    ----------
    name : str
        What it is called.
    first, second : sequence of str
        Sentences of each pair.
    scores : array-like of shape (n_pairs,), float
        Human similarity, on any scale.

    Raises
    ------
    InputError
        If the three are not equally long, there are fewer than two pairs, or a score is not finite.

    Warns
    -----
    EvaluationWarning
        If all scores are the same: no correlation with them is defined.
    """

    name: str
    first: Sequence[str]
    second: Sequence[str]
    scores: NDArray[np.float64]

    def __post_init__(self) -> None:
        where = f"development set {self.name}"
        first, second = (tuple(_check.text_list(where, texts)) for texts in (self.first, self.second))
        scores = np.asarray(self.scores, dtype=np.float64)
        if scores.shape != (len(first),) or len(second) != len(first) or len(first) < 2:
            raise InputError(
                f"{where}: first, second and scores must have one entry a pair, of two pairs at least; "
                f"got {len(first)}, {len(second)} and shape {scores.shape}."
            )
        _check.finite_rows(where, "scores", scores[:, None])
        if np.ptp(scores) == 0:
            _warn(f"{where}: every score is {scores[0]:g}; no correlation with them is defined.")
        for name, value in (("first", first), ("second", second), ("scores", scores)):
            object.__setattr__(self, name, value)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the pairs and their scores."""
        content = json.dumps([list(self.first), list(self.second), self.scores.tolist()])
        return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class DevScore:
    """What a model scores on a development set."""

    spearman: float  # correlation of cosine and human score, in [-1, 1]; NaN where undefined
    pearson: float  # correlation of cosine and human score, in [-1, 1]; NaN where undefined
    n_pairs: int  # pairs scored


def score_pairs(encode: Callable[[list[str]], ArrayLike], devset: DevSet) -> DevScore:
    """Score a model on a development set."""
    where = f"development set {devset.name}"
    row_of = {text: row for row, text in enumerate(dict.fromkeys([*devset.first, *devset.second]))}
    vectors = _check.matrix(where, "vectors", encode(list(row_of)))
    _check.same_count(where, "vectors", len(vectors), len(row_of))
    n_pairs = len(devset.scores)
    if not np.isfinite(vectors).all():
        _warn(f"{where}: some vectors are not finite; the correlation is undefined.")
        return DevScore(float("nan"), float("nan"), n_pairs)
    first, second = (vectors[[row_of[text] for text in texts]] for texts in (devset.first, devset.second))
    cosines = pair_scores(first, second)
    if np.ptp(cosines) == 0:
        _warn(f"{where}: every cosine is the same; the correlation is undefined.")
    return DevScore(spearman(cosines, devset.scores), pearson(cosines, devset.scores), n_pairs)


def score_trained(model: SentenceTransformer, devset: DevSet, *, batch_size: int = _BATCH_SIZE) -> DevScore:
    """Score a model in the middle of its training, which goes on as if nothing had happened."""
    with _undisturbed(model):
        return score_pairs(lambda texts: model.encode(texts, batch_size=batch_size, show_progress_bar=False), devset)


def dev_evaluator(
    devset: DevSet, *, batch_size: int = _BATCH_SIZE, report: Callable[[int, DevScore], None] | None = None
) -> Any:
    """Make the evaluator that the trainer of sentence-transformers calls."""
    return _evaluator_class()(devset, batch_size, report)


@cache
def _evaluator_class() -> Any:
    base: Any = _extras.require("sentence_transformers").base.evaluation.SentenceEvaluator

    class DevEvaluator(base):  # type: ignore[misc]
        def __init__(self, devset: DevSet, batch_size: int, report: Callable[[int, DevScore], None] | None) -> None:
            super().__init__()
            self.primary_metric = SPEARMAN
            self._devset, self._batch_size, self._report = devset, batch_size, report

        def __call__(
            self, model: SentenceTransformer, output_path: str | None = None, epoch: float = -1, steps: int = -1
        ) -> dict[str, float]:
            score = score_trained(model, self._devset, batch_size=self._batch_size)
            if self._report is not None:
                self._report(steps, score)
            return {SPEARMAN: score.spearman, "pearson": score.pearson}

    return DevEvaluator


@contextmanager
def _undisturbed(model: SentenceTransformer) -> Iterator[None]:
    """Put the modes of the modules and the random numbers of torch back."""
    torch = _extras.require("torch")
    modes = {module: module.training for module in model.modules()}
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


def _warn(sentence: str) -> None:
    warnings.warn(sentence, EvaluationWarning, stacklevel=3)
