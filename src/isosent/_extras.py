"""Import of optional packages."""

import importlib
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


def require(module: str, *, extra: str | None = None) -> ModuleType:
    """Import a module of an optional package; the error names the extra that installs it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, package):
            raise
        extra = extra or _EXTRA_OF.get(package)
        wanted = f"'isosent[{extra}]'" if extra else package
        raise MissingExtraError(
            f"{package} is not installed. Install it with: pip install {wanted}", name=package
        ) from None
