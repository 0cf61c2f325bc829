"""Answers of embedding APIs, saved as they came: each vector becomes a row with the column embedding.

`rows_of_answer` knows the answers of OpenAI (and of what follows it: Voyage, Mistral, Jina, vLLM), Cohere, Gemini,
Vertex AI and Ollama, the lines of OpenAI's batch files, whose custom_id becomes the column id, and collections of
Chroma. `rows_of_export` knows the lists of records of other databases.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from isosent._check import brief
from isosent.errors import FileFormatError

EMBEDDING: Final = "embedding"
_VALUES: Final = "values"  # of Gemini
_SUCCESS: Final = range(200, 300)
_LARGEST: Final = 1e6  # no number of an embedding is as large
_SMALLEST: Final = 1e-8  # and half of them are not as small
_KEYS: Final = frozenset(
    (
        *("object", "data", "model", "usage", "id", "created"),
        *("embeddings", "texts", "images", "response_type", "meta"),
        *("total_duration", "load_duration", "prompt_eval_count"),
        *("predictions", "metadata", "deployedModelId"),
        *("ids", "documents", "metadatas", "uris", "included"),
    )
)
_OF_ANSWERS: Final = frozenset({"data", "predictions", "object", "meta", "response_type"})  # next to an id
_OF_ITEM: Final = frozenset({"object", "index", "encoding_format", EMBEDDING})  # in data; one is of llama.cpp
_BESIDE: Final = {"documents": "text", "texts": "text", "metadatas": "metadata", "ids": "id"}  # of Cohere and Chroma
_EXPORTED: Final = ("rows", "data", "vectors", "matches", "points")  # of Milvus, Pinecone and Qdrant

Row = dict[str, Any]


def rows_of_answer(place: str, answer: Mapping[str, Any], *, is_row: bool = False) -> list[Row] | None:
    """The vectors of an answer, in the order of the texts; None for an object that is no answer.

    What may be a row of a table, `is_row`, is no answer if it has other columns.
    """
    if "custom_id" in answer and _is_of_batch(answer):
        return _batch_rows(place, answer)
    response = answer.get("response")
    if is_row and not set(answer) <= _KEYS | {"key", "response"}:
        return None
    if is_row and isinstance(answer.get("id"), str | int | float) and not _OF_ANSWERS & set(answer):
        return None
    if "key" in answer and isinstance(response, Mapping) and isinstance(response.get(EMBEDDING), Mapping):
        return [{"id": answer["key"], EMBEDDING: response[EMBEDDING].get(_VALUES)}]  # a batch file of Gemini
    ids = answer.get("ids")
    if isinstance(ids, list) and ids and isinstance(ids[0], list):
        raise FileFormatError(
            f"{place} holds the results of queries, a list for each. Save the rows of the collection: "
            'collection.get(include=["embeddings", "documents", "metadatas"]) in Chroma.'
        )
    if _are_items(items := answer.get("data")):
        rows = _rows_of_items(place, items)
    elif (vectors := _vectors(place, answer)) is not None:
        rows = [{EMBEDDING: vector} for vector in vectors]
    else:
        return None
    for name, column in _BESIDE.items():
        values = answer.get(name)
        if isinstance(values, list) and values:
            if len(values) != len(rows):
                raise FileFormatError(
                    f"{place} has {len(rows)} embeddings and {len(values)} {name}. Save the whole answer."
                )
            rows = [{column: value} | row for value, row in zip(values, rows, strict=True)]
    return rows


def rows_of_export(document: Mapping[str, Any]) -> list[Row] | None:
    """The records that a vector database returned, in a list or by their ids; None for any other object."""
    if isinstance(result := document.get("result"), Mapping):
        document = result
    for name in _EXPORTED:
        records = document.get(name)
        if isinstance(records, Mapping):
            records = [{"id": key, **record} for key, record in records.items() if isinstance(record, Mapping)]
        if isinstance(records, list) and records and all(isinstance(record, Mapping) for record in records):
            return [dict(record) for record in records]
    return None


def _is_of_batch(line: Mapping[str, Any]) -> bool:
    response = line.get("response", "")
    if isinstance(response, Mapping):
        return "body" in response or "status_code" in response
    return response is None and bool(line.get("error"))


def _batch_rows(place: str, line: Mapping[str, Any]) -> list[Row]:
    """The vectors of a line of a batch file, with the custom_id of its request, which may have several texts."""
    name, response = line["custom_id"], line.get("response")
    where = f"{place}, custom_id {name!r:.80}"
    response = response if isinstance(response, Mapping) else {}
    status, body = response.get("status_code", 200), response.get("body")
    vectors = _vectors(where, body) if isinstance(body, Mapping) else None
    if line.get("error") or status not in _SUCCESS or not vectors:
        error = line.get("error") or (body.get("error") if isinstance(body, Mapping) else None)
        reason = error.get("message") or error.get("code") if isinstance(error, Mapping) else error
        reason = brief(reason or (f"status {status}" if status not in _SUCCESS else "no embedding"))
        raise FileFormatError(
            f"{where}: the request has no vector: {reason.rstrip('.')}. Send it again, or remove the line and its text."
        )
    names = [name] if len(vectors) == 1 else [f"{name}-{number}" for number in range(len(vectors))]
    return [{"id": each, EMBEDDING: vector} for each, vector in zip(names, vectors, strict=True)]


def _vectors(place: str, answer: Mapping[str, Any]) -> list[Any] | None:
    """The vectors of an answer that holds a list of them; one with a single vector is a row already."""
    items = answer.get("data")
    if _are_items(items):
        return [_decoded(place, item[EMBEDDING]) for item in _in_order(place, items)]
    predictions = answer.get("predictions")  # of Vertex AI
    if isinstance(predictions, list) and predictions and all(isinstance(each, Mapping) for each in predictions):
        nested = [each.get("embeddings") for each in predictions]
        return _valued(nested) if all(isinstance(each, Mapping) and _VALUES in each for each in nested) else None
    vectors = answer.get("embeddings")
    if isinstance(vectors, Mapping):  # by their types, of Cohere
        vectors = vectors.get("float") or vectors.get("base64")
    if isinstance(vectors, list) and vectors:
        if all(isinstance(vector, list) for vector in vectors):
            return vectors
        if all(isinstance(vector, str) for vector in vectors):
            return [_decoded(place, vector) for vector in vectors]
        if all(isinstance(vector, Mapping) and _VALUES in vector for vector in vectors):
            return _valued(vectors)
    return None


def _are_items(items: Any) -> TypeGuard[list[Mapping[str, Any]]]:
    return (
        isinstance(items, list)
        and len(items) > 0
        and all(isinstance(item, Mapping) and EMBEDDING in item for item in items)
    )


def _rows_of_items(place: str, items: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows in data: those of an API in their order, and with what else they hold; others as they are."""
    if not all(set(item) <= _OF_ITEM or item.get("object") == EMBEDDING for item in items):
        return [dict(item) for item in items]
    return [
        {name: value for name, value in item.items() if name not in _OF_ITEM}
        | {EMBEDDING: _decoded(place, item[EMBEDDING])}
        for item in _in_order(place, items)
    ]


def _valued(items: Sequence[Any]) -> list[Any]:
    return [item[_VALUES] for item in items]


def _in_order(place: str, items: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Items by their index, which says which text they are of; Gemini sends none that is 0."""
    numbers = [item.get("index") for item in items]
    if all(number is None for number in numbers):
        return items
    if numbers[0] is None:
        numbers[0] = 0
    by_index = {number: item for number, item in zip(numbers, items, strict=True) if type(number) is int}
    if set(by_index) != set(range(len(items))):
        raise FileFormatError(
            f"{place}: the index of its {len(items)} embeddings is not each of 0 to {len(items) - 1} once. Save the "
            "whole answer."
        )
    return [by_index[number] for number in range(len(items))]


def _decoded(place: str, vector: Any) -> Any:
    """A vector; OpenAI packs float32 as base64 where that is asked for."""
    if not isinstance(vector, str):
        return vector
    try:
        return unpacked(vector).tolist()
    except ValueError as error:
        raise FileFormatError(f"{place}: an embedding {error}. Ask for floats as lists of numbers.") from None


def unpacked(text: str) -> NDArray[np.float32]:
    """The numbers of a vector that is packed as base64 of little-endian float32; ValueError says what else it is."""
    return unpacked_rows([text])[0]


def unpacked_rows(texts: Sequence[str]) -> NDArray[np.float32]:
    """The same of several vectors of one width, shape (n_texts, dim); they are checked together."""
    try:
        packed = [b64decode(text, validate=True) for text in texts]
        numbers = np.frombuffer(b"".join(packed), "<f4").astype(np.float32)
    except ValueError:
        raise ValueError("is neither a list of numbers nor float32 in base64") from None
    if len(set(map(len, packed))) > 1:
        raise ValueError("has another width than the others")
    numbers = numbers.reshape(len(texts), -1)
    magnitudes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])  # whoever reads them refuses NaN by its name
    # bytes of int8 and float64 look like very large numbers, those of float16 like very small ones
    if not (magnitudes < _LARGEST).all() or (len(magnitudes) and np.median(magnitudes) < _SMALLEST):
        raise ValueError("in base64 is not of float32")
    return numbers
