"""Vectors in a file, taken through a model into another file, block by block."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Progress
from isosent.encoders.precomputed import PRECOMPUTED, PrecomputedVectors
from isosent.errors import FileFormatError, InputError, OutputError
from isosent.io.atomic import check_destination, replacing
from isosent.io.json import parse_json
from isosent.io.parquet import ColumnsBeside
from isosent.io.schemas import CheckpointRun
from isosent.io.space import SPACE_METADATA, Space, same_space, space_in
from isosent.io.tensors import read_tensors, safetensors_header, tensors_bytes
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import check_vector_file, writing_vectors
from isosent.numeric.moments import Moments, RadialMoments
from isosent.persistence import ModelRecord
from isosent.transforms.base import known_rows

FORMAT = "isosent-checkpoint"
FORMAT_VERSION = 1

_PAUSE_S = 1.0
_SHARE_OF_TIME = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """How far a run has come."""

    measured: FileMoments  # of all rows before
    source: int  # file that comes next, counted from 0; the number of files when all is done
    row: int  # row of it that comes next


class Checkpoint:
    """A file that holds how far a run has come."""

    def __init__(self, path: str | os.PathLike[str], settings: dict[str, Any], data: list[dict[str, Any]]) -> None:
        check_destination(path)
        self._path, self._settings, self._data = Path(path), settings, data
        self._next_s = 0.0

    def reached(self) -> Reached | None:
        """Read how far the last run came."""
        if not self._path.exists():
            return None
        metadata = safetensors_header(self._path)[1]
        if (metadata.get("format"), metadata.get("format_version")) != (FORMAT, str(FORMAT_VERSION)):
            raise FileFormatError(f"{self._path} must be a checkpoint; it holds something else. Name another file.")
        try:
            measured = moments_in(self._path)
            run = parse_json(metadata.get("run", ""), "run", CheckpointRun)
        except FileFormatError as error:
            raise FileFormatError(f"{error} Remove it, and the run begins anew.") from None
        self._check_same(run["settings"], run["data"])
        return Reached(measured, run["source"], run["row"])

    def _check_same(self, settings: dict[str, Any], data: list[dict[str, Any]]) -> None:
        if _unnamed(data) != _unnamed(self._data):
            raise InputError(
                f"{self._path} must be a checkpoint of the same data, {_names(self._data)} as it is now; "
                f"it is one of {_names(data)} as it was then. Name another file, or remove it."
            )
        if settings != self._settings:
            raise InputError(
                f"{self._path} must be a checkpoint of a run with the same settings, {self._settings}; "
                f"it is one with {settings}. Name another file, or remove it."
            )

    def keep(self, reached: Reached) -> None:
        """Write how far the run has come; after the last block always, else at most once a second."""
        start_s = time.monotonic()
        is_complete = reached.source == len(self._data)
        if start_s < self._next_s and not is_complete:
            return
        run = {
            "settings": self._settings,
            "data": self._data,
            "source": reached.source,
            "row": reached.row,
            "is_complete": is_complete,
        }
        metadata = {"format": FORMAT, "format_version": str(FORMAT_VERSION), "run": json.dumps(run, ensure_ascii=False)}
        with replacing(self._path) as temporary:
            temporary.write_bytes(moments_bytes(reached.measured, metadata))
        end_s = time.monotonic()
        self._next_s = end_s + max(_PAUSE_S, (end_s - start_s) / _SHARE_OF_TIME)


def _unnamed(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files without their names, which do not count."""
    return [file | {"name": ""} for file in data]


def _names(data: list[dict[str, Any]]) -> str:
    return ", ".join(str(file.get("name")) for file in data)


def moments_of(
    sources: Sequence[VectorSource],
    *,
    radial: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    resumed: Callable[[int], None] | None = None,
    progress: Progress | None = None,
) -> FileMoments:
    """Take the moments of vectors in files, with memory for one block of them."""
    if not sources:
        raise InputError("moments_of: sources must hold at least one file; got none.")
    reached, keeper = Reached(reduce(add, map(nothing_of, sources)), 0, 0), None
    if checkpoint is not None:
        settings = {"radial": radial, "block_rows": [source.block_rows for source in sources]}
        data = [{"name": str(source.path)} | source.identity for source in sources]
        keeper = Checkpoint(checkpoint, settings, data)
        reached = keeper.reached() or reached
    n_done_before = sum(source.n_rows for source in sources[: reached.source]) + reached.row
    for report in (resumed, progress):
        if report and n_done_before:
            report(n_done_before)
    for further, n_done in _block_by_block(sources, reached, radial):
        reached = further
        if keeper:
            keeper.keep(reached)
        if progress:
            progress(n_done)
    if keeper:
        keeper.keep(Reached(reached.measured, len(sources), 0))
    return reached.measured


def nothing_of(source: VectorSource) -> FileMoments:
    """Moments of none of the vectors in a file: their sum is refused where files do not go together."""
    return FileMoments(Moments.empty(source.dim), 0, source.space, (str(source.path),))


def _block_by_block(sources: Sequence[VectorSource], reached: Reached, radial: bool) -> Iterator[tuple[Reached, int]]:
    """Where each block leads, and its rows."""
    measured, row = reached.measured, reached.row
    n_rows_total = sum(source.n_rows for source in sources)
    for number, source in enumerate(sources[reached.source :], reached.source):
        for block in source.blocks(row):
            known = known_rows(block)
            try:
                rows = block if known.all() else block[known]
                part = Moments.from_rows(rows, radial=radial, eps=source.eps, n_rows_total=n_rows_total)
            except InputError:
                source.check_finite(block, row)
                raise
            n_zero_rows = measured.n_zero_rows + len(block) - len(rows)
            measured = replace(measured, moments=measured.moments + part, n_zero_rows=n_zero_rows)
            row += len(block)
            yield Reached(measured, number, row), len(block)
        row = 0


FORMAT_FILE_MOMENTS = "isosent-moments"
FORMAT_VERSION_FILE_MOMENTS = 1
ENDING = ".safetensors"
_METADATA = ("format", "format_version", "sources", "n_zero_rows", "run", *SPACE_METADATA)


@dataclass(frozen=True, slots=True, eq=False)
class FileMoments:
    """Moments of the vectors in files; adding two gives those of all the files."""

    moments: Moments  # of all rows but zero rows
    n_zero_rows: int  # rows left out, which stand for "no vector"
    space: Space | None  # where the vectors belong, if a file says so
    sources: tuple[str, ...]  # the files

    def __add__(self, other: FileMoments) -> FileMoments:
        """Return the moments of the rows of both."""
        here, there = " + ".join(self.sources), " + ".join(other.sources)
        if self.moments.dim != other.moments.dim:
            raise InputError(
                f"{there}: vectors must have {self.moments.dim} dimensions, those of {here}; got {other.moments.dim}."
            )
        return FileMoments(
            self.moments + other.moments,
            self.n_zero_rows + other.n_zero_rows,
            same_space(here, self.space, there, other.space),
            self.sources + other.sources,
        )


def write_moments(path: str | os.PathLike[str], measured: FileMoments) -> None:
    """Write moments, with what is known of the vectors, to one file."""
    check_moments_file(path)
    with replacing(path) as temporary:
        temporary.write_bytes(
            moments_bytes(measured, {"format": FORMAT_FILE_MOMENTS, "format_version": str(FORMAT_VERSION_FILE_MOMENTS)})
        )


def check_moments_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file that `write_moments` cannot write, before any work is done."""
    if Path(path).suffix.lower() != ENDING:
        raise InputError(f"{path} must end in {ENDING}; got {Path(path).suffix or 'no ending'}.")
    check_destination(path)


def holds_moments(path: str | os.PathLike[str]) -> bool:
    """Tell a file of moments from a file of vectors."""
    if Path(path).suffix.lower() != ENDING:
        return False
    return safetensors_header(_check.input_file(path))[1].get("format") == FORMAT_FILE_MOMENTS


def read_moments(path: str | os.PathLike[str]) -> FileMoments:
    """Read what `write_moments` wrote."""
    file = _check.input_file(path)
    metadata = safetensors_header(file)[1]
    if (metadata.get("format"), metadata.get("format_version")) != (
        FORMAT_FILE_MOMENTS,
        str(FORMAT_VERSION_FILE_MOMENTS),
    ):
        raise FileFormatError(
            f"{file} must be a file of moments, {FORMAT_FILE_MOMENTS} version {FORMAT_VERSION_FILE_MOMENTS}; "
            f"its format is {metadata.get('format')} {metadata.get('format_version', '')}."
        )
    return moments_in(file)


def moments_bytes(measured: FileMoments, metadata: Mapping[str, str]) -> bytes:
    """Moments in the format of safetensors."""
    moments = measured.moments
    tensors: dict[str, Any] = {"weight": [moments.weight], "mean": moments.mean, "scatter": moments.scatter}
    if moments.rounding is not None:
        tensors["rounding"] = moments.rounding
    if moments.radial is not None:
        tensors |= {"third": moments.radial.third, "fourth": [moments.radial.fourth]}
    facts = {"sources": json.dumps(measured.sources, ensure_ascii=False), "n_zero_rows": str(measured.n_zero_rows)}
    space = {} if measured.space is None else measured.space.metadata
    arrays = {name: np.asarray(array, np.float64) for name, array in tensors.items()}
    return tensors_bytes(arrays, {**metadata, **facts, **space})


def moments_in(path: Path) -> FileMoments:
    """Read the moments in a file that `moments_bytes` made."""
    metadata = safetensors_header(path)[1]
    tensors = read_tensors(path, metadata, _METADATA)
    try:
        radial = None
        if "third" in tensors:
            radial = RadialMoments(tensors["third"], float(tensors["fourth"][0]))
        moments = Moments(
            float(tensors["weight"][0]), tensors["mean"], tensors["scatter"], tensors.get("rounding"), radial
        )
        if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            raise ValueError("a number is not finite")
        sources = parse_json(metadata["sources"], "sources", list[str])
        return FileMoments(moments, int(metadata["n_zero_rows"]), space_in(metadata), tuple(sources))
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise FileFormatError(f"{path} must hold moments as isosent writes them; it is damaged: {error}.") from None


def transform_file(
    source: VectorSource,
    record: ModelRecord,
    output: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    queries: bool = False,
    progress: Progress | None = None,
) -> int:
    """Take vectors through what follows a model's encoder, with memory for one block of them."""
    check_vector_file(output, dtype)
    if Path(output).exists() and source.path.samefile(output):
        raise InputError(f"transform: the output must be another file than the vectors; got {output} for both.")
    check_in_front(record, str(source.path), source.space)
    _check.same_dim(str(source.path), "vectors", source.dim, record.encoder_dim)
    if not record.fits:
        raise InputError(f"transform: the model must be a fitted one; {record.reference} is not. Name a model folder.")
    linear_map = record.postprocessing.linear_map
    dim = source.dim if linear_map is None else linear_map.n_components
    space = Space(record.fingerprint, record.name)
    are_tables = source.path.suffix.lower() == Path(output).suffix.lower() == ".parquet"
    row, n_zero_rows = 0, 0
    beside = ColumnsBeside.of_table(source) if are_tables else None
    with writing_vectors(output, (source.n_rows, dim), dtype=dtype, space=space, beside=beside) as write:
        for block in source.blocks():
            try:
                mapped = record.postprocessing.apply(block, queries=queries)
            except InputError:
                source.check_finite(block, row)
                raise
            write(narrowed(mapped, dtype, row))
            n_zero_rows += len(block) - int(known_rows(block).sum())
            row += len(block)
            if progress:
                progress(len(block))
    return n_zero_rows


def check_in_front(record: ModelRecord, name: str, space: Space | None) -> None:
    """Refuse vectors that are not known to be those that a model's encoder gives."""
    if space and space.fingerprint == record.fingerprint != record.encoder_fingerprint:
        raise InputError(f"{name} must hold vectors from in front of the model; these went through it already.")
    same_space("the model", encoder_space(record), name, space)


def encoder_space(record: ModelRecord) -> Space | None:
    """Space of the vectors that go into what follows a model's encoder."""
    if record.reference == PRECOMPUTED:
        encoder = PrecomputedVectors(record.encoder_dim, record.options)
        return encoder.space if encoder.options else None
    return Space(record.encoder_fingerprint, record.reference)


def narrowed(rows: NDArray[np.floating], dtype: str, first_row: int) -> NDArray[np.floating]:
    """Round vectors to the type they are stored in."""
    with np.errstate(over="ignore"):
        narrowed = rows.astype(dtype, copy=False)
    if narrowed.dtype != rows.dtype and not np.isfinite(narrowed).all():
        row = first_row + int(np.flatnonzero(~np.isfinite(narrowed).all(axis=1))[0])
        raise OutputError(f"{dtype} must hold every number; got a larger one in row {row}. Write float32.")
    return narrowed
