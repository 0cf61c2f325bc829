"""Getting sets of files, checked against their sums, in the layout that the readers of tasks find."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isosent.datasets.conversion import converted
from isosent.datasets.hub import Hub, HuggingFaceHub
from isosent.datasets.lock import LOCK_NAME, Lock, Seen, Written
from isosent.datasets.manifest import DataFile, DataSet, Manifest, read_manifest
from isosent.errors import FileFormatError, InputFileError, OutputError
from isosent.files.atomic import locked, replacing


@dataclass(frozen=True, slots=True)
class GotFile:
    """What became of one file.

    Parameters
    ----------
    of : DataSet
        Its set.
    path : Path
        Where it lies.
    was_there : bool
        Whether it was there already, whole.
    is_pinned : bool
        Whether its commit was known beforehand; else what was seen first is trusted.
    original : bool or None
        Whether it is as its authors made it; None where there is no sum to compare with.
    """

    of: DataSet
    path: Path
    was_there: bool
    is_pinned: bool
    original: bool | None


def get_data(
    names: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    hub: Hub | None = None,
    manifest: Manifest | None = None,
    progress: Callable[[int], Callable[[int], None]] | None = None,
) -> list[GotFile]:
    """Get sets of files from the hub.

    Parameters
    ----------
    names : sequence of str
        Names of sets, see `read_manifest`.
    folder : path-like
        Where to put them; made if it is not there. What is there, whole, is not fetched again.
    hub : Hub, optional
        Where from; the Hugging Face hub where left out.
    manifest : Manifest, optional
        What there is; that of this package where left out.
    progress : callable, optional
        Called with the number of files; returns what is called with the number of files done.

    Returns
    -------
    list of GotFile
        What became of each file.

    Raises
    ------
    InputError
        If a name is not known.
    InputFileError
        If a file cannot be had; it says which files to place where. What was got before it stays.
    FileFormatError
        If a file of the hub has another sum than it must have, or is damaged.
    OutputError
        If a file is in the way that this function did not write, or one cannot be written.

    Notes
    -----
    Every file is written under a temporary name and renamed. ``isosent-data.json`` in the folder keeps the commits
    and sums that were seen; a later call refuses others.
    """
    manifest, folder = manifest or read_manifest(), Path(folder)
    wanted = [(each, file) for each in manifest.chosen(names) for file in each.files]
    _make(folder)
    done = progress(len(wanted)) if progress else lambda _: None
    got = []
    with locked(folder):
        getting = _Getting(folder, hub or HuggingFaceHub(), manifest, Lock.of(folder))
        for of, file in wanted:
            got.append(getting.get(of, file))
            done(1)
    return got


@dataclass(frozen=True, slots=True)
class _Getting:
    """One call: what it works with, and the files of the hub that it has already, checked."""

    folder: Path
    hub: Hub
    manifest: Manifest
    lock: Lock
    sources: dict[tuple[str, str], Path] = field(default_factory=dict)

    def get(self, of: DataSet, file: DataFile) -> GotFile:
        path = self.folder / file.path
        was_there = path.exists()
        written = self._whole(file, path) if was_there else self._write(of, file, path)
        is_pinned = bool(written.revision) and written.revision == self.manifest.revisions.get(written.repository)
        return GotFile(of, path, was_there, is_pinned, written.original)

    def _whole(self, file: DataFile, path: Path) -> Written:
        """Refuse a file that is neither as it was written nor as its authors made it."""
        found, known = _sum(path), self.lock.files.get(file.path)
        if known and found == known.sha256:
            return known
        if found == file.original or not file.repository:
            return Written(found, "", "", found == file.original)
        why = "was changed since" if known else f"is not in {LOCK_NAME}"
        raise OutputError(
            f"{path} must be free, or what was got before; it {why}. Move it away, or name another folder."
        )

    def _write(self, of: DataSet, file: DataFile, path: Path) -> Written:
        if not file.repository:
            raise InputFileError(
                f"data: {of.name} is not on the hub, and {path} is not there. Place {of.place}, below {self.folder}; "
                f"they are on {of.home}."
            )
        key = (file.repository, file.file)
        if key not in self.sources:
            self.sources[key] = self._source(of, file)
        content = converted(file, self.sources[key])
        found = hashlib.sha256(content).hexdigest()
        original = None if file.original is None else found == file.original
        written = Written(found, file.repository, self.lock.repositories[file.repository].revision, original)
        self.lock.files[file.path] = written
        self.lock.save()  # before the file, so that there is never an unknown one
        _make(path.parent)
        with replacing(path) as temporary:
            temporary.write_bytes(content)
        return written

    def _source(self, of: DataSet, file: DataFile) -> Path:
        """Fetch a file of the hub; refuse it if it has another sum than it is known to have, else remember its sum."""
        seen = self.lock.repositories.get(file.repository, Seen())
        try:
            revision = self.hub.commit(file.repository, self.manifest.revisions[file.repository] or seen.revision)
            source = self.hub.fetch(file.repository, revision, file.file)
        except InputFileError as error:
            raise InputFileError(_without_hub(of, self.folder, error)) from error
        if seen.revision and revision and revision != seen.revision:
            seen = Seen()
        found = _sum(source)
        for place, known in (("the manifest", file.sha256), (str(self.lock.path), seen.files.get(file.file))):
            if known and found != known:
                raise FileFormatError(
                    f"{file.repository}/{file.file} must have the sum that {place} holds, {known[:16]}...; got "
                    f"{found[:16]}.... It was not used: it was damaged or changed on the way."
                )
        self.lock.repositories[file.repository] = Seen(revision or seen.revision, seen.files | {file.file: found})
        return source


def _without_hub(of: DataSet, folder: Path, error: InputFileError) -> str:
    sources = dict.fromkeys(f"{file.repository}/{file.file}" for file in of.files)
    return (
        f"data: {of.name} could not be got: {str(error).rstrip('.')}. Without network, either place {of.place}, below "
        f"{folder}, as on {of.home}; or bring the hub's data files {', '.join(sources)} from elsewhere, laid out like "
        "that in a folder, and add --from FOLDER."
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} must be a folder to write to; got: {error.strerror}.") from None


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
