"""Result files of MTEB, in the forms that its public results have, and what their scores compare with."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from isosent.errors import FileFormatError, InputError
from isosent.evaluation.compare import compare_results
from isosent.evaluation.mteb import mteb_score
from isosent.evaluation.result import EvaluationResult, Items, TaskResult
from isosent.evaluation.result_file import read_result
from isosent.evaluation.tables import sts_table
from isosent.report.leaderboard import ResultFile, make_leaderboard, read_report

REVISION = "b0fddb56ed78048fa8b90373c8a3cfc37b684831"


def new(task, *subsets, split="test", **facts):
    """A file of the newer form, as MTEB 1.11 and later write it."""
    rows = [{"hf_subset": "default", "languages": ["eng-Latn"], **subset} for subset in subsets]
    known = {"dataset_revision": REVISION, "mteb_version": "1.12.75", "evaluation_time": 3.4}
    return {**known, "task_name": task, "scores": {split: rows}} | facts


def old(task, **splits):
    """A file of the older form."""
    return {"dataset_revision": REVISION, "mteb_dataset_name": task, "mteb_version": "1.2.0", **splits}


def sts(task, score):
    return new(
        task, {"cosine_spearman": score, "cosine_pearson": score / 2, "spearman": [score, 0], "main_score": score}
    )


def write(folder, model, *documents):
    home = folder / model.replace("/", "__") / "8b32"
    home.mkdir(parents=True)
    for document in documents:
        name = document.get("task_name") or document["mteb_dataset_name"]
        (home / f"{name}.json").write_text(json.dumps(document))
    return home


NESTED = {"cos_sim": {"pearson": 0.8, "spearman": 0.7}, "manhattan": {"pearson": 0.5, "spearman": 0.4}}
MINED = {"accuracy": 0.8, "f1": 0.8, "precision": 0.8, "recall": 0.8}
FILES = {
    "new STS": (sts("STSBenchmark", 0.75), {"STSB": ("sts", "spearman", 0.75)}),
    "old STS": (old("STSBenchmark", test={**NESTED, "evaluation_time": 2}), {"STSB": ("sts", "spearman", 0.7)}),
    "a side score is null or a word": (
        new("STS12", {"main_score": 0.5, "cosine_spearman": 0.5, "cosine_pearson": None, "euclidean_spearman": "x"}),
        {"STS12": ("sts", "spearman", 0.5)},
    ),
    "old, by language": (
        old("STS17", test={"en-en": NESTED, "ko-ko": NESTED, "evaluation_time": 2}),
        {"STS17 (en-en)": ("sts", "spearman", 0.7), "STS17 (ko-ko)": ("sts", "spearman", 0.7)},
    ),
    "old, without version": (
        {"test": {"cos_sim": {"ap": 0.9}}, "mteb_dataset_name": "TwitterSemEval2015"},
        {"TwitterSemEval2015": ("pair classification", "cosine_ap", 0.9)},
    ),
    "the main score names the metric": (
        new("Tatoeba", {"accuracy": 0.9, "f1": 0.8, "main_score": 0.8}),
        {"Tatoeba": ("bitext mining", "f1", 0.8)},
    ),
    "equal scores of bitext mining": (
        new("Tatoeba", {**MINED, "main_score": 0.8}, {**MINED, "hf_subset": "nds-eng"}),
        {"Tatoeba": ("bitext mining", "f1", 0.8), "Tatoeba (nds-eng)": ("bitext mining", "f1", 0.8)},
    ),
    "bitext mining without a main score": (
        old("BUCC", test={"de-en": {**MINED, "accuracy": 0.9}, "fr-en": MINED, "evaluation_time": 2}),
        {"BUCC (de-en)": ("bitext mining", "f1", 0.8), "BUCC (fr-en)": ("bitext mining", "f1", 0.8)},
    ),
    "classification with equal scores": (
        new("Banking77Classification", {**MINED, "f1_weighted": 0.8, "recall_weighted": 0.8, "main_score": 0.8}),
        {"Banking77Classification": ("classification", "accuracy", 0.8)},
    ),
    "retrieval": (
        new("SciFact", {"map_at_10": 0.6, "ndcg_at_10": 0.65, "main_score": 0.65, "nauc_map_at_1_std": float("nan")}),
        {"scifact": ("retrieval", "ndcg@10", 0.65)},
    ),
    "another split": (
        new("KLUE-STS", {"cosine_spearman": 0.5, "main_score": 0.5}, split="validation"),
        {"KLUE-STS (validation)": ("sts", "spearman", 0.5)},
    ),
    "a metric of its own": (
        new("LEMBNeedleRetrieval", {"ndcg_at_1": 0.3, "ndcg_at_10": 0.5, "main_score": 0.3}),
        {"LEMBNeedleRetrieval": ("MTEB", "main_score", 0.3)},
    ),
    "undefined": (
        new("AFQMC", {"cosine_spearman": float("nan"), "main_score": float("nan")}),
        {"AFQMC": ("sts", "spearman", float("nan"))},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_each_form_of_a_file_gives_its_main_score(name, tmp_path):
    document, expected = FILES[name]
    (path,) = write(tmp_path, "org/model", document).iterdir()
    result = read_result(path)
    found = {task: (each.kind, each.metric, each.score) for task, each in result.tasks.items()}
    assert str(found) == str(expected)  # NaN too
    assert result.model["reference"] == "MTEB:org/model"
    assert all(np.isnan(each.interval).all() and not len(each.items.values) for each in result.tasks.values())


def test_a_split_called_test_stands_for_the_task(tmp_path):
    document = new("SciFact", {"ndcg_at_10": 0.65, "main_score": 0.65})
    document["scores"]["train"] = [{"hf_subset": "default", "ndcg_at_10": 0.9, "main_score": 0.9}]
    assert list(read_result(write(tmp_path, "a/b", document)).tasks) == ["scifact"]


def test_ten_draws_of_a_clustering_are_its_items(tmp_path):
    draws = [0.45, 0.452, 0.466, 0.449, 0.446, 0.437, 0.448, 0.446, 0.446, 0.444]
    mean = sum(draws) / 10
    document = new(
        "StackExchangeClustering.v2", {"v_measure": mean, "v_measures": {"Level 0": draws}, "main_score": mean}
    )
    levels = new("ArXiv", {"v_measure": 0.5, "v_measures": {"Level 0": draws, "Level 1": draws}, "main_score": 0.5})
    tasks = read_result(write(tmp_path, "a/b", document, levels)).tasks
    assert tasks["StackExchangeClustering.v2"].items.values.tolist() == draws
    low, high = tasks["StackExchangeClustering.v2"].interval
    means = np.random.default_rng(7).choice(draws, (5000, 10)).mean(axis=1)
    assert np.allclose([low, high], np.quantile(means, [0.025, 0.975]), atol=5e-4)
    assert not len(tasks["ArXiv"].items.values)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (new("STS12", {"cosine_spearman": 72.6, "main_score": 72.6}), "72.6"),
        (new("STS12"), "without scores"),
        (new("STS12", {"languages": ["eng-Latn"]}), "main_score"),
        ({"task_name": "STS12", "scores": [0.7]}, "scores"),
    ],
)
def test_a_file_without_a_score_is_refused(document, message, tmp_path):
    (path,) = write(tmp_path, "a/b", document).iterdir()
    with pytest.raises(FileFormatError, match=message):
        read_result(path)


def test_a_folder_is_all_files_of_a_model(tmp_path):
    home = write(tmp_path, "a/b", sts("STS12", 0.6), sts("SICK-R", 0.7))
    (home / "model_meta.json").write_text(json.dumps({"name": "org/other", "revision": "8b32"}))
    result = read_result(home)
    assert list(result.tasks) == ["SICKR", "STS12"]
    assert result.model["reference"] == "MTEB:org/other"
    (home / "notes.json").write_text('{"format": "isosent result 1"}')
    with pytest.raises(FileFormatError, match=r"notes\.json"):
        read_result(home)
    with pytest.raises(FileFormatError, match=r"TASK\.json"):
        read_result(tmp_path)


@pytest.fixture
def ours():
    """A result of isosent on STS-B, and one on the same task with other pairs than those of MTEB."""
    random = np.random.default_rng(0)
    gold = random.integers(0, 6, 50).astype(float)
    model = {"reference": "wordllama", "options": {}, "fits": [], "fingerprint": "ab"}
    fitting = {"transform": None, "parameters": {}, "fit": None, "transductive": False}
    machine = {"versions": {"isosent": "0.1.0"}, "machine": "x86_64", "system": "Linux", "n_cpus": 2}

    task = TaskResult(
        kind="sts",
        metric="spearman",
        scores={"spearman": 0.7586, "pearson": 0.77},
        intervals={"spearman": (0.73, 0.78), "pearson": (0.75, 0.79)},
        protocol={"similarity": "cosine", "aggregation": "all"},
        data={"sts-test.csv": "0a"},
        n_items=50,
        dim=3,
        n_zero_rows=0,
        n_tokens=10,
        n_unknown=0,
        elapsed_s=0.1,
        items=Items(gold + random.normal(size=50), gold),
        details={"subsets": {}},
    )
    result = EvaluationResult(model, fitting, {"STSB": task}, machine, 0, 100, 80, 0, 0.3, 0.4)
    return result, replace(result, tasks={"STSB": replace(task, deviations=("50 items instead of 1,379",))})


def test_ours_is_compared_with_theirs_if_the_task_is_the_same(ours, tmp_path):
    same, other = ours
    theirs = read_result(write(tmp_path, "minishlab/potion-base-8M", sts("STSBenchmark", 0.754)))
    found = compare_results(same, theirs).tasks["STSB"]
    assert found.verdict == "no interval"
    assert found.difference == pytest.approx(0.754 - 0.7586)
    with pytest.raises(InputError, match="STSBenchmark"):
        compare_results(other, theirs)


def test_a_leaderboard_has_them_in_one_column_if_they_compare(ours, tmp_path):
    same, other = ours
    home = write(tmp_path, "minishlab/potion-base-8M", sts("STSBenchmark", 0.754))
    (tmp_path / "ours.json").write_text(same.to_text())
    board = make_leaderboard(read_report([tmp_path / "ours.json", home]).results)
    (column,) = board.columns
    assert column.ranked == ["wordllama", "MTEB:minishlab/potion-base-8M"]
    assert [cell.interval is None for cell in column.cells.values()] == [False, True]
    assert any("no interval" in note and "STSB" in note for note in board.notes)
    board = make_leaderboard([ResultFile("other", other), ResultFile("theirs", read_result(home))])
    assert [len(column.cells) for column in board.columns] == [1, 1]


def test_files_of_unnamed_models_are_not_merged(tmp_path):
    files = []
    for folder, task in (("a", "STS12"), ("b", "STS13")):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / "1.json")
        files[-1].write_text(json.dumps(sts(task, 0.6)))
    board = make_leaderboard([ResultFile(str(file), read_result(file)) for file in files])
    assert len(board.rows) == 2


def test_neighboring_ranks_are_tested_by_drawing_the_tasks_again(tmp_path):
    # 12 tasks; a and b differ by noise in which task is which, c is worse on every task
    random = np.random.default_rng(3)
    base = random.uniform(0.3, 0.8, 12)
    scores = {"a": base + random.normal(0, 0.05, 12), "b": base + random.normal(0, 0.05, 12), "c": base - 0.2}
    homes = [
        write(tmp_path, f"org/{name}", *(sts(f"Task{n}", float(score)) for n, score in enumerate(row)))
        for name, row in scores.items()
    ]
    order = sorted(scores, key=lambda name: -scores[name].mean())
    drawn = np.random.default_rng(9).integers(12, size=(20_000, 12))
    n_close = 0
    for first, second in itertools.pairwise(order):
        gains = (scores[first] - scores[second])[drawn].mean(axis=1)
        n_close += (gains <= 0).mean() > 0.025
    (note,) = [note for note in make_leaderboard(read_report(homes).results).notes if "neighboring" in note]
    assert n_close == 1
    assert "12 tasks" in note
    assert f"{n_close} of 2 " in note
    found = compare_results(*map(read_result, (homes[0], homes[2])))
    assert found.averages["all tasks"].verdict == "worse"
    assert found.averages["sts, spearman"].verdict == "no interval"


def test_the_table_of_an_evaluation_names_the_score_that_it_compares_with(ours):
    same, other = ours
    assert "compare with MTEB: STSBenchmark (STSB); test, cosine_spearman" in str(sts_table(same).caption)
    fitted = replace(same, fitting={**same.fitting, "transform": "whitening", "fit": "target", "transductive": True})
    assert "with care" in str(sts_table(fitted).caption)
    caption = str(sts_table(other).caption)
    assert "no score of MTEB to compare with: STSB" in caption
    assert "compare with MTEB: " not in caption
    assert same.to_json()["tasks"]["STSB"]["mteb"]["task"] == "STSBenchmark"
    assert other.to_json()["tasks"]["STSB"]["mteb"] is None


@pytest.mark.parametrize(
    ("kind", "name", "protocol", "expected"),
    [
        ("sts", "SICKR", {"sickr": "full"}, "SICK-R, test, cosine_spearman"),
        ("sts", "SICKR", {"sickr": "test"}, "None"),  # MTEB scores all pairs
        ("transfer", "SICK-R", {}, "None"),
        ("retrieval", "trec-covid", {"split": "test"}, "TRECCOVID, test, ndcg_at_10"),
        ("retrieval", "fiqa", {"split": "dev"}, "None"),
        ("retrieval", "Cranfield", {"split": "test"}, "None"),
        ("clustering", "StackOverflow", {}, "None"),
        ("classification", "Banking77Classification", {}, "Banking77Classification, test, accuracy"),
    ],
)
def test_only_the_same_task_compares(kind, name, protocol, expected):
    assert str(mteb_score(kind, name, protocol)) == expected
