"""The commands ``serve`` and ``proxy``.

Address, keys and limits are options of both (`serving_options`). `serve` opens models and indexes (`open_source`), in
one process or in workers; `proxy` puts its parts together: the API with its dialect and key, the maps, the cache and
the learner.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import click
import httpx

from isosent import _check, server
from isosent.api.cache import MEGABYTE, VectorCache
from isosent.api.client import Upstream
from isosent.api.dialects import DIALECTS, Dialect, dialect_of
from isosent.cli.options import PATH
from isosent.cli.printing import say
from isosent.encoders.api import ApiEncoder
from isosent.errors import InputError
from isosent.io.atomic import check_destination
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.search.index import Index
from isosent.search.stores import find_index
from isosent.server.limits import KEYS_VARIABLE, Limits, flag_of

UPSTREAM_KEY_VARIABLE = "ISOSENT_UPSTREAM_KEY"
_CACHE_MB, _LARGEST_CACHE_MB = 1000.0, 1e9


def serving_options(*limits: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Pass address, keys and draining, and some of the limits as ``limits``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            command(limits=Limits(**{name: values.pop(name) for name in limits}), **values)

        chosen = [field for field in fields(Limits) if field.name in limits]
        for option in reversed([*_ADDRESS, *map(_limit_option, chosen)]):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def _limit_option(limit: Any) -> Callable[..., Any]:
    is_time = isinstance(limit.default, float)
    return click.option(
        flag_of(limit.name),
        limit.name,
        type=click.FloatRange(0, min_open=True) if is_time else click.IntRange(1),
        default=limit.default,
        metavar="S" if is_time else "N",
        help=limit.metadata["meaning"],
    )


_ADDRESS = (
    click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on; others need keys."),
    click.option("--port", type=click.IntRange(0, 65535), default=8000, metavar="N", help="Port; 0 for any free one."),
    click.option(
        "--api-key-file", type=PATH, metavar="FILE", help=f"Keys of clients, one per line.  [default: ${KEYS_VARIABLE}]"
    ),
    click.option(
        "--drain",
        type=(click.FloatRange(0), click.FloatRange(0)),
        default=(0, 30),
        metavar="S S",
        help="Seconds from SIGTERM, when /ready turns 503, to the end of listening, and then for requests in flight.",
    ),
)


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="MODEL|INDEX [NAME=MODEL|INDEX]...")
@serving_options(*(field.name for field in fields(Limits)))
@click.option(
    "--workers",
    "n_workers",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Processes that share the port, each with separate queues and limits.",
)
def serve(
    sources: tuple[str, ...],
    n_workers: int,
    host: str,
    port: int,
    api_key_file: Path | None,
    drain: tuple[float, float],
    limits: Limits,
) -> None:
    """Serve models and indexes over HTTP.

    OpenAI-compatible clients and those of Text Embeddings Inference change their URL and nothing else. SIGHUP loads all
    models again. With 'MODEL?query_model=FOLDER', a static model that was distilled from MODEL answers queries.

    \b
    isosent serve model
    isosent serve index small=model text-embedding-3-small=wordllama
    """  # noqa: D301
    keys = server.read_keys(api_key_file)
    server.check_address(host, has_keys=bool(keys))
    named: dict[str, str] = {}
    for number, source in enumerate(sources):
        name, separator, reference = source.partition("=")
        if not separator or "?" in name or ":" in name:  # "hf:DIR?pooling=mean" has no name
            name, reference = (source.partition("?")[0].rstrip("/").rpartition("/")[2] or source), source
            name = name.rpartition(":")[2]
        if name in named:
            raise InputError(f"{name} is the name of two models. Write NAME={reference}.")
        if number and name != reference and not separator:
            say(f"{reference} is served as {name}")
        named[name] = reference
    models = {name: partial(open_source, reference) for name, reference in named.items()}
    hosts = [host] if server.is_loopback(host) and not keys else None
    make_app = partial(server.create_app, models, limits=limits, keys=keys, hosts=hosts)
    if n_workers == 1:
        server.serve(make_app(), host=host, port=port, drain_delay_s=drain[0], drain_timeout_s=drain[1])
    else:
        server.serve_workers(
            make_app, n_workers, host=host, port=port, drain_delay_s=drain[0], drain_timeout_s=drain[1]
        )


def open_source(reference: str) -> SentenceEncoder | Index | tuple[SentenceEncoder, SentenceEncoder]:
    """Open a model or an index; with ``?query_model=FOLDER``, a model and the static model that answers its queries."""
    source, query_model = _without_query_model(reference)
    index = find_index(source, "serve")
    if index is None:
        model = load(source)
        if isinstance(model.encoder, ApiEncoder):
            model.encoder.check_permission()  # or each request would be refused
        return model if query_model is None else (model, load(query_model))
    if query_model is not None:
        raise InputError(f"{source} is an index, which chooses its query model itself: isosent index --query-model.")
    return index


def _without_query_model(reference: str) -> tuple[str, str | None]:
    """A reference without the option ``query_model``, and what that names."""
    if "query_model=" not in reference:
        return reference, None
    source, options = _check.split_options(reference)
    query_model = options.pop("query_model", None)
    rest = "&".join(f"{name}={value}" for name, value in options.items())
    return (f"{source}?{rest}" if rest else source), query_model


@click.command()
@click.option("--upstream", metavar="URL", required=True, help="The API, such as https://api.openai.com/v1.")
@click.option(
    "--dialect",
    metavar="NAME[?texts=N]",
    help=f"How it is asked: {', '.join(DIALECTS)}; with at most N texts per request.  [default: by the URL]",
)
@click.option(
    "--model",
    "-m",
    "models",
    metavar="[NAME=]FOLDER[?query_model=FOLDER]",
    multiple=True,
    help="Model fitted on vectors of the API, and a static one for queries; may be repeated. Without one, vectors are "
    "passed on.",
)
@click.option("--upstream-model", metavar="NAME", help="Model of the API.  [default: the space of the first -m]")
@click.option("--upstream-key-file", type=PATH, metavar="FILE", help="Key for the API.  [default: that of the caller]")
@click.option(
    "--upstream-timeout",
    type=click.FloatRange(0, min_open=True),
    default=60,
    metavar="S",
    help="Most seconds for an answer.",
)
@click.option("--max-upstream-requests", type=click.IntRange(1), default=8, metavar="N", help="At the same time.")
@click.option(
    "--cache",
    metavar="FILE[?mb=N]",
    help="Keep vectors of the API here, so that a new map is free; at most N megabytes of them.  [default: mb=1000]",
)
@click.option(
    "--learn", type=PATH, metavar="FILE", help="Compute the moments of the vectors that pass; no texts are kept."
)
@serving_options("max_body_bytes", "max_texts", "max_connections", "request_timeout_s")
def proxy(
    upstream: str,
    dialect: str | None,
    models: tuple[str, ...],
    upstream_model: str | None,
    upstream_key_file: Path | None,
    upstream_timeout: float,
    max_upstream_requests: int,
    cache: str | None,
    learn: Path | None,
    host: str,
    port: int,
    api_key_file: Path | None,
    drain: tuple[float, float],
    limits: Limits,
) -> None:
    """Transform the vectors of an embedding API.

    OpenAI-compatible clients use the proxy as their URL. Their key is passed on and never kept, or the proxy has the
    key of the API (--upstream-key-file) and its own clients have others (--api-key-file).

    \b
    isosent proxy --upstream https://api.openai.com/v1 --learn seen.safetensors \\
                  --upstream-model text-embedding-3-small
    isosent inspect http://127.0.0.1:8000
    isosent fit http://127.0.0.1:8000 --dims 256 --transform whitening -o small
    isosent proxy --upstream https://api.openai.com/v1 -m small --cache vectors.sqlite
    """  # noqa: D301
    if not upstream.startswith(("http://", "https://")):
        raise InputError(f"--upstream {upstream}: write an address that begins with http:// or https://.")
    keys = server.read_keys(api_key_file)
    if (named_dialect := dialect or dialect_of(upstream)) is None:
        raise InputError(f"--upstream {upstream}: name its dialect: --dialect {', '.join(DIALECTS)}.")
    chosen, most_texts = _named_dialect(named_dialect)
    server.check_address(host, has_keys=bool(keys))
    if learn is not None:
        check_destination(learn)
    named = [_named(model) for model in models]
    folders = {name: folder for name, folder, _ in named}
    if not folders and learn is None and cache is None:
        raise InputError("proxy: name a model (-m FOLDER), or --learn FILE to find out what one would do.")
    key = _upstream_key(upstream_key_file)
    maps = server.Maps(folders, {name: query_model for name, _, query_model in named if query_model is not None})
    name = upstream_model if upstream_model is not None else maps.upstream_model
    if name is None:
        raise InputError("proxy: name the model of the API: --upstream-model NAME.")
    client = httpx.AsyncClient(trust_env=False, limits=httpx.Limits(max_connections=max_upstream_requests))
    api = Upstream(
        upstream.rstrip("/"),
        chosen,
        name,
        client,
        key=key,
        timeout_s=upstream_timeout,
        max_requests=max_upstream_requests,
        max_texts=most_texts,
    )
    proxy = server.Proxy(
        api,
        maps,
        cache=None if cache is None else _opened_cache(cache),
        learner=None if learn is None else server.Learner(learn, name, maps.dim),
        limits=limits,
        has_keys=bool(keys),
        is_local=server.is_loopback(host),
    )
    app = server.create_proxy(proxy, keys=keys, hosts=[host] if server.is_loopback(host) and not keys else None)
    server.serve(app, host=host, port=port, drain_delay_s=drain[0], drain_timeout_s=drain[1])


def _named(model: str) -> tuple[str, Path, str | None]:
    """The name of a model downstream, its folder, and that of the static model that answers its queries."""
    source, query_model = _without_query_model(model)
    name, separator, folder = source.partition("=")
    path = Path(folder if separator else source)
    return (name if separator else path.absolute().name), path, query_model


def _named_dialect(text: str) -> tuple[Dialect, int | None]:
    """The dialect of ``NAME`` or ``NAME?texts=N``, and N."""
    name, separator, size = text.partition("?texts=")
    if name not in DIALECTS or (separator and not re.fullmatch("[1-9][0-9]{0,5}", size)):
        raise InputError(f"--dialect {text}: write {', '.join(DIALECTS)}, such as openai or openai?texts=10.")
    return DIALECTS[name], int(size) if separator else None


def _upstream_key(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(UPSTREAM_KEY_VARIABLE) or None
    [key, *others] = server.read_keys(file)
    if others:
        raise InputError(f"{file} holds {1 + len(others)} keys. Keep one.")
    return key


def _opened_cache(text: str) -> VectorCache:
    """The cache of ``FILE`` or ``FILE?mb=N``."""
    path, separator, size = text.partition("?mb=")
    try:
        megabytes = float(size) if separator else _CACHE_MB
    except ValueError:
        megabytes = 0.0
    if not 1 <= megabytes <= _LARGEST_CACHE_MB:
        raise InputError(f"--cache {text}: the size is not 1 megabyte or more. Write FILE?mb=1000.")
    return VectorCache(Path(path), max_bytes=round(megabytes * MEGABYTE))
