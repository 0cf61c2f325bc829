"""A worker, which makes shards of files: what it is told (`Job`), and what it is asked for (`Task`).

A `Worker` opens the files and the model by itself, and may be in another process: it describes an input, or makes one
shard of it and puts it in its place. What it returns, or the error, is the `Outcome`. `LocalEngine` runs one in this
process; `distributed` has engines for others. `jobs.shards` gives out the tasks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec
import numpy as np
from msgspec import Struct

from isosent.encoders.base import EncodingStats, collecting_stats
from isosent.errors import InputError, InputFileError, IsosentError
from isosent.io import remote
from isosent.io.checksum import file_checksum
from isosent.io.notes import SUMS_ENDING
from isosent.io.shards import InputFile, Shard, Sharding, ShardRecord
from isosent.io.texts import open_texts
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import open_vectors
from isosent.jobs.encode import BlockEncoder, TextRows, encoded_source, encoding, with_groups, write_encoded
from isosent.jobs.moments import FileMoments, labeled_moments_of, moments_of, write_moments
from isosent.jobs.token_sums import TokenSums, reading_tokens
from isosent.jobs.vectors import check_source, groups_of_rows, transform_file
from isosent.loading import load, read_record
from isosent.model import SentenceEncoder
from isosent.pages.progress import Progress
from isosent.persistence import ModelRecord
from isosent.role import RoleName
from isosent.space import are_same
from isosent.transforms.labels import Attribute


class Job(Struct, frozen=True, kw_only=True):
    """What a worker must know: it opens the files and the model by itself."""

    makes: Literal["encode", "transform", "moments"]
    directory: str = msgspec.field(default_factory=os.getcwd)  # that paths are relative to
    reference: str  # with its options
    fingerprint: str = ""  # of the model that began the job
    column: str | None = None
    kind: Literal["texts", "vectors"] = "texts"  # of the inputs
    erase: str | None = None  # column of labels; then the moments are of vectors and labels
    values: tuple[str, ...] | None = None  # of the labels; None for numbers
    role: RoleName = "text"
    sharding: Sharding = Sharding()


class Task(NamedTuple):
    """What a worker is asked for: the name of a method of `Worker`, and its arguments."""

    name: Literal["describe", "make"]
    arguments: tuple[Any, ...]


Outcome = Any  # what the method returned, or an error


RunTasks = Callable[[Iterable[Task]], Iterator[tuple[Task, Outcome]]]  # tasks in any order; one may run twice


class Worker:
    """Does tasks one after the other. It loads the model once, when it is first needed."""

    def __init__(self, job: Job, model: SentenceEncoder | None = None, progress: Progress | None = None) -> None:
        self._job, self._loaded_model, self._progress = job, model, progress
        self._staged = remote.Staged()
        self._open: tuple[str, TextRows | VectorSource, ExitStack] | None = None

    def ready(self) -> int:
        """Answer with the id of this process, when it has started elsewhere."""
        try:
            os.chdir(self._job.directory)
        except OSError:
            os.chdir(os.sep)  # where it happens to be, files of the same names may be other ones
        return os.getpid()

    def attempt(self, task: Task) -> Outcome:
        """Do a task. An error of isosent is returned, as this may be another process."""
        try:
            return getattr(self, task.name)(*task.arguments)
        except BaseException as error:
            self._leave()  # the file may have been read halfway
            if not isinstance(error, IsosentError):
                raise
            self._staged.rename(error)
            return error

    def close(self) -> None:
        """Close the file that is open, and remove copies."""
        self._leave()
        self._staged.close()

    def _leave(self) -> None:
        if self._open:
            self._open[2].close()
        self._open = None

    def describe(self, name: str, earlier_file: InputFile | None) -> InputFile:
        """Count the rows of a file and hash it, unless it is known; that of an index has no passwords in its name."""
        state = remote.state_of(name)
        if earlier_file and state and earlier_file.state == state:
            return msgspec.structs.replace(earlier_file, name=name)
        source = self._source(name)
        if source.kind == "vectors":
            if self._job.makes == "transform":
                check_source(source, self._record)
            source.verify()
            return InputFile(name, source.n_rows, source.identity["sample_sha256"], state)
        has_table = source.table is not None and not remote.is_pipe(name)
        checksum = str(file_checksum(Path(self._staged.path_of(name)))) if has_table else None
        return InputFile(name, source.source.n_texts, source.source.sha256, state, checksum)

    def make(self, shard: Shard, file: InputFile, folder: str, name: str, is_read: bytes | None = None) -> ShardRecord:
        """Make a shard, and put it in its place; the tokens of texts that are read are summed in a file beside it."""
        if remote.state_of(file.name) != file.state:
            raise InputFileError(f"{file.name} was changed while it was read. Start again.")
        with remote.destination(folder, name) as path:
            source, part = self._source(file.name, file), (shard.first_row, shard.n_rows)
            if is_read is None:
                stats = self._make(path, source, part)
            else:
                sums = TokenSums(self._model.dim)
                stats = self._make(path, source, part, reading_tokens(self._model, np.frombuffer(is_read, bool), sums))
                with remote.destination(folder, name + SUMS_ENDING) as beside:  # before the shard is complete
                    sums.write(beside)
            checksum = open_vectors(path).checksum if self._job.makes != "moments" else file_checksum(path)
            return ShardRecord(str(checksum), path.stat().st_size, cast("Any", asdict(stats)))

    def _make(
        self, path: Path, source: TextRows | VectorSource, part: tuple[int, int], encode: BlockEncoder | None = None
    ) -> EncodingStats:
        job = self._job
        if job.makes == "moments":
            return self._measure(path, source, part)
        if source.kind == "texts":
            plain, dim = self._encoding
            encode = with_groups(encode or plain, groups_of_rows(self._model.groups, source.source, *part))
            space = self._model.space
            return write_encoded(
                path,
                source,
                part,
                encode,
                dim=dim,
                space=space,
                dtype=job.sharding.dtype,
                progress=self._progress,
            )
        n_zero_rows = transform_file(
            source.part(*part),
            self._record,
            path,
            dtype=job.sharding.dtype,
            queries=job.role == "query",
            progress=self._progress,
        )
        return EncodingStats(part[1], n_zero_rows=n_zero_rows)

    def _measure(self, path: Path, source: TextRows | VectorSource, part: tuple[int, int]) -> EncodingStats:
        job, labels = self._job, None
        with collecting_stats() as stats:
            if source.kind == "texts":
                encoder, space = self._model.encoder, self._model.encoder.space
                labels = None if job.erase is None else source.source.labels(job.erase, *part)
                vectors = encoded_source(
                    source, part, encoder.encode, dim=encoder.dim, space=space, progress=self._progress
                )
            else:
                vectors = source.part(*part)
                labels = None if job.erase is None else vectors.labels(job.erase)
            measured = moments_of([vectors]) if labels is None else self._labeled(vectors, labels)
        write_moments(path, replace(measured, sources=()))
        n_texts = part[1] - stats.total.n_texts  # vectors have not been counted
        return stats.total + EncodingStats(n_texts, n_zero_rows=measured.n_zero_rows)

    def _labeled(self, source: VectorSource, labels: Sequence[Any]) -> FileMoments:
        """Moments of the vectors of a part and of its labels, side by side."""
        attribute = Attribute.of_part(str(self._job.erase), labels, self._job.values)
        labeled, n_zero_rows = labeled_moments_of(source, attribute)
        return FileMoments(labeled.joint.moments, n_zero_rows, source.space, ())

    @cached_property
    def _record(self) -> ModelRecord:
        record = read_record(self._job.reference)
        self._check_fingerprint(record.fingerprint)
        return record

    @cached_property
    def _model(self) -> SentenceEncoder:
        model = self._loaded_model or load(self._job.reference)
        self._check_fingerprint(model.fingerprint)
        return model

    @cached_property
    def _encoding(self) -> tuple[BlockEncoder, int]:
        return encoding(self._model, self._job.role)

    def _check_fingerprint(self, fingerprint: str) -> None:
        if not are_same(fingerprint, self._job.fingerprint):
            raise InputError(
                f"{self._job.reference} is another model in this process: it has the fingerprint {fingerprint[:16]}, "
                f"not {self._job.fingerprint[:16]}. Use the same files on all machines."
            )

    def _source(self, name: str, input_file: InputFile | None = None) -> TextRows | VectorSource:
        """Open a file, unless it is open."""
        if self._open is None or self._open[0] != name:
            self._leave()
            files, path, column = ExitStack(), self._staged.path_of(name), self._job.column
            source: TextRows | VectorSource
            if self._job.kind == "vectors":
                source = open_vectors(path, column=column, are_queries=self._job.role == "query")
            else:
                facts = (input_file.n_rows, input_file.sha256) if input_file else None
                texts = files.enter_context(open_texts(path, column=column, counted=facts))
                source = TextRows(texts, to_table=self._job.sharding.file_format == "parquet")
            self._open = (name, source, files)
        return self._open[1]


class LocalEngine:
    """Runs a job in this process."""

    def __init__(self, model: SentenceEncoder | None = None) -> None:
        self._model = model

    @contextmanager
    def workers(self, job: Job, progress: Progress | None) -> Iterator[RunTasks]:
        """Yield the one worker, which keeps the file open that it read last: a pipe cannot be opened twice."""
        worker = Worker(job, self._model, progress)
        try:
            yield lambda tasks: ((task, worker.attempt(task)) for task in tasks)
        finally:
            worker.close()
