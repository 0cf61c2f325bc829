"""Moments of vectors in files, block by block, against the same vectors in memory, in turns in one process.

The files have been read before, so that the disk plays no part. Prints a JSON line for each way.
Usage: python bench/streaming_fit.py [--quick] [--repeats N]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from isosent import Moments
from isosent.io.vectors import open_vectors, writing_vectors
from isosent.jobs.moments import moments_of
from whitening_fit import SPECTRA, THREADS, conditions, make_rows

SHAPES = ((200_000, 768), (1_000_000, 256))
QUICK_SHAPES = ((60_000, 256),)


def measure(n_rows, dim, repeats, folder):
    rows = make_rows(n_rows, dim, *SPECTRA["easy"])
    for name in ("rows.npy", "rows.parquet"):
        with writing_vectors(folder / name, (n_rows, dim)) as write:
            for start in range(0, n_rows, 10_000):
                write(rows[start : start + 10_000])
    ways = {
        "array in memory": lambda: Moments.from_rows(rows),
        "np.memmap as an array": lambda: Moments.from_rows(np.load(folder / "rows.npy", mmap_mode="r")),
        ".npy as a stream": lambda: moments_of([open_vectors(folder / "rows.npy")]).moments,
        ".parquet as a stream": lambda: moments_of([open_vectors(folder / "rows.parquet")]).moments,
    }
    seconds = {way: [] for way in ways}
    for _ in range(repeats):
        for way, take in ways.items():
            start = time.perf_counter()
            found = take()
            seconds[way].append(time.perf_counter() - start)
            assert found.weight == n_rows
    in_memory = seconds["array in memory"]
    for way, its in seconds.items():
        yield {
            "way": way,
            "rows": n_rows,
            "dim": dim,
            "seconds": float(np.median(its)),
            "speed_of_memory": float(np.median(np.divide(in_memory, its))),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small shape")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print(json.dumps(conditions()))
    for shape in QUICK_SHAPES if arguments.quick else SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            for line in measure(*shape, arguments.repeats, Path(folder)):
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    with threadpool_limits(THREADS):
        main()
