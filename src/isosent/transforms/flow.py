"""BERT-flow: an invertible map of vectors to a standard Gaussian, learnt by maximum likelihood, without labels."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from isosent import _check
from isosent.errors import InputError
from isosent.numeric.glow import Glow
from isosent.transforms.base import Report
from isosent.transforms.estimator import RowEstimator
from isosent.transforms.flow_training import MIXINGS, train

FEWEST_ROWS = 64
_NAME = "GlowFlow"


class GlowFlow(ClassNamePrefixFeaturesOutMixin, RowEstimator):
    r"""The normalizing flow of BERT-flow (Li et al. 2020).

    Glow on vectors: each step normalises every dimension, mixes the dimensions, and adds to one half of them the output
    of a small network over the other half. After each level but the last, half of the dimensions go to the result
    unchanged. The flow is fitted so that the result is likely under a standard Gaussian. It is not linear and cannot be
    folded into a map: in a model it can follow a map, and only scaling to length 1 can follow it.

    Parameters
    ----------
    n_levels : int, default 2
        Levels.
    depth : int, default 3
        Steps of each level.
    width : int, default 32
        Units in each of the two hidden layers of a coupling network.
    mixing : {"permutation", "reversal", "matrix"}, default "permutation"
        How each step mixes the dimensions: a random order (Li et al. 2020), the reversed order (their published code),
        or a learnt matrix that starts as a random rotation (the 1x1 convolution of Glow).
    learning_rate : float, default 1e-3
        Learning rate of Adam.
    n_epochs : int, default 1
        How often each row is used for training.
    batch_size : int, default 64
        Rows per training step; the published code uses 32 pairs.
    held_out : float, default 0.05
        Share of the rows that are not used for training but to measure the likelihood of unseen rows, in (0, 0.5].
    seed : int, default 0
        Seed for the choice of the held-out rows, the order of the others, and the initial networks.

    Attributes
    ----------
    glow_ : Glow
        The fitted flow, in numpy.
    history_ : tuple of FitProgress
        Bits per dimension of the held-out rows before the first step, a few times on the way, and at the end.
    n_features_in_ : int
        Dimensions of the rows and of the result.

    Notes
    -----
    The loss is :math:`-\log p(x) = -\log N(f(x); 0, I) - \log |\det \partial f / \partial x|` (Li et al. 2020,
    equation 4). Fitting needs torch (extras ``plm`` and ``train``); nothing else does. The fit is computed in float32
    on the CPU; the same seed gives the same numbers on the same machine with the same libraries. Activation
    normalisation is initialised on the first 4,096 of the shuffled rows; a constant dimension keeps its scale. The
    coupling networks end in zeros, so the fit starts from vectors with standardised dimensions. The density along a
    constant dimension is unbounded: likelihoods of such vectors cannot be compared; nothing else suffers.

    References
    ----------
    Li, Zhou, He, Wang, Yang & Li 2020, *On the Sentence Embeddings from Pre-trained Language Models*, arXiv 2011.05864.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).exponential(size=(500, 8))
    >>> flow = GlowFlow(n_epochs=3).fit(rows)
    >>> back = flow.inverse_transform(flow.transform(rows))
    >>> float(abs(back - rows).max()) < 1e-6
    True
    """

    def __init__(
        self,
        n_levels: int = 2,
        depth: int = 3,
        width: int = 32,
        *,
        mixing: str = MIXINGS[0],
        learning_rate: float = 1e-3,
        n_epochs: int = 1,
        batch_size: int = 64,
        held_out: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.n_levels = n_levels
        self.depth = depth
        self.width = width
        self.mixing = mixing
        self.learning_rate = learning_rate
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.held_out = held_out
        self.seed = seed

    def fit(self, X: ArrayLike, y: object = None, *, report: Report | None = None) -> Self:
        """Fit on vectors.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            One vector per row, at least 64 of them, with at least ``2 ** n_levels`` dimensions.
        y : object, optional
            Ignored; no labels are needed.
        report : callable, optional
            Called with a `FitProgress` before the first step, a few times on the way, and at the end.

        Returns
        -------
        GlowFlow
            This object.

        Raises
        ------
        InputError
            If there are too few rows, all are equal, one holds NaN or infinity (the message names it), a setting is out
            of range, or the loss does not stay finite.
        MissingExtraError
            If torch is not installed.
        """
        rows = self._rows(X, min_rows=1)
        self.check_settings(rows.shape[1])
        _check.finite_rows(_NAME, "X", rows)
        if len(rows) < FEWEST_ROWS:
            raise InputError(f"{_NAME}: X must have at least {FEWEST_ROWS} rows to fit on; got {len(rows)}.")
        if (rows == rows[0]).all():
            raise InputError(f"{_NAME}: X must have rows that differ; got {len(rows)} equal ones.")
        with np.errstate(over="ignore"):
            single = rows.astype(np.float32, order="C")
        if not np.isfinite(single).all():
            raise InputError(
                f"{_NAME}: X must hold numbers within float32, in which the fit is computed; some are larger."
            )
        flow, history = train(single, report=report, **self.get_params(deep=False))
        self._check_features(X, reset=True)
        self.glow_, self.history_ = flow, history
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Map vectors to the Gaussian.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            Vectors of the space that was fitted.

        Returns
        -------
        ndarray of shape (n_rows, dim)
            float64 for float64 vectors, float32 for everything else.

        Raises
        ------
        InputError
            If a row holds NaN or infinity (the message names the row), or the width differs.
        NotFittedError
            If nothing was fitted.
        """
        return self._glow().forward(self._checked(X))

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Map transformed vectors back.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            Results of `transform`, or draws from a standard Gaussian.

        Returns
        -------
        ndarray of shape (n_rows, dim)
            Vectors of the space that was fitted.

        Raises
        ------
        InputError
            If a row holds NaN or infinity, or the width differs.
        NotFittedError
            If nothing was fitted.
        """
        return self._glow().inverse(self._rows(X))

    def log_likelihood(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithm of the density of each row under the flow.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            Vectors of the space that was fitted.

        Returns
        -------
        ndarray of shape (n_rows,), float64
            In nats. Divided by ``-dim * log(2)`` it is in bits per dimension, as in `history_`.

        Raises
        ------
        InputError
            If a row holds NaN or infinity, or the width differs.
        NotFittedError
            If nothing was fitted.
        """
        return self._glow().log_likelihood(self._checked(X))

    @property
    def _n_features_out(self) -> int:
        return self._glow().dim

    def _glow(self) -> Glow:
        check_is_fitted(self, "glow_")
        return self.glow_

    def _checked(self, X: ArrayLike) -> NDArray[np.floating]:
        rows: NDArray[np.floating] = self._rows(X)
        self._check_features(X, reset=False)
        return rows

    def check_settings(self, dim: int) -> None:
        """Refuse settings that are out of range for vectors of `dim` dimensions.

        Parameters
        ----------
        dim : int
            Dimensions of the vectors.

        Raises
        ------
        InputError
            If a setting is out of range; the message names it with its value.
        """
        for name in ("n_levels", "depth", "width", "n_epochs", "batch_size"):
            _check.whole_number(_NAME, name, getattr(self, name), 1)
        _check.whole_number(_NAME, "seed", self.seed, 0)
        _check.one_of(_NAME, "mixing", self.mixing, MIXINGS)
        _check.above_zero(_NAME, "learning_rate", self.learning_rate)
        _check.above_zero(_NAME, "held_out", self.held_out)
        if self.held_out > 0.5:
            raise InputError(f"{_NAME}: held_out must be at most 0.5, half of the rows; got {self.held_out!r}.")
        if dim < 2**self.n_levels:
            raise InputError(
                f"{_NAME}: n_levels must leave every level two dimensions or more; got {self.n_levels} levels for "
                f"vectors of {dim}. Lower n_levels."
            )
