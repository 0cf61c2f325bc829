"""Moments of vectors in files, block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

from isosent.encoders.base import Progress
from isosent.errors import InputError
from isosent.files.vector_source import VectorSource
from isosent.numeric.moments import Moments
from isosent.streaming.checkpoint import Checkpoint, Reached
from isosent.streaming.file_moments import FileMoments
from isosent.transforms.base import known_rows


def moments_of(
    sources: Sequence[VectorSource],
    *,
    radial: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    resumed: Callable[[int], None] | None = None,
    progress: Progress | None = None,
) -> FileMoments:
    """Take the moments of vectors in files, with memory for one block of them.

    Parameters
    ----------
    sources : sequence of VectorSource
        At least one, of the same dimensions.
    radial : bool, default False
        Whether radial moments are taken too, as Ledoit-Wolf shrinkage needs them.
    checkpoint : path-like, optional
        File that keeps how far the run has come. A run that finds one there goes on from it, with the same result to
        the last bit on the same machine. It is left there at the end, marked complete.
    resumed : callable, optional
        Called with the number of rows that an earlier run had done, if there was one.
    progress : callable, optional
        Called with the number of rows done since the last call, by an earlier run or this one.

    Returns
    -------
    FileMoments
        Moments of all rows but zero rows.

    Raises
    ------
    InputError
        If there is no file, dimensions or known spaces differ, or the checkpoint is one of other data or settings.
    FileFormatError
        If a row holds NaN or infinity, or a file is damaged.
    OutputError
        If the checkpoint cannot be written.
    """
    if not sources:
        raise InputError("moments_of: sources must hold at least one file; got none.")
    reached, keeper = Reached(reduce(add, map(nothing_of, sources)), 0, 0), None
    if checkpoint is not None:
        settings = {"radial": radial, "block_rows": [source.block_rows for source in sources]}
        data = [{"name": str(source.path)} | source.identity for source in sources]
        keeper = Checkpoint(checkpoint, settings, data)
        reached = keeper.reached() or reached
    n_done_before = sum(source.n_rows for source in sources[: reached.source]) + reached.row
    for report in (resumed, progress):
        if report and n_done_before:
            report(n_done_before)
    for further, n_done in _block_by_block(sources, reached, radial):
        reached = further
        if keeper:
            keeper.keep(reached)
        if progress:
            progress(n_done)
    if keeper:
        keeper.keep(Reached(reached.measured, len(sources), 0))
    return reached.measured


def nothing_of(source: VectorSource) -> FileMoments:
    """Moments of none of the vectors in a file: their sum is refused where files do not go together.

    Parameters
    ----------
    source : VectorSource
        The file.

    Returns
    -------
    FileMoments
        Of no rows.
    """
    return FileMoments(Moments.empty(source.dim), 0, source.space, (str(source.path),))


def _block_by_block(sources: Sequence[VectorSource], reached: Reached, radial: bool) -> Iterator[tuple[Reached, int]]:
    """Where each block leads, and its rows."""
    measured, row = reached.measured, reached.row
    n_rows_total = sum(source.n_rows for source in sources)
    for number, source in enumerate(sources[reached.source :], reached.source):
        for block in source.blocks(row):
            known = known_rows(block)
            try:
                rows = block if known.all() else block[known]
                part = Moments.from_rows(rows, radial=radial, eps=source.eps, n_rows_total=n_rows_total)
            except InputError:
                source.check_finite(block, row)
                raise
            n_zero_rows = measured.n_zero_rows + len(block) - len(rows)
            measured = replace(measured, moments=measured.moments + part, n_zero_rows=n_zero_rows)
            row += len(block)
            yield Reached(measured, number, row), len(block)
        row = 0
