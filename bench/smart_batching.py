"""Batches of texts of like length, in encoding and in training, on and off, in turns in one process. Prints JSON lines.

The table has the shape of Table 7 of Reimers & Gurevych 2019: sentences a second of averaged word vectors and of a
transformer, with and without smart batching. Then examples a second of training the same transformer, cut to a few
layers, by the plain trainer of sentence-transformers and with each way to make batches. Texts are sentences of STS12-15
and STS-B and pairs of natural language inference, in random order. "x" is against the way named first in its group, by
processor time, which other work on the machine changes less than wall time.
Usage: python bench/smart_batching.py MODEL DATA --nli FILE [...] [--vectors FILE] [--texts N] [--examples N]
       [--layers N] [--quick] [--repeats N] [--threads N] [--markdown]
"""

import argparse
import json
import logging
import os
import tempfile
import time
import warnings
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from threadpoolctl import threadpool_limits
from transformers import PrinterCallback, ProgressCallback

import isosent
from isosent.evaluation.sts import read_sts
from isosent.training.objectives import make_loss
from isosent.training.settings import BATCHINGS, TrainingSettings
from isosent.training.trainer import batch_sampler, example_lengths
from whitening_fit import SEED, conditions

TASKS = ("STS12", "STS13", "STS14", "STS15", "STSB")
LABELS = ("contradiction", "entailment", "neutral")
BATCH, TRAINING_BATCH = 32, 16
PLAIN = "sentence-transformers' own batches"


def read_pairs(files):
    """Premises, hypotheses and labels; pairs without a label are left out."""
    lines = [json.loads(line) for file in files for line in Path(file).read_text().splitlines()]
    lines = [line for line in lines if line["label"] in LABELS]
    return (
        [line["premise"] for line in lines],
        [line["hypothesis"] for line in lines],
        [LABELS.index(line["label"]) for line in lines],
    )


def some(columns, n_rows, rng):
    rows = rng.permutation(len(columns[0]))[:n_rows]
    return [[column[row] for row in rows] for column in columns]


def in_given_order(encode, size):
    def encode_parts(texts):
        return np.concatenate([encode(texts[start : start + size]) for start in range(0, len(texts), size)])

    return encode_parts


def ways_to_encode(model, vectors):
    """Groups of ways; the first of each is the one without smart batching."""
    theirs = SentenceTransformer(model, device="cpu")
    ours = {"transformer": isosent.load(f"hf:{model}").encode}
    if vectors:
        ours = {"averaged word vectors": isosent.load(f"words:{vectors}").encode} | ours
    for name, encode in ours.items():
        yield {
            f"isosent, {name}, {BATCH} in the given order": in_given_order(encode, BATCH),
            f"isosent, {name}, one at a time": in_given_order(encode, 1),
            f"isosent, {name}, all at once": encode,
        }
    encode = partial(theirs.encode, batch_size=BATCH, show_progress_bar=False)
    yield {
        f"sentence-transformers, {BATCH} in the given order": in_given_order(encode, BATCH),
        "sentence-transformers, one at a time": in_given_order(encode, 1),
        f"sentence-transformers, batch {BATCH}, sorted by characters": encode,
    }


def measure_encoding(model, vectors, texts, repeats):
    for ways in ways_to_encode(model, vectors):
        seconds = {name: [] for name in ways}
        for encode in ways.values():
            encode(texts[:BATCH])
        for _ in range(repeats):
            for name, encode in ways.items():
                seconds[name].append(clocked(encode, texts))
        yield from lines_of("encode", seconds, len(texts))


def clocked(call, *arguments):
    """Seconds on the wall and of the processor."""
    wall, busy = time.perf_counter(), time.process_time()
    call(*arguments)
    return time.perf_counter() - wall, time.process_time() - busy


def lines_of(kind, seconds, n_items, more=None):
    first = np.array(next(iter(seconds.values())))
    for name, taken in seconds.items():
        wall, busy = np.median(taken, axis=0)
        yield {
            "kind": kind,
            "way": name,
            "items": n_items,
            "per_second": n_items / float(wall),
            "per_processor_second": n_items / float(busy),
            "x": float(np.median(first[:, 1] / np.array(taken)[:, 1])),
        } | (more or {}).get(name, {})


def small_transformer(folder, n_layers):
    """The first layers of a transformer, with its tokenizer."""
    model = SentenceTransformer(folder, device="cpu")
    network = model[0].auto_model
    network.encoder.layer = network.encoder.layer[:n_layers]
    network.config.num_hidden_layers = len(network.encoder.layer)
    return model


def train(folder, n_layers, columns, sampler):
    """Clock one epoch of the trainer as it is; `sampler` None is its own way to make batches."""
    model = small_transformer(folder, n_layers)
    loss = make_loss(model, TrainingSettings(), n_classes=len(LABELS))
    data = Dataset.from_dict(dict(zip(("sentence1", "sentence2", "label"), columns, strict=True)))
    with tempfile.TemporaryDirectory() as output:
        arguments = SentenceTransformerTrainingArguments(
            output,
            per_device_train_batch_size=TRAINING_BATCH,
            num_train_epochs=1,
            learning_rate=2e-5,
            seed=SEED,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            **({} if sampler is None else {"batch_sampler": sampler}),
        )
        trainer = SentenceTransformerTrainer(model, arguments, data, loss=loss)
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        return clocked(trainer.train)


def measure_training(folder, n_layers, columns, repeats):
    lengths = example_lengths(small_transformer(folder, 1).preprocess, columns[:2])
    n_examples = len(lengths)
    samplers = {
        "random": batch_sampler(),
        "length": batch_sampler(lengths=lengths),
    }
    facts = {
        name: {
            "batches": len(batches),
            "padded_a_token": sum(len(batch) * lengths[batch].max(axis=0).sum() for batch in batches) / lengths.sum(),
        }
        for name in BATCHINGS
        for batches in [samplers[name](range(n_examples), batch_size=TRAINING_BATCH, seed=SEED)]
    }
    ways = {PLAIN: None, **samplers}
    train(folder, n_layers, [column[: 2 * TRAINING_BATCH] for column in columns], None)
    seconds = {name: [] for name in ways}
    for _ in range(repeats):
        for name, sampler in ways.items():
            seconds[name].append(train(folder, n_layers, columns, sampler))
    for line in lines_of("train", seconds, n_examples, facts):
        yield line | {"layers": n_layers, "batch": TRAINING_BATCH}


def all_lines(arguments):
    packages = ("torch", "transformers", "sentence-transformers", "accelerate", "datasets")
    yield conditions() | {
        "threads": arguments.threads,
        "load": os.getloadavg(),
        "seed": SEED,
        "versions": {name: version(name) for name in packages},
    }
    rng = np.random.default_rng(SEED)
    premises, hypotheses, labels = read_pairs(arguments.nli)
    sentences = {text for task in read_sts(arguments.data, tasks=TASKS) for text in task.target_texts}
    (texts,) = some([sorted(sentences | {*premises, *hypotheses})], arguments.texts, rng)
    yield from measure_encoding(arguments.model, arguments.vectors, texts, arguments.repeats)
    examples = some([premises, hypotheses, labels], arguments.examples, rng)
    yield from measure_training(arguments.model, arguments.layers, examples, arguments.repeats)


def table(lines):
    print("| encoding | sentences/s | sentences / processor second | x |\n|---|---|---|---|")
    for line in lines:
        if line.get("kind") == "encode":
            print(f"| {line['way']} | {rates(line)} | {line['x']:.2f} |")
    print("\n| training | batches | tokens with padding / without | examples/s | examples / processor second | x |")
    print("|---|---|---|---|---|---|")
    for line in lines:
        if line.get("kind") == "train":
            padded = f"{line['padded_a_token']:.2f}" if "padded_a_token" in line else ""
            cells = line["way"], line.get("batches", ""), padded, rates(line), f"{line['x']:.2f}"
            print(f"| {' | '.join(map(str, cells))} |")


def rates(line):
    return f"{line['per_second']:,.0f} | {line['per_processor_second']:,.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a sentence-transformers model of the shape of BERT")
    parser.add_argument("data", help="folder with the STS files")
    parser.add_argument("--nli", nargs="+", required=True, help="files of lines with premise, hypothesis and label")
    parser.add_argument("--vectors", help="file of word vectors")
    parser.add_argument("--texts", type=int, help="texts to encode")
    parser.add_argument("--examples", type=int, help="pairs to train on")
    parser.add_argument("--layers", type=int, default=2, help="layers of the model that is trained")
    parser.add_argument("--quick", action="store_true", help="fewer texts and pairs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", action="store_true", help="print tables in place of JSON lines")
    arguments = parser.parse_args()
    arguments.texts = arguments.texts or (500 if arguments.quick else 5000)
    arguments.examples = arguments.examples or (320 if arguments.quick else 3200)
    warnings.simplefilter("ignore")
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    torch.set_num_threads(arguments.threads)
    lines = []
    with threadpool_limits(arguments.threads):
        for line in all_lines(arguments):
            lines.append(line)
            if not arguments.markdown:
                print(json.dumps(line), flush=True)
    if arguments.markdown:
        table(lines)


if __name__ == "__main__":
    main()
