"""What every task has: texts to encode, and texts that a transform is fitted on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

Role = Literal["text", "query", "document"]


class Task(ABC):
    """A task that vectors of sentences are scored on.

    Notes
    -----
    A task of search overrides `by_role` and `target_role`; any other encodes all its texts alike.
    """

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
