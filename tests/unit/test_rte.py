import json
import os

import numpy as np
import pytest

import isosent
from isosent import evaluate
from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.evaluation.rte import best_threshold, rte_tasks
from isosent.evaluation.tables import rte_table

HEADER = "index\tsentence1\tsentence2\tlabel\n"
LABELS = ("entailment", "not_entailment")


def rows_of(pairs, entailed):
    labeled = enumerate(zip(pairs, entailed, strict=True))
    return [f"{number}\t{first}\t{second}\t{LABELS[not yes]}\n" for number, ((first, second), yes) in labeled]


def hand_accuracy(model, pairs, entailed, threshold):
    first, second = (model.encode([pair[side] for pair in pairs]).astype(float) for side in (0, 1))
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = np.divide((first * second).sum(axis=1), lengths, out=np.zeros(len(pairs)), where=lengths > 0)
    return np.mean((cosines > threshold) == entailed)


@pytest.fixture
def pairs(texts):
    """Pairs of a train and a dev part: of a text and itself in part, and of unrelated ones."""

    def of(start, n_pairs):
        chosen = [(texts[start + row], texts[start + row + (row % 3 > 0) * 7]) for row in range(n_pairs)]
        return chosen, np.array([(row * row) % 5 < 2 for row in range(n_pairs)])

    return {"train": of(0, 40), "dev": of(100, 15)}


@pytest.fixture
def data(tmp_path, pairs, texts):
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    for part, (sentences, entailed) in pairs.items():
        (folder / f"{part}.tsv").write_text(HEADER + "".join(rows_of(sentences, entailed)))
    unlabeled = "".join(f"{row}\t{texts[200 + row]}\t{texts[300 + row]}\n" for row in range(20))
    (folder / "test.tsv").write_text("index\tsentence1\tsentence2\n" + unlabeled)
    return tmp_path


def test_the_files_are_found_and_split_without_quoting(tmp_path, data):
    folder = data / "glue" / "RTE"
    quoted = 'He said "no.\tHe "said" so.'
    (folder / "dev.tsv").write_text(HEADER + f"0\t{quoted}\tentailment\r\n1\ta\u2028b\tc\tnot_entailment\r\n")
    (task,) = rte_tasks(tmp_path)
    assert task.items == [('He said "no.', 'He "said" so.'), ("a\u2028b", "c")]
    assert len(task.all_texts) == 2 * (40 + 2)
    assert len(task.target_texts) == len(task.all_texts) + 2 * 20


def test_other_tasks_of_glue_are_passed_over(data):
    for task, header, row in [
        ("WNLI", HEADER, "0\ta\tb\t1\n"),
        ("QNLI", "index\tquestion\tsentence\tlabel\n", "0\ta\tb\tentailment\n"),
        ("MRPC", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n", "1\t2\t3\ta\tb\n"),
        ("latin", "index\tsentence\xe91\n", "0\t\xe9\n"),
    ]:
        (data / "glue" / task).mkdir()
        for part in ("train", "dev"):
            (data / "glue" / task / f"{part}.tsv").write_text(header + row, "latin-1")
    assert len(rte_tasks(data)[0].items) == 15


def test_the_test_part_may_be_missing(data):
    (data / "glue" / "RTE" / "test.tsv").unlink()
    (task,) = rte_tasks(data)
    assert task.target_texts == task.all_texts


def test_files_in_two_places_are_refused(data):
    (data / "again").mkdir()
    for part in ("train", "dev"):
        content = (data / "glue" / "RTE" / f"{part}.tsv").read_text()
        (data / "again" / f"{part}.tsv").write_text(content)
    with pytest.raises(InputError, match=r"RTE is in several folders: .*again, .*RTE\. Name one"):
        rte_tasks(data)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("41\ta\tb\n", r"train.tsv, line 42: expected at least 4 fields between tabs; found 3"),
        ("41\ta\tb\tc\tentailment\n", r"train.tsv, line 42: expected 4 columns, found 5"),
        (
            "41\ta\tb\tneutral\n",
            r"train.tsv, line 42: expected entailment or not_entailment at its end, found 'neutral'",
        ),
    ],
)
def test_a_malformed_line_is_named(data, row, message):
    with (data / "glue" / "RTE" / "train.tsv").open("a") as file:
        file.write(row)
    with pytest.raises(FileFormatError, match=message):
        rte_tasks(data)


def test_where_there_are_no_files_their_names_are_told(tmp_path):
    with pytest.raises(InputError, match=r"holds no RTE files of GLUE. They are train.tsv and dev"):
        rte_tasks(tmp_path)
    with pytest.raises(InputFileError, match="no such folder"):
        rte_tasks(tmp_path / "nowhere")


def test_labels_that_are_all_the_same_are_refused(data):
    (data / "glue" / "RTE" / "train.tsv").write_text(HEADER + "0\ta\tb\tentailment\n")
    with pytest.raises(FileFormatError, match="its 1 pairs have one label"):
        rte_tasks(data)


@pytest.mark.parametrize(
    ("cosines", "entailed", "expected"),
    [
        ([0.1, 0.3, 0.5, 0.9], [0, 0, 1, 1], 0.4),
        ([0.9, 0.1, 0.5, 0.3], [1, 0, 1, 0], 0.4),
        ([0.1, 0.3], [1, 1], -0.9),
        ([0.1, 0.3], [0, 0], 0.3),
        ([0.2, 0.4, 0.6], [1, 0, 1], -0.8),
        ([0.5, 0.5, 0.5], [1, 0, 0], 0.5),
    ],
)
def test_the_best_threshold_tells_most_pairs(cosines, entailed, expected):
    assert best_threshold(np.array(cosines), np.array(entailed, dtype=bool)) == pytest.approx(expected)


def test_no_threshold_is_better_than_the_best():
    rng = np.random.default_rng(0)
    cosines, entailed = rng.normal(size=60).round(1), rng.random(60) < 0.4
    found = np.mean((cosines > best_threshold(cosines, entailed)) == entailed)
    assert found == max(np.mean((cosines > at) == entailed) for at in np.linspace(-4, 4, 1601))


@pytest.mark.parametrize("transform", [None, isosent.Whitening(16)])
def test_accuracies_are_those_counted_by_hand(wordllama, data, pairs, transform):
    result = evaluate(wordllama, data, "rte", transform=transform).tasks["RTE"]
    model = wordllama
    if transform is not None:
        model = wordllama.fitted(rte_tasks(data)[0].target_texts, transform=transform)
    fixed, tuned = result.details["fixed"], result.details["tuned"]
    for of in (fixed, tuned):
        assert of["train_accuracy"] == pytest.approx(hand_accuracy(model, *pairs["train"], of["threshold"]))
        assert of["dev_accuracy"] == pytest.approx(hand_accuracy(model, *pairs["dev"], of["threshold"]))
    assert (result.score, result.scores["accuracy_tuned"]) == (fixed["dev_accuracy"], tuned["dev_accuracy"])
    assert fixed["threshold"] == 0.5
    assert tuned["train_accuracy"] >= fixed["train_accuracy"]
    assert (result.details["n_train"], result.n_items, result.dim) == (40, 15, model.dim)
    share = pairs["dev"][1].mean()
    assert result.scores["accuracy_majority"] == pytest.approx(max(share, 1 - share))
    assert result.details["majority"] == LABELS[int(share < 0.5)]


def test_a_file_to_fit_on(wordllama, data, pairs, texts, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    result = evaluate(wordllama, data, "rte", transform=isosent.Whitening(8), fit_on=tmp_path / "texts.txt")
    model = wordllama.fitted(texts, transform=isosent.Whitening(8))
    assert result.tasks["RTE"].score == pytest.approx(hand_accuracy(model, *pairs["dev"], 0.5))
    assert result.model["fits"][0]["source"] == "texts.txt"


def test_an_encoder_that_needs_a_corpus_is_fitted_on_the_target(data, pairs):
    model = isosent.load("wordllama?weighting=sif&frequencies=corpus")
    result = evaluate(model, data, "rte")
    fitted = model.fitted(rte_tasks(data)[0].target_texts, transform=None)
    assert result.tasks["RTE"].score == pytest.approx(hand_accuracy(fitted, *pairs["dev"], 0.5))
    assert result.fitting["fit"] == "target"


def test_sentences_without_a_vector_are_counted(wordllama, data):
    with (data / "glue" / "RTE" / "dev.tsv").open("a") as file:
        file.write("15\t\tsomething\tnot_entailment\n")
    result = evaluate(wordllama, data, "rte").tasks["RTE"]
    assert (result.n_zero_rows, result.n_items) == (1, 16)


def test_the_table_says_what_was_done(wordllama, data):
    result = evaluate(wordllama, data, "rte", transform=isosent.Whitening(8))
    table = rte_table(result)
    assert table.columns[1] == "accuracy on dev, x100"
    assert f"{100 * result.tasks['RTE'].score:.2f}" in [row.cells[1] for row in table.rows]
    assert "whitening(" in table.caption
    assert "40 of train, 15 of dev" in table.caption
    json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.data
def test_the_real_files():
    if "ISOSENT_DATA" not in os.environ:
        pytest.skip("ISOSENT_DATA does not say where the research sets lie")
    (task,) = rte_tasks(os.environ["ISOSENT_DATA"])
    assert (len(task.all_texts), len(task.items), len(task.target_texts)) == (2 * (2490 + 277), 277, 2 * 2767 + 6000)
    assert any('"' in text and text.count('"') % 2 for text in task.all_texts)
