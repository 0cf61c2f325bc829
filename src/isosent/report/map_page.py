"""A map of vectors as an HTML page, which `map_page.js` draws on canvases, and as a table for embedding-atlas."""

from __future__ import annotations

import base64
import datetime
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from io import BytesIO
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.pages.figures import N_COLORS
from isosent.pages.html import THEME_BUTTON, data_block, html_document, lead, theme_script
from isosent.search.places import NeighborMap

_LONGEST_TEXT: Final = 300  # characters on the page
_N_SHAPES: Final = 3
_MOST_CATEGORIES: Final = N_COLORS * _N_SHAPES
_SCALE: Final = (0.02, 0.98)  # quantiles at its ends: one far number would leave all others in one color
_STEPS: Final = 65535  # of a coordinate on the page
_MARGIN: Final = 0.03


class DrawnMap(NamedTuple):
    """A map and what is said of it."""

    title: str  # such as "Unchanged"; the name of a transform
    map: NeighborMap
    kept: str  # a sentence


def map_page(
    maps: Sequence[DrawnMap],
    texts: Sequence[str] | None,
    color: tuple[str, Sequence[Any]] | None,
    *,
    source: str,
    vectors: str,
) -> str:
    """The page of one map, or of those before and after a transform, whose rows are colored by a column."""
    is_drawn = np.logical_and.reduce([np.isfinite(each.map.places[:, 0]) for each in maps])
    rows = np.flatnonzero(is_drawn)
    place = np.where(is_drawn, np.cumsum(is_drawn) - 1, -1).astype(np.int32)
    near = maps[0].map.neighbors[rows]
    data = {
        "texts": None if texts is None else [_shortened(texts[row]) for row in rows.tolist()],
        "rows": _packed(rows.astype(np.int32)),
        "near": _packed(np.where(near < 0, -1, place[near]).astype(np.int32)),
        "color": None if color is None else _colors(color[0], [color[1][row] for row in rows.tolist()]),
        "maps": [_packed(_page_places(each.map.places[rows])) for each in maps],
    }
    n_rows, n_missing = len(is_drawn), len(is_drawn) - len(rows)
    unit = "vectors" if texts is None else "texts"
    figures = "".join(_figure(number, each, len(maps) > 1, len(rows), unit) for number, each in enumerate(maps))
    missing = f"{n_missing:,} {unit} without a vector are not drawn." if n_missing else ""
    header = (
        f'<header><p class="made"><span>{escape(source)}; {escape(vectors)}</span>{THEME_BUTTON}</p>'
        f"<h1>A map of {n_rows:,} {unit}</h1></header>"
    )
    head = lead(*(each.kept for each in maps), "Distances between clouds mean little.", missing)
    frame = (files("isosent.report") / "map_page.html").read_text("utf-8")
    body = frame.replace("FIGURES", figures).replace("UNIT", unit)
    footer = f"<footer>isosent {escape(version('isosent'))}. Rows are counted from 0.</footer>"
    css = "".join((files("isosent.report") / name).read_text("utf-8") for name in ("results_page.css", "map_page.css"))
    script = theme_script() + (files("isosent.report") / "map_page.js").read_text("utf-8")
    content = "".join([header, head, body, footer, data_block("data", data)])
    return html_document(f"isosent map: {source}", content, css=css, script=script)


def _figure(number: int, drawn: DrawnMap, has_title: bool, n_drawn: int, unit: str) -> str:
    title = f"<figcaption><b>{escape(drawn.title)}</b></figcaption>" if has_title else ""
    name = f"{f'{drawn.title}: ' if has_title else ''}{n_drawn:,} {unit} as points. {drawn.kept}"
    return (
        f'<figure>{title}<div class="map"><canvas id="map-{number}" tabindex="0" role="application" '
        f'aria-label="{escape(name)}" aria-describedby="keys"></canvas><div class="zoom">'
        '<button type="button" data-zoom="1.6" aria-label="Zoom in">+</button>'
        '<button type="button" data-zoom="0.625" aria-label="Zoom out">\N{MINUS SIGN}</button>'
        '<button type="button" data-zoom="0" aria-label="Show the whole map">\N{WHITE SQUARE}</button>'
        "</div></div></figure>"
    )


def _page_places(places: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Places in whole steps of the longer side of the map, each side in its middle."""
    low, high = places.min(axis=0), places.max(axis=0)
    length = float((high - low).max()) or 1.0
    shares = 0.5 + (places - (low + high) / 2) * ((1 - 2 * _MARGIN) / length)
    return np.round(_STEPS * shares).astype(np.uint16)


def _packed(values: NDArray[Any]) -> str:
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode()


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}\N{HORIZONTAL ELLIPSIS}"


# -- colors ----------------------------------------------------------------------------------------------------------


def _colors(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """A scale of numbers or days; or categories, each of the most frequent with another color or shape."""
    given = [value for value in values if not _is_missing(value)]
    is_date = bool(given) and all(isinstance(value, datetime.date) for value in given)
    is_number = bool(given) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in given)
    if is_date or (is_number and (len(set(given)) > _MOST_CATEGORIES or any(value % 1 for value in given))):
        numbers = np.array([math.nan if _is_missing(value) else _number(value) for value in values])
        low, high = np.nanquantile(numbers, _SCALE)
        if low == high:
            low, high = np.nanmin(numbers), np.nanmax(numbers)
        return {
            "name": name,
            "isDate": is_date,
            "numbers": _packed(numbers),
            "values": ["" if _is_missing(value) else _written(value) for value in values],  # as the CSV gets them
            "ends": [float(low), float(high)],
            "beyond": [bool(np.nanmin(numbers) < low), bool(np.nanmax(numbers) > high)],
            "missing": len(values) - len(given),
        }
    texts = ["" if _is_missing(value) else str(value) for value in values]
    counts = Counter(text for text in texts if text)
    frequent = [text for text, _ in counts.most_common(_MOST_CATEGORIES)]
    names = sorted(frequent, key=float) if is_number else frequent
    code_of = {text: code for code, text in enumerate(names)} | {"": len(names) + 1}
    codes = [code_of.get(text, len(names)) for text in texts]
    others = f"{len(counts) - len(names):,} others", codes.count(len(names))
    labels = [*((text, counts[text]) for text in names), others, ("no value", codes.count(len(names) + 1))]
    return {"name": name, "labels": labels, "codes": _packed(np.array(codes, np.uint8)), "n_names": len(names)}


def _is_missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and not math.isfinite(value))


def _written(value: Any) -> str:
    """A number, or a day or time in ISO 8601, with all its digits."""
    return str(value.isoformat()) if isinstance(value, datetime.date) else f"{value!r}"


def _number(value: Any) -> float:
    """A number, or the days since 1970."""
    if isinstance(value, datetime.datetime):
        return (value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)).total_seconds() / 86400
    if isinstance(value, datetime.date):
        return float((value - datetime.date(1970, 1, 1)).days)
    return float(value)


# -- table -----------------------------------------------------------------------------------------------------------


def map_table(maps: Sequence[DrawnMap], texts: Sequence[str] | None, columns: Mapping[str, Any]) -> bytes:
    """A parquet file with text, other columns, places and neighbors, as embedding-atlas opens it.

    Places after a transform are in x_2 and y_2; neighbors are those of the first map. Rows that are not drawn have
    none. A column of the same name as one of these gets lines below after its own, as many as make a new name.
    """
    pa = _extras.require("pyarrow")
    parquet = _extras.require("pyarrow.parquet")
    drawn: dict[str, Any] = {} if texts is None else {"text": pa.array(texts, pa.string())}
    for number, each in enumerate(maps, 1):
        for axis, name in enumerate("xy" if number == 1 else (f"x_{number}", f"y_{number}")):
            drawn[name] = pa.array(each.map.places[:, axis], from_pandas=True)
    first = maps[0].map
    is_drawn = np.isfinite(first.places[:, 0])
    ends = np.concatenate([[0], np.cumsum(is_drawn) * first.neighbors.shape[1]]).astype(np.int32)
    lists = {"ids": first.neighbors[is_drawn].astype(np.int64), "distances": 1 - first.cosines[is_drawn].astype(float)}
    drawn["neighbors"] = pa.StructArray.from_arrays(
        [pa.ListArray.from_arrays(ends, pa.array(values.ravel())) for values in lists.values()],
        names=list(lists),
        mask=pa.array(~is_drawn),
    )
    others: dict[str, Any] = {}
    for name, values in columns.items():
        free = name
        while free in drawn or free in others or (free != name and free in columns):
            free += "_"
        others[free] = values
    content = BytesIO()
    parquet.write_table(pa.table(drawn | others), content)
    return content.getvalue()
