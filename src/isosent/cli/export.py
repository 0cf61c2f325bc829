"""The command ``export``."""

from pathlib import Path
from typing import Any

import click

from isosent._check import split_options
from isosent.cli.options import PATH, output_option
from isosent.cli.printing import deliver, say_replaced
from isosent.errors import InputError
from isosent.evaluation.result_file import read_result
from isosent.exports import TARGETS, faiss, onnx, sentence_transformers
from isosent.exports import export as export_model
from isosent.exports.check import EXPORT, Export
from isosent.exports.faiss_index import export_index
from isosent.io.atomic import check_folder
from isosent.io.vectors import open_vectors
from isosent.loading import load_model
from isosent.pages.progress import progress_bar
from isosent.pages.report import Note, Part, Report
from isosent.search.stores import find_index


@click.command()
@click.argument("model", metavar="MODEL|INDEX")
@click.option(
    "--to",
    metavar="FORMAT",
    required=True,
    help=f"{', '.join(TARGETS)}; with options as in 'faiss?index=IVF256,Flat&map=false' or "
    "'sentence-transformers?tei=true'.",
)
@output_option("OUT", "Folder (sentence-transformers, onnx) or file (faiss, numpy, sql).")
@click.option(
    "--results",
    type=PATH,
    metavar="FILE",
    help="sentence-transformers: scores for the model card, from evaluate -o.",
)
@click.option("--vectors", metavar="FILE", help="faiss: fill the index with vectors of the encoder or the model.")
@click.option("--column", metavar="NAME", help="Column with the vectors, if the file has several.")
@click.option("--ids", metavar="COLUMN", help="faiss: column with an integer per vector.  [default: number of the row]")
def export(
    model: str,
    to: str,
    output: Path,
    results: Path | None,
    vectors: str | None,
    column: str | None,
    ids: str | None,
) -> None:
    """Write MODEL in the format of another library, or INDEX as a file of FAISS.

    The result is loaded in that library first, and its vectors are compared with those of the model on sample texts. If
    they differ, nothing is written. (sql is read back and computed in float32.)

    sentence-transformers?tei=true is for Text Embeddings Inference. faiss?index=NAME names an index of FAISS, Flat by
    default; with map=false it has no transform, and takes vectors of the model.

    \b
    isosent export model --to sentence-transformers -o folder
    isosent export model --to 'faiss?index=IVF256,Flat' --vectors vectors.npy -o index.faiss
    isosent export index --to faiss -o index.faiss
    """  # noqa: D301
    target, options = _target(to)
    if target == faiss.TARGET and (found := find_index(model, "export")) is not None:
        if options.keys() - {"with_map"} or any(each is not None for each in (results, vectors, column, ids)):
            raise InputError(f"export: {model} is an index, which is written unchanged. Use no option but map=false.")
        deliver(Report(parts=_parts(export_index(found.folder, output, **options))))
        return
    if target in (sentence_transformers.TARGET, onnx.TARGET):
        say_replaced("an export", output, check_folder(output, EXPORT))
    scores = None if results is None else read_result(results)
    if column is not None and vectors is None:
        raise InputError("export: --column names vectors of --vectors FILE; there is none.")
    source = None if vectors is None else open_vectors(vectors, column=column)
    loaded = load_model(model)
    with progress_bar("adding", "vectors") as bar:
        note = export_model(
            loaded,
            target,
            output,
            results=scores,
            vectors=source,
            ids=ids,
            **options,
            progress=bar,
        )
    parts = _parts(note)
    if (stored := loaded.record.storage) is not None:
        index = f"isosent index VECTORS -m {model} -o INDEX stores them as {stored.dtype}"
        also = f"; isosent export INDEX --to {target} writes those" if target == faiss.TARGET else ""
        parts.append(Note(f"note: vectors of {output} are float32; only {index}{also}."))
    deliver(Report(parts=parts))


def _parts(note: Export) -> list[Part]:
    """What was written, and how it was checked."""
    agreement = note.agreement
    checked = f"checked on {agreement.n_vectors} vectors: largest difference {agreement.largest_difference:.1e}"
    parts: list[Part] = [
        f"{note.path}: {note.target}, {note.space}; {checked} of their length, lowest cosine "
        f"{agreement.lowest_cosine:.9f}"
    ]
    return [*parts, f"{note.path}: {note.contents}"] if note.contents else parts


def _target(to: str) -> tuple[str, dict[str, Any]]:
    """The format, and its options as the library calls them."""
    target, texts = split_options(to)
    if target not in TARGETS:
        raise InputError(f"--to {target}: the formats are {', '.join(TARGETS)}.")
    options: dict[str, Any] = {}
    for name, value in texts.items():
        if name not in ("tei", "index", "map"):
            raise InputError(f"--to {to}: there is no option {name}. There are tei, index and map.")
        if name != "index" and value not in ("true", "false"):
            raise InputError(f"--to {to}: {name}={value} is neither true nor false.")
        options["with_map" if name == "map" else name] = value if name == "index" else value == "true"
    return target, options
