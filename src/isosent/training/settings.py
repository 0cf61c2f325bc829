"""What is to be trained, on what, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from isosent import _check
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.training.base_models import SCRATCH, STATIC, TRANSFORMER
from isosent.training.batching import BATCHINGS, check_token_budget
from isosent.training.development import DevScore, DevSet
from isosent.training.examples import Examples
from isosent.training.objectives import ObjectiveSettings
from isosent.transforms.base import Transform, settings_of, transform_name

_SEEDS: Final = 1 << 32
PRECISIONS: Final = ("float32", "bfloat16")
LEARNING_RATES: Final = {TRANSFORMER: 2e-5, SCRATCH: 5e-4, STATIC: 1e-2}


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of a run; the defaults are those of Reimers & Gurevych 2019, section 3.1.

    Parameters
    ----------
    objective : ObjectiveSettings
        The objective and what belongs to it.
    batch_size : int, default 16
        Examples a batch, on each device.
    n_epochs : float, default 1
        Passes over the data, > 0.
    learning_rate : float, optional
        Of AdamW, at its highest, > 0. None is the one of `LEARNING_RATES` for the kind of base: the paper's 2e-5 for a
        transformer, more for a network from scratch and for a table of token vectors, which would hardly move.
    warmup : float, default 0.1
        Share of the steps over which the learning rate rises from 0, in [0, 1); it falls linearly to 0 after that.
    weight_decay : float, default 0.01
        Of AdamW, >= 0; a table of token vectors has none, which would wear off the words that are never met.
    max_gradient_norm : float, default 1.0
        Norm that longer gradients are scaled down to, > 0.
    accumulation : int, default 1
        Batches whose gradients make one step.
    batching : {"random", "length", "tokens"}, default "random"
        How batches are made, see `BATCHINGS`.
    token_budget : int, optional
        Tokens a batch, padding counted, for "tokens".
    precision : {"float32", "bfloat16"}, default "float32"
        Number type of the products; weights stay float32.
    recompute : bool, default False
        Whether activations are computed again in the backward pass in place of being kept (gradient checkpointing).
    n_evaluations : int, default 5
        Scores of the development set after the one at the start, at most, evenly spread, the last at the end.
    checkpoint_every : int, default 200
        Steps between checkpoints.
    keep : {"best", "last"}, default "best"
        Which weights are the result: those of the highest Spearman on the development set, or the last ones.
    seed : int, default 0
        Of first weights, order of the data, and dropout.

    Raises
    ------
    InputError
        If a value is out of range.
    """

    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    batch_size: int = 16
    n_epochs: float = 1.0
    learning_rate: float | None = None
    warmup: float = 0.1
    weight_decay: float = 0.01
    max_gradient_norm: float = 1.0
    accumulation: int = 1
    batching: str = "random"
    token_budget: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    recompute: bool = False
    n_evaluations: int = 5
    checkpoint_every: int = 200
    keep: Literal["best", "last"] = "best"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch_size", "accumulation", "n_evaluations", "checkpoint_every"):
            _check.whole_number("train", name, getattr(self, name), 1)
        _check.whole_number("train", "seed", self.seed, 0)
        if self.seed >= _SEEDS:
            raise InputError(f"train: seed must be below {_SEEDS}; got {self.seed}.")
        for name in ("n_epochs", "learning_rate", "max_gradient_norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"train: {name} must be a number above 0; got {value}.")
        _check.fraction("train", "warmup", self.warmup)
        if self.warmup == 1:
            raise InputError("train: warmup must be below 1, or the learning rate never falls; got 1.")
        _check.not_negative("train", "weight_decay", self.weight_decay)
        _check.one_of("train", "batching", self.batching, BATCHINGS)
        _check.one_of("train", "precision", self.precision, PRECISIONS)
        _check.one_of("train", "keep", self.keep, ("best", "last"))
        check_token_budget(self.batching, self.token_budget)

    def learning_rate_for(self, kind: str) -> float:
        """The learning rate in force.

        Parameters
        ----------
        kind : str
            A key of `LEARNING_RATES`.

        Returns
        -------
        float
            That of the settings, or the default.
        """
        return LEARNING_RATES[kind] if self.learning_rate is None else self.learning_rate

    def facts(self) -> dict[str, Any]:
        """Return the settings as plain values, for the record.

        Returns
        -------
        dict
            Name and value; those of the objective among them.
        """
        plain = asdict(self)
        objective = plain.pop("objective")
        return {**objective, **plain}


@dataclass(frozen=True, slots=True)
class PostFit:
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
    ending: PostFit = PostFit()

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
    """What a model scores on one set of pairs."""

    before: DevScore  # of the base, and of the trained model
    after: DevScore  # of the base, and of the trained model
    with_transform: DevScore | None = None  # with what was fitted at the end


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
