"""The model folder: ``model.json``, and safetensors files: steps, quantization, canary, what an encoder learned.

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
from typing import Any, TypeVar, cast

import numpy as np
from msgspec import Struct, convert, defstruct, structs
from numpy.typing import NDArray
from safetensors import SafetensorError

from isosent.encoders.api import KEPT_IN
from isosent.encoders.precomputed import PRECOMPUTED, PrecomputedVectors
from isosent.encoders.reference import LANGUAGES, MODEL_FILE, absolute_reference, relative_reference
from isosent.errors import (
    InputError,
    ModelFolderError,
    ModelReferenceError,
    OutputError,
    option,
    without_passwords,
)
from isosent.io.atomic import check_parent, is_temporary, locked, recover, replacing, sweep
from isosent.io.checksum import file_state
from isosent.io.json import document_bytes, format_of, read_document
from isosent.io.schemas import Count, Document, FileName, Finite, Positive, Score, Text
from isosent.io.system import read_bytes, system_error
from isosent.io.tensors import plain_tensors, plain_tensors_bytes
from isosent.numeric.canary import Canary
from isosent.postprocessing import STEPS, Postprocessing
from isosent.space import Space, hash_of, refuse_codes, same_space, warn_of_unknown_space
from isosent.transforms.calibration import Calibration
from isosent.transforms.quantization import Quantization

FORMAT = "isosent-model"
FORMAT_VERSION = 1
RECORD_FILE = "training.json"  # of a trained folder: what it was trained on, and the checksums of its files
MIGRATION = "migration"  # transform of a fit: a map from vectors of one model to those of another

_HASH = "[0-9a-f]{16}"
_CORPUS, _QUANTIZATION, _CANARY = "corpus", "quantization", "canary"
_KINDS = (*(name for step in STEPS for name in step.files), _CORPUS, _QUANTIZATION, _CANARY)
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
    history: Sequence[Mapping[str, Any]] | None = None  # of a fit on vectors: the fields of each `FitProgress`

    @classmethod
    def made_now(
        cls, transform: str, parameters: Mapping[str, Any], n_texts: int, n_zero_rows: int, source: str, **details: Any
    ) -> FitRecord:
        """Record a fit that has just been made."""
        fitted_at = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(transform, parameters, n_texts, n_zero_rows, without_passwords(source), fitted_at, **details)


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
        return self.postprocessing.n_components or self.encoder_dim

    @property
    def fingerprint(self) -> str:
        """Hash of the vector space; only vectors with the same one can be compared."""
        steps = self.postprocessing.steps
        if not steps:
            return self.encoder_fingerprint
        contents = (step.content() for step in steps)
        return hashlib.sha256(hash_of(self.encoder_fingerprint).encode() + b"".join(contents)).hexdigest()

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
        of_steps = {name: value for step in self.postprocessing.steps for name, value in step.facts().items()}
        return {
            "reference": self.reference,
            **languages,
            "options": {name: value for name, value in self.options.items() if name != KEPT_IN},
            "dim": self.dim,
            "encoder_dim": self.encoder_dim,
            **({"normalize": False, "separate_query_mean": False} | of_steps),
            "calibration": None if self.calibration is None else self.calibration.kind,
            "quantization": None if self.quantization is None else self.quantization.label,
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


class _AutoChoice(Struct):  # open: it is shown and no more
    chosen: str
    reason: str


class _Progress(Struct):
    held_out_bits: float | None


class _SavedFit(FitRecord, frozen=True):
    choice: _AutoChoice | None = None  # type: ignore[assignment]
    history: list[_Progress] | None = None  # type: ignore[assignment]


class _CommonFields(Document):
    """``model.json`` in a model folder, without the fields of the steps."""

    encoder: _Encoder
    fingerprint: str
    fits: list[_SavedFit]
    corpus: FileName | None
    quantization: FileName | None
    calibration: _Calibration | None
    storage: StoredSize | None = None  # not in folders of earlier versions
    canary: FileName | None = None  # the same


_FIRST_FIELDS = {name: value for step in STEPS for name, value in step.first_fields.items()}
_VALUES = {name: kind for step in STEPS for name, kind in step.values.items()}
_FIELDS = {name: FileName | None for step in STEPS for name in step.files} | _VALUES
_ModelFile = cast(
    "type[Document]",
    defstruct(
        "_ModelFile",
        [(name, kind) if name in _FIRST_FIELDS else (name, kind, None) for name, kind in _FIELDS.items()],
        bases=(_CommonFields,),
        kw_only=True,
        forbid_unknown_fields=True,
    ),
)


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
    saved = _FIRST_FIELDS | {name: part for step in record.postprocessing.steps for name, part in step.saved().items()}
    contents = {
        **{kind: saved.pop(kind) for kind in _KINDS if kind in saved},
        _CORPUS: plain_tensors_bytes(record.corpus),
        _QUANTIZATION: b"" if record.quantization is None else plain_tensors_bytes(record.quantization.tensors()),
        **({} if record.canary is None else {_CANARY: plain_tensors_bytes(record.canary.tensors())}),
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
        **{name: saved[name] for name in _VALUES if name in saved},
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


def check_model_folder(folder: str | os.PathLike[str]) -> bool:
    """Refuse a place where no model can be written, before any work is done; say whether one will be replaced."""
    folder = Path(folder)
    if not folder.exists():
        check_parent(folder)
        return False
    if folder.is_dir():
        is_model = format_of(folder / MODEL_FILE) == FORMAT  # damaged or not
        if all(
            _has_model_name(path) if is_model else path.name != MODEL_FILE and _is_model_file(path)
            for path in folder.iterdir()
        ):
            if not os.access(folder, os.W_OK):
                raise OutputError(f"{folder} cannot be written to. Name another folder.")
            return is_model
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
            lambda content: Quantization.from_tensors(plain_tensors(content)),
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
    """Refuse vectors that are not those of a model's encoder; where one space is unknown, they pass."""
    refuse_codes(name, space)  # a model of vectors without a name takes those of any space
    if space and space.fingerprint == record.fingerprint != record.encoder_fingerprint:
        raise InputError(f"{name} holds vectors that the model was already applied to. Name those of its encoder.")
    here = record.encoder_space
    same_space("the model", here, name, space)
    if space and here is None:
        advice = f"Name it when you fit: {option('space', 'NAME')}."
        warn_of_unknown_space(name, space, "the model", advice)


def _postprocessing(folder: Path, document: Mapping[str, Any]) -> Postprocessing:
    saved = {
        name: _component(folder, document.get(name), *reading) for kind in STEPS for name, reading in kind.files.items()
    }
    saved |= {name: document.get(name) for name in _VALUES}
    try:
        steps = [step for kind in STEPS if (step := kind.of_saved(saved)) is not None]
    except InputError as error:
        raise ModelFolderError(f"{folder}: {error}") from None
    try:
        return Postprocessing(tuple(steps))
    except InputError as error:
        kinds = " and ".join(step.kind for step in steps if step.dim is not None)
        raise ModelFolderError(f"{folder}: {kinds} do not fit together. {error}") from None


def _calibration(folder: Path, document: Mapping[str, Any] | None) -> Calibration | None:
    try:
        return None if document is None else Calibration.from_json(document)
    except InputError as error:
        raise ModelFolderError(f"{folder / MODEL_FILE}: calibration is malformed: {error}") from None


def _canary(folder: Path, name: str | None, dim: int) -> Canary | None:
    return _component(
        folder, name, lambda content: Canary.from_tensors(plain_tensors(content), dim), "vectors of fixed texts"
    )


def read_canary(path: Path) -> Canary:
    """Read the file of a canary in a model folder, which may have been copied and renamed."""
    try:
        tensors = plain_tensors(read_bytes(path))
        first = next(iter(tensors.values()))
        if not first.shape[-1] or first.dtype.kind != "f":
            raise InputError(f"{first.dtype} vectors of {first.shape[-1]} dimensions.")
        return Canary.from_tensors(tensors, first.shape[-1])
    except (SafetensorError, KeyError, StopIteration, IndexError, InputError) as error:
        raise ModelFolderError(f"{path} does not hold vectors of fixed texts: {error}") from None


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
        reason = str(error).removesuffix(".")
        raise ModelFolderError(f"{path} does not hold {expected}: {reason}. Make it again.") from None


def _tensors(content: bytes) -> dict[str, NDArray[np.float64]]:
    return {name: array.astype(np.float64) for name, array in plain_tensors(content).items()}


def _is_intact(name: str, content: bytes) -> bool:
    """Whether the hash in the name of a file is that of its content; a file that was named by hand has none."""
    return not _MODEL_FILES.fullmatch(name) or _file_name(name.partition("-")[0], content) == name


def _file_name(kind: str, content: bytes) -> str:
    return f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
