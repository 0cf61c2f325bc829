"""False positives and detections of `isosent.numeric.drift`, and what a refit is worth where it is advised.

python bench/drift.py DATA [--runs 200]
DATA is a folder with sts, stsbenchmark, sick, cqa, nli and senteval. Vectors of wordllama of distinct texts. One JSON
line per setting; constants were chosen on STS12, STS14 and SICK-R.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import isosent
from isosent.evaluation.cqa import read_cqa
from isosent.evaluation.sts import read_sts
from isosent.numeric.drift import LEVEL, drift, excess_kurtosis, fourth_powers, shared_axes
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import pairwise_cosine

TUNING = ("STS12", "STS14", "SICKR")
STRENGTH = 0.5
ROWS_A_DIM = (1, 1.5, 2, 3, 4, 6, 8, 10)
SIZES = ((60, 60), (200, 200), (800, 800), (200, 800))


def distinct(texts):
    return list(dict.fromkeys(text for text in texts if text.strip()))


def runs_of_ten(texts):
    return [texts[start : start + 10] for start in range(0, len(texts) - 9, 10)]


def first_premises(path):
    return [json.loads(line)["premise"] for line in path.read_text("utf-8").splitlines() if line.strip()]


def read_all(data):
    """Scored sets by name, other corpora by name, and questions of the forum with their related ones."""
    sets = {each.name: each for folder in ("sts", "stsbenchmark", "sick") for each in read_sts(data / folder)}
    questions = [question for part in read_cqa(data / "cqa") for question in part.questions]
    threads = [[question.text, *question.candidates] for question in questions]
    others = {
        "forum": [text for thread in threads for text in thread],
        "snli": first_premises(data / "nli" / "snli" / "dev.jsonl"),
        "mnli": first_premises(data / "nli" / "mnli" / "dev.jsonl"),
    }
    for part in ("neg", "pos"):
        path = data / "senteval" / "MR" / f"rt-polarity.{part}"
        others[f"reviews, {part}"] = path.read_text("latin-1").split("\n")
    return sets, others, threads


def compare(old, new):
    """`drift` of two arrays of rows with the kurtosis, and of their moments alone."""
    moments = [Moments.from_rows(rows) for rows in (old, new)]
    axes = shared_axes(*moments)
    fourth = sum(fourth_powers(rows, each.mean, axes) for rows, each in zip((old, new), moments, strict=True))
    kurtosis = excess_kurtosis(fourth, moments, axes)
    return drift(*moments, kurtosis=kurtosis), drift(*moments), kurtosis


def rates(draw, runs):
    """Share of runs with a p-value below 5%, of pairs of arrays of rows."""
    counts = np.zeros(6)
    for _ in range(runs):
        rows, moments, _ = compare(*draw())
        counts += (
            rows.mean_p_value < LEVEL,
            rows.covariance_p_value < LEVEL,
            rows.is_changed,
            moments.covariance_p_value < LEVEL,
            moments.is_changed,
            rows.refit != "no",
        )
    names = ("mean", "covariance", "changed", "covariance, moments alone", "changed, moments alone", "refit")
    return dict(zip(names, (counts / runs).round(3).tolist(), strict=True))


def split(rows, n_old, n_new, random):
    order = random.permutation(len(rows))
    return rows[order[:n_old]], rows[order[n_old : n_old + n_new]]


def split_groups(groups, random):
    """Two halves of groups of rows, such that a group is not divided."""
    order, half = random.permutation(len(groups)), len(groups) // 2
    return [np.concatenate([groups[k] for k in part]) for part in (order[:half], order[half : 2 * half])]


def spearman(encoded, moments):
    """Mean Spearman x100 over the subsets of a set after whitening fitted on moments."""
    linear_map = isosent.Whitening(strength=STRENGTH).fit_moments(moments).linear_map_
    scores = [
        spearmanr(pairwise_cosine(linear_map.apply(first), linear_map.apply(second)), gold)[0]
        for first, second, gold in encoded
    ]
    return 100 * float(np.mean(scores))


def encode_pairs(scored, model):
    return [(model.encode(each.first), model.encode(each.second), np.asarray(each.scores)) for each in scored.subsets]


def losses(encoded, rows, random):
    """What a fit on fewer rows loses to one on all rows: points by rows per dimension, the mean of three draws."""
    best = spearman(encoded, Moments.from_rows(rows))
    for ratio in ROWS_A_DIM:
        n_rows = int(ratio * rows.shape[1])
        if n_rows < len(rows):
            draws = [rows[random.choice(len(rows), n_rows, replace=False)] for _ in range(3)]
            yield ratio, np.mean([spearman(encoded, Moments.from_rows(draw)) for draw in draws]) - best


def refits(name, encoded, vectors, random):
    """What a refit changes on a set, where the old vectors are another corpus or a half of the same."""
    for other, rows in {**vectors, "a half of the same": None}.items():
        if other == name:
            continue
        half = len(vectors[name]) // 2
        old, new = split(vectors[name], half, half, random) if rows is None else (rows, vectors[name])
        found = compare(old, new)[0]
        moments = [Moments.from_rows(each) for each in (old, new)]
        gain = spearman(encoded, moments[1]) - spearman(encoded, moments[0])
        yield other, found, gain


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    random, runs, model = np.random.default_rng(0), options.runs, isosent.load("wordllama")
    sets, others, threads = read_all(options.data)
    texts = {name: each.texts for name, each in sets.items()} | others
    vectors = {name: model.encode(distinct(each)) for name, each in texts.items()}
    vectors = {name: rows[rows.any(axis=1)].astype(np.float64) for name, rows in vectors.items()}

    def report(kind, **values):
        print(json.dumps({"kind": kind, **values}), flush=True)

    for name, rows in vectors.items():
        kurtosis = compare(*np.array_split(rows[random.permutation(len(rows))], 2))[2]
        quantiles = np.quantile(kurtosis, (0.5, 0.9, 1)).round(1).tolist()
        report("kurtosis of axes: median, 90%, largest", corpus=name, rows=len(rows), quantiles=quantiles)
    for name, rows in vectors.items():
        for n_old, n_new in (*SIZES, (len(rows) // 2,) * 2):
            if n_old + n_new <= len(rows):
                found = rates(lambda: split(rows, n_old, n_new, random), runs)  # noqa: B023 - called at once
                report("false positives", corpus=name, old=n_old, new=n_new, runs=runs, **found)
    pairs = [pair for each in sets["STSB"].subsets for pair in zip(each.first, each.second, strict=True)]
    dependent = {
        "both sentences of a pair of STS-B": pairs,
        "a question and its related ones": threads,
        "each sentence of STS-B twice": [(text, text) for text in distinct(sets["STSB"].texts)],
        "ten neighbors in the file, STS12": runs_of_ten(distinct(sets["STS12"].texts)),
        "ten neighbors in the file, snli": runs_of_ten(distinct(others["snli"])),
    }
    for name, groups in dependent.items():
        encoded = [model.encode(list(group)).astype(np.float64) for group in groups]
        found = rates(lambda: split_groups(encoded, random), runs)  # noqa: B023 - called at once
        report("false positives of groups", groups=name, runs=runs, **found)
    for first, second in (("STSB", "forum"), ("STSB", "STS14"), ("STS13", "STS15"), ("reviews, neg", "reviews, pos")):
        for n_rows in (50, 100, 200, 500):

            def draw(names=(first, second), n_rows=n_rows):
                return [vectors[name][random.choice(len(vectors[name]), n_rows, replace=False)] for name in names]

            report("detections", old=first, new=second, rows=n_rows, runs=runs, **rates(draw, runs))
    for name, scored in sets.items():
        for other, found, gain in refits(name, encode_pairs(scored, model), vectors, random):
            ratio = round(found.spread / found.spread_expected, 2)
            values = {"changed": found.is_changed, "spread ratio": ratio, "refit": found.refit, "gain": round(gain, 2)}
            report("refit", part="tuning" if name in TUNING else "reported", new=name, old=other, **values)
    for name, scored in sets.items():
        lost = losses(encode_pairs(scored, model), vectors[name], random)
        report("points lost by rows per dimension", new=name, **{str(ratio): round(loss, 2) for ratio, loss in lost})


if __name__ == "__main__":
    main()
