"""Layer pooling: which hidden layers make a sentence vector, with which weights, and how each is pooled."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isosent.errors import ModelReferenceError
from isosent.networks.pooling import POOLING_ALIASES, POOLINGS, pooled_width

SBERT_WK = "sbert_wk"
POOLING_NAMES = (*POOLINGS, SBERT_WK)

LAYER_NAMES = {"last": "-1", "last2": "-2,-1", "first_last_avg": "1,-1", "all": "0..-1"}
_TERM = re.compile(
    r"(?:(?P<weight>\d*\.?\d+(?:e-?\d+)?)\*)?L?(?P<first>-?\d+)(?:\.\.L?(?P<last>-?\d+))?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class LayerPooling:
    """Layers and poolings that make one vector of a text."""

    # (layer, weight); layer 0 is the embedding layer and the weights sum to 1. Each layer is pooled first, then the
    # pooled layers are averaged (Huang et al. 2021, section 3.2, with the divisor of their code).
    layers: tuple[tuple[int, float], ...]
    poolings: tuple[str, ...]  # of `POOLING_NAMES`; several are concatenated

    @classmethod
    def of(cls, layers: str, pooling: str, *, n_layers: int) -> LayerPooling:
        """Parse layers and poolings as in a model reference: ``of("first_last_avg", "mean,cls", n_layers=12)``."""
        resolved = resolve_layers(layers, n_layers)
        total = sum(weight for _, weight in resolved)
        poolings = tuple(canonical_pooling(pooling).split(","))
        if SBERT_WK in poolings and (len(resolved) < 2 or len({weight for _, weight in resolved}) > 1):
            raise ModelReferenceError(
                f"layers must be two or more, without weights, for pooling={SBERT_WK}; got {layers}. "
                "Leave layers out to use those of the paper."
            )
        return cls(tuple((layer, weight / total) for layer, weight in resolved), poolings)

    @property
    def highest(self) -> int:
        """The highest layer in use."""
        return max(layer for layer, _ in self.layers)

    def width(self, dim: int) -> int:
        """Dimensions of the vectors, for hidden states of `dim` dimensions."""
        return sum(pooled_width(name, dim) for name in self.poolings)


def layers_of(layer_poolings: Iterable[LayerPooling]) -> set[int]:
    """Every layer that one of the layer poolings uses."""
    return {layer for layer_pooling in layer_poolings for layer, _ in layer_pooling.layers}


def canonical_pooling(names: str) -> str:
    """Spell comma-separated pooling names as in `POOLING_NAMES`; those of sentence-transformers are accepted."""
    poolings = [POOLING_ALIASES.get(name, name) for name in names.split(",")]
    if unknown := [name for name in poolings if name not in POOLING_NAMES]:
        raise ModelReferenceError(f"pooling must be among {', '.join(POOLING_NAMES)}; got {unknown[0]!r}.")
    if len(set(poolings)) < len(poolings):
        raise ModelReferenceError(f"poolings must differ; got {names}.")
    return ",".join(poolings)


def parse_layers(layers: str) -> list[tuple[int, int, float]]:
    """Parse layers into (first, last, weight) terms: ``1,-1``, ``L1+L12``, ``0..3``, ``0.3*1,0.7*-1`` or a name.

    Raises ValueError if they are written otherwise.
    """
    terms = []
    for part in re.split(r"[,+]", LAYER_NAMES.get(layers, layers)):
        term = _TERM.fullmatch(part.strip())
        if term is None:
            raise ValueError(part)
        weight = 1.0 if term["weight"] is None else float(term["weight"])
        if not 0 < weight < math.inf:
            raise ValueError(part)
        terms.append((int(term["first"]), int(term["last"] or term["first"]), weight))
    return terms


def resolve_layers(layers: str, n_layers: int) -> list[tuple[int, float]]:
    """Layers counted from 0, each once, with their weights: ``0..2,-1`` of 6 layers is 0, 1, 2 and 6."""
    try:
        terms = parse_layers(layers)
    except ValueError:
        raise ModelReferenceError(f"layers must be written as in 1,-1 or L1+L12 or 0..4; got {layers!r}.") from None
    weights: dict[int, float] = {}
    for first, last, weight in terms:
        low, high = _resolve_layer(first, n_layers), _resolve_layer(last, n_layers)
        if low > high:
            raise ModelReferenceError(f"layers must rise in a range; got {first}..{last}.")
        for layer in range(low, high + 1):
            if layer in weights:
                raise ModelReferenceError(f"layers must differ; got layer {layer} twice in {layers!r}.")
            weights[layer] = weight
    return list(weights.items())


def _resolve_layer(number: int, n_layers: int) -> int:
    layer = number if number >= 0 else n_layers + 1 + number
    if not 0 <= layer <= n_layers:
        raise ModelReferenceError(f"layers must lie in 0 ... {n_layers}, or -{n_layers + 1} ... -1; got {number}.")
    return layer


def format_layers(layers: Sequence[tuple[int, float]]) -> str:
    """Write layers and weights so that `resolve_layers` reads them back; weights are left out if all are 1."""
    if all(weight == 1.0 for _, weight in layers):
        return ",".join(str(layer) for layer, _ in layers)
    return ",".join(f"{weight!r}*{layer}".replace("e+", "e") for layer, weight in layers)  # a plus separates layers
