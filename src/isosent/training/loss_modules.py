"""Losses around the losses of sentence-transformers: several widths and a regularizer, on one pass of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from isosent import _extras
from isosent.training.regularizers import regularization

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor
    from torch.nn import Linear, Module

Regularizer = tuple[str | None, float]


def draw_head(head: Linear, model: SentenceTransformer) -> None:
    """Draw the weights of a head as torch draws those of a linear layer, but from the seed alone.

    Parameters
    ----------
    head : torch.nn.Linear
        Filled in place, in the number type of the model's weights, at least float32.
    model : SentenceTransformer
        The model in front of it.
    """
    torch = _extras.require("torch")
    generator = torch.Generator().manual_seed(torch.initial_seed())
    bound = head.in_features**-0.5
    dtype = torch.promote_types(next(model.parameters()).dtype, torch.float32)
    for weights in head.parameters():
        drawn = torch.empty(weights.shape).uniform_(-bound, bound, generator=generator)
        weights.data = drawn.to(weights.device, dtype)


def average_gradients(head: Any) -> None:
    """Let all processes take the same steps with a head.

    Parameters
    ----------
    head : torch.nn.Linear
        Its gradients become their mean over the processes, as those of the model do.

    Notes
    -----
    The trainer wraps the model for several processes, not the loss. Without this every process trains a head of its own
    on its share of the data, and the model on the mean of what different heads ask for.
    """
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
    """Sum losses over leading dimensions, and add a regularizer.

    Parameters
    ----------
    model : SentenceTransformer
        What is trained.
    losses : mapping of int to torch.nn.Module
        Loss of sentence-transformers for each width, the full width first.
    regularizer : tuple of str or None, and float
        Its name and its weight.

    Returns
    -------
    torch.nn.Module
        Called as any loss of sentence-transformers.
    """
    return _joint_loss_class()(model, losses, regularizer)


def cached_ranking(
    model: SentenceTransformer, widths: Sequence[int], regularizer: Regularizer, *, scale: float, mini_batch_size: int
) -> Any:
    """Rank in a batch of any size, with the memory of a mini-batch.

    Parameters
    ----------
    model : SentenceTransformer
        What is trained.
    widths : sequence of int
        Leading dimensions to sum the loss over.
    regularizer : tuple of str or None, and float
        Its name and its weight; of the whole batch.
    scale : float
        What cosines are multiplied by.
    mini_batch_size : int
        Texts that go through the network at once.

    Returns
    -------
    torch.nn.Module
        Called as any loss of sentence-transformers.
    """
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
