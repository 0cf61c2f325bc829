"""One text, one vector: the same model and text give the same bits in any batch, process and kernel of the BLAS.

Run as a program, it encodes texts in batches of random size and order, and prints a hash of the vectors of each model:
python test_same_bits.py FOLDER SEED with|without
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

import isosent
from isosent import CommonComponentRemoval, LinearMap, Whitening
from isosent.io.shards import Sharding
from isosent.io.vectors import open_vectors
from isosent.jobs.shards import encode_folder
from isosent.numeric.similarity import unit_rows
from isosent.search import Index
from isosent.search.database import push
from isosent.transforms.quantization import Quantization

NEEDS_NUMBA = ("sif", "gem")
TEXTS = [*isosent.demo_texts()[:150], "", "of", " ".join(isosent.demo_texts()[:40])]


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
def test_a_text_has_the_same_bits_in_any_batch_process_and_kernel(models, alone):
    cores = ["Haswell", "SkylakeX"] if platform.machine() == "x86_64" else ["default"]  # Zen has Haswell's kernels
    flags = Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else ""
    if "avx512f" not in flags and "SkylakeX" in cores:
        cores[1] = "Prescott"  # a process that uses kernels for AVX-512 would die
    seed, processes = random.randrange(1 << 32), []
    for core, numba in zip(cores, ("without", "with"), strict=False):
        environment = os.environ | {"OPENBLAS_CORETYPE": core, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, __file__, str(models), str(seed), numba]
        processes.append((core, subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)))
    linear_map, rows = map_and_rows()
    expected = {name: digest(vectors) for name, vectors in alone.items()}
    expected["map"] = digest(np.concatenate([linear_map.apply(row[None]) for row in rows]))
    model = isosent.load(models / "whitened")
    expected["bits"] = digest(np.stack([model.encode(text, precision="ubinary") for text in TEXTS]))
    for core, process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        found = json.loads(output)
        assert found.keys() >= {"whitened", "removed", "bits", "map"}
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
def test_the_length_of_a_row_does_not_depend_on_its_neighbours_or_its_place_in_memory(order):
    rows = np.asarray(map_and_rows()[1], order=order)
    np.testing.assert_array_equal(unit_rows(rows), np.concatenate([unit_rows(row[None]) for row in rows]))
