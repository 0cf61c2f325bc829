"""Duplicates and clusters as HTML pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from isosent.pages.html import html_document, lead, scroll_box, section, table
from isosent.search.clusters import NO_VECTOR, Clusters
from isosent.search.duplicates import Duplicates

_MOST_GROUPS, _MOST_TEXTS = 300, 30  # on a page
_LONGEST_TEXT = 600  # characters
_CSS = "mark { background: var(--tint); color: var(--accent); font-weight: 600; } td.text { width: 100%; }"


def duplicates_page(duplicates: Duplicates, *, source: str, vectors: str) -> str:
    """The page of near-duplicates: a table per group; words that the first text of a group lacks are marked."""
    n_groups, rate = len(duplicates.groups), duplicates.false_positives
    meaning = (
        "There are too few texts to estimate how high unrelated texts score: only small changes are grouped."
        if rate is None
        else f"About {100 * rate:g}% of the texts without a duplicate may be in a group by chance."
    )
    shown = "" if n_groups <= _MOST_GROUPS else f"The largest {_MOST_GROUPS:,} groups are shown."
    unit = "texts" if duplicates.texts is not None else "vectors"
    sections = []
    for number, group in enumerate(duplicates.groups[:_MOST_GROUPS], 1):
        words = ["" if duplicates.texts is None else _shortened(duplicates.texts[row]) for row in group[:_MOST_TEXTS]]
        rows = (
            (f"{row}", _marked_text(words[0].split(), text.split()), f"{duplicates.scores[row]:.3f}")
            for row, text in zip(group[:_MOST_TEXTS], words, strict=True)
        )
        rest = lead(f"{len(group) - _MOST_TEXTS:,} more {unit}.") if len(group) > _MOST_TEXTS else ""
        title = f"Group {number}: {len(group):,} {unit}"
        sections.append(section(f"group-{number}", title, _text_table(title, rows), rest))
    title = f"{n_groups:,} group{'s' * (n_groups != 1)} of duplicates"
    head = lead(f"{duplicates.n_duplicates:,} of {duplicates.n_texts:,} {unit} are in a group.", meaning, shown)
    return _page(title, source, vectors, head, sections)


def known_page(known: Sequence[tuple[Any, ...]], *, source: str, vectors: str, counts: str) -> str:
    """The page of new texts that an old set holds: each with the old one, whose missing words are marked."""
    rows = (
        (f"{row} ({old})", f"{_marked_text(old_text.split(), text.split())}<br>{escape(old_text)}", f"{score:.3f}")
        for row, text, _, old, old_text, score, _ in known[: _MOST_GROUPS * _MOST_TEXTS]
    )
    title = f"{len(known):,} known text{'s' * (len(known) != 1)}"
    found = section(
        "known", "Each text, then the old one", _text_table("Row (and that of the old text, or its id)", rows)
    )
    return _page(title, source, vectors, lead(counts), [found] if known else [])


def clusters_page(clusters: Clusters, *, source: str, vectors: str, warnings: Iterable[str] = ()) -> str:
    """The page of clusters: an overview, then the most central texts of each cluster."""
    names = [f"{each.number}" if each.number != NO_VECTOR else "no vector" for each in clusters.clusters]
    overview = table(
        "Clusters",
        ("cluster", "texts", "words"),
        [(name, f"{each.size:,}", ", ".join(each.words)) for name, each in zip(names, clusters.clusters, strict=True)],
        numbers=[1],
    )
    sections = [section("overview", "Overview", overview)]
    for name, each in zip(names, clusters.clusters, strict=True):
        texts = ((row, escape(_shortened(clusters.texts[row]))) for row in each.examples)
        rows = ((f"{row}", text, _score(clusters.scores[row])) for row, text in texts)
        title = f"Cluster {name}" if each.number != NO_VECTOR else "Texts without a vector"
        words = lead(", ".join(each.words)) if each.words else ""
        sections.append(
            section(f"cluster-{each.number}", f"{title}: {each.size:,} texts", words, _text_table(title, rows))
        )
    head = lead(f"{len(clusters.texts):,} texts.", "The most central texts of each cluster are shown.")
    head += "".join(lead(warning) for warning in warnings)
    return _page(f"{len(clusters.clusters):,} clusters", source, vectors, head, sections)


def _page(title: str, source: str, vectors: str, head: str, sections: Iterable[str]) -> str:
    css = (files("isosent.report") / "results_page.css").read_text("utf-8") + _CSS
    header = f'<header><p class="made">{escape(source)}; {escape(vectors)}</p><h1>{escape(title)}</h1></header>'
    footer = f"<footer>isosent {escape(version('isosent'))}. Rows are counted from 0; scores are cosines.</footer>"
    return html_document(f"isosent: {title}", "".join([header, head, *sections, footer]), css=css)


def _text_table(name: str, rows: Iterable[tuple[str, str, str]]) -> str:
    """A table of rows, texts that are HTML already, and scores."""
    body = "".join(
        f'<tr><td class="number">{row}</td><td class="text">{text}</td><td class="number">{score}</td></tr>'
        for row, text, score in rows
    )
    head = '<th scope="col" class="number">row</th><th scope="col">text</th><th scope="col" class="number">score</th>'
    return scroll_box(
        name, f"<table><caption>{escape(name)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _marked_text(first: Sequence[str], words: Sequence[str]) -> str:
    """A text in HTML; words that are not in the first text, or elsewhere in it, are marked."""
    parts = []
    for kind, _, _, start, stop in SequenceMatcher(None, first, words, autojunk=False).get_opcodes():
        piece = escape(" ".join(words[start:stop]))
        if piece:
            parts.append(piece if kind == "equal" else f"<mark>{piece}</mark>")
    return " ".join(parts)


def _score(score: float) -> str:
    return "" if score != score else f"{score:.3f}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} [...]"
