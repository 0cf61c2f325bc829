"""Getting sets of files, checked against their sums, in the layout that the readers of tasks find."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import IO, Any, Protocol, cast

from isosent import _check
from isosent.errors import FileFormatError, InputError, InputFileError, InputTypeError, OutputError
from isosent.io import bounds
from isosent.io.atomic import locked, replacing
from isosent.io.bounds import LARGEST_JSON
from isosent.io.json import check_schema, parse_json, read_document, write_document
from isosent.io.schemas import DataLock, DataManifest


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a set, and what it is made from."""

    path: str  # its place below the folder of all data
    # The repository of data on the hub, such as ``nyu-mll/glue``; "" where the hub does not have it
    repository: str = ""
    file: str = ""  # the file in it
    how: str = "copy"  # how it is made from that, one of `conversion.CONVERSIONS`
    member: str = ""  # what is taken out of that file, where it is an archive
    sha256: str | None = None  # sum of the file on the hub, if known; another one is refused
    # Sum of the file as its authors made it, or of its texts and scores in the form written here; another one is
    # told, for it gives other scores than published ones
    original: str | None = None


@dataclass(frozen=True, slots=True)
class DataSet:
    """A set of files that one name gets."""

    name: str  # its name
    title: str  # what it is
    command: str  # which command reads it
    download: str  # how much is fetched
    terms: str  # terms of use, as far as the source states them
    text: str  # how its texts differ from the original files
    home: str  # where the original files are described
    place: str  # which files to place by hand
    files: tuple[DataFile, ...]  # its own files
    includes: tuple[str, ...] = ()  # sets that are fetched with it

    @property
    def is_converted(self) -> bool:
        """Whether files are made from tables of another form."""
        return any(file.how in ("stsb", "rte") for file in self.files)

    @property
    def repositories(self) -> tuple[str, ...]:
        """Where its own files come from, each once."""
        return tuple(dict.fromkeys(file.repository for file in self.files if file.repository))


@dataclass(frozen=True, slots=True)
class Manifest:
    """All sets, and the revisions they are pinned to."""

    sets: Mapping[str, DataSet]  # the sets by name
    # Commit of each repository; None where none is pinned, so that the first one seen is taken and recorded
    revisions: Mapping[str, str | None]

    def chosen(self, names: Sequence[str]) -> tuple[DataSet, ...]:
        """Find sets by name, with those that they include."""
        if isinstance(names, str):
            raise InputTypeError(f"data: names must be a sequence of names; got one string. Pass [{names!r}].")
        if not names:
            raise InputError(f"data: names must name at least one of {', '.join(self.sets)}; got none.")
        chosen: dict[str, DataSet] = {}
        for name in names:
            known = name.strip().lower()
            if known not in self.sets:
                nearest = get_close_matches(known, self.sets, n=1, cutoff=0)[0]
                raise InputError(
                    f"data: names must be among {', '.join(self.sets)}; got {name!r}. The nearest is {nearest}."
                )
            for each in (known, *self.sets[known].includes):
                chosen.setdefault(each, self.sets[each])
        return tuple(chosen.values())


def read_manifest(document: Mapping[str, Any] | None = None) -> Manifest:
    """Read what there is to get."""
    if document is None:
        document = parse_json((files("isosent") / "data" / "datasets.json").read_bytes(), "manifest.json")
    check_schema(document, "data: the manifest", DataManifest)
    sets = map(_data_set, document["sets"])
    return Manifest({each.name: each for each in sets}, document["repositories"])


def _data_set(entry: Mapping[str, Any]) -> DataSet:
    """A set of the manifest, where "each" holds what its files have in common."""
    common = entry.get("each", {})
    own = {"files": tuple(DataFile(**common | file) for file in entry["files"])}
    facts = {name: value for name, value in entry.items() if name != "each"}
    return DataSet(**facts | own | {"includes": tuple(entry.get("includes", ()))})


LOCK_NAME = "isosent-data.json"
FORMAT = "isosent-data"
FORMAT_VERSION = 1


@dataclass(slots=True)
class Seen:
    """A repository as it was seen."""

    revision: str = ""  # its commit; "" if not known
    files: dict[str, str] = field(default_factory=dict)  # sum of each file of it that was fetched


@dataclass(slots=True)
class Written:
    """A file as it was written."""

    sha256: str  # its sum
    repository: str  # where it came from
    revision: str  # the commit of that; "" if not known
    original: bool | None  # whether it is as its authors made it; None where there is no sum to compare with


@dataclass(slots=True)
class Lock:
    """What is known of a folder of data."""

    path: Path  # where it is kept
    repositories: dict[str, Seen]  # repositories that were fetched from
    files: dict[str, Written]  # files that were written, by their places below the folder

    @classmethod
    def of(cls, folder: Path) -> Lock:
        """Read what is known of a folder; an empty lock where nothing is."""
        path = folder / LOCK_NAME
        if not path.exists():
            return cls(path, {}, {})
        try:
            document = read_document(path, FORMAT, FORMAT_VERSION, DataLock)
        except FileFormatError as error:
            raise FileFormatError(f"{error} Move the folder away and get the data again.") from None
        repositories = {name: Seen(**seen) for name, seen in document["repositories"].items()}
        return cls(path, repositories, {name: Written(**one) for name, one in document["files"].items()})

    def save(self) -> None:
        """Write the lock, in one step."""
        document: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION}
        document |= {name: {key: asdict(one) for key, one in sorted(getattr(self, name).items())} for name in _TABLES}
        write_document(self.path, document)


_TABLES = ("repositories", "files")


_TIMEOUT_S = 10.0


class Hub(Protocol):
    """What gives the files of repositories; a file that it cannot give is an `InputFileError`."""

    def commit(self, repository: str, wanted: str | None) -> str:
        """Return the commit to fetch: the wanted one, else that of now; "" where there is no telling."""
        ...

    def fetch(self, repository: str, revision: str, file: str) -> Path:
        """Return where a file of a repository lies on this machine, whole."""
        ...


class HuggingFaceHub:
    """The Hugging Face hub, by `huggingface_hub`, whose cache keeps what was fetched."""

    def commit(self, repository: str, wanted: str | None) -> str:
        """Return the commit to fetch."""
        return wanted or self._ask(repository, None)

    def fetch(self, repository: str, revision: str, file: str) -> Path:
        """Return where a file lies in the cache, fetched if it was not there."""
        import huggingface_hub
        from huggingface_hub.errors import LocalEntryNotFoundError

        def download(*, here: bool) -> Path:
            return Path(
                huggingface_hub.hf_hub_download(
                    repository, file, repo_type="dataset", revision=revision, local_files_only=here
                )
            )

        try:
            return download(here=True)
        except LocalEntryNotFoundError:
            self._ask(repository, revision)  # tells at once what a download would try five times
        try:
            return download(here=False)
        except Exception as error:
            raise _not_given(repository, error) from error

    def _ask(self, repository: str, revision: str | None) -> str:
        import huggingface_hub

        try:
            info = huggingface_hub.HfApi().dataset_info(repository, revision=revision, timeout=_TIMEOUT_S)
        except Exception as error:  # whatever its HTTP client raises
            raise _not_given(repository, error) from error
        return str(info.sha)


class Mirror:
    """A folder that is laid out like the hub: ``REPOSITORY/FILE``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = _check.input_folder(folder)

    def commit(self, repository: str, wanted: str | None) -> str:
        """Return "": a folder does not tell its commit."""
        return ""

    def fetch(self, repository: str, revision: str, file: str) -> Path:
        """Return where a file lies; parameters as for `HuggingFaceHub.fetch`, the revision without effect."""
        return _check.input_file(self._folder / repository / file)


def _not_given(repository: str, error: Exception) -> InputFileError:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
    return InputFileError(f"the hub did not give {repository}: {reason}")


_STSB_UNUSED = "\t" * 4  # genre, file, year and id, which no reader needs
_RTE_LABELS = ("entailment", "not_entailment")


def converted(file: DataFile, source: Path) -> bytes:
    """Make the content of a file."""
    try:
        return CONVERSIONS[file.how](file, source)
    except (ValueError, LookupError, TypeError, EOFError, OSError, zlib.error, tarfile.TarError) as error:
        what = f"it lacks {error.args[0]}" if isinstance(error, KeyError) else error
        raise FileFormatError(f"{source} must hold what {file.path} is made from; it does not: {what}.") from error


def _copy(file: DataFile, source: Path) -> bytes:
    return source.read_bytes()


def _gunzip(file: DataFile, source: Path) -> bytes:
    return _unpacked(source)


def _unpacked(source: Path) -> bytes:
    with gzip.open(source) as file:
        return bounds.read_document(str(source), cast("IO[bytes]", file), LARGEST_JSON)


def _member(file: DataFile, source: Path) -> bytes:
    with tarfile.open(source) as archive:
        content = archive.extractfile(file.member) if file.member in archive.getnames() else None
        if content is None:
            raise KeyError(file.member)
        return bounds.read_document(str(source), content, LARGEST_JSON)


def _stsb(file: DataFile, source: Path) -> bytes:
    """The seven columns of the STS benchmark, out of packed JSON lines."""
    lines = _unpacked(source).decode().split("\n")
    rows = [json.loads(line) for line in lines if line]
    return _lines([f"{_STSB_UNUSED}{row['score']:.6g}\t{row['sentence1']}\t{row['sentence2']}" for row in rows], 6)


def _rte(file: DataFile, source: Path) -> bytes:
    """The table of GLUE, without a column of labels where they are not public."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(source).to_pylist()
    names = ["index", "sentence1", "sentence2", "label"][: 4 if rows[0]["label"] >= 0 else 3]
    fields = [[str(row["idx"]), row["sentence1"], row["sentence2"], _RTE_LABELS[row["label"]]] for row in rows]
    return _lines(["\t".join(line[: len(names)]) for line in (names, *fields)], len(names) - 1)


CONVERSIONS: Mapping[str, Callable[[DataFile, Path], bytes]] = {
    "copy": _copy,
    "gunzip": _gunzip,
    "member": _member,
    "stsb": _stsb,
    "rte": _rte,
}


def _lines(lines: Sequence[str], n_tabs: int) -> bytes:
    if any(line.count("\t") != n_tabs or "\n" in line for line in lines):
        raise ValueError("its texts must be free of tabs and line feeds")
    return "".join(f"{line}\n" for line in lines).encode()


@dataclass(frozen=True, slots=True)
class GotFile:
    """What became of one file."""

    of: DataSet  # its set
    path: Path  # where it lies
    was_there: bool  # whether it was there already, whole
    is_pinned: bool  # whether its commit was known beforehand; else what was seen first is trusted
    original: bool | None  # whether it is as its authors made it; None where there is no sum to compare with


def get_data(
    names: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    hub: Hub | None = None,
    manifest: Manifest | None = None,
    progress: Callable[[int], Callable[[int], None]] | None = None,
) -> list[GotFile]:
    """Get sets of files from the hub."""
    # Every file is written under a temporary name and renamed. ``isosent-data.json`` in the folder keeps the commits
    # and sums that were seen; a later call refuses others.
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
