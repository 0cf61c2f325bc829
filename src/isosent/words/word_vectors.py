"""Word vectors: read from files of any format, and converted to one that opens at once.

`read_word_vectors` reads each file (`_read_file`): a converted one is mapped (`open_vector_file`), a large one comes
from the cache of the user, where it is converted once (`write_cached`), and any other is parsed block by block
(`open_rows` of `formats`). Several files are joined word by word (`_concatenated`). `convert_word_vectors` writes what
any of these ways yields with `write_vector_file`: a .safetensors file of vectors, vocabulary and n-grams, whose header
is written last and holds the hash of the content and the checksum of the file.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import CacheWarning, FileFormatError, InputError, OutputError
from isosent.io.atomic import replacing, user_cache
from isosent.io.checksum import UNSEALED, check_unchanged, file_checksum, file_state, seal_file, verify_file
from isosent.io.json import parse_json
from isosent.io.system import open_to_read
from isosent.io.tensors import SEAL, TENSOR_TYPES, map_tensors, safetensors_header
from isosent.pages.progress import Progress, counted, part_of
from isosent.words.blocks import RowBlock, WordCollector, in_memory
from isosent.words.formats import FileRows, is_safetensors, open_rows
from isosent.words.ngrams import NgramTable, vectors_of_unknown
from isosent.words.vocabulary import Vocabulary, first_rows, read_wanted_words, take_words

_CACHED_FROM_BYTES = 64 << 20
_READER = "b"  # another letter where files are read differently: 0.1.0 misread binary words with blanks
_BLOCK_WORDS = 4096


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """Words and their vectors, and those of the n-grams of other words."""

    vocabulary: Vocabulary
    vectors: NDArray[np.float32]  # (vocab_size, dim), finite; may be mapped from a file
    tables: tuple[NgramTable, ...] = ()  # of n-grams, for unknown words; empty if the files have none
    # SHA-256 of words and numbers, the same whether read from a file or from the cache; "" where it is not yet known
    content_hash: str = ""

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        return int(self.vectors.shape[1])

    def vectors_of_unknown(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of words that are not in the vocabulary, (n_words, dim), made of their n-grams."""
        return vectors_of_unknown(self.tables, words, self.dim)

    def with_hash(self) -> WordVectors:
        """The same with the hash of words and vectors, which is computed if it is not known."""
        if self.content_hash:
            return self
        digest = hashlib.sha256(json.dumps(_settings(self.tables)).encode())
        arrays: list[NDArray[Any]] = [self.vocabulary.characters, self.vocabulary.offsets, self.vectors]
        for array in [*arrays, *(table.vectors for table in self.tables)]:
            little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            digest.update(f"{little.dtype.str} {little.shape}".encode())
            digest.update(little.reshape(-1).view(np.uint8).data)
        return replace(self, content_hash=digest.hexdigest())

    def blocks(self) -> Iterable[RowBlock]:
        """Yield the rows as they come from a file."""
        characters, offsets = self.vocabulary.characters, self.vocabulary.offsets
        for start in range(0, len(self.vocabulary), _BLOCK_ROWS):
            bounds = offsets[start : start + _BLOCK_ROWS + 1]
            text = characters[bounds[0] : bounds[-1]].tobytes()
            ends = (bounds - bounds[0]).tolist()
            words = [text[first:last] for first, last in pairwise(ends)]
            yield RowBlock(words, self.vectors[start : start + _BLOCK_ROWS])


def read_word_vectors(
    paths: Sequence[str | os.PathLike[str]],
    *,
    vocabulary: Iterable[str] | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    cache: bool = True,
) -> WordVectors:
    """Read word vectors from one file, or concatenate those of several word by word."""
    files = [_check.input_file(path) for path in paths]
    wanted = None if vocabulary is None else read_wanted_words(vocabulary)
    vectors = _read_all(files, wanted, progress, cache)
    _check_some(len(vectors.vocabulary), files, wanted)
    return vectors.with_hash()


def convert_word_vectors(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    vocabulary: Iterable[str] | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> WordVectors:
    """Write word vectors as a file that opens at once, through a memory map."""
    files = [_check.input_file(path) for path in paths]
    wanted = None if vocabulary is None else read_wanted_words(vocabulary)
    where = ", ".join(map(str, files))
    with replacing(output) as temporary:
        if len(files) == 1 and not is_safetensors(files[0]):
            with open_rows(files[0], wanted, progress) as rows:
                n_words = write_vector_file(temporary, where, rows)
        else:
            stored = _read_all(files, wanted, progress, cache=True)
            rows = FileRows("isosent safetensors", stored.blocks(), stored.tables)
            n_words = write_vector_file(temporary, where, rows)
        _check_some(n_words, files, wanted)
    return read_word_vectors([output])


def _check_some(n_words: int, files: Sequence[Path], wanted: Vocabulary | None) -> None:
    if not n_words:
        words = "word in UTF-8" if wanted is None else "word of the vocabulary"
        raise InputError(f"{', '.join(map(str, files))}: there is no {words}.")


def _read_all(files: Sequence[Path], wanted: Vocabulary | None, progress: Progress | None, cache: bool) -> WordVectors:
    """What the files hold together."""
    sizes = [path.stat().st_size for path in files]
    pieces: list[WordVectors] = []
    for path in counted(files, progress, sum(sizes), lambda path: sizes[len(pieces)]):
        pieces.append(_read_file(path, wanted, part_of(progress, sum(sizes[: len(pieces)]), sum(sizes)), cache))
    return pieces[0] if len(pieces) == 1 else _concatenated(pieces)


def _read_file(path: Path, wanted: Vocabulary | None, progress: Progress | None, cache: bool) -> WordVectors:
    """What a file holds."""
    if is_safetensors(path):
        stored = open_vector_file(path)
    else:
        cached = _read_cached(path, wanted, progress) if cache else None
        if cached is None:
            with open_rows(path, wanted, progress) as rows:
                return WordVectors(*in_memory(str(path), rows.blocks), rows.tables)
        stored = cached
    return stored if wanted is None else _only(stored, wanted)


def _read_cached(path: Path, wanted: Vocabulary | None, progress: Progress | None) -> WordVectors | None:
    """What a large file holds, from the cache, or None; all of it is converted where that was not done yet."""
    if path.stat().st_size < _CACHED_FROM_BYTES:
        return None
    cached = open_cached(path)
    if cached is None and wanted is None:
        write_cached(path, progress)
        cached = open_cached(path)
    return cached


def _only(stored: WordVectors, wanted: Vocabulary) -> WordVectors:
    """The words that are wanted, in memory."""
    characters, offsets, _ = stored.vocabulary.arrays
    rows = np.flatnonzero(wanted.ids_of_spans(characters, offsets[:-1], offsets[1:]) >= 0)
    return WordVectors(stored.vocabulary.take(rows), stored.vectors[rows], stored.tables)


def _concatenated(pieces: Sequence[WordVectors]) -> WordVectors:
    vocabulary = _union([part.vocabulary for part in pieces])
    bounds = np.cumsum([0, *(part.vectors.shape[1] for part in pieces)]).tolist()
    vectors = np.zeros((len(vocabulary), bounds[-1]), dtype=np.float32)
    tables: list[NgramTable] = []
    for part, (first, last) in zip(pieces, pairwise(bounds), strict=True):
        characters, offsets, _ = part.vocabulary.arrays
        ids = vocabulary.ids_of_spans(characters, offsets[:-1], offsets[1:])
        vectors[ids, first:last] = part.vectors
        if part.tables:
            lacking = np.setdiff1d(np.arange(len(vocabulary)), ids)
            for rows in np.array_split(lacking, len(lacking) // _BLOCK_WORDS + 1):
                vectors[rows, first:last] = part.vectors_of_unknown([vocabulary[row] for row in rows])
        tables += [replace(table, first_column=first + table.first_column) for table in part.tables]
    return WordVectors(vocabulary, vectors, tuple(tables))


def _union(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """All words, in the order of the first that has them."""
    characters = np.concatenate([vocabulary.characters for vocabulary in vocabularies])
    lengths = np.concatenate([np.diff(vocabulary.offsets) for vocabulary in vocabularies])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Vocabulary.from_bytes(*take_words(characters, offsets, first_rows(characters, offsets)))


# -- the converted file, by hand or in the cache of the user ---------------------------------------------------------


FORMAT = "isosent-word-vectors"
VERSION = "1"
_HEADER_BYTES = 4096
_HEADER_BYTES_OF_A_TABLE = 512
_METADATA = frozenset({"format", "version", "ngrams", "content_hash", SEAL})
_BLOCK_ROWS = 1 << 14
_NGRAMS = list[tuple[int, int, int]]
_OF_WORDS = ("characters", "offsets", "slots")
_KINDS = {np.dtype(dtype): kind for kind, dtype in TENSOR_TYPES.items()}


def write_vector_file(path: Path, where: str, rows: FileRows) -> int:
    """Write word vectors, block by block."""
    words = WordCollector(where)
    with path.open("w+b") as file:
        tensors = _TensorWriter(file, _HEADER_BYTES + _HEADER_BYTES_OF_A_TABLE * len(rows.tables))
        for block in rows.blocks:
            words.add(block)
            tensors.append("vectors", block.vectors)
        vocabulary, rows_kept = words.finish()
        if rows_kept is not None:
            tensors.keep_rows("vectors", rows_kept)
        for number, table in enumerate(rows.tables):
            for start in range(0, len(table.vectors), _BLOCK_ROWS):
                tensors.append(f"ngrams.{number}", table.vectors[start : start + _BLOCK_ROWS])
        for name in _OF_WORDS:
            tensors.append(name, getattr(vocabulary, name))
        metadata = {"format": FORMAT, "version": VERSION, "ngrams": json.dumps(_settings(rows.tables)), SEAL: UNSEALED}
        tensors.write_header(metadata)
        metadata["content_hash"] = _words_in_tensors(path, metadata).with_hash().content_hash
        tensors.write_header(metadata)
    seal_file(path, _seal_at(path, UNSEALED), file_checksum(path))
    return len(vocabulary)


def is_saved_table(path: Path) -> bool:
    """Whether a file is what `write_vector_file` wrote, of any version."""
    return is_safetensors(path) and safetensors_header(path)[1].get("format") == FORMAT


def open_vector_file(path: Path) -> WordVectors:
    """Open what `write_vector_file` wrote: its bytes are read once, to compare their checksum, and none are kept."""
    state = file_state(path)
    metadata = map_tensors(path)[1]
    if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
        raise FileFormatError(
            f"{path} is a .safetensors file, but no word vectors that isosent words convert wrote. A folder of "
            "Model2Vec is written static:DIR, a transformer hf:DIR."
        )
    if unknown := sorted(metadata.keys() - _METADATA):
        raise FileFormatError(f"{path} is damaged: its metadata has an unknown field {unknown[0]!r}.")
    seal = metadata.get(SEAL, UNSEALED)
    verify_file(path, seal, _seal_at(path, seal), state)
    stored = _words_in_tensors(path, metadata)
    check_unchanged(path, state)
    return replace(stored, content_hash=metadata.get("content_hash", ""))


def _seal_at(path: Path, seal: str) -> int:
    """Byte of a file at which its header holds its own checksum."""
    with open_to_read(path) as file:
        length = int.from_bytes(file.read(8), "little")
        return 8 + file.read(length).find(f'"{SEAL}": "{seal}"'.encode()) + len(f'"{SEAL}": "')


def _settings(tables: tuple[NgramTable, ...]) -> list[list[int]]:
    return [[*table.lengths, table.first_column] for table in tables]


def _words_in_tensors(path: Path, metadata: dict[str, str]) -> WordVectors:
    tensors = {name: tensor.array for name, tensor in map_tensors(path)[0].items()}
    try:
        vocabulary = Vocabulary(*(np.require(tensors[name], requirements="A") for name in _OF_WORDS))
        str(vocabulary.characters.data, "utf-8")  # words are decoded later, one by one
        tables = tuple(
            NgramTable(_float32(tensors, f"ngrams.{number}"), (shortest, longest), column)
            for number, (shortest, longest, column) in enumerate(parse_json(metadata["ngrams"], "ngrams", _NGRAMS))
        )
        stored = WordVectors(vocabulary, _float32(tensors, "vectors"), tables)
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise FileFormatError(f"{path} is damaged: {error}. Convert the vectors again.") from None
    if stored.vectors.ndim != 2 or len(stored.vectors) != len(vocabulary):
        raise FileFormatError(
            f"{path} is damaged: it has {len(vocabulary)} words, but another number of vectors. Convert them again."
        )
    return stored


def _float32(tensors: dict[str, NDArray[Any]], name: str) -> NDArray[np.float32]:
    """A tensor; release 0.1.0 also wrote float16, and int8 with a scale per row."""
    vectors = tensors[name].astype(np.float32, copy=False)
    return vectors * tensors[f"{name}.scales"][:, None] if tensors[name].dtype == np.int8 else vectors


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


def open_cached(path: Path) -> WordVectors | None:
    """Open the converted file of another one."""
    cached = _cache_file(path)
    if not cached.is_file():
        return None
    try:
        return open_vector_file(cached)
    except (FileFormatError, OSError):
        return None


def write_cached(path: Path, progress: Progress | None) -> None:
    """Convert a file into the cache, in place of what older states of it left there."""
    cached = _cache_file(path)
    with suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(cached) as temporary, open_rows(path, None, progress) as rows:
            write_vector_file(temporary, str(path), rows)
    except OutputError as error:
        warnings.warn(
            f"{path} cannot be converted, and is read again each time: {error} Set ISOSENT_CACHE to another folder.",
            CacheWarning,
            stacklevel=2,
        )
        return
    for older in cached.parent.glob(f"{cached.name.partition('-')[0]}-*"):
        if older.name != cached.name:
            with suppress(OSError):
                older.unlink()


def _cache_file(path: Path) -> Path:
    """A name made of the path of the file and, after a hyphen, of its state."""
    state = path.stat()
    # None: as release 0.1.0 named them, for a file that is no member of an archive
    where, when = f"{path.resolve()}!None", f"{state.st_size} {state.st_mtime_ns} {VERSION}{_READER}"
    hashes = [hashlib.sha256(part.encode("utf-8", "surrogateescape")).hexdigest()[:16] for part in (where, when)]
    return user_cache("word_vectors") / f"{'-'.join(hashes)}.safetensors"
