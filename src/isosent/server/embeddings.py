"""Embeddings in every dialect: what requests and answers have in common, for models served here and for a proxy."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from isosent.api.dialects import NO_FIELDS
from isosent.encoders.base import Encoder
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import unit_rows
from isosent.persistence import FitRecord
from isosent.role import RoleName
from isosent.server.fields import space_fields
from isosent.server.http import vectors_response
from isosent.server.limits import Limits, RequestError
from isosent.server.registry import Served
from isosent.server.service import reason_of
from isosent.space import hash_of

Side = Literal["query", "search_query", "document", "search_document", "passage", "default", "text"]
QUERY: Final = ("query", "search_query")  # of sentence-transformers; of Cohere
_ORDERED = "text-embedding-3"  # models of OpenAI that were trained to be cut


class EmbeddingsFields(Struct):
    """Fields of ``POST /v1/embeddings`` that models served here and those of an API have in common."""

    input: str | list[Any]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None
    group: str | None = None  # of the texts, such as their language, for a model with a map of each


class EmbeddingsBody(EmbeddingsFields):
    """Body of ``POST /v1/embeddings``."""

    prompt_name: Side | None = None  # which side of a model whose queries and documents differ
    input_type: Side | None = None  # the same
    truncate: bool | Literal["NONE", "END"] | None = None  # false and, of NIM, NONE refuse long texts


async def embed_texts(
    request: Request,
    served: Served,
    values: str | list[Any],
    *,
    param: str = "input",
    role: RoleName = "text",
    dimensions: int | None = None,
    normalize: bool = True,
    truncate: bool | None = None,
    group: str | None = None,
) -> tuple[NDArray[np.float32], int, dict[str, str]]:
    """Vectors of the texts of a request, their number of tokens, and the headers of the answer.

    Refused are dimensions that cannot be cut, another space than If-Space, and, if `truncate` is false, long texts.
    """
    space = checked_space(request, served.model, served.name, dimensions)
    texts = await texts_of(values, served, request.app.state.service.limits, param)
    # a static model has no map of each group
    embedded = await (served.embed if group is None else served.worker.embed)(texts, role)
    if truncate is False:
        refuse_truncated(served, embedded.n_truncated)
    request.scope["isosent"] |= {"model": served.name, "texts": len(texts), "tokens": embedded.n_tokens}
    vectors = embedded.vectors
    if group is not None:
        vectors = await asyncio.to_thread(served.model.transform, embedded.raw, queries=role == "query", group=group)
    vectors = truncate_dims(vectors, dimensions, normalize=normalize)
    return vectors, embedded.n_tokens, space_headers(space, embedded.n_truncated)


def refuse_truncated(served: Served, n_truncated: int) -> None:
    """Refuse texts that would be truncated."""
    if n_truncated:
        most = served.model.encoder.options.get("max_length")
        raise RequestError(422, f"{n_truncated} of the inputs have more than {most} tokens.", param="truncate")


async def texts_of(values: str | list[Any], served: Served, limits: Limits, param: str) -> list[str]:
    """Texts of a request: a text, a list of texts, token ids, or a list of lists of token ids."""
    listed = [values] if isinstance(values, str) else values
    if listed and all(type(value) is int for value in listed):
        listed = [listed]
    limits.check_texts(len(listed), param)
    if not listed:
        raise RequestError(400, f"{param} is empty. Send at least one text.", param=param)
    texts = []
    for number, value in enumerate(listed):
        place = param if isinstance(values, str) else f"{param}[{number}]"
        if isinstance(value, list) and value and all(type(each) is int for each in value):
            try:
                value = await asyncio.to_thread(served.model.encoder.decode, value)
            except InputError as error:
                raise RequestError(400, f"{place}: {reason_of(error, served.references)}", param=param) from None
        if not isinstance(value, str):
            message = f"{place} is {_kind(value)}. Send a text or a list of token ids."
            raise RequestError(400, message, param=param)
        if not value:
            raise RequestError(400, f"{place} is empty. Send a text.", param=param)
        texts.append(value)
    return texts


def _kind(value: object) -> str:
    names = {dict: "an object", list: "another list", bool: "a bool", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def checked_space(
    request: Request,
    model: SentenceEncoder,
    name: str,
    dimensions: int | None = None,
    fields: Mapping[str, Any] = NO_FIELDS,
) -> str:
    """Fingerprint of the vectors of a response; refuse a cut that is not possible, and another space than If-Space."""
    _check_dimensions(model, name, dimensions)
    space = space_of(model, dimensions, fields)
    check_space(request, space)
    return space


def checked_raw_space(
    request: Request, name: str, dimensions: int | None, dim: int | None, fields: Mapping[str, Any] = NO_FIELDS
) -> str:
    """The same for vectors of an API as they came; without `dim`, as far as it is known before there are any."""
    if dimensions is not None and not name.startswith(_ORDERED):
        message = "the dimensions of the upstream are in no known order, so none can be left out."
        raise RequestError(400, message, param="dimensions")
    if dim is None:
        return ""
    if dimensions is not None and not 1 <= dimensions <= dim:
        raise RequestError(400, f"dimensions must be from 1 to {dim}; got {dimensions}.", param="dimensions")
    space = space_of(PrecomputedVectors.of_space(dim, None, name), dimensions, fields)
    check_space(request, space)
    return space


def space_of(model: SentenceEncoder | Encoder, dimensions: int | None, fields: Mapping[str, Any] = NO_FIELDS) -> str:
    """Fingerprint of a vector space; another one if its vectors are cut, or with fields that an API was sent."""
    space = hash_of(model.fingerprint)
    if dimensions is not None and dimensions != model.dim:
        space = hashlib.sha256(f"{space} dimensions={dimensions}".encode()).hexdigest()
    if more := space_fields(fields):
        content = msgspec.json.encode(more, order="deterministic")
        space = hashlib.sha256(f"{space} fields=".encode() + content).hexdigest()
    return space


def check_space(request: Request, space: str) -> None:
    """Refuse a request whose vectors are to be compared with those of another space."""
    wanted = request.headers.get("if-space")
    if wanted is not None and hash_of(wanted.strip('"')) != space:
        raise RequestError(409, f"If-Space names another vector space; that of this model is {space}.")


def _check_dimensions(model: SentenceEncoder, name: str, dimensions: int | None) -> None:
    """Refuse to cut vectors whose dimensions have no order."""
    if dimensions is None or dimensions == model.dim:
        return
    if not 1 <= dimensions <= model.dim:
        message = f"dimensions must be from 1 to {model.dim}, the width of {name}; got {dimensions}."
        raise RequestError(400, message, param="dimensions")
    if not is_ordered(model):
        raise RequestError(
            400,
            f"the dimensions of {name} are in no order, so none can be left out. A model with a whitening map or "
            "principal components can be cut.",
            param="dimensions",
        )


def is_ordered(model: SentenceEncoder) -> bool:
    """Whether the first k dimensions of a model are the k of the largest variance before they were evened out."""
    if model.record.postprocessing.nonlinear:
        return False
    last: FitRecord | None = next((fit for fit in reversed(model.fits) if fit.transform != "none"), None)
    if last is None:
        return False
    name, parameters = last.transform, last.parameters
    if name == "chain":  # of steps, the last of which decides
        steps = [step for step in parameters.get("steps", ()) if step.get("transform") != "l2_normalize"]
        last_step = steps[-1] if steps else {}
        name, parameters = last_step.get("transform", ""), last_step
    return name in ("principal_components", "pair_whitening") or (
        name == "whitening" and parameters.get("method", "pca") == "pca"
    )


def truncate_dims(vectors: NDArray[np.float32], dimensions: int | None, *, normalize: bool) -> NDArray[np.float32]:
    """The first dimensions of vectors, scaled to length 1 if that is wanted."""
    vectors = vectors if dimensions is None else vectors[:, :dimensions]
    return unit_rows(vectors).astype(np.float32, copy=False) if normalize else vectors


def space_headers(space: str, n_truncated: int | None) -> dict[str, str]:
    """Headers of every response with vectors; it is not known of all how many texts were cut."""
    truncated = {} if n_truncated is None else {"X-Isosent-Truncated": str(n_truncated)}
    return {"X-Isosent-Space": space, **truncated}


async def embeddings_response(
    request: Request,
    vectors: NDArray[np.float32],
    *,
    name: str,
    n_tokens: int,
    encoding_format: str | None,
    headers: Mapping[str, str],
) -> Response:
    """Make a response with vectors, as lists of numbers or as base64 of little-endian float32."""

    def content() -> dict[str, Any]:
        rows: Any = np.ascontiguousarray(vectors)
        if encoding_format == "base64":
            rows = [str(base64.b64encode(row), "ascii") for row in rows.astype("<f4", copy=False)]
        data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        return {"object": "list", "data": data, "model": name, "usage": usage}

    return await vectors_response(request, content, vectors.size, headers)
