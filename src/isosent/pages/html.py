"""Pieces of HTML pages. All text that comes in is escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from isosent.pages.figures import Figure, Key, page_palette, page_shapes, page_svg

NONE = "\u2013"  # where a table has no value
THEME_BUTTON = '<button type="button" id="theme" hidden>Dark</button>'  # `theme_script` shows it
_SHORT, _LONG = 20, 60


def theme_script() -> str:
    """What lets a reader choose light or dark by `THEME_BUTTON`."""
    return (files("isosent.pages") / "theme.js").read_text("utf-8")


def data_block(name: str, values: Any) -> str:
    """JSON values for the script of the page, which reads the text of this element; nothing in them ends it."""
    text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def html_document(title: str, body: str, *, css: str, script: str | None = None) -> str:
    """A page that needs nothing else: its policy allows its own style and script, and no network."""
    style = theme() + css
    policy = ["default-src 'none'", "img-src data:", f"style-src {_hash(style)}"]
    policy += [] if script is None else [f"script-src {_hash(script)}"]
    last = "" if script is None else f"<script>{script}</script>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main>{last}</body></html>\n"
    )


def theme() -> str:
    """Colors and common styles of all pages, in light and dark."""
    return page_palette() + (files("isosent.pages") / "base.css").read_text("utf-8")


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def breakable(text: str) -> str:
    """Escape a text and let its lines break after = and /."""
    return re.sub("([=/])(?=\\S)", r"\1<wbr>", escape(text))


def section(name: str, title: str, *contents: str) -> str:
    return f'<section id="{name}"><h2>{escape(title)}</h2>{"".join(contents)}</section>'


def lead(*sentences: str) -> str:
    return f'<p class="lead">{escape(" ".join(sentences))}</p>'


def bullets(items: Iterable[str]) -> str:
    inside = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f'<ul class="notes">{inside}</ul>' if inside else ""


def table(name: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()) -> str:
    """A table in a box that scrolls; the columns in `numbers` are aligned to the right."""
    right = {*numbers}
    styles = ["number" if column in right else "" for column in range(len(columns))]
    head = "".join(
        f'<th scope="col" class="{style}">{escape(name)}</th>' for name, style in zip(columns, styles, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{breakable(first)}</th>'
        + "".join(
            f'<td class="{style or _width_class(cell)}">{breakable(cell)}</td>'
            for cell, style in zip(cells, styles[1:], strict=True)
        )
        + "</tr>"
        for first, *cells in rows
    )
    return scroll_box(
        name, f"<table><caption>{escape(name)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _width_class(cell: str) -> str:
    """Keeps a long text from being squeezed into a narrow column."""
    return "wide" if len(cell) > _LONG else "middling" if len(cell) > _SHORT else ""


def scroll_box(name: str, inside: str) -> str:
    """A box that scrolls sideways, with the keyboard too."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">{inside}</div>'


def folded(title: str, inside: str) -> str:
    """Details that open on request."""
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def figure_box(
    name: str, figure: Figure, title: str = "", caption: str = "", *, legend: bool = True, more: str = ""
) -> str:
    """A figure with its caption and legend; `name` must be unique on the page."""
    heading = f"<figcaption><b>{escape(title)}</b>{escape(caption)}</figcaption>" if title else ""
    keys = legend_list(figure.legend) if legend else ""
    return f'<figure>{heading}{keys}<div class="drawing">{page_svg(figure, name)}</div>{more}</figure>'


def legend_list(keys: Sequence[Key]) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 24 14" aria-hidden="true">{page_shapes(key.shapes(1, 7))}</svg>'
        f"{breakable(key.label)}</li>"
        for key in keys
    )
    return f'<ul class="key">{items}</ul>' if items else ""
