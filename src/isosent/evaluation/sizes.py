"""Which sets are known, how many items they have, and why a score on other items cannot be compared with others.

`KNOWN_SETS` holds the items of every part of a set that is scored or learned from, as its paper or its task gives them.
`deviations` compares what was read with it; a `Task` and a `TaskResult` keep the answer, and every table, page and file
takes it from there.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from isosent.errors import EvaluationWarning

MANY_REPEATED = 0.1  # of the items; of STS12, 0.06 are
MARK = "†"  # next to a score that cannot be compared with others
WHOLE, TRAIN, DEV, TEST = "whole", "train", "dev", "test"
QUESTIONS, CANDIDATES, QUERIES, DOCUMENTS = "questions", "candidates", "queries", "documents"
N_DRAWS = 10  # of texts to cluster, each of which is an item, and of examples to learn from
_SCORED = (WHOLE, TEST, DEV, QUESTIONS, QUERIES)  # the first of these that a set has is scored; of STS all parts are

_STSB = {TRAIN: 5749, DEV: 1500, TEST: 1379}
_SICK = {TRAIN: 4500, DEV: 500, TEST: 4927}

# SemEval STS: the pairs with a score (Agirre et al. 2012 to 2016); STS-B: Cer et al. 2017; SICK: Marelli et al. 2014
_STS: Mapping[str, Mapping[str, int]] = {
    "STS12": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "surprise.OnWN": 750, "surprise.SMTnews": 399},
    "STS13": {"FNWN": 189, "OnWN": 561, "headlines": 750},
    "STS14": {"OnWN": 750, "deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750, "tweet-news": 750},
    "STS15": {"answers-forums": 375, "answers-students": 750, "belief": 375, "headlines": 750, "images": 750},
    "STS16": {
        "answer-answer": 254,
        "headlines": 249,
        "plagiarism": 230,
        "postediting": 244,
        "question-question": 209,
    },
    "STSB": {TEST: _STSB[TEST]},
    "STSB-dev": {DEV: _STSB[DEV]},
    "SICKR": _SICK,
}
# SentEval (Conneau and Kiela 2018), which counts four blank lines of CR, and trains SST2 on phrases too
_TRANSFER: Mapping[str, Mapping[str, int]] = {
    "MR": {WHOLE: 10_662},
    "CR": {WHOLE: 3_775},
    "SUBJ": {WHOLE: 10_000},
    "MPQA": {WHOLE: 10_606},
    "SST2": {TRAIN: 67_349, DEV: 872, TEST: 1_821},
    "SST5": {TRAIN: 8_544, DEV: 1_101, TEST: 2_210},
    "TREC": {TRAIN: 5_452, TEST: 500},
    "MRPC": {TRAIN: 4_076, TEST: 1_725},
    "SICK-R": _SICK,
    "SICK-E": _SICK,
    "STSB-supervised": _STSB,
}
# SemEval task 3, subtask B (Nakov et al. 2016, 2017): ten candidates per question
_CQA: Mapping[str, Mapping[str, int]] = {
    "CQA-2016-dev": {QUESTIONS: 50, CANDIDATES: 500},
    "CQA-2016-test": {QUESTIONS: 70, CANDIDATES: 700},
    "CQA-2017-test": {QUESTIONS: 88, CANDIDATES: 880},
}
# MTEB (Muennighoff et al. 2023), whose tasks have these names
_CLASSIFICATION: Mapping[str, Mapping[str, int]] = {
    "Banking77Classification": {TRAIN: 10_003, TEST: 3_080},
    "EmotionClassification": {TRAIN: 16_000, TEST: 2_000},
    "ImdbClassification": {TRAIN: 25_000, TEST: 25_000},
    "ToxicConversationsClassification": {TRAIN: 50_000, TEST: 2_048},
    "TweetSentimentExtractionClassification": {TRAIN: 27_481, TEST: 3_534},
}
# BEIR (Thakur et al. 2021, table 1): queries of the test split; and collections of SMART: queries with judgements
_RETRIEVAL: Mapping[str, Mapping[str, int]] = {
    name: {QUERIES: n_queries, DOCUMENTS: n_documents}
    for name, n_queries, n_documents in (
        ("arguana", 1_406, 8_674),
        ("fiqa", 648, 57_638),
        ("nfcorpus", 323, 3_633),
        ("quora", 10_000, 522_931),
        ("scidocs", 1_000, 25_657),
        ("scifact", 300, 5_183),
        ("trec-covid", 50, 171_332),
        ("CACM", 52, 3_204),
        ("CISI", 76, 1_460),
        ("Cranfield", 225, 1_400),
        ("MED", 30, 1_033),
    )
}
# Tables of pairs, by the name of the file without its extension: the STS benchmark, and KorSTS with the same sizes (Ham
# et al. 2020); KLUE-STS (Park et al. 2021); SICK
_PAIRS: Mapping[str, Mapping[str, int]] = {
    "sts-train": {WHOLE: 5_749},
    "sts-dev": {WHOLE: 1_500},
    "sts-test": {WHOLE: 1_379},
    "stsbenchmark": {WHOLE: 1_379},
    "klue-sts-v1.1_train": {WHOLE: 11_668},
    "klue-sts-v1.1_dev": {WHOLE: 519},
    "SICK_train": {WHOLE: 4_500},
    "SICK_trial": {WHOLE: 500},
    "SICK_test_annotated": {WHOLE: 4_927},
}
KNOWN_SETS: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "sts": _STS,
    "transfer": _TRANSFER,
    "cqa": _CQA,
    "rte": {"RTE": {TRAIN: 2_490, DEV: 277}},  # Wang et al. 2018 (GLUE)
    "retrieval": _RETRIEVAL,
    "clustering": {"StackOverflow": {WHOLE: 20_000}},  # titles with a label (Xu et al. 2015)
    "classification": _CLASSIFICATION,
    "pairs": _PAIRS,
}
"""Items of each part, by kind and name of the set."""

# A translation has as many items as the original. Every set of these kinds is English, of whose words one in five is
# one of these; in other languages with Latin letters it is less than one in twenty
_ENGLISH_KINDS = ("sts", "transfer", "cqa", "rte", "clustering", "classification")
_ENGLISH_WORDS = frozenset(
    ("the", "a", "is", "of", "and", "to", "in", "are", "on", "with", "for", "that", "what", "it")
)
_LEAST_ENGLISH = 0.06
_MOST_TEXTS = 2_000


def deviations(kind: str, name: str, sizes: Mapping[str, int], texts: Sequence[str] = ()) -> tuple[str, ...]:
    """Say how a set that was read differs from the known one of its name; empty if it does not, or none is known.

    Parameters
    ----------
    kind, name : str
        Kind and name of the task.
    sizes : mapping of str to int
        Items that were read of each part that the score depends on.
    texts : sequence of str, default ()
        Its texts, of which some are looked at.
    """
    known = KNOWN_SETS.get(kind, {}).get(name)
    if known is None:
        return ()
    if kind == "sts" and name != "SICKR":
        sizes = dict.fromkeys(known, 0) | dict(sizes)  # a subset without a file
    differing = size_deviations(sizes, known)
    if differing or kind not in _ENGLISH_KINDS or not texts or _is_english(texts):
        return differing
    return ("its texts are not English",)


def size_deviations(sizes: Mapping[str, int], known: Mapping[str, int | None]) -> tuple[str, ...]:
    """Say which parts have another number of items than the known ones."""
    return tuple(
        f"{n_items:,} items{'' if part in ('', WHOLE) else f' in {part}'} instead of {n_known:,}"
        for part, n_items in sizes.items()
        if (n_known := known.get(part)) is not None and n_items != n_known
    )


def known_items(kind: str, name: str, protocol: Mapping[str, Any]) -> int | None:
    """Number of items that the known set of a name is scored on; None if none is known."""
    known = KNOWN_SETS.get(kind, {}).get(name)
    if known is None or protocol.get("split", TEST) != TEST:
        return None
    if kind == "clustering":
        return N_DRAWS
    if kind == "sts":
        return known[TEST] if protocol.get("sickr") == TEST else sum(known.values())
    return next(known[part] for part in _SCORED if part in known)


def deviation_note(name: str, differing: Sequence[str]) -> str:
    """What a table says below its scores."""
    return f"{MARK} {name}: {'; '.join(differing)}; not comparable with published scores"


def warn_of_deviations(name: str, differing: Sequence[str], *, stacklevel: int = 2) -> None:
    """Warn of a set that deviates."""
    if differing:
        message = f"{name}: {'; '.join(differing)}. Its scores are not comparable with published ones."
        warnings.warn(message, EvaluationWarning, stacklevel=stacklevel + 1)


def warn_of_repetition(name: str, items: Sequence[tuple[str, ...]], *, stacklevel: int = 2) -> None:
    """Warn of items that are there several times, as if each told something new; some are in most sets."""
    n_repeated = len(items) - len(set(items))
    if n_repeated > MANY_REPEATED * len(items):
        message = (
            f"{name}: {n_repeated:,} of {len(items):,} rows repeat the texts of another row. They count as often as "
            "they occur, so that the interval is too narrow, and tests find differences too easily. Remove them."
        )
        warnings.warn(message, EvaluationWarning, stacklevel=stacklevel + 1)


def _is_english(texts: Sequence[str]) -> bool:
    some = texts[:: max(1, len(texts) // _MOST_TEXTS)]
    words = [word for text in some for word in re.findall(r"\w+", text.lower())]
    return sum(word in _ENGLISH_WORDS for word in words) >= _LEAST_ENGLISH * len(words)
