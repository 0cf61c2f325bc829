"""STS scores of word vectors on the real sets."""

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


@pytest.fixture(scope="module")
def glove():
    return isosent.load(GLOVE)


def sick(model, **how):
    return 100 * evaluate(model, DATA, tasks=["SICKR"], n_resamples=1, **how).tasks["SICKR"].scores["spearman"]


def test_glove_mean_on_sick_is_the_published_number(glove):
    """57.01: Yokoi et al. 2024, arXiv 2411.00680, GloVe 840B mean; here with the rows of SICK's vocabulary only."""
    assert sick(glove) == pytest.approx(57.01, abs=0.5)


def test_whitening_glove_to_128_dimensions_gains_three_points_on_sick(glove):
    assert sick(glove, transform=isosent.Whitening(128)) >= sick(glove) + 3


def test_the_test_part_of_sick_has_4927_pairs(glove):
    result = evaluate(glove, DATA, tasks=["SICKR"], sickr="test", n_resamples=1)
    assert result.tasks["SICKR"].n_items == 4927


def test_wordllama_scores_as_measured_elsewhere(wordllama):
    """STS12-15 of wordllama l2_supercat 256, mean: 64.5 / 74.4 / 69.5 / 81.1, measured outside this project."""
    result = evaluate(wordllama, DATA, tasks=["STS12", "STS13", "STS14", "STS15"], n_resamples=1)
    scores = [100 * task.scores["spearman"] for task in result.tasks.values()]
    assert scores == pytest.approx([64.5, 74.4, 69.5, 81.1], abs=0.06)
