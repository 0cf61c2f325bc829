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
    """One file of a set, and what it is made from.

    Parameters
    ----------
    path : str
        Its place below the folder of all data.
    repository : str, default ""
        The repository of data on the hub, such as ``nyu-mll/glue``; "" where the hub does not have it.
    file : str, default ""
        The file in it.
    how : str, default "copy"
        How it is made from that, one of `conversion.CONVERSIONS`.
    member : str, default ""
        What is taken out of that file, where it is an archive.
    sha256 : str, optional
        Sum of the file on the hub, if known; another one is refused.
    original : str, optional
        Sum of the file as its authors made it, or of its texts and scores in the form written here; another one is
        told, for it gives other scores than published ones.
    """

    path: str
    repository: str = ""
    file: str = ""
    how: str = "copy"
    member: str = ""
    sha256: str | None = None
    original: str | None = None


@dataclass(frozen=True, slots=True)
class DataSet:
    """A set of files that one name gets.

    Parameters
    ----------
    name : str
        Its name.
    title : str
        What it is.
    command : str
        Which command reads it.
    download : str
        How much is fetched.
    terms : str
        Terms of use, as far as the source states them.
    text : str
        How its texts differ from the original files.
    home : str
        Where the original files are described.
    place : str
        Which files to place by hand.
    files : tuple of DataFile
        Its own files.
    includes : tuple of str, default ()
        Sets that are fetched with it.
    """

    name: str
    title: str
    command: str
    download: str
    terms: str
    text: str
    home: str
    place: str
    files: tuple[DataFile, ...]
    includes: tuple[str, ...] = ()

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
    """All sets, and the revisions they are pinned to.

    Parameters
    ----------
    sets : mapping of str to DataSet
        The sets by name.
    revisions : mapping of str to str or None
        Commit of each repository; None where none is pinned, so that the first one seen is taken and recorded.
    """

    sets: Mapping[str, DataSet]
    revisions: Mapping[str, str | None]

    def chosen(self, names: Sequence[str]) -> tuple[DataSet, ...]:
        """Find sets by name, with those that they include.

        Parameters
        ----------
        names : sequence of str
            Names of sets; case does not matter.

        Returns
        -------
        tuple of DataSet
            Each once, those that are included behind those that include them.

        Raises
        ------
        InputError
            If a name is not known, or there is none.
        """
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
    """Read what there is to get.

    Parameters
    ----------
    document : mapping, optional
        Content of a manifest; that of this package where left out.

    Returns
    -------
    Manifest
        The sets.

    Examples
    --------
    >>> [file.path for file in read_manifest().sets["rte"].files]
    ['rte/train.tsv', 'rte/dev.tsv', 'rte/test.tsv']
    """
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
    """A repository as it was seen.

    Parameters
    ----------
    revision : str, default ""
        Its commit; "" if not known.
    files : dict of str to str, optional
        Sum of each file of it that was fetched.
    """

    revision: str = ""
    files: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Written:
    """A file as it was written.

    Parameters
    ----------
    sha256 : str
        Its sum.
    repository : str
        Where it came from.
    revision : str
        The commit of that; "" if not known.
    original : bool or None
        Whether it is as its authors made it; None where there is no sum to compare with.
    """

    sha256: str
    repository: str
    revision: str
    original: bool | None


@dataclass(slots=True)
class Lock:
    """What is known of a folder of data.

    Parameters
    ----------
    path : Path
        Where it is kept.
    repositories : dict of str to Seen
        Repositories that were fetched from.
    files : dict of str to Written
        Files that were written, by their places below the folder.
    """

    path: Path
    repositories: dict[str, Seen]
    files: dict[str, Written]

    @classmethod
    def of(cls, folder: Path) -> Lock:
        """Read what is known of a folder; an empty lock where nothing is.

        Parameters
        ----------
        folder : Path
            The folder of data.

        Returns
        -------
        Lock
            Its lock.

        Raises
        ------
        FileFormatError
            If the file is damaged.
        """
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
        """Return the commit to fetch.

        Parameters
        ----------
        repository : str
            Name of the repository.
        wanted : str, optional
            A commit; the one it is at now where left out.

        Returns
        -------
        str
            The commit.

        Raises
        ------
        InputFileError
            If none is wanted, and the hub cannot be reached or does not have the repository.
        """
        return wanted or self._ask(repository, None)

    def fetch(self, repository: str, revision: str, file: str) -> Path:
        """Return where a file lies in the cache, fetched if it was not there.

        Parameters
        ----------
        repository : str
            Its repository.
        revision : str
            The commit.
        file : str
            Its name.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        InputFileError
            If it is not in the cache, and the hub cannot be reached or does not have it.
        """
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
    """A folder that is laid out like the hub: ``REPOSITORY/FILE``.

    Parameters
    ----------
    folder : path-like
        The folder.

    Raises
    ------
    InputFileError
        If there is no such folder.
    """

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
    """Make the content of a file.

    Parameters
    ----------
    file : DataFile
        What is wanted.
    source : Path
        The file of the hub.

    Returns
    -------
    bytes
        The content.

    Raises
    ------
    FileFormatError
        If the file of the hub is damaged, or is not what it is said to be.
    """
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
