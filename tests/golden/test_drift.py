"""Drift between real sets: half against half of one set is chance, sentences against forum texts are not."""

import os
from pathlib import Path

import numpy as np
import pytest

from isosent.evaluation.cqa import read_cqa
from isosent.evaluation.sts import read_sts
from isosent.numeric.drift import drift, excess_kurtosis, fourth_powers, shared_axes
from isosent.numeric.moments import Moments

pytestmark = pytest.mark.data

DATA = Path(os.environ["ISOSENT_DATA"]) if "ISOSENT_DATA" in os.environ else None
if DATA is None:
    pytest.skip("ISOSENT_DATA does not say where the research sets lie", allow_module_level=True)


def compared(old, new):
    moments = [Moments.from_rows(rows) for rows in (old, new)]
    axes = shared_axes(*moments)
    fourth = sum(fourth_powers(rows, each.mean, axes) for rows, each in zip((old, new), moments, strict=True))
    return drift(*moments, kurtosis=excess_kurtosis(fourth, moments, axes)), drift(*moments)


@pytest.fixture(scope="module")
def sentences(wordllama):
    return wordllama.encode(list(dict.fromkeys(read_sts(DATA, tasks=["STSB"])[0].texts)))


@pytest.mark.slow
def test_halves_of_one_set_differ_by_chance(sentences):
    random, n_runs, alarms = np.random.default_rng(0), 25, np.zeros(4)
    for _ in range(n_runs):
        halves = np.array_split(sentences[random.permutation(len(sentences))], 2)
        rows, moments = compared(*halves)
        alarms += (rows.mean_p_value < 0.05, rows.covariance_p_value < 0.05, moments.is_changed, rows.refit != "no")
    assert (alarms <= 6).all()  # more with a probability of 0.0002, at 5%


def test_forum_texts_are_told_from_sentences(sentences, wordllama):
    texts = [text for part in read_cqa(DATA) for each in part.questions for text in (each.text, *each.candidates)]
    forum = wordllama.encode(list(dict.fromkeys(texts)))
    for result in compared(sentences, forum):
        assert result.mean_p_value < 1e-6
        assert result.covariance_p_value < 1e-6
    assert compared(forum, sentences)[0].refit == "yes"
    assert compared(sentences, forum[:200])[0].refit == "too few rows"
