"""Figures: axes, lines, dots and cells, as SVG for pages and files and as PNG or PDF for papers.

A `Panel` places marks between two axes, a `Figure` arranges panels in rows. Everything is laid out once, in pixels; two
short functions at the end turn the shapes into SVG text or draw them with matplotlib.

`Axis` gives ticks and turns numbers into shares of its length; a panel adds `Path`, `Circle` and `Text` shapes for
lines, dots, areas and cells (`heat_map`). `layout` places panels, headings and the legend. `page_svg` leaves colors to
the style sheet of the page (`page_palette`), so that light and dark work; `render` writes a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import Any, NamedTuple

from isosent import _extras

WIDTH, HEIGHT = 440, 290
MARGIN = 14
LETTER = 7  # a typical width at font size 13, rounded up
_LEFT, _RIGHT, _TOP, _BOTTOM, _SECOND_AXIS, _TITLE = 52, 18, 30, 44, 52, 24
_LINE, _KEY_LINE, _ROW_GAP = 14, 22, 16
_FONT_SIZE = 13.0
_POINTS_PER_PIXEL, _PIXELS_PER_INCH, _PNG_DPI = 0.75, 96, 200

# Light and dark. The first seven are the hues of Okabe and Ito, each with a contrast of at least 3 to its background.
PALETTE: Mapping[str, tuple[str, str]] = {
    "c0": ("#0072b2", "#4fa3dd"),
    "c1": ("#d55e00", "#f0894a"),
    "c2": ("#00875f", "#33c19a"),
    "c3": ("#b8558c", "#e39bc4"),
    "c4": ("#a87200", "#e5b13c"),
    "c5": ("#3a8fc4", "#9bd3f5"),
    "c6": ("#5d5d5d", "#b4bac2"),
    "before": ("#c0661b", "#f0a25c"),
    "after": ("#1f62b5", "#7db4f5"),
    "paper": ("#fbfaf7", "#14171b"),
    "card": ("#ffffff", "#1c2026"),
    "tint": ("#eef3fa", "#1d2733"),
    "ink": ("#1d2229", "#e9ebee"),
    "soft": ("#5b6470", "#a2abb6"),
    "faint": ("#e4e2dc", "#31373f"),
    "mark": ("#8a929c", "#7d8793"),
}
N_COLORS = 7
_LIGHTEST_CELL, _DARKEST_CELL = (0xEF, 0xF4, 0xFA), (0x08, 0x3F, 0x73)
_WHITE_INK_FROM = 0.68  # black numbers below, white ones above: a contrast of at least 4.5 on either side
_CELL_HEIGHT, _NARROWEST_CELL = 22, 38
_POLYGONS = ("-3.7 -3.7 3.7 -3.7 3.7 3.7 -3.7 3.7", "0 -5.2 5.2 0 0 5.2 -5.2 0", "0 -4.8 5 3.8 -5 3.8")


def color_of(number: int) -> str:
    """Color of the line or dot with that number. Colors repeat after seven; the dash or shape then differs."""
    return f"c{number % N_COLORS}"


def dash_of(number: int) -> str:
    return "6 3" if number >= N_COLORS else ""


def plain(value: float) -> str:
    """Write the number of a tick in few characters."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.0e}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def percent(value: float) -> str:
    return f"{100 * value:.3g}%"


def round_steps(low: float, high: float, n: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, about `n` of them."""
    raw = (high - low) / n
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis, from `low` (left, bottom) to `high`; `low` may be the larger number."""

    label: str
    low: float
    high: float
    log: bool = False
    write: Callable[[float], str] = plain  # the text of a tick
    at: Sequence[float] | None = None  # positions of the ticks; None for round numbers

    @property
    def ticks(self) -> Sequence[float]:
        if self.at is not None:
            return self.at
        if not self.log:
            return round_steps(self.low, self.high)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = max(1, math.ceil((last - first) / 7))
        factors = (1, 2, 5) if last - first <= 2 else (1,)
        candidates = (factor * 10.0**power for power in range(first, last + 1, every) for factor in factors)
        return [tick for tick in candidates if self.low <= tick <= self.high]

    def share(self, value: float) -> float:
        """Position of a value: 0 at the low end, 1 at the high end."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return (value - low) / (high - low)


def names_axis(label: str, names: Sequence[str], *, downwards: bool = False) -> Axis:
    """Axis of names, number i between i and i + 1."""
    low, high = (len(names), 0) if downwards else (0, len(names))
    return Axis(label, low, high, write=lambda at: names[int(at)], at=[i + 0.5 for i in range(len(names))])


class Path(NamedTuple):
    points: Sequence[tuple[float, float]]
    stroke: str = "none"
    fill: str = "none"
    width: float = 1.0
    dash: str = ""
    opacity: float = 1.0
    tip: str = ""
    closed: bool = False


class Circle(NamedTuple):
    x: float
    y: float
    radius: float
    stroke: str
    fill: str
    width: float
    opacity: float = 1.0
    tip: str = ""


class Text(NamedTuple):
    x: float
    y: float
    words: str
    color: str = "soft"
    anchor: str = "start"  # or "middle" or "end"
    size: float = _FONT_SIZE
    bold: bool = False
    halo: bool = False  # whether it stays readable on top of lines


Shape = Path | Circle | Text


class Key(NamedTuple):
    """One entry of a legend: a piece of a line, or a dot of a shape."""

    label: str
    color: str
    width: float = 2.0
    dash: str = ""
    shape: int | None = None

    def shapes(self, x: float, y: float) -> list[Shape]:
        if self.shape is not None:
            return [dot_shape(x + 11, y, self.color, shape=self.shape)]
        return [Path([(x, y), (x + 22, y)], self.color, width=self.width, dash=self.dash)]


def dot_shape(
    x: float,
    y: float,
    color: str,
    *,
    shape: int = 0,
    is_open: bool = False,
    radius: float = 4.2,
    opacity: float = 1.0,
    tip: str = "",
) -> Shape:
    """A dot at a pixel: circle, square, diamond or triangle, so that it does not depend on its color alone."""
    stroke, fill, width = (color, "card", 2.0) if is_open else ("card", color, 1.0)
    if shape % 4 == 0:
        return Circle(x, y, radius, stroke, fill, width, opacity, tip)
    numbers = [float(number) for number in _POLYGONS[shape % 4 - 1].split()]
    corners = [(x + dx, y + dy) for dx, dy in zip(numbers[::2], numbers[1::2], strict=True)]
    return Path(corners, stroke, fill, width, opacity=opacity, tip=tip, closed=True)


class Panel:
    """Marks between two axes. All positions are numbers of the axes; later marks cover earlier ones."""

    grid: tuple[Sequence[str], Sequence[str], Sequence[Sequence[float]]] | None = (
        None  # rows, columns, values: a heat map
    )

    def __init__(
        self,
        x: Axis,
        y: Axis,
        *,
        title: str = "",
        width: float = WIDTH,
        height: float = HEIGHT,
        left: float | None = None,
        grid: str = "y",
        top_axis: Axis | None = None,
        right_axis: Axis | None = None,
    ) -> None:
        self.x, self.y, self.title = x, y, title
        if left is None:
            left = max(_LEFT, 14 + LETTER * max((len(y.write(tick)) for tick in y.ticks), default=0))
        self.width = width + (_SECOND_AXIS if right_axis else 0)
        has_axis_above = bool(y.label or top_axis)
        top = (_TOP if has_axis_above else 8) + (_TITLE if title else 0)
        self.height = height + top - _TOP
        self._left, self._top, self._right, self._bottom = left, top, width - _RIGHT, self.height - _BOTTOM
        self.shapes: list[Shape] = [Text(4 if y.label else left, 14, title, "ink", bold=True)] if title else []
        self._draw_axes(grid)
        if top_axis:
            self._draw_top_axis(top_axis)
        if right_axis:
            self._draw_right_axis(right_axis)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixel of a point."""
        across, down = self._right - self._left, self._bottom - self._top
        return self._left + across * self.x.share(x), self._top + down * (1 - self.y.share(y))

    def line(
        self,
        points: Iterable[tuple[float, float]],
        color: str,
        *,
        width: float = 2.0,
        dash: str = "",
        opacity: float = 1.0,
        y_axis: Axis | None = None,
    ) -> None:
        """Draw a line through points; with `y_axis`, their heights belong to that axis (the right one)."""
        scale = self.y if y_axis is None else y_axis
        down = self._bottom - self._top
        pixels = [(self.at(x, self.y.low)[0], self._top + down * (1 - scale.share(y))) for x, y in points]
        if pixels:
            self.shapes.append(Path(pixels, color, width=width, dash=dash, opacity=opacity))

    def area(self, points: Sequence[tuple[float, float]], color: str) -> None:
        """Fill the area below a line."""
        corners = [(points[0][0], self.y.low), *points, (points[-1][0], self.y.low)]
        self.shapes.append(Path([self.at(*corner) for corner in corners], fill=color, opacity=0.2, closed=True))

    def dot(
        self,
        x: float,
        y: float,
        color: str,
        *,
        interval: tuple[float, float] | None = None,
        shape: int = 0,
        is_open: bool = False,
        radius: float = 4.2,
        opacity: float = 1.0,
        tip: str = "",
    ) -> None:
        """Draw a dot, with a horizontal interval, and a tip that shows where the pointer rests."""
        if interval is not None:
            ends = [self.at(end, y) for end in interval]
            self.shapes.append(Path(ends, color, width=2, opacity=0.55))
        px, py = self.at(x, y)
        mark = dot_shape(px, py, color, shape=shape, is_open=is_open, radius=radius, opacity=opacity, tip=tip)
        self.shapes.append(mark)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        shift: tuple[float, float] = (0, 0),
        color: str = "ink",
        bold: bool = False,
    ) -> None:
        """Write next to a point: to its right, or to its left where there is more room."""
        px, py = self.at(x, y)
        is_left = px > 0.6 * self._right
        px += -shift[0] if is_left else shift[0]
        self.shapes.append(Text(px, py + shift[1], words, color, "end" if is_left else "start", bold=bold, halo=True))

    def level(self, y: float) -> None:
        """Mark a height with a dashed line."""
        self.shapes.append(Path([self.at(self.x.low, y), self.at(self.x.high, y)], "mark", width=1.25, dash="4 3"))

    def upright(self, x: float, words: str, *, color: str = "mark", row: int = 0, dash: str = "4 3") -> None:
        """Mark a place on the x axis with a line, and a word in that row from the top."""
        self.shapes.append(Path([self.at(x, self.y.high), self.at(x, self.y.low)], color, width=1.25, dash=dash))
        if words:
            self.text(x, self.y.high, words, shift=(6, 12 + _LINE * row), color="ink" if color == "mark" else color)

    def line_ends(self, x: float, words: Iterable[tuple[float, str]]) -> None:
        """Write words from a place on the x axis on, each near its height, none over another."""
        lowest = math.inf
        for height, word in sorted(words):
            px, py = self.at(x, height)
            lowest = min(py + 4, lowest - _LINE)
            self.shapes.append(Text(px, lowest, word, "ink", halo=True))

    def cell(self, column: int, row: int, value: float, share: float, *, tip: str = "") -> None:
        """Draw a cell of a heat map with its number; `share` in [0, 1] is how dark it is."""
        pairs = zip(_LIGHTEST_CELL, _DARKEST_CELL, strict=True)
        shade = "#" + "".join(f"{round(light + share * (dark - light)):02x}" for light, dark in pairs)
        self.shapes.append(Path(self._corners(column, row), "card", shade, tip=tip, closed=True))
        x, y = self.at(column + 0.5, row + 0.5)
        ink = "#ffffff" if share > _WHITE_INK_FROM else "#000000"
        self.shapes.append(Text(x, y + 4, f"{value:.1f}", ink, "middle", 11))

    def frame_cell(self, column: int, row: int) -> None:
        """Frame the best cell of a heat map."""
        self.shapes.append(Path(self._corners(column, row), "#d55e00", width=2.5, closed=True))

    def _corners(self, column: int, row: int) -> list[tuple[float, float]]:
        return [self.at(column + dx, row + dy) for dx, dy in ((0, 0), (1, 0), (1, 1), (0, 1))]

    def _draw_axes(self, grid: str) -> None:
        left, right, top, bottom = self._left, self._right, self._top, self._bottom
        for tick in self.y.ticks:
            _, py = self.at(self.x.low, tick)
            if "y" in grid:
                self.shapes.append(Path([(left, py), (right, py)], "faint"))
            lines = self.y.write(tick).split("\n")
            first = py + 4 - 7 * (len(lines) - 1)
            self.shapes += [Text(left - 7, first + _LINE * i, line, anchor="end") for i, line in enumerate(lines)]
        for tick in self.x.ticks:
            px, _ = self.at(tick, self.y.low)
            if "x" in grid:
                self.shapes.append(Path([(px, top), (px, bottom)], "faint"))
            elif grid:
                self.shapes.append(Path([(px, bottom), (px, bottom + 4)], "mark"))
            self.shapes.append(Text(px, bottom + 18, self.x.write(tick), anchor="middle"))
        if grid:
            self.shapes.append(Path([(left, bottom), (right, bottom)], "mark"))
        middle = max((left + right) / 2, 4 + LETTER * len(self.x.label) / 2)
        self.shapes.append(Text(middle, self.height - 6, self.x.label, anchor="middle"))
        if self.y.label:
            self.shapes.append(Text(4, top - 21, self.y.label))

    def _draw_top_axis(self, axis: Axis) -> None:
        """A second unit for the same places, above the marks."""
        left, right, top = self._left, self._right, self._top
        for tick in axis.ticks:
            px = left + (right - left) * axis.share(tick)
            self.shapes.append(Path([(px, top - 4), (px, top)], "mark"))
            self.shapes.append(Text(px, top - 7, axis.write(tick), anchor="middle"))
        self.shapes.append(Path([(left, top), (right, top)], "mark"))
        self.shapes.append(Text((left + right) / 2, top - 21, axis.label, anchor="middle"))

    def _draw_right_axis(self, axis: Axis) -> None:
        right, top, bottom = self._right, self._top, self._bottom
        for tick in axis.ticks:
            py = top + (bottom - top) * (1 - axis.share(tick))
            self.shapes.append(Path([(right, py), (right + 4, py)], "mark"))
            self.shapes.append(Text(right + 8, py + 4, axis.write(tick)))
        self.shapes.append(Text(self.width - 4, top - 21, axis.label, anchor="end"))


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    label: str,
    span: tuple[float, float],
) -> Panel:
    """A cell for each number that is not NaN, the darkest at the end of `span`; the highest one is framed."""
    left = 20 + LETTER * max(map(len, rows))
    step = max(_NARROWEST_CELL, 8 + LETTER * max(map(len, columns)))
    panel = Panel(
        names_axis(label, columns),
        names_axis("", rows, downwards=True),
        title=title,
        width=left + step * len(columns) + _RIGHT,
        height=_TOP + _CELL_HEIGHT * len(rows) + _BOTTOM,
        left=left,
        grid="",
    )
    panel.width = max(panel.width, left + LETTER * len(title) + _RIGHT, LETTER * len(label) + _RIGHT)
    panel.grid = (rows, columns, values)
    low, high = span
    best: tuple[float, int, int] | None = None
    for row, numbers in enumerate(values):
        for column, value in enumerate(numbers):
            if math.isnan(value):
                continue
            share = min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 1.0
            panel.cell(column, row, value, share, tip=f"{rows[row]}, {columns[column]}: {value:.2f}")
            if best is None or round(value, 6) > best[0]:  # the first of equal ones
                best = (round(value, 6), column, row)
    if best is not None:
        panel.frame_cell(*best[1:])
    return panel


@dataclass(frozen=True, slots=True)
class Figure:
    """Rows of panels, each row under a heading that may be empty, with one legend."""

    title: str
    description: str
    rows: Sequence[tuple[str, Sequence[Panel]]]
    legend: Sequence[Key] = ()


def layout(figure: Figure, *, legend: bool = True) -> tuple[float, float, list[Shape]]:
    """Width, height and shapes of a figure, in pixels."""
    headings: list[float] = [LETTER * len(heading) + 2 * MARGIN for heading, _ in figure.rows]
    width = max([sum(panel.width for panel in panels) for _, panels in figure.rows] + headings)
    shapes: list[Shape] = []
    top = 0.0
    if legend and figure.legend:
        step = max(LETTER * len(key.label) for key in figure.legend) + 48
        width = max(width, step + MARGIN)
        per_row = max(1, int((width - MARGIN) // step))
        for number, key in enumerate(figure.legend):
            x, y = MARGIN + number % per_row * step, MARGIN + number // per_row * _KEY_LINE
            shapes += [*key.shapes(x, y), Text(x + 28, y + 4, key.label)]
        top = MARGIN + _KEY_LINE * math.ceil(len(figure.legend) / per_row)
    for heading, panels in figure.rows:
        if heading:
            shapes.append(Text(MARGIN, top + 18, heading, "ink", bold=True))
            top += 30
        left = 0.0
        for panel in panels:
            shapes += [_moved(shape, left, top) for shape in panel.shapes]
            left += panel.width
        top += max(panel.height for panel in panels) + _ROW_GAP
    return width, top - _ROW_GAP, shapes


def _moved(shape: Shape, dx: float, dy: float) -> Shape:
    if isinstance(shape, Path):
        return shape._replace(points=[(x + dx, y + dy) for x, y in shape.points])
    return shape._replace(x=shape.x + dx, y=shape.y + dy)


def page_svg(figure: Figure, name: str) -> str:
    """SVG for a page, whose style sheet sets the colors. The legend is left to the page, where its lines can wrap."""
    width, height, shapes = layout(figure, legend=False)
    width = max(width, WIDTH)  # a narrow figure would be enlarged
    wide = ' class="wide"' if width > 1.2 * WIDTH else ""
    return (
        f'<svg{wide} viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(figure.title)}</title><desc id="{name}-d">{escape(figure.description)}</desc>'
        f"{page_shapes(shapes)}</svg>"
    )


def page_shapes(shapes: Iterable[Shape]) -> str:
    return "".join(_svg_shape(shape, lambda name: f"var(--{name})" if name in PALETTE else name) for shape in shapes)


def page_palette() -> str:
    """Style rule that sets the colors of a page, light and dark."""
    names = (f"--{name}: light-dark({light}, {dark});" for name, (light, dark) in PALETTE.items())
    return f":root {{ {' '.join(names)} }}\n"


FORMATS = (".svg", ".png", ".pdf")


def check_format(ending: str) -> None:
    """Refuse PNG and PDF without matplotlib, which SVG does not need."""
    if ending != ".svg":
        _extras.require("matplotlib")


def render(figure: Figure, ending: str) -> bytes:
    """Content of a file of that ending, one of `FORMATS`, in the light colors."""
    return svg_file(figure) if ending == ".svg" else _matplotlib_file(figure, ending)


def _color(name: str, is_dark: bool = False) -> str:
    return PALETTE[name][is_dark] if name in PALETTE else name


def svg_file(figure: Figure, theme: str = "") -> bytes:
    """SVG in the colors of a theme, "light" or "dark", on a transparent ground; without one, light on white."""
    width, height, shapes = layout(figure)
    is_dark = theme == "dark"
    ground = "" if theme else f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>'
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'width="{width:g}" height="{height:g}" font-family="system-ui, \'DejaVu Sans\', sans-serif" font-size="13">'
        f"<title>{escape(figure.title)}</title><desc>{escape(figure.description)}</desc>"
        f"{ground}{''.join(_svg_shape(shape, lambda name: _color(name, is_dark)) for shape in shapes)}</svg>\n"
    )
    return text.encode()


def _svg_shape(shape: Shape, color: Callable[[str], str]) -> str:
    if isinstance(shape, Text):
        optional = {
            "text-anchor": shape.anchor if shape.anchor != "start" else "",
            "font-size": f"{shape.size:g}" if shape.size != _FONT_SIZE else "",
            "font-weight": "700" if shape.bold else "",
        }
        halo = {"paint-order": "stroke", "stroke": color("card"), "stroke-width": "4", "stroke-linejoin": "round"}
        values = {"x": f"{shape.x:.1f}", "y": f"{shape.y:.1f}", "fill": color(shape.color), **optional}
        return f"<text{_attributes(values | (halo if shape.halo else {}))}>{escape(shape.words)}</text>"
    values = {
        "fill": color(shape.fill),
        "stroke": color(shape.stroke),
        "stroke-width": f"{shape.width:g}" if shape.stroke != "none" else "",
        "opacity": f"{shape.opacity:g}" if shape.opacity != 1 else "",
    }
    if isinstance(shape, Circle):
        tag = "circle"
        values |= {"cx": f"{shape.x:.1f}", "cy": f"{shape.y:.1f}", "r": f"{shape.radius:g}"}
    else:
        tag = "polygon" if shape.closed else "polyline"
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        values |= {"points": points, "stroke-dasharray": shape.dash, "stroke-linejoin": "round"}
    tip = f"<title>{escape(shape.tip)}</title>" if shape.tip else ""
    return f"<{tag}{_attributes(values)}>{tip}</{tag}>"


def _attributes(values: Mapping[str, str]) -> str:
    return "".join(f' {name}="{escape(value)}"' for name, value in values.items() if value)


def _matplotlib_file(figure: Figure, ending: str) -> bytes:
    """The same shapes on a canvas whose unit is the pixel."""
    _extras.require("matplotlib")
    width, height, shapes = layout(figure)
    patches, lines = _extras.require("matplotlib.patches"), _extras.require("matplotlib.lines")
    inches = (width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH)
    canvas = _extras.require("matplotlib.figure").Figure(figsize=inches)
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    for order, shape in enumerate(shapes, start=1):
        if isinstance(shape, Text):
            _draw_text(axes, shape, order)
            continue
        style: dict[str, Any] = {"linewidth": shape.width * _POINTS_PER_PIXEL, "alpha": shape.opacity, "zorder": order}
        if isinstance(shape, Path) and not shape.closed:
            dash = [float(part) for part in shape.dash.split()]
            style |= {"color": _color(shape.stroke), "linestyle": (0, dash) if dash else "-"}
            axes.add_line(lines.Line2D(*zip(*shape.points, strict=True), **style))
            continue
        style |= {"facecolor": _color(shape.fill), "edgecolor": _color(shape.stroke)}
        if isinstance(shape, Circle):
            axes.add_patch(patches.Circle((shape.x, shape.y), shape.radius, **style))
        else:
            axes.add_patch(patches.Polygon(shape.points, closed=True, **style))
    content = BytesIO()
    # Without dates, so that the same figure is the same file; TrueType, because journals refuse matplotlib's Type 3.
    undated: dict[str, Any] = {"CreationDate": None} if ending == ".pdf" else {}
    with _extras.require("matplotlib").rc_context({"pdf.fonttype": 42}):
        canvas.savefig(content, format=ending.removeprefix("."), dpi=_PNG_DPI, metadata=undated)
    return content.getvalue()


def _draw_text(axes: Any, shape: Text, order: int) -> None:
    effects = _extras.require("matplotlib.patheffects")
    axes.text(
        shape.x,
        shape.y,
        shape.words,
        color=_color(shape.color),
        ha={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
        va="baseline",
        fontsize=shape.size * _POINTS_PER_PIXEL * 0.93,  # DejaVu Sans is wider than most system fonts
        fontweight="bold" if shape.bold else "normal",
        parse_math=False,  # a model may be called anything
        path_effects=[effects.withStroke(linewidth=3, foreground="white")] if shape.halo else [],
        zorder=order,
    )
