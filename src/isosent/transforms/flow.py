"""BERT-flow: an invertible map of vectors to a standard Gaussian, learnt by maximum likelihood, without labels.

`GlowFlow` is the estimator: it checks settings and rows, and holds the fitted `Glow`, which numpy computes. `train` is
the loop that fits it, the only place that needs torch: batches in random order, a likelihood of held-out rows from time
to time, the best state kept. `GlowGraph` is the flow as torch differentiates it: levels of `_Step`, each of which
normalizes (`_Norm`), mixes the dimensions (`_Order` or `_Matrix`), and shifts one half by a small network (`_Layer`)
of the other. ``folded`` turns each part into the arrays of a `Glow`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from isosent import _check, _extras
from isosent.errors import InputError, wrong_value
from isosent.numeric.glow import Glow, GlowStep, first_half
from isosent.transforms.base import FitCallback, FitProgress
from isosent.transforms.estimator import RowEstimator
from isosent.transforms.flow_step import FlowStep

if TYPE_CHECKING:
    from torch import Generator, Tensor

FEWEST_ROWS = 64
MIXINGS = ("permutation", "reversal", "matrix")
_START_ROWS = _BLOCK_ROWS = 4096
_SMALLEST_SPREAD = 1e-6
_LOG_SCALE_RATE = 3.0  # scales learn this many times faster than the other parameters, as in Glow
_WEIGHT_SPREAD = 0.05
_N_REPORTS = 10
_NAME = "GlowFlow"


class GlowFlow(ClassNamePrefixFeaturesOutMixin, RowEstimator):
    r"""The normalizing flow of BERT-flow (Li et al. 2020).

    Glow on vectors: each step normalizes every dimension, mixes the dimensions, and adds to one half of them the output
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
    coupling networks end in zeros, so the fit starts from vectors with standardized dimensions. The density along a
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

    kind = FlowStep.kind

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

    def fit(self, X: ArrayLike, y: object = None, *, report: FitCallback | None = None) -> Self:
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
            raise InputError(f"{len(rows)} rows are too few to fit on. At least {FEWEST_ROWS} are needed.", where=_NAME)
        if (rows == rows[0]).all():
            raise InputError(f"all {len(rows)} rows are equal. Fit on texts that differ.", where=_NAME)
        with np.errstate(over="ignore"):
            single = rows.astype(np.float32, order="C")
        if not np.isfinite(single).all():
            raise InputError(
                "some numbers are too large for float32, in which the fit is computed. Scale them.", where=_NAME
            )
        flow, history = train(single, report=report, **self.get_params(deep=False))
        self._check_features(X, reset=True)
        self.glow_, self.history_ = flow, history
        return self

    @property
    def step_(self) -> FlowStep:
        """The fitted flow as a step of a model."""
        return FlowStep(self._glow())

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
            raise wrong_value(_NAME, "held_out", "be at most 0.5, half of the rows", repr(self.held_out))
        if dim < 2**self.n_levels:
            raise wrong_value(
                _NAME, "n_levels", f"leave every level two of the {dim} dimensions or more", self.n_levels, "Lower it."
            )


def train(
    rows: NDArray[np.float32],
    *,
    n_levels: int,
    depth: int,
    width: int,
    mixing: str,
    learning_rate: float,
    n_epochs: int,
    batch_size: int,
    held_out: float,
    seed: int,
    report: FitCallback | None = None,
) -> tuple[Glow, tuple[FitProgress, ...]]:
    """Fit a flow to finite rows of shape (n_rows, dim), and return it with all progress reports; see `GlowFlow`."""
    torch = _extras.require("torch")
    random = np.random.default_rng(seed)
    order, n_held_out = random.permutation(len(rows)), math.ceil(held_out * len(rows))
    train_ids = order[n_held_out:]
    tensor = torch.from_numpy(rows)
    held_out_rows, start_rows = tensor[order[:n_held_out]], tensor[train_ids[:_START_ROWS]]
    graph = GlowGraph(start_rows, n_levels=n_levels, depth=depth, width=width, mixing=mixing, seed=seed)
    optimizer = torch.optim.Adam(graph.parameters, learning_rate)
    n_total, n_seen, history = len(train_ids) * n_epochs, 0, []

    def check_finite(bits: float) -> None:
        if not math.isfinite(bits):
            raise InputError(
                f"the loss became {bits} after {n_seen:,} of {n_total:,} rows. Lower learning_rate, now "
                f"{learning_rate:g}.",
                where="GlowFlow",
            )

    def measure() -> None:
        bits = graph.mean_bits(held_out_rows)
        check_finite(bits)
        history.append(FitProgress(n_seen, n_total, bits))
        if report:
            report(history[-1])

    measure()
    for _ in range(n_epochs):
        for batch in np.array_split(random.permutation(train_ids), math.ceil(len(train_ids) / batch_size)):
            loss = graph.bits(tensor[torch.from_numpy(batch)])
            check_finite(loss.item())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            n_before, n_seen = n_seen, n_seen + len(batch)
            if n_before * _N_REPORTS // n_total < n_seen * _N_REPORTS // n_total:
                measure()
    return graph.state(), tuple(history)


class GlowGraph:
    """The flow as torch differentiates it, its activation normalisations initialised on rows."""

    def __init__(self, rows: Tensor, *, n_levels: int, depth: int, width: int, mixing: str, seed: int) -> None:
        torch = _extras.require("torch")
        generator = torch.Generator().manual_seed(seed)
        self.dim = rows.shape[1]
        self._levels: list[list[_Step]] = []
        with torch.no_grad():
            for _ in range(n_levels):
                steps = []
                for _ in range(depth):
                    steps.append(_Step(rows, width, _mixing(mixing, rows, generator), generator))
                    rows = steps[-1](rows)
                rows = rows[:, : first_half(rows.shape[1])]
                self._levels.append(steps)
        for tensor in self.parameters:
            tensor.requires_grad_()

    @property
    def parameters(self) -> list[Tensor]:
        """Every tensor that is trained."""
        return [tensor for level in self._levels for step in level for tensor in step.parameters]

    @property
    def log_determinant(self) -> Tensor:
        """Logarithm of the Jacobian's determinant, in nats."""
        torch = _extras.require("torch")
        return torch.stack([step.log_determinant for level in self._levels for step in level]).sum()

    def __call__(self, rows: Tensor) -> Tensor:
        """Map rows to the Gaussian."""
        torch, latents = _extras.require("torch"), []
        for number, level in enumerate(self._levels, start=1):
            for step in level:
                rows = step(rows)
            if number < len(self._levels):
                half = first_half(rows.shape[1])
                latents.append(rows[:, half:])
                rows = rows[:, :half]
        return torch.cat([*latents, rows], 1)

    def bits(self, rows: Tensor) -> Tensor:
        """Mean negative log-likelihood of rows, in bits per dimension: the loss."""
        norm = self(rows).square().sum(1).mean()
        nats = 0.5 * (norm + self.dim * math.log(2 * math.pi)) - self.log_determinant
        return nats / (self.dim * math.log(2))

    def mean_bits(self, rows: Tensor) -> float:
        """The same as a number, without gradient, block by block."""
        with _extras.require("torch").no_grad():
            blocks: tuple[Tensor, ...] = rows.split(_BLOCK_ROWS)  # type: ignore[no-untyped-call]
            return sum(self.bits(block).item() * len(block) for block in blocks) / len(rows)

    def state(self) -> Glow:
        """Return the flow in numpy."""
        with _extras.require("torch").no_grad():
            return Glow(tuple(tuple(step.folded() for step in level) for level in self._levels))


def _mixing(kind: str, rows: Tensor, generator: Generator) -> _Order | _Matrix:
    torch, dim = _extras.require("torch"), rows.shape[1]
    if kind == "matrix":
        noise = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
        return _Matrix(torch.linalg.qr(noise)[0].to(rows.dtype))
    return _Order(torch.arange(dim).flip(0) if kind == "reversal" else torch.randperm(dim, generator=generator))


class _Norm:
    """Activation normalisation, initialised so that these rows get zero mean and unit variance."""

    def __init__(self, rows: Tensor) -> None:
        mean, spread = rows.double().mean(0), rows.double().std(0, correction=0)
        spread[spread <= _SMALLEST_SPREAD * spread.max()] = 1  # a constant dimension keeps its scale
        self.shift = -mean.to(rows.dtype)
        self._slow_log_scale = (-spread.log() / _LOG_SCALE_RATE).to(rows.dtype)

    @property
    def log_scale(self) -> Tensor:
        return self._slow_log_scale * _LOG_SCALE_RATE

    @property
    def parameters(self) -> list[Tensor]:
        return [self.shift, self._slow_log_scale]

    def __call__(self, rows: Tensor) -> Tensor:
        return (rows + self.shift) * self.log_scale.exp()


class _Layer:
    """A linear layer and its normalisation: ``(x W + shift) * exp(log_scale)``."""

    def __init__(self, weight: Tensor, norm: _Norm) -> None:
        self.weight, self.norm = weight, norm

    @property
    def parameters(self) -> list[Tensor]:
        return [self.weight, *self.norm.parameters]

    def __call__(self, rows: Tensor) -> Tensor:
        return self.norm(rows @ self.weight)

    def folded(self) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        scale = self.norm.log_scale.exp()
        return _numbers(self.weight * scale), _numbers(self.norm.shift * scale)


class _Order:
    """A fixed order of the dimensions."""

    parameters: tuple[Tensor, ...] = ()
    log_determinant = 0.0

    def __init__(self, order: Tensor) -> None:
        self._order = order

    def __call__(self, rows: Tensor) -> Tensor:
        return rows[:, self._order]

    def folded(self) -> NDArray[Any]:
        return _numbers(self._order)


class _Matrix:
    """A matrix Q L U: a fixed random rotation, and two learnt triangles that start as the identity."""

    def __init__(self, rotation: Tensor) -> None:
        self._rotation = rotation
        self._lower, self._upper = rotation.new_zeros(rotation.shape), rotation.new_zeros(rotation.shape)
        self._log_diagonal = rotation.new_zeros(len(rotation))

    @property
    def parameters(self) -> list[Tensor]:
        return [self._lower, self._upper, self._log_diagonal]

    @property
    def log_determinant(self) -> Tensor:
        return self._log_diagonal.sum()

    def __call__(self, rows: Tensor) -> Tensor:
        rotated = rows @ self._rotation
        return (rotated + rotated @ self._lower.tril(-1)) @ (self._upper.triu(1) + self._log_diagonal.exp().diag())

    def folded(self) -> NDArray[Any]:
        return _numbers(self(self._rotation.new_ones(len(self._rotation)).diag()))


class _Step:
    """One step, initialised on rows."""

    def __init__(self, rows: Tensor, width: int, mixing: _Order | _Matrix, generator: Generator) -> None:
        self.norm, self.mixing = _Norm(rows), mixing
        self._half = first_half(rows.shape[1])
        hidden, self.network = mixing(self.norm(rows))[:, : self._half], []
        for _ in range(2):
            weight = hidden.new_empty(hidden.shape[1], width).normal_(0, _WEIGHT_SPREAD, generator=generator)
            self.network.append(_Layer(weight, _Norm(hidden @ weight)))
            hidden = self.network[-1](hidden).relu()
        # The last layer starts as zeros, so that the coupling changes nothing at first.
        n_shifted = rows.shape[1] // 2
        self.network.append(_Layer(hidden.new_zeros(width, n_shifted), _Norm(hidden.new_zeros(1, n_shifted))))

    @property
    def parameters(self) -> list[Tensor]:
        layers = [tensor for layer in self.network for tensor in layer.parameters]
        return [*self.norm.parameters, *self.mixing.parameters, *layers]

    @property
    def log_determinant(self) -> Tensor:
        return self.norm.log_scale.sum() + self.mixing.log_determinant

    def __call__(self, rows: Tensor) -> Tensor:
        torch, mixed = _extras.require("torch"), self.mixing(self.norm(rows))
        unchanged, shifted = mixed[:, : self._half], mixed[:, self._half :]
        first, second, last = self.network
        return torch.cat([unchanged, shifted + last(second(first(unchanged).relu()).relu())], 1)

    def folded(self) -> GlowStep:
        network = tuple(layer.folded() for layer in self.network)
        return GlowStep(_numbers(self.norm.shift), _numbers(self.norm.log_scale), self.mixing.folded(), network)


def _numbers(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().numpy().copy()
