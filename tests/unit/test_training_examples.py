from pathlib import Path

import pytest

from isosent.errors import InputError
from isosent.training.data import COLUMNS, Examples, SourceFile

PAIRS = {"sentence1": ["a", "b", "a"], "sentence2": ["c", "a", "d"]}
NAMES = ("contradiction", "entailment", "neutral")


@pytest.fixture
def labelled():
    sources = (
        SourceFile(Path("one.jsonl"), 3, {"sentence1": "premise", "sentence2": "hypothesis", "label": "label"}),
        SourceFile(Path("two.csv"), 1, {"sentence1": "s1", "sentence2": "s2", "label": "label"}, "cp949"),
    )
    return Examples({**PAIRS, "label": [2, 0, 2]}, "classification", NAMES, sources, {"without a label": 1})


def scored(scores):
    return Examples({**PAIRS, "score": scores}, "regression")


def test_examples_are_counted(labelled):
    assert len(labelled) == 3
    assert labelled.label_counts == {"contradiction": 1, "entailment": 0, "neutral": 2}
    assert labelled.score_summary == {}
    assert scored([0.0, 1.0, 0.8]).score_summary == pytest.approx({"min": 0, "mean": 0.6, "max": 1})
    assert scored([0.0, 1.0, 0.8]).label_counts == {}


def test_texts_are_distinct_and_in_order(labelled):
    assert labelled.texts() == ["a", "c", "b", "d"]
    assert Examples({"anchor": ["a"], "positive": ["b"], "negative": ["c"]}, "triplet").texts() == ["a", "b", "c"]


def test_samples_show_the_name_of_the_class(labelled):
    assert labelled.sample(2) == [
        {"sentence1": "a", "sentence2": "c", "label": "neutral"},
        {"sentence1": "b", "sentence2": "a", "label": "contradiction"},
    ]
    assert len(labelled.sample(9)) == 3


def test_columns_tell_where_they_come_from(labelled):
    assert labelled.source_columns == {"sentence1": "premise, s1", "sentence2": "hypothesis, s2", "label": "label"}
    assert labelled.files == (Path("one.jsonl"), Path("two.csv"))


def test_the_description_is_plain(labelled):
    described = labelled.describe()
    assert described["n_examples"] == 3
    assert described["n_texts"] == 4
    assert described["dropped"] == {"without a label": 1}
    assert described["files"][1] == {"path": "two.csv", "n_rows": 1, "encoding": "cp949", "score_range": None}
    assert described["fingerprint"] == labelled.fingerprint


def test_the_fingerprint_is_that_of_the_content(labelled):
    same = Examples({name: list(column) for name, column in labelled.columns.items()}, "classification", NAMES)
    assert same.fingerprint == labelled.fingerprint
    assert Examples({"anchor": ["a"], "positive": ["b"]}, "ranking").fingerprint == (
        # printf '["ranking", [], [["anchor", "a"], ["positive", "b"]]]' | sha256sum
        "3617fcf8673e380e7c98d4593ad2e8cf40b6c27ee985157f30ba2ab46ae66db3"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: columns | {"sentence1": ["a", "b", "A"]},
        lambda columns: columns | {"sentence1": columns["sentence2"], "sentence2": columns["sentence1"]},
        lambda columns: columns | {"label": [2, 0, 1]},
        lambda columns: {name: column[::-1] for name, column in columns.items()},
        lambda columns: {name: column[:2] for name, column in columns.items()},
    ],
)
def test_any_change_changes_the_fingerprint(labelled, change):
    assert Examples(change(dict(labelled.columns)), "classification", NAMES).fingerprint != labelled.fingerprint


def test_the_fingerprint_holds_objective_and_classes(labelled):
    named = Examples(labelled.columns, "classification", ("a", "b", "c"))
    triplets = {"anchor": ["a"], "positive": ["b"], "negative": ["c"]}
    assert named.fingerprint != labelled.fingerprint
    assert Examples(triplets, "triplet").fingerprint != Examples(triplets, "ranking").fingerprint


@pytest.mark.parametrize("objective", COLUMNS)
def test_the_data_set_keeps_columns_and_order(objective):
    values = {"label": [0, 1], "score": [0.0, 0.5]}
    columns = {name: values.get(name, [f"{name} 1", f"{name} 2"]) for name in COLUMNS[objective]}
    dataset = Examples(columns, objective, NAMES if objective == "classification" else ()).to_dataset()
    assert tuple(dataset.column_names) == COLUMNS[objective]
    assert dataset.to_dict() == columns


@pytest.mark.parametrize(
    ("columns", "objective", "message"),
    [
        (PAIRS, "classification", "columns of classification must be sentence1, sentence2, label, in this order"),
        ({"label": [0], "sentence1": ["a"], "sentence2": ["b"]}, "classification", "in this order; got label, "),
        ({"positive": ["a"], "anchor": ["b"]}, "ranking", "must be anchor, positive, negative, in this order"),
        ({"anchor": ["a"], "positive": ["b"]}, "triplet", "must be anchor, positive, negative"),
        ({"anchor": ["a"], "positive": []}, "ranking", "must have one length; got {'anchor': 1, 'positive': 0}"),
        ({**PAIRS, "label": [0, 1, 2]}, "classification", r"label must lie in 0 \.\.\. -1, a place in label_names"),
        ({**PAIRS, "score": [0, 1, 1.5]}, "regression", r"score must lie in \[0, 1\]; got 0 \.\.\. 1.5"),
        ({**PAIRS, "score": [0, 1, float("nan")]}, "regression", r"score must lie in \[0, 1\]"),
        (PAIRS, "regresion", "objective must be one of classification, regression, triplet, ranking"),
    ],
)
def test_other_columns_are_refused(columns, objective, message):
    with pytest.raises(InputError, match=message):
        Examples(columns, objective)
