"""A run on the disk: what it was asked for, what it writes, how that is read again, and what a resume compares.

`TrainingJob` is what a run is asked for, with all data read; `TrainingResult` is what it returns. While it trains, the
folder ``OUTPUT.training`` (`RunFolder`) holds ``run.json``, the metrics and the newest checkpoint (`write_checkpoint`,
`Checkpoint`). ``run.json`` has all facts that the weights depend on, and a resume is refused if one of them differs.
When the model is saved, ``training.json`` is written into its folder (`write_record`): the same facts, what was scored
and fitted, and the scores; `read_training` opens it. Both files are flat: the fields of `TrainingSettings`, which are
checked by that class, and those of `_RunFile` or `_RecordFile`.
"""

from __future__ import annotations

import json
import math
import platform
import random
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct
from safetensors import SafetensorError

from isosent import _extras
from isosent.errors import FileFormatError, InputError, OutputError, option, wrong_value
from isosent.io.atomic import Replaceable, fsync, locked, remove_folder, replacing_folder, sweep
from isosent.io.checksum import folder_checksums, verify_folder
from isosent.io.json import check_format, check_schema, document_bytes, read_document, read_json, without_nan
from isosent.io.pairs import ScoredPairs
from isosent.io.schemas import Checksum, Count, Document, RelativePath, Sha256
from isosent.io.system import disk_error, system_error
from isosent.io.tensors import open_tensors
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.persistence import RECORD_FILE
from isosent.training.data import Examples
from isosent.training.development import DevScore, fingerprint
from isosent.training.settings import TrainingSettings
from isosent.transforms.base import Auto, Transform, settings_of, transform_name

FORMAT: Final = "isosent-training"
FORMAT_VERSION: Final = 1
TRAINING_TEXTS: Final = "training texts"
_RUN_FORMAT: Final = "isosent-run"
_CHECKPOINT_FORMAT: Final = "isosent-training-checkpoint"
_RUN_FILE: Final = "run.json"
_PACKAGES: Final = ("isosent", "torch", "transformers", "sentence-transformers", "accelerate")
_RUN: Final = Replaceable("the checkpoints of a run", lambda folder: (folder / _RUN_FILE).exists())


@dataclass(frozen=True, slots=True, eq=False)
class TrainingJob:
    """What a run is asked for, with all data read."""

    base: str
    examples: Examples
    output: Path
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    dev: ScoredPairs | None = None
    tests: Sequence[ScoredPairs] = ()
    transform: Transform | Auto | None = None
    fit_texts: Sequence[str] | None = None  # None: the training texts
    fit_source: str = TRAINING_TEXTS  # where they come from, for the record

    def __post_init__(self) -> None:
        object.__setattr__(self, "output", Path(self.output))
        objective = self.settings.objective
        if self.examples.objective != objective:
            raise InputError(f"train: the objective is {objective}, but the data are for {self.examples.objective}.")
        if objective == "ranking" and self.settings.batch_size == 1 and "negative" not in self.examples.columns:
            raise wrong_value(
                "train", "batch_size", "be above 1 for ranking, where the others of a batch are negatives", "1"
            )
        names = [devset.name for devset in self.scored]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"train: two scored sets have the name {twice[0]}, so it occurs twice. Rename a file.")

    @property
    def scored(self) -> list[ScoredPairs]:
        """Every set that is scored before and after."""
        return [*([] if self.dev is None else [self.dev]), *self.tests]

    def weight_facts(self) -> dict[str, Any]:
        """What the weights depend on, apart from the base, as JSON values."""
        return {
            "base_reference": self.base,
            **asdict(self.settings),
            "data": self.examples.fingerprint,
            "development": None if self.dev is None else fingerprint(self.dev),
        }

    def result_facts(self) -> dict[str, Any]:
        """What is scored and fitted once the weights are there, as JSON values."""
        transform = self.transform
        return {
            "tests": {devset.name: fingerprint(devset) for devset in self.tests},
            "transform": None if transform is None else transform_name(transform),
            "transform_settings": None if transform is None else settings_of(transform),
            "fitted_on": None if transform is None else self.fit_source,
        }


class Scores(Struct, frozen=True, forbid_unknown_fields=True):
    """What a model scores on one set of pairs."""

    before: DevScore  # the base
    after: DevScore  # the trained model
    with_transform: DevScore | None = None  # the trained model with the transform fitted at the end


@dataclass(frozen=True, slots=True, eq=False)
class TrainingResult:
    """What a training returns.

    Parameters
    ----------
    model : SentenceEncoder
        The model as it was saved.
    folder : Path
        Folder it was saved to.
    scores : mapping of str to Scores
        Scores on the development set and the test sets, by name.
    n_steps : int
        Steps taken, including those before an interruption.
    kept_step : int
        Step whose weights were saved.
    elapsed_s : float
        Seconds spent in steps.
    """

    model: SentenceEncoder
    folder: Path
    scores: Mapping[str, Scores]
    n_steps: int
    kept_step: int
    elapsed_s: float


class _RunFile(Document, kw_only=True):
    """``run.json``, next to the fields of `TrainingSettings`: what else the weights depend on."""

    run: str  # random name of the run
    base_reference: str
    base: dict[str, Any]
    data: Sha256
    development: Sha256 | None
    n_processes: int


class _RecordFile(_RunFile, kw_only=True):
    """``training.json``, likewise."""

    tests: dict[str, Sha256]
    transform: str | None
    transform_settings: dict[str, Any] | str | None
    fitted_on: str | None
    peak_learning_rate: float
    examples: dict[str, Any]
    n_steps: Count
    kept_step: Count
    elapsed_s: float
    scores: dict[str, dict[str, dict[str, float | None] | None]]  # `Scores`, with null for NaN
    fingerprint: str
    python: str
    packages: dict[str, str]
    checksums: dict[RelativePath, Checksum]


def _read_facts(path: Path, name: str, schema: type[_RunFile]) -> dict[str, Any]:
    """Read a flat file of settings and the fields of a schema."""
    document: dict[str, Any] = read_json(path)
    check_format(document, str(path), name, FORMAT_VERSION)
    names = {field.name for field in fields(TrainingSettings)}
    check_schema({key: value for key, value in document.items() if key in names}, str(path), TrainingSettings)
    check_schema({key: value for key, value in document.items() if key not in names}, str(path), schema)
    return document


# -- the folder of a run that is not finished -------------------------------------------------------------------------


class RunFolder:
    """``OUTPUT.training``: settings, metrics and the newest checkpoint of a run that is not finished."""

    def __init__(self, output: Path) -> None:
        self._output = output.absolute()
        self.path = self._output.with_name(f"{self._output.name}.training")
        self.metrics = self.path / "metrics.jsonl"

    @property
    def is_finished(self) -> bool:
        """Whether its model is in place: the run was killed before it could remove this folder."""
        try:
            run = read_json(self.path / _RUN_FILE).get("run")
            return run is not None and run == read_json(self._output / RECORD_FILE).get("run")
        except (FileNotFoundError, InputError):
            return False

    @property
    def is_begun(self) -> bool:
        """Whether a run is in progress, or can be resumed."""
        return not self.is_finished and self.path.exists()  # in this order: another process may remove it

    def tidy(self) -> None:
        """Remove what killed runs left: temporary files, and this folder if its model is in place."""
        sweep(self.path.parent)
        if self.is_finished:
            with locked(self.path, wait=False):
                self.remove()
        elif self.path.is_dir():
            sweep(self.path)

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Start a new run."""
        if self.path.is_dir():
            with locked(self.path, wait=False):  # refuse if another process trains, even if it has no checkpoint yet
                pass
        checkpoint = newest_checkpoint(self.path)
        if checkpoint is not None:
            raise OutputError(
                f"{self.path} holds a run that was stopped after step {step_of(checkpoint)}. Resume it: "
                f"{option('resume', True)}, "
                "or remove that folder to start again."
            )
        with replacing_folder(self.path, _RUN) as temporary:
            heading = {"format": _RUN_FORMAT, "format_version": FORMAT_VERSION, "run": secrets.token_hex(8)}
            (temporary / _RUN_FILE).write_bytes(document_bytes({**heading, **facts}))

    def resume(self, facts: Mapping[str, Any]) -> Checkpoint | None:
        """Return the checkpoint to resume from; None if the run was stopped before its first one."""
        try:
            before = _read_facts(self.path / _RUN_FILE, _RUN_FORMAT, _RunFile)
        except FileNotFoundError:
            raise InputError(
                f"train: {option('resume', True)} needs a run that was stopped; {self.path} has none."
            ) from None
        except FileFormatError as error:
            raise FileFormatError(f"{error} Remove {self.path} to train from the beginning.") from None
        _check_same(self.path, before, facts)
        checkpoint = newest_checkpoint(self.path)
        return None if checkpoint is None else Checkpoint(checkpoint)

    def remove(self) -> None:
        """Remove the folder at once, after the model was saved: a kill leaves all of it or nothing."""
        fsync(self.path.parent)  # the name of the model must be on the disk before its checkpoints go
        remove_folder(self.path)


def _check_same(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume with other data or settings."""
    differences = [
        f"{name}: {before.get(name)!r} then, {value!r} now"
        for name, value in json.loads(json.dumps(now)).items()
        if before.get(name) != value
    ]
    if differences:
        raise InputError(
            f"train: {option('resume', True)} needs the data and settings of {folder}, but they differ: "
            f"{'; '.join(differences)}. "
            "Use the same ones, or remove that folder to start again."
        )


# -- the record of a finished run -------------------------------------------------------------------------------------


def write_record(folder: Path, job: TrainingJob, facts: Mapping[str, Any], result: TrainingResult) -> None:
    """Write ``training.json`` into a model folder, with the checksums of the existing files."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **facts,
        **job.result_facts(),
        "peak_learning_rate": job.settings.learning_rate_for(facts["base"]["kind"]),
        "examples": job.examples.describe(),
        "n_steps": result.n_steps,
        "kept_step": result.kept_step,
        "elapsed_s": result.elapsed_s,
        "scores": msgspec.to_builtins(result.scores),
        "fingerprint": result.model.fingerprint,
        "python": platform.python_version(),
        "packages": {package: version(package) for package in _PACKAGES},
        "run": read_json(RunFolder(job.output).path / _RUN_FILE)["run"],
        "checksums": folder_checksums(folder),
    }
    (folder / RECORD_FILE).write_bytes(document_bytes(without_nan(document)))


def read_training(folder: Path, job: TrainingJob | None = None) -> TrainingResult:
    """Load a trained model with the record of its training, which must be that of a job if there is one."""
    path = folder / RECORD_FILE
    try:
        record = _read_facts(path, FORMAT, _RecordFile)
        scores = {
            name: check_schema({when: _with_nan(score) for when, score in by_time.items()}, str(path), Scores)
            for name, by_time in record["scores"].items()
        }
    except FileFormatError as error:
        raise FileFormatError(f"{error} Remove {folder} to train again.") from None
    if job is not None:
        _check_same(folder, record, job.weight_facts() | job.result_facts())
    return TrainingResult(load(folder), folder, scores, record["n_steps"], record["kept_step"], record["elapsed_s"])


def _with_nan(score: Mapping[str, float | None] | None) -> dict[str, float] | None:
    if score is None:
        return None
    return {name: math.nan if value is None else value for name, value in score.items()}


# -- checkpoints: tensors as safetensors, everything else as JSON, no pickle ------------------------------------------


WEIGHTS: Final = "weights.safetensors"  # of the model and the loss
BEST: Final = "best.safetensors"  # the same of the best step
_STATE_FILE: Final = "trainer_state.json"
_PREFIX: Final = "checkpoint-"
_OPTIMIZER: Final = "optimizer.safetensors"
_RANDOM: Final = "random.safetensors"
_REST: Final = "rest.json"
_CHECKPOINT: Final = Replaceable("an older checkpoint", lambda folder: True)


class _OptimizerFields(Struct, forbid_unknown_fields=True):
    values: dict[str, Any]
    param_groups: list[dict[str, Any]]


class _RandomFields(Struct, forbid_unknown_fields=True):
    python: tuple[int, list[int], float | None]  # for random.setstate
    numpy: tuple[str, list[int], int, int, float]  # for numpy.random.set_state


class _RestFile(Document, kw_only=True):
    n_tensors: dict[str, Count]
    optimizer: _OptimizerFields
    scheduler: dict[str, Any]
    random: list[_RandomFields]  # by process
    checksums: dict[RelativePath, Checksum]


class _StateFile(Struct):
    global_step: Count  # the file is the library's: only what is needed here is checked


def newest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint of most steps."""
    return max(_checkpoints(folder), key=step_of, default=None)


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{_PREFIX}*") if re.fullmatch(rf"{_PREFIX}\d+", path.name)]


def step_of(checkpoint: Path) -> int:
    """Steps taken before a checkpoint."""
    return int(checkpoint.name.removeprefix(_PREFIX))


def random_state() -> dict[str, Any]:
    """State of every random generator of this process."""
    torch = _extras.require("torch")
    devices = {"cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        devices["cuda"] = torch.cuda.random.get_rng_state()
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {"python": random.getstate(), "numpy": [kind, np.asarray(keys).tolist(), *rest], "torch": devices}


def write_checkpoint(
    folder: Path,
    state: Any,
    tensors: Mapping[str, Mapping[str, Any]],
    *,
    optimizer: Mapping[str, Any],
    scheduler: Mapping[str, Any],
    random_states: Sequence[Mapping[str, Any]],
) -> None:
    """Write a checkpoint, and remove older ones once it is complete; one random state per process."""
    torch = _extras.require("torch")
    moments: dict[str, Any] = {}
    values: dict[str, Any] = {}  # of the optimizer: what is not a tensor
    for index, parameter_state in optimizer["state"].items():
        for name, value in parameter_state.items():
            (moments if torch.is_tensor(value) else values)[f"{index}.{name}"] = value
    generators = {
        f"{rank}.{name}": generator
        for rank, states in enumerate(random_states)
        for name, generator in states["torch"].items()
    }
    contents = {**tensors, _OPTIMIZER: moments, _RANDOM: generators}
    older = newest_checkpoint(folder)
    path = folder / f"{_PREFIX}{state.global_step}"
    try:
        with replacing_folder(path, _CHECKPOINT) as temporary:
            for name, content in contents.items():
                _save(temporary / name, content)
            state.save_to_json(str(temporary / _STATE_FILE))
            document = {
                "format": _CHECKPOINT_FORMAT,
                "format_version": FORMAT_VERSION,
                "n_tensors": {name: len(content) for name, content in contents.items()},
                "optimizer": {"values": values, "param_groups": optimizer["param_groups"]},
                "scheduler": scheduler,
                "random": [{name: states[name] for name in ("python", "numpy")} for states in random_states],
                "checksums": folder_checksums(temporary),
            }
            (temporary / _REST).write_bytes(document_bytes(document))
        fsync(folder)  # the name of the new checkpoint must be on the disk before older ones go
    except OutputError as error:
        kept = f"The checkpoint of step {step_of(older)} is intact." if older else "There is no checkpoint before it."
        advice = f" Free some space, then use {option('resume', True)}." if disk_error(error) else ""
        raise OutputError(f"{error} {kept}{advice}") from error
    for other in _checkpoints(folder):
        if other != path:
            with suppress(OSError):
                remove_folder(other)


def _save(path: Path, tensors: Mapping[str, Any]) -> None:
    safetensors = _extras.require("safetensors.torch")
    safetensors.save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, str(path))


class Checkpoint:
    """A checkpoint to resume from; its files are verified when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path, self.step = path, step_of(path)
        try:
            self._rest = read_document(path / _REST, _CHECKPOINT_FORMAT, FORMAT_VERSION, _RestFile)
            verify_folder(path, self._rest["checksums"])
            read_json(path / _STATE_FILE, _StateFile)
        except (FileFormatError, FileNotFoundError) as error:
            raise self._damaged(error) from None

    def weights(self) -> dict[str, Any]:
        """Tensors of the model and of the loss, by name."""
        return self._tensors(WEIGHTS)

    def best(self) -> dict[str, Any] | None:
        """The same of the best step, if a development set was scored."""
        return self._tensors(BEST) if BEST in self._rest["n_tensors"] else None

    def optimizer(self) -> dict[str, Any]:
        """State of the optimizer, for its ``load_state_dict``."""
        rest = self._rest["optimizer"]
        state: dict[int, dict[str, Any]] = {}
        for key, value in {**self._tensors(_OPTIMIZER), **rest["values"]}.items():
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = value
        return {"state": state, "param_groups": rest["param_groups"]}

    def scheduler(self) -> dict[str, Any]:
        """State of the learning rate's schedule."""
        return dict(self._rest["scheduler"])

    def restore_random_state(self, rank: int = 0) -> None:
        """Set every random generator of a process to its state at the checkpoint."""
        torch = _extras.require("torch")
        states = self._rest["random"]
        if rank >= len(states):
            return
        python_version, internal, gauss = states[rank]["python"]
        random.setstate((python_version, tuple(internal), gauss))
        kind, keys, *rest = states[rank]["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
        prefix = f"{rank}."
        generators = {
            name.removeprefix(prefix): t for name, t in self._tensors(_RANDOM).items() if name.startswith(prefix)
        }
        torch.random.set_rng_state(generators["cpu"])
        if "cuda" in generators and torch.cuda.is_available():
            torch.cuda.random.set_rng_state(generators["cuda"])

    def _tensors(self, name: str) -> dict[str, Any]:
        n_tensors = self._rest["n_tensors"].get(name)
        try:
            with open_tensors(self.path / name, "pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            if unreadable := system_error(error, self.path / name):
                raise unreadable from error
            raise self._damaged(f"{self.path / name}: {error}.") from error
        if len(tensors) != n_tensors:
            raise self._damaged(f"{self.path / name}: expected {n_tensors} tensors, found {len(tensors)}.")
        return tensors

    def _damaged(self, what: object) -> FileFormatError:
        folder = self.path.parent
        older = max((step_of(other) for other in _checkpoints(folder) if other != self.path), default=None)
        advice = (
            f"Remove {folder} to train from the beginning"
            if older is None
            else f"Remove {self.path} to resume from step {older}"
        )
        return FileFormatError(f"the checkpoint of step {self.step} is damaged: {what} {advice}.")
