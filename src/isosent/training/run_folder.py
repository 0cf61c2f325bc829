"""What a run keeps while it goes on: beside the model's folder, gone when the model is there."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from isosent.errors import FileFormatError, InputError, OutputError
from isosent.files.atomic import locked, replacing
from isosent.training.checkpoint import newest_checkpoint, step_of

_RUN_FILE: Final = "run.json"
_METRICS_FILE: Final = "metrics.jsonl"


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
        output = output.absolute()
        self.path = output.with_name(f"{output.name}.training")

    @property
    def metrics(self) -> Path:
        """File of the metrics."""
        return self.path / _METRICS_FILE

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
        if self.path.exists() and not self._is_ours():
            raise OutputError(f"{self.path} must be free for checkpoints; got something else. Name another output.")
        shutil.rmtree(self.path, ignore_errors=True)
        try:
            self.path.mkdir()
        except OSError as error:
            raise OutputError(f"{self.path} could not be made: {error.strerror}.") from error
        with replacing(self.path / _RUN_FILE) as temporary:
            temporary.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", "utf-8")

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
        """
        if not (self.path / _RUN_FILE).exists():
            raise InputError(f"train: --resume needs a run that was stopped; {self.path} holds none. Leave it out.")
        try:
            before = json.loads((self.path / _RUN_FILE).read_text("utf-8"))
        except ValueError as error:
            raise FileFormatError(f"{self.path / _RUN_FILE} must be JSON; got: {error}. Begin again.") from None
        if not isinstance(before, dict):
            raise FileFormatError(f"{self.path / _RUN_FILE} must be a JSON object; got {before!r:.60}. Begin again.")
        check_same(self.path, before, facts)
        return newest_checkpoint(self.path)

    def remove(self) -> None:
        """Remove it, after the model was saved: at once, so that a kill leaves all of it or nothing."""
        gone = self.path.with_name(f".{self.path.name}-{secrets.token_hex(4)}.old")
        self.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _is_ours(self) -> bool:
        return self.path.is_dir() and ((self.path / _RUN_FILE).exists() or not any(self.path.iterdir()))


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
