"""Pieces of HTML that sections are made of; all text that comes in is escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from isosent.pages.figures import WIDTH


def html_document(title: str, body: str, *, css: str, script: str | None = None) -> str:
    """Put a page together."""
    style = (files("isosent.pages") / "base.css").read_text("utf-8") + css
    policy = ["default-src 'none'", "img-src data:", f"style-src {_hash(style)}"]
    policy += [] if script is None else [f"script-src {_hash(script)}"]
    ending = "" if script is None else f"<script>{script}</script>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main>{ending}</body></html>\n"
    )


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


NONE = "\u2013"
_SHORT, _LONG = 20, 60


def breakable(text: str) -> str:
    """Escape a text and let its lines be broken behind signs that stand between words."""
    return re.sub("([=/])(?=\\S)", r"\1<wbr>", escape(text))


def section(name: str, title: str, *parts: str) -> str:
    """Return a section with its heading."""
    return f'<section id="{name}"><h2>{escape(title)}</h2>{"".join(parts)}</section>'


def lead(*sentences: str) -> str:
    """Return the sentences under a heading."""
    return f'<p class="lead">{escape(" ".join(sentences))}</p>'


def listed(items: Iterable[str]) -> str:
    """Return sentences as a list, nothing where there are none."""
    inside = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f'<ul class="notes">{inside}</ul>' if inside else ""


def table(name: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()) -> str:
    """Return a table in a box of its own, which scrolls where it is too wide."""
    of_numbers = {*numbers}
    styles = ["number" if number in of_numbers else "" for number in range(len(columns))]
    head = "".join(
        f'<th scope="col" class="{style}">{escape(of)}</th>' for of, style in zip(columns, styles, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{breakable(first)}</th>'
        + "".join(
            f'<td class="{style or _width(cell)}">{breakable(cell)}</td>'
            for cell, style in zip(cells, styles[1:], strict=True)
        )
        + "</tr>"
        for first, *cells in rows
    )
    return scrolling(
        name, f"<table><caption>{escape(name)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _width(cell: str) -> str:
    """Class of a cell, so that a long text is not squeezed into a narrow column."""
    return "wide" if len(cell) > _LONG else "middling" if len(cell) > _SHORT else ""


def scrolling(name: str, inside: str) -> str:
    """Put something wide in a box that scrolls sideways, by keyboard too."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">{inside}</div>'


def folded(title: str, inside: str) -> str:
    """Hide details until they are asked for."""
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def drawing(name: str, size: tuple[float, float], title: str, description: str, inside: str) -> str:
    """Return a drawing that takes its colours from the page."""
    width, height = size
    style = ' class="wide"' if width > 1.2 * WIDTH else ""
    return (
        f'<svg{style} viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>{inside}</svg>'
    )


def figure(title: str, caption: str, svg: str, more: str = "") -> str:
    """Return a figure with its caption."""
    heading = f"<figcaption><b>{escape(title)}</b>{escape(caption)}</figcaption>" if title else ""
    return f'<figure>{heading}<div class="drawing">{svg}</div>{more}</figure>'


def key(entries: Iterable[tuple[str, str]]) -> str:
    """Return the key of a figure."""
    inside = "".join(
        f'<li><svg viewBox="0 0 24 14" aria-hidden="true">{mark}</svg>{breakable(name)}</li>' for mark, name in entries
    )
    return f'<ul class="key">{inside}</ul>'
