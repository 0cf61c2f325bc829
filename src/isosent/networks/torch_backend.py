"""Compute pooled layers of a transformer with torch, layer by layer or compiled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.networks.layer_pooling import SBERT_WK, TOKENS, LayerPooling, layers_of, sbert_wk
from isosent.networks.pooling import POOLINGS, visible_states

_POOL = {**POOLINGS, TOKENS: visible_states}

Visit = Callable[[int, Any], None]  # a layer, and its hidden states of shape (n_texts, seq_len, dim)


class Layers(Protocol):
    """The layers of a network: `LayerTaps` for any network, `UnpaddedLayers` for some."""

    def run(self, input_ids: Any, attention_mask: Any, wanted: Collection[int], visit: Visit) -> None:
        """Run a batch and visit the wanted layers, from the lowest on."""


class TorchNetwork:
    """A backend: runs the layers of a network and pools them as they appear."""

    def __init__(self, layers: Layers, layer_poolings: Sequence[LayerPooling], *, device: Any) -> None:
        self._torch = _extras.require("torch")
        self._layers = layers
        self._layer_poolings = layer_poolings
        self._wanted = layers_of(layer_poolings)
        self._device = device

    def __call__(
        self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64], pooling_mask: NDArray[np.int64]
    ) -> list[Any]:
        """Vectors of a batch, one tensor (n_texts, width) per layer pooling, on the device."""
        ids, mask, pooled = (_on_device(array, self._device) for array in (input_ids, attention_mask, pooling_mask))
        readout = Readout(self._layer_poolings, pooled)
        with self._torch.inference_mode():
            self._layers.run(ids, mask, self._wanted, readout.visit)
            return readout.vectors()


class CompiledNetwork:
    """A backend: what torch compiles from a network, once for batches of every shape."""

    def __init__(self, model: Any, n_layers: int, layer_poolings: Sequence[LayerPooling]) -> None:
        self._torch = _extras.require("torch")
        self._device = model.device
        self._compiled = self._torch.compile(traceable(model, n_layers, layer_poolings), dynamic=True)

    def __call__(
        self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64], pooling_mask: NDArray[np.int64]
    ) -> list[Any]:
        """Vectors of a batch, as `TorchNetwork` returns them."""
        tensors = [_on_device(array, self._device) for array in (input_ids, attention_mask, pooling_mask)]
        with self._torch.inference_mode():
            return list(self._compiled(*tensors))


def _on_device(array: NDArray[np.int64], device: Any) -> Any:
    """Copy an array to a device, without waiting for a GPU."""
    tensor = _extras.require("torch").from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def traceable(model: Any, n_layers: int, layer_poolings: Sequence[LayerPooling]) -> Any:
    """One torch module from ``input_ids, attention_mask, pooling_mask`` to a tuple of vectors, for graphs."""
    torch, wanted = _extras.require("torch"), sorted(layers_of(layer_poolings))

    class NetworkWithPoolings(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = model

        def forward(self, input_ids: Any, attention_mask: Any, pooling_mask: Any) -> tuple[Any, ...]:
            output = self.network(
                input_ids=input_ids,
                attention_mask=attention_mask,
                output_hidden_states=wanted != [n_layers],
                return_dict=True,
            )
            readout = Readout(layer_poolings, pooling_mask)
            for layer in wanted:  # a graph then holds no layer above the highest one wanted
                readout.visit(layer, output.last_hidden_state if layer == n_layers else output.hidden_states[layer])
            return tuple(readout.vectors())

    return NetworkWithPoolings().eval()


class Readout:
    """Pools hidden states as they appear, for several layer poolings at once."""

    # Only pooled layers are kept, so memory does not grow with their number. sbert_wk alone needs the hidden states of
    # its layers side by side.

    def __init__(self, layer_poolings: Sequence[LayerPooling], pooling_mask: Any) -> None:
        self._torch = _extras.require("torch")
        self._layer_poolings = layer_poolings
        self._mask = pooling_mask
        self._sums: dict[tuple[int, str], Any] = {}
        self._states: dict[int, Any] = {}

    def visit(self, layer: int, states: Any) -> None:
        """Pool the hidden states of a layer, of shape (n_texts, seq_len, dim)."""
        pooled: dict[str, Any] = {}
        for number, layer_pooling in enumerate(self._layer_poolings):
            weight = dict(layer_pooling.layers).get(layer)
            if weight is None:
                continue
            for name in layer_pooling.poolings:
                if name == SBERT_WK:
                    self._states[layer] = states
                    continue
                if name not in pooled:
                    pooled[name] = _POOL[name](states, self._mask)
                part = pooled[name] if weight == 1.0 else pooled[name] * weight
                key = (number, name)
                self._sums[key] = self._sums[key] + part if key in self._sums else part

    def vectors(self) -> list[Any]:
        """One tensor of shape (n_texts, width) per layer pooling."""
        return [
            self._torch.cat([self._part(number, layer_pooling, name) for name in layer_pooling.poolings], dim=1)
            for number, layer_pooling in enumerate(self._layer_poolings)
        ]

    def _part(self, number: int, layer_pooling: LayerPooling, name: str) -> Any:
        if name != SBERT_WK:
            return self._sums[number, name]
        return sbert_wk([self._states[layer] for layer, _ in sorted(layer_pooling.layers)], self._mask)


class LayerTaps:
    """Hooks that see the layers of any transformers network while it runs, and stop it above the highest wanted."""

    # Layer 0 is the input of the first layer, layer k the output of the k-th, and the last layer the output of the
    # network, after its final normalization if it has one: the hidden_states of transformers. If a run on two short
    # texts shows that this does not hold for an architecture, the network itself is asked for all hidden states. The
    # hooks stay on the network and do nothing outside of `run`.

    def __init__(self, model: Any, n_layers: int) -> None:
        self._torch = _extras.require("torch")
        self._model = model
        self._n_layers = n_layers
        self._pass = threading.local()  # of this thread: visit, wanted, the layer reached and the one to stop at
        self._stack: list[Any] = []
        for stack in self._candidate_stacks():
            self._stack = stack
            hooks = [
                hook
                for module in stack
                for hook in (
                    module.register_forward_pre_hook(self._before, with_kwargs=True),
                    module.register_forward_hook(self._after),
                )
            ]
            if self._agrees():
                break
            self._stack = []
            for hook in hooks:
                hook.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerTaps:
        """Return this object: the hooks in a copy of the network do nothing."""
        return self

    @property
    def stops_early(self) -> bool:
        """Whether layers above the highest one wanted are not computed."""
        return bool(self._stack)

    def run(self, input_ids: Any, attention_mask: Any, wanted: Collection[int], visit: Visit) -> None:
        """Run a batch and visit the wanted layers, from the lowest on."""
        if not self._stack:
            self._run_without_hooks(input_ids, attention_mask, wanted, visit)
            return
        highest = max(wanted)
        self._pass.visit, self._pass.wanted, self._pass.layer = visit, frozenset(wanted), 0
        self._pass.stop_at = highest if highest < self._n_layers else None
        try:
            output = self._call(input_ids, attention_mask)
        except _StopPassError:
            return
        finally:
            self._pass.visit = None
        visit(self._n_layers, output.last_hidden_state)

    def _run_without_hooks(self, input_ids: Any, attention_mask: Any, wanted: Collection[int], visit: Visit) -> None:
        only_last = set(wanted) == {self._n_layers}
        output = self._call(input_ids, attention_mask, output_hidden_states=not only_last)
        states = () if only_last else output.hidden_states
        if not only_last and (states is None or len(states) != self._n_layers + 1):
            n_states = 0 if states is None else len(states)
            raise ValueError(f"The network must return {self._n_layers + 1} hidden states; got {n_states}.")
        for layer in sorted(wanted):
            visit(layer, output.last_hidden_state if layer == self._n_layers else states[layer])

    def _call(self, input_ids: Any, attention_mask: Any, **options: Any) -> Any:
        return self._model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **options)

    def _candidate_stacks(self) -> list[list[Any]]:
        """Module lists that may be the layers, largest first: one module per layer, or one that is used repeatedly."""
        lists = [list(part) for part in self._model.modules() if isinstance(part, self._torch.nn.ModuleList)]
        full = [modules for modules in lists if len(modules) == self._n_layers]
        return sorted(full or [modules for modules in lists if len(modules) == 1], key=_n_parameters, reverse=True)

    def _before(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if getattr(self._pass, "visit", None) is not None and self._pass.layer == 0:
            self._see(0, args[0] if args else kwargs["hidden_states"])

    def _after(self, module: Any, args: tuple[Any, ...], output: Any) -> None:
        if getattr(self._pass, "visit", None) is None:
            return
        self._pass.layer += 1
        if self._pass.layer < self._n_layers:  # the last layer is the output of the network
            self._see(self._pass.layer, output if self._torch.is_tensor(output) else output[0])

    def _see(self, layer: int, states: Any) -> None:
        if layer in self._pass.wanted:
            self._pass.visit(layer, states)
        if layer == self._pass.stop_at:
            raise _StopPassError

    def _agrees(self) -> bool:
        """Whether the hooks see what the network returns as its hidden states, on a batch with padding."""
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


class _StopPassError(Exception):
    """Ends a pass: no layer above is wanted."""


def _n_parameters(modules: list[Any]) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
