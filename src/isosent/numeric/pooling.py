"""From token vectors to one vector a text, on numpy arrays or torch tensors alike.

Every pooling takes ``token_embeddings`` of shape (n_texts, seq_len, dim) and ``attention_mask`` of shape
(n_texts, seq_len), 1 for a token and 0 for padding, and returns (n_texts, dim). Every text has at least one token.
What stands under the padding never reaches the result. The names are those of sentence-transformers.
"""

from collections.abc import Callable
from typing import Any

from array_api_compat import array_namespace, device

Array = Any
Pooling = Callable[[Array, Array], Array]


def pool_mean(token_embeddings: Array, attention_mask: Array) -> Array:
    """Mean over the tokens (Reimers & Gurevych 2019, section 3)."""
    total, count = _masked_sum(token_embeddings, attention_mask)
    return total / count


def pool_mean_sqrt_len(token_embeddings: Array, attention_mask: Array) -> Array:
    """Sum over the tokens divided by the root of their number."""
    total, count = _masked_sum(token_embeddings, attention_mask)
    return total / count**0.5


def pool_weighted_mean(token_embeddings: Array, attention_mask: Array) -> Array:
    """Mean weighted by the position, 1 for the first token (Muennighoff 2022, SGPT, equation 2)."""
    xp = array_namespace(token_embeddings)
    position = xp.cumulative_sum(attention_mask, axis=1)
    total, weight = _masked_sum(token_embeddings, attention_mask * position)
    return total / weight


def pool_max(token_embeddings: Array, attention_mask: Array) -> Array:
    """Maximum of each dimension over the tokens; padding counts as minus infinity."""
    xp = array_namespace(token_embeddings)
    lowest = xp.full_like(token_embeddings, -float("inf"))
    return xp.max(xp.where(attention_mask[:, :, None] > 0, token_embeddings, lowest), axis=1)


def pool_cls(token_embeddings: Array, attention_mask: Array) -> Array:
    """Vector of the first token, [CLS] in BERT's family."""
    xp = array_namespace(token_embeddings)
    return _pick(token_embeddings, xp.argmax(attention_mask, axis=1))


def pool_last_token(token_embeddings: Array, attention_mask: Array) -> Array:
    """Vector of the last token."""
    xp = array_namespace(token_embeddings)
    position = xp.cumulative_sum(attention_mask, axis=1)
    return _pick(token_embeddings, xp.argmax(position * attention_mask, axis=1))


POOLINGS: dict[str, Pooling] = {
    "cls": pool_cls,
    "max": pool_max,
    "mean": pool_mean,
    "mean_sqrt_len_tokens": pool_mean_sqrt_len,
    "weightedmean": pool_weighted_mean,
    "lasttoken": pool_last_token,
}


def _masked_sum(token_embeddings: Array, weights: Array) -> tuple[Array, Array]:
    """Weighted sum of the tokens, (n_texts, dim), and sum of the weights, (n_texts, 1)."""
    xp = array_namespace(token_embeddings)
    weights = xp.astype(weights, token_embeddings.dtype)[:, :, None]
    zeros = xp.zeros_like(token_embeddings)
    total = xp.sum(xp.where(weights > 0, token_embeddings * weights, zeros), axis=1)
    return total, xp.sum(weights, axis=1)


def _pick(token_embeddings: Array, position: Array) -> Array:
    """Vector at one position of each text."""
    xp = array_namespace(token_embeddings)
    rows = xp.arange(token_embeddings.shape[0], device=device(token_embeddings))
    return token_embeddings[rows, position]
