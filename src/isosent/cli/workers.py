"""Options of commands whose work is done by several processes or a cluster."""

import functools
from typing import Any

import click

from isosent.cli.options import Command
from isosent.distributed import engine_for


def worker_options(command: Command) -> Command:
    """Pass ``--workers``, ``--on`` and ``--gpus-per-worker`` as ``engine``, an `Engine`; None for one process."""

    @functools.wraps(command)
    def wrapped(workers: int | None, on: str | None, gpus_per_worker: float, **values: Any) -> None:
        if workers is None and on is None and not gpus_per_worker:
            command(engine=None, **values)
            return
        command(engine=engine_for(on, workers, gpus_per_worker), **values)

    for option in (
        click.option("--gpus-per-worker", type=click.FloatRange(0), default=0.0, metavar="X", help="With --on."),
        click.option("--on", metavar="ray[://ADDRESS]", help="Folder: run the workers on a Ray cluster."),
        click.option("--workers", type=click.IntRange(1), metavar="N", help="Folder: processes.  [default: 1]"),
    ):
        wrapped = option(wrapped)
    return wrapped
