"""How many axes to keep."""

import numpy as np
from numpy.typing import NDArray


def width_of_share(variances: NDArray[np.float64], share: float) -> int:
    """Fewest axes that hold a share of the total variance.

    Parameters
    ----------
    variances : ndarray of shape (n_axes,), float64
        Variance along each axis, descending, not all zero.
    share : float
        In (0, 1].

    Returns
    -------
    int
        In 1 ... n_axes.

    Examples
    --------
    >>> width_of_share(np.array([6.0, 3.0, 1.0]), 0.85)
    2
    """
    held = np.cumsum(variances) / variances.sum()
    return min(int(np.searchsorted(held, share * (1 - 1e-12))) + 1, len(variances))


def width_within_spread(variances: NDArray[np.float64], loss: float) -> int:
    r"""Fewest axes over which unrelated vectors are told apart nearly as sharply as over all axes.

    Parameters
    ----------
    variances : ndarray of shape (n_axes,), float64
        Variance along each axis of the transformed vectors, in the order the axes are kept, not all zero.
    loss : float
        Accepted loss, in [0, 1): over all axes, the cosines of unrelated vectors spread by 1 minus this share of their
        spread over the axes kept.

    Returns
    -------
    int
        In 1 ... n_axes.

    Notes
    -----
    The cosine of two independent centred vectors has about the standard deviation :math:`1 / \sqrt{D_k}` with
    :math:`D_k = (\sum_{i \le k} v_i)^2 / \sum_{i \le k} v_i^2` the participation ratio, the number of axes that the
    variance is spread over: the smaller it is, the more often texts look alike by chance. The width is the smallest k
    with :math:`1 - \sqrt{D_k / D} \le \mathrm{loss}`. It is an expectation: axes are uncorrelated, not independent.

    Examples
    --------
    >>> width_within_spread(np.ones(100), 0.05)
    91
    """
    ratios = np.cumsum(variances) ** 2 / np.cumsum(variances**2)
    within = np.sqrt(ratios / ratios[-1]) >= 1 - loss
    return int(np.argmax(within)) + 1
