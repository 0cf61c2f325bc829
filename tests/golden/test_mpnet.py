"""all-mpnet-base-v2 on the real sets: the numbers that MTEB publishes of it."""

import os
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import isosent
from isosent import evaluate

pytestmark = [pytest.mark.data, pytest.mark.slow]

DATA, MPNET = (Path(os.environ[name]) if name in os.environ else None for name in ("ISOSENT_DATA", "ISOSENT_MPNET"))
if DATA is None:
    pytest.skip("ISOSENT_DATA does not say where the research sets lie", allow_module_level=True)
if MPNET is None:
    pytest.skip("ISOSENT_MPNET does not name the folder of all-mpnet-base-v2", allow_module_level=True)
# MTEB's public results, cosine_spearman x 100; the sets take minutes each, the smallest is first
PUBLISHED = {"STSB": 83.42, "STS13": 83.48, "STS15": 85.66, "STS12": 72.63, "STS14": 78.00, "SICKR": 80.59}


@pytest.fixture(scope="module")
def mpnet():
    return isosent.load(f"hf:{MPNET}")


@pytest.mark.parametrize("name", PUBLISHED)
def test_scores_are_those_that_mteb_publishes(name, mpnet):
    score = evaluate(mpnet, DATA, [name], n_resamples=1).tasks[name].scores["spearman"]
    assert 100 * score == pytest.approx(PUBLISHED[name], abs=0.02)


def test_vectors_are_those_of_sentence_transformers(mpnet):
    texts = isosent.demo_texts()[::8]
    theirs = SentenceTransformer(str(MPNET), device="cpu").encode(texts)
    np.testing.assert_allclose(mpnet.encode(texts), theirs, atol=5e-6)
