"""The model folder: ``model.json``, and a safetensors file each for a map, a flow, and what is known of a corpus.

``model.json`` names the others and is renamed into place last. They carry their own hash in their names, so a run that
is killed anywhere leaves either the old model or the new one, whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from isosent.behind import Behind
from isosent.calibration import Calibration
from isosent.encoders.inside import relative_reference, whole_reference
from isosent.encoders.reference import MODEL_FILE
from isosent.errors import InputError, ModelFolderError, ModelReferenceError, OutputError
from isosent.files.atomic import check_parent, locked, replacing
from isosent.model_record import (
    FitRecord,
    ModelRecord,
    corpus_bytes,
    corpus_of_bytes,
    flow_bytes,
    flow_of_bytes,
    map_bytes,
    maps_of_bytes,
)

FORMAT = "isosent-model"
FORMAT_VERSION = 1

_HASH = "[0-9a-f]{16}"
_KINDS = _MAP, _FLOW, _CORPUS = "linear_map", "flow", "corpus"
_OWN_FILE = re.compile(
    rf"model\.json|({'|'.join(_KINDS)})-{_HASH}\.safetensors"
    rf"|\.model-[0-9a-f]{{8}}\.tmp\.json|\.({'|'.join(_KINDS)})-{_HASH}-[0-9a-f]{{8}}\.tmp\.safetensors"
)

Field = TypeVar("Field")


def write_model(folder: str | os.PathLike[str], record: ModelRecord) -> None:
    """Write a model folder, replacing an older model there in one step.

    Parameters
    ----------
    folder : path-like
        A new or empty folder, or one that holds a model already.
    record : ModelRecord
        What to write.

    Raises
    ------
    OutputError
        If the folder holds other files, or cannot be written. An older model there is intact.
    """
    folder = Path(folder)
    try:
        if not folder.is_dir():
            check_model_folder(folder)
        is_new = not folder.exists()
        folder.mkdir(exist_ok=True)
        with locked(folder):
            check_model_folder(folder)
            try:
                for name, content in model_files(folder, record).items():
                    with replacing(folder / name) as temporary:
                        temporary.write_bytes(content)
            finally:
                _sweep(folder)
                if is_new and not any(folder.iterdir()):
                    folder.rmdir()
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{folder} could not be written: {error.strerror}.") from error


def model_files(folder: Path, record: ModelRecord) -> dict[str, bytes]:
    """Make the files of a model folder.

    Parameters
    ----------
    folder : Path
        Where they are to lie. An encoder inside of it is named relative to it, and moves with it.
    record : ModelRecord
        What they are to hold.

    Returns
    -------
    dict of str to bytes
        Names and contents; ``model.json`` comes last.
    """
    contents = {
        _MAP: map_bytes(record.behind),
        _FLOW: flow_bytes(record.behind),
        _CORPUS: corpus_bytes(record.corpus),
    }
    names = {kind: _file_name(kind, content) if content else None for kind, content in contents.items()}
    inside = relative_reference(record.reference, folder)
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "isosent_version": version("isosent"),
        "encoder": {
            **({"reference": record.reference} if inside is None else {"reference": inside, "inside": True}),
            "options": dict(record.options),
            "dim": record.encoder_dim,
            "fingerprint": record.encoder_fingerprint,
        },
        **names,
        "normalize": record.behind.normalize,
        "calibration": None if record.calibration is None else record.calibration.to_json(),
        "fits": [asdict(fit) for fit in record.fits],
        "fingerprint": record.fingerprint,
    }
    files = {name: contents[kind] for kind, name in names.items() if name is not None}
    return files | {MODEL_FILE: (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()}


def holds_its_encoder(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a model whose encoder lies inside of it.

    Parameters
    ----------
    folder : path-like
        Any folder.

    Returns
    -------
    bool
        False where no such model can be read.
    """
    try:
        document = json.loads((Path(folder) / MODEL_FILE).read_text("utf-8"))
        return _is_ours(document) and document["encoder"].get("inside") is True
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return False


def check_model_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a place where no model can be written, before any work is done.

    Parameters
    ----------
    folder : path-like
        The folder to write.

    Raises
    ------
    OutputError
        If it holds anything but a model or what a killed run left of one, or the folder it lies in does not exist.
    """
    folder = Path(folder)
    if not folder.exists():
        check_parent(folder)
        return
    if folder.is_dir() and all(_is_own_file(path) for path in folder.iterdir()):
        if not (folder / MODEL_FILE).exists():
            return
        with suppress(ValueError):
            if _is_ours(json.loads((folder / MODEL_FILE).read_text("utf-8"))):
                return
    raise OutputError(
        f"{folder} must be a new or empty folder or an isosent model; got something else. Name another one."
    )


def _is_own_file(path: Path) -> bool:
    """Whether a file is a part of a model or what a killed run left of one: by name and, where it has one, its hash."""
    if not (path.is_file() and _OWN_FILE.fullmatch(path.name)):
        return False
    if path.name.startswith(".") or path.name == MODEL_FILE:
        return True
    return _file_name(path.name.partition("-")[0], path.read_bytes()) == path.name


def _is_ours(document: Any) -> bool:
    return isinstance(document, dict) and document.get("format") == FORMAT


def _sweep(folder: Path) -> None:
    """Remove what the model does not name: files of older models, and what failed or killed runs left."""
    with suppress(OSError, ValueError):
        named = {MODEL_FILE}
        if (folder / MODEL_FILE).exists():
            document = json.loads((folder / MODEL_FILE).read_text("utf-8"))
            named |= {document.get(kind) for kind in _KINDS}
        for path in list(folder.iterdir()):
            if path.name not in named and _is_own_file(path):
                path.unlink()


def read_model(folder: str | os.PathLike[str]) -> ModelRecord:
    """Read a model folder.

    Parameters
    ----------
    folder : path-like
        A folder written by `write_model`.

    Returns
    -------
    ModelRecord
        What it holds.

    Raises
    ------
    ModelFolderError
        If a file is missing, truncated or altered, the format version is unknown, or shapes do not agree.
    """
    folder = Path(folder)
    document = _read_document(folder)
    encoder = _field(folder, document, "encoder", dict)
    record = ModelRecord(
        reference=_read_reference(folder, encoder),
        options=_field(folder, encoder, "options", dict),
        encoder_dim=_field(folder, encoder, "dim", int),
        encoder_fingerprint=_field(folder, encoder, "fingerprint", str),
        behind=_read_behind(folder, document),
        fits=tuple(_read_fit(folder, fit) for fit in _field(folder, document, "fits", list)),
        calibration=_read_calibration(folder, document.get("calibration")),
        corpus=_read_corpus(folder, document),
    )
    if record.behind.dim not in (None, record.encoder_dim):
        raise ModelFolderError(
            f"{folder}: the map must take {record.encoder_dim} dimensions, those of the encoder; "
            f"it takes {record.behind.dim}."
        )
    if record.fingerprint != _field(folder, document, "fingerprint", str):
        raise ModelFolderError(
            f"{folder}: the map is not the one this model was saved with; a file was altered. Fit it again."
        )
    return record


def _read_document(folder: Path) -> dict[str, Any]:
    path = folder / MODEL_FILE
    try:
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ModelFolderError(f"{folder} is no model saved by isosent: it has no {MODEL_FILE}.") from None
    except (ValueError, RecursionError, OSError) as error:
        raise ModelFolderError(f"{path} must be JSON; it is damaged or truncated: {error}.") from None
    if not _is_ours(document):
        raise ModelFolderError(f"{path} must say that its format is {FORMAT}; it is no model saved by isosent.")
    if document.get("format_version") != FORMAT_VERSION:
        raise ModelFolderError(
            f"{path} has format version {document.get('format_version')}; this isosent, {version('isosent')}, reads "
            f"version {FORMAT_VERSION}. It was written by isosent {document.get('isosent_version')}: install that one."
        )
    return document


def _field(folder: Path, document: Mapping[str, Any], name: str, kind: type[Field]) -> Field:
    value = document.get(name)
    if not isinstance(value, kind):
        raise ModelFolderError(f"{folder / MODEL_FILE}: {name} must be of type {kind.__name__}; got {value!r}.")
    return value


def _read_reference(folder: Path, encoder: Mapping[str, Any]) -> str:
    reference = _field(folder, encoder, "reference", str)
    try:
        return whole_reference(reference, folder) if encoder.get("inside") is True else reference
    except ModelReferenceError as error:
        raise ModelFolderError(f"{folder / MODEL_FILE}: {error}") from None


def _read_fit(folder: Path, fit: Any) -> FitRecord:
    try:
        return FitRecord(**fit)
    except TypeError as error:
        raise ModelFolderError(f"{folder / MODEL_FILE}: an entry of fits is malformed: {error}.") from None


def _read_behind(folder: Path, document: Mapping[str, Any]) -> Behind:
    normalize = _field(folder, {"normalize": False, **document}, "normalize", bool)
    map_shapes = "weight (dim, n_components) and bias (n_components,)"
    linear_map, query_map = _parsed(folder, document, _MAP, maps_of_bytes, map_shapes) or (None, None)
    flow = _parsed(folder, document, _FLOW, flow_of_bytes, "the arrays of a flow")
    try:
        return Behind(linear_map, query_map, normalize, flow)
    except InputError as error:
        raise ModelFolderError(f"{folder}: map and flow do not go together. {error}") from None


def _read_corpus(folder: Path, document: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    return _parsed(folder, document, _CORPUS, corpus_of_bytes, "named arrays") or {}


def _parsed(
    folder: Path, document: Mapping[str, Any], kind: str, parse: Callable[[bytes], Field], holds: str
) -> Field | None:
    """What the file that the document names holds, or None where it names none."""
    content = _read_named(folder, document, kind)
    if content is None:
        return None
    path = folder / str(document[kind])
    try:
        return parse(content)
    except (KeyError, InputError) as error:
        raise ModelFolderError(f"{path} must hold {holds}: {error}") from None
    except SafetensorError as error:
        raise _damaged(path, error) from None


def _read_named(folder: Path, document: Mapping[str, Any], kind: str) -> bytes | None:
    """Content of the file that the document names, or None where it names none."""
    if document.get(kind) is None:
        return None
    path = folder / str(document[kind])
    if path.parent != folder:
        raise ModelFolderError(f"{folder / MODEL_FILE}: {kind} must name a file in the folder; got {document[kind]!r}.")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelFolderError(f"{folder} must hold {path.name}; it is missing. Copy the whole folder.") from None
    except OSError as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> ModelFolderError:
    return ModelFolderError(f"{path} must be a safetensors file; it is damaged or truncated: {error}.")


def _read_calibration(folder: Path, document: Any) -> Calibration | None:
    try:
        return None if document is None else Calibration.from_json(document)
    except (InputError, TypeError, AttributeError) as error:
        raise ModelFolderError(f"{folder / MODEL_FILE}: calibration is malformed: {error}") from None


def _file_name(kind: str, content: bytes) -> str:
    return f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
