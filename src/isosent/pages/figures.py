"""Colours and shapes that tell models and tasks apart: in both schemes, for readers who see few colours, in print."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 440, 290
SECOND_AXIS = 52
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 18, 30, 44

_LINE = 14
_LABEL_HEIGHT = 9


def plain(value: float) -> str:
    """Write a tick's number in few characters."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.0e}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def percent(value: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * value:.3g} %"


def steps(low: float, high: float, n: int = 5) -> list[float]:
    """Round numbers from `low` to `high`."""
    raw = (high - low) / n
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis."""

    label: str  # what it shows, with its unit
    low: float  # ends, the first one below
    high: float  # ends, the first one below
    log: bool = False  # whether it is logarithmic
    write: Callable[[float], str] = plain  # gives the text of a tick
    at: Sequence[float] | None = None  # where its ticks stand; round numbers where left out

    @property
    def ticks(self) -> Sequence[float]:
        """Where its ticks stand."""
        if self.at is not None:
            return self.at
        if not self.log:
            return steps(self.low, self.high)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = max(1, math.ceil((last - first) / 7))
        factors = (1, 2, 5) if last - first <= 2 else (1,)
        candidates = (factor * 10.0**power for power in range(first, last + 1, every) for factor in factors)
        return [tick for tick in candidates if self.low <= tick <= self.high]

    def place(self, value: float) -> float:
        """Return where a value stands: 0 at the low end, 1 at the high end."""
        low, high, value = (math.log10(v) for v in (self.low, self.high, value)) if self.log else self._span(value)
        return (value - low) / (high - low)

    def _span(self, value: float) -> tuple[float, float, float]:
        return self.low, self.high, value


@dataclass(frozen=True, slots=True)
class Frame:
    """Two axes: gives the marks that stand between them, each a piece of SVG."""

    x: Axis  # the axes
    y: Axis  # the axes

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel of a point."""
        across, down = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
        return _LEFT + across * self.x.place(x), _TOP + down * (1 - self.y.place(y))

    def line(self, points: Iterable[tuple[float, float]], style: str) -> str:
        """Draw a line through points."""
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in (self.at(*point) for point in points))
        return f'<polyline class="{style}" points="{path}"/>'

    def area(self, points: Sequence[tuple[float, float]], style: str) -> str:
        """Fill what lies below a line."""
        corners = [(points[0][0], self.y.low), *points, (points[-1][0], self.y.low)]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in (self.at(*corner) for corner in corners))
        return f'<polygon class="{style}" points="{path}"/>'

    def dot(self, x: float, y: float, style: str, tip: str) -> str:
        """Draw a point with a text that appears where the pointer rests."""
        px, py = self.at(x, y)
        return f'<circle class="{style}" cx="{px:.1f}" cy="{py:.1f}" r="4"><title>{escape(tip)}</title></circle>'

    def text(self, x: float, y: float, words: str, style: str, *, shift: tuple[float, float]) -> str:
        """Write beside a point, to its right, or to its left where there is more room."""
        px, py = self.at(x, y)
        left = px > WIDTH * 0.6
        px += -shift[0] if left else shift[0]
        anchor = "end" if left else "start"
        return (
            f'<text class="{style}" x="{px:.1f}" y="{py + shift[1]:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def upright(self, x: float, words: str, style: str = "", *, row: int = 0) -> str:
        """Mark a place on the x axis with a line and a word in that row from the top."""
        (px, top), (_, bottom) = self.at(x, self.y.high), self.at(x, self.y.low)
        line = f'<line class="mark {style}" x1="{px:.1f}" x2="{px:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
        return line + self.text(x, self.y.high, words, f"note {style}", shift=(6, 12 + _LINE * row))

    def level(self, y: float) -> str:
        """Mark a height on the y axis with a line."""
        (left, py), (right, _) = self.at(self.x.low, y), self.at(self.x.high, y)
        return f'<line class="mark" x1="{left:.1f}" x2="{right:.1f}" y1="{py:.1f}" y2="{py:.1f}"/>'

    def list_at(self, x: float, words: Iterable[tuple[float, str]]) -> str:
        """Write words one above the other from a place on the x axis on, each near its height, none over another."""
        lowest, parts = float("inf"), []
        for height, word in sorted(words):
            px, py = self.at(x, height)
            lowest = min(py + 4, lowest - _LINE)
            parts.append(f'<text class="note" x="{px:.1f}" y="{lowest:.1f}">{escape(word)}</text>')
        return "".join(parts)

    def drawing(self, name: str, title: str, description: str, marks: Iterable[str]) -> str:
        """Return the whole figure: grid and axes, then the marks."""
        heading = f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>'
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{name}-t {name}-d">'
            f"{heading}{self._grid()}{''.join(marks)}</svg>"
        )

    def panel(self, left: float, top: float, marks: Iterable[str]) -> str:
        """Return grid, axes and marks, for one of several figures in one drawing."""
        return f'<g transform="translate({left:g} {top:g})">{self._grid()}{"".join(marks)}</g>'

    def right_axis(self) -> str:
        """Draw the y axis to the right of the marks: a second one, for lines of a frame with the same x axis."""
        parts = []
        right, _ = self.at(self.x.high, self.y.low)
        for tick in self.y.ticks:
            _, py = self.at(self.x.high, tick)
            parts.append(f'<line class="axis" x1="{right}" x2="{right + 4}" y1="{py:.1f}" y2="{py:.1f}"/>')
            parts.append(f'<text class="tick" x="{right + 8}" y="{py + 4:.1f}">{self.y.write(tick)}</text>')
        x = right + SECOND_AXIS
        label = f'<text class="label" x="{x}" y="{_LABEL_HEIGHT}" text-anchor="end">{escape(self.y.label)}</text>'
        return "".join([*parts, label])

    def top_axis(self) -> str:
        """Draw the x axis above the marks: a second one, for another unit of the same places."""
        parts = []
        (left, top), (right, _) = self.at(self.x.low, self.y.high), self.at(self.x.high, self.y.high)
        for tick in self.x.ticks:
            px, _ = self.at(tick, self.y.high)
            parts.append(f'<line class="axis" x1="{px:.1f}" x2="{px:.1f}" y1="{top - 4}" y2="{top}"/>')
            parts.append(
                f'<text class="tick" x="{px:.1f}" y="{top - 6}" text-anchor="middle">{self.x.write(tick)}</text>'
            )
        parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{top}" y2="{top}"/>')
        x = f"{(left + right) / 2:.0f}"
        label = f'<text class="label" x="{x}" y="{_LABEL_HEIGHT}" text-anchor="middle">{escape(self.x.label)}</text>'
        return "".join([*parts, label])

    def _grid(self) -> str:
        left, bottom = self.at(self.x.low, self.y.low)
        right, _ = self.at(self.x.high, self.y.high)
        parts = []
        for tick in self.y.ticks:
            _, py = self.at(self.x.low, tick)
            parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{py:.1f}" y2="{py:.1f}"/>')
            parts.append(
                f'<text class="tick" x="{left - 7}" y="{py + 4:.1f}" text-anchor="end">{self.y.write(tick)}</text>'
            )
        for tick in self.x.ticks:
            px, _ = self.at(tick, self.y.low)
            parts.append(f'<line class="axis" x1="{px:.1f}" x2="{px:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
            parts.append(
                f'<text class="tick" x="{px:.1f}" y="{bottom + 18}" text-anchor="middle">{self.x.write(tick)}</text>'
            )
        parts.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        middle = (left + right) / 2
        parts.append(
            f'<text class="label" x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(self.x.label)}</text>'
        )
        parts.append(f'<text class="label" x="4" y="{_LABEL_HEIGHT}">{escape(self.y.label)}</text>')
        return "".join(parts)


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
    """Draw the mark of the thing with that number: colours and shapes are repeated, but not both together."""
    shape = _SHAPES[number % len(_SHAPES)]
    return (
        f'<path class="dot {colour_class(number)}" transform="translate({x:.1f} {y:.1f})" d="{shape}">{inside}</path>'
    )
