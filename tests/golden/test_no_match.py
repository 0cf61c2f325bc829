"""Queries from other domains find nothing, and paraphrases are kept, on the real sets."""

import os
from pathlib import Path

import pytest

from isosent.evaluation.cqa import read_cqa
from isosent.evaluation.sts import read_scored_pairs, read_sts
from isosent.search import Index

pytestmark = pytest.mark.data

DATA = Path(os.environ["ISOSENT_DATA"]) if "ISOSENT_DATA" in os.environ else None
if DATA is None:
    pytest.skip("ISOSENT_DATA does not say where the research sets lie", allow_module_level=True)
N_QUERIES = 400


@pytest.fixture(scope="module")
def pairs():
    """STS-B pairs, in the order of the file: first texts, second texts, scores."""
    stsb = read_sts(DATA, tasks=["STSB"])[0].subsets[0]
    return list(zip(stsb.first, stsb.second, stsb.scores, strict=True))


@pytest.fixture(scope="module")
def forum(wordllama):
    questions = [question for part in read_cqa(DATA) for question in part.questions]
    return Index.create(list(dict.fromkeys(text for each in questions for text in each.candidates)), wordllama)


def share_with_hits(index, queries, false_positives):
    return (index.search(queries, false_positives=false_positives).n_hits > 0).mean()


@pytest.mark.parametrize("false_positives", [0.01, 0.1])
def test_sick_and_korean_find_nothing_among_forum_questions(forum, false_positives):
    sick = list(dict.fromkeys(read_sts(DATA, tasks=["SICKR"])[0].texts))[:N_QUERIES]
    korean = list(dict.fromkeys(read_scored_pairs(DATA / "kornlu" / "KorSTS" / "sts-test.tsv").first))[:N_QUERIES]
    assert share_with_hits(forum, sick, false_positives) <= 3 * false_positives
    assert share_with_hits(forum, korean, false_positives) <= false_positives


def test_paraphrases_are_kept(wordllama, pairs):
    texts = list(dict.fromkeys(second for _, second, _ in pairs))
    partner = {first: texts.index(second) for first, second, score in pairs if score >= 4 and first != second}
    index = Index.create(texts, wordllama)
    reached, kept = (
        (list(partner.values()) == index.search(list(partner), false_positives=rate).ids.T).any(axis=0)
        for rate in (None, 0.01)
    )
    assert not (kept & ~reached).any()
    assert kept.sum() / reached.sum() > 0.75
