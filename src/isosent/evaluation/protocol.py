"""What every evaluation does before it scores: encode each sentence once, and fit on the target or on a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import Progress
from isosent.files.texts import read_texts
from isosent.model import SentenceEncoder
from isosent.transforms.base import LinearTransform, settings_of, transform_name

TARGET = "target"

Lookup = Callable[[Sequence[str]], NDArray[np.float32]]


class Task(Protocol):
    """What is evaluated: the sentences of its pairs, and those that a transform is fitted on."""

    @property
    def texts(self) -> Sequence[str]:
        """All sentences of the pairs, as often as they occur."""
        ...

    @property
    def target_texts(self) -> Sequence[str]:
        """All sentences to fit on under the protocol "target"."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FittedTask:
    """A task made ready to be scored.

    Parameters
    ----------
    bare : SentenceEncoder
        The model without the transform; if it needs a corpus, fitted on one.
    fitted : SentenceEncoder
        The same with the fitted transform behind it.
    vectors : callable
        From sentences of the task to the bare encoder's vectors, which `transform` of either model takes.
    choice : mapping or None
        What "auto" weighed and chose, where it did.
    """

    bare: SentenceEncoder
    fitted: SentenceEncoder
    vectors: Lookup
    choice: Mapping[str, Any] | None


def fit_tasks(
    model: SentenceEncoder,
    tasks: Sequence[Task],
    *,
    transform: LinearTransform | Literal["auto"] | None,
    fit: str | os.PathLike[str],
    progress: Callable[[int], Progress] | None,
) -> Iterator[FittedTask]:
    """Encode some tasks, each distinct sentence once, and fit what has to be fitted.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    tasks : sequence of Task
        The tasks.
    transform : LinearTransform, "auto" or None
        Fitted behind the model.
    fit : path-like or "target"
        What the transform, and an encoder that needs a corpus, is fitted on: the target texts of each task, or the
        texts of a file.
    progress : callable or None
        As for `evaluate_sts`.

    Yields
    ------
    FittedTask
        One a task, in their order.
    """
    on_target = fit == TARGET
    learns = transform is not None or model.encoder.needs_corpus
    whole = model
    if learns and not on_target:
        texts, source = read_texts(fit), Path(fit).name
        model = whole = model.fit(texts, transform=None, source=source)
        if transform is not None:
            whole = model.fit(texts, transform=transform, source=source)
    encoded = encode_tasks(model, tasks, with_targets=learns and on_target, progress=progress)
    for task, (bare, vectors) in zip(tasks, encoded, strict=True):
        fitted = bare if on_target else whole
        if transform is not None and on_target:
            targets = task.target_texts
            fitted = bare.fit(targets, transform=transform, encoded=vectors(targets), source=TARGET)
        yield FittedTask(bare, fitted, vectors, fitted.fits[-1].choice if learns else None)


def encode_tasks(
    model: SentenceEncoder,
    tasks: Sequence[Task],
    *,
    with_targets: bool,
    progress: Callable[[int], Progress] | None,
) -> Iterator[tuple[SentenceEncoder, Lookup]]:
    """Encode every distinct sentence of some tasks once; of each task alone, where the encoder is fitted on it.

    Parameters
    ----------
    model : SentenceEncoder
        The model; its bare encoder is used.
    tasks : sequence of Task
        The tasks.
    with_targets : bool
        Whether the sentences to fit on are encoded too.
    progress : callable or None
        As for `evaluate_sts`.

    Yields
    ------
    model : SentenceEncoder
        For each task, the model; if it needs a corpus, fitted on the sentences of the task.
    lookup : callable
        From sentences of the task to the encoder's vectors.
    """
    if model.encoder.needs_corpus:
        for task in tasks:
            fitted = model.fit(task.target_texts, transform=None, source=TARGET)
            yield fitted, _encode_once(fitted, [task], with_targets, progress)
        return
    lookup = _encode_once(model, tasks, with_targets, progress)
    for _ in tasks:
        yield model, lookup


def _encode_once(
    model: SentenceEncoder,
    tasks: Sequence[Task],
    with_targets: bool,
    progress: Callable[[int], Progress] | None,
) -> Lookup:
    rows: dict[str, int] = {}
    for task in tasks:
        for texts in (task.texts, task.target_texts if with_targets else ()):
            for text in texts:
                rows.setdefault(text, len(rows))
    encoded = model.encoder.encode(list(rows), progress=None if progress is None else progress(len(rows)))
    return lambda texts: encoded[[rows[text] for text in texts]]


def describe_protocol(
    transform: LinearTransform | Literal["auto"] | None,
    fit: str | os.PathLike[str] | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """Say what was done, as plain values that JSON can hold.

    Parameters
    ----------
    transform : LinearTransform, "auto" or None
        What was fitted.
    fit : path-like, "target" or None
        What on; None where nothing was.
    more : mapping of str to object
        What else belongs to the evaluation at hand.

    Returns
    -------
    dict
        Similarity, transform, its settings, what it was fitted on, `more`, and the version of isosent.
    """
    named = transform is None or isinstance(transform, str)
    return {
        "similarity": "cosine",
        "transform": transform if named else transform_name(transform),
        "parameters": {} if transform is None or isinstance(transform, str) else settings_of(transform),
        "fit": None if fit is None else str(fit),
        **more,
        "isosent_version": version("isosent"),
    }
