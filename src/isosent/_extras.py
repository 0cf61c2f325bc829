"""Import of optional packages."""

import importlib
import os
from types import ModuleType

from isosent.errors import MissingExtraError

_EXTRA_OF = {
    "numba": "words",
    "pyarrow": "parquet",
    "torch": "plm",
    "transformers": "plm",
    "sentence_transformers": "export",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "faiss": "search",
    "psycopg": "postgres",
    "pgvector": "postgres",
    "lancedb": "lance",
    "qdrant_client": "qdrant",
    "accelerate": "train",
    "datasets": "train",
    "h5py": "hdf5",
    "mteb": "mteb",
    "matplotlib": "plots",
    "openTSNE": "map",
    "ray": "distributed",
    **dict.fromkeys(("starlette", "uvicorn", "orjson", "prometheus_client"), "serve"),
}


def require(module: str, *, extra: str | None = None) -> ModuleType:
    """Import a module of an optional package; the error names the extra that installs it."""
    package = module.partition(".")[0]
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, package):
            raise
        extra = extra or _EXTRA_OF.get(package)
        wanted = f"'isosent[{extra}]'" if extra else package
        missing = MissingExtraError(f"{package} is not installed. Install it with: pip install {wanted}")
        missing.name = package
        raise missing from None
    if package in _SET_THREADS and package not in _USED:
        _USED[package] = importlib.import_module(package)
    return imported


# A forked child has none of OpenMP's other threads, and would wait for them for ever.
_SET_THREADS = {"faiss": "omp_set_num_threads", "torch": "set_num_threads"}
_USED: dict[str, ModuleType] = {}  # by isosent


def _compute_in_one_thread() -> None:
    for package, module in _USED.items():
        getattr(module, _SET_THREADS[package])(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_compute_in_one_thread)
