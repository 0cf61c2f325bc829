"""Moments of vectors in files, with a checkpoint, and the file that holds them.

`FileMoments` are moments with the space and the files that they came from; two of them add up. `moments_of` reads files
block by block, and `_Checkpoint` writes the state after some of them, so that an interrupted run resumes with the same
bits; `sum_of_files` adds what was computed elsewhere. `write_moments` and `read_moments` are the file of moments, and
`model_statistics` those that a model folder has. `drift_of` compares two sets.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from msgspec import Struct

from isosent import _check
from isosent.encoders.precomputed import PRECOMPUTED, PrecomputedVectors
from isosent.encoders.reference import MODEL_FILE
from isosent.errors import FileFormatError, InputError, MemoryWarning, option
from isosent.io.atomic import check_destination, replacing
from isosent.io.bounds import shown_bytes
from isosent.io.json import parse_json
from isosent.io.schemas import Count
from isosent.io.source import MOMENTS_ENDING, MOMENTS_FORMAT, MOMENTS_VERSION, MomentsSource
from isosent.io.tensors import read_tensors, safetensors_header, tensors_bytes
from isosent.io.vector_source import VectorSource
from isosent.numeric.drift import Drift, UnusualRow, drift, excess_kurtosis, fourth_powers, shared_axes
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows
from isosent.pages.progress import Progress
from isosent.persistence import read_model
from isosent.space import SPACE_METADATA, Space, refuse_codes, same_space, warn_of_unknown_space
from isosent.transforms.base import make_linear
from isosent.transforms.labels import Attribute, LabeledMoments

_N_UNUSUAL = 20
CHECKPOINT_FORMAT, CHECKPOINT_VERSION = "isosent-checkpoint", 1

_METADATA = ("format", "format_version", "sources", "n_zero_rows", "run", *SPACE_METADATA)
_SETTINGS = {"radial": False}  # 0.1.0 could also sum powers of the lengths; such a checkpoint is not resumed
_MANY_DIMENSIONS = 4096
_PAUSE_S = 1.0
_SHARE_OF_TIME = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class FileMoments:
    """Moments of the vectors in files; the sum of two is that of all the files."""

    kind: ClassVar[Literal["moments"]] = "moments"

    moments: Moments  # of all rows but zero rows
    n_zero_rows: int  # rows left out, of texts without a vector
    space: Space | None  # of the vectors, if a file names it
    sources: tuple[str, ...]  # paths of the files

    @classmethod
    def empty_for(cls, source: VectorSource) -> FileMoments:
        """Moments of no rows of a file. Adding those of several files checks that the files belong together."""
        return cls(Moments.empty(source.dim), 0, source.space, (source.name,))

    def __add__(self, other: FileMoments) -> FileMoments:
        """Return the moments of the rows of both."""
        here, there = " + ".join(self.sources), " + ".join(other.sources)
        if self.moments.dim != other.moments.dim:
            raise InputError(
                f"{there}: vectors of {other.moments.dim} dimensions, but those of {here} have {self.moments.dim}."
            )
        return FileMoments(
            self.moments + other.moments,
            self.n_zero_rows + other.n_zero_rows,
            same_space(here, self.space, there, other.space),
            self.sources + other.sources,
        )


EncodedSource = VectorSource | MomentsSource | FileMoments  # what needs no encoding


def vectors_and_moments(inputs: Sequence[EncodedSource]) -> tuple[list[VectorSource], list[FileMoments]]:
    """Those that hold vectors, and what the others hold. Refuses different dimensions or spaces."""
    sources = [source for source in inputs if source.kind == "vectors"]
    merged = [moments_in(source) for source in inputs if source.kind == "moments"]
    for source in sources:
        refuse_codes(source.name, source.space)
    no_rows(sources, merged)
    return sources, merged


def no_rows(sources: Sequence[VectorSource], merged: Sequence[FileMoments]) -> FileMoments:
    """The sum of files without their rows, which shows whether they belong together before anything is read."""
    parts = [
        *(replace(part, moments=Moments.empty(part.moments.dim)) for part in merged),
        *map(FileMoments.empty_for, sources),
    ]
    together = reduce(add, parts)
    if together.space and (unknown := [", ".join(part.sources) for part in parts if part.space is None]):
        known = next(", ".join(part.sources) for part in parts if part.space)
        warn_of_unknown_space(known, together.space, _check.brief(", ".join(unknown)))
    return together


def sum_of_files(
    sources: Sequence[VectorSource],
    merged: Sequence[FileMoments],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    resumed: Callable[[int], None] | None = None,
    progress: Progress | None = None,
) -> FileMoments:
    """Moments of the vectors in files, and of those whose moments were computed before."""
    if not sources:
        if checkpoint is not None:
            raise InputError(f"{option('checkpoint')} is for vectors; moments are read at once. Leave it out.")
        return reduce(add, merged)
    return reduce(add, merged, moments_of(sources, checkpoint=checkpoint, resumed=resumed, progress=progress))


def moments_of(
    sources: Sequence[VectorSource],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    resumed: Callable[[int], None] | None = None,
    progress: Progress | None = None,
) -> FileMoments:
    """Moments of vectors in files, read block by block; a checkpoint lets an interrupted run resume."""
    if not sources:
        raise InputError("no file is named.", where="moments_of")
    if (dim := sources[0].dim) > _MANY_DIMENSIONS:
        warnings.warn(
            f"the covariance of {dim:,} dimensions takes {shown_bytes(8 * dim**2)}, and a fit four times that.",
            MemoryWarning,
            stacklevel=2,
        )
    state, file = _State(reduce(add, map(FileMoments.empty_for, sources)), 0, 0), None
    if checkpoint is not None:
        settings = {**_SETTINGS, "block_rows": [source.block_rows for source in sources]}
        file = _Checkpoint(checkpoint, settings, [{"name": source.name} | source.identity for source in sources])
        state = file.read() or state
    done, n_rows_total = (sum(each.n_rows for each in some) for some in (sources[: state.source], sources))
    done += state.row
    if resumed and done:
        resumed(done)
    if progress:
        progress(done, n_rows_total)
    for next_state, n_rows in _states_by_block(sources, state):
        state, done = next_state, done + n_rows
        if file:
            file.write(state)
        if progress:
            progress(done, n_rows_total)
    if file:
        file.write(state._replace(source=len(sources), row=0))
    return state.measured


def labeled_moments_of(source: VectorSource, attribute: Attribute) -> tuple[LabeledMoments, int]:
    """Moments of the vectors of a source and the labels of its rows, block by block; and the number of zero rows."""
    total = attribute.rows(slice(0)).moments(np.empty((0, source.dim)))
    row = n_zero_rows = 0
    for block in source.blocks():
        try:
            total += attribute.rows(slice(row, row + len(block))).moments(block)
        except InputError:
            source.check_finite(block, row)
            raise
        row, n_zero_rows = row + len(block), n_zero_rows + int((~nonzero_rows(block)).sum())
    return total, n_zero_rows


def model_statistics(folder: str) -> FileMoments | None:
    """Moments of the vectors that a model was fitted on; None if the folder is no model."""
    if not (Path(folder) / MODEL_FILE).is_file():
        return None
    record = read_model(folder)
    moments = None
    if record.reference == PRECOMPUTED:
        try:
            moments = PrecomputedVectors(record.encoder_dim, record.options, record.corpus).statistics
        except InputError as error:
            raise FileFormatError(f"{folder}: its statistics are damaged: {error} Fit the model again.") from None
    if moments is None or moments.dim != record.encoder_dim:
        raise InputError(
            f"{folder} holds no statistics: only a model that was fitted on vectors does. Name these vectors instead."
        )
    return FileMoments(moments, 0, record.encoder_space, (folder,))


def drift_of(old: EncodedSource, new: EncodedSource, *, progress: Progress | None = None) -> Drift:
    """What has changed between two sets; vectors are read twice, the second time for kurtosis and single rows."""
    sides = [vectors_and_moments([side]) for side in (old, new)]
    no_rows([source for sources, _ in sides for source in sources], [part for _, parts in sides for part in parts])
    before, after = (sum_of_files(*side, progress=progress).moments for side in sides)
    if not any(sources for sources, _ in sides):
        return drift(before, after)
    axes = shared_axes(before, after)
    fourth, sets = np.zeros(axes.shape[1]), []
    for moments, (sources, _) in zip((before, after), sides, strict=True):
        for source in sources:
            for block in source.blocks():
                fourth += fourth_powers(block[nonzero_rows(block)], moments.mean, axes)
            sets.append(moments)
    found = drift(before, after, kurtosis=excess_kurtosis(fourth, sets, axes))
    return replace(found, unusual=_unusual_rows(before, new)) if new.kind == "vectors" else found


def _unusual_rows(old: Moments, source: VectorSource) -> tuple[UnusualRow, ...]:
    """The rows that are farthest from the old vectors; zero rows are none."""
    farthest: list[UnusualRow] = []
    whitening = make_linear("whitening?shrinkage=oas").fit_moments(old).linear_map_
    first_row = 0
    for block in source.blocks():
        [rows] = np.nonzero(nonzero_rows(block))
        lengths = np.linalg.norm(whitening.apply(block[rows]), axis=1) / np.sqrt(whitening.weight.shape[1])
        found = map(UnusualRow, (first_row + rows).tolist(), lengths.tolist())
        farthest = sorted([*farthest, *found], key=lambda each: -each.distance)[:_N_UNUSUAL]
        first_row += len(block)
    return tuple(farthest)


class _State(NamedTuple):
    """Moments of all rows so far, and the next row: its file, counted from 0, and its number in the file."""

    measured: FileMoments
    source: int
    row: int


def _states_by_block(sources: Sequence[VectorSource], state: _State) -> Iterator[tuple[_State, int]]:
    """State after each block, and the number of its rows."""
    measured, row = state.measured, state.row
    n_rows_total = sum(source.n_rows for source in sources)
    for number, source in enumerate(sources[state.source :], state.source):
        for block in source.blocks(row):
            has_vector = nonzero_rows(block)
            try:
                rows = block if has_vector.all() else block[has_vector]
                part = Moments.from_rows(rows, eps=source.storage.eps, n_rows_total=n_rows_total)
            except InputError:
                source.check_finite(block, row)  # names the file
                raise
            n_zero_rows = measured.n_zero_rows + len(block) - len(rows)
            measured = replace(measured, moments=measured.moments + part, n_zero_rows=n_zero_rows)
            row += len(block)
            yield _State(measured, number, row), len(block)
        row = 0


class _CheckpointRun(Struct, forbid_unknown_fields=True):
    """How far the moments of files have come, in the metadata of a checkpoint."""

    settings: dict[str, Any]
    data: list[dict[str, Any]]
    source: Count
    row: Count
    is_complete: bool


class _Checkpoint:
    """A file with the state of a run."""

    def __init__(self, path: str | os.PathLike[str], settings: dict[str, Any], data: list[dict[str, Any]]) -> None:
        check_destination(path)
        self._path, self._settings, self._data = Path(path), settings, data
        self._next_s = 0.0

    def read(self) -> _State | None:
        """Read the state of the last run; None if there was none. Another run's checkpoint is refused."""
        if not self._path.exists():
            return None
        metadata = safetensors_header(self._path)[1]
        if not _has_format(metadata, CHECKPOINT_FORMAT, CHECKPOINT_VERSION):
            raise FileFormatError(f"{self._path} is no checkpoint. Name another file.")
        try:
            measured = _read_file_moments(self._path)
            run = parse_json(metadata.get("run", ""), "run", _CheckpointRun)
        except FileFormatError as error:
            raise FileFormatError(f"{error} Remove it to start over.") from None
        if [file | {"name": ""} for file in run["data"]] != [file | {"name": ""} for file in self._data]:
            before, now = (", ".join(str(file.get("name")) for file in data) for data in (run["data"], self._data))
            raise InputError(
                f"{self._path} is a checkpoint of other data: of {before}, not {now}, or a file has changed since. "
                "Name another file, or remove it."
            )
        if run["settings"] != self._settings:
            raise InputError(
                f"{self._path} is a checkpoint of a run with other settings: {run['settings']}, not {self._settings}. "
                "Name another file, or remove it."
            )
        return _State(measured, run["source"], run["row"])

    def write(self, state: _State) -> None:
        """Write the state: always at the end, otherwise at most once a second and in a twentieth of the time."""
        start_s = time.monotonic()
        is_complete = state.source == len(self._data)
        if start_s < self._next_s and not is_complete:
            return
        run = {
            "settings": self._settings,
            "data": self._data,
            "source": state.source,
            "row": state.row,
            "is_complete": is_complete,
        }
        content = _moments_content(state.measured, CHECKPOINT_FORMAT, CHECKPOINT_VERSION, run=run)
        with replacing(self._path) as temporary:
            temporary.write_bytes(content)
        end_s = time.monotonic()
        self._next_s = end_s + max(_PAUSE_S, (end_s - start_s) / _SHARE_OF_TIME)


def write_moments(path: str | os.PathLike[str], measured: FileMoments) -> None:
    """Write moments to one file."""
    check_moments_file(path)
    with replacing(path) as temporary:
        temporary.write_bytes(moments_bytes(measured))


def moments_bytes(measured: FileMoments) -> bytes:
    """Content of a file of moments."""
    return _moments_content(measured, MOMENTS_FORMAT, MOMENTS_VERSION)


def check_moments_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file that `write_moments` cannot write, before any work is done."""
    if Path(path).suffix.lower() != MOMENTS_ENDING:
        raise InputError(f"{path}: moments are written to {MOMENTS_ENDING} files. Name one.")
    check_destination(path)


def moments_in(source: MomentsSource | FileMoments) -> FileMoments:
    """What a source of moments holds, which is read unless it is known."""
    if isinstance(source, FileMoments):
        return source
    with source.file() as path:
        return read_moments(path)


def read_moments(path: str | os.PathLike[str]) -> FileMoments:
    """Read the result of `write_moments`."""
    file = _check.input_file(path)
    metadata = safetensors_header(file)[1]
    if not _has_format(metadata, MOMENTS_FORMAT, MOMENTS_VERSION):
        raise FileFormatError(
            f"{file} is no file of moments of version {MOMENTS_VERSION}, which isosent moments writes: its format is "
            f"{metadata.get('format', 'unknown')} {metadata.get('format_version', '')}".rstrip()
            + "."
        )
    return _read_file_moments(file)


def _has_format(metadata: Mapping[str, str], name: str, version: int) -> bool:
    return (metadata.get("format"), metadata.get("format_version")) == (name, str(version))


def _moments_content(measured: FileMoments, name: str, version: int, *, run: dict[str, Any] | None = None) -> bytes:
    moments = measured.moments
    tensors: dict[str, Any] = {"weight": [moments.weight], "mean": moments.mean, "scatter": moments.scatter}
    if moments.rounding is not None:
        tensors["rounding"] = moments.rounding
    arrays = {key: np.asarray(array, np.float64) for key, array in tensors.items()}
    metadata = {"format": name, "format_version": str(version)}
    if run is not None:
        metadata["run"] = json.dumps(run, ensure_ascii=False)
    metadata |= {
        "sources": json.dumps(measured.sources, ensure_ascii=False),
        "n_zero_rows": str(measured.n_zero_rows),
    }
    if measured.space is not None:
        metadata |= measured.space.metadata
    return tensors_bytes(arrays, metadata)


def _read_file_moments(path: Path) -> FileMoments:
    tensors, metadata = read_tensors(path, _METADATA)
    try:
        weight, mean, scatter = float(tensors["weight"][0]), tensors["mean"], tensors["scatter"]
        moments = Moments(weight, mean, scatter, tensors.get("rounding"))
        if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            raise ValueError("a number is not finite")
        sources = parse_json(metadata["sources"], "sources", list[str])
        return FileMoments(moments, int(metadata["n_zero_rows"]), Space.in_metadata(metadata), tuple(sources))
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise FileFormatError(f"{path} is damaged: {error}. Compute the moments again: isosent moments.") from None
