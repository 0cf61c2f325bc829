"""Word vectors converted to a file of safetensors that opens at once, by hand or in the cache of the user."""

from __future__ import annotations

import hashlib
import json
import mmap
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.errors import CacheWarning, FileFormatError, InputError, OutputError
from isosent.io.atomic import replacing, user_cache
from isosent.io.checksum import UNSEALED, check_unchanged, file_checksum, file_state, seal_file, verify_file
from isosent.io.json import parse_json
from isosent.io.tensors import SEAL, TENSOR_TYPES, map_tensors
from isosent.words.fasttext import NgramTable
from isosent.words.formats import FilePlace, Numbers, RowBlock, Scales, WordCollector, decoded, encoded
from isosent.words.vocabulary import Vocabulary

FORMAT = "isosent-word-vectors"
VERSION = "1"
_HEADER_BYTES = 4096
_HEADER_BYTES_OF_A_TABLE = 512
_METADATA = frozenset({"format", "version", "ngrams", "content_hash", SEAL})
_BLOCK_ROWS = 1 << 14
_NGRAMS = list[tuple[int, int, int]]
_OF_WORDS = ("characters", "offsets", "slots")
_KINDS = {np.dtype(dtype): kind for kind, dtype in TENSOR_TYPES.items()}


class FileRows(NamedTuple):
    """A file of word vectors, opened."""

    format: str
    blocks: Iterable[RowBlock]  # to be read once
    tables: tuple[NgramTable, ...] = ()  # of n-grams; empty where it has none


@dataclass(frozen=True, slots=True, eq=False)
class StoredVectors:
    """Words, what is stored for each, and for the n-grams of others."""

    vocabulary: Vocabulary  # the words
    vectors: Numbers  # what is stored for each
    scales: Scales | None  # those of int8
    tables: tuple[NgramTable, ...]  # vectors of n-grams; empty where there are none

    def content_hash(self) -> str:
        """Hash words and stored numbers."""
        digest = hashlib.sha256(json.dumps(_settings(self.tables)).encode())
        tables = chain.from_iterable((table.numbers, table.scales) for table in self.tables)
        for array in (self.vocabulary.characters, self.vocabulary.offsets, self.vectors, self.scales, *tables):
            if array is not None:
                little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
                digest.update(f"{little.dtype.str} {little.shape}".encode())
                digest.update(little.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def blocks(self) -> Iterable[RowBlock]:
        """Yield the rows as they come from a file."""
        characters, offsets = self.vocabulary.characters, self.vocabulary.offsets
        for start in range(0, len(self.vocabulary), _BLOCK_ROWS):
            bounds = offsets[start : start + _BLOCK_ROWS + 1]
            text = characters[bounds[0] : bounds[-1]].tobytes()
            ends = (bounds - bounds[0]).tolist()
            words = [text[first:last] for first, last in pairwise(ends)]
            yield RowBlock(words, decoded(self.vectors, self.scales, slice(start, start + _BLOCK_ROWS)))


def write_vector_file(path: Path, where: str, rows: FileRows, dtype: str = "float32") -> int:
    """Write word vectors, block by block."""
    words = WordCollector(where)
    all_scales: dict[str, list[Scales]] = {}
    with path.open("w+b") as file:
        tensors = _TensorWriter(file, _HEADER_BYTES + _HEADER_BYTES_OF_A_TABLE * len(rows.tables))

        def append(name: str, vectors: NDArray[np.float32]) -> None:
            numbers, scales = encoded(where, vectors, dtype)
            tensors.append(name, numbers)
            if scales is not None:
                all_scales.setdefault(f"{name}.scales", []).append(scales)

        for block in rows.blocks:
            words.add(block)
            append("vectors", block.vectors)
        vocabulary, kept = words.finish()
        if kept is not None:
            tensors.keep_rows("vectors", kept)
        for number, table in enumerate(rows.tables):
            for start in range(0, len(table.numbers), _BLOCK_ROWS):
                append(f"ngrams.{number}", decoded(table.numbers, table.scales, slice(start, start + _BLOCK_ROWS)))
        for name, parts in all_scales.items():
            scales = np.concatenate(parts)
            tensors.append(name, scales[kept] if name == "vectors.scales" and kept is not None else scales)
        for name in _OF_WORDS:
            tensors.append(name, getattr(vocabulary, name))
        metadata = {"format": FORMAT, "version": VERSION, "ngrams": json.dumps(_settings(rows.tables)), SEAL: UNSEALED}
        tensors.write_header(metadata)
        metadata["content_hash"] = _stored(path, metadata).content_hash()
        tensors.write_header(metadata)
    seal_file(path, _seal_at(path, UNSEALED), file_checksum(path))
    return len(vocabulary)


def open_vector_file(path: Path) -> tuple[StoredVectors, str]:
    """Open what `write_vector_file` wrote: its bytes are read once, to compare their checksum, and none are kept."""
    state = file_state(path)
    metadata = map_tensors(path)[1]
    if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
        raise FileFormatError(
            f"{path} must be word vectors that isosent words convert wrote, version {VERSION}; it is another "
            ".safetensors file. A folder of Model2Vec is written static:DIR, a transformer hf:DIR."
        )
    if unknown := sorted(metadata.keys() - _METADATA):
        raise FileFormatError(f"{path} is damaged: its metadata has an unknown field {unknown[0]!r}.")
    if SEAL in metadata:  # files from before checksums have none
        verify_file(path, metadata[SEAL], _seal_at(path, metadata[SEAL]), state)
    stored = _stored(path, metadata)
    check_unchanged(path, state)
    return stored, metadata.get("content_hash", "")


def _seal_at(path: Path, seal: str) -> int:
    """Byte of a file at which its header holds its own checksum."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return 8 + file.read(length).find(f'"{SEAL}": "{seal}"'.encode()) + len(f'"{SEAL}": "')


def _settings(tables: tuple[NgramTable, ...]) -> list[list[int]]:
    return [[*table.lengths, table.first_column] for table in tables]


def _stored(path: Path, metadata: dict[str, str]) -> StoredVectors:
    tensors = {name: tensor.array for name, tensor in map_tensors(path)[0].items()}
    try:
        vocabulary = Vocabulary(*(np.require(tensors[name], requirements="A") for name in _OF_WORDS))
        str(vocabulary.characters.data, "utf-8")  # words are decoded later, one by one
        tables = tuple(
            NgramTable(tensors[f"ngrams.{number}"], tensors.get(f"ngrams.{number}.scales"), (shortest, longest), column)
            for number, (shortest, longest, column) in enumerate(parse_json(metadata["ngrams"], "ngrams", _NGRAMS))
        )
        stored = StoredVectors(vocabulary, tensors["vectors"], tensors.get("vectors.scales"), tables)
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise FileFormatError(f"{path} is damaged: {error}. Convert the vectors again.") from None
    n_words, needs_scales = len(vocabulary), stored.vectors.dtype == np.int8
    if stored.vectors.ndim != 2 or len(stored.vectors) != n_words or needs_scales != (stored.scales is not None):
        raise FileFormatError(f"{path} is damaged: vectors must be those of {n_words} words. Convert them again.")
    return stored


class _TensorWriter:
    """A .safetensors file that is written front to back, its header last."""

    def __init__(self, file: BinaryIO, header_bytes: int) -> None:
        self._file = file
        self._header_bytes = header_bytes
        self._entries: dict[str, dict[str, Any]] = {}
        file.seek(header_bytes)

    def append(self, name: str, rows: NDArray[Any]) -> None:
        """Add rows to a tensor, the last one or a new one."""
        at = self._file.tell() - self._header_bytes
        fresh = {"dtype": _KINDS[rows.dtype], "shape": [0, *rows.shape[1:]], "data_offsets": [at, at]}
        entry = self._entries.setdefault(name, fresh)
        self._file.write(np.ascontiguousarray(rows, dtype=TENSOR_TYPES[entry["dtype"]]).data)
        entry["shape"][0] += len(rows)
        entry["data_offsets"][1] += rows.nbytes

    def keep_rows(self, name: str, rows: NDArray[np.int64]) -> None:
        """Leave out all but some rows, rising, of the last tensor."""
        self._file.flush()
        entry = self._entries[name]
        dtype, shape = np.dtype(TENSOR_TYPES[entry["dtype"]]), tuple(entry["shape"])
        start = self._header_bytes + entry["data_offsets"][0]
        with mmap.mmap(self._file.fileno(), 0) as mapped:
            stored: NDArray[Any] = np.ndarray(shape, dtype, buffer=mapped, offset=start)
            for first in range(0, len(rows), _BLOCK_ROWS):
                block = stored[rows[first : first + _BLOCK_ROWS]]
                stored[first : first + len(block)] = block
            row_bytes = stored[:1].nbytes
            del stored
        entry["shape"][0] = len(rows)
        entry["data_offsets"][1] = entry["data_offsets"][0] + len(rows) * row_bytes
        self._file.seek(self._header_bytes + entry["data_offsets"][1])
        self._file.truncate()

    def write_header(self, metadata: dict[str, str]) -> None:
        header = json.dumps({"__metadata__": metadata, **self._entries}).encode()
        length = self._header_bytes - 8
        self._file.seek(0)
        self._file.write(length.to_bytes(8, "little") + header.ljust(length))
        self._file.flush()


def open_cached(place: FilePlace) -> tuple[StoredVectors, str] | None:
    """Open the converted file of another one."""
    path = _cache_file(place)
    if not path.is_file():
        return None
    try:
        return open_vector_file(path)
    except (FileFormatError, OSError):
        return None


def write_cached(place: FilePlace, write: Callable[[Path], None]) -> None:
    """Convert a file into the cache, in place of what older states of it left there."""
    path = _cache_file(place)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(path) as temporary:
            write(temporary)
    except OutputError as error:
        warnings.warn(
            f"{place} is read whole each time, as it cannot be converted: {error} Set ISOSENT_CACHE to another folder.",
            CacheWarning,
            stacklevel=2,
        )
        return
    for older in path.parent.glob(f"{path.name.partition('-')[0]}-*"):
        if older.name != path.name:
            with suppress(OSError):
                older.unlink()


def _cache_file(place: FilePlace) -> Path:
    """A name made of where the file is and, behind a hyphen, of the state it is in."""
    state = place.path.stat()
    where, when = f"{place.path.resolve()}!{place.member}", f"{state.st_size} {state.st_mtime_ns} {VERSION}"
    hashes = [hashlib.sha256(part.encode("utf-8", "surrogateescape")).hexdigest()[:16] for part in (where, when)]
    return user_cache("word_vectors") / f"{'-'.join(hashes)}.safetensors"
