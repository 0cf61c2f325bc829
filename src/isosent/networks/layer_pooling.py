"""What is read off one pass of a network: which layers, with which weights, pooled how."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from isosent.errors import ModelReferenceError
from isosent.numeric.pooling import POOLING_ALIASES, POOLINGS, pooled_width

SBERT_WK = "sbert_wk"
POOLING_NAMES = (*POOLINGS, SBERT_WK)

LAYER_NAMES = {"last": "-1", "last2": "-2,-1", "first_last_avg": "1,-1", "all": "0..-1"}
_TERM = re.compile(
    r"(?:(?P<weight>\d*\.?\d+(?:e-?\d+)?)\*)?L?(?P<first>-?\d+)(?:\.\.L?(?P<last>-?\d+))?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class LayerPooling:
    """Layers and poolings that make one vector of a text."""

    # Layer and weight; 0 is the embedding layer. Weights sum to 1. Each layer is pooled, then the weighted mean of
    # the pooled layers is taken (Huang et al. 2021, section 3.2, with the divisor of their code)
    layers: tuple[tuple[int, float], ...]
    poolings: tuple[str, ...]  # names of `POOLING_NAMES`; several are concatenated

    @classmethod
    def of(cls, layers: str, pooling: str, *, n_layers: int) -> LayerPooling:
        """Read layers and poolings as a model reference writes them."""
        resolved = resolve_layers(layers, n_layers)
        total = sum(weight for _, weight in resolved)
        poolings = tuple(canonical_pooling(pooling).split(","))
        if SBERT_WK in poolings and (len(resolved) < 2 or len({weight for _, weight in resolved}) > 1):
            raise ModelReferenceError(
                f"layers must be two or more, without weights, for pooling={SBERT_WK}; got {layers}. "
                "Leave layers out for those of its paper."
            )
        return cls(tuple((layer, weight / total) for layer, weight in resolved), poolings)

    @property
    def highest(self) -> int:
        """The highest layer that it needs."""
        return max(layer for layer, _ in self.layers)

    def width(self, dim: int) -> int:
        """Return the dimensions of its vectors, of a network with `dim` dimensions."""
        return sum(pooled_width(name, dim) for name in self.poolings)


def canonical_pooling(written: str) -> str:
    """Write pooling names in one spelling."""
    names = [POOLING_ALIASES.get(name, name) for name in written.split(",")]
    if unknown := [name for name in names if name not in POOLING_NAMES]:
        raise ModelReferenceError(f"pooling must be among {', '.join(POOLING_NAMES)}; got {unknown[0]!r}.")
    if len(set(names)) < len(names):
        raise ModelReferenceError(f"poolings must differ; got {written}.")
    return ",".join(names)


def parse_layers(written: str) -> list[tuple[int, int, float]]:
    """Take the layers of a model reference apart."""
    terms = []
    for part in re.split(r"[,+]", LAYER_NAMES.get(written, written)):
        term = _TERM.fullmatch(part.strip())
        if term is None:
            raise ValueError(part)
        weight = 1.0 if term["weight"] is None else float(term["weight"])
        if not 0 < weight < math.inf:
            raise ValueError(part)
        terms.append((int(term["first"]), int(term["last"] or term["first"]), weight))
    return terms


def resolve_layers(written: str, n_layers: int) -> list[tuple[int, float]]:
    """Find the layers that are meant."""
    try:
        terms = parse_layers(written)
    except ValueError:
        raise ModelReferenceError(f"layers must be written as in 1,-1 or L1+L12 or 0..4; got {written!r}.") from None
    resolved: dict[int, float] = {}
    for first, last, weight in terms:
        low, high = _layer(first, n_layers), _layer(last, n_layers)
        if low > high:
            raise ModelReferenceError(f"layers must rise in a range; got {first}..{last}.")
        for layer in range(low, high + 1):
            if layer in resolved:
                raise ModelReferenceError(f"layers must differ; got layer {layer} twice in {written!r}.")
            resolved[layer] = weight
    return list(resolved.items())


def written_layers(layers: Sequence[tuple[int, float]]) -> str:
    """Write layers in one spelling."""
    if all(weight == 1.0 for _, weight in layers):
        return ",".join(str(layer) for layer, _ in layers)
    return ",".join(f"{weight!r}*{layer}".replace("e+", "e") for layer, weight in layers)  # a plus parts layers


def _layer(number: int, n_layers: int) -> int:
    layer = number if number >= 0 else n_layers + 1 + number
    if not 0 <= layer <= n_layers:
        raise ModelReferenceError(f"layers must lie in 0 ... {n_layers}, or -{n_layers + 1} ... -1; got {number}.")
    return layer
