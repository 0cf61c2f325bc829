"""Which vector space the vectors of a file belong to, and the note of that beside files that have no place for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isosent.errors import FileFormatError, InputError

FORMAT = "isosent-vectors"
FORMAT_VERSION = 1

_ENDING = ".isosent.json"
_FINGERPRINT, _REFERENCE = "isosent.fingerprint", "isosent.reference"
_SAMPLES, _SAMPLE_BYTES = 64, 4096


@dataclass(frozen=True, slots=True)
class Space:
    """A vector space; only vectors with the same fingerprint can be compared.

    Parameters
    ----------
    fingerprint : str
        Its hash.
    reference : str
        What made the vectors, for people.
    """

    fingerprint: str
    reference: str

    def __str__(self) -> str:
        return f"{self.reference} ({self.fingerprint[:16]})"

    @property
    def metadata(self) -> dict[str, str]:
        """What a format with a place for metadata keeps."""
        return {_FINGERPRINT: self.fingerprint, _REFERENCE: self.reference}


def same_space(here: str, space: Space | None, there: str, other: Space | None) -> Space | None:
    """Refuse to compare, merge or search across two vector spaces.

    Parameters
    ----------
    here : str
        What belongs to the first space, for the message.
    space : Space or None
        The first space; None where nothing is known, which goes with any.
    there : str
        What belongs to the other one.
    other : Space or None
        The other space.

    Returns
    -------
    Space or None
        The known one.

    Raises
    ------
    InputError
        If both are known and differ; the message names both.

    Examples
    --------
    >>> print(same_space("the model", Space("ab12", "wordllama"), "old.npy", None))
    wordllama (ab12)
    """
    if space and other and space.fingerprint != other.fingerprint:
        raise InputError(
            f"{there} holds vectors of the space {other}; {here} belongs to {space}. "
            "Vectors of one mean nothing in the other. Encode both with the same model."
        )
    return space or other


def space_in(metadata: Mapping[Any, Any]) -> Space | None:
    """Find the space in a file's metadata.

    Parameters
    ----------
    metadata : mapping of str or bytes
        Names and values.

    Returns
    -------
    Space or None
        None where there is no fingerprint.
    """
    texts = {_text(name): _text(value) for name, value in metadata.items()}
    if _FINGERPRINT not in texts:
        return None
    return Space(texts[_FINGERPRINT], texts.get(_REFERENCE, "vectors"))


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What tells one file from another without reading all of it; its name does not count.

    Parameters
    ----------
    size_bytes : int
        Its size.
    sample_sha256 : str
        Hash of 64 stretches of 4 KiB, evenly spread, the first and the last bytes among them.
    """

    size_bytes: int
    sample_sha256: str

    @classmethod
    def of(cls, path: Path) -> FileIdentity:
        """Take the identity of a file.

        Parameters
        ----------
        path : Path
            An existing file.

        Returns
        -------
        FileIdentity
            Its identity.
        """
        size, digest = path.stat().st_size, hashlib.sha256()
        last = max(0, size - _SAMPLE_BYTES)
        with path.open("rb") as file:
            for start in sorted({last * i // (_SAMPLES - 1) for i in range(_SAMPLES)}):
                file.seek(start)
                digest.update(file.read(_SAMPLE_BYTES))
        return cls(size, digest.hexdigest())


def note_path(path: Path) -> Path:
    """Name of the note beside a file.

    Parameters
    ----------
    path : Path
        A file of vectors.

    Returns
    -------
    Path
        The same with ``.isosent.json`` behind it.
    """
    return path.with_name(path.name + _ENDING)


def note_text(path: Path, space: Space, shape: tuple[int, int], dtype: str) -> str:
    """Write what the note beside a file says.

    Parameters
    ----------
    path : Path
        The file, whole.
    space : Space
        Where its vectors belong.
    shape : tuple of int
        Rows and dimensions.
    dtype : str
        Type of its numbers.

    Returns
    -------
    str
        JSON. It holds the identity of the file, so that it is never taken for that of another one.
    """
    document = {"format": FORMAT, "format_version": FORMAT_VERSION, "shape": shape, "dtype": dtype}
    return json.dumps(document | asdict(space) | asdict(FileIdentity.of(path)), indent=2) + "\n"


def noted_space(path: Path) -> Space | None:
    """Read the note beside a file.

    Parameters
    ----------
    path : Path
        A file of vectors.

    Returns
    -------
    Space or None
        None where there is no note.

    Raises
    ------
    FileFormatError
        If the note is damaged or belongs to other content.
    """
    note = note_path(path)
    try:
        document = json.loads(note.read_text("utf-8"))
        space = Space(document["fingerprint"], document["reference"])
        identity = FileIdentity(document["size_bytes"], document["sample_sha256"])
        if document["format"] != FORMAT or document["format_version"] != FORMAT_VERSION:
            raise ValueError(f"its format is {document['format']} {document['format_version']}")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise FileFormatError(
            f"{note} must be a note of isosent about {path.name}; it is damaged: {error}. "
            "Remove it, or write both again."
        ) from None
    if identity != FileIdentity.of(path):
        raise FileFormatError(
            f"{note} must describe {path.name} beside it; it describes other content. "
            f"Remove it if {path.name} was replaced on purpose, or write both again."
        )
    return space
