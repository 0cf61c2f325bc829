"""Run tasks: encode their texts once, fit, score, and record under which circumstances.

`run_tasks` encodes each distinct text of all tasks once (`encode_tasks`: `TextVectors`), fits each transform on the
texts that were requested (`fit_tasks`), and lets each task score the vectors. `_score` adds intervals, counts and
protocol; `describe_fitting`, `checksums` and `environment` say under which circumstances. Studies and training call
it with their own tasks.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Encoder, EncodingStats, collecting_stats
from isosent.encoders.load import encoder_for
from isosent.errors import InputError
from isosent.evaluation.overlap import count_hashed, count_overlap
from isosent.evaluation.result import EvaluationResult, TaskResult
from isosent.evaluation.sizes import known_items, warn_of_deviations
from isosent.evaluation.task import Task
from isosent.io.system import open_to_read
from isosent.io.texts import read_texts
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import nonzero_rows
from isosent.numeric.statistics import N_RESAMPLES, bootstrap_interval
from isosent.pages.progress import Progress, part_of
from isosent.role import RoleName
from isosent.transforms.base import Auto, Transform, settings_of, transform_name

TARGET = "target"


class TextVectors:
    """Vectors of texts by one encoder, each distinct text encoded once in each of its roles."""

    def __init__(self, encoder: Encoder, texts: Mapping[RoleName, Iterable[str]], progress: Progress | None) -> None:
        started = perf_counter()
        self._rows = {role: {text: row for row, text in enumerate(dict.fromkeys(each))} for role, each in texts.items()}
        self.n_texts = sum(map(len, self._rows.values()))
        with collecting_stats() as collected:
            self._vectors: dict[RoleName, NDArray[np.float32]] = {}
            for role, rows in self._rows.items():
                part = part_of(progress, sum(map(len, self._vectors.values())), self.n_texts)
                self._vectors[role] = encoder_for(encoder, role).encode(list(rows), progress=part)
        self.encoding_stats = collected.total
        self.elapsed_s = perf_counter() - started

    def __call__(self, texts: Sequence[str], role: RoleName = "text") -> NDArray[np.float32]:
        """Return the vectors of texts, shape (n_texts, dim)."""
        rows = self._rows[role]
        return self._vectors[role][[rows[text] for text in texts]]


def encode_tasks(
    model: SentenceEncoder, tasks: Sequence[Task], *, with_targets: bool, progress: Progress | None
) -> Iterator[tuple[SentenceEncoder, TextVectors]]:
    """Encode every distinct text of some tasks once; task by task where the encoder is fitted on each."""
    if model.encoder.needs_corpus:
        for task in tasks:
            fitted = model.fitted(task.target_texts, transform=None, source=TARGET)
            yield fitted, TextVectors(fitted.encoder, _texts_by_role([task], with_targets), progress)
        return
    vectors = TextVectors(model.encoder, _texts_by_role(tasks, with_targets), progress)
    for _ in tasks:
        yield model, vectors


def _texts_by_role(tasks: Sequence[Task], with_targets: bool) -> dict[RoleName, list[str]]:
    by_role: dict[RoleName, list[str]] = {}
    for task in tasks:
        for role, texts in task.texts.items():
            by_role.setdefault(role, []).extend(texts)
        if with_targets:
            by_role.setdefault(task.target_role, []).extend(task.target_texts)
    return by_role


def fit_tasks(
    model: SentenceEncoder,
    tasks: Sequence[Task],
    *,
    transforms: Sequence[Transform | Auto | None],
    fit_on: str | os.PathLike[str],
    progress: Progress | None,
    corpus: Sequence[str] | None = None,
) -> Iterator[tuple[SentenceEncoder, TextVectors, Iterator[SentenceEncoder]]]:
    """Encode some tasks, each distinct text once, and fit each transform.

    Yields for each task the model without a transform, the vectors of its encoder, and the model with each transform.
    """
    on_target = fit_on == TARGET
    learns = model.encoder.needs_corpus or any(transform is not None for transform in transforms)
    fitted_once: list[SentenceEncoder] = []
    if learns and not on_target:
        texts, source = read_texts(fit_on) if corpus is None else corpus, Path(fit_on).name
        model = model.fitted(texts, transform=None, source=source)
        encoded = model.encoder.encode(texts) if any(transform is not None for transform in transforms) else None
        for transform in transforms:
            if transform is None:
                fitted_once.append(model)
            else:
                fitted_once.append(model.fitted(texts, transform=transform, encoded=encoded, source=source))

    def fit_each(task: Task, bare: SentenceEncoder, vectors: TextVectors) -> Iterator[SentenceEncoder]:
        for transform in transforms:
            if transform is None:
                yield bare
            else:
                encoded = vectors(task.target_texts, task.target_role)
                yield bare.fitted(task.target_texts, transform=transform, encoded=encoded, source=TARGET)

    each_encoded = encode_tasks(model, tasks, with_targets=learns and on_target, progress=progress)
    for task, (bare, vectors) in zip(tasks, each_encoded, strict=True):
        yield bare, vectors, iter(fitted_once) if fitted_once else fit_each(task, bare, vectors)


def run_tasks(
    model: SentenceEncoder,
    tasks: Sequence[Task],
    root: str | os.PathLike[str],
    *,
    transforms: Sequence[Transform | Auto | None] = (None,),
    fit_on: str | os.PathLike[str] = TARGET,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    progress: Progress | None = None,
) -> EvaluationResult:
    """Score a model on tasks; a text that occurs in several of them is encoded once, whatever is fitted."""
    _check.whole_number("evaluate", "seed", seed, 0)
    _check.whole_number("evaluate", "n_resamples", n_resamples, 1)
    kinds: dict[str, str] = {}
    for task in tasks:
        if task.name in kinds:
            raise InputError(
                f"evaluate: two tasks are called {task.name}, one of {kinds[task.name]} and one of {task.kind}. "
                "Evaluate them separately, or rename the folder of one."
            )
        kinds[task.name] = task.kind
    deviations = {task.name: task.deviations for task in tasks}
    for name, differing in deviations.items():
        warn_of_deviations(name, differing, stacklevel=3)
    learns = model.encoder.needs_corpus or any(transform is not None for transform in transforms)
    corpus = read_texts(fit_on) if learns and fit_on != TARGET else None
    started = perf_counter()
    results: list[dict[str, TaskResult]] = [{} for _ in transforms]
    models = [model for _ in transforms]
    stats, n_texts, encode_s, latest = EncodingStats(), 0, 0.0, None
    with collecting_stats():  # what fitting encodes needs no warning
        fits = fit_tasks(model, tasks, transforms=transforms, fit_on=fit_on, progress=progress, corpus=corpus)
        for task in tasks:
            bare, vectors, fitted_models = next(fits)
            if vectors is not latest:
                latest, stats, n_texts = vectors, stats + vectors.encoding_stats, n_texts + vectors.n_texts
                encode_s += vectors.elapsed_s
            coverage, data = bare.encoder.coverage(task.all_texts), checksums(root, task.files)
            for variant, transform in enumerate(transforms):
                before, fitted = perf_counter(), next(fitted_models)
                result = _score(task, fitted, vectors, seed, n_resamples)
                results[variant][task.name] = replace(
                    result,
                    data=data,
                    n_tokens=coverage[0],
                    n_unknown=coverage[1],
                    elapsed_s=perf_counter() - before,
                    choice=fitted.fits[-1].choice if transform is not None else None,
                    n_known=known_items(task.kind, task.name, task.protocol),
                    deviations=deviations[task.name],
                )
                if fit_on != TARGET:
                    models[variant] = fitted
    stats.warn(model.encoder.reference, model.encoder.options.get("max_length"), stacklevel=3)
    fittings = _describe_fittings(model, tasks, transforms, fit_on=fit_on, corpus=corpus)
    variants = [
        EvaluationResult(
            model=fitted.record.facts(),
            fitting=fitting,
            tasks=scored,
            environment=environment(),
            seed=seed,
            n_resamples=n_resamples,
            n_texts=n_texts,
            n_cut=stats.n_cut,
            encode_s=encode_s,
            elapsed_s=perf_counter() - started,
        )
        for fitted, fitting, scored in zip(models, fittings, results, strict=True)
    ]
    return replace(variants[0], variants=tuple(variants[1:])) if len(variants) > 1 else variants[0]


def _describe_fittings(
    model: SentenceEncoder,
    tasks: Sequence[Task],
    transforms: Sequence[Transform | Auto | None],
    *,
    fit_on: str | os.PathLike[str],
    corpus: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """What was fitted for each transform, and how many texts of each task the fit has seen, or that of the model."""
    items, hashes = {task.name: task.items for task in tasks}, getattr(model.encoder, "fitted_texts", None)
    overlap = {} if corpus is None else {"overlap": count_overlap(corpus, items)}
    distilled = {} if hashes is None else {"distilled_from": count_hashed(hashes, items)}
    learned = [model.encoder.needs_corpus or transform is not None for transform in transforms]
    return [
        describe_fitting(transform, fit_on if learns else None) | (overlap if learns else {}) | distilled
        for transform, learns in zip(transforms, learned, strict=True)
    ]


def _score(task: Task, model: SentenceEncoder, vectors: TextVectors, seed: int, n_resamples: int) -> TaskResult:
    def encode(texts: Sequence[str], role: RoleName = "text") -> NDArray[np.float32]:
        return model.transform(vectors(texts, role), queries=role == "query")

    measured = task.score(encode, seed)
    items = measured.items
    return TaskResult(
        kind=task.kind,
        metric=measured.metric,
        scores=measured.scores,
        intervals={
            metric: bootstrap_interval(statistic, items.values, items.gold, n_resamples=n_resamples, seed=seed)
            for metric, statistic in items.statistics(measured.metric).items()
        },
        protocol=task.protocol,
        data={},
        n_items=len(items.values),
        dim=model.dim,
        n_zero_rows=sum(int((~nonzero_rows(encode(texts, role))).sum()) for role, texts in task.texts.items()),
        n_tokens=0,
        n_unknown=0,
        elapsed_s=0.0,
        items=items,
        details=measured.details,
    )


def describe_fitting(transform: Transform | Auto | None, fit_on: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Describe what was fitted, as JSON values."""
    return {
        "transform": None if transform is None else transform_name(transform),
        "parameters": {} if transform is None else settings_of(transform),
        "fit": None if fit_on is None else str(fit_on),
        "transductive": fit_on == TARGET,
    }


def checksums(root: str | os.PathLike[str], files: Sequence[Path]) -> dict[str, str]:
    """SHA-256 of files, by their path within a folder."""
    home = Path(root).resolve()
    sums = {}
    for path in files:
        name = path.relative_to(home).as_posix() if home in path.parents else path.name
        with open_to_read(path) as file:
            sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


_PACKAGES = (
    *("isosent", "numpy", "scipy", "scikit-learn", "tokenizers", "torch", "transformers", "onnxruntime"),
    "wordllama",  # has the weights of the default model
)


def environment() -> dict[str, Any]:
    """Versions of Python and of the installed packages that compute, and the machine."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {"versions": versions, "machine": platform.machine(), "system": platform.system(), "n_cpus": os.cpu_count()}
