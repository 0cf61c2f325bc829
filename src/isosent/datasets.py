"""Public data sets, fetched from the Hugging Face hub in the layout that the readers of tasks expect.

``data/datasets.json`` lists the sets, pinned to commits. ``isosent-data.json`` next to the data, the `DataRecord`,
keeps the commits and SHA-256 sums of what was fetched; later calls refuse anything else.

`get_data` goes through the files of the sets. An existing one is compared with the record. Any other one is fetched
from the `HuggingFaceHub`, or from a `Mirror` of it, compared with the sum in the manifest or in the record, converted
to the layout that the readers of tasks expect (`CONVERSIONS`), entered in the record, and written.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, cast

from msgspec import Struct, field, to_builtins

from isosent import _check, _extras
from isosent.errors import FileFormatError, InputError, InputFileError, InputTypeError, OutputError, option, wrong_value
from isosent.io import bounds
from isosent.io.atomic import locked, replacing
from isosent.io.json import check_schema, parse_json, read_record, write_document
from isosent.io.schemas import Document, Sha256
from isosent.io.system import open_to_read, read_bytes, system_error
from isosent.pages.progress import Progress, counted

RECORD_NAME = "isosent-data.json"
FORMAT = "isosent-data"
FORMAT_VERSION = 1

_TIMEOUT_S = 10.0
_STSB_UNUSED = "\t" * 4  # genre, file, year and id, which no reader needs
_RTE_LABELS = ("entailment", "not_entailment")


class DataFile(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """One file of a set, and what it is made from."""

    path: str  # below the folder of all data
    repository: str = ""  # on the hub, such as nyu-mll/glue; "" if the hub does not have it
    file: str = ""  # in the repository
    how: str = "copy"  # how it is made from that file, see `CONVERSIONS`
    member: str = ""  # what is taken out of that file, if it is an archive
    sha256: Sha256 | None = None  # of the file on the hub; another one is refused
    original: Sha256 | None = None  # of the file as its authors made it; another one gives other scores than published


class DataSet(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Files that are fetched under one name."""

    name: str
    title: str
    command: str  # that reads it
    download: str  # how much is fetched
    terms: str  # of use, as far as the source states them
    text: str  # how its texts differ from the original files
    home: str  # where the original files are described
    place: str  # which files to place by hand
    files: tuple[DataFile, ...]
    includes: tuple[str, ...] = ()  # sets that are fetched with it

    @property
    def is_converted(self) -> bool:
        """Whether files are made from tables of another form."""
        return any(file.how in ("stsb", "rte") for file in self.files)

    @property
    def repositories(self) -> tuple[str, ...]:
        """Where its own files come from, each once."""
        return tuple(dict.fromkeys(file.repository for file in self.files if file.repository))


class Manifest(NamedTuple):
    """All sets by name, and the commit of each repository; None where none is pinned: the first one seen is kept."""

    sets: Mapping[str, DataSet]
    revisions: Mapping[str, str | None]

    def select(self, names: Sequence[str]) -> tuple[DataSet, ...]:
        """Find sets by name, with those that they include."""
        if isinstance(names, str):
            raise wrong_value(
                "data", "names", "be a sequence of names", "one string", f"Pass [{names!r}].", error=InputTypeError
            )
        if not names:
            raise InputError(f"data: no set is named. There are {', '.join(self.sets)}.")
        chosen: dict[str, DataSet] = {}
        for name in names:
            key = name.strip().lower()
            if key not in self.sets:
                nearest = get_close_matches(key, self.sets, n=1)
                advice = f" Did you mean {nearest[0]}?" if nearest else ""
                raise InputError(f"data: there is no set {name!r}.{advice} There are {', '.join(self.sets)}.")
            for each in (key, *self.sets[key].includes):
                chosen.setdefault(each, self.sets[each])
        return tuple(chosen.values())


class _Files(Struct):
    files: list[dict[str, Any]]
    each: dict[str, Any] = {}  # what the files have in common


class _Sets(Struct):
    sets: list[_Files]


class _ManifestFile(Struct, forbid_unknown_fields=True):
    repositories: dict[str, str | None]
    sets: list[DataSet]
    note: str = ""


def read_manifest() -> Manifest:
    """Read which sets there are."""
    return parse_manifest(
        parse_json((resources.files("isosent") / "data" / "datasets.json").read_bytes(), "datasets.json")
    )


def parse_manifest(document: Mapping[str, Any]) -> Manifest:
    """Read which sets a manifest lists."""
    where = "data: the manifest"
    lists = check_schema(document, where, _Sets)
    sets = []
    for entry, common in zip(document["sets"], lists.sets, strict=True):
        facts = {name: value for name, value in entry.items() if name != "each"}
        sets.append(facts | {"files": [common.each | file for file in common.files]})
    manifest = check_schema({**document, "sets": sets}, where, _ManifestFile)
    return Manifest({each.name: each for each in manifest.sets}, manifest.repositories)


# -- what is known of a folder ---------------------------------------------------------------------------------------


class FetchedRepository(Struct, forbid_unknown_fields=True):
    """What was fetched from a repository."""

    revision: str = ""  # the commit that was fetched; "" if not known
    files: dict[str, Sha256] = field(default_factory=dict)


class FileState(Struct, forbid_unknown_fields=True):
    """A file as it was written."""

    sha256: Sha256
    repository: str
    revision: str
    original: bool | None  # whether it is as its authors made it; None if there is no sum to compare with


class DataRecord(Document, kw_only=True):
    """``isosent-data.json``: what is known of a folder of data."""

    repositories: dict[str, FetchedRepository] = field(default_factory=dict)
    files: dict[str, FileState] = field(default_factory=dict)  # by path below the folder


def read_data_record(folder: Path) -> DataRecord:
    """Read what is known of a folder of data; nothing, if it has no lock."""
    path = folder / RECORD_NAME
    if not path.exists():
        return DataRecord(format=FORMAT, format_version=FORMAT_VERSION)
    try:
        return read_record(path, FORMAT, FORMAT_VERSION, DataRecord)
    except FileFormatError as error:
        raise FileFormatError(f"{error} Move the folder away and get the data again.") from None


def write_data_record(folder: Path, record: DataRecord) -> None:
    """Write what is known of a folder of data, in one step."""
    document: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION}
    document["repositories"] = to_builtins(dict(sorted(record.repositories.items())))
    document["files"] = to_builtins(dict(sorted(record.files.items())))
    write_document(folder / RECORD_NAME, document)


# -- where files come from -------------------------------------------------------------------------------------------


class Hub(Protocol):
    """Gives the files of repositories; a file that it cannot give is an `InputFileError`."""

    def commit(self, repository: str, wanted: str | None) -> str:
        """Return the commit to fetch: the wanted one, else the current one; "" if it is not known."""
        ...

    def fetch(self, repository: str, revision: str, file: str) -> Path:
        """Return the path of a file of a repository on this machine."""
        ...


class HuggingFaceHub:
    """The Hugging Face hub; `huggingface_hub` keeps what was fetched in its cache."""

    def commit(self, repository: str, wanted: str | None) -> str:
        """Return the commit to fetch."""
        return wanted or self._ask(repository, None)

    def fetch(self, repository: str, revision: str, file: str) -> Path:
        """Return the path of a file in the cache; it is fetched if it is not there."""
        import huggingface_hub
        from huggingface_hub.errors import LocalEntryNotFoundError

        def download(*, local: bool) -> Path:
            settings: dict[str, Any] = {"repo_type": "dataset", "revision": revision, "local_files_only": local}
            return Path(huggingface_hub.hf_hub_download(repository, file, **settings))

        try:
            return download(local=True)
        except LocalEntryNotFoundError:
            self._ask(repository, revision)  # fails at once, where a download would try five times
        try:
            return download(local=False)
        except Exception as error:
            raise _hub_error(repository, error) from error

    def _ask(self, repository: str, revision: str | None) -> str:
        import huggingface_hub

        try:
            info = huggingface_hub.HfApi().dataset_info(repository, revision=revision, timeout=_TIMEOUT_S)
        except Exception as error:  # whatever its HTTP client raises
            raise _hub_error(repository, error) from error
        return str(info.sha)


class Mirror:
    """A folder that is laid out like the hub: ``REPOSITORY/FILE``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = _check.input_folder(folder)

    def commit(self, repository: str, wanted: str | None) -> str:
        """Return "": the commit of a folder is not known."""
        return ""

    def fetch(self, repository: str, revision: str, file: str) -> Path:
        """Return the path of a file."""
        return _check.input_file(self._folder / repository / file)


def _hub_error(repository: str, error: Exception) -> InputFileError:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
    return InputFileError(f"the hub did not give {repository}: {reason}")


# -- conversions -----------------------------------------------------------------------------------------------------


def converted_content(file: DataFile, source: Path) -> bytes:
    """Make the content of a file from a file of the hub."""
    try:
        return CONVERSIONS[file.how](file, source)
    except (ValueError, LookupError, TypeError, EOFError, OSError, zlib.error, tarfile.TarError) as error:
        if unreadable := system_error(error, source):
            raise unreadable from error
        reason = f"it lacks {error.args[0]}" if isinstance(error, KeyError) else error
        raise FileFormatError(f"{source} cannot be converted to {file.path}: {reason}.") from error


def _gunzip(source: Path) -> bytes:
    with open_to_read(source) as packed, gzip.open(packed) as file:
        return bounds.read_bounded(str(source), cast("IO[bytes]", file), bounds.LARGEST_JSON)


def _member(file: DataFile, source: Path) -> bytes:
    with open_to_read(source) as packed, tarfile.open(fileobj=packed) as archive:
        content = archive.extractfile(file.member) if file.member in archive.getnames() else None
        if content is None:
            raise KeyError(file.member)
        return bounds.read_bounded(str(source), content, bounds.LARGEST_JSON)


def _stsb(file: DataFile, source: Path) -> bytes:
    """The seven columns of the STS benchmark, from packed JSON lines."""
    rows = [json.loads(line) for line in _gunzip(source).decode().split("\n") if line]
    # The hub stores float32: six digits give the scores as they were written.
    return _lines([f"{_STSB_UNUSED}{row['score']:.6g}\t{row['sentence1']}\t{row['sentence2']}" for row in rows], 6)


def _rte(file: DataFile, source: Path) -> bytes:
    """The table of GLUE, without a column of labels where they are not public."""
    pq = _extras.require("pyarrow.parquet")

    rows: list[dict[str, Any]] = pq.read_table(source).to_pylist()
    names = ["index", "sentence1", "sentence2", "label"][: 4 if rows[0]["label"] >= 0 else 3]
    fields = [[str(row["idx"]), row["sentence1"], row["sentence2"], _RTE_LABELS[row["label"]]] for row in rows]
    return _lines(["\t".join(line[: len(names)]) for line in (names, *fields)], len(names) - 1)


def _lines(lines: Sequence[str], n_tabs: int) -> bytes:
    if any(line.count("\t") != n_tabs or "\n" in line for line in lines):
        raise ValueError("its texts must be free of tabs and line feeds")
    return "".join(f"{line}\n" for line in lines).encode()


CONVERSIONS: Mapping[str, Callable[[DataFile, Path], bytes]] = {
    "copy": lambda file, source: read_bytes(source),
    "gunzip": lambda file, source: _gunzip(source),
    "member": _member,
    "stsb": _stsb,
    "rte": _rte,
}


# -- getting ---------------------------------------------------------------------------------------------------------


class FetchedFile(NamedTuple):
    """What became of one file."""

    data_set: DataSet
    path: Path
    was_there: bool
    is_pinned: bool  # to a commit of the manifest; else what was seen first is trusted
    original: bool | None  # whether it is as its authors made it; None if there is no sum to compare with


def get_data(
    names: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    hub: Hub | None = None,
    progress: Progress | None = None,
) -> list[FetchedFile]:
    """Get sets of files from the hub; what is there and unchanged is not fetched again."""
    manifest, folder = read_manifest(), Path(folder)
    wanted = [(each, file) for each in manifest.select(names) for file in each.files]
    _make_folder(folder)
    files = []
    with locked(folder):
        getter = _Getter(folder, hub or HuggingFaceHub(), manifest)
        for data_set, file in counted(wanted, progress, len(wanted), lambda _: 1):
            files.append(getter.get(data_set, file))
    return files


class _Getter:
    """Gets files into a folder, and keeps the lock of the folder."""

    def __init__(self, folder: Path, hub: Hub, manifest: Manifest) -> None:
        self._folder, self._hub, self._manifest = folder, hub, manifest
        self._record = read_data_record(folder)
        self._sources: dict[tuple[str, str], Path] = {}  # files of the hub, fetched and checked

    def get(self, data_set: DataSet, file: DataFile) -> FetchedFile:
        path = self._folder / file.path
        was_there = path.exists()
        state = self._check(file, path) if was_there else self._write(data_set, file, path)
        is_pinned = bool(state.revision) and state.revision == self._manifest.revisions.get(state.repository)
        return FetchedFile(data_set, path, was_there, is_pinned, state.original)

    def _check(self, file: DataFile, path: Path) -> FileState:
        """Refuse a file that is neither as it was fetched nor as its authors made it."""
        digest, state = _sha256(path), self._record.files.get(file.path)
        if state and digest == state.sha256:
            return state
        if digest == file.original or not file.repository:
            return FileState(digest, "", "", digest == file.original)
        why = "has changed since it was fetched" if state else f"is not listed in {RECORD_NAME}"
        raise OutputError(f"{path} {why}, and is not replaced. Move it away, or name another folder.")

    def _write(self, data_set: DataSet, file: DataFile, path: Path) -> FileState:
        if not file.repository:
            raise InputFileError(
                f"data: {data_set.name} is not on the hub, and {path} is not there. Place {data_set.place}, below "
                f"{self._folder}; they are on {data_set.home}."
            )
        key = (file.repository, file.file)
        if key not in self._sources:
            self._sources[key] = self._fetch(data_set, file)
        content = converted_content(file, self._sources[key])
        digest = hashlib.sha256(content).hexdigest()
        original = None if file.original is None else digest == file.original
        state = FileState(digest, file.repository, self._record.repositories[file.repository].revision, original)
        self._record.files[file.path] = state
        write_data_record(self._folder, self._record)  # before the file, so that no file is ever unlisted
        _make_folder(path.parent)
        with replacing(path) as temporary:
            temporary.write_bytes(content)
        return state

    def _fetch(self, data_set: DataSet, file: DataFile) -> Path:
        """Fetch a file of the hub; refuse it if its sum is not the expected one, else remember its sum."""
        before = self._record.repositories.get(file.repository, FetchedRepository())
        try:
            pinned = self._manifest.revisions[file.repository]
            revision = self._hub.commit(file.repository, pinned or before.revision)
            source = self._hub.fetch(file.repository, revision, file.file)
        except InputFileError as error:
            raise InputFileError(_without_hub(data_set, self._folder, error)) from error
        if before.revision and revision and revision != before.revision:
            before = FetchedRepository()
        digest = _sha256(source)
        for place, expected in (("the manifest", file.sha256), (RECORD_NAME, before.files.get(file.file))):
            if expected and digest != expected:
                raise FileFormatError(
                    f"{file.repository}/{file.file}: its SHA-256 is {digest[:16]}..., but {place} expects "
                    f"{expected[:16]}.... It was damaged or changed on the way, and is not used."
                )
        self._record.repositories[file.repository] = FetchedRepository(
            revision or before.revision, before.files | {file.file: digest}
        )
        return source


def _without_hub(data_set: DataSet, folder: Path, error: InputFileError) -> str:
    sources = dict.fromkeys(f"{file.repository}/{file.file}" for file in data_set.files)
    return (
        f"data: {data_set.name} could not be fetched: {str(error).rstrip('.')}. Without network, either place "
        f"{data_set.place}, below {folder}, as on {data_set.home}; or bring the hub's data files {', '.join(sources)} "
        f"from elsewhere, laid out like that in a folder, and add {option('mirror', 'FOLDER')}."
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} could not be created: {error.strerror}.") from None


def _sha256(path: Path) -> str:
    with open_to_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
