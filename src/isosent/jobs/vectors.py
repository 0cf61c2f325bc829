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
from isosent.encoders.precomputed import GIVEN, GivenVectors
from isosent.errors import FileFormatError, InputError, OutputError
from isosent.io.atomic import check_destination, replacing
from isosent.io.checksum import read_tensors, tensors_bytes
from isosent.io.json import parse_json
from isosent.io.parquet import ColumnsBeside
from isosent.io.schemas import CheckpointRun
from isosent.io.space import SPACE_METADATA, Space, same_space, space_in
from isosent.io.vector_source import VectorSource, safetensors_metadata
from isosent.io.vectors import VectorFile, check_vector_file, writing_vectors
from isosent.numeric.moments import Moments, RadialMoments
from isosent.persistence import ModelRecord
from isosent.transforms.base import known_rows

FORMAT = "isosent-checkpoint"
FORMAT_VERSION = 1

_PAUSE_S = 1.0
_SHARE_OF_TIME = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """How far a run has come.

    Parameters
    ----------
    measured : FileMoments
        Of all rows before.
    source : int
        File that comes next, counted from 0; the number of files when all is done.
    row : int
        Row of it that comes next.
    """

    measured: FileMoments
    source: int
    row: int


class Checkpoint:
    """A file that holds how far a run has come.

    Parameters
    ----------
    path : path-like
        The file.
    settings : dict
        What the result depends on beside the data, as plain values.
    data : list of dict
        Name and identity of each file, in order.

    Raises
    ------
    OutputError
        If no file can be written there.
    """

    def __init__(self, path: str | os.PathLike[str], settings: dict[str, Any], data: list[dict[str, Any]]) -> None:
        check_destination(path)
        self._path, self._settings, self._data = Path(path), settings, data
        self._next_s = 0.0

    def reached(self) -> Reached | None:
        """Read how far the last run came.

        Returns
        -------
        Reached or None
            None where there is no file yet.

        Raises
        ------
        FileFormatError
            If the file is damaged or no checkpoint.
        InputError
            If it is one of other data or other settings.
        """
        if not self._path.exists():
            return None
        metadata = safetensors_metadata(self._path)
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
        """Write how far the run has come; after the last block always, else at most once a second.

        Parameters
        ----------
        reached : Reached
            How far.

        Raises
        ------
        OutputError
            If the file cannot be written; what was there is intact.
        """
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
    """Take the moments of vectors in files, with memory for one block of them.

    Parameters
    ----------
    sources : sequence of VectorSource
        At least one, of the same dimensions.
    radial : bool, default False
        Whether radial moments are taken too, as Ledoit-Wolf shrinkage needs them.
    checkpoint : path-like, optional
        File that keeps how far the run has come. A run that finds one there goes on from it, with the same result to
        the last bit on the same machine. It is left there at the end, marked complete.
    resumed : callable, optional
        Called with the number of rows that an earlier run had done, if there was one.
    progress : callable, optional
        Called with the number of rows done since the last call, by an earlier run or this one.

    Returns
    -------
    FileMoments
        Moments of all rows but zero rows.

    Raises
    ------
    InputError
        If there is no file, dimensions or known spaces differ, or the checkpoint is one of other data or settings.
    FileFormatError
        If a row holds NaN or infinity, or a file is damaged.
    OutputError
        If the checkpoint cannot be written.
    """
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
    """Moments of none of the vectors in a file: their sum is refused where files do not go together.

    Parameters
    ----------
    source : VectorSource
        The file.

    Returns
    -------
    FileMoments
        Of no rows.
    """
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
    """Moments of the vectors in files; adding two gives those of all the files.

    Parameters
    ----------
    moments : Moments
        Of all rows but zero rows.
    n_zero_rows : int
        Rows left out, which stand for "no vector".
    space : Space or None
        Where the vectors belong, if a file says so.
    sources : tuple of str
        The files.
    """

    moments: Moments
    n_zero_rows: int
    space: Space | None
    sources: tuple[str, ...]

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
    """Write moments, with what is known of the vectors, to one file.

    Parameters
    ----------
    path : path-like
        A .safetensors file.
    measured : FileMoments
        The moments.

    Raises
    ------
    InputError
        If the name has another ending.
    OutputError
        If the file cannot be written; what was there is intact.
    """
    check_moments_file(path)
    with replacing(path) as temporary:
        temporary.write_bytes(
            moments_bytes(measured, {"format": FORMAT_FILE_MOMENTS, "format_version": str(FORMAT_VERSION_FILE_MOMENTS)})
        )


def check_moments_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file that `write_moments` cannot write, before any work is done.

    Parameters
    ----------
    path : path-like
        The file to write.

    Raises
    ------
    InputError
        If the name does not end in ``.safetensors``.
    OutputError
        If it is a directory, or its folder does not exist.
    """
    if Path(path).suffix.lower() != ENDING:
        raise InputError(f"{path} must end in {ENDING}; got {Path(path).suffix or 'no ending'}.")
    check_destination(path)


def holds_moments(path: str | os.PathLike[str]) -> bool:
    """Tell a file of moments from a file of vectors.

    Parameters
    ----------
    path : path-like
        A file.

    Returns
    -------
    bool
        Whether `read_moments` should read it.
    """
    if Path(path).suffix.lower() != ENDING:
        return False
    return safetensors_metadata(_check.input_file(path)).get("format") == FORMAT_FILE_MOMENTS


def read_moments(path: str | os.PathLike[str]) -> FileMoments:
    """Read what `write_moments` wrote.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    FileMoments
        Exactly what was written.

    Raises
    ------
    FileFormatError
        If the file is damaged, or something else.
    """
    file = _check.input_file(path)
    metadata = safetensors_metadata(file)
    if (metadata.get("format"), metadata.get("format_version")) != (
        FORMAT_FILE_MOMENTS,
        str(FORMAT_VERSION_FILE_MOMENTS),
    ):
        raise FileFormatError(
            f"{file} must be a file of moments, {FORMAT} version {FORMAT_VERSION}; "
            f"its format is {metadata.get('format')} {metadata.get('format_version', '')}."
        )
    return moments_in(file)


def moments_bytes(measured: FileMoments, metadata: Mapping[str, str]) -> bytes:
    """Moments in the format of safetensors.

    Parameters
    ----------
    measured : FileMoments
        The moments.
    metadata : mapping of str to str
        What else to keep.

    Returns
    -------
    bytes
        Tensors ``weight``, ``mean``, ``scatter``, ``rounding`` and, where there are radial moments, ``third`` and
        ``fourth``, in float64.
    """
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
    """Read the moments in a file that `moments_bytes` made.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    FileMoments
        The moments.

    Raises
    ------
    FileFormatError
        If it is damaged.
    """
    metadata = safetensors_metadata(path)
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
    """Take vectors through what follows a model's encoder, with memory for one block of them.

    Parameters
    ----------
    source : VectorSource
        Vectors that the encoder of the model gave.
    record : ModelRecord
        The model; its encoder is not opened.
    output : path-like
        ``.npy``, ``.fvecs`` or ``.parquet``. It carries the fingerprint of the model's space. From a .parquet to a
        .parquet file, the other columns come along.
    dtype : str, default "float32"
        Type of the numbers written, float32 or float16. Vectors in float64 are calculated with in float64.
    queries : bool, default False
        Whether the vectors are those of queries.
    progress : callable, optional
        Called with the number of rows done since the last call.

    Returns
    -------
    int
        Zero rows, which stay zero.

    Raises
    ------
    InputError
        If the vectors have other dimensions than those of the model's encoder or are known to be of another space, or
        nothing was fitted behind the encoder.
    FileFormatError
        If a row holds NaN or infinity (the message names it), or the file is damaged.
    OutputError
        If the output cannot be written; what was there is intact.
    """
    check_vector_file(output, dtype)
    if Path(output).exists() and source.path.samefile(output):
        raise InputError(f"transform: the output must be another file than the vectors; got {output} for both.")
    check_in_front(record, str(source.path), source.space)
    _check.same_dim(str(source.path), "vectors", source.dim, record.encoder_dim)
    if not record.fits:
        raise InputError(f"transform: the model must be a fitted one; {record.reference} is not. Name a model folder.")
    linear_map = record.behind.linear_map
    dim = source.dim if linear_map is None else linear_map.n_components
    space = Space(record.fingerprint, record.name)
    are_tables = source.path.suffix.lower() == Path(output).suffix.lower() == ".parquet"
    row, n_zero_rows = 0, 0
    with writing_vectors(
        output, VectorFile(source.n_rows, dim, dtype, space), ColumnsBeside.of_table(source) if are_tables else None
    ) as write:
        for block in source.blocks():
            try:
                mapped = record.behind.apply(block, queries=queries)
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
    """Refuse vectors that are not known to be those that a model's encoder gives.

    Parameters
    ----------
    record : ModelRecord
        The model.
    name : str
        What holds the vectors, for the message.
    space : Space or None
        Their space; None where nothing is known, which is accepted.

    Raises
    ------
    InputError
        If it is another space, or the one behind the model.
    """
    if space and space.fingerprint == record.fingerprint != record.encoder_fingerprint:
        raise InputError(f"{name} must hold vectors from in front of the model; these went through it already.")
    same_space("the model", encoder_space(record), name, space)


def encoder_space(record: ModelRecord) -> Space | None:
    """Space of the vectors that go into what follows a model's encoder.

    Parameters
    ----------
    record : ModelRecord
        The model.

    Returns
    -------
    Space or None
        None for vectors of a space without a name.
    """
    if record.reference == GIVEN:
        encoder = GivenVectors(record.encoder_dim, record.options)
        return encoder.space if encoder.options else None
    return Space(record.encoder_fingerprint, record.reference)


def narrowed(rows: NDArray[np.floating], dtype: str, first_row: int) -> NDArray[np.floating]:
    """Round vectors to the type they are stored in.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, dim)
        Vectors.
    dtype : str
        One of `DTYPES`.
    first_row : int
        Row of the first one, for the message.

    Returns
    -------
    ndarray of shape (n_rows, dim)
        The same numbers in that type.

    Raises
    ------
    OutputError
        If a number is too large for it.
    """
    with np.errstate(over="ignore"):
        narrowed = rows.astype(dtype, copy=False)
    if narrowed.dtype != rows.dtype and not np.isfinite(narrowed).all():
        row = first_row + int(np.flatnonzero(~np.isfinite(narrowed).all(axis=1))[0])
        raise OutputError(f"{dtype} must hold every number; got a larger one in row {row}. Write float32.")
    return narrowed
