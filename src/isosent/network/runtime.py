"""How a network is computed: backend, number type, devices, batches. Never a part of what a model is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isosent.errors import InputError

AUTO = "auto"
TORCH, COMPILED, ONNX = BACKENDS = ("torch", "compiled", "onnx")
DTYPES = ("float32", "bfloat16", "float16", "int8")
_DTYPES_OF = {
    AUTO: DTYPES,
    TORCH: ("float32", "bfloat16", "float16"),
    COMPILED: ("float32", "bfloat16", "float16"),
    ONNX: ("float32", "int8"),
}


@dataclass(frozen=True, slots=True)
class Runtime:
    """How to compute.

    Parameters
    ----------
    backend : str, default "auto"
        One of `BACKENDS`, or ``auto``, see `chosen_backend`.
    dtype : str, default "float32"
        One of `DTYPES`: what the layers are computed in. Pooling and what follows are float32.
    devices : str, default "auto"
        ``cpu``, ``cuda``, ``cuda:0,cuda:1`` and the like, as torch writes them; auto takes the GPU where there is one.
    batch_tokens : int or None
        Tokens of a batch, padding counted; None for what suits the device.

    Raises
    ------
    InputError
        If the backend has no such number type, or runs on the CPU only and another device is named.
    """

    backend: str = AUTO
    dtype: str = "float32"
    devices: str = AUTO
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES_OF[self.backend]:
            raise InputError(
                f"backend {self.backend} computes in {', '.join(_DTYPES_OF[self.backend])}; got dtype {self.dtype}."
            )
        if self.devices in (AUTO, "cpu"):
            return
        for is_asked, what, other in (
            (self.backend == ONNX, "backend onnx", TORCH),
            (self.dtype == "int8", "dtype int8", "float16"),
        ):
            if is_asked:
                raise InputError(f"{what} runs on the CPU here; got devices {self.devices}. Take {other}.")

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Runtime:
        """Read what a model reference says of it.

        Parameters
        ----------
        options : mapping of str to str
            ``backend``, ``dtype``, ``devices`` and ``batch_tokens``; others do not matter.

        Returns
        -------
        Runtime
            Defaults for what is left out.
        """
        budget = options.get("batch_tokens")
        return cls(
            options.get("backend", AUTO),
            options.get("dtype", "float32"),
            options.get("devices", AUTO),
            None if budget is None else int(budget),
        )
