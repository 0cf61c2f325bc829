"""A network of transformers, computed by torch, and what is read off it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.networks.layer_pooling import SBERT_WK, LayerPooling
from isosent.networks.network import Network
from isosent.numeric.pooling import POOLINGS
from isosent.numeric.sbert_wk import sbert_wk


@dataclass(frozen=True, slots=True)
class _Names:
    """Where the parts stand in a network: the list of layers, and in a layer the fields of `LayerParts`."""

    layers: str
    query: str
    key: str
    value: str
    mix: str
    first_norm: str
    up: str
    activation: str
    down: str
    second_norm: str


_BERT = _Names(
    "encoder.layer",
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "intermediate.intermediate_act_fn",
    "output.dense",
    "output.LayerNorm",
)
_MPNET = _Names(
    "encoder.layer",
    "attention.attn.q",
    "attention.attn.k",
    "attention.attn.v",
    "attention.attn.o",
    "attention.LayerNorm",
    "intermediate.dense",
    "intermediate.intermediate_act_fn",
    "output.dense",
    "output.LayerNorm",
)
_DISTILBERT = _Names(
    "transformer.layer",
    "attention.q_lin",
    "attention.k_lin",
    "attention.v_lin",
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.activation",
    "ffn.lin2",
    "output_layer_norm",
)
_FAMILY = {
    "BertModel": _BERT,
    "RobertaModel": _BERT,
    "XLMRobertaModel": _BERT,
    "CamembertModel": _BERT,
    "ElectraModel": _BERT,
    "MPNetModel": _MPNET,
    "DistilBertModel": _DISTILBERT,
}


@dataclass(frozen=True, slots=True, eq=False)
class LayerParts:
    """A layer: attention, sum and normalization, feed-forward, sum and normalization."""

    query: Any  # products of the attention, and of the feed-forward
    key: Any  # products of the attention, and of the feed-forward
    value: Any  # products of the attention, and of the feed-forward
    mix: Any  # products of the attention, and of the feed-forward
    first_norm: Any  # normalizations behind the two
    up: Any  # products of the attention, and of the feed-forward
    activation: Any  # between `up` and `down`
    down: Any  # products of the attention, and of the feed-forward
    second_norm: Any  # normalizations behind the two

    @property
    def products(self) -> tuple[Any, ...]:
        """The linear layers, in their order."""
        return self.query, self.key, self.value, self.mix, self.up, self.down


def layer_parts(model: Any, n_layers: int) -> list[LayerParts] | None:
    """Take the layers of a network of transformers apart."""
    torch, kind, config = _extras.require("torch"), type(model), model.config
    names = _FAMILY.get(kind.__name__) if kind.__module__.startswith("transformers.") else None
    if names is None or getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", "absolute") not in (None, "absolute"):
        return None
    try:
        layers = list(attrgetter(names.layers)(model))
        found = [
            LayerParts(**{field: attrgetter(getattr(names, field))(layer) for field in LayerParts.__slots__})
            for layer in layers
        ]
    except AttributeError:
        return None
    return found if len(found) == n_layers and all(_is_plain(torch, parts) for parts in found) else None


def _is_plain(torch: Any, parts: LayerParts) -> bool:
    """Whether every part is what its name says, and no more, such as an adapter."""
    shapes = {each.weight.shape for each in (parts.query, parts.key, parts.value) if type(each) is torch.nn.Linear}
    return (
        len(shapes) == 1
        and all(type(each) is torch.nn.Linear and each.bias is not None for each in parts.products)
        and all(type(each) is torch.nn.LayerNorm for each in (parts.first_norm, parts.second_norm))
    )


Visit = Callable[[int, Any], None]


class _Enough(Exception):  # noqa: N818
    """Ends a pass: nothing above is wanted."""


class LayerTaps:
    """Watches the layers of a network of transformers."""

    # Layer 0 is what enters the first layer, layer k what the k-th one returns, and the last layer is the output of
    # the network, behind its final normalization where it has one: the ``hidden_states`` of transformers. Where that
    # does not hold for an architecture, which a run on two tokens tells, all hidden states are asked of the network
    # itself.

    def __init__(self, model: Any, n_layers: int) -> None:
        self._torch = _extras.require("torch")
        self._model = model
        self._n_layers = n_layers
        self._pass = threading.local()
        self._stack: list[Any] = []
        for stack in self._stacks():
            self._stack = stack
            hooks = [hook for module in stack for hook in self._hooked(module)]
            if self._agrees():
                break
            self._stack = []
            for hook in hooks:
                hook.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerTaps:
        """Return these: in a copy of the network their hooks do nothing."""
        return self

    @property
    def stops_early(self) -> bool:
        """Whether layers above the highest one wanted are left out."""
        return bool(self._stack)

    def run(self, input_ids: Any, attention_mask: Any, wanted: Collection[int], visit: Visit) -> None:
        """Run a batch through the network."""
        if not self._stack:
            self._run_whole(input_ids, attention_mask, wanted, visit)
            return
        highest = max(wanted)
        self._pass.visit, self._pass.wanted, self._pass.layer = visit, frozenset(wanted), 0
        self._pass.stop_at = highest if highest < self._n_layers else None
        try:
            output = self._call(input_ids, attention_mask)
        except _Enough:
            return
        finally:
            self._pass.visit = None
        visit(self._n_layers, output.last_hidden_state)

    def _run_whole(self, input_ids: Any, attention_mask: Any, wanted: Collection[int], visit: Visit) -> None:
        only_last = set(wanted) == {self._n_layers}
        output = self._call(input_ids, attention_mask, output_hidden_states=not only_last)
        states = () if only_last else output.hidden_states
        if not only_last and (states is None or len(states) != self._n_layers + 1):
            raise ValueError(f"{self._n_layers + 1} hidden states; got {0 if states is None else len(states)}")
        for layer in sorted(wanted):
            visit(layer, output.last_hidden_state if layer == self._n_layers else states[layer])

    def _call(self, input_ids: Any, attention_mask: Any, **asked: Any) -> Any:
        return self._model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **asked)

    def _stacks(self) -> list[list[Any]]:
        """Modules that may be called one after the other, once a layer: one for each, or the same one again."""
        lists = [list(part) for part in self._model.modules() if isinstance(part, self._torch.nn.ModuleList)]
        whole = [modules for modules in lists if len(modules) == self._n_layers]
        return sorted(whole or [modules for modules in lists if len(modules) == 1], key=_n_parameters, reverse=True)

    def _hooked(self, module: Any) -> list[Any]:
        return [
            module.register_forward_pre_hook(self._before, with_kwargs=True),
            module.register_forward_hook(self._after),
        ]

    def _before(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        visit = getattr(self._pass, "visit", None)
        if visit is None or self._pass.layer > 0:
            return
        self._see(0, args[0] if args else kwargs["hidden_states"])

    def _after(self, module: Any, args: tuple[Any, ...], output: Any) -> None:
        if getattr(self._pass, "visit", None) is None:
            return
        self._pass.layer += 1
        if self._pass.layer < self._n_layers:  # the last one is the output of the network
            self._see(self._pass.layer, output if self._torch.is_tensor(output) else output[0])

    def _see(self, layer: int, states: Any) -> None:
        if layer in self._pass.wanted:
            self._pass.visit(layer, states)
        if layer == self._pass.stop_at:
            raise _Enough

    def _agrees(self) -> bool:
        """Whether what is seen is what the network calls its hidden states, on a batch with padding."""
        torch, device = self._torch, self._model.device
        input_ids = torch.ones((2, 3), dtype=torch.int64, device=device)
        attention_mask = torch.tensor([[1, 1, 1], [1, 1, 0]], device=device)
        seen: dict[int, Any] = {}
        try:
            with torch.inference_mode():
                self.run(input_ids, attention_mask, range(self._n_layers + 1), seen.__setitem__)
                states = self._call(input_ids, attention_mask, output_hidden_states=True).hidden_states
        except (AttributeError, IndexError, KeyError, TypeError):
            return False
        return len(seen) == self._n_layers + 1 == len(states) and all(
            torch.is_tensor(seen[layer])
            and seen[layer].shape == states[layer].shape
            and torch.equal(seen[layer], states[layer])
            for layer in range(self._n_layers)
        )


def _n_parameters(modules: list[Any]) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


_CACHED_FUNCTIONS = "Dynamo detected a call to a `functools.lru_cache`"  # array_api_compat has them: no state


class Readout:
    """Pools hidden states as they come by, for several readings at once."""

    # Only pooled layers are kept, so that memory does not grow with their number; ``sbert_wk`` alone needs the hidden
    # states of its layers side by side.

    def __init__(self, layer_poolings: Sequence[LayerPooling], pooling_mask: Any) -> None:
        self._torch = _extras.require("torch")
        self._layer_poolings = layer_poolings
        self._mask = pooling_mask
        self._sums: dict[tuple[int, str], Any] = {}
        self._states: dict[int, Any] = {}

    def visit(self, layer: int, states: Any) -> None:
        """Take in the hidden states of a layer, of shape (n_texts, seq_len, dim)."""
        pooled: dict[str, Any] = {}
        for number, reading in enumerate(self._layer_poolings):
            weight = dict(reading.layers).get(layer)
            if weight is None:
                continue
            for name in reading.poolings:
                if name == SBERT_WK:
                    self._states[layer] = states
                    continue
                if name not in pooled:
                    pooled[name] = POOLINGS[name](states, self._mask)
                part = pooled[name] if weight == 1.0 else pooled[name] * weight
                key = (number, name)
                self._sums[key] = self._sums[key] + part if key in self._sums else part

    def vectors(self) -> list[Any]:
        """Return what was read: a tensor of shape (n_texts, width) for each reading."""
        return [
            self._torch.cat([self._part(number, reading, name) for name in reading.poolings], dim=1)
            for number, reading in enumerate(self._layer_poolings)
        ]

    def _part(self, number: int, reading: LayerPooling, name: str) -> Any:
        if name != SBERT_WK:
            return self._sums[number, name]
        return sbert_wk([self._states[layer] for layer, _ in sorted(reading.layers)], self._mask)


def layers_of(layer_poolings: Iterable[LayerPooling]) -> set[int]:
    """Layers that some readings need."""
    return {layer for reading in layer_poolings for layer, _ in reading.layers}


class Layers(Protocol):
    """What gives hidden states layer by layer: `LayerTaps` of any network, `UnpaddedLayers` of some."""

    def run(self, input_ids: Any, attention_mask: Any, wanted: Collection[int], visit: Visit) -> None:
        """Run a batch, and show the wanted layers."""


class TorchNetwork:
    """Computes batches with torch, layer by layer."""

    def __init__(self, layers: Layers, layer_poolings: Sequence[LayerPooling], *, device: Any) -> None:
        self._torch = _extras.require("torch")
        self._device = device
        self._layer_poolings = layer_poolings
        self._wanted = layers_of(layer_poolings)
        self._layers = layers

    def __call__(
        self,
        input_ids: NDArray[np.int64],
        attention_mask: NDArray[np.int64],
        pooling_mask: NDArray[np.int64],
    ) -> list[Any]:
        """Compute a batch."""
        ids, mask, pooled = (on_device(array, self._device) for array in (input_ids, attention_mask, pooling_mask))
        readout = Readout(self._layer_poolings, pooled)
        with self._torch.inference_mode():
            self._layers.run(ids, mask, self._wanted, readout.visit)
            return readout.vectors()


class CompiledNetwork:
    """Computes batches with what torch compiles of a network, for any number of texts of any length."""

    def __init__(self, network: Network, layer_poolings: Sequence[LayerPooling]) -> None:
        self._torch = _extras.require("torch")
        self._device = network.model.device
        self._compiled = self._torch.compile(traceable(network, layer_poolings), dynamic=True)

    def __call__(
        self,
        input_ids: NDArray[np.int64],
        attention_mask: NDArray[np.int64],
        pooling_mask: NDArray[np.int64],
    ) -> list[Any]:
        """Compute a batch; see `TorchNetwork`."""
        tensors = [on_device(array, self._device) for array in (input_ids, attention_mask, pooling_mask)]
        with self._torch.inference_mode(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", _CACHED_FUNCTIONS, UserWarning)
            return list(self._compiled(*tensors))


def on_device(array: NDArray[np.int64], device: Any) -> Any:
    """Bring an array to a device."""
    tensor = _extras.require("torch").from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def traceable(network: Network, layer_poolings: Sequence[LayerPooling]) -> Any:
    """Express a network with its readings as one module that torch can trace."""
    torch, wanted, n_layers = _extras.require("torch"), sorted(layers_of(layer_poolings)), network.n_layers

    class NetworkWithPoolings(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = network.model

        def forward(self, input_ids: Any, attention_mask: Any, pooling_mask: Any) -> tuple[Any, ...]:
            only_last = wanted == [n_layers]
            output = self.network(
                input_ids=input_ids,
                attention_mask=attention_mask,
                output_hidden_states=not only_last,
                return_dict=True,
            )
            readout = Readout(layer_poolings, pooling_mask)
            for layer in wanted:
                readout.visit(layer, output.last_hidden_state if layer == n_layers else output.hidden_states[layer])
            return tuple(readout.vectors())

    return NetworkWithPoolings().eval()
