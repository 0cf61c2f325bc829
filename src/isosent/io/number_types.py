"""The number types that vectors come in, and how each is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DTYPES = ("float32", "float16")  # those that vectors are written in


@dataclass(frozen=True, slots=True)
class NumberType:
    """How one number of a vector lies in a file."""

    name: str  # its name, as numpy or, for bfloat16, everybody else spells it
    eps: float  # relative rounding of its values, the gap between 1 and the next one; 0 for integers, which are exact

    @property
    def stored(self) -> np.dtype[np.generic]:
        """The numpy type of the bytes in a file, little-endian; numpy itself has no bfloat16."""
        return np.dtype(np.uint16 if self.name == "bfloat16" else self.name).newbyteorder("<")

    @property
    def size_bytes(self) -> int:
        """Bytes of one number, as it comes out of `decoded`."""
        return 4 if self.name == "bfloat16" else self.stored.itemsize

    def decoded(self, rows: NDArray[np.generic]) -> NDArray[np.generic]:
        """Make rows that numpy can calculate with."""
        if self.name == "bfloat16":
            return (rows.astype(np.uint32) << 16).view(np.float32)
        return rows.astype(rows.dtype.newbyteorder("="), copy=False)


NUMBER_TYPES = {
    number_type.name: number_type
    for number_type in (
        NumberType("float16", 2.0**-10),
        NumberType("bfloat16", 2.0**-7),
        NumberType("float32", 2.0**-23),
        NumberType("float64", 2.0**-52),
        NumberType("int8", 0.0),
        NumberType("uint8", 0.0),
    )
}
