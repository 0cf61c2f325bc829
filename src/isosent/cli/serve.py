"""The command ``serve``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

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
from isosent.server.run import check_address, is_loopback, read_keys  # noqa: E402
from isosent.server.run import serve as serve_app  # noqa: E402

_DEFAULTS = Limits()


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="MODEL|INDEX [NAME=MODEL|INDEX]...")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on; others need keys.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, metavar="N", help="Port; 0 for any that is free.")
@click.option(
    "--api-key-file", type=PATH, metavar="FILE", help="Keys of clients, one a line.  [default: $ISOSENT_API_KEYS]"
)
@click.option("--max-body-bytes", type=click.IntRange(1), default=_DEFAULTS.max_body_bytes, metavar="N")
@click.option("--max-texts", type=click.IntRange(1), default=_DEFAULTS.max_texts, metavar="N", help="Of a request.")
@click.option(
    *("--max-batch-tokens",),
    type=click.IntRange(1),
    default=_DEFAULTS.max_batch_tokens,
    metavar="N",
    help="Tokens that a model computes at once; larger requests are split.",
)
@click.option(
    *("--max-queued-tokens",),
    type=click.IntRange(1),
    default=_DEFAULTS.max_queued_tokens,
    metavar="N",
    help="Tokens that may wait for a model; later requests get 429.",
)
@click.option(
    *("--request-timeout", "request_timeout_s"),
    type=click.FloatRange(0, min_open=True),
    default=_DEFAULTS.request_timeout_s,
    metavar="S",
    help="Seconds in which a request must arrive.",
)
@click.option(
    *("--drain-delay", "drain_delay_s"),
    type=click.FloatRange(0),
    default=0,
    metavar="S",
    help="Seconds between SIGTERM, when /ready turns 503, and the end of listening.",
)
@click.option(
    *("--drain-timeout", "drain_timeout_s"),
    type=click.FloatRange(0),
    default=30,
    metavar="S",
    help="Seconds for the requests in flight after that.",
)
def serve(
    sources: tuple[str, ...],
    host: str,
    port: int,
    api_key_file: Path | None,
    drain_delay_s: float,
    drain_timeout_s: float,
    **limits: float,
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
        limits=Limits(**limits),  # type: ignore[arg-type]
        keys=keys,
        hosts=[host] if is_loopback(host) and not keys else None,
    )
    serve_app(app, host=host, port=port, drain_delay_s=drain_delay_s, drain_timeout_s=drain_timeout_s)


def open_source(reference: str) -> SentenceEncoder | Index:
    """Open a model, or an index."""
    return Index.open(reference) if is_index(reference) else load(reference)
