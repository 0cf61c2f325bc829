"""What every evaluation does before it scores: encode each sentence once, and fit on the target or on a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import Encoder, Progress
from isosent.encoders.prompts import encoder_for
from isosent.encoders.tally import tallying
from isosent.evaluation.task import Role, Task
from isosent.files.texts import read_texts
from isosent.model import SentenceEncoder
from isosent.transforms.base import Transform, settings_of, transform_name

TARGET = "target"


class Encoded:
    """Vectors of texts, each text encoded once in each of its roles.

    Parameters
    ----------
    encoder : Encoder
        The encoder.
    texts : mapping of Role to iterable of str
        The texts by role; repeated ones are encoded once.
    progress : callable or None
        Called with the number of texts to encode; returns what is called with the number of texts finished.

    Attributes
    ----------
    n_texts : int
        Distinct texts, over the roles.
    tally : Tally
        What encoding them met on its way.
    elapsed_s : float
        Time of encoding.
    """

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
        with tallying() as tallied:
            self._vectors = {
                role: encoder_for(encoder, role).encode(list(rows), progress=advance)
                for role, rows in self._rows.items()
            }
        self.tally = tallied.total
        self.elapsed_s = perf_counter() - started

    def __call__(self, texts: Sequence[str], role: Role = "text") -> NDArray[np.float32]:
        """Return the vectors of texts.

        Parameters
        ----------
        texts : sequence of str
            Some of the texts.
        role : {"text", "query", "document"}, default "text"
            What they were encoded as.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            Row i belongs to text i.
        """
        rows = self._rows[role]
        return self._vectors[role][[rows[text] for text in texts]]


@dataclass(frozen=True, slots=True, eq=False)
class FittedTask:
    """A task made ready to be scored.

    Parameters
    ----------
    bare : SentenceEncoder
        The model without the transform; if it needs a corpus, fitted on one.
    fitted : SentenceEncoder
        The same with the fitted transform behind it.
    vectors : Encoded
        The bare encoder's vectors of the task's texts, which `transform` of either model takes.
    choice : mapping or None
        What "auto" weighed and chose, where it did.
    """

    bare: SentenceEncoder
    fitted: SentenceEncoder
    vectors: Encoded
    choice: Mapping[str, Any] | None

    def encode(self, texts: Sequence[str], role: Role = "text") -> NDArray[np.float32]:
        """Return the vectors of some texts of the task behind all that was fitted.

        Parameters
        ----------
        texts : sequence of str
            Texts of the task.
        role : {"text", "query", "document"}, default "text"
            What they are encoded as, one of those of the task.

        Returns
        -------
        ndarray of shape (n_texts, dim), float32
            Row i belongs to text i.
        """
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
    """Encode some tasks, each distinct sentence once, and fit what has to be fitted.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    tasks : sequence of Task
        The tasks.
    transform : Transform, "auto" or None
        Fitted behind the model.
    fit : path-like or "target"
        What the transform, and an encoder that needs a corpus, is fitted on: the target texts of each task, or the
        texts of a file.
    progress : callable or None
        As for `Encoded`.
    corpus : sequence of str, optional
        The texts of the file, where they were read already.

    Yields
    ------
    FittedTask
        One a task, in their order.
    """
    on_target = fit == TARGET
    learns = transform is not None or model.encoder.needs_corpus
    whole = model
    if learns and not on_target:
        texts, source = read_texts(fit) if corpus is None else corpus, Path(fit).name
        model = whole = model.fit(texts, transform=None, source=source)
        if transform is not None:
            whole = model.fit(texts, transform=transform, source=source)
    encoded = encode_tasks(model, tasks, with_targets=learns and on_target, progress=progress)
    for task, (bare, vectors) in zip(tasks, encoded, strict=True):
        fitted = bare if on_target else whole
        if transform is not None and on_target:
            targets = task.target_texts
            encoded_targets = vectors(targets, task.target_role)
            fitted = bare.fit(targets, transform=transform, encoded=encoded_targets, source=TARGET)
        yield FittedTask(bare, fitted, vectors, fitted.fits[-1].choice if learns else None)


def encode_tasks(
    model: SentenceEncoder,
    tasks: Sequence[Task],
    *,
    with_targets: bool,
    progress: Callable[[int], Progress] | None,
) -> Iterator[tuple[SentenceEncoder, Encoded]]:
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
        As for `Encoded`.

    Yields
    ------
    model : SentenceEncoder
        For each task, the model; if it needs a corpus, fitted on the sentences of the task.
    vectors : Encoded
        From sentences of the task to the encoder's vectors.
    """
    if model.encoder.needs_corpus:
        for task in tasks:
            fitted = model.fit(task.target_texts, transform=None, source=TARGET)
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
    """Say what was fitted, as plain values that JSON can hold.

    Parameters
    ----------
    transform : Transform, "auto" or None
        What was fitted.
    fit : path-like, "target" or None
        What on; None where nothing was.

    Returns
    -------
    dict
        ``transform``, its ``parameters``, what it was ``fit`` on, and whether that is ``transductive``: on the texts of
        the task under evaluation.
    """
    named = transform is None or isinstance(transform, str)
    return {
        "transform": transform if named else transform_name(transform),
        "parameters": {} if transform is None or isinstance(transform, str) else settings_of(transform),
        "fit": None if fit is None else str(fit),
        "transductive": fit == TARGET,
    }
