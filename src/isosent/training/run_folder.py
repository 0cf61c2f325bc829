"""What a run keeps while it goes on: beside the model's folder, gone when the model is there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from isosent.errors import FileFormatError, InputError, OutputError
from isosent.files.atomic import Replaceable, fsync, locked, remove_folder, replacing_folder, sweep
from isosent.files.documents import document_bytes, read_json
from isosent.model_folder import RECORD_FILE
from isosent.training.checkpoint import Checkpoint, newest_checkpoint, step_of
from isosent.training.schemas import Run

_FORMAT: Final = "isosent-run"
_RUN_FILE: Final = "run.json"
_METRICS_FILE: Final = "metrics.jsonl"
_RUN: Final = Replaceable("the checkpoints of a run", lambda folder: (folder / _RUN_FILE).exists())


class RunFolder:
    """Settings, metrics and the newest checkpoint of a run that is not done yet.

    Parameters
    ----------
    output : Path
        Folder of the model to be.

    Attributes
    ----------
    path : Path
        ``OUTPUT.training``.
    """

    def __init__(self, output: Path) -> None:
        self._output = output.absolute()
        self.path = self._output.with_name(f"{self._output.name}.training")

    @property
    def metrics(self) -> Path:
        """File of the metrics."""
        return self.path / _METRICS_FILE

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
        """Whether there is a run that goes on, or can."""
        return not self.is_finished and self.path.exists()  # in this order, for another process may remove it

    def tidy(self) -> None:
        """Remove what killed runs left: temporary files, and this folder if its model is in place."""
        sweep(self.path.parent)
        if self.is_finished:
            with locked(self.path, wait=False):
                self.remove()
        elif self.path.is_dir():
            sweep(self.path)

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Start a new run.

        Parameters
        ----------
        facts : mapping
            All that its weights depend on, as plain values.

        Raises
        ------
        OutputError
            If an unfinished run is there, or the folder cannot be made.
        """
        if self.path.is_dir():
            with locked(self.path, wait=False):  # another run that has no checkpoint yet
                pass
        checkpoint = newest_checkpoint(self.path)
        if checkpoint is not None:
            raise OutputError(
                f"{self.path} holds a run that was stopped after step {step_of(checkpoint)}. Go on with --resume, or "
                "remove that folder to begin again."
            )
        with replacing_folder(self.path, _RUN) as temporary:
            document = {"format": _FORMAT, "format_version": 1, "run": secrets.token_hex(8), **facts}
            (temporary / _RUN_FILE).write_bytes(document_bytes(document))

    def resume(self, facts: Mapping[str, Any]) -> Path | None:
        """Find where to go on.

        Parameters
        ----------
        facts : mapping
            As for `begin`, of now.

        Returns
        -------
        Path or None
            The newest checkpoint; None where the run was stopped before the first.

        Raises
        ------
        InputError
            If there is no run, or one with other data or settings; every difference is listed.
        FileFormatError
            If what is kept of it is damaged.
        """
        try:
            before = read_json(self.path / _RUN_FILE, Run)
        except FileNotFoundError:
            raise InputError(
                f"train: --resume needs a run that was stopped; {self.path} holds none. Leave it out."
            ) from None
        except FileFormatError as error:
            raise FileFormatError(f"{error} Remove {self.path} to train from the beginning.") from None
        check_same(self.path, before, facts)
        checkpoint = newest_checkpoint(self.path)
        return None if checkpoint is None else Checkpoint(checkpoint).path

    @property
    def run(self) -> str | None:
        """What tells this run from others; None for one that an older version began."""
        run: str | None = read_json(self.path / _RUN_FILE, Run).get("run")
        return run

    def remove(self) -> None:
        """Remove it, after the model was saved: at once, so that a kill leaves all of it or nothing."""
        fsync(self.path.parent)  # the name of the model must be on the disk before its checkpoints go
        remove_folder(self.path)


def check_same(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with other data or settings.

    Parameters
    ----------
    folder : Path
        Where those of before come from.
    before, now : mapping
        What the weights depend on, as plain values; what `now` does not say is not compared.

    Raises
    ------
    InputError
        If they differ; every difference is listed.
    """
    plain = json.loads(json.dumps(now))
    differences = [
        f"{name}: {before.get(name)!r} then, {value!r} now"
        for name, value in plain.items()
        if before.get(name) != value
    ]
    if differences:
        raise InputError(
            f"train: --resume must go on with the data and settings in {folder}; they differ: "
            f"{'; '.join(differences)}. Give the old ones, or remove that folder to begin again."
        )
