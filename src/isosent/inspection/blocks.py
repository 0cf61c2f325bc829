"""Vectors that can be read block by block, from a file or from memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

_BLOCK_ROWS = 8192


class VectorBlocks(Protocol):
    """What `survey` reads; a `VectorSource` is one."""

    @property
    def n_rows(self) -> int:
        """Vectors in all."""
        ...

    @property
    def dim(self) -> int:
        """Their dimensions."""
        ...

    @property
    def dtype(self) -> str:
        """Name of the type that their numbers came in."""
        ...

    @property
    def eps(self) -> float | None:
        """Relative rounding of that type, 0 for integers; None for that of the arrays' own type."""
        ...

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Read them in their order, as arrays of shape (n, dim)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ArrayBlocks:
    """An array, block by block.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, dim), any real dtype
        The vectors.
    """

    rows: NDArray[Any]

    @property
    def n_rows(self) -> int:
        """Vectors in all."""
        return len(self.rows)

    @property
    def dim(self) -> int:
        """Their dimensions."""
        return int(self.rows.shape[1])

    @property
    def dtype(self) -> str:
        """Name of the type of their numbers."""
        return self.rows.dtype.name

    @property
    def eps(self) -> None:
        """The rounding of the array's own type."""
        return None

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Read them in their order.

        Yields
        ------
        ndarray of shape (n, dim)
            Views of the array.
        """
        for start in range(0, len(self.rows), _BLOCK_ROWS):
            yield self.rows[start : start + _BLOCK_ROWS]
