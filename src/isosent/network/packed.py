"""A network for inference on the CPU: its matrices laid out for the processor once, not at every product."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

from isosent import _extras

Product = Callable[[Any], Any]
_ROWS_TO_TRY = 32
TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}


def packed(model: Any, dtype: str = "float32") -> Any:
    """Prepare a network of transformers for inference on the CPU.

    Parameters
    ----------
    model : PreTrainedModel
        On the CPU, in float32. It stays as it is.
    dtype : {"float32", "bfloat16"}, default "float32"
        What the layers are computed in.

    Returns
    -------
    PreTrainedModel
        Of the same class and called alike; its layers are modules at the same places, so that hooks work. In float32 it
        shares every parameter with `model`. For inference only: no gradient passes through it.

    Notes
    -----
    oneDNN keeps each matrix in blocks that suit the processor and takes the fastest instructions of any maker, which
    the library behind torch's own products does not on every processor. A packed matrix takes its own size again;
    embeddings, more than half of a small network, are not packed. Where this torch has no such product, or it refuses a
    matrix or gives something else, the plain one stays, silently; a network with a step that does not exist in bfloat16
    (the Fourier transform of FNet) stays in float32. To be called before hooks are set on `model`.
    """
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
    """Pack a matrix.

    Parameters
    ----------
    weight : tensor of shape (n_out, n_in)
        The matrix, in `dtype`.
    bias : tensor of shape (n_out,) or None
        What is added to each row.
    dtype : {"float32", "bfloat16"}
        Their number type.

    Returns
    -------
    callable or None
        From rows, at least one, of shape (n_rows, n_in) to ``rows @ weight.T + bias``. None where this torch has no
        such product, or it refuses the matrix or differs from the plain one.
    """
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
