"""Maximum likelihood for BERT-flow: the training loop, and the graph that torch differentiates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import InputError
from isosent.numeric.glow import Glow, GlowStep, first_half
from isosent.transforms.base import FitProgress, Report

if TYPE_CHECKING:
    from torch import Generator, Tensor


MIXINGS = ("permutation", "reversal", "matrix")
_START_ROWS = _BLOCK_ROWS = 4096
_SMALLEST_SPREAD = 1e-6
_LOG_SCALE_RATE = 3.0  # scales learn this many times faster than the other parameters, as in Glow
_WEIGHT_SPREAD = 0.05
_N_REPORTS = 10


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
    report: Report | None = None,
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
                f"GlowFlow: the loss must stay finite; got {bits} after {n_seen:,} of {n_total:,} rows. "
                f"Lower learning_rate, now {learning_rate:g}."
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
