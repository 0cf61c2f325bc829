"""The demo: four steps on bundled sentences, each with the commands that do it, and the files that these commands read.

The sentences were written for isosent and have its license: 480 in English, most of them with a paraphrase, and a pool
of 200 in English, German, Spanish and French. The steps of the pool are fitted on one half and measured on the other.
"""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from isosent.errors import OutputError
from isosent.io.atomic import replacing
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.numeric.neighbors import nearest_rows, neighbor_recall
from isosent.numeric.similarity import cosine_matrix
from isosent.search.index import Index
from isosent.search.smaller import sizes
from isosent.storage import Storage
from isosent.transforms.quantization import Quantization

QUERIES = ("I can't remember my password.", "Who painted the Mona Lisa?")
FALSE_POSITIVES = 0.01
N_BYTES = 64
_N_NEAREST = 10
EXAMPLE = "Sie ist gegen Erdnüsse allergisch."

ERASE = "isosent fit pool.csv --column text --erase lang -o erased"
FIT = "isosent fit pool.csv --column text -o fitted"
SHORTEN = "isosent quantize texts.txt -m wordllama -o int8"
SEARCH = (
    f"isosent fit texts.txt --bytes {N_BYTES} -o small",
    "isosent index texts.txt -m small -o index",
    *(f'isosent search index "{query}" -k 1 --false-positives {FALSE_POSITIVES}' for query in QUERIES),
)


class PoolRow(NamedTuple):
    """One sentence of the pool; translations have the same meaning."""

    text: str
    lang: str
    meaning: str


class Translations(NamedTuple):
    """How many sentences of the pool find their English translation among the ten nearest, as a share."""

    n_queries: int  # in German, Spanish and French
    n_texts: int  # that were searched
    original: float
    fitted: float  # without a label, as auto chooses
    erased: float  # without the language, as auto chooses
    example: str
    example_original: str  # its nearest text
    example_erased: str
    recommendation: str  # of auto, for the pool without labels


class Shortened(NamedTuple):
    """The English sentences at full size, and as int8."""

    n_texts: int
    recommendation: str  # of auto
    n_bytes: tuple[int, int]  # per vector, before and after
    recall: float  # share of the ten nearest that stay
    n_paraphrased: int
    n_found: tuple[int, int]  # sentences whose nearest is their paraphrase, before and after


class Searched(NamedTuple):
    """An index of the English sentences: bytes per vector in memory, its recall, and the best match of each query."""

    n_bytes: float
    recall: float
    matches: tuple[str | None, ...]


class DemoReport(NamedTuple):
    """Results of the demo."""

    translations: Translations
    shortened: Shortened
    searched: Searched | None  # without faiss
    elapsed_s: float


def demo_texts() -> list[str]:
    """Return the sentences of the shipped sample.

    Returns
    -------
    list of str
        Short English sentences on everyday topics, written for this purpose; they have the license of isosent.
    """
    return [row["text"] for row in _sample()]


def demo_pool() -> list[PoolRow]:
    """The sentences in four languages, those of one meaning next to each other."""
    english: dict[str, PoolRow] = {}
    for row in _sample():
        english.setdefault(row["meaning"], PoolRow(row["text"], "en", row["meaning"]))
    pool: list[PoolRow] = []
    for row in _table("languages.tsv"):
        if not pool or pool[-1].meaning != row["meaning"]:
            pool.append(english[row["meaning"]])
        pool.append(PoolRow(row["text"], row["lang"], row["meaning"]))
    return pool


def write_texts(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the files that the commands of the demo read: texts.txt and pool.csv."""
    pool = io.StringIO()
    writer = csv.writer(pool, lineterminator="\n")
    writer.writerows([PoolRow._fields, *demo_pool()])
    contents = {"texts.txt": "\n".join(demo_texts()) + "\n", "pool.csv": pool.getvalue()}
    paths = {Path(folder) / name: content.encode() for name, content in contents.items()}
    if Path(folder).is_file():
        raise OutputError(f"{folder}: not a folder. Name another one.")
    for path, content in paths.items():
        if path.exists() and path.read_bytes() != content:
            raise OutputError(f"{path} exists and holds something else. Name another folder.")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror}. Name another folder.") from None
    for path, content in paths.items():
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    return list(paths)


def run_demo() -> DemoReport:
    """Erase a language, whiten, shorten and search, with wordllama."""
    start = time.perf_counter()
    with threadpool_limits(1):  # on so few texts, several threads mostly wait for each other
        model = load()
        steps = _translations(model), _shortened(model), _searched(model) if find_spec("faiss") else None
    return DemoReport(*steps, elapsed_s=time.perf_counter() - start)


@cache
def _table(name: str) -> list[dict[str, str]]:
    content = (files("isosent") / "data" / name).read_text("utf-8")
    return list(csv.DictReader(content.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def _sample() -> list[dict[str, str]]:
    return _table("sample.tsv")


def _translations(model: SentenceEncoder) -> Translations:
    fitted_on = [row for row in demo_pool() if int(row.meaning) % 2]
    texts, labels = [row.text for row in fitted_on], [row.lang for row in fitted_on]
    fitted = model.fitted(texts, source="the pool of the demo")
    erasure = model.fitted(texts, erase={"lang": labels}, source="the pool of the demo")
    held_out = [row for row in demo_pool() if not int(row.meaning) % 2]
    held_out_texts = [row.text for row in held_out]
    original, centered, erased = (each.encode(held_out_texts) for each in (model, fitted, erasure))
    example = next(position for position, row in enumerate(held_out) if row.text == EXAMPLE)
    choice = fitted.fits[-1].choice or {}
    return Translations(
        n_queries=sum(row.lang != "en" for row in held_out),
        n_texts=len(held_out),
        original=translated_share(original, held_out),
        fitted=translated_share(centered, held_out),
        erased=translated_share(erased, held_out),
        example=EXAMPLE,
        example_original=held_out[nearest_rows(original)[example]].text,
        example_erased=held_out[nearest_rows(erased)[example]].text,
        recommendation=str(choice["reason"]),
    )


def translated_share(vectors: NDArray[np.floating], rows: Sequence[PoolRow]) -> float:
    """Share of the sentences in other languages whose English translation is among their ten nearest of all rows."""
    english = {row.meaning: position for position, row in enumerate(rows) if row.lang == "en"}
    queries = np.array([position for position, row in enumerate(rows) if row.lang != "en"])
    targets = np.array([english[rows[query].meaning] for query in queries])
    cosines = cosine_matrix(vectors[queries], vectors).round(9)  # equal texts have the same, on every machine
    cosines[np.arange(len(queries)), queries] = -np.inf
    n_nearer = (cosines > cosines[np.arange(len(queries)), targets][:, None]).sum(axis=1)
    return float((n_nearer < _N_NEAREST).mean())


def _shortened(model: SentenceEncoder) -> Shortened:
    texts, meanings = demo_texts(), np.array([int(row["meaning"]) for row in _sample()])
    fitted = model.fitted(texts, source="the sample of the demo")
    choice = fitted.fits[-1].choice or {}
    vectors = model.encode(texts)
    quantization = Quantization.fit(vectors)
    codes = quantization.encode(vectors, Storage.int8)
    decoded = quantization.decode(codes, Storage.int8)
    n_found = [int((meanings[nearest_rows(rows)] == meanings).sum()) for rows in (vectors, decoded)]
    counts = np.unique(meanings, return_counts=True)[1]
    return Shortened(
        n_texts=len(texts),
        recommendation=str(choice["reason"]),
        n_bytes=(vectors[0].nbytes, codes[0].nbytes),
        recall=neighbor_recall(vectors, decoded, len(texts) // 2),
        n_paraphrased=int(counts[counts > 1].sum()),
        n_found=(n_found[0], n_found[1]),
    )


def _searched(model: SentenceEncoder) -> Searched:
    texts = demo_texts()
    vectors = model.encode(texts)
    measured = sizes(vectors, n_bytes=N_BYTES)
    size = measured.within(N_BYTES)
    index = Index.create(texts, measured.model(size, vectors, model=model, source="the sample of the demo"))
    found = index.search(list(QUERIES), k=1, false_positives=FALSE_POSITIVES)
    matches = tuple(texts[row] if row >= 0 else None for row in found.positions[:, 0].tolist())
    return Searched(size.n_bytes, size.recall, matches)
