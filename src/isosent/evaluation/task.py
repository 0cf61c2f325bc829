"""A task: texts, and a function that scores their vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError, InputTypeError
from isosent.evaluation.result import Measurement
from isosent.evaluation.sizes import deviations
from isosent.role import RoleName


class TaskEncoder(Protocol):
    """From texts of a task to their vectors, shape (n_texts, dim), after everything that was fitted."""

    def __call__(self, texts: Sequence[str], role: RoleName = "text") -> NDArray[np.float32]:
        """Return the vectors of texts."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Texts, and a function that scores their vectors."""

    name: str
    kind: str  # sts, pairs, transfer, cqa, rte, retrieval, clustering or classification
    texts: Mapping[RoleName, Sequence[str]]  # all texts to encode, by what they are encoded as, as often as they occur
    target_texts: Sequence[str]  # all texts to fit on under fit_on="target", without labels
    items: Sequence[tuple[str, ...]]  # the texts of each item that is scored: one text, or the two of a pair
    score: Callable[[TaskEncoder, int], Measurement]  # from vectors and the seed to scores
    protocol: Mapping[str, Any]  # how it is scored, as JSON values; only results of equal protocols can be compared
    files: Sequence[Path]  # files that it was read from
    target_role: RoleName = "text"  # what the texts to fit on are encoded as
    sizes: Mapping[str, int] = field(default_factory=dict)  # items of each part that the score depends on

    @property
    def all_texts(self) -> list[str]:
        """All texts to encode, as often as they occur."""
        return [text for texts in self.texts.values() for text in texts]

    @property
    def deviations(self) -> tuple[str, ...]:
        """How it differs from the known set of its name, if it does."""
        return deviations(self.kind, self.name, self.sizes, self.all_texts)


def task_names(names: Sequence[str], available: Sequence[str]) -> list[str]:
    """Look up names of tasks; case and dashes do not matter."""
    if isinstance(names, str):
        raise InputTypeError(f"tasks must be a sequence of names; got one string. Pass [{names!r}].")
    if not len(names):
        raise InputError("no tasks are named. Leave them out for all.")
    if not all(isinstance(name, str) for name in names):
        raise InputTypeError(f"tasks must be names; got {list(names)!r}.")
    by_key = {name_key(name): name for name in available}
    for name in names:
        if (key := name_key(name)) not in by_key:
            similar = [other for other in by_key if other.startswith(key)] or get_close_matches(key, by_key, 1)
            advice = f" Did you mean {by_key[similar[0]]}?" if similar else ""
            raise InputError(f"there is no task {name!r}.{advice} There are {', '.join(available)}.")
    return [by_key[name_key(name)] for name in names]


def name_key(name: str) -> str:
    """Form of a name in which names are compared."""
    return name.strip().upper().replace("-", "")
