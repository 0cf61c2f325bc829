"""What is to be trained, on what, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.training.development import DevScore, DevSet
from isosent.training.examples import Examples
from isosent.training.settings import TrainingSettings
from isosent.transforms.base import Transform, settings_of, transform_name


@dataclass(frozen=True, slots=True)
class Ending:
    """What is fitted behind the trained encoder, and saved with it.

    Parameters
    ----------
    transform : Transform, "auto" or None
        As for `SentenceEncoder.fit`; None is nothing. A flow is refused, which sentence-transformers cannot hold.
    texts : sequence of str, optional
        What on; the training texts where left out.
    source : str, optional
        Where these come from, for the record.
    """

    transform: Transform | Literal["auto"] | None = None
    texts: Sequence[str] | None = None
    source: str = "training texts"


@dataclass(frozen=True, slots=True, eq=False)
class TrainingJob:
    """A training.

    Parameters
    ----------
    base : str
        Model reference of what is trained, see `open_base`.
    examples : Examples
        The data.
    output : path-like
        Folder of the model.
    settings : TrainingSettings, optional
        How.
    reading : mapping of str, optional
        ``pooling`` and ``max_length`` of the base, where they are to be others, see `open_base`.
    development : DevSet, optional
        Scored at the start, on the way and at the end; it tells the best step.
    tests : sequence of DevSet, optional
        Scored at the start and at the end.
    ending : Ending, optional
        What is fitted at the end.

    Raises
    ------
    InputError
        If two scored sets have one name, the data are for another objective, or a batch cannot hold a negative.
    """

    base: str
    examples: Examples
    output: Path
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    reading: Mapping[str, Any] = field(default_factory=dict)
    development: DevSet | None = None
    tests: Sequence[DevSet] = ()
    ending: Ending = Ending()

    def __post_init__(self) -> None:
        object.__setattr__(self, "output", Path(self.output))
        objective = self.settings.objective.objective
        if self.examples.objective != objective:
            raise InputError(
                f"train: examples must be for the objective {objective}; they are for {self.examples.objective}."
            )
        if objective == "ranking" and self.settings.batch_size == 1 and "negative" not in self.examples.columns:
            raise InputError("train: batch_size must be above 1 for ranking, whose negatives are the others; got 1.")
        names = [devset.name for devset in self.scored]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"train: scored sets must have names of their own; got {twice[0]} twice. Rename a file.")

    @property
    def scored(self) -> list[DevSet]:
        """Every set that is scored before and after."""
        return [*([] if self.development is None else [self.development]), *self.tests]

    def facts(self) -> dict[str, Any]:
        """All that the weights depend on, but for those of the base.

        Returns
        -------
        dict
            Settings, reference of the base, and SHA-256 of the data, as plain values.
        """
        return {
            "base_reference": self.base,
            "pooling": None,
            "max_length": None,
            **self.reading,
            **self.settings.facts(),
            "data": self.examples.fingerprint,
            "development": None if self.development is None else self.development.fingerprint,
        }

    def ending_facts(self) -> dict[str, Any]:
        """What is scored and fitted when the weights are there.

        Returns
        -------
        dict
            SHA-256 of the tests, and the transform with its settings, as plain values.
        """
        transform = self.ending.transform
        settings = transform if transform is None or isinstance(transform, str) else settings_of(transform)
        name = transform if transform is None or isinstance(transform, str) else transform_name(transform)
        return {
            "tests": {devset.name: devset.fingerprint for devset in self.tests},
            "transform": name,
            "transform_settings": settings,
            "fitted_on": None if transform is None else self.ending.source,
        }


@dataclass(frozen=True, slots=True)
class Scores:
    """What a model scores on one set of pairs.

    Parameters
    ----------
    before, after : DevScore
        Of the base, and of the trained model.
    with_transform : DevScore or None
        With what was fitted at the end.
    """

    before: DevScore
    after: DevScore
    with_transform: DevScore | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TrainingResult:
    """What a training gave.

    Parameters
    ----------
    model : SentenceEncoder
        The model as it was saved.
    folder : Path
        Where.
    scores : mapping of str to Scores
        By name of the set.
    n_steps : int
        Steps taken, those before a stop counted in.
    kept_step : int
        Step whose weights were kept.
    elapsed_s : float
        Seconds spent in steps.
    """

    model: SentenceEncoder
    folder: Path
    scores: Mapping[str, Scores]
    n_steps: int
    kept_step: int
    elapsed_s: float
