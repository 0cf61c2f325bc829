import csv
import io
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from gem_reference import coarse_vector, gem_vector, principal_vectors

import isosent
from isosent import evaluate
from isosent.encoders.word_average import GEM
from isosent.errors import InputError
from isosent.evaluation.sts import read_sts
from isosent.pages.figures import render
from isosent.research.gem import conditions, gem_figure, study_gem
from isosent.research.study import GemCell, study_csv

DIM, BASE = 12, "weighting=gem&window=3&n_candidates=6&n_removed=3"


@pytest.fixture
def data(tmp_path, write_stsb):
    return write_stsb(tmp_path / "data").parent


@pytest.fixture
def vectors(data):
    """A random vector for each word of the data."""
    words = sorted({word for task in read_sts(data) for text in task.target_texts for word in text.lower().split()})
    words = [word for word in words if word.isalpha()]
    return dict(zip(words, np.random.default_rng(0).normal(scale=0.2, size=(len(words), DIM)).round(5), strict=True))


@pytest.fixture
def reference(tmp_path, vectors):
    lines = (f"{word} {' '.join(map(str, vector))}\n" for word, vector in vectors.items())
    (tmp_path / "words.txt").write_text("".join(lines))
    return f"words:{tmp_path / 'words.txt'}?tokenizer=whitespace"


@pytest.fixture
def cells(data, reference):
    return study_gem(isosent.load(f"{reference}&{BASE}"), data, name="random")


def pearson_of_the_reference(data, vectors, *, n_candidates=6, power=3.0, **settings):
    (task,) = read_sts(data)

    def rows(text):
        return np.array([vectors[word] for word in text.lower().split() if word in vectors]).reshape(-1, DIM)

    principal = principal_vectors([coarse_vector(rows(text), power) for text in task.target_texts], n_candidates)

    def encode(text):
        return gem_vector(rows(text), *principal, **{"window": 3, "n_removed": 3} | settings)

    pairs = [(encode(a), encode(b)) for a, b in zip(task.subsets[0].first, task.subsets[0].second, strict=True)]
    cosines = [a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in pairs]
    return np.corrcoef(cosines, task.subsets[0].scores)[0, 1]


@pytest.mark.parametrize(
    ("study", "condition", "settings"),
    [
        ("ablation", "all scores, sdr", {}),
        ("ablation", "all scores, sir", {"removal": "sir"}),
        ("ablation", "all scores, none", {"removal": "none"}),
        ("ablation", "novelty + significance", {"scores": ("novelty", "significance")}),
        ("ablation", "uniqueness=scaled", {"uniqueness": "scaled"}),
        ("ablation", "significance=window", {"significance": "window"}),
        ("ablation", "ranking=unweighted", {"ranking": "unweighted"}),
        ("window", "5", {"window": 5}),
        ("candidates", "6", {}),
        ("removed", "5", {"n_removed": 5}),
        ("power", "1", {"power": 1.0}),
    ],
)
def test_a_cell_is_what_the_paper_computes(cells, data, vectors, study, condition, settings):
    (cell,) = [cell for cell in cells if (cell.study, cell.condition) == (study, condition)]
    assert cell.pearson == pytest.approx(pearson_of_the_reference(data, vectors, **settings), abs=1e-5)


def test_the_scores_are_those_of_evaluate(cells, data, reference):
    scores = evaluate(isosent.load(f"{reference}&{BASE}"), data).tasks["STSB"]
    assert cells[0].spearman == pytest.approx(scores.scores["spearman"], abs=1e-12)
    assert cells[0].n_zero_rows == scores.n_zero_rows


def test_settings_are_moved_one_at_a_time_around_those_of_the_model():
    moved = [each for each in conditions(GEM(n_removed=10), 300) if each.study != "ablation"]
    values = {
        study: [each.name for each in moved if each.study == study] for study in dict.fromkeys(m.study for m in moved)
    }
    assert values == {
        "window": ["2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"],
        "candidates": ["25", "30", "35", "40", "45", "50", "55", "60", "65"],
        "removed": ["5", "7", "9", "10", "11", "13", "15", "17", "19", "21", "23", "25"],
        "power": ["0", "1", "2", "3", "4", "5"],
    }
    assert next(each.weighting for each in moved if each.study == "window") == GEM(n_removed=10, window=2)


def test_settings_that_do_not_fit_are_left_out():
    moved = conditions(GEM(n_candidates=20, n_removed=11), 32)
    assert [each.name for each in moved if each.study == "candidates"] == ["20", "25", "30"]
    assert [each.name for each in moved if each.study == "removed"] == ["5", "7", "9", "11", "13", "15", "17", "19"]


@pytest.mark.filterwarnings("ignore:STSB:isosent.errors.EvaluationWarning")  # of the uniqueness score alone
def test_a_model_starts_from_the_published_settings(data):
    cells = study_gem(isosent.load("wordllama"), data, name="wordllama")
    moved = {cell.condition: cell.pearson for cell in cells if cell.study in ("ablation", "removed")}
    assert moved["17"] == moved["all scores, sdr"] != moved["5"]


@pytest.mark.parametrize("options", ["weighting=sif", "zipfian=true"])
def test_other_models_are_refused(data, reference, options):
    with pytest.raises(InputError, match=r"study gem: .* is not word vectors with weighting=mean or gem"):
        study_gem(isosent.load(f"{reference}&{options}"), data, name="other")


def test_too_few_dimensions_are_refused(data, reference):
    with pytest.raises(InputError, match="n_candidates must be at most 12, the dimensions"):
        study_gem(isosent.load(reference), data, name="small")


def test_the_csv_holds_a_line_a_cell(cells):
    rows = list(csv.DictReader(io.StringIO(study_csv(cells))))
    assert list(rows[0]) == ["model", "task", "study", "condition", "pearson", "spearman", "n_zero_rows", "deviations"]
    assert [float(row["pearson"]) for row in rows] == [cell.pearson for cell in cells]


def test_an_undefined_score_is_an_empty_field():
    table = study_csv([GemCell("m", "STSB", "ablation", "novelty", float("nan"), 0.5, 3)])
    assert table.splitlines()[1] == "m,STSB,ablation,novelty,,0.5,3,"


def test_the_figure_has_a_line_a_task_in_every_panel():
    cells = [
        GemCell("words:a/glove & co.txt", task, study, condition, 0.7 + 0.01 * value, float("nan"), 0)
        for task in ("STSB", "SICKR")
        for study, condition, value in [("ablation", "all", 0), ("removed", "5", 1), ("removed", "17", 0)]
    ]
    svg = "{http://www.w3.org/2000/svg}"
    root = ET.fromstring(render(gem_figure(cells), ".svg"))
    texts = [text.text for text in root.iter(f"{svg}text")]
    assert {"glove & co.txt, STSB", "glove & co.txt, SICKR"} <= set(texts)
    lines = [line.get("points") for line in root.iter(f"{svg}polyline") if line.get("stroke") == "#0072b2"]
    assert len(lines) == 2  # in the legend; of all panels, only that of Pearson over "removed" has points
    rising = [float(point.split(",")[1]) for point in lines[1].split()]
    assert rising[0] < rising[1]
