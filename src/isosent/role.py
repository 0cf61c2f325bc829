"""What the texts of a call are: queries, documents or either; of which groups; and the words around each."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

RoleName = Literal["text", "query", "document"]
ROLE_NAMES: Final = get_args(RoleName)


class Role(NamedTuple):
    """What chooses between the maps of a model: whether texts are queries, and their groups."""

    is_query: bool = False
    group: object = None  # of all texts, or a sequence with that of each; None for the reference


DOCUMENTS: Final = Role()
QUERIES: Final = Role(is_query=True)

TEXT_PLACE: Final = "{text}"


def parts_of(prompt: str) -> list[str]:
    """Words before the text and after it, and between two of its places; a prompt without a place stands before it."""
    return prompt.split(TEXT_PLACE) if TEXT_PLACE in prompt else [prompt, ""]


def prompted(prompt: str, text: str) -> str:
    """A text with its prompt."""
    return text.join(parts_of(prompt))
