"""A network of transformers, computed by torch, and what is read off it."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.network.loading import Network
from isosent.network.reading import SBERT_WK, Reading
from isosent.network.taps import Visit
from isosent.numeric.pooling import POOLINGS
from isosent.numeric.sbert_wk import sbert_wk

_CACHED_FUNCTIONS = "Dynamo detected a call to a `functools.lru_cache`"  # array_api_compat has them: no state


class Readout:
    """Pools hidden states as they come by, for several readings at once.

    Parameters
    ----------
    readings : sequence of Reading
        What is wanted.
    pooling_mask : tensor of shape (n_texts, seq_len), int64
        1 for a token that is pooled.

    Notes
    -----
    Only pooled layers are kept, so that memory does not grow with their number; ``sbert_wk`` alone needs the hidden
    states of its layers side by side.
    """

    def __init__(self, readings: Sequence[Reading], pooling_mask: Any) -> None:
        self._torch = _extras.require("torch")
        self._readings = readings
        self._mask = pooling_mask
        self._sums: dict[tuple[int, str], Any] = {}
        self._states: dict[int, Any] = {}

    def visit(self, layer: int, states: Any) -> None:
        """Take in the hidden states of a layer, of shape (n_texts, seq_len, dim)."""
        pooled: dict[str, Any] = {}
        for number, reading in enumerate(self._readings):
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
            for number, reading in enumerate(self._readings)
        ]

    def _part(self, number: int, reading: Reading, name: str) -> Any:
        if name != SBERT_WK:
            return self._sums[number, name]
        return sbert_wk([self._states[layer] for layer, _ in sorted(reading.layers)], self._mask)


def layers_of(readings: Iterable[Reading]) -> set[int]:
    """Layers that some readings need.

    Parameters
    ----------
    readings : iterable of Reading
        The readings.

    Returns
    -------
    set of int
        Every layer of any of them.
    """
    return {layer for reading in readings for layer, _ in reading.layers}


class Layers(Protocol):
    """What gives hidden states layer by layer: `LayerTaps` of any network, `UnpaddedLayers` of some."""

    def run(self, input_ids: Any, attention_mask: Any, wanted: Collection[int], visit: Visit) -> None:
        """Run a batch, and show the wanted layers."""


class TorchNetwork:
    """Computes batches with torch, layer by layer.

    Parameters
    ----------
    layers : Layers
        Those of the network.
    readings : sequence of Reading
        What is wanted of each batch.
    device : torch.device
        Where the network is.
    """

    def __init__(self, layers: Layers, readings: Sequence[Reading], *, device: Any) -> None:
        self._torch = _extras.require("torch")
        self._device = device
        self._readings = readings
        self._wanted = layers_of(readings)
        self._layers = layers

    def __call__(
        self,
        input_ids: NDArray[np.int64],
        attention_mask: NDArray[np.int64],
        pooling_mask: NDArray[np.int64],
    ) -> list[Any]:
        """Compute a batch.

        Parameters
        ----------
        input_ids, attention_mask, pooling_mask : ndarray of shape (n_texts, seq_len), int64
            Tokens; 1 where there is one, and where it is pooled.

        Returns
        -------
        list of tensor of shape (n_texts, width), float32
            One a reading, on the device.
        """
        ids, mask, pooled = (on_device(array, self._device) for array in (input_ids, attention_mask, pooling_mask))
        readout = Readout(self._readings, pooled)
        with self._torch.inference_mode():
            self._layers.run(ids, mask, self._wanted, readout.visit)
            return readout.vectors()


class CompiledNetwork:
    """Computes batches with what torch compiles of a network, for any number of texts of any length.

    Parameters
    ----------
    network : Network
        The network, on its device and in its number type.
    readings : sequence of Reading
        What is wanted of each batch.
    """

    def __init__(self, network: Network, readings: Sequence[Reading]) -> None:
        self._torch = _extras.require("torch")
        self._device = network.model.device
        self._compiled = self._torch.compile(traceable(network, readings), dynamic=True)

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
    """Bring an array to a device.

    Parameters
    ----------
    array : ndarray
        Any.
    device : torch.device
        Where to. A GPU is not waited for.

    Returns
    -------
    tensor
        There.
    """
    tensor = _extras.require("torch").from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def traceable(network: Network, readings: Sequence[Reading]) -> Any:
    """Express a network with its readings as one module that torch can trace.

    Parameters
    ----------
    network : Network
        The network.
    readings : sequence of Reading
        What is wanted.

    Returns
    -------
    torch.nn.Module
        From ``input_ids``, ``attention_mask`` and ``pooling_mask``, each (n_texts, seq_len) int64, to a tuple of
        tensors, one a reading. A graph of it holds no layer above the highest one wanted.
    """
    torch, wanted, n_layers = _extras.require("torch"), sorted(layers_of(readings)), network.n_layers

    class NetworkWithReadings(torch.nn.Module):  # type: ignore[misc, name-defined]
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
            readout = Readout(readings, pooling_mask)
            for layer in wanted:
                readout.visit(layer, output.last_hidden_state if layer == n_layers else output.hidden_states[layer])
            return tuple(readout.vectors())

    return NetworkWithReadings().eval()
