"""The model folder: ``model.json``, and a safetensors file each for a map, a flow, and what is known of a corpus.

``model.json`` names the others and is renamed into place last. They carry their own hash in their names, so a run that
is killed anywhere leaves either the old model or the new one, whole.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError

from isosent.behind import Behind
from isosent.calibration import Calibration
from isosent.encoders.inside import relative_reference, whole_reference
from isosent.encoders.reference import MODEL_FILE
from isosent.errors import InputError, ModelFolderError, ModelReferenceError, OutputError
from isosent.files.atomic import check_parent, is_temporary, locked, recover, replacing, sweep
from isosent.files.documents import document_bytes, format_of, read_document
from isosent.files.schemas import Model
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
RECORD_FILE = "training.json"  # of a trained folder: what it was trained on, and the checksums of its files

_HASH = "[0-9a-f]{16}"
_KINDS = _MAP, _FLOW, _CORPUS = "linear_map", "flow", "corpus"
_OWN_FILE = re.compile(rf"model\.json|({'|'.join(_KINDS)})-{_HASH}\.safetensors")
# what a killed run left behind: older versions gave their temporary files these names
_LEFT_BEHIND = re.compile(
    rf"\.model-[0-9a-f]{{8}}\.tmp\.json|\.({'|'.join(_KINDS)})-{_HASH}-[0-9a-f]{{8}}\.tmp\.safetensors"
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
                    with replacing(folder / name, mode_of=folder / MODEL_FILE) as temporary:
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
    return files | {MODEL_FILE: document_bytes(document)}


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
        document = read_document(Path(folder) / MODEL_FILE, FORMAT, FORMAT_VERSION, Model)
        return document["encoder"].get("inside") is True
    except (OSError, InputError):
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
    if folder.is_dir():
        if format_of(folder / MODEL_FILE) == FORMAT:  # damaged or not
            is_replaceable = all(_has_own_name(path) for path in folder.iterdir())
        else:
            is_replaceable = all(path.name != MODEL_FILE and _is_own_file(path) for path in folder.iterdir())
        if is_replaceable:
            return
    raise OutputError(
        f"{folder} must be a new or empty folder or an isosent model; got something else. Name another one."
    )


def _has_own_name(path: Path) -> bool:
    """Whether a file is named as a part of a model, or as what a killed run left of one."""
    is_named = is_temporary(path.name) or any(rule.fullmatch(path.name) for rule in (_OWN_FILE, _LEFT_BEHIND))
    return is_named and not path.is_dir()  # it may be gone by now: other processes write here, too


def _is_own_file(path: Path) -> bool:
    """The same in a folder without a model: a name with a hash must also tell the hash of its content."""
    try:
        return _has_own_name(path) and (is_temporary(path.name) or _is_whole(path.name, path.read_bytes()))
    except FileNotFoundError:
        return True


def _sweep(folder: Path) -> None:
    """Remove what the model does not name: files of older models, and what failed or killed runs left."""
    sweep(folder)
    with suppress(OSError, InputError):
        named = {MODEL_FILE}
        if (folder / MODEL_FILE).exists():
            document = read_document(folder / MODEL_FILE, FORMAT, FORMAT_VERSION, Model)
            named |= {str(document.get(kind)) for kind in _KINDS}
        for path in list(folder.iterdir()):
            if path.name not in named and not is_temporary(path.name) and _has_own_name(path):
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
    encoder = document["encoder"]
    record = ModelRecord(
        reference=_read_reference(folder, encoder),
        options=encoder["options"],
        encoder_dim=encoder["dim"],
        encoder_fingerprint=encoder["fingerprint"],
        behind=_read_behind(folder, document),
        fits=tuple(FitRecord(**fit) for fit in document["fits"]),
        calibration=_read_calibration(folder, document.get("calibration")),
        corpus=_parsed(folder, document, _CORPUS, corpus_of_bytes, "named arrays") or {},
    )
    if record.behind.dim not in (None, record.encoder_dim):
        raise ModelFolderError(
            f"{folder}: the map must take {record.encoder_dim} dimensions, those of the encoder; "
            f"it takes {record.behind.dim}."
        )
    if record.fingerprint != document["fingerprint"]:
        raise ModelFolderError(
            f"{folder}: the map is not the one this model was saved with; a file was altered. Fit it again."
        )
    return record


def _read_document(folder: Path) -> dict[str, Any]:
    recover(folder)
    try:
        return read_document(folder / MODEL_FILE, FORMAT, FORMAT_VERSION, Model)
    except FileNotFoundError:
        raise ModelFolderError(f"{folder} is no model saved by isosent: it has no {MODEL_FILE}.") from None
    except InputError as error:
        raise ModelFolderError(str(error)) from None


def _read_reference(folder: Path, encoder: Mapping[str, Any]) -> str:
    reference: str = encoder["reference"]
    try:
        return whole_reference(reference, folder) if encoder.get("inside") is True else reference
    except ModelReferenceError as error:
        raise ModelFolderError(f"{folder / MODEL_FILE}: {error}") from None


def _read_behind(folder: Path, document: Mapping[str, Any]) -> Behind:
    map_shapes = "weight (dim, n_components) and bias (n_components,)"
    linear_map, query_map = _parsed(folder, document, _MAP, maps_of_bytes, map_shapes) or (None, None)
    flow = _parsed(folder, document, _FLOW, flow_of_bytes, "the arrays of a flow")
    try:
        return Behind(linear_map, query_map, document.get("normalize", False), flow)
    except InputError as error:
        raise ModelFolderError(f"{folder}: map and flow do not go together. {error}") from None


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
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ModelFolderError(f"{folder} must hold {path.name}; it is missing. Copy the whole folder.") from None
    except OSError as error:
        raise _damaged(path, error) from None
    if not _is_whole(path.name, content):
        raise ModelFolderError(
            f"{path}: damaged. Its content does not match the hash in its name. Fit the model again."
        )
    return content


def _is_whole(name: str, content: bytes) -> bool:
    """Whether a file has the hash that its name tells; one that was named by hand tells none."""
    return not _OWN_FILE.fullmatch(name) or _file_name(name.partition("-")[0], content) == name


def _damaged(path: Path, error: Exception) -> ModelFolderError:
    return ModelFolderError(f"{path} must be a safetensors file; it is damaged or truncated: {error}.")


def _read_calibration(folder: Path, document: Any) -> Calibration | None:
    try:
        return None if document is None else Calibration.from_json(document)
    except (InputError, TypeError, AttributeError) as error:
        raise ModelFolderError(f"{folder / MODEL_FILE}: calibration is malformed: {error}") from None


def _file_name(kind: str, content: bytes) -> str:
    return f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
