"""One step of what follows an encoder: a fitted transform, which can be applied, saved and folded.

A new step is a class in a separate file next to its transform, and a row of `STEPS` in `postprocessing.py`. It needs
`kind`, `noun`, `apply`, `saved` and `of_saved`. By default it is not linear: then nothing can be fitted after it, other
formats refuse it, and cosines cannot be explained.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from isosent.role import Role

if TYPE_CHECKING:
    from isosent.numeric.linear_map import LinearMap
    from isosent.numeric.moments import Moments

Rows = NDArray[np.floating]
Parse = Callable[[bytes], Any]


class Step:
    """What a step says of itself; it never changes."""

    kind: ClassVar[str]  # in messages and in the fingerprint
    noun: ClassVar[str]  # what it is called after an article or without one, such as "a flow"
    is_linear: ClassVar[bool] = False  # whether it maps each row linearly, but for its length
    has_roles: bool = False  # whether queries are treated in another way than documents
    streams: bool = False  # whether moments go through it; else nothing can be fitted after it
    # fields of ``model.json`` that name a file: how its content is read, and what it must hold, in words
    files: ClassVar[Mapping[str, tuple[Parse, str]]] = {}
    values: ClassVar[Mapping[str, Any]] = {}  # other fields, with their types
    # fields that ``model.json`` has had since version 0.1, also without such a step. A new step leaves this empty:
    # folders of earlier versions lack its fields
    first_fields: ClassVar[Mapping[str, Any]] = {}

    @property
    def dim(self) -> int | None:
        """Dimensions of the rows that it takes; None if any number is accepted, and a zero row stays zero."""
        return None

    @property
    def n_components(self) -> int | None:
        """Dimensions of the rows that it returns; None if these are as many."""
        return self.dim

    def apply(self, rows: Rows, role: Role) -> Rows:
        """Apply it to rows (n_rows, dim); what a zero row becomes is of no account."""
        raise NotImplementedError

    def then(self, step: Step) -> Step | None:
        """One step for this one and another that follows it; None if they stay two."""
        return None

    def moments(self, moments: Moments, role: Role) -> Moments:
        """Moments of the rows that it returns, from those of the rows that it takes, if it streams."""
        raise NotImplementedError

    def map_of(self, role: Role) -> LinearMap | None:
        """The map of a role, if it is one."""
        return None

    def saved(self) -> dict[str, Any]:
        """Its fields of ``model.json``: content of `files`, and JSON values."""
        return {}

    @classmethod
    def of_saved(cls, saved: Mapping[str, Any]) -> Self | None:
        """The step that was saved, from what its files hold and from its other fields; None if there is none."""
        raise NotImplementedError

    def content(self) -> bytes:
        """What the fingerprint of a space is computed from."""
        saved = self.saved()
        files = b"".join(saved.pop(name) for name in self.files if name in saved)
        return self.kind.encode() + files + json.dumps(saved, sort_keys=True).encode()

    def facts(self) -> dict[str, Any]:
        """What people and result files are told of it, as JSON values."""
        return {}
