"""One text, one vector, and one choice: the same input gives the same bits, and the same ids, groups and choices among
equals, in any batch, process, kernel of the BLAS and processor.

Run as a program, it encodes texts in batches of random size and order, and prints a hash of the vectors of each model
and of each choice: python test_same_bits.py FOLDER SEED with|without
"""

import hashlib
import json
import os
import platform
import random
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

if __name__ == "__main__" and sys.argv[3] == "without":
    sys.modules["numba"] = None  # as if it were not installed

import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

import isosent
from isosent import CommonComponentRemoval, LinearMap, Whitening
from isosent.io.shards import Sharding
from isosent.io.vectors import open_vectors
from isosent.jobs.shards import encode_folder
from isosent.numeric.neighbors import best_columns, nearest_columns, neighbor_recall
from isosent.numeric.similarity import unit_rows
from isosent.research.dims import exact_top
from isosent.search import Index, cluster, find_duplicates
from isosent.search.keywords import Keywords
from isosent.search.stores.database import push
from isosent.transforms.agreement import sample_pairs
from isosent.transforms.auto import choose_without_texts
from isosent.transforms.base import Auto
from isosent.transforms.erasure import measure
from isosent.transforms.groups import separate_groups
from isosent.transforms.quantization import Quantization

NEEDS_NUMBA = ("sif", "gem")
TEXTS = [*isosent.demo_texts()[:150], "", "of", " ".join(isosent.demo_texts()[:40])]
# kernels of OpenBLAS, and what numpy and FAISS would do without on another processor
FEATURES = [name for name in __cpu_dispatch__ if __cpu_features__[name]]  # numpy warns of one that the processor lacks
NO_AVX512 = " ".join(name for name in FEATURES if name == "X86_V4" or name.startswith("AVX512"))
PROCESSORS = {
    "Haswell": {"NPY_DISABLE_CPU_FEATURES": " ".join(FEATURES), "FAISS_SIMD_LEVEL": "NONE"},
    "SkylakeX": {"FAISS_SIMD_LEVEL": "AVX512"},
    "Zen": {"NPY_DISABLE_CPU_FEATURES": NO_AVX512, "FAISS_SIMD_LEVEL": "AVX2"},
}


def digest(vectors):
    return hashlib.sha256(np.ascontiguousarray(vectors).tobytes()).hexdigest()


def batches(n_rows, rng):
    """Rows in random order, in batches of random size, most of them small."""
    order, start = rng.permutation(n_rows), 0
    while start < n_rows:
        size = int(2 ** rng.uniform(0, np.log2(n_rows)))
        yield order[start : start + size]
        start += size


def in_batches(function, n_rows, rng):
    """What a function of row numbers gives, from random batches."""
    parts = [(rows, function(rows)) for rows in batches(n_rows, rng)]
    whole = np.empty((n_rows, *parts[0][1].shape[1:]), parts[0][1].dtype)
    for rows, part in parts:
        whole[rows] = part
    return whole


def encoded_in_batches(model, rng, **options):
    return digest(in_batches(lambda rows: model.encode([TEXTS[row] for row in rows], **options), len(TEXTS), rng))


def digests_of_batches(folder, rng, has_numba):
    digests = {}
    for path in sorted(Path(folder).iterdir()):
        if has_numba or path.name not in NEEDS_NUMBA:
            model = isosent.load(path)
            digests[path.name] = encoded_in_batches(model, rng)
            if model.quantization is not None:
                digests["bits"] = encoded_in_batches(model, rng, precision="ubinary")
    return digests


def texts_alike():
    """Short texts, many of which share as many words; some have the words of others, in another order."""
    rng = np.random.default_rng(0)
    words = sorted({word for text in isosent.demo_texts() for word in text.lower().split()})[:400]
    texts = [list(rng.choice(words, 4, replace=False)) for _ in range(1400)]
    return [" ".join(text) for text in [*texts, *(rng.permutation(text) for text in texts[:200] * 2)]]


def choices():
    """Hashes of what is chosen among scores of which many are equal, or would be without rounding."""
    model, texts = isosent.load("wordllama"), texts_alike()
    units = unit_rows(model.encode(texts))
    rows = [*texts[:300] * 3, *texts[-200:]]
    queries, lists = texts[:40], [units[:300], np.tile(units[300:340], (40, 1))]
    numbers = np.random.default_rng(1).integers(9, size=(200, 4000)).astype(np.float32)
    fitted = model.fitted(texts).fits[-1].choice
    duplicates = find_duplicates([*texts, *isosent.demo_texts()], model)
    clusters = cluster(texts[:600] * 2, model, n_clusters=4)
    found = {
        "best": best_columns(numbers, 10),
        "nearest": nearest_columns(lists[0] @ lists[1].T, *lists, 50)[1],
        "top": exact_top(numbers[:, :20].copy(), numbers[:, 20:3020].reshape(-1, 20), 10)[0],
        "pairs": np.concatenate([np.concatenate([half.first, half.second]) for half in sample_pairs(texts)]),
        "auto": [fitted["chosen"], len(fitted["candidates"])],
        "auto without texts": str(choose_without_texts(isosent.Moments.from_rows(units), Auto(32), units).chosen),
        "recall": neighbor_recall(np.tile(units[:500], (2, 1)), np.tile(units[:500, :64], (2, 1)), 100),
        "codebooks": Quantization.fit(units).with_product(units, 16).codebooks,
        "separate": separate_groups(units, texts) is None,
        "erasure": measure(units, np.arange(len(units)) % 3 == 0, texts).same,
        "duplicates": duplicates.groups,
        "labels": clusters.labels,
        "central": [[each.words, each.examples] for each in clusters.clusters],
        "keywords": [Keywords.build(rows).search(query, 5)[0].tolist() for query in queries],
    }
    for kind, store in (("flat", "float32"), ("flat", "int8"), ("ivf", "float32")):
        index = Index.create(rows, model, kind=kind, store=store)
        found[f"{kind} {store}"] = index.search(queries, 7).ids
        found[f"{kind} {store}, words"] = index.search(queries, 7, hybrid=True).ids
    lists_of = {name: each.tolist() if isinstance(each, np.ndarray) else each for name, each in found.items()}
    return {name: digest(np.frombuffer(repr(each).encode(), np.uint8)) for name, each in lists_of.items()}


def map_and_rows():
    """A map, and rows of very different length."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((700, 96)) * 10.0 ** rng.integers(-6, 6, (700, 1))
    rows[3] = 0
    return LinearMap(rng.standard_normal((96, 40)), rng.standard_normal(40)), rows.astype(np.float32)


if __name__ == "__main__":
    generator = np.random.default_rng(int(sys.argv[2]))
    found = digests_of_batches(sys.argv[1], generator, sys.argv[3] == "with")
    linear_map, rows_to_map = map_and_rows()
    found["map"] = digest(in_batches(lambda rows: linear_map.apply(rows_to_map[rows]), len(rows_to_map), generator))
    found |= choices()
    sys.stdout.write(json.dumps(found))


@pytest.fixture(scope="module")
def models(tmp_path_factory, wordllama, texts):
    """Folders of a whitened model with a quantization, one whose map has a low rank, and two weighted ones."""
    folder = tmp_path_factory.mktemp("models")
    whitened = wordllama.fitted(texts, Whitening(64))
    whitened.with_quantization(Quantization.fit(unit_rows(whitened.encode(texts)))).save(folder / "whitened")
    wordllama.fitted(texts, CommonComponentRemoval(3)).save(folder / "removed")
    isosent.load("wordllama?weighting=sif&zipfian=true").fitted(texts).save(folder / "sif")
    isosent.load("wordllama?weighting=gem").fitted(texts, Whitening(32)).save(folder / "gem")
    return folder


@pytest.fixture(scope="module")
def alone(models):
    """Vectors of each model, text by text."""
    return {
        path.name: np.stack([model.encode(text) for text in TEXTS])
        for path in models.iterdir()
        for model in [isosent.load(path)]
    }


@pytest.mark.slow
def test_texts_have_the_same_bits_and_choices_in_any_batch_process_kernel_and_processor(models, alone):
    processors = PROCESSORS if platform.machine() == "x86_64" else {"default": {}}
    flags = Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else ""
    if "avx512f" not in flags and "SkylakeX" in processors:  # a process that uses kernels for AVX-512 would die
        processors = {"Prescott": {}} | {name: each for name, each in processors.items() if name != "SkylakeX"}
    seed, processes = random.randrange(1 << 32), []
    for number, (core, others) in enumerate(processors.items()):
        environment = os.environ | others | {"OPENBLAS_CORETYPE": core, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-W", "ignore", __file__, str(models), str(seed), "with" if number else "without"]
        processes.append((core, subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)))
    linear_map, rows = map_and_rows()
    expected = {name: digest(vectors) for name, vectors in alone.items()}
    expected["map"] = digest(np.concatenate([linear_map.apply(row[None]) for row in rows]))
    model = isosent.load(models / "whitened")
    expected["bits"] = digest(np.stack([model.encode(text, precision="ubinary") for text in TEXTS]))
    expected |= choices()
    for core, process in processes:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        found = json.loads(output)
        assert found.keys() >= {"whitened", "removed", "bits", "map", "pairs", "duplicates"}
        assert found == {name: expected[name] for name in found}, f"{core}, seed {seed}"


@pytest.mark.parametrize("shard_size", [1, 7, 64])
def test_a_text_has_the_same_bits_in_any_shard(models, alone, tmp_path, shard_size):
    path = tmp_path / "texts.txt"
    lines = [(text, row) for row, text in enumerate(TEXTS) if text][:64]
    path.write_text("".join(f"{text}\n" for text, _ in lines), "utf-8")
    encode_folder(isosent.load(models / "whitened"), [str(path)], tmp_path / "out", sharding=Sharding(shard_size))
    made = np.concatenate(list(open_vectors(tmp_path / "out").blocks()))
    np.testing.assert_array_equal(made, alone["whitened"][[row for _, row in lines]])


def test_a_second_push_of_texts_that_were_added_in_other_batches_rewrites_no_row(models, tmp_path):
    pytest.importorskip("lancedb")
    model, url = isosent.load(models / "whitened"), f"lance:{tmp_path / 'db'}"
    assert push(Index.create(TEXTS[:90], model, ids=range(90)), url) == (90, 0)
    again = Index.create(TEXTS[:1], model, ids=range(1))
    for start, stop in pairwise([1, 3, 30, 90]):
        again.add(TEXTS[start:stop], ids=range(start, stop))
    assert push(again, url) == (0, 0)


def test_the_result_is_the_sum_in_order_rounded_once():
    assert_sum_in_order(*map_and_rows())


def test_sums_of_which_little_is_left_are_added_in_order_too():
    rng = np.random.default_rng(1)
    half = rng.standard_normal((64, 24))
    order = rng.permutation(128)
    weight = np.concatenate([half, 1e-7 * rng.standard_normal((64, 24)) - half])[order]
    rows = np.tile(rng.standard_normal((200, 64)), 2)[:, order].astype(np.float32)
    assert_sum_in_order(LinearMap(weight, np.zeros(24)), rows)


def assert_sum_in_order(linear_map, rows):
    expected = np.tile(linear_map.bias, (len(rows), 1))
    for k in range(rows.shape[1]):
        expected += rows[:, k, None].astype(np.float64) * linear_map.weight[k]
    np.testing.assert_array_equal(linear_map.apply(rows), expected.astype(np.float32))


@pytest.mark.parametrize("n_rows", [1, 2, 300])
def test_values_halfway_between_two_floats_are_rounded_to_even(n_rows):
    low, high = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    rows = np.tile([low, high, high, np.nextafter(high, np.float32(2))], (n_rows, 1)).astype(np.float32)
    halves = np.zeros((4, 2))
    halves[:2, 0] = halves[2:, 1] = 0.5
    mapped = LinearMap(halves, np.zeros(2)).apply(rows)
    assert Fraction(float(rows[0, 0])) + Fraction(float(rows[0, 1])) == 2 * Fraction(1) + Fraction(1, 1 << 23)
    np.testing.assert_array_equal(mapped, np.tile([low, rows[0, 3]], (n_rows, 1)))


def test_zero_has_one_sign():
    rows = np.array([[1, -1], [-0.0, -0.0], [0, 0]], np.float32)
    mapped = LinearMap(np.array([[1.0, -1.0], [1.0, -1.0]]), np.zeros(2)).apply(rows)
    assert not np.signbit(mapped).any()


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_length_of_a_row_does_not_depend_on_its_neighbors_or_its_place_in_memory(order):
    rows = np.asarray(map_and_rows()[1], order=order)
    np.testing.assert_array_equal(unit_rows(rows), np.concatenate([unit_rows(row[None]) for row in rows]))
