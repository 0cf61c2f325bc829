"""Objectives of Sentence-BERT as losses of sentence-transformers, and what can be put around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from isosent import _check, _extras
from isosent.errors import InputError
from isosent.training.examples import COLUMNS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor
    from torch.nn import Linear, Module


_SMALLEST = 1e-18  # its square is still a normal float32


def sphericity(embeddings: Tensor) -> Tensor:
    """How far the covariance of a batch is from a multiple of the identity."""
    # :math:`U = \frac{1}{d} \operatorname{tr} (\frac{d}{\operatorname{tr} C} C - I)^2`, John's statistic of
    # sphericity in the form of Ledoit & Wolf 2002, section 2, divided by its largest value :math:`d - 1`. It neither
    # sees the mean nor the scale of the vectors, which objectives of cosines leave free. Computed from the products
    # of the centred vectors, whose squares add up to those of the covariance, in float32 at least.
    rows = _in_float32(embeddings)
    centred = rows - rows.mean(dim=0)
    products = centred @ centred.T
    total, dim = products.diagonal().sum(), rows.shape[1]
    gap: Tensor = (dim * products.square().sum() - total.square()) / total.clamp_min(_SMALLEST).square()
    return gap / max(dim - 1, 1)


def uniformity(embeddings: Tensor) -> Tensor:
    """How unevenly the directions of a batch cover the sphere."""
    # :math:`\log \mathrm{mean} \exp(-2 \lVert u - v \rVert^2)` over the pairs of different rows at length 1, Wang &
    # Isola 2020, section 4.1.2, with :math:`\lVert u - v \rVert^2 = 2 - 2 \cos(u, v)`. In float32 at least.
    rows = _in_float32(embeddings)
    n_texts = len(rows)
    if n_texts < 2:
        return rows.sum() * 0
    unit = rows / rows.norm(dim=1, keepdim=True).clamp_min(_SMALLEST)
    exponents = 4 * (unit @ unit.T) - 4
    other = ~exponents.new_ones(n_texts, n_texts).diag().diag().bool()
    log_sum: Tensor = exponents[other].logsumexp(dim=0)
    return log_sum - math.log(n_texts * (n_texts - 1))


REGULARIZERS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {"whitening": sphericity, "isotropy": uniformity}


def regularization(regularizer: str, columns: Sequence[Tensor]) -> Tensor:
    """Mean of a regularizer over the columns of a batch."""
    first, *others = [REGULARIZERS[regularizer](column) for column in columns]
    return sum(others, first) / len(columns)


def _in_float32(embeddings: Tensor) -> Tensor:
    return embeddings.float() if embeddings.element_size() < 4 else embeddings


CONCATENATIONS: Final = (
    "u,v",
    "|u-v|",
    "u*v",
    "|u-v|,u*v",
    "u,v,u*v",
    "u,v,|u-v|",
    "u,v,|u-v|,u*v",
)


def concatenation_parts(concatenation: str) -> dict[str, bool]:
    """Say which parts a concatenation has."""
    if concatenation not in CONCATENATIONS:
        known = ", ".join(f'"{name}"' for name in CONCATENATIONS)
        raise InputError(f'train: concatenation must be one of {known}; got "{concatenation}".')
    parts = concatenation.split(",")
    return {"pair": "u" in parts, "difference": "|u-v|" in parts, "product": "u*v" in parts}


Regularizer = tuple[str | None, float]


def draw_head(head: Linear, model: SentenceTransformer) -> None:
    """Draw the weights of a head as torch draws those of a linear layer, but from the seed alone."""
    torch = _extras.require("torch")
    generator = torch.Generator().manual_seed(torch.initial_seed())
    bound = head.in_features**-0.5
    dtype = torch.promote_types(next(model.parameters()).dtype, torch.float32)
    for weights in head.parameters():
        drawn = torch.empty(weights.shape).uniform_(-bound, bound, generator=generator)
        weights.data = drawn.to(weights.device, dtype)


def average_gradients(head: Any) -> None:
    """Let all processes take the same steps with a head."""
    # The trainer wraps the model for several processes, not the loss. Without this every process trains a head of its
    # own on its share of the data, and the model on the mean of what different heads ask for.
    distributed = _extras.require("torch").distributed

    def mean_over_processes(gradient: Tensor) -> Tensor:
        if not (distributed.is_available() and distributed.is_initialized()):
            return gradient
        mean: Tensor = gradient / distributed.get_world_size()
        distributed.all_reduce(mean)
        return mean

    for weights in head.parameters():
        weights.register_hook(mean_over_processes)


def joint_loss(model: SentenceTransformer, losses: Mapping[int, Module], regularizer: Regularizer) -> Any:
    """Sum losses over leading dimensions, and add a regularizer."""
    return _joint_loss_class()(model, losses, regularizer)


def cached_ranking(
    model: SentenceTransformer, widths: Sequence[int], regularizer: Regularizer, *, scale: float, mini_batch_size: int
) -> Any:
    """Rank in a batch of any size, with the memory of a mini-batch."""
    return _cached_ranking_class()(model, widths, regularizer, scale=scale, mini_batch_size=mini_batch_size)


@cache
def _joint_loss_class() -> Any:
    torch = _extras.require("torch")
    embed_columns = _extras.require("sentence_transformers").base.losses.merged_forward.embed_columns

    class JointLoss(torch.nn.Module):  # type: ignore[misc, name-defined]
        """The model runs once; the losses are given its embeddings as if they had a model that does nothing."""

        def __init__(self, model: Any, losses: Mapping[int, Any], regularizer: Regularizer) -> None:
            super().__init__()
            for loss in losses.values():
                loss.model = torch.nn.Identity()
            self.model = model
            self.widths = tuple(losses)
            self.losses = torch.nn.ModuleList(losses.values())
            self.regularizer, self.regularizer_weight = regularizer

        def forward(self, sentence_features: Sequence[dict[str, Any]], labels: Tensor | None) -> Tensor:
            columns = embed_columns(self.model, sentence_features)
            total: Tensor = sum(
                loss([{"sentence_embedding": column[:, :width]} for column in columns], labels)
                for width, loss in zip(self.widths, self.losses, strict=True)
            )
            if self.regularizer is not None:
                total = total + self.regularizer_weight * regularization(self.regularizer, columns)
            return total

    return JointLoss


@cache
def _cached_ranking_class() -> Any:
    torch = _extras.require("torch")
    losses = _extras.require("sentence_transformers").sentence_transformer.losses

    class CachedRankingLoss(losses.CachedMultipleNegativesRankingLoss):  # type: ignore[misc, name-defined]
        """Adds widths and a regularizer where the embeddings of the whole batch are at hand."""

        def __init__(self, model: Any, widths: Sequence[int], regularizer: Regularizer, **options: Any) -> None:
            super().__init__(model, **options)
            self.widths = tuple(widths)
            self.regularizer, self.regularizer_weight = regularizer

        def calculate_loss(
            self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
        ) -> Tensor:
            total: Tensor = sum(
                super(CachedRankingLoss, self).calculate_loss(
                    [[part[:, :width] for part in column] for column in reps], labels, with_backward=with_backward
                )
                for width in self.widths
            )
            if self.regularizer is None:
                return total
            columns = [torch.cat(column) for column in reps]
            penalty = self.regularizer_weight * regularization(self.regularizer, columns)
            if with_backward:
                torch.autograd.backward(penalty)
                penalty = penalty.detach()
            return total + penalty

    return CachedRankingLoss


OBJECTIVES: Final = tuple(COLUMNS)


@dataclass(frozen=True, slots=True)
class ObjectiveSettings:
    r"""An objective and what belongs to it; the defaults are those of Reimers & Gurevych 2019, section 3.

    Parameters
    ----------
    objective : {"classification", "regression", "triplet", "ranking"}, default "classification"
        See the Notes.
    concatenation : str, default "u,v,\|u-v\|"
        Of classification, one of `CONCATENATIONS`.
    margin : float, default 1.0
        Of triplet: how much nearer the positive has to be than the negative, > 0, in the unit of the embeddings.
    scale : float, default 20.0
        Of ranking: what cosines are multiplied by, > 0.
    mini_batch : int, optional
        Of ranking: texts that go through the network at once, so that memory does not grow with the batch. The loss
        and its gradient are those of the whole batch; every text is encoded twice.
    matryoshka : tuple of int, optional
        Numbers of leading dimensions for which the objective holds as well; the full width is always one of them.
    regularizer : {"whitening", "isotropy"}, optional
        What is added to the objective, see `REGULARIZERS`.
    regularizer_weight : float, default 0.0
        What it is multiplied by, > 0 with a regularizer.

    Raises
    ------
    InputError
        If a value is out of range, or does not go with the objective.

    Notes
    -----
    With embeddings u and v of the two texts, or a, p and n of a triplet; each is the mean over the batch:

    classification
        cross entropy of :math:`\mathrm{softmax}(W (u, v, |u - v|) + b)` and the label; the paper has no b.
    regression
        :math:`(\cos(u, v) - y)^2` with the gold score y in [0, 1].
    triplet
        :math:`\max(\lVert a - p \rVert - \lVert a - n \rVert + \mathrm{margin}, 0)`.
    ranking
        cross entropy of :math:`\mathrm{softmax}(\mathrm{scale} \cdot \cos(a, \cdot))` over all positives and
        negatives of the batch, and the own positive (Henderson et al. 2017). On several devices, of the batch of each.

    With `matryoshka`, the sum of the objective over the first m components of all embeddings, for every m, with a head
    of its own for each (Kusupati et al. 2022, equation 1). Lengths are not changed before: the triplet objective
    stays that of the paper.

    References
    ----------
    Reimers & Gurevych 2019, *Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks*, EMNLP.
    Henderson et al. 2017, *Efficient Natural Language Response Suggestion for Smart Reply*.
    Gao et al. 2021, *Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup* (`mini_batch`).
    Kusupati et al. 2022, *Matryoshka Representation Learning*, NeurIPS.
    """

    objective: str = "classification"
    concatenation: str = "u,v,|u-v|"
    margin: float = 1.0
    scale: float = 20.0
    mini_batch: int | None = None
    matryoshka: tuple[int, ...] = ()
    regularizer: str | None = None
    regularizer_weight: float = 0.0

    def __post_init__(self) -> None:
        _check.one_of("train", "objective", self.objective, OBJECTIVES)
        concatenation_parts(self.concatenation)
        _check.above_zero("train", "margin", self.margin)
        _check.above_zero("train", "scale", self.scale)
        if self.mini_batch is not None:
            _check.whole_number("train", "mini_batch", self.mini_batch, 1)
            if self.objective != "ranking":
                raise InputError(f"train: mini_batch must come with the objective ranking; got {self.objective}.")
        for dim in self.matryoshka:
            _check.whole_number("train", "matryoshka", dim, 1)
        if self.regularizer is not None:
            _check.one_of("train", "regularizer", self.regularizer, list(REGULARIZERS))
            _check.above_zero("train", "regularizer_weight", self.regularizer_weight)
        elif self.regularizer_weight != 0:
            raise InputError(
                f"train: regularizer_weight must come with a regularizer; got {self.regularizer_weight} without. "
                f"Name one of {', '.join(REGULARIZERS)}."
            )

    def check(self, dim: int, n_classes: int | None = None) -> None:
        """Check that the objective goes with a model and its data.

        Parameters
        ----------
        dim : int
            Dimensions of the model's embeddings.
        n_classes : int, optional
            Classes of the data, for classification.

        Raises
        ------
        InputError
            If a Matryoshka width is above `dim`, or there are not two classes at least.
        """
        if self.matryoshka and max(self.matryoshka) > dim:
            raise InputError(
                f"train: matryoshka must lie in 1 ... {dim}, the dimensions of the model; got {max(self.matryoshka)}."
            )
        if self.objective == "classification" and (n_classes is None or n_classes < 2):
            raise InputError(
                f"train: n_classes must be at least 2 for the objective classification; got {n_classes}. "
                "Give data with two labels at least, or take another objective."
            )

    def widths(self, dim: int) -> tuple[int, ...]:
        """Widths that the objective holds for.

        Parameters
        ----------
        dim : int
            Dimensions of the model's embeddings.

        Returns
        -------
        tuple of int
            Descending, `dim` first, none twice.

        Examples
        --------
        >>> ObjectiveSettings(matryoshka=(64, 128)).widths(256)
        (256, 128, 64)
        """
        return tuple(sorted({dim, *self.matryoshka}, reverse=True))


def make_loss(model: SentenceTransformer, settings: ObjectiveSettings, *, n_classes: int | None = None) -> Any:
    """Make the loss that a trainer of sentence-transformers minimizes."""
    # The heads of classification depend on torch's seed alone: neither on the device nor on what was drawn before.
    # They have the number type of the model's weights, at least float32. They are part of the loss, not of the model,
    # and stay the same in several processes.
    dim = int(model.get_embedding_dimension() or 0)
    settings.check(dim, n_classes)
    widths = settings.widths(dim)
    regularizer = (settings.regularizer, settings.regularizer_weight)
    if settings.mini_batch is not None:
        if _is_table(model):
            raise InputError(
                "train: mini_batch must be left out for a table of token vectors, whose texts have no tensor of their "
                f"own each; got {settings.mini_batch}. It needs little memory as it is: it has no network."
            )
        return cached_ranking(model, widths, regularizer, scale=settings.scale, mini_batch_size=settings.mini_batch)
    losses = [_loss_of_width(model, settings, width, n_classes) for width in widths]
    if settings.regularizer is None and len(losses) == 1:
        return losses[0]
    return joint_loss(model, dict(zip(widths, losses, strict=True)), regularizer)


def _loss_of_width(model: SentenceTransformer, settings: ObjectiveSettings, width: int, n_classes: int | None) -> Any:
    losses = _extras.require("sentence_transformers").sentence_transformer.losses
    match settings.objective:
        case "classification":
            parts = concatenation_parts(settings.concatenation)
            loss = losses.SoftmaxLoss(
                model,
                width,
                n_classes,
                concatenation_sent_rep=parts["pair"],
                concatenation_sent_difference=parts["difference"],
                concatenation_sent_multiplication=parts["product"],
            )
            draw_head(loss.classifier, model)
            average_gradients(loss.classifier)
            return loss
        case "regression":
            return losses.CosineSimilarityLoss(model)
        case "triplet":
            return losses.TripletLoss(model, triplet_margin=settings.margin)
        case _:
            return losses.MultipleNegativesRankingLoss(model, scale=settings.scale)


def _is_table(model: SentenceTransformer) -> bool:
    modules = _extras.require("sentence_transformers").sentence_transformer.modules
    return isinstance(model[0], modules.StaticEmbedding)
