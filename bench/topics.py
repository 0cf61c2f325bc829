"""Topics of BERTopic in a pool of languages, before and after the language is erased.

python bench/topics.py DIR [--texts N] [--seeds N] [--markdown]
DIR: `data` of github.com/PhilipMay/stsb-multi-mt (stsb-LANG-train.csv). Needs bertopic. Each sentence is in the pool in
every language, and nobody is told which are translations of each other.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

import numpy as np
from bertopic import BERTopic
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from umap import UMAP

import isosent
from erase import first_of_each, sentences
from isosent.compat.sklearn import SentenceVectorizer

LANGUAGES = ("en", "de", "fr", "es")
MOST = 0.9  # of the texts of a topic, in one language


def measured(model, texts, languages, seed):
    """How topics and languages go together; a text without a topic counts only among those."""
    umap = UMAP(n_neighbors=15, n_components=5, min_dist=0.0, metric="cosine", random_state=seed)
    topics = BERTopic(embedding_model=make_pipeline(SentenceVectorizer(model)), umap_model=umap).fit_transform(texts)[0]
    topics, is_in = np.array(topics), np.array(topics) >= 0
    counts = [Counter(languages[topics == topic]) for topic in set(topics[is_in])]
    of = topics.reshape(len(LANGUAGES), -1)
    both = [(of[0] >= 0) & (other >= 0) for other in of[1:]]
    return {
        "topics": len(counts),
        "of one language": float(np.mean([max(each.values()) >= MOST * each.total() for each in counts])),
        "nmi with language": normalized_mutual_info_score(languages[is_in], topics[is_in]),
        "translations together": float(
            np.mean(np.concatenate([(of[0] == other)[is_both] for other, is_both in zip(of[1:], both, strict=True)]))
        ),
        "without topic": float(1 - is_in.mean()),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    read = {each: sentences(arguments.folder / f"stsb-{each}-train.csv") for each in LANGUAGES}
    rows = np.random.default_rng(0).permutation(first_of_each(read["en"]))[: arguments.texts]
    texts = [read[each][row] for each in LANGUAGES for row in rows]
    languages = np.repeat(LANGUAGES, len(rows))
    model = isosent.load("wordllama")
    models = {
        "as it is": model,
        "language erased, auto": model.fitted(texts, erase={"lang": languages}),
        "language erased, whitening 0.5": model.fitted(
            texts, "whitening", settings={"strength": 0.5}, erase={"lang": languages}
        ),
    }
    results = []
    for name, each in models.items():
        runs = [measured(each, texts, languages, seed) for seed in range(arguments.seeds)]
        results.append({"vectors": name} | {key: float(np.mean([run[key] for run in runs])) for key in runs[0]})
        print(json.dumps(results[-1] | {"fitted": [fit.transform for fit in each.fits]}), flush=True)
    if arguments.markdown:
        print(f"| {' | '.join(results[0])} |\n|{'---|' * len(results[0])}")
        for result in results:
            print(
                "| " + " | ".join(each if isinstance(each, str) else f"{each:.3g}" for each in result.values()) + " |"
            )


if __name__ == "__main__":
    main()
