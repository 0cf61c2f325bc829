"""Verdicts and shared texts on the real sets; measured with isosent 0.1.0, November 2026."""

import os
from pathlib import Path

import pytest

import isosent
from isosent import evaluate
from isosent.evaluation.compare import compare_results
from isosent.evaluation.overlap import count_overlap
from isosent.evaluation.sts import sts_tasks

pytestmark = pytest.mark.data

DATA = Path(os.environ["ISOSENT_DATA"]) if "ISOSENT_DATA" in os.environ else None
if DATA is None:
    pytest.skip("ISOSENT_DATA does not say where the research sets lie", allow_module_level=True)


def test_whitening_wordllama_helps_on_one_set_and_cannot_be_told_on_another(wordllama):
    few, tasks = 500, ["STS13", "STSB"]
    plain = evaluate(wordllama, DATA, tasks=tasks, n_resamples=few)
    white = evaluate(wordllama, DATA, tasks=tasks, transform=isosent.Whitening(), n_resamples=few)
    found = compare_results(plain, white, n_resamples=few).tasks
    assert {name: of.verdict for name, of in found.items()} == {"STS13": "better", "STSB": "cannot tell"}
    # of 2,000 draws: 4.42 points, 3.32 to 5.65; -0.97 points, -2.19 to 0.21
    assert 100 * found["STS13"].difference == pytest.approx(4.42, abs=0.02)
    assert [100 * end for end in found["STSB"].interval] == pytest.approx([-2.19, 0.21], abs=0.3)


def test_the_benchmark_shares_sentences_between_train_and_test():
    """STS-B was drawn from STS12 to STS17 pair by pair, so that sentences of its test part stand in train, too."""
    lines = (DATA / "stsbenchmark" / "sts-train.csv").read_text("utf-8").split("\n")
    train = [text for line in lines if line for text in line.split("\t")[5:7]]
    found = count_overlap(train, {"STSB": sts_tasks(DATA, ["STSB"])[0].items})["STSB"]
    counts = {"n_texts": 2552, "n_exact": 257, "n_same": 257, "n_near": 270, "n_items": 1379, "n_items_same": 62}
    assert found == counts
