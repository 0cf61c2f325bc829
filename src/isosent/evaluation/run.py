"""One run of any tasks: encode, fit, score, and write down under which circumstances."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Encoder, EncodingStats, Progress, collecting_stats
from isosent.encoders.load import encoder_for
from isosent.errors import InputError, InputTypeError
from isosent.evaluation.overlap import count_overlap
from isosent.evaluation.result import EvaluationResult, Measured, TaskResult
from isosent.evaluation.task import Role, Task
from isosent.io.texts import read_texts
from isosent.model import SentenceEncoder
from isosent.numeric.statistics import N_RESAMPLES, bootstrap_interval
from isosent.transforms.base import Transform, known_rows, settings_of, transform_name

TARGET = "target"


class Encoded:
    """Vectors of texts, each text encoded once in each of its roles."""

    def __init__(
        self,
        encoder: Encoder,
        texts: Mapping[Role, Iterable[str]],
        progress: Callable[[int], Progress] | None,
    ) -> None:
        started = perf_counter()
        self._rows = {role: {text: row for row, text in enumerate(dict.fromkeys(own))} for role, own in texts.items()}
        self.n_texts = sum(map(len, self._rows.values()))
        advance = None if progress is None else progress(self.n_texts)
        with collecting_stats() as tallied:
            self._vectors = {
                role: encoder_for(encoder, role).encode(list(rows), progress=advance)
                for role, rows in self._rows.items()
            }
        self.encoding_stats = tallied.total
        self.elapsed_s = perf_counter() - started

    def __call__(self, texts: Sequence[str], role: Role = "text") -> NDArray[np.float32]:
        """Return the vectors of texts."""
        rows = self._rows[role]
        return self._vectors[role][[rows[text] for text in texts]]


@dataclass(frozen=True, slots=True, eq=False)
class FittedTask:
    """A task made ready to be scored."""

    bare: SentenceEncoder  # the model without the transform; if it needs a corpus, fitted on one
    fitted: SentenceEncoder  # the same with the fitted transform behind it
    vectors: Encoded  # the bare encoder's vectors of the task's texts, which `transform` of either model takes
    choice: Mapping[str, Any] | None  # what "auto" weighed and chose, where it did

    def encode(self, texts: Sequence[str], role: Role = "text") -> NDArray[np.float32]:
        """Return the vectors of some texts of the task behind all that was fitted."""
        return self.fitted.transform(self.vectors(texts, role), queries=role == "query")


def fit_tasks(
    model: SentenceEncoder,
    tasks: Sequence[Task],
    *,
    transform: Transform | Literal["auto"] | None,
    fit: str | os.PathLike[str],
    progress: Callable[[int], Progress] | None,
    corpus: Sequence[str] | None = None,
) -> Iterator[FittedTask]:
    """Encode some tasks, each distinct sentence once, and fit what has to be fitted."""
    on_target = fit == TARGET
    learns = transform is not None or model.encoder.needs_corpus
    whole = model
    if learns and not on_target:
        texts, source = read_texts(fit) if corpus is None else corpus, Path(fit).name
        model = whole = model.fitted(texts, transform=None, source=source)
        if transform is not None:
            whole = model.fitted(texts, transform=transform, source=source)
    encoded = encode_tasks(model, tasks, with_targets=learns and on_target, progress=progress)
    for task, (bare, vectors) in zip(tasks, encoded, strict=True):
        fitted = bare if on_target else whole
        if transform is not None and on_target:
            targets = task.target_texts
            encoded_targets = vectors(targets, task.target_role)
            fitted = bare.fitted(targets, transform=transform, encoded=encoded_targets, source=TARGET)
        yield FittedTask(bare, fitted, vectors, fitted.fits[-1].choice if learns else None)


def encode_tasks(
    model: SentenceEncoder,
    tasks: Sequence[Task],
    *,
    with_targets: bool,
    progress: Callable[[int], Progress] | None,
) -> Iterator[tuple[SentenceEncoder, Encoded]]:
    """Encode every distinct sentence of some tasks once; of each task alone, where the encoder is fitted on it."""
    if model.encoder.needs_corpus:
        for task in tasks:
            fitted = model.fitted(task.target_texts, transform=None, source=TARGET)
            yield fitted, Encoded(fitted.encoder, _texts_by_role([task], with_targets), progress)
        return
    encoded = Encoded(model.encoder, _texts_by_role(tasks, with_targets), progress)
    for _ in tasks:
        yield model, encoded


def _texts_by_role(tasks: Sequence[Task], with_targets: bool) -> dict[Role, list[str]]:
    texts: dict[Role, list[str]] = {}
    for task in tasks:
        for role, own in task.by_role.items():
            texts.setdefault(role, []).extend(own)
        if with_targets:
            texts.setdefault(task.target_role, []).extend(task.target_texts)
    return texts


def describe_fitting(
    transform: Transform | Literal["auto"] | None, fit: str | os.PathLike[str] | None
) -> dict[str, Any]:
    """Say what was fitted, as plain values that JSON can hold."""
    named = transform is None or isinstance(transform, str)
    return {
        "transform": transform if named else transform_name(transform),
        "parameters": {} if transform is None or isinstance(transform, str) else settings_of(transform),
        "fit": None if fit is None else str(fit),
        "transductive": fit == TARGET,
    }


_PACKAGES = ("isosent", "numpy", "scipy", "scikit-learn", "tokenizers", "torch", "transformers", "onnxruntime")


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """How any evaluation is run, whatever is evaluated.

    Parameters
    ----------
    seed : int, default 0
        Of all random numbers.
    n_resamples : int, default 1000
        Draws of the bootstrap.
    progress : callable, optional
        Called with the number of texts to encode; returns what is called with the number of texts finished.
    """

    seed: int = 0
    n_resamples: int = N_RESAMPLES
    progress: Callable[[int], Progress] | None = None

    def __post_init__(self) -> None:
        _check.whole_number("Run", "seed", self.seed, 0)
        _check.whole_number("Run", "n_resamples", self.n_resamples, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A task, and how it is scored."""

    name: str  # name of the task
    kind: str  # its family
    task: Task  # its texts
    score: Callable[[FittedTask, int], Measured]  # from the task made ready, and the seed, to what is measured
    protocol: Mapping[str, Any]  # how it is scored, as plain values
    files: Sequence[Path]  # files that it was read from


def run_jobs(
    where: str,
    model: SentenceEncoder,
    jobs: Sequence[Job],
    root: str | os.PathLike[str],
    *,
    transform: Transform | Literal["auto"] | None,
    fit: str | os.PathLike[str],
    run: EvaluationSettings | None,
) -> EvaluationResult:
    """Score a model on tasks; texts that occur in several of them are encoded once."""
    if not isinstance(model, SentenceEncoder):
        raise InputTypeError(f"{where}: model must be what isosent.load returns; got {type(model).__name__}.")
    run = run or EvaluationSettings()
    _check_names(where, jobs)
    learns = transform is not None or model.encoder.needs_corpus
    corpus = read_texts(fit) if learns and fit != TARGET else None
    started = perf_counter()
    results: dict[str, TaskResult] = {}
    described, latest, encoding_stats, n_texts, encode_s = model, None, EncodingStats(), 0, 0.0
    with collecting_stats():  # what is encoded to fit is no news
        tasks = [job.task for job in jobs]
        ready = fit_tasks(model, tasks, transform=transform, fit=fit, progress=run.progress, corpus=corpus)
        for job in jobs:
            before, newly_s = perf_counter(), 0.0
            done = next(ready)
            if done.vectors is not latest:
                latest, newly_s = done.vectors, done.vectors.elapsed_s
                encoding_stats, n_texts = encoding_stats + latest.encoding_stats, n_texts + latest.n_texts
                encode_s += newly_s
            scored = _score(job, done, root, run)
            results[job.name] = replace(scored, elapsed_s=perf_counter() - before - newly_s)
            described = model if fit == TARGET else done.fitted
    encoding_stats.warn(model.encoder.reference, model.encoder.options.get("max_length"), stacklevel=3)
    fitting = describe_fitting(transform, fit if learns else None)
    if corpus is not None:
        fitting["overlap"] = count_overlap(corpus, {job.name: job.task for job in jobs})
    return EvaluationResult(
        model=described.record.facts(),
        fitting=fitting,
        tasks=results,
        environment=environment(),
        seed=run.seed,
        n_resamples=run.n_resamples,
        n_texts=n_texts,
        n_cut=encoding_stats.n_cut,
        encode_s=encode_s,
        elapsed_s=perf_counter() - started,
    )


def _check_names(where: str, jobs: Sequence[Job]) -> None:
    kinds: dict[str, str] = {}
    for job in jobs:
        if job.name in kinds:
            raise InputError(
                f"{where}: tasks must have names of their own; {job.name} is one of {kinds[job.name]} and one of "
                f"{job.kind}. Evaluate them apart, or rename the folder of one."
            )
        kinds[job.name] = job.kind


def _score(job: Job, done: FittedTask, root: str | os.PathLike[str], run: EvaluationSettings) -> TaskResult:
    measured = job.score(done, run.seed)
    zeros = sum(int((~known_rows(done.encode(texts, role))).sum()) for role, texts in job.task.by_role.items())
    n_tokens, n_unknown = done.fitted.encoder.coverage(job.task.texts)
    items = measured.items
    intervals = {
        metric: bootstrap_interval(statistic, items.values, items.gold, n_resamples=run.n_resamples, seed=run.seed)
        for metric, statistic in items.statistics(measured.metric).items()
    }
    return TaskResult(
        kind=job.kind,
        metric=measured.metric,
        scores=measured.scores,
        intervals=intervals,
        protocol=job.protocol,
        data=checksums(root, job.files),
        n_items=len(items.values),
        dim=done.fitted.dim,
        n_zero_rows=zeros,
        n_tokens=n_tokens,
        n_unknown=n_unknown,
        elapsed_s=0.0,
        items=items,
        details=measured.details,
        choice=done.choice,
    )


def checksums(root: str | os.PathLike[str], files: Sequence[Path]) -> dict[str, str]:
    """SHA-256 of files."""
    home = Path(root).resolve()
    sums = {}
    for path in files:
        name = path.relative_to(home).as_posix() if home in path.parents else path.name
        with path.open("rb") as file:
            sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


def environment() -> dict[str, Any]:
    """Versions of Python and of the packages that compute, as far as they are installed, and the machine."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {"versions": versions, "machine": platform.machine(), "system": platform.system(), "n_cpus": os.cpu_count()}
