"""What the texts of a call are: queries, documents or either; and of which groups."""

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
