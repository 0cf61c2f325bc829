"""Storage: which numbers vectors are computed in, written as, encoded as and searched in; named in this module only.

A `Storage` is its name, as people type it and files hold it, and knows the facts of it: the bytes, how exact they are,
and how they become numbers again. The tuples below say where each may be used. A new one is a member here, with what
`decoded` does where numpy has none of it, and its name in these tuples; then files of safetensors, or of numpy and
parquet, are read. What makes the numbers is next to the rest of its kind (`Quantization` for codes, `empty_codes` of
`search/engine.py` for FAISS).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray


class Storage(StrEnum):
    """A way to store the numbers of a vector."""

    stored: np.dtype[np.generic]  # numpy's type of the bytes, little-endian; numpy has no bfloat16
    eps: float  # relative rounding, the gap between 1 and the next value; 0 for integers, which are exact
    tensor: str  # its name in a file of safetensors, if it has one

    float16 = "float16", "<f2", 2.0**-10, "F16"
    bfloat16 = "bfloat16", "<u2", 2.0**-7, "BF16"  # the upper half of a float32
    float32 = "float32", "<f4", 2.0**-23, "F32"
    float64 = "float64", "<f8", 2.0**-52, "F64"
    int8 = "int8", "<i1", 0.0, "I8"  # in a file that says no more, numbers; otherwise codes of a `Quantization`
    uint8 = "uint8", "<u1", 0.0, "U8"
    ubinary = "ubinary", "<u1"  # packed bits, in files and in memory
    binary = "binary", "<u1"  # the same bits in an index
    product = "product", "<u1"  # in an index: half bytes that name one of 16 vectors of a part of the dimensions

    def __new__(cls, name: str, stored: str = "", eps: float = 0.0, tensor: str = "") -> Storage:
        """Make a string with facts; ``Storage(name)`` finds it."""
        member = str.__new__(cls, name)
        member._value_, member.stored, member.eps, member.tensor = name, np.dtype(stored), eps, tensor
        return member

    def __repr__(self) -> str:
        return repr(self.value)

    @property
    def is_float(self) -> bool:
        """Whether each number stands for itself, rounded; codes need the ranges or the rotation of a quantization."""
        return self.eps > 0

    @property
    def is_bits(self) -> bool:
        """Whether a byte holds eight dimensions."""
        return self in (Storage.ubinary, Storage.binary)

    @property
    def is_coarse(self) -> bool:
        """Whether codes in an index only find candidates, which a finer copy on disk puts in order."""
        return self in (Storage.binary, Storage.product)

    @property
    def codes(self) -> Storage:
        """What holds the same codes outside an index."""
        return Storage.ubinary if self.is_bits else self

    def width(self, dim: int) -> int:
        """Stored items of a vector: a byte per eight dimensions, or an item for each."""
        return -(-dim // 8) if self.is_bits else dim

    def n_bytes(self, dim: int) -> int:
        """Bytes of a vector."""
        return self.width(dim) * self.stored.itemsize

    @property
    def is_numpy(self) -> bool:
        """Whether numpy has numbers of this type, and calculates with them as they are stored."""
        return self.stored.name == self.value

    @property
    def decoded_bytes(self) -> int:
        """Bytes of one number, as `decoded` returns it."""
        return 4 if self.is_float and not self.is_numpy else self.stored.itemsize

    def decoded(self, rows: NDArray[np.generic]) -> NDArray[np.generic]:
        """Convert stored rows to numbers that numpy can calculate with."""
        if self is Storage.bfloat16:
            return (rows.astype(np.uint32) << 16).view(np.float32)
        return rows.astype(rows.dtype.newbyteorder("="), copy=False)


_S = Storage
NUMPY: Final = tuple(storage for storage in Storage if storage.is_numpy)  # of arrays in memory and in files
TENSORS: Final = tuple(storage for storage in Storage if storage.tensor)  # of files of safetensors
WRITTEN: Final = (_S.float32, _S.float16)  # to files and shards; which format holds which is in `isosent.io.formats`
CODES: Final = (_S.int8, _S.ubinary)  # of a `Quantization`
ENCODED: Final = (_S.float32, *CODES)  # precisions of `SentenceEncoder.encode`
INDEXED: Final = (_S.float32, _S.float16, _S.int8, _S.binary, _S.product)  # finest first
COMPUTED: Final = (_S.float32, _S.bfloat16, _S.float16, _S.int8)  # by the layers of a network
TRAINED: Final = (_S.float32, _S.bfloat16)

# as they are typed in Python
Codes = Storage | Literal["int8", "ubinary"]
Precision = Storage | Literal["float32", "int8", "ubinary"]
IndexStorage = Storage | Literal["float32", "float16", "int8", "binary", "product"]
