"""The commands ``duplicates`` and ``cluster``.

Both compare texts, which a model encodes, or vectors with or without their texts (`_Compared`). What they find becomes
a `Report`: a table of the largest groups, a file with all of them, and a page. With ``--against``, nothing is grouped:
each text is compared with those of another file or of an index (`_known_report`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from isosent.cli.options import (
    column_option,
    json_option,
    model_option,
    open_model,
    outputs_option,
    texts_option,
)
from isosent.cli.printing import check_outputs, deliver, say, say_unused_vectors, shortened
from isosent.encoders.reference import DEFAULT_REFERENCE
from isosent.errors import InputError
from isosent.io.texts import TextSource
from isosent.io.vector_source import VectorSource
from isosent.jobs.inspect import groups_advice
from isosent.model import SentenceEncoder
from isosent.pages.progress import progress_bar
from isosent.pages.report import Note, Part, Report, ReportTable
from isosent.pages.tables import csv_table
from isosent.report.groups_page import clusters_page, duplicates_page, known_page
from isosent.search.closeness import FEWEST_TEXTS, LEAST_RATE, MOST_EXACT, MOST_RATE
from isosent.search.clusters import AUTO, NO_VECTOR, Clusters
from isosent.search.clusters import cluster as cluster_texts
from isosent.search.duplicates import Duplicates, find_duplicates
from isosent.search.inputs import Rows, opened_rows
from isosent.search.known import Known, find_known
from isosent.search.stores import find_index, rows_of_index
from isosent.transforms.agreement import distinct_rows

_MOST_SHOWN = 10
_MOST_TEXTS = 3
_LONGEST_TEXT = 72
_SHORT_TEXT = 40  # of two in a row
_MORE = f"the first {_MOST_SHOWN}; -o FILE.csv writes all"


@click.command()
@click.argument("rows")
@model_option
@column_option
@texts_option
@click.option(
    "--false-positives",
    type=click.FloatRange(LEAST_RATE, MOST_RATE),
    default=0.01,
    metavar="R",
    help="Share of the texts without a duplicate that may get into a group.",
)
@click.option(
    "--against", metavar="OLD", help="Instead of groups: which of ROWS are in OLD already, or nearly? Also an index."
)
@outputs_option(".csv", ".json", ".html")
@json_option
def duplicates(
    rows: str,
    model: str | None,
    column: str | None,
    texts: str | None,
    false_positives: float,
    against: str | None,
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Find near-duplicates: groups of texts that differ little.

    ROWS is a .txt file (one text per line), a .csv, .tsv, .jsonl or .parquet table, or - for standard input; or a file
    of vectors (.npy, .parquet, .arrow, .hdf5 and others), whose texts are in --texts FILE or in another column; or an
    index. With -m, vectors are of its encoder. Texts that differ in a number, a negation or a name are no duplicates;
    vectors without texts are compared by their distance alone.

    The CSV holds group, row (from 0), text, score (the cosine with the nearest text of the group) and share (of random
    pairs with a lower score). Equal texts are always in one group.

    With --against, each of ROWS is compared with the texts, vectors or index OLD: is a test set in the training texts?
    The CSV then holds row, text, match (equal, near or new), old (the row of OLD, or the id in an index), old_text,
    score and share.

    \b
    isosent duplicates texts.txt -o groups.csv
    isosent duplicates vectors.npy --texts texts.txt -o groups.csv
    isosent duplicates test.txt --against train.txt -o leaks.csv
    """  # noqa: D301
    check_outputs(outputs, reads=(rows, texts, against))
    if against is not None:
        report = _known_report(rows, against, model, column, texts, false_positives)
        deliver(replace(report, parts=[*report.parts, *_written(outputs)]), outputs, as_json=as_json)
        return
    compared = _Compared.open("duplicates", rows, model, column, texts)
    with progress_bar("encoding" if compared.vectors is None else "reading") as bar:
        found = find_duplicates(
            compared.texts, compared.model, vectors=compared.vectors, false_positives=false_positives, progress=bar
        )
    deliver(Report(parts=[compared.line]), as_json=as_json)
    if found.false_positives is None and found.n_texts > 1:
        but_for = "rounding" if compared.texts is None else "small changes"
        unit = compared.unit
        say(f"fewer than {FEWEST_TEXTS} distinct {unit}: only {unit} that are equal but for {but_for} are grouped")
    if found.recall is not None:
        share = "unknown" if found.recall != found.recall else f"{found.recall:.1%} of pairs"
        many = f"more than {MOST_EXACT:,} distinct {compared.unit}"
        say(f"{many}: each was compared with those around it; recall: {share}")
    table_rows = [
        (f"{group}", f"{row}", text, f"{score:.4f}", _share(share)) for group, row, text, score, share in found.rows()
    ]
    files = {
        ".csv": lambda: csv_table(("group", "row", "text", "score", "share"), table_rows),
        ".html": lambda: duplicates_page(found, source=Path(rows).name, vectors=compared.line),
    }
    counts = (
        f"{len(found.groups):,} groups, {found.n_duplicates:,} of {found.n_texts:,} {compared.unit}; "
        f"{len(found.kept):,} are left if one of each group is kept; without a vector: {found.n_without_vector:,}"
    )
    parts: list[Part] = [_largest_groups(found), counts] if found.groups else [counts]
    if found.threshold is not None:
        parts.append(
            f"threshold: {found.threshold:.2f} times as near to each other as to the {compared.unit} around them, for "
            f"false positives of {false_positives:.3g}"
        )
    parts += _written(outputs)
    deliver(Report(lambda: compared.document(found.to_json()), parts, files), outputs, as_json=as_json)


@click.command()
@click.argument("rows")
@model_option
@column_option
@texts_option
@click.option("--clusters", default=AUTO, metavar="K|auto", help="Number of clusters.")
@outputs_option(".csv", ".json", ".html")
@json_option
def cluster(
    rows: str,
    model: str | None,
    column: str | None,
    texts: str | None,
    clusters: str,
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Cluster texts by topic, and describe each cluster by words.

    ROWS and --texts are as for "isosent duplicates"; vectors need their texts. The CSV holds cluster, row (from 0),
    text and score (the cosine with the center of the cluster). Texts without a word that the model knows are in
    cluster 0.

    \b
    isosent cluster texts.txt --clusters 20 -o clusters.csv
    isosent cluster vectors.npy --texts texts.txt
    """  # noqa: D301
    check_outputs(outputs, reads=(rows, texts))
    if clusters != AUTO and not (clusters.isdecimal() and len(clusters) < 10):
        raise InputError(f"--clusters {clusters:.80}: choose a whole number or auto.")
    compared = _Compared.open("cluster", rows, model, column, texts)
    if compared.texts is None:
        raise InputError(
            f"cluster: {rows} holds vectors alone. Name a file of them, and the texts that they are of: --texts FILE."
        )
    with progress_bar("encoding" if compared.vectors is None else "reading") as bar:
        found = cluster_texts(
            compared.texts,
            compared.model,
            vectors=compared.vectors,
            n_clusters="auto" if clusters == AUTO else int(clusters),
            progress=bar,
        )
    warnings = list(_warnings(found))
    table_rows = [(f"{number}", f"{row}", text, _share(score)) for number, row, text, score in found.rows()]
    files = {
        ".csv": lambda: csv_table(("cluster", "row", "text", "score"), table_rows),
        ".html": lambda: clusters_page(found, source=Path(rows).name, vectors=compared.line, warnings=warnings),
    }
    notes = [Note(warning) for warning in warnings]
    parts: list[Part] = [compared.line, _cluster_table(found), *notes, *_written(outputs)]
    deliver(Report(lambda: compared.document(found.to_json()), parts, files), outputs, as_json=as_json)


def _known_report(
    rows: str, against: str, model: str | None, column: str | None, texts: str | None, false_positives: float
) -> Report:
    """Which rows are in an old file or index already."""
    new_vectors, read_new, advice = _new_rows(rows, against, model, column, texts)
    loaded: SentenceEncoder | None
    ids = old_vectors = None
    if (index := find_index(against, "duplicates: --against")) is not None:
        if model is not None:
            raise InputError(f"duplicates: {against} is an index and has its own model. Leave out -m.")
        old_rows = Rows.of_index(index)
        old_texts, old_vectors, ids, loaded = old_rows.texts, old_rows.vectors, old_rows.ids, index.model
    else:
        named = column if TextSource(against).is_table else None
        old = opened_rows(against, column=named)
        if new_vectors is not None and not old.are_vectors and opened_rows(against).are_vectors:
            old = opened_rows(against, column=named, texts=against)  # the column is that of its texts
        if model is None and (new_vectors is None) == old.are_vectors:
            kinds = ("texts", "vectors") if old.are_vectors else ("vectors", "texts")
            raise InputError(f"duplicates: {rows} holds {kinds[0]} and {against} holds {kinds[1]}. {advice}")
        old_texts, old_vectors = old.read_texts(advised=rows), old.vectors
        loaded = open_model(model, purpose="pairs") if model is not None or new_vectors is None else None
        if not old.are_vectors:
            say_unused_vectors(against, column)
    with progress_bar("encoding" if new_vectors is None else "reading") as bar:
        found = find_known(
            read_new(),
            old_texts,
            loaded,
            vectors=new_vectors,
            old_vectors=old_vectors,
            false_positives=false_positives,
            progress=bar,
        )
    return _report_of_known(found, loaded, ids, rows, against)


def _new_rows(
    rows: str, against: str, model: str | None, column: str | None, texts: str | None
) -> tuple[VectorSource | None, Callable[[], list[str] | None], str]:
    """Vectors and texts of what is compared with old rows, and what to do if only these are texts, or vectors."""
    if (stored := rows_of_index(rows, "duplicates", model=model, column=column, texts=texts)) is not None:
        advice = f"Encode the texts: isosent encode {against} -m {rows}/model -o OLD.parquet."
        return stored.vectors, lambda: stored.texts, advice
    file = opened_rows(rows, column=column, texts=texts)
    if not file.are_vectors:
        say_unused_vectors(rows, column)
    return file.vectors, file.read_texts, "Name the model that made the vectors: -m MODEL."


def _report_of_known(
    found: Known, model: SentenceEncoder | None, ids: Sequence[Any] | None, rows: str, against: str
) -> Report:
    """Counts, and which old row, or id of an index, each new one is."""
    names = ("row", "text", "match", "old", "old_text", "score", "share")
    listed = [
        (row, text, _match(old, is_equal), old if ids is None else ids[old], old_text, score, share)
        for row, text, old, old_text, is_equal, score, share in found.rows()
    ]
    known = [each for each in listed if each[2] != "new"]
    unit, n_new = "vectors" if found.texts is None else "texts", len(found.new)
    document = {
        "model": None if model is None else model.record.name,
        "against": against,
        "n_texts": len(listed),
        "n_equal": found.n_equal,
        "n_near": len(known) - found.n_equal,
        "n_new": n_new,
        "n_without_vector": found.n_without_vector,
        "false_positives": found.false_positives,
        "threshold": found.threshold,
        "known": [dict(zip(names, each, strict=True)) for each in known],
    }
    table = ReportTable(
        "row", "match", "score", "text", "old", "old text", left=(1, 3, 5), caption=_MORE * (len(known) > _MOST_SHOWN)
    )
    for row, text, match, old, old_text, score, _ in known[:_MOST_SHOWN]:
        texts_of_row = shortened(text, _SHORT_TEXT), f"{old}", shortened(old_text, _SHORT_TEXT)
        table.add_row(f"{row}", match, f"{score:.3f}", *texts_of_row)
    line = "vectors" if model is None else f"model: {document['model']}"
    parts: list[Part] = [line, table] if known else [line]
    counts = (
        f"{len(listed):,} {unit} of {rows}: {found.n_equal:,} equal to one of {against}, "
        f"{len(known) - found.n_equal:,} near-duplicates of one, {n_new:,} new"
    )
    parts.append(counts)
    if found.false_positives is None:
        parts.append(Note(f"fewer than {FEWEST_TEXTS} distinct {unit}: only small changes count as near-duplicates"))
    if (found.texts is None) != (found.old_texts is None):
        parts.append(Note("one of the two has no texts: vectors are compared by their distance alone"))

    def table_rows() -> Iterator[tuple[str, ...]]:
        for row, text, match, old, old_text, score, share in listed:
            yield f"{row}", text, match, "" if match == "new" else f"{old}", old_text, _share(score), _share(share)

    files = {
        ".csv": lambda: csv_table(names, list(table_rows())),
        ".html": lambda: known_page(known, source=f"{rows} against {against}", vectors=line, counts=counts),
    }
    return Report(document, parts, files)


def _match(old: int, is_equal: bool) -> str:
    return "new" if old < 0 else "equal" if is_equal else "near"


def _written(outputs: Sequence[Path]) -> list[Note]:
    """Which files hold the result; the parts of a report are shown when they do."""
    return [Note(f"saved {path}") for path in outputs]


def _warnings(found: Clusters) -> Iterator[str]:
    """That clusters are of one language each, or of another separate group."""
    if found.of_one_group:
        yield (
            "warning: the texts form separate groups that share hardly a word, such as languages, and "
            f"{len(found.of_one_group)} of {len(found.clusters)} clusters are of one. {groups_advice('cluster')}"
        )


def _cluster_table(found: Clusters) -> ReportTable:
    table = ReportTable("cluster", "texts", "words", "a central text", left=(2, 3))
    for each in found.clusters:
        name = "no vector" if each.number == NO_VECTOR else f"{each.number}"
        central = shortened(found.texts[each.examples[0]], _LONGEST_TEXT)
        table.add_row(name, f"{each.size:,}", ", ".join(each.words), central)
    return table


class _Compared(NamedTuple):
    """What a command compares: texts and the model that encodes them, or vectors with or without their texts."""

    texts: list[str] | None
    model: SentenceEncoder | None
    vectors: VectorSource | None
    reference: str | None  # of the model

    @classmethod
    def open(cls, command: str, rows: str, model: str | None, column: str | None, texts: str | None) -> "_Compared":
        """Open the index, or the files and the model, that the command line names."""
        purpose = {"duplicates": "pairs", "cluster": "topics"}[command]
        if (stored := rows_of_index(rows, command, model=model, column=column, texts=texts)) is not None:
            return cls(stored.texts, None, stored.vectors, None)
        file = opened_rows(rows, column=column, texts=texts)
        if file.source.kind == "texts":
            say_unused_vectors(rows, column)
            return cls(file.read_texts(), open_model(model, purpose=purpose), None, model or DEFAULT_REFERENCE)
        loaded = None if model is None else open_model(model, purpose=purpose)
        return cls(file.read_texts(), loaded, file.source, model)

    @property
    def line(self) -> str:
        """Where the vectors come from."""
        named = None if self.vectors is None else f"vectors of {Path(self.vectors.name).name}"
        return ", ".join(filter(None, (named, self.reference and f"model: {self.reference}")))

    @property
    def unit(self) -> str:
        return "vectors" if self.texts is None else "texts"

    def document(self, found: dict[str, Any]) -> dict[str, Any]:
        """JSON of a result, with what it is of."""
        vectors = None if self.vectors is None else Path(self.vectors.name).name
        return {"model": self.reference, "vectors": vectors} | found


def _largest_groups(found: Duplicates) -> ReportTable:
    """The largest groups, with different texts of each."""
    caption = f"the largest {_MOST_SHOWN} groups; -o FILE.csv writes all" if len(found.groups) > _MOST_SHOWN else None
    unit = "vectors" if found.texts is None else "texts"
    table = ReportTable("group", unit, "row", "score", "text", left=(-1,), caption=caption)
    for number, group in enumerate(found.groups[:_MOST_SHOWN], 1):
        texts = None if found.texts is None else [found.texts[row] for row in group]
        places = range(len(group)) if texts is None else distinct_rows(texts)
        different = "" if len(places) == len(group) else f", {len(places):,} different" * (len(places) > 1) or ", equal"
        for count, place in enumerate(places[:_MOST_TEXTS]):
            name, size = (f"{number}", f"{len(group):,}{different}") if count == 0 else ("", "")
            text = "" if texts is None else shortened(texts[place], _LONGEST_TEXT)
            table.add_row(name, size, f"{group[place]}", f"{found.scores[group[place]]:.3f}", text)
    return table


def _share(share: float) -> str:
    """With all digits, which count near 1; empty if it is not known."""
    return "" if share != share else f"{share:.6g}"
