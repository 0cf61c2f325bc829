"""Signals without labels in the place of tf-idf agreement, in the rule of auto: constants chosen on other families.

Step 1 measures cells, one JSON line each, as bench/auto.py does: python bench/auto_signals.py measure DATA
  FAMILY=REFERENCE ... [--korsts FILE] >> cells.jsonl. Step 2: python bench/auto_signals.py report cells.jsonl.
"""

import json
from itertools import product
from pathlib import Path

import numpy as np
from scipy.sparse import diags
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize

from auto import by_family, commands_of, measure
from isosent import load
from isosent.evaluation.run import encode_tasks
from isosent.evaluation.sts import pairs_task, sts_tasks
from isosent.evaluation.unlabelled import halves_of, reciprocal_ranks
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import mean_ranks, nonzero_rows, spearman, unit_rows
from isosent.transforms.auto import STRENGTHS, Candidate, sample_pairs, under, words_of

N_TOPICS, DUPLICATE, N_QUERIES = 8, 0.8, 500
HALVES = "one half of a text finds the other"
CONSTANTS = list(product((0.01, 0.015, 0.02, 0.025, 0.03), (0.6, 0.7, 0.75, 0.8, 0.85, 0.9), (0.5, 0.6, 0.7)))


class Overlaps:
    """Matrices of the texts of a task, whose rows are compared in pairs."""

    def __init__(self, texts):
        self.tfidf = TfidfVectorizer(analyzer=words_of, sublinear_tf=True).fit_transform(texts).tocsr()
        plain = TfidfVectorizer(analyzer=words_of, sublinear_tf=True, norm=None).fit(texts)
        self.squared = normalize(plain.transform(texts) @ diags(plain.idf_)).tocsr()
        self.words = CountVectorizer(analyzer=words_of, binary=True, dtype=np.float32).fit_transform(texts).tocsr()
        n_grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), sublinear_tf=True, max_features=60_000)
        self.characters = n_grams.fit_transform(texts).tocsr()
        self.static = unit_rows(load("wordllama").encode(texts))
        self.topics = KMeans(N_TOPICS, n_init=1, random_state=0).fit_predict(self.static)
        self.lengths = np.array([len(text) for text in texts])

    def of(self, a, b):
        shared, counts = dots(self.words, a, b), np.asarray(self.words.sum(axis=1)).ravel()
        return {
            "tf-idf": dots(self.tfidf, a, b),
            "idf squared": dots(self.squared, a, b),
            "character n-grams": dots(self.characters, a, b),
            "Jaccard": shared / np.maximum(counts[a] + counts[b] - shared, 1),
            "overlap coefficient": shared / np.maximum(np.minimum(counts[a], counts[b]), 1),
            "cosine of wordllama": np.einsum("ij,ij->i", self.static[a], self.static[b]),
        }


def dots(matrix, a, b):
    return np.asarray(matrix[a].multiply(matrix[b]).sum(axis=1)).ravel()


def partial(x, y, held):
    r = np.corrcoef([mean_ranks(x), mean_ranks(y), mean_ranks(held)])
    return (r[0, 1] - r[0, 2] * r[1, 2]) / np.sqrt((1 - r[0, 2] ** 2) * (1 - r[1, 2] ** 2))


def nearest_pairs(rows, places, queries):
    """The three nearest of some rows, by their own vectors."""
    units = unit_rows(rows.astype(np.float32))
    at = np.searchsorted(places, queries)
    cosines = units[at] @ units.T
    cosines[np.arange(len(at)), at] = -2
    return np.repeat(queries, 3), places[np.argpartition(-cosines, 3, axis=1)[:, :3]].ravel()


def signals_of_half(vectors, has_vector, half, overlaps):
    """Each signal under no transform and each strength, fitted on the other half of the texts."""
    candidates = [Candidate(), *(Candidate("whitening", g, vectors.shape[1]) for g in STRENGTHS)]
    moments = Moments.from_rows(vectors[half.others[has_vector[half.others]]])
    used = has_vector[half.first] & has_vector[half.second]
    a, b = half.first[used], half.second[used]
    here = np.setdiff1d(np.flatnonzero(has_vector), half.others)
    ways = [vectors[here], under(vectors[here], moments, candidates[-1:])[0]]
    raw, whitened = (nearest_pairs(rows, here, np.unique(a)[:N_QUERIES]) for rows in ways)
    n = np.cumsum([0, len(a), len(raw[0]), len(whitened[0])])
    a, b = np.concatenate([a, raw[0], whitened[0]]), np.concatenate([b, raw[1], whitened[1]])
    rows, places = np.unique(np.concatenate([a, b]), return_inverse=True)
    cosines = []
    for mapped in under(vectors[rows], moments, candidates):
        units = unit_rows(mapped)[places]
        cosines.append(np.einsum("ij,ij->i", units[: len(a)], units[len(a) :]))
    drawn, each = np.arange(n[1]), overlaps.of(a, b)
    tfidf = each["tf-idf"]
    starts = np.flatnonzero(np.r_[True, a[: n[1]][1:] != a[: n[1]][:-1]])
    of_query = drawn - np.repeat(starts, np.diff(np.r_[starts, n[1]]))
    distinct = np.flatnonzero(tfidf <= DUPLICATE)
    chosen = {name: (drawn, overlap) for name, overlap in each.items()} | {
        "tf-idf, nearest by tf-idf": (drawn[of_query < 3], tfidf),
        "tf-idf, random pairs": (drawn[of_query >= 3], tfidf),
        "cosine of wordllama, nearest by tf-idf": (drawn[of_query < 3], each["cosine of wordllama"]),
        "tf-idf, nearest by vectors": (distinct[(distinct >= n[1]) & (distinct < n[2])], tfidf),
        "tf-idf, nearest by whitened vectors": (distinct[distinct >= n[2]], tfidf),
        "tf-idf, the nearest by both, too": (distinct, tfidf),
    }
    found = {name: [spearman(row[at], value[at]) for row in cosines] for name, (at, value) in chosen.items()}
    lengths = np.abs(overlaps.lengths[a] - overlaps.lengths[b]) / (overlaps.lengths[a] + overlaps.lengths[b])
    found["tf-idf, length held"] = [partial(row[drawn], tfidf[drawn], lengths[drawn]) for row in cosines]
    topic = np.where(overlaps.topics[a] == overlaps.topics[b], overlaps.topics[a], -1)[drawn]
    some = [at for each in range(N_TOPICS) if len(at := np.flatnonzero(topic == each)) >= 100]
    found["tf-idf within topics"] = [np.mean([spearman(row[at], tfidf[at]) for at in some]) for row in cosines]
    return found


def cells(arguments):
    tasks = [*sts_tasks(arguments.data), *([pairs_task(arguments.korsts)] if arguments.korsts else [])]
    overlaps = [Overlaps(list(dict.fromkeys(task.target_texts))) for task in tasks]
    for each in arguments.models:
        family, _, reference = each.partition("=")
        encoded_tasks = encode_tasks(load(reference), tasks, with_targets=True, progress=None)
        for task, overlap, (model, encoded) in zip(tasks, overlaps, encoded_tasks, strict=True):
            texts = list(dict.fromkeys(task.target_texts))
            vectors, halves = encoded(texts), halves_of(texts)
            has_vector, encoder = nonzero_rows(vectors), model.encoder
            gold = np.array(task.score(lambda asked, encoded=encoded: encoded(asked), 0).items.gold)
            by_half = [signals_of_half(vectors, has_vector, half, overlap) for half in sample_pairs(texts)]
            signals = {name: np.mean([half[name] for half in by_half], axis=0) for name in by_half[0]}
            gains = np.array([half["tf-idf"] for half in by_half])
            signals["the half that gains less"] = (gains - gains[:, :1]).min(axis=0)
            candidates = [Candidate(), *(Candidate("whitening", g, vectors.shape[1]) for g in STRENGTHS)]
            mapped = under(encoder.encode(halves), Moments.from_rows(vectors[has_vector]), candidates)
            signals[HALVES] = [np.log(reciprocal_ranks(*np.split(rows, 2)).mean()) for rows in mapped]
            record = measure(vectors, texts, task.items, gold)
            record["signals"] = {name: list(map(float, values)) for name, values in signals.items()}
            yield {"family": family, "encoder": reference, "task": task.name} | record


def chosen(cell, signal, least, share, even):
    """Place of the strength by the rule of auto, 0 for none, with another signal in place of tf-idf agreement."""
    values = np.array(cell["signals"][signal])
    gains = values[1:] - values[0]
    if gains.max() >= least * (10 if signal == HALVES else 1):
        return 1 + np.flatnonzero((gains > 0) & (gains >= share * gains.max()))[-1]
    return int(cell["evenness"] > even and gains[0] > 0)


def gain(cell, place):
    name = f"{STRENGTHS[place - 1]} 1.0" if place else "none"
    return cell["scores"][name] - cell["scores"]["none"]


def left_out(some, signal):
    """Gains with the constants that are within 0.1 of the best on the other families, and lose least often."""
    tried = {c: np.array([gain(cell, chosen(cell, signal, *c)) for cell in some]) for c in CONSTANTS}
    gains = np.empty(len(some))
    for family in {cell["family"] for cell in some}:
        is_here = np.array([cell["family"] == family for cell in some])
        others = [cell for cell in some if cell["family"] != family]
        means = {c: by_family(others, values[~is_here]) for c, values in tried.items()}
        near = [c for c in CONSTANTS if means[c] >= max(means.values()) - 0.1]
        best = max(near, key=lambda c, is_here=is_here, means=means: (-(tried[c][~is_here] < -0.5).sum(), means[c]))
        gains[is_here] = tried[best][is_here]
    return gains


def predicted(some, make):
    """Gains of the strength that a regression on all signals of the other families expects to gain most."""
    rows = [
        [value for values in cell["signals"].values() for value in (values[k] - values[0], values[0])]
        + [cell["evenness"], STRENGTHS[k - 1]]
        for cell in some
        for k in range(1, 5)
    ]
    x, y = np.array(rows), np.array([gain(cell, k) for cell in some for k in range(1, 5)])
    family = np.repeat([cell["family"] for cell in some], 4)
    expected = np.empty(len(y))
    for each in set(family):
        expected[family == each] = make().fit(x[family != each], y[family != each]).predict(x[family == each])
    places = [int(row.argmax()) + 1 if row.max() > 0 else 0 for row in expected.reshape(-1, 4)]
    return np.array([gain(cell, place) for cell, place in zip(some, places, strict=True)])


def report(some):
    best = np.array([max(cell["scores"].values()) - cell["scores"]["none"] for cell in some])
    rows = {name: left_out(some, name) for name in some[0]["signals"]}
    rows["random forest"] = predicted(some, lambda: RandomForestRegressor(200, min_samples_leaf=4, random_state=0))
    rows["ridge"] = predicted(some, lambda: make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1, 4, 12))))
    print("| signal | gain | regret | cells that lose more than 0.5 | worst |\n|---|---|---|---|---|")
    for name, gains in rows.items():
        n_losses = int((gains < -0.5).sum())
        print(f"| {name} | {gains.mean():+.2f} | {(best - gains).mean():.2f} | {n_losses} | {gains.min():+.2f} |")


def main():
    arguments = commands_of(__doc__)[0].parse_args()
    if arguments.command == "measure":
        for cell in cells(arguments):
            print(json.dumps(cell), flush=True)
    else:
        report([json.loads(line) for line in Path(arguments.cells).read_text("utf-8").splitlines()])


if __name__ == "__main__":
    main()
