"""The model folder: ``model.json`` and, where there is a map, one safetensors file that it names.

``model.json`` is renamed into place last. The file of the map carries its own hash in its name, so a run that is killed
anywhere leaves either the old model or the new one, whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from isosent.encoders.reference import MODEL_FILE
from isosent.errors import InputError, ModelFolderError, OutputError
from isosent.files.atomic import replacing
from isosent.numeric.linear_map import LinearMap

FORMAT = "isosent-model"
FORMAT_VERSION = 1

_OWN_FILE = re.compile(r"model\.json|\.?linear_map-\w+(-\w+\.tmp)?\.safetensors|\.model-\w+\.tmp\.json")

Field = TypeVar("Field")


@dataclass(frozen=True, slots=True)
class FitRecord:
    """What a transform was fitted on.

    Parameters
    ----------
    transform : str
        Name of the transform.
    parameters : mapping
        Its settings.
    n_texts : int
        Texts it was fitted on, those without a vector left out.
    n_zero_rows : int
        Texts left out because they have no vector.
    source : str
        Where the texts came from.
    fitted_at : str
        Time, ISO 8601, UTC.
    """

    transform: str
    parameters: Mapping[str, Any]
    n_texts: int
    n_zero_rows: int
    source: str
    fitted_at: str


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """Everything a model folder holds.

    Parameters
    ----------
    reference : str
        Model reference of the encoder, without options.
    options : mapping of str to str
        Its options.
    encoder_dim : int
        Dimensions of the encoder's vectors.
    encoder_fingerprint : str
        Hash of all that the encoder's vectors depend on.
    linear_map : LinearMap or None
        The map behind the encoder.
    fits : tuple of FitRecord
        What the map was fitted on, step by step.
    """

    reference: str
    options: Mapping[str, str]
    encoder_dim: int
    encoder_fingerprint: str
    linear_map: LinearMap | None
    fits: tuple[FitRecord, ...]

    @property
    def fingerprint(self) -> str:
        """Hash of the vector space: only vectors with the same one can be compared."""
        return space_fingerprint(self.encoder_fingerprint, self.linear_map)

    def facts(self) -> dict[str, Any]:
        """Return what a person or a result file wants to know, as plain values.

        Returns
        -------
        dict
            Reference, options, dimensions, fits and fingerprint.
        """
        return {
            "reference": self.reference,
            "options": dict(self.options),
            "dim": self.encoder_dim if self.linear_map is None else self.linear_map.n_components,
            "encoder_dim": self.encoder_dim,
            "fits": [asdict(fit) for fit in self.fits],
            "fingerprint": self.fingerprint,
        }


def space_fingerprint(encoder_fingerprint: str, linear_map: LinearMap | None) -> str:
    """Fingerprint of the space that an encoder and a map give.

    Parameters
    ----------
    encoder_fingerprint : str
        Fingerprint of the encoder.
    linear_map : LinearMap or None
        What follows the encoder.

    Returns
    -------
    str
        The encoder's own where there is no map.
    """
    if linear_map is None:
        return encoder_fingerprint
    return hashlib.sha256(encoder_fingerprint.encode() + _map_bytes(linear_map)).hexdigest()


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
        _check_ours(folder)
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            _write_files(folder, record)
        finally:
            _sweep(folder)
            if is_new and not any(folder.iterdir()):
                folder.rmdir()
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{folder} could not be written: {error.strerror}.") from error


def _write_files(folder: Path, record: ModelRecord) -> None:
    map_file = None
    if record.linear_map is not None:
        content = _map_bytes(record.linear_map)
        map_file = f"linear_map-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
        with replacing(folder / map_file) as temporary:
            temporary.write_bytes(content)
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "isosent_version": version("isosent"),
        "encoder": {
            "reference": record.reference,
            "options": dict(record.options),
            "dim": record.encoder_dim,
            "fingerprint": record.encoder_fingerprint,
        },
        "linear_map": map_file,
        "fits": [asdict(fit) for fit in record.fits],
        "fingerprint": record.fingerprint,
    }
    with replacing(folder / MODEL_FILE) as temporary:
        temporary.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _check_ours(folder: Path) -> None:
    """Refuse a folder that holds anything but a model or what a killed run left of one."""
    if not folder.exists():
        return
    if folder.is_dir() and all(_OWN_FILE.fullmatch(path.name) for path in folder.iterdir()):
        if not (folder / MODEL_FILE).exists():
            return
        with suppress(ValueError):
            if _is_ours(json.loads((folder / MODEL_FILE).read_text("utf-8"))):
                return
    raise OutputError(
        f"{folder} must be a new or empty folder or an isosent model; got something else. Name another one."
    )


def _is_ours(document: Any) -> bool:
    return isinstance(document, dict) and document.get("format") == FORMAT


def _sweep(folder: Path) -> None:
    """Remove what the model does not name: maps of older models, and what failed or killed runs left."""
    named: set[str | None] = set()
    if (folder / MODEL_FILE).exists():
        named = {MODEL_FILE, json.loads((folder / MODEL_FILE).read_text("utf-8"))["linear_map"]}
    for path in list(folder.iterdir()):
        if path.name not in named:
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
    map_file = document.get("linear_map")
    record = ModelRecord(
        reference=_field(folder, encoder, "reference", str),
        options=_field(folder, encoder, "options", dict),
        encoder_dim=_field(folder, encoder, "dim", int),
        encoder_fingerprint=_field(folder, encoder, "fingerprint", str),
        linear_map=None if map_file is None else _read_map(folder, str(map_file)),
        fits=tuple(_read_fit(folder, fit) for fit in _field(folder, document, "fits", list)),
    )
    if record.linear_map is not None and record.linear_map.dim != record.encoder_dim:
        raise ModelFolderError(
            f"{folder}: the map must take {record.encoder_dim} dimensions, those of the encoder; "
            f"it takes {record.linear_map.dim}."
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


def _read_fit(folder: Path, fit: Any) -> FitRecord:
    try:
        return FitRecord(**fit)
    except TypeError as error:
        raise ModelFolderError(f"{folder / MODEL_FILE}: an entry of fits is malformed: {error}.") from None


def _read_map(folder: Path, name: str) -> LinearMap:
    path = folder / name
    if path.parent != folder:
        raise ModelFolderError(f"{folder / MODEL_FILE}: linear_map must name a file in the folder; got {name!r}.")
    try:
        tensors = load(path.read_bytes())
        return LinearMap(tensors["weight"].astype(np.float64), tensors["bias"].astype(np.float64))
    except FileNotFoundError:
        raise ModelFolderError(f"{folder} must hold {name}; it is missing. Copy the whole folder.") from None
    except (SafetensorError, OSError) as error:
        raise ModelFolderError(f"{path} must be a safetensors file; it is damaged or truncated: {error}.") from None
    except (KeyError, InputError) as error:
        raise ModelFolderError(
            f"{path} must hold weight (dim, n_components) and bias (n_components,): {error}"
        ) from None


def _map_bytes(linear_map: LinearMap) -> bytes:
    arrays = {"weight": linear_map.weight, "bias": linear_map.bias}
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
