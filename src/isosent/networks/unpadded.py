"""Layers of the BERT family on the CPU without padding, and matrices packed for the processor.

`layer_parts` finds the modules of each layer in a network that it knows. `UnpaddedLayers` computes them over the tokens
of a batch alone: every product takes the tokens of all texts (`_Layer`), and neighboring texts of one length share an
attention (`_LengthBatch`). When it is made, it compares its hidden states with those of the network on a small batch,
and refuses if they differ. `packed_product` is the product of both ways to use oneDNN; `packed` puts it into a network
of any other family, whose layers stay modules with hooks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from isosent import _extras
from isosent.networks.torch_backend import Visit
from isosent.storage import Storage

Product = Callable[[Any], Any]  # rows (n_rows, n_in) to (n_rows, n_out)
TOLERANCE: Mapping[str, float] = {Storage.float32: 1e-4, Storage.bfloat16: 5e-2}
_N_TRIAL_ROWS = 32
_SHORT = 16  # tokens; below that, two plain products are faster than torch's fused attention


class NotSupportedError(Exception):
    """The network is not of a kind that can be computed here."""


class UnpaddedLayers:
    """The layers of a network, computed over the tokens of a batch, one text after the other."""

    # Products see tokens only, and neighbouring texts of one length share one attention. Matrices are packed (see
    # `packed_product`), those of query, key and value as one. Fastest for texts sorted by length. For inference only.
    # The model stays as it is; its embeddings are shared.

    stops_early = True

    def __init__(self, model: Any, n_layers: int, dtype: str = Storage.float32) -> None:
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
            self._layers = [_Layer(each, dtype) for each in parts]
            if not self._agrees(model, n_layers, TOLERANCE[dtype]):
                raise NotSupportedError

    def run(self, input_ids: Any, attention_mask: Any, wanted: Collection[int], visit: Visit) -> None:
        """Run a batch and visit the wanted layers, from the lowest on; hidden states of padding are 0."""
        torch, shape = self._torch, input_ids.shape
        with torch.inference_mode():
            token_places = attention_mask.flatten().nonzero().squeeze(1)
            groups = self._groups(attention_mask)
            rows = self._embed(input_ids).flatten(0, 1)
            if len(token_places) < len(rows):
                rows = rows[token_places]
            for layer in range(max(wanted) + 1):
                if layer > 0 and len(token_places):
                    rows = self._layers[layer - 1].output(rows, partial(self._attention, groups=groups))
                if layer in wanted:
                    visit(layer, self._padded(rows, token_places, shape))

    def _embed(self, input_ids: Any) -> Any:
        embedded = self._embeddings(input_ids=input_ids)
        return (embedded if self._projection is None else self._projection(embedded)).to(self._dtype)

    def _padded(self, rows: Any, token_places: Any, shape: Any) -> Any:
        if len(token_places) == shape.numel():
            return rows.view(*shape, -1)
        padded = rows.new_zeros((shape.numel(), rows.shape[1]))
        padded[token_places] = rows
        return padded.view(*shape, -1)

    def _groups(self, attention_mask: Any) -> list[_LengthBatch]:
        """Neighboring texts of one length."""
        mask = attention_mask.numpy() != 0
        lengths = mask.sum(axis=1)
        is_first = np.diff(lengths, prepend=-1) != 0
        bias = None
        if self._position_bias is not None:
            bias = self._position_bias(attention_mask[:1])
            # Texts with gaps between their tokens have other relative positions.
            has_gaps = mask.argmax(axis=1) + lengths + mask[:, ::-1].argmax(axis=1) != mask.shape[1]
            is_first |= has_gaps | np.roll(has_gaps, 1)
        starts = np.flatnonzero(is_first)
        groups, begin = [], 0
        for start, stop in zip(starts, [*starts[1:], len(lengths)], strict=True):
            n_texts, length = int(stop - start), int(lengths[start])
            columns = np.flatnonzero(mask[start])
            if length:
                group_bias = None if bias is None else bias[:, :, columns[:, None], columns].to(self._dtype)
                groups.append(_LengthBatch(slice(begin, begin + n_texts * length), n_texts, length, group_bias))
            begin += n_texts * length
        return groups

    def _attention(self, rows: Any, *, groups: list[_LengthBatch]) -> Any:
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
        """Whether a small batch, padded here and there, gives the hidden states of the network itself."""
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
        is_token = mask == 1
        return len(states) == n_layers + 1 and all(
            (seen[layer].float() - expected)[is_token].abs().max() <= tolerance * expected[is_token].abs().max()
            for layer, expected in enumerate(states)
        )


class _LengthBatch(NamedTuple):
    """Neighboring texts of one length."""

    tokens: slice  # their rows
    n_texts: int
    length: int
    bias: Any  # relative positions, added to the attention scores; or None


class _Layer:
    """A layer applied to rows of tokens: attention and feed-forward, each with a residual sum and a normalization."""

    def __init__(self, modules: LayerParts, dtype: str) -> None:
        torch = _extras.require("torch")
        self.query_key_value = _product(torch, [modules.query, modules.key, modules.value], dtype)
        self.mix, self.up, self.down = (
            _product(torch, [each], dtype) for each in (modules.mix, modules.up, modules.down)
        )
        self.first_norm, self.second_norm = (
            _norm(torch, each, dtype) for each in (modules.first_norm, modules.second_norm)
        )
        # torch's gelu in place; other activations as they are
        is_gelu = getattr(modules.activation, "act", modules.activation) is torch.nn.functional.gelu
        self.activation: Product = torch.ops.aten.gelu_.default if is_gelu else modules.activation

    def output(self, rows: Any, attention: Callable[[Any], Any]) -> Any:
        rows = self.first_norm(self.mix(attention(self.query_key_value(rows))).add_(rows))
        return self.second_norm(self.down(self.activation(self.up(rows))).add_(rows))


def _product(torch: Any, linears: list[Any], dtype: str) -> Product:
    """One product for linear layers side by side."""
    weight, bias = (
        getattr(linears[0], name) if len(linears) == 1 else torch.cat([getattr(each, name) for each in linears])
        for name in ("weight", "bias")
    )
    weight, bias = (tensor.detach().to(getattr(torch, dtype)) for tensor in (weight, bias))
    return packed_product(weight, bias, dtype) or partial(torch.nn.functional.linear, weight=weight, bias=bias)


def _norm(torch: Any, norm: Any, dtype: str) -> Product:
    weight, bias = (
        None if each is None else each.detach().to(getattr(torch, dtype)) for each in (norm.weight, norm.bias)
    )
    return partial(
        torch.nn.functional.layer_norm, normalized_shape=norm.normalized_shape, weight=weight, bias=bias, eps=norm.eps
    )


class LayerParts(NamedTuple):
    """The modules of a layer: attention (query, key, value, mix, first_norm), feed-forward (up ... second_norm)."""

    query: Any
    key: Any
    value: Any
    mix: Any
    first_norm: Any
    up: Any
    activation: Any
    down: Any
    second_norm: Any


# Where the list of layers is in a network, and in a layer the fields of `LayerParts`. These names are private to
# transformers: pyproject.toml bounds its version, and `UnpaddedLayers` compares its output with the network's own.
_BERT = (
    *("encoder.layer", "attention.self.query", "attention.self.key", "attention.self.value"),
    *("attention.output.dense", "attention.output.LayerNorm"),
    *("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense", "output.LayerNorm"),
)
_MPNET = (
    *("encoder.layer", "attention.attn.q", "attention.attn.k", "attention.attn.v"),
    *("attention.attn.o", "attention.LayerNorm"),
    *("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense", "output.LayerNorm"),
)
_DISTILBERT = (
    *("transformer.layer", "attention.q_lin", "attention.k_lin", "attention.v_lin"),
    *("attention.out_lin", "sa_layer_norm"),
    *("ffn.lin1", "ffn.activation", "ffn.lin2", "output_layer_norm"),
)
_PATHS = dict.fromkeys(("BertModel", "RobertaModel", "XLMRobertaModel", "CamembertModel", "ElectraModel"), _BERT)
_PATHS |= {"MPNetModel": _MPNET, "DistilBertModel": _DISTILBERT}


def layer_parts(model: Any, n_layers: int) -> list[LayerParts] | None:
    """The modules of each layer; None if the network is of another family or holds something else, such as adapters."""
    torch, kind, config = _extras.require("torch"), type(model), model.config
    paths = _PATHS.get(kind.__name__) if kind.__module__.startswith("transformers.") else None
    if paths is None or getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", "absolute") not in (None, "absolute"):
        return None
    try:
        layers = attrgetter(paths[0])(model)
        parts = [LayerParts(*(attrgetter(path)(layer) for path in paths[1:])) for layer in layers]
    except AttributeError:
        return None
    return parts if len(parts) == n_layers and all(_is_standard(torch, each) for each in parts) else None


def _is_standard(torch: Any, modules: LayerParts) -> bool:
    linears = (modules.query, modules.key, modules.value, modules.mix, modules.up, modules.down)
    return (
        all(type(each) is torch.nn.Linear and each.bias is not None for each in linears)
        and modules.query.weight.shape == modules.key.weight.shape == modules.value.weight.shape
        and all(type(each) is torch.nn.LayerNorm for each in (modules.first_norm, modules.second_norm))
    )


def packed(model: Any, dtype: str = Storage.float32) -> Any:
    """A copy of a transformers network on the CPU whose matrices are packed; its layers stay modules with hooks."""
    # In float32 it shares every parameter with `model`. No gradient passes through it. A network with a step that does
    # not exist in bfloat16 (the Fourier transform of FNet) stays in float32. Call this before hooks are set on `model`.
    torch, transformers = _extras.require("torch"), _extras.require("transformers")
    tensors = chain(model.parameters(), model.buffers())
    twin = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    if dtype == Storage.bfloat16:
        lower = _in_bfloat16(torch, twin)
        twin, dtype = (lower, dtype) if _runs(torch, lower) else (twin, Storage.float32)
    for module in twin.modules():
        if type(module) is torch.nn.Linear:
            weight = module.weight
        elif type(module) is transformers.pytorch_utils.Conv1D:
            weight = module.weight.t()
        else:
            continue
        product = packed_product(weight, module.bias, dtype)
        if product is not None:
            module.forward = partial(_forward, torch.is_grad_enabled, product, module.forward)
    return twin


def _in_bfloat16(torch: Any, twin: Any) -> Any:
    """A copy in bfloat16 with separate tensors: a conversion in place would change the shared ones."""
    memo: dict[int, Any] = {}
    for tensor in chain(twin.parameters(), twin.buffers()):
        converted = tensor.detach().to(torch.bfloat16) if tensor.is_floating_point() else tensor
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        memo[id(tensor)] = torch.nn.Parameter(converted, requires_grad=False) if is_parameter else converted
    return copy.deepcopy(twin, memo)


def _runs(torch: Any, model: Any) -> bool:
    one = torch.ones((1, 1), dtype=torch.int64)
    try:
        with torch.inference_mode():
            model(input_ids=one, attention_mask=one)
    except RuntimeError:
        return False
    return True


def packed_product(weight: Any, bias: Any, dtype: str) -> Product | None:
    """``rows @ weight.T + bias`` for at least one row, weight (n_out, n_in); None if this torch cannot do it right."""
    # oneDNN stores a matrix in blocks that suit the processor and uses the fastest instructions of any maker, which
    # the library behind torch's own products does not on every processor. A packed matrix takes its size in memory
    # again; embeddings, more than half of a small network, are not packed. The operations are private to torch, so
    # they are tried on a few rows first.
    torch = _extras.require("torch")
    try:
        with torch.inference_mode():
            operations = _operations(torch)
            operation = operations._linear_pointwise.default
            packed_weight = operations._reorder_linear_weight(weight.detach().contiguous())

            def product(rows: Any) -> Any:
                return operation(rows, packed_weight, bias, "none", [], "")

            rows = torch.linspace(-1, 1, _N_TRIAL_ROWS * weight.shape[1], dtype=weight.dtype).view(_N_TRIAL_ROWS, -1)
            expected = torch.nn.functional.linear(rows, weight, bias)
            scale = expected.abs().max().clamp(min=1e-6)
            error = (product(rows) - expected).abs().max() / scale
    except (RuntimeError, AttributeError, TypeError, NotImplementedError):
        return None
    return product if error <= TOLERANCE[dtype] else None


def _operations(torch: Any) -> Any:
    return torch.ops.mkldnn


def _forward(is_grad_enabled: Callable[[], bool], product: Product, plain: Product, rows: Any) -> Any:
    """Output of a linear layer; training and empty batches use torch's own product."""
    return plain(rows) if is_grad_enabled() or rows.numel() == 0 else product(rows)
