import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from isosent import _extras
from isosent.errors import MissingExtraError, OutputError
from isosent.pages.figures import Axis, Figure, Key, Panel, heat_map, page_palette, page_svg, render, round_steps
from isosent.pages.tables import csv_table, latex_table
from isosent.report.figures import check_figure

SVG = "{http://www.w3.org/2000/svg}"
NAN = float("nan")


def drawn(*panels, legend=()):
    return ET.fromstring(render(Figure("a & b", "c", [("", panels)], legend), ".svg"))


def texts(root):
    return [text.text for text in root.iter(f"{SVG}text")]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.3, 0.9), (0, 4096), (0.001, 0.0013), (-2.4, -1.2)])
def test_ticks_are_few_round_and_inside(low, high):
    ticks = round_steps(low, high)
    assert 3 <= len(ticks) <= 8
    assert low - 1e-9 <= ticks[0] < ticks[-1] <= high + 1e-9


@pytest.mark.parametrize(("low", "high"), [(0.6, 1.7), (1e-9, 3.0), (0.02, 0.5), (1e-300, 1e-280)])
def test_a_logarithmic_axis_has_ticks_however_short_it_is(low, high):
    ticks = Axis("", low, high, log=True).ticks
    assert 1 <= len(ticks) <= 8
    assert all(low <= tick <= high for tick in ticks)


def full_panel():
    panel = Panel(Axis("x", 0, 10), Axis("y", 1, 100, log=True), title="<title>", right_axis=Axis("right", 0, 1))
    panel.area([(0, 1), (5, 10)], "before")
    panel.line([(0, 1), (5, 10), (10, 100)], "c0", dash="6 3")
    for shape in range(4):
        panel.dot(shape, 10, "c1", shape=shape, interval=(0, 9), is_open=shape == 3, tip="a $tip$")
    panel.text(9, 10, "to the left", shift=(9, 0))
    panel.level(10)
    panel.upright(5, "here")
    return panel


@pytest.mark.parametrize(("ending", "first"), [(".svg", b"<svg"), (".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_a_figure_is_the_same_file_every_time(ending, first):
    if ending != ".svg":
        pytest.importorskip("matplotlib")
    figure = Figure(
        "t", "d", [("two & $ panels", [full_panel(), full_panel()])], [Key("<a>", "c0"), Key("b", "c1", shape=1)]
    )
    assert render(figure, ending).startswith(first)
    assert render(figure, ending) == render(figure, ending)


def test_a_page_sets_the_colors_and_a_file_holds_them():
    figure = Figure("t", "d", [("", [full_panel()])], [Key("a", "c0")])
    page, file = page_svg(figure, "name"), render(figure, ".svg").decode()
    used = set(re.findall(r"var\((--\w+)\)", page))
    assert {"--c0", "--c1", "--before", "--card", "--soft"} <= used
    assert all(f"{name}: light-dark(#" in page_palette() for name in used)
    assert "var(" not in file
    assert 'stroke="#0072b2"' in file
    ET.fromstring(page)


def test_marks_stand_where_their_numbers_are():
    panel = Panel(Axis("", 0, 10), Axis("", 0, 1))
    panel.line([(0, 0), (10, 1)], "c0")
    panel.dot(5, 0.5, "c1", interval=(4, 7), shape=1)
    root = drawn(panel)
    start, end = ([float(v) for v in p.split(",")] for p in lines(root, "#0072b2")[0].split())
    low, high = ([float(v) for v in p.split(",")] for p in lines(root, "#d55e00")[0].split())
    assert (end[0] - start[0]) / 10 == pytest.approx((high[0] - low[0]) / 3, abs=0.1)
    assert low[1] == pytest.approx((start[1] + end[1]) / 2, abs=0.1)


def lines(root, color):
    return [line.get("points") for line in root.iter(f"{SVG}polyline") if line.get("stroke") == color]


def test_colors_repeat_with_another_shape_and_the_legend_is_drawn():
    root = drawn(Panel(Axis("", 0, 1), Axis("", 0, 1)), legend=[Key(name, "c0") for name in ("one", "two & three")])
    assert {"one", "two & three"} <= set(texts(root))
    assert root.find(f"{SVG}title").text == "a & b"


def test_a_heat_map_prints_each_number_in_its_cell_and_frames_the_best():
    values = [[50.04, NAN], [75.0, 25.0]]
    root = drawn(heat_map("a & b", ["L0", "L1"], ["x", "y"], values, label="layers", span=(25.0, 75.0)))
    inks = {text.text: text.get("fill") for text in root.iter(f"{SVG}text") if text.get("font-size") == "11"}
    assert inks == {"50.0": "#000000", "75.0": "#ffffff", "25.0": "#000000"}
    assert [tip.text for tip in root.iter(f"{SVG}title")][1:] == ["L0, x: 50.04", "L1, x: 75.00", "L1, y: 25.00"]
    polygons = list(root.iter(f"{SVG}polygon"))
    darkest, framed = (
        next(each.get("points") for each in polygons if each.get(name) == color)
        for name, color in (("fill", "#083f73"), ("stroke", "#d55e00"))
    )
    assert darkest == framed
    assert len(polygons) == 4


def contrast(color, ink):
    def brightness(code):
        parts = [int(code[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return np.dot(linear, [0.2126, 0.7152, 0.0722])

    bright, dim = sorted([brightness(color), brightness(ink)], reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_numbers_can_be_read_on_every_shade():
    values = [np.arange(101.0).tolist()]
    root = drawn(heat_map("", ["row"], list(map(str, range(101))), values, label="", span=(0.0, 100.0)))
    fills = [each.get("fill") for each in root.iter(f"{SVG}polygon") if each.get("fill") != "none"]
    inks = [text.get("fill") for text in root.iter(f"{SVG}text") if text.get("font-size") == "11"]
    assert all(contrast(fill, ink) >= 4.5 for fill, ink in zip(fills, inks, strict=True))


def test_an_image_names_the_extra_and_svg_needs_none(tmp_path, monkeypatch):
    def missing(package):
        raise MissingExtraError(f"{package} is not installed. Install it with: pip install 'isosent[plots]'")

    monkeypatch.setattr(_extras, "require", missing)
    check_figure(tmp_path / "a.svg")
    with pytest.raises(MissingExtraError, match=r"isosent\[plots\]"):
        check_figure(tmp_path / "a.pdf")
    with pytest.raises(OutputError, match=r"a\.gif.*\.svg, \.png, \.pdf"):
        check_figure(tmp_path / "a.gif")


def test_tables_escape_what_csv_and_latex_take_for_their_own():
    rows = [["a_b & 50%", "1,5"], ["{x}\\", "2"], ["[a] > b", "3"]]
    assert csv_table(["model", "x"], rows) == 'model,x\na_b & 50%,"1,5"\n{x}\\,2\n[a] > b,3\n'
    text = latex_table(["model", "x"], rows, caption="100% of $x$")
    assert r"a\_b \& 50\% & 1,5 \\" in text
    assert r"\{x\}\textbackslash{} & 2 \\" in text
    assert r"{[}a{]} \textgreater{} b & 3 \\" in text
    assert r"\caption{100\% of \$x\$}" in text


def test_a_wide_table_breaks_its_long_names_and_heads():
    rows = [["wordllama + whitening, strength=0.5", *"12345"], ["  95% from", *"12345"]]
    text = latex_table(["model", "average (accuracy)", *"bcde"], rows)
    assert r"{p{0.26\linewidth}rrrrr}" in text
    assert "model & average & b" in text
    assert r" & (accuracy) &  & " in text
    assert r"\quad\scriptsize 95\% from & \scriptsize 1 & " in text
    assert r"\begin{tabular}{lr}" in latex_table(["model", "a"], [[rows[0][0], "1"]])
