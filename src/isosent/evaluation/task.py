"""Names of tasks as people write them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Literal

from isosent.errors import InputError, InputTypeError

Role = Literal["text", "query", "document"]


class Task(ABC):
    """A task that vectors of sentences are scored on."""

    # A task of search overrides `by_role` and `target_role`; any other encodes all its texts alike.

    __slots__ = ()

    @property
    @abstractmethod
    def texts(self) -> Sequence[str]:
        """All texts that are encoded to be scored, as often as they occur."""

    @property
    @abstractmethod
    def target_texts(self) -> Sequence[str]:
        """All texts to fit on under the protocol "target", without labels."""

    @property
    def scored_items(self) -> Sequence[tuple[str, ...]]:
        """The texts of each item that is scored: one text, or the two of a pair."""
        return [(text,) for text in self.texts]

    @property
    def by_role(self) -> Mapping[Role, Sequence[str]]:
        """The texts by what they are encoded as."""
        return {"text": self.texts}

    @property
    def target_role(self) -> Role:
        """What the texts to fit on are encoded as."""
        return "text"


def task_names(written: Sequence[str], known: Sequence[str]) -> list[str]:
    """Find tasks by their names; case and dashes do not matter."""
    if isinstance(written, str):
        raise InputTypeError(f"tasks must be a sequence of names; got one string. Pass [{written!r}].")
    if not len(written):
        raise InputError("tasks must name at least one task; got none. Leave it out for all.")
    if not all(isinstance(task, str) for task in written):
        raise InputTypeError(f"tasks must be names; got {list(written)!r}.")
    names = {_plain(task): task for task in known}
    for task in written:
        plain = _plain(task)
        if plain not in names:
            alike = [name for name in names if name.startswith(plain)] or get_close_matches(plain, names, 1, 0)
            raise InputError(f"tasks must be among {', '.join(known)}; got {task!r}. The nearest is {names[alike[0]]}.")
    return [names[_plain(task)] for task in written]


def _plain(task: str) -> str:
    return task.strip().upper().replace("-", "")
