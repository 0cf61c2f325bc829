"""What an input is: the one place that asks whether a path names texts, vectors or moments.

`open_source` looks at the name and the first bytes once. What it returns says what it is (`kind`), and is handed on:

- a `TextSource` is a file of texts, or standard input; nothing is read before its texts are;
- a `VectorSource` is an open file of vectors, or a folder of shards, whose rows are read block by block;
- a `MomentsSource` is a file of moments, or the URL of a proxy that learns.

All have a `name` for messages; those of tables give the `labels` of their rows. Where only texts or only vectors are an
input, `read_texts` and `open_vectors` refuse what is something else.
"""

from __future__ import annotations

import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, overload

from isosent import _check
from isosent.errors import InputError
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.formats import FORMATS, format_by_name, listed
from isosent.io.json import parse_json
from isosent.io.tensors import safetensors_header
from isosent.io.texts import TextSource
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import holds_vectors, open_vectors

MOMENTS_FORMAT, MOMENTS_VERSION = "isosent-moments", 1
MOMENTS_ENDING = listed(each for each in FORMATS if "moments" in each.holds)

_FETCH_S = 60.0
_MOST_FETCHED = 1 << 30
_LONGEST_SAID = 1 << 16


class MomentsSource:
    """Moments of vectors, in a file or of a proxy that learns; nothing is read until they are asked for."""

    kind: ClassVar[Literal["moments"]] = "moments"

    def __init__(self, name: str) -> None:
        self.name = name

    @contextmanager
    def file(self) -> Iterator[Path]:
        """The file, or a copy of what the proxy answers."""
        if not _is_url(self.name):
            yield Path(self.name)
            return
        content = _fetched(self.name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"moments{MOMENTS_ENDING}")
            path.write_bytes(content)
            try:
                yield path
            except InputError:
                raise InputError(
                    f"{self.name} answered with something else than moments. Name a running isosent proxy."
                ) from None


Source = TextSource | VectorSource | MomentsSource


@overload
def open_source(
    path: str | os.PathLike[str],
    *,
    column: str | None = None,
    moments: Literal[False] = False,
    are_queries: bool = False,
) -> TextSource | VectorSource: ...


@overload
def open_source(
    path: str | os.PathLike[str], *, column: str | None = None, moments: bool, are_queries: bool = False
) -> Source: ...


def open_source(
    path: str | os.PathLike[str], *, column: str | None = None, moments: bool = False, are_queries: bool = False
) -> Source:
    """Open texts or vectors and, if `moments`, moments.

    A table may hold both: `column` chooses, else vectors go before texts, and a warning says so. What is no file, such
    as the name of a model, is a source of texts, which are missing when they are read.
    """
    kind = kind_of_input(path, column=column, moments=moments)
    if kind == "moments":
        return MomentsSource(os.fspath(path))
    if kind == "vectors":
        return open_vectors(path, column=column, are_queries=are_queries)
    return TextSource(path, column)


def kind_of_input(
    path: str | os.PathLike[str], *, column: str | None = None, moments: bool = False
) -> Literal["texts", "vectors", "moments"]:
    """What `open_source` opens a path as, for a refusal that comes before it is opened."""
    if os.fspath(path) == STANDARD_INPUT:
        return "texts"
    if moments and _holds_moments(path):
        return "moments"
    return "vectors" if holds_vectors(path, column=column) else "texts"


def open_vectors_or_moments(
    path: str, *, column: str | None = None, are_queries: bool = False
) -> VectorSource | MomentsSource:
    """Open what cannot be texts."""
    return MomentsSource(path) if _holds_moments(path) else open_vectors(path, column=column, are_queries=are_queries)


def is_file_name(text: str) -> bool:
    """Whether a text, such as a query, ends as the names of files do."""
    return bool(format_by_name(text).ending)


def _holds_moments(path: str | os.PathLike[str]) -> bool:
    if _is_url(path):
        return True
    if "moments" not in format_by_name(path).holds:
        return False
    return safetensors_header(_check.input_file(path))[1].get("format") == MOMENTS_FORMAT


def _is_url(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).startswith(("http://", "https://"))


def _fetched(url: str) -> bytes:
    """Ask a proxy for the moments of the vectors that passed; its key is in ``ISOSENT_API_KEYS``."""
    key = os.environ.get("ISOSENT_API_KEYS", "").replace(",", " ").split()
    headers = {"Authorization": f"Bearer {key[0]}"} if key else {}
    base = url.rstrip("/").removesuffix("/v1")
    request = urllib.request.Request(base + "/moments", headers=headers)  # a URL of http or https
    try:
        with urllib.request.urlopen(request, timeout=_FETCH_S) as answer:
            content: bytes = answer.read(_MOST_FETCHED + 1)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(_LONGEST_SAID)
        try:
            reason = parse_json(said.decode(), url, dict[str, Any])["error"]["message"]
        except (ValueError, KeyError, TypeError):
            reason = f"it answered {error.code}."
        raise InputError(f"{url} has no moments: {reason}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(f"{url} cannot be reached: {getattr(reason, 'strerror', None) or reason}.") from None
    if len(content) > _MOST_FETCHED:
        raise InputError(f"{url} answered with more than {_MOST_FETCHED} bytes, which are no moments.")
    return content
