"""Poolings, from token vectors to one vector per text, for numpy arrays and torch tensors.

Every pooling takes ``token_embeddings`` of shape (n_texts, seq_len, dim), any real float dtype, and ``attention_mask``
of shape (n_texts, seq_len), above 0 for a token and 0 for padding, on either side. It returns one row per text, in at
least float32; half precision is summed in float32. Values under the padding, NaN included, have no influence. A text
without tokens has the zero row. Nothing branches on values, so torch can trace every pooling.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from array_api_compat import array_namespace, device

from isosent.errors import InputError

Array = Any
Pooling = Callable[[Array, Array], Array]

P_MEAN_POWERS = (-math.inf, 1.0, math.inf)


def pool_mean(token_embeddings: Array, attention_mask: Array) -> Array:
    """Mean over the tokens (Reimers & Gurevych 2019, section 3)."""
    return _mean(_prepared(token_embeddings, attention_mask), attention_mask)


def pool_mean_sqrt_len(token_embeddings: Array, attention_mask: Array) -> Array:
    """Sum over the tokens divided by the square root of their number."""
    total, count = _weighted_sum(_prepared(token_embeddings, attention_mask), attention_mask, attention_mask > 0)
    return total / count**0.5


def pool_weighted_mean(token_embeddings: Array, attention_mask: Array) -> Array:
    """Mean weighted by the position, from 1 for the first token on (Muennighoff 2022, SGPT, equation 2)."""
    xp = array_namespace(token_embeddings)
    present = xp.astype(attention_mask > 0, xp.int64)
    position = xp.cumulative_sum(present, axis=1)
    total, weight = _weighted_sum(_prepared(token_embeddings, attention_mask), attention_mask, present * position)
    return total / weight


def pool_max(token_embeddings: Array, attention_mask: Array) -> Array:
    """Maximum of each dimension over the tokens."""
    xp = array_namespace(token_embeddings)
    highest = xp.max(visible_tokens(token_embeddings, attention_mask), axis=1)
    return zero_if_empty(at_least_single(highest), attention_mask)


def pool_cls(token_embeddings: Array, attention_mask: Array) -> Array:
    """Vector of the first token ([CLS] in BERT's family)."""
    return _pick(token_embeddings, attention_mask, _first(attention_mask))


def pool_last_token(token_embeddings: Array, attention_mask: Array) -> Array:
    """Vector of the last token."""
    return _pick(token_embeddings, attention_mask, last_token(attention_mask))


def pool_p_mean(token_embeddings: Array, attention_mask: Array, *, powers: Sequence[float] = P_MEAN_POWERS) -> Array:
    """Concatenated power means over the tokens (Rueckle et al. 2018)."""
    # Re((sum_i v_i^p / n)^(1/p)) by coordinate, with principal values, as in `word_averages.power_means`. Powers other
    # than 1 and the infinities are computed in float64.
    if not powers or not all(power > 0 or power == -math.inf for power in powers):
        raise InputError(f"pool_p_mean: powers must be one or more numbers, each > 0 or -inf; got {powers!r}.")
    xp = array_namespace(token_embeddings)
    tokens = _prepared(token_embeddings, attention_mask)
    means = [_power_mean(tokens, attention_mask, power) for power in powers]
    return zero_if_empty(xp.concat(means, axis=1), attention_mask)


POOLINGS: dict[str, Pooling] = {
    "mean": pool_mean,
    "cls": pool_cls,
    "max": pool_max,
    "mean_sqrt_len": pool_mean_sqrt_len,
    "last_token": pool_last_token,
    "weighted_mean": pool_weighted_mean,
    "p_mean": pool_p_mean,
}
POOLING_ALIASES: Mapping[str, str] = MappingProxyType(
    {"mean_sqrt_len_tokens": "mean_sqrt_len", "lasttoken": "last_token", "weightedmean": "weighted_mean"}
)


def pooled_width(pooling: str, dim: int) -> int:
    """Dimensions of a pooled vector."""
    return len(P_MEAN_POWERS) * dim if pooling == "p_mean" else dim


def visible_tokens(token_embeddings: Array, attention_mask: Array) -> Array:
    """Token vectors with the first token of the same text in place of padding."""
    # A maximum is not changed by a repeated token, and a sum gives it weight 0. Padding itself cannot get weight 0,
    # because 0 times NaN is NaN. Copying whole rows takes a third of the time of selecting number by number.
    xp = array_namespace(token_embeddings)
    n_texts, seq_len, dim = token_embeddings.shape
    on = device(token_embeddings)
    positions = xp.arange(seq_len, device=on)[None, :]
    sources = xp.where(attention_mask > 0, positions, _first(attention_mask)[:, None])
    rows = sources + seq_len * xp.arange(n_texts, device=on)[:, None]
    flat = xp.reshape(token_embeddings, (n_texts * seq_len, dim))
    return xp.reshape(xp.take(flat, xp.reshape(rows, (n_texts * seq_len,)), axis=0), (n_texts, seq_len, dim))


def last_token(attention_mask: Array) -> Array:
    """Position of the last token of each text, (n_texts,); 0 for a text without tokens."""
    xp = array_namespace(attention_mask)
    positions = xp.arange(attention_mask.shape[1], device=device(attention_mask))[None, :]
    return xp.max(xp.where(attention_mask > 0, positions, 0), axis=1)


def zero_if_empty(vectors: Array, attention_mask: Array) -> Array:
    """The same vectors, (n_texts, width), with zeros for texts without tokens."""
    xp = array_namespace(vectors)
    return xp.where(xp.any(attention_mask > 0, axis=1)[:, None], vectors, xp.zeros_like(vectors))


def at_least_single(array: Array) -> Array:
    """The array, in float32 if it is in half precision."""
    xp = array_namespace(array)
    return xp.astype(array, xp.float32) if xp.finfo(array.dtype).bits < 32 else array


def _first(attention_mask: Array) -> Array:
    """Position of the first token of each text; the last position for a text without tokens."""
    xp = array_namespace(attention_mask)
    positions = xp.arange(attention_mask.shape[1], device=device(attention_mask))[None, :]
    return xp.min(xp.where(attention_mask > 0, positions, positions[:, -1:]), axis=1)


def _prepared(token_embeddings: Array, attention_mask: Array) -> Array:
    return at_least_single(visible_tokens(token_embeddings, attention_mask))


def _mean(tokens: Array, attention_mask: Array) -> Array:
    total, count = _weighted_sum(tokens, attention_mask, attention_mask > 0)
    return total / count


def _weighted_sum(tokens: Array, attention_mask: Array, weights: Array) -> tuple[Array, Array]:
    """Weighted sum of the tokens, (n_texts, dim), and sum of the weights, (n_texts, 1), which is 1 without tokens."""
    # not a matrix product, which TF32 and automatic mixed precision would round
    xp = array_namespace(tokens)
    weights = xp.astype(weights, tokens.dtype)
    total = xp.sum(tokens * weights[:, :, None], axis=1)
    weight = xp.sum(weights, axis=1)[:, None]
    return zero_if_empty(total, attention_mask), xp.where(weight > 0, weight, xp.ones_like(weight))


def _pick(token_embeddings: Array, attention_mask: Array, position: Array) -> Array:
    """Vector at one position of each text."""
    xp = array_namespace(token_embeddings)
    rows = xp.arange(token_embeddings.shape[0], device=device(token_embeddings))
    return zero_if_empty(at_least_single(token_embeddings[rows, position]), attention_mask)


def _power_mean(tokens: Array, attention_mask: Array, power: float) -> Array:
    """One power mean, (n_texts, dim), of tokens without padding (`_prepared`)."""
    xp = array_namespace(tokens)
    if math.isinf(power):
        return xp.max(tokens, axis=1) if power > 0 else xp.min(tokens, axis=1)
    if power == 1:
        return _mean(tokens, attention_mask)
    exact = xp.astype(tokens, xp.float64)
    # (-1)^p; sine and cosine would round it for whole powers
    is_whole = float(power).is_integer()
    turn = (1 - 2 * (power % 2), 0.0) if is_whole else (math.cos(math.pi * power), math.sin(math.pi * power))
    sizes, negative = xp.abs(exact) ** power, exact < 0
    along = _mean(xp.where(negative, turn[0] * sizes, sizes), attention_mask)
    across = _mean(xp.where(negative, turn[1] * sizes, xp.zeros_like(sizes)), attention_mask)
    length, angle = xp.hypot(along, across), xp.atan2(across, along)
    return xp.astype(length ** (1 / power) * xp.cos(angle / power), tokens.dtype)
