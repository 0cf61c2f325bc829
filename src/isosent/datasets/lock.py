"""The file ``isosent-data.json`` beside fetched data: what was seen the first time holds for every later time."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from isosent.errors import FileFormatError
from isosent.files.documents import read_document, write_document
from isosent.files.result_schemas import DataLock

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
