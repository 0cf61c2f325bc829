import json

import pytest

from isosent.errors import FileFormatError, InputError
from isosent.io.tables import find_columns, open_table
from isosent.training.data import LABELLED, check_classes, read_labelled_pairs

THREE = ("entailment", "neutral", "contradiction")
SNLI = "gold_label\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\n"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


def read(path, class_names=None):
    with open_table(path, short_rows=True) as table:
        return read_labelled_pairs(table, find_columns(table, LABELLED, {}), class_names)


@pytest.fixture
def jsonl(tmp_path):
    def jsonl(*labels, **more):
        rows = [{"premise": f"p{i}", "hypothesis": f"h{i}", "label": label, **more} for i, label in enumerate(labels)]
        path = tmp_path / "nli.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return path

    return jsonl


def hub(first, second, label, premise="premise"):
    return {premise: first, "hypothesis": second, "label": label}


def original(first, second, label):
    """A row as SNLI and MultiNLI publish it."""
    return {
        "annotator_labels": [label, "neutral"],
        "captionID": "3416050480.jpg#4",
        "gold_label": label,
        "sentence1": first,
        "sentence1_parse": "(ROOT)",
        "sentence2": second,
        "sentence2_parse": "(ROOT)",
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("premise.jsonl", [hub("a", "b", "neutral"), hub("c", "d", "entailment")]),
        ("original.jsonl", [original("a", "b", "neutral"), original("c", "d", "entailment")]),
        ("anli.jsonl", [hub("a", "b", "n", "context"), hub("c", "d", "e", "context")]),
        ("snli.txt", SNLI + "neutral\t()\t()\ta\tb\tneutral\t\nentailment\t()\t()\tc\td\tentailment\n"),
        ("kornli.tsv", "sentence1\tsentence2\tgold_label\na\tb\tneutral\nc\td\tentailment\n"),
        ("klue.csv", "index,premise,hypothesis,label\n0,a,b,neutral\n1,c,d,entailment\n"),
        ("SICK.txt", SICK + "1\ta\tb\t3\tNEUTRAL\n2\tc\td\t4\tENTAILMENT\n"),
    ],
)
def test_every_form_gives_the_same_pairs(tmp_path, name, content):
    if isinstance(content, list):
        content = "".join(f"{json.dumps(row)}\n" for row in content)
    (tmp_path / name).write_text(content)
    pairs = read(tmp_path / name)
    assert (pairs.first, pairs.second, pairs.labels) == (["a", "c"], ["b", "d"], ["neutral", "entailment"])
    assert (dict(pairs.dropped), pairs.source.n_rows) == ({}, 2)


def test_the_source_tells_premise_from_hypothesis(tmp_path):
    (tmp_path / "a.csv").write_text("label,hypothesis,premise\nneutral,b,a\n")
    pairs = read(tmp_path / "a.csv")
    assert pairs.source.columns == {"sentence1": "premise", "sentence2": "hypothesis", "label": "label"}
    assert (pairs.first, pairs.second) == (["a"], ["b"])


def test_rows_without_label_or_text_are_dropped_and_counted(tmp_path, jsonl):
    pairs = read(jsonl("neutral", "-", "entailment", None, "", -1, "-1"))
    assert (pairs.first, dict(pairs.dropped), pairs.source.n_rows) == (["p0", "p2"], {"without a label": 5}, 7)
    (tmp_path / "a.tsv").write_text(
        "premise\thypothesis\tlabel\n \tb\tneutral\na\t\tentailment\nc\td\tneutral\n\tb\t-\n"
    )
    pairs = read(tmp_path / "a.tsv")
    assert (pairs.first, dict(pairs.dropped)) == (["c"], {"with an empty text": 2, "without a label": 1})


def test_unknown_labels_are_all_listed(jsonl):
    with pytest.raises(FileFormatError) as caught:
        read(jsonl("neutral", "hidden", "entailmnet", "hidden", True))
    assert "'hidden' (2 rows, the first: line 2), 'entailmnet' (1 rows, the first: line 3), 'True' (1 rows" in str(
        caught.value
    )
    assert "label must be contradiction, entailment, neutral or entailment, not_entailment, or - for none" in str(
        caught.value
    )


def test_two_sets_of_classes_in_one_file_are_refused(jsonl):
    with pytest.raises(FileFormatError, match=r"label must be .*; got entailment, neutral, not_entailment"):
        read(jsonl("neutral", "not_entailment", "entailment"))


def test_numbers_need_names(jsonl):
    with pytest.raises(
        InputError, match=r"label holds numbers, whose meaning must be said; got '0' \(2 rows"
    ) as caught:
        read(jsonl(0, 2, 1, 0, -1))
    assert "entailment, neutral, contradiction on the Hugging Face hub; contradiction, entailment, neutral in" in str(
        caught.value
    )
    assert read(jsonl(0, 2, 1, 0, -1), THREE).labels == ["entailment", "contradiction", "neutral", "entailment"]
    assert read(jsonl("0", "2"), THREE).labels == ["entailment", "contradiction"]
    with pytest.raises(FileFormatError, match=r"must be entailment, neutral, contradiction, or - .* got '3' \(1 rows"):
        read(jsonl(0, 3), THREE)


def test_numbers_of_a_parquet_file_of_datasets_have_names(tmp_path):
    datasets = pytest.importorskip("datasets")
    classes = datasets.ClassLabel(names=list(THREE))
    texts = datasets.Value("string")
    features = datasets.Features({"premise": texts, "hypothesis": texts, "label": classes})
    rows = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [2, -1, 0]}
    datasets.Dataset.from_dict(rows, features).to_parquet(tmp_path / "nli.parquet")
    pairs = read(tmp_path / "nli.parquet")
    assert (pairs.labels, dict(pairs.dropped)) == (["contradiction", "entailment"], {"without a label": 1})


def test_other_classes_are_named(jsonl):
    assert read(jsonl("Same", "other"), ("same", "Other")).labels == ["same", "other"]
    with pytest.raises(FileFormatError, match="label must be same, other, or - for none; got 'neutral'"):
        read(jsonl("same", "neutral"), ("same", "other"))


def test_a_line_that_ends_before_the_label_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("sentence1\tsentence2\tgold_label\na\tb\tneutral\nc\td\n")
    with pytest.raises(FileFormatError, match="line 3: expected 3 fields, .*; found 2"):
        read(tmp_path / "a.tsv")


def test_a_tab_too_many_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("label1\tgold_label\tsentence1\tsentence2\nneutral\tentailment\tneutral\ta\tb\n")
    with pytest.raises(FileFormatError, match="line 2: expected 4 fields, .*; found 5"):
        read(tmp_path / "a.tsv")


def test_classes_of_files_must_belong_together():
    three, two = {"contradiction", "neutral", "entailment"}, {"entailment", "not_entailment"}
    assert check_classes({"a": three, "b": {"neutral"}}) == ("contradiction", "entailment", "neutral")
    assert check_classes({"a": {"neutral"}, "b": {"entailment"}}) == ("entailment", "neutral")
    assert check_classes({"a": {"same"}, "b": {"other"}}, ("same", "other")) == ("other", "same")
    assert check_classes({"a": {"same", "other"}, "b": {"other"}}) == ("other", "same")
    with pytest.raises(
        InputError, match="same classes; got a: contradiction, entailment, neutral; b: entailment, not_"
    ):
        check_classes({"a": three, "b": two})


def test_one_class_is_refused():
    with pytest.raises(InputError, match="must have examples of two classes at least; got one, a: neutral; b: neutral"):
        check_classes({"a": {"neutral"}, "b": {"neutral"}})
