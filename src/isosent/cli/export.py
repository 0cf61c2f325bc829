"""The command ``export``."""

from pathlib import Path
from typing import Annotated

import typer

from isosent.cli.options import ModelChoice, with_model_flags
from isosent.cli.printing import out
from isosent.evaluation.result import read_result
from isosent.exports.faiss import DEFAULT_INDEX
from isosent.exports.targets import TARGETS
from isosent.exports.targets import export as export_model


@with_model_flags(argument=True)
def export(
    model: ModelChoice,
    target: Annotated[str, typer.Option("--to", metavar="|".join(TARGETS), help="Format.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Folder (sentence-transformers, onnx) or file (faiss, numpy).",
        ),
    ],
    tei: Annotated[
        bool,
        typer.Option("--tei", help="sentence-transformers: names and settings that Text Embeddings Inference reads."),
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="SCORES.json",
            help='sentence-transformers: scores for the model card, from "isosent evaluate sts --json".',
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            metavar="FACTORY", help=f"faiss: the index behind the map, as IVF256,Flat. [default: {DEFAULT_INDEX}]"
        ),
    ] = None,
) -> None:
    """Write a model in a format of other libraries.

    Before it appears, the result is opened in the other library, and its vectors are compared with those of the model
    on sample texts; one that differs is not written, and an older one stays.
    """
    scores = None if results is None else read_result(results)
    written = export_model(model.open(), target, output, tei=tei, results=scores, index=index)
    agreement = written.agreement
    out.print(
        f"{output}: {written.target}, {written.space}; checked on {agreement.n_vectors} vectors: "
        f"largest difference {agreement.largest_difference:.1e} of their length, "
        f"lowest cosine {agreement.lowest_cosine:.9f}"
    )
