"""Community question answering and own pair files on the real sets."""

import os
from pathlib import Path

import pandas as pd
import pytest

import isosent
from isosent import evaluate
from isosent.evaluation.sts import read_scored_pairs

pytestmark = pytest.mark.data

DATA = Path(os.environ["ISOSENT_DATA"]) if "ISOSENT_DATA" in os.environ else None
if DATA is None:
    pytest.skip("ISOSENT_DATA does not say where the research sets lie", allow_module_level=True)
KORSTS = DATA / "kornlu" / "KorSTS" / "sts-test.tsv"


@pytest.fixture(scope="module")
def cqa():
    return evaluate(isosent.load("wordllama"), DATA, "cqa").tasks


def test_the_order_of_the_search_engine_scores_what_the_task_says(cqa):
    """Nakov et al. 2016: MAP 74.75 and MRR 83.79 on test; readme of the scorer: MAP 0.7135 and MRR 76.67 on dev."""
    dev, test = (cqa[f"CQA-2016-{part}"].details["search_engine"] for part in ("dev", "test"))
    assert dev == pytest.approx({"map": 0.7135, "mrr": 0.7667}, abs=5e-5)
    assert test == pytest.approx({"map": 0.7475, "mrr": 0.8379}, abs=5e-5)


def test_a_random_order_scores_half(cqa):
    """0.5595 is one draw of the readme; over 3,000 draws here the mean is 0.5207 and the standard deviation 0.0204."""
    assert cqa["CQA-2016-dev"].details["random"]["map"] == pytest.approx(0.5206, abs=5e-5)
    assert abs(cqa["CQA-2016-dev"].details["random"]["map"] - 0.5595) < 2 * 0.0204


def test_the_labels_are_those_of_the_task(cqa):
    dev, test = (cqa[f"CQA-2016-{part}"] for part in ("dev", "test"))
    assert (dev.n_items, dev.details["n_candidates"], dev.details["n_relevant"]) == (50, 500, 59 + 155)
    assert (test.n_items, test.details["n_candidates"], test.details["n_relevant"]) == (70, 700, 233)


def test_wordllama_scores_as_recorded(cqa):
    """Measured here, `evaluate(isosent.load("wordllama"), DATA, "cqa")`, November 2026."""
    assert [cqa[f"CQA-2016-{part}"].score for part in ("dev", "test")] == pytest.approx([0.7284, 0.7503], abs=5e-4)


def test_korsts_is_read_as_pandas_reads_it_without_quoting():
    task, table = read_scored_pairs(KORSTS), pd.read_csv(KORSTS, sep="\t", quoting=3)
    assert list(task.first) == table["sentence1"].tolist()
    assert list(task.second) == table["sentence2"].tolist()
    assert task.scores.tolist() == table["score"].tolist()
    assert len(task.first) == 1379
    assert sum('"' in text for text in task.texts) > 0


def test_an_english_model_scores_poorly_in_korean():
    """Measured here, wordllama l2_supercat 256, November 2026."""
    score = evaluate(isosent.load("wordllama"), KORSTS, "pairs").tasks["sts-test"].score
    assert score == pytest.approx(0.5414, abs=5e-4)
