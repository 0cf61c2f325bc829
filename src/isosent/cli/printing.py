"""What every command prints: `deliver` renders its `Report`, `show` and `say` print a part of one.

Nothing else decides between JSON and text, writes the files of ``-o``, or lays a table out on a terminal. `deliver`
checks the files of ``-o`` first, writes them, and prints the same report: as JSON alone with ``--json``, else as
sentences and tables. Below are the reports and tables that several commands have, and `say_replaced`, the line about a
folder that will be replaced.
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isosent.errors import without_passwords
from isosent.io.atomic import check_destination, replacing
from isosent.io.columns import unused_vectors
from isosent.io.json import without_nan
from isosent.pages.progress import make_console
from isosent.pages.report import Content, Note, Part, Report, ReportTable

if TYPE_CHECKING:
    from rich.table import Table

    from isosent.search.result import IndexStats
    from isosent.transforms.auto import SavedChoice, SavedGain


def deliver(report: Report, outputs: Sequence[Path] = (), *, as_json: bool = False) -> None:
    """Write a report into files, each with the content that its ending names; then print it, as JSON or as text."""
    files: dict[str, Content] = {".json": lambda: _json_text(report.document), **report.files}
    for path in outputs:
        with replacing(path) as temporary:
            content = files[path.suffix.lower()]()
            temporary.write_bytes(content if isinstance(content, bytes) else content.encode())
    if not as_json:
        for part in report.parts:
            if isinstance(part, Note):
                say(part.text)
            else:
                show(part)
    elif report.document is not None:
        click.echo(_json_text(report.document), nl=False)


def _json_text(document: Any) -> str:
    """JSON for people and programs; NaN becomes null."""
    values = document() if callable(document) else document
    if isinstance(values, str):
        return values
    return json.dumps(without_nan(values), indent=2, ensure_ascii=False, default=str) + "\n"


def show(part: str | ReportTable) -> None:
    """Print a line or a table on standard output."""
    _print(part, to_error=False)


def say(part: str | ReportTable) -> None:
    """Print a line or a table on standard error."""
    _print(part, to_error=True)


def _print(part: str | ReportTable, *, to_error: bool) -> None:
    if isinstance(part, str):
        click.echo(without_passwords(part) if to_error else part, err=to_error)
    else:
        make_console(sys.stderr if to_error else sys.stdout).print(_laid_out(part))


def _laid_out(table: ReportTable) -> "Table":
    """A table for the terminal."""
    from rich.table import Table  # takes 0.1 s

    laid_out = Table(
        title=table.title,
        title_justify="left",
        caption=table.caption,
        caption_justify="left",
        show_header=table.has_header,
    )
    for place, name in enumerate(table.columns):
        width = table.last_width if place == len(table.columns) - 1 else None
        laid_out.add_column(name, justify="left" if place in table.left else "right", max_width=width)
    for row in table.rows:
        laid_out.add_row(*row.cells, style="dim" if row.is_dim else None, end_section=row.ends_section)
    return laid_out


def say_replaced(kind: str, folder: Path, is_replaced: bool) -> None:
    """Say, before any work, that a folder will be replaced."""
    if is_replaced:
        say(f"{folder} holds {kind}, which is replaced when the new one is complete")


def check_outputs(outputs: Sequence[Path], *, reads: Sequence[str | Path | None] = ()) -> None:
    """Refuse, before any work, files that cannot be written, or that are also read."""
    for path in outputs:
        check_destination(path, reads=reads)


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


_SMALLEST_P = 0.0001
GAIN = (
    "Pairs: rank correlation of cosines with word overlap. Topics: cosine of the topics of a text and its ten nearest "
    "neighbors. Both on texts that were held out."
)


def change_table(before: Any, after: Any, title: str | None = None) -> ReportTable:
    """Two vector spaces (`SpaceReport`) side by side."""
    table = ReportTable("", "before", "after", title=title)
    for name, field, form in (
        ("mean cosine of random pairs", "mean_cosine", ".4f"),
        ("effective rank", "effective_rank", ".1f"),
        ("dimensions", "dim", ""),
        ("bytes per vector", "size_bytes", ""),
    ):
        values = [getattr(space, field) for space in (before, after)]
        table.add_row(name, *("undefined" if math.isnan(value) else format(value, form) for value in values))
    return table


def choice_table(choice: "SavedChoice") -> ReportTable:
    """What "auto" compared."""
    columns = ("candidate", "pairs", "gain", "95% interval", "topics", "gain", "95% interval", "")
    table = ReportTable(*columns)

    def cells(signal: "SavedGain | None") -> tuple[str, ...]:
        if signal is None:
            return ("", "", "")
        return f"{signal.agreement:.3f}", f"{signal.gain:+.3f}", f"{signal.low:+.3f} to {signal.high:+.3f}"

    for each in choice.candidates:
        mark = "chosen" if each.candidate == choice.chosen else ""
        table.add_row(each.candidate, *cells(each), *cells(each.topics), mark)
    return table


def erasure_table(record: Any) -> ReportTable:
    """What erasing an attribute has changed; `record` is the `FitRecord` of the erasure."""
    effect, name = record.choice, record.parameters["attribute"]
    told = f"{name} detected by a linear model" + (", R2" if record.parameters["values"] == "numbers" else "")
    rows = [(told, *effect["told"]), (f"nearest text has the same {name}", *effect["same"])]
    n_missing = record.parameters["n_missing"]
    left_out = f"; without a label, left out: {n_missing:,}" if n_missing else ""
    caption = f"on {effect['n_texts']:,} texts that the erasure was not fitted on{left_out}"
    table = ReportTable(f"{name} erased", "before", "after", "by chance", caption=caption)
    for label, *shares in rows:
        table.add_row(label, *(f"{share:.1%}" for share in shares))
    if effect["overlap"] is not None:
        table.add_row(
            f"agreement with word overlap within a {name}", *(f"{each:.3f}" for each in effect["overlap"]), ""
        )
    return table


def pairs_table(choice: Mapping[str, Any]) -> ReportTable:
    """Maps on pairs that were held out; `choice` is ``PairsChoice.to_json()``."""
    pool = "Matches are searched for among the second texts."
    if any(each["candidate"].startswith("group maps") for each in choice["folds"]):
        pool = (
            "Matches are searched for among the texts of both sides and of all groups, which is harder than among the "
            "second texts alone, as without the columns of groups: compare rows of one table only."
        )
    held_out, n_groups = f"{choice['n_held_out']:,} held-out queries", f"{choice['n_groups']:,}"
    caption = f"{held_out}; pairs form {n_groups} groups that share no text. {pool}"
    table = ReportTable("held-out pairs", "MRR", "gain, 95% interval", "nDCG@10", "gain, 95% interval", caption=caption)
    for each in choice["tested"]:
        gains = [
            "" if each[name] is None else "{:+.3f}, {:+.3f} to {:+.3f}".format(*each[name])
            for name in ("mrr_gain", "ndcg_gain")
        ]
        table.add_row(each["label"], f"{each['mrr']:.3f}", gains[0], f"{each['ndcg']:.3f}", gains[1])
    return table


def folds_table(choice: Mapping[str, Any]) -> ReportTable:
    """What the folds of pairs compared; `choice` is ``PairsChoice.to_json()``."""
    table = ReportTable("candidate", "MRR", caption="on folds that it was not fitted on")
    for each in choice["folds"]:
        table.add_row(each["candidate"], f"{each['mrr']:.3f}")
    return table


def likelihood_change(history: Sequence[Mapping[str, Any]]) -> str:
    """How much likelier a flow makes held-out vectors; `history` is that of a `FitRecord`."""
    ends = (history[place]["held_out_bits"] for place in (0, -1))
    before, after = ("undefined" if bits is None else f"{bits:.4f}" for bits in ends)
    return f"held-out rows: {before} bits per dimension before, {after} after (lower is better)"


def stats_report(folder: Path, stats: "IndexStats") -> Report:
    """Rows, bytes and recall of an index, and whether the recall is stale."""
    return Report(stats.to_json(), _stats_parts(folder, stats))


def _stats_parts(folder: Path, stats: "IndexStats") -> Iterator[Part]:
    yield f"{folder}: {stats.n_rows} rows of {stats.dim} dimensions, {stats.space}"
    settings = stats.settings
    chosen = {"lists": settings.n_lists, "probed": settings.n_probe, "ef": settings.ef_search}
    listed = "".join(f", {name} {value}" for name, value in chosen.items() if value)
    bits = " (1 bit per dimension)" if settings.store.is_bits else ""
    bits = f" ({settings.code_bytes} bytes per vector)" if settings.code_bytes else bits
    codebooks = f", and {megabytes(stats.codebook_bytes)} of codebooks" if settings.code_bytes else ""
    yield (
        f"{settings.kind}, {settings.store}{bits}{listed}: {megabytes(stats.bytes_searched)} in memory{codebooks}, "
        f"{megabytes(stats.bytes_on_disk)} on disk"
    )
    if settings.code_bytes:
        yield "product: each half byte names the nearest of 16 vectors of its part of the dimensions: a codebook"
    if settings.oversampling:
        reranked = f", {part:.0%} of the rows for ten results," if (part := stats.large_share) else ""
        yield (
            f"rescored x {settings.oversampling}: a search takes {settings.oversampling} candidates per result from "
            f"these{reranked} and ranks them again with a finer copy of the vectors on disk"
        )
    if stats.recall is None:
        yield "recall@10: not measured; there are too few rows"
    else:
        measured = stats.recall
        counted = f"{measured.n_queries} of {measured.n_rows} texts as queries"
        after, before = (", after the transform", ", before it") if stats.has_map else ("", "")
        yield f"recall@10: {measured.recall:.4f} against exact search of its vectors{after}; {counted}"
        if (share := measured.original_recall) is not None:
            yield f"recall@10: {share:.4f} against exact search of the original vectors{before}; {counted}"
        elif stats.has_map:
            yield f"recall@10 of the original vectors: not known; isosent search {folder} --against VECTORS measures it"
        if stats.recall.recall < stats.recall.min_recall:
            yield Note(f"warning: recall is below the aim of {stats.recall.min_recall:g}; a finer --store keeps more")
    if stats.queries is not None:
        yield (
            f"queries by the static model: {stats.queries.recall:.4f} of the ten nearest of the model's own queries, "
            f"{stats.queries.reranked:.4f} with --rerank; {stats.queries.n_queries} rows as queries"
        )
    if stats.n_added or stats.n_deleted:
        hidden = f"; {stats.n_deleted} old ones are hidden until isosent index compact" if stats.n_deleted else ""
        yield f"since it was built: {stats.n_changed} rows added, replaced or deleted{hidden}"
    if stats.n_mapped:
        yield f"rows mapped from another model: {stats.n_mapped}; replace them by isosent index add, with the same ids"
    if stats.n_zero_rows:
        yield f"rows without a vector: {stats.n_zero_rows}"
    yield from stale_notes(folder, stats)


def budget_lines(stats: "IndexStats", budget_mb: float) -> list[str]:
    """What the vectors would take in each dtype, and why that is better than fewer dimensions."""
    sizes = ", ".join(f"{store} {megabytes(n_bytes)}" for store, n_bytes in stats.bytes_by_store().items())
    return [
        f"budget: {budget_mb:g} MB; {sizes}",
        "advice: choose a smaller dtype before fewer dimensions. Fewer, whitened dimensions may be better only for",
        "vectors of a raw layer or means of word vectors. What your vectors keep in fewer bytes: isosent inspect",
    ]


def p_value(value: float, *, is_bound: bool = False) -> str:
    """A p-value, or an upper bound of one, in a table; empty if it is not known."""
    if math.isnan(value):
        return ""
    if value < _SMALLEST_P:
        return f"< {_SMALLEST_P}"
    return f"≤ {math.ceil(value / _SMALLEST_P) * _SMALLEST_P:.4f}" if is_bound else f"{value:.4f}"


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


def stale_notes(folder: Path, stats: "IndexStats") -> Iterator[Note]:
    """That the recall was measured before many rows changed, or that codebooks no longer fit the rows."""
    if stats.has_drifted and stats.recall is not None and (fit := stats.recall.codebooks) is not None:
        yield Note(
            f"warning: the codebooks of the product codes no longer fit the rows: before reranking they keep "
            f"{fit.recall:.2f} of the ten nearest, and codebooks fitted on these rows {fit.refitted:.2f}. Rebuild it "
            f"from all its rows: isosent fit ROWS --bytes {stats.settings.code_bytes} -o MODEL, then isosent index "
            f"ROWS -m MODEL -o {folder}"
        )
    if stats.is_stale and stats.recall is not None:
        yield Note(
            f"the recall of {stats.recall.recall:.4f} was measured before {stats.n_changed} of {stats.recall.n_rows} "
            f"rows changed. Measure it again: isosent index compact {folder}"
        )
