"""How often the tests behind ``isosent compare`` find a difference where there is none, at 5%.

Two predictions of the same human scores, equally good; one JSON line per setting with the share of runs with p < 0.05.
Usage: python bench/significance.py [--runs 1000]
"""

import argparse
import json

import numpy as np
from scipy.stats import rankdata

from isosent.numeric.similarity import pearson
from isosent.numeric.statistics import bootstrap_differences, bootstrap_p_value, williams_test

DRAWS, NOISE = 400, 0.8


def drawn(random, n_pairs, skewed):
    """Gold scores and two predictions, each the gold scores with independent noise."""
    gold, *noise = random.normal(size=(3, n_pairs))
    first, second = (gold + NOISE * own for own in noise)
    return tuple(np.exp(values) for values in (gold, first, second)) if skewed else (gold, first, second)


def williams(gold, first, second):
    return williams_test(pearson(first, gold), pearson(second, gold), pearson(first, second), len(gold))[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    for n_pairs, skewed in ((200, False), (200, True), (1000, False), (1000, True)):
        random = np.random.default_rng(0)
        found = dict.fromkeys(("williams_pearson", "williams_on_ranks", "bootstrap_spearman"), 0)
        for run in range(runs):
            gold, first, second = drawn(random, n_pairs, skewed)
            draws = bootstrap_differences("spearman", first, second, gold, n_resamples=DRAWS, seed=run)
            p_values = (
                williams(gold, first, second),
                williams(*map(rankdata, (gold, first, second))),
                bootstrap_p_value(draws),
            )
            for name, p_value in zip(found, p_values, strict=True):
                found[name] += p_value < 0.05
        shares = {name: round(count / runs, 3) for name, count in found.items()}
        print(json.dumps({"n_pairs": n_pairs, "skewed": skewed, "runs": runs, "draws": DRAWS, **shares}), flush=True)


if __name__ == "__main__":
    main()
