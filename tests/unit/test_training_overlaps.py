import warnings

import numpy as np
import pytest

from isosent.errors import EvaluationWarning
from isosent.evaluation.sts_files import read_sts
from isosent.training.data import Examples, count_seen_texts, warn_if_seen
from isosent.training.development import DevSet


@pytest.fixture
def examples():
    columns = {
        "anchor": ["A cat.", "A dog.", "Rain."],
        "positive": ["Cats", "Dogs", "It rains"],
        "negative": ["a", "b", "c"],
    }
    return Examples(columns, "triplet")


def devset(*pairs, name="dev"):
    return DevSet(name, [pair[0] for pair in pairs], [pair[1] for pair in pairs], np.arange(len(pairs)))


def test_a_development_set_that_is_training_data_is_warned_of(examples):
    with pytest.warns(
        EvaluationWarning, match="dev: 2 of its 3 pairs are pairs of the training data; its scores do not"
    ):
        assert warn_if_seen(examples, devset(("a cat", "CATS!"), ("b", "a dog"), ("Rain.", "A cat."))) == 2


def test_some_shared_pairs_are_counted_in_silence(examples):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_if_seen(examples, devset(("A cat.", "Cats"), ("A cat.", "Dogs"))) == 1
        assert warn_if_seen(examples, devset(("new", "Cats"), ("A cat.", "A cat."))) == 0


def test_texts_of_sets_and_of_a_folder_are_counted(write_stsb, tmp_path):
    (task,) = read_sts(write_stsb(tmp_path, n_pairs=9))
    (subset,) = task.subsets
    examples = Examples({"anchor": [subset.first[0], "x"], "positive": [subset.second[0], "y"]}, "ranking")
    found = count_seen_texts(examples, [devset(("X!", "y"), ("y", "z"))], folder=tmp_path)
    assert found["dev"] == {"n_texts": 3, "n_exact": 1, "n_same": 2, "n_near": 2, "n_items": 2, "n_items_same": 1}
    assert (found["STSB"]["n_items"], found["STSB"]["n_items_same"]) == (9, 1)
    assert list(count_seen_texts(examples, [devset(("a", "b"), ("c", "d"), name="other")])) == ["other"]
