"""Import of optional packages."""

import importlib
from types import ModuleType

from isosent.errors import MissingExtraError

_EXTRA_OF = {
    "torch": "plm",
    "transformers": "plm",
    "sentence_transformers": "export",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "faiss": "search",
    "bm25s": "search",
    "psycopg": "postgres",
    "lancedb": "lance",
    "accelerate": "train",
    "datasets": "train",
    "mteb": "mteb",
    "matplotlib": "plots",
    "ray": "distributed",
    **dict.fromkeys(("starlette", "uvicorn", "orjson", "httpx", "prometheus_client", "jinja2"), "serve"),
}


def require(package: str) -> ModuleType:
    """Import an optional package; the error names the extra that installs it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        wanted = f"'isosent[{_EXTRA_OF[package]}]'" if package in _EXTRA_OF else package
        raise MissingExtraError(
            f"{package} is not installed. Install it with: pip install {wanted}", name=package
        ) from None
