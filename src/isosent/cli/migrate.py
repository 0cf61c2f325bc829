"""The command ``migrate``."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isosent.cli.options import PATH, open_model
from isosent.cli.printing import show
from isosent.errors import InputError
from isosent.evaluation.migration import Answers
from isosent.evaluation.migration import migrate as migrate_models
from isosent.io.tables import open_table
from isosent.io.texts import is_table, read_texts
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import holds_vectors, open_vectors
from isosent.model import SentenceEncoder
from isosent.pages.progress import progress_bar
from isosent.pages.tables import make_table
from isosent.persistence import check_model_folder

if TYPE_CHECKING:
    from rich.table import Table


@click.command()
@click.argument("old")
@click.argument("new")
@click.argument("texts")
@click.option(
    "--queries", metavar="FILE", help="Table of queries, each with the text that answers it: the first two columns."
)
@click.option("--output", "-o", type=PATH, metavar="FOLDER", help="Save the map of stored vectors as a model.")
@click.option("--json", "as_json", is_flag=True, help="Print nothing but JSON.")
def migrate(old: str, new: str, texts: str, queries: str | None, output: Path | None, as_json: bool) -> None:
    """Say whether to stay with the model OLD, to map its stored vectors to NEW, or to embed the texts again.

    OLD and NEW are models, or files with the vectors that they gave TEXTS, in the same order. Four ways of searching
    are compared on a fifth of TEXTS that no map is fitted on. Use 5,000 texts like the stored ones, or more.

    \b
    isosent migrate wordllama sentence-transformers/all-MiniLM-L6-v2 texts.txt -o map
    isosent index migrate INDEX --map map
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with a backspace
    if output is not None:
        check_model_folder(output)
    listed = read_texts(texts)
    answers = None if queries is None else _answers(queries)
    sides = [_opened(side) for side in (old, new)]
    with progress_bar("encoding", "texts") as bar:
        n_models = sum(isinstance(side, SentenceEncoder) for side in sides)
        result = migrate_models(
            sides[0],
            sides[1],
            listed,
            answers=answers,
            reference=str(Path(new).absolute()) if Path(new).is_dir() else new,
            source=texts,
            progress=bar(n_models * len(listed)),
        )
    if output is not None:
        result.model.save(output)
    if as_json:
        show(json.dumps(result.report, indent=2))
        return
    show(_ways_table(result.report))
    show(result.report["reason"])
    if output is not None:
        show(f"{output}: a map of vectors of {old}, for queries of {new}")


def _opened(side: str) -> SentenceEncoder | VectorSource:
    return open_vectors(side) if holds_vectors(side) else open_model(side)


def _answers(path: str) -> Answers:
    """Queries and the texts that answer them: the first two columns of a table."""
    if not is_table(path):
        raise InputError(f"{path}: each query needs the text that answers it. Give a table of two columns, or no file.")
    with open_table(path) as table:
        if len(table.columns) < 2:
            raise InputError(f"{path} has one column; the queries and the texts that answer them need two.")
        columns = table.columns[:2]
        answers = [
            (table.text(number, columns[0], query), table.text(number, columns[1], answer))
            for number, (query, answer) in table.rows(*columns)
        ]
    if not answers:
        raise InputError(f"{path} holds no queries.")
    return answers


def _ways_table(report: dict[str, Any]) -> "Table":
    caption = (
        f"score: {report['measure']} (mean reciprocal rank)\n"
        if report["rows"]["old model"]["found"] is not None
        else f"score: {report['measure']}\n"
    )
    caption += f"{report['n_held_out']:,} texts, none of the {report['n_fitted']:,} that the maps are fitted on"
    table = make_table("", "score", "among ten", "over the old model", "95% interval", caption=caption)
    methods = {"documents mapped": f" ({report['method']})", "queries mapped": " (Procrustes)"}
    for way, row in report["rows"].items():
        found = "" if row["found"] is None else f"{row['found']:.1%}"
        gain = ("", "") if way == "old model" else (f"{row['gain']:+.3f}", f"{row['low']:+.3f} to {row['high']:+.3f}")
        table.add_row(way + methods.get(way, ""), f"{row['score']:.3f}", found, *gain)
    return table
