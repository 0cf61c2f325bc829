"""Layer pooling: which hidden layers make a sentence vector, with which weights, and how each is pooled."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isosent import _extras
from isosent.errors import ModelReferenceError, wrong_value
from isosent.networks.pooling import (
    POOLING_ALIASES,
    POOLINGS,
    Tensor,
    at_least_single,
    last_token,
    pooled_width,
    visible_tokens,
    zero_if_empty,
)

SBERT_WK = "sbert_wk"
TOKENS = "tokens"  # not pooled: one row per token; no model reference can name it
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
                f"layers={layers}: pooling={SBERT_WK} needs two layers or more, without weights. Leave layers out to "
                "use those of the paper."
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
        raise ModelReferenceError(
            f"pooling={names}: there is no {unknown[0]!r}. Choose among {', '.join(POOLING_NAMES)}."
        )
    if len(set(poolings)) < len(poolings):
        raise ModelReferenceError(f"pooling={names}: a name occurs twice. Name each once.")
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
        raise ModelReferenceError(f"layers={layers}: write layers as in 1,-1 or L1+L12 or 0..4.") from None
    weights: dict[int, float] = {}
    for first, last, weight in terms:
        low, high = _resolve_layer(first, n_layers), _resolve_layer(last, n_layers)
        if low > high:
            raise ModelReferenceError(
                f"layers={layers}: the layers of a range must rise, and those of {first}..{last} do not."
            )
        for layer in range(low, high + 1):
            if layer in weights:
                raise ModelReferenceError(f"layers={layers}: layer {layer} occurs twice. Name each once.")
            weights[layer] = weight
    return list(weights.items())


def _resolve_layer(number: int, n_layers: int) -> int:
    layer = number if number >= 0 else n_layers + 1 + number
    if not 0 <= layer <= n_layers:
        raise ModelReferenceError(
            f"there is no layer {number}. The layers are 0 to {n_layers}, or -{n_layers + 1} to -1."
        )
    return layer


def format_layers(layers: Sequence[tuple[int, float]]) -> str:
    """Write layers and weights so that `resolve_layers` reads them back; weights are left out if all are 1."""
    if all(weight == 1.0 for _, weight in layers):
        return ",".join(str(layer) for layer, _ in layers)
    return ",".join(f"{weight!r}*{layer}".replace("e+", "e") for layer, weight in layers)  # a plus separates layers


# -- SBERT-WK: fuses layers token by token, and weights tokens by their change across layers (Wang & Kuo 2020) ---------

WINDOW = 2  # layers on either side, that of the paper
SMALL_RESIDUAL = 1e-3
SMALL_CHANGE = 1e-6
LEAST_ALIGNMENT = 0.01


def sbert_wk_layers(n_layers: int) -> tuple[int, ...]:
    """Layers that SBERT-WK fuses: all but the lowest third."""
    # The authors start at the fourth of 12 layers; other depths keep the proportion.
    return tuple(range(n_layers // 3, n_layers + 1))


def sbert_wk(hidden_states: Sequence[Tensor], attention_mask: Tensor) -> Tensor:
    """Sentence vectors, (n_texts, dim), from hidden states of several layers, each (n_texts, seq_len, dim)."""
    # For a token, v_i are the vectors of its layers, C_i those of the layers at most `WINDOW` away, p_i the projection
    # of v_i on the span of C_i, and n_i the number of vectors in C_i. All weights are divided by their sum over the
    # layers or the tokens:
    # - alignment a_i = 1 / ((n_i + 1) mean cos(p_i, C_i)): small for a layer that its neighbours already predict;
    # - novelty b_i = |v_i - p_i| / |v_i|;
    # - the token is sum_i (a_i + b_i) v_i / 2;
    # - its weight in the text is the variance over i of cos(v_i, v_{i+1}).
    #
    # Where the authors' code differs from the paper, or the paper says nothing, this follows the code: the cosine of an
    # alignment is that of p_i, not v_i; it is divided by the number of layers in the window, so the layers at the
    # ends, which have fewer neighbours, weigh more; the last token ([SEP] in BERT's family) is left out and [CLS] is
    # not. One thing is not followed: their window at the second of the lowest layers loses its left side, because a
    # slice starts at a negative index.
    #
    # Nothing is factorized: the Gram matrix of a token's layers holds all of the above. The residuals are its Schur
    # complements, computed for all windows and tokens at once, in float64 (float32 is off by 4e-5). A layer whose
    # residual is at most 1e-3 of its length adds no direction and has no novelty (GEM's rule with a larger bound,
    # because a Gram matrix holds squares; layers of MiniLM leave 0.05 and more). A layer with a zero vector has weight
    # 0. An alignment below 0.01, opposite neighbours included, counts as 0.01. If no layer is novel, alignment alone
    # decides. If no token changes (a standard deviation of at most 1e-6, as with two layers), all have the same weight.
    # A text with a single token keeps it.
    n_layers = len(hidden_states)
    if n_layers < 2:
        raise wrong_value("sbert_wk", "hidden_states", "have 2 layers or more", n_layers)
    visible = [visible_tokens(layer, attention_mask) for layer in hidden_states]
    tokens = _extras.require("torch").stack(visible, dim=2).double()
    n_texts, seq_len, _, dim = tokens.shape
    gram = (tokens @ tokens.mT).reshape(n_texts * seq_len, n_layers, n_layers)
    cosines, present = _cosines(gram.permute(1, 2, 0))
    layer_weights = _layer_weights(cosines, present).permute(1, 0).reshape(n_texts, seq_len, n_layers)
    weights = layer_weights * _token_weights(cosines, attention_mask)[:, :, None]
    flat = tokens.reshape(n_texts, seq_len * n_layers, dim)
    vectors = (weights.reshape(n_texts, 1, seq_len * n_layers) @ flat).reshape(n_texts, dim)
    return zero_if_empty(vectors, attention_mask).to(at_least_single(hidden_states[0][:0]).dtype)


def _cosines(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines of the layers, (n_layers, n_layers, n), and which layers are not zero, (n_layers, n)."""
    squares = _extras.require("torch").stack([gram[layer, layer] for layer in range(gram.shape[0])])
    present = squares > 0
    scale = (1 / squares.where(present, 1.0).sqrt()).where(present, 0.0)
    return gram * scale[:, None] * scale[None, :], present


def _layer_weights(cosines: Tensor, present: Tensor) -> Tensor:
    """Weight of each layer in each token, (n_layers, n)."""
    windows, n_layers = _windows(cosines), cosines.shape[0]
    counts = [min(layer, WINDOW) + min(n_layers - 1 - layer, WINDOW) for layer in range(n_layers)]
    n_neighbors = cosines.new_tensor(counts)[:, None]
    mean = windows[:-1, -1].sum(dim=0) / n_neighbors
    novelty = _residuals(windows).where(present, 0.0)
    projected = (1 - novelty**2).sqrt()
    alignment = (mean / projected.where(projected > 0, 1.0)).where(projected > 0, 0.0)
    alignment = alignment.where(alignment > LEAST_ALIGNMENT, LEAST_ALIGNMENT)
    inverse = (1 / (alignment * (n_neighbors + 1))).where(present, 0.0)
    return _shares(_shares(inverse) + _shares(novelty))


def _windows(cosines: Tensor) -> Tensor:
    """Cosines within the window of each layer, the layer itself last, (m, m, n_layers, n); zeros beyond the ends."""
    n_layers, _, n = cosines.shape
    reach = min(WINDOW, n_layers - 1)
    steps = [step for step in range(-reach, reach + 1) if step != 0] + [0]
    layers = range(n_layers)
    picks = [
        (layer + a) * n_layers + layer + b if layer + a in layers and layer + b in layers else n_layers**2
        for a in steps
        for b in steps
        for layer in layers
    ]
    torch = _extras.require("torch")
    flat = torch.cat([cosines.reshape(n_layers**2, n), cosines.new_zeros((1, n))])
    picked = flat.index_select(0, torch.tensor(picks, device=cosines.device))
    return picked.reshape(len(steps), len(steps), n_layers, n)


def _residuals(windows: Tensor) -> Tensor:
    """Length of the residual of the last vector of each window, (n_layers, n), by elimination of the others."""
    while windows.shape[0] > 1:
        pivot = windows[0, 0]
        is_new = pivot > SMALL_RESIDUAL**2
        scale = (1 / pivot.where(is_new, 1.0)).where(is_new, 0.0)
        windows = windows[1:, 1:] - windows[1:, :1] * scale * windows[:1, 1:]
    square = windows[0, 0]
    is_new = square > SMALL_RESIDUAL**2
    return square.clamp(max=1.0).where(is_new, 1.0).sqrt().where(is_new, 0.0)


def _token_weights(cosines: Tensor, attention_mask: Tensor) -> Tensor:
    """Weight of each token in its text, (n_texts, seq_len)."""
    torch, n_layers = _extras.require("torch"), cosines.shape[0]
    steps = torch.stack([cosines[layer, layer + 1] for layer in range(n_layers - 1)])
    variance = ((steps - steps.mean(dim=0)) ** 2).mean(dim=0).reshape(attention_mask.shape)
    # all tokens count but the last one, which is left out unless it is the only one
    is_token = attention_mask > 0
    positions = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    is_single = is_token.sum(dim=1)[:, None] < 2
    counted = is_token & (is_single | (positions < last_token(attention_mask)[:, None]))
    changes = counted & (variance > SMALL_CHANGE**2)
    any_changes = changes.any(dim=1)[:, None]
    weights = variance.where(changes, 0.0).where(any_changes, counted.to(cosines.dtype))
    total = weights.sum(dim=1)[:, None]
    return weights / total.where(total > 0, 1.0)


def _shares(amounts: Tensor) -> Tensor:
    """Amounts over their sum along the first axis; zeros stay."""
    total = amounts.sum(dim=0)
    return amounts / total.where(total > 0, 1.0)
