"""Weights of words by how frequent they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError


def sif_weights(probabilities: NDArray[np.floating], a: float = 1e-3) -> NDArray[np.float64]:
    r"""Smooth inverse frequency weight of each word.

    Parameters
    ----------
    probabilities : ndarray of shape (vocab_size,), any float dtype
        Unigram probability of each word, in [0, 1]; 0 for a word of unknown frequency.
    a : float, default 1e-3
        Smoothing constant, > 0, in the unit of a probability.

    Returns
    -------
    ndarray of shape (vocab_size,), float64
        Weights in (0, 1], non-increasing in the probability; 1 for a word of unknown frequency.

    Raises
    ------
    InputError
        If `a` is not positive, or a probability lies outside [0, 1].

    Notes
    -----
    :math:`w_i = a / (a + p_i)`, Arora, Liang & Ma 2017, section 3. Computed in float64.

    Examples
    --------
    >>> import numpy as np
    >>> sif_weights(np.array([0.0, 0.001, 0.1])).round(4)
    array([1.    , 0.5   , 0.0099])
    """
    if not a > 0:
        raise InputError(f"sif_weights: a must be > 0; got {a}.")
    return a / (a + _checked("sif_weights", probabilities))


def usif_weights(probabilities: NDArray[np.floating], mean_length: float) -> NDArray[np.float64]:
    r"""Weight of each word by unsupervised smooth inverse frequency.

    Parameters
    ----------
    probabilities : ndarray of shape (vocab_size,), any float dtype
        Unigram probability of each word, in [0, 1]; 0 for a word of unknown frequency, which gets the smallest of the
        others.
    mean_length : float
        Words that a text has on average, at least 1.

    Returns
    -------
    ndarray of shape (vocab_size,), float64
        Positive weights.

    Raises
    ------
    InputError
        If no probability is above 0, or one lies outside [0, 1], or `mean_length` is below 1.

    Notes
    -----
    :math:`w = a / (a / 2 + p)` with :math:`a = (1 - \alpha) / (\alpha Z)`, :math:`Z = |V| / 2`, and :math:`\alpha` the
    share of the words with :math:`p > 1 - (1 - 1 / |V|)^n`, n the mean length and V the words of known frequency;
    Ethayarajh 2018, *Unsupervised Random Walk Sentence Embeddings*, section 3.2. Of the words, at least one and not all
    count as above the bound, so that a stays positive and finite.

    Examples
    --------
    >>> import numpy as np
    >>> usif_weights(np.array([0.7, 0.1, 0.1, 0.1]), mean_length=2.0).round(4)
    array([1.0345, 1.7647, 1.7647, 1.7647])
    """
    checked = _checked("usif_weights", probabilities)
    known = checked[checked > 0]
    if not len(known):
        raise InputError("usif_weights: at least one word must have a frequency; got none.")
    if not mean_length >= 1:
        raise InputError(f"usif_weights: mean_length must be at least 1; got {mean_length}.")
    size = len(known)
    n_frequent = np.count_nonzero(known > 1 - (1 - 1 / size) ** mean_length)
    alpha = float(np.clip(n_frequent, 1, max(size - 1, 1))) / size if size > 1 else 0.5
    a = (1 - alpha) / (alpha * size / 2)
    return np.asarray(a / (a / 2 + np.where(checked > 0, checked, known.min())))


def _checked(where: str, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    checked = np.asarray(probabilities, dtype=np.float64)
    if not ((checked >= 0) & (checked <= 1)).all():
        raise InputError(f"{where}: probabilities must lie in [0, 1]; got {checked.min()} ... {checked.max()}.")
    return checked
