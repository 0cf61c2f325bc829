"""The command ``map``: vectors in two dimensions, as a page, and as a table for embedding-atlas."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.cli.options import column_option, model_option, open_model, outputs_option, texts_option
from isosent.cli.printing import check_outputs, deliver, say_unused_vectors
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError, MissingExtraError
from isosent.io.formats import format_by_name
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.pages.progress import progress_bar
from isosent.pages.report import Content, Note, Part, Report
from isosent.report.map_page import DrawnMap, map_page, map_table
from isosent.search.inputs import Rows, opened_rows
from isosent.search.places import N_NEIGHBORS, SLOW_TSNE, NeighborMap, neighbor_map
from isosent.search.stores import find_index
from isosent.search.units import compared_blocks
from isosent.transforms.base import NO_TRANSFORM, Auto, resolve_transform
from isosent.transforms.statistics import rows_with_vector


@click.command()
@click.argument("rows", metavar="TEXTS|VECTORS|INDEX")
@model_option
@column_option
@texts_option
@click.option("--color", metavar="COLUMN", help="Color by a column: categories, numbers or dates.")
@click.option("--transform", metavar="NAME", help='Also draw after a transform: auto, or as for "isosent fit".')
@outputs_option(".html", ".parquet", required=True)
def map(
    rows: str,
    model: str | None,
    column: str | None,
    texts: str | None,
    color: str | None,
    transform: str | None,
    outputs: tuple[Path, ...],
) -> None:
    """Draw a map: each text is a point, near to the texts that are like it.

    The input is a file of texts or of vectors, as for "isosent cluster", or the folder of an index. Vectors are drawn
    unchanged, by t-SNE; a map keeps only some of the nearest neighbors, and says how many.

    The page zooms, searches, shows texts and their true neighbors, and saves a selection as CSV; it needs no network.
    The .parquet file has x, y, the neighbors and all columns, as embedding-atlas opens it.

    \b
    isosent map texts.txt -o map.html
    isosent map tickets.csv --column text --color lang -o map.html
    isosent map vectors.npy --texts texts.txt --transform whitening -o map.html
    """  # noqa: D301
    check_outputs(outputs, reads=(rows, texts))
    has_table = any(format_by_name(path).is_parquet for path in outputs)
    opened = _Opened.open(rows, model, column, texts, with_columns=has_table or color is not None)
    colors = None if color is None else (color, opened.values(color, rows))
    drawn = [_drawn("Unchanged", opened.vectors)]
    notes: list[Part] = []
    if transform is not None:
        name, after = _transformed(opened.vectors, opened.texts, transform)
        if after is None:
            notes.append(Note(f"note: {transform} keeps these vectors unchanged, so there is one map"))
        else:
            drawn.append(_drawn(f"After {name.replace('_', ' ')}", after, before=drawn[0]))
    parts: list[Part] = [opened.line, *(each.kept for each in drawn), *notes, *_sample_note(drawn[0].map)]
    if n_missing := int(np.isnan(drawn[0].map.places[:, 0]).sum()):
        parts.append(Note(f"note: {n_missing:,} of {len(opened.vectors):,} rows have no vector and are not drawn"))
    files: dict[str, Content] = {
        ".html": lambda: map_page(drawn, opened.texts, colors, source=Path(rows).name, vectors=opened.line),
        ".parquet": lambda: map_table(drawn, opened.texts, opened.columns),
    }
    deliver(Report(parts=[*parts, *(Note(f"saved {path}") for path in outputs)], files=files), outputs)


class _Opened(NamedTuple):
    """What is drawn: vectors, and what is known of each."""

    vectors: NDArray[np.floating]
    texts: list[str] | None
    columns: Mapping[str, Any]  # of the table, if it was read
    line: str  # where the vectors come from

    @classmethod
    def open(
        cls, rows: str, model: str | None, column: str | None, texts: str | None, *, with_columns: bool
    ) -> "_Opened":
        if (index := find_index(rows, "map")) is not None:
            if unused := [name for name, value in (("-m", model), ("--column", column), ("--texts", texts)) if value]:
                raise InputError(f"map: {rows} is an index and has its own vectors. Leave out {', '.join(unused)}.")
            read, loaded, line = Rows.of_index(index), None, f"index of {index.space}"
        else:
            file = opened_rows(rows, column=column, texts=texts)
            read = file.read() if with_columns else Rows(file.read_texts(), file.vectors)
            named = f"vectors of {Path(rows).name}" if file.are_vectors else ""
            if not file.are_vectors:
                say_unused_vectors(rows, column)
            loaded = None if file.are_vectors and model is None else open_model(model, purpose="topics")
            reference = model or ("" if file.are_vectors else DEFAULT_REFERENCE)
            line = ", ".join(filter(None, (named, reference and f"model: {reference}")))
        with progress_bar("encoding" if read.vectors is None else "reading") as bar:
            blocks = compared_blocks("map", read.texts, loaded, read.vectors, progress=bar)
            vectors = np.concatenate(list(blocks))
        columns = {} if read.metadata is None else dict(zip(read.metadata.column_names, read.metadata, strict=True))
        if read.ids is not None:
            columns = {"id": read.ids} | columns
        return cls(vectors, read.texts, columns, line)

    def values(self, column: str, rows: str) -> list[Any]:
        """The values of a column."""
        if column not in self.columns:
            others = f"It has: {', '.join(self.columns)}." if self.columns else "It has no columns next to the texts."
            raise InputError(f"--color {column}: {rows} has no column of this name. {others}")
        values = self.columns[column]
        return list(values if isinstance(values, list) else values.to_pylist())


def _drawn(title: str, vectors: NDArray[np.floating], *, before: DrawnMap | None = None) -> DrawnMap:
    with progress_bar("placing", unit="steps") as bar:
        drawn = neighbor_map(vectors, progress=bar)
    n_distinct, k = len(drawn.distinct_rows), drawn.neighbors.shape[1]
    sample = f", fitted on {drawn.n_fitted:,} of {n_distinct:,}" if drawn.n_fitted < n_distinct else ""
    nearest = "the ten nearest neighbors" if k == N_NEIGHBORS else f"all {k} neighbors"
    kept = "one point" if not k else f"the map keeps {drawn.kept:.0%} of {nearest}"
    if before is not None and k:
        kept += f", and {drawn.kept_of(before.map):.0%} of those before"
    return DrawnMap(title, drawn, f"{title}: {kept} ({drawn.method}{sample}).")


def _sample_note(drawn: NeighborMap) -> Iterator[Note]:
    """That scikit-learn placed a sample, because the faster library is missing."""
    if drawn.method != SLOW_TSNE or drawn.n_fitted == len(drawn.distinct_rows):
        return
    try:
        _extras.require("openTSNE")
    except MissingExtraError as error:
        lost = f"{1 - drawn.kept:.0%} of the nearest neighbors are lost, fewer with openTSNE"
        yield Note(f"note: only {drawn.n_fitted:,} vectors were placed by t-SNE, others next to them; {lost}. {error}")


def _transformed(
    vectors: NDArray[np.floating], texts: list[str] | None, transform: str
) -> tuple[str, NDArray[np.float32] | None]:
    """What was fitted on the vectors, and the vectors after it; None if they stay unchanged."""
    dim = vectors.shape[1]
    base, chosen = SentenceEncoder(PrecomputedVectors(dim)), resolve_transform(transform, dim=dim)
    if chosen is None:
        return transform, None
    if isinstance(chosen, Auto) and texts is not None:
        moments = Moments.from_rows(rows_with_vector(vectors))
        fitted = base.fitted_on_moments(moments, chosen, texts=texts, encoded=vectors)
    else:
        fitted = base.fitted_on_vectors(vectors, chosen)
    name = fitted.fits[-1].transform
    return name, None if name == NO_TRANSFORM else fitted.transform(vectors)
