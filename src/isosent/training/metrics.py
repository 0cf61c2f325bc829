"""What a training run measured, as a file of JSON lines: each is on the disk as soon as it is known."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from isosent import _check
from isosent.errors import FileFormatError, OutputError
from isosent.files.atomic import check_destination, replacing
from isosent.files.checksum import UNSEALED, sealed
from isosent.files.documents import check_schema, parse_json
from isosent.files.plain import without_nan
from isosent.training.schemas import DevLine, LossLine, MilestoneLine

_SEAL = "checksum"
MILESTONES = ("start", "resumed", "checkpoint", "best", "stopped", "end")


@dataclass(frozen=True, slots=True)
class LossPoint:
    """The loss of the steps since the last such point.

    Parameters
    ----------
    step : int
        Steps done.
    epoch : float
        Passes over the data done, 0.5 in the middle of the first.
    loss : float
        Mean of the steps since the last point.
    learning_rate : float
        That of this step.
    gradient_norm : float
        Euclidean length of the gradient of this step, before it is clipped; NaN where it is unknown.
    examples_per_s : float
        Examples a second in the last steps, see `StepRecorder`.
    elapsed_s : float
        Seconds spent in steps since the start, those of earlier parts of a resumed run included.
    """

    event: ClassVar[str] = "loss"
    step: int
    epoch: float
    loss: float
    learning_rate: float
    gradient_norm: float
    examples_per_s: float
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class DevPoint:
    """The score of the development set after a number of steps.

    Parameters
    ----------
    step : int
        Steps done; 0 is the model before training.
    spearman, pearson : float
        In [-1, 1]; NaN where undefined.
    n_pairs : int
        Pairs scored.
    """

    event: ClassVar[str] = "dev"
    step: int
    spearman: float
    pearson: float
    n_pairs: int


@dataclass(frozen=True, slots=True)
class Milestone:
    """Something that happened.

    Parameters
    ----------
    event : str
        One of `MILESTONES`.
    step : int
        Steps done.
    facts : mapping of str to object
        What else there is to say, as values that JSON can hold.
    """

    event: str
    step: int
    facts: Mapping[str, Any] = field(default_factory=dict)


Point = LossPoint | DevPoint | Milestone
_LINES: Mapping[str, tuple[type, type[LossPoint | DevPoint] | None]] = {
    LossPoint.event: (LossLine, LossPoint),
    DevPoint.event: (DevLine, DevPoint),
}


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a file of metrics holds, each in the order of the file.

    Parameters
    ----------
    losses : tuple of LossPoint
        Losses.
    devs : tuple of DevPoint
        Scores of the development set.
    milestones : tuple of Milestone
        What happened.
    """

    losses: tuple[LossPoint, ...] = ()
    devs: tuple[DevPoint, ...] = ()
    milestones: tuple[Milestone, ...] = ()

    @property
    def best(self) -> DevPoint | None:
        """The first point of the highest Spearman; None where there is no defined one."""
        defined = [point for point in self.devs if not math.isnan(point.spearman)]
        return max(defined, key=lambda point: point.spearman, default=None)

    @property
    def elapsed_s(self) -> float:
        """Seconds spent in steps."""
        told = [point.elapsed_s for point in self.losses] + [m.facts.get("elapsed_s", 0.0) for m in self.milestones]
        return max(told, default=0.0)


class MetricsLog:
    """A file of metrics that is written to while a model is trained.

    Parameters
    ----------
    path : path-like
        The file. A run that starts replaces it.
    after_step : int, default 0
        Step of the checkpoint that a run goes on from. Lines up to it are kept. Those of later steps, which will be
        taken again, are dropped, and so is a last line that was not written to its end. 0 is a new run.

    Attributes
    ----------
    kept : Metrics
        What the lines that are kept hold.

    Raises
    ------
    OutputError
        If the file cannot be written.
    FileFormatError
        If there is a file of an earlier part of the run, and it is damaged before its last line.

    Notes
    -----
    One line an event: ``{"event": "loss", "step": 10, ..., "checksum": ...}``. The fields are those of `LossPoint` and
    `DevPoint`, or the facts of a `Milestone`. An undefined number is null. The checksum is that of the line.
    """

    def __init__(self, path: str | os.PathLike[str], *, after_step: int = 0) -> None:
        check_destination(path)
        self._path = Path(path)
        points: list[Point] = []
        if after_step > 0 and self._path.is_file():
            try:
                points = [point for point in _points_of(self._path) if point.step <= after_step]
            except FileFormatError as error:
                raise FileFormatError(f"{error} Remove {self._path} to go on without the earlier metrics.") from None
        self.kept = _metrics_of(points)
        with replacing(self._path) as temporary:
            temporary.write_bytes(b"".join(map(_line_of, points)))

    def write(self, point: Point) -> None:
        """Add a line, at once.

        Parameters
        ----------
        point : LossPoint, DevPoint or Milestone
            What was measured or happened.

        Raises
        ------
        OutputError
            If it cannot be written, the disk is full for one.
        """
        try:
            with self._path.open("ab") as file:
                file.write(_line_of(point))
        except OSError as error:
            raise OutputError(f"{self._path} could not be written: {error.strerror or error}.") from error


def read_metrics(path: str | os.PathLike[str]) -> Metrics:
    """Read a file of metrics, of a run that still goes on, too.

    Parameters
    ----------
    path : path-like
        What a `MetricsLog` wrote.

    Returns
    -------
    Metrics
        What it holds. A last line that is not written to its end is left out.

    Raises
    ------
    InputFileError
        If there is no such file, or it is empty.
    FileFormatError
        If it is no file of metrics, or a line of it is damaged.
    """
    return _metrics_of(_points_of(_check.input_file(path)))


def _metrics_of(points: Iterable[Point]) -> Metrics:
    listed = list(points)
    return Metrics(
        tuple(point for point in listed if isinstance(point, LossPoint)),
        tuple(point for point in listed if isinstance(point, DevPoint)),
        tuple(point for point in listed if isinstance(point, Milestone)),
    )


def _line_of(point: Point) -> bytes:
    fields = asdict(point)
    row = {"event": point.event, "step": fields.pop("step")} | fields.pop("facts", {}) | fields
    return sealed((json.dumps(without_nan(row) | {_SEAL: UNSEALED}, ensure_ascii=False) + "\n").encode())


def _points_of(path: Path) -> Iterator[Point]:
    """What the lines say, without one at the end that is not whole."""
    have_seals = None
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}: line {number}"
            if not line.endswith(b"\n"):
                if _is_json(line[:-1]):
                    raise FileFormatError(f"{where}: damaged. Its line feed has become another byte.")
                return  # the run was killed, or is about to go on writing
            row = parse_json(line, where)
            has_seal = row.get(_SEAL) is not None
            if have_seals not in (None, has_seal):  # files from before checksums have none at all
                raise FileFormatError(f"{where}: damaged. Its checksum is missing.")
            have_seals = has_seal
            yield _point_of(where, row)


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _point_of(where: str, row: dict[str, Any]) -> Point:
    event = row.get("event")
    if event not in (*_LINES, *MILESTONES):
        raise FileFormatError(f"{where}: no event of a training; got {event!r}. Name a metrics.jsonl of isosent train.")
    schema, kind = _LINES.get(event, (MilestoneLine, None))
    check_schema(row, where, schema)
    row.pop(_SEAL, None)
    del row["event"]
    if kind is None:
        return Milestone(event, row.pop("step"), row)
    numbers: dict[str, Any] = {name: math.nan if value is None else value for name, value in row.items()}
    return kind(**numbers)
