"""What there is to get: sets of files, their places on the Hugging Face hub, their sums, their terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

from isosent.errors import InputError, InputTypeError
from isosent.files.documents import check_schema, parse_json
from isosent.files.result_schemas import DataManifest


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
        document = parse_json((files("isosent.datasets") / "manifest.json").read_bytes(), "manifest.json")
    check_schema(document, "data: the manifest", DataManifest)
    sets = map(_data_set, document["sets"])
    return Manifest({each.name: each for each in sets}, document["repositories"])


def _data_set(entry: Mapping[str, Any]) -> DataSet:
    """A set of the manifest, where "each" holds what its files have in common."""
    common = entry.get("each", {})
    own = {"files": tuple(DataFile(**common | file) for file in entry["files"])}
    facts = {name: value for name, value in entry.items() if name != "each"}
    return DataSet(**facts | own | {"includes": tuple(entry.get("includes", ()))})
