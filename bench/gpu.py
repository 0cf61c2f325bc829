"""Each way that isosent computes a transformer on a GPU, checked against the CPU, beside sentence-transformers.

One run of under five minutes on one GPU. Every line is a check: what is compared, the bound, and "ok" or "WRONG".
A part that fails with an error is a wrong check, and the others run all the same. Speeds are texts per second by the
clock, of isosent and of sentence-transformers in turns on the same device and texts, each after a run that is not
counted. Exits with 1 if a check is wrong. Texts are made of the bundled sentences. On the CPU, networks of the BERT
family are computed without padding, on a GPU with it, so every comparison of the two covers both.
`--device cpu` is a dry run: all that needs a GPU is left out, and said.

Usage: python bench/gpu.py MODEL [--device cuda] [--texts 4000]       MODEL: a folder, or an id of the hub
Needs the extras plm and train. Prints JSON lines.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch

import isosent
from isosent.numeric.similarity import pairwise_cosine, unit_rows
from isosent.training import read_examples, train

# Largest difference of an entry of unit vectors, and lowest cosine, to float32 on the CPU. float32: rounding in another
# order, and TF32 is off by default in torch; bfloat16 has 8 bits of mantissa, float16 has 11
BOUNDS = {"float32": (5e-5, 0.99999), "float16": (5e-3, 0.9995), "bfloat16": (4e-2, 0.995)}
INT8_COSINE = 0.97  # on the CPU, which alone has it
OPTIONS = (
    *("layers=-1&pooling=mean", "layers=0,-1&pooling=max", "layers=-1&pooling=cls,last_token", "pooling=sbert_wk"),
    "layers=1&pooling=mean&prompt=say {text} again: {text}",  # each text has another number of tokens not pooled
)
FEW = 64
ROOM = 2**29  # bytes of memory next to the weights, for batches that do not fit
failures = []


def check(name, ok, **facts):
    """Print a check, and remember one that is wrong."""
    if not ok:
        failures.append(name)
    print(json.dumps({"check": name, "result": "ok" if ok else "WRONG", **facts}), flush=True)


def part(function, *arguments):
    """Run a part; an error is a wrong check, so that a run on a GPU shows as much as it can."""
    started = time.perf_counter()
    try:
        return function(*arguments)
    except Exception as error:
        traceback.print_exc()
        check(function.__name__, False, error=f"{type(error).__name__}: {error}")
    finally:
        print(json.dumps({"part": function.__name__, "seconds": round(time.perf_counter() - started, 1)}), flush=True)


def left_out(name, reason):
    print(json.dumps({"check": name, "result": "left out", "reason": reason}), flush=True)


def mixed_texts(n_texts):
    """Texts of one to twenty of the bundled sentences, four in five of them of one."""
    sentences, rng = isosent.demo_texts(), np.random.default_rng(0)
    counts = np.where(rng.random(n_texts) < 0.8, 1, rng.integers(2, 21, size=n_texts))
    return [f"{row}: " + " ".join(rng.choice(sentences, size=count)) for row, count in enumerate(counts)]


def agree(name, vectors, reference, dtype):
    """Compare vectors with those of the CPU in float32, within the bounds of a dtype."""
    most, lowest = BOUNDS[dtype]
    difference = float(np.abs(unit_rows(vectors) - unit_rows(reference)).max())
    cosine = float(pairwise_cosine(vectors, reference).min())
    ok = bool(np.isfinite(vectors).all()) and difference <= most and cosine >= lowest
    check(name, ok, largest_difference=difference, bound=most, lowest_cosine=cosine, bound_of_cosine=lowest)


def vectors_by(reference, texts, device, options="", **more):
    named = [f"{name}={value}" for name, value in {**more, "devices": device}.items()]
    return isosent.load(f"{reference}?{'&'.join([options, *named] if options else named)}").encode(texts)


def values(reference, texts, on_cpu, device):
    """Numbers: dtypes, layers and poolings, batches, several devices."""
    is_gpu = device != "cpu"
    for dtype in ("float32", "bfloat16", *(["float16"] if is_gpu else [])):
        agree(f"{dtype} on {device}", vectors_by(reference, texts, device, dtype=dtype), on_cpu, dtype)
    if not is_gpu:
        left_out("float16", "needs a GPU")
    for options in OPTIONS:
        expected = vectors_by(reference, texts[:FEW], "cpu", options)
        agree(f"{options} on {device}", vectors_by(reference, texts[:FEW], device, options), expected, "float32")
    # no padding on the CPU; one text alone has none anywhere
    alone = np.vstack([vectors_by(reference, [text], device) for text in texts[:4]])
    agree(f"one text at a time on {device}", alone, on_cpu[:4], "float32")
    small = vectors_by(reference, texts, device, batch_tokens=128)  # more batches than wait on a GPU at once
    agree(f"batches of 128 tokens on {device}", small, on_cpu, "float32")
    try:
        as_int8 = vectors_by(reference, texts[:FEW], "cpu", dtype="int8")
        cosine = float(pairwise_cosine(as_int8, on_cpu[:FEW]).min())
        check("int8 on cpu", cosine >= INT8_COSINE, lowest_cosine=cosine, bound=INT8_COSINE)
    except isosent.IsosentError as error:
        left_out("int8 on cpu", str(error))
    if is_gpu and torch.cuda.device_count() > 1:
        names = ",".join(f"cuda:{number}" for number in range(torch.cuda.device_count()))
        agree(f"{names} share the batches", vectors_by(reference, texts, names, batch_tokens=1024), on_cpu, "float32")
    else:
        left_out("several devices", f"{torch.cuda.device_count()} GPUs")


def layers(reference, texts, device):
    """Layers stop early, and the states of tokens come back too."""
    encoder = isosent.load(f"{reference}?layers=1&devices={device}").encoder
    sums = {name: np.zeros((len(texts), encoder.dim)) for name in ("cpu", device)}
    for name, total in sums.items():
        on = encoder.on_device(name)

        def see(rows, ids, states, total=total):
            np.add.at(total, rows, states)

        agree(
            f"layer 1 on {name}", on.encode_with_tokens(texts, see), encoder.on_device("cpu").encode(texts), "float32"
        )
    agree(f"sums of tokens on {device}", sums[device], sums["cpu"], "float32")
    prepared = encoder.network.prepared[device, "float32"]
    check(f"layers above the highest are not computed on {device}", prepared.stops_early, way=type(prepared).__name__)


def compiled(reference, texts, on_cpu, device):
    """What torch compiles."""
    if device == "cpu":
        left_out("compiled", "takes minutes on a CPU")
        return
    agree(f"compiled on {device}", vectors_by(reference, texts, device, backend="compiled"), on_cpu, "float32")


def halving(reference, texts, on_cpu, device):
    """A batch that does not fit is halved, with one warning and the same vectors."""
    if device == "cpu":
        left_out("a batch that does not fit is halved", "needs a GPU")
        return
    total = torch.cuda.get_device_properties(0).total_memory
    model = isosent.load(f"{reference}?devices={device}&batch_tokens=4194304")
    model.encode(texts[:4])
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_allocated() + ROOM) / total))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            vectors = model.encode(texts)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    n_warnings = sum("halved" in str(each.message) for each in caught)
    check("a batch that does not fit is halved, with one warning", n_warnings == 1, warnings=n_warnings)
    agree("halved batches", vectors, on_cpu, "float32")


def speeds(path, reference, texts, device):
    """Texts per second beside sentence-transformers, in turns; and its vectors."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(path, device=device)
    expected = theirs.encode(texts[:FEW])
    agree("vectors of sentence-transformers", vectors_by(reference, texts[:FEW], device), expected, "float32")
    ways = {"sentence-transformers, batch 32": lambda: theirs.encode(texts)}
    ways["sentence-transformers, batch 256"] = lambda: theirs.encode(texts, batch_size=256)
    if device != "cpu":
        half = SentenceTransformer(path, device=device, model_kwargs={"dtype": torch.float16})
        ways["sentence-transformers, float16, batch 256"] = lambda: half.encode(texts, batch_size=256)
    for dtype in ("float32", "bfloat16", *(["float16"] if device != "cpu" else [])):
        model = isosent.load(f"{reference}?devices={device}&dtype={dtype}")
        ways[f"isosent, {dtype}"] = lambda model=model: model.encode(texts)
    rates = {name: [] for name in ways}
    for turn in range(3):
        for name, way in ways.items():
            started = time.perf_counter()
            way()  # ends with vectors in the memory of the CPU, so the device has finished
            if turn:
                rates[name].append(len(texts) / (time.perf_counter() - started))
    usual = max(rates["sentence-transformers, batch 32"])
    for name, each in rates.items():
        print(json.dumps({"speed": name, "texts_per_s": round(max(each), 1), "x": round(max(each) / usual, 2)}))


def training(reference, device):
    """A few steps of training change the weights, to finite numbers, and the saved model gives the same on the CPU."""
    sentences = isosent.demo_texts()[:64]
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "pairs.tsv"), Path(folder, "trained")
        rows = [f"{a}\t{b}\t{score}" for score, (a, b) in enumerate(zip(sentences[::2], sentences[1::2], strict=True))]
        data.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n", "utf-8")
        before = vectors_by(reference, sentences, "cpu")
        started = time.perf_counter()
        result = train(reference, read_examples("regression", [data], score_range=(0, 31)), out, batch_size=8)
        seconds = time.perf_counter() - started
        after = isosent.load(f"{out}?devices=cpu").encode(sentences)
        moved = float(np.abs(unit_rows(after) - unit_rows(before)).max())
        ok = bool(np.isfinite(after).all()) and 1e-6 < moved < 1
        check("a step of training", ok, moved=moved, seconds=round(seconds, 1), device=device)
        agree("the trained model, saved and opened on cpu", after, result.model.encode(sentences), "float32")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--texts", type=int, default=4000)
    arguments = parser.parse_args()
    if arguments.device != "cpu" and not torch.cuda.is_available():
        sys.exit("gpu.py: torch finds no GPU. For a dry run: --device cpu --texts 50")
    name = "cpu" if arguments.device == "cpu" else torch.cuda.get_device_name(arguments.device)
    started = time.perf_counter()
    facts = {"torch": torch.__version__, "texts": arguments.texts, "cpu_threads": torch.get_num_threads()}
    precision = torch.get_float32_matmul_precision()  # "highest": without TF32
    print(json.dumps({"device": name, **facts, "float32_products": precision}), flush=True)
    texts, reference = mixed_texts(arguments.texts), f"hf:{arguments.model}"
    some = texts[: max(FEW, arguments.texts // 8)]
    on_cpu, device = vectors_by(reference, some, "cpu"), arguments.device
    part(values, reference, some, on_cpu, device)
    part(layers, reference, some[:FEW], device)
    part(halving, reference, some, on_cpu, device)
    part(training, reference, device)
    part(speeds, arguments.model, reference, texts, device)
    part(compiled, reference, some[:FEW], on_cpu[:FEW], device)  # last: it takes longest, and its tools may be missing
    print(json.dumps({"wrong": failures, "seconds": round(time.perf_counter() - started, 1)}))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
