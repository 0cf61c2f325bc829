"""What checksums cost: hashing alone, and moments and writing of vectors with and without it.

python bench/checksums.py [--rows 1000000] [--dim 256] [--repeats 5] [--markdown]
"""

import argparse
import hashlib
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import xxhash

from isosent.io.checksum import _checksum_of_version, file_checksum
from isosent.io.vectors import open_vectors, writing_vectors
from isosent.jobs.moments import moments_of
from isosent.space import Space

SPACE = Space("ab" * 32, "made up")
ALGORITHMS = {"xxh3": xxhash.xxh3_128, "blake2b": hashlib.blake2b, "sha256": hashlib.sha256}


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def write(path, rows):
    with writing_vectors(path, rows.shape, space=SPACE) as write_rows:
        for start in range(0, len(rows), 10_000):
            write_rows(rows[start : start + 10_000])


def moments(path, *, verified):
    _checksum_of_version.cache_clear()
    source = open_vectors(path)
    moments_of([source if verified else replace(source, checksum=None)])


def measure(folder, rows, repeats):
    block = np.ascontiguousarray(rows[:100_000]).tobytes()
    for name, algorithm in ALGORITHMS.items():
        times = [seconds(lambda algorithm=algorithm: algorithm(block).digest()) for _ in range(repeats)]
        yield {"what": f"hash in memory: {name}", "GB/s": round(len(block) / 1e9 / statistics.median(times), 2)}
    for ending in (".npy", ".parquet"):
        path = folder / f"v{ending}"
        ways = {
            "write": lambda path=path: write(path, rows),
            "hash the file": lambda path=path: file_checksum(path),
            "moments, verified": lambda path=path: moments(path, verified=True),
            "moments, not verified": lambda path=path: moments(path, verified=False),
        }
        times = {name: [] for name in ways}
        for _ in range(repeats):  # in turn, for a busy machine slows them all
            for name, run in ways.items():
                times[name].append(seconds(run))
        size = path.stat().st_size / 1e9
        medians = {name: statistics.median(of) for name, of in times.items()}
        added = medians["moments, verified"] / medians["moments, not verified"] - 1
        rounded = {f"{name}, s": round(median, 3) for name, median in medians.items()}
        yield {"what": ending, "GB": round(size, 2), **rounded, "added to moments": f"{added:.1%}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    rows = np.random.default_rng(0).standard_normal((options.rows, options.dim), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for row in measure(Path(folder), rows, options.repeats):
            print("| " + " | ".join(map(str, row.values())) + " |" if options.markdown else json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
