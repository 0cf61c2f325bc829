"""Objectives of Sentence-BERT as losses of sentence-transformers, and what can be put around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from isosent import _check, _extras
from isosent.errors import InputError
from isosent.training.concatenation import concatenation_parts
from isosent.training.examples import COLUMNS
from isosent.training.loss_modules import average_gradients, cached_ranking, draw_head, joint_loss
from isosent.training.regularizers import REGULARIZERS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

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
    """Make the loss that a trainer of sentence-transformers minimizes.

    Parameters
    ----------
    model : SentenceTransformer
        What is trained.
    settings : ObjectiveSettings
        The objective.
    n_classes : int, optional
        Classes of the data, for classification.

    Returns
    -------
    torch.nn.Module
        Called with the tokenized columns in the order of the data, and the labels; None for triplet and ranking. The
        plain objectives are the library's own losses.

    Raises
    ------
    InputError
        If the settings do not go with the model or the data.
    MissingExtraError
        If sentence-transformers is not installed.

    Notes
    -----
    The heads of classification depend on torch's seed alone: neither on the device nor on what was drawn before. They
    have the number type of the model's weights, at least float32. They are part of the loss, not of the model, and stay
    the same in several processes.
    """
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
