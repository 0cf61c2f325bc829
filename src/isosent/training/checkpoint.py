"""Checkpoints: all that a run needs to go on, as safetensors and JSON, each written whole or not at all.

``rest.json`` is written last and holds the checksums of the other files and its own.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors import SafetensorError

from isosent import _extras
from isosent.errors import FileFormatError, OutputError
from isosent.files.atomic import Replaceable, disk_error, fsync, remove_folder, replacing_folder
from isosent.files.checksum import folder_checksums, verify_folder
from isosent.files.documents import document_bytes, read_json
from isosent.training.schemas import CheckpointFields, TrainerState

FORMAT: Final = "isosent-training-checkpoint"
FIRST_CHECKPOINT_S = 60.0
STATE_FILE: Final = "trainer_state.json"
_PREFIX = "checkpoint-"
_NAME = re.compile(rf"{_PREFIX}(\d+)")
_WEIGHTS, _BEST, _OPTIMIZER, _RANDOM, _REST = (
    "weights.safetensors",
    "best.safetensors",
    "optimizer.safetensors",
    "random.safetensors",
    "rest.json",
)
_CHECKPOINT: Final = Replaceable("an older checkpoint", lambda folder: True)


def newest_checkpoint(folder: Path) -> Path | None:
    """Find the checkpoint of most steps.

    Parameters
    ----------
    folder : Path
        Folder of the run.

    Returns
    -------
    Path or None
        None where there is none yet.
    """
    return max(_checkpoints(folder), key=step_of, default=None)


def _checkpoints(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{_PREFIX}*") if _NAME.fullmatch(path.name)]


def step_of(checkpoint: Path) -> int:
    """Steps taken before a checkpoint.

    Parameters
    ----------
    checkpoint : Path
        Its folder.

    Returns
    -------
    int
        The number of steps.
    """
    return int(checkpoint.name.removeprefix(_PREFIX))


def write_checkpoint(folder: Path, trainer: Any, random_states: list[dict[str, Any]]) -> Path:
    """Write a checkpoint, and remove older ones once it is whole.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    trainer : Trainer
        Gives ``parts()``, ``best``, ``optimizer``, ``lr_scheduler`` and ``state``.
    random_states : list of dict
        What `random_state` returned in each process.

    Returns
    -------
    Path
        Its folder.

    Raises
    ------
    OutputError
        If it cannot be written, the disk is full for one. An older checkpoint is intact.
    """
    older = newest_checkpoint(folder)
    path = folder / f"{_PREFIX}{trainer.state.global_step}"
    try:
        with replacing_folder(path, _CHECKPOINT) as temporary:
            _write_files(temporary, trainer, random_states)
        fsync(folder)  # the name of the new checkpoint must be on the disk before older ones go
    except OutputError as error:
        kept = f"The checkpoint of step {step_of(older)} is intact." if older else "There is no checkpoint before it."
        advice = " Free some space, and go on with --resume." if disk_error(error) else ""
        raise OutputError(f"{error} {kept}{advice}") from error
    for other in _checkpoints(folder):
        if other != path:
            with suppress(OSError):
                remove_folder(other)
    return path


def _write_files(folder: Path, trainer: Any, random_states: list[dict[str, Any]]) -> None:
    optimizer, rest = _flattened(trainer.optimizer.state_dict())
    states = {f"{rank}.{name}": state for rank, of in enumerate(random_states) for name, state in of["torch"].items()}
    contents = {_WEIGHTS: trainer.parts(), _OPTIMIZER: optimizer, _RANDOM: states}
    if trainer.best is not None:
        contents[_BEST] = trainer.best
    for name, tensors in contents.items():
        _save(folder / name, tensors)
    trainer.state.save_to_json(str(folder / STATE_FILE))
    document = {
        "format": FORMAT,
        "format_version": 1,
        "n_tensors": {name: len(tensors) for name, tensors in contents.items()},
        "optimizer": rest,
        "scheduler": trainer.lr_scheduler.state_dict(),
        "random": [{name: state for name, state in of.items() if name != "torch"} for of in random_states],
        "checksums": folder_checksums(folder),
    }
    (folder / _REST).write_bytes(document_bytes(document))


def _save(path: Path, tensors: Mapping[str, Any]) -> None:
    safetensors = _extras.require("safetensors.torch")
    safetensors.save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, str(path))


def _flattened(optimizer: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of an optimizer as tensors by name, and the rest as plain values."""
    torch = _extras.require("torch")
    tensors: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for index, state in optimizer["state"].items():
        for name, value in state.items():
            (tensors if torch.is_tensor(value) else plain)[f"{index}.{name}"] = value
    return tensors, {"values": plain, "param_groups": optimizer["param_groups"]}


class Checkpoint:
    """A checkpoint to go on from.

    Parameters
    ----------
    path : path-like
        Its folder.

    Raises
    ------
    FileFormatError
        If a file of it is missing or damaged.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self._rest: dict[str, Any] = read_json(self.path / _REST, CheckpointFields)
            verify_folder(self.path, self._rest.get("checksums") or {})
            read_json(self.path / STATE_FILE, TrainerState)
        except (FileFormatError, FileNotFoundError) as error:
            raise self._damaged(error) from None

    def weights(self) -> dict[str, Any]:
        """Tensors of the model and of the loss, by name."""
        return self._tensors(_WEIGHTS)

    def best(self) -> dict[str, Any] | None:
        """The same of the best step, where a development set told one."""
        return self._tensors(_BEST) if _BEST in self._rest["n_tensors"] else None

    def optimizer(self) -> dict[str, Any]:
        """State of the optimizer, as its ``load_state_dict`` takes it."""
        rest = self._rest["optimizer"]
        state: dict[int, dict[str, Any]] = {}
        for key, value in {**self._tensors(_OPTIMIZER), **rest["values"]}.items():
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = value
        return {"state": state, "param_groups": rest["param_groups"]}

    def scheduler(self) -> dict[str, Any]:
        """State of the learning rate's schedule."""
        state: dict[str, Any] = self._rest["scheduler"]
        return state

    def restore_random_state(self, rank: int = 0) -> None:
        """Set every random generator to where it stood.

        Parameters
        ----------
        rank : int, default 0
            Number of the process; one that was not there before keeps its own.
        """
        torch = _extras.require("torch")
        states = self._rest["random"]
        if rank >= len(states):
            return
        version, internal, gauss = states[rank]["python"]
        random.setstate((version, tuple(internal), gauss))
        kind, keys, *rest = states[rank]["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002 - torch's companions use it
        own = {
            name.partition(".")[2]: tensor
            for name, tensor in self._tensors(_RANDOM).items()
            if name.startswith(f"{rank}.")
        }
        torch.random.set_rng_state(own.pop("cpu"))
        if own and torch.cuda.is_available():
            torch.cuda.random.set_rng_state(own["cuda"])

    def _tensors(self, name: str) -> dict[str, Any]:
        n_tensors = self._rest["n_tensors"].get(name)
        try:
            tensors: dict[str, Any] = _extras.require("safetensors.torch").load_file(str(self.path / name))
        except (OSError, SafetensorError) as error:
            raise self._damaged(f"{self.path / name}: {error}.") from error
        if len(tensors) != n_tensors:
            raise self._damaged(f"{self.path / name}: {len(tensors)} tensors in place of {n_tensors}.")
        return tensors

    def _damaged(self, what: object) -> FileFormatError:
        folder = self.path.parent
        older = max((step_of(other) for other in _checkpoints(folder) if other != self.path), default=None)
        advice = (
            f"Remove {folder} to train from the beginning"
            if older is None
            else f"Remove {self.path} to go on from step {older}"
        )
        return FileFormatError(f"the checkpoint of step {step_of(self.path)} is damaged: {what} {advice}.")


def first_checkpoint_callback() -> Any:
    """Make the callback that has the first checkpoint written after `FIRST_CHECKPOINT_S`, if none was before."""
    return _callback_class()()


@cache
def _callback_class() -> Any:
    base: Any = _extras.require("transformers").TrainerCallback

    class FirstCheckpoint(base):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._is_awaited, self._start_s = state.global_step == 0, time.monotonic()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            if self._is_awaited:
                is_due = [time.monotonic() - self._start_s >= FIRST_CHECKPOINT_S]
                if args.world_size > 1:  # clocks differ, and a checkpoint is written by all processes together
                    _extras.require("accelerate").utils.broadcast_object_list(is_due)
                control.should_save |= is_due[0]
            return control

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._is_awaited = False

    return FirstCheckpoint


def random_state() -> dict[str, Any]:
    """Where every random generator of this process stands.

    Returns
    -------
    dict
        ``python`` and ``numpy`` as plain values, ``torch`` as tensors by device.
    """
    torch = _extras.require("torch")
    devices = {"cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        devices["cuda"] = torch.cuda.random.get_rng_state()
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - torch's companions use it
    return {"python": random.getstate(), "numpy": [kind, np.asarray(keys).tolist(), *rest], "torch": devices}
