"""The commands ``index`` and ``search``.

`index` is a group: ``create`` is meant where no subcommand is named (`_IndexCommands`); ``add``, ``remove``,
``compact`` and ``migrate`` change a folder, ``verify`` checks its model, ``push`` and ``pull`` copy between it and the
table of a database. `_read_inputs` turns the files of a command into texts, vectors, ids and metadata; with workers,
`_encoded` encodes them into a folder first. `search` asks a store, which is an index or such a table. The work is done
by `Index` and `search.stores`; the rest is printing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from isosent import _extras
from isosent._check import brief
from isosent.cli.options import (
    PATH,
    Share,
    json_option,
    model_option,
    open_model,
    output_option,
    space_option,
    texts_option,
    worker_options,
)
from isosent.cli.printing import (
    deliver,
    megabytes,
    say,
    say_unused_vectors,
    shortened,
    show,
    stale_notes,
    stats_report,
)
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.encoders.reference import DEFAULT_REFERENCE, without_permissions
from isosent.errors import InputError, InputFileError
from isosent.io.atomic import check_folder
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.remote import local_copies
from isosent.io.remote import remove as remove_shards
from isosent.io.shards import input_paths
from isosent.io.source import open_source
from isosent.io.texts import TEXT_ENDINGS, TextSource
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import VECTOR_ENDINGS, open_vectors
from isosent.jobs.shards import Engine, encode_folder, how_resumed
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.numeric.canary import CHANGED, LEAST_KEPT
from isosent.pages.progress import progress_bar
from isosent.pages.report import Note, Part, Report
from isosent.persistence import MIGRATION
from isosent.search.build import MIN_RECALL
from isosent.search.commits import INDEX
from isosent.search.engine import K_MEASURED, KINDS, bytes_per_vector, stores_of
from isosent.search.index import Index
from isosent.search.result import IndexStats
from isosent.search.rows import CUSTOM_ID, TEXT, ids_from_text, order_by_ids, read_rows
from isosent.search.stores import open_store
from isosent.search.stores.database import pull as pull_index
from isosent.search.stores.database import push as push_index
from isosent.space import Space
from isosent.storage import INDEXED

_DEFAULT = "create"
_MOST_HITS = 10
_TEXT_LIKE = (".txt", ".csv", ".tsv")  # a query may end so and be no file
_LARGEST_CHANCE = 0.5  # of a recall; with fewer texts, chance finds most

text_column_option = click.option(
    "--column", metavar="NAME", help="Column with the texts.  [default: text, else the only column of texts]"
)
id_column_option = click.option("--id-column", metavar="NAME", help="Column with the ids.  [default: id, else numbers]")
index_folder_option = output_option("INDEX", "Folder of the index.")


class _IndexCommands(click.Group):
    """A group whose first command needs no name: ``isosent index TEXTS`` makes an index."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            nearest = get_close_matches(args[0], self.commands, n=1)
            if nearest and not Path(args[0]).exists():
                raise click.UsageError(f"No such file or command {args[0]!r}. Did you mean {nearest[0]!r}?", ctx)
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


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
    made of their vectors in this process. A model with a transform for each group of texts takes the group of a row
    from the column that it names (see "isosent info MODEL").

    \b
    isosent index texts.csv --column text -m model -o index
    """  # noqa: D301
    _extras.require("faiss")  # the extra is named before a file is read
    is_replaced = check_folder(output, INDEX)
    names = input_paths(rows, (*TEXT_ENDINGS, *VECTOR_ENDINGS), as_parts=False)
    with local_copies(names) as (paths, _):
        sources = [_opened_input(path, column, texts) for path in paths]
        if len(paths) > 1 and (texts is not None or any(source.kind == "vectors" for source in sources)):
            raise InputError(
                f"index: {', '.join(paths)}: only texts can come from several files. Vectors with their texts: isosent "
                "index VECTORS --texts TEXTS."
            )
        inputs = _joined([_read_inputs(source, column, id_column, texts, space=space) for source in sources])
        is_used = model is not None or inputs["vectors"] is None
        loaded = open_model(model, purpose="search") if is_used else None
        if engine is not None:
            if loaded is None or inputs["vectors"] is not None:
                raise InputError(f"index: --workers encode texts; {paths[0]} holds vectors.")
            inputs["vectors"] = _encoded(model, loaded, names, column, f"{output}.shards", engine)
        chosen: Any = None if kind == "auto" else kind
        n_rows = len(inputs["texts"]) if inputs["vectors"] is None else inputs["vectors"].n_rows
        if not n_rows:
            unit = "text" if inputs["vectors"] is None else "vector"
            raise InputError(f"{', '.join(paths)}: no {unit}s.")
        with progress_bar("indexing") as bar:
            made = Index.create(
                inputs.pop("texts"),
                loaded,
                **inputs,
                folder=output,
                kind=chosen,
                store=store,
                budget_mb=budget_mb,
                min_recall=min_recall,
                query_model=None if query_model is None else load(query_model),
                progress=bar,
            )
        if engine is not None:
            remove_shards(f"{output}.shards")
        if is_replaced:
            say(f"replaced the index that was in {output}")
        deliver(stats_report(output, made.stats()))
        if budget_mb is not None:
            deliver(Report(parts=_budget_lines(made.stats(), budget_mb)))


@index.command()
@click.argument("folder", metavar="INDEX", type=PATH)
@click.argument("rows")
@text_column_option
@id_column_option
@texts_option
@space_option
def add(
    folder: Path,
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
    opened = Index.open(folder)
    n_before = len(opened)
    inputs = _read_inputs(_opened_input(rows, column, texts), column, id_column, texts, opened.schema, space=space)
    n_added = len(opened.add(**inputs, check_space=True))
    parts: list[Part] = [
        f"{folder}: {n_added} rows added, {n_before + n_added - len(opened)} replaced; {len(opened)} now"
    ]
    if inputs["texts"] is None and TEXT in opened.schema.names:
        warning = f"warning: {rows} has no texts, so results show these rows without one. Add them with --texts FILE."
        parts.append(Note(warning))
    deliver(Report(parts=[*parts, *stale_notes(folder, opened.stats())]))


@index.command()
@click.argument("folder", metavar="INDEX", type=PATH)
@click.argument("ids", nargs=-1, required=True)
def remove(folder: Path, ids: tuple[str, ...]) -> None:
    """Delete the rows with these IDS from INDEX (not from an hnsw index).

    \b
    isosent index remove INDEX 17 42
    """  # noqa: D301
    opened = Index.open(folder)
    n_removed = opened.remove(ids_from_text(ids, opened.schema))
    line = f"{folder}: {n_removed} of {len(ids)} rows deleted; {len(opened)} now"
    deliver(Report(parts=[line, *stale_notes(folder, opened.stats())]))


@index.command()
@click.argument("folder", metavar="INDEX", type=PATH)
def compact(folder: Path) -> None:
    """Build INDEX again from its rows, and measure its recall again.

    \b
    isosent index compact INDEX
    """  # noqa: D301
    opened = Index.open(folder)
    opened.compact()
    deliver(stats_report(folder, opened.stats()))


@index.command()
@click.argument("folder", metavar="INDEX", type=PATH)
@json_option
def verify(folder: Path, *, as_json: bool) -> None:
    """Check whether the model of INDEX still gives the vectors that INDEX was made of.

    A few fixed texts and eight texts of INDEX are encoded again. Exits with 2 if the model has changed.

    \b
    isosent index verify INDEX
    """  # noqa: D301
    check = Index.open(folder).verify()
    unchanged = [] if check.has_changed else [f"{folder}: the model is unchanged. {check}"]
    deliver(Report(check._asdict() | {"has_changed": check.has_changed}, unchanged), as_json=as_json)
    if check.has_changed:
        raise InputError(
            f"{folder}: {CHANGED} {check}. Load the model that made INDEX (the same version, prompt, pooling and "
            "maximum length), or make the index again."
        )
    if check.kept_neighbors is not None and check.kept_neighbors < LEAST_KEPT:
        say(
            "warning: the vectors of INDEX are not those of its texts. If they were made of longer texts, that is fine."
        )


@index.command()
@click.argument("folder", metavar="INDEX", type=PATH)
@click.option("--map", "mapping", metavar="FOLDER", required=True, help="What isosent migrate -o saved.")
def migrate(folder: Path, mapping: str) -> None:
    """Map the vectors of INDEX to those of a new model, which encodes queries from then on.

    The rows are marked as mapped. Replace them when you can: "isosent index add" with the same ids.

    \b
    isosent index migrate INDEX --map map
    """  # noqa: D301
    opened, loaded = Index.open(folder), open_model(mapping)
    record = next((fit for fit in loaded.fits if fit.transform == MIGRATION), None)
    target = {} if record is None else record.parameters
    if target.get("reference"):
        model = open_model(without_permissions(target["reference"], {}, file=Path(mapping))[0])
    else:  # of an API
        space = Space.of(target, "to") if target else None
        model = SentenceEncoder(PrecomputedVectors.of_space(loaded.dim, space))
    was_mapped = opened.space.fingerprint == model.fingerprint
    opened.migrate(loaded, model)
    if was_mapped:
        left = opened.stats().n_mapped or "no"
        show(f"{folder} was mapped to {model.record.name} before: nothing was changed; {left} mapped rows are left.")
    else:
        show(f"{folder}: mapped to {model.record.name}, which encodes queries from now on.")
        if record is not None and record.choice:
            show(f"isosent migrate recommended: {record.choice['reason']}")
    deliver(stats_report(folder, opened.stats()))


@click.command()
@click.argument("folder", metavar="INDEX|URL")
@click.argument("queries", nargs=-1, metavar="[QUERY]...")
@click.option("--model", "-m", metavar="REFERENCE", help="Model of the table of a URL; of INDEX, if it moved.")
@click.option("-k", "k", type=click.IntRange(1), default=_MOST_HITS, metavar="N", help="Number of results per query.")
@click.option("--like", "likes", multiple=True, metavar="ID", help="Search rows like this one; may be repeated.")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="FILTER",
    help="Condition on the columns: 'lang = \"en\" and year >= 2020'.",
)
@click.option("--hybrid", is_flag=True, help="Rank by meaning and by words.")
@click.option(
    "--false-positives",
    type=Share(0, 1, min_open=True, max_open=True),
    metavar="R",
    help="Show only results that score higher than unrelated texts would; this share of those may pass.",
)
@click.option(
    "--group", metavar="NAME", help="Group of the queries, such as their language, for a model with a transform each."
)
@click.option("--rerank", is_flag=True, help="Index with a query model: rank the best 100 by the model itself.")
@click.option("--unique", is_flag=True, help="Show equal texts once.")
@click.option("--explain", is_flag=True, help="Show which words make a hit similar.")
@click.option(
    "--against", metavar="VECTORS", help="Instead of a query: measure recall of these vectors of the same texts."
)
@json_option
def search(
    folder: str,
    queries: tuple[str, ...],
    model: str | None,
    k: int,
    likes: tuple[str, ...],
    conditions: tuple[str, ...],
    hybrid: bool,
    false_positives: float | None,
    group: str | None,
    rerank: bool,
    unique: bool,
    explain: bool,
    against: str | None,
    as_json: bool,
) -> None:
    """Find the rows of INDEX, or of the table of a database, that are nearest to each QUERY.

    A score is a cosine. The share next to it says how many random pairs of the index have a lower score, corrected for
    rows that are near to everything.

    A QUERY is a text, or a file of texts, or of vectors of the encoder (.npy, .parquet and others). With --against, the
    file holds the original vectors of the texts of INDEX, in their order; a parquet file may have their ids. Up to 500
    of them are queries. The neighbors that INDEX finds are compared with those of an exact search of the file.

    \b
    isosent search INDEX "a query" --where 'lang = "en"'
    isosent search 'postgresql://user@host/db?table=rows' "a query" -m MODEL
    isosent search lance:DIR "a query" -m MODEL
    """  # noqa: D301
    settings: dict[str, Any] = {
        "hybrid": hybrid,
        "false_positives": false_positives,
        "rerank": rerank,
        "unique": unique,
        "group": group,
        "explain": explain,
        "like": likes,
    }
    chosen = {name: value for name, value in settings.items() if value not in (None, False, ())}
    store = open_store(folder, model)
    if against is not None:
        if chosen or queries or conditions or model or k != _MOST_HITS:
            raise InputError("search: --against measures recall@10; leave out queries and all options but --json.")
        deliver(_recall_report(store.index("against"), against), as_json=as_json)
        return
    where = conditions[0] if len(conditions) == 1 else " and ".join(f"({each})" for each in conditions) or None
    if bool(queries) == bool(likes):
        raise InputError(
            "search: name either queries or rows with --like, not both."
            if queries
            else "search: name queries, or rows with --like."
        )
    if likes:
        _refuse(chosen.keys() - {"like"}, "a query, not --like")
    queries, vectors = _query_texts(queries)
    asked = [f"like {name}" for name in likes] or list(queries)
    if vectors is not None:
        _refuse(chosen.keys() & {"hybrid", "explain", "rerank"}, f"texts; {queries[0]} holds vectors")
        asked = [f"row {row} of {queries[0]}" for row in range(vectors.n_rows)]
    hits = store.hits(queries if vectors is None else vectors, k, where=where, **chosen)
    if not likes and group is None and store.groups is not None:
        say(store.groups.note("queries without --group"))
    document = {"results": [{"query": query, "hits": rows} for query, rows in zip(asked, hits, strict=True)]}
    deliver(Report(document, _hit_parts(asked, hits)), as_json=as_json)


def _refuse(options: Collection[str], needed: str) -> None:
    """Refuse options that need something else than what is searched."""
    if options:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(options))
        raise InputError(f"search: {named} needs {needed}.")


def _query_texts(queries: tuple[str, ...]) -> tuple[tuple[str, ...], VectorSource | None]:
    """The texts or the vectors of the only query, if it is a file or standard input; else the queries."""
    files = [query for query in queries if _is_query_file(query)]
    if not files:
        return queries, None
    if len(queries) > 1:
        raise InputError(f"search: {', '.join(queries)}: a file cannot be one of several queries. Name it alone.")
    source = open_source(files[0])
    if source.kind == "vectors":
        return queries, source
    return tuple(text for text in source.texts() if text.strip()), None


def _is_query_file(query: str) -> bool:
    if query == STANDARD_INPUT:
        return True
    if not query.lower().endswith((*TEXT_ENDINGS, *VECTOR_ENDINGS, ".json")):
        return False
    if os.path.isfile(query):  # noqa: PTH113 - Path.is_file fails where a text is longer than a path can be
        return True
    if " " not in query and not query.lower().endswith(_TEXT_LIKE):
        raise InputFileError(f"{query}: no such file.")
    return False


def _recall_report(opened: Index, against: str) -> Report:
    """Recall of an index against an exact search of other vectors of the same texts."""
    inputs = _read_inputs(open_source(against), None, None, None)
    if inputs["vectors"] is None:
        raise InputError(f"search: --against needs vectors; {against} holds texts. Encode them: isosent encode.")
    recall, n_queries = opened.recall_against(inputs["vectors"], ids=inputs["ids"])
    by_chance = K_MEASURED / len(opened)
    if recall < by_chance + 4 * (by_chance / (K_MEASURED * n_queries)) ** 0.5 and by_chance < _LARGEST_CHANCE:
        say(
            f"warning: a recall of {recall:.4f} is what vectors of other texts would have ({by_chance:.4f}). Are those "
            f"of {against} in the order of the index? Give their ids if not, as a column of a .parquet file."
        )
    figures = {"recall": recall, "k": K_MEASURED, "n_queries": n_queries, "n_rows": len(opened)}
    counted = f"{n_queries} of {len(opened)} texts as queries"
    lines = [f"recall@{K_MEASURED}: {recall:.4f} against exact search of {against}; {counted}"]
    if opened.recall is not None:
        counted = f"{opened.recall.n_queries} of {opened.recall.n_rows} texts as queries"
        lines.append(f"recall@{K_MEASURED}: {opened.recall.recall:.4f} against exact search of its vectors; {counted}")
    return Report({**figures, "against": against, "of_own_vectors": to_builtins(opened.recall)}, lines)


@index.command()
@click.argument("folder", metavar="INDEX", type=PATH)
@click.option("--to", "url", metavar="URL", required=True, help="postgresql://user@host/db?table=NAME, or lance:DIR.")
def push(folder: Path, url: str) -> None:
    """Make the table of a database hold exactly the rows of INDEX. Run it again to resume.

    \b
    isosent index push INDEX --to 'postgresql://user@host/db?table=rows'
    """  # noqa: D301
    opened = Index.open(folder)
    with progress_bar("pushing", "rows") as bar:
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
    check_folder(output, INDEX)
    loaded = None if model is None else load(model)
    with progress_bar("pulling", "rows") as bar:
        made = pull_index(url, output, model=loaded, progress=bar)
    deliver(stats_report(output, made.stats()))
    if loaded is None:
        say(
            f"{output} has no model, so it cannot search texts. Pull again with the model that made the vectors: "
            f"-m {made.stats().space.reference}"
        )


def _opened_input(rows: str, column: str | None, texts: str | None) -> TextSource | VectorSource:
    """The rows of an index; with --texts FILE, --column is a column of that."""
    return open_source(rows, column=column if texts is None else None)


def _read_inputs(
    source: TextSource | VectorSource,
    column: str | None,
    id_column: str | None,
    texts: str | None,
    schema: Any = None,
    *,
    space: str | None = None,
) -> dict[str, Any]:
    """Texts, vectors, ids and metadata of the files that a command names, with the types of a schema."""
    read, rows = partial(read_rows, column=column, id_column=id_column, schema=schema), source.name
    if source.kind == "texts":
        say_unused_vectors(rows, column)
        if (texts, space) != (None, None):
            raise InputError(f"--texts and --space belong to a file of vectors; {rows} holds texts.")
        listed, ids, metadata = read(rows)
        return {"texts": listed, "vectors": None, "ids": ids, "metadata": metadata}
    if space is not None:
        source = replace(source, space=PrecomputedVectors.of_space(source.dim, source.space, space).space)
    listed, ids, metadata = None, None, None
    if texts is not None:
        listed, ids, metadata = read(texts)
        if source.is_column:
            _, ids_of_vectors, beside = read_rows(rows, vector_column=source.column)
            order = order_by_ids(texts, _ids(ids, metadata), rows, _ids(ids_of_vectors, beside))
            if order is not None:
                say(f"note: {texts} has another order than {rows}; texts and vectors are joined by their ids.")
                listed = None if listed is None else [listed[place] for place in order]
                ids = None if ids is None else ids.take(order)
                metadata = None if metadata is None else metadata.take(order)
    elif source.is_column:
        listed, ids, metadata = read(rows, column=None, vector_column=source.column)
    elif column is not None or id_column is not None:
        raise InputError(f"{rows} holds vectors alone; --column and --id-column belong to --texts FILE.")
    return {"texts": listed, "vectors": source, "ids": ids, "metadata": metadata}


def _ids(ids: Any, metadata: Any) -> list[str] | None:
    """The custom_id that requests of a batch have, or ids of rows."""
    if metadata is not None and CUSTOM_ID in metadata.column_names:  # a batch has an id of its own for each answer
        ids = metadata[CUSTOM_ID]
    return None if ids is None else [str(one) for one in ids.to_pylist()]


def _joined(inputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What is read of several files, as of one."""
    import pyarrow as pa

    if len(inputs) == 1:
        return inputs[0]
    ids, tables = [part["ids"] for part in inputs], [part["metadata"] for part in inputs]
    if any(part is None for part in ids) and not all(part is None for part in ids):
        raise InputError("index: some of the files have ids, and some have none. Name their column: --id-column.")
    try:
        return {
            "texts": [text for part in inputs for text in part["texts"]],
            "vectors": None,
            "ids": None if ids[0] is None else [one for part in ids for one in part.to_pylist()],
            "metadata": None if None in tables else pa.concat_tables(tables, promote_options="permissive"),
        }
    except pa.ArrowException as error:
        raise InputError(f"index: the columns of these files do not fit together: {brief(error)}.") from None


def _encoded(
    model: str | None, loaded: SentenceEncoder, paths: Sequence[str], column: str | None, folder: str, engine: Engine
) -> VectorSource:
    """The vectors of texts, encoded by workers into a folder that lets an interrupted run resume."""
    with progress_bar("encoding") as bar:
        encode_folder(
            loaded,
            paths,
            folder,
            column=column,
            role="document",
            engine=engine,
            reference=model or DEFAULT_REFERENCE,
            resumed=lambda index: say(how_resumed(folder, "encode", index)),
            progress=bar,
        )
    return open_vectors(folder)


def _budget_lines(stats: IndexStats, budget_mb: float) -> list[str]:
    """What each number type would take, and why it is better than fewer dimensions."""
    kind = stats.settings.kind
    sizes = [
        f"{store} {megabytes(stats.n_rows * bytes_per_vector(stats.dim, kind, store))}" for store in stores_of(kind)
    ]
    return [
        f"budget: {budget_mb:g} MB; {', '.join(sizes)}",
        "advice: choose a smaller dtype before fewer dimensions. Fewer, whitened dimensions may be better only",
        "for vectors of a raw layer or means of word vectors: isosent inspect tells",
    ]


def _hit_parts(asked: Sequence[str], hits: list[list[dict[str, Any]]]) -> Iterator[Part]:
    if any(_share(row) for rows in hits for row in rows):
        yield Note("cosine, percentile (corrected for hubs: its order may differ), id, text")
    for number, (query, rows) in enumerate(zip(asked, hits, strict=True)):
        if len(asked) > 1:
            yield ("\n" if number else "") + query
        if not rows:
            yield "no match"
        for row in rows:
            yield from _hit_lines(row)


def _hit_lines(row: dict[str, Any]) -> Iterator[str]:
    text = shortened(row.get("text") or "")
    known = ("rank", "id", "score", "share", "text", "words")
    others = ", ".join(f"{name} {value}" for name, value in row.items() if name not in known and value is not None)
    yield f"{row['score']:.4f}{_share(row)}  {row['id']}  {text}" + (f"  [{others}]" if others else "")
    if "words" in row:
        yield f"        {row['words']}"


def _share(row: dict[str, Any]) -> str:
    return "" if row.get("share") is None or row["share"] != row["share"] else f"  {100 * row['share']:7.3f}%"
