"""The commands ``duplicates`` and ``cluster``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from isosent.cli.options import column_option, json_option, model_option, open_model, outputs_option
from isosent.cli.printing import (
    check_outputs,
    json_text,
    say,
    say_unused_vectors,
    shortened,
    show,
    show_json,
    write_outputs,
)
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.io.texts import read_texts
from isosent.pages.progress import progress_bar
from isosent.pages.tables import csv_table, make_table
from isosent.report.groups_page import clusters_page, duplicates_page
from isosent.search.clusters import AUTO, NO_VECTOR
from isosent.search.clusters import cluster as cluster_texts
from isosent.search.duplicates import FEWEST_TEXTS, LEAST_RATE, MOST_EXACT, MOST_RATE, Duplicates, find_duplicates
from isosent.transforms.agreement import distinct_rows

if TYPE_CHECKING:
    from rich.table import Table

_MOST_SHOWN = 10
_MOST_TEXTS = 3
_LONGEST_TEXT = 72


@click.command()
@click.argument("texts")
@model_option
@column_option
@click.option(
    "--false-positives",
    type=click.FloatRange(LEAST_RATE, MOST_RATE),
    default=0.01,
    metavar="R",
    help="Share of the texts without a duplicate that may get into a group.",
)
@outputs_option(".csv", ".json", ".html")
@json_option
def duplicates(
    texts: str,
    model: str | None,
    column: str | None,
    false_positives: float,
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Find near-duplicates: groups of texts that differ little.

    TEXTS is a .txt file (one text per line), a .csv, .tsv, .jsonl or .parquet table, or - for standard input. The CSV
    holds group, row (from 0), text, score (the cosine with the nearest text of the group) and share (of random pairs
    with a lower score). Equal texts are always in one group.

    \b
    isosent duplicates texts.txt -o groups.csv
    """  # noqa: D301
    check_outputs(outputs, reads=(texts,))
    listed = read_texts(texts, column=column)
    say_unused_vectors(texts, column)
    loaded = open_model(model)
    with progress_bar("encoding") as bar:
        found = find_duplicates(listed, loaded, false_positives=false_positives, progress=bar)
    if found.false_positives is None and len(listed) > 1:
        say(f"fewer than {FEWEST_TEXTS} distinct texts: only equal texts are grouped")
    if found.recall is not None:
        share = "unknown" if found.recall != found.recall else f"{found.recall:.1%} of pairs"
        say(f"more than {MOST_EXACT:,} distinct texts: each was compared with those around it; recall: {share}")
    rows = [
        (f"{group}", f"{row}", text, f"{score:.4f}", _share(share)) for group, row, text, score, share in found.rows()
    ]
    contents = {
        ".csv": lambda: csv_table(("group", "row", "text", "score", "share"), rows),
        ".json": lambda: json_text(found.to_json()),
        ".html": lambda: duplicates_page(found, source=Path(texts).name, model=model or DEFAULT_REFERENCE),
    }
    write_outputs(outputs, contents)
    if as_json:
        show_json(found.to_json())
        return
    if found.groups:
        show(_largest_groups(found))
    show(
        f"{len(found.groups):,} groups, {found.n_duplicates:,} of {len(listed):,} texts; "
        f"{len(found.kept):,} texts are left if one of each group is kept; without a vector: {found.n_without_vector:,}"
    )


@click.command()
@click.argument("texts")
@model_option
@column_option
@click.option("--clusters", default=AUTO, metavar="K|auto", help="Number of clusters.")
@outputs_option(".csv", ".json", ".html")
@json_option
def cluster(
    texts: str,
    model: str | None,
    column: str | None,
    clusters: str,
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Cluster texts by topic, and describe each cluster by words.

    TEXTS is a file as for "isosent duplicates". The CSV holds cluster, row (from 0), text and score (the cosine with
    the center of the cluster). Texts without a word that the model knows are in cluster 0.

    \b
    isosent cluster texts.txt --clusters 20 -o clusters.csv
    """  # noqa: D301
    check_outputs(outputs, reads=(texts,))
    if clusters != AUTO and not (clusters.isdecimal() and len(clusters) < 10):
        raise InputError(f"--clusters {clusters:.80}: choose a whole number or auto.")
    listed = read_texts(texts, column=column)
    say_unused_vectors(texts, column)
    loaded = open_model(model)
    with progress_bar("encoding") as bar:
        found = cluster_texts(
            listed,
            loaded,
            n_clusters="auto" if clusters == AUTO else int(clusters),
            progress=bar,
        )
    rows = [(f"{number}", f"{row}", text, _share(score)) for number, row, text, score in found.rows()]
    contents = {
        ".csv": lambda: csv_table(("cluster", "row", "text", "score"), rows),
        ".json": lambda: json_text(found.to_json()),
        ".html": lambda: clusters_page(found, source=Path(texts).name, model=model or DEFAULT_REFERENCE),
    }
    write_outputs(outputs, contents)
    if as_json:
        show_json(found.to_json())
        return
    table = make_table("cluster", "texts", "words", "a central text", left=0)
    for column_ in table.columns[2:]:
        column_.justify = "left"
    for each in found.clusters:
        name = "no vector" if each.number == NO_VECTOR else f"{each.number}"
        central = shortened(found.texts[each.examples[0]], _LONGEST_TEXT)
        table.add_row(name, f"{each.size:,}", ", ".join(each.words), central)
    show(table)


def _largest_groups(found: Duplicates) -> "Table":
    """The largest groups, with different texts of each."""
    caption = f"the largest {_MOST_SHOWN} groups; -o FILE.csv writes all" if len(found.groups) > _MOST_SHOWN else None
    table = make_table("group", "texts", "row", "score", "text", left=0, caption=caption)
    table.columns[-1].justify = "left"
    for number, group in enumerate(found.groups[:_MOST_SHOWN], 1):
        distinct = [group[place] for place in distinct_rows([found.texts[row] for row in group])]
        for place, row in enumerate(distinct[:_MOST_TEXTS]):
            name, size = (f"{number}", f"{len(group):,}") if place == 0 else ("", "")
            table.add_row(name, size, f"{row}", f"{found.scores[row]:.3f}", shortened(found.texts[row], _LONGEST_TEXT))
    return table


def _share(share: float) -> str:
    """With all digits, which count near 1; empty if it is not known."""
    return "" if share != share else f"{share:.6g}"
