"""The web page: its files, the texts that people try, comparisons, and the state of the server."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from isosent.demo import demo_texts
from isosent.errors import InputError
from isosent.evaluation.unlabelled import compare_vectors, halves_of
from isosent.io.parquet import table_schema
from isosent.io.tables import ending_of
from isosent.io.texts import is_table
from isosent.pages.html import theme
from isosent.search.rows import read_rows
from isosent.server.http import json_response, read_body, read_bytes, unless_gone
from isosent.server.limits import RequestError
from isosent.server.registry import Served, with_current
from isosent.server.service import Service
from isosent.server.tried import TextSet, new_name

MOST_TEXTS: Final = 20_000
_AT_ONCE: Final = 1000
_MOST_UNPACKED: Final = 4  # characters for each byte of a request, of a packed file
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}


class TryBody(Struct, forbid_unknown_fields=True):
    """Body of ``POST /try``: texts, or nothing for the sample."""

    texts: list[str] | None = None
    model: str | None = None


class DrawBody(Struct, forbid_unknown_fields=True):
    """Body of ``POST /try/draw``: where the sliders are, and the text whose neighbors are shown."""

    id: str
    strength: float
    dimensions: int
    query: int = 0


class CompareBody(Struct, forbid_unknown_fields=True):
    """Body of ``POST /compare``."""

    model_a: str
    model_b: str
    texts: list[str]


async def try_texts(request: Request) -> Response:
    """Take texts, or the sample."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, TryBody)
    texts = demo_texts() if body.texts is None else body.texts
    return await _tried(request, texts, body.model)


async def try_file(request: Request) -> Response:
    """Take the texts of a file: one per line, or a column of a table."""
    service: Service = request.app.state.service
    content = await read_bytes(request, service.limits)
    name = Path(request.query_params.get("name", "")).name or "texts.txt"
    if not name.isprintable():
        raise RequestError(422, "name must be the name of a file.", param="name")
    column = request.query_params.get("column") or None
    texts = await service.heavy.run(request, _texts_in, content, name, column)
    return await _tried(request, texts, request.query_params.get("model"))


def _texts_in(content: bytes, name: str, column: str | None) -> list[str]:
    if b"\0" in content[:4096] and not name.lower().endswith(".parquet"):
        raise RequestError(422, "the file is no text: it holds zero bytes.", param="file")
    with tempfile.TemporaryDirectory() as folder:
        # of the name only an ending that is known: the rest may be what no file can be called
        path = Path(folder) / f"texts{ending_of(name) if is_table(name) else '.txt'}"
        path.write_bytes(content)
        try:
            if ending_of(path) == ".parquet" and (n_rows := table_schema(path)[1]) > MOST_TEXTS:
                raise _too_many_texts(n_rows)
            return read_rows(str(path), column=column)[0] or []
        except (InputError, OSError) as error:
            raise RequestError(422, str(error).replace(str(path), "the file"), param="file") from None


def _too_many_texts(n_texts: int) -> RequestError:
    """The error for more texts than can be tried."""
    return RequestError(413, f"there are {n_texts} texts; at most {MOST_TEXTS} can be tried.", param="texts")


async def _tried(request: Request, texts: Sequence[str], model: str | None) -> Response:
    service: Service = request.app.state.service
    listed = [text.strip() for text in texts if text.strip()]
    if len(listed) > MOST_TEXTS:
        raise _too_many_texts(len(listed))
    if sum(map(len, listed)) > _MOST_UNPACKED * service.limits.max_body_bytes:
        raise service.limits.body_too_large()
    if len(set(listed)) < 3:
        raise RequestError(422, "at least three different texts are needed.", param="texts")

    async def answer(served: Served) -> Response:
        raw = np.empty((len(listed), served.model.encoder.dim), dtype=np.float32)
        for start in range(0, len(listed), _AT_ONCE):
            embedded = await unless_gone(request, served.worker.embed(listed[start : start + _AT_ONCE]))
            raw[start : start + _AT_ONCE] = embedded.raw

        def rotated() -> tuple[TextSet, Response]:
            made = TextSet.of(listed, served.model, raw)
            return made, json_response({"id": name, **made.facts()})

        name = new_name()
        made, response = await service.heavy.run(request, rotated)
        service.text_sets.add(name, made)
        return response

    response: Response = await with_current(lambda: service.registry.text_model(model), answer)
    return response


async def draw(request: Request) -> Response:
    """What a position of the sliders shows."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, DrawBody)
    texts = service.text_sets.get(body.id)
    _check_sliders(texts, body.strength, body.dimensions)
    if not 0 <= body.query < len(texts.texts):
        raise RequestError(422, f"query must be from 0 to {len(texts.texts) - 1}.", param="query")

    def drawn() -> Response:
        return json_response(texts.draw(body.strength, body.dimensions, body.query))

    return await service.heavy.run(request, drawn)


async def download(request: Request) -> Response:
    """The model that the sliders show, as a zip of its folder."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, DrawBody)
    texts = service.text_sets.get(body.id)
    _check_sliders(texts, body.strength, body.dimensions)
    if service.has_keys and "/" in texts.model.encoder.reference:
        message = "this server does not give away models: their files name the folder of the encoder."
        raise RequestError(403, message)
    content = await service.heavy.run(request, texts.zip_of_model, body.strength, body.dimensions)
    headers = {"Content-Disposition": 'attachment; filename="isosent-model.zip"'}
    return Response(content, headers=headers, media_type="application/zip")


def _check_sliders(texts: TextSet, strength: float, dimensions: int) -> None:
    if not 0 <= strength <= 1:
        raise RequestError(422, "strength must be from 0 to 1.", param="strength")
    if not 1 <= dimensions <= texts.rotated.shape[1]:
        raise RequestError(422, f"dimensions must be from 1 to {texts.rotated.shape[1]}.", param="dimensions")


# -- comparing, state, files -------------------------------------------------------------------------------------------


async def compare(request: Request) -> Response:
    """Which of two models ranks related texts higher, without labels."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, CompareBody)
    service.limits.check_texts(len(body.texts), "texts")
    for name in (body.model_a, body.model_b):
        service.registry.text_model(name)  # refused before any work

    halves = await service.heavy.run(request, halves_of, body.texts)

    async def embedded(served: Served) -> NDArray[np.float32]:
        # by the model's own queue, where they take turns with the texts of other requests
        return (await unless_gone(request, served.worker.embed(halves))).vectors

    vectors = [
        await with_current(partial(service.registry.text_model, name), embedded)
        for name in (body.model_a, body.model_b)
    ]
    result = await service.heavy.run(request, compare_vectors, *vectors)
    return json_response(asdict(result) | {"verdict": result.verdict})


async def status(request: Request) -> Response:
    """Models, queues and limits."""
    service: Service = request.app.state.service
    models = [
        {
            "name": served.name,
            "dimensions": served.model.dim,
            "space": served.space(),
            "has_texts": served.has_texts,
            "rows": None if served.index is None else len(served.index),
            "columns": [] if served.index is None else served.index.schema.names,
            "queued_tokens": served.worker.n_queued_tokens,
            "tokens_per_s": round(served.worker.tokens_per_s),
        }
        for served in service.registry
    ]
    return json_response({"models": models, "limits": service.limits.to_json(), "started_at": service.started_at})


async def index(request: Request) -> Response:
    """The page."""
    return _file("index.html")


async def file(request: Request) -> Response:
    """A file of the page."""
    return _file(request.path_params["name"])


def _file(name: str) -> Response:
    if name == "theme.css":
        return Response(theme(), media_type="text/css")
    folder = files("isosent.server") / "page"
    if name not in {path.name for path in folder.iterdir()}:
        raise RequestError(404, "there is no such file here.")
    kind = _TYPES[Path(name).suffix]
    return Response((folder / name).read_bytes(), headers={"Cache-Control": "no-cache"}, media_type=kind)
