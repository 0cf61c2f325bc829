"""Options of commands whose work is done by several processes or a cluster."""

import functools
from typing import Any

import click

from isosent._check import split_options
from isosent.cli.options import Command
from isosent.distributed import engine_for
from isosent.errors import InputError
from isosent.transforms.base import parse_option


def worker_options(command: Command) -> Command:
    """Pass ``--workers`` and ``--on`` as ``engine``, an `Engine`; None for one process."""

    @functools.wraps(command)
    def wrapped(workers: int | None, on: str | None, **values: Any) -> None:
        cluster, options = (None, {}) if on is None else split_options(on)
        gpus = parse_option(options.pop("gpus", "0"))
        if options or isinstance(gpus, str):
            raise InputError(f"--on {on}: the only option is the number of GPUs per worker, as in ray?gpus=0.5.")
        command(engine=None if workers is None and on is None else engine_for(cluster, workers, gpus), **values)

    for option in (
        click.option(
            "--on", "on", metavar="ray[://ADDRESS][?gpus=X]", help="Folder: run the workers on a Ray cluster."
        ),
        click.option("--workers", type=click.IntRange(1), metavar="N", help="Folder: processes.  [default: 1]"),
    ):
        wrapped = option(wrapped)
    return wrapped
