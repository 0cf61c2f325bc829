"""The step that a flow becomes; `GlowFlow` in `flow.py` fits it, and needs packages that using one does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from isosent.io.tensors import plain_tensors, plain_tensors_bytes
from isosent.numeric.glow import Glow
from isosent.role import Role
from isosent.transforms.step import Parse, Rows, Step


def _flow(content: bytes) -> Glow:
    return Glow.from_arrays(plain_tensors(content))


class FlowStep(Step):
    """An invertible map to a Gaussian, the same for all roles."""

    kind = "flow"
    noun = "a flow"
    files: ClassVar[Mapping[str, tuple[Parse, str]]] = {"flow": (_flow, "the arrays of a flow")}
    first_fields: ClassVar[Mapping[str, Any]] = {"flow": None}

    def __init__(self, glow: Glow) -> None:
        self.glow = glow

    @property
    def dim(self) -> int:
        return self.glow.dim

    def apply(self, rows: Rows, role: Role) -> Rows:
        return self.glow.forward(rows)

    def saved(self) -> dict[str, Any]:
        return {"flow": plain_tensors_bytes(self.glow.arrays())}

    @classmethod
    def of_saved(cls, saved: Mapping[str, Any]) -> Self | None:
        return None if saved["flow"] is None else cls(saved["flow"])

    def content(self) -> bytes:
        content: bytes = self.saved()["flow"]
        return content
