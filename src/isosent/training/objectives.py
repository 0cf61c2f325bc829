"""The objectives of Sentence-BERT as losses of sentence-transformers, with Matryoshka widths and regularizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from isosent import _extras
from isosent.errors import InputError, wrong_value
from isosent.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor
    from torch.nn import Linear, Module


def make_loss(model: SentenceTransformer, settings: TrainingSettings, *, n_classes: int | None = None) -> Any:
    """The loss that the trainer of sentence-transformers minimizes.

    The classifiers of classification are part of the loss, not of the model.
    """
    dim = int(model.get_embedding_dimension() or 0)
    if settings.matryoshka and max(settings.matryoshka) > dim:
        raise wrong_value(
            "train", "matryoshka", f"be from 1 to {dim}, the dimensions of the model", max(settings.matryoshka)
        )
    if settings.objective == "classification" and (n_classes is None or n_classes < 2):
        raise InputError(
            f"train: classification needs data with at least two labels, not {n_classes}. Add data, or use another "
            "objective."
        )
    library = _extras.require("sentence_transformers").sentence_transformer
    widths = sorted({dim, *settings.matryoshka}, reverse=True)
    if settings.mini_batch is not None:
        if isinstance(model[0], library.modules.StaticEmbedding):
            raise InputError(
                "train: mini_batch does not work with a table of token vectors. Leave it out: without a network, a "
                "large batch needs little memory."
            )
        return _cached_ranking_class()(model, widths, settings)
    losses = {width: _loss_of_width(model, settings, width, n_classes) for width in widths}
    if settings.regularizer is None and len(losses) == 1:
        return losses[dim]
    return _joint_loss_class()(model, losses, settings)


def _loss_of_width(model: SentenceTransformer, settings: TrainingSettings, width: int, n_classes: int | None) -> Any:
    losses = _extras.require("sentence_transformers").sentence_transformer.losses
    match settings.objective:
        case "classification":
            parts = settings.concatenation.split(",")
            loss = losses.SoftmaxLoss(
                model,
                width,
                n_classes,
                concatenation_sent_rep="u" in parts,
                concatenation_sent_difference="|u-v|" in parts,
                concatenation_sent_multiplication="u*v" in parts,
            )
            _draw_classifier(loss.classifier, model)
            _average_gradients(loss.classifier)
            return loss
        case "regression":
            return losses.CosineSimilarityLoss(model)
        case "triplet":
            return losses.TripletLoss(model, triplet_margin=settings.margin)
        case _:
            return losses.MultipleNegativesRankingLoss(model, scale=settings.scale)


def _draw_classifier(classifier: Linear, model: SentenceTransformer) -> None:
    """Draw the weights as torch does for a linear layer, but from the seed alone."""
    # They depend neither on the device nor on what was drawn before, and are the same in all processes. They have the
    # number type of the model's weights, at least float32.
    torch = _extras.require("torch")
    generator = torch.Generator().manual_seed(torch.initial_seed())
    bound = classifier.in_features**-0.5
    dtype = torch.promote_types(next(model.parameters()).dtype, torch.float32)
    for weights in classifier.parameters():
        drawn = torch.empty(weights.shape).uniform_(-bound, bound, generator=generator)
        weights.data = drawn.to(weights.device, dtype)


def _average_gradients(classifier: Module) -> None:
    """Let all processes take the same steps with a classifier."""
    # For several processes, the trainer wraps the model but not the loss. Without this, every process would train its
    # own classifier on its share of the data, and the model would follow the mean of their gradients.
    distributed = _extras.require("torch").distributed

    def mean_over_processes(gradient: Tensor) -> Tensor:
        if not (distributed.is_available() and distributed.is_initialized()):
            return gradient
        mean: Tensor = gradient / distributed.get_world_size()
        distributed.all_reduce(mean)
        return mean

    for weights in classifier.parameters():
        weights.register_hook(mean_over_processes)  # type: ignore[no-untyped-call]


@cache
def _joint_loss_class() -> Any:
    torch = _extras.require("torch")
    embed_columns = _extras.require("sentence_transformers").base.losses.merged_forward.embed_columns

    class JointLoss(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Sum of the losses over leading dimensions, plus the regularizer; the model runs once."""

        def __init__(self, model: Any, losses: Mapping[int, Any], settings: TrainingSettings) -> None:
            super().__init__()
            for loss in losses.values():
                loss.model = torch.nn.Identity()  # it is given embeddings in place of features
            self.model = model
            self.widths = tuple(losses)
            self.losses = torch.nn.ModuleList(losses.values())
            self.regularizer, self.regularizer_weight = settings.regularizer, settings.regularizer_weight

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
        """Ranking in a batch of any size, with the memory of a mini-batch."""

        def __init__(self, model: Any, widths: Sequence[int], settings: TrainingSettings) -> None:
            super().__init__(model, scale=settings.scale, mini_batch_size=settings.mini_batch)
            self.widths = tuple(widths)
            self.regularizer, self.regularizer_weight = settings.regularizer, settings.regularizer_weight

        # Where the embeddings of the whole batch are available: widths and regularizer can be added here.
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


def regularization(regularizer: str, columns: Sequence[Tensor]) -> Tensor:
    """Mean of a regularizer over the columns of a batch, each of shape (n_examples, dim)."""
    first, *others = [REGULARIZATIONS[regularizer](column) for column in columns]
    return sum(others, first) / len(columns)


_SMALLEST = 1e-18  # its square is still a normal float32


def sphericity(embeddings: Tensor) -> Tensor:
    """How far the covariance of a batch is from a multiple of the identity, in [0, 1]."""
    # U = tr((d / tr C) C - I)^2 / d, John's statistic in the form of Ledoit & Wolf 2002, section 2, divided by its
    # largest value d - 1. It sees neither the mean nor the scale of the vectors, which objectives of cosines leave
    # free. Computed from the inner products of the centred vectors: their squares add up to those of the covariance.
    rows = _at_least_float32(embeddings)
    centered = rows - rows.mean(dim=0)
    products = centered @ centered.T
    total, dim = products.diagonal().sum(), rows.shape[1]
    gap: Tensor = (dim * products.square().sum() - total.square()) / total.clamp_min(_SMALLEST).square()
    return gap / max(dim - 1, 1)


def uniformity(embeddings: Tensor) -> Tensor:
    """How unevenly the directions of a batch cover the sphere, in [-8, 0]."""
    # log mean exp(-2 |u - v|^2) over the pairs of different rows at length 1 (Wang & Isola 2020, section 4.1.2), with
    # |u - v|^2 = 2 - 2 cos(u, v).
    rows = _at_least_float32(embeddings)
    n_texts = len(rows)
    if n_texts < 2:
        return rows.sum() * 0
    unit = rows / rows.norm(dim=1, keepdim=True).clamp_min(_SMALLEST)
    exponents = 4 * (unit @ unit.T) - 4
    other = ~exponents.new_ones(n_texts, n_texts).diag().diag().bool()
    log_sum: Tensor = exponents[other].logsumexp(dim=0)
    return log_sum - math.log(n_texts * (n_texts - 1))


REGULARIZATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {"whitening": sphericity, "isotropy": uniformity}


def _at_least_float32(embeddings: Tensor) -> Tensor:
    return embeddings.float() if embeddings.element_size() < 4 else embeddings
