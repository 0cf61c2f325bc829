"""SBERT-WK: fuses layers token by token, and weights tokens by their change across layers (Wang & Kuo 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace, device

from isosent import _check
from isosent.errors import InputError
from isosent.numeric.pooling import at_least_single, last_token, visible_tokens, zero_if_empty

Array = Any

SMALL_RESIDUAL = 1e-3
SMALL_CHANGE = 1e-6
LEAST_ALIGNMENT = 0.01


def sbert_wk_layers(n_layers: int) -> tuple[int, ...]:
    """Layers that SBERT-WK fuses: all but the lowest third."""
    # The authors start at the fourth of 12 layers; other depths keep the proportion.
    return tuple(range(n_layers // 3, n_layers + 1))


def sbert_wk(hidden_states: Sequence[Array] | Array, attention_mask: Array, *, window: int = 2) -> Array:
    """Sentence vectors, (n_texts, dim), from hidden states of several layers, each (n_texts, seq_len, dim)."""
    # For a token, v_i are the vectors of its layers, C_i those of the layers at most `window` away, p_i the projection
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
        raise InputError(f"sbert_wk: hidden_states must have 2 layers or more; got {n_layers}.")
    _check.whole_number("sbert_wk", "window", window, 1)
    xp = array_namespace(attention_mask)
    tokens = xp.stack([visible_tokens(layer, attention_mask) for layer in hidden_states], axis=2)
    tokens = xp.astype(tokens, xp.float64)
    n_texts, seq_len, _, dim = tokens.shape
    gram = xp.reshape(tokens @ xp.matrix_transpose(tokens), (n_texts * seq_len, n_layers, n_layers))
    cosines, present = _cosines(xp.permute_dims(gram, (1, 2, 0)))
    layer_weights = _layer_weights(cosines, present, window)
    token_weights = _token_weights(cosines, attention_mask)
    weights = (
        xp.reshape(xp.permute_dims(layer_weights, (1, 0)), (n_texts, seq_len, n_layers)) * token_weights[:, :, None]
    )
    flat = xp.reshape(tokens, (n_texts, seq_len * n_layers, dim))
    vectors = xp.reshape(xp.reshape(weights, (n_texts, 1, seq_len * n_layers)) @ flat, (n_texts, dim))
    return xp.astype(zero_if_empty(vectors, attention_mask), at_least_single(hidden_states[0][:0]).dtype)


def _cosines(gram: Array) -> tuple[Array, Array]:
    """Cosines of the layers, (n_layers, n_layers, n), and which layers are not zero, (n_layers, n)."""
    xp = array_namespace(gram)
    squares = xp.stack([gram[layer, layer] for layer in range(gram.shape[0])])
    present = squares > 0
    scale = xp.where(present, 1 / xp.sqrt(xp.where(present, squares, 1.0)), 0.0)
    return gram * scale[:, None] * scale[None, :], present


def _layer_weights(cosines: Array, present: Array, window: int) -> Array:
    """Weight of each layer in each token, (n_layers, n)."""
    xp = array_namespace(cosines)
    windows = _windows(cosines, window)
    n_layers = cosines.shape[0]
    counts = [min(layer, window) + min(n_layers - 1 - layer, window) for layer in range(n_layers)]
    n_neighbours = xp.asarray(counts, dtype=cosines.dtype, device=device(cosines))[:, None]
    mean = xp.sum(windows[:-1, -1], axis=0) / n_neighbours
    novelty = xp.where(present, _residuals(windows), 0.0)
    projected = xp.sqrt(1 - novelty**2)
    alignment = xp.where(projected > 0, mean / xp.where(projected > 0, projected, 1.0), 0.0)
    alignment = xp.where(alignment > LEAST_ALIGNMENT, alignment, LEAST_ALIGNMENT)
    inverse = xp.where(present, 1 / (alignment * (n_neighbours + 1)), 0.0)
    return _shares(_shares(inverse) + _shares(novelty))


def _windows(cosines: Array, window: int) -> Array:
    """Cosines within the window of each layer, the layer itself last, (m, m, n_layers, n); zeros beyond the ends."""
    xp = array_namespace(cosines)
    n_layers, _, n = cosines.shape
    reach = min(window, n_layers - 1)
    steps = [step for step in range(-reach, reach + 1) if step != 0] + [0]
    layers = range(n_layers)
    picks = [
        (layer + a) * n_layers + layer + b if layer + a in layers and layer + b in layers else n_layers**2
        for a in steps
        for b in steps
        for layer in layers
    ]
    zeros = xp.zeros((1, n), dtype=cosines.dtype, device=device(cosines))
    flat = xp.concat([xp.reshape(cosines, (n_layers**2, n)), zeros], axis=0)
    picked = xp.take(flat, xp.asarray(picks, dtype=xp.int64, device=device(cosines)), axis=0)
    return xp.reshape(picked, (len(steps), len(steps), n_layers, n))


def _residuals(windows: Array) -> Array:
    """Length of the residual of the last vector of each window, (n_layers, n), by elimination of the others."""
    xp = array_namespace(windows)
    while windows.shape[0] > 1:
        pivot = windows[0, 0]
        is_new = pivot > SMALL_RESIDUAL**2
        scale = xp.where(is_new, 1 / xp.where(is_new, pivot, 1.0), 0.0)
        windows = windows[1:, 1:] - windows[1:, :1] * scale * windows[:1, 1:]
    square = windows[0, 0]
    is_new = square > SMALL_RESIDUAL**2
    return xp.where(is_new, xp.sqrt(xp.where(is_new, xp.clip(square, max=1.0), 1.0)), 0.0)


def _token_weights(cosines: Array, attention_mask: Array) -> Array:
    """Weight of each token in its text, (n_texts, seq_len)."""
    xp = array_namespace(cosines)
    n_layers = cosines.shape[0]
    steps = xp.stack([cosines[layer, layer + 1] for layer in range(n_layers - 1)])
    variance = xp.reshape(xp.mean((steps - xp.mean(steps, axis=0)) ** 2, axis=0), attention_mask.shape)
    # all tokens count but the last one, which is left out unless it is the only one
    is_token = attention_mask > 0
    positions = xp.arange(attention_mask.shape[1], device=device(attention_mask))[None, :]
    is_single = xp.sum(xp.astype(is_token, xp.int64), axis=1)[:, None] < 2
    counted = is_token & (is_single | (positions < last_token(attention_mask)[:, None]))
    changes = counted & (variance > SMALL_CHANGE**2)
    any_changes = xp.any(changes, axis=1)[:, None]
    weights = xp.where(any_changes, xp.where(changes, variance, 0.0), xp.astype(counted, cosines.dtype))
    total = xp.sum(weights, axis=1)[:, None]
    return weights / xp.where(total > 0, total, 1.0)


def _shares(amounts: Array) -> Array:
    """Amounts over their sum along the first axis; zeros stay."""
    xp = array_namespace(amounts)
    total = xp.sum(amounts, axis=0)
    return amounts / xp.where(total > 0, total, 1.0)
