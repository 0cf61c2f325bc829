"""Networks of the BERT family on the CPU, computed over the tokens of a batch without its padding."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from isosent import _extras
from isosent.networks.torch_backend import LayerParts, Visit, layer_parts

Product = Callable[[Any], Any]
_ROWS_TO_TRY = 32
TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}


def packed(model: Any, dtype: str = "float32") -> Any:
    """Prepare a network of transformers for inference on the CPU."""
    # oneDNN keeps each matrix in blocks that suit the processor and takes the fastest instructions of any maker,
    # which the library behind torch's own products does not on every processor. A packed matrix takes its own size
    # again; embeddings, more than half of a small network, are not packed. Where this torch has no such product, or
    # it refuses a matrix or gives something else, the plain one stays, silently; a network with a step that does not
    # exist in bfloat16 (the Fourier transform of FNet) stays in float32. To be called before hooks are set on
    # `model`.
    torch = _extras.require("torch")
    tensors = chain(model.parameters(), model.buffers())
    twin = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    if dtype == "bfloat16":
        lower = _in_bfloat16(torch, twin)
        twin, dtype = (lower, dtype) if _runs(torch, lower) else (twin, "float32")
    for module in twin.modules():
        weight = _weight(torch, module)
        product = None if weight is None else packed_product(weight, module.bias, dtype)
        if product is not None:
            module.forward = partial(_forward, torch.is_grad_enabled, product, module.forward)
    return twin


def _in_bfloat16(torch: Any, twin: Any) -> Any:
    """The network in bfloat16 with tensors of its own: converting in place would reach the shared ones."""
    tensors = chain(twin.parameters(), twin.buffers())
    memo: dict[int, Any] = {}
    for tensor in tensors:
        converted = tensor.detach().to(torch.bfloat16) if tensor.is_floating_point() else tensor
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        memo[id(tensor)] = torch.nn.Parameter(converted, requires_grad=False) if is_parameter else converted
    return copy.deepcopy(twin, memo)


def _runs(torch: Any, twin: Any) -> bool:
    """Whether a network computes a text at all: not every step of every architecture exists in bfloat16."""
    one = torch.ones((1, 1), dtype=torch.int64)
    try:
        with torch.inference_mode():
            twin(input_ids=one, attention_mask=one)
    except RuntimeError:
        return False
    return True


def _weight(torch: Any, module: Any) -> Any:
    """Matrix of shape (n_out, n_in) of a linear layer in either spelling, None of anything else."""
    if type(module) is torch.nn.Linear:
        return module.weight
    transformers = _extras.require("transformers")
    return module.weight.t() if type(module) is transformers.pytorch_utils.Conv1D else None


def _operations(torch: Any) -> Any:
    """The private operations of torch that the products need."""
    return torch.ops.mkldnn


def packed_product(weight: Any, bias: Any, dtype: str) -> Product | None:
    """Pack a matrix."""
    torch = _extras.require("torch")
    try:
        with torch.inference_mode():
            operations = _operations(torch)
            operation = operations._linear_pointwise.default
            packed_weight = operations._reorder_linear_weight(weight.detach().contiguous())

            def product(rows: Any) -> Any:
                return operation(rows, packed_weight, bias, "none", [], "")

            rows = torch.linspace(-1, 1, _ROWS_TO_TRY * weight.shape[1], dtype=weight.dtype).view(_ROWS_TO_TRY, -1)
            expected = torch.nn.functional.linear(rows, weight, bias)
            scale = expected.abs().max().clamp(min=1e-6)
            error = (product(rows) - expected).abs().max() / scale
    except (RuntimeError, AttributeError, TypeError, NotImplementedError):
        return None
    return product if error <= TOLERANCE[dtype] else None


def _forward(grad_is_wanted: Callable[[], bool], product: Product, plain: Product, rows: Any) -> Any:
    """Output of a linear layer; an empty batch and training go the plain way."""
    return plain(rows) if grad_is_wanted() or rows.numel() == 0 else product(rows)


_SHORT = 16


class NotSupportedError(Exception):
    """The network is of no kind that is computed here."""


class UnpaddedLayers:
    """Computes the layers of a network over the tokens of a batch, one text behind the other."""

    # Products see tokens only; the attention of neighbouring texts of one length is one operation. Matrices are
    # packed, see `packed`, those of query, key and value as one. For inference only.

    stops_early = True

    def __init__(self, model: Any, n_layers: int, dtype: str = "float32") -> None:
        self._torch = _extras.require("torch")
        parts = layer_parts(model, n_layers)
        n_heads = getattr(model.config, "num_attention_heads", 0)
        if parts is None or n_heads < 1 or parts[0].query.out_features % n_heads:
            raise NotSupportedError
        self._dtype = getattr(self._torch, dtype)
        self._n_heads = n_heads
        self._embeddings = model.embeddings
        self._projection = getattr(model, "embeddings_project", None)
        self._position_bias = getattr(getattr(model, "encoder", None), "compute_position_bias", None)
        with self._torch.inference_mode():
            self._layers = [_Layer.of(each, dtype) for each in parts]
            if not self._agrees(model, n_layers, TOLERANCE[dtype]):
                raise NotSupportedError

    def run(self, input_ids: Any, attention_mask: Any, wanted: Collection[int], visit: Visit) -> None:
        """Run a batch through the network."""
        torch, shape = self._torch, input_ids.shape
        with torch.inference_mode():
            places = attention_mask.flatten().nonzero().squeeze(1)
            groups = self._groups(attention_mask)
            rows = self._embedded(input_ids).flatten(0, 1)
            if len(places) < len(rows):
                rows = rows[places]
            for layer in range(max(wanted) + 1):
                if layer > 0 and len(places):
                    rows = self._layers[layer - 1].output(rows, partial(self._attention, groups=groups))
                if layer in wanted:
                    visit(layer, self._padded(rows, places, shape))

    def _embedded(self, input_ids: Any) -> Any:
        embedded = self._embeddings(input_ids=input_ids)
        return (embedded if self._projection is None else self._projection(embedded)).to(self._dtype)

    def _padded(self, rows: Any, places: Any, shape: Any) -> Any:
        if len(places) == shape.numel():
            return rows.view(*shape, -1)
        whole = rows.new_zeros((shape.numel(), rows.shape[1]))
        whole[places] = rows
        return whole.view(*shape, -1)

    def _groups(self, attention_mask: Any) -> list[_Group]:
        """Neighbouring texts of one length."""
        mask = attention_mask.numpy() != 0
        lengths = mask.sum(axis=1)
        is_first = np.diff(lengths, prepend=-1) != 0
        bias = None
        if self._position_bias is not None:
            bias = self._position_bias(attention_mask[:1])
            has_gaps = mask.argmax(axis=1) + lengths + mask[:, ::-1].argmax(axis=1) != mask.shape[1]
            is_first |= has_gaps | np.roll(has_gaps, 1)
        starts = np.flatnonzero(is_first)
        groups, begin = [], 0
        for start, stop in zip(starts, [*starts[1:], len(lengths)], strict=True):
            n_texts, length = int(stop - start), int(lengths[start])
            columns = np.flatnonzero(mask[start])
            if length:
                own = None if bias is None else bias[:, :, columns[:, None], columns].to(self._dtype)
                groups.append(_Group(slice(begin, begin + n_texts * length), n_texts, length, own))
            begin += n_texts * length
        return groups

    def _attention(self, rows: Any, *, groups: list[_Group]) -> Any:
        """From queries, keys and values side by side, shape (n_tokens, 3 dim), to (n_tokens, dim)."""
        torch, dim = self._torch, rows.shape[1] // 3
        result = rows.new_empty((len(rows), dim))
        for group in groups:
            shape = (group.n_texts, group.length, 3, self._n_heads, dim // self._n_heads)
            query, key, value = rows[group.tokens].view(shape).permute(2, 0, 3, 1, 4)
            if group.length < _SHORT:
                scores = torch.matmul(query * shape[-1] ** -0.5, key.transpose(-1, -2))
                scores = scores if group.bias is None else scores.add_(group.bias)
                mixed = torch.matmul(scores.softmax(-1), value)
            else:
                mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=group.bias)
            result[group.tokens].view(shape[0], shape[1], *shape[3:]).copy_(mixed.transpose(1, 2))
        return result

    def _agrees(self, model: Any, n_layers: int, tolerance: float) -> bool:
        """Whether a small batch with padding here and there comes out as from the network itself."""
        torch = self._torch
        mask = torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0], [1, 0, 1, 1, 0, 0]])
        ids = torch.arange(1, mask.numel() + 1).view(mask.shape) * 7919 % model.config.vocab_size
        seen: dict[int, Any] = {}
        try:
            self.run(ids, mask, range(n_layers + 1), seen.__setitem__)
            output = model(input_ids=ids, attention_mask=mask, output_hidden_states=True, return_dict=True)
        except (IndexError, RuntimeError):
            return False
        states = [*output.hidden_states[:n_layers], output.last_hidden_state]
        of_tokens = mask == 1
        return len(states) == n_layers + 1 and all(
            (seen[layer].float() - expected)[of_tokens].abs().max() <= tolerance * expected[of_tokens].abs().max()
            for layer, expected in enumerate(states)
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Neighbouring texts of one length: where their tokens are, and what is added to their scores, if anything."""

    tokens: slice
    n_texts: int
    length: int
    bias: Any


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """What a layer does to rows of tokens."""

    query_key_value: Product
    mix: Product
    first_norm: Product
    up: Product
    activation: Product
    down: Product
    second_norm: Product

    @classmethod
    def of(cls, parts: LayerParts, dtype: str) -> _Layer:
        torch = _extras.require("torch")
        return cls(
            _product(torch, [parts.query, parts.key, parts.value], dtype),
            _product(torch, [parts.mix], dtype),
            _norm(torch, parts.first_norm, dtype),
            _product(torch, [parts.up], dtype),
            _activation(torch, parts.activation),
            _product(torch, [parts.down], dtype),
            _norm(torch, parts.second_norm, dtype),
        )

    def output(self, rows: Any, attention: Callable[[Any], Any]) -> Any:
        rows = self.first_norm(self.mix(attention(self.query_key_value(rows))).add_(rows))
        return self.second_norm(self.down(self.activation(self.up(rows))).add_(rows))


def _product(torch: Any, linears: list[Any], dtype: str) -> Product:
    """One product for linear layers side by side."""
    low = getattr(torch, dtype)
    weight, bias = (
        getattr(linears[0], name) if len(linears) == 1 else torch.cat([getattr(each, name) for each in linears])
        for name in ("weight", "bias")
    )
    weight, bias = weight.detach().to(low), bias.detach().to(low)
    return packed_product(weight, bias, dtype) or partial(torch.nn.functional.linear, weight=weight, bias=bias)


def _norm(torch: Any, norm: Any, dtype: str) -> Product:
    low = getattr(torch, dtype)
    weight, bias = (None if each is None else each.detach().to(low) for each in (norm.weight, norm.bias))
    return partial(
        torch.nn.functional.layer_norm, normalized_shape=norm.normalized_shape, weight=weight, bias=bias, eps=norm.eps
    )


def _activation(torch: Any, activation: Any) -> Product:
    """The same, in place where it is the common one."""
    is_gelu = getattr(activation, "act", activation) is torch.nn.functional.gelu
    in_place: Product = torch.ops.aten.gelu_.default
    return in_place if is_gelu else activation
