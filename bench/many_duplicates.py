"""Near-duplicates among many texts beside semhash: seconds, processor time, memory, and planted copies that are found.

python bench/many_duplicates.py DATA [--sizes N ...] [--peer PYTHON]. DATA is the folder of the research data sets.
PYTHON runs semhash (pip install semhash) and may be that of another environment. Both sides have the vectors of
wordllama and a process of their own for each number of texts. Needs the package model2vec. One text in twenty is a copy
with 10% of its words changed. Where there are too few sentences, two of them are joined.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from duplicates import edited, lines
from isosent.evaluation.sts import read_sts

MEASURED = """
import json, resource, sys, time
start = time.perf_counter()
texts = open(sys.argv[1], encoding="utf-8").read().splitlines()
{body}
used = resource.getrusage(resource.RUSAGE_SELF)
result = dict(side={side!r}, texts=len(texts), seconds=round(time.perf_counter() - start, 1))
result |= dict(cpu_seconds=round(used.ru_utime + used.ru_stime, 1), peak_mb=used.ru_maxrss // 1024)
copies = json.load(open(sys.argv[3]))
print(json.dumps(result | dict(copies_found=sum(map(is_found, copies)) / len(copies), **more)))
"""
ISOSENT = """
import isosent
from isosent.search import find_duplicates
found = find_duplicates(texts, isosent.load("wordllama"))
group_of = {row: number for number, rows in enumerate(found.groups) for row in rows}
is_found = lambda pair: pair[0] in group_of and group_of[pair[0]] == group_of.get(pair[1])
more = dict(recall=found.recall, duplicates=found.n_duplicates)
"""
SEMHASH = """
from model2vec import StaticModel
from semhash import SemHash
found = SemHash.from_records(records=texts, model=StaticModel.from_pretrained(sys.argv[2])).self_deduplicate()
left = {each.record for each in found.filtered}
is_found = lambda pair: texts[pair[0]] in left or texts[pair[1]] in left
more = dict(duplicates=len(found.filtered))
"""


def sentences(data):
    """Distinct sentences of NLI, STS, reviews and plots."""
    found = [text for task in read_sts(data / "sts") for subset in task.subsets for text in subset.texts]
    for path in sorted((data / "nli").rglob("*.jsonl")):
        rows = map(json.loads, lines(path))
        found += [row[key] for row in rows for key in ("premise", "hypothesis") if isinstance(row.get(key), str)]
    for name in ("MR/rt-polarity.pos", "MR/rt-polarity.neg", "SUBJ/subj.objective", "SUBJ/subj.subjective"):
        found += lines(data / "senteval" / name, "latin-1")
    joined = (" ".join(text.split()) for text in found)
    return [text for text in dict.fromkeys(joined) if 15 < len(text) < 1000]


def texts_with_copies(pool, n_texts, rng):
    """Shuffled distinct texts, and the rows of each copy and its original."""
    n_copies = n_texts // 20
    texts = dict.fromkeys(pool[row] for row in rng.permutation(len(pool))[: n_texts - n_copies])
    while len(texts) < n_texts - n_copies:
        first, second = rng.integers(len(pool), size=2)
        texts[f"{pool[first]} {pool[second]}"] = None
    originals = list(texts)
    copies = []
    for row in rng.permutation(len(originals))[:n_copies].tolist():
        copy = edited(originals[row], rng, 0.1)
        if copy not in texts:
            copies.append((row, len(texts)))
            texts[copy] = None
    order = rng.permutation(len(texts))
    place_of = np.argsort(order)
    listed = list(texts)
    return [listed[row] for row in order], [(int(place_of[one]), int(place_of[other])) for one, other in copies]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[15_000, 60_000, 1_000_000])
    parser.add_argument("--peer", default=sys.executable)
    arguments = parser.parse_args()
    pool = sentences(arguments.data)
    with tempfile.TemporaryDirectory() as folder:
        from model2vec import StaticModel

        import isosent

        encoder = isosent.load("wordllama").encoder
        static = StaticModel(vectors=encoder.vectors, tokenizer=encoder.tokenizer.tokenizer, config={"normalize": True})
        static.save_pretrained(f"{folder}/model")
        for n_texts in arguments.sizes:
            texts, copies = texts_with_copies(pool, n_texts, np.random.default_rng(n_texts))
            Path(folder, "texts").write_text("".join(f"{text}\n" for text in texts), "utf-8")
            Path(folder, "copies").write_text(json.dumps(copies))
            for side, python, body in (("isosent", sys.executable, ISOSENT), ("semhash", arguments.peer, SEMHASH)):
                environment = {
                    key: value for key, value in os.environ.items() if side == "isosent" or key != "PYTHONPATH"
                }
                code = MEASURED.format(side=side, body=body)
                files = [f"{folder}/{name}" for name in ("texts", "model", "copies")]
                subprocess.run([python, "-c", code, *files], check=True, env=environment)


if __name__ == "__main__":
    main()
