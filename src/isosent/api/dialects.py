"""How embedding APIs are asked, and how they answer: a `Dialect` for each form, a `Provider` for each known address.

`DIALECTS` has the forms of OpenAI, Azure, Cohere, Voyage, Jina, Gemini, Text Embeddings Inference and Ollama.
`PROVIDERS` are public addresses by name, each with its dialect and the environment variable of its key. `dialect_of`
knows a dialect by a URL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from isosent.role import RoleName

Item = str | tuple[int, ...]  # a text, or its token ids
NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})

_COUNTS: Final = ("prompt_tokens", "total_tokens", "input_tokens")  # of texts, which are all tokens of an embedding
_MOST_TOKENS: Final = 1 << 40  # a larger number is an error, and the sum of many has a place in SQLite


class Dialect(NamedTuple):
    """How an API is asked, and how it answers."""

    path: str  # after the URL of the API; {model} stands for the name of the model
    most_items: int  # of one request
    takes_ids: bool
    body: Callable[[Sequence[Item], str, RoleName, int | None], dict[str, Any]]  # texts, model, role, dimensions
    rows: Callable[[Any], list[Any]]  # vectors in the answer: lists of numbers, or base64
    n_tokens: Callable[[Any, Mapping[str, str]], Any]
    key_header: str = "Authorization"
    has_base64: bool = False  # whether it can be asked for vectors in base64
    has_roles: bool = False  # whether queries and documents have different vectors
    fields: frozenset[str] | None = None  # that it takes besides; None if that depends on who speaks it


def _openai_body(items: Sequence[Item], model: str, role: RoleName, dimensions: int | None) -> dict[str, Any]:
    body = {"input": list(items), "model": model, "encoding_format": "base64"}
    return body | ({} if dimensions is None else {"dimensions": dimensions})


def _openai_rows(answer: Any) -> list[Any]:
    """Vectors by their numbers. Some APIs send no numbers, and Gemini none that is 0."""
    data = answer["data"]
    numbers = [row.get("index") for row in data]
    if all(number is None for number in numbers):
        return [row["embedding"] for row in data]
    if numbers[0] is None:
        numbers[0] = 0
    if sorted(numbers) != list(range(len(data))):
        raise ValueError("the rows are not numbered from 0 on")
    return [data[place]["embedding"] for place in np.argsort(numbers, kind="stable")]


def _openai_tokens(answer: Any, headers: Mapping[str, str]) -> Any:
    usage = answer.get("usage")
    counts = [whole_number(usage.get(name)) for name in _COUNTS] if isinstance(usage, dict) else []
    return next(filter(None, counts), 0)


def whole_number(value: Any) -> int:
    """A number of tokens; 0 for what is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < _MOST_TOKENS else 0


def _cohere_body(items: Sequence[Item], model: str, role: RoleName, dimensions: int | None) -> dict[str, Any]:
    input_type = "search_query" if role == "query" else "search_document"
    body = {"texts": list(items), "model": model, "input_type": input_type, "embedding_types": ["float"]}
    return body | ({} if dimensions is None else {"output_dimension": dimensions})


def _voyage_body(items: Sequence[Item], model: str, role: RoleName, dimensions: int | None) -> dict[str, Any]:
    body = {"input": list(items), "model": model, "encoding_format": "base64"}
    body |= {} if role == "text" else {"input_type": role}
    return body | ({} if dimensions is None else {"output_dimension": dimensions})


_JINA_TASKS: Final = {"query": "retrieval.query", "document": "retrieval.passage"}


def _jina_body(items: Sequence[Item], model: str, role: RoleName, dimensions: int | None) -> dict[str, Any]:
    body: dict[str, Any] = {"input": list(items), "model": model}
    body |= {"task": _JINA_TASKS[role]} if role in _JINA_TASKS else {}
    return body | ({} if dimensions is None else {"dimensions": dimensions})


_GEMINI_TASKS: Final = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}


def _gemini_body(items: Sequence[Item], model: str, role: RoleName, dimensions: int | None) -> dict[str, Any]:
    more: dict[str, Any] = {"taskType": _GEMINI_TASKS[role]} if role in _GEMINI_TASKS else {}
    more |= {} if dimensions is None else {"outputDimensionality": dimensions}
    return {
        "requests": [{"model": f"models/{model}", "content": {"parts": [{"text": item}]}, **more} for item in items]
    }


def _tei_body(items: Sequence[Item], model: str, role: RoleName, dimensions: int | None) -> dict[str, Any]:
    return {"inputs": list(items), "truncate": True} | ({} if dimensions is None else {"dimensions": dimensions})


def _ollama_body(items: Sequence[Item], model: str, role: RoleName, dimensions: int | None) -> dict[str, Any]:
    return {"model": model, "input": list(items)} | ({} if dimensions is None else {"dimensions": dimensions})


DIALECTS: Final = {
    "openai": Dialect("/embeddings", 2048, True, _openai_body, _openai_rows, _openai_tokens, has_base64=True),
    "azure": Dialect("", 2048, True, _openai_body, _openai_rows, _openai_tokens, key_header="api-key", has_base64=True),
    "cohere": Dialect(
        "/v2/embed",
        96,
        False,
        _cohere_body,
        lambda answer: answer["embeddings"]["float"],
        lambda answer, headers: ((answer.get("meta") or {}).get("billed_units") or {}).get("input_tokens"),
        has_roles=True,
        fields=frozenset({"input_type", "truncate", "max_tokens"}),
    ),
    "voyage": Dialect(
        "/embeddings",
        1000,
        False,
        _voyage_body,
        _openai_rows,
        _openai_tokens,
        has_base64=True,
        has_roles=True,
        fields=frozenset({"input_type", "truncation"}),
    ),
    "jina": Dialect(
        "/embeddings",
        512,
        False,
        _jina_body,
        _openai_rows,
        _openai_tokens,
        has_roles=True,
        fields=frozenset({"task", "truncate", "normalized"}),
    ),
    "gemini": Dialect(
        "/models/{model}:batchEmbedContents",
        100,
        False,
        _gemini_body,
        lambda answer: [row["values"] for row in answer["embeddings"]],
        lambda answer, headers: 0,  # it does not say
        key_header="x-goog-api-key",
        has_roles=True,
        fields=frozenset(),
    ),
    "tei": Dialect(
        "/embed",
        32,
        True,
        _tei_body,
        list,
        lambda answer, headers: int(n) if (n := headers.get("x-compute-tokens", "")).isdecimal() else 0,
        fields=frozenset({"truncate", "truncation_direction", "prompt_name", "normalize"}),
    ),
    "ollama": Dialect(
        "/api/embed",
        256,
        False,
        _ollama_body,
        lambda answer: answer["embeddings"],
        lambda answer, headers: answer.get("prompt_eval_count"),
        fields=frozenset({"truncate", "options", "keep_alive"}),
    ),
}


class Provider(NamedTuple):
    """A public API: its address, how it is asked, and the environment variable of its key."""

    url: str
    dialect: str
    key_variable: str | None


PROVIDERS: Final = {
    "openai": Provider("https://api.openai.com/v1", "openai", "OPENAI_API_KEY"),
    "cohere": Provider("https://api.cohere.com", "cohere", "COHERE_API_KEY"),
    "voyage": Provider("https://api.voyageai.com/v1", "voyage", "VOYAGE_API_KEY"),
    "jina": Provider("https://api.jina.ai/v1", "jina", "JINA_API_KEY"),
    "gemini": Provider("https://generativelanguage.googleapis.com/v1beta", "gemini", "GEMINI_API_KEY"),
    "mistral": Provider("https://api.mistral.ai/v1", "openai", "MISTRAL_API_KEY"),
    "ollama": Provider("http://127.0.0.1:11434", "ollama", None),
}


def provider_of(url: str) -> Provider | None:
    """The provider whose address this is: its key is sent nowhere else."""
    return next((each for each in PROVIDERS.values() if each.url == url.rstrip("/")), None)


def dialect_of(url: str) -> str | None:
    """The dialect of an API, by its URL; None if that does not say."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host.endswith(".openai.azure.com") or "/openai/deployments/" in parts.path:
        return "azure"
    if host == "api.cohere.com":
        return "cohere"
    if parts.port == 11434:
        return "ollama"
    return "openai" if parts.path.rstrip("/").endswith("/v1") else None


def is_local(url: str) -> bool:
    """Whether it is on this machine, which no proxy of the environment reaches."""
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
