"""Graphs that were traced once, in the user's cache."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from isosent.errors import CacheWarning, IsosentError
from isosent.files.user_cache import user_cache

GRAPH_FILE = "graph.onnx"
_KIND, _KEPT = "graphs", 16
_OLD_S = 24 * 3600


@contextmanager
def cached_graph(name: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """Give the file of a graph, made the first time it is asked for.

    Parameters
    ----------
    name : str
        What tells this graph from all others, fit for the name of a folder.
    make : callable
        Takes a path and writes the graph to it; files beside it, named as it is with something behind, belong to it.

    Yields
    ------
    Path
        The graph, to be read within the block.

    Warns
    -----
    CacheWarning
        If the cache cannot be written. The graph is then made in a temporary folder and lost after the block.

    Notes
    -----
    The 16 graphs that were used last are kept. Processes that make the same one at the same time do not meet: the first
    one that is ready stays.
    """
    folder = user_cache(_KIND) / name
    if (folder / GRAPH_FILE).is_file():
        with suppress(OSError):
            os.utime(folder)
        yield folder / GRAPH_FILE
        return
    with tempfile.TemporaryDirectory(prefix="isosent-") as elsewhere:
        yield _made(folder, make) or _made_in(Path(elsewhere), make)


def forget_graph(name: str) -> None:
    """Remove a graph that turned out to be damaged.

    Parameters
    ----------
    name : str
        As for `cached_graph`.
    """
    shutil.rmtree(user_cache(_KIND) / name, ignore_errors=True)


def _made(folder: Path, make: Callable[[Path], None]) -> Path | None:
    """Make a graph in the cache; None, with a warning, where that cannot be written."""
    temporary = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir(parents=True)
        _made_in(temporary, make)
        _settle(temporary, folder)
    except OSError as error:
        if isinstance(error, IsosentError):
            raise
        warnings.warn(
            f"The traced network is made anew each time, as {folder.parent} cannot be written: "
            f"{error.strerror or error}. Set ISOSENT_CACHE to another folder.",
            CacheWarning,
            stacklevel=2,
        )
        return None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _keep_the_last(folder.parent)
    return folder / GRAPH_FILE


def _settle(temporary: Path, folder: Path) -> None:
    try:
        temporary.rename(folder)
    except OSError:
        if not (folder / GRAPH_FILE).is_file():  # else another process was first
            raise


def _made_in(folder: Path, make: Callable[[Path], None]) -> Path:
    make(folder / GRAPH_FILE)
    return folder / GRAPH_FILE


def _keep_the_last(graphs: Path) -> None:
    """Remove the graphs that were not used for the longest time, and what runs left that were killed a day ago."""
    with suppress(OSError):
        used = {path: path.stat().st_mtime for path in graphs.iterdir()}
        whole = sorted((path for path in used if not path.name.startswith(".")), key=used.__getitem__)
        left = [path for path, time_s in used.items() if path.name.startswith(".") and time.time() - time_s > _OLD_S]
        for folder in [*whole[:-_KEPT], *left]:
            shutil.rmtree(folder, ignore_errors=True)
