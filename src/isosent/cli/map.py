"""The command ``map``: vectors in two dimensions, as a page, and as a table for embedding-atlas."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from isosent.cli.options import column_option, model_option, open_model, outputs_option, texts_option
from isosent.cli.printing import check_outputs, deliver, say_unused_vectors
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.encoders.reference import DEFAULT_REFERENCE, folder_kind
from isosent.errors import InputError
from isosent.io.formats import format_by_name
from isosent.jobs.inspect import find_groups, groups_warning
from isosent.loading import load_model
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.pages.progress import progress_bar
from isosent.pages.report import Content, Note, Part, Report
from isosent.persistence import check_encoder_space
from isosent.report.map_page import DrawnMap, map_page, map_table
from isosent.search.inputs import Rows, opened_rows
from isosent.search.places import N_NEIGHBORS, NeighborMap, missing_library, neighbor_map
from isosent.search.stores import rows_of_index
from isosent.search.units import compared_blocks
from isosent.transforms.base import NO_TRANSFORM, Auto, resolve_transform
from isosent.transforms.statistics import rows_with_vector


@click.command()
@click.argument("rows", metavar="TEXTS|VECTORS|INDEX")
@model_option
@column_option
@texts_option
@click.option("--color", metavar="COLUMN", help="Color by a column: categories, numbers or dates.")
@click.option(
    "--transform",
    metavar="NAME|FOLDER",
    help='Also draw after a transform: auto, as for "isosent fit", or a saved model.',
)
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
    isosent map pool.csv --color lang --transform erased -o map.html
    """  # noqa: D301
    check_outputs(outputs, reads=(rows, texts))
    has_table = any(format_by_name(path).is_parquet for path in outputs)
    fitted = None if transform is None else _fitted_before(transform)
    if fitted is not None and model is not None:
        raise InputError(f"map: {transform} names its encoder. Leave out -m.")
    opened = _Opened.open(rows, model, column, texts, fitted, with_columns=has_table or color is not None)
    colors = None if color is None else (color, opened.values(color, rows))
    title, after = (None, None) if transform is None else _transformed(opened, transform, fitted)
    drawn, notes = [_drawn(opened.title, opened.vectors)], list[Part]()
    if title is not None and after is not None:
        drawn.append(_drawn(title, after, before=drawn[0]))
    elif transform is not None:
        notes.append(Note(f"note: {transform} keeps these vectors unchanged, so there is one map"))
    if (groups := find_groups(opened.vectors if after is None else after, opened.texts)) is not None:
        notes.append(Note(f"warning: {groups_warning(groups, otherwise='draw')}"))
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
    title: str  # of their map

    @classmethod
    def open(
        cls,
        rows: str,
        model: str | None,
        column: str | None,
        texts: str | None,
        fitted: SentenceEncoder | None,
        *,
        with_columns: bool,
    ) -> "_Opened":
        """Read the rows and encode texts, by the encoder of the model that is drawn next to them, if there is one."""
        loaded, space = None, None
        if (stored := rows_of_index(rows, "map", model=model, column=column, texts=texts)) is not None:
            if fitted is not None:  # may have been fitted on vectors of other lengths
                raise InputError(f"map: {rows} holds vectors of length 1. Name the texts or vectors it was made of.")
            assert stored.vectors is not None
            read, line = stored, f"index of {stored.vectors.space}"
        else:
            file = opened_rows(rows, column=column, texts=texts)
            read = file.read() if with_columns else Rows(file.read_texts(), file.vectors)
            named = f"vectors of {Path(rows).name}" if file.are_vectors else ""
            if not file.are_vectors:
                say_unused_vectors(rows, column)
            if file.vectors is not None:
                space = file.vectors.space
            if fitted is not None and not file.are_vectors:
                loaded = SentenceEncoder(fitted.encoder)
            elif not file.are_vectors or model is not None:
                loaded = open_model(model, purpose="topics")
            reference = model or ("" if loaded is None else DEFAULT_REFERENCE if fitted is None else loaded.record.name)
            line = ", ".join(filter(None, (named, reference and f"model: {reference}")))
        if fitted is not None and loaded is None:
            check_encoder_space(fitted.record, rows, space)
        with progress_bar("encoding" if read.vectors is None else "reading") as bar:
            blocks = compared_blocks("map", read.texts, loaded, read.vectors, progress=bar)
            vectors = np.concatenate(list(blocks))
        columns = {} if read.metadata is None else dict(zip(read.metadata.column_names, read.metadata, strict=True))
        if read.ids is not None:
            columns = {"id": read.ids} | columns
        return cls(vectors, read.texts, columns, line, _title(loaded) or "Unchanged")

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
    if (error := missing_library(drawn)) is not None:
        lost = f"{1 - drawn.kept:.0%} of the nearest neighbors are lost, fewer with openTSNE"
        yield Note(f"note: only {drawn.n_fitted:,} vectors were placed by t-SNE, others next to them; {lost}. {error}")


def _fitted_before(transform: str) -> SentenceEncoder | None:
    """The saved model of a folder; None for the name of a transform."""
    try:
        resolve_transform(transform)  # refused before anything is encoded
    except InputError:
        if folder_kind(Path(transform.partition("?")[0])) != "folder":
            raise
        return load_model(transform)
    return None


def _title(model: SentenceEncoder | None) -> str | None:
    """What was done to the vectors of a model; None if nothing was."""
    names = [] if model is None else [fit.transform.replace("_", " ") for fit in model.fits]
    done = [name for name in names if name != NO_TRANSFORM]
    return f"After {' and '.join(done)}" if done else None


def _transformed(
    opened: _Opened, transform: str, fitted: SentenceEncoder | None
) -> tuple[str | None, NDArray[np.float32] | None]:
    """What is done to the vectors by a model that is fitted on them, or before; None if they stay unchanged."""
    vectors, dim = opened.vectors, opened.vectors.shape[1]
    if fitted is None:
        base, chosen = SentenceEncoder(PrecomputedVectors(dim)), resolve_transform(transform, dim=dim)
        if isinstance(chosen, Auto) and opened.texts is not None:
            moments = Moments.from_rows(rows_with_vector(vectors))
            fitted = base.fitted_on_moments(moments, chosen, texts=opened.texts, encoded=vectors)
        elif chosen is not None:
            fitted = base.fitted_on_vectors(vectors, chosen)
    title = _title(fitted)
    if fitted is None or title is None:
        return None, None
    after = fitted.transform(vectors)
    if not after.any():
        raise InputError(f"map: {title[0].lower()}{title[1:]}, all vectors are zero: there is nothing to draw.")
    return title, after
