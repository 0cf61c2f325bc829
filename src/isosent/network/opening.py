"""From a network and a runtime to what computes it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

from isosent import _extras
from isosent.errors import InputError
from isosent.network.computing import Backend, Computing
from isosent.network.loading import Network
from isosent.network.packed import packed
from isosent.network.reading import Reading
from isosent.network.runtime import AUTO, COMPILED, TORCH, Runtime
from isosent.network.torch_network import CompiledNetwork, TorchNetwork
from isosent.network.workers import share_of_threads

_CPU_BUDGET, _GPU_BUDGET = 1024, 32768


def computing_of(
    network: Network, readings: Sequence[Reading], runtime: Runtime, *, key: Callable[[], str]
) -> Computing:
    """Make ready what computes some readings of a network.

    Parameters
    ----------
    network : Network
        The network.
    readings : sequence of Reading
        What is wanted.
    runtime : Runtime
        How it is computed.
    key : callable
        Returns what tells this network from others, for files that are kept from one run to the next.

    Returns
    -------
    Computing
        On all devices.

    Raises
    ------
    InputError
        If there is no such device, or the backend cannot express the network.
    MissingExtraError
        If the backend is not installed.
    """
    devices = _devices(runtime)
    widths = [reading.width(network.dim) for reading in readings]
    if devices != ["cpu"]:
        backends = [_on_gpu(network, readings, runtime, device) for device in devices]
        return Computing(backends, widths, runtime.batch_tokens or _GPU_BUDGET)
    budget = runtime.batch_tokens or _CPU_BUDGET
    if runtime.backend == COMPILED:
        return Computing([CompiledNetwork(_in_dtype(network, runtime.dtype, "cpu"), readings)], widths, budget)
    placed = replace(network, model=packed(network.model, runtime.dtype))
    n_workers, threads_each = share_of_threads()
    return Computing([TorchNetwork(placed, readings)] * n_workers, widths, budget, threads_each=threads_each)


def _devices(runtime: Runtime) -> list[str]:
    torch = _extras.require("torch")
    if runtime.devices == AUTO:
        return ["cuda"] if torch.cuda.is_available() and runtime.backend in (AUTO, TORCH, COMPILED) else ["cpu"]
    return runtime.devices.split(",")


def _on_gpu(network: Network, readings: Sequence[Reading], runtime: Runtime, device: str) -> Backend:
    placed = _in_dtype(network, runtime.dtype, device)
    return CompiledNetwork(placed, readings) if runtime.backend == COMPILED else TorchNetwork(placed, readings)


def _in_dtype(network: Network, dtype: str, device: str) -> Network:
    """The network in a number type on a device; itself where it is there already."""
    torch, model = _extras.require("torch"), network.model
    if device == "cpu" and getattr(torch, dtype) == model.dtype:
        return network
    try:
        return replace(network, model=copy.deepcopy(model).to(device, getattr(torch, dtype)))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"hf: devices must be ones that torch reaches; got {device}: {reason}") from error
