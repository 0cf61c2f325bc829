"""From a network and a runtime to what computes it."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from isosent import _extras
from isosent.errors import InputError
from isosent.networks.batching import Backend, Computing, share_of_threads
from isosent.networks.layer_pooling import LayerPooling
from isosent.networks.network import AUTO, COMPILED, ONNX, TORCH, Network, Runtime
from isosent.networks.onnx_backend import OnnxBackend
from isosent.networks.torch_backend import CompiledNetwork, Layers, LayerTaps, TorchNetwork, traceable
from isosent.networks.unpadded import NotSupportedError, UnpaddedLayers, packed

_CPU_BUDGET, _GPU_BUDGET = 1024, 32768


def computing_of(
    network: Network, layer_poolings: Sequence[LayerPooling], runtime: Runtime, *, key: Callable[[], str]
) -> Computing:
    """Make ready what computes some readings of a network."""
    devices = _devices(runtime)
    backend = chosen_backend(runtime)
    widths = [reading.width(network.dim) for reading in layer_poolings]
    if devices != ["cpu"]:
        on_gpus = [_on_gpu(network, layer_poolings, runtime, device) for device in devices]
        return Computing(on_gpus, widths, runtime.batch_tokens or _GPU_BUDGET)
    budget = runtime.batch_tokens or _CPU_BUDGET
    if backend == COMPILED:
        return Computing([CompiledNetwork(_in_dtype(network, runtime.dtype, "cpu"), layer_poolings)], widths, budget)
    n_workers, threads_each = share_of_threads()
    if backend == ONNX:
        name = hashlib.sha256(f"{key()} {layer_poolings}".encode()).hexdigest()
        on_cpu: Backend = OnnxBackend(
            traceable(network, layer_poolings), name, dtype=runtime.dtype, n_threads=threads_each
        )
        return Computing([on_cpu] * n_workers, widths, budget)
    on_cpu = TorchNetwork(_layers(network, runtime.dtype, "cpu"), layer_poolings, device=network.model.device)
    return Computing([on_cpu] * n_workers, widths, budget, threads_each=threads_each)


def chosen_backend(runtime: Runtime) -> str:
    """Say what ``backend=auto`` takes."""
    if runtime.backend != AUTO:
        return runtime.backend
    return ONNX if runtime.dtype == "int8" else TORCH


def check_devices(runtime: Runtime) -> None:
    """Refuse devices that are not there, before anything is loaded."""
    torch = _extras.require("torch")
    for device in _devices(runtime):
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = (str(error).strip() or "-").splitlines()[0]
            raise InputError(f"hf: devices must be ones that torch reaches; got {device}: {reason}") from error


def _devices(runtime: Runtime) -> list[str]:
    torch = _extras.require("torch")
    if runtime.devices == AUTO:
        on_gpu = torch.cuda.is_available() and chosen_backend(runtime) in (TORCH, COMPILED)
        named = ["cuda"] if on_gpu else ["cpu"]
    else:
        named = runtime.devices.split(",")
    if "cpu" in named and runtime.dtype == "float16":
        raise InputError("dtype float16 goes with a GPU; got devices cpu. Take float32, or bfloat16.")
    return named


def _on_gpu(network: Network, layer_poolings: Sequence[LayerPooling], runtime: Runtime, device: str) -> Backend:
    if runtime.backend == COMPILED:
        return CompiledNetwork(_in_dtype(network, runtime.dtype, device), layer_poolings)
    layers = _layers(network, runtime.dtype, device)
    return TorchNetwork(layers, layer_poolings, device=_extras.require("torch").device(device))


def _layers(network: Network, dtype: str, device: str) -> Layers:
    """Layers of a network made ready for a device, once for all that is read off them."""
    if (device, dtype) not in network.prepared:
        network.prepared[device, dtype] = _prepared(network, dtype, device)
    layers: Layers = network.prepared[device, dtype]
    return layers


def _prepared(network: Network, dtype: str, device: str) -> Layers:
    if device != "cpu":
        return LayerTaps(_in_dtype(network, dtype, device).model, network.n_layers)
    try:
        return UnpaddedLayers(network.model, network.n_layers, dtype)
    except NotSupportedError:
        return LayerTaps(packed(network.model, dtype), network.n_layers)


def _in_dtype(network: Network, dtype: str, device: str) -> Network:
    """The network in a number type on a device; itself where it is there already."""
    torch, model = _extras.require("torch"), network.model
    if device == "cpu" and getattr(torch, dtype) == model.dtype:
        return network
    return replace(network, model=copy.deepcopy(model).to(device, getattr(torch, dtype)))
