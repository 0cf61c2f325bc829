"""Texts with labels: clusters, and a few examples; tests/parity compares both with MTEB."""

import json

import numpy as np
import pytest

import isosent
from isosent import evaluate
from isosent.errors import EvaluationWarning, FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.compare import compare_results
from isosent.evaluation.labeled import classification_tasks, clustering_tasks
from isosent.evaluation.result_file import read_result

# Four texts on each of three places of a plane: any k-means with three clusters finds them
PLACES = {"dog": (0.0, 5.0), "river": (5.0, 0.0), "bank": (-5.0, -5.0)}
TEXTS = [f"{place} {number}" for place in PLACES for number in range(4)]


@pytest.fixture(scope="module")
def places():
    vectors = {text: np.array(PLACES[text.split()[0]], np.float32) + 0.01 * i for i, text in enumerate(TEXTS)}
    return isosent.wrap(vectors)


def write_table(path, texts, labels, header="text,category"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *(f"{text},{label}" for text, label in zip(texts, labels, strict=True))]) + "\n")
    return path


def places_of(texts):
    return [text.split()[0] for text in texts]


def test_clusters_that_are_the_labels_score_one(places, tmp_path):
    table = write_table(tmp_path / "places.csv", TEXTS, places_of(TEXTS))
    task = evaluate(places, table, "clustering").tasks["places"]
    assert task.scores == pytest.approx({"v_measure": 1, "ami": 1, "v_measure_unit": 1})
    assert (task.kind, task.metric, task.n_items, task.details["n_clustered"]) == ("clustering", "v_measure", 10, 12)


def test_labels_that_cut_across_clusters_score_what_entropy_says(tmp_path):
    """By hand: labels are a, b; clusters {a, b, b} and {a}: by Rosenberg and Hirschberg 2007, of the draw's shares."""
    from scipy.stats import entropy

    near, far = (["w", "x", "y"], ["z"])
    model = isosent.wrap({text: np.array([100.0, 0] if text in far else [0, 1.0], np.float32) for text in near + far})
    table = write_table(tmp_path / "t.csv", near + far, ["a", "b", "b", "a"], "text,label")
    task = evaluate(model, table, "clustering").tasks["t"]
    joint = np.array([[1, 2], [1, 0]]) / 4  # clusters, labels: every draw of 16,384 is close to that
    mutual = entropy(joint.sum(0)) + entropy(joint.sum(1)) - entropy(joint.ravel())
    expected = 2 * mutual / (entropy(joint.sum(0)) + entropy(joint.sum(1)))
    assert task.score == pytest.approx(expected, abs=0.01)
    assert task.scores["v_measure_unit"] == pytest.approx(expected, abs=0.01)


def test_items_of_a_few_examples_are_shares_of_draws(places, tmp_path):
    write_table(tmp_path / "places/train.csv", TEXTS, places_of(TEXTS))
    gold = places_of(TEXTS)
    gold[0] = "river"  # is always taken for a dog
    write_table(tmp_path / "places/test.csv", TEXTS, gold)
    task = evaluate(places, tmp_path, "classification").tasks["places"]
    assert task.items.values.tolist() == [0] + 11 * [1]
    assert task.scores["accuracy"] == pytest.approx(11 / 12) == task.scores["accuracy_unit"]
    # macro F1 by hand: dog 6/7 (3 of 3, and 1 too many), river 8/9 (4 of 5), bank 1
    assert task.scores["f1"] == pytest.approx((6 / 7 + 8 / 9 + 1) / 3)
    assert task.details["majority"]["accuracy"] == pytest.approx(3 / 12)


def test_the_seed_changes_what_is_drawn_and_equal_seeds_do_not(wordllama, texts, tmp_path):
    labels = [str(len(text) % 3) for text in texts]
    write_table(tmp_path / "set/train.csv", [t.replace(",", "") for t in texts[:200]], labels[:200])
    write_table(tmp_path / "set/test.csv", [t.replace(",", "") for t in texts[200:]], labels[200:])
    results = [evaluate(wordllama, tmp_path, "classification", seed=seed) for seed in (0, 0, 1)]
    first, again, other = (result.tasks["set"].details["draws"] for result in results)
    assert first == again != other


def test_lines_with_a_file_of_labels_are_a_set(places, tmp_path):
    (tmp_path / "StackOverflow.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "StackOverflow_gnd.txt").write_text("\n".join(places_of(TEXTS)) + "\n")
    with pytest.warns(EvaluationWarning, match="StackOverflow: 12 items instead of 20,000"):
        result = evaluate(places, tmp_path, "StackOverflow")
    assert not result.tasks["StackOverflow"].is_comparable
    (tmp_path / "StackOverflow_gnd.txt").write_text("dog\nriver\n")
    with pytest.raises(FileFormatError, match=r"2 labels.*12 texts"):
        clustering_tasks(tmp_path)


def test_a_folder_of_a_known_name_is_the_task_of_mteb(places, tmp_path):
    for part in ("train", "test"):
        write_table(tmp_path / f"banking77/{part}.csv", TEXTS, places_of(TEXTS))
    for name in ("Banking77Classification", "classification:banking77", "classification"):
        with pytest.warns(EvaluationWarning, match="instead of 10,003 in train|12 items in train instead of 10,003"):
            result = evaluate(places, tmp_path, name)
        assert list(result.tasks) == ["Banking77Classification"]
    with pytest.raises(TaskNotFoundError, match="clustering"):  # a set with a part to learn from is none to cluster
        clustering_tasks(tmp_path)


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([("dog 0", "a"), ("dog 1", "")], FileFormatError, "line 3.*category is empty"),
        ([("dog 0", "a"), ("dog 1", "a")], FileFormatError, "2 texts with 1 label"),
    ],
)
def test_what_cannot_be_clustered_is_refused(places, tmp_path, rows, error, words):
    table = write_table(tmp_path / "t.csv", *zip(*rows, strict=True))
    with pytest.raises(error, match=words):
        evaluate(places, table, "clustering")


def test_columns_are_named_or_listed(places, tmp_path):
    table = write_table(tmp_path / "t.csv", TEXTS, places_of(TEXTS), "title,tag")
    with pytest.raises(InputError, match=r"title, tag.*text,label"):
        evaluate(places, table, "clustering")
    assert evaluate(places, table, "clustering", columns="title,tag").tasks["t"].score == pytest.approx(1)


def test_a_table_is_not_classified(places, tmp_path):
    table = write_table(tmp_path / "t.csv", TEXTS, places_of(TEXTS))
    with pytest.raises(InputError, match="clustering, not as classification"):
        evaluate(places, table, "classification")


def test_several_tables_of_a_part_are_named(tmp_path):
    for name in ("train.csv", "test.csv"):
        write_table(tmp_path / name, TEXTS, places_of(TEXTS))
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": "a", "label": 1}) + "\n")
    with pytest.raises(InputError, match=r"test\.csv and test\.jsonl"):
        classification_tasks(tmp_path)


def test_results_are_stored_and_compared(places, tmp_path):
    for part in ("train", "test"):
        write_table(tmp_path / f"data/places/{part}.csv", TEXTS, places_of(TEXTS))
    write_table(tmp_path / "data/groups/test.csv", TEXTS, places_of(TEXTS))
    noise = isosent.wrap(dict(zip(TEXTS, np.random.default_rng(0).normal(size=(12, 2)), strict=True)))
    stored = []
    for number, model in enumerate((noise, places)):
        result = evaluate(model, tmp_path / "data", ["classification", "clustering"])
        (tmp_path / f"{number}.json").write_text(result.to_text())
        stored.append(read_result(tmp_path / f"{number}.json"))
    found = compare_results(*stored).tasks
    assert {name: (each.n_items, each.second) for name, each in found.items()} == {
        "places": (12, 1.0),
        "groups": (10, pytest.approx(1.0)),
    }
    assert found["groups"].verdict == "better"
