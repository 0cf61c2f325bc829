"""What the figures of studies share: colours, the key above the panels, and the document around them."""

import math
from collections.abc import Iterable, Sequence
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5d5d5d")
MARGIN = 14
KEY_WIDTH = 290
_KEY_HEIGHT = 22
_STYLE = (
    'text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #4a525c } '
    ".grid { stroke: #e4e2dc } .axis { stroke: #8a929c } .mark { stroke: #8a929c; stroke-dasharray: 4 3 } "
    "polyline { fill: none; stroke-width: 2; stroke-linejoin: round } "
    ".more { stroke-dasharray: 6 3 } "
    + " ".join(f".c{number} {{ stroke: {colour} }}" for number, colour in enumerate(COLOURS))
)


def line_style(number: int) -> str:
    """Class of the line with that number: a colour each, dashed once these have run out."""
    return f"c{number % len(COLOURS)}" + (" more" if number >= len(COLOURS) else "")


def key_height(n_names: int, width: int, *, key_width: int = KEY_WIDTH) -> int:
    """Pixels that the key takes above the panels of a figure of that width."""
    return MARGIN + _KEY_HEIGHT * math.ceil(n_names / _keys_a_row(width, key_width))


def line_key(
    names: Sequence[str], width: int, styles: Sequence[str] | None = None, *, key_width: int = KEY_WIDTH
) -> list[str]:
    """Draw the key of a figure: a piece of each line, and what it stands for.

    Parameters
    ----------
    names : sequence of str
        What the lines stand for.
    width : int
        Pixels of the figure.
    styles : sequence of str, optional
        Class of each line; `line_style` of its number where left out.
    key_width : int, default 290
        Pixels that the longest name and its line take.

    Returns
    -------
    list of str
        Pieces of SVG.
    """
    parts, a_row = [], _keys_a_row(width, key_width)
    for number, name in enumerate(names):
        left, y = MARGIN + number % a_row * ((width - MARGIN) // a_row), MARGIN + number // a_row * _KEY_HEIGHT
        style = line_style(number) if styles is None else styles[number]
        parts.append(f'<polyline class="{style}" points="{left},{y} {left + 20},{y}"/>')
        parts.append(f'<text x="{left + 26}" y="{y + 4}">{escape(name)}</text>')
    return parts


def study_document(width: int, height: int, title: str, parts: Iterable[str], *, style: str = "") -> str:
    """Put a figure together: SVG that stands alone.

    Parameters
    ----------
    width, height : int
        Pixels.
    title : str
        Read out by a screen reader.
    parts : iterable of str
        Pieces of SVG.
    style : str, optional
        Rules beyond those that all figures share.

    Returns
    -------
    str
        An ``svg`` document.
    """
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style>"
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _keys_a_row(width: int, key_width: int) -> int:
    return max(1, width // key_width)
