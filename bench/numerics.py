"""Moments of ten million rows with mean 1000 and standard deviation 1, in blocks, against exact integers.

Float32 numbers near 1000 are multiples of 2^-14. So the rows less 1000 are integers times 2^-14, whose sums and
products are exact in float64 within a block and in int64 over all blocks; the scatter follows as fractions. Prints a
JSON line for each way. Usage: python bench/numerics.py [--rows N] [--dim D]
"""

import argparse
import json
import time
from fractions import Fraction

import numpy as np
from sklearn.decomposition import IncrementalPCA
from threadpoolctl import threadpool_limits

from isosent import Moments
from whitening_fit import THREADS, conditions

BLOCK_ROWS = 100_000
MEAN, UNIT = 1000, 2.0**-14


def blocks(n_rows, dim, dtype):
    rng = np.random.default_rng(0)
    for start in range(0, n_rows, BLOCK_ROWS):
        noise = rng.standard_normal((min(BLOCK_ROWS, n_rows - start), dim), dtype=np.float32)
        yield (np.float32(MEAN) + noise).astype(dtype)


def exact_moments(n_rows, dim, dtype):
    """Mean and scatter as long doubles that were rounded once."""
    total, products = np.zeros(dim, np.int64), np.zeros((dim, dim), np.int64)
    for block in blocks(n_rows, dim, dtype):
        steps = (block.astype(np.float64) - MEAN) / UNIT
        assert (steps == np.rint(steps)).all()
        assert len(steps) * np.abs(steps).max() ** 2 < 2.0**53
        total += steps.sum(axis=0).astype(np.int64)
        products += (steps.T @ steps).astype(np.int64)
    to_long = np.vectorize(lambda x: np.longdouble(x.numerator) / np.longdouble(x.denominator), otypes=[np.longdouble])
    sums = np.array([Fraction(int(value)) for value in total])
    squares = np.array([[Fraction(int(value)) for value in row] for row in products])
    unit = Fraction(UNIT)
    return to_long(MEAN + sums * unit / n_rows), to_long((squares - np.outer(sums, sums) / n_rows) * unit**2)


def in_double(parts, n_rows):
    total = sum(Moments.from_rows(part) for part in parts)
    return total.mean, total.scatter


def in_any_order(parts, n_rows):
    moments, rng = [Moments.from_rows(part) for part in parts], np.random.default_rng(1)
    while len(moments) > 1:
        first, second = (moments.pop(rng.integers(len(moments))) for _ in range(2))
        moments.append(first + second)
    return moments[0].mean, moments[0].scatter


def in_single(parts, n_rows):
    total = sum(Moments.from_rows(part, n_rows_total=n_rows) for part in parts)
    return total.mean, total.scatter


def textbook(dtype):
    def moments(parts, n_rows):
        total, products = dtype(0), dtype(0)
        for part in parts:
            part = part.astype(dtype)
            total, products = total + part.sum(axis=0), products + part.T @ part
        mean = total / dtype(n_rows)
        return mean, products - dtype(n_rows) * np.outer(mean, mean)

    return moments


def incremental_pca(parts, n_rows):
    pca = IncrementalPCA()
    for part in parts:
        pca.partial_fit(part)
    return pca.mean_, pca.get_covariance() * (n_rows - 1)


WAYS = {
    "isosent, products in float64": in_double,
    "isosent, the same, blocks merged in a random order": in_any_order,
    "isosent, products in float32 (as for a large set)": in_single,
    "sum of x xT - n mean meanT, float64": textbook(np.float64),
    "sum of x xT - n mean meanT, float32": textbook(np.float32),
    "scikit-learn IncrementalPCA": incremental_pca,
}


def measure(n_rows, dim, dtype):
    exact_mean, exact_scatter = exact_moments(n_rows, dim, dtype)
    deviations = np.sqrt(np.diagonal(exact_scatter))
    axes = np.linalg.eigh(exact_scatter.astype(np.float64))[1]
    for way, take in WAYS.items():
        start = time.perf_counter()
        mean, scatter = take(blocks(n_rows, dim, dtype), n_rows)
        error = scatter - exact_scatter
        variances = np.einsum("ij,ik,kj->j", axes, exact_scatter, axes)
        yield {
            "rows": n_rows,
            "dim": dim,
            "dtype": np.dtype(dtype).name,
            "way": way,
            "mean": float(np.abs(mean - exact_mean).max()),
            "entry": float((np.abs(error) / np.outer(deviations, deviations)).max()),
            "axis": float((np.abs(np.einsum("ij,ik,kj->j", axes, error, axes)) / variances).max()),
            "seconds": time.perf_counter() - start,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=48, help="48 is the least with more than 2e10 products")
    arguments = parser.parse_args()
    print(json.dumps(conditions()))
    for dtype in (np.float32, np.float16):
        for line in measure(arguments.rows, arguments.dim, dtype):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    with threadpool_limits(THREADS):
        main()
