"""The note that every export carries: what was exported, the fingerprint of its space, and how the check went."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from isosent.encoders.inside import ENCODER_FOLDER
from isosent.encoders.transformer import PROMPT_OF
from isosent.errors import FileFormatError
from isosent.exports.self_check import Agreement
from isosent.files.atomic import Replaceable
from isosent.files.checksum import verify_file
from isosent.files.documents import document_bytes
from isosent.files.export_note import (
    FORMAT,
    NOTE_FILE,
    exported_checksums,
    is_replaceable,
    read_export_note,
    verify_export,
)
from isosent.files.plain import without_nan
from isosent.files.space import FileIdentity, Space
from isosent.model import SentenceEncoder

EXPORT = Replaceable("an older export and nothing else", is_replaceable)

_PROMPTS = frozenset(PROMPT_OF.values())


@dataclass(frozen=True, slots=True)
class Export:
    """What was written.

    Parameters
    ----------
    target : str
        Name of the format.
    path : Path
        Where it is.
    space : Space
        The space of its vectors.
    agreement : Agreement
        How close its vectors are to those of the model.
    """

    target: str
    path: Path
    space: Space
    agreement: Agreement


def space_of(model: SentenceEncoder) -> Space:
    """The space of a model's vectors.

    Parameters
    ----------
    model : SentenceEncoder
        The model.

    Returns
    -------
    Space
        Its fingerprint, and the reference of its encoder.
    """
    return Space(model.fingerprint, shortened(model.record.name))


def shortened(reference: str) -> str:
    r"""Write a reference, or the name of a source, without the folders of the machine it was made on.

    Parameters
    ----------
    reference : str
        Paths with commas between them, a scheme in front or not.

    Returns
    -------
    str
        The same with the last name of each path only; with the folder of a model ahead of the encoder inside of it.

    Examples
    --------
    >>> shortened("words:/home/me/glove.txt,../fasttext.vec"), shortened("C:\\texts\\"), shortened("~/a b/, wordllama")
    ('words:glove.txt,fasttext.vec', 'texts', 'a b, wordllama')
    >>> shortened("hf:/home/me/trained/encoder")
    'hf:trained/encoder'
    """
    scheme, rest = re.fullmatch(r"([a-z][a-z0-9]+:)?(.*)", reference, re.DOTALL).groups("")  # type: ignore[union-attr]
    return scheme + ",".join(_last_name(path) for path in rest.split(","))


def _last_name(path: str) -> str:
    blank = path[: len(path) - len(path.lstrip())]
    names = re.split(r"[/\\]", path.strip().rstrip("/\\"))
    return blank + "/".join(names[-2:] if names[-1] == ENCODER_FOLDER else names[-1:])


def shared_facts(model: SentenceEncoder) -> dict[str, Any]:
    """What a result file says about a model, without the folders of the machine it was made on.

    Parameters
    ----------
    model : SentenceEncoder
        The model.

    Returns
    -------
    dict
        As `ModelRecord.facts`.
    """
    facts = model.record.facts()
    return facts | {
        "reference": shortened(facts["reference"]),
        "options": {name: value if name in _PROMPTS else shortened(value) for name, value in facts["options"].items()},
        "fits": [fit | {"source": shortened(fit["source"])} for fit in facts["fits"]],
    }


def note_bytes(target: str, model: SentenceEncoder, agreement: Agreement, more: Mapping[str, Any]) -> bytes:
    """Write the note: what was exported, how the check went, and what a reader of this format must know."""
    return document_bytes(
        {
            "format": FORMAT,
            "target": target,
            "isosent_version": version("isosent"),
            **asdict(space_of(model)),
            "normalize": model.normalize,
            **more,
            "model": without_nan(shared_facts(model)),
            "agreement": asdict(agreement),
        }
    )


def write_folder_note(
    folder: Path, target: str, model: SentenceEncoder, agreement: Agreement, more: Mapping[str, Any]
) -> None:
    """Write the note of a folder, whose other files are there, with the checksum of each."""
    note = note_bytes(target, model, agreement, {**more, "checksums": exported_checksums(folder)})
    (folder / NOTE_FILE).write_bytes(note)


def read_space(path: str | os.PathLike[str]) -> Space:
    """Read which space an export belongs to.

    Parameters
    ----------
    path : path-like
        An exported folder, or a file with its note beside it.

    Returns
    -------
    Space
        The space of its vectors.

    Raises
    ------
    InputFileError
        If there is no note, or it or the export is damaged.
    """
    document = read_export_note(path)
    if Path(path).is_dir():
        verify_export(Path(path))
    else:
        document |= file_entry(Path(path), document) or {}
    return Space(document["fingerprint"], document["reference"])


def file_entry(path: Path, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the note beside an exported file says of it as it is now; the bytes of the file are checked.

    None where there is no file, or its note is from before notes described their file.
    """
    if not path.is_file() or "files" not in document:
        return None
    identity = asdict(FileIdentity.of(path)).items()
    entry = next((entry for entry in document["files"] if identity <= entry.items()), None)
    if entry is None:
        raise FileFormatError(
            f"{path} is not the file that its note describes: one of them was replaced. Export again."
        )
    verify_file(path, entry["checksum"])
    return dict(entry)
