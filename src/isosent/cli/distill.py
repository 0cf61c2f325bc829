"""The command ``distill``."""

from pathlib import Path

import click

from isosent.cli.options import PATH, column_option, open_model, worker_options
from isosent.cli.printing import say, show
from isosent.jobs.shards import Engine
from isosent.pages.progress import progress_bar
from isosent.training.distill import distill_files
from isosent.transforms.base import AUTO, parse_option, resolve_transform


@click.command()
@click.argument("model")
@click.argument("inputs", nargs=-1, required=True, metavar="TEXTS...")
@click.option("--output", "-o", type=PATH, metavar="FOLDER", required=True, help="Folder of the static model.")
@click.option("--vectors", metavar="FILE", help="Vectors that the model gave the texts, if there are some already.")
@column_option
@click.option(
    "--transform", metavar="NAME", help='Transform to fold in: auto, or as for "isosent fit".  [default: none]'
)
@click.option("--dims", metavar="K|SHARE|auto", help="Dimensions to keep; auto chooses the transform for them.")
@worker_options
def distill(
    model: str,
    inputs: tuple[str, ...],
    output: Path,
    vectors: str | None,
    column: str | None,
    transform: str | None,
    dims: str | None,
    engine: Engine | None,
) -> None:
    """Turn MODEL, a transformer, into a static model that is a hundred times as fast, and say what is lost.

    TEXTS are files of texts like those to come, without labels: 20,000 texts or more. They are encoded once; run the
    same command again to resume. isosent, Model2Vec and sentence-transformers open FOLDER.

    Without a transform, the vectors lie in the space of MODEL: "isosent index -m MODEL --query-model FOLDER" makes an
    index whose queries cost microseconds. --transform auto or --dims give the static model a space of its own.
    """
    loaded = open_model(model)
    settings = {} if dims is None else {"n_components": parse_option(dims)}
    result = distill_files(
        inputs,
        output,
        loaded,
        reference=model,
        vectors=vectors,
        column=column,
        transform=resolve_transform(transform or (AUTO if settings else None), settings),
        engine=engine,
        bars=progress_bar,
        say=say,
    )
    for line in result.lines():
        show(line)
    show(f"{output}: {loaded.encoder.reference} as a static model")
