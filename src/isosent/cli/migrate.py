"""The command ``migrate``: stay with a model, map its stored vectors to another one, or embed the texts again."""

from pathlib import Path

import click

from isosent.cli.options import column_option, json_option, no_column_option, open_model, output_option
from isosent.cli.printing import deliver, say_replaced
from isosent.errors import InputError
from isosent.evaluation.migration import MigrationFindings, Side
from isosent.evaluation.migration import migrate as migrate_models
from isosent.evaluation.migration_inputs import MigrationInputs, absolute_location, read_answers
from isosent.io.source import open_source
from isosent.io.texts import TextSource
from isosent.pages.progress import progress_bar
from isosent.pages.report import Note, Part, Report, ReportTable
from isosent.persistence import check_model_folder
from isosent.search.stores import find_index


@click.command()
@click.argument("old")
@click.argument("new")
@click.argument("texts", required=False)
@column_option
@click.option(
    "--queries", metavar="FILE", help="Table of queries, each with the text that answers it: the first two columns."
)
@output_option("FOLDER", "Save the map of stored vectors as a model.", required=False)
@json_option
def migrate(
    old: str,
    new: str,
    texts: str | None,
    column: str | None,
    queries: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Say whether to stay with the model OLD, to map its stored vectors to NEW, or to embed the texts again.

    OLD and NEW are models, or files with the vectors that they gave TEXTS, in the same order. OLD may also be an index,
    whose texts and vectors are taken. Four ways of searching are compared on a fifth of TEXTS that no map is fitted on.
    Use 5,000 texts like the stored ones, or more; in a table of several columns, they are in the column "text".

    \b
    isosent migrate wordllama sentence-transformers/all-MiniLM-L6-v2 texts.txt -o map
    isosent migrate INDEX sentence-transformers/all-MiniLM-L6-v2 -o map
    """  # noqa: D301
    if output is not None:
        say_replaced("a model", output, check_model_folder(output))
    answers = None if queries is None else read_answers(queries)
    if (index := find_index(old, "migrate")) is not None:
        if unused := texts or column:
            raise InputError(f"migrate: {old} is an index and has its own texts. Leave out {unused}.")
        inputs = MigrationInputs.of_index(index, _side(new))
    elif texts is None:
        raise InputError(
            f"migrate: {old} is no index. Name a file of texts like the stored ones: isosent migrate OLD NEW TEXTS."
        )
    else:
        inputs = MigrationInputs.of_texts(_side(old), _side(new), TextSource(texts, column))
    with progress_bar("encoding", "texts") as bar:
        result = migrate_models(
            inputs.old,
            inputs.new,
            inputs.texts,
            answers=answers,
            stored=inputs.stored,
            reference=absolute_location(new),
            source=texts or old,
            progress=bar,
        )
    findings = result.findings
    parts: list[Part] = [_ways_table(findings), findings.reason]
    if findings.caution:
        parts.append(Note(f"note: {findings.caution} See --queries."))
    if output is not None:
        result.model.save(output)
        parts.append(f"{output}: a map of vectors of {old}, for queries of {new}")
        if findings.advice != "map":
            parts.append(Note(f"note: {output} is saved because -o names it, not because it is recommended."))
    deliver(Report(findings.to_json(), parts), as_json=as_json)


def _side(name: str) -> Side:
    with no_column_option():  # that of the command is for the texts
        source = open_source(name)
    return source if source.kind == "vectors" else open_model(name)


def _ways_table(findings: MigrationFindings) -> ReportTable:
    caption = (
        f"score: {findings.measure}, over {findings.n_held_out:,}\nmaps are fitted on {findings.n_fitted:,} other texts"
    )
    has_found = any(way.found is not None for way in findings.ways.values())
    gain_columns = ("over the old model", "95% interval")
    table = ReportTable("", "score", "95% interval", *["among ten"] * has_found, *gain_columns, caption=caption)
    methods = {"documents mapped": f" ({findings.method})", "queries mapped": " (Procrustes)"}
    for name, way in findings.ways.items():
        found = [] if way.found is None else [f"{way.found:.1%}"]
        low, high = way.interval
        gain = way.gain
        gains = ("", "") if name == "old model" else (f"{gain.value:+.3f}", f"{gain.low:+.3f} to {gain.high:+.3f}")
        table.add_row(name + methods.get(name, ""), f"{way.score:.3f}", f"{low:.3f} to {high:.3f}", *found, *gains)
    return table
