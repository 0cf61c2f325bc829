"""Checkpoints: all that a run needs to go on, as safetensors and JSON, each written whole or not at all."""

from __future__ import annotations

import errno
import json
import random
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from isosent import _extras
from isosent.errors import FileFormatError, OutputError
from isosent.files.atomic import flush_to_disk

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
    found = [path for path in folder.glob(f"{_PREFIX}*") if _NAME.fullmatch(path.name)]
    return max(found, key=step_of, default=None)


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
    temporary = folder / f".{path.name}-{secrets.token_hex(4)}.tmp"
    try:
        temporary.mkdir()
        _write_files(temporary, trainer, random_states)
        for file in temporary.iterdir():
            flush_to_disk(file)
        if path.exists():  # the same step, reached again by a resumed run
            path.rename(temporary.with_suffix(".old"))
        temporary.rename(path)
    except Exception as error:  # safetensors has an error of its own for a full disk
        if not isinstance(error, OSError) and "SafetensorError" not in type(error).__name__:
            raise
        kept = f"that of step {step_of(older)} is intact" if older else "there is none before it"
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        advice = (
            " Free some space, and go on with --resume."
            if getattr(error, "errno", errno.ENOSPC) == errno.ENOSPC
            else ""
        )
        raise OutputError(
            f"the checkpoint of step {trainer.state.global_step} in {folder} could not be written: {reason}; {kept}."
            f"{advice}"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(temporary.with_suffix(".old"), ignore_errors=True)
    for other in folder.glob(f"{_PREFIX}*"):
        if other != path:
            shutil.rmtree(other, ignore_errors=True)
    return path


def _write_files(folder: Path, trainer: Any, random_states: list[dict[str, Any]]) -> None:
    optimizer, rest = _flattened(trainer.optimizer.state_dict())
    states = {f"{rank}.{name}": state for rank, of in enumerate(random_states) for name, state in of["torch"].items()}
    contents = {_WEIGHTS: trainer.parts(), _OPTIMIZER: optimizer, _RANDOM: states}
    if trainer.best is not None:
        contents[_BEST] = trainer.best
    for name, tensors in contents.items():
        _save(folder / name, tensors)
    document = {
        "n_tensors": {name: len(tensors) for name, tensors in contents.items()},
        "optimizer": rest,
        "scheduler": trainer.lr_scheduler.state_dict(),
        "random": [{name: state for name, state in of.items() if name != "torch"} for of in random_states],
    }
    (folder / _REST).write_text(json.dumps(document), "utf-8")
    trainer.state.save_to_json(str(folder / STATE_FILE))


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
        self._rest, state = self._read_json(_REST), self._read_json(STATE_FILE)
        known = {"n_tensors": dict, "optimizer": dict, "scheduler": dict, "random": list}
        if (
            not all(isinstance(self._rest.get(name), kind) for name, kind in known.items())
            or "global_step" not in state
        ):
            raise self._damaged(_REST, "something else")

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
        try:
            tensors: dict[str, Any] = _extras.require("safetensors.torch").load_file(str(self.path / name))
        except Exception as error:
            raise self._damaged(name, error) from error
        if len(tensors) != self._rest["n_tensors"].get(name):
            raise self._damaged(name, f"{len(tensors)} of {self._rest['n_tensors'].get(name)} tensors")
        return tensors

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            document = json.loads((self.path / name).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise self._damaged(name, error) from None
        if not isinstance(document, dict):
            raise self._damaged(name, "no JSON object")
        return document

    def _damaged(self, name: str, got: object) -> FileFormatError:
        return FileFormatError(
            f"{self.path / name} must be as it was written; got: {got}. Remove {self.path.parent} and train again."
        )


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
