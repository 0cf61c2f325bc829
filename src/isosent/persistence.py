"""The model folder: ``model.json``, and a safetensors file each for a map, a flow, and what is known of a corpus.

``model.json`` names the others and is renamed into place last. They carry their own hash in their names, so a run that
is killed anywhere leaves either the old model or the new one, whole.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from isosent.encoders.reference import MODEL_FILE, absolute_reference, relative_reference
from isosent.errors import InputError, ModelFolderError, ModelReferenceError, OutputError
from isosent.io.atomic import check_parent, is_temporary, locked, recover, replacing, sweep
from isosent.io.json import document_bytes, format_of, read_document
from isosent.io.schemas import Model
from isosent.numeric.glow import Glow
from isosent.numeric.linear_map import LinearMap
from isosent.postprocessing import Postprocessing
from isosent.transforms.calibration import Calibration


@dataclass(frozen=True, slots=True)
class FitRecord:
    """What a transform was fitted on."""

    transform: str  # name of the transform
    parameters: Mapping[str, Any]  # its settings
    n_texts: int  # texts it was fitted on, those without a vector left out
    n_zero_rows: int  # texts left out because they have no vector
    source: str  # where the texts came from
    fitted_at: str  # time, ISO 8601, UTC
    choice: Mapping[str, Any] | None = None  # what "auto" weighed and why it chose, where it did
    # For a flow, how likely held-out vectors were on the way: the fields of `FitProgress`
    history: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """Everything a model folder holds."""

    reference: str  # model reference of the encoder, without options
    options: Mapping[str, str]  # its options
    encoder_dim: int  # dimensions of the encoder's vectors
    encoder_fingerprint: str  # hash of all that the encoder's vectors depend on
    postprocessing: Postprocessing  # what follows the encoder
    fits: tuple[FitRecord, ...] = ()  # what that was fitted on, step by step
    calibration: Calibration | None = None  # what a cosine of the space means
    # What the encoder knows of the texts it was fitted on; empty where it was not
    corpus: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Hash of the vector space: only vectors with the same one can be compared."""
        return space_fingerprint(self.encoder_fingerprint, self.postprocessing)

    @property
    def name(self) -> str:
        """What the space is called where people read it: what made its vectors, and what was fitted behind."""
        made_by = self.options.get("space", self.reference)
        return " -> ".join([made_by, *(fit.transform for fit in self.fits if fit.transform != "none")])

    def facts(self) -> dict[str, Any]:
        """Return what a person or a result file wants to know, as plain values."""
        linear_map = self.postprocessing.linear_map
        return {
            "reference": self.reference,
            "options": dict(self.options),
            "dim": self.encoder_dim if linear_map is None else linear_map.n_components,
            "encoder_dim": self.encoder_dim,
            "normalize": self.postprocessing.normalize,
            "separate_query_mean": self.postprocessing.query_map is not None,
            "calibration": None if self.calibration is None else self.calibration.kind,
            "fits": [asdict(fit) for fit in self.fits],
            "fingerprint": self.fingerprint,
        }


def space_fingerprint(encoder_fingerprint: str, postprocessing: Postprocessing) -> str:
    """Fingerprint of the space that an encoder and what follows it give."""
    if postprocessing.dim is None and not postprocessing.normalize:
        return encoder_fingerprint
    normalize = b"normalize" if postprocessing.normalize else b""
    content = encoder_fingerprint.encode() + map_bytes(postprocessing) + flow_bytes(postprocessing) + normalize
    return hashlib.sha256(content).hexdigest()


def map_bytes(postprocessing: Postprocessing) -> bytes:
    """The maps behind an encoder in the format of safetensors."""
    if postprocessing.linear_map is None:
        return b""
    arrays = {"weight": postprocessing.linear_map.weight, "bias": postprocessing.linear_map.bias}
    if postprocessing.query_map is not None:
        arrays["query_bias"] = postprocessing.query_map.bias
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def flow_bytes(postprocessing: Postprocessing) -> bytes:
    """The flow behind an encoder in the format of safetensors."""
    if postprocessing.flow is None:
        return b""
    return save({name: np.ascontiguousarray(array) for name, array in postprocessing.flow.arrays().items()})


def maps_of_bytes(content: bytes) -> tuple[LinearMap, LinearMap | None]:
    """The inverse of `map_bytes`."""
    tensors = {name: array.astype(np.float64) for name, array in load(content).items()}
    linear_map = LinearMap(tensors["weight"], tensors["bias"])
    query_bias = tensors.get("query_bias")
    return linear_map, None if query_bias is None else LinearMap(linear_map.weight, query_bias)


def flow_of_bytes(content: bytes) -> Glow:
    """The inverse of `flow_bytes`."""
    return Glow.from_arrays(load(content))


def corpus_bytes(corpus: Mapping[str, NDArray[np.float64]]) -> bytes:
    """What an encoder knows of its corpus in the format of safetensors."""
    return save({name: np.ascontiguousarray(array) for name, array in corpus.items()}) if corpus else b""


def corpus_of_bytes(content: bytes) -> dict[str, NDArray[np.float64]]:
    """The inverse of `corpus_bytes`."""
    return {name: array.astype(np.float64) for name, array in load(content).items()}


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
    """Write a model folder, replacing an older model there in one step."""
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
    """Make the files of a model folder."""
    contents = {
        _MAP: map_bytes(record.postprocessing),
        _FLOW: flow_bytes(record.postprocessing),
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
        "normalize": record.postprocessing.normalize,
        "calibration": None if record.calibration is None else record.calibration.to_json(),
        "fits": [asdict(fit) for fit in record.fits],
        "fingerprint": record.fingerprint,
    }
    files = {name: contents[kind] for kind, name in names.items() if name is not None}
    return files | {MODEL_FILE: document_bytes(document)}


def holds_its_encoder(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a model whose encoder lies inside of it."""
    try:
        document = read_document(Path(folder) / MODEL_FILE, FORMAT, FORMAT_VERSION, Model)
        return document["encoder"].get("inside") is True
    except (OSError, InputError):
        return False


def check_model_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a place where no model can be written, before any work is done."""
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
    """Read a model folder."""
    folder = Path(folder)
    document = _read_document(folder)
    encoder = document["encoder"]
    record = ModelRecord(
        reference=_read_reference(folder, encoder),
        options=encoder["options"],
        encoder_dim=encoder["dim"],
        encoder_fingerprint=encoder["fingerprint"],
        postprocessing=_read_postprocessing(folder, document),
        fits=tuple(FitRecord(**fit) for fit in document["fits"]),
        calibration=_read_calibration(folder, document.get("calibration")),
        corpus=_parsed(folder, document, _CORPUS, corpus_of_bytes, "named arrays") or {},
    )
    if record.postprocessing.dim not in (None, record.encoder_dim):
        raise ModelFolderError(
            f"{folder}: the map must take {record.encoder_dim} dimensions, those of the encoder; "
            f"it takes {record.postprocessing.dim}."
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
        return absolute_reference(reference, folder) if encoder.get("inside") is True else reference
    except ModelReferenceError as error:
        raise ModelFolderError(f"{folder / MODEL_FILE}: {error}") from None


def _read_postprocessing(folder: Path, document: Mapping[str, Any]) -> Postprocessing:
    map_shapes = "weight (dim, n_components) and bias (n_components,)"
    linear_map, query_map = _parsed(folder, document, _MAP, maps_of_bytes, map_shapes) or (None, None)
    flow = _parsed(folder, document, _FLOW, flow_of_bytes, "the arrays of a flow")
    try:
        return Postprocessing(linear_map, query_map, document.get("normalize", False), flow)
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
