"""The command ``index``: a group, where ``create`` is meant if no subcommand is named (`_IndexCommands`).

``create`` makes an index of the rows of files; with workers, their texts are encoded into a folder first. ``add``,
``remove``, ``compact`` and ``migrate`` change an index, ``verify`` checks its model, ``push`` and ``pull`` copy between
it and the table of a database. The work is done by `Index`, `search.inputs` and `search.stores`.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from isosent.cli.options import (
    Share,
    json_option,
    model_option,
    open_model,
    output_option,
    scheme_named,
    space_option,
    texts_option,
    worker_options,
)
from isosent.cli.printing import (
    budget_lines,
    deliver,
    say,
    say_replaced,
    say_unused_vectors,
    show,
    stale_notes,
    stats_report,
)
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.jobs.shards import Engine, encoded_vectors, how_resumed, may_resume
from isosent.numeric.canary import CHANGED
from isosent.pages.progress import progress_bar
from isosent.pages.report import Note, Part, Report
from isosent.search.build import MIN_RECALL
from isosent.search.changes import target_model
from isosent.search.commits import check_index_folder
from isosent.search.engine import KINDS
from isosent.search.index import Index
from isosent.search.inputs import joined_rows, opened_inputs, opened_rows
from isosent.search.rows import TEXT, ids_from_text
from isosent.search.stores import open_store
from isosent.search.stores.database import URLS
from isosent.search.stores.database import pull as pull_index
from isosent.search.stores.database import push as push_index
from isosent.space import Space, are_same
from isosent.storage import INDEXED

_DEFAULT = "create"

text_column_option = click.option(
    "--column", metavar="NAME", help="Column with the texts.  [default: text, else the only column of texts]"
)
id_column_option = click.option("--id-column", metavar="NAME", help="Column with the ids.  [default: id, else numbers]")
index_folder_option = output_option("INDEX", "Folder of the index.")


class _IndexCommands(click.Group):
    """A group whose first command needs no name: ``isosent index TEXTS`` makes an index."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.with_command(ctx, args))

    def with_command(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the first command before arguments that name none."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            nearest = get_close_matches(args[0], self.commands, n=1)
            if nearest and not Path(args[0]).exists():
                raise click.UsageError(f"No such file or command {args[0]!r}. Did you mean {nearest[0]!r}?", ctx)
            return [_DEFAULT, *args]
        return args


@click.group(cls=_IndexCommands)
def index() -> None:
    """Make an index of texts or vectors, change it, and describe it.

    \b
    isosent index TEXTS -m MODEL -o INDEX    its options: isosent index create --help
    isosent search INDEX "a query"
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with a backspace


@index.command(_DEFAULT)
@click.argument("rows", nargs=-1, required=True)
@model_option
@index_folder_option
@click.option(
    "--kind", type=click.Choice(["auto", *KINDS]), default="auto", help="auto: flat up to 200,000 rows, ivf above."
)
@click.option("--store", type=click.Choice(INDEXED), help="Dtype.  [default: float32, or what fits --budget-mb]")
@click.option("--budget-mb", type=click.FloatRange(0, min_open=True), metavar="N", help="Memory for the vectors.")
@click.option(
    "--min-recall",
    type=Share(0, 1, min_open=True),
    metavar="R",
    help=f"Share of the ten nearest rows to be found; settings are chosen by measuring.  [default: {MIN_RECALL}]",
)
@click.option("--query-model", metavar="STATIC", help="Static model for queries, distilled from the model.")
@text_column_option
@id_column_option
@texts_option
@space_option
@worker_options
def create(
    rows: tuple[str, ...],
    model: str | None,
    output: Path,
    kind: str,
    store: Any,
    budget_mb: float | None,
    min_recall: float | None,
    query_model: str | None,
    column: str | None,
    id_column: str | None,
    texts: str | None,
    space: str | None,
    engine: Engine | None,
) -> None:
    """Make an index of ROWS: texts, tables, or vectors of the encoder.

    The other columns of a table can be filtered by. The model is saved in the index. Without -m, texts are encoded by
    wordllama, and vectors are used unchanged. An existing index is replaced. Workers encode texts; the index is
    made of their vectors in this process. More than 100,000 texts are first encoded into the folder INDEX.shards: if
    that is interrupted, the same command resumes. A model with a transform for each group of texts takes the group of
    a row from the column that it names (see "isosent info MODEL").

    \b
    isosent index texts.csv --column text -m model -o index
    """  # noqa: D301
    say_replaced("an index", output, check_index_folder(output))
    with ExitStack() as stack:
        names, files = stack.enter_context(opened_inputs(rows, column=column, texts=texts))
        for file in files:
            if not file.are_vectors:
                say_unused_vectors(file.source.name, column)
        parts = [file.read(id_column=id_column, space=space) for file in files]
        inputs, are_alike = joined_rows(parts), len({part.column for part in parts}) == 1
        is_used = model is not None or inputs.vectors is None
        loaded = open_model(model, purpose="search") if is_used else None
        paths = ", ".join(file.source.name for file in files)
        if not inputs.n_rows:
            raise InputError(f"{paths}: no {'texts' if inputs.vectors is None else 'vectors'}.")
        if engine is not None and (loaded is None or inputs.vectors is not None):
            raise InputError(f"index: --workers encode texts; {files[0].source.name} holds vectors.")
        resumes = are_alike and loaded is not None and may_resume(loaded, names, inputs.n_rows)
        if loaded is not None and inputs.vectors is None and (engine or resumes):
            folder = f"{output}.shards"
            with progress_bar("encoding") as bar:
                vectors = stack.enter_context(
                    encoded_vectors(
                        loaded,
                        names,
                        folder,
                        column=inputs.column or column,
                        role="document",
                        engine=engine,
                        reference=model or DEFAULT_REFERENCE,
                        resumed=lambda index: say(how_resumed(folder, "encode", index)),
                        progress=bar,
                    )
                )
            inputs = replace(inputs, vectors=vectors)
        chosen: Any = None if kind == "auto" else kind
        with progress_bar("indexing") as bar:
            made = Index.create(
                inputs.texts,
                loaded,
                vectors=inputs.vectors,
                ids=inputs.ids,
                metadata=inputs.metadata,
                folder=output,
                kind=chosen,
                store=store,
                budget_mb=budget_mb,
                min_recall=min_recall,
                query_model=None if query_model is None else open_model(query_model),
                progress=bar,
            )
    deliver(stats_report(output, made.stats()))
    if budget_mb is not None:
        deliver(Report(parts=budget_lines(made.stats(), budget_mb)))


@index.command()
@click.argument("folder", metavar="INDEX")
@click.argument("rows")
@text_column_option
@id_column_option
@texts_option
@space_option
def add(
    folder: str,
    rows: str,
    column: str | None,
    id_column: str | None,
    texts: str | None,
    space: str | None,
) -> None:
    """Add ROWS to INDEX; rows with an existing id are replaced (not in an hnsw index).

    Vectors without a note of their space are compared with those of INDEX, and a warning says if they differ: they are
    of other topics, or of another model. With --space, they are refused if the name is not that of INDEX.

    \b
    isosent index add INDEX new.csv
    """  # noqa: D301
    opened = open_store(folder).index("index add")
    file = opened_rows(rows, column=column, texts=texts)
    if not file.are_vectors:
        say_unused_vectors(rows, column)
    new = file.read(id_column=id_column, space=space, schema=opened.schema)
    parts: list[Part] = []

    def committed(n_replaced: int, n_rows: int) -> None:
        parts.append(f"{opened.folder}: {new.n_rows} rows added, {n_replaced} replaced; {n_rows} now")

    opened.add(
        new.texts, vectors=new.vectors, ids=new.ids, metadata=new.metadata, check_space=True, committed=committed
    )
    if new.texts is None and TEXT in opened.schema.names:
        warning = f"warning: {rows} has no texts, so results show these rows without one. Add them with --texts FILE."
        parts.append(Note(warning))
    deliver(Report(parts=[*parts, *stale_notes(opened.folder, opened.stats())]))


@index.command()
@click.argument("folder", metavar="INDEX")
@click.argument("ids", nargs=-1, required=True)
def remove(folder: str, ids: tuple[str, ...]) -> None:
    """Delete the rows with these IDS from INDEX (not from an hnsw index).

    \b
    isosent index remove INDEX 17 42
    """  # noqa: D301
    opened = open_store(folder).index("index remove")
    n_removed = opened.remove(ids_from_text(ids, opened.schema))
    line = f"{opened.folder}: {n_removed} of {len(ids)} rows deleted; {len(opened)} now"
    deliver(Report(parts=[line, *stale_notes(opened.folder, opened.stats())]))


@index.command()
@click.argument("folder", metavar="INDEX")
def compact(folder: str) -> None:
    """Build INDEX again from its rows, and measure its recall again.

    \b
    isosent index compact INDEX
    """  # noqa: D301
    opened = open_store(folder).index("index compact")
    opened.compact()
    deliver(stats_report(opened.folder, opened.stats()))


@index.command()
@click.argument("folder", metavar="INDEX")
@json_option
def verify(folder: str, *, as_json: bool) -> None:
    """Check whether the model of INDEX still gives the vectors that INDEX was made of.

    A few fixed texts and eight texts of INDEX are encoded again. Exits with 2 if the model has changed.

    \b
    isosent index verify INDEX
    """  # noqa: D301
    opened = open_store(folder).index("index verify")
    check = opened.verify()
    unchanged = [] if check.has_changed else [f"{opened.folder}: the model is unchanged. {check}"]
    deliver(Report(check._asdict() | {"has_changed": check.has_changed}, unchanged), as_json=as_json)
    if check.has_changed:
        raise InputError(
            f"{opened.folder}: {CHANGED} {check}. Load the model that made INDEX (the same version, prompt, pooling "
            "and maximum length), or make the index again."
        )
    if check.are_other_texts:
        say(
            "warning: the vectors of INDEX are not those of its texts. If they were made of longer texts, that is fine."
        )


@index.command()
@click.argument("folder", metavar="INDEX")
@click.option("--map", "mapping", metavar="FOLDER", required=True, help="What isosent migrate -o saved.")
def migrate(folder: str, mapping: str) -> None:
    """Map the vectors of INDEX to those of a new model, which encodes queries from then on.

    The rows are marked as mapped. Replace them when you can: "isosent index add" with the same ids.

    \b
    isosent index migrate INDEX --map map
    """  # noqa: D301
    opened, loaded = open_store(folder).index("index migrate"), open_model(mapping)
    model, record = target_model(loaded, mapping, open_model)
    was_mapped = are_same(opened.space.fingerprint, model.fingerprint)
    opened.migrate(loaded, model)
    if was_mapped:
        left = opened.stats().n_mapped or "no"
        show(
            f"{opened.folder} was mapped to {model.record.name} before: nothing was changed; {left} mapped rows are "
            "left."
        )
    else:
        show(f"{opened.folder}: mapped to {model.record.name}, which encodes queries from now on.")
        if record.choice:
            show(f"isosent migrate recommended: {record.choice['reason']}")
    deliver(stats_report(opened.folder, opened.stats()))


@index.command()
@click.argument("folder", metavar="INDEX")
@click.option("--to", "url", metavar="URL", required=True, help=f"One of {URLS}.")
def push(folder: str, url: str) -> None:
    """Make the table of a database hold exactly the rows of INDEX. Run it again to resume.

    \b
    isosent index push INDEX --to 'postgresql://user@host/db?table=rows'
    isosent index push INDEX --to lance:DIR
    isosent index push INDEX --to 'qdrant:https://host:6333?table=rows'
    isosent index push INDEX --to qdrant:DIR
    """  # noqa: D301
    opened = open_store(folder).index("index push")
    with progress_bar("pushing", "rows", say=say) as bar:
        n_written, n_deleted = push_index(opened, url, progress=bar, say=say)
    show(f"{n_written} rows written, {n_deleted} deleted; {len(opened)} now")


@index.command()
@click.argument("url", metavar="URL")
@index_folder_option
@click.option("--model", "-m", metavar="REFERENCE", help="Model that made the vectors; it is saved in the index.")
def pull(url: str, output: Path, model: str | None) -> None:
    """Make an index of the table of a database.

    \b
    isosent index pull lance:DIR -m MODEL -o INDEX
    """  # noqa: D301
    say_replaced("an index", output, check_index_folder(output))
    loaded = None if model is None else open_model(model)
    with progress_bar("pulling", "rows", say=say) as bar:
        made = pull_index(url, output, model=loaded, progress=bar)
    deliver(stats_report(output, made.stats()))
    if loaded is None:
        space = made.stats().space
        known = f"Pull again with the model that made the vectors: -m {_model_of(space)}"
        unknown = (
            "Nothing says which model made the vectors: index them again, with -m MODEL, and push that index to "
            "another table"
        )
        say(f"{output} has no model, so it cannot search texts. {unknown if space.is_unnamed else known}")


def _model_of(space: Space) -> str:
    """How the model of vectors is named, for people: the name of a space may be no reference."""
    if " -> " in space.reference:
        return f"the folder of {space.reference}"
    scheme = scheme_named(space.reference)
    saved = f"INDEX/model of the index that was pushed: its vectors are of {space.reference}"
    if scheme == "hub":  # OWNER/NAME may be one of anything
        return f"{space.reference}, if that is a model; else {saved}"
    return space.reference if scheme else saved
