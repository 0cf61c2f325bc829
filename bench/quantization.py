"""Bytes, recall and speed of vectors as float32, float16, int8 and bits, with fewer dimensions, and after whitening.

Prints a JSON line for each row of the tables of docs/research/quantization.md, or with --markdown the tables. DATA
holds the STS
sets. Usage: python bench/quantization.py table|ranges|bits DATA NAME=REFERENCE ... [--tuning] [--korsts FILE]
[--markdown]

The texts are the sentences of the evaluated pairs of all sets in DATA. Half of them, by sets of sentences that pairs
scored 4.5 or more connect, is for fitting. Queries are from the other half, or with --tuning the reverse; they are
searched among all sentences, and never find themselves. One thread; times are processor time, median of 3. "table"
searches as an index does; "ranges" and "bits" compare what the constants of a quantization were chosen from.
"""

import argparse
import json
import time

import faiss
import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from threadpoolctl import threadpool_limits

from isosent import PrincipalComponents, Whitening, load
from isosent.evaluation.sts import pairs_task, read_sts
from isosent.numeric.similarity import unit_rows
from isosent.search.build import finer_codes
from isosent.search.engine import SearchSettings, Segment, bytes_per_vector, empty_codes
from isosent.storage import INDEXED, Storage
from isosent.transforms.quantization import Quantization

K = 10
LEAST_SCORE = 4.5
N_QUERIES = 2_000  # neighbors of sentences
BATCH = 100
WIDTH = 128
OVERSAMPLING = 10
N_CANDIDATES = 100
CANDIDATES = (10, 20, 50, 100, 500)
SAMPLES = (100, 1_000, None)
REPEATS = 3
DEVIATIONS = (3.5, 4, 4.5, 5, 6)


class Sentences:
    """Sentences of the STS sets, and pairs of them that mean the same."""

    def __init__(self, data, *, tuning=False):
        sets = read_sts(data)
        self.texts = list(dict.fromkeys(text for each in sets for text in each.texts))
        row = {text: number for number, text in enumerate(self.texts)}
        pairs = {
            tuple(sorted((row[one], row[other])))
            for each in sets
            for subset in each.subsets
            for one, other, score in zip(subset.first, subset.second, subset.scores, strict=True)
            if score >= LEAST_SCORE and one != other
        }
        pairs = np.array(sorted(pairs))
        n = len(self.texts)
        _, group = connected_components(coo_matrix((np.ones(len(pairs)), pairs.T), (n, n)), directed=False)
        rng = np.random.default_rng(0)
        is_fitted = (rng.integers(2, size=n)[group] == 0) ^ tuning
        self.fitted, others = np.flatnonzero(is_fitted), np.flatnonzero(~is_fitted)
        self.queries = rng.permutation(others)[:N_QUERIES]
        directed = np.concatenate([pairs, pairs[:, ::-1]])
        self.pairs = directed[~is_fitted[directed[:, 0]]]


def without(found, rows):
    """Leave out the query itself, or else the last result."""
    keep = found != rows[:, None]
    keep[keep.all(axis=1), -1] = False
    return found[keep].reshape(len(found), -1)


def search(index, queries, k):
    """Rows found, and the queries per second of processor time."""
    times = []
    for _ in range(REPEATS):
        start = time.thread_time()
        found = [index(queries[row : row + BATCH], k) for row in range(0, len(queries), BATCH)]
        times.append(time.thread_time() - start)
    return np.concatenate(found), len(queries) / float(np.median(times))


def flat(codes):
    return lambda queries, k: codes.search(queries, k)[1]


def rescored(index, fine, n_candidates=N_CANDIDATES):
    """Score the candidates of an index again."""

    def search_and_score(queries, k):
        found = index(queries, n_candidates + 1)
        scores = np.einsum("qd,qkd->qk", queries, fine[found])
        return np.take_along_axis(found, np.argsort(-scores, axis=1, kind="stable")[:, :k], axis=1)

    return search_and_score


def scalar(vectors, number_type, ranges=None):
    index = faiss.IndexScalarQuantizer(vectors.shape[1], number_type, faiss.METRIC_INNER_PRODUCT)
    if ranges is not None:
        faiss.copy_array_to_vector(np.concatenate(ranges).astype(np.float32), index.sq.trained)
    index.is_trained = True
    index.add(vectors)
    return flat(index)


def exact(vectors):
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return flat(index)


def rabitq(vectors, center, rotation, query_bits=8):
    """RaBitQ on centred and rotated vectors."""
    index = faiss.IndexRaBitQ(vectors.shape[1], faiss.METRIC_INNER_PRODUCT)
    faiss.copy_array_to_vector((center @ rotation).astype(np.float32), index.center)
    index.is_trained, index.qb = True, query_bits
    index.add(vectors @ rotation)
    return lambda queries, k: index.search(queries @ rotation, k)[1]


def hamming(vectors, center, rotation):
    """Number of equal bits."""

    def codes(rows):
        return np.packbits((rows - center) @ rotation > 0, axis=1)

    index = faiss.IndexBinaryFlat(8 * codes(vectors[:1]).shape[1])
    index.add(codes(vectors))
    return lambda queries, k: index.search(codes(queries), k)[1]


def shared(found, queries, neighbors):
    """Share of the nearest rows that are found, in percent."""
    pairs = zip(without(found, queries), neighbors, strict=True)
    return round(100 * float(np.mean([len(np.intersect1d(*pair)) / K for pair in pairs])), 2)


def scores_of(index, vectors, sentences, neighbors):
    found, speed = search(index, vectors[sentences.queries], K + 1)
    queries, targets = sentences.pairs.T
    labeled = without(np.concatenate([index(vectors[rows], K + 1) for rows in np.array_split(queries, 40)]), queries)
    return {
        "recall": shared(found, sentences.queries, neighbors),
        "labelled": round(100 * float((labeled == targets[:, None]).any(axis=1).mean()), 2),
        "queries_per_s": round(speed),
    }


def neighbors_of(vectors, queries):
    return without(exact(vectors)(vectors[queries], K + 1), queries)


def units(vectors, transform=None):
    return unit_rows(vectors if transform is None else transform.transform(vectors)).astype(np.float32)


def stored(rows, store, quantization, *, oversampling=0):
    """Search as an index of isosent does, with the best candidates scored again or without."""
    settings = SearchSettings(store=store, oversampling=oversampling)
    codes = empty_codes(rows.shape[1], settings, quantization)
    codes.add(rows)
    finer = finer_codes(rows.shape[1], settings, quantization) if oversampling else None
    if finer is not None:
        finer.add(rows)
    segment = Segment(codes, finer, np.zeros(len(rows), bool))
    return lambda queries, k: segment.search(queries, k, settings)[1]


def table(vectors, sentences, _):
    """What each way to store vectors costs and keeps."""
    raw = units(vectors)
    spaces = {
        "": raw,
        f"{WIDTH} dimensions, ": units(vectors, PrincipalComponents(WIDTH).fit(vectors[sentences.fitted])),
        "whitened, ": units(vectors, Whitening().fit(vectors[sentences.fitted])),
        f"whitened, {WIDTH} dimensions, ": units(vectors, Whitening(WIDTH).fit(vectors[sentences.fitted])),
    }
    for name, rows in spaces.items():
        # whitening is to change who is near: its number types are compared with its own float32
        neighbors = neighbors_of(rows if "whitened" in name else raw, sentences.queries)
        quantization = Quantization.fit(rows[sentences.fitted])
        for store in (Storage.float32, Storage.int8) if "dimensions" in name else INDEXED:
            n_bytes = round(bytes_per_vector(rows.shape[1], "flat", store))
            record = {"vectors": name + store, "bytes": n_bytes}
            yield record | scores_of(stored(rows, store, quantization), rows, sentences, neighbors)
            if store.is_bits:
                record["vectors"] += ", rescored"
                index = stored(rows, store, quantization, oversampling=OVERSAMPLING)
                yield record | scores_of(index, rows, sentences, neighbors)
                index = hamming(rows, quantization.center, quantization.rotation)
                record = {"vectors": f"{name}plain signs", "bytes": -(-rows.shape[1] // 8)}
                yield record | scores_of(index, rows, sentences, neighbors)
                index, record["vectors"] = rescored(index, rows), f"{name}plain signs, rescored"
                yield record | scores_of(index, rows, sentences, neighbors)


def ranges(vectors, sentences, foreign):
    """Where the range of a dimension ends, by the number of rows that it is fitted on."""
    rows = units(vectors)
    searched = {"recall": (rows, sentences.queries)}
    if foreign is not None:
        searched["recall_of_korean"] = units(foreign), np.arange(min(len(foreign), N_QUERIES))
    neighbors = {name: neighbors_of(*each) for name, each in searched.items()}
    for n_rows in SAMPLES:
        sample = rows[np.random.default_rng(2).permutation(sentences.fitted)[:n_rows]]
        low, high, mean, deviation = sample.min(axis=0), sample.max(axis=0), sample.mean(axis=0), sample.std(axis=0)
        tenth = (high - low) / 10
        ways = {
            "least and largest": (low, high),
            "least and largest, a tenth more": (low - tenth, high + tenth),
            "quantiles 0.001 and 0.999": tuple(np.quantile(sample, [0.001, 0.999], axis=0)),
            "one range": (np.full_like(low, low.min()), np.full_like(high, high.max())),
        }
        ways |= {f"mean +- {n} deviations": (mean - n * deviation, mean + n * deviation) for n in DEVIATIONS}
        for way, (bottom, top) in ways.items():
            record = {"ranges": way, "fitted_on": len(sample)}
            for name, (stored, queries) in searched.items():
                index = scalar(stored, faiss.ScalarQuantizer.QT_8bit, (bottom, top - bottom))
                record[name] = shared(index(stored[queries], K + 1), queries, neighbors[name])
            yield record


def rotations(sample, rng):
    """Centre and rotation by name."""
    dim = sample.shape[1]
    mean, zero, one = sample.mean(axis=0), np.zeros(dim, np.float32), np.eye(dim, dtype=np.float32)
    random = np.linalg.qr(rng.standard_normal((dim, dim)))[0].astype(np.float32)
    axes = np.linalg.eigh(np.cov(sample.T))[1][:, ::-1].astype(np.float32)
    return {
        "as they are": (zero, one),
        "centred": (mean, one),
        "rotated": (zero, random),
        "centred, rotated": (mean, random),
        "principal axes": (mean, axes),
        "principal axes, rotated": (mean, axes @ random),
        "ITQ": (mean, axes @ itq((sample - mean) @ axes, random)),
    }


def itq(centered, rotation, n_steps=50):
    """Iterative quantization (Gong and Lazebnik 2011): the rotation that leaves signs the nearest."""
    for _ in range(n_steps):
        left, _, right = np.linalg.svd(np.sign(centered @ rotation).T @ centered)
        rotation = (left @ right).T
    return rotation.astype(np.float32)


def bits(vectors, sentences, _):
    """Recall by the number of candidates that are scored again."""
    rows = units(vectors)
    queries = sentences.queries
    neighbors = neighbors_of(rows, queries)
    indexes = {"signs": hamming, "RaBitQ": rabitq}
    for name, (center, rotation) in rotations(rows[sentences.fitted], np.random.default_rng(0)).items():
        for kind, make in indexes.items():
            index = make(rows, center, rotation)
            yield {"bits": name, "index": kind} | {
                f"recall_of_{n}": shared(rescored(index, rows, n)(rows[queries], K + 1), queries, neighbors)
                for n in CANDIDATES
            }


MEASURES = {"table": table, "ranges": ranges, "bits": bits}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("data")
    parser.add_argument("models", nargs="+", metavar="NAME=REFERENCE")
    parser.add_argument("--tuning", action="store_true", help="exchange the halves")
    parser.add_argument("--korsts", metavar="FILE", help="ranges: also search these sentences, in another language")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    sentences = Sentences(arguments.data, tuning=arguments.tuning)
    conditions = {"sentences": len(sentences.texts), "pairs": len(sentences.pairs), "queries": len(sentences.queries)}
    print(json.dumps(conditions))
    columns = None
    for model in arguments.models:
        name, _, reference = model.partition("=")
        encoder = load(reference)
        vectors, foreign = encoder.encode(sentences.texts), None
        if arguments.korsts:
            foreign = encoder.encode(list(dict.fromkeys(pairs_task(arguments.korsts).target_texts)))
        with threadpool_limits(1):
            faiss.omp_set_num_threads(1)
            for record in MEASURES[arguments.measure](vectors, sentences, foreign):
                record = {"encoder": name} | record
                if not arguments.markdown:
                    print(json.dumps(record), flush=True)
                    continue
                if columns is None:
                    columns = list(record)
                    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
                print(f"| {' | '.join(str(record[column]) for column in columns)} |", flush=True)


if __name__ == "__main__":
    main()
