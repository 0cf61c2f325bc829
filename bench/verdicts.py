"""Which of two encoders is better, judged by texts and vectors alone: how often a rule is right, wrong, or cannot tell.

Step 1 measures every encoder on every set of texts: python bench/verdicts.py measure CACHE:LIMIT DATA
  FAMILY=REFERENCE ... [--limit N] [--corpora NAME ...] >> encoders.jsonl, with vectors of bench/judgement.py encode.
Step 2 compares all encoders of a set of texts in pairs: python bench/verdicts.py report encoders.jsonl ...
The truth is the share of the ten nearest neighbors with the same label, or nDCG@10, or the agreement with gold scores.
"""

import argparse
import json
from itertools import combinations
from pathlib import Path

import numpy as np

from isosent.evaluation.unlabelled import Difference, VectorComparison, explained_by_words, overlap_agreements
from isosent.numeric.neighbors import nearest_columns
from isosent.numeric.similarity import unit_rows
from isosent.numeric.statistics import central_interval, mean_draws
from isosent.transforms.agreement import sample_pairs, topics_of_neighbors
from judgement import corpora_of, file_of, key_of

STATIC = {"wordllama", "glove", "tokens"}
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


def measure(arguments):
    for corpus in corpora_of(arguments.data, arguments.limit, arguments.corpora):
        halves = sample_pairs(corpus.texts, topics=True)
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
            record = {
                "family": family,
                "encoder": reference,
                "corpus": corpus.name,
                "n_texts": len(corpus.texts),
                "truth": truth,
                "pairs": float(overlap[0][0]),
                "pairs_draws": overlap[1][0][:400].round(5).tolist(),
                "topics": np.nan_to_num(np.concatenate(topics)).round(4).tolist(),
                "words": explained_by_words(vectors, corpus.texts),
            }
            print(json.dumps(record), flush=True)


# -------------------------------------------------------------------------------------------------------- report


class Pair:
    """Encoder B against encoder A on one set of texts."""

    def __init__(self, a, b):
        self.corpus, self.families = a["corpus"], {each["family"].partition("-")[0] for each in (a, b)}
        self.n_static = (a["family"] in STATIC) + (b["family"] in STATIC)
        self.truth = float(np.mean([b["truth"][kind] - a["truth"][kind] for kind in a["truth"]]))
        draws = np.array(b["pairs_draws"]) - np.array(a["pairs_draws"])
        gains = np.array(b["topics"]) - np.array(a["topics"])
        overlap = Difference(b["pairs"] - a["pairs"], *central_interval(draws))
        topics = Difference(float(gains.mean()), *central_interval(mean_draws(gains[None])[0]))
        self.compared = VectorComparison(overlap, topics, (a["words"], b["words"]))


def by_overlap(pair):
    """What `migrate` said of files of vectors before: word overlap alone."""
    return 1 if pair.compared.overlap.low > 0 else -1 if pair.compared.overlap.high < 0 else 0


def by_both(pair):
    """Both signals."""
    topics = pair.compared.topics
    found = by_overlap(pair)
    return found if (topics.low > 0 if found > 0 else topics.high < 0) else 0


def by_rule(least_topics, by_words):
    """Both signals, and the better model is explained less by words."""

    def rule(pair):
        _, topics, (a, b) = pair.compared
        found = by_overlap(pair)
        is_on_topic = topics.low > least_topics if found > 0 else topics.high < -least_topics
        return found if is_on_topic and (b - a) * found <= -by_words else 0

    return rule


def shipped(pair):
    """The rule of isosent."""
    return {"better": 1, "worse": -1}.get(pair.compared.verdict, 0)


RULES = {(t, w): by_rule(t, w) for t in (0, 0.005, 0.01, 0.02) for w in (0, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08)}


def counts(pairs, rule):
    """Right, wrong (where the truth differs by more than half a point), and cannot tell."""
    said = [(rule(pair), pair.truth) for pair in pairs]
    told = [verdict * truth for verdict, truth in said if verdict and abs(truth) >= EVEN]
    return sum(each > 0 for each in told), sum(each < 0 for each in told), sum(not verdict for verdict, _ in said)


def left_out(pairs, belongs):
    """The counts by the rule that is best without these pairs, where a wrong verdict costs five right ones."""
    others = [pair for pair in pairs if not belongs(pair)]

    def value(key):
        right, wrong, _ = counts(others, RULES[key])
        return right - 5 * wrong

    return counts([pair for pair in pairs if belongs(pair)], RULES[max(RULES, key=value)])


def report(arguments):
    cells = [json.loads(line) for path in arguments.cells for line in Path(path).read_text("utf-8").splitlines()]
    of_corpus = {}
    for cell in cells:
        of_corpus.setdefault(cell["corpus"], []).append(cell)
    pairs = [
        Pair(a, b)
        for group in of_corpus.values()
        for a, b in combinations(group, 2)
        if len(a["topics"]) == len(b["topics"])
    ]
    print(f"{len(pairs)} pairs of encoders: right, wrong, cannot tell")
    for name, rule in (("word overlap", by_overlap), ("both signals", by_both), ("isosent", shipped)):
        parts = [counts([pair for pair in pairs if pair.n_static == n], rule) for n in (0, 1, 2)]
        print(f"| {name} | all: {counts(pairs, rule)} | 0, 1, 2 static encoders: {parts} |")
    for key, values in (
        ("families", sorted({family for pair in pairs for family in pair.families})),
        ("texts", sorted(of_corpus)),
    ):
        total = np.zeros(3, int)
        for value in values:
            belongs = (
                (lambda pair, v=value: v in pair.families)
                if key == "families"
                else (lambda pair, v=value: pair.corpus == v)
            )
            found = left_out(pairs, belongs)
            total += found
            part = [pair for pair in pairs if belongs(pair)]
            print(f"| without {value} | {found} | word overlap {counts(part, by_overlap)} | {counts(part, shipped)} |")
        print(f"| {key} held out | {total.tolist()} |")


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
    command = commands.add_parser("report")
    command.add_argument("cells", nargs="+")
    command.set_defaults(run=report)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
