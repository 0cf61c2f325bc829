"""Graphs that were traced once, in the user's cache."""

from __future__ import annotations

import os
import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from isosent.errors import CacheWarning, IsosentError, OutputError
from isosent.files.atomic import Replaceable, is_temporary, remove_folder, replacing_folder
from isosent.files.checksum import folder_checksums, verify_folder
from isosent.files.documents import document_bytes, read_document
from isosent.files.result_schemas import GraphNote
from isosent.files.user_cache import user_cache

GRAPH_FILE = "graph.onnx"
_KIND, _KEPT = "graphs", 16
_NOTE_FILE, _FORMAT, _FORMAT_VERSION = "graph.json", "isosent-graph", 1

_GRAPH = Replaceable("an older graph", lambda _: True)


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
    The 16 graphs that were used last are kept. A graph whose bytes have changed is made again. Processes that make the
    same one at the same time do not meet: each is put in place whole.
    """
    folder = user_cache(_KIND) / name
    if _is_whole(folder):
        with suppress(OSError):
            os.utime(folder)
    elif not _made(folder, make):
        with _made_elsewhere(make) as graph:
            yield graph
        return
    yield folder / GRAPH_FILE


def forget_graph(name: str) -> None:
    """Remove a graph that turned out to be damaged.

    Parameters
    ----------
    name : str
        As for `cached_graph`.
    """
    with suppress(OSError):
        remove_folder(user_cache(_KIND) / name)


def _is_whole(folder: Path) -> bool:
    """Whether a graph is there, each byte as it was written."""
    try:
        verify_folder(folder, read_document(folder / _NOTE_FILE, _FORMAT, _FORMAT_VERSION, GraphNote)["files"])
    except OSError:
        return False
    return (folder / GRAPH_FILE).is_file()


def _made(folder: Path, make: Callable[[Path], None]) -> bool:
    """Make a graph in the cache; False, with a warning, where that cannot be written."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing_folder(folder, _GRAPH) as temporary:
            make(temporary / GRAPH_FILE)
            note = {"format": _FORMAT, "format_version": _FORMAT_VERSION, "files": folder_checksums(temporary)}
            (temporary / _NOTE_FILE).write_bytes(document_bytes(note))
    except OSError as error:
        if isinstance(error, IsosentError) and not isinstance(error, OutputError):
            raise
        warnings.warn(
            f"The traced network is made anew each time, as {folder.parent} cannot be written: "
            f"{error.strerror or error}. Set ISOSENT_CACHE to another folder.",
            CacheWarning,
            stacklevel=2,
        )
        return False
    _keep_the_last(folder.parent)
    return True


@contextmanager
def _made_elsewhere(make: Callable[[Path], None]) -> Iterator[Path]:
    """Make a graph in the system's folder for temporary files, to be removed after the block."""
    folder = Path(tempfile.gettempdir()) / f"isosent-graph-{secrets.token_hex(8)}"
    with replacing_folder(folder, _GRAPH) as temporary:  # whose name is swept if this process is killed
        make(temporary / GRAPH_FILE)
        yield temporary / GRAPH_FILE
    remove_folder(folder)


def _keep_the_last(graphs: Path) -> None:
    """Remove the graphs that were not used for the longest time."""
    with suppress(OSError):
        used = {path: path.stat().st_mtime for path in graphs.iterdir() if not is_temporary(path.name)}
        for folder in sorted(used, key=used.__getitem__)[:-_KEPT]:
            remove_folder(folder)
