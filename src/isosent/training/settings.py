"""How a model is trained: everything about a run but its data and its base."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from isosent import _check
from isosent.errors import InputError
from isosent.training.bases import SCRATCH, STATIC, TRANSFORMER
from isosent.training.batching import BATCHINGS, check_token_budget
from isosent.training.objectives import ObjectiveSettings

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
