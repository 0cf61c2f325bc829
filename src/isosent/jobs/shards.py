"""Jobs on many files: they are cut into shards, which workers make in any order; an interrupted job resumes.

Every shard has a fixed place in its file, and a fixed name. It is done when the index lists its checksum. So a shard
may be made twice, by workers that know nothing of each other, and nothing is lost or doubled.

`encode_folder`, `transform_folder` and `measure_folder` describe a `Job` and call `make_shards`, which asks a `Worker`
for the shards of each input, gives out those that the index lacks, and writes the index (`_IndexWriter`) as they come
back. An `Engine` says where workers run: `LocalEngine`, or the processes and clusters of `distributed`. What a worker
does: `jobs.worker`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent._check import brief
from isosent.encoders.base import EncodingStats
from isosent.errors import InputError, IsosentError, OutputError, WorkerError, quoted, without_passwords
from isosent.io import remote
from isosent.io.formats import format_by_name
from isosent.io.notes import NOTE_ENDING, SUMS_ENDING
from isosent.io.shards import (
    SHARD_SIZE,
    InputFile,
    Shard,
    ShardIndex,
    Sharding,
    ShardRecord,
    check_shard_folder,
    locked_shards,
    read_index,
    write_index,
)
from isosent.io.texts import open_texts
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import damaged_shards, open_vectors
from isosent.jobs.encode import TextRows, encoding, warn_once
from isosent.jobs.moments import FileMoments, read_moments
from isosent.jobs.worker import Job, LocalEngine, Outcome, RunTasks, Task
from isosent.model import SentenceEncoder
from isosent.pages.progress import Progress
from isosent.persistence import ModelRecord
from isosent.role import RoleName
from isosent.space import Space, same_space
from isosent.storage import Storage

_SHARE_OF_TIME = 0.05  # to write the index
_MOST_LISTED = 5
_SETTINGS = ("dim", "role", "computed_in", "holds")  # of an index, which a resumed run must share


class Engine(Protocol):
    """Where workers run."""

    def workers(self, job: Job, progress: Progress | None) -> AbstractContextManager[RunTasks]:
        """Start workers, and stop them at the end; `progress` is that of a shard, where it is made in this process."""


def _with_model(engine: Engine | None, model: SentenceEncoder) -> Engine:
    """Workers of this process use the model that is loaded."""
    return LocalEngine(model) if engine is None or isinstance(engine, LocalEngine) else engine


def encode_folder(
    model: SentenceEncoder,
    inputs: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    column: str | None = None,
    sharding: Sharding | None = None,
    shard_size: int | None = None,
    role: RoleName = "text",
    engine: Engine | None = None,
    reference: str = "",
    resumed: Callable[[ShardIndex], None] | None = None,
    progress: Progress | None = None,
    is_read: NDArray[np.bool_] | None = None,
) -> ShardIndex:
    """Encode files of texts into a folder of shards; call it again to resume.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    inputs : sequence of str
        Files of texts, folders of them, or patterns such as ``"texts/*.parquet"``.
    folder : path-like
        A new folder, or one that an earlier call with the same arguments began.
    column : str, optional
        Column of the texts in a table; by default ``text``, or the only one, or the only one of texts.
    sharding : Sharding, optional
        Rows of a shard, file format and dtype; by default 100,000 rows, ``.npy`` and float32.
    shard_size : int, optional
        Rows of a shard, in place of those of `sharding`.
    role : {"text", "query", "document"}, default "text"
        What the texts are, as for `SentenceEncoder.encode`.
    engine : Engine, optional
        What makes the shards, of `isosent.distributed`; by default this process.
    reference : str, optional
        Reference by which workers of an engine load the model.
    resumed : callable, optional
        Called with the index of a folder that exists, before it is completed.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in texts.
    is_read : ndarray of shape (n_texts,), bool, optional
        Texts whose tokens are added up beside the vectors, for `token_sums`; the role must be ``"query"``.

    Returns
    -------
    ShardIndex
        What the folder holds; all of it is on the disk.

    Raises
    ------
    InputError
        If the folder was begun with other texts, another model or other settings.
    """
    _, dim = encoding(model, role)  # refuses a model that cannot encode, before anything is written
    cut = sharding or Sharding()
    if shard_size is not None:
        cut = msgspec.structs.replace(cut, shard_size=shard_size)
    job = Job(
        makes="encode",
        reference=reference,
        fingerprint=model.fingerprint,
        column=column,
        role=role,
        sharding=cut,
    )
    index = make_shards(
        job,
        inputs,
        folder,
        _with_model(engine, model),
        space=model.space,
        dim=dim,
        computed_in=model.encoder.computed_in,
        resumed=resumed,
        progress=progress,
        is_read=is_read,
    )
    warn_once(model, EncodingStats(**index.counts))
    return index


@contextmanager
def encoded_vectors(
    model: SentenceEncoder, inputs: Sequence[str], folder: str, **settings: Any
) -> Iterator[VectorSource]:
    """The vectors of texts in a folder, which is removed when they have been used; as long as it stays, a run resumes.

    The settings are those of `encode_folder`.
    """
    encode_folder(model, inputs, folder, **settings)
    yield open_vectors(folder)
    remote.remove(folder)


def may_resume(model: SentenceEncoder, inputs: Sequence[str], n_texts: int) -> bool:
    """Whether texts of an index are encoded into a folder first: several shards, of a model without a map.

    The recall of the vectors before a map is measured while texts are encoded.
    """
    return n_texts > SHARD_SIZE and not any(map(remote.is_pipe, inputs)) and not model.record.postprocessing.steps


def how_resumed(folder: str | os.PathLike[str], verb: str, index: ShardIndex) -> str:
    """How much of a folder exists, for a message."""
    rest = f"nothing is left to {verb}" if index.is_complete else "resuming"
    return f"{folder}: {index.n_shards - len(index.missing)} of {index.n_shards} shards exist; {rest}"


def transform_folder(
    record: ModelRecord,
    inputs: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    column: str | None = None,
    sharding: Sharding | None = None,
    queries: bool = False,
    engine: Engine | None = None,
    reference: str,
    resumed: Callable[[ShardIndex], None] | None = None,
    progress: Progress | None = None,
) -> ShardIndex:
    """Apply the map of a model to vectors, into a folder of shards."""
    job = Job(
        makes="transform",
        reference=reference,
        fingerprint=record.fingerprint,
        column=column,
        kind="vectors",
        role="query" if queries else "text",
        sharding=sharding or Sharding(),
    )
    return make_shards(
        job,
        inputs,
        folder,
        engine or LocalEngine(),
        space=record.space,
        dim=record.dim,
        resumed=resumed,
        progress=progress,
    )


def measure_folder(
    model: SentenceEncoder,
    inputs: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    column: str | None = None,
    erase: tuple[str, tuple[str, ...] | None] | None = None,
    shard_size: int = SHARD_SIZE,
    engine: Engine | None = None,
    reference: str = "",
    resumed: Callable[[ShardIndex], None] | None = None,
    progress: Progress | None = None,
) -> tuple[FileMoments, ShardIndex]:
    """Moments of the vectors of texts, those of the bare encoder; a folder holds those of each shard.

    They are added in pairs of neighbors, then in pairs of these, and so on. So the sum has the same bits whoever made
    the shards, and in which order. `erase`, a column of labels and its values (None for numbers), adds columns.
    """
    model.encoder.require_fitted("fit")
    job = Job(
        makes="moments",
        reference=reference,
        fingerprint=model.fingerprint,
        column=column,
        erase=None if erase is None else erase[0],
        values=None if erase is None else erase[1],
        sharding=Sharding(shard_size),
    )
    index = make_shards(
        job,
        inputs,
        folder,
        _with_model(engine, model),
        space=model.encoder.space,
        dim=model.encoder.dim + (0 if erase is None else len(erase[1] or [""])),
        computed_in=model.encoder.computed_in,
        resumed=resumed,
        progress=progress,
    )
    warn_once(model, EncodingStats(**index.counts))
    with closing(remote.Staged()) as staged:
        paths = (staged.path_of(remote.path_in(folder, index.shard_name(number))) for number in range(index.n_shards))
        measured = sum_of_pairs(map(read_moments, paths))
    return replace(measured, sources=tuple(file.name for file in index.inputs)), index


def sample_texts(index: ShardIndex, n_texts: int, *, column: str | None = None) -> list[str]:
    """About so many texts of the inputs, the first ones of every shard."""
    texts: list[str] = []
    n_each = -(-n_texts // index.n_shards)
    with closing(remote.Staged()) as staged:
        for number, file in enumerate(index.inputs):
            counted = (file.n_rows, file.sha256)
            with open_texts(staged.path_of(file.name), column=column, counted=counted) as source:
                rows = TextRows(source, to_table=False)
                for shard in index.plan:
                    if shard.input == number:
                        texts += [text for text, _ in rows.take(shard.first_row, min(n_each, shard.n_rows))]
    return texts


def sample_rows(index: ShardIndex, n_texts: int) -> NDArray[np.intp]:
    """Rows, of all inputs one after the other, of the texts that `sample_texts` takes."""
    n_each, first = -(-n_texts // index.n_shards), np.cumsum([0, *(file.n_rows for file in index.inputs)])
    starts = [(first[shard.input] + shard.first_row, shard.n_rows) for shard in index.plan]
    return np.concatenate([np.arange(start, start + min(n_each, n_rows)) for start, n_rows in starts])


def sum_of_pairs(summands: Iterable[FileMoments]) -> FileMoments:
    """Sum of the parts by a binary tree, with memory for one part of each level."""
    sums: list[tuple[int, FileMoments]] = []  # levels decrease
    for part in summands:
        level, total = 0, part
        while sums and sums[-1][0] == level:
            level, total = level + 1, sums.pop()[1] + total
        sums.append((level, total))
    return reduce(lambda right, left: left + right, [total for _, total in reversed(sums)])


def make_shards(
    job: Job,
    inputs: Sequence[str],
    folder: str | os.PathLike[str],
    engine: Engine,
    *,
    space: Space,
    dim: int,
    computed_in: str = Storage.float32,
    resumed: Callable[[ShardIndex], None] | None = None,
    progress: Progress | None = None,
    is_read: NDArray[np.bool_] | None = None,
) -> ShardIndex:
    """Make the shards of all inputs, and resume where an earlier run stopped.

    A shard that cannot be made does not stop the others: it is reported when they are complete.
    """
    folder = os.fspath(folder)
    check_shard_folder(folder)
    if job.sharding.file_format == "parquet":
        _extras.require("pyarrow")  # before anything is written
    if twice := {name for name, count in Counter(inputs).items() if count > 1}:
        raise InputError(f"the input {min(twice)} is named twice. Name it once.")
    pipes = [name for name in inputs if remote.is_pipe(name)]
    if pipes and (len(inputs) > 1 or not isinstance(engine, LocalEngine)):
        raise InputError(f"{pipes[0]} can be read only once. Name it as the only input, without workers.")
    n_rows = done = 0  # in all, and in shards that are complete or failed

    def show(n_more: int, total: int | None = None) -> None:
        if progress and n_rows:
            progress(done + n_more, n_rows)

    with locked_shards(folder), engine.workers(job, show) as run:
        older = read_index(folder)
        described = _describe_inputs(inputs, older if older and older.column == job.column else None, run)
        holds: Literal["vectors", "moments"] = "moments" if job.makes == "moments" else "vectors"
        new = ShardIndex(space, dim, described, job.sharding, (), job.role, computed_in, holds, job.column)
        new = msgspec.structs.replace(new, shards=(None,) * len(new.plan))
        index = new if older is None else _resumed_index(job, folder, older, new, has_sums=is_read is not None)
        write_index(folder, index)
        if resumed and index.missing != list(range(index.n_shards)):
            resumed(index)
        n_rows, done = sum(file.n_rows for file in new.inputs), index.n_rows_written
        show(0)
        starts = np.cumsum([0, *(file.n_rows for file in index.inputs)])
        tasks = []
        for shard in map(index.plan.__getitem__, index.missing):
            first = starts[shard.input] + shard.first_row
            part = None if is_read is None else is_read[first : first + shard.n_rows].tobytes()  # tasks are hashed
            name = index.shard_name(shard.number)
            tasks.append(Task("make", (shard, index.inputs[shard.input], folder, name, part)))
        saved, failed = _IndexWriter(folder, index), []
        try:
            for task, outcome in run(tasks):
                shard = task.arguments[0]
                if not saved.add(shard, outcome):
                    failed.append((shard, outcome))
                done += shard.n_rows
                show(0)
        finally:
            saved.write()
    if failed:
        raise _failure(saved.index, failed)
    if missing := _missing_shards(folder, saved.index, has_sums=is_read is not None):
        name = saved.index.shard_name(missing[0])
        raise OutputError(f"{folder} lacks {name}, which a worker wrote. Choose a folder that all machines share.")
    return saved.index


def _missing_shards(folder: str, index: ShardIndex, *, has_sums: bool) -> list[int]:
    """Numbers of the shards that are complete, but not there, or without the files that must be beside them."""
    sizes = remote.sizes(folder)

    def is_there(name: str, size_bytes: int) -> bool:
        beside = [NOTE_ENDING] * format_by_name(name).has_note + [SUMS_ENDING] * has_sums
        return sizes.get(name) == size_bytes and all(name + ending in sizes for ending in beside)

    return [
        number
        for number, written in enumerate(index.shards)
        if written and not is_there(index.shard_name(number), written.size_bytes)
    ]


class _IndexWriter:
    """The index, written after each shard, but in a twentieth of the time at most."""

    def __init__(self, folder: str, index: ShardIndex) -> None:
        self._folder, self.index = folder, index
        self._new: dict[int, ShardRecord | None] = {}
        self._next_s = 0.0

    def add(self, shard: Shard, outcome: Outcome) -> bool:
        """Add a shard; False if it failed. A disk that cannot be written to stops all."""
        if isinstance(outcome, OutputError):
            self.write()
            n_complete = self.index.n_shards - len(self.index.missing)
            raise OutputError(
                f"{outcome} {n_complete} of {self.index.n_shards} shards are complete and stay. Run the same command "
                "again to resume."
            ) from outcome
        if isinstance(outcome, Exception):
            return False
        self._new[shard.number] = outcome
        if time.monotonic() >= self._next_s:
            self.write()
        return True

    def write(self) -> None:
        if not self._new:
            return
        started_s = time.monotonic()
        self.index, self._new = self.index.with_shards(self._new), {}
        write_index(self._folder, self.index)
        ended_s = time.monotonic()
        self._next_s = ended_s + (ended_s - started_s) / _SHARE_OF_TIME


def _describe_inputs(inputs: Sequence[str], older: ShardIndex | None, run: RunTasks) -> tuple[InputFile, ...]:
    earlier_files = {file.name: file for file in older.inputs} if older else {}
    tasks = [Task("describe", (name, earlier_files.get(without_passwords(name)))) for name in inputs]
    described_files = {}
    for task, outcome in run(tasks):
        if isinstance(outcome, WorkerError):
            raise WorkerError(f"{task.arguments[0]}: {outcome}")
        if isinstance(outcome, Exception):
            raise outcome
        described_files[task.arguments[0]] = outcome
    return tuple(described_files[name] for name in inputs)


def _failure(index: ShardIndex, failed: Sequence[tuple[Shard, Exception]]) -> IsosentError:
    """What is raised for shards that could not be made, the other ones being complete."""
    failed = sorted(failed, key=lambda each: each[0].number)
    reasons = [
        f"{index.inputs[shard.input].name}, rows {shard.first_row} to {shard.first_row + shard.n_rows - 1}: "
        f"{quoted(error)}"
        for shard, error in failed[:_MOST_LISTED]
    ]
    more = f"\nand {len(failed) - _MOST_LISTED} more" if len(failed) > _MOST_LISTED else ""
    kind = type(failed[0][1]) if isinstance(failed[0][1], IsosentError) else InputError
    return kind(
        "\n".join(reasons)
        + f"{more}\n{len(failed)} of {index.n_shards} shards could not be made; the others are complete and stay. "
        "Run the same command again to resume."
    )


def _resumed_index(job: Job, folder: str, index: ShardIndex, new: ShardIndex, *, has_sums: bool) -> ShardIndex:
    """Index of an earlier run without the shards that are gone or damaged; a run that cannot be resumed is refused."""
    try:
        same_space("the model", new.space, folder, index.space)
    except InputError as error:
        raise InputError(f"{error} To begin again, remove {folder}.") from None
    then, now = ([(file.n_rows, file.sha256, file.checksum) for file in each.inputs] for each in (index, new))
    if then != now:
        before, after = (
            ", ".join(f"{file.n_rows:,} rows of {file.name}" for file in each.inputs) for each in (index, new)
        )
        raise InputError(
            f"{folder} was begun with other inputs: {brief(before)} then, {brief(after)} now, and the content "
            f"differs. Remove {folder} to begin again, or name another folder."
        )
    names = (*_SETTINGS, "column") if job.kind == "vectors" else _SETTINGS  # texts have a hash, whatever their column
    settings = [
        msgspec.structs.asdict(run.sharding) | {name: getattr(run, name) for name in names} for run in (index, new)
    ]
    if changed := [name for name in settings[0] if settings[0][name] != settings[1][name]]:
        before, after = (", ".join(f"{name}={each[name]}" for name in changed) for each in settings)
        raise InputError(
            f"{folder} was begun with other settings: {before}, not {after}. Remove {folder} to begin "
            "again, or name another folder."
        )
    missing = dict.fromkeys(_missing_shards(folder, index, has_sums=has_sums))
    if not remote.is_remote(folder):  # stores elsewhere guard their files themselves
        missing |= dict.fromkeys(damaged_shards(Path(folder), index.with_shards(missing)))
    return msgspec.structs.replace(index.with_shards(missing), inputs=new.inputs)  # they may have been moved
