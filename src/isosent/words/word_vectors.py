"""Word vectors from files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError
from isosent.io.atomic import replacing
from isosent.words.converted import (
    FileRows,
    StoredVectors,
    open_cached,
    open_vector_file,
    write_cached,
    write_vector_file,
)
from isosent.words.fasttext import MAGIC, NgramSubwords, NgramTable, fasttext_rows
from isosent.words.formats import (
    STORED_TYPES,
    FilePlace,
    Numbers,
    Progress,
    RowBlock,
    Scales,
    decoded,
    in_memory,
    open_bytes,
    plain_rows,
)
from isosent.words.vocabulary import Vocabulary, first_rows, read_wanted_words, take_words

_CACHED_FROM_BYTES = 64 << 20
_BLOCK_WORDS = 4096


class Subwords(Protocol):
    """What makes vectors of unknown words."""

    def vectors(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of words, shape (n_words, dim)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """Words and their vectors."""

    vocabulary: Vocabulary  # the words
    vectors: Numbers  # what is stored for each word; may lie in a file that is mapped into memory. Finite
    scales: Scales | None  # what a row of int8 is to be multiplied with; None for the others
    subwords: Subwords | None  # what makes vectors of unknown words, where the files can
    # SHA-256 of words and stored numbers, the same whether they were read from a file or from the cache of it
    content_hash: str

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        return int(self.vectors.shape[1])

    def rows(self, ids: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Take vectors out."""
        return decoded(self.vectors, self.scales, ids)


def read_word_vectors(
    paths: Sequence[str | os.PathLike[str]],
    *,
    vocabulary: Iterable[str] | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    cache: bool = True,
) -> WordVectors:
    """Read word vectors from one file, or concatenate those of several word by word."""
    places = [FilePlace.of(path) for path in paths]
    wanted = None if vocabulary is None else read_wanted_words(vocabulary)
    stored, content_hash = _read_all(places, wanted, progress, cache)
    _check_some(len(stored.vocabulary), places, wanted)
    return WordVectors(
        stored.vocabulary,
        stored.vectors,
        stored.scales,
        NgramSubwords(stored.tables, stored.vectors.shape[1]) if stored.tables else None,
        content_hash or stored.content_hash(),
    )


def size_of_files(paths: Sequence[str | os.PathLike[str]]) -> int:
    """Bytes of files of word vectors on the disk, what the progress of reading adds up to."""
    return sum(FilePlace.of(path).path.stat().st_size for path in paths)


def convert_word_vectors(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    vocabulary: Iterable[str] | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> WordVectors:
    """Write word vectors as a file that opens at once, through a memory map."""
    _check.one_of("word vectors", "dtype", dtype, STORED_TYPES)
    places = [FilePlace.of(path) for path in paths]
    wanted = None if vocabulary is None else read_wanted_words(vocabulary)
    where = ", ".join(map(str, places))
    with replacing(output) as temporary:
        if len(places) == 1 and not is_safetensors(places[0]):
            with open_rows(places[0], wanted, progress) as rows:
                n_words = write_vector_file(temporary, where, rows, dtype)
        else:
            stored = _read_all(places, wanted, progress, cache=True)[0]
            rows = FileRows("isosent safetensors", stored.blocks(), stored.tables)
            n_words = write_vector_file(temporary, where, rows, dtype)
        _check_some(n_words, places, wanted)
    return read_word_vectors([output])


def _check_some(n_words: int, places: Sequence[FilePlace], wanted: Vocabulary | None) -> None:
    if not n_words:
        words = "a word in UTF-8" if wanted is None else "a word of the vocabulary"
        raise InputError(f"{', '.join(map(str, places))} must hold {words}; got none.")


def _read_all(
    places: Sequence[FilePlace], wanted: Vocabulary | None, progress: Progress | None, cache: bool
) -> tuple[StoredVectors, str]:
    """What the files hold together and, if that is known, its hash."""
    parts = [_read(place, wanted, progress, cache) for place in places]
    return parts[0] if len(parts) == 1 else (_concatenated([part for part, _ in parts]), "")


def _read(
    place: FilePlace, wanted: Vocabulary | None, progress: Progress | None, cache: bool
) -> tuple[StoredVectors, str]:
    """What a file holds and, if that is known, its hash."""
    if is_safetensors(place):
        stored, content_hash = open_vector_file(place.path)
        _tell_all(place, progress)
    else:
        cached = _read_cached(place, wanted, progress) if cache else None
        if cached is None:
            with open_rows(place, wanted, progress) as rows:
                return StoredVectors(*in_memory(str(place), rows.blocks), None, rows.tables), ""
        stored, content_hash = cached
    return (stored, content_hash) if wanted is None else (_only(stored, wanted), "")


def _read_cached(
    place: FilePlace, wanted: Vocabulary | None, progress: Progress | None
) -> tuple[StoredVectors, str] | None:
    """What a large file holds, from the cache, or None; all of it is converted where that was not done yet."""
    if place.path.stat().st_size < _CACHED_FROM_BYTES:
        return None
    cached = open_cached(place)
    if cached is not None:
        _tell_all(place, progress)
    elif wanted is None:

        def write(path: Path) -> None:
            with open_rows(place, None, progress) as rows:
                write_vector_file(path, str(place), rows)

        write_cached(place, write)
        cached = open_cached(place)
    return cached


def is_safetensors(place: FilePlace) -> bool:
    """Tell a .safetensors file by its first bytes."""
    with place.path.open("rb") as file:
        start = file.read(9)
    return start[8:] == b"{" and int.from_bytes(start[:8], "little") < place.path.stat().st_size


def format_of(place: FilePlace) -> str:
    """Name the format of a file."""
    if is_safetensors(place):
        return "isosent safetensors"
    with open_rows(place) as rows:
        return rows.format


@contextmanager
def open_rows(
    place: FilePlace, wanted: Vocabulary | None = None, progress: Progress | None = None
) -> Iterator[FileRows]:
    """Open a file of text, of word2vec's binary format, or of fastText."""
    with open_bytes(place, progress) as stream:
        if not stream.head.startswith(MAGIC):
            name, blocks = plain_rows(stream, wanted)
            yield FileRows(name, _at_least_one(place, blocks))
            return
        if stream.is_packed:
            raise FileFormatError(f"{place} is a packed fastText model. Unpack it first.")
        blocks, table = fasttext_rows(place, wanted, progress)
        yield FileRows("fastText binary", _at_least_one(place, blocks), () if table is None else (table,))


def _at_least_one(place: FilePlace, blocks: Iterator[RowBlock]) -> Iterator[RowBlock]:
    first = next(blocks, None)
    if first is None:
        raise FileFormatError(f"{place} must hold at least one word vector; got none.")
    yield first
    yield from blocks


def _tell_all(place: FilePlace, progress: Progress | None) -> None:
    if progress is not None:
        progress(place.path.stat().st_size)


def _only(stored: StoredVectors, wanted: Vocabulary) -> StoredVectors:
    """The words that are wanted, in memory."""
    characters, offsets, _ = stored.vocabulary.arrays
    rows = np.flatnonzero(wanted.ids_of_spans(characters, offsets[:-1], offsets[1:]) >= 0)
    scales = None if stored.scales is None else stored.scales[rows]
    return StoredVectors(stored.vocabulary.take(rows), stored.vectors[rows], scales, stored.tables)


def _concatenated(parts: Sequence[StoredVectors]) -> StoredVectors:
    vocabulary = _union([part.vocabulary for part in parts])
    bounds = np.cumsum([0, *(part.vectors.shape[1] for part in parts)]).tolist()
    vectors = np.zeros((len(vocabulary), bounds[-1]), dtype=np.float32)
    tables: list[NgramTable] = []
    for part, (first, last) in zip(parts, pairwise(bounds), strict=True):
        characters, offsets, _ = part.vocabulary.arrays
        ids = vocabulary.ids_of_spans(characters, offsets[:-1], offsets[1:])
        vectors[ids, first:last] = decoded(part.vectors, part.scales, slice(None))
        if part.tables:
            subwords = NgramSubwords(part.tables, last - first)
            lacking = np.setdiff1d(np.arange(len(vocabulary)), ids)
            for rows in np.array_split(lacking, len(lacking) // _BLOCK_WORDS + 1):
                vectors[rows, first:last] = subwords.vectors([vocabulary[row] for row in rows])
        tables += [replace(table, first_column=first + table.first_column) for table in part.tables]
    return StoredVectors(vocabulary, vectors, None, tuple(tables))


def _union(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """All words, in the order of the first that has them."""
    characters = np.concatenate([vocabulary.characters for vocabulary in vocabularies])
    lengths = np.concatenate([np.diff(vocabulary.offsets) for vocabulary in vocabularies])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Vocabulary.from_bytes(*take_words(characters, offsets, first_rows(characters, offsets)))
