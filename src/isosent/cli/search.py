"""The command ``search``, which asks a store: an index, or the table of a database.

A query is a text, or a file of texts or of vectors (`_queries`). With ``--against``, nothing is searched for, but the
recall of an index is measured. Hits of every store are shown in one way (`_hit_parts`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import click
from msgspec import to_builtins

from isosent.cli.options import Share, either_column_option, json_option
from isosent.cli.printing import deliver, say, shortened
from isosent.errors import InputError, InputFileError, option
from isosent.io.bounds import STANDARD_INPUT
from isosent.io.formats import format_by_name
from isosent.io.source import is_file_name, open_source
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import open_vectors
from isosent.pages.report import Note, Part, Report
from isosent.search.engine import K_MEASURED
from isosent.search.index import Index
from isosent.search.inputs import opened_rows
from isosent.search.result import Hit
from isosent.search.rows import TEXT
from isosent.search.stores import open_store

_MOST_HITS = 10
_LARGEST_CHANCE = 0.5  # of a recall; with fewer texts, chance finds most


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
@click.option(
    "--truth",
    metavar="FILE",
    help="Measure recall against the true neighbors of the queries in FILE (.hdf5, .ivecs, .ibin).",
)
@either_column_option
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
    truth: str | None,
    column: str | None,
    as_json: bool,
) -> None:
    """Find the rows of INDEX, or of the table of a database, that are nearest to each QUERY.

    A score is a cosine. The share next to it says how many random pairs of the index have a lower score, corrected for
    rows that are near to everything.

    A QUERY is a text, or a file of texts, or of vectors of the encoder (.npy, .parquet and others). With --against, the
    file holds the original vectors of the texts of INDEX, in their order; a parquet file may have their ids. Up to 500
    of them are queries. The neighbors that INDEX finds are compared with those of an exact search of the file.

    Each call loads the model again, which takes seconds for a transformer: give it all queries in one file, or keep the
    model loaded by isosent serve INDEX.

    With --truth, FILE holds the nearest rows of each query, and if it is of ann-benchmarks the queries, too. INDEX was
    made of the same vectors: isosent index FILE.hdf5 -o INDEX.

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
        if chosen or queries or conditions or model or k != _MOST_HITS or truth:
            raise InputError(
                "search: --against measures recall@10; leave out queries and all options but --json and --column."
            )
        deliver(_recall_report(store.index(f"search: {option('against')}"), against, column), as_json=as_json)
        return
    if truth is not None:
        if chosen or conditions or model or len(queries) > 1:
            raise InputError(
                "search: --truth measures recall; leave out all but -k, --json, --column and one file of queries."
            )
        index = store.index(f"search: {option('truth')}")
        source = open_vectors(queries[0], column=column, are_queries=True) if queries else None
        recall, n_queries = index.recall_of_neighbors(truth, source, k)
        line = f"recall@{k}: {recall:.4f} against the neighbors in {truth}; {n_queries} queries, {len(index)} rows"
        deliver(Report({"recall": recall, "k": k, "n_queries": n_queries, "truth": truth}, [line]), as_json=as_json)
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
    texts, vectors = _queries(queries, column)
    asked = [f"like {name}" for name in likes] or list(texts)
    if vectors is not None:
        _refuse(chosen.keys() & {"hybrid", "explain", "rerank"}, f"texts; {queries[0]} holds vectors")
        asked = [f"row {row} of {queries[0]}" for row in range(vectors.n_rows)]
    hits = store.hits(texts, k, vectors=vectors, where=where, **chosen)
    if not likes and group is None and store.groups is not None:
        say(f"note: {store.groups.note('queries without --group')}")
    pairs = list(zip(asked, hits, strict=True))
    document = {"results": [{"query": query, "hits": [_hit_json(hit) for hit in found]} for query, found in pairs]}
    deliver(Report(document, _hit_parts(pairs)), as_json=as_json)


def _refuse(options: Collection[str], needed: str) -> None:
    """Refuse options that need something else than what is searched."""
    if options:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(options))
        raise InputError(f"search: {named} needs {needed}.")


def _queries(queries: tuple[str, ...], column: str | None) -> tuple[Sequence[str], VectorSource | None]:
    """Queries that are texts, and the vectors of the only one, if it is a file of them."""
    files = [query for query in queries if _is_query_file(query)]
    if not files:
        if column is not None:
            raise InputError(f"search: --column {column} is for a file of queries, and there is none. Leave it out.")
        return queries, None
    if len(queries) > 1:
        raise InputError(f"search: {', '.join(queries)}: a file cannot be one of several queries. Name it alone.")
    source = open_source(files[0], column=column, are_queries=True)
    return ((), source) if source.kind == "vectors" else ([text for text in source.texts() if text.strip()], None)


def _is_query_file(query: str) -> bool:
    if query == STANDARD_INPUT:
        return True
    if not is_file_name(query):
        return False
    if os.path.isfile(query):  # noqa: PTH113 - Path.is_file fails where a text is longer than a path can be
        return True
    # a query may end so and be no file
    if " " not in query and format_by_name(query).rows != "fields":
        raise InputFileError(f"{query}: no such file.")
    return False


def _recall_report(opened: Index, against: str, column: str | None) -> Report:
    """Recall of an index against an exact search of other vectors of the same texts."""
    rows = opened_rows(against, column=column).read()
    if rows.vectors is None:
        raise InputError(f"search: --against needs vectors; {against} holds texts. Encode them: isosent encode.")
    recall, n_queries = opened.recall_against(rows.vectors, ids=rows.ids)
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


def _hit_parts(pairs: Sequence[tuple[str, Sequence[Hit]]]) -> Iterator[Part]:
    if any(_share(hit) for _, hits in pairs for hit in hits):
        yield Note(
            "cosine, percentile, id, text. Percentile: the share of random pairs of texts that score lower; texts that "
            "are near to everything get a lower one, so its order may differ."
        )
    for number, (query, hits) in enumerate(pairs):
        if len(pairs) > 1:
            yield ("\n" if number else "") + query
        if not hits:
            yield "no match"
        for hit in hits:
            yield from _hit_lines(hit)


def _hit_lines(hit: Hit) -> Iterator[str]:
    others = ", ".join(f"{name} {value}" for name, value in hit.columns.items() if name != TEXT and value is not None)
    yield f"{hit.score:.4f}{_share(hit)}  {hit.id}  {shortened(hit.text or '')}" + (f"  [{others}]" if others else "")
    if hit.explanation is not None:
        yield f"        {hit.explanation.line()}"


def _hit_json(hit: Hit) -> dict[str, Any]:
    return hit.to_json() | ({} if hit.explanation is None else {"words": hit.explanation.line()})


def _share(hit: Hit) -> str:
    return "" if hit.share is None or hit.share != hit.share else f"  {100 * hit.share:7.3f}%"
