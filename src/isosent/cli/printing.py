"""What every command prints: results, messages and tables."""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isosent.io.atomic import check_destination, replacing
from isosent.io.columns import unused_vectors
from isosent.io.json import without_nan
from isosent.pages.progress import make_console
from isosent.pages.tables import make_table

if TYPE_CHECKING:  # rich takes 0.1 s, and is needed for tables and bars only
    from rich.table import Table

    from isosent.search.result import IndexStats


def show(item: "str | Table") -> None:
    """Print a line or a table on standard output."""
    if isinstance(item, str):
        click.echo(item)
    else:
        make_console(sys.stdout).print(item)


def say(item: "str | Table") -> None:
    """Print a line or a table on standard error."""
    if isinstance(item, str):
        click.echo(item, err=True)
    else:
        make_console(sys.stderr).print(item)


def json_text(document: Any) -> str:
    """JSON for people and programs; NaN becomes null."""
    return json.dumps(without_nan(document), indent=2, ensure_ascii=False, default=str) + "\n"


def show_json(document: Any) -> None:
    """Print JSON on standard output."""
    click.echo(json_text(document), nl=False)


def check_outputs(outputs: Sequence[Path], *, reads: Sequence[str | Path | None] = ()) -> None:
    """Refuse, before any work, files that cannot be written, or that are also read."""
    for path in outputs:
        check_destination(path, reads=reads)


def write_outputs(outputs: Sequence[Path], contents: Mapping[str, Callable[[], str]]) -> None:
    """Write each file with the content that its extension names."""
    for path in outputs:
        with replacing(path) as temporary:
            temporary.write_text(contents[path.suffix.lower()](), "utf-8")


def shortened(text: str, longest: int = 100) -> str:
    """A text on one line, truncated if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def show_tokens(n_tokens: int, n_unknown: int, languages: str | None = None) -> None:
    """Print how many tokens an encoder did not know, if it can tell."""
    if n_tokens:
        show(tokens_line(n_tokens, n_unknown, languages))


def tokens_line(n_tokens: int, n_unknown: int, languages: str | None = None) -> str:
    """How many tokens an encoder did not know."""
    meant_for = f"; the model is for {languages} texts" if languages else ""
    return f"tokens: {n_tokens:,}; unknown: {n_unknown:,} ({n_unknown / n_tokens:.1%}){meant_for}"


GAIN = (
    "Pairs: rank correlation of cosines with word overlap. Topics: cosine of the topics of a text and its ten nearest "
    "neighbors. Both on texts that were held out."
)


def change_table(before: Any, after: Any, title: str | None = None) -> "Table":
    """Two vector spaces (`SpaceReport`) side by side."""
    table = make_table("", "before", "after", title=title)
    for name, field, form in (
        ("mean cosine of random pairs", "mean_cosine", ".4f"),
        ("effective rank", "effective_rank", ".1f"),
        ("dimensions", "dim", ""),
        ("bytes per vector", "size_bytes", ""),
    ):
        values = [getattr(space, field) for space in (before, after)]
        table.add_row(name, *("undefined" if math.isnan(value) else format(value, form) for value in values))
    return table


def choice_table(choice: Mapping[str, Any]) -> "Table":
    """What "auto" compared; `choice` is ``AutoChoice.to_json()``."""
    columns = ("candidate", "pairs", "gain", "95% interval", "topics", "gain", "95% interval", "")
    table = make_table(*columns)

    def cells(signal: Mapping[str, float] | None) -> tuple[str, ...]:
        if signal is None:
            return ("", "", "")
        interval = f"{signal['low']:+.3f} to {signal['high']:+.3f}"
        return f"{signal['agreement']:.3f}", f"{signal['gain']:+.3f}", interval

    for each in choice["candidates"]:
        mark = "chosen" if each["candidate"] == choice["chosen"] else ""
        # models of earlier versions hold no topics
        table.add_row(each["candidate"], *cells(each), *cells(each.get("topics")), mark)
    return table


def erasure_table(record: Any) -> "Table":
    """What erasing an attribute has changed; `record` is the `FitRecord` of the erasure."""
    effect, name = record.choice, record.parameters["attribute"]
    told = f"{name} detected by a linear model" + (", R2" if record.parameters["values"] == "numbers" else "")
    rows = [(told, *effect["told"]), (f"nearest text has the same {name}", *effect["same"])]
    n_missing = record.parameters["n_missing"]
    left_out = f"; without a label, left out: {n_missing:,}" if n_missing else ""
    caption = f"on {effect['n_texts']:,} texts that the erasure was not fitted on{left_out}"
    table = make_table(f"{name} erased", "before", "after", "by chance", caption=caption)
    for label, *shares in rows:
        table.add_row(label, *(f"{share:.1%}" for share in shares))
    if effect["overlap"] is not None:
        table.add_row(
            f"agreement with word overlap within a {name}", *(f"{each:.3f}" for each in effect["overlap"]), ""
        )
    return table


def pairs_table(choice: Mapping[str, Any]) -> "Table":
    """Maps on pairs that were held out; `choice` is ``PairsChoice.to_json()``."""
    pool = "Matches are searched for among the second texts."
    if any(each["candidate"].startswith("group maps") for each in choice["folds"]):
        pool = (
            "Matches are searched for among the texts of both sides and of all groups, which is harder than among the "
            "second texts alone, as without the columns of groups: compare rows of one table only."
        )
    held_out, n_groups = f"{choice['n_held_out']:,} held-out queries", f"{choice['n_groups']:,}"
    caption = f"{held_out}; pairs form {n_groups} groups that share no text. {pool}"
    table = make_table("held-out pairs", "MRR", "gain, 95% interval", "nDCG@10", "gain, 95% interval", caption=caption)
    for each in choice["tested"]:
        gains = [
            "" if each[name] is None else "{:+.3f}, {:+.3f} to {:+.3f}".format(*each[name])
            for name in ("mrr_gain", "ndcg_gain")
        ]
        table.add_row(each["label"], f"{each['mrr']:.3f}", gains[0], f"{each['ndcg']:.3f}", gains[1])
    return table


def folds_table(choice: Mapping[str, Any]) -> "Table":
    """What the folds of pairs compared; `choice` is ``PairsChoice.to_json()``."""
    table = make_table("candidate", "MRR", caption="on folds that it was not fitted on")
    for each in choice["folds"]:
        table.add_row(each["candidate"], f"{each['mrr']:.3f}")
    return table


def likelihood_change(history: Sequence[Mapping[str, Any]]) -> str:
    """How much likelier a flow makes held-out vectors; `history` is that of a `FitRecord`."""
    ends = (history[place]["held_out_bits"] for place in (0, -1))
    before, after = ("undefined" if bits is None else f"{bits:.4f}" for bits in ends)
    return f"held-out rows: {before} bits per dimension before, {after} after (lower is better)"


def show_stats(folder: Path, stats: "IndexStats") -> None:
    """Print rows, bytes and recall of an index, and whether the recall is stale."""
    show(f"{folder}: {stats.n_rows} rows of {stats.dim} dimensions, {stats.space}")
    settings = stats.settings
    chosen = {
        "lists": settings.n_lists,
        "probed": settings.n_probe,
        "ef": settings.ef_search,
        "rescored": settings.oversampling,
    }
    listed = "".join(f", {name} {value}" for name, value in chosen.items() if value)
    show(
        f"{settings.kind}, {settings.store}{listed}: {megabytes(stats.bytes_searched)} in memory, "
        f"{megabytes(stats.bytes_on_disk)} on disk"
    )
    if stats.recall is None:
        show("recall@10: not measured; there are too few rows")
    else:
        measured = stats.recall
        counted = f"{measured.n_queries} of {measured.n_rows} texts as queries"
        after, before = (", after the transform", ", before it") if stats.has_map else ("", "")
        show(f"recall@10: {measured.recall:.4f} against exact search of its vectors{after}; {counted}")
        if (share := measured.original_recall) is not None:
            show(f"recall@10: {share:.4f} against exact search of the original vectors{before}; {counted}")
        elif stats.has_map:
            show(f"recall@10 of the original vectors: not known; isosent search {folder} --against VECTORS measures it")
        if stats.recall.recall < stats.recall.min_recall:
            say(f"warning: recall is below the aim of {stats.recall.min_recall:g}; a finer --store keeps more")
    if stats.queries is not None:
        show(
            f"queries by the static model: {stats.queries.recall:.4f} of the ten nearest of the model's own queries, "
            f"{stats.queries.reranked:.4f} with --rerank; {stats.queries.n_queries} rows as queries"
        )
    if stats.n_added or stats.n_deleted:
        show(f"since it was built: {stats.n_added} rows added, {stats.n_deleted} deleted")
    if stats.n_mapped:
        show(f"rows mapped from another model: {stats.n_mapped}; replace them by isosent index add, with the same ids")
    if stats.n_zero_rows:
        show(f"rows without a vector: {stats.n_zero_rows}")
    say_if_stale(folder, stats)


def megabytes(n_bytes: float) -> str:
    """A size in memory or on disk."""
    return f"{n_bytes / 1e6:,.3g} MB" if n_bytes < 1e9 else f"{n_bytes / 1e6:,.0f} MB"


def say_unused_vectors(path: str, column: str | None) -> None:
    """Say that texts are encoded although their table has vectors."""
    if name := unused_vectors(path, column):
        say(
            f"note: {path}: texts are encoded; the vectors in its column {name} are not used. isosent index, fit and "
            f"transform use them: --column {name}"
        )


def say_if_stale(folder: Path, stats: "IndexStats") -> None:
    """Say that the recall was measured before many rows changed."""
    if stats.is_stale and stats.recall is not None:
        say(
            f"the recall of {stats.recall.recall:.4f} was measured before {stats.n_changed} of {stats.recall.n_rows} "
            f"rows changed. Measure it again: isosent index compact {folder}"
        )
