"""The command ``serve``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import click

from isosent import _extras
from isosent.cli.options import PATH
from isosent.cli.printing import say
from isosent.errors import InputError
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.search.index import Index
from isosent.search.storage import is_index

for _package in ("starlette", "uvicorn", "orjson", "prometheus_client"):
    _extras.require(_package)

from isosent.server.app import create_app  # noqa: E402 - after the message about the extra
from isosent.server.limits import Limits  # noqa: E402
from isosent.server.run import KEYS_VARIABLE, check_address, is_loopback, read_keys  # noqa: E402
from isosent.server.run import serve as serve_app  # noqa: E402


def serving_options(command: Callable[..., None]) -> Callable[..., None]:
    """Pass address, keys and draining, and the limits as ``limits``."""

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        given = {field.name: values.pop(field.name) for field in fields(Limits)}
        command(limits=Limits(**given), **values)

    for field in reversed(fields(Limits)):
        kind = click.FloatRange(0, min_open=True) if isinstance(field.default, float) else click.IntRange(1)
        option = click.option(
            *(field.metadata["flag"], field.name),
            type=kind,
            default=field.default,
            metavar="S" if isinstance(field.default, float) else "N",
            help=field.metadata["meaning"],
        )
        wrapped = option(wrapped)
    for option in reversed(_ADDRESS):
        wrapped = option(wrapped)
    return wrapped


_ADDRESS = (
    click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on; others need keys."),
    click.option("--port", type=click.IntRange(0, 65535), default=8000, metavar="N", help="Port; 0 for any free one."),
    click.option(
        "--api-key-file", type=PATH, metavar="FILE", help=f"Keys of clients, one a line.  [default: ${KEYS_VARIABLE}]"
    ),
    click.option(
        *("--drain-delay", "drain_delay_s"),
        type=click.FloatRange(0),
        default=0,
        metavar="S",
        help="Seconds between SIGTERM, when /ready turns 503, and the end of listening.",
    ),
    click.option(
        *("--drain-timeout", "drain_timeout_s"),
        type=click.FloatRange(0),
        default=30,
        metavar="S",
        help="Seconds for the requests in flight after that.",
    ),
)


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="MODEL|INDEX [NAME=MODEL|INDEX]...")
@serving_options
def serve(
    sources: tuple[str, ...],
    host: str,
    port: int,
    api_key_file: Path | None,
    drain_delay_s: float,
    drain_timeout_s: float,
    limits: Limits,
) -> None:
    """Serve models and indexes over HTTP.

    Clients of OpenAI and of Text Embeddings Inference change their URL and nothing else. SIGHUP loads all models again.

    \b
    isosent serve model
    isosent serve index small=model text-embedding-3-small=wordllama
    """  # noqa: D301
    keys = read_keys(api_key_file)
    check_address(host, has_keys=bool(keys))
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
    app = create_app(
        models,
        limits=limits,
        keys=keys,
        hosts=[host] if is_loopback(host) and not keys else None,
    )
    serve_app(app, host=host, port=port, drain_delay_s=drain_delay_s, drain_timeout_s=drain_timeout_s)


def open_source(reference: str) -> SentenceEncoder | Index:
    """Open a model, or an index."""
    return Index.open(reference) if is_index(reference) else load(reference)
