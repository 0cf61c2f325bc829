"""Colours and shapes that tell models and tasks apart: in both schemes, for readers who see few colours, in print."""

from __future__ import annotations

# Light and dark: the hues of Okabe and Ito, each with a contrast of at least 3 against its background.
COLOURS = (
    ("#0072b2", "#4fa3dd"),
    ("#d55e00", "#f0894a"),
    ("#00875f", "#33c19a"),
    ("#b8558c", "#e39bc4"),
    ("#a87200", "#e5b13c"),
    ("#3a8fc4", "#9bd3f5"),
    ("#5d5d5d", "#b4bac2"),
)
_SHAPES = (
    "M-4.2 0a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0 -8.4 0z",
    "M-3.7 -3.7h7.4v7.4h-7.4z",
    "M0 -5.2L5.2 0L0 5.2L-5.2 0z",
    "M0 -4.8L5 3.8H-5z",
)
MARKERS = ("o", "s", "D", "^")  # the same for matplotlib


def colour_rules() -> str:
    """Return the style sheet of the colours: classes ``c0``, ``c1``, ... set ``--line``."""
    return "\n".join(
        f".c{number} {{ --line: light-dark({light}, {dark}); }}" for number, (light, dark) in enumerate(COLOURS)
    )


def colour_class(number: int) -> str:
    """Class of the thing with that number."""
    return f"c{number % len(COLOURS)}"


def dot(number: int, x: float, y: float, inside: str = "") -> str:
    """Draw the mark of the thing with that number: colours and shapes are repeated, but not both together.

    Parameters
    ----------
    number : int
        Of 28 that can be told apart.
    x, y : float
        Where, in pixels.
    inside : str, optional
        SVG within, a ``title`` for one.

    Returns
    -------
    str
        A ``path`` element.
    """
    shape = _SHAPES[number % len(_SHAPES)]
    return (
        f'<path class="dot {colour_class(number)}" transform="translate({x:.1f} {y:.1f})" d="{shape}">{inside}</path>'
    )
