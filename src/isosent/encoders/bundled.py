"""References of encoders that lie inside the folder of the model that uses them, so that the two move together."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from isosent.encoders.reference import escape, unescape
from isosent.errors import ModelReferenceError

ENCODER_FOLDER: Final = "encoder"
_OF_FOLDERS = ("hf", "static")


def relative_reference(reference: str, folder: Path) -> str | None:
    """Write a reference as seen from a folder that the encoder lies in."""
    scheme, _, location = reference.partition(":")
    path, folder = Path(unescape(location)), folder.resolve()
    if scheme not in _OF_FOLDERS or not path.is_absolute() or folder not in path.parents:
        return None
    return f"{scheme}:{escape(path.relative_to(folder).as_posix())}"


def whole_reference(relative: str, folder: Path) -> str:
    """Undo `relative_reference`."""
    scheme, _, location = relative.partition(":")
    path = Path(unescape(location))
    if scheme not in _OF_FOLDERS or path.is_absolute() or not path.parts or ".." in path.parts:
        raise ModelReferenceError(f"an encoder inside of a model must be hf:NAME or static:NAME; got {relative!r}.")
    return f"{scheme}:{escape(str(folder.resolve() / path))}"
