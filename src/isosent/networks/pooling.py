"""Poolings, from token vectors to one vector per text.

Every pooling takes torch tensors: ``token_embeddings`` of shape (n_texts, seq_len, dim), any real float dtype, and
``attention_mask`` of shape (n_texts, seq_len), above 0 for a token and 0 for padding, on either side. It returns one
row per text, in at least float32; half precision is summed in float32. Values under the padding, NaN included, have no
influence. A text without tokens has the zero row. Nothing branches on values, so torch can trace every pooling.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from isosent import _extras

Tensor = Any  # of torch, which is imported when a network is loaded
Pooling = Callable[[Tensor, Tensor], Tensor]


def pool_mean(token_embeddings: Tensor, attention_mask: Tensor) -> Tensor:
    """Mean over the tokens (Reimers & Gurevych 2019, section 3)."""
    return _mean(_prepared(token_embeddings, attention_mask), attention_mask)


def pool_mean_sqrt_len(token_embeddings: Tensor, attention_mask: Tensor) -> Tensor:
    """Sum over the tokens divided by the square root of their number."""
    total, count = _weighted_sum(_prepared(token_embeddings, attention_mask), attention_mask, attention_mask > 0)
    return total / count**0.5


def pool_weighted_mean(token_embeddings: Tensor, attention_mask: Tensor) -> Tensor:
    """Mean weighted by the position, from 1 for the first token on (Muennighoff 2022, SGPT, equation 2)."""
    present = (attention_mask > 0).long()
    position = present.cumsum(dim=1)
    total, weight = _weighted_sum(_prepared(token_embeddings, attention_mask), attention_mask, present * position)
    return total / weight


def pool_max(token_embeddings: Tensor, attention_mask: Tensor) -> Tensor:
    """Maximum of each dimension over the tokens."""
    highest = visible_tokens(token_embeddings, attention_mask).amax(dim=1)
    return zero_if_empty(at_least_single(highest), attention_mask)


def pool_cls(token_embeddings: Tensor, attention_mask: Tensor) -> Tensor:
    """Vector of the first token ([CLS] in BERT's family)."""
    return _pick(token_embeddings, attention_mask, _first(attention_mask))


def pool_last_token(token_embeddings: Tensor, attention_mask: Tensor) -> Tensor:
    """Vector of the last token."""
    return _pick(token_embeddings, attention_mask, last_token(attention_mask))


def pool_p_mean(token_embeddings: Tensor, attention_mask: Tensor) -> Tensor:
    """Concatenated minimum, mean and maximum over the tokens: power means of -inf, 1 and inf (Rueckle et al. 2018)."""
    tokens = _prepared(token_embeddings, attention_mask)
    means = [tokens.amin(dim=1), _mean(tokens, attention_mask), tokens.amax(dim=1)]
    return zero_if_empty(_extras.require("torch").cat(means, dim=1), attention_mask)


def visible_states(token_embeddings: Tensor, attention_mask: Tensor) -> Tensor:
    """The vectors of the tokens of all texts, one after the other, (n_tokens, dim): no pooling at all."""
    return at_least_single(token_embeddings[attention_mask > 0])


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
    return 3 * dim if pooling == "p_mean" else dim


def visible_tokens(token_embeddings: Tensor, attention_mask: Tensor) -> Tensor:
    """Token vectors with the first token of the same text in place of padding."""
    # A maximum is not changed by a repeated token, and a sum gives it weight 0. Padding itself cannot get weight 0,
    # because 0 times NaN is NaN. Copying whole rows takes a third of the time of selecting number by number.
    n_texts, seq_len, dim = token_embeddings.shape
    sources = where(attention_mask > 0, _range(seq_len, attention_mask), _first(attention_mask)[:, None])
    rows = sources + seq_len * _range(n_texts, attention_mask)[:, None]
    flat = token_embeddings.reshape(n_texts * seq_len, dim)
    return flat.index_select(0, rows.reshape(n_texts * seq_len)).reshape(n_texts, seq_len, dim)


def last_token(attention_mask: Tensor) -> Tensor:
    """Position of the last token of each text, (n_texts,); 0 for a text without tokens."""
    return where(attention_mask > 0, _range(attention_mask.shape[1], attention_mask), 0).amax(dim=1)


def zero_if_empty(vectors: Tensor, attention_mask: Tensor) -> Tensor:
    """The same vectors, (n_texts, width), with zeros for texts without tokens."""
    return where((attention_mask > 0).any(dim=1)[:, None], vectors, 0.0)


def where(condition: Tensor, tensor: Tensor, other: Tensor | float) -> Tensor:
    """The numbers of the tensor where the condition holds, elsewhere the other ones."""
    # torch.compile can trace the function, but not the method of a tensor
    return _extras.require("torch").where(condition, tensor, other)


def at_least_single(tensor: Tensor) -> Tensor:
    """The tensor, in float32 if it is in half precision."""
    return tensor.float() if tensor.dtype.itemsize < 4 else tensor


def _first(attention_mask: Tensor) -> Tensor:
    """Position of the first token of each text; the last position for a text without tokens."""
    seq_len = attention_mask.shape[1]
    return where(attention_mask > 0, _range(seq_len, attention_mask), seq_len - 1).amin(dim=1)


def _range(n: int, tensor: Tensor) -> Tensor:
    """The numbers 0 ... n - 1 on the device of a tensor."""
    return _extras.require("torch").arange(n, device=tensor.device)


def _prepared(token_embeddings: Tensor, attention_mask: Tensor) -> Tensor:
    return at_least_single(visible_tokens(token_embeddings, attention_mask))


def _mean(tokens: Tensor, attention_mask: Tensor) -> Tensor:
    total, count = _weighted_sum(tokens, attention_mask, attention_mask > 0)
    return total / count


def _weighted_sum(tokens: Tensor, attention_mask: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted sum of the tokens, (n_texts, dim), and sum of the weights, (n_texts, 1), which is 1 without tokens."""
    # not a matrix product, which TF32 and automatic mixed precision would round
    weights = weights.to(tokens.dtype)
    total = (tokens * weights[:, :, None]).sum(dim=1)
    weight = weights.sum(dim=1)[:, None]
    return zero_if_empty(total, attention_mask), where(weight > 0, weight, 1.0)


def _pick(token_embeddings: Tensor, attention_mask: Tensor, position: Tensor) -> Tensor:
    """Vector at one position of each text."""
    picked = token_embeddings[_range(token_embeddings.shape[0], attention_mask), position]
    return zero_if_empty(at_least_single(picked), attention_mask)
