r"""Terms beside the objective that spread the embeddings of a batch more evenly.

Each takes the embeddings of one column of the batch, so that the two texts of a pair are never pushed apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import Tensor

_SMALLEST = 1e-18  # its square is still a normal float32


def sphericity(embeddings: Tensor) -> Tensor:
    r"""How far the covariance of a batch is from a multiple of the identity.

    Parameters
    ----------
    embeddings : Tensor of shape (n_texts, dim), float
        Sentence embeddings.

    Returns
    -------
    Tensor of shape (), float32 or float64
        In [0, 1]: 0 where the vectors are white up to one scale, 1 where they lie on a line. Where n texts are no
        more than d dimensions it cannot fall below (d - n + 1) / ((n - 1) (d - 1)), for lack of rank. 0, without a
        gradient, where all are equal.

    Notes
    -----
    :math:`U = \frac{1}{d} \operatorname{tr} (\frac{d}{\operatorname{tr} C} C - I)^2`, John's statistic of sphericity in
    the form of Ledoit & Wolf 2002, section 2, divided by its largest value :math:`d - 1`. It neither sees the mean nor
    the scale of the vectors, which objectives of cosines leave free. Computed from the products of the centred
    vectors, whose squares add up to those of the covariance, in float32 at least.

    References
    ----------
    John 1971, *Some optimal multivariate tests*, Biometrika 58. Ledoit & Wolf 2002, *Some hypothesis tests for the
    covariance matrix when the dimension is large compared to the sample size*, Annals of Statistics 30.

    Examples
    --------
    >>> import torch
    >>> float(sphericity(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])))
    0.0
    >>> round(float(sphericity(torch.tensor([[1.0, 1.0], [2.0, 2.0], [5.0, 5.0]]))), 6)
    1.0
    """
    rows = _in_float32(embeddings)
    centred = rows - rows.mean(dim=0)
    products = centred @ centred.T
    total, dim = products.diagonal().sum(), rows.shape[1]
    gap: Tensor = (dim * products.square().sum() - total.square()) / total.clamp_min(_SMALLEST).square()
    return gap / max(dim - 1, 1)


def uniformity(embeddings: Tensor) -> Tensor:
    r"""How unevenly the directions of a batch cover the sphere.

    Parameters
    ----------
    embeddings : Tensor of shape (n_texts, dim), float
        Sentence embeddings.

    Returns
    -------
    Tensor of shape (), float32 or float64
        In [-8, 0]: 0 where all directions are equal, lower the more evenly they are spread. 0 for a single text.

    Notes
    -----
    :math:`\log \mathrm{mean} \exp(-2 \lVert u - v \rVert^2)` over the pairs of different rows at length 1, Wang & Isola
    2020, section 4.1.2, with :math:`\lVert u - v \rVert^2 = 2 - 2 \cos(u, v)`. In float32 at least.

    References
    ----------
    Wang & Isola 2020, *Understanding Contrastive Representation Learning through Alignment and Uniformity on the
    Hypersphere*, ICML.

    Examples
    --------
    >>> import torch
    >>> float(uniformity(torch.tensor([[1.0, 0.0], [0.0, 2.0]])))
    -4.0
    """
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
    """Mean of a regularizer over the columns of a batch.

    Parameters
    ----------
    regularizer : str
        A key of `REGULARIZERS`.
    columns : sequence of Tensor of shape (n_texts, dim), float
        Sentence embeddings of each column, at least one.

    Returns
    -------
    Tensor of shape ()
        What is added to the objective, before its weight.
    """
    first, *others = [REGULARIZERS[regularizer](column) for column in columns]
    return sum(others, first) / len(columns)


def _in_float32(embeddings: Tensor) -> Tensor:
    return embeddings.float() if embeddings.element_size() < 4 else embeddings
