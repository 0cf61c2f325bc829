"""Moments on the way: kept after a block, so that a run that was killed goes on from there."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isosent.errors import FileFormatError, InputError
from isosent.files.atomic import check_destination, replacing
from isosent.files.documents import parse_json
from isosent.files.mapped_vectors import safetensors_metadata
from isosent.files.schemas import CheckpointRun
from isosent.streaming.file_moments import FileMoments, moments_bytes, moments_in

FORMAT = "isosent-checkpoint"
FORMAT_VERSION = 1

_PAUSE_S = 1.0
_SHARE_OF_TIME = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """How far a run has come.

    Parameters
    ----------
    measured : FileMoments
        Of all rows before.
    source : int
        File that comes next, counted from 0; the number of files when all is done.
    row : int
        Row of it that comes next.
    """

    measured: FileMoments
    source: int
    row: int


class Checkpoint:
    """A file that holds how far a run has come.

    Parameters
    ----------
    path : path-like
        The file.
    settings : dict
        What the result depends on beside the data, as plain values.
    data : list of dict
        Name and identity of each file, in order.

    Raises
    ------
    OutputError
        If no file can be written there.
    """

    def __init__(self, path: str | os.PathLike[str], settings: dict[str, Any], data: list[dict[str, Any]]) -> None:
        check_destination(path)
        self._path, self._settings, self._data = Path(path), settings, data
        self._next_s = 0.0

    def reached(self) -> Reached | None:
        """Read how far the last run came.

        Returns
        -------
        Reached or None
            None where there is no file yet.

        Raises
        ------
        FileFormatError
            If the file is damaged or no checkpoint.
        InputError
            If it is one of other data or other settings.
        """
        if not self._path.exists():
            return None
        metadata = safetensors_metadata(self._path)
        if (metadata.get("format"), metadata.get("format_version")) != (FORMAT, str(FORMAT_VERSION)):
            raise FileFormatError(f"{self._path} must be a checkpoint; it holds something else. Name another file.")
        try:
            measured = moments_in(self._path)
            run = parse_json(metadata.get("run", ""), "run", CheckpointRun)
        except FileFormatError as error:
            raise FileFormatError(f"{error} Remove it, and the run begins anew.") from None
        self._check_same(run["settings"], run["data"])
        return Reached(measured, run["source"], run["row"])

    def _check_same(self, settings: dict[str, Any], data: list[dict[str, Any]]) -> None:
        if _unnamed(data) != _unnamed(self._data):
            raise InputError(
                f"{self._path} must be a checkpoint of the same data, {_names(self._data)} as it is now; "
                f"it is one of {_names(data)} as it was then. Name another file, or remove it."
            )
        if settings != self._settings:
            raise InputError(
                f"{self._path} must be a checkpoint of a run with the same settings, {self._settings}; "
                f"it is one with {settings}. Name another file, or remove it."
            )

    def keep(self, reached: Reached) -> None:
        """Write how far the run has come; after the last block always, else at most once a second.

        Parameters
        ----------
        reached : Reached
            How far.

        Raises
        ------
        OutputError
            If the file cannot be written; what was there is intact.
        """
        start_s = time.monotonic()
        is_complete = reached.source == len(self._data)
        if start_s < self._next_s and not is_complete:
            return
        run = {
            "settings": self._settings,
            "data": self._data,
            "source": reached.source,
            "row": reached.row,
            "is_complete": is_complete,
        }
        metadata = {"format": FORMAT, "format_version": str(FORMAT_VERSION), "run": json.dumps(run, ensure_ascii=False)}
        with replacing(self._path) as temporary:
            temporary.write_bytes(moments_bytes(reached.measured, metadata))
        end_s = time.monotonic()
        self._next_s = end_s + max(_PAUSE_S, (end_s - start_s) / _SHARE_OF_TIME)


def _unnamed(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files without their names, which do not count."""
    return [file | {"name": ""} for file in data]


def _names(data: list[dict[str, Any]]) -> str:
    return ", ".join(str(file.get("name")) for file in data)
