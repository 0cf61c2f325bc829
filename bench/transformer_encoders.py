"""Transformer encoders against sentence-transformers on the CPU, in turns in one process. Prints JSON lines.

Texts of mixed length: each is a sentence of STS12-15 or STS-B, or, about one in five, several of them in a row.
"x" is the tokens per second of a method divided by those of sentence-transformers with its defaults in the same turn,
wall time, and "x processor" the same of processor time, which other work on the machine changes less. Peak memory is
measured in a separate process for each token budget (Linux only). With --products, only isosent and
sentence-transformers in float32, beside the matrix products of the layers alone, over as many tokens: no way of
computing the network is faster.
Usage: python bench/transformer_encoders.py MODEL DATA [--quick] [--repeats N] [--threads N ...] [--markdown]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import isosent
from isosent.evaluation.sts import read_sts
from whitening_fit import SEED, conditions

TASKS = ("STS12", "STS13", "STS14", "STS15", "STSB")
ONE_SENTENCE, MOST_SENTENCES = 0.78, 20
DEFAULT = "sentence-transformers, batch 32"
BATCH = 32
FEW = 500  # texts, evenly taken, for ways that are many times slower
PRODUCT_ROWS = 1024  # of a batch of isosent
BUDGETS = (256, 1024, 4096, 16384, 65536)
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_bf16", "amx_int8", "bf16", "i8mm", "asimd")


def mixed_texts(data, n_texts):
    """Texts of very different length: most are short, most tokens are in long ones."""
    sentences = sorted({text for task in read_sts(data, tasks=TASKS) for text in task.target_texts})
    rng = np.random.default_rng(SEED)
    is_one = rng.random(n_texts) < ONE_SENTENCE
    counts = np.where(is_one, 1, rng.integers(2, MOST_SENTENCES, size=n_texts, endpoint=True))
    return [" ".join(sentences[row] for row in rng.integers(len(sentences), size=count)) for count in counts]


def processor():
    """Name and instruction sets of the processor, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {"processor": None, "flags": []}
    said = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
    flags = set(said.get("flags", said.get("Features", "")).split())
    return {"processor": said.get("model name"), "flags": [flag for flag in FLAGS if flag in flags]}


def our_runtimes():
    """Backends and number types that this machine has."""
    flags = processor()["flags"]
    yield "torch", "float32"
    if {"avx512_bf16", "amx_bf16", "bf16"} & set(flags):
        yield "torch", "bfloat16"
    if any(map(shutil.which, ("c++", "g++", "clang++"))):
        yield "compiled", "float32"
    if find_spec("onnxruntime") and find_spec("onnx"):
        yield "onnx", "float32"
        yield "onnx", "int8"


def ways_of(folder, texts):
    """Every way, what it runs and the texts that it encodes; and the tokenizer."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(folder, device="cpu")

    def in_given_order(batch_size):
        def encode(part):
            batches = [part[start : start + batch_size] for start in range(0, len(part), batch_size)]
            return np.concatenate([theirs.encode(batch, batch_size=batch_size) for batch in batches])

        return encode

    few = texts[:: max(1, len(texts) // FEW)]
    ways = {
        DEFAULT: (lambda part: theirs.encode(part, batch_size=BATCH), texts),
        f"sentence-transformers, batch {BATCH}, texts not sorted": (in_given_order(BATCH), few),
        "sentence-transformers, one text at a time": (in_given_order(1), few),
    }
    for backend, dtype in our_runtimes():
        model = isosent.load(f"hf:{folder}", backend=backend, dtype=dtype)
        ways[f"isosent, {backend} {dtype}"] = (model.encode, texts)
    return ways, theirs.tokenizer


def measure(folder, texts, repeats, n_threads):
    import torch

    torch.set_num_threads(n_threads)
    ways, tokenizer = ways_of(folder, texts)
    expected = ways[DEFAULT][0](texts)
    cosines, n_tokens = {}, {}
    for name, (encode, part) in ways.items():  # for the second time nothing is compiled
        cosines[name] = lowest_cosine(encode(part), expected[:: len(texts) // len(part)])
        n_tokens[name] = sum(map(len, tokenizer(part, truncation=True)["input_ids"]))
    wall, busy, loads = {name: [] for name in ways}, {name: [] for name in ways}, []
    for _ in range(repeats):
        loads.append(os.getloadavg()[0])
        for name, (encode, part) in ways.items():
            start, busy_before = time.perf_counter(), time.process_time()
            encode(part)
            busy[name].append((time.process_time() - busy_before) / n_tokens[name])
            wall[name].append((time.perf_counter() - start) / n_tokens[name])
    for name, (_, part) in ways.items():
        tokens_a_text = n_tokens[name] / len(part)
        yield {
            "way": name,
            "threads": n_threads,
            "texts": len(part),
            "tokens": n_tokens[name],
            "per_second": 1 / float(np.median(wall[name])) / tokens_a_text,
            "best_per_second": 1 / min(wall[name]) / tokens_a_text,
            "x": float(np.median(np.divide(wall[DEFAULT], wall[name]))),
            "processor_ms_a_text": 1000 * float(np.median(busy[name])) * tokens_a_text,
            "x_processor": float(np.median(np.divide(busy[DEFAULT], busy[name]))),
            "lowest_cosine": cosines[name],
            "load": loads,
        }


def products_of(folder):
    """A function of a number of tokens: the products of all linear layers over so many, and their operations."""
    import torch
    from transformers import AutoModel

    from isosent.networks.unpadded import packed_product

    linear = [
        module
        for name, module in AutoModel.from_pretrained(folder).named_modules()
        if isinstance(module, torch.nn.Linear) and "pooler" not in name
    ]
    products = [packed_product(layer.weight, layer.bias, "float32") or layer for layer in linear]
    rows = {layer.in_features: torch.randn(PRODUCT_ROWS, layer.in_features) for layer in linear}

    def compute(n_tokens):
        with torch.inference_mode():
            for _ in range(n_tokens // PRODUCT_ROWS):
                for layer, product in zip(linear, products, strict=True):
                    product(rows[layer.in_features])

    return compute, sum(2 * layer.weight.numel() for layer in linear)


def roofline(folder, texts, repeats, n_threads):
    """Processor time of both encoders and of the products alone, in turns."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(n_threads)
    theirs, ours = SentenceTransformer(folder, device="cpu"), isosent.load(f"hf:{folder}")
    n_tokens = sum(map(len, theirs.tokenizer(texts, truncation=True)["input_ids"]))
    compute, operations = products_of(folder)
    runs = {
        DEFAULT: partial(theirs.encode, texts, batch_size=BATCH),
        "isosent, torch float32": partial(ours.encode, texts),
    }
    runs["products alone"] = partial(compute, n_tokens)
    busy = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            busy[name] += [time.process_time() - start] if turn else []
    for name, seconds in busy.items():
        ratios = {"x_processor": DEFAULT, "share_of_products": "products alone"}
        facts = {"way": name, "threads": n_threads, "tokens": n_tokens, "processor_s": float(np.median(seconds))}
        yield facts | {key: float(np.median(np.divide(busy[other], seconds))) for key, other in ratios.items()}
    yield {"products_gflop_a_processor_s": operations * n_tokens / 1e9 / float(np.median(busy["products alone"]))}


def lowest_cosine(found, expected):
    found, expected = (rows.astype(np.float64) for rows in (found, expected))
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return float(((found * expected).sum(axis=1) / lengths).min())


def memory_lines(folder, data, n_texts):
    """Peak memory of a process for each budget, and of one for sentence-transformers."""
    for budget in (0, *BUDGETS):
        command = [sys.executable, __file__, folder, data, "--memory-of", str(budget), "--texts", str(n_texts)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        yield json.loads(done.stdout.splitlines()[-1])


def memory_of(folder, data, n_texts, budget):
    """Peak of this process, above what it held when the model was ready; budget 0 is sentence-transformers."""
    texts = mixed_texts(data, n_texts)
    if budget:
        encode = isosent.load(f"hf:{folder}", batch_tokens=budget).encode
    else:
        from sentence_transformers import SentenceTransformer

        encode = SentenceTransformer(folder, device="cpu").encode
    encode(texts[:1])
    ready = resident("VmRSS")
    start = time.perf_counter()
    encode(texts)
    seconds = time.perf_counter() - start
    way = f"isosent, torch float32, {budget} tokens a batch" if budget else DEFAULT
    peak = resident("VmHWM")
    return {"way": way, "texts": n_texts, "per_second": n_texts / seconds, "ready_mb": ready, "more_mb": peak - ready}


def resident(kind):
    """Memory of this process in MB; not the one of getrusage, which a process inherits from its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024


def table(lines):
    print("| way | threads | texts/s | x | x processor | lowest cosine |\n|---|---|---|---|---|---|")
    for line in lines:
        if "x" in line:
            print(
                f"| {line['way']} | {line['threads']} | {line['per_second']:,.0f} | {line['x']:.2f} "
                f"| {line['x_processor']:.2f} | {line['lowest_cosine']:.7f} |"
            )
    print("\n| way | MB when ready | MB more at the peak | texts/s |\n|---|---|---|---|")
    for line in lines:
        if "ready_mb" in line:
            print(f"| {line['way']} | {line['ready_mb']:,.0f} | {line['more_mb']:,.0f} | {line['per_second']:,.0f} |")


def conditions_here():
    import torch

    packages = ("torch", "transformers", "sentence-transformers", "onnxruntime")
    return conditions() | {
        "threads": torch.get_num_threads(),
        "processor": processor(),
        "load": os.getloadavg(),
        "versions": {name: version(name) for name in packages if find_spec(name.replace("-", "_"))},
    }


def all_lines(arguments, n_texts):
    here = conditions_here()
    yield here
    texts = mixed_texts(arguments.data, n_texts)
    if arguments.products:
        for n_threads in arguments.threads or [here["threads"]]:
            yield from roofline(arguments.model, texts, arguments.repeats, n_threads)
        return
    for n_threads in arguments.threads or [here["threads"]]:
        yield from measure(arguments.model, texts, arguments.repeats, n_threads)
    if Path("/proc/self/status").exists():
        yield from memory_lines(arguments.model, arguments.data, n_texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a sentence-transformers model")
    parser.add_argument("data", help="folder with the STS files")
    parser.add_argument("--quick", action="store_true", help="fewer texts")
    parser.add_argument("--texts", type=int, help="how many")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="*", help="threads of torch; by default as many as it takes")
    parser.add_argument("--products", action="store_true", help="the matrix products alone, too; nothing else")
    parser.add_argument("--markdown", action="store_true", help="print tables in place of JSON lines")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", isosent.errors.TruncationWarning)
    n_texts = arguments.texts or (500 if arguments.quick else 5000)
    if arguments.memory_of is not None:
        print(json.dumps(memory_of(arguments.model, arguments.data, n_texts, arguments.memory_of)))
        return
    lines = []
    for line in all_lines(arguments, n_texts):
        lines.append(line)
        if not arguments.markdown:
            print(json.dumps(line), flush=True)
    if arguments.markdown:
        table(lines)


if __name__ == "__main__":
    main()
