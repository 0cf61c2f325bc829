"""The note that every export carries: what was exported, the fingerprint of its space, and how the check went."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from isosent.errors import InputFileError
from isosent.exports.self_check import Agreement
from isosent.files.space import Space, note_path
from isosent.model import SentenceEncoder

NOTE_FILE = "isosent.json"
FORMAT = "isosent-export"


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
    return Space(model.fingerprint, model.record.name)


def note_text(target: str, model: SentenceEncoder, agreement: Agreement, more: Mapping[str, Any]) -> str:
    """Write the note.

    Parameters
    ----------
    target : str
        Name of the format.
    model : SentenceEncoder
        What was exported.
    agreement : Agreement
        How the check went.
    more : mapping
        What a reader of this format must know.

    Returns
    -------
    str
        JSON.
    """
    document = {
        "format": FORMAT,
        "target": target,
        "isosent_version": version("isosent"),
        **asdict(space_of(model)),
        "normalize": model.normalize,
        **more,
        "model": model.record.facts(),
        "agreement": asdict(agreement),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


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
        If there is no note, or it is damaged.
    """
    note = Path(path) / NOTE_FILE if Path(path).is_dir() else note_path(Path(path))
    try:
        document = json.loads(note.read_text("utf-8"))
        return Space(document["fingerprint"], document["reference"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(f"{note} must be the note of an export; it cannot be read: {error!r}.") from None
