import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from isosent import _extras
from isosent.errors import InputError, MissingExtraError, OutputError
from isosent.training.curve import check_curve_output, curve_page, write_curve
from isosent.training.metrics import DevPoint, LossPoint, Metrics, Milestone

POINT = re.compile(r"-?[\d.]+,-?[\d.]+")


def losses(values, every=10):
    return tuple(
        LossPoint(step, step / 100, value, 2e-5 * (1 - step / (every * len(values) + 1)), 1.5, 431.0, step * 0.1)
        for step, value in zip(range(every, every * len(values) + 1, every), values, strict=True)
    )


def devs(*scores):
    return tuple(DevPoint(100 * number, score, 0.5, 40) for number, score in enumerate(scores))


RUN = Metrics(
    losses(np.linspace(1.0, 0.4, 30)),
    devs(0.6, 0.7512, 0.81, 0.8),
    (Milestone("start", 0, n_steps=300), Milestone("resumed", 120), Milestone("resumed", 250)),
)


def svgs(page):
    return {
        svg.get("aria-labelledby").split("-t")[0]: svg
        for svg in (ET.fromstring(found) for found in re.findall("<svg.*?</svg>", page))
    }


def words(svg):
    return [text.text for text in svg.iter("text")]


def lines(svg, color):
    return [line for line in svg.iter("polyline") if line.get("stroke") == f"var(--{color})"]


def test_the_page_needs_nothing_else():
    page = curve_page(RUN)
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "light-dark(" in page


def test_the_page_has_a_figure_for_each_course():
    assert set(svgs(curve_page(RUN))) == {"loss", "dev", "learning_rate", "gradient_norm"}


def test_the_headline_says_what_training_did():
    page = curve_page(RUN)
    assert "<h1>Development Spearman 60.00\u00a0→\u00a081.00, best at step 200</h1>" in page
    assert "300 of 300 steps, 3.00 epochs, in 0:00:30; 431 examples/s (median)." in page
    assert "Resumed after step 120, 250." in page


def test_a_score_that_never_rose_is_said():
    page = curve_page(Metrics(RUN.losses, devs(0.8, 0.7, 0.6)))
    assert "Development Spearman 80.00 at step 0, and not higher since" in page


def test_without_a_development_set_the_loss_is_the_headline():
    page = curve_page(Metrics(RUN.losses))
    assert "<h1>Loss 1 → 0.4</h1>" in page
    assert "dev" not in svgs(page)


def test_scores_are_labeled_and_the_best_is_marked():
    figure = svgs(curve_page(RUN))["dev"]
    assert {"60.00", "75.12", "80.00", "best 81.00"} <= set(words(figure))
    assert [dot.find("title").text for dot in figure.iter("circle") if dot.get("fill") == "var(--card)"] == [
        "best, step 200: 81.00"
    ]


def test_of_many_scores_first_last_and_best_are_labeled():
    figure = svgs(curve_page(Metrics(RUN.losses, devs(*np.linspace(0.5, 0.8, 12), 0.75))))["dev"]
    assert [word for word in words(figure) if word and re.fullmatch(r"(best )?\d\d\.\d\d", word)] == [
        "50.00",
        "75.00",
        "best 80.00",
    ]
    assert len(list(figure.iter("circle"))) == 13 + 1


def test_resumed_steps_are_marked_in_every_figure():
    for figure in svgs(curve_page(RUN)).values():
        vertical = [line.get("points").split() for line in lines(figure, "faint")]
        assert len([1 for start, end in vertical if start.split(",")[0] == end.split(",")[0]]) == 2


def test_the_line_goes_through_the_points():
    figure = svgs(curve_page(Metrics(losses([0.5, 0.25, 0.75]))))["loss"]
    (line,) = lines(figure, "c0")
    x, y = np.array([point.split(",") for point in POINT.findall(line.get("points"))], float).T
    assert np.diff(x) == pytest.approx(np.diff(x)[0], abs=0.2)
    assert (y[0] - y[1]) / (y[0] - y[2]) == pytest.approx(-1, abs=0.01)


def test_many_points_are_thinned_and_smoothed():
    rng = np.random.default_rng(0)
    figure = svgs(curve_page(Metrics(losses(1 + 0.2 * rng.standard_normal(5000)))))["loss"]
    single, smooth = (
        np.array([point.split(",")[1] for point in POINT.findall(line.get("points"))], float)
        for line in lines(figure, "c0")
    )
    assert len(single) == len(smooth) == 400
    assert smooth.std() < single.std() / 2


def test_a_wide_range_of_losses_has_a_log_scale():
    wide, narrow = (words(svgs(curve_page(Metrics(losses(values))))["loss"]) for values in ([9, 1, 0.1], [9, 5, 1]))
    assert "loss (log scale)" in wide
    assert "loss" in narrow


def test_undefined_scores_are_left_out_and_said():
    page = curve_page(Metrics(RUN.losses, devs(math.nan, 0.7, 0.8)))
    assert len(list(svgs(page)["dev"].iter("circle"))) == 2 + 1
    assert '<td class="number">\u2013</td>' in page


@pytest.mark.parametrize(
    "metrics",
    [
        Metrics(losses([0.5])),
        Metrics(losses([0.0, 0.0])),
        Metrics(losses([-1.0, -2.0])),
        Metrics(losses([math.nan, 0.5])),
        Metrics(devs=devs(0.5)),
        Metrics(RUN.losses, devs(0.5, 0.5)),
    ],
    ids=["one", "zero", "negative", "undefined", "one score", "flat scores"],
)
def test_edges_are_drawn(metrics, tmp_path):
    pytest.importorskip("matplotlib")
    assert "NaN" not in curve_page(metrics)
    assert "nan" not in "".join(re.findall("<svg.*?</svg>", curve_page(metrics)))
    write_curve(tmp_path / "curve.png", metrics)


def test_why_a_run_stopped_is_told_and_escaped():
    page = curve_page(Metrics(RUN.losses, milestones=(Milestone("stopped", 300, reason="the loss is <nan>"),)))
    assert "Stopped: the loss is &lt;nan&gt;" in page


def test_nothing_measured_is_refused(tmp_path):
    with pytest.raises(InputError, match="no defined loss or development score"):
        curve_page(Metrics(milestones=RUN.milestones))
    with pytest.raises(InputError, match="no defined loss"):
        write_curve(tmp_path / "curve.html", Metrics(devs=devs(math.nan)))


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("curve.html", b"<!doctype html>"),
        ("curve.svg", b"<svg"),
        ("curve.png", b"\x89PNG"),
        ("curve.pdf", b"%PDF"),
    ],
)
def test_the_name_says_what_is_written(tmp_path, name, first):
    if name.endswith(("png", "pdf")):
        pytest.importorskip("matplotlib")
    write_curve(tmp_path / name, RUN)
    assert (tmp_path / name).read_bytes().startswith(first)


def test_another_name_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"curve\.gif: the extension must be \.html"):
        check_curve_output(tmp_path / "curve.gif")
    with pytest.raises(OutputError, match="there is no folder"):
        check_curve_output(tmp_path / "none" / "curve.html")


def test_a_page_needs_no_matplotlib_and_an_image_names_the_extra(tmp_path, monkeypatch):
    def missing(package):
        raise MissingExtraError(f"{package} is not installed. Install it with: pip install 'isosent[plots]'")

    monkeypatch.setattr(_extras, "require", missing)
    check_curve_output(tmp_path / "curve.html")
    with pytest.raises(MissingExtraError, match=r"isosent\[plots\]"):
        check_curve_output(tmp_path / "curve.png")
