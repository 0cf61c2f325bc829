"""The note that every export carries: what was exported, the fingerprint of its space, and how the check went."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from isosent.encoders.inside import ENCODER_FOLDER
from isosent.encoders.transformer import PROMPT_OF
from isosent.errors import InputFileError
from isosent.exports.self_check import Agreement
from isosent.files.space import Space, note_path
from isosent.model import SentenceEncoder

NOTE_FILE = "isosent.json"
FORMAT = "isosent-export"

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
        "model": shared_facts(model),
        "agreement": asdict(agreement),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def is_noted(path: str | os.PathLike[str], target: str) -> bool:
    """Whether the note of an export is there.

    Parameters
    ----------
    path : path-like
        An exported folder, or a file with its note beside it.
    target : str
        Name of the format.

    Returns
    -------
    bool
        Whether there is a note, and one of that format.
    """
    try:
        document = json.loads(_note_of(path).read_text("utf-8"))
        return bool(document["format"] == FORMAT and document["target"] == target)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _note_of(path: str | os.PathLike[str]) -> Path:
    return Path(path) / NOTE_FILE if Path(path).is_dir() else note_path(Path(path))


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
    note = _note_of(path)
    try:
        document = json.loads(note.read_text("utf-8"))
        return Space(document["fingerprint"], document["reference"])
    except OSError as error:
        raise InputFileError(f"{note} must be the note of an export; it cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputFileError(f"{note} must be the note of an export; it holds something else.") from None
