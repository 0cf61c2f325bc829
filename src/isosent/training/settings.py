"""Settings of a training run, and one NAME=VALUE of them as the command line takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final

from isosent import _check
from isosent.errors import InputError, wrong_value
from isosent.storage import TRAINED

OBJECTIVES: Final = ("classification", "regression", "triplet", "ranking")
CONCATENATIONS: Final = ("u,v", "|u-v|", "u*v", "|u-v|,u*v", "u,v,u*v", "u,v,|u-v|", "u,v,|u-v|,u*v")
REGULARIZERS: Final = ("whitening", "isotropy")
BATCHINGS: Final = ("random", "length")
KEEPS: Final = ("best", "last")

# By kind of base. The paper's 2e-5 hardly moves random weights or a table of token vectors.
LEARNING_RATES: Final = {"transformer": 2e-5, "scratch": 5e-4, "static": 1e-2}


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    r"""Settings of a run; the defaults are those of Reimers & Gurevych 2019, sections 3 and 3.1.

    Parameters
    ----------
    objective : {"classification", "regression", "triplet", "ranking"}, default "classification"
        What is minimized, see the Notes.
    concatenation : str, default "u,v,\|u-v\|"
        What the classifier sees of the two embeddings; one of `CONCATENATIONS`.
    margin : float, default 1.0
        For triplet: how much nearer the positive must be than the negative, > 0, in the unit of the embeddings.
    scale : float, default 20.0
        For ranking: the cosines are multiplied by this before the softmax, > 0.
    mini_batch : int, optional
        For ranking: texts that pass the network at once, so that memory does not grow with the batch. Loss and
        gradient are those of the whole batch; every text is encoded twice.
    matryoshka : tuple of int, default ()
        Numbers of leading dimensions that are trained as well as the full width.
    regularizer : {"whitening", "isotropy"}, optional
        Penalty that is added to the objective, see the Notes.
    regularizer_weight : float, default 0.0
        Factor of the penalty; > 0 with a regularizer.
    pooling : str, optional
        Pooling that replaces that of the base.
    max_length : int, optional
        Tokens that texts are cut at, in place of the base's own limit.
    batch_size : int, default 16
        Examples per batch on each device.
    n_epochs : float, default 1.0
        Passes over the data, > 0.
    learning_rate : float, optional
        Highest learning rate of AdamW, > 0. The default is 2e-5 for a transformer, 5e-4 from scratch and 1e-2 for a
        table of token vectors.
    warmup : float, default 0.1
        Share of the steps in which the learning rate rises from 0, in [0, 1); then it falls linearly to 0.
    weight_decay : float, default 0.01
        Weight decay of AdamW, >= 0. Not applied to a table of token vectors, where it would shrink rare words.
    max_gradient_norm : float, default 1.0
        Longer gradients are scaled down to this norm, > 0.
    accumulation : int, default 1
        Batches whose gradients are summed for one step.
    batching : {"random", "length"}, default "random"
        ``length`` puts texts of similar length into a batch, which saves padding.
    precision : {"float32", "bfloat16"}, default "float32"
        Number type of the products; weights stay float32.
    recompute : bool, default False
        Recompute activations in the backward pass instead of storing them (gradient checkpointing).
    n_evaluations : int, default 5
        How often the development set is scored after the start: at most so often, evenly spread, last at the end.
    checkpoint_every : int, default 200
        Steps between checkpoints.
    keep : {"best", "last"}, default "best"
        Which weights are saved: those of the highest Spearman on the development set, or the last ones.
    seed : int, default 0
        Seed of first weights, order of the data, and dropout; below 2**32.

    Raises
    ------
    InputError
        If a value is out of range, or two do not go together.

    Notes
    -----
    With embeddings u and v of the two texts, or a, p and n of a triplet; each objective is the mean over the batch:

    classification
        cross entropy of :math:`\mathrm{softmax}(W (u, v, |u - v|) + b)` and the label; the paper has no b.
    regression
        :math:`(\cos(u, v) - y)^2` with the gold score y in [0, 1].
    triplet
        :math:`\max(\lVert a - p \rVert - \lVert a - n \rVert + \mathrm{margin}, 0)`.
    ranking
        cross entropy of :math:`\mathrm{softmax}(\mathrm{scale} \cdot \cos(a, \cdot))` over all positives and
        negatives of the batch, and the example's own positive (Henderson et al. 2017). With several devices, over the
        batch of each.

    With `matryoshka`, the objective is summed over the first m components of all embeddings, for every m and the full
    width, each with its own classifier (Kusupati et al. 2022, equation 1). Embeddings are not rescaled before, so
    that the triplet objective stays that of the paper.

    The regularizer ``whitening`` is the sphericity of the batch's covariance (Ledoit & Wolf 2002), ``isotropy`` the
    uniformity of its directions (Wang & Isola 2020).

    References
    ----------
    Reimers & Gurevych 2019, *Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks*, EMNLP.
    Henderson et al. 2017, *Efficient Natural Language Response Suggestion for Smart Reply*.
    Gao et al. 2021, *Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup* (`mini_batch`).
    Kusupati et al. 2022, *Matryoshka Representation Learning*, NeurIPS.

    Examples
    --------
    >>> TrainingSettings("ranking", batch_size=64).learning_rate_for("transformer")
    2e-05
    """

    objective: str = "classification"
    concatenation: str = "u,v,|u-v|"
    margin: float = 1.0
    scale: float = 20.0
    mini_batch: int | None = None
    matryoshka: tuple[int, ...] = ()
    regularizer: str | None = None
    regularizer_weight: float = 0.0
    pooling: str | None = None
    max_length: int | None = None
    batch_size: int = 16
    n_epochs: float = 1.0
    learning_rate: float | None = None
    warmup: float = 0.1
    weight_decay: float = 0.01
    max_gradient_norm: float = 1.0
    accumulation: int = 1
    batching: str = "random"
    precision: str = TRAINED[0]
    recompute: bool = False
    n_evaluations: int = 5
    checkpoint_every: int = 200
    keep: str = "best"
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_value(field.name, getattr(self, field.name))
        if self.mini_batch is not None and self.objective != "ranking":
            raise InputError(
                f"train: mini_batch works with the objective ranking only, not {self.objective}. Leave it out."
            )
        if self.regularizer is not None:
            _check.above_zero("train", "regularizer_weight", self.regularizer_weight)
        elif self.regularizer_weight != 0:
            raise InputError(
                f"train: regularizer_weight is {self.regularizer_weight}, but there is no regularizer. Name one of "
                f"{', '.join(REGULARIZERS)}."
            )

    def learning_rate_for(self, kind: str) -> float:
        """Choose the learning rate for a base.

        Parameters
        ----------
        kind : {"transformer", "scratch", "static"}
            Kind of the base; "static" is a table of token vectors.

        Returns
        -------
        float
            `learning_rate`, or the default of this kind.
        """
        return LEARNING_RATES[kind] if self.learning_rate is None else self.learning_rate


def _check_value(name: str, value: Any) -> None:
    """Refuse a value that is out of range whatever the other settings are."""
    match name:
        case "batch_size" | "accumulation" | "n_evaluations" | "checkpoint_every":
            _check.whole_number("train", name, value, 1)
        case "mini_batch" | "max_length":
            if value is not None:
                _check.whole_number("train", name, value, 1)
        case "matryoshka":
            for dim in value:
                _check.whole_number("train", name, dim, 1)
        case "seed":
            _check.whole_number("train", name, value, 0)
            if value >= 1 << 32:
                raise wrong_value("train", "seed", "be below 2^32", value)
        case "margin" | "scale" | "n_epochs" | "max_gradient_norm":
            _check.above_zero("train", name, value)
        case "learning_rate":
            if value is not None:
                _check.above_zero("train", name, value)
        case "weight_decay" | "regularizer_weight":
            _check.not_negative("train", name, value)
        case "warmup":
            _check.fraction("train", name, value)
            if value == 1:
                raise wrong_value("train", "warmup", "be below 1, or the learning rate never falls", "1")
        case "recompute":
            if not isinstance(value, bool):
                raise wrong_value("train", "recompute", "be true or false", repr(value))
        case "objective":
            _check.one_of("train", name, value, OBJECTIVES)
        case "concatenation":
            if value not in CONCATENATIONS:  # their names hold commas, so that a list of them needs quotes
                listed = ", ".join(f'"{one}"' for one in CONCATENATIONS)
                raise wrong_value("train", "concatenation", f"be one of {listed}", f'"{value}"')
        case "regularizer":
            if value is not None:
                _check.one_of("train", name, value, REGULARIZERS)
        case "batching":
            _check.one_of("train", name, value, BATCHINGS)
        case "precision":
            _check.one_of("train", name, value, TRAINED)
        case "keep":
            _check.one_of("train", name, value, KEEPS)


def parse_setting(text: str) -> tuple[str, Any]:
    """Read one setting of `TrainingSettings` that was typed as text.

    Parameters
    ----------
    text : str
        ``NAME=VALUE``. Hyphens in the name count as underscores. Numbers are written as in Python, a flag as ``true``
        or ``false``, several numbers with commas between them, and an optional value can be ``none``.

    Returns
    -------
    name : str
        Name of the field.
    value : object
        Its value, of the type of the field and within its range. Whether it goes with the other settings is checked
        when `TrainingSettings` is made.

    Raises
    ------
    InputError
        If there is no such setting (the closest name is suggested), or the value does not fit it.

    Examples
    --------
    >>> parse_setting("batch-size=32"), parse_setting("matryoshka=256,64")
    (('batch_size', 32), ('matryoshka', (256, 64)))
    """
    written_name, equals, written = (part.strip() for part in text.partition("="))
    name = written_name.replace("-", "_")
    types = {field.name: str(field.type) for field in fields(TrainingSettings)}
    if name not in types:
        close = get_close_matches(name, types, n=1, cutoff=0.5)
        advice = f"Did you mean {close[0]}?" if close else f"Settings: {', '.join(types)}."
        raise InputError(f"train: there is no setting {written_name!r}. {advice}")
    if not equals:
        raise InputError(f"train: {text!r} is no setting. Write NAME=VALUE.")
    kind = types[name].removesuffix(" | None")
    if kind != types[name] and written.lower() == "none":
        return name, None
    parse, expected = _PARSERS[kind]
    try:
        value = parse(written)
    except (ValueError, KeyError):
        raise wrong_value("train", name, f"be {expected}", repr(written)) from None
    _check_value(name, value)
    return name, value


def _parse_flag(written: str) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[written.lower()]


def _parse_dims(written: str) -> tuple[int, ...]:
    return tuple(int(part) for part in written.split(",") if part.strip())


_PARSERS: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "str": (str, "text"),
    "bool": (_parse_flag, "true or false"),
    "tuple[int, ...]": (_parse_dims, "whole numbers with commas between them"),
}
