"""Clusters, a few examples and Cranfield on the real sets."""

import os
from pathlib import Path

import numpy as np
import pytest

import isosent
from isosent import evaluate

pytestmark = [pytest.mark.data, pytest.mark.slow]

DATA = Path(os.environ["ISOSENT_DATA"]) / "tasks" if "ISOSENT_DATA" in os.environ else None
if DATA is None or not DATA.exists():
    pytest.skip("ISOSENT_DATA does not say where the research sets lie", allow_module_level=True)


@pytest.fixture(scope="module")
def tasks():
    model = isosent.load("wordllama")
    return evaluate(model, DATA, ["clustering", "classification", "retrieval:Cranfield"]).tasks


def test_the_sets_are_complete(tasks):
    assert all(task.is_comparable for task in tasks.values())
    assert tasks["StackOverflow"].details["n_clustered"] == 20_000
    assert (tasks["Cranfield"].n_items, tasks["Cranfield"].details["n_relevant"]) == (225, 128 + 387 + 734 + 363)


def test_wordllama_scores_as_recorded(tasks):
    """Banking77: scikit-learn 1.9.1 on the draws of MTEB 2.26; Cranfield: nDCG in numpy; November 2026."""
    assert tasks["Banking77Classification"].scores["accuracy"] == pytest.approx(0.7696, abs=2e-3)
    assert tasks["Banking77Classification"].scores["accuracy_unit"] == pytest.approx(0.7353, abs=2e-3)
    assert np.ptp(tasks["Banking77Classification"].details["draws"]) > 0
    assert tasks["Cranfield"].scores["ndcg@10"] == pytest.approx(0.3221, abs=5e-4)
