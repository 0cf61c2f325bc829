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


def width_within_loss(variances: NDArray[np.float64], loss: float) -> int:
    r"""Fewest axes whose inner products still tell what those of all axes tell.

    Parameters
    ----------
    variances : ndarray of shape (n_axes,), float64
        Variance along each axis of the transformed vectors, in the order the axes are kept, not all zero.
    loss : float
        Largest accepted loss, 1 minus the correlation, in [0, 1).

    Returns
    -------
    int
        In 1 ... n_axes.

    Notes
    -----
    The inner product of two independent centred rows has the variance :math:`\sum_i v_i^2`, and its covariance with the
    inner product over the first k axes is :math:`\sum_{i \le k} v_i^2`; so the two correlate by
    :math:`\sqrt{\sum_{i \le k} v_i^2 / \sum_i v_i^2}`, whatever the distribution of uncorrelated axes with independent
    rows. The width is the smallest k where that is at least :math:`1 - \mathrm{loss}`.

    Examples
    --------
    >>> width_within_loss(np.array([10.0, 5.0, 1.0, 1.0]), 0.01)
    2
    """
    return width_of_share(variances**2, (1 - loss) ** 2)
