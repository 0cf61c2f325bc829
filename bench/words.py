"""Zero-training encoders against a plain implementation and peers, in turns in one process. Prints JSON lines.

Sentences of STS-B; word vectors are random, one for each of their words, for the time does not depend on the numbers.
With a sub-word tokenizer: the model "wordllama", its files opened by model2vec and sentence-transformers too.
Usage: python bench/words.py DATA [--quick] [--repeats N] [--markdown]
"""

import argparse
import json
import os
import re
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import isosent
from isosent import Moments
from isosent.encoders.static import StaticEncoder
from isosent.evaluation.sts import read_sts
from isosent.numeric.gem import coarse_vectors, gem_vectors
from isosent.words.tokens import WordTokenizer
from isosent.words.vocabulary import Vocabulary
from whitening_fit import conditions

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "parity" / "references"))
import gem_reference

from isosent.encoders.word_average import Average, PowerMean

DIM = 300
WORDPUNCT = re.compile(r"\w+|[^\w\s]+")


def sentences(data, n_texts):
    texts = [text for task in read_sts(data, tasks=["STSB"]) for text in task.target_texts]
    return (texts * (n_texts // len(texts) + 1))[:n_texts]


def word_encoders(texts):
    words = list(dict.fromkeys(word for text in texts for word in WORDPUNCT.findall(text.lower())))
    vectors = (0.3 * np.random.default_rng(0).standard_normal((len(words), DIM))).astype(np.float32)
    tokenizer = WordTokenizer(Vocabulary.from_words(words), punctuation="gem")
    weightings = {
        "mean": Average(),
        "SIF": isosent.SIF(),
        "p-mean": PowerMean(),
        "p-mean, no z-norm": PowerMean(z_norm=False),
        "GEM": isosent.GEM(),
    }
    options = {"max_length": "none"}
    return {
        name: StaticEncoder("bench", options, tokenizer, vectors, weighting=kind) for name, kind in weightings.items()
    }


def plain_gem(encoder, texts):
    """The reference of the tests: QR of every window, SVD of every sentence."""
    tokens = encoder.tokenize(texts)
    sentences = [
        encoder.vectors[tokens.ids[a:b]].astype(np.float64)
        for a, b in zip(tokens.offsets, tokens.offsets[1:], strict=False)
    ]
    coarse = np.stack([gem_reference.coarse_vector(words, 3.0) for words in sentences if len(words)])
    principal = gem_reference.principal_vectors(coarse, 45)
    return [gem_reference.gem_vector(words, *principal) for words in sentences if len(words)]


def plain_mean(encoder, texts):
    """A regular expression, a dictionary, a mean of rows."""
    index = {word: row for row, word in enumerate(encoder.tokenizer.vocabulary())}
    means = np.zeros((len(texts), DIM), dtype=np.float32)
    for row, text in enumerate(texts):
        ids = [index[word] for word in WORDPUNCT.findall(text.lower()) if word in index]
        if ids:
            means[row] = encoder.vectors[ids].mean(axis=0)
    return means


def word_ways(texts, corpus):
    encoders = word_encoders(texts)
    fitted = {name: isosent.SentenceEncoder(encoder) for name, encoder in encoders.items()}
    fitted = {
        name: model.fitted(corpus, transform=None) if model.encoder.needs_corpus else model
        for name, model in fitted.items()
    }
    tokens = encoders["mean"].tokenize(texts)
    ways = {"plain mean: re, dict, numpy": (lambda: plain_mean(encoders["mean"], texts), len(texts))}
    for name, model in fitted.items():
        ways[f"{name}, plain text in"] = (lambda model=model: model.encode(texts), len(texts))
        ways[f"{name}, word ids in"] = (lambda model=model: model.transform(model.encoder.embed(tokens)), len(texts))
    ways |= kernel_ways(encoders["GEM"], corpus)
    gem = isosent.SentenceEncoder(encoders["GEM"])
    ways["GEM, fit and encode, plain text in"] = (lambda: gem.fitted(texts, transform=None).encode(texts), len(texts))
    few = texts[:500]
    ways["plain GEM: QR and SVD, fit and encode"] = (lambda: plain_gem(encoders["GEM"], few), len(few))
    return ways


def kernel_ways(encoder, texts):
    """The two kernels of GEM, without anything around them."""
    tokens, rows, weighting = encoder.tokenize(texts), encoder.vectors, encoder.weighting
    where = (tokens.ids, tokens.offsets)
    principal = weighting.principal(Moments.from_rows(coarse_vectors(rows, *where)))
    products = principal.products(rows)
    gem = partial(gem_vectors, rows, products, *where, principal=principal)
    return {
        "GEM, kernel alone": (gem, len(texts)),
        "GEM, kernel of coarse vectors alone": (lambda: coarse_vectors(rows, *where), len(texts)),
    }


def subword_ways(texts, n_runs):
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    model, uncached = isosent.load("wordllama"), isosent.load("wordllama")
    uncached.encoder.tokenizer._tokenize = uncached.encoder.tokenizer._whole_texts
    unused = iter([isosent.load("wordllama") for _ in range(n_runs)])  # one that has seen no text for each run
    tokenizer = model.encoder.tokenizer.tokenizer
    vectors = model.encoder.vectors
    model2vec = StaticModel(vectors=vectors, tokenizer=tokenizer, config={})
    transformer = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)], device="cpu")
    return {
        "isosent mean, sub-words, texts unseen": (lambda: next(unused).encode(texts), len(texts)),
        "isosent mean, sub-words, texts seen": (lambda: model.encode(texts), len(texts)),
        "isosent mean, sub-words, without the token cache": (lambda: uncached.encode(texts), len(texts)),
        "the tokenizer library alone": (
            lambda: tokenizer.encode_batch_fast(texts, add_special_tokens=False),
            len(texts),
        ),
        "model2vec encode": (lambda: model2vec.encode(texts, use_multiprocessing=False), len(texts)),
        "sentence-transformers StaticEmbedding": (
            lambda: transformer.encode(texts, show_progress_bar=False),
            len(texts),
        ),
    }


def measure(ways, repeats, threads):
    os.environ["OMP_NUM_THREADS"] = str(threads)
    with threadpool_limits(threads):
        seconds, busy = {name: [] for name in ways}, {name: [] for name in ways}
        for name, (run, _) in ways.items():
            if not name.startswith("plain GEM"):
                run()
        for _ in range(repeats):
            for name, (run, _) in ways.items():
                start, busy_before = time.perf_counter(), time.process_time()
                run()
                busy[name].append(time.process_time() - busy_before)
                seconds[name].append(time.perf_counter() - start)
    for name, (_, n_texts) in ways.items():
        yield {
            "way": name,
            "threads": threads,
            "texts": n_texts,
            "per_second": n_texts / float(np.median(seconds[name])),
            "best_per_second": n_texts / min(seconds[name]),
            "per_processor_second": n_texts / float(np.median(busy[name])),
        }


def table(lines):
    print("| way | threads | sentences/s, median | best | per second of processor time |\n|---|---|---|---|---|")
    for line in lines:
        rates = " | ".join(f"{line[name]:,.0f}" for name in ("per_second", "best_per_second", "per_processor_second"))
        print(f"| {line['way']} | {line['threads']} | {rates} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder with the STS files")
    parser.add_argument("--quick", action="store_true", help="fewer sentences")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--markdown", action="store_true", help="print a table in place of JSON lines")
    arguments = parser.parse_args()
    texts = sentences(arguments.data, 20_000 if arguments.quick else 100_000)
    distinct = list(dict.fromkeys(texts[:17_000]))
    lines = []
    for threads in (1, 2):
        lines += measure(word_ways(texts, texts[:17_000]), arguments.repeats, threads)
        lines += measure(subword_ways(distinct, arguments.repeats + 1), arguments.repeats, threads)
    if arguments.markdown:
        table(lines)
    else:
        print("\n".join(map(json.dumps, [conditions(), *lines])))


if __name__ == "__main__":
    main()
