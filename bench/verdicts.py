"""Which of two encoders is better, judged by texts and vectors alone: how often a rule is right, wrong, or cannot tell.

Step 1 measures every encoder on every set of texts: python bench/verdicts.py measure CACHE DATA FAMILY=REFERENCE ...
  [--limit N] [--corpora NAME ...] >> encoders.jsonl, with the vectors that bench/judgement.py encoded.
Step 2 compares all encoders of a set of texts in pairs: python bench/verdicts.py report encoders.jsonl ...
The truth is the share of the ten nearest neighbors with the same label, or nDCG@10, or the agreement with gold scores.
"""

import argparse
import json
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
from judgement import corpora_of, file_of, key_of
from sklearn.feature_extraction.text import CountVectorizer

from isosent.evaluation.unlabelled import overlap_agreements
from isosent.numeric.ranking import nearest_columns
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.numeric.statistics import central_interval, mean_draws
from isosent.transforms.agreement import sample_pairs, topics_of_neighbors, words_of

EVEN = 0.5  # points of the truth that are no difference


def neighbors_share(labels, vectors):
    """Share of the ten nearest with the same label, in percent."""
    units, shares = unit_rows(vectors.astype(np.float32)), []
    for start in range(0, len(units), 512):
        part = np.arange(start, min(start + 512, len(units)))
        cosines = units[part] @ units.T
        cosines[np.arange(len(part)), part] = -2
        near = nearest_columns(cosines, units[part], units, 10)[1]
        shares.append((labels[near] == labels[part][:, None]).mean(axis=1))
    return 100 * float(np.concatenate(shares).mean())


def counts_of(texts):
    """Shares of the words of each text, (n_texts, n_words)."""
    counts = CountVectorizer(analyzer=words_of, dtype=np.float64).fit_transform(texts).tocsr()
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    return counts.multiply(1 / np.maximum(lengths, 1)[:, None]).tocsr()


def explained_by_words(vectors, counts, penalty):
    """R2, on texts held out, of a ridge regression of vectors on the words of texts."""
    rows = np.random.default_rng(0).permutation(len(vectors))[:1000]
    half = len(rows) // 2
    left = total = 0.0
    y = unit_rows(vectors[rows].astype(np.float64))
    kernel = (counts[rows] @ counts[rows].T).toarray()
    for fit, held in ((slice(None, half), slice(half, None)), (slice(half, None), slice(None, half))):
        mean = y[fit].mean(axis=0)
        inner = kernel[fit, fit]
        weight = np.linalg.solve(inner + penalty * np.trace(inner) / len(inner) * np.eye(len(inner)), y[fit] - mean)
        left += ((y[held] - mean - kernel[held, fit] @ weight) ** 2).sum()
        total += ((y[held] - mean) ** 2).sum()
    return 1 - left / total


def apart_topics(rows, half_topics, overlap_rows):
    """As `topics_of_neighbors`, among the texts that share no word but the most frequent with the query."""
    units = unit_rows(rows.astype(np.float32))
    n = min(1000, len(units))
    cosines = units[:n] @ units.T
    cosines[overlap_rows] = -np.inf
    cosines[np.arange(n), np.arange(n)] = -np.inf
    near = np.argpartition(-cosines, 10, axis=1)[:, :10]
    return np.einsum("qd,qkd->qk", half_topics[:n], half_topics[near]).mean(axis=1)


def measure(arguments):
    for corpus in corpora_of(arguments.data, arguments.limit, arguments.corpora):
        halves = sample_pairs(corpus.texts, topics=True)
        counts = counts_of(corpus.texts)
        document_share = np.asarray((counts > 0).mean(axis=0)).ravel()
        rare = (counts[:, document_share < 0.02] > 0).astype(np.float32).tocsr()
        shared = [(rare[half.rows[:1000]] @ rare[half.rows].T).toarray() > 0 for half in halves]
        for each in arguments.models:
            family, _, reference = each.partition("=")
            folder, _, limit = arguments.cache.rpartition(":")
            path = file_of(folder, reference, int(limit))
            if not path.exists():
                continue
            with np.load(path) as stored:
                row_of = {key: row for row, key in enumerate(stored["keys"].tolist())}
                if not all(key_of(text) in row_of for text in (*corpus.texts, *corpus.others)):
                    continue
                encoded = stored["vectors"]
            vectors, others = (
                encoded[[row_of[key_of(text)] for text in part]] if part else encoded[:0]
                for part in (corpus.texts, corpus.others)
            )
            truth = {}
            for kind, score in corpus.tasks.items():
                if kind in ("topics", "classes"):
                    truth["labels"] = neighbors_share(score.args[0], vectors)
                else:
                    truth[kind] = score(vectors, others)
            overlap = overlap_agreements(corpus.texts, [(vectors, vectors)])
            topics = [topics_of_neighbors(vectors[half.rows], half.topics) for half in halves]
            apart = [
                apart_topics(vectors[half.rows], half.topics, mask) for half, mask in zip(halves, shared, strict=True)
            ]
            has_vector = nonzero_rows(vectors)
            record = {
                "family": family,
                "encoder": reference,
                "corpus": corpus.name,
                "n_texts": len(corpus.texts),
                "truth": truth,
                "pairs": float(overlap[0][0]),
                "pairs_draws": overlap[1][0][:400].round(5).tolist(),
                "topics": np.nan_to_num(np.concatenate(topics)).round(4).tolist(),
                "apart": np.nan_to_num(np.concatenate(apart)).round(4).tolist(),
                "words": [
                    explained_by_words(vectors[has_vector], counts[has_vector], penalty) for penalty in (0.1,)
                ],
            }
            print(json.dumps(record), flush=True)
            print(corpus.name, reference[-40:], truth, record["pairs"], record["words"], file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("measure")
    command.add_argument("cache")
    command.add_argument("data")
    command.add_argument("models", nargs="+", metavar="FAMILY=REFERENCE")
    command.add_argument("--limit", type=int, default=1200)
    command.add_argument("--corpora", nargs="+")
    command.set_defaults(run=measure)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
