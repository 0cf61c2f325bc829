"""The web page: its files, the texts that people try, and what the sliders draw.

Texts that somebody tries are embedded by the queue of the model and rotated to their principal axes once: a `TextSet`.
What the sliders show is then a scaling and a cut of it (`TextSet.draw`), and the model that they show can be downloaded
(`TextSet.zip_of_model`). `TextSets` keeps the last ones. All that takes long runs in the threads of `service.heavy`.
"""

from __future__ import annotations

import io
import secrets
import sys
import tempfile
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from isosent.demo import EXAMPLE, PoolRow, demo_pool, translated_share
from isosent.errors import InputError, option
from isosent.exports.check import shortened
from isosent.io.formats import format_by_name
from isosent.io.texts import name_of_texts, read_texts
from isosent.io.typed_tables import table_schema
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.numeric.neighbors import exact_products
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.numeric.spectrum import spectrum
from isosent.pages.html import theme
from isosent.persistence import model_files
from isosent.server.http import json_response, with_served
from isosent.server.limits import RequestError
from isosent.server.registry import ModelService, Served
from isosent.transforms.auto import AutoChoice, choose_from_texts
from isosent.transforms.base import Auto, make_linear
from isosent.transforms.labels import LabeledMoments

MOST_TEXTS: Final = 20_000
_AT_ONCE: Final = 1000
_MOST_UNPACKED: Final = 4  # characters for each byte of a request, of a packed file
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_MOST_SETS: Final = 8
_MOST_BYTES: Final = 256 << 20  # of the vectors of all sets; 20,000 texts with 384 dimensions have 92 MB
_MATRIX_TEXTS: Final = 24
_PAIRS: Final = 5_000
_BINS: Final = 50
_NEIGHBORS: Final = 8
_LONGEST_TEXT: Final = 300
_SOURCE: Final = "texts tried on the web page"


class TryBody(Struct, forbid_unknown_fields=True):
    """Body of ``POST /try``: texts, or nothing for the sample, the pool of the demo, whose language may be erased."""

    texts: list[str] | None = None
    model: str | None = None
    erase_language: bool = False


class DrawBody(Struct, forbid_unknown_fields=True):
    """Body of ``POST /try/draw``: where the sliders are, and the text whose neighbors are shown."""

    id: str
    strength: float
    dimensions: int
    query: int = 0


async def try_texts(request: Request, body: TryBody) -> Response:
    """Take texts, or the sample."""
    if body.texts is not None and body.erase_language:
        raise RequestError(422, "erase_language is for the sample: the language of other texts is not known here.")
    if body.texts is not None:
        return await _tried(request, body.texts, body.model)
    sample = Sample(demo_pool(), erase_language=body.erase_language)
    return await _tried(request, [row.text for row in sample.rows], body.model, sample)


async def try_file(request: Request, content: bytes) -> Response:
    """Take the texts of a file: one per line, or a column of a table."""
    service: ModelService = request.app.state.service
    name = Path(request.query_params.get("name", "")).name or "texts.txt"
    if not name.isprintable():
        raise RequestError(422, "name is not the name of a file.", param="name")
    column = request.query_params.get("column") or None
    texts = await service.heavy.run(_texts_in, content, name, column)
    return await _tried(request, texts, request.query_params.get("model"))


def _texts_in(content: bytes, name: str, column: str | None) -> list[str]:
    if b"\0" in content[:4096] and not format_by_name(name).is_typed:
        raise RequestError(422, "the file is no text: it holds zero bytes.", param="file")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name_of_texts(name)  # the rest of the name may be what no file can be called
        path.write_bytes(content)
        try:
            if format_by_name(path).is_typed and (n_rows := table_schema(path)[1]) > MOST_TEXTS:
                raise _too_many_texts(n_rows)
            return read_texts(path, column=column)
        except (InputError, OSError) as error:
            raise RequestError(422, str(error).replace(str(path), "the file"), param="file") from None
        finally:
            _return_memory()


def _return_memory() -> None:
    """Give the system what reading a file has freed; allocators keep it, and a server reads many files."""
    if pyarrow := sys.modules.get("pyarrow"):  # no table was read without it
        for pool in (pyarrow.default_memory_pool(), pyarrow.system_memory_pool()):
            pool.release_unused()


def _too_many_texts(n_texts: int) -> RequestError:
    """The error for more texts than can be tried."""
    return RequestError(413, f"there are {n_texts} texts; at most {MOST_TEXTS} can be tried.", param="texts")


async def _tried(request: Request, texts: Sequence[str], model: str | None, sample: Sample | None = None) -> Response:
    service: ModelService = request.app.state.service
    listed = [text.strip() for text in texts if text.strip()]
    if len(listed) > MOST_TEXTS:
        raise _too_many_texts(len(listed))
    if sum(map(len, listed)) > _MOST_UNPACKED * service.limits.max_body_bytes:
        raise service.limits.body_too_large()
    if len(set(listed)) < 3:
        raise RequestError(422, "at least three different texts are needed.", param="texts")

    registry, sets = service.registry, request.app.state.text_sets
    return await with_served(partial(registry.text_model, model), partial(_text_set, request, listed, sets, sample))


async def _text_set(
    request: Request, texts: list[str], sets: TextSets, sample: Sample | None, served: Served
) -> Response:
    service: ModelService = request.app.state.service
    if service.worker is not None:  # the next request may reach another process, which does not have them
        raise RequestError(403, f"a server of several processes keeps no texts. Start one without {option('workers')}.")
    raw = np.empty((len(texts), served.model.encoder.dim), dtype=np.float32)
    for start in range(0, len(texts), _AT_ONCE):
        embedded = await served.worker.embed(texts[start : start + _AT_ONCE])
        raw[start : start + _AT_ONCE] = embedded.raw
    name = secrets.token_urlsafe(12)  # that nobody can guess

    def rotated() -> tuple[TextSet, Response]:
        text_set = TextSet.of(texts, served.model, raw, sample)
        return text_set, json_response({"id": name, **text_set.facts()})

    text_set, response = await service.heavy.run(rotated)
    sets.add(name, text_set)
    return response


async def draw(request: Request, body: DrawBody) -> Response:
    """What a position of the sliders shows."""
    service: ModelService = request.app.state.service
    texts: TextSet = request.app.state.text_sets.get(body.id)
    _check_sliders(texts, body.strength, body.dimensions)
    if not 0 <= body.query < len(texts.texts):
        raise RequestError(422, f"query must be from 0 to {len(texts.texts) - 1}.", param="query")

    def drawn() -> Response:
        return json_response(texts.draw(body.strength, body.dimensions, body.query))

    return await service.heavy.run(drawn)


async def download(request: Request, body: DrawBody) -> Response:
    """The model that the sliders show, as a zip of its folder."""
    service: ModelService = request.app.state.service
    texts: TextSet = request.app.state.text_sets.get(body.id)
    _check_sliders(texts, body.strength, body.dimensions)
    if service.has_keys and "/" in texts.model.encoder.reference:
        message = "this server does not give away models: their files name the folder of the encoder."
        raise RequestError(403, message)
    content = await service.heavy.run(texts.zip_of_model, body.strength, body.dimensions)
    headers = {"Content-Disposition": 'attachment; filename="isosent-model.zip"'}
    return Response(content, headers=headers, media_type="application/zip")


def _check_sliders(texts: TextSet, strength: float, dimensions: int) -> None:
    if not 0 <= strength <= 1:
        raise RequestError(422, "strength must be from 0 to 1.", param="strength")
    if not 1 <= dimensions <= texts.rotated.shape[1]:
        raise RequestError(422, f"dimensions must be from 1 to {texts.rotated.shape[1]}.", param="dimensions")


# -- texts that are tried ----------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """The pool of the demo."""

    rows: list[PoolRow]
    erase_language: bool

    @property
    def languages(self) -> list[str]:
        """The language of each row."""
        return [row.lang for row in self.rows]


@dataclass(frozen=True, eq=False)
class TextSet:
    """Texts that somebody tries, and their rotated vectors: a slider is a scaling of these and a cut.

    Threads share it: it is not changed.
    """

    texts: list[str]
    model: SentenceEncoder
    raw: NDArray[np.float32]  # of the bare encoder
    units: NDArray[np.float32]  # original vectors, scaled to length 1
    rotated: NDArray[np.float32]  # along the principal axes, (n_texts, rank)
    variances: NDArray[np.float64]  # (rank,)
    pairs: NDArray[np.intp]  # random pairs of rows, (2, n_pairs)
    choice: AutoChoice
    sample: Sample | None

    @classmethod
    def of(
        cls, texts: list[str], model: SentenceEncoder, raw: NDArray[np.float32], sample: Sample | None = None
    ) -> TextSet:
        """Rotate the vectors of texts to their principal axes."""
        vectors = model.transform(raw)
        units = unit_rows(vectors).astype(np.float32)
        has_vector = nonzero_rows(vectors)
        groups = None
        if sample is not None and sample.erase_language:
            groups = np.array(sample.languages)
            labeled = LabeledMoments.from_rows(vectors[has_vector], groups[has_vector].astype(object))
            vectors = labeled.erasure().fit_moments(labeled).transform(vectors).astype(np.float32)
        moments = Moments.from_rows(vectors[has_vector])
        eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
        if has_vector.sum() < 2 or not eigen.rank:
            raise RequestError(
                422,
                "all texts have the same vector, or none. At least two different vectors are needed.",
                param="texts",
            )
        rotated = ((vectors - moments.mean) @ eigen.vectors[:, : eigen.rank]).astype(np.float32)
        rotated[~has_vector] = 0
        rng = np.random.default_rng(0)
        first = rng.integers(len(texts), size=_PAIRS)
        pairs = np.stack([first, (first + rng.integers(1, len(texts), size=_PAIRS)) % len(texts)])
        choice = choose_from_texts(vectors, texts, Auto(), groups=groups, is_erased=groups is not None)
        return cls(texts, model, raw, units, rotated, eigen.values[: eigen.rank], pairs, choice, sample)

    def facts(self) -> dict[str, Any]:
        """What is drawn once."""
        chosen = self.choice.chosen
        return {
            "n_texts": len(self.texts),
            "texts": [text[:_LONGEST_TEXT] for text in self.texts],
            "dim": self.units.shape[1],
            "rank": self.rotated.shape[1],
            "variances": self.variances,
            "verdict": self.choice.reason,
            "strength": chosen.strength if chosen.name == "whitening" else 0.0,
            "dimensions": chosen.n_components or self.rotated.shape[1],
            "changes": chosen.name != "none",
            "before": self._cosine_facts(self.units),
            "languages": None if self.sample is None else self.sample.languages,
            "query": 0 if self.sample is None else self.texts.index(EXAMPLE),
        }

    def draw(self, strength: float, dimensions: int, query: int) -> dict[str, Any]:
        """What a position of the sliders changes."""
        scale = (self.variances[:dimensions] ** (-strength / 2)).astype(np.float32)
        after = unit_rows(self.rotated[:, :dimensions] * scale)
        return {**self._cosine_facts(after), "neighbours": self._neighbors(after, query)}

    def _cosine_facts(self, units: NDArray[np.float32]) -> dict[str, Any]:
        """Cosines of the first texts, how those of random pairs are distributed, and translations that are found."""
        few = units[:_MATRIX_TEXTS]
        first, second = self.pairs
        cosines = np.einsum("ij,ij->i", units[first], units[second])
        counts = np.histogram(np.clip(cosines, -1, 1), _BINS, (-1, 1))[0]
        matrix = np.round((few @ few.T).astype(np.float64), 3)
        translated = None if self.sample is None else translated_share(units, self.sample.rows)
        facts = {"matrix": matrix, "histogram": counts / len(cosines), "mean": float(cosines.mean())}
        return {**facts, "translated": translated}

    def _neighbors(self, after: NDArray[np.float32], query: int) -> list[dict[str, Any]]:
        """The nearest texts after, with their ranks before."""
        scores = np.stack([exact_products(units[query], units) for units in (self.units, after)])
        scores[:, query] = -2
        order = np.argsort(-scores, axis=1, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(1, order.shape[1] + 1)[None, :].repeat(2, axis=0), axis=1)
        n = min(_NEIGHBORS, len(self.texts) - 1)
        rows = list(dict.fromkeys([*order[1, :n].tolist(), *order[0, :n].tolist()]))
        return [
            {
                "row": row,
                "before": {"rank": int(ranks[0, row]), "cosine": float(scores[0, row])},
                "after": {"rank": int(ranks[1, row]), "cosine": float(scores[1, row])},
            }
            for row in rows
        ]

    def zip_of_model(self, strength: float, dimensions: int) -> bytes:
        """A model folder with the map that the sliders show."""
        model = self.model
        if self.sample is not None and self.sample.erase_language:
            labels = {"lang": self.sample.languages}
            model = model.fitted(self.texts, "none", erase=labels, encoded=self.raw, source=_SOURCE)
        whitening = make_linear("whitening", settings={"n_components": dimensions, "strength": strength})
        fitted = model.fitted_on_vectors(self.raw, whitening, source=_SOURCE)
        record = fitted.saved_record
        record = replace(record, fits=tuple(structs.replace(fit, source=shortened(fit.source)) for fit in record.fits))
        content = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in model_files(Path(folder), record).items():
                archive.writestr(f"isosent-model/{name}", data)
        return content.getvalue()


class TextSets:
    """The sets that were tried last; older ones are forgotten. For the event loop alone."""

    def __init__(self) -> None:
        self._sets: OrderedDict[str, TextSet] = OrderedDict()

    def add(self, name: str, texts: TextSet) -> None:
        """Keep a set."""
        self._sets[name] = texts
        while len(self._sets) > _MOST_SETS or (len(self._sets) > 1 and self._n_bytes > _MOST_BYTES):
            self._sets.popitem(last=False)

    @property
    def _n_bytes(self) -> int:
        return sum(each.raw.nbytes + each.units.nbytes + each.rotated.nbytes for each in self._sets.values())

    def get(self, name: str) -> TextSet:
        """The set with an id."""
        if name not in self._sets:
            raise RequestError(404, "these texts are no longer here. Load them again.", param="id")
        self._sets.move_to_end(name)
        return self._sets[name]


# -- files -------------------------------------------------------------------------------------------------------------


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
