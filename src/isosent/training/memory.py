"""How much memory a training step takes, told before the first one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isosent import _check
from isosent.training.settings import PRECISIONS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PretrainedConfig


_FLOAT32 = 4
_BF16 = 2
_NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden_dim": ("hidden_size", "d_model"),
    "n_layers": ("num_hidden_layers", "num_layers"),
    "n_heads": ("num_attention_heads", "num_heads"),
    "feed_forward_dim": ("intermediate_size", "d_ff", "hidden_dim"),
}


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """What the memory for training a network depends on."""

    n_parameters: int  # numbers in its weights
    n_trainable: int  # those among them that are trained
    n_largest: int  # numbers in the largest trained tensor, the word vectors as a rule
    hidden_dim: int  # width h of a token's vector
    n_layers: int = 0  # transformer layers L; 0 for a static embedding
    n_heads: int = 0  # attention heads a of a layer
    feed_forward_dim: int = 0  # width f inside the feed-forward part of a layer


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """The texts of a step's batch."""

    n_examples: int  # rows of the data that go through the network at once
    n_columns: int  # texts of a row: 2 for pairs, 3 for triplets
    n_tokens: int  # tokens s of the longest text; the others are padded to it


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Memory of a training step."""

    weights: int  # bytes that each part takes
    gradients: int  # bytes that each part takes
    optimizer: int  # bytes that each part takes
    activations: int  # bytes that each part takes

    @property
    def total(self) -> int:
        """Bytes of all parts."""
        return self.weights + self.gradients + self.optimizer + self.activations

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "AdamW": self.optimizer,
            "activations": self.activations,
        }
        return f"about {_size(self.total)}: {', '.join(f'{name} {_size(n)}' for name, n in parts.items())}"


def estimate_memory(
    network: NetworkSize,
    batch: TrainingBatch,
    *,
    precision: str = "float32",
    recompute: bool = False,
    on_gpu: bool = False,
) -> MemoryEstimate:
    """Estimate the memory of a training step with AdamW."""
    # With n trained numbers, a step holds weights (4 bytes each; 2 more for the copies of mixed precision), gradients
    # (4n, and once more the largest tensor, whose gradients from the columns are added up) and AdamW's two moments
    # (8n).
    # Activations are those of Korthikanti et al. 2022, section 4.1: for b texts of s tokens, a layer keeps :math:`(16
    # w + 2 m) s b h + (2 w + m) a s^2 b` bytes at :math:`f = 4h`, with w bytes a number and m a dropout mask; w = 2
    # and m = 1 give their equation 1, :math:`s b h (34 + 5 a s / h)`. Of these 16, 8 are written :math:`2 f / h`
    # here, and in mixed precision the 2 inputs of layer normalisation keep 4 bytes, on a CPU those of attention, too.
    # A fused attention has no second term. The embeddings keep an input of their normalisation and a mask, and the
    # pooling keeps its input. With recomputing (their section 5), a layer keeps its input of :math:`4 s b h` bytes,
    # and one layer at a time, for one column, keeps all.
    # It is the memory of tensors where every text has `n_tokens`. Measured beside it, on a CPU with PyTorch 2.13 and
    # its fused AdamW, memory freed at once, 16 pairs of 128 tokens: the peak of the third step was 0.95 of the
    # estimate for MiniLM (6 layers of 384), 0.97 with recomputing, 1.00 in mixed precision, 0.93 for 64 pairs of 32
    # tokens, 0.98 for 2 layers of 128, 1.06 for a static embedding of 30,522 x 256. With the defaults of glibc, which
    # keeps freed blocks, the process grew to 1.4 or 1.5 times the estimate, 1.9 times with recomputing, 1.05 times
    # for the static embedding. Python and PyTorch take some 400 MB beside it. An optimizer that is not fused holds
    # two more copies of the largest tensor; a gated feed-forward part takes half as much again. What is said of GPUs
    # is from the paper, not measured.
    _check.one_of("estimate_memory", "precision", precision, PRECISIONS)
    is_mixed = precision != PRECISIONS[0]
    width = _BF16 if is_mixed else _FLOAT32
    attention_width, mask = (width, 1) if on_gpu else (_FLOAT32, width)
    n_texts = batch.n_examples * batch.n_columns
    n_numbers = n_texts * batch.n_tokens * network.hidden_dim
    feed_forward = 2 * network.feed_forward_dim * n_texts * batch.n_tokens
    kept = n_numbers * (3 * width + 3 * attention_width + 2 * _FLOAT32 + 2 * mask) + feed_forward * width
    probabilities = 0 if on_gpu else network.n_heads * batch.n_tokens**2 * n_texts * (2 * _FLOAT32 + mask)
    layer, ends = kept + probabilities, n_numbers * (2 * _FLOAT32 + mask)
    if network.n_layers == 0:
        activations = n_texts * network.hidden_dim * _FLOAT32
    elif recompute:
        activations = ends + network.n_layers * n_numbers * _FLOAT32 + layer // batch.n_columns
    else:
        activations = ends + network.n_layers * layer
    return MemoryEstimate(
        weights=_FLOAT32 * network.n_parameters + is_mixed * _BF16 * network.n_parameters,
        gradients=_FLOAT32 * (network.n_trainable + network.n_largest),
        optimizer=2 * _FLOAT32 * network.n_trainable,
        activations=activations,
    )


def size_of_network(model: SentenceTransformer) -> NetworkSize:
    """Read the size of a model."""
    parameters = list(model.parameters())
    trained = [parameter.numel() for parameter in parameters if parameter.requires_grad]
    configs = (getattr(module, "config", None) for module in model.modules())
    shape = next((shape for shape in map(_shape_of, configs) if shape is not None), {})
    dim = model.get_embedding_dimension() or 0
    return NetworkSize(
        n_parameters=sum(parameter.numel() for parameter in parameters),
        n_trainable=sum(trained),
        n_largest=max(trained, default=0),
        **({"hidden_dim": dim} | shape),
    )


def _shape_of(config: PretrainedConfig | None) -> dict[str, int] | None:
    shape = {}
    for name, theirs in _NAMES.items():
        value = next((getattr(config, their) for their in theirs if hasattr(config, their)), None)
        if not isinstance(value, int):
            return None
        shape[name] = value
    return shape


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"
