"""The step that scales vectors to length 1; `L2Normalize` at the end of a chain asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from isosent.numeric.similarity import unit_rows
from isosent.role import Role
from isosent.transforms.step import Rows, Step


class NormalizeStep(Step):
    """Scale each row to length 1; a zero row stays zero."""

    kind = "normalize"
    noun = "scaling to length 1"
    is_linear = True
    values: ClassVar[Mapping[str, Any]] = {"normalize": bool}
    first_fields: ClassVar[Mapping[str, Any]] = {"normalize": False}

    def apply(self, rows: Rows, role: Role) -> Rows:
        return unit_rows(rows)

    def saved(self) -> dict[str, Any]:
        return {"normalize": True}

    @classmethod
    def of_saved(cls, saved: Mapping[str, Any]) -> Self | None:
        return cls() if saved["normalize"] else None

    def content(self) -> bytes:
        return self.kind.encode()

    def facts(self) -> dict[str, Any]:
        return {"normalize": True}
