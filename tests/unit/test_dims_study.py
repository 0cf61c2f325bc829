import xml.etree.ElementTree as ET

import numpy as np
import pytest

import isosent
from isosent import evaluate
from isosent.encoders.base import Encoder
from isosent.errors import EvaluationWarning, InputError, RankWarning
from isosent.evaluation import sizes
from isosent.evaluation.sts import AGGREGATIONS
from isosent.model import SentenceEncoder
from isosent.pages.figures import render
from isosent.research.dims import dims_figure, exact_top, measure_search, study_dims, width_grid
from isosent.research.study import DimsCell, DimsStudy, SearchTime
from isosent.transforms import whitening as whitening_solution
from isosent.words.tokens import TokenIds

WIDTHS = [8, 256]


class RandomEncoder(Encoder):
    """A vector of 768 random numbers for each text; counts what it is asked for."""

    def __init__(self, reference="random", options=None):
        super().__init__(reference, options or {}, 768)
        self.asked = []

    def tokenize(self, texts):
        self.asked += texts
        return TokenIds.from_lists([[sum(map(ord, text))] for text in texts])

    def embed(self, tokens, progress=None):
        return np.array([np.random.default_rng(key).normal(size=self.dim) for key in tokens.ids], dtype=np.float32)

    def parameters(self):
        yield np.zeros(1)

    def vocabulary(self):
        yield ""


@pytest.fixture
def data(tmp_path, write_year):
    """A year in miniature."""
    return write_year("STS13", tmp_path / "2013")


@pytest.fixture
def stsb(tmp_path, write_stsb):
    """STS-B in miniature, no pair of a part twice."""
    return write_stsb(tmp_path / "stsb", n_pairs=150)


def made(curves, dim=None, untransformed=0.5, search=()):
    """A study of tasks whose scores are written down, the same in every aggregation."""

    def cell(task, k, score):
        return DimsCell(task, k, k, 10, 0, dict.fromkeys(("all", "mean", "wmean"), score))

    cells = tuple(cell(task, k, score) for task, curve in curves.items() for k, score in curve.items())
    whole = tuple(cell(task, dim or cells[-1].k, untransformed) for task in curves)
    return DimsStudy("hf:a/b & c", {}, {"transform": "whitening", "fit": "target"}, whole, cells, search, ())


@pytest.mark.parametrize(
    ("transform", "narrow"),
    [
        (isosent.Whitening(), isosent.Whitening),
        (isosent.Whitening(strength=0.3), lambda k: isosent.Whitening(k, strength=0.3)),
        (isosent.Whitening(shrinkage="oas"), lambda k: isosent.Whitening(k, shrinkage="oas")),
        (isosent.PrincipalComponents(), isosent.PrincipalComponents),
        (isosent.Truncate(), isosent.Truncate),
        (
            isosent.chain(isosent.MeanProjection(), isosent.Truncate(), isosent.L2Normalize()),
            lambda k: isosent.chain(isosent.MeanProjection(), isosent.Truncate(k)),
        ),
    ],
)
def test_a_cell_is_the_score_of_the_narrow_transform(wordllama, stsb, transform, narrow):
    study = study_dims(wordllama, stsb, name="w", transform=transform, widths=WIDTHS, n_docs=0)
    for cell in study.cells:
        scores = evaluate(wordllama, stsb, transform=narrow(cell.k)).tasks[cell.task]
        assert cell.spearman["all"] == pytest.approx(scores.scores["spearman"], abs=1e-4)
        assert (cell.n_components, cell.n_pairs) == (scores.dim, scores.n_items)
    plain = evaluate(wordllama, stsb).tasks["STSB"]
    assert [(cell.k, cell.spearman) for cell in study.untransformed] == [(256, aggregations(plain))]


def aggregations(task):
    return {how: task.scores["spearman" if how == "all" else f"spearman_{how}"] for how in AGGREGATIONS}


def test_the_three_aggregations_are_kept(wordllama, data):
    study = study_dims(wordllama, data, name="w", transform=isosent.Truncate(), widths=[4], n_docs=0)
    scores = evaluate(wordllama, data, transform=isosent.Truncate(4)).tasks["STS13"]
    assert study.cells[0].spearman == pytest.approx(aggregations(scores), abs=1e-9)


def test_a_file_to_fit_on(wordllama, stsb, tmp_path, texts):
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    fit = tmp_path / "texts.txt"
    study = study_dims(wordllama, stsb, name="w", widths=[16], fit=fit, n_docs=0)
    scores = evaluate(wordllama, stsb, transform=isosent.Whitening(16), fit_on=fit).tasks["STSB"]
    assert study.cells[0].spearman == pytest.approx(aggregations(scores), abs=1e-9)
    assert study.protocol["fit"] == str(fit)
    assert study.untransformed[0].spearman == aggregations(evaluate(wordllama, stsb).tasks["STSB"])


def test_a_cell_has_the_interval_of_its_score(wordllama, stsb):
    study = study_dims(wordllama, stsb, name="w", transform=isosent.Truncate(), widths=WIDTHS, n_docs=0)
    for cell in study.cells:
        expected = evaluate(wordllama, stsb, transform=isosent.Truncate(cell.k)).tasks["STSB"].intervals["spearman"]
        assert cell.interval == pytest.approx(expected, abs=1e-9)
        assert study.interval(cell.k) == pytest.approx(expected, abs=1e-9)


def test_the_interval_of_an_average_is_that_of_independent_tasks():
    cells = [
        DimsCell(task, 8, 8, 10, 0, dict.fromkeys(AGGREGATIONS, score), (score - 0.03, score + 0.04))
        for task, score in (("A", 0.4), ("B", 0.6))
    ]
    study = DimsStudy("m", {}, {"transform": "whitening", "fit": "target"}, tuple(cells), tuple(cells), (), ())
    assert study.interval(8) == pytest.approx((0.5 - 0.03 / 2**0.5, 0.5 + 0.04 / 2**0.5))
    assert np.isnan(made({"A": {8: 0.4}}).interval(8)).all()


def test_random_dimensions_are_those_of_the_vectors_without_the_transform(wordllama, stsb):
    study = study_dims(wordllama, stsb, name="w", transform=isosent.Whitening(), widths=[16, 255, 256], n_docs=0)
    assert [cell.k for cell in study.random] == [16, 255]
    few, all_but_one = study.random
    assert all_but_one.spearman["all"] == pytest.approx(study.untransformed[0].spearman["all"], abs=0.005)
    assert few.interval[0] < few.spearman["all"] < few.interval[1]
    without = study_dims(wordllama, stsb, name="w", widths=[16], n_docs=0, n_resamples=0)
    assert (without.random, without.cells[0].interval) == ((), None)


def test_sentences_are_encoded_once_and_decomposed_once(monkeypatch, stsb):
    encoder, decomposed, spectrum = RandomEncoder(), [], whitening_solution.spectrum
    monkeypatch.setattr(
        whitening_solution, "spectrum", lambda *given, **more: decomposed.append(1) or spectrum(*given, **more)
    )
    with pytest.warns(RankWarning, match="components kept"):
        study = study_dims(SentenceEncoder(encoder), stsb, name="random", n_docs=0)
    assert len(study.widths) > 10
    assert len(decomposed) == 1
    probes = encoder.asked.index(next(text for text in encoder.asked if "fox" in text and "3.5 km" in text))
    assert len(encoder.asked[:probes]) == len(set(encoder.asked[:probes]))


def test_a_width_above_the_rank_is_the_rank(stsb):
    with pytest.warns(RankWarning):
        study = study_dims(SentenceEncoder(RandomEncoder()), stsb, name="random", widths=[16, 700, 768], n_docs=0)
    small, above, full = study.cells
    assert small.n_components == 16
    assert above.n_components == full.n_components < 700
    assert above.spearman == full.spearman


@pytest.fixture
def any_size(monkeypatch):
    """Sets made up for a test count as the known ones."""
    monkeypatch.setattr(sizes, "KNOWN_SETS", {})


@pytest.mark.usefixtures("any_size")
def test_published_scores_stand_beside_the_same_model_width_and_pairs(stsb):
    bert = SentenceEncoder(RandomEncoder("hf:bert-base-uncased", {"layers": "1,12", "pooling": "mean"}))
    with pytest.warns(RankWarning):
        study = study_dims(bert, stsb, name="bert", widths=[128, 256, 768], n_docs=0)
    ours = [row for row in study.published if "Su et al." in row.label]
    assert [(row.k, row.transformed, row.aggregation, row.scores) for row in ours] == [
        (768, False, "wmean", {"STSB": 59.04}),
        (256, True, "wmean", {"STSB": 71.43}),
        (768, True, "wmean", {"STSB": 71.34}),
    ]
    rows = {(row["transform"], row["k"]): row["published_wmean"] for row in study.rows()}
    assert rows == {
        ("none", 768): pytest.approx(0.5904),
        ("whitening", 128): None,
        ("whitening", 256): pytest.approx(0.7143),
        ("whitening", 768): pytest.approx(0.7134),
        ("random dimensions", 128): None,
        ("random dimensions", 256): None,
    }


def test_nothing_published_stands_beside_a_set_of_another_size(stsb):
    bert = SentenceEncoder(RandomEncoder("hf:bert-base-uncased", {"layers": "1,12", "pooling": "mean"}))
    with pytest.warns(EvaluationWarning, match="instead of 1,379"), pytest.warns(RankWarning):
        study = study_dims(bert, stsb, name="bert", widths=[128], n_docs=0)
    assert study.published == ()
    assert all("instead of 1,379" in row["deviations"] for row in study.rows())


@pytest.mark.usefixtures("any_size")
def test_nothing_was_published_for_another_strength(stsb):
    bert = SentenceEncoder(RandomEncoder("hf:bert-base-uncased", {"layers": "1,12", "pooling": "mean"}))
    with pytest.warns(RankWarning):
        study = study_dims(bert, stsb, name="bert", transform=isosent.Whitening(strength=0.5), widths=[256], n_docs=0)
    assert [row.transformed for row in study.published] == [False]


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (384, [8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384]),
        (8, [8]),
        (5, [5]),
        (1, [1]),
    ],
)
def test_the_grid_ends_with_the_full_width(dim, expected):
    assert width_grid(dim) == expected


def test_the_best_width_is_the_smallest_of_the_best():
    study = made({"STSB": {8: 0.3, 16: 0.5, 32: 0.5}, "SICKR": {8: 0.6, 16: float("nan"), 32: 0.1}})
    assert (study.best("STSB"), study.best("SICKR"), study.best()) == (16, 8, 8)
    assert made({"STSB": {8: float("nan")}}).best("STSB") is None


def test_the_rows_hold_memory_and_search_time():
    search = (SearchTime(8, 100, 10, 5, 0.25),)
    rows = made({"STSB": {8: 0.3, 16: float("nan")}}, search=search).rows()
    assert [row["transform"] for row in rows] == ["none", "whitening", "whitening"]
    assert [row["bytes_per_million"] for row in rows] == [64e6, 32e6, 64e6]
    assert [row["search_s_per_query"] for row in rows] == [None, 0.25, None]
    assert [row["spearman_all"] for row in rows] == [0.5, 0.3, None]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transform": isosent.AllButTheTop()}, r"the transform ends with all_but_the_top, .* Choose whitening, "),
        (
            {"transform": isosent.Whitening(method="zca")},
            r"the transform ends with whitening, .*by method pca or pca_cor",
        ),
        ({"transform": isosent.Whitening(64)}, r"the transform keeps only some dimensions \(dims=64\)"),
        ({"transform": isosent.L2Normalize()}, r"ends with l2_normalize, whose first axes"),
        ({"widths": [300]}, "widths must be from 1 to 256, the dimensions of the vectors; got 300"),
        ({"widths": []}, "no widths are named"),
    ],
)
def test_a_plan_that_cannot_be_studied_is_refused(wordllama, tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        study_dims(wordllama, tmp_path, name="w", **settings)


def test_a_model_that_ends_with_length_1_is_refused(wordllama, tmp_path, texts):
    model = wordllama.fitted(texts, transform=isosent.chain(isosent.Whitening(8), isosent.L2Normalize()))
    with pytest.raises(InputError, match="scaling to length 1"):
        study_dims(model, tmp_path, name="w")


@pytest.mark.parametrize("n_docs", [10, 63, 64, 4096, 9001])
def test_the_exact_search_finds_what_sorting_finds(n_docs):
    rng = np.random.default_rng(n_docs)
    queries, docs = (rng.normal(size=(rows, 5)).astype(np.float32) for rows in (7, n_docs))
    indices, scores = exact_top(queries, docs, 10)
    expected = queries.astype(np.float64) @ docs.T.astype(np.float64)
    assert (indices == np.argsort(-expected, axis=1)[:, :10]).all()
    assert scores == pytest.approx(np.take_along_axis(expected, indices, axis=1), abs=1e-5)


def test_every_width_is_searched_among_as_many_vectors():
    times = measure_search([4, 8], n_docs=50, n_queries=3, n_repeats=2)
    assert [(time.k, time.n_docs, time.n_queries, time.n_repeats) for time in times] == [(4, 50, 3, 2), (8, 50, 3, 2)]
    assert all(time.elapsed_s > 0 for time in times)


SVG = "{http://www.w3.org/2000/svg}"


def test_the_figure_marks_the_best_width_of_every_line():
    curves = {"STSB": {8: 0.3, 32: 0.5, 64: 0.4}, "SICKR": {8: 0.6, 32: 0.5, 64: float("nan")}}
    search = tuple(SearchTime(k, 100, 10, 5, 0.001 * k) for k in (8, 32, 64))
    root = ET.fromstring(render(dims_figure([made(curves, search=search), made(curves)]), ".svg"))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    wanted = {"b & c, whitening fitted on target", "search of 100 vectors (right axis)", "32 MB", "256 MB", "average"}
    assert wanted <= set(texts)
    lines = [line.get("stroke-dasharray") for line in root.iter(f"{SVG}polyline") if line.get("stroke-width") == "2"]
    assert lines.count("2 4") == 2  # one panel and the legend
    tips = [title.text for title in root.iter(f"{SVG}title")][1:7]
    assert tips == [
        *("STSB: 50.00 at 32", "SICKR: 60.00 at 8", "average: 50.00 at 32"),
        *(f"{name}, without the transform: 50.00" for name in ("STSB", "SICKR", "average")),
    ]


def test_a_figure_of_one_width_and_no_score_can_be_drawn():
    figure = dims_figure([made({"STSB": {8: float("nan")}}, untransformed=float("nan"))])
    assert not list(ET.fromstring(render(figure, ".svg")).iter(f"{SVG}circle"))
