"""FAISS files: written with a checksum, read within limits, and checked before FAISS reads those of an index.

FAISS trusts its files: sizes that do not fit, links to rows that there are not, or a kind of index where another one is
expected end in a crash, or in memory that is not its own. An index of isosent is one of eleven kinds, and its manifest
says which, so that every size in the file is known. The layout is that of ``faiss/impl/index_write.cpp``, releases 1.12
to 1.15: a code of four letters, then the fields of the class, where a vector is its length and its items.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent._locks import Lock
from isosent.errors import FileFormatError
from isosent.io.checksum import HashingFile
from isosent.io.system import system_error, uninterrupted
from isosent.search.engine import FACTORS_BYTES, SearchSettings, code_width, without_front
from isosent.storage import Storage
from isosent.transforms.quantization import CODE_BITS, N_CENTROIDS, PARTS_A_BYTE

_INNER_PRODUCT: Final = 0
_SCALARS: Final = {Storage.float16: 4, Storage.int8: 0}  # faiss::ScalarQuantizer::QuantizerType
_MOST_LINKS: Final = 1 << 12  # of a node on a layer
_BLOCK_LINKS: Final = 1 << 22
_READING: Final = Lock()


def write_codes(index: Any, path: Path) -> str:
    """Write an index, and return the checksum of the file."""
    # through a Python file: FAISS's own writer reports no full disk
    faiss = _extras.require("faiss")
    with path.open("wb") as file:
        hashing = HashingFile(file)
        faiss.write_index(index, faiss.PyCallbackIOWriter(hashing.write, 1 << 20))
        file.flush()
    return hashing.checksum


def write_blocks(index: Any, blocks: Iterable[NDArray[np.float32]], n_rows: int, path: Path) -> str:
    """Write a flat index of so many rows, which are never all in memory, and return the checksum; `index` is empty."""
    faiss = _extras.require("faiss")
    codes = without_front(index)
    header = bytearray(faiss.serialize_index(index))
    # the rows are counted in the header of each part, and their codes, with which the file ends, before these
    for start in {0, len(header) - len(faiss.serialize_index(codes))}:
        struct.pack_into("<q", header, start + struct.calcsize("<4si"), n_rows)
    n_items = n_rows * codes.code_size // (4 if isinstance(codes, faiss.IndexFlat) else 1)
    struct.pack_into("<Q", header, len(header) - struct.calcsize("<Q"), n_items)
    with path.open("wb") as file:
        hashing = HashingFile(file)
        hashing.write(bytes(header))
        for block in blocks:
            hashing.write(index.sa_encode(block).data)
        file.flush()
    return hashing.checksum


def read_codes(path: str | os.PathLike[str], dim: int, *, in_memory: bool = False) -> Any:
    """Open an index of so many dimensions by memory map, or read it into memory."""
    faiss = _extras.require("faiss")
    # FAISS counts a square of the dimensions for each transform, even for those that are a number or a list
    n_bytes = Path(path).stat().st_size + 4 * code_width(dim, Storage.int8) ** 2
    try:
        with _limits(faiss, n_bytes):
            flags = 0 if in_memory else faiss.IO_FLAG_MMAP_IFC
            return uninterrupted(lambda: faiss.read_index(os.fspath(path), flags))
    except (RuntimeError, MemoryError) as error:
        if unreadable := system_error(error, path):
            raise unreadable from None
        reason = (str(error).splitlines() or ["it is larger than the memory"])[-1].rpartition(" failed: ")[2]
        raise FileFormatError(f"{path} is not a FAISS index, or is damaged: {reason}") from None


@contextmanager
def _limits(faiss: Any, n_bytes: int) -> Iterator[None]:
    """Have FAISS refuse vectors and loops that are longer than a file."""
    limits = {"vector_byte": n_bytes, "loop": n_bytes, "lattice_r2": 1}  # isosent writes no lattice
    with _READING:  # the limits are those of the process
        before = {}
        for name, limit in limits.items():
            if hasattr(faiss, f"set_deserialization_{name}_limit"):  # not in FAISS 1.12
                before[name] = getattr(faiss, f"get_deserialization_{name}_limit")()
                getattr(faiss, f"set_deserialization_{name}_limit")(limit)
        try:
            yield
        finally:
            for name, limit in before.items():
                getattr(faiss, f"set_deserialization_{name}_limit")(limit)


# -- what a file of an index must hold ---------------------------------------------------------------------------------


class _UnsoundError(ValueError):
    """What is wrong with a file, as the end of a sentence."""


def check_codes(path: Path, n_rows: int, dim: int, settings: SearchSettings, *, has_map: bool) -> None:
    """Refuse a file that is not an index of so many rows, of the kind and number type of the settings."""
    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise _UnsoundError("it is empty")
            reader = _Reader(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), n_rows)
        if has_map:
            reader.map_and_scaling(dim)
        reader.codes(dim, settings)
        reader.end()
    except _UnsoundError as error:
        raise FileFormatError(
            f"{path} does not hold {n_rows} x {dim} codes, {settings.kind} and {settings.store}, as isosent writes "
            f"them: {error}. Make the index again."
        ) from None


class _Reader:
    """A FAISS file, front to back."""

    def __init__(self, content: memoryview, n_rows: int) -> None:
        self._content, self.n_rows, self._place = content, n_rows, 0

    # -- fields ------------------------------------------------------------------------------------------------------

    def _bytes(self, n_bytes: int) -> memoryview:
        start, self._place = self._place, self._place + n_bytes
        if self._place > len(self._content):
            raise _UnsoundError(f"it ends before byte {self._place}")
        return self._content[start : self._place]

    def _fields(self, kinds: str) -> tuple[Any, ...]:
        return struct.unpack("<" + kinds, self._bytes(struct.calcsize("<" + kinds)))

    def _expect(self, what: str, actual: object, *allowed: object) -> None:
        if actual not in allowed:
            raise _UnsoundError(f"its {what} is {actual!r:.40} at byte {self._place}")

    def _code(self, *allowed: str) -> str:
        code = bytes(self._bytes(4)).decode("latin-1")
        self._expect("kind", code, *allowed)
        return code

    def _vector(self, what: str, kind: str, length: int | None = None) -> NDArray[Any]:
        (n,) = self._fields("Q")
        if length is not None:
            self._expect(f"number of {what}", n, length)
        dtype = np.dtype(kind)
        return np.frombuffer(self._bytes(n * dtype.itemsize), dtype)

    def _skip_vector(self, what: str, itemsize: int, length: int) -> None:
        self._expect(f"number of {what}", self._fields("Q")[0], length)
        self._bytes(length * itemsize)

    def _header(self, dim: int | None, n_rows: int) -> int:
        """The fields of every index; returns its dimensions."""
        width, n, _, _, is_trained, metric = self._fields("iqqqBi")
        self._expect("number of dimensions", width, max(width, 1) if dim is None else dim)
        self._expect("number of rows", n, n_rows)
        self._expect("training", is_trained, 1)
        self._expect("metric", metric, _INNER_PRODUCT)
        return int(width)

    def end(self) -> None:
        """Nothing may follow."""
        if self._place != len(self._content):
            raise _UnsoundError(f"it goes on after byte {self._place}")

    # -- what comes before the codes -----------------------------------------------------------------------------------

    def map_and_scaling(self, dim: int) -> None:
        """The map of the model, if it has one, and the scaling to length 1."""
        self._code("IxPT")
        width = self._header(None, self.n_rows)
        (n_steps,) = self._fields("i")
        self._expect("number of steps", n_steps, 1, 2)
        if n_steps == 2:
            self._code("LTra")
            self._linear_transform(width, dim)
            width = dim
        self._expect("number of dimensions", width, dim)
        self._code("VNrm")
        self._fields("f")
        self._expect("scaling", self._fields("iiB"), (dim, dim, 1))

    def _linear_transform(self, width: int, dim: int) -> None:
        (has_bias,) = self._fields("B")
        self._expect("bias", has_bias, 0, 1)
        self._skip_vector("weights", 4, width * dim)
        self._skip_vector("biases", 4, dim * has_bias)
        self._expect("map", self._fields("iiB"), (width, dim, 1))

    def _padding(self, dim: int, width: int) -> None:
        """Zeros after the last dimension."""
        self._code("RmDT")
        places = self._vector("dimensions", "<i4", width)
        if not np.array_equal(places, [*range(dim), *[-1] * (width - dim)]):
            raise _UnsoundError(f"its dimensions are in another order at byte {self._place}")
        self._expect("padding", self._fields("iiB"), (dim, width, 1))

    # -- the codes ---------------------------------------------------------------------------------------------------

    def codes(self, dim: int, settings: SearchSettings) -> None:
        """Codes of a kind of index, after the rotation of bits or the zeros that other codes end with."""
        width = code_width(dim, settings.store)
        if settings.store.is_coarse or width > dim:
            self._code("IxPT")
            self._header(dim, self.n_rows)
            self._expect("number of steps", self._fields("i"), (1,))
            if settings.store is Storage.product:
                self._code("LTra")
                width = self._projection(dim, settings.code_bytes)
            elif settings.store.is_bits:
                self._code("LTra")
                self._linear_transform(dim, dim)
            else:
                self._padding(dim, width)
        match settings.kind:
            case "flat":
                self._flat(width, self.n_rows, settings.store, settings.code_bytes)
            case "ivf":
                self._clusters(width, settings)
            case _:
                self._code("IHNf" if settings.store is Storage.float32 else "IHNs")
                self._header(width, self.n_rows)
                self._graph()
                self._flat(width, self.n_rows, settings.store)

    def _flat(self, dim: int, n_rows: int, store: Storage, code_bytes: int = 0) -> None:
        self._code({Storage.float32: "IxFI", Storage.binary: "Ixrq", Storage.product: "IxPq"}.get(store, "IxSQ"))
        self._header(dim, n_rows)
        if store is Storage.product:
            self._codebooks(dim, code_bytes)
            self._skip_vector("bytes", 1, n_rows * code_bytes)
            self._expect("way of searching", self._fields("iB"), (0, 0))
            self._fields("i")
            return
        if store is Storage.float32:
            self._skip_vector("numbers", 4, n_rows * dim)
            return
        n_bytes = self._bits(dim) if store.is_bits else self._number_type(dim, store)
        self._skip_vector("bytes", 1, n_rows * n_bytes)
        if store.is_bits:
            self._skip_vector("means", 4, dim)
            self._query_bits()

    def _number_type(self, dim: int, store: Storage) -> int:
        """The fields of a scalar quantizer; returns the bytes of a code."""
        kind, ranges, _, width, n_bytes = self._fields("iifQQ")
        self._expect("dtype", kind, _SCALARS[store])
        self._expect("way of fitting ranges", ranges, 0, 1, 2, 3)
        self._expect("width", width, dim)
        self._expect("bytes of a code", n_bytes, store.n_bytes(dim))
        self._skip_vector("ranges", 4, 2 * dim if store is Storage.int8 else 0)
        return int(n_bytes)

    def _bits(self, dim: int) -> int:
        width, n_bytes, metric = self._fields("QQi")
        self._expect("width", width, dim)
        self._expect("bytes of a code", n_bytes, Storage.binary.n_bytes(dim) + FACTORS_BYTES)
        self._expect("metric", metric, _INNER_PRODUCT)
        return int(n_bytes)

    def _projection(self, dim: int, code_bytes: int) -> int:
        """The map before product codes; returns its dimensions, which the file may choose."""
        place, (_, n_weights) = self._place, self._fields("BQ")
        self._place = place
        width = n_weights // dim
        if not 1 <= width <= dim or width % (PARTS_A_BYTE * code_bytes):
            raise _UnsoundError(f"its map has {width} dimensions at byte {place}")
        self._linear_transform(dim, width)
        return int(width)

    def _codebooks(self, dim: int, code_bytes: int) -> None:
        self._expect("parts", self._fields("QQQ"), (dim, PARTS_A_BYTE * code_bytes, CODE_BITS))
        self._skip_vector("codebooks", 4, N_CENTROIDS * dim)

    def _query_bits(self) -> None:
        self._expect("bits of a query", self._fields("B")[0], *range(9))

    def _clusters(self, dim: int, settings: SearchSettings) -> None:
        """Kind ivf: centers, then the codes and the positions of the rows of each cluster."""
        codes = {Storage.float32: "IwFl", Storage.binary: "Iwrq", Storage.product: "IwPQ"}
        self._code(codes.get(settings.store, "IwSq"))
        self._header(dim, self.n_rows)
        n_lists, n_probe = self._fields("QQ")
        self._expect("number of clusters", n_lists, max(settings.n_lists, 1))
        if not 1 <= n_probe <= n_lists:
            raise _UnsoundError(f"it searches {n_probe} of {n_lists} clusters")
        self._flat(dim, n_lists, Storage.float32)
        self._expect("map of rows", self._fields("BQ"), (0, 0))
        n_bytes = settings.code_bytes or settings.store.n_bytes(dim)
        if settings.store is Storage.product:
            self._expect("codes", self._fields("BQ"), (0, n_bytes))  # of whole vectors, not of residuals
            self._codebooks(dim, n_bytes)
        elif settings.store is not Storage.float32:
            n_bytes = self._bits(dim) if settings.store.is_bits else self._number_type(dim, settings.store)
            self._expect("bytes of a code", self._fields("Q")[0], n_bytes)
            self._expect("residual", self._fields("B")[0], 0, 1)
            if settings.store.is_bits:
                self._query_bits()
        self._code("ilar")
        self._expect("clusters", self._fields("QQ"), (n_lists, n_bytes))
        if self._code("full", "sprs") == "full":
            sizes = self._vector("clusters", "<u8", n_lists)
        else:
            pairs = self._vector("clusters", "<u8").reshape(-1, 2) if self._is_even() else None
            if pairs is None or (pairs[:, 0] >= n_lists).any() or (np.diff(pairs[:, 0].astype(np.int64)) <= 0).any():
                raise _UnsoundError(f"its clusters are not numbered at byte {self._place}")
            sizes = pairs[:, 1]
        if (sizes > self.n_rows).any() or int(sizes.sum()) != self.n_rows:
            raise _UnsoundError(f"its clusters do not hold {self.n_rows} rows")
        is_listed = np.zeros(self.n_rows, bool)
        for size in sizes.tolist():
            self._bytes(size * n_bytes)
            positions = np.frombuffer(self._bytes(8 * size), "<i8")
            if ((positions < 0) | (positions >= self.n_rows)).any():
                raise _UnsoundError(f"it names rows beyond its {self.n_rows}")
            is_listed[positions] = True
        if not is_listed.all():
            raise _UnsoundError("it lacks a row in its clusters")

    def _is_even(self) -> bool:
        """Whether the vector that follows has an even length."""
        place, (n,) = self._place, self._fields("Q")
        self._place = place
        return bool(n % 2 == 0)

    def _graph(self) -> None:
        """Kind hnsw: the layers of each row, and its neighbors on them."""
        n_layers = len(self._vector("layers", "<f8"))
        starts = self._vector("layers", "<i4", n_layers + 1).astype(np.int64)  # of a layer in the links of a node
        if not n_layers or starts[0] or ((widths := np.diff(starts)) <= 0).any() or (widths > _MOST_LINKS).any():
            raise _UnsoundError("its layers have no links, or too many")
        levels = self._vector("rows", "<i4", self.n_rows)
        offsets = self._vector("rows", "<u8", self.n_rows + 1)
        if ((levels < 1) | (levels > n_layers)).any():
            raise _UnsoundError(f"its rows are on more than {n_layers} layers")
        if offsets[0] or (np.diff(offsets) != starts[levels].astype(np.uint64)).any():
            raise _UnsoundError("its links do not fit its layers")
        links = self._vector("links", "<i4", int(offsets[-1]))
        for start in range(0, len(links), _BLOCK_LINKS):
            block = links[start : start + _BLOCK_LINKS]
            if ((block < -1) | (block >= self.n_rows)).any():
                raise _UnsoundError(f"it names rows beyond its {self.n_rows}")
        for layer in range(1, int(levels.max(initial=1))):  # a neighbor on a layer must have links there
            nodes = np.flatnonzero(levels > layer)
            places = offsets[nodes].astype(np.int64)[:, None] + np.arange(starts[layer], starts[layer + 1])
            neighbors = links[places]
            if (levels[neighbors[neighbors >= 0]] <= layer).any():
                raise _UnsoundError("it links to rows on a layer that they are not on")
        entry, top, _, _, _ = self._fields("iiiii")
        is_sound = (entry, top) == (-1, -1)
        if self.n_rows:
            is_sound = 0 <= entry < self.n_rows and levels[entry] == top + 1
        if not is_sound:
            raise _UnsoundError("its search begins at no row")
