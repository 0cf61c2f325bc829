"""The command ``export``."""

from pathlib import Path

import click

from isosent.cli.options import PATH
from isosent.cli.printing import show
from isosent.errors import InputError
from isosent.evaluation.result import read_result
from isosent.exports import TARGETS
from isosent.exports import export as export_model
from isosent.exports.faiss import DEFAULT_INDEX
from isosent.io.vectors import open_vectors
from isosent.loading import load
from isosent.pages.progress import progress_bar


@click.command()
@click.argument("model")
@click.option("--to", "target", type=click.Choice(list(TARGETS)), required=True, help="Format.")
@click.option(
    "--output",
    "-o",
    type=PATH,
    metavar="OUT",
    required=True,
    help="Folder (sentence-transformers, onnx) or file (faiss, numpy, sql).",
)
@click.option("--tei", is_flag=True, help="sentence-transformers: for Text Embeddings Inference.")
@click.option(
    "--results",
    type=PATH,
    metavar="FILE",
    help="sentence-transformers: scores for the model card, from evaluate -o.",
)
@click.option("--index", metavar="FACTORY", help=f"faiss: the index, such as IVF256,Flat.  [default: {DEFAULT_INDEX}]")
@click.option("--vectors", metavar="FILE", help="faiss: fill the index with vectors of the encoder or the model.")
@click.option("--column", metavar="NAME", help="Column with the vectors, if the file has several.")
@click.option("--ids", metavar="COLUMN", help="faiss: column with an integer per vector.  [default: number of the row]")
@click.option("--no-map", is_flag=True, help="faiss: without the map; the index then takes vectors of the model.")
def export(
    model: str,
    target: str,
    output: Path,
    tei: bool,
    results: Path | None,
    index: str | None,
    vectors: str | None,
    column: str | None,
    ids: str | None,
    no_map: bool,
) -> None:
    """Write MODEL in the format of another library.

    The result is loaded in that library first, and its vectors are compared with those of the model on sample texts. If
    they differ, nothing is written. (sql is read back and computed in float32.)

    \b
    isosent export model --to sentence-transformers -o folder
    """  # noqa: D301
    scores = None if results is None else read_result(results)
    if column is not None and vectors is None:
        raise InputError("export: --column names vectors of --vectors FILE; there is none.")
    source = None if vectors is None else open_vectors(vectors, column=column)
    with progress_bar("reading word vectors", "bytes") as bar:
        loaded = load(model, progress=bar)
    with progress_bar("adding", "vectors") as bar:
        note = export_model(
            loaded,
            target,
            output,
            tei=tei,
            results=scores,
            index=index,
            vectors=source,
            ids=ids,
            with_map=not no_map,
            progress=None if source is None else bar(source.n_rows),
        )
    agreement = note.agreement
    show(
        f"{output}: {note.target}, {note.space}; checked on {agreement.n_vectors} vectors: largest difference "
        f"{agreement.largest_difference:.1e} of their length, lowest cosine {agreement.lowest_cosine:.9f}"
    )
    if note.contents:
        show(f"{output}: {note.contents}")
