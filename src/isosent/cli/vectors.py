"""Vectors somebody already has: the commands ``moments`` and ``transform``, and what ``fit`` does with vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer

from isosent.cli.options import ModelChoice, TransformChoice, with_model_flags
from isosent.cli.printing import change_table, choice_table, err, likelihood_change, out, print_likelihood, progress_bar
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
from isosent.io.shards import DTYPES
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import holds_vectors, open_vectors
from isosent.jobs.vectors import (
    FileMoments,
    check_in_front,
    check_moments_file,
    holds_moments,
    moments_of,
    nothing_of,
    read_moments,
    transform_file,
    write_moments,
)
from isosent.model import SentenceEncoder
from isosent.numeric.isotropy import describe_space
from isosent.transforms.base import FlowTransform, LinearTransform, is_flow

_DESCRIBED_ROWS = 10_000

VectorColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column of a table, or tensor, that holds the vectors.")
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Vectors: keep here how far it has come, and go on from there if it was killed.",
    ),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class VectorFit:
    """What ``fit`` is told about vectors.

    Parameters
    ----------
    paths : sequence of str
        Files of vectors or of moments.
    output : Path
        Model folder to write.
    column : str or None
        Column or tensor of the vectors.
    queries : str or None
        Vectors to search with.
    space : str or None
        What a person calls the space of the vectors.
    checkpoint : Path or None
        Where to keep how far it has come.
    """

    paths: Sequence[str]
    output: Path
    column: str | None
    queries: str | None
    space: str | None
    checkpoint: Path | None


@dataclass(frozen=True, slots=True)
class _Files:
    """Files of vectors, opened, and moments that were kept before; all of one space, as far as is known."""

    sources: list[VectorSource]
    kept: list[FileMoments]

    @classmethod
    def opened(cls, paths: Sequence[str], column: str | None) -> "_Files":
        """Open files, and refuse those that do not go together."""
        kept = [read_moments(path) for path in paths if holds_moments(path)]
        files = cls([open_vectors(path, column=column) for path in paths if not holds_moments(path)], kept)
        _ = files.nothing
        return files

    @property
    def nothing(self) -> FileMoments:
        """What is known before a vector is read."""
        return reduce(add, [*self.kept, *map(nothing_of, self.sources)])

    def measured(self, *, radial: bool = False, checkpoint: Path | None = None) -> FileMoments:
        """Read the vectors."""
        for without in (kept for kept in self.kept if radial and kept.moments.radial is None):
            raise InputError(
                f"{', '.join(without.sources)}: moments for ledoit_wolf must be taken with isosent moments --radial; "
                "these were not. Take them again, or choose --shrinkage oas."
            )
        if not self.sources:
            return reduce(add, self.kept)
        with progress_bar("reading", "vectors") as bar:
            measured = moments_of(
                self.sources,
                radial=radial,
                checkpoint=checkpoint,
                resumed=lambda n_rows: err.print(f"going on from row {n_rows:,}, which {checkpoint} had reached"),
                progress=bar(sum(source.n_rows for source in self.sources)),
            )
        return reduce(add, self.kept, measured)


def are_vectors(paths: Sequence[str], column: str | None) -> bool:
    """Tell files of vectors or moments from files of texts.

    Parameters
    ----------
    paths : sequence of str
        Files.
    column : str or None
        The column that is meant.

    Returns
    -------
    bool
        Whether they hold vectors or moments.

    Raises
    ------
    InputError
        If some do and some do not.
    """
    kinds = {path: holds_vectors(path, column=column) for path in paths}
    if len(set(kinds.values())) > 1:
        vectors = next(path for path, is_vectors in kinds.items() if is_vectors)
        texts = next(path for path, is_vectors in kinds.items() if not is_vectors)
        raise InputError(f"Inputs must be all texts or all vectors; got texts, {texts}, and vectors, {vectors}.")
    return all(kinds.values())


def fit_on_vectors(task: VectorFit, model: ModelChoice, transform: TransformChoice) -> None:
    """Fit a transform on vectors or moments, save the model, and print what changed.

    Parameters
    ----------
    task : VectorFit
        What to do.
    model : ModelChoice
        What made the vectors, where the command line says so.
    transform : TransformChoice
        What to fit.

    Raises
    ------
    InputError
        If the vectors are of another space than the model, or cannot be fitted on.
    """
    files = _Files.opened(task.paths, task.column)
    before = _model_before(task, model, files.nothing)
    chosen = transform.make(before.dim)
    after = _fit_flow(task, files, before, chosen) if is_flow(chosen) else _fit_moments(task, files, before, chosen)
    after.save(task.output)
    if after.fits[-1].choice:
        out.print(choice_table(after.fits[-1].choice))
    if after.fits[-1].history:
        out.print(likelihood_change(after.fits[-1].history))
    for source in files.sources[:1]:
        sample = next(source.blocks())[:_DESCRIBED_ROWS]
        table = change_table(describe_space(before.transform(sample)), describe_space(after.transform(sample)))
        table.title = f"first {len(sample):,} vectors of {source.path}"
        out.print(table)
    record = after.fits[-1]
    out.print(f"{task.output}: vectors fitted on: {record.n_texts}; zero rows left out: {record.n_zero_rows}")


def _fit_flow(task: VectorFit, files: _Files, before: SentenceEncoder, chosen: FlowTransform) -> SentenceEncoder:
    """Fit on vectors that are read into memory, because moments do not tell enough."""
    if files.kept or task.queries is not None or task.checkpoint is not None:
        raise InputError(
            "A flow must be fitted on vectors, read at once; moments, --queries and --checkpoint do not go with it. "
            "Leave them out."
        )
    vectors = np.concatenate([block for source in files.sources for block in source.blocks()])
    names = ", ".join(str(source.path) for source in files.sources)
    return before.fitted_on_vectors(vectors, transform=chosen, source=names, report=print_likelihood)


def _fit_moments(
    task: VectorFit, files: _Files, before: SentenceEncoder, chosen: LinearTransform | Literal["auto"]
) -> SentenceEncoder:
    """Fit on moments, for which vectors are read block by block."""
    radial = not isinstance(chosen, str) and chosen.uses_radial_moments
    queries = None if task.queries is None else _Files.opened([task.queries], task.column)
    if queries:
        _ = files.nothing + queries.nothing  # refused before anything is read
    if task.checkpoint is not None and not files.sources:
        raise InputError("--checkpoint goes with vectors; moments are read at once. Leave it out.")
    measured = files.measured(radial=radial, checkpoint=task.checkpoint)
    query_moments = queries.measured(radial=radial).moments if queries else None
    return before.fitted_on_moments(
        measured.moments,
        transform=chosen,
        query_moments=query_moments,
        n_zero_rows=measured.n_zero_rows,
        source=", ".join(measured.sources),
    )


def _model_before(task: VectorFit, model: ModelChoice, nothing: FileMoments) -> SentenceEncoder:
    """The model that the fit stands behind: the one that is named, or one that only knows the space."""
    dim = nothing.moments.dim
    if not model.is_named:
        return SentenceEncoder(PrecomputedVectors.of_space(dim, nothing.space, task.space))
    if task.space is not None:
        raise InputError("--space names what made the vectors where no model does. Leave out either --space or -m.")
    before = model.open()
    if before.encoder.dim != dim:
        raise InputError(
            f"{task.paths[0]}: vectors must have {before.encoder.dim} dimensions, those of the encoder of "
            f"{model.reference}; got {dim}."
        )
    check_in_front(before.record, " + ".join(task.paths), nothing.space)
    return before


def moments(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="VECTORS...",
            help="Vectors: .npy, .fvecs, .bvecs, .safetensors or .parquet; or moments that this command wrote.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="File to write: .safetensors.")],
    column: VectorColumn = None,
    checkpoint: CheckpointFile = None,
    radial: Annotated[
        bool, typer.Option("--radial", help="Take what --shrinkage ledoit_wolf needs, too; about twice the time.")
    ] = False,
) -> None:
    """Take the moments of vectors, and merge moments that were taken apart.

    Weight, mean and scatter are all that a transform is fitted on: "isosent fit MOMENTS -o FOLDER" makes a model of
    them, the same as from all the vectors at once. Files are read block by block, whatever their size.
    """
    check_moments_file(output)
    measured = _Files.opened(inputs, column).measured(radial=radial, checkpoint=checkpoint)
    write_moments(output, measured)
    found = measured.moments
    out.print(
        f"{output}: {found.weight:.0f} vectors of {found.dim} dimensions; zero rows left out: {measured.n_zero_rows}"
    )


@with_model_flags(computes=False)
def transform(
    vectors: Annotated[str, typer.Argument(metavar="VECTORS", help=".npy, .fvecs, .bvecs, .safetensors or .parquet.")],
    model: ModelChoice,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT", help="File to write: .npy, .fvecs or .parquet.")
    ],
    column: VectorColumn = None,
    queries: Annotated[
        bool, typer.Option("--queries", help="They are vectors of queries, where the model has a mean for these.")
    ] = False,
    dtype: Annotated[str, typer.Option(metavar="|".join(DTYPES), help="Type of the numbers written.")] = DTYPES[0],
) -> None:
    """Take vectors through a fitted model, row i from row i.

    They must come from the encoder that the model was fitted behind; the encoder itself is not opened. Files are read
    block by block, whatever their size. A zero row stays zero. From .parquet to .parquet, the other columns come along.
    """
    source, record = open_vectors(vectors, column=column), model.read_record()
    with progress_bar("transforming", "vectors") as bar:
        n_zero_rows = transform_file(source, record, output, dtype=dtype, queries=queries, progress=bar(source.n_rows))
    linear_map = record.postprocessing.linear_map
    dim = source.dim if linear_map is None else linear_map.n_components
    out.print(f"{output}: {source.n_rows} x {dim} {dtype}; zero rows: {n_zero_rows}")
