"""Sets of another size than the known ones are marked in every output."""

import csv
import io
import json
from dataclasses import replace

import pytest

import isosent
from isosent.errors import EvaluationWarning
from isosent.evaluation.compare import compare_results
from isosent.evaluation.evaluate import read_tasks
from isosent.evaluation.result_file import read_result
from isosent.evaluation.sizes import MARK, deviations, known_items
from isosent.evaluation.tables import sts_table
from isosent.report.figures import scores_figure
from isosent.report.leaderboard import ReportData, ResultFile, make_leaderboard
from isosent.report.results_page import html_report

ENGLISH = ["the cat is on a mat", "what is that in the box"]


@pytest.mark.parametrize(
    ("kind", "name", "sizes", "texts", "expected"),
    [
        ("sts", "STSB", {"test": 1379}, ENGLISH, ()),
        ("sts", "STSB", {"test": 200}, ENGLISH, ("200 items in test instead of 1,379",)),
        ("sts", "STSB", {"test": 2 * 1379}, ENGLISH, ("2,758 items in test instead of 1,379",)),
        ("sts", "STSB", {"test": 1380}, ENGLISH, ("1,380 items in test instead of 1,379",)),
        ("sts", "STSB", {"test": 1500}, ENGLISH, ("1,500 items in test instead of 1,379",)),  # the development part
        ("sts", "STSB", {"test": 1379}, ["한 남자가 음식을 먹고 있다"], ("its texts are not English",)),  # KorSTS
        ("sts", "STSB", {"test": 1379}, ["Ein Mann isst ein Stück Brot"], ("its texts are not English",)),
        ("sts", "SICKR", {"train": 4500, "dev": 500, "test": 4927}, ENGLISH, ()),
        ("sts", "SICKR", {"train": 4500, "dev": 500, "test": 300}, ENGLISH, ("300 items in test instead of 4,927",)),
        ("sts", "STS13", {"FNWN": 189, "OnWN": 561, "headlines": 750}, ENGLISH, ()),
        ("sts", "STS13", {"FNWN": 189, "OnWN": 561}, ENGLISH, ("0 items in headlines instead of 750",)),
        ("sts", "STS13", {"FNWN": 190, "OnWN": 560, "headlines": 750}, ENGLISH, 2),
        ("sts", "STS16", {"answer-answer": 254}, ENGLISH, 4),
        ("transfer", "MR", {"whole": 120}, ENGLISH, ("120 items instead of 10,662",)),
        ("transfer", "CR", {"whole": 3771}, ENGLISH, ("3,771 items instead of 3,775",)),  # without its blank lines
        ("transfer", "MPQA", {"whole": 10_606}, ENGLISH, ()),
        ("transfer", "SST2", {"train": 6920, "dev": 872, "test": 1821}, ENGLISH, 1),  # whole sentences alone
        ("transfer", "SST5", {"train": 8544, "dev": 1101, "test": 2210}, ENGLISH, ()),
        ("transfer", "TREC", {"train": 5452, "test": 500}, ENGLISH, ()),
        ("transfer", "MRPC", {"train": 4077, "test": 1726}, ENGLISH, 2),  # the header counted
        ("transfer", "STSB-supervised", {"train": 5749, "dev": 1500, "test": 1379}, ENGLISH, ()),
        ("rte", "RTE", {"train": 1000, "dev": 277}, ENGLISH, ("1,000 items in train instead of 2,490",)),
        ("cqa", "CQA-2016-test", {"questions": 70, "candidates": 699}, ENGLISH, 1),
        ("retrieval", "scifact", {"queries": 300, "documents": 5183}, ["x"], ()),
        ("pairs", "sts-test", {"whole": 1379}, ["한 남자가"], ()),  # KorSTS has these names and sizes too
        ("pairs", "mine", {"whole": 3}, ["x"], ()),
    ],
)
def test_a_set_is_compared_with_the_known_one(kind, name, sizes, texts, expected):
    found = deviations(kind, name, sizes, texts)
    assert (len(found) if isinstance(expected, int) else found) == expected


def test_the_items_of_known_sets_are_those_of_their_papers():
    expected = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186, "STSB": 1379, "SICKR": 9927}
    assert {name: known_items("sts", name, {"sickr": "full"}) for name in expected} == expected
    assert known_items("sts", "SICKR", {"sickr": "test"}) == 4927
    assert (known_items("transfer", "MR", {}), known_items("transfer", "SST2", {})) == (10_662, 1_821)
    assert (known_items("rte", "RTE", {}), known_items("cqa", "CQA-2016-dev", {})) == (277, 50)
    assert known_items("sts", "mine", {}) is None


@pytest.fixture
def data(tmp_path, write_stsb, write_year):
    write_stsb(tmp_path / "data" / "stsb", n_pairs=12)
    write_year("STS13", tmp_path / "data" / "13")
    return tmp_path / "data"


@pytest.fixture
def result(wordllama, data):
    with pytest.warns(EvaluationWarning, match="STSB: 12 items in test instead of 1,379"):
        return isosent.evaluate(wordllama, data, "sts")


def test_every_output_of_a_result_marks_it(result):
    assert not result.tasks["STSB"].is_comparable
    assert "STSB: 12 items in test instead of 1,379; not comparable" in str(result)
    assert f"{MARK}, " in repr(result) or f"{MARK}>" in repr(result)
    task = json.loads(result.to_text())["tasks"]["STSB"]
    assert (task["is_comparable"], task["n_known"], task["deviations"]) == (
        False,
        1379,
        ["12 items in test instead of 1,379"],
    )
    rows = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert {(row["known_items"], row["comparable"]) for row in rows if row["task"] == "STSB"} == {("1379", "no")}
    assert f"STSB {MARK}" in result.to_latex()
    assert "12 items in test instead of 1,379" in result.to_latex()
    table = sts_table(result)
    assert list(table.columns[1:]) == [f"STS13 {MARK}", f"STSB {MARK}", f"average {MARK}"]
    assert "not comparable" in table.caption


def test_a_result_is_read_as_it_was_written(result, tmp_path):
    (tmp_path / "r.json").write_text(result.to_text())
    assert read_result(tmp_path / "r.json").tasks["STSB"].deviations == result.tasks["STSB"].deviations


def test_a_file_of_an_earlier_version_is_marked_by_its_items(result, tmp_path):
    document = json.loads(result.to_text())
    for task in document["tasks"].values():
        for name in ("deviations", "n_known", "is_comparable"):
            del task[name]
    del document["checksum"]
    (tmp_path / "old.json").write_text(json.dumps(document))
    task = read_result(tmp_path / "old.json").tasks["STSB"]
    assert (task.deviations, task.n_known) == (("12 items instead of 1,379",), 1379)


def test_published_scores_do_not_stand_beside_it(result, monkeypatch):
    bert = {"reference": "hf:bert-base-uncased", "options": {"layers": "1,12", "pooling": "mean"}, "fits": []}
    model = {**result.model, **bert}

    def published(tasks):
        table = sts_table(replace(result, model=model, tasks=tasks))
        return [row.cells[0] for row in table.rows if "published" in row.cells[0]]

    assert published(result.tasks) == []
    assert published({name: replace(task, deviations=()) for name, task in result.tasks.items()})


def test_a_comparison_marks_it(result, wordllama, data):
    compared = compare_results(result, isosent.evaluate(wordllama, data, "sts", transform="whitening?dims=5"))
    assert not compared.tasks["STSB"].is_comparable
    assert not next(iter(compared.averages.values())).is_comparable
    assert f"STSB {MARK}" in str(compared)
    assert f"STSB {MARK}" in compared.to_latex()
    assert {row["comparable"] for row in csv.DictReader(io.StringIO(compared.to_csv()))} == {"no"}
    assert any("instead of 1,379" in note for note in compared.to_json()["notes"])


def test_a_report_never_ranks_it_among_others(result):
    whole = replace(result.tasks["STSB"], deviations=(), data={"x": "other"}, scores={"spearman": 0.1, "pearson": 0.1})
    other = replace(result, tasks={"STSB": whole}, model={**result.model, "reference": "other"})
    alone = replace(result, tasks={"STSB": result.tasks["STSB"]})
    data = ReportData((ResultFile("a.json", alone), ResultFile("b.json", other)))
    board = make_leaderboard(data.results)
    columns = {column.title: column for column in board.columns}
    assert set(columns) == {"STSB", f"STSB {MARK}"}
    assert [len(column.cells) for column in columns.values()] == [1, 1]
    assert all(column.best is None for column in columns.values())
    assert any("instead of 1,379" in note for note in board.notes)
    assert f"STSB {MARK}" in board.table()[0][1] + board.table()[0][2]
    page = html_report(data, board)
    assert f"STSB {MARK}" in page
    assert "instead of 1,379" in page
    figure = scores_figure("sts", board.columns, [row.label for row in board.rows])
    assert MARK in figure.description


def test_the_model_card_of_an_export_marks_it(wordllama, data, tmp_path):
    pytest.importorskip("sentence_transformers")
    from isosent.exports.sentence_transformers import _model_card

    card = _model_card(wordllama, isosent.evaluate(wordllama, data, "sts"))
    assert f"{MARK} |" in card
    assert "STSB: 12 items in test instead of 1,379; not comparable" in card


def test_parts_that_a_classifier_learns_from_count(tmp_path, texts):
    for part, n_texts in (("train", 40), ("dev", 20), ("test", 30)):
        (tmp_path / f"sentiment-{part}").write_text("".join(f"{i % 2}{' '}{texts[i]}\n" for i in range(n_texts)))
    (task,) = read_tasks(tmp_path, "SST5")
    assert task.deviations == (
        "40 items in train instead of 8,544",
        "20 items in dev instead of 1,101",
        "30 items in test instead of 2,210",
    )


def test_repeated_rows_are_warned_of_where_they_are_many(wordllama, tmp_path):
    words = ["cat", "dog", "house", "car", "tree", "king", "sea", "book"]
    pairs = [
        f"the {word},a {other},{score}\n"
        for score, (word, other) in enumerate(zip(words, [*words[1:], "cat"], strict=True))
    ]
    for name, rows in (("once", pairs), ("twice", pairs + pairs[:2])):
        (tmp_path / f"{name}.csv").write_text("sentence1,sentence2,score\n" + "".join(rows), "utf-8")
    isosent.evaluate(wordllama, tmp_path / "once.csv", "pairs")  # a warning would fail the test
    with pytest.warns(EvaluationWarning, match="twice: 2 of 10 rows repeat") as caught:
        isosent.evaluate(wordllama, tmp_path / "twice.csv", "pairs", transform=[None, "mean_centering"])
    assert len(caught) == 1
