"""Processor time and peak memory of `isosent index`, `inspect` and `fit --loss`, beside numpy and FAISS doing the same.

    python bench/plain_faiss.py [index] [inspect] ["fit --loss"] [--rows 20000] [--dim 768] [--repeats 3]

Each side runs in a process of its own, with one thread, on the same made-up vectors. Plain is what a script would do:
FAISS indexes of normalized rows, and the ten nearest of 500 queries, in every way that isosent tries. It says nothing
about the space, writes nothing but the index, and checks nothing. Needs the extra search.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

_QUERIES, _K = 500, 10


def unit_rows(rows):
    return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def made_up(n_rows, dim):
    rng = np.random.default_rng(0)
    rows = 0.3 + 0.7 * rng.standard_normal((200, dim))[rng.integers(200, size=n_rows)]
    return (rows + rng.standard_normal(rows.shape) * np.geomspace(1, 0.05, dim)).astype(np.float32)


def plain_index(rows, folder):
    import faiss

    units = unit_rows(rows)
    index = faiss.IndexFlatIP(units.shape[1])
    index.add(units)
    exact = faiss.knn(units[:_QUERIES], units, _K + 1, faiss.METRIC_INNER_PRODUCT)[1]
    _recall(exact, index.search(units[:_QUERIES], _K + 1)[1])
    faiss.write_index(index, f"{folder}/index.faiss")


def plain_sizes(rows, _):  # what `sizes` measures
    import faiss

    rows = rows[:20_000]
    dim, mean = rows.shape[1], rows.mean(axis=0)
    axes = np.linalg.eigh((rows - mean).T.astype(np.float64) @ (rows - mean))[1][:, ::-1]
    uncentered = np.linalg.eigh(rows.T.astype(np.float64) @ rows)[1][:, ::-1]
    exact = None
    maps = {(dim, "unchanged"): rows, (dim, "centered"): rows - mean}
    for width in (3 * dim // 4, dim // 2, dim // 4):
        maps |= {
            (width, "centered"): (rows - mean) @ axes[:, :width].astype(np.float32),
            (width, "uncentered"): rows @ uncentered[:, :width].astype(np.float32),
            (width, "first"): rows[:, :width],
        }
    for (width, name), mapped in maps.items():
        units = unit_rows(mapped)
        queries, docs = units[:_QUERIES], units[_QUERIES:]
        keys = ["Flat"]
        if name in ("unchanged", "uncentered"):
            keys += [f"RR{width},RaBitQ,Refine(SQfp16)"] * 2
        if name == "unchanged":
            keys += ["SQfp16", "SQ8,Refine(SQfp16)", "SQ8", f"RR{width},RaBitQ", "SQ4", f"RR{width},RaBitQ4"]
        for number, key in enumerate(keys):
            index = faiss.index_factory(width, key, faiss.METRIC_INNER_PRODUCT)
            index.train(docs[:10_000])
            index.add(docs)
            if "Refine" in key:
                index.k_factor = 2 if "SQ8" in key else 10 if number == 1 else 40
            found = index.search(queries, _K)[1]
            exact = found if exact is None else exact
            _recall(exact, found)


def _recall(exact, found):
    return np.mean([len(np.intersect1d(*pair)) for pair in zip(exact, found, strict=True)]) / exact.shape[1]


PLAIN = {"index": plain_index, "inspect": plain_sizes, "fit --loss": plain_sizes}


def isosent(command, vectors, folder):
    options = {"index": ["-o", f"{folder}/index"], "inspect": [], "fit --loss": ["0.02", "-o", f"{folder}/model"]}
    words = command.split()
    return [sys.executable, "-m", "isosent", words[0], vectors, *words[1:], *options[command]]


def measured(arguments):
    """Seconds of processor time and peak MB of a process, and of nothing else."""
    process = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{arguments}: exit {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("commands", nargs="*", choices=[*PLAIN, []], default=[])
    for name, default in (("rows", 20_000), ("dim", 768), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--plain", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        command, vectors, folder = given.plain
        if command == "made":
            np.save(vectors, made_up(*map(int, folder.split("x"))))
        else:
            PLAIN[command](np.load(vectors), folder)
        return
    script = [sys.executable, str(Path(__file__).resolve()), "--plain"]
    with tempfile.TemporaryDirectory() as folder:
        vectors = f"{folder}/vectors.npy"
        measured([*script, "made", vectors, f"{given.rows}x{given.dim}"])
        for command in given.commands or PLAIN:
            sides = {"isosent": [], "plain": []}
            for _ in range(given.repeats):
                sides["isosent"].append(measured(isosent(command, vectors, folder)))
                sides["plain"].append(measured([*script, command, vectors, folder]))
            figures = {name: np.median(values, axis=0).round(2).tolist() for name, values in sides.items()}
            print(json.dumps({"command": command, "rows": given.rows, "dim": given.dim, "cpu_s_and_mb": figures}))


if __name__ == "__main__":
    main()
