"""Transfer tasks on the real sets, so that drift shows: accuracies and correlations x100.

Measured with ``isosent evaluate transfer`` of isosent 0.1.0, numpy 2.4.6, seed 0, November 2026; wordllama l2_supercat
256. The tolerance is that of one test item of TREC.
"""

import os
from pathlib import Path

import pytest

import isosent
from isosent import evaluate

pytestmark = pytest.mark.data

DATA = Path(os.environ["ISOSENT_DATA"]) if "ISOSENT_DATA" in os.environ else None
if DATA is None:
    pytest.skip("ISOSENT_DATA does not say where the research sets lie", allow_module_level=True)
GLOVE = f"words:{DATA / 'vectors' / 'glove.840B.300d.subset' / 'glove.840B.300d.subset.txt'}"
FEW = 20
TOLERANCE = 0.25


def scores(model, *tasks):
    found = evaluate(model, DATA, tasks=[f"transfer:{name}" for name in tasks], n_resamples=FEW).tasks
    return {
        f"{name} {metric}": 100 * score
        for name, task in found.items()
        for metric, score in task.scores.items()
        if metric != "mse"
    }


@pytest.mark.slow
def test_wordllama(wordllama):
    assert scores(wordllama, "TREC", "MRPC", "SICK-R", "SICK-E") == pytest.approx(
        {
            "TREC accuracy": 70.60,
            "MRPC accuracy": 69.91,
            "MRPC f1": 79.64,
            "SICK-R pearson": 81.96,
            "SICK-R spearman": 73.90,
            "SICK-E accuracy": 80.72,
        },
        abs=TOLERANCE,
    )


@pytest.mark.slow
def test_glove_comes_near_the_published_number():
    """78.30: the average of GloVe in Reimers and Gurevych 2019, table 5; here a part of the vocabulary only."""
    accuracy = scores(isosent.load(GLOVE), "CR")["CR accuracy"]
    assert accuracy == pytest.approx(77.38, abs=TOLERANCE)
    assert accuracy == pytest.approx(78.30, abs=1.5)
