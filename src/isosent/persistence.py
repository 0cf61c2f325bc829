"""The model folder: ``model.json``, and safetensors files: maps, flow, quantization, canary, what an encoder learned.

``model.json`` names the other files and is renamed into place last. Their names contain a hash of their content, so a
process that is killed at any moment leaves either the old model or the new one.

- `ModelRecord` is all that a folder holds, as values. `model_files` gives the bytes of each file, `write_model` puts
  them in place under a lock, and then removes files that are named like those of a model but belong to none.
- `read_model` checks `_ModelFile`, the schema of ``model.json``, then each file by the hash in its name, then that the
  parts fit together and have the fingerprint that was saved.
- `check_model_folder` refuses to write where anything else lies.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct, convert, structs
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from isosent.encoders.precomputed import PRECOMPUTED, PrecomputedVectors
from isosent.encoders.reference import LANGUAGES, MODEL_FILE, absolute_reference, relative_reference
from isosent.errors import InputError, ModelFolderError, ModelReferenceError, OutputError
from isosent.io.atomic import check_parent, is_temporary, locked, recover, replacing, sweep
from isosent.io.checksum import file_state
from isosent.io.json import document_bytes, format_of, read_document
from isosent.io.schemas import Count, Document, FileName, Finite, Label, Positive, Score, Text
from isosent.io.system import read_bytes, system_error
from isosent.numeric.canary import Canary
from isosent.numeric.glow import Glow
from isosent.numeric.linear_map import LinearMap
from isosent.postprocessing import GroupMaps, Postprocessing
from isosent.space import Space, refuse_codes, same_space
from isosent.storage import CODES
from isosent.transforms.calibration import Calibration
from isosent.transforms.quantization import Quantization

FORMAT = "isosent-model"
FORMAT_VERSION = 1
RECORD_FILE = "training.json"  # of a trained folder: what it was trained on, and the checksums of its files
MIGRATION = "migration"  # transform of a fit: a map from vectors of one model to those of another

_HASH = "[0-9a-f]{16}"
_KINDS = _MAP, _GROUPS, _FLOW, _CORPUS, _QUANTIZATION, _CANARY = (
    "linear_map",
    "group_maps",
    "flow",
    "corpus",
    "quantization",
    "canary",
)
_MODEL_FILES = re.compile(rf"model\.json|({'|'.join(_KINDS)})-{_HASH}\.safetensors")

Field = TypeVar("Field")


class FitRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """What a transform was fitted on."""

    transform: str  # its name; "none" if "auto" left the vectors as they are
    parameters: Mapping[str, Any]
    n_texts: Count  # without those that have no vector
    n_zero_rows: Count  # texts left out because they have no vector
    source: Text  # where the texts came from
    fitted_at: str  # ISO 8601, UTC
    choice: Mapping[str, Any] | None = None  # what "auto" compared, and why it chose
    history: Sequence[Mapping[str, Any]] | None = None  # of a flow: the fields of each `FitProgress`

    @classmethod
    def made_now(
        cls, transform: str, parameters: Mapping[str, Any], n_texts: int, n_zero_rows: int, source: str, **details: Any
    ) -> FitRecord:
        """Record a fit that has just been made."""
        fitted_at = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(transform, parameters, n_texts, n_zero_rows, source, fitted_at, **details)


class StoredSize(Struct, frozen=True, forbid_unknown_fields=True):
    """How vectors of a model are stored by default, as it was chosen by measuring (see `isosent.search.sizes`)."""

    dtype: Text  # the `Storage` of an index
    n_bytes: Finite  # in memory per vector, in a flat index
    min_recall: Score  # that an index of the vectors is to have, against exact search of them
    recall: Score  # of the neighbors of the original vectors
    n_texts: Count  # that these were found among
    neighbors_of: Text  # which vectors these were
    oversampling: Count = 0  # candidates per result that are scored again, at least


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """Everything that a model folder holds."""

    reference: str  # of the encoder, without options
    options: Mapping[str, str]
    encoder_dim: int
    encoder_fingerprint: str
    postprocessing: Postprocessing
    fits: tuple[FitRecord, ...] = ()
    calibration: Calibration | None = None
    corpus: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)  # what the encoder learned from texts
    quantization: Quantization | None = None
    storage: StoredSize | None = None
    canary: Canary | None = None  # vectors of fixed texts, when it was saved

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        linear_map = self.postprocessing.linear_map
        return self.encoder_dim if linear_map is None else linear_map.n_components

    @property
    def fingerprint(self) -> str:
        """Hash of the vector space; only vectors with the same one can be compared."""
        steps = self.postprocessing
        if steps.dim is None and not steps.normalize:
            return self.encoder_fingerprint
        normalize = b"normalize" if steps.normalize else b""
        content = self.encoder_fingerprint.encode() + _map_bytes(steps) + _flow_bytes(steps) + normalize
        if steps.groups is not None:
            content += "\0".join(steps.groups.names).encode() + _group_bytes(steps.groups)
        return hashlib.sha256(content).hexdigest()

    @property
    def name(self) -> str:
        """Readable name of the vector space: the encoder, or what made the vectors, and the transforms."""
        source = self.options.get("space", self.reference)
        return " -> ".join([source, *(fit.transform for fit in self.fits if fit.transform != "none")])

    @property
    def space(self) -> Space:
        """Space of the vectors."""
        return Space(self.fingerprint, self.name)

    @property
    def encoder_space(self) -> Space | None:
        """Space of the vectors of the encoder; None for vectors without a name."""
        if self.reference == PRECOMPUTED:
            encoder = PrecomputedVectors(self.encoder_dim, self.options)
            return encoder.space if encoder.options else None
        return Space(self.encoder_fingerprint, self.reference)

    def facts(self) -> dict[str, Any]:
        """Description of the model for people and result files, as JSON values."""
        languages = {"languages": LANGUAGES[self.reference]} if self.reference in LANGUAGES else {}
        groups = self.postprocessing.groups
        return {
            "reference": self.reference,
            **languages,
            "options": dict(self.options),
            "dim": self.dim,
            "encoder_dim": self.encoder_dim,
            "normalize": self.postprocessing.normalize,
            "separate_query_mean": self.postprocessing.query_map is not None,
            **({} if groups is None else {"groups": f"{', '.join(groups.maps)}, mapped to {groups.reference}"}),
            **({} if groups is None else {"group_column": groups.column}),
            "calibration": None if self.calibration is None else self.calibration.kind,
            "quantization": None if self.quantization is None else ", ".join(CODES),
            **({} if self.storage is None else {"storage": structs.asdict(self.storage)}),
            "fits": [structs.asdict(fit) for fit in self.fits],
            "fingerprint": self.fingerprint,
        }


class _Encoder(Struct, forbid_unknown_fields=True, kw_only=True):
    """The encoder of a saved model."""

    reference: Text
    options: dict[str, Text]
    dim: Positive
    fingerprint: str
    inside: bool = False  # the reference leads into the folder


class _Calibration(Struct, forbid_unknown_fields=True):
    """Knots of the map from cosines to what they mean."""

    kind: str
    n_pairs: Count
    label_range: tuple[float, float] | None
    cosines: list[float]
    values: list[float]


class _Groups(Struct, forbid_unknown_fields=True):
    """Names of the groups that have maps."""

    column: Label
    reference: Label
    names: list[Label]


class _AutoChoice(Struct):  # open: it is shown and no more
    chosen: str
    reason: str


class _FlowStep(Struct):
    held_out_bits: float | None


class _SavedFit(FitRecord, frozen=True):
    choice: _AutoChoice | None = None  # type: ignore[assignment]
    history: list[_FlowStep] | None = None  # type: ignore[assignment]


class _ModelFile(Document):
    """``model.json`` in a model folder."""

    encoder: _Encoder
    fingerprint: str
    fits: list[_SavedFit]
    linear_map: FileName | None
    flow: FileName | None
    corpus: FileName | None
    quantization: FileName | None
    normalize: bool
    calibration: _Calibration | None
    storage: StoredSize | None = None  # not in folders of earlier versions
    canary: FileName | None = None  # the same
    group_maps: FileName | None = None
    groups: _Groups | None = None


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
    """Content of each file of a model folder by its name, ``model.json`` last."""
    groups = record.postprocessing.groups
    contents = {
        _MAP: _map_bytes(record.postprocessing),
        **({} if groups is None else {_GROUPS: _group_bytes(groups)}),
        _FLOW: _flow_bytes(record.postprocessing),
        _CORPUS: _tensor_bytes(record.corpus),
        _QUANTIZATION: b"" if record.quantization is None else _tensor_bytes(record.quantization.tensors()),
        **({} if record.canary is None else {_CANARY: _tensor_bytes(record.canary.tensors())}),
    }
    names = {kind: _file_name(kind, content) if content else None for kind, content in contents.items()}
    relative = relative_reference(record.reference, folder)
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "isosent_version": version("isosent"),
        "encoder": {
            **({"reference": record.reference} if relative is None else {"reference": relative, "inside": True}),
            "options": dict(record.options),
            "dim": record.encoder_dim,
            "fingerprint": record.encoder_fingerprint,
        },
        **names,
        **({} if groups is None else {"groups": _facts_of_groups(groups)}),
        "normalize": record.postprocessing.normalize,
        "calibration": None if record.calibration is None else record.calibration.to_json(),
        **({} if record.storage is None else {"storage": structs.asdict(record.storage)}),
        "fits": [structs.asdict(fit) for fit in record.fits],
        "fingerprint": record.fingerprint,
    }
    files = {name: contents[kind] for kind, name in names.items() if name is not None}
    return files | {MODEL_FILE: document_bytes(document)}


def holds_its_encoder(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a model that contains its encoder."""
    path = Path(folder) / MODEL_FILE
    try:
        document = read_document(path, FORMAT, FORMAT_VERSION, _ModelFile)
        return document["encoder"].get("inside") is True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, InputError) as error:  # a file that cannot be read is not a folder of another kind
        if unreadable := system_error(error, path):
            raise unreadable from error
        return False


def check_model_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a place where no model can be written, before any work is done."""
    folder = Path(folder)
    if not folder.exists():
        check_parent(folder)
        return
    if folder.is_dir():
        is_model = format_of(folder / MODEL_FILE) == FORMAT  # damaged or not
        if all(
            _has_model_name(path) if is_model else path.name != MODEL_FILE and _is_model_file(path)
            for path in folder.iterdir()
        ):
            if not os.access(folder, os.W_OK):
                raise OutputError(f"{folder} cannot be written to. Name another folder.")
            return
    if (folder / "manifest.json").exists():
        raise OutputError(f"{folder} is an index, not a model. Name another folder.")
    raise OutputError(f"{folder} exists, and is neither empty nor an isosent model. Name another folder.")


def _has_model_name(path: Path) -> bool:
    """Whether a file is named like one of a model, or like a temporary one that a killed process left."""
    is_named = is_temporary(path.name) or _MODEL_FILES.fullmatch(path.name) is not None
    return is_named and not path.is_dir()  # it may be gone by now: other processes write here, too


def _is_model_file(path: Path) -> bool:
    """Whether a file belongs to a model, by its name and by the hash in its name."""
    try:
        return _has_model_name(path) and (is_temporary(path.name) or _is_intact(path.name, read_bytes(path)))
    except FileNotFoundError:
        return True


def _sweep(folder: Path) -> None:
    """Remove files of older models, which ``model.json`` does not name, and temporary files."""
    sweep(folder)
    with suppress(OSError, InputError):
        names = {MODEL_FILE}
        if (folder / MODEL_FILE).exists():
            document = read_document(folder / MODEL_FILE, FORMAT, FORMAT_VERSION, _ModelFile)
            names |= {str(document.get(kind)) for kind in _KINDS}
        for path in list(folder.iterdir()):
            if path.name not in names and not is_temporary(path.name) and _has_model_name(path):
                path.unlink()


def read_model(folder: str | os.PathLike[str]) -> ModelRecord:
    """Read a model folder; again if a writer replaced it, and so removed files that were named, meanwhile."""
    folder = Path(folder)
    recover(folder)
    state = None
    while True:
        with suppress(OSError):
            state = file_state(folder / MODEL_FILE)
        try:
            return _record_in(folder)
        except ModelFolderError:
            with suppress(OSError):
                if file_state(folder / MODEL_FILE) != state:
                    continue
            raise


def _record_in(folder: Path) -> ModelRecord:
    try:
        document = read_document(folder / MODEL_FILE, FORMAT, FORMAT_VERSION, _ModelFile)
    except FileNotFoundError:
        if (folder / "manifest.json").exists():
            raise ModelFolderError(f"{folder} is an index, not a model. See: isosent info {folder}") from None
        raise ModelFolderError(f"{folder} is not a model saved by isosent: it has no {MODEL_FILE}.") from None
    except InputError as error:
        raise ModelFolderError(str(error)) from None
    encoder = document["encoder"]
    try:
        reference = encoder["reference"]
        reference = absolute_reference(reference, folder) if encoder.get("inside") is True else reference
    except ModelReferenceError as error:
        raise ModelFolderError(f"{folder / MODEL_FILE}: {error}") from None
    corpus = _component(folder, document[_CORPUS], _tensors, "named arrays") or {}
    record = ModelRecord(
        reference=reference,
        options=encoder["options"],
        encoder_dim=encoder["dim"],
        encoder_fingerprint=encoder["fingerprint"],
        postprocessing=_postprocessing(folder, document),
        fits=tuple(convert(document["fits"], list[FitRecord])),
        calibration=_calibration(folder, document["calibration"]),
        corpus=corpus,
        quantization=_component(
            folder,
            document[_QUANTIZATION],
            lambda content: Quantization.from_tensors(load(content)),
            "the arrays of a quantization",
        ),
        storage=None if document.get("storage") is None else convert(document["storage"], StoredSize),
        canary=_canary(folder, document.get(_CANARY), encoder["dim"]),
    )
    if record.postprocessing.dim not in (None, record.encoder_dim):
        raise ModelFolderError(
            f"{folder}: its transform takes {record.postprocessing.dim} dimensions, but its encoder has "
            f"{record.encoder_dim}. Copy the whole folder again."
        )
    if record.quantization is not None and record.quantization.dim != record.dim:
        raise ModelFolderError(
            f"{folder}: its quantization has {record.quantization.dim} dimensions, but its vectors have {record.dim}. "
            "Copy the whole folder again."
        )
    if record.fingerprint != document["fingerprint"]:
        raise ModelFolderError(
            f"{folder}: the map is not the one that was saved with this model; a file was altered. Fit again."
        )
    return record


def check_encoder_space(record: ModelRecord, name: str, space: Space | None) -> None:
    """Refuse vectors that are not those of a model's encoder; vectors of an unknown space pass."""
    refuse_codes(name, space)  # a model of vectors without a name takes those of any space
    if space and space.fingerprint == record.fingerprint != record.encoder_fingerprint:
        raise InputError(f"{name} holds vectors that the model was already applied to. Name those of its encoder.")
    same_space("the model", record.encoder_space, name, space)


def _postprocessing(folder: Path, document: Mapping[str, Any]) -> Postprocessing:
    map_shapes = "weight (dim, n_components) and bias (n_components,)"
    linear_map, query_map = _component(folder, document[_MAP], _maps, map_shapes) or (None, None)
    flow = _component(folder, document[_FLOW], lambda content: Glow.from_arrays(load(content)), "the arrays of a flow")
    groups = _groups(folder, document, linear_map)
    try:
        return Postprocessing(linear_map, query_map, document["normalize"], flow, groups)
    except InputError as error:
        raise ModelFolderError(f"{folder}: map and flow do not fit together. {error}") from None


def _groups(folder: Path, document: Mapping[str, Any], linear_map: LinearMap | None) -> GroupMaps | None:
    """The maps of groups, which must fit the names in ``model.json`` and the map of the reference."""
    maps = _component(folder, document.get(_GROUPS), _group_maps, "weight and bias of each map") or []
    facts = document.get("groups") or {"column": "", "reference": "", "names": []}
    names = [facts["reference"], *facts["names"]]
    if not maps and not any(names):
        return None
    shapes = {each.weight.shape for each in (linear_map, *maps) if each is not None}
    are_names = len(set(names)) == len(maps) + 1 == len(names) and all(name and name == name.strip() for name in names)
    if linear_map is None or len(shapes) > 1 or not are_names:
        raise ModelFolderError(f"{folder}: the maps of groups do not fit their names, or the map of the reference.")
    return GroupMaps(facts["column"], names[0], dict(zip(names[1:], maps, strict=True)))


def _calibration(folder: Path, document: Mapping[str, Any] | None) -> Calibration | None:
    try:
        return None if document is None else Calibration.from_json(document)
    except InputError as error:
        raise ModelFolderError(f"{folder / MODEL_FILE}: calibration is malformed: {error}") from None


def _canary(folder: Path, name: str | None, dim: int) -> Canary | None:
    return _component(folder, name, lambda content: Canary.from_tensors(load(content), dim), "vectors of fixed texts")


def _component(folder: Path, name: str | None, parse: Callable[[bytes], Field], expected: str) -> Field | None:
    """Parse a file that ``model.json`` names; None if it names none."""
    if name is None:
        return None
    path = folder / name
    try:
        content = read_bytes(path)
        if not _is_intact(path.name, content):
            raise ModelFolderError(
                f"{path}: damaged. Its content does not match the hash in its name. Fit the model again."
            )
        return parse(content)
    except FileNotFoundError:
        raise ModelFolderError(f"{folder}: {path.name} is missing. Copy the whole folder.") from None
    except SafetensorError as error:
        raise ModelFolderError(f"{path} is damaged or truncated: {error}. Copy the whole folder again.") from None
    except ModelFolderError:
        raise
    except (KeyError, InputError) as error:
        raise ModelFolderError(f"{path} does not hold {expected}: {error}") from None


def _tensor_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()}) if arrays else b""


def _tensors(content: bytes) -> dict[str, NDArray[np.float64]]:
    return {name: array.astype(np.float64) for name, array in load(content).items()}


def _map_bytes(postprocessing: Postprocessing) -> bytes:
    if postprocessing.linear_map is None:
        return b""
    arrays = {"weight": postprocessing.linear_map.weight, "bias": postprocessing.linear_map.bias}
    if postprocessing.query_map is not None:
        arrays["query_bias"] = postprocessing.query_map.bias
        if not np.array_equal(postprocessing.query_map.weight, postprocessing.linear_map.weight):
            arrays["query_weight"] = postprocessing.query_map.weight
    return _tensor_bytes(arrays)


def _facts_of_groups(groups: GroupMaps) -> dict[str, Any]:
    return {"column": groups.column, "reference": groups.reference, "names": list(groups.maps)}


def _group_bytes(groups: GroupMaps) -> bytes:
    maps = groups.maps.values()
    return _tensor_bytes({name: np.stack([getattr(each, name) for each in maps]) for name in ("weight", "bias")})


def _group_maps(content: bytes) -> list[LinearMap]:
    tensors = _map_tensors(content)
    weight, bias = tensors["weight"], tensors["bias"]
    if weight.ndim != 3 or bias.ndim != 2 or len(weight) != len(bias):
        raise InputError(f"the shapes are {weight.shape} and {bias.shape}.")
    return [LinearMap(*arrays) for arrays in zip(weight, bias, strict=True)]


def _map_tensors(content: bytes) -> dict[str, NDArray[np.float64]]:
    tensors = _tensors(content)
    largest = np.finfo(np.float32).max  # vectors are computed in float32
    if outside := next((name for name, array in tensors.items() if (np.abs(array) > largest).any()), None):
        raise InputError(f"{outside} holds numbers beyond float32.")
    return tensors


def _maps(content: bytes) -> tuple[LinearMap, LinearMap | None]:
    tensors = _map_tensors(content)
    linear_map = LinearMap(tensors["weight"], tensors["bias"])
    query_bias, query_weight = tensors.get("query_bias"), tensors.get("query_weight", linear_map.weight)
    query_map = None if query_bias is None else LinearMap(query_weight, query_bias)
    if query_weight.shape != linear_map.weight.shape:
        raise InputError(f"query_weight has the shape {query_weight.shape}, and weight {linear_map.weight.shape}.")
    return linear_map, query_map


def _flow_bytes(postprocessing: Postprocessing) -> bytes:
    return b"" if postprocessing.flow is None else _tensor_bytes(postprocessing.flow.arrays())


def _is_intact(name: str, content: bytes) -> bool:
    """Whether the hash in the name of a file is that of its content; a file that was named by hand has none."""
    return not _MODEL_FILES.fullmatch(name) or _file_name(name.partition("-")[0], content) == name


def _file_name(kind: str, content: bytes) -> str:
    return f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
